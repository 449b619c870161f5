"""What architects and buyers ask before they commit, answered from a result of ``taut project``.

Scenarios from a file and from a measured run are asked the same. An answer has a number and its interval, and names the keys
of the result it was taken from; what the result does not hold is *not measured*.
"""

from __future__ import annotations

from collections.abc import Sequence

from taut.result.types import Estimate, Forecast, Question, Threshold

UNKNOWN = "not measured"


def questions(forecasts: Sequence[Forecast], at: int, threshold: Threshold | None, piece: str = "step") -> list[Question]:
    """The six questions with what the result says of one of its forecasts; ``piece``: a step, a request or a task."""
    own = forecasts[at]
    regime, indices = own.regime, own.indices
    stable = regime.reserve or None if regime else None
    known = "inside what the fabric is known for" if own.in_range else "beyond what is known, so a guess"
    rows = (
        ("How stable is the structure under load?", stable,
         f"{regime.kind if regime else None}: jitter may grow this many times before accelerators stop paying",
         "regime.reserve"),
        ("Under what conditions does it stay economically viable?", _scale(threshold), threshold.rule if threshold else "",
         "threshold"),
        ("How is systemic non-determinism handled?", indices.get("runtime_variance_index"),
         f"spread of a {piece} over its median, after everything the scenario does about it", "indices.runtime_variance_index"),
        ("How can stability be assessed before capital is committed?", _relative(own.mean_step_ns),
         f"mean {piece} over its forecast: the width of this interval, {known}", f"forecasts[{at}].mean_step_ns"),
        ("What does the system assume about synchronisation at scale?", _waiting(own),
         "share of all time spent waiting for others", f"forecasts[{at}].groups"),
        ("Which coupling does it expose, manage or hide?", indices.get("sync_delay_amplification"),
         "delay of the whole per delay of its parts: above 1 the coupling is exposed, below 1 slack hides it",
         "indices.sync_delay_amplification"),
    )  # fmt: skip
    return [
        Question(question=question, answer=found, says=UNKNOWN if found is None else says, taken_from=keys)
        for question, found, says, keys in rows
    ]


def _scale(threshold: Threshold | None) -> Estimate | None:
    if threshold is None or threshold.ranks is None:
        return None
    return Estimate(value=threshold.ranks, lo=threshold.lo, hi=threshold.hi)


def _relative(mean: Estimate | None) -> Estimate | None:
    """A mean and its bounds, as multiples of the mean; a mean of one step has no bounds."""
    if mean is None or not mean.value:
        return None
    lo, hi = (None if end is None else end / mean.value for end in (mean.lo, mean.hi))
    return Estimate(value=1.0, lo=lo, hi=hi)


def _waiting(own: Forecast) -> Estimate | None:
    """Share of all time that is waiting for others."""
    waiting = own.groups["synchronisation"] if own.groups else None
    return None if waiting is None else Estimate(value=waiting)
