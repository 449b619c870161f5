"""Where the accelerator time goes: every part of it, and why shares that sound alike differ."""

from __future__ import annotations

from taut.render.brief.document import Block, Cell, Column, Grid, Section, Text
from taut.render.brief.split_time import split_table
from taut.render.brief.useful_shares import useful_shares
from taut.render.brief.written import percent, possible, share, worth, worth_a_month
from taut.result.brief_types import Briefing
from taut.result.types import BriefCause

NOTE = (
    "Costs: how much shorter the run would be without it; of what was not replayed (0 to …) its accelerator time. Accelerator "
    "time: the parts of the table above that a cause explains. Other sections use these figures."
)

CLOCK = (
    "Two measures stand side by side. Shares of accelerator time, as here, add up to 100 %. What a cause costs (page one) is a "
    "share of the time on the clock, and several do not add up. An example: if one of {ranks} ranks takes a second longer in "
    "a step, the clock loses that second once; in accelerator time it is {others} of waiting by the others and 1 s of slow "
    "compute by the late one. So the clock may lose more to lateness than the part “waiting” alone shows."
)


def accelerator_time(briefing: Briefing) -> Section | None:
    """Of runs; scenarios have theirs where the money goes."""
    if not briefing.runs:
        return None
    blocks: list[Block] = [*split_table(briefing)]
    ranks = briefing.runs[0].result.job.ranks
    if blocks and ranks > 1 and briefing.causes:
        blocks.append(Text(CLOCK.format(ranks=f"{ranks:,}", others=f"{ranks - 1:,} s")))
    blocks += [*cause_sizes(briefing), *useful_shares(briefing)]
    commands = [one.command for one in briefing.inputs if one.kind in ("run", "bill")]
    return Section("time", "Where the accelerator time goes", blocks, commands) if blocks else None


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
