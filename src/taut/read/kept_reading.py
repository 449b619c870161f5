"""What was read of each input, kept in a folder until its analysis is done: after a kill, only what is missing is read.

A file holds one input: the SHA-256 of the rest, what was read and by which version, and what it held. It is written whole or
not at all. What does not fit (another version, an input that changed, damage, another owner) is read again, never an error.
Only data are taken out of such a file: a class that no reader returns ends the loading of it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import signal
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO

from taut import __version__
from taut.core import signals
from taut.core.errors import InputRefused, UsageError
from taut.core.whole_file import is_scratch, whole_file
from taut.read import files, remote
from taut.read.load import Loaded

SHARE = 0.5
"""Of what is free on the disk, the most that is kept."""
_NAME = re.compile(r"[0-9a-f]{64}\.read")
_HASH_BYTES = 32
DATA = ("taut.read.load", "taut.read.contents", "taut.core.tables", "taut.core.errors")
"""Modules whose classes readers return; nothing else of them is loaded."""
BUILDERS = frozenset(
    {
        ("taut.core.tables", "_unpacked"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("collections", "Counter"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy._core.numeric", "_frombuffer"),
    }
)
"""What else puts columns together."""


class KeptReading:
    """A folder with what was read; a block of it ends with the folder removed, unless the analysis was killed or lost."""

    def __init__(self, folder: Path, columns: str = "", resume: bool = False) -> None:
        self._folder, self._columns, self._resume = folder, columns, resume
        self._room_bytes, self._made_parent = 0, False
        self._keys: dict[str, bytes] = {}

    def __enter__(self) -> KeptReading:
        if not self._resume:
            self._remove()
        with suppress(OSError):  # where nothing can be kept, everything is read as ever
            self._made_parent = not self._folder.parent.exists()
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            self._folder.mkdir(mode=0o700, exist_ok=True)
            if self._is_own():
                self._room_bytes = int(SHARE * shutil.disk_usage(self._folder).free)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None or issubclass(kind, InputRefused | UsageError | KeyboardInterrupt) or signals.asked() == signal.SIGINT:
            self._remove()

    def get(self, path: str) -> Loaded | None:
        """What was read of an input as it is now, if that was kept."""
        key = self._key(path)
        if key is None:
            return None
        self._keys[path] = key
        if not (self._resume and self._room_bytes):
            return None
        try:
            with open(self._place(key), "rb") as stream:
                return _loaded(stream, key)
        except Exception:  # whatever is wrong with it, the input itself is still there
            return None

    def put(self, path: str, loaded: Loaded) -> None:
        """Keep what was read of an input, if it did not change meanwhile and there is room."""
        key = self._keys.pop(path, None)
        if key is None or not self._room_bytes or key != self._key(path):
            return
        with suppress(OSError, pickle.PicklingError), whole_file(self._place(key)) as out:
            self._room_bytes = max(self._room_bytes - _write(out, key, loaded, self._room_bytes), 0)

    def _key(self, path: str) -> bytes | None:
        """What tells an input, as it is now, from every other; None where nothing would tell that it changed."""
        identity = _identity(path)
        if identity is None:
            return None
        at = path if remote.is_address(path) else os.path.join(os.getcwd(), path)
        python = ".".join(map(str, sys.version_info[:2]))
        where = hashlib.sha256(os.fsencode(at)).hexdigest()  # not the address itself, which may prove who may read there
        return repr([__version__, python, where, at == path, *identity, self._columns]).encode("utf-8", "backslashreplace")

    def _place(self, key: bytes) -> Path:
        return self._folder / f"{hashlib.sha256(key).hexdigest()}.read"

    def _is_own(self) -> bool:
        """Whether the folder is this user's, and nobody else may write there."""
        about = os.lstat(self._folder)
        return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022

    def _remove(self) -> None:
        """Delete what this module wrote; the folder goes with it if nothing else is in it."""
        with suppress(OSError):
            if self._is_own():
                for name in os.listdir(self._folder):
                    if _NAME.fullmatch(name) or is_scratch(name):
                        (self._folder / name).unlink(missing_ok=True)
                self._folder.rmdir()
                if self._made_parent:
                    self._folder.parent.rmdir()


def _identity(path: str) -> Sequence[str] | None:
    """Size and time of change of an input and of the files that are read with it, or the tag that its store gives it."""
    if remote.is_address(path):
        tag = remote.tag_of(path)
        return None if tag is None else [tag]
    if not os.path.isfile(path):
        return None
    try:
        stats = [os.stat(one) for one in (path, *files.archive_files(path))]
    except OSError:
        return None
    return [f"{one.st_size} {one.st_mtime_ns} {one.st_ino}" for one in stats]


def _write(out: IO[bytes], key: bytes, loaded: Loaded, most_bytes: int) -> int:
    """Write what was read; returns how many bytes that took. OSError where they are more than there is room for."""
    hashed = _Hashing(out, most_bytes)
    out.write(bytes(_HASH_BYTES))
    hashed.write(len(key).to_bytes(8, "little") + key)
    pickle.Pickler(hashed, protocol=5).dump(loaded)
    out.seek(0)
    out.write(hashed.sha256.digest())
    return hashed.size_bytes


def _loaded(stream: BufferedReader, key: bytes) -> Loaded | None:
    """What a file holds, if it is whole and of this key."""
    about = os.fstat(stream.fileno())
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
        return None
    found, head = stream.read(_HASH_BYTES), len(key).to_bytes(8, "little") + key
    if hashlib.file_digest(stream, "sha256").digest() != found:
        return None
    stream.seek(_HASH_BYTES)
    if stream.read(len(head)) != head:
        return None
    loaded = _DataOnly(stream).load()
    return loaded if isinstance(loaded, Loaded) else None


class _Hashing:
    """A file that is hashed while it is written, up to so many bytes."""

    def __init__(self, out: IO[bytes], most_bytes: int) -> None:
        self._out, self._most_bytes = out, most_bytes
        self.sha256, self.size_bytes = hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.size_bytes += view.nbytes
        if self.size_bytes > self._most_bytes:
            raise OSError("no room")
        self.sha256.update(view)
        return self._out.write(view)


class _DataOnly(pickle.Unpickler):
    """Loads rows, columns and the classes that readers return, and no code."""

    def find_class(self, module: str, name: str) -> object:
        found: object = getattr(import_module(module), name) if (module, name) in BUILDERS or module in DATA else None
        if (module, name) in BUILDERS or (isinstance(found, type) and found.__module__ == module):
            return found
        raise pickle.UnpicklingError(f"{module}.{name} is no data")
