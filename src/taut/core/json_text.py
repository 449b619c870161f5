"""A result as JSON text that is safe to show: what a terminal or an editor would obey, or hide, is written as an escape."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.core.array_types import Json

# Controls (C0 but for the line feed that JSON is laid out with, DEL, C1), everything of category Cf (direction marks, tags,
# joiners, BOM), separators of lines and paragraphs, lone surrogates, and the marks and letters that are drawn as nothing.
_RANGES = (
    "\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
UNSEEN = re.compile(f"[{_RANGES}]")
"""A character that is not shown, or that changes how others are shown. The line feed is not among them."""
_LONE = re.compile("[\ud800-\udfff]")


def json_text(result: object) -> str:
    """``result`` as JSON, indented by one blank, without a line feed at the end.

    A lone surrogate (a file name that is not UTF-8) has no form in JSON that every reader takes: its escape is the text.
    """
    import msgspec

    try:
        encoded = msgspec.json.encode(result)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_without_lone(msgspec.to_builtins(result)))
    text = msgspec.json.format(encoded, indent=1).decode()
    if text.isascii() and "\x7f" not in text:
        return text
    return UNSEEN.sub(lambda found: _escape(found[0]), text)


def _escape(character: str) -> str:
    """``\\uXXXX``, twice for what lies beyond the first 65,536 characters."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[k : k + 4]}" for k in range(0, len(units), 4))


def _escaped(text: str) -> str:
    return _LONE.sub(lambda found: _escape(found[0]), text)


def _without_lone(value: Json) -> Json:
    """The same with every lone surrogate written out."""
    if isinstance(value, str):
        return _escaped(value)
    if isinstance(value, dict):
        return {_escaped(key): _without_lone(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_lone(each) for each in value]
    return value
