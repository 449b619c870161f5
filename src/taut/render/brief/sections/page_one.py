"""Page one, for whoever decides: the verdict, nominal against effective, what it costs, three causes, the decision."""

from __future__ import annotations

from msgspec import UnsetType

from taut.render.brief.document import Bar, Bars, Block, Cell, Column, Empty, Fact, Facts, Grid, Picture, Section, Text
from taut.render.brief.page_basis import basis, together
from taut.render.brief.sections.indices import written
from taut.render.brief.split_time import split_bars
from taut.render.brief.written import cash, percent, possible, share, sure, times, worth
from taut.render.text import safe
from taut.result.brief_types import Briefing
from taut.result.types import BriefCause, Demand, Estimate, Regime

REGIMES = {
    "stable": "more load or more ranks still pay",
    "marginal": "near the limit: little growth still pays",
    "unstable": "past the limit: one more does not pay",
    "coherent": "controllers work together",
    "oscillating": "controllers swing back and forth",
    "amplifying": "controllers multiply the load",
    "incoherent": "controllers work against each other",
}
"""Class of a regime → what it means to somebody who decides."""
SEEN = {"measured": "measured; how much comes back is not known", "modelled": "computed from the model"}
HEALTHY = "No cause takes as much as 3 % of the time. Nothing is to be decided on these figures."


def page_one(briefing: Briefing) -> Section:
    """What somebody reads who reads nothing else."""
    blocks: list[Block] = [Text(briefing.verdict, "lead"), Facts(_facts(briefing)), *basis(briefing), *_two_shares(briefing)]
    blocks += [_causes(briefing), *together(briefing), *_decision(briefing)]
    return Section("summary", "Summary", blocks)


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
            told = written("effective_throughput_ratio", ratio)
            return Fact("Effective", told, "of what the same hardware would do if nothing held it up")
    return None


def _regime(briefing: Briefing) -> Fact | None:
    regimes: list[Regime] = [run.result.regime for run in briefing.runs if run.result.regime is not None]
    regimes += [one.result.regime for one in briefing.scenarios if one.result.regime is not None]
    for regime in regimes:
        if regime.kind is not None:
            return Fact("Regime", regime.kind, f"{REGIMES.get(regime.kind, '')}{_reserve(regime.reserve)}")
    for control in briefing.controls:
        kind = control.result.regime.kind
        if kind is not None:
            return Fact("Control", kind, REGIMES.get(kind, ""))
    return None


def _reserve(reserve: Estimate | UnsetType | None) -> str:
    return f"; reserve {times(reserve)}, needed: 1 ×" if reserve else ""


def _money(briefing: Briefing) -> Fact:
    cost = briefing.costs
    if cost is None:
        return Fact("Cost a month", "not priced", "give --gpu-hour 2.50EUR or --prices FILE")
    return Fact("Cost a month", f"{cash(cost.per_month)} {cost.currency}", _product(briefing) or cost.basis)


def _product(briefing: Briefing) -> str:
    """The cost of a month as somebody can check it."""
    cost = briefing.costs
    if cost is None or cost.accelerators is None or cost.per_accelerator_hour is None:
        return ""
    return f"{cost.accelerators:,} accelerators × 720 hours × {cash(cost.per_accelerator_hour)} {cost.currency}"


def _saving(briefing: Briefing) -> Fact | None:
    cost = briefing.costs
    if cost is None or cost.useful_per_month is None:
        return None
    lost = f"{cash(cost.per_month - cost.useful_per_month)} {cost.currency}"
    return Fact("Lost a month", lost, "paid for without useful work; not all of it can come back")


def _two_shares(briefing: Briefing) -> list[Block]:
    """Nominal against effective: what a dashboard shows, what was done, and what the rest went into."""
    parts = split_bars(briefing.split, "effective")
    for run in briefing.runs[:1]:
        nominal, seen = run.result.verdict.nominal_share, run.result.verdict.nominal_is
        if nominal is None or not parts:
            return []
        busy = "utilised" if seen == "measured" else "looks busy"
        bars = [Bar(busy, nominal, "whole", percent(nominal), "nominal"), *parts]
        told = ", ".join(f"{one.label} {one.shown}" for one in parts)
        alt = f"Two bars. Nominal: {busy}, {percent(nominal)}. Effective: {told}."
        how = "utilisation as it was measured" if seen == "measured" else "what a dashboard would show, from the trace"
        return [Picture(f"Nominal ({how}) against effective", alt, Bars(bars, "share of accelerator time"))]
    return []


def _causes(briefing: Briefing) -> Block:
    if not briefing.causes:
        kinds = [run.result.verdict.kind for run in briefing.runs]
        if kinds and all(kind == "healthy" for kind in kinds):
            return Text(HEALTHY)
        return Empty(
            "No cause can be named from these inputs.", "traces of all ranks over 20 steps or more", "taut analyze TRACES"
        )
    currency = next((one.currency for one in briefing.causes if one.currency), None)
    columns = [
        Column("Cause"), Column("Costs today", True), Column("What to do"), Column("Gives back", True),
        Column(f"Saves, {safe(currency)} a month" if currency else "Saves a month", True), Column("Sure of the cause"),
    ]  # fmt: skip
    return Grid("The causes that matter most", columns, [_row(k, cause) for k, cause in enumerate(briefing.causes, 1)])


def _row(number: int, cause: BriefCause) -> list[Cell | str]:
    known = cause.share_is == "recoverable"
    back = "not measured" if cause.share is None else share(cause.share) if known else possible(cause.share, "share")
    money = cause.money_per_month
    saved = "not priced" if money is None else worth(money, None) if known else possible(money, "money")
    costs = "not measured" if cause.costs is None else share(cause.costs)
    certain = SEEN[cause.source] if cause.confidence is None else sure(cause.confidence)
    certain += f": {cause.sure_of}" if cause.sure_of and cause.confidence is not None else ""
    return [Cell(f"{number}. {cause.what}", "strong"), costs, cause.do, back, saved, certain]


def _decision(briefing: Briefing) -> list[Block]:
    first = next((cause for cause in briefing.causes if cause.share_is == "recoverable"), None) or next(
        iter(briefing.causes), None
    )
    blocks: list[Block] = [Text(one) for one in briefing.left_out]
    if first is not None:
        blocks.insert(0, Text(f"The decision to take: {first.do}.{_effect(first)}{_evidence(first)}", "warning"))
    return [*blocks, *_question(briefing.demands, first)]


def _effect(first: BriefCause) -> str:
    if first.share_is != "recoverable" or first.share is None:
        return ""
    money = first.money_per_month
    worth_it = "" if money is None or first.currency is None else f", {worth(money, first.currency)} a month"
    what = "of the time" if first.source == "measured" else "more work a second, by the model"
    return f" It is expected to give back {share(first.share)} {what}{worth_it}."


def _evidence(first: BriefCause) -> str:
    """The evidence in a clause, and what it does not show."""
    why = f" The evidence: {first.evidence}." if first.evidence else ""
    return f"{why}{f' Not tested: {first.untested}.' if first.untested else ''}"


def _question(demands: list[Demand], first: BriefCause | None) -> list[Block]:
    """What to ask the vendor: first what the decision is about, then what costs most."""
    if not demands:
        return []
    mine = next((one for one in demands if first is not None and one.finding and one.finding == first.finding), demands[0])
    ask = f"The question to ask the vendor: what do you guarantee on {mine.what}? Ask for this test: {mine.test}."
    more = next((one for one in demands if one is not mine), None)
    then = "" if more is None else f" Then ask about {more.what} (vendor annex)."
    return [Text(f"{ask} The number to reach: {mine.reach}.{then}")]
