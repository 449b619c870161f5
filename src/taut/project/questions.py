"""What architects and buyers ask before they commit, answered from a result of ``taut project``.

Scenarios from a file and from a measured run are asked the same. An answer has a number and its interval, and names the keys
of the result it was taken from; what the result does not hold is *not measured*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNKNOWN = "not measured"
WAITING = ("synchronisation", "jitter", "wait", "fan-out", "queue")
"""Terms of a step that are waiting for others."""


def questions(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The six questions with what the result says."""
    own, indices = result["forecasts"][0], result.get("indices") or {}
    regime, far = result.get("regime") or {}, result.get("threshold") or {}
    waits = _waiting(own)
    return [
        _row("How stable is the structure under load?", regime.get("reserve"),
             f"{regime.get('class')}: jitter may grow this many times before accelerators stop paying",
             "regime.reserve"),
        _row("Under what conditions does it stay economically viable?", _scale(far), far.get("rule") or "", "threshold"),
        _row("How is systemic non-determinism handled?", indices.get("runtime_variance_index"),
             "spread of a step over its median, after everything the scenario does about it", "indices.runtime_variance_index"),
        _row("How can stability be assessed before capital is committed?", _relative(own.get("mean_step_ns")),
             "mean step over its forecast: the width of this interval, "
             + ("inside what the fabric is known for" if own.get("in_range") else "beyond what is known, so a guess"),
             "forecasts[0].mean_step_ns"),
        _row("What does the system assume about synchronisation at scale?",
             None if waits is None else {"value": waits, "lo": None, "hi": None},
             "share of a step spent waiting for others", "forecasts[0].terms"),
        _row("Which coupling does it expose, manage or hide?", indices.get("sync_delay_amplification"),
             "delay of the whole per delay of its parts: above 1 the coupling is exposed, below 1 slack hides it",
             "indices.sync_delay_amplification"),
    ]  # fmt: skip


def _row(question: str, found: Mapping[str, Any] | None, says: str, taken_from: str) -> dict[str, Any]:
    known = found is not None and found.get("value") is not None
    number = {key: (found or {}).get(key) for key in ("value", "lo", "hi")} if known else None
    return {"question": question, "answer": number, "says": says if known else UNKNOWN, "from": taken_from}


def _scale(far: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"value": far.get("ranks"), "lo": far.get("lo"), "hi": far.get("hi")} if far else None


def _relative(mean: Mapping[str, float | None] | None) -> dict[str, float | None] | None:
    """A mean and its bounds, as multiples of the mean; a mean of one step has no bounds."""
    if not mean or not mean["value"]:
        return None
    return {key: None if (at := mean[key]) is None else at / mean["value"] for key in ("value", "lo", "hi")}


def _waiting(own: Mapping[str, Any]) -> float | None:
    terms = own.get("terms") or own.get("terms_ns")
    if not terms:
        return None
    total = sum(terms.values()) or 1.0
    return float(sum(part for name, part in terms.items() if any(word in name for word in WAITING)) / total)
