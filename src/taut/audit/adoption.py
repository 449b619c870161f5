"""``taut audit adopt``: a log that somebody else began is used from now on, or no longer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from taut.audit import trust
from taut.audit.checkpoint import checkpoint_of
from taut.audit.key import signing_key
from taut.audit.log import NO_CONFIGURATION, open_log
from taut.audit.note import BadNote, is_signed_by, parted, public_key
from taut.audit.trail import FILE, found_log
from taut.audit.verify import verify
from taut.core.errors import AuditError, DamagedLog, UsageError
from taut.result.types import AuditAdoptResult, AuditKnownLog, AuditSigner


def adopt(place: Path) -> AuditAdoptResult:
    """Append to a log and sign it from now on; refused where it does not verify."""
    path = found_log(place, None)
    found = verify(path, as_stranger=True)
    if not found.ok or found.root is None:
        raise DamagedLog(f"{path}: is not adopted, because it does not verify: {found.says}")
    with open_log(path) as log:
        origin, notes = log.origin(), log.checkpoints()
    if not trust.is_kept():
        raise AuditError(f"{path}: {NO_CONFIGURATION}")
    known = trust.known_log(origin)
    how = "adopted" if known is None else known.since
    known = trust.KnownLog(origin, how, trust.place_of(path), found.records, found.root)
    trust.know_anew(known)
    return AuditAdoptResult(logs=[replace(_told(known), records=found.records, signers=_signers(origin, notes))])


def listed() -> AuditAdoptResult:
    """All logs that this user began or adopted."""
    return AuditAdoptResult(logs=[_told(one) for one in trust.known_logs()])


def remove(place: Path) -> str:
    """Neither append to a log nor sign it any more; returns its name. A log that is gone is found by its old place, or name."""
    names = {str(place), trust.place_of(place), trust.place_of(place / FILE)}
    known = next((one for one in trust.known_logs() if not place.exists() and {one.origin, one.path} & names), None)
    if known is not None:
        origin = known.origin
    else:
        with open_log(found_log(place, None)) as log:
            origin = log.origin()
    if trust.known_log(origin) is None:
        raise UsageError(f"{place}: is none of the logs that you use; taut audit adopt lists them")
    trust.forget_log(origin)
    return origin


def _told(known: trust.KnownLog) -> AuditKnownLog:
    return AuditKnownLog(log=known.origin, path=known.path, since=known.since)


def _signers(origin: str, notes: Sequence[str]) -> list[AuditSigner]:
    """Keys that signed checkpoints of a log. Signatures of others are not verified: their keys are not known here."""
    own, signed = public_key(origin, signing_key()), dict[str, AuditSigner]()
    for note in notes:  # the smallest first
        try:
            size, keys = checkpoint_of(note).size, {key for _, key, _ in parted(note)[1]}
        except BadNote:
            continue
        for key in keys:
            is_own = key == own.id and is_signed_by(note, own)
            signed[f"{key.hex()} {is_own}"] = AuditSigner(key=key.hex(), own=is_own, records=size)
    return sorted(signed.values(), key=lambda one: -one.records)
