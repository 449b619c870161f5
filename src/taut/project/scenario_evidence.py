"""The evidence of a scenario: its definition, both index sets, regime and reserve before and after, and what follows.

Nothing here computes a forecast; it puts side by side what ``comparison.py`` found, and what the literature declares.

**Damping quotient** and **mode magnitude** are a convention of the structural-assessment literature, not a measurement: the
risk of an index is its distance from the value it would have in a system that loses nothing, κ = risk with the policies ÷
risk without, ξ = √(−2 ln κ) ÷ σ₀. They say nothing that the indices do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from math import log, sqrt
from statistics import mean, pstdev

import msgspec

from taut.core.array_types import Json
from taut.result.evidence_types import (
    ComparedEvidence,
    DeclaredIndex,
    Dispersion,
    Dispersions,
    EvidenceAbout,
    FromDeclared,
    IndexEvidence,
    ScenarioEvidence,
)
from taut.result.types import Estimate, PolicyComparison, ProjectResult

# σ₀ of the convention.
SIGMA = 0.00190643
# How far an index lies from losing nothing: shares that are best at 1, multiples that are best at 1, rates best at 0.
SHARE, MULTIPLE, RATE = "1 − index", "index − 1", "index"
RISKS = {
    "effective_throughput_ratio": SHARE, "energy_per_useful_step": MULTIPLE, "runtime_variance_index": RATE,
    "sync_delay_amplification": MULTIPLE, "replay_probability": RATE, "straggler_cascade_rate": RATE,
    "actual_attempt_multiplier": MULTIPLE, "cost_per_completion": MULTIPLE, "retry_cascade_frequency": RATE,
    "decision_conflict_rate": RATE, "compensatory_action_rate": RATE, "cross_layer_coherence": SHARE,
    "control_overhead_fraction": RATE, "control_oscillation_frequency": RATE, "sla_margin_utilisation": RATE,
    "margin_erosion_rate": RATE, "planning_accuracy": SHARE, "cost_attribution_accuracy": SHARE,
    "capacity_planning_error": RATE, "effective_capacity": SHARE, "visible_success_rate": SHARE, "planning_confidence": SHARE,
}  # fmt: skip


def risk(name: str, value: float | None) -> float | None:
    """Distance of an index from losing nothing; 0 where it is better than that."""
    if value is None:
        return None
    kind = RISKS.get(name, RATE)
    return max(1 - value if kind == SHARE else value - 1 if kind == MULTIPLE else value, 0.0)


def damping(before: float | None, after: float | None) -> tuple[float | None, float | None]:
    """(κ, ξ) of two risks; ξ is None where the risk grew, both where there was none."""
    if before is None or after is None or before <= 0:
        return None, None
    kappa = after / before
    return kappa, (sqrt(-2 * log(kappa)) / SIGMA if 0 < kappa <= 1 else None)


def _index(name: str, compared: PolicyComparison, stated: tuple[float, float] | None) -> IndexEvidence:
    """An index without and with, its ratio, what the literature declares, risks, κ and ξ."""
    one, other = compared.indices.without[name], compared.indices.with_[name]
    before, after = _value(one), _value(other)
    kappa, xi = damping(risk(name, before), risk(name, after))
    declared = difference = None
    if stated is not None:
        declared = DeclaredIndex(without=stated[0], with_=stated[1])
        difference = FromDeclared(without=_difference(before, stated[0]), with_=_difference(after, stated[1]))
    return IndexEvidence(
        without=one,
        with_=other,
        ratio=compared.indices.ratio[name],
        risk_is=RISKS.get(name, RATE),
        risk_without=risk(name, before),
        risk_with=risk(name, after),
        damping_quotient=kappa,
        mode_magnitude=xi,
        declared=declared,
        difference=difference,
    )


def _dispersion(values: Iterable[float | None]) -> Dispersion | None:
    """Mean and standard deviation over the indices that have a value."""
    known = [value for value in values if value is not None]
    return Dispersion(count=len(known), mean=mean(known), sd=pstdev(known)) if known else None


def _value(found: Estimate | None) -> float | None:
    return None if found is None else found.value


def _difference(ours: float | None, theirs: float) -> float | None:
    return None if ours is None else ours - theirs


def evidence(
    name: str, table: Mapping[str, Json], result: ProjectResult, *, seed: int, steps: int | None, options: str = ""
) -> ScenarioEvidence:
    """Everything that is written down about a scenario beside its first comparison; ``table`` is its whole definition.

    ``options`` are further ones of the command, each after a space. All of it is of the scale that the result speaks of.
    """
    about = msgspec.convert(table.get("about") or {}, EvidenceAbout)
    definition = {key: value for key, value in table.items() if key != "about"}
    first = next((one for one in result.policies if one.ranks == result.ranks), None)
    forecast = next(one for one in result.forecasts if one.ranks == result.ranks)
    compared = None if first is None else _compared(first, about, "rank" if result.workload == "training" else "accelerator")
    plain = options + f" --seed {seed}" * bool(seed) + (f" --steps {steps}" if steps else "")
    parts = {"definition": definition, "forecast": forecast, "indices": result.indices, "compared": compared}
    return ScenarioEvidence(
        scenario=name,
        command=f"taut project {name}{plain} --evidence DIR",
        seed=seed,
        steps=steps,
        about=about,
        definition=definition,
        defaults=result.defaults,
        workload=result.workload,
        forecast=forecast,
        indices=result.indices,
        regime=result.regime,
        threshold=result.threshold,
        questions=result.questions,
        compared=compared,
        gains=result.gains,
        advice=result.advice,
        sweep=result.sweep,
        digests={part: _digest(found) for part, found in parts.items()},
    )


def _compared(compared: PolicyComparison, about: EvidenceAbout, noun: str) -> ComparedEvidence:
    indices = {name: _index(name, compared, about.declared.get(name)) for name in compared.indices.without}
    return ComparedEvidence(
        policies=compared.policies,
        indices=indices,
        dispersion=Dispersions(
            damping_quotient=_dispersion(row.damping_quotient for row in indices.values()),
            mode_magnitude=_dispersion(row.mode_magnitude for row in indices.values()),
        ),
        forecast=compared.forecast,
        regime=compared.regime,
        reserve=compared.reserve,
        threshold=compared.threshold,
        declared_regime=about.declared_regime or None,
        implies=consequences(compared, noun),
    )


def consequences(compared: PolicyComparison, noun: str = "rank") -> list[str]:
    """What follows for a decision, in sentences that hold whatever the numbers are; ``noun``: what an accelerator is called."""
    before, after = compared.forecast.without, compared.forecast.with_
    out = []
    if before.cost_per_unit and after.cost_per_unit:
        out.append(f"A unit of delivered work costs {_change(after.cost_per_unit / before.cost_per_unit)}.")
    if before.energy_per_unit_j and after.energy_per_unit_j:
        out.append(f"It takes {_change(after.energy_per_unit_j / before.energy_per_unit_j)} energy.")
    regimes = compared.regime
    if regimes.without != regimes.with_:
        out.append(f"The regime changes from {regimes.without} to {regimes.with_}.")
    elif regimes.with_:
        out.append(f"The regime stays {regimes.with_}.")
    far = [side.ranks if side else None for side in (compared.threshold.without, compared.threshold.with_)]
    if far[0] and far[1]:
        out.append(f"One more accelerator stops paying at {far[1]:,} {noun}s instead of {far[0]:,}.")
    elif far[0]:
        out.append(f"One more accelerator pays at every scale tried, no longer only up to {far[0]:,} {noun}s.")
    return out


def _change(quotient: float) -> str:
    share = abs(quotient - 1)
    if share < 0.005:
        return "as much"
    return f"{100 * share:.0f} % {'more' if quotient > 1 else 'less'}"


def _digest(part: object) -> str:
    """SHA-256 of the part as JSON with sorted keys."""
    return sha256(msgspec.json.encode(part, order="sorted")).hexdigest()
