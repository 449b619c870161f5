"""Whether a log is what was recorded: *consistent* by itself, and *anchored* by something that its keeper cannot change.

Whoever can write the file can write another log that is consistent. What is anchored agrees with a key that signed it, with
a checkpoint that somebody kept, or with a witness's signature, each given from outside.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from taut.audit import trust
from taut.audit.checkpoint import Checkpoint, Proof, checkpoint_of
from taut.audit.log import NAME, Log, Row, open_log
from taut.audit.merkle import EMPTY, Frontier, leaf_hash
from taut.audit.note import COSIGNATURE, BadNote, Key, is_signed_by
from taut.audit.record import PRUNE, REDACTION, Record, decoded_record, decoded_texts, hashes
from taut.audit.salvage import salvaged
from taut.core.errors import AuditError, DamagedLog
from taut.result.types import AuditVerification


@dataclass(frozen=True)
class Anchors:
    """What the verifier trusts, given from outside."""

    key: Key | None = None
    """Signed the latest checkpoint of the log."""
    checkpoint: str | None = None
    """An earlier checkpoint that somebody kept."""
    witness: Key | None = None
    """Cosigned a checkpoint of the log, or the one that is given."""


@dataclass
class _Walk:
    """Records checked one after the other, up to the first that is wrong."""

    roots: list[bytes] = field(default_factory=lambda: [EMPTY])
    """The root at every size that was reached."""
    origin: str = ""
    missing: dict[int, set[str]] = field(default_factory=dict)
    """Texts that are not there, by record; an empty place stands for the whole record."""
    taken: dict[int, set[str]] = field(default_factory=dict)
    """What later records say was taken out."""
    why: str = ""
    redacted: int = 0
    pruned: int = 0

    @property
    def kept(self) -> int:
        """Records that are as they were written."""
        return len(self.roots) - 1


class Unfollowed(ValueError):
    """A record that names another root than those before it make."""


def verify(
    path: Path, anchors: Anchors | None = None, notes: Sequence[str] = (), *, as_stranger: bool = False
) -> AuditVerification:
    """Check a whole log: every record, text, root and checkpoint, and whether it agrees with what is given from outside.

    ``notes`` are further checkpoints that must fit, such as that of a run's proof. What this user wrote to the log must be
    there too, unless it is looked at as a stranger would.
    """
    try:
        with open_log(path) as log:
            found = _Found.of(log)
    except DamagedLog as error:
        found = _Found(salvaged(path), None, None, [], [str(error)])
    found = replace(found, notes=[*found.notes, *notes])
    walk = _walked(found.rows)
    why = _judged(walk, found) or ("" if as_stranger else _set_back(walk, path))
    return _result(walk, found, why, [] if anchors is None else _anchored(walk, found.notes, anchors))


@dataclass(frozen=True)
class _Found:
    """What a file holds."""

    rows: list[Row]
    size: int | None
    """What the head says; None where there is none to be read."""
    root: bytes | None
    notes: list[str]
    problems: Sequence[str]
    """What is wrong with the file itself."""

    @classmethod
    def of(cls, log: Log) -> _Found:
        rows, notes, problems = log.raw(), log.checkpoints(), list(log.problems())
        try:
            tree = log.head()
        except DamagedLog as error:
            return cls(rows, None, None, notes, [*problems, str(error)])
        return cls(rows, tree.size, tree.root(), notes, problems)


def _walked(rows: Sequence[Row]) -> _Walk:
    walk, tree = _Walk(), Frontier()
    for row in rows:
        try:
            _step(walk, tree, row)
        except Unfollowed as error:
            # The root that it names covers those before it: the last of them, or another, was replaced, hash and all.
            walk.why = f"record {walk.kept} {error}"
            del walk.roots[max(walk.kept, 1) :]
            break
        except ValueError as error:
            walk.why = f"record {walk.kept} {error}"
            break
        tree.append(row.leaf)
        walk.roots.append(tree.root())
    for index, places in walk.missing.items():
        if not walk.why and not places <= walk.taken.get(index, set()):
            walk.why = f"record {index} lacks what no record says was taken out"
            del walk.roots[index + 1 :]
    return walk


def _step(walk: _Walk, tree: Frontier, row: Row) -> None:
    """Check one record against its hash, its place, those before it and its texts."""
    if row.id != tree.size:
        raise ValueError(f"is missing; the next there is {row.id}")
    if row.body is None:
        walk.missing[row.id] = {""}
        walk.pruned += 1
        return
    if leaf_hash(row.body) != row.leaf:
        raise ValueError("is not what its hash says")
    record = decoded_record(row.body)
    if record.index != row.id:
        raise ValueError(f"is record {record.index}, in another place")
    if record.before != b64encode(walk.roots[-1]).decode():
        raise Unfollowed("does not follow those before it")
    _check_texts(walk, row, record)
    _note_taken(walk, record)
    if row.id == 0:
        walk.origin = str(record.details.get("log", ""))
        if not NAME.fullmatch(walk.origin):
            raise ValueError("does not name the log")


def _check_texts(walk: _Walk, row: Row, record: Record) -> None:
    texts, committed = decoded_texts(row.texts), dict(hashes(record.details))
    if any(committed.get(place) != kept.hash for place, kept in texts.items()):
        raise ValueError("has a text that is not what its hash says")
    gone = committed.keys() - texts.keys()
    if gone:
        walk.missing[row.id] = gone
        walk.redacted += len(gone)


def _note_taken(walk: _Walk, record: Record) -> None:
    """Remember what a record says was taken out."""
    details = record.details
    if record.kind == REDACTION and isinstance(index := details.get("record"), int):
        places = details.get("places")
        walk.taken.setdefault(index, set()).update(str(place) for place in (places if isinstance(places, list) else []))
    if record.kind == PRUNE and isinstance(spans := details.get("records"), list):
        for span in spans:
            if isinstance(span, list) and len(span) == 2 and isinstance(span[0], int) and isinstance(span[1], int):
                for index in range(max(span[0], 0), min(span[1], record.index - 1) + 1):
                    walk.taken.setdefault(index, set()).add("")


def _judged(walk: _Walk, found: _Found) -> str:
    """What is wrong with a log by itself; nothing where it is consistent."""
    tops = list(map(_checkpoint, found.notes))
    vouched = {top.size for top in tops if top is not None and _fits(walk, top)}
    unfit = [top for top in tops if top is None or not _fits(walk, top)]
    if walk.why:
        return walk.why
    if (found.size, found.root) != (walk.kept, walk.roots[-1]):
        if walk.kept and walk.kept not in vouched:
            # Nothing follows the last record: where the head does not vouch for it, only a checkpoint does.
            walk.roots.pop()
        return found.problems[0] if found.problems else "its head does not fit its records"
    if unfit:
        return "a checkpoint of it " + (
            "cannot be read" if unfit[0] is None else f"is of {unfit[0].size} other records than the first of these"
        )
    return f"the file is damaged beside its records: {found.problems[0]}" if found.problems else ""


def _set_back(walk: _Walk, path: Path) -> str:
    """Whether a log lacks records that this user wrote; empty where it has them, or is a copy, or is not known here."""
    known = trust.known_log(walk.origin) if walk.origin else None
    if known is None or known.path not in (None, trust.place_of(path)):
        return ""
    if known.size < len(walk.roots) and b64encode(walk.roots[known.size]).decode() == known.root:
        return ""
    return f"was set back or replaced, or is an older copy: you wrote {known.size} records to it, and they are not all here"


def _checkpoint(note: str) -> Checkpoint | None:
    try:
        return checkpoint_of(note)
    except BadNote:
        return None


AnchorKind = Literal["key", "checkpoint", "witness"]


@dataclass(frozen=True)
class _Anchor:
    """One anchor that was given: how many records it holds, or why none."""

    kind: AnchorKind
    size: int
    why: str = ""


def _anchored(walk: _Walk, notes: Sequence[str], given: Anchors) -> list[_Anchor]:
    """What the anchors say, weakest first."""
    found = []
    if given.key is not None:
        found.append(_by_key("key", walk, notes, given.key))
    if given.checkpoint is not None:
        found.append(_by_checkpoint(walk, given.checkpoint))
    if given.witness is not None:
        seen = [*notes, given.checkpoint] if given.checkpoint is not None else list(notes)
        found.append(_by_key("witness", walk, seen, given.witness))
    return found


def _by_key(kind: AnchorKind, walk: _Walk, notes: Sequence[str], key: Key) -> _Anchor:
    """The largest checkpoint of this log that a key signed."""
    if (key.kind == COSIGNATURE) != (kind == "witness"):
        return _Anchor(kind, 0, f"{key.name} is no key of a {'witness' if kind == 'witness' else 'log'}")
    tops = [top for note in notes if (top := _checkpoint(note)) is not None and is_signed_by(note, key)]
    fitting = [top.size for top in tops if _fits(walk, top)]
    if len(fitting) < len(tops):
        return _Anchor(kind, 0, f"a checkpoint signed by {key.name} does not fit the records")
    return _Anchor(kind, max(fitting, default=0), "" if fitting else f"no checkpoint of it is signed by {key.name}")


def _by_checkpoint(walk: _Walk, note: str) -> _Anchor:
    try:
        top = checkpoint_of(note)
    except BadNote as error:
        return _Anchor("checkpoint", 0, str(error))
    if top.origin != walk.origin:
        return _Anchor("checkpoint", 0, f"the checkpoint is of another log ({top.origin})")
    if not _fits(walk, top):
        return _Anchor("checkpoint", 0, f"the first {top.size} records are not those of the checkpoint")
    return _Anchor("checkpoint", top.size)


def by_proof(proof: Proof, given: Anchors | None, place: str, why: str = "") -> AuditVerification:
    """What the proof of a record is worth by itself, away from its log: nothing without an anchor."""
    if given is None:
        raise AuditError(f"{place}: a proof by itself shows nothing; give --key, --checkpoint or --witness, or --audit FILE")
    top = proof.checkpoint
    anchors = [_Anchor(kind, 0 if unfit else 1, unfit) for kind, unfit in _held(proof.note, top, given)]
    bad = why or ("" if proof.holds() else f"{place}: the proof does not lead to the root that it names")
    bad = bad or next((one.why for one in anchors if one.why), "")
    return AuditVerification(
        ok=not bad,
        anchored=not bad,
        anchor=None if bad else anchors[-1].kind,
        records=top.size,
        root=b64encode(top.root).decode(),
        first_bad=None,
        kept=0 if bad else 1,
        anchored_records=0 if bad else 1,
        log=top.origin,
        alone=proof.index,
        says=bad or None,
    )


def _held(note: str, top: Checkpoint, given: Anchors) -> Iterator[tuple[AnchorKind, str]]:
    """(anchor, why it does not hold the checkpoint of a proof; nothing where it does), weakest first."""
    if given.key is not None:
        held = given.key.kind != COSIGNATURE and is_signed_by(note, given.key)
        yield "key", "" if held else f"the proof is not signed by {given.key.name}"
    if given.checkpoint is not None:
        same = _checkpoint(given.checkpoint) == top
        yield "checkpoint", "" if same else f"the proof is of another checkpoint, of {top.size} records: only the log tells"
    if given.witness is not None:
        held = given.witness.kind == COSIGNATURE and is_signed_by(note, given.witness)
        yield "witness", "" if held else f"the proof is not cosigned by {given.witness.name}"


def _fits(walk: _Walk, top: Checkpoint) -> bool:
    return top.origin == walk.origin and top.size < len(walk.roots) and walk.roots[top.size] == top.root


def _result(walk: _Walk, found: _Found, why: str, anchors: Sequence[_Anchor]) -> AuditVerification:
    failed = next((one.why for one in anchors if one.why), "")
    records = max(found.size or 0, found.rows[-1].id + 1 if found.rows else 0)
    bad = why or failed
    best = None if bad or not anchors else anchors[-1]
    return AuditVerification(
        ok=not bad,
        anchored=best is not None,
        anchor=None if best is None else best.kind,
        records=records,
        root=b64encode(walk.roots[-1]).decode() if walk.kept else None,
        first_bad=walk.kept if why and walk.kept < max(records, 1) else None,
        kept=walk.kept,
        anchored_records=max((one.size for one in anchors), default=0) if best is not None else 0,
        log=walk.origin or None,
        redacted=walk.redacted,
        pruned=walk.pruned,
        says=bad or None,
    )
