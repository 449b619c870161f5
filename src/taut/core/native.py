"""Object code of compiled kernels, kept between runs and called without the compiler.

Importing numba and setting up its typing takes about 0.7 s of CPU, most of a short analysis; what a kernel finally needs
is a few kilobytes of machine code. So the code of every compiled kernel is kept beside the module (or in the user's
cache folder) under a key of its source, its argument types, the versions involved and the processor, and the next run
loads it by itself (``placed_code.py``), or with llvmlite where it is of another kind. Whatever goes wrong here, numba
compiles as usual: this is a shortcut, not a second way.

Machine code is trusted as little as a file can be: it is loaded only from a regular file in a folder of this user (or
of root) that nobody else can write to, and only if its hash over key and content is right. What fails that is removed,
and made again by the next run that compiles. With ``TAUT_KERNEL_CACHE=off`` none is read or written.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.util
import json
import os
import platform
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from msgspec import Struct

from taut.core.array_types import Value
from taut.core.machine_calls import Header, callable_kernel
from taut.core.placed_code import placed

SWITCH = "TAUT_KERNEL_CACHE"
LAYOUT = 3
"""Raised whenever the layout of kept files or the way of calling them changes."""
HASHED = 32
"""Bytes of the hash at the beginning of a kept file."""
LARGEST = 1 << 24
"""Bytes of a kept file beyond which it is not read; the largest kernel has some 100 kB."""
SUFFIX, PART = ".kernel", ".kernel-part"
ABANDONED_S = 3600
"""Age at which a half-written file is taken for that of a killed process."""
PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "flags")
"""What Linux tells of an x86-64 processor that LLVM chooses instructions by."""
LONGEST_PROCESSOR = 1 << 14
"""Characters in which Linux tells of one processor; it takes longer the more there are."""
NOT_OURS = (errno.ELOOP, errno.ENXIO, errno.EACCES)
"""Errors on opening a kept file that tell of a link, a socket or a file this user may not read."""


class Code(Struct, frozen=True, dict=True):
    """What decides the object code of one kernel: where it is defined, what it does, and the types of its arguments."""

    file: str
    module: str
    name: str
    source: str
    types: str

    @functools.cached_property
    def key(self) -> str:
        """Hash of all that the object code depends on."""
        parts = [LAYOUT, self.module, self.name, self.source, self.types, *_surroundings()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def kept_as(self) -> str:
        """Name of the kept file."""
        return f"{self.name}-{self.key}{SUFFIX}"


def signature(args: Sequence[Value]) -> str | None:
    """Types of the arguments, ``l1,l1,i1,x,d``; None if one of them is nothing a kernel takes."""
    out = []
    for value in args:
        if isinstance(value, np.ndarray):
            kind, flags = value.dtype, value.flags
            if kind.char not in "lqid?bh" or not (kind.isnative and flags.c_contiguous and flags.aligned):
                return None
            out.append(f"{'l' if kind.char == 'q' else kind.char}{value.ndim}")
        elif type(value) is int or type(value) is np.int64:
            if not -(1 << 63) <= value < 1 << 63:
                return None
            out.append("x")
        elif isinstance(value, float):  # np.float64 is one
            out.append("d")
        else:
            return None
    return ",".join(out)


@runtime_checkable
class ArrayType(Protocol):
    """What numba says of an array."""

    layout: str
    aligned: bool
    dtype: object
    ndim: int


def load(code: Code) -> Callable[..., Any] | None:
    """The kernel from its kept object code, or None if there is none that is whole and ours."""
    for folder in () if _off() else _folders(code.file):
        try:
            with _opened(folder) as place:
                return callable_kernel(*_read(place, code), code.types)
        except Exception:  # a shortcut that fails is not taken
            continue
    return None


def store(code: Code, compiled: Callable[..., object]) -> Callable[..., Any] | None:
    """Keep the object code of a kernel that numba has just compiled; what it is called by, or None if it cannot be kept."""
    try:
        content = _content(code, compiled)
        ready = callable_kernel(*_parts(content[HASHED:]), code.types) if content else None
    except Exception:  # the next run compiles again
        return None
    if ready is not None and not _off():
        _keep(code, content)
    return ready


def _keep(code: Code, content: bytes) -> None:
    for folder in _folders(code.file):
        try:
            with _opened(folder, make=True) as place:
                return _write(place, code.kept_as, content)
        except OSError:  # not a folder of ours, no permission, no space: the next one may do
            continue


def _content(code: Code, compiled: Callable[..., object]) -> bytes:
    """The file of a kernel: hash over key and rest, length of header, header, object code; empty if it cannot be kept."""
    made = getattr(compiled, "overloads", {}).values()
    result = next((one for one in made if ",".join(map(str, map(_kind, one.signature.args))) == code.types), None)
    if result is None:
        return b""
    _, form, (machine, _) = result.library.serialize_using_object_code()
    returns = _returns(result.signature.return_type)
    if form != "object" or returns is None or b"__svml" in machine:  # Intel's library is there only where numba loads it
        return b""
    symbol = result.fndesc.llvm_func_name
    links, machine = placed(machine, symbol) or (None, machine)
    header = msgspec.json.encode(Header(symbol, returns, links))
    rest: bytes = len(header).to_bytes(4, "little") + header + machine
    return _hash(code, rest) + rest


def _hash(code: Code, rest: bytes) -> bytes:
    return hashlib.sha256(code.key.encode() + rest).digest()


def _kind(kind: object) -> str | None:
    """A type of numba in the words of ``signature``; None if it has none."""
    if isinstance(kind, ArrayType) and kind.layout == "C" and kind.aligned:
        return f"{np.dtype(str(kind.dtype)).char}{kind.ndim}"
    return {"int64": "x", "float64": "d"}.get(str(kind))


def _returns(kind: object) -> list[str] | None:
    """What a kernel returns, element by element; one array or number counts as a list of one marked by a dot."""
    several = isinstance(kind, Iterable)
    out = [_kind(element) for element in (kind if isinstance(kind, Iterable) else [kind])]
    if None in out:
        return None
    return [one for one in ([] if several else ["."]) + out if one]


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """Versions, settings and processor that object code depends on."""
    versions = (_version("numba"), _version("llvmlite"), np.__version__, platform.python_version())
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_"))
    return (*versions, *settings, sys.platform, *(_processor() or _processor_by_llvm()))


def _processor() -> list[str]:
    """The kind and the abilities of the processor, as Linux tells those of the first; nothing where it does not."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            first = file.read(LONGEST_PROCESSOR).partition("\n\n")[0]
    except OSError:
        return []
    told = [line for line in first.splitlines() if line.startswith(PROCESSOR)]
    return told if any(line.startswith("flags") for line in told) else []


def _processor_by_llvm() -> list[str]:
    import llvmlite.binding as llvm

    return [llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]


def _version(package: str) -> str:
    """Known by the name of its folder of metadata: reading them would take longer than the kernels do."""
    found = importlib.util.find_spec(package)
    beside = Path(str(found.origin)).parents[1] if found else Path()
    names = sorted(path.name for path in beside.glob(f"{package}-*.dist-info"))
    if names:
        return " ".join(names)
    from importlib.metadata import version

    return version(package)


def _off() -> bool:
    return os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false")


def _folders(file: str) -> Iterator[Path]:
    """Where code may be kept: beside the module, then the user's cache folder; neither unless its path is absolute."""
    beside = Path(file).parent / "__pycache__"
    if beside.is_absolute():
        yield beside
    root, home = os.environ.get("XDG_CACHE_HOME", ""), os.environ.get("HOME", "")
    if os.path.isabs(root):
        yield Path(root, "taut")
    elif os.path.isabs(home):
        yield Path(home, ".cache", "taut")


@contextlib.contextmanager
def _opened(folder: Path, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder; OSError if it is a link, or if somebody else could put files there."""
    beside = folder.name == "__pycache__"
    if make:
        folder.mkdir(mode=0o755 if beside else 0o700, parents=not beside, exist_ok=True)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if make and not beside and os.fstat(place).st_uid == os.geteuid():
            os.fchmod(place, 0o700)  # it holds nothing but kept code
        if not _ours(os.fstat(place)):
            raise PermissionError(folder)
        yield place
    finally:
        os.close(place)


def _ours(found: os.stat_result) -> bool:
    """Whether only this user or root can have written it: what root installed is trusted as its Python source is."""
    return found.st_uid in (os.geteuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(place: int, code: Code) -> tuple[Header, bytes]:
    """Header and machine code out of the kept file, which is removed if it is not what was written."""
    try:
        data = _data(place, code.kept_as)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        data = b""
    rest = data[HASHED:]
    if data[:HASHED] != _hash(code, rest):
        os.unlink(code.kept_as, dir_fd=place)
        raise ValueError(code.kept_as)
    return _parts(rest)


def _parts(rest: bytes) -> tuple[Header, bytes]:
    """Header and machine code out of what follows the hash."""
    size = int.from_bytes(rest[:4], "little")
    return msgspec.json.decode(rest[4 : 4 + size], type=Header), rest[4 + size :]


def _data(place: int, name: str) -> bytes:
    """The bytes of a file; none if it is no regular file, too large, or could be written by somebody else."""
    # without O_NONBLOCK a pipe of that name would be waited for
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or not _ours(found) or found.st_size > LARGEST:
            return b""
        with open(opened, "rb", closefd=False) as stream:
            return stream.read(LARGEST)
    finally:
        os.close(opened)


def _write(place: int, name: str, content: bytes) -> None:
    """Write a file whole or not at all, for this user only."""
    _sweep(place)
    part = f"{name[:40]}{os.urandom(8).hex()}{PART}"
    opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place)
    try:
        with open(opened, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(opened)
        os.replace(part, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:  # an interrupt too leaves nothing behind
        os.unlink(part, dir_fd=place)
        raise


def _sweep(place: int) -> None:
    """Remove what killed processes left half written."""
    for name in os.listdir(place):
        if name.endswith(PART):
            with contextlib.suppress(OSError):  # another process was quicker
                if time.time() - os.stat(name, dir_fd=place, follow_symlinks=False).st_mtime > ABANDONED_S:
                    os.unlink(name, dir_fd=place)
