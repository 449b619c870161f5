"""A scenario as it stands beside the same with policies: indices and their ratios, regime and reserve, threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from taut.core.errors import UsageError
from taut.project.marginal_gain import rule
from taut.project.reserve import reserve
from taut.project.threshold import threshold
from taut.project.workload import Answer, Estimate, Policy, Workload


@dataclass(frozen=True)
class Played:
    """A scenario at its own scale: what it gives, where it stands, how far it goes."""

    scenario: Any
    answer: Answer
    regime: Mapping[str, Any]
    threshold: Mapping[str, Any] | None

    def indices(self) -> dict[str, Any]:
        """The indices in the words of ``--json``."""
        return {name: _entry(found) for name, found in self.answer.indices().items()}


def play(
    kind: Workload, s: Any, *, count: int | None, seed: int, cores: int = 1, answer: Answer | None = None, **how: Any
) -> Played:  # fmt: skip
    """Everything that is said about one scenario; ``answer`` where it has been played already."""
    answer = answer or kind.forecast(s, count=count, seed=seed, cores=cores, **how)
    if kind.regime:
        return Played(s, answer, kind.regime(s, seed), None)
    know = {"asked": rule(kind, s, seed=seed, **how), "seed": seed, "cores": cores, **how}
    return Played(s, answer, reserve(kind, s, **know).entry(), threshold(kind, s, **know).entry())


def policies_of(kind: Workload, said: str) -> list[tuple[Policy, float | None]]:
    """``overlap=0.9,spares`` → the policies and their values."""
    found = []
    for part in said.split(","):
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


def changed(s: Any, chosen: Sequence[tuple[Policy, float | None]]) -> Any:
    """The scenario with all of these, in that order."""
    for policy, value in chosen:
        s = policy.apply(s, value)
    return s


def compare(
    kind: Workload, before: Played, said: str, *, count: int | None, seed: int, cores: int = 1, **how: Any
) -> dict[str, Any]:  # fmt: skip
    """The scenario beside itself with these policies together."""
    chosen = policies_of(kind, said)
    after = play(kind, changed(before.scenario, chosen), count=count, seed=seed, cores=cores, **how)
    one, other = before.answer.indices(), after.answer.indices()
    ratios = {name: ratio(one[name], other[name]) for name in one}
    said_of = [{"name": p.name, "value": value, "says": p.says, "costs": p.costs or None} for p, value in chosen]
    return {
        "name": said, "policies": said_of,
        "indices": {"baseline": before.indices(), "with": after.indices(), "ratio": ratios},
        "regime": {"baseline": before.regime["class"], "with": after.regime["class"]},
        "reserve": {"baseline": before.regime.get("reserve"), "with": after.regime.get("reserve")},
        "threshold": {"baseline": before.threshold, "with": after.threshold},
        "forecast": {"baseline": before.answer.entry(), "with": after.answer.entry()},
    }  # fmt: skip


def ratio(before: Estimate | None, after: Estimate | None) -> float | None:
    """After over before; None where either is not known."""
    if before is None or after is None or before.value == 0:
        return None
    return after.value / before.value


def _entry(found: Estimate | None) -> dict[str, float | None] | None:
    return None if found is None else found.entry()
