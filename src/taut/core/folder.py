"""A folder that is written whole or not at all, and replaced only if every file in it is its own.

``run.json`` holds the manifest: name, size and SHA-256 of every other file. A folder is replaced only where the manifest
lists everything in it, and only listed files are ever deleted, so nothing that somebody else put there can be lost. Named
without size and hash is ``proof.txt``, which tells that the run was recorded and so comes after it.

Writing goes into a scratch folder beside the target, locked while its writer lives. The finished scratch takes the
target's place in one step (an exchange of names), so at every moment the path shows one whole folder, the old or the new.
What a killed writer leaves behind is cleaned by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from taut.core.errors import RunError
from taut.core.json_text import json_text
from taut.core.signals import Held
from taut.core.whole_file import is_scratch, scratch_name, whole_file

T = TypeVar("T")

RUN, PROOF = "run.json", "proof.txt"
FORMAT = 4
"""Version of the layout of a run folder: 2 has a manifest, 3 words instead of codes, 4 the index of each rank's accelerator."""
PATIENCE_S = 3.0
"""Another writer of the same place is waited for this long; it needs moments. Locks may be held by anybody."""
MOST_BYTES = 1 << 28
"""A ``run.json`` is smaller."""
HEAD = re.compile(rb'\s*\{\s*"format":\s*\d+,\s*"version":')
REPLACED = 16
"""How often a folder that is replaced while it is read is read again."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2
NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM)
"""What a file system answers that cannot exchange two names (NFS, FUSE)."""


class File(msgspec.Struct, frozen=True):
    """One file of a manifest."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What tells a ``run.json`` of taut's from others: its version, and the other files of the folder by name."""

    format: int
    version: str
    digest: str
    files: dict[str, File]
    unhashed: list[str] = []
    """Files that may come later, and change: ``proof.txt``."""

    def owns(self, name: str) -> bool:
        """Whether a file of this name belongs to the run."""
        return name in self.files or (name == PROOF and name in self.unhashed)


def save_folder(target: Path, write: Callable[[Path], Mapping[str, object]]) -> Path:
    """Write a folder of files: ``write`` fills it and returns what ``run.json`` holds beside the manifest."""
    place = checked_target(target)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _scratch(place.parent) as scratch:
            _complete(scratch, write(scratch))
            with _locked(place.parent), Held():
                _take_place(scratch, place, target)
    except OSError as error:
        raise _unwritable(target, error) from None
    return target


def checked_target(target: Path) -> Path:
    """Where a target really lies (links are followed); refused if it holds what is not its own."""
    try:
        place = Path(os.path.realpath(target))
        if os.path.lexists(place) and not place.is_dir():
            raise RunError(f"{target}: is no folder; give another -o")
        if place.is_dir() and place.samefile(os.curdir):
            raise RunError(f"{target}: is the current folder; name a folder to be made")
        read_steadily(place, lambda: _check_own(place, target, _has_size))
    except OSError as error:
        raise _unwritable(target, error) from None
    return place


def _unwritable(target: Path, error: OSError) -> RunError:
    why = os.strerror(error.errno) if error.errno else str(error).splitlines()[0]
    return RunError(f"{target}: cannot be written ({why}); give another -o")


def _check_own(place: Path, target: Path, matches: Callable[[Path, File | None], bool]) -> None:
    """Refuse a target that holds anything which its own manifest does not list."""
    if not os.path.lexists(place):
        return
    names = os.listdir(place)
    if not names:
        return
    manifest = manifest_of(place)
    if manifest is None:
        raise RunError(f"{target}: exists and is no run folder (no {RUN} with a manifest); give another -o")
    others = [name for name in names if name != RUN and not is_scratch(name)]
    foreign = sorted(name for name in others if not _is_of(manifest, place, name, matches))
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise RunError(f"{target}: holds files that are not as its manifest lists them ({foreign[0]}{more}); give another -o")


def _is_of(manifest: Manifest, place: Path, name: str, matches: Callable[[Path, File | None], bool]) -> bool:
    """Whether a file is the run's own: as listed, or one that is named without a hash."""
    if name not in manifest.files and manifest.owns(name):
        return not (place / name).is_symlink() and (place / name).is_file()
    return matches(place / name, manifest.files.get(name))


def manifest_of(folder: Path) -> Manifest | None:
    """The manifest of a run folder; None if it has none."""
    try:
        return msgspec.json.decode(read_file(folder / RUN, MOST_BYTES), type=Manifest)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def file_unlike_manifest(folder: Path) -> str | None:
    """The first file of a run folder that is missing, or not as long as its manifest says; None where all are."""
    manifest = manifest_of(folder)
    files = {} if manifest is None else manifest.files
    return next((name for name, listed in sorted(files.items()) if "/" in name or not _has_size(folder / name, listed)), None)


def is_run_folder(folder: str | Path) -> bool:
    """Whether taut wrote a run here, judged by how its ``run.json`` begins."""
    try:
        with _plain(Path(folder, RUN)) as stream:
            return HEAD.match(stream.read(200)) is not None
    except OSError:
        return False


def read_listed(folder: Path, name: str, listed: File | None) -> bytes:
    """The bytes of a file that are those the manifest lists."""
    if listed is None:
        raise RunError(f"{folder}: its manifest lists no {name}; analyze the traces again")
    try:
        data = read_file(folder / name, listed.bytes)
    except OSError as error:
        raise RunError(f"{folder}: {name} cannot be read ({error.strerror}); analyze the traces again") from None
    if len(data) != listed.bytes or hashlib.sha256(data).hexdigest() != listed.sha256:
        raise RunError(f"{folder}: {name} is not the file that its manifest lists; analyze the traces again")
    return data


def read_steadily(folder: Path, read: Callable[[], T]) -> T:
    """What ``read`` makes of a folder; read again where a writer has replaced the folder meanwhile."""
    for _ in range(REPLACED):
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # nothing to be replaced: let the reader say what is missing
            break
        try:
            return read()
        except RunError:
            if _shows(folder, descriptor):
                raise
        finally:
            os.close(descriptor)
    return read()


def _shows(path: Path, descriptor: int) -> bool:
    """Whether a path still shows the folder that is open; while it is, no other can have its number."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def checked_addition(path: Path) -> None:
    """Refuse to write a file into a run folder in place of one that belongs to the run, or that somebody else put there."""
    manifest = manifest_of(path.parent)
    if manifest is None or not os.path.lexists(path):
        return
    if path.name in (RUN, PROOF) or path.suffix == ".parquet":
        raise RunError(f"{path}: is part of a run; give another -o")
    if not manifest.owns(path.name):
        raise RunError(f"{path}: exists, and was not written by taut; give another -o")


def add_file(folder: Path, name: str) -> None:
    """List a file that was added to a run folder, so that it goes with the folder when that is replaced."""
    meta = msgspec.json.decode(read_file(folder / RUN, MOST_BYTES), type=dict[str, msgspec.Raw])
    files = msgspec.json.decode(meta["files"], type=dict[str, File])
    files[name] = _listed(folder / name)
    with whole_file(folder / RUN) as out:
        out.write(json_text({**meta, "files": files}).encode())


def sealed(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a run as its manifest lists them, and of ``run.json`` without the manifest.

    Files that are added later change the manifest, not what is hashed here of ``run.json``.
    """
    meta = msgspec.json.decode(read_file(folder / RUN, MOST_BYTES), type=dict[str, msgspec.Raw])
    files = msgspec.json.decode(meta.pop("files"), type=dict[str, File])
    meta.pop("unhashed", None)
    told = hashlib.sha256()
    for key, value in meta.items():
        told.update(key.encode() + b"\0" + msgspec.json.format(bytes(value), indent=-1) + b"\n")
    return {RUN: told.hexdigest(), **{name: file.sha256 for name, file in files.items()}}


def changed_files(folder: Path) -> list[str]:
    """Names of listed files that are not as the manifest lists them."""
    manifest = manifest_of(folder)
    if manifest is None:
        return [RUN]
    return sorted(name for name, listed in manifest.files.items() if not _matches(folder / name, listed))


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a plain file, never of what a link or a device stands for, nor of one that is larger than it may be."""
    with _plain(path) as stream:
        if os.fstat(stream.fileno()).st_size > most:
            raise OSError(errno.EFBIG, "larger than it may be")
        return stream.read()


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[io.FileIO]:
    """A plain file to read; links and devices are refused, so that a folder speaks only for itself."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with io.FileIO(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        yield stream


def _listed(path: Path) -> File:
    with _plain(path) as stream:
        return File(os.fstat(stream.fileno()).st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def _has_size(path: Path, listed: File | None) -> bool:
    """Whether a file is as long as its manifest says: what can be checked at once, before anything is computed."""
    try:
        found = path.lstat()
        return listed is not None and stat.S_ISREG(found.st_mode) and found.st_size == listed.bytes
    except OSError:
        return False


def _matches(path: Path, listed: File | None) -> bool:
    """Whether a file is the very one that its manifest lists."""
    try:
        return _has_size(path, listed) and _listed(path) == listed
    except OSError:
        return False


def _complete(scratch: Path, meta: Mapping[str, object]) -> None:
    """Write ``run.json`` last: a folder without it was never finished."""
    files = {name: _listed(scratch / name) for name in sorted(os.listdir(scratch))}
    (scratch / RUN).write_bytes(json_text({**meta, "files": files, "unhashed": [PROOF]}).encode())


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A folder of this writer's own, locked while it lives; gone afterwards, whatever it then holds."""
    scratch = parent / scratch_name()
    with contextlib.ExitStack() as stack:
        stack.callback(remove_own, scratch)
        with _locked(parent), Held():
            _clean(parent)
            scratch.mkdir()  # with the user's umask, as the finished folder will have it
            descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            with contextlib.suppress(OSError):  # a file system without locks: what is left behind stays there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield scratch


def _take_place(scratch: Path, place: Path, target: Path) -> None:
    """Put the finished folder where it belongs, and remove the one that was there."""
    _check_own(place, target, _matches)
    if os.path.lexists(place):
        _keep_modes(scratch, place)
        _keep_proof(scratch, place)
    if not os.path.lexists(place) or not os.listdir(place):
        os.rename(scratch, place)
        return
    _sync(scratch)
    old = scratch if _exchanged(scratch, place) else _move_aside(scratch, place)
    remove_own(old)
    if manifest_of(old) is not None:  # somebody put a file into the old folder at the last moment
        os.rename(old, place.with_name(f"{place.name}-kept-{scratch.name[-8:]}"))


def _keep_modes(scratch: Path, place: Path) -> None:
    """Who may look into the folder and its files stays as it was."""
    os.chmod(scratch, stat.S_IMODE(os.stat(place).st_mode))
    for name in os.listdir(scratch):
        with contextlib.suppress(OSError):
            os.chmod(scratch / name, stat.S_IMODE((place / name).lstat().st_mode))


def _keep_proof(scratch: Path, place: Path) -> None:
    """The proof of the same run: that it was recorded stays true when it is written once more."""
    with contextlib.suppress(OSError, msgspec.DecodeError, KeyError):
        if sealed(place) == sealed(scratch):
            (scratch / PROOF).write_bytes(read_file(place / PROOF, MOST_BYTES))


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False if this system or file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code))


def _move_aside(scratch: Path, place: Path) -> Path:
    """Replace in two steps and return where the old folder is; ``_clean`` brings it back if the second does not happen."""
    aside = place.parent / f"{scratch.name}+{place.name}"
    os.rename(place, aside)
    try:
        os.rename(scratch, place)
    except OSError:
        os.rename(aside, place)
        raise
    return aside


def _sync(folder: Path) -> None:
    """Have the new files on disk before the old ones go."""
    for name in [*os.listdir(folder), "."]:
        descriptor = os.open(folder / name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_own(folder: Path) -> None:
    """Delete a folder's own files; if nothing else is in it, ``run.json`` and the folder as well.

    Unfinished folders hold no manifest yet: there, tables that this module's callers write are deleted.
    """
    manifest = manifest_of(folder)
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
        own = [
            name
            for name in names
            if is_scratch(name) or (name.endswith(".parquet") if manifest is None else manifest.owns(name))
        ]
        for name in own:
            (folder / name).unlink(missing_ok=True)
        if os.listdir(folder) == [RUN]:
            (folder / RUN).unlink()
        folder.rmdir()


def _clean(parent: Path) -> None:
    """Remove what killed writers left beside a target; a folder that one had moved aside goes back to its place."""
    with contextlib.suppress(OSError):
        for name in filter(is_scratch, os.listdir(parent)):
            with contextlib.suppress(OSError), _abandoned(parent / name):
                _, moved, home = name.partition("+")
                if moved and not os.path.lexists(parent / home):
                    os.rename(parent / name, parent / home)
                else:
                    remove_own(parent / name)


@contextlib.contextmanager
def _abandoned(scratch: Path) -> Iterator[None]:
    """Hold the lock of a scratch folder of this user's; fails if its writer lives."""
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise OSError(errno.EPERM, "of another user")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(parent: Path) -> Iterator[None]:
    """One writer at a time between looking at a target and replacing it."""
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
