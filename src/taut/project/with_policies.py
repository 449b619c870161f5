"""A scenario as it stands beside the same with policies: indices and their ratios, regime and reserve, threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Generic, TypeAlias

from msgspec import structs

from taut.core.errors import UsageError
from taut.core.executors import results_in_order
from taut.project.marginal_gain import Rule, rule
from taut.project.policy import Policy, S
from taut.project.reserve import Jittered, regime_at, reserve_at
from taut.project.threshold import explained_threshold, place, threshold
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

FEW_SEEDS = 2
"""Draws of rates where a place is told without an interval."""


@dataclass(frozen=True)
class Assessment(Generic[S]):
    """A scenario at a scale: its forecast, indices, regime, and the threshold of the scenario."""

    scenario: S
    answer: Answer
    found: Mapping[str, Estimate | None]
    """Indices by name."""
    regime: Regime
    threshold: Threshold | None

    def indices(self) -> dict[str, types.Estimate | None]:
        """The indices as parts of the result."""
        return {name: None if one is None else one.as_result() for name, one in self.found.items()}

    def entry(self) -> types.Forecast:
        """The forecast with what is said of its scale."""
        return structs.replace(self.answer.entry(), indices=self.indices(), regime=self.regime)


class Standing(Generic[S]):
    """A scenario at all the scales that are asked for: one rule and one threshold for all of them, a regime for each."""

    def __init__(self, kind: Workload[S], s: S, how: Sampling, largest: int = 0, *, explain: bool = False) -> None:
        self.explain = explain
        """Whether it is also asked what makes the threshold."""
        self.kind, self.scenario, self.how = kind, s, how
        self.largest = largest
        """The largest scale that is asked for; the threshold is sought up to twice as many."""
        self._jittered = Jittered(kind, s, how)

    @cached_property
    def decision(self) -> Rule[S]:
        """When one more accelerator pays."""
        return rule(self.kind, self.scenario, self.how)

    @cached_property
    def threshold(self) -> Threshold:
        """Where that ends."""
        if self.explain:
            return explained_threshold(self.kind, self.scenario, self.how, self.decision, self.largest)
        return threshold(self.kind, self.scenario, self.how, decision=self.decision, largest=self.largest)

    def place(self) -> tuple[int | None, int]:
        """(where that ends, up to where it was sought), without an interval: few seeds tell it."""
        return place(self.kind, self.scenario, replace(self.how, seeds=FEW_SEEDS), self.decision, self.largest)

    def assess(self, s: S, made: Answer, best: float | None = None) -> Assessment[S]:
        """All results for the scenario at one of its scales; ``best`` is what its throughput is measured by, if not its own.

        ``made`` is its forecast there.
        """
        made = made if best is None else made.measured_by(best)
        regime = self.kind.regime(s, self.how.seed)
        far = None if regime else self.threshold
        regime = regime or self.regime(self.kind.ranks(s))
        return Assessment(s, made, made.indices(), regime, far)

    def regime_class(self, ranks: int) -> str | None:
        """The class of that alone."""
        return regime_at(self._jittered, self.decision, ranks)

    def regime(self, ranks: int) -> Regime:
        """How it stands on so many ranks, where that follows from accelerators and jitter."""
        return reserve_at(self._jittered, self.decision, ranks)


def forecasts(kind: Workload[S], scenarios: Sequence[S], how: Sampling, pool: Executor | None = None) -> Iterable[Answer]:
    """What each scenario gives; ``pool`` forecasts them side by side."""
    if pool is None:
        return (kind.forecast(one, how) for one in scenarios)
    return results_in_order(pool, partial(kind.forecast, how=replace(how, cores=1)), scenarios)


Chosen: TypeAlias = Sequence[tuple[Policy[S], float | None]]
"""Policies and their values."""


def policies_of(kind: Workload[S], text: str) -> Chosen[S]:
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


def apply_policies(s: S, chosen: Chosen[S]) -> S:
    """The scenario with all of these, in that order."""
    for policy, value in chosen:
        s = policy.apply(s, value)
    return s


def compare(
    kind: Workload[S], before: Sequence[Assessment[S]], text: str, how: Sampling, pool: Executor | None = None
) -> list[PolicyComparison]:
    """The scenario at each scale beside itself with these policies together; ``pool`` forecasts scales side by side."""
    chosen = policies_of(kind, text)
    largest = max((one.answer.ranks for one in before), default=0)
    standings: list[Standing[S]] = []
    out = []
    scenarios = [apply_policies(one.scenario, chosen) for one in before]
    for one, changed, made in zip(before, scenarios, forecasts(kind, scenarios, how, pool), strict=True):
        # What a changed scenario has in common with the same at another scale is computed once.
        standing = next((known for known in standings if _same(kind, known.scenario, changed)), None)
        if standing is None:
            standings.append(standing := Standing(kind, changed, how, largest))
        out.append(_compared(standing.assess(changed, made, best=one.answer.best), one, text, chosen))
    return out


def _same(kind: Workload[S], one: S, other: S) -> bool:
    """Whether a scenario is another one at a different scale."""
    ranks = kind.ranks(other)
    return kind.can_run_on(one, ranks) and kind.at(one, ranks) == other


def _compared(after: Assessment[S], before: Assessment[S], text: str, chosen: Chosen[S]) -> PolicyComparison:
    one, other = before.found, after.found
    reserves = [side.regime.reserve or None for side in (before, after)]
    return PolicyComparison(
        name=text,
        ranks=before.answer.ranks,
        policies=[AppliedPolicy(name=p.name, value=value, says=p.says, costs=p.costs or None) for p, value in chosen],
        indices=IndexSets(
            without=before.indices(), with_=after.indices(), ratio={name: ratio(one[name], other[name]) for name in one}
        ),
        regime=Regimes(without=before.regime.kind, with_=after.regime.kind),
        reserve=Reserves(without=reserves[0], with_=reserves[1]),
        threshold=Thresholds(without=before.threshold, with_=after.threshold),
        forecast=Forecasts(without=before.entry(), with_=after.entry()),
    )


def ratio(before: Estimate | None, after: Estimate | None) -> float | None:
    """After over before; None where either is not known."""
    if before is None or after is None or before.value == 0:
        return None
    return after.value / before.value
