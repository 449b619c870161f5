"""A decision on a finding → its record in the audit log: what ``taut audit decide`` and the app do."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from taut import __version__
from taut.audit.log import open_log
from taut.audit.record import DECISION, Detail, Text
from taut.core.errors import UsageError
from taut.core.folder import RUN, sealed
from taut.replay.saving_interval import lab_error
from taut.result.decided_saving import expected_saving
from taut.result.types import AnalysisResult, Estimate, Finding


class Chosen(Struct, frozen=True):
    """What is decided."""

    finding: str
    do: str
    by: str
    because: str = ""
    expected: Estimate | None = None
    """Saving of step time; None for what the finding says."""


class Decided(Struct, frozen=True):
    """A decision that is on record."""

    index: int
    expected: Estimate | None


def record_decision(log: Path, run: str | Path, result: AnalysisResult, chosen: Chosen) -> Decided:
    """Record a decision on a finding of a run, with what it is expected to save."""
    found = _finding(result, chosen.finding, run)
    value = chosen.expected or expected_saving(result, found)
    error = lab_error(found) if chosen.expected is None else None
    details: dict[str, Detail] = {
        "run": sealed(Path(run))[RUN], "run_name": Text(str(run)), "finding": found.id, "mode": found.mode,
        "do": Text(chosen.do), "because": Text(chosen.because) if chosen.because else None, "by": Text(chosen.by),
        "expected": plain(value), "expected_from": None if value is None else "finding" if chosen.expected is None else "given",
        "lab_error": None if error is None else {"lo": error.lo, "hi": error.hi},
    }  # fmt: skip
    with open_log(log, __version__, create=True) as opened:
        return Decided(opened.append(DECISION, details).index, value)


def _finding(result: AnalysisResult, asked: str, run: str | Path) -> Finding:
    found = [one for one in result.findings if one.id == asked]
    if not found:
        have = ", ".join(one.id for one in result.findings) or "none"
        raise UsageError(f"--finding {asked}: {run} has {have}")
    return found[0]


def plain(estimate: Estimate | None) -> dict[str, Detail] | None:
    """An estimate as records hold it."""
    return None if estimate is None else {"value": estimate.value, "lo": estimate.lo, "hi": estimate.hi}
