"""Regime of control: coherent, oscillating, amplifying or incoherent. docs/control.md derives the thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taut.control.relation import Relation
from taut.result.types import ControlRegime, Estimate

MOST_OF_LOAD = 2.0
"""Attempts per work, surely, from which repeats are most of the load."""
MOST = 0.5
"""Share of decisions, surely, from which undoing is the rule and not the exception."""
FEEDS_ITSELF = 1.0
"""Gain of a loop from which what it does grows."""
LEADS_TO: Mapping[str, str] = {
    "amplification": "amplifying", "metastability": "amplifying", "conflict": "incoherent", "feedback loop": "incoherent",
    "timeout mismatch": "incoherent", "starvation": "incoherent", "oscillation": "oscillating",
}  # fmt: skip
ORDER = ("amplifying", "incoherent", "oscillating")
"""What is worst comes first: what feeds itself, what fights, what swings."""


def regime(
    relations: Sequence[Relation], found: Mapping[str, Estimate | None], actions: int, unjudged: Sequence[str] = ()
) -> ControlRegime:
    """The class of a log; None where nobody decided, or where what was decided cannot be judged (``unjudged`` says why)."""
    classes = {LEADS_TO[relation.kind] for relation in relations if relation.kind in LEADS_TO}
    if any(r.kind == "feedback loop" and (r.statistic or 0.0) >= FEEDS_ITSELF for r in relations):
        classes.add("amplifying")
    if _low(found.get("actual_attempt_multiplier")) > MOST_OF_LOAD:
        classes.add("amplifying")
    if _low(found.get("decision_conflict_rate")) > MOST:
        classes.add("incoherent")
    worst = next((word for word in ORDER if word in classes), None)
    if worst is None and not unjudged and actions:
        return ControlRegime(kind="coherent")
    return ControlRegime(kind=worst, because=unjudged[0] if unjudged and worst is None else None)


def _low(estimate: Estimate | None) -> float:
    low = estimate.lo if estimate else None
    return -1.0 if low is None else float(low)
