"""The evidence of a scenario: its definition, both index sets, regime and reserve before and after, and what follows.

Nothing here computes a forecast; it puts side by side what ``comparison.py`` found, and what the literature declares.

**Damping quotient** and **mode magnitude** are a convention of the structural-assessment literature, not a measurement: the
risk of an index is its distance from the value it would have in a system that loses nothing, κ = risk with the policies ÷
risk without, ξ = √(−2 ln κ) ÷ σ₀. They say nothing that the indices do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from math import log, sqrt
from statistics import mean, pstdev
from typing import Any

import msgspec

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


def transitions(compared: PolicyComparison, declared: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Per index: without, with, ratio, what the literature declares, risks, κ and ξ; then their dispersion."""
    one, other = compared.indices.without, compared.indices.with_
    rows = {}
    for name in one:
        before, after = _value(one[name]), _value(other[name])
        kappa, xi = damping(risk(name, before), risk(name, after))
        stated = declared.get(name)
        rows[name] = {
            "without": one[name], "with": other[name], "ratio": compared.indices.ratio[name],
            "risk_is": RISKS.get(name, RATE), "risk_without": risk(name, before), "risk_with": risk(name, after),
            "damping_quotient": kappa, "mode_magnitude": xi,
            "declared": None if stated is None else {"without": stated[0], "with": stated[1]},
            "difference": None
            if stated is None
            else {"without": _difference(before, stated[0]), "with": _difference(after, stated[1])},
        }  # fmt: skip
    return {"indices": rows, "dispersion": _dispersion(rows)}


def _dispersion(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation of κ and ξ over the indices that have them."""
    out: dict[str, Any] = {}
    for key in ("damping_quotient", "mode_magnitude"):
        known = [row[key] for row in rows.values() if row[key] is not None]
        out[key] = {"count": len(known), "mean": mean(known), "sd": pstdev(known)} if known else None
    return out


def _value(found: Estimate | None) -> float | None:
    return None if found is None else found.value


def _difference(ours: float | None, theirs: float) -> float | None:
    return None if ours is None else ours - theirs


def evidence(
    name: str, table: Mapping[str, Any], result: ProjectResult, *, seed: int, steps: int | None, options: str = ""
) -> dict[str, Any]:
    """Everything that is written down about a scenario beside its first comparison; ``table`` is its whole definition.

    ``options`` are further ones of the command, each after a space. All of it is of the scale that the result speaks of.
    """
    about = table.get("about") or {}
    compared = next((one for one in result.policies if one.ranks == result.ranks), None)
    forecast = next(one for one in result.forecasts if one.ranks == result.ranks)
    noun = "rank" if result.workload == "training" else "accelerator"
    plain = options + f" --seed {seed}" * bool(seed) + (f" --steps {steps}" if steps else "")
    out = {
        "scenario": name, "command": f"taut project {name}{plain} --evidence DIR", "seed": seed, "steps": steps,
        "about": about, "definition": {key: value for key, value in table.items() if key != "about"},
        "defaults": result.defaults, "workload": result.workload, "forecast": forecast,
        "indices": result.indices, "regime": result.regime, "threshold": result.threshold,
        "questions": result.questions, "compared": None,
        **{key: result[key] for key in ("gains", "advice", "sweep") if key in result},
    }  # fmt: skip
    if compared is not None:
        declared = {key: tuple(value) for key, value in (about.get("declared") or {}).items()}
        out["compared"] = {
            "policies": compared.policies, **transitions(compared, declared),
            **{key: compared[key] for key in ("forecast", "regime", "reserve", "threshold")},
            "declared_regime": about.get("declared_regime"), "implies": consequences(compared, noun),
        }  # fmt: skip
    out["digests"] = {part: _digest(out[part]) for part in ("definition", "forecast", "indices", "compared")}
    return out


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
