"""What the audit log tells of the inputs of a briefing: decisions on them, what became of those, and the root at their records.

The root is that of all records up to the last one that is cited, never of the newest: every verb appends a record, this one
too, and a briefing that is made twice is to be the same.
"""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Literal

import msgspec

from taut.audit.log import Entry, open_log
from taut.audit.merkle import root_of
from taut.audit.record import DECISION, OUTCOME, VERB
from taut.audit.trail import outputs, runs_of, shown
from taut.core.array_types import Json
from taut.core.errors import AuditError
from taut.core.folder import RUN, is_run_folder, sealed
from taut.result.brief_types import BriefedDecision
from taut.result.types import AuditOutcome, Estimate


class Trail(msgspec.Struct, frozen=True):
    """What a log tells of some runs."""

    decisions: list[BriefedDecision] = []
    """Oldest first."""
    root: str | None = None
    """Root of the records up to the last that is cited, base64; None where none is."""
    records: int = 0
    """How many records that are."""
    commands: dict[str, str] = {}
    """Run folder → the command that made it."""
    log: str | None = None
    """Name of the log; None where no record tells of the runs."""
    fault: str | None = None
    """Why nothing could be read, where there is a log."""


def trail_of(log: Path, places: Iterable[str | Path]) -> Trail:
    """What a log tells of those of some places that are run folders, of whatever verb."""
    # A log knows a run by what its run.json says, not by what the run was made of.
    runs = {sealed(Path(place))[RUN]: str(place) for place in places if is_run_folder(place)}
    if not runs or not log.is_file():
        return Trail()
    try:
        with open_log(log) as opened:
            return _trail(opened.entries(), opened.origin(), runs)
    except AuditError as error:
        return Trail(fault=str(error))


def _trail(entries: Sequence[Entry], origin: str, runs: Mapping[str, str]) -> Trail:
    decisions = _decisions(entries, runs.keys())
    makers = {place: index for run, place in runs.items() if (index := _maker(entries, run)) is not None}
    made = sorted(makers.values())
    cited = [*made, *(one.record.index for one in decisions), *(one.outcome.record for one in decisions if one.outcome)]
    if not cited:
        return Trail()
    records = max(cited) + 1
    root = b64encode(root_of([entry.leaf for entry in entries[:records]])).decode()
    commands = {place: words for place, index in makers.items() if (words := _command(entries[index])) is not None}
    return Trail(decisions, root, records, commands, origin)


def _command(entry: Entry) -> str | None:
    """The words of a recorded command; None where some were redacted."""
    given = [] if entry.record is None else entry.record.details.get("arguments")
    words = [entry.texts.get(f"/arguments/{k}") for k in range(len(given))] if isinstance(given, list) else []
    told = [word.text for word in words if word is not None]
    return f"taut {shlex.join(told)}" if told and len(told) == len(words) else None


def _maker(entries: Sequence[Entry], run: str) -> int | None:
    """The first record of a verb that wrote a run: the same run made again changes nothing."""
    for entry in entries:
        made = outputs(entry.record.details) if entry.record is not None and entry.record.kind == VERB else ()
        if any(files.get(RUN) == run for files in made):
            return entry.index
    return None


def _decisions(entries: Sequence[Entry], runs: Set[str]) -> list[BriefedDecision]:
    """Decisions on one of the runs, or whose outcome was measured on one, each with its last outcome."""
    last: dict[int, Entry] = {}
    for entry in entries:
        if entry.record is not None and entry.record.kind == OUTCOME:
            decision = entry.record.details.get("decision")
            if isinstance(decision, int):
                last[decision] = entry
    return [
        BriefedDecision(record=shown(entry), outcome=_outcome(entry, last.get(entry.index)))
        for entry in entries
        if entry.record is not None and entry.record.kind == DECISION and runs & {*_runs(entry), *_runs(last.get(entry.index))}
    ]


def _runs(entry: Entry | None) -> list[str]:
    """The runs that a decision or an outcome is of."""
    return [] if entry is None or entry.record is None else runs_of(entry.record.details)


class _Told(msgspec.Struct):
    """What the record of an outcome holds."""

    says: str
    measured: Estimate | None = None
    expected: Estimate | None = None
    before: list[Json] = []
    after: list[Json] = []
    run_spread: float | None = None
    run_spread_from: Literal["assumed", "runs"] | None = None


def _outcome(decision: Entry, entry: Entry | None) -> AuditOutcome | None:
    """What became of a decision; None where nobody measured it, or its record cannot be read."""
    if entry is None or entry.record is None or decision.record is None:
        return None
    source = decision.record.details.get("expected_from")
    told = _decision_details(entry.record.details)
    if told is None:
        return None
    return AuditOutcome(
        record=entry.index,
        decision=decision.index,
        expected_saving=told.expected,
        expected_from="given" if source == "given" else "finding" if source == "finding" else None,
        measured_saving=told.measured,
        runs_before=max(len(told.before), 1),
        runs_after=max(len(told.after), 1),
        run_spread=told.run_spread,
        run_spread_from=told.run_spread_from,
        says="kept" if told.says == "kept" else "missed" if told.says == "missed" else "unclear",
    )


def _decision_details(details: dict[str, Json]) -> _Told | None:
    try:
        return msgspec.convert(details, _Told)
    except msgspec.ValidationError:
        return None
