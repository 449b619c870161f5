"""Words of profilers for copies and fills of an accelerator's memory → their classes."""

from __future__ import annotations

import re
from functools import lru_cache

from taut.core.array_types import Json

# ``HtoD``, ``D2H``, ``PtoP``, and ``M2D`` of Level Zero, whose M is memory of the host; arrays and peers are on devices.
_LETTERS = re.compile(r"([HDAPMS])(?:to|2)([HDAPMS])(?![a-z])|\b([hd])(?:to|2)([hd])\b")
_WORDS = re.compile(r"(host|device|peer)\W*_?to_?\W*(host|device|peer)", re.IGNORECASE)
_SIDE = "(host|pageable|pinned|managed|device|array|memory)"
_ENDS = re.compile(rf"\b{_SIDE}\b[^>]*->\s*{_SIDE}\b", re.IGNORECASE)
_SET = re.compile(r"memset|fill", re.IGNORECASE)
_HOST = ("h", "m", "host", "pageable", "pinned", "memory")


@lru_cache(4096)
def _class_of(word: str) -> str:
    """The class that one word names; empty where it names none."""
    found = _LETTERS.search(word) or _WORDS.search(word) or _ENDS.search(word)
    if found:
        ends = (side.lower() for side in found.groups() if side)
        return "copy " + "2".join("h" if end in _HOST else "d" for end in ends)
    return "set" if _SET.search(word) else ""


def copy_class(name: str, *more: Json) -> str:
    """The class of a copy, from its name or else from what its arguments call its kind or direction."""
    words = (word[:200] for word in (name, *more) if isinstance(word, str))
    return next(filter(None, map(_class_of, words)), "copy")
