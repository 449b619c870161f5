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
# Kernels with which drivers copy and fill: those of CUDA inside graphs (``memcpy128``, ``memset32_post``), those of HIP.
_KERNEL = re.compile(r"Mem(?:cpy|set)|\[CUDA mem|__amd_rocclr_(?:copy|fill)|mem(?:cpy|set)\d")
_WITHIN = re.compile(r"memcpy\d")
_HOST = ("h", "m", "host", "pageable", "pinned", "memory")


@lru_cache(4096)
def _class_of(word: str) -> str:
    """The class that one word names; empty where it names none."""
    found = _LETTERS.search(word) or _WORDS.search(word) or _ENDS.search(word)
    if found:
        ends = (side.lower() for side in found.groups() if side)
        return "copy " + "2".join("h" if end in _HOST else "d" for end in ends)
    return "set" if _SET.search(word) else "copy d2d" if _WITHIN.match(word) else ""


def copy_class(name: str, *more: Json) -> str:
    """The class of a copy, from its name or else from what its arguments call its kind or direction."""
    words = (word[:200] for word in (name, *more) if isinstance(word, str))
    return next(filter(None, map(_class_of, words)), "copy")


@lru_cache(1 << 14)
def is_memory(name: str) -> bool:
    """Whether a kernel only copies or fills: some writers list these among kernels, and drivers run some as kernels."""
    return _KERNEL.match(name) is not None
