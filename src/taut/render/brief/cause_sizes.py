"""The causes of page one in every measure side by side: the clock, accelerator time, what comes back, money."""

from __future__ import annotations

from taut.render.brief.document import Block, Cell, Column, Grid
from taut.render.brief.written import percent, possible, share, worth, worth_a_month
from taut.result.brief_types import Briefing
from taut.result.types import BriefCause

NOTE = (
    "Costs: how much shorter the run would be without it; of what was not replayed (0 to …) its accelerator time. Accelerator "
    "time: the parts of the table above that a cause explains. Other sections use these figures."
)


def cause_sizes(briefing: Briefing) -> list[Block]:
    """A row for each cause; nothing where none of them explains a part of the time."""
    if not any(part.causes for part in briefing.split):
        return []
    currency = next((one.currency for one in briefing.causes if one.currency), None)
    columns = [
        Column("Cause (page one)"), Column("Costs, of the clock", True), Column("Of accelerator time"),
        Column("Comes back, of the clock", True), Column(worth_a_month(currency), True),
    ]  # fmt: skip
    rows = [_row(briefing, number, cause) for number, cause in enumerate(briefing.causes, 1)]
    return [Grid("Each cause in every measure", columns, rows, NOTE)]


def _row(briefing: Briefing, number: int, cause: BriefCause) -> list[Cell | str]:
    costs = "not measured" if cause.costs is None else share(cause.costs)
    back, money = cause.share, cause.money_per_month
    known = cause.share_is == "recoverable"
    comes = "not measured" if back is None else share(back) if known else possible(back, "share")
    paid = "not priced" if money is None else worth(money, None) if known else possible(money, "money")
    return [Cell(f"{number}. {cause.what}", "strong"), costs, _parts(briefing, number), comes, paid]


def _parts(briefing: Briefing, number: int) -> str:
    """The parts of accelerator time that a cause explains; first such as are all its own."""
    mine = sorted((part for part in briefing.split if number in part.causes), key=lambda part: part.partly)
    told = [f"{'some of the ' if part.partly else ''}{percent(part.share)} {part.what}" for part in mine]
    return ", ".join(told) or "not told apart"
