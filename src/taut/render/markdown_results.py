"""Results as Markdown, for the summary of a CI job: what to know first, and tables. Names in it are data."""

from __future__ import annotations

from taut.render.brief.document import Block, Cell, Column, Document, Grid, Section, Text
from taut.render.brief.markdown import render_markdown
from taut.render.brief.sections.compared_runs import compared, where
from taut.render.text import UNKNOWN, count, percent
from taut.result.types import AnalysisResult, Change, CompareResult, Finding

MOST = 10
"""Findings that are listed."""
BY_JITTER = "By the jitter within the runs. Whether runs of this job differ by as much anyway needs three or more of them."


def compare_markdown(result: CompareResult, fail_on: float | None = None) -> str:
    """What ``taut compare --markdown`` prints."""
    change = result.step_time
    words = "Whether steps became longer cannot be told: too few steps." if change is None else f"{step_words(change)}."
    blocks: list[Block] = [Text(words, "lead")]
    if fail_on is not None:
        blocks.append(Text(_judged(change, fail_on)))
    runs, section = f"{result.runs[0].run} → {result.runs[-1].run}", _section("Before and after", [*blocks, *compared(result)])
    return render_markdown(Document("taut compare", runs, [section], BY_JITTER))


def step_words(change: Change) -> str:
    """``Steps are longer than before: +10.2 % (+8.1 % to +12.4 %)``."""
    lo, hi = change.ratio.lo, change.ratio.hi
    sure = lo is not None and hi is not None and not lo <= 1 <= hi
    way = "longer than" if change.ratio.value > 1 else "shorter than"
    says = f"Steps are {way} before" if sure else "Steps are as long as before, as far as jitter tells"
    return f"{says}: {_by(change.ratio.value)} ({_by(lo)} to {_by(hi)})"


def _by(ratio: float | None) -> str:
    return UNKNOWN if ratio is None else f"{100 * (ratio - 1):+.1f} %".replace("-", "−")


def _judged(change: Change | None, fail_on: float) -> str:
    asked = f"--fail-on {fail_on:g} (longer by {percent(fail_on)} at least)"
    if change is None or change.ratio.lo is None:
        return f"? {asked}: not known"
    return f"✗ {asked}: reached" if change.ratio.lo - 1 >= fail_on else f"✓ {asked}: not reached"


def analysis_markdown(result: AnalysisResult) -> str:
    """What ``taut analyze --markdown`` prints."""
    job = result.job
    about = f"{job.name}: {count(job.ranks, 'rank')}, {count(job.steps, job.unit)}"
    blocks: list[Block] = [Text(result.verdict.text, "lead")]
    if result.findings:
        blocks.append(_findings(result))
    return render_markdown(Document("taut analyze", about, [_section("Verdict", blocks)], "Recoverable: share of the wall."))


def _findings(result: AnalysisResult) -> Grid:
    columns = [Column("Finding"), Column("Where"), Column("Recoverable", True), Column("Because"), Column("Do")]
    rows = [_row(one) for one in result.findings[:MOST]]
    left = len(result.findings) - MOST
    return Grid("Findings", columns, rows, f"{left:,} more." if left > 0 else "")


def _row(one: Finding) -> list[Cell | str]:
    share = None if one.recoverable_share is None else one.recoverable_share.value
    return [one.mode, where(one), percent(share), one.because, "" if one.remedy is None else one.remedy.do]


def _section(title: str, blocks: list[Block]) -> Section:
    return Section("result", title, blocks)
