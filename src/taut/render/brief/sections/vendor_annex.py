"""Vendor annex: what to demand, which test to run, which number to reach, from this job's own sensitivities."""

from __future__ import annotations

from collections.abc import Sequence

from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Section, Text
from taut.render.brief.written import cash, worth, worth_a_month
from taut.result.brief_types import Briefing
from taut.result.types import BriefCause, Demand

INTRODUCTION = (
    "These follow from what this job is sensitive to, not from a list of good practice. Money is accelerator time in a "
    "month of going on like this; demands overlap and do not add up."
)
MEASURED = " First stands what page one expects to come back, then the most that better parts can bring."
MOST = 12
DAYS_A_YEAR, DAYS_A_MONTH = 365, 30


def vendor_annex(briefing: Briefing) -> Section:
    """One row a demand, the most money first."""
    commands = {run.source.command for run in briefing.runs}
    measured = {one.command for one in briefing.demands if one.command in commands}
    blocks: list[Block] = [Text(f"{INTRODUCTION}{MEASURED if measured else ''}")]
    if not briefing.demands:
        needs = "traces of all ranks, or a training scenario"
        blocks.append(Empty("Nothing can be demanded from these inputs.", needs, "taut project SCENARIO --envelope"))
    else:
        columns = [
            Column("Demand"),
            Column("Costs"),
            Column(worth_a_month(next((one.currency for one in briefing.demands if one.currency), None))),
            Column("Test"),
            Column("Number to reach"),
        ]
        rows: list[list[Cell | str]] = [
            [Cell(one.what, "strong"), one.worth, _money(one, briefing.causes, one.command in measured), one.test, one.reach]
            for one in briefing.demands[:MOST]
        ]
        blocks.append(Grid("What to demand", columns, rows))
    return Section("vendor-annex", "Vendor annex", blocks, list(dict.fromkeys(one.command for one in briefing.demands)))


def _money(one: Demand, causes: Sequence[BriefCause], measured: bool) -> str:
    """What comes back by the remedy of page one, and the most that better parts bring; of a model what worse ones cost."""
    if one.money_per_year is None:
        return "not priced"
    most = cash(float(one.money_per_year) * DAYS_A_MONTH / DAYS_A_YEAR)
    mine = next((cause for cause in causes if cause.finding is not None and cause.finding == one.finding), None)
    if mine is None or mine.money_per_month is None or mine.share_is != "recoverable":
        return f"up to {most}" if measured else most
    back = worth(mine.money_per_month, None)
    return back if mine.stays is None else f"{back} by the remedy of page one; better parts: up to {most}"
