"""Vendor annex: what to demand, which test to run, which number to reach, from this job's own sensitivities."""

from __future__ import annotations

from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Section, Text
from taut.render.brief.written import cash
from taut.result.brief_types import Briefing
from taut.result.types import Demand

INTRODUCTION = (
    "These follow from what this job is sensitive to, not from a list of good practice. Money is what it costs in a year of "
    "going on like this, and so the most that better parts can bring back; demands overlap and do not add up."
)
MOST = 12


def vendor_annex(briefing: Briefing) -> Section:
    """One row a demand, the most money first."""
    blocks: list[Block] = [Text(INTRODUCTION)]
    if not briefing.demands:
        needs = "traces of all ranks, or a training scenario"
        blocks.append(Empty("Nothing can be demanded from these inputs.", needs, "taut project SCENARIO --envelope"))
    else:
        columns = [
            Column("Demand"),
            Column("Costs"),
            Column("A year", True),
            Column("Test"),
            Column("Number to reach"),
        ]
        rows: list[list[Cell | str]] = [
            [Cell(one.what, "strong"), one.worth, _money(one), one.test, one.reach] for one in briefing.demands[:MOST]
        ]
        blocks.append(Grid("What to demand", columns, rows))
    return Section("vendor-annex", "Vendor annex", blocks, list(dict.fromkeys(one.command for one in briefing.demands)))


def _money(one: Demand) -> str:
    return "not priced" if one.money_per_year is None else f"{cash(float(one.money_per_year))} {one.currency or ''}".rstrip()
