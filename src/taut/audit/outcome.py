"""What a decision was expected to bring, and whether it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from taut.audit.log import Entry
from taut.audit.record import DECISION
from taut.core.errors import UsageError
from taut.result.types import AuditOutcome, Estimate

if TYPE_CHECKING:
    from taut.core.array_types import Json

Source = Literal["given", "finding"] | None


def told(entry: Entry) -> tuple[Estimate | None, Source, str]:
    """(expected saving, who expected it, the run that was decided on) of a decision."""
    if entry.record is None or entry.record.kind != DECISION:
        raise UsageError(f"record {entry.index} is no decision; taut audit log lists them")
    run = entry.texts.get("/run_name")
    if run is None:
        raise UsageError(f"record {entry.index}: where the run of this decision lies was redacted; decide again on the run")
    return _estimate(entry.record.details.get("expected")), _source(entry.record.details.get("expected_from")), run.text


def _estimate(value: Json) -> Estimate | None:
    try:
        return None if value is None else msgspec.convert(value, Estimate)
    except msgspec.ValidationError:
        return None


def _source(value: Json) -> Source:
    return "given" if value == "given" else "finding" if value == "finding" else None


def judged(decision: int, expected: Estimate | None, source: Source, measured: Estimate | None) -> AuditOutcome:
    """What was measured against what was expected. Its record has no number yet."""
    return AuditOutcome(
        record=-1, decision=decision, expected_saving=expected, expected_from=source, measured_saving=measured,
        says=_says(expected, measured),
    )  # fmt: skip


def _says(expected: Estimate | None, measured: Estimate | None) -> Literal["kept", "missed", "unclear"]:
    """The interval of what was measured against the least that was expected."""
    if expected is None or measured is None or measured.lo is None or measured.hi is None:
        return "unclear"
    least = expected.value if expected.lo is None else expected.lo
    return "kept" if measured.lo >= least else "missed" if measured.hi < least else "unclear"
