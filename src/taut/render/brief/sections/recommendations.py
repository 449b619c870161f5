"""What to do, ordered by money: repairs, policies, separations of control loops; and what was decided already."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from taut.core.finding_place import place_of
from taut.render.brief.decided import decided
from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Section, Text
from taut.render.brief.evidence_words import full_evidence
from taut.render.brief.page_basis import trusted
from taut.render.brief.remedies import GENERIC, Kind, by_money, kind_of, repair_first, what_to_do
from taut.render.brief.written import percent, share, sure, worth, worth_a_month
from taut.render.text import UNKNOWN, safe
from taut.result.brief_types import BriefedBill, BriefedControl, BriefedScenario, Briefing
from taut.result.types import (
    AnalysisResult,
    AttemptsResult,
    BriefCosts,
    Estimate,
    Finding,
    PolicyGain,
    ProjectResult,
    Recovery,
    RelationResult,
)

MOST = 12
"""Rows at most."""
DAYS = 30
"""Of a month."""
WORTH_GAIN = 0.005
"""What a policy of a scenario must change at least to be listed."""
REPAIR_FIRST = (
    "The intervals of a repair and a policy overlap: money does not tell them apart. The repair comes first, because it "
    "changes no training; the others follow by money, and last what may bring nothing."
)
EVIDENCE = (
    "Names of operations are those of the traces. A standard error is what a figure of this size strays by of itself; five or "
    "more are no accident."
)
CARRIED = (
    " Who carries waiting that nobody causes is a share of what it costs on the clock, all other findings mended; “Who waits "
    "for whom” counts the waiting of all ranks, for other findings too."
)
SEPARATE = "separate these loops: other targets, or other time scales"


class _Advice(Struct, frozen=True):
    """One row."""

    cause: str
    do: str
    effect: str
    size: float
    """Share that is saved, for the order where there is no money."""
    monthly: Estimate | None
    currency: str | None
    sure: str
    kind: Kind = "other"


def recommendations(briefing: Briefing) -> Section | None:
    """Everything worth doing, the most money first, then the largest effect; and decisions already taken."""
    found, repair = repair_first(sorted(_all(briefing), key=_order), lambda one: (one.kind, one.monthly))
    blocks: list[Block] = [*([Text(REPAIR_FIRST)] if repair else []), _grid(found, repair)] if found else [_nothing(briefing)]
    blocks += [*trusted(briefing), *_whole_evidence(briefing)]
    blocks += decided(briefing.decisions) if briefing.runs or briefing.decisions else []
    return Section("recommendations", "What to do", blocks, _commands(briefing))


def _whole_evidence(briefing: Briefing) -> list[Block]:
    """What findings rest on, in full, with the names that traces have."""
    named = {one.finding: one for one in briefing.causes if one.finding is not None}
    nobody = any(one.loss_share is not None for run in briefing.runs for one in run.result.findings)
    rows: list[list[Cell | str]] = [
        [Cell(safe(_cause(one)), "strong"), safe(full_evidence(one, named.get(one.id), run.log_offset))]
        for run in briefing.runs
        for one in run.result.findings[:MOST]
    ]
    columns = [Column("Finding"), Column("The evidence")]
    return [Grid("The evidence in full", columns, rows, f"{EVIDENCE}{CARRIED if nobody else ''}")] if rows else []


def _order(one: _Advice) -> tuple[bool, bool, float, float]:
    return one.monthly is None, *by_money(one.monthly), -one.size


def _commands(briefing: Briefing) -> list[str]:
    return [one.command for one in briefing.inputs if one.kind != "comparison"]


def _nothing(briefing: Briefing) -> Block:
    if briefing.runs and all(run.result.verdict.kind == "healthy" for run in briefing.runs):
        return Text("Nothing was found that would bring back 3 % of the time. Nothing is recommended on these figures.")
    for control in briefing.controls:
        regime = control.result.regime
        if regime.kind is None:
            why = regime.because or "too few decisions are on record"
            return Empty(f"Nothing can be recommended: {safe(why)}.", "more of the log, with demand", control.source.command)
        return Text("No controllers were found that work against each other. Nothing is recommended on these figures.")
    return Empty(
        "Nothing can be recommended from these inputs.", "traces of all ranks over 20 steps or more", "taut analyze TRACES"
    )


def _all(briefing: Briefing) -> Iterator[_Advice]:
    findings = {finding.id: finding for run in briefing.runs for finding in run.result.findings}
    priced = {one.cause for bill in briefing.bills for one in bill.result.recoverable}
    for bill in briefing.bills:
        yield from (_recovered(one, bill, findings.get(one.cause)) for one in bill.result.recoverable)
    for run in briefing.runs:
        yield from (_found(one, run.result) for one in run.result.findings if one.id not in priced)
        yield from _relations(run.result.control.relations if run.result.control else [])
        yield from _restarts(run.result.attempts) if run.result.attempts else ()
    for control in briefing.controls:
        yield from _controls(control)
    for k, scenario in enumerate(briefing.scenarios):
        # A month of a briefing is a scenario's only where nothing was billed: then it is that of the first.
        yield from _scenario(scenario, briefing.costs if k == 0 and not briefing.bills else None)


def _recovered(one: Recovery, bill: BriefedBill, finding: Finding | None) -> _Advice:
    cause = bill.result.causes.get(one.cause, one.cause)
    return _Advice(
        cause=safe(_cause(finding)) if finding is not None else safe(cause),
        do=safe(what_to_do(finding, one.remedy)),
        effect=share(one.saved_share),
        size=float(one.saved_share.value),
        monthly=one.per_month,
        currency=bill.result.currency,
        sure=_sure(finding),
        kind=kind_of(finding),
    )


def _found(finding: Finding, result: AnalysisResult) -> _Advice:
    effect, size = _effect(finding, result)
    money = finding.money
    return _Advice(
        cause=safe(_cause(finding)),
        do=safe(what_to_do(finding)),
        effect=effect,
        size=size,
        monthly=None if money is None else Estimate(value=DAYS * float(money.per_day)),
        currency=None if money is None else money.currency,
        sure=_sure(finding),
        kind=kind_of(finding),
    )


def _effect(finding: Finding, result: AnalysisResult) -> tuple[str, float]:
    """What mending a finding brings back, in words and as a share of the time."""
    if finding.mode == "hang":
        return "the job runs again", 1.0
    saved = finding.recoverable_share
    if saved is None and result.job.wall_ns and finding.recoverable_wall_ns > 0:
        saved = Estimate(value=finding.recoverable_wall_ns / result.job.wall_ns)
    return ("not measured", 0.0) if saved is None else (share(saved), float(saved.value))


def _cause(finding: Finding) -> str:
    """What is wrong, and where."""
    if finding.loss_share is not None:
        return f"{finding.mode}: all wait for whoever happens to be late"
    place = place_of(finding)
    return f"{finding.mode}: {place}" if place else finding.mode


def _sure(finding: Finding | None) -> str:
    if finding is None:
        return UNKNOWN
    return sure(finding.confidence)


LOST = ("discarded", "discarded at most")
"""Fates of attempts that a checkpoint in time would have kept."""
WORTH_RESTARTS = 0.03
"""Share of the held time from which restarts are worth a recommendation."""


def _restarts(found: AttemptsResult) -> Iterator[_Advice]:
    """Work that restarts threw away, and jobs that do not get to run."""
    lost, held = sum(entry.held_rank_ns for entry in found.entries if entry.fate in LOST), found.held_rank_ns or 0
    if held and lost / held >= WORTH_RESTARTS:
        bound = "at most " if any(entry.rank_ns for entry in found.entries if entry.fate == LOST[1]) else ""
        yield _Advice(
            cause=f"restarts: work since the last checkpoint is thrown away{_ends(found)}",
            do="save checkpoints more often, and mend what ends attempts",
            effect=f"{bound}{percent(lost / held)} of the held time",
            size=lost / held,
            monthly=None,
            currency=None,
            sure=UNKNOWN,
        )
    for job in (found.stuck or [])[:3]:
        yield _Advice(
            cause=safe(f"{job.job} does not get to run: {job.reason}"),
            do=safe(job.remedy or GENERIC),
            effect="it runs",
            size=0.0,
            monthly=None,
            currency=None,
            sure=UNKNOWN,
        )


def _ends(found: AttemptsResult) -> str:
    """How the attempts ended that lost most."""
    ends = sorted((found.discarded_by or {}).items(), key=lambda pair: -pair[1])
    return f"; most of it where an attempt ended as {safe(ends[0][0])}" if ends and ends[0][0] != "not told" else ""


def _relations(some: list[RelationResult]) -> Iterator[_Advice]:
    """Relations between controllers that cost something or have a separation."""
    for one in some:
        advice, cost = one.advice, one.cost
        money = cost.money if isinstance(cost.money, str) else None
        currency = cost.currency if isinstance(cost.currency, str) else None
        lost = f"; cost {float(money):,.2f} {safe(currency or '')} in the log" if money is not None else ""
        yield _Advice(
            cause=safe(f"{one.kind}: {' and '.join(one.controllers)}" + (f" on {one.target}" if one.target else "")),
            do=safe(advice.says if advice is not None and advice.says else SEPARATE),
            effect=f"{_removes(one)}{lost}",
            size=0.0,
            monthly=None,
            currency=None,
            sure=UNKNOWN if one.q is None else sure(max(1 - one.q, 0.0)),
        )


def _removes(one: RelationResult) -> str:
    advice = one.advice
    if advice is None or advice.separation is None:
        return "not measured"
    return f"removes it in {advice.runs:,} simulated runs"


def _controls(control: BriefedControl) -> Iterator[_Advice]:
    yield from _relations(control.result.relations)


def _scenario(scenario: BriefedScenario, cost: BriefCosts | None) -> Iterator[_Advice]:
    """Policies that help most, and separations of loops."""
    result = scenario.result
    gains = result.gains if isinstance(result.gains, list) else []
    tried = [one for one in gains if one.refused is None and _gain(one) >= WORTH_GAIN]
    for one in sorted(tried, key=_gain, reverse=True)[:3]:
        cheaper = -(one.cost_per_unit_change or 0.0)
        yield _Advice(
            cause=safe(f"{scenario.source.name} at {one.ranks:,} ranks{_largest(result)}"),
            do=_gain_do(one, result),
            effect=_gain_words(one),
            size=_gain(one),
            sure="modelled",
            monthly=None if cost is None or cheaper <= 0 else Estimate(value=cheaper * cost.per_month),
            currency=None if cost is None else cost.currency,
            kind="policy",
        )
    for advice in result.advice if isinstance(result.advice, list) else []:
        if advice.separation is not None:
            yield _Advice(
                cause=safe(f"{advice.kind} in {scenario.source.name}" + (f" on {advice.target}" if advice.target else "")),
                do=safe(advice.says or advice.separation),
                effect=f"removes it in {advice.runs:,} simulated runs",
                size=0.0,
                monthly=None,
                currency=None,
                sure=f"modelled; {advice.shows} of {advice.runs} runs show it",
            )


def _largest(result: ProjectResult) -> str:
    """The largest loss of a scenario."""
    found = next((one.dominant for one in result.forecasts if one.ranks == result.ranks), None)
    return f"; largest loss: {found}" if found and found != "compute" else ""


def _gain_do(one: PolicyGain, result: ProjectResult) -> str:
    """A policy in words; of several together their names."""
    if one.together:
        return safe(f"together: {one.name.replace(',', ', ')}")
    kind = one.name.partition("=")[0]
    says = next((policy.says for some in result.policies for policy in some.policies if policy.name == kind), "")
    return safe(f"{says} (policy {one.name})" if says else f"policy {one.name}")


def _gain(one: PolicyGain) -> float:
    return max(one.rate_change or 0.0, -(one.cost_per_unit_change or 0.0))


def _gain_words(one: PolicyGain) -> str:
    words = []
    if one.rate_change is not None:
        words.append(f"{percent(abs(one.rate_change))} {'more' if one.rate_change >= 0 else 'less'} work a second")
    if one.cost_per_unit_change is not None:
        words.append(
            f"a unit of work {percent(abs(one.cost_per_unit_change))} {'cheaper' if one.cost_per_unit_change < 0 else 'dearer'}"
        )
    return ", ".join(words) or "not measured"


def _grid(found: list[_Advice], repair: bool) -> Grid:
    columns = [
        Column("Cause"), Column("What to do"), Column("Expected effect", True), Column(worth_a_month(_currency(found)), True),
        Column("Sure that it is seen", True),
    ]  # fmt: skip
    only = _currency(found)
    rows: list[list[Cell | str]] = [
        [
            Cell(one.cause, "strong"),
            one.do,
            one.effect,
            "not priced" if one.monthly is None else Cell(worth(one.monthly, None if only else one.currency), "strong"),
            one.sure,
        ]
        for one in found[:MOST]
    ]
    more = f" {len(found) - MOST} more are in the results." if len(found) > MOST else ""
    note = f"Effects are shares of the time, of a job that goes on like this; several together do not simply add up.{more}"
    order = "a repair first, then the most money" if repair else "the most money first"
    return Grid(f"Recommendations, {order}", columns, rows, note)


def _currency(found: list[_Advice]) -> str | None:
    """The currency, where all have the same."""
    used = {one.currency for one in found if one.monthly is not None}
    return used.pop() if len(used) == 1 else None
