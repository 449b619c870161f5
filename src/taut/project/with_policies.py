"""A scenario as it stands beside the same with policies: indices and their ratios, regime and reserve, threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic

from taut.core.errors import UsageError
from taut.project.marginal_gain import rule
from taut.project.policy import Policy, S
from taut.project.reserve import reserve
from taut.project.threshold import threshold
from taut.project.workload import Answer, Estimate, Sampling, Workload
from taut.result import types
from taut.result.types import (
    AppliedPolicy,
    Forecasts,
    IndexSets,
    PolicyComparison,
    Regime,
    Regimes,
    Reserves,
    Threshold,
    Thresholds,
)


@dataclass(frozen=True)
class Assessment(Generic[S]):
    """A scenario at its own scale: its forecast, regime and threshold."""

    scenario: S
    answer: Answer
    regime: Regime
    threshold: Threshold | None

    def indices(self) -> dict[str, types.Estimate | None]:
        """The indices as parts of the result."""
        return {name: None if found is None else found.as_result() for name, found in self.answer.indices().items()}


def assess(kind: Workload[S], s: S, how: Sampling, answer: Answer | None = None) -> Assessment[S]:
    """All results for one scenario; ``answer`` where there is a forecast already."""
    answer = answer or kind.forecast(s, how)
    own = kind.regime(s, how.seed)
    if own is not None:
        return Assessment(s, answer, own, None)
    decision = rule(kind, s, how)
    return Assessment(s, answer, reserve(kind, s, how, decision=decision), threshold(kind, s, how, decision=decision))


def policies_of(kind: Workload[S], text: str) -> list[tuple[Policy[S], float | None]]:
    """``overlap=0.9,spares`` → the policies and their values."""
    found = []
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        policy = kind.policies.get(name)
        if policy is None:
            known = ", ".join(kind.policies) or "none"
            raise UsageError(f"{name}: no such policy for {kind.name}; known: {known}")
        try:
            found.append((policy, float(value) if value else None))
        except ValueError:
            raise UsageError(f"{part}: give a number, {name}=2") from None
    return found


def apply_policies(s: S, chosen: Sequence[tuple[Policy[S], float | None]]) -> S:
    """The scenario with all of these, in that order."""
    for policy, value in chosen:
        s = policy.apply(s, value)
    return s


def compare(kind: Workload[S], before: Assessment[S], text: str, how: Sampling) -> PolicyComparison:
    """The scenario beside itself with these policies together."""
    chosen = policies_of(kind, text)
    after = assess(kind, apply_policies(before.scenario, chosen), how)
    one, other = before.answer.indices(), after.answer.indices()
    reserves = [side.regime.reserve or None for side in (before, after)]
    return PolicyComparison(
        name=text,
        policies=[AppliedPolicy(name=p.name, value=value, says=p.says, costs=p.costs or None) for p, value in chosen],
        indices=IndexSets(
            without=before.indices(), with_=after.indices(), ratio={name: ratio(one[name], other[name]) for name in one}
        ),
        regime=Regimes(without=before.regime.kind, with_=after.regime.kind),
        reserve=Reserves(without=reserves[0], with_=reserves[1]),
        threshold=Thresholds(without=before.threshold, with_=after.threshold),
        forecast=Forecasts(without=before.answer.entry(), with_=after.answer.entry()),
    )


def ratio(before: Estimate | None, after: Estimate | None) -> float | None:
    """After over before; None where either is not known."""
    if before is None or after is None or before.value == 0:
        return None
    return after.value / before.value
