"""One pass over a document before it is rendered: what is not shown, or would be obeyed, becomes an escape that is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import convert, to_builtins

from taut.render.brief.document import Document
from taut.render.text import safe

if TYPE_CHECKING:
    from taut.core.array_types import Json


def cleaned(document: Document) -> Document:
    """The same document, every text safe to show."""
    return convert(_clean(to_builtins(document)), Document)


def _clean(value: Json) -> Json:
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(each) for each in value]
    return value
