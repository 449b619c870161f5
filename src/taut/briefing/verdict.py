"""The verdict of a briefing: what it looks like, what is useful, what holds it up, and what mending that brings back."""

from __future__ import annotations

from collections.abc import Sequence

from taut.briefing.answers import CONTROLLED
from taut.briefing.inputs import Opened
from taut.render.brief.written import share, worth
from taut.result.types import AnalysisResult, BriefCause, Estimate

WIDE = 0.6
"""An interval of a share that is as wide says next to nothing."""


def verdict(found: Opened, causes: Sequence[BriefCause]) -> str:
    """The answer in a sentence or two: what was measured speaks first."""
    for _, _, result in found.runs:
        return f"{_busy(result)}{_first(result, causes)}"
    for scenario in found.scenarios:
        regime, threshold = scenario.result.regime, scenario.result.threshold
        kind = regime.kind if regime is not None and regime.kind else "not classed"
        limit = f"; the next accelerator stops paying at {threshold.ranks:,}" if threshold and threshold.ranks else ""
        means = f": {CONTROLLED[kind]}" if kind in CONTROLLED else ""
        ratio = scenario.result.indices.get("effective_throughput_ratio")
        does = "" if ratio is None else _does(ratio)
        return f"{scenario.source.name} is {kind} on {scenario.result.ranks:,} accelerators{means}{limit}.{does}"
    for control in found.controls:
        first = next(iter(control.result.relations), None)
        kind = control.result.regime.kind or "not classed"
        return f"Controllers are {kind}" + (f": {first.because.split('; ')[0]}." if first else ".")
    return found.bills[0].result.verdict


def _does(ratio: Estimate) -> str:
    """How much of what it could do a system does; of what could be nearly anything only that."""
    if ratio.lo is not None and ratio.hi is not None and ratio.hi - ratio.lo >= WIDE:
        return f" It does between {100 * ratio.lo:.0f} and {100 * ratio.hi:.0f} % of what it could if nothing held it up."
    return f" It does {100 * ratio.value:.0f} % of what it could if nothing held it up."


def _busy(result: AnalysisResult) -> str:
    """How busy a job looks, and how much of it is useful."""
    told = result.verdict
    if told.nominal_share is None or told.effective_share is None:
        return ""
    nominal, effective = (round(100 * one) for one in (told.nominal_share, told.effective_share))
    return f"{result.job.name} looks {nominal} % busy, and {effective} % of its accelerator time is useful work. "


def _first(result: AnalysisResult, causes: Sequence[BriefCause]) -> str:
    """The cause to act on first, and what that brings; where there is none, what the analysis says."""
    first = next(iter(causes), None)
    mine = {finding.id for finding in result.findings}
    if first is None or first.finding not in mine or first.share_is != "recoverable" or first.share is None:
        return result.verdict.text
    money = None if first.money_per_month is None else worth(first.money_per_month, first.currency)
    worth_it = "" if money is None else f", {money} a month"
    when = "" if not first.steps else f" in {result.job.unit}s {first.steps[0]:,}–{first.steps[-1]:,}"
    act = "Mending this" if first.repair else "What helps against it"
    what = f"{first.what[:1].upper()}{first.what[1:]}"
    return f"{what}{when}. {act} gives back {share(first.share)} of the time{worth_it}."
