"""What architects and buyers ask before they commit, answered from everything that the briefing holds.

Each question is put to comparisons, runs, scenarios and control logs, in that order: what was measured comes before what was
modelled. An answer is a number with its interval, a sentence and the command that shows it; a question that nothing answers is
*not measured*, with what would measure it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from taut.result.brief_types import BriefedComparison, BriefedControl, BriefedRun, BriefedScenario
from taut.result.types import (
    AnalysisResult,
    BriefInput,
    BriefQuestion,
    Estimate,
    Finding,
    Forecast,
    MechanismLoss,
    Threshold,
    Unit,
)

NOT_MEASURED = "not measured"
STRUCTURE = "structural instability"
COUPLING = ("jitter", "unequal ranks", "synchronisation")
"""Mechanisms of a scenario that make ranks wait for each other."""
CONTROLLED = {
    "coherent": "controllers work together",
    "oscillating": "controllers swing back and forth",
    "amplifying": "controllers multiply the load that they react to",
    "incoherent": "controllers undo each other's decisions",
}


class Sources(Struct, frozen=True):
    """What questions are put to."""

    runs: Sequence[BriefedRun]
    comparisons: Sequence[BriefedComparison]
    scenarios: Sequence[BriefedScenario]
    controls: Sequence[BriefedControl]


class Said(Struct, frozen=True):
    """An answer of one source: a number, a sentence, and the key of its result."""

    answer: Estimate
    says: str
    key: str
    unit: Unit = "share"


class Asking(Struct, frozen=True):
    """A question, who may answer it, and what to record where nobody can."""

    question: str
    needs: str
    command: str
    of_run: Callable[[AnalysisResult], Said | None] = lambda result: None
    of_comparison: Callable[[BriefedComparison], Said | None] = lambda comparison: None
    of_scenario: Callable[[BriefedScenario], Said | None] = lambda scenario: None
    of_control: Callable[[BriefedControl], Said | None] = lambda control: None


def questions(sources: Sources) -> list[BriefQuestion]:
    """Every question with the answer of the first source that has one."""
    return [next(answers(asking, sources), _unanswered(asking)) for asking in ASKED]


def answers(asking: Asking, sources: Sources) -> Iterator[BriefQuestion]:
    """The answers to a question, those of measured sources first."""
    told: list[tuple[BriefInput, Said | None]] = [
        *((one.source, asking.of_comparison(one)) for one in sources.comparisons),
        *((one.source, asking.of_run(one.result)) for one in sources.runs),
        *((one.source, asking.of_scenario(one)) for one in sources.scenarios),
        *((one.source, asking.of_control(one)) for one in sources.controls),
    ]
    for source, said in told:
        if said is not None:
            yield BriefQuestion(
                question=asking.question, answer=said.answer, unit=said.unit, says=said.says,
                taken_from=f"{source.name}: {said.key}", command=source.command, needs=None,
            )  # fmt: skip


def _unanswered(asking: Asking) -> BriefQuestion:
    return BriefQuestion(
        question=asking.question,
        answer=None,
        unit=None,
        says=NOT_MEASURED,
        taken_from=None,
        command=asking.command,
        needs=asking.needs,
    )


def own(scenario: BriefedScenario) -> Forecast:
    """The forecast at the scenario's own scale."""
    return next(one for one in scenario.result.forecasts if one.ranks == scenario.result.ranks)


# How stable is the structure under load?


def _stable_run(result: AnalysisResult) -> Said | None:
    regime = result.regime
    if regime is None or not regime.reserve:
        return None
    word = "is already more than pays" if regime.reserve.value < 1 else "may grow so many times before that"
    says = f"{regime.kind}: ordinary variation between ranks {word} (one more accelerator must add half of what it could)"
    return Said(regime.reserve, says, "regime.reserve", "times")


def _stable_scenario(scenario: BriefedScenario) -> Said | None:
    regime = scenario.result.regime
    if regime is None:
        return None
    if regime.reserve:
        says = f"{regime.kind}: jitter may grow so many times before one more accelerator stops paying"
        return Said(regime.reserve, says, "regime.reserve", "times")
    return _by_index(regime.kind, scenario.result.indices)


def _stable_control(control: BriefedControl) -> Said | None:
    return _by_index(control.result.regime.kind, control.result.indices)


def _by_index(kind: str | None, indices: dict[str, Estimate | None]) -> Said | None:
    """Control loops: their class, and how many of their decisions are undone."""
    undone = indices.get("compensatory_action_rate")
    if kind not in CONTROLLED or undone is None:
        return None
    says = f"{kind}: {CONTROLLED[kind]}; this share of all decisions undoes or makes up for another one"
    return Said(undone, says, "indices.compensatory_action_rate")


# Under what conditions is it economic?


def _economic_run(result: AnalysisResult) -> Said | None:
    regime = result.regime
    if regime is None or not regime.marginal_return or not isinstance(regime.pays, float):
        return None
    pays = "less than the" if regime.marginal_return.value < regime.pays else "more than the"
    says = (
        f"at {result.job.ranks} ranks one more accelerator adds this share of an accelerator's work, "
        f"{pays} {100 * regime.pays:.0f} % from which it pays"
    )
    return Said(regime.marginal_return, says, "regime.marginal_return")


def _economic_scenario(scenario: BriefedScenario) -> Said | None:
    found = scenario.result.threshold
    if found is not None and found.ranks is not None:
        return Said(Estimate(value=found.ranks, lo=found.lo, hi=found.hi), _limit(found, own(scenario)), "threshold", "ranks")
    cost = own(scenario).cost_per_unit_interval
    price = own(scenario).cost_per_unit
    known = cost if cost else None if price is None else Estimate(value=price)
    if found is None or known is None:
        return None if known is None else Said(known, f"cost of a unit of delivered work at {own(scenario).ranks} ranks",
                                               "cost_per_unit", "money")  # fmt: skip
    says = f"every accelerator pays up to the {found.tried:,} ranks that were tried; a unit of delivered work costs so much"
    return Said(known, says, "cost_per_unit", "money")


def _limit(found: Threshold, own: Forecast) -> str:
    made = f"; what makes it: {found.made_by}" if found.made_by else ""
    place = "below" if found.ranks is not None and own.ranks <= found.ranks else "beyond"
    return f"accelerators from which the next one no longer pays; this job, with {own.ranks:,}, lies {place} it{made}"


# How is non-determinism handled?


def _repeated(comparison: BriefedComparison) -> Said | None:
    for one in comparison.result.non_determinism.repeats:
        if one.between_share is not None:
            says = f"spread of the step time between {one.count} runs of the same job, as a share of it: what no run explains"
            return Said(one.between_share, says, "non_determinism.repeats")
    return None


def _spread_run(result: AnalysisResult) -> Said | None:
    spread = result.indices.runtime_variance_index if result.indices else None
    says = "spread of step times over their median within one run; runs of the same job were not compared"
    return None if spread is None else Said(spread, says, "indices.runtime_variance_index")


def _spread_scenario(scenario: BriefedScenario) -> Said | None:
    spread = scenario.result.indices.get("runtime_variance_index")
    says = "spread over its median, after everything that the scenario does about it"
    if spread is not None:
        return Said(spread, says, "indices.runtime_variance_index")
    again = scenario.result.indices.get("actual_attempt_multiplier")
    says = "attempts for each piece of work: what is not deterministic is tried again"
    return None if again is None else Said(again, says, "indices.actual_attempt_multiplier", "attempts")


def _again(control: BriefedControl) -> Said | None:
    again = control.result.indices.get("actual_attempt_multiplier")
    says = "attempts for each piece of work: what fails is tried again"
    return None if again is None else Said(again, says, "indices.actual_attempt_multiplier", "attempts")


# How can stability be assessed before capital is committed?


def _pilot_run(result: AnalysisResult) -> Said | None:
    grown = next((one.growth for one in result.findings if one.growth), None)
    if not grown or len(grown) < 2:
        return None
    at = grown[1]
    says = (
        f"run the job on {at.ranks} ranks: waiting for whoever is late should take this share of the wall; "
        "outside this interval the structure is not the one measured here"
    )
    return Said(at.loss_share, says, "findings.growth")


def _pilot_scenario(scenario: BriefedScenario) -> Said | None:
    forecast = own(scenario)
    mean = forecast.mean_step_ns
    if mean is None or mean.lo is None or mean.hi is None:
        return None
    milliseconds = Estimate(value=mean.value / 1e6, lo=mean.lo / 1e6, hi=mean.hi / 1e6)
    known = "" if forecast.in_range else "; the fabric is not known at this scale, so a smaller pilot comes first"
    says = (
        f"milliseconds that a mean step, request or task should take at {forecast.ranks:,} ranks in an acceptance test{known}"
    )
    return Said(milliseconds, says, "forecasts.mean_step_ns", "ms")


# What is assumed about synchronisation at scale?


def _assumed_run(result: AnalysisResult) -> Said | None:
    if not result.gates or not result.job.steps:
        return None
    most = max(gate.members for gate in result.gates)
    names = sorted({gate.op_class for gate in result.gates if gate.members == most})
    meets = result.job.gates / result.job.steps
    says = (
        f"must all arrive before any goes on ({', '.join(names[:3])}; {meets:,.1f} meetings a step). Assumed: nobody is late "
        f"by more than the others can absorb; {_hidden(result)}; one link is as fast as another"
    )
    return Said(Estimate(value=most), says, "gates", "ranks")


def _hidden(result: AnalysisResult) -> str:
    waits = result.waits
    if waits is None or not waits.observed_rank_ns:
        return "waiting hides under other work"
    return f"waiting hides under other work ({100 * (1 - waits.exposed_rank_ns / waits.observed_rank_ns):.0f} % of it does)"


def _assumed_scenario(scenario: BriefedScenario) -> Said | None:
    forecast = own(scenario)
    if scenario.result.workload != "training":
        return None
    stale = forecast.staleness_updates or 0
    waits = "every update waits for all of them" if not stale else f"an update may be {stale:g} behind"
    defaults = [key for key in scenario.result.defaults if key.startswith(("noise", "overlap", "parallel", "fabric"))]
    told = f"; {len(defaults)} keys about noise, overlap and fabric are defaults" if defaults else ""
    says = f"wait for each other: {waits}; they fail and are late independently, unless the scenario says otherwise{told}"
    return Said(Estimate(value=forecast.ranks), says, "forecasts.ranks", "ranks")


# Which coupling is exposed, managed, hidden?


def _coupling_run(result: AnalysisResult) -> Said | None:
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


def _coupling_scenario(scenario: BriefedScenario) -> Said | None:
    found = scenario.result.indices.get("sync_delay_amplification")
    if found is not None:
        helped = [one.name for one in scenario.result.gains or () if not one.together and (one.rate_change or 0) > 0.01]
        managed = f"; managed by {', '.join(helped)}" if helped else ""
        return Said(found, f"delay of the whole for each delay of its parts: above 1 it is exposed{managed}",
                    "indices.sync_delay_amplification", "times")  # fmt: skip
    coherent = scenario.result.indices.get("cross_layer_coherence")
    says = "share of decisions across layers that go the same way: the rest is coupling that nobody manages"
    return None if coherent is None else Said(coherent, says, "indices.cross_layer_coherence")


def _coupling_control(control: BriefedControl) -> Said | None:
    coherent = control.result.indices.get("cross_layer_coherence")
    says = "share of decisions across layers that go the same way: the rest is coupling that nobody manages"
    return None if coherent is None else Said(coherent, says, "indices.cross_layer_coherence")


# Is this a coupling problem or an infrastructure problem?


def _problem_run(result: AnalysisResult) -> Said | None:
    structural = next((one for one in result.findings if one.loss_share is not None), None)
    parts = [one for one in result.findings if one.recoverable_share is not None and one.loss_share is None]
    part = max(parts, key=_saved, default=None)
    lost = structural.loss_share if structural is not None else None
    if lost is not None and (part is None or part.recoverable_share is None or lost.value >= part.recoverable_share.value):
        beside = "" if part is None else f"; repairing {_place(part)} would give back {100 * _saved(part):.0f} %"
        return Said(lost, f"a coupling problem first: share of the wall lost to waiting that nobody causes{beside}", "findings")
    if part is not None and part.recoverable_share is not None:
        says = f"an infrastructure problem: share of the wall that repairing {_place(part)} gives back"
        return Said(part.recoverable_share, says, "findings")
    return None


def _saved(finding: Finding) -> float:
    return finding.recoverable_share.value if finding.recoverable_share else 0.0


def _place(finding: Finding) -> str:
    hosts = sorted({host for host in finding.hosts if host})
    if finding.where or hosts:
        return finding.where or ", ".join(hosts[:3])
    return f"link {finding.links[0]}" if finding.links else f"rank {finding.ranks[0]}" if finding.ranks else finding.mode


def _problem_scenario(scenario: BriefedScenario) -> Said | None:
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
        return None
    says = "a coupling problem between controllers: share of the capacity that their decisions take"
    return Said(overhead, says, "indices.control_overhead_fraction")


def _problem_control(control: BriefedControl) -> Said | None:
    found = control.result.indices.get("decision_conflict_rate")
    if found is None or found.value == 0:
        return None
    return Said(
        found,
        "a coupling problem between controllers: share of decisions that contradict another",
        "indices.decision_conflict_rate",
    )


ASKED = (
    Asking("How stable is the structure under load?", "traces of all ranks over 20 steps or more", "taut analyze TRACES",
           _stable_run, of_scenario=_stable_scenario, of_control=_stable_control),
    Asking("Under what conditions is it economic?", "traces of all ranks, or a scenario with prices",
           "taut project SCENARIO --gpu-hour PRICE", _economic_run, of_scenario=_economic_scenario),
    Asking("How is non-determinism handled?", "two or more runs of the same job", "taut compare RUN RUN", _spread_run,
           _repeated, _spread_scenario, _again),
    Asking("How can stability be assessed before capital is committed?", "a scenario of the system to be bought, or a run",
           "taut project SCENARIO --envelope", _pilot_run, of_scenario=_pilot_scenario),
    Asking("What is assumed about synchronisation at scale?", "traces of all ranks, or a training scenario",
           "taut analyze TRACES", _assumed_run, of_scenario=_assumed_scenario),
    Asking("Which coupling is exposed, managed, hidden?", "traces of all ranks, or logs of controllers", "taut analyze TRACES",
           _coupling_run, of_scenario=_coupling_scenario, of_control=_coupling_control),
    Asking("Is this a coupling problem or an infrastructure problem?", "traces of all ranks with a finding, or a scenario",
           "taut analyze TRACES", _problem_run, of_scenario=_problem_scenario, of_control=_problem_control),
)  # fmt: skip
