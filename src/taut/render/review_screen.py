"""The review of a change of control loops on a terminal: what it adds, what would fight and why, what it resolves."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import ConsoleRenderable, Group
from rich.padding import Padding
from rich.text import Text

from taut.render.terminal import Screen, spaced_text
from taut.render.text import count, safe
from taut.result.types import ReviewRelation, ReviewResult, Setting

MOST = 20
"""Relations, and changes, that are shown."""


def render_review(result: ReviewResult, screen: Screen) -> str:
    """The whole screen of ``taut control review``."""
    new = [one for one in result.relations if one.new]
    old = [one for one in result.relations if not one.new]
    parts = [
        Text(_headline(result, new, old), style="bold"), _changes(result), _relations("would fight", new, "bold red"),
        _relations("fought before, and still would", old, "yellow"),
        _relations("no longer fights", result.resolved, "green"),
    ]  # fmt: skip
    return spaced_text(parts, screen)


def _headline(result: ReviewResult, new: Sequence[ReviewRelation], old: Sequence[ReviewRelation]) -> str:
    change = f"{count(len(result.added), 'loop')} added, {len(result.removed)} removed"
    if new:
        return f"{change}: {count(len(new), 'relation')} that would fight."
    rest = f" {count(len(old), 'relation')} stays." if old else ""
    return f"{change}: nothing new would fight.{rest}"


def _changes(result: ReviewResult) -> ConsoleRenderable | None:
    lines = [f"+ {safe(name)}" for name in result.added] + [f"- {safe(name)}" for name in result.removed]
    lines += [f"~ {safe(one.name)}: {one.key} {safe(_value(one.before))} → {safe(_value(one.after))}" for one in result.changed]
    more = [f"… and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return Text("\n".join(lines[:MOST] + more)) if lines else None


def _value(value: Setting) -> str:
    """A value of a configuration; a dash where none is given."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "–"
    return "–" if value in (None, "") else f"{value:g}" if isinstance(value, float) else str(value)


def _relations(heading: str, some: Sequence[ReviewRelation], style: str) -> ConsoleRenderable | None:
    if not some:
        return None
    parts: list[ConsoleRenderable] = [Text(heading, style=style)]
    for one in some[:MOST]:
        parts.append(Padding(Text(f"{safe(one.kind)}: {safe(one.because)}"), (0, 0, 0, 2)))
        if style != "green":
            parts.append(Padding(Text(safe(one.remedy), style="dim"), (0, 0, 0, 4)))
    if len(some) > MOST:
        parts.append(Padding(Text(f"… and {len(some) - MOST} more", style="dim"), (0, 0, 0, 2)))
    return Group(*parts)


__all__ = ["render_review"]
