"""Answers to the questions of a briefing: what each kind of source tells of each, or None.

Every function takes one source and returns a number with its interval, its unit, a sentence, and the key it comes from.
"""

from __future__ import annotations

from msgspec import Struct

from taut.render.brief.written import percent
from taut.result.brief_types import BriefedComparison, BriefedControl, BriefedRun, BriefedScenario
from taut.result.types import AnalysisResult, Estimate, Finding, Forecast, MechanismLoss, Threshold, Unit

COUPLING = ("jitter", "unequal ranks", "synchronisation")
"""Mechanisms of a scenario that make ranks wait for each other."""
CONTROLLED = {
    "coherent": "controllers work together",
    "oscillating": "controllers swing back and forth",
    "amplifying": "controllers multiply the load that they react to",
    "incoherent": "controllers undo each other's decisions",
}


class Said(Struct, frozen=True):
    """An answer of one source: a number, a sentence, and the key of its result."""

    answer: Estimate
    says: str
    key: str
    unit: Unit = "share"
    of_100: int = 95
    """Of 100 repetitions, those that the interval holds."""


def units_per_s(forecast: Forecast) -> float | None:
    """Units of delivered work a second: millions of tokens, tasks, or thousands of requests; None where nobody counts them."""
    if forecast.tokens_per_s:
        return forecast.tokens_per_s / 1e6
    if forecast.tasks_per_s:
        return forecast.goodput_per_s or None
    return forecast.requests_per_s / 1e3 if forecast.requests_per_s else None


def own(scenario: BriefedScenario) -> Forecast:
    """The forecast at the scenario's own scale."""
    return next(one for one in scenario.result.forecasts if one.ranks == scenario.result.ranks)


# How stable is the structure under load?


def stable_run(run: BriefedRun) -> Said | None:
    """Its reserve."""
    result = run.result
    regime = result.regime
    if regime is None or not regime.reserve:
        return None
    says = f"{regime.kind}: {_room(regime.reserve.value)}"
    return Said(regime.reserve, says, "regime.reserve", "times")


def _room(reserve: float) -> str:
    """What a reserve means."""
    if reserve <= 0:
        return "none is left: even without any variation between ranks the next accelerator would not pay"
    if reserve < 1:
        return "variation between ranks would have to fall to this much of what it is before the next accelerator pays"
    return "variation between ranks may grow to so many times what it is before the next accelerator stops paying"


def stable_scenario(scenario: BriefedScenario) -> Said | None:
    """Its reserve; of loops, how many of their decisions undo others."""
    regime = scenario.result.regime
    if regime is None:
        return None
    if regime.reserve:
        says = f"{regime.kind}: {_room(regime.reserve.value)}"
        return Said(regime.reserve, says, "regime.reserve", "times")
    return _by_index(regime.kind, scenario.result.indices)


def stable_control(control: BriefedControl) -> Said | None:
    """How many decisions undo others."""
    return _by_index(control.result.regime.kind, control.result.indices)


def _by_index(kind: str | None, indices: dict[str, Estimate | None]) -> Said | None:
    """Control loops: their class, and how many of their decisions are undone."""
    undone = indices.get("compensatory_action_rate")
    if kind not in CONTROLLED or undone is None:
        return None
    says = f"{kind}: {CONTROLLED[kind]}; this share of all decisions undoes or makes up for another one"
    return Said(undone, says, "indices.compensatory_action_rate")


# Under what conditions is it economic?


def economic_run(run: BriefedRun) -> Said | None:
    """What one more accelerator adds."""
    result = run.result
    regime = result.regime
    if regime is None or not regime.marginal_return or not isinstance(regime.pays, float):
        return None
    pays = "less than the" if regime.marginal_return.value < regime.pays else "more than the"
    says = (
        f"at {result.job.ranks} ranks one more accelerator adds this share of an accelerator's work, "
        f"{pays} {100 * regime.pays:.0f} % from which it pays by taut's own rule"
    )
    return Said(regime.marginal_return, says, "regime.marginal_return")


def economic_scenario(scenario: BriefedScenario) -> Said | None:
    """Where the next accelerator stops paying, or what a unit costs."""
    found = scenario.result.threshold
    if found is not None and found.ranks is not None:
        return Said(Estimate(value=found.ranks, lo=found.lo, hi=found.hi), _limit(found, own(scenario)), "threshold", "ranks")
    if found is not None:
        says = f"accelerators up to which every one pays: no limit was found up to the {found.tried:,} that were tried"
        return Said(Estimate(value=found.tried, lo=found.tried), says, "threshold.tried", "ranks")
    forecast = own(scenario)
    price = None if forecast.cost_per_unit is None else Estimate(value=forecast.cost_per_unit)
    known = forecast.cost_per_unit_interval or price
    says = f"what a unit of delivered work costs on {forecast.ranks:,} accelerators"
    return Said(known, says, "cost_per_unit", "money") if known else None


def _limit(found: Threshold, own: Forecast) -> str:
    made = f"; what makes it: {found.made_by}" if found.made_by else ""
    place = "below" if found.ranks is not None and own.ranks <= found.ranks else "beyond"
    return f"accelerators from which the next one no longer pays; this job, with {own.ranks:,}, lies {place} it{made}"


# How is non-determinism handled?


def repeated(comparison: BriefedComparison) -> Said | None:
    """How far runs of one job differ."""
    for one in comparison.result.non_determinism.repeats:
        known = one.between_share
        if known is not None and known.hi is not None and known.hi < 1:  # two runs alone tell no interval worth the name
            says = f"spread of the step time between {one.count} runs of the same job, as a share of it: what no run explains"
            return Said(known, says, "non_determinism.repeats")
    return None


def spread_run(run: BriefedRun) -> Said | None:
    """How far its steps differ."""
    result = run.result
    spread = result.indices.runtime_variance_index if result.indices else None
    says = "spread of step times over their median within one run; runs of the same job were not compared"
    return None if spread is None else Said(spread, says, "indices.runtime_variance_index")


def spread_scenario(scenario: BriefedScenario) -> Said | None:
    """How far steps differ; of loops, how often work is tried again."""
    spread = scenario.result.indices.get("runtime_variance_index")
    says = "spread over its median, after everything that the scenario does about it"
    if spread is not None:
        return Said(spread, says, "indices.runtime_variance_index")
    again = scenario.result.indices.get("actual_attempt_multiplier")
    says = "attempts for each piece of work: what is not deterministic is tried again"
    return None if again is None else Said(again, says, "indices.actual_attempt_multiplier", "attempts")


def again(control: BriefedControl) -> Said | None:
    """How often work is tried again."""
    again = control.result.indices.get("actual_attempt_multiplier")
    says = "attempts for each piece of work: what fails is tried again"
    return None if again is None else Said(again, says, "indices.actual_attempt_multiplier", "attempts")


# How can stability be assessed before capital is committed?


def pilot_run(run: BriefedRun) -> Said | None:
    """What the job should show on more ranks."""
    result = run.result
    grown = next((one.growth for one in result.findings if one.growth), None)
    if grown and len(grown) > 1:
        says = (
            f"run the job on {grown[1].ranks} ranks: waiting for whoever is late should take this share of the wall; "
            "outside this interval the structure is not the one measured here"
        )
        return Said(grown[1].loss_share, says, "findings.growth", of_100=90)
    wider = [] if run.grown is None else [one for one in run.grown.forecasts if one.ranks > result.job.ranks]
    return _pilot(wider[0], "a pilot", 90) if wider else None


def pilot_scenario(scenario: BriefedScenario) -> Said | None:
    """What an acceptance test should show."""
    return _pilot(own(scenario), "an acceptance test", 80 if scenario.result.workload == "training" else 95)


def _pilot(forecast: Forecast, test: str, of_100: int) -> Said | None:
    mean = forecast.mean_step_ns
    if mean is None or mean.lo is None or mean.hi is None:
        return None
    milliseconds = Estimate(value=mean.value / 1e6, lo=mean.lo / 1e6, hi=mean.hi / 1e6)
    known = "" if forecast.in_range else "; the fabric is not known at this scale, so a smaller pilot comes first"
    says = f"what a mean step, request or task should take at {forecast.ranks:,} ranks in {test}{known}"
    return Said(milliseconds, says, "forecasts.mean_step_ns", "ms", of_100)


# What is assumed about synchronisation at scale?


def assumed_run(run: BriefedRun) -> Said | None:
    """Who must arrive before anybody goes on."""
    result = run.result
    if run.meets is None:
        return None
    says = (
        f"must all arrive before any goes on ({', '.join(run.meets.names[:3])}); {run.meets.per_step:,.1f} meetings of some "
        f"or all of them a step. Assumed: nobody is late by more than the others can absorb; {_hidden(result)}; one link is as "
        "fast as another"
    )
    return Said(Estimate(value=run.meets.largest), says, "gates", "ranks")


def _hidden(result: AnalysisResult) -> str:
    waits = result.waits
    if waits is None or not waits.observed_rank_ns:
        return "waiting hides under other work"
    return f"waiting hides under other work ({100 * (1 - waits.exposed_rank_ns / waits.observed_rank_ns):.0f} % of it does)"


def assumed_scenario(scenario: BriefedScenario) -> Said | None:
    """Who waits for whom; of loops, who decides beside whom."""
    forecast = own(scenario)
    if scenario.result.workload != "training":
        return assumed_control(scenario)
    stale = forecast.staleness_updates or 0
    waits = "every update waits for all of them" if not stale else f"an update may be {stale:g} behind"
    defaults = [key for key in scenario.result.defaults if key.startswith(("noise", "overlap", "parallel", "fabric"))]
    told = f"; {len(defaults)} keys about noise, overlap and fabric are defaults" if defaults else ""
    says = f"wait for each other: {waits}; they fail and are late independently, unless the scenario says otherwise{told}"
    return Said(Estimate(value=forecast.ranks), says, "forecasts.ranks", "ranks")


def assumed_control(one: BriefedControl | BriefedScenario) -> Said | None:
    """Who decides beside whom."""
    found = len(one.stack.controllers) if one.stack is not None else 0
    says = "decide beside each other. Assumed: each sees the effect of its own decisions only, and none undoes what another did"
    return Said(Estimate(value=found), says, "controllers", "controllers") if found > 1 else None


# Which coupling is exposed, managed, hidden?


def coupling_run(run: BriefedRun) -> Said | None:
    """How a delay of one becomes a delay of all, and how much of it shows."""
    result = run.result
    found = result.indices.sync_delay_amplification if result.indices else None
    waits = result.waits
    if found is None or waits is None or not waits.observed_rank_ns:
        return None
    exposed = waits.exposed_rank_ns / waits.observed_rank_ns
    policies = sorted({one.policy.name for one in result.findings if one.policy})
    managed = f"; manageable by {', '.join(policies)}" if policies else ""
    says = (
        f"delay of the whole job for each delay of a rank. Exposed: {100 * exposed:.0f} % of all waiting at gates; hidden "
        f"under other work: {100 * (1 - exposed):.0f} %{managed}"
    )
    return Said(found, says, "indices.sync_delay_amplification", "times")


def coupling_scenario(scenario: BriefedScenario) -> Said | None:
    """The same of a model; of loops, how many decisions go the same way."""
    found = scenario.result.indices.get("sync_delay_amplification")
    if found is not None:
        helped = [one.name for one in scenario.result.gains or () if not one.together and (one.rate_change or 0) > 0.01]
        managed = f"; managed by {', '.join(helped)}" if helped else ""
        return Said(
            found,
            f"delay of the whole for each delay of its parts: above 1 it is exposed{managed}",
            "indices.sync_delay_amplification",
            "times",
        )
    coherent = scenario.result.indices.get("cross_layer_coherence")
    says = "share of decisions across layers that go the same way: the rest is coupling that nobody manages"
    return None if coherent is None else Said(coherent, says, "indices.cross_layer_coherence")


def coupling_control(control: BriefedControl) -> Said | None:
    """How many decisions across layers go the same way."""
    coherent = control.result.indices.get("cross_layer_coherence")
    says = "share of decisions across layers that go the same way: the rest is coupling that nobody manages"
    return None if coherent is None else Said(coherent, says, "indices.cross_layer_coherence")


# Is this a coupling problem or an infrastructure problem?


def problem_run(run: BriefedRun) -> Said | None:
    """What takes more: waiting that nobody causes, or a part."""
    result = run.result
    structural = next((one for one in result.findings if one.loss_share is not None), None)
    parts = [one for one in result.findings if one.recoverable_share is not None and one.loss_share is None]
    part = max(parts, key=_saved, default=None)
    lost = structural.loss_share if structural is not None else None
    if structural is not None and lost is not None:
        both = "a coupling problem" if part is None else "both"
        return Said(
            lost,
            f"{both}: share of the clock lost to waiting that nobody causes{_gives(structural, result)}{_beside(part)}",
            "findings",
        )
    if part is not None and part.recoverable_share is not None:
        says = f"an infrastructure problem: share of the wall that repairing {_place(part)} gives back"
        return Said(part.recoverable_share, says, "findings")
    return None


def _gives(structural: Finding, result: AnalysisResult) -> str:
    """How much of what nobody causes comes back, and by what."""
    if structural.policy is None or not result.job.wall_ns:
        return "; no remedy could be replayed"
    return f"; {structural.policy.name} gives back {percent(structural.recoverable_wall_ns / result.job.wall_ns)}"


def _beside(part: Finding | None) -> str:
    """What a repair gives back beside it: it comes first, whatever is larger, because it is the cheaper thing to try."""
    if part is None:
        return ""
    return f"; repairing {_place(part)} gives back {percent(_saved(part))} beside that, and changes no training"


def _saved(finding: Finding) -> float:
    return finding.recoverable_share.value if finding.recoverable_share else 0.0


def _place(finding: Finding) -> str:
    hosts = sorted({host for host in finding.hosts if host})
    if finding.where or hosts:
        return finding.where or ", ".join(hosts[:3])
    return f"link {finding.links[0]}" if finding.links else f"rank {finding.ranks[0]}" if finding.ranks else finding.mode


def problem_scenario(scenario: BriefedScenario) -> Said | None:
    """Which mechanism takes most."""
    around = scenario.result.envelope
    losses = [] if not around else [one for one in around.losses if one.ranks == scenario.result.ranks]
    each = [one for one in losses if one.mechanism != "all"]
    if not each:
        return _problem_loops(scenario)
    first = max(each, key=lambda one: one.loss_share.value)
    kind = "a coupling problem" if first.mechanism in COUPLING else "an infrastructure problem"
    rest = ", ".join(_named(one) for one in sorted(each, key=lambda one: -one.loss_share.value) if one is not first)
    return Said(first.loss_share, f"{kind}: share of the rate that {first.mechanism} take; beside it {rest}", "envelope.losses")


def _named(loss: MechanismLoss) -> str:
    return f"{loss.mechanism} {100 * loss.loss_share.value:.0f} %"


def _problem_loops(scenario: BriefedScenario) -> Said | None:
    overhead = scenario.result.indices.get("control_overhead_fraction")
    if overhead is None:
        return _problem_groups(own(scenario))
    says = "a coupling problem between controllers: share of the capacity that their decisions take"
    return Said(overhead, says, "indices.control_overhead_fraction")


def _problem_groups(forecast: Forecast) -> Said | None:
    """The largest of what takes time beside computing."""
    shares = {name: share for name, share in (forecast.groups or {}).items() if name != "compute" and share}
    if not shares:
        return None
    first = max(shares, key=lambda name: shares[name])
    kind = "a coupling problem" if first == "synchronisation" else "an infrastructure problem"
    return Said(Estimate(value=shares[first]), f"{kind}: share of all time that {first} takes", "forecasts.groups")


def problem_control(control: BriefedControl) -> Said | None:
    """How many decisions contradict another."""
    found = control.result.indices.get("decision_conflict_rate")
    if found is None or found.value == 0:
        return None
    return Said(
        found,
        "a coupling problem between controllers: share of decisions that contradict another",
        "indices.decision_conflict_rate",
    )
