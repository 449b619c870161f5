"""Runs in the audit trail: which log tells of a run, whether a run is what was recorded, and what a record rests on."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from taut.audit.checkpoint import PROOF as FORM
from taut.audit.checkpoint import Proof, proof_of
from taut.audit.log import Entry, Log, open_log
from taut.audit.merkle import leaf_hash
from taut.audit.note import BadNote
from taut.audit.record import DECISION, OUTCOME, VERB, decoded_record, hashes, revealed
from taut.audit.verify import Anchors, by_proof, verify
from taut.core.errors import AuditError, UsageError
from taut.core.folder import PROOF, RUN, changed_files, is_run_folder, read_file, sealed
from taut.result.types import AuditLink, AuditLogResult, AuditRecord, AuditVerification, AuditWhyResult

if TYPE_CHECKING:
    from taut.core.array_types import Json

FILE = "audit.db"
FOLDER = "taut-runs"
MOST_PROOF_BYTES = 64 << 20
ALONE = ", or --key KEY to check the run by its proof alone"


def found_log(place: Path, given: Path | None = None) -> Path:
    """The log of a place: a file, a folder of runs, or a run."""
    if given is not None:
        return given
    if place.is_file():
        return place
    logs = _near(place)
    if logs:
        return next((log for log in logs if is_run_folder(place) and _tells_of(log, place)), logs[0])
    if is_run_folder(place):
        raise AuditError(f"{place}: no audit log lies there or beside it; give --audit FILE{ALONE}")
    what = "is no run folder (no run.json), and no audit log lies in it" if place.exists() else "is not there"
    raise AuditError(f"{place}: {what}; give a run, a folder of runs, or --audit FILE")


def _near(place: Path) -> list[Path]:
    """Logs of a place. Of a run it may lie beside it; of another folder that would be a log that tells nothing of it."""
    near = [place, place / FOLDER]
    if is_run_folder(place):
        near += [place.parent, place.parent / FOLDER, Path(FOLDER)]
    return [folder / FILE for folder in near if (folder / FILE).is_file()]


def _tells_of(path: Path, run: Path) -> bool:
    """Whether a log is the one that a run's proof names."""
    try:
        with open_log(path) as log:
            return log.origin() == run_proof(run).checkpoint.origin
    except AuditError:
        return False


def run_proof(run: Path) -> Proof:
    """The proof that a run folder carries."""
    if not os.path.lexists(run / PROOF):
        raise AuditError(f"{run}: carries no {PROOF}: it was not recorded, or the proof was removed")
    return _read_proof(run / PROOF)


def _read_proof(path: Path) -> Proof:
    try:
        return proof_of(read_file(path, MOST_PROOF_BYTES).decode())
    except (OSError, BadNote, UnicodeDecodeError) as error:
        raise AuditError(f"{path}: the proof cannot be read ({error}); taut audit proof RUN writes it again") from None


def is_proof(path: Path) -> bool:
    """Whether a file is the proof of a record, by how it begins."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(FORM)) == FORM.encode()


def verify_place(place: Path, given: Path | None = None, anchors: Anchors | None = None) -> AuditVerification:
    """Check the log of a place and, if the place is a run, the run's files and its proof.

    A run or a proof that was taken elsewhere, away from its log, is checked by itself, if an anchor is given.
    """
    if given is None and is_proof(place):
        return by_proof(_read_proof(place), anchors, str(place))
    if not is_run_folder(place):
        return verify(found_log(place, given), anchors)
    if given is None and anchors is not None and not any(_tells_of(log, place) for log in _near(place)):
        proof = run_proof(place)
        return replace(by_proof(proof, anchors, str(place), _run_fault(place, proof)), run=str(place))
    return _verify_run(place, found_log(place, given), anchors)


def _verify_run(place: Path, path: Path, anchors: Anchors | None) -> AuditVerification:
    try:
        proof = run_proof(place)
    except AuditError as error:
        return replace(verify(path, anchors), ok=False, anchored=False, anchor=None, run=str(place), says=str(error))
    found = verify(path, anchors, [proof.note])
    why = found.says or _run_fault(place, proof) or _log_fault(place, proof, path)
    if why:
        if found.log not in (None, proof.checkpoint.origin):
            why = f"{place}: its proof is of another log than {path}; give its own with --audit FILE{ALONE}"
        found = replace(found, ok=False, anchored=False, anchor=None, anchored_records=0)
    return replace(found, run=str(place), says=why or None)


def _run_fault(run: Path, proof: Proof) -> str:
    """What makes a run another than the one that was recorded; nothing where it is that."""
    changed = changed_files(run)
    if changed:
        return f"{run}: {changed[0]} is not the file that its manifest lists"
    if not proof.holds():
        return f"{run}: its proof does not lead to the root that it names"
    recorded, now = outputs(_details(proof.record)), sealed(run)
    if not any(files and all(now.get(name) == digest for name, digest in files.items()) for files in recorded):
        return f"{run}: is not the run that record {proof.index} tells of"
    return ""


def _log_fault(run: Path, proof: Proof, path: Path) -> str:
    with open_log(path) as log:
        entry = log.entry(proof.index)
    other = entry.body is not None and entry.body != proof.record
    return f"{run}: its proof is of another record than {proof.index} of the log" if other else ""


def _details(body: bytes) -> Mapping[str, Json]:
    try:
        return decoded_record(body).details
    except ValueError:
        return {}


def outputs(details: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Files by digest of every run that a record says was written."""
    written = details.get("outputs")
    for one in written if isinstance(written, list) else []:
        files = one.get("files") if isinstance(one, dict) else None
        if isinstance(files, dict):
            yield files


def shown(entry: Entry) -> AuditRecord:
    """A record as it is printed."""
    record = entry.record
    if record is None:
        return AuditRecord(index=entry.index, kind=None, at=None, version=None, details={}, sha256=entry.leaf.hex())
    told = revealed(record.details, entry.texts)
    return AuditRecord(
        index=entry.index,
        kind=record.kind,
        at=record.at,
        version=record.version,
        details=told if isinstance(told, dict) else {},
        redacted=sorted(place for place, _ in hashes(record.details) if place not in entry.texts),
        sha256=entry.leaf.hex(),
    )


def listed(log: Log, last: int | None = None) -> AuditLogResult:
    """The records of a log, or only the last of them."""
    entries, tree = log.entries(), log.frontier()
    chosen = entries if last is None else entries[-last:]
    root = b64encode(tree.root()).decode()
    return AuditLogResult(log=log.origin(), size=tree.size, root=root, records=[shown(entry) for entry in chosen])


def why(log: Log, target: Path | int) -> AuditWhyResult:
    """What a run or a record rests on: its own record first, then those of the runs that it was made of."""
    entries = log.entries()
    if not isinstance(target, int):
        entries = _with_proven(entries, log, target)
    makers = _makers(entries)
    start = target if isinstance(target, int) else _maker(makers, target)
    if not 0 <= start < len(entries):
        raise UsageError(f"{log.path}: has no record {start}; it has {len(entries)}, from 0 on")
    chain: list[AuditLink] = []
    seen: set[int] = set()
    open_ends = [(start, 0)]
    while open_ends:
        index, depth = open_ends.pop()
        if index in seen:
            continue
        seen.add(index)
        chain.append(AuditLink(depth=depth, record=shown(entries[index])))
        open_ends += [(each, depth + 1) for each in reversed(_sources(entries[index], makers))]
    return AuditWhyResult(log=log.origin(), chain=chain)


def body_of(log: Log, target: Path | int, index: int) -> bytes:
    """The bytes of a record; of a run also where the log has it no more, as the run's proof carries it."""
    entries = log.entries()
    if not isinstance(target, int):
        entries = _with_proven(entries, log, target)
    return entries[index].body or b""


def proven(log: Log, run: Path) -> Entry:
    """The record of a run."""
    entries = _with_proven(log.entries(), log, run)
    return entries[_maker(_makers(entries), run)]


def _with_proven(entries: list[Entry], log: Log, run: Path) -> list[Entry]:
    """Records, with that of a run as the run's proof carries it where the log has it no more."""
    try:
        proof = run_proof(run)
    except AuditError:
        return entries
    mine = entries[proof.index] if proof.index < len(entries) and proof.checkpoint.origin == log.origin() else None
    if mine is None or mine.body is not None or leaf_hash(proof.record) != mine.leaf:
        return entries
    known = replace(mine, body=proof.record, record=decoded_record(proof.record))
    return [known if entry is mine else entry for entry in entries]


def _outputs(entry: Entry) -> Iterator[dict[str, Json]]:
    return outputs(entry.record.details) if entry.record is not None else iter(())


Makers: TypeAlias = Mapping[str, Sequence[int]]
"""Records that tell how a run was written, by its digest: the same run may be written more than once."""


def _makers(entries: Sequence[Entry]) -> Makers:
    makers: dict[str, list[int]] = {}
    for entry in entries:
        for files in _outputs(entry):
            makers.setdefault(str(files.get(RUN)), []).append(entry.index)
    return makers


def _maker(makers: Makers, run: Path) -> int:
    if not is_run_folder(run):
        raise UsageError(f"{run}: is no run folder and no number of a record; taut audit log lists them")
    digest = sealed(run)[RUN]
    if digest not in makers:
        raise UsageError(f"{run}: no record tells of this run; was it written elsewhere, or with TAUT_AUDIT=off?")
    return makers[digest][-1]


def runs_of(details: Mapping[str, Json]) -> list[str]:
    """Digests of the runs that a decision or an outcome is of; outcomes of older versions have one."""
    digests = [details.get("run"), *_parts(details, "before", "run"), *_parts(details, "after", "run")]
    return [digest for digest in digests if isinstance(digest, str)]


def _parts(details: Mapping[str, Json], key: str, part: str) -> list[Json]:
    some = details.get(key)
    return [one.get(part) for one in some if isinstance(one, dict)] if isinstance(some, list) else []


def _sources(entry: Entry, makers: Makers) -> Sequence[int]:
    """Records that a record rests on, all before it: the decision of an outcome, the run of a decision, the runs that a
    verb was given."""
    record = entry.record
    if record is None:
        return []
    told = record.details
    found = [decision] if record.kind == OUTCOME and isinstance(decision := told.get("decision"), int) else []
    digests = _parts(told, "inputs", "sha256") if record.kind == VERB else []
    if record.kind in (DECISION, OUTCOME):
        digests += runs_of(told)
    found += [made for digest in digests for made in _made_by(makers, digest, entry.index)]
    return [each for each in found if each < entry.index]


def _made_by(makers: Makers, digest: Json, before: int) -> list[int]:
    """The last record before another that tells how a run was written."""
    earlier = [index for index in makers.get(digest, ()) if index < before] if isinstance(digest, str) else []
    return earlier[-1:]
