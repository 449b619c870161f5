"""Shares that sound alike and are of different wholes, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from taut.render.brief.document import Block, Cell, Column, Grid
from taut.render.brief.written import percent, share
from taut.render.text import safe
from taut.result.brief_types import BriefedBill, BriefedRun, Briefing
from taut.result.types import Estimate

COLUMNS = (Column("Figure"), Column("Value", True), Column("Share of what, and what counts"))
TRACED = (
    "Of the accelerator time of the traced steps: computing at its usual speed. Waiting, moving data and gaps do not count."
)
KEPT = "Of the time from the first start to the last end, between attempts included: work that no later attempt did again."
BILLED = "Of everything in the bill, accelerators that nobody used and services included: computing at its usual speed."
RATIO = (
    "Of the length of the steps: their length if every operation took its usual time. What the step itself makes ranks wait "
    "and move is in both, so it is no loss here."
)
GROWN = "The same, gaps counted, in a model of the job"


def useful_shares(briefing: Briefing) -> list[Block]:
    """Every share of useful time of a single run, and what it is a share of; nothing where there is only one."""
    if len(briefing.runs) != 1 or len(briefing.bills) > 1:
        return []
    rows = [
        *_of_run(briefing.runs[0]),
        *(row for bill in briefing.bills for row in _of_bill(bill)),
        *_modelled(briefing.runs[0]),
    ]
    if len(rows) < 2:
        return []
    return [Grid("Useful, effective, kept: why the figures differ", COLUMNS, rows)]


def _row(name: str, value: str, of: str) -> list[Cell | str]:
    return [Cell(name, "strong"), value, of]


def _of_run(run: BriefedRun) -> Iterator[list[Cell | str]]:
    result = run.result
    if result.verdict.effective_share is not None:
        yield _row("effective, or useful work (page one)", percent(result.verdict.effective_share), TRACED)
    found = result.attempts
    kept = sum(entry.rank_ns for entry in found.entries if entry.fate == "kept") if found is not None else 0
    if found is not None and found.total_rank_ns and kept:
        yield _row("kept (attempts)", percent(kept / found.total_rank_ns), KEPT)


def _of_bill(bill: BriefedBill) -> Iterator[list[Cell | str]]:
    here = next((one.share for one in bill.result.categories if one.name == "useful work"), None)
    if here is not None:
        yield _row("useful work (bill)", percent(here), BILLED)


def _modelled(run: BriefedRun) -> Iterator[list[Cell | str]]:
    ratio = run.result.indices.effective_throughput_ratio if run.result.indices is not None else None
    if ratio is not None:
        yield _row("step speed against ideal (the index effective throughput)", share(ratio), RATIO)
    grown = run.grown
    if grown is None:
        return
    value = next((one.effective_throughput_ratio for one in grown.forecasts if one.ranks == run.result.job.ranks), None)
    assumed = grown.assumed if isinstance(grown.assumed, list) else []
    mended = "".join(f"; {safe(one)}" for one in assumed if one.startswith("mended first"))
    if value is not None:
        known = value if isinstance(value, Estimate) else Estimate(value=value)
        yield _row("step speed against ideal, projected (more accelerators)", share(known), f"{GROWN}{mended}.")
