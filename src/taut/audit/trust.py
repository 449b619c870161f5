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
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from taut.audit.key import config_folder, private_bytes, put
from taut.audit.record import marked, unmarked
from taut.core.errors import AuditError, RunError, UsageError
from taut.core.folder import checked_addition, manifest_of, read_file
from taut.core.whole_file import is_scratch

LOGS, CHECKPOINTS, WRITTEN = "logs", "signed", "written"
"""Folders of the configuration: known logs; the last checkpoint of logs that earlier versions signed; written files."""
MAX_ENTRY_BYTES = 1 << 26
"""Of one entry: the files of a folder of 100,000 ranks take a tenth of it."""
MARK_LABEL = b"taut audit: author of a record"
SELF = ""
"""The name of a file of its own in its entry."""
Entry = TypeVar("Entry")


# -- keys ---------------------------------------------------------------------------------------------------------------------


def author_key() -> bytes | None:
    """The secret that marks this user's records, derived from the signing key; None where there is no key and none can be made.

    A mark is an HMAC and no signature: only its author has to verify it, and no library has to be loaded to make one.
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
    """An audit log that this user may append to and sign."""

    origin: str
    since: Literal["begun", "adopted", "signed"]
    """How it became known; ``signed`` by a version of taut that did not ask."""
    path: str | None = None
    """Where it lay then."""
    checkpoint: str | None = None
    """The last checkpoint of it that this user signed."""


def is_kept() -> bool:
    """Whether this user has a configuration in which trust can be kept; without one nothing is signed."""
    try:
        folder = config_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)
    except (AuditError, OSError):
        return False


def place_of(path: Path) -> str:
    """Where a log lies, as text."""
    return os.fsencode(path.absolute()).decode("utf-8", "replace")


def known_log(origin: str) -> KnownLog | None:
    """What is known of a log; None of one that this user neither began nor adopted."""
    with suppress(AuditError):
        found = _read(LOGS, origin, KnownLog)
        return found if found is not None else _signed_before(origin)
    return None


def _signed_before(origin: str) -> KnownLog | None:
    """A log that an earlier version signed, by the checkpoint that it left."""
    with suppress(OSError, UnicodeDecodeError):
        note = read_file(_entry(CHECKPOINTS, origin, ".txt"), MAX_ENTRY_BYTES).decode()
        return KnownLog(origin, "signed", checkpoint=note)
    return None


def know(log: KnownLog) -> None:
    """Keep what is known of a log. Raises AuditError."""
    _write(LOGS, log.origin, log)


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
    for path in _files(CHECKPOINTS):
        with suppress(OSError, UnicodeDecodeError):
            note = read_file(path, MAX_ENTRY_BYTES).decode()
            origin = note.partition("\n")[0]
            logs.setdefault(origin, KnownLog(origin, "signed", checkpoint=note))
    return sorted(logs.values(), key=lambda one: (one.path or "", one.origin))


# -- files --------------------------------------------------------------------------------------------------------------------


class Stamp(msgspec.Struct, frozen=True):
    """A file as taut left it: another size or time of change is another file."""

    bytes: int
    changed_ns: int


class Written(msgspec.Struct, frozen=True):
    """What taut wrote at one place: a file, or some files of a folder by name."""

    files: dict[str, Stamp]


def check_replaceable(path: Path, force: bool) -> None:
    """Refuse to replace a file that taut did not write, or that was changed since; devices and pipes are only written to."""
    checked_addition(path)
    if force or not os.path.lexists(path) or not (path.is_symlink() or path.is_file()) or manifest_of(path.parent) is not None:
        return
    written = _written(path)
    if written.get(SELF) != stamp(path):
        why = "was changed since taut wrote it" if written else "was not written by taut"
        raise UsageError(f"{path}: exists and {why}; give --force to replace it, or another -o")


def register_file(path: Path) -> None:
    """Remember a file that taut has just written."""
    found = stamp(path)
    if found is not None and is_kept() and manifest_of(path.parent) is None:
        with suppress(AuditError):
            _write(WRITTEN, _place(path), Written({SELF: found}))


def register_files(folder: Path, stamps: Mapping[str, Stamp | None]) -> None:
    """Remember the files that taut wrote, or is about to name, in parts of a folder (``part/name``)."""
    if is_kept():
        _write(WRITTEN, _place(folder), Written({name: one for name, one in stamps.items() if one is not None}))


def check_only_registered(folder: Path, parts: Iterable[str]) -> None:
    """Refuse a folder of which one of these parts is a link, or holds a file that taut did not write in one of them."""
    own = {(name.rpartition("/")[2], one) for name, one in _written(folder).items()}
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


def stamp(path: Path) -> Stamp | None:
    """A plain file as it is now; None of anything else."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return Stamp(found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


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
