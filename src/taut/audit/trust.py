"""What this user trusts: records of the user's own key, audit logs begun or adopted here, and files that taut wrote.

Every verb that signs, repeats, replaces or deletes asks here. All of it lies beside the key in the user's configuration, where
no trace, run folder or log that somebody else made can change it. Run folders and evidence folders are not listed here: they
carry a manifest, and only files that fit it are replaced.
"""

from __future__ import annotations

import hmac
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

from taut.audit.key import config_folder, private_bytes, put
from taut.audit.record import marked, unmarked
from taut.core.errors import AuditError, RunError, UsageError
from taut.core.folder import checked_addition, manifest_of, read_file
from taut.core.whole_file import is_scratch, whole_file

LOGS, PLACES, CHECKPOINTS, WRITTEN = "logs", "places", "signed", "written"
"""Folders of the configuration: known logs; which log lies where; the last checkpoints that earlier versions signed; written
files."""
MAX_ENTRY_BYTES = 1 << 26
"""Of one entry: the files of a folder of 100,000 ranks take a tenth of it."""
MARK_LABEL = b"taut audit: author of a record"
SELF = ""
"""The name of a file of its own in its entry."""
Entry = TypeVar("Entry")


# -- keys ---------------------------------------------------------------------------------------------------------------------


def author_key() -> bytes | None:
    """The secret that marks this user's records, derived from the signing key; None where there is no key and none can be made.

    A mark is a keyed hash and no signature: only its author has to verify it, and no library has to be loaded to make one.
    """
    try:
        return hmac.digest(private_bytes(), MARK_LABEL, "sha256")
    except (AuditError, ImportError):
        return None


def is_own_record(body: bytes) -> bool:
    """Whether a record carries the mark of this user's key."""
    key, (plain, mark) = author_key(), unmarked(body)
    return key is not None and bool(mark) and hmac.compare_digest(marked(plain, key), body)


# -- logs ---------------------------------------------------------------------------------------------------------------------


class KnownLog(msgspec.Struct, frozen=True):
    """An audit log that this user may append to and sign: its name, where it lies, and how far it had come."""

    origin: str
    since: Literal["begun", "adopted", "signed"]
    """How it became known; ``signed`` by a version of taut that did not ask."""
    path: str | None = None
    """Where it lies; a copy of it elsewhere is another log."""
    size: int = 0
    root: str = ""
    """Its records when this user last wrote to it: what does not begin with these is not this log."""


def is_kept() -> bool:
    """Whether this user has a configuration in which trust can be kept; without one nothing is recorded."""
    try:
        folder = config_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    except (AuditError, OSError):
        return False


def place_of(path: Path) -> str:
    """Where a log lies, as text."""
    return os.fsencode(os.path.realpath(path)).decode("utf-8", "replace")


def known_log(origin: str) -> KnownLog | None:
    """What is known of a log by its name; None of one that this user neither began nor adopted."""
    with suppress(AuditError):
        found = _read(LOGS, origin, KnownLog)
        return found if found is not None else _signed_before(_entry(CHECKPOINTS, origin, ".txt"))
    return None


def _signed_before(path: Path) -> KnownLog | None:
    """A log that an earlier version signed, by the checkpoint that it left."""
    with suppress(OSError, UnicodeDecodeError, ValueError):
        note = read_file(path, MAX_ENTRY_BYTES).decode()
        origin, size, root = note.split("\n")[:3]
        return KnownLog(origin, "signed", size=int(size), root=root)
    return None


def know(log: KnownLog) -> None:
    """Keep what is known of a log; another process may have come further. Raises AuditError."""
    before = known_log(log.origin)
    if before is not None and before.path == log.path and before.size > log.size:
        log = before
    _write(LOGS, log.origin, log)
    if log.path is not None and (before is None or before.path != log.path):
        _write(PLACES, log.path, log.origin)


def know_anew(log: KnownLog) -> None:
    """Keep this of a log, whatever was known before. Raises AuditError."""
    forget_log(log.origin)
    know(log)


def log_at(place: str) -> KnownLog | None:
    """The log of this user that lies, or lay, at a place."""
    with suppress(AuditError):
        origin = _read(PLACES, place, str)
        known = None if origin is None else known_log(origin)
        return known if known is not None and known.path == place else None
    return None


def forget_log(origin: str) -> None:
    """Neither append to a log nor sign it from now on."""
    _entry(LOGS, origin).unlink(missing_ok=True)
    _entry(CHECKPOINTS, origin, ".txt").unlink(missing_ok=True)


def known_logs() -> list[KnownLog]:
    """All logs that this user began or adopted, by path."""
    logs: dict[str, KnownLog] = {}
    for path in _files(LOGS):
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
            found = msgspec.json.decode(read_file(path, MAX_ENTRY_BYTES), type=KnownLog)
            logs[found.origin] = found
    for older in filter(None, map(_signed_before, _files(CHECKPOINTS))):
        logs.setdefault(older.origin, older)
    return sorted(logs.values(), key=lambda one: (one.path or "", one.origin))


# -- files --------------------------------------------------------------------------------------------------------------------


class Stamp(msgspec.Struct, frozen=True):
    """A file as taut left it: one of another size, time of change or content is another file."""

    bytes: int
    changed_ns: int
    sha256: str | None = None


class Written(msgspec.Struct, frozen=True):
    """What taut wrote at one place: a file, or some files of a folder by name."""

    files: dict[str, Stamp]


class Replaceable(msgspec.Struct, frozen=True):
    """A file that may be written, as it was when that was decided."""

    path: Path
    force: bool
    before: Stamp | None
    """None where there was none."""


def replaceable(path: Path, force: bool) -> Replaceable:
    """Refuse to replace a file that taut did not write, or that was changed since; devices and pipes are only written to."""
    checked_addition(path)
    is_special = path.exists() and not path.is_file()
    if os.path.lexists(path) and not (force or is_special or manifest_of(path.parent) is not None):
        written, now = _written(path).get(SELF), stamp(path, hashed=True)
        if written is None or now is None or (written.bytes, written.sha256) != (now.bytes, now.sha256):
            why = "is not known to be written by taut" if written is None else "was changed since taut wrote it"
            raise UsageError(f"{path}: exists and {why}; give --force to replace it, or another -o")
    return Replaceable(path, force or is_special, stamp(path))


@contextmanager
def replacing(target: Replaceable) -> Iterator[BinaryIO]:
    """The file to write; it is refused where somebody wrote to it meanwhile, and remembered as taut's."""
    with whole_file(target.path) as out:
        yield out
        appeared = target.before is None and os.path.lexists(target.path)
        if not target.force and (appeared or stamp(target.path) != target.before):
            raise UsageError(f"{target.path}: was written by somebody else meanwhile, and is not replaced; try again")
    found = stamp(target.path, hashed=True)
    if found is not None and is_kept() and manifest_of(target.path.parent) is None:
        with suppress(AuditError):
            _write(WRITTEN, _place(target.path), Written({SELF: found}))


def register_files(folder: Path, stamps: Mapping[str, Stamp | None]) -> None:
    """Remember the files that taut wrote, or is about to name, in parts of a folder (``part/name``)."""
    if is_kept():
        _write(WRITTEN, _place(folder), Written({name: one for name, one in stamps.items() if one is not None}))


def check_only_registered(folder: Path, parts: Iterable[str], just_written: Mapping[str, Stamp | None]) -> None:
    """Refuse a folder of which one of these parts is a link, or holds a file that taut did not write in one of them.

    What this process has just written counts also where no configuration can remember it.
    """
    own = {(name.rpartition("/")[2], one) for name, one in {**_written(folder), **just_written}.items()}
    for place in (folder / part for part in parts):
        if os.path.lexists(place) and (place.is_symlink() or not place.is_dir()):
            raise RunError(f"{place}: was not made by taut; give another --keep")
        for name in sorted(os.listdir(place)) if place.is_dir() else ():
            if (name, stamp(place / name)) not in own and not is_scratch(name):
                raise RunError(f"{place / name}: was not written by taut here, so it is not deleted; give another --keep")


def _written(path: Path) -> dict[str, Stamp]:
    with suppress(AuditError):
        found = _read(WRITTEN, _place(path), Written)
        return {} if found is None else found.files
    return {}


def _place(path: Path) -> str:
    """The name of a place: links on the way to it are followed, itself it is not."""
    return os.path.join(os.path.realpath(path.parent), path.name)


def stamp(path: Path, hashed: bool = False) -> Stamp | None:
    """A plain file as it is now; None of anything else."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return None
        if not hashed:
            return Stamp(found.st_size, found.st_mtime_ns)
        with path.open("rb") as stream:
            return Stamp(found.st_size, found.st_mtime_ns, file_digest(stream, "sha256").hexdigest())
    except OSError:
        return None


# -- entries of the configuration ---------------------------------------------------------------------------------------------


def _entry(kind: str, name: str, suffix: str = ".json") -> Path:
    return config_folder() / kind / f"{sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}{suffix}"


def _read(kind: str, name: str, of: type[Entry]) -> Entry | None:
    try:
        return msgspec.json.decode(read_file(_entry(kind, name), MAX_ENTRY_BYTES), type=of)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _write(kind: str, name: str, entry: object) -> None:
    path = _entry(kind, name)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(path, msgspec.json.encode(entry))
    except OSError as error:
        raise AuditError(f"{path}: cannot be written ({error.strerror}); check the folder of your configuration") from None


def _files(kind: str) -> Iterator[Path]:
    folder = config_folder() / kind
    return iter(sorted(folder.iterdir()) if folder.is_dir() else ())
