"""What all cards of a notebook are made of: a frame, lines, a small table.

Letters have the colour of the notebook, light or dark; colours are only in edges, and never all that tells lines apart. Every
text is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from taut.render.text import safe

FRAME = "border:1px solid #888;border-radius:6px;padding:0.6em 1em;max-width:60em;font-family:sans-serif;line-height:1.5"
EDGE = "border-left:3px solid {};padding-left:0.6em;margin-top:0.3em"
STYLES = {"plain": "", "muted": "opacity:0.75", "wrong": EDGE.format("#D55E00"), "do": EDGE.format("#009E73")}
TABLE = "color:inherit;font:inherit;border:none;margin:0.4em 0"
CELL = "text-align:left;padding:0 1.2em 0 0;background:none;border:none"
"""Notebooks have borders, stripes and an alignment of their own."""


def framed(verdict: str, lines: Iterable[str]) -> str:
    """A card: the answer, and what is below it."""
    return f'<div style="{FRAME}"><b>{text(verdict)}</b>{"".join(lines)}</div>'


def line(words: str, kind: Literal["plain", "muted", "wrong", "do"] = "plain") -> str:
    """A line of a card."""
    style = f' style="{STYLES[kind]}"' if STYLES[kind] else ""
    return f"<div{style}>{text(words)}</div>"


def rows(cells: Iterable[Sequence[str]], titles: Sequence[str] = ()) -> str:
    """A small table; nothing where it has no rows."""
    body = "".join(f"<tr>{_cells(row, 'td')}</tr>" for row in cells)
    head = f'<tr style="background:none">{_cells(titles, "th")}</tr>' if titles else ""
    return f'<table style="{TABLE}">{head}{body}</table>' if body else ""


def _cells(values: Sequence[str], tag: str) -> str:
    return "".join(f'<{tag} style="{CELL}">{text(value)}</{tag}>' for value in values)


def text(words: str) -> str:
    """Text as HTML."""
    return escape(safe(words))
