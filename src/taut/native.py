"""Object code of compiled kernels, kept between runs and called without the compiler.

Importing numba and setting up its typing takes about 0.7 s of CPU, most of a short analysis; what a kernel finally needs
is a few kilobytes of machine code. So the code of every compiled kernel is kept beside the module (or in the user's
cache folder) under a key of its source, its argument types, the versions involved and the processor, and the next run
loads it with llvmlite alone. Whatever goes wrong here, numba compiles as usual: this is a shortcut, not a second way.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import platform
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

POINTER, WORD, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
FIXED = 5
"""Words of an array before its shape and strides: owner, parent, items, item size, data."""


def signature(args: Sequence[Any]) -> str | None:
    """Types of the arguments, ``l1,l1,i1,x,d``; None if one of them is nothing a kernel takes."""
    out = []
    for value in args:
        if isinstance(value, np.ndarray) and value.dtype.char in "lqid?bh" and value.flags.c_contiguous:
            out.append(f"{'l' if value.dtype.char == 'q' else value.dtype.char}{value.ndim}")
        elif isinstance(value, bool):
            return None
        elif isinstance(value, (int, np.integer)):
            out.append("x")
        elif isinstance(value, (float, np.floating)):
            out.append("d")
        else:
            return None
    return ",".join(out)


def load(source: str, module: str, name: str, types: str) -> Callable[..., Any] | None:
    """The kernel from its stored object code, or None if there is none that fits."""
    try:
        stored = _read(source, module, name, types)
        return None if stored is None else _callable(*stored, types)
    except Exception:  # a shortcut that fails is not taken
        return None


def store(source: str, module: str, name: str, types: str, compiled: Any) -> None:
    """Keep the object code of a kernel that numba has just compiled."""
    try:
        result = next(iter(compiled.overloads.values())) if len(compiled.overloads) == 1 else None
        if result is None or len(result.signature.args) != len(types.split(",")):
            return
        _, kind, (code, _) = result.library.serialize_using_object_code()
        returns = _returns(result.signature.return_type)
        if kind != "object" or returns is None:
            return
        header = json.dumps({"symbol": result.fndesc.llvm_func_name, "returns": returns}).encode()
        _write(_file(source, module, name, types), len(header).to_bytes(4, "little") + header + code)
    except Exception:  # the next run compiles again
        return


def _returns(kind: Any) -> list[str] | None:
    """What a kernel returns, element by element; one array or number counts as a list of one marked by a dot."""
    elements = list(kind) if hasattr(kind, "count") else [kind]
    out = []
    for element in elements:
        text = str(element)
        if text.startswith("array(") and text.endswith(", C)"):
            dtype, ndim = text[6:].split(", ")[:2]
            out.append(f"{np.dtype(dtype).char}{ndim[0]}")
        elif text == "int64":
            out.append("x")
        elif text == "float64":
            out.append("d")
        else:
            return None
    return out if hasattr(kind, "count") else [".", *out]


def _callable(symbol: str, returns: list[str], code: bytes, types: str) -> Callable[..., Any]:
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(symbol)
    c_types: list[Any] = [POINTER, POINTER]
    for kind in types.split(","):
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

    def call(*args: Any) -> Any:
        room = (WORD * words)()
        trouble = (POINTER * 1)()
        flat: list[Any] = []
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


def _unpack(room: Any, kinds: list[str]) -> list[Any]:
    """Returned numbers, and returned arrays over memory that is given back when the last of them goes."""
    out: list[Any] = []
    i = 0
    for kind in kinds:
        if kind == "x":
            out.append(int(room[i]))
            i += 1
        elif kind == "d":
            out.append(ctypes.c_double.from_buffer(room, 8 * i).value)
            i += 1
        else:
            owner, _, items, size, data = room[i : i + FIXED]
            shape = tuple(room[i + FIXED : i + FIXED + int(kind[1])])
            memory = (ctypes.c_char * (items * size)).from_address(data)
            weakref.finalize(memory, _helpers()["release"], owner)
            out.append(np.frombuffer(memory, dtype=kind[0]).reshape(shape) if items else np.zeros(shape, dtype=kind[0]))
            i += FIXED + 2 * int(kind[1])
    return out


@functools.cache
def _helpers() -> dict[str, Any]:
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


def _extension(name: str, stem: Path) -> Any:
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
def _engine() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _helpers()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@functools.cache
def _surroundings() -> str:
    """Versions and processor that object code depends on."""
    import llvmlite
    import llvmlite.binding as llvm

    versions = [_version("numba"), llvmlite.__version__, np.__version__]
    return "|".join([*versions, platform.python_version(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()])


def _version(package: str) -> str:
    """Told by the name of its folder of metadata: reading them would take longer than the kernels do."""
    found = importlib.util.find_spec(package)
    beside = Path(str(found.origin)).parents[1] if found else Path()
    names = [path.name for path in beside.glob(f"{package}-*.dist-info")]
    if names:
        return names[0]
    from importlib.metadata import version

    return version(package)


@functools.cache
def _folder(module: str) -> Path:
    """Beside the module if that can be written, else the user's cache folder."""
    beside = Path(module).parent / "__pycache__"
    try:
        beside.mkdir(exist_ok=True)
        if os.access(beside, os.W_OK):
            return beside
    except OSError:
        pass
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "taut"
    root.mkdir(parents=True, exist_ok=True)
    return root


def _file(source: str, module: str, name: str, types: str) -> Path:
    key = hashlib.sha256("\n".join((source, types, _surroundings())).encode()).hexdigest()[:20]
    return _folder(module) / f"{name}-{key}.kernel"


def _read(source: str, module: str, name: str, types: str) -> tuple[str, list[str], bytes] | None:
    path = _file(source, module, name, types)
    if not path.exists():
        return None
    data = path.read_bytes()
    size = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + size])
    return header["symbol"], header["returns"], data[4 + size :]


def _write(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
        stream.write(data)
    os.replace(stream.name, path)
