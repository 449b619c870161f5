"""What a decision was expected to bring, and whether it did."""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING, Literal

import msgspec

from taut.audit.log import Entry
from taut.audit.record import DECISION
from taut.core.errors import UsageError
from taut.result.types import Estimate

if TYPE_CHECKING:
    from taut.core.array_types import Json

Source = Literal["given", "finding"] | None


class Expectation(msgspec.Struct, frozen=True):
    """What a decision says that its outcome is held against."""

    expected: Estimate | None
    source: Source
    """Who expected it."""
    run: str
    """Digest of the run that was decided on."""
    place: str | None
    """Where it lay; None once that was redacted."""


def expectation(entry: Entry) -> Expectation:
    """What a decision expects, and of which run."""
    if entry.record is None or entry.record.kind != DECISION:
        raise UsageError(f"record {entry.index} is no decision, or was pruned; taut audit log lists them")
    details, place = entry.record.details, entry.texts.get("/run_name")
    return Expectation(
        _estimate(details.get("expected")),
        _source(details.get("expected_from")),
        str(details.get("run")),
        None if place is None else place.text,
    )


def _estimate(value: Json) -> Estimate | None:
    try:
        return None if value is None else msgspec.convert(value, Estimate)
    except msgspec.ValidationError:
        return None


def _source(value: Json) -> Source:
    return "given" if value == "given" else "finding" if value == "finding" else None


def judged(expected: Estimate | None, source: Source, measured: Estimate | None) -> Literal["kept", "missed", "unclear"]:
    """What was measured against what was expected: *missed* where it is surely less, by the interval of the difference;
    *kept* where it is not, and surely more than nothing; *unclear* where the intervals are too wide to tell."""
    if expected is None or measured is None or measured.lo is None or measured.hi is None:
        return "unclear"
    short = expected.value - measured.value
    # The ends of a difference from those of its parts, whatever their shapes (Zou and Donner's MOVER).
    if short > hypot(expected.value - _least(expected, source), measured.hi - measured.value):
        return "missed"
    none = 0.0 if expected.value > 0 else _least(expected, source)
    return "kept" if measured.lo > none else "unclear"


def _least(expected: Estimate, source: Source) -> float:
    """The lower end of what was expected. Who names a share without an end means it; a finding without one may be wrong
    by all of it."""
    return expected.lo if expected.lo is not None else expected.value if source == "given" else min(0.0, expected.value)
