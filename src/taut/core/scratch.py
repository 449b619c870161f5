"""Columns of a job that is larger than memory: they lie in files of a scratch folder, and their pages come and go.

Whatever is long and stays passes through ``kept``: what a kernel returns, columns of tables, arrays of the graph. Without a
scratch folder that does nothing. With one, the numbers are written to a file and mapped: ops lie in the order of time, so that
a sweep looks at a window of every column at any moment, and the system may let go of the rest. The numbers are the same. A
file has no name once it is mapped, so that nothing is left behind, even by a process that is killed.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Bytes, Column, Ints

Values = TypeVar("Values", bound=np.generic)

LEAST_BYTES = 1 << 20
"""Arrays that are smaller stay in memory."""
LINE = 64
"""Bytes of a line of the cache, on which arrays begin that lie in one file."""
M_MMAP_THRESHOLD = -3
_folder: list[Path] = []
"""Where columns lie; empty while they lie in memory."""
_files: set[int] = set()
"""Addresses of what is mapped."""


@contextmanager
def columns_on_disk(folder: str | Path | None = None) -> Iterator[None]:
    """Have long columns lie in files of a folder, by default that of temporary files or another that is no memory."""
    stay_on_disk(folder)
    try:
        yield
    finally:
        _folder.pop()


def stay_on_disk(folder: str | Path | None = None) -> None:
    """The same until this process ends."""
    _folder.append(Path(folder or _default_folder()))
    with suppress(OSError, AttributeError):  # have the C library (glibc) return to the system whatever is freed
        _library().mallopt(M_MMAP_THRESHOLD, LEAST_BYTES)


def _default_folder() -> Path:
    """The folder of temporary files; where it lies in memory and nobody asked for it, another."""
    usual = Path(tempfile.gettempdir())
    if "TMPDIR" in os.environ or not _is_in_memory(usual):
        return usual
    others = (Path("/var/tmp"), Path.cwd())
    return next((one for one in others if os.access(one, os.W_OK) and not _is_in_memory(one)), usual)


def _is_in_memory(folder: Path) -> bool:
    """Whether files of a folder take memory (tmpfs)."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    kinds = {place: kind for _, place, kind, *_ in map(str.split, mounts)}
    over = next((str(one) for one in (folder.resolve(), *folder.resolve().parents) if str(one) in kinds), "")
    return kinds.get(over) in ("tmpfs", "ramfs")


def is_on_disk() -> bool:
    """Whether long columns go to disk now."""
    return bool(_folder)


def kept(values: NDArray[Values]) -> NDArray[Values]:
    """The same numbers, on disk where long columns lie there and there is room."""
    if not _folder or values.nbytes < LEAST_BYTES or not _is_movable(values):
        return values
    dense = np.ascontiguousarray(values)
    file = _mapped([dense])
    if file is None:
        return values
    return file[: dense.nbytes].view(dense.dtype).reshape(dense.shape)


def empty(shape: tuple[int, ...], dtype: type[Values]) -> NDArray[Values]:
    """An array whose numbers are not set yet, on disk where long columns lie there."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    file = _mapped([], size) if _folder and size >= LEAST_BYTES else None
    return np.empty(shape, dtype) if file is None else file.view(dtype).reshape(shape)


def kept_together(columns: Mapping[str, Column]) -> dict[str, Column]:
    """Several columns in one file, whatever their length: of as many tables as a job has ranks."""
    some = {name: np.ascontiguousarray(one) for name, one in columns.items() if _is_movable(one) and one.size}
    if not _folder or not some:
        return dict(columns)
    file, at, out = _mapped(list(some.values())), 0, dict(columns)
    if file is None:
        return out
    for name, one in some.items():
        out[name] = file[at : at + one.nbytes].view(one.dtype).reshape(one.shape)
        at += _room(one)
    return out


def _is_movable(values: NDArray[Values]) -> bool:
    """Whether an array holds plain numbers, each of its own, that are not mapped already."""
    if values.dtype.hasobject or 0 in values.strides:
        return False
    base: object = values
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    return not (isinstance(base, ctypes.Array) and ctypes.addressof(base) in _files)


def _room(values: Column) -> int:
    """Bytes of an array in its file."""
    return -(-values.nbytes // LINE) * LINE


def _mapped(arrays: Sequence[Column], more: int = 0) -> Bytes | None:
    """The bytes of a file without a name that holds these arrays one after the other, and so many more; None without room."""
    size = sum(map(_room, arrays)) + more
    try:
        with tempfile.TemporaryFile(prefix="taut-columns-", dir=_folder[-1], buffering=0) as file:
            for one in arrays:
                data = one.reshape(-1).view(np.uint8).data
                while len(data):
                    data = data[file.write(data) or 0 :]
                file.seek(_room(one) - one.nbytes, os.SEEK_CUR)
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):  # a full disk must say so now, and not when a page is written
                os.posix_fallocate(file.fileno(), 0, size)
            address = _library().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file.fileno(), 0)
            if address == ctypes.c_void_p(-1).value:
                return None
    except OSError:  # a full disk: memory may do
        return None
    memory = (ctypes.c_char * size).from_address(address)
    _files.add(address)
    weakref.finalize(memory, _let_go, address, size)
    return np.frombuffer(memoryview(memory), dtype=np.uint8)


def _let_go(address: int, size: int) -> None:
    """Give back what nobody looks at any more, and with it the file."""
    _files.discard(address)
    _library().munmap(address, size)


@cache
def _library() -> ctypes.CDLL:
    """The C library. Python's own maps would each keep a file open, and a process may have a thousand of these."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


def zeros(count: int) -> Ints:
    """So many zeros; a page of them is in memory once something was written there."""
    if 8 * count < LEAST_BYTES:
        return np.zeros(count, dtype=np.int64)
    return np.frombuffer(mmap.mmap(-1, 8 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), dtype=np.int64)


def without_zeros(values: Ints) -> Ints:
    """The values, where all are 0 in no memory."""
    return values if values.any() else zeros(len(values))
