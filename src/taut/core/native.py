"""Object code of compiled kernels, kept between runs and called without the compiler.

Importing numba and setting up its typing takes about 0.7 s of CPU, most of a short analysis; what a kernel finally needs
is a few kilobytes of machine code. So the code of every compiled kernel is kept beside the module (or in the user's
cache folder) under a key of its source, its argument types, the versions involved and the processor, and the next run
loads it with llvmlite alone. Whatever goes wrong here, numba compiles as usual: this is a shortcut, not a second way.

Machine code is trusted as little as a file can be: it is loaded only from a regular file in a folder of this user (or
of root) that nobody else can write to, and only if its hash over key and content is right. What fails that is removed,
and made again by the next run that compiles. With ``TAUT_KERNEL_CACHE=off`` none is read or written.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import stat
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct

from taut.core.array_types import Value

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine

POINTER, WORD, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
CType = type[ctypes.c_void_p] | type[ctypes.c_int64] | type[ctypes.c_double]
FIXED = 5
"""Words of an array before its shape and strides: owner, parent, items, item size, data."""


SWITCH = "TAUT_KERNEL_CACHE"
LAYOUT = 2
"""Raised whenever the layout of kept files or the way of calling them changes."""
HASHED = 32
"""Bytes of the hash at the beginning of a kept file."""
LARGEST = 1 << 24
"""Bytes of a kept file beyond which it is not read; the largest kernel has some 100 kB."""
SUFFIX, PART = ".kernel", ".kernel-part"
ABANDONED_S = 3600
"""Age at which a half-written file is taken for that of a killed process."""
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
            if value.dtype.char not in "lqid?bh" or not (
                value.dtype.isnative and value.flags.c_contiguous and value.flags.aligned
            ):
                return None
            out.append(f"{'l' if value.dtype.char == 'q' else value.dtype.char}{value.ndim}")
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
                return _callable(*_read(place, code), code.types)
        except Exception:  # a shortcut that fails is not taken
            continue
    return None


def store(code: Code, compiled: Callable[..., object]) -> Callable[..., Any] | None:
    """Keep the object code of a kernel that numba has just compiled; what it is called by, or None if it cannot be kept."""
    try:
        content = _content(code, compiled)
        ready = _callable(*_parts(content[HASHED:]), code.types) if content else None
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
    header = json.dumps({"symbol": result.fndesc.llvm_func_name, "returns": returns}).encode()
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


def _callable(symbol: str, returns: list[str], code: bytes, argument_types: str) -> Callable[..., Any]:
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(symbol)
    # Numba's calling convention: where to put the result, where to put an exception, then the arguments; an array is passed
    # as owner, parent, number and size of items, data, shape and strides.
    c_types: list[CType] = [POINTER, POINTER]
    for kind in argument_types.split(","):
        if kind == "x":
            c_types.append(WORD)
        elif kind == "d":
            c_types.append(REAL)
        else:
            c_types += [POINTER, POINTER, WORD, WORD, POINTER, *[WORD] * (2 * int(kind[1]))]
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *c_types)(address)
    single = returns[0] == "."
    kinds = returns[1:] if single else returns
    words = sum(1 if kind in "xd" else FIXED + 2 * int(kind[1]) for kind in kinds)

    def call(*args: Value) -> Value | tuple[Value, ...]:
        room = (WORD * words)()
        trouble = (POINTER * 1)()
        flat: list[Value | None] = []
        for value in args:
            if isinstance(value, np.ndarray):
                flat += [None, None, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides]
            else:
                flat.append(value)
        status = function(ctypes.addressof(room), ctypes.addressof(trouble), *flat)
        if status != 0:
            raise RuntimeError(f"{symbol} failed with status {status}")
        out = _unpack(room, kinds)
        return out[0] if single else tuple(out)

    return call


def _unpack(room: ctypes.Array[ctypes.c_int64], kinds: list[str]) -> list[Value]:
    """Returned numbers, and returned arrays over memory that is given back when the last of them goes."""
    out: list[Value] = []
    i = 0
    for kind in kinds:
        if kind == "x":
            out.append(int(room[i]))
            i += 1
        elif kind == "d":
            out.append(ctypes.c_double.from_buffer(room, 8 * i).value)
            i += 1
        else:
            owner, _, _, _, data = room[i : i + FIXED]
            shape = tuple(room[i + FIXED : i + FIXED + int(kind[1])])
            made = np.asarray(_Made(owner, data, shape, kind[0]))
            out.append(made if owner else made.copy())  # without an owner it is (part of) an argument
            i += FIXED + 2 * int(kind[1])
    return out


class _Made:
    """Memory that a kernel has filled, as numpy takes it; given back to its owner, if any, with the last array over it."""

    def __init__(self, owner: int, data: int, shape: tuple[int, ...], kind: str) -> None:
        self._owner, self._release = owner, _helpers()["release"]
        self.__array_interface__ = {"version": 3, "data": (data, False), "shape": shape, "typestr": _TYPESTR[kind]}

    def __del__(self) -> None:
        if self._owner:
            self._release(self._owner)


_TYPESTR = {kind: np.dtype(kind).str for kind in "lqid?bh"}


@functools.cache
def _helpers() -> dict[str, Callable[[int], None]]:
    """The C functions that compiled code calls, from numba's two extension modules; numba itself stays unimported."""
    import llvmlite.binding as llvm

    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        raise ImportError("numba")
    root = Path(found.origin).parent
    helpers = _extension("numba._helperlib", root / "_helperlib").c_helpers
    runtime = _extension("numba.core.runtime._nrt_python", root / "core" / "runtime" / "_nrt_python").c_helpers
    for name, address in helpers.items():
        llvm.add_symbol(f"numba_{name}", address)
    for name, address in runtime.items():
        llvm.add_symbol(f"NRT_{name}", address)
    return {"release": ctypes.CFUNCTYPE(None, POINTER)(runtime["MemInfo_release"])}


def _extension(name: str, stem: Path) -> types.ModuleType:
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = stem.with_name(stem.name + suffix)
        if path.exists():
            loader = importlib.machinery.ExtensionFileLoader(name, str(path))
            spec = importlib.util.spec_from_file_location(name, path, loader=loader)
            if spec is not None:
                module = importlib.util.module_from_spec(spec)
                loader.exec_module(module)
                return module
    raise ImportError(name)


@functools.cache
def _engine() -> ExecutionEngine:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _helpers()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@functools.cache
def _surroundings() -> tuple[str, ...]:
    """Versions, settings and processor that object code depends on."""
    import llvmlite
    import llvmlite.binding as llvm

    versions = (_version("numba"), llvmlite.__version__, np.__version__, platform.python_version())
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_"))
    processor = (llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return (*versions, *settings, *processor)


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


def _read(place: int, code: Code) -> tuple[str, list[str], bytes]:
    """Symbol, returned types and object code out of the kept file, which is removed if it is not what was written."""
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


def _parts(rest: bytes) -> tuple[str, list[str], bytes]:
    """Symbol, returned types and object code out of what follows the hash."""
    size = int.from_bytes(rest[:4], "little")
    header = json.loads(rest[4 : 4 + size])
    return header["symbol"], header["returns"], rest[4 + size :]


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
