"""Page one, for whoever decides: the verdict, nominal against effective, what it costs, three causes, the decision."""

from __future__ import annotations

from taut.render.brief.document import Bar, Bars, Block, Cell, Column, Empty, Fact, Facts, Grid, Picture, Section, Text
from taut.render.brief.written import cash, percent, share, times, worth
from taut.render.text import count, duration
from taut.result.brief_types import Briefing
from taut.result.types import AnalysisResult, BriefCause, Estimate, Regime

REGIMES = {
    "stable": "more load or more ranks still pay",
    "marginal": "near the limit: little growth still pays",
    "unstable": "past the limit: more of it costs more than it brings",
    "coherent": "controllers work together",
    "oscillating": "controllers swing back and forth",
    "amplifying": "controllers multiply the load",
    "incoherent": "controllers work against each other",
}
"""Class of a regime → what it means to somebody who decides."""
HEALTHY = "No cause takes as much as 3 % of the time. Nothing is to be decided on these figures."


def page_one(briefing: Briefing) -> Section:
    """What somebody reads who reads nothing else."""
    blocks: list[Block] = [Text(briefing.verdict, "lead"), Facts(_facts(briefing)), *_two_shares(briefing), _causes(briefing)]
    return Section("summary", "Summary", [*blocks, *_decision(briefing), *_basis(briefing)])


def _basis(briefing: Briefing) -> list[Block]:
    """What the figures of this page rest on."""
    said = [_measured(run.result) for run in briefing.runs[:2]]
    said += [f"{one.source.name}: a model, {count(one.result.ranks, 'accelerator')}" for one in briefing.scenarios[:2]]
    if briefing.costs is not None:
        said.append(f"money: {briefing.costs.basis}, for 30 days of going on like this")
    told = f"What this rests on: {'; '.join(said)}. " if said else ""
    return [Text(f"{told}Intervals hold the value in 95 of 100 repetitions, unless it is said otherwise.", "note")]


def _measured(result: AnalysisResult) -> str:
    """How much of a job was measured."""
    job = result.job
    if job.wall_ns is None:
        return f"{job.name}: job logs alone"
    return f"{job.name}: one run, {count(job.ranks, 'rank')}, {count(job.steps, job.unit)}, {duration(job.wall_ns)} of it"


def _facts(briefing: Briefing) -> list[Fact]:
    return [fact for fact in (_effective(briefing), _regime(briefing), _money(briefing), _saving(briefing)) if fact is not None]


def _effective(briefing: Briefing) -> Fact | None:
    for run in briefing.runs:
        verdict = run.result.verdict
        if verdict.effective_share is not None:
            return Fact("Effective", percent(verdict.effective_share), "of the accelerator time does useful work")
    for scenario in briefing.scenarios:
        ratio = scenario.result.indices.get("effective_throughput_ratio")
        if ratio is not None:
            return Fact("Effective", share(ratio), "of what the same hardware would do if nothing held it up")
    return None


def _regime(briefing: Briefing) -> Fact | None:
    regimes: list[Regime] = [run.result.regime for run in briefing.runs if run.result.regime is not None]
    regimes += [one.result.regime for one in briefing.scenarios if one.result.regime is not None]
    for regime in regimes:
        if regime.kind is not None:
            reserve = f"; reserve {times(regime.reserve)}" if regime.reserve else ""
            return Fact("Regime", regime.kind, f"{REGIMES.get(regime.kind, '')}{reserve}")
    for control in briefing.controls:
        kind = control.result.regime.kind
        if kind is not None:
            return Fact("Control", kind, REGIMES.get(kind, ""))
    return None


def _money(briefing: Briefing) -> Fact:
    cost = briefing.costs
    if cost is None:
        return Fact("Cost a month", "not priced", "give --gpu-hour 2.50EUR or --prices FILE")
    return Fact("Cost a month", f"{cash(cost.per_month)} {cost.currency}", cost.basis)


def _saving(briefing: Briefing) -> Fact | None:
    cost = briefing.costs
    if cost is None or cost.useful_per_month is None:
        return None
    return Fact(
        "Lost a month", f"{cash(cost.per_month - cost.useful_per_month)} {cost.currency}", "paid for without useful work"
    )


def _two_shares(briefing: Briefing) -> list[Block]:
    """Nominal against effective: what a dashboard shows, and what was done."""
    for run in briefing.runs:
        verdict = run.result.verdict
        if verdict.nominal_share is not None and verdict.effective_share is not None:
            nominal, effective = verdict.nominal_share, verdict.effective_share
            bars = [
                Bar("utilisation, as dashboards show it", nominal, "whole", percent(nominal)),
                Bar("useful work", effective, "useful", percent(effective)),
            ]
            alt = f"Two bars: dashboards show {percent(nominal)} utilisation; {percent(effective)} of the time is useful work."
            return [Picture("Nominal against effective", alt, Bars(bars, "share of accelerator time"))]
    return []


def _causes(briefing: Briefing) -> Block:
    if not briefing.causes:
        kinds = [run.result.verdict.kind for run in briefing.runs]
        if kinds and all(kind == "healthy" for kind in kinds):
            return Text(HEALTHY)
        return Empty(
            "No cause can be named from these inputs.", "traces of all ranks over 20 steps or more", "taut analyze TRACES"
        )
    columns = [
        Column("Cause"),
        Column("Costs or gives back", True),
        Column("A month", True),
        Column("Sure of the cause", True),
        Column("What to do"),
    ]
    return Grid("The causes that matter most", columns, [_row(cause) for cause in briefing.causes])


def _row(cause: BriefCause) -> list[Cell | str]:
    word = "gives back" if cause.share_is == "recoverable" else "costs"
    size = "not measured" if cause.share is None else f"{word} {share(cause.share)}"
    sure = cause.source if cause.confidence is None else percent(min(cause.confidence, 0.999))
    return [Cell(cause.what, "strong"), size, _monthly(cause.money_per_month, cause.currency), sure, cause.do]


def _monthly(money: Estimate | None, currency: str | None) -> str:
    return "not priced" if money is None or currency is None else worth(money, currency)


def _decision(briefing: Briefing) -> list[Block]:
    first = next((cause for cause in briefing.causes if cause.share_is == "recoverable"), None) or next(
        iter(briefing.causes), None
    )
    blocks: list[Block] = []
    if first is not None:
        worth = f", worth {_monthly(first.money_per_month, first.currency)} a month" if first.money_per_month else ""
        effect = (
            f" It is expected to give back {share(first.share)} of the time{worth}." if first.share_is == "recoverable" else ""
        )
        why = f" The evidence: {first.because}." if first.because else ""
        blocks.append(Text(f"The decision to take: {first.do} ({first.what}).{effect}{why}", "warning"))
    if briefing.demands:
        demand = briefing.demands[0]
        ask = f"The question to ask the vendor: what do you guarantee on {demand.what}? Ask for this test: {demand.test}."
        blocks.append(Text(f"{ask} The number to reach: {demand.reach}."))
    return blocks
