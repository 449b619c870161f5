"""Where the accelerator time goes: as parts of one bar, and as a table with what is done about each."""

from __future__ import annotations

from collections.abc import Sequence

from taut.render.brief.document import Bar, Cell, Colour, Column, Grid
from taut.render.brief.written import cash, percent
from taut.render.text import safe
from taut.result.brief_types import Briefing, TimePart

KINDS: tuple[tuple[str, str, Colour], ...] = (
    ("useful", "useful work", "useful"),
    ("waiting", "waiting for others", "waiting"),
    ("queues", "queues and waiting", "waiting"),
    ("computing slower", "slow compute", "slow"),
    ("moving", "moving data", "communication"),
    ("communication", "communication", "communication"),
    ("gaps", "gaps", "gap"),
    ("failures", "failures and restarts", "restart"),
)
"""How a part begins, what it is called in a bar, and its colour."""


def split_bars(parts: Sequence[TimePart], group: str) -> list[Bar]:
    """Parts of one bar; those of one kind together."""
    sums: dict[tuple[str, Colour], float] = {}
    for one in parts:
        kind = next(((label, colour) for begin, label, colour in KINDS if one.what.startswith(begin)), ("the rest", "other"))
        sums[kind] = sums.get(kind, 0.0) + one.share
    return [Bar(label, share, colour, percent(share), group) for (label, colour), share in sums.items()]


def split_table(briefing: Briefing) -> list[Grid]:
    """The parts in a table, in money too; nothing where they are not known."""
    lost = [one for one in briefing.split if not one.useful]
    if not lost:
        return []
    cost = briefing.costs if len(briefing.runs) < 2 else None
    columns = [Column("Accelerator time goes into"), Column("Share", True)]
    columns += [Column(f"{safe(cost.currency)} a month", True)] if cost is not None else []
    told = any(one.do for one in lost)
    columns += [Column("What is done about it (causes: page one)")] if told else []
    rows = [_row(one, None if cost is None else cost.per_month, told) for one in briefing.split]
    whole = percent(sum(one.share for one in lost))
    return [Grid(f"The {whole} that is no useful work, part by part", columns, rows)]


def _row(one: TimePart, month: float | None, told: bool) -> list[Cell | str]:
    money = [] if month is None else [cash(month * one.share)]
    return [Cell(one.what, "good" if one.useful else "plain"), percent(one.share), *money, *([one.do or ""] if told else [])]
