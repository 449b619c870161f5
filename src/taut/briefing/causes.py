"""The causes that matter most, each with what it costs, what to do and what that brings back: page one.

What was measured comes before what was modelled: runs, then scenarios, then control logs, then a bill alone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from decimal import Decimal

from taut.briefing.answers import own
from taut.briefing.finding_words import STAYS, evidence, finding_words, sure_of, untested
from taut.briefing.inputs import Opened
from taut.briefing.log_steps import log_offset
from taut.briefing.loss_words import ATTEMPT_WORDS, FATE_WORDS
from taut.briefing.monthly_cost import DAYS_A_MONTH, days_of
from taut.core.reporting import LISTED_SHARE
from taut.render.brief.evidence_words import by_log
from taut.render.brief.remedies import GENERIC, what_to_do
from taut.replay.saving_interval import lab_error, replayed_saving
from taut.result.brief_types import BriefedBill, BriefedControl, BriefedScenario
from taut.result.types import (
    Advice,
    AnalysisResult,
    AttemptsResult,
    BillPeriod,
    BriefCause,
    BriefCosts,
    BriefInput,
    Estimate,
    Finding,
    MechanismLoss,
    PolicyGain,
    Recovery,
)

MOST = 3
UNTRIED = "no policy against it was tried: taut project SCENARIO --policy …"


def causes(found: Opened, cost: BriefCosts | None) -> list[BriefCause]:
    """The three that matter most."""
    every = [*_of_runs(found, cost), *_of_scenarios(found, cost), *_of_controls(found.controls)]
    every = every or [cause for bill in found.bills for cause in _of_categories(bill)]
    ordered = sorted(every, key=_weight)
    # A repair costs no convergence: of what cannot be told apart it comes before a change of how ranks meet.
    repair = next((one for one in ordered if one.repair and one.share_is == "recoverable"), None)
    if repair is not None and _most(repair) >= _least(ordered[0]):
        ordered.sort(key=lambda one: one is not repair)
    return ordered[:MOST]


def _most(cause: BriefCause) -> float:
    return 0.0 if cause.share is None else float(cause.share.value if cause.share.hi is None else cause.share.hi)


def _least(cause: BriefCause) -> float:
    return 0.0 if cause.share is None else float(cause.share.value if cause.share.lo is None else cause.share.lo)


def _weight(cause: BriefCause) -> tuple[bool, float, float]:
    """What can be brought back comes before what is only lost; then money, then share."""
    money, share = cause.money_per_month, cause.share
    return cause.share_is == "lost", -(money.value if money else 0.0), -(share.value if share else 0.0)


def savings(found: Opened) -> dict[str, Recovery]:
    """Finding → what mending it brings back, as the bill has it."""
    return {one.cause: one for bill in found.bills for one in bill.result.recoverable}


def _of_runs(found: Opened, cost: BriefCosts | None) -> Iterator[BriefCause]:
    saved = savings(found)
    for source, _, result in found.runs:
        for finding in result.findings:
            yield _of_finding(source, result, finding, saved.get(finding.id), cost)
        if len(result.findings) < MOST:
            yield from _of_fates(source, result, cost)
        if result.attempts is not None:
            yield from _of_attempts(source, result.attempts, None if result.whatif is not None else cost)


def _of_finding(
    source: BriefInput, result: AnalysisResult, finding: Finding, saved: Recovery | None, cost: BriefCosts | None
) -> BriefCause:
    wall = result.job.wall_ns or 0
    known = Estimate(value=finding.recoverable_wall_ns / wall) if wall else None
    error = lab_error(finding)
    alone = replayed_saving(finding.recoverable_share, error) if finding.recoverable_share and error else known
    share = saved.saved_share if saved is not None else alone
    lost = finding.loss_share is not None and finding.policy is None
    share = finding.loss_share if lost else share
    unknown, test = untested(finding)
    return BriefCause(
        what=finding_words(finding),
        share=share,
        costs=finding.loss_share if finding.loss_share is not None else share,
        stays=STAYS if finding.loss_share is not None and not lost else None,
        share_is="lost" if lost else "recoverable",
        money_per_month=saved.per_month if saved is not None and not lost else _priced(share, cost),
        currency=None if cost is None else cost.currency,
        source="measured",
        confidence=finding.confidence,
        sure_of=sure_of(finding),
        untested=unknown,
        test=test,
        because=finding.because,
        evidence=by_log(evidence(finding), finding.steps, log_offset(result)),
        do=what_to_do(finding, GENERIC if saved is None else saved.remedy),
        repair=bool(finding.ranks or finding.links),
        command=f"taut audit decide {shlex.quote(source.name)} --finding {finding.id} --do … --by NAME",
        finding=finding.id,
        steps=list(finding.steps) or None,
    )


def _of_fates(source: BriefInput, result: AnalysisResult, cost: BriefCosts | None) -> Iterator[BriefCause]:
    """Losses that no finding names, from 3 % of the rank time on."""
    ledger = result.ledger
    named = {"jitter wait"} if any(finding.loss_share is not None for finding in result.findings) else set[str]()
    named |= {"slow compute"} if any(finding.ranks for finding in result.findings) else set()
    for entry in ledger.entries if ledger is not None and ledger.total_rank_ns else ():
        share = entry.rank_ns / ledger.total_rank_ns if ledger is not None else 0.0
        words = FATE_WORDS.get(entry.fate)
        if words is None or share < LISTED_SHARE or entry.fate in named:
            continue
        lost = Estimate(value=share)
        yield BriefCause(
            what=words[0],
            share=lost,
            costs=lost,
            share_is="lost",
            money_per_month=_priced(lost, cost),
            currency=None if cost is None else cost.currency,
            source="measured",
            confidence=None,
            do=words[1],
            command=source.command,
        )


def _of_attempts(source: BriefInput, attempts: AttemptsResult, cost: BriefCosts | None) -> Iterator[BriefCause]:
    """What was lost between and with attempts, from 3 % of what was held on; priced where all held time is."""
    held = attempts.held_rank_ns or 0
    for entry in attempts.entries:
        words = ATTEMPT_WORDS.get(entry.fate)
        share = Estimate(value=entry.held_rank_ns / held if held else 0.0)
        if words is not None and share.value >= LISTED_SHARE:
            yield BriefCause(
                what=words[0],
                share=share,
                costs=share,
                share_is="lost",
                money_per_month=_priced(share, cost),
                currency=None if cost is None else cost.currency,
                source="measured",
                confidence=None,
                because=f"{attempts.restarted_jobs:,} of {attempts.jobs:,} jobs were restarted",
                do=words[1],
                command=source.command,
            )


def _priced(share: Estimate | None, cost: BriefCosts | None) -> Estimate | None:
    if share is None or cost is None:
        return None
    value, lo, hi = (None if end is None else float(end) * cost.per_month for end in (share.value, share.lo, share.hi))
    return Estimate(value=value or 0.0, lo=lo, hi=hi)


def _of_scenarios(found: Opened, cost: BriefCosts | None) -> Iterator[BriefCause]:
    for scenario in found.scenarios:
        mine = None if found.runs else cost
        told = [*_of_mechanisms(scenario, mine), *_of_loops(scenario)]
        yield from told or _of_groups(scenario, mine)


def _of_mechanisms(scenario: BriefedScenario, cost: BriefCosts | None) -> Iterator[BriefCause]:
    around = scenario.result.envelope
    helps = _helping(scenario)
    for one in around.losses if around else ():
        if one.ranks == scenario.result.ranks and one.mechanism != "all" and one.loss_share.value >= 0.01:
            yield _of_mechanism(one, helps.get(one.mechanism), scenario, cost)


def _of_mechanism(
    one: MechanismLoss, gain: PolicyGain | None, scenario: BriefedScenario, cost: BriefCosts | None
) -> BriefCause:
    """A mechanism with the policy against it that was tried and gives most, and what that gives; else with what it takes."""
    share = one.loss_share if gain is None else Estimate(value=gain.rate_change or 0.0)
    saved = None if gain is None or gain.cost_per_unit_change is None else Estimate(value=max(-gain.cost_per_unit_change, 0.0))
    return BriefCause(
        what=f"{one.mechanism} at {one.ranks:,} accelerators",
        share=share,
        costs=one.loss_share,
        share_is="lost" if gain is None else "recoverable",
        money_per_month=_priced(one.loss_share if gain is None else saved, cost),
        currency=None if cost is None else cost.currency,
        source="modelled",
        confidence=None,
        do=UNTRIED if gain is None else f"take policy {gain.name}",
        command=scenario.source.command,
    )


def _of_groups(scenario: BriefedScenario, cost: BriefCosts | None) -> Iterator[BriefCause]:
    """Where time goes beside computing, of scenarios whose mechanisms are not taken apart."""
    best = max(scenario.result.gains or (), key=lambda one: one.rate_change or 0.0, default=None)
    gain = 0.0 if best is None else best.rate_change or 0.0
    do = UNTRIED if best is None or gain <= 0 else f"take policy {best.name}: {100 * gain:.1f} % more throughput"
    for name, share in (own(scenario).groups or {}).items():
        if name in GROUP_WORDS and share is not None and share >= LISTED_SHARE:
            lost = Estimate(value=share)
            yield BriefCause(
                what=GROUP_WORDS[name],
                share=lost,
                costs=lost,
                share_is="lost",
                money_per_month=_priced(lost, cost),
                currency=None if cost is None else cost.currency,
                source="modelled",
                confidence=None,
                do=do,
                command=scenario.source.command,
            )


GROUP_WORDS = {
    "interconnect": "moving data between accelerators",
    "synchronisation": "queues, waiting for others, and accelerators that idle",
    "recovery": "failures, retries and restarts",
}
"""Group of a forecast's time → what it is in plain words."""
HELPS: Mapping[str, tuple[str, ...]] = {
    "failures": ("checkpoint-interval", "asynchronous-checkpoints", "spares"),
    "jitter": ("local-steps", "backup-workers", "semi-synchronous"),
    "unequal ranks": ("deal-by-speed",),
    "interconnect": ("overlap", "compression", "locality"),
}
"""Mechanism of a scenario → policies against it."""


def _helping(scenario: BriefedScenario) -> dict[str, PolicyGain]:
    """Mechanism → the policy against it that was tried and gives most."""
    tried = [one for one in scenario.result.gains or () if not one.together and (one.rate_change or 0) > 0]
    tried.sort(key=lambda one: -(one.rate_change or 0))
    found: dict[str, PolicyGain] = {}
    for one in tried:
        for mechanism, names in HELPS.items():
            if one.name.split("=")[0] in names:
                found.setdefault(mechanism, one)
    return found


def _of_loops(scenario: BriefedScenario) -> Iterator[BriefCause]:
    for advice in scenario.result.advice or ():
        named = f"{advice.separation}" + ("" if advice.value is None else f"={advice.value:g}")
        do = f"separate them by {named}: {advice.says}" if advice.separation else "no separation that was tried removes it"
        yield BriefCause(
            what=f"{advice.kind} of control loops{f' on {advice.target}' if advice.target else ''}",
            share=_gained(advice),
            share_is="recoverable",
            money_per_month=None,
            currency=None,
            source="modelled",
            confidence=advice.shows / advice.runs if advice.runs else None,
            do=do,
            command=scenario.source.command,
        )


def _gained(advice: Advice) -> Estimate | None:
    """What a separation adds to the effective throughput, where that is sure."""
    effect = advice.effect.get("effective_throughput_ratio")
    change = None if effect is None else effect.change
    return change if change is not None and change.lo is not None and change.lo > 0 else None


def _of_controls(controls: list[BriefedControl]) -> Iterator[BriefCause]:
    for control in controls:
        for relation in control.result.relations:
            advice = relation.advice.says if relation.advice is not None else None
            yield BriefCause(
                what=f"{relation.kind}: {' and '.join(relation.controllers)}",
                share=None,
                share_is="lost",
                money_per_month=None,
                currency=None,
                source="measured",
                confidence=None if relation.q is None else 1 - relation.q,
                do=advice or relation.because.rsplit("; ", 1)[-1],
                because=relation.because,
                evidence=relation.because.split("; ")[0],
                command=f"{control.source.command} --advice",
            )


def _of_categories(bill: BriefedBill) -> Iterator[BriefCause]:
    total = bill.result.accrual.ledger
    for one in bill.result.categories:
        lost = None if one.lost is None else Decimal(one.lost)
        if lost and total and Decimal(total):
            yield BriefCause(
                what=one.name or "without a name",
                share=Estimate(value=float(lost / Decimal(total))),
                share_is="lost",
                money_per_month=_month(bill.result.period, lost),
                currency=bill.result.currency,
                source="measured",
                confidence=None,
                do="see who holds it: taut bill … --by team, --by job",
                command=bill.source.command,
            )


def _month(period: BillPeriod, money: Decimal) -> Estimate:
    return Estimate(value=float(money) * DAYS_A_MONTH / (days_of(period) or DAYS_A_MONTH))
