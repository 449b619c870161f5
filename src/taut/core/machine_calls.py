"""Calls of kept machine code: arrays and numbers handed over and taken back in the way of numba's kernels, without numba."""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import importlib.util
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from taut.core.array_types import Value
from taut.core.placed_code import Links, address_in_process, loaded

if TYPE_CHECKING:
    from llvmlite.binding import ExecutionEngine

POINTER, WORD, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
CType = type[ctypes.c_void_p] | type[ctypes.c_int64] | type[ctypes.c_double]
FIXED = 5
"""Words of an array before its shape and strides: owner, parent, items, item size, data."""


class Header(Struct):
    """What is kept beside the machine code of a kernel; without ``links`` it is object code, and LLVM loads it."""

    symbol: str
    returns: list[str]
    links: Links | None


def callable_kernel(header: Header, code: bytes, argument_types: str) -> Callable[..., Any]:
    """What calls a kernel with arrays and numbers of these types, from its machine code."""
    address = _by_llvm(header.symbol, code) if header.links is None else loaded(header.links, code, _address_of)
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
    single = header.returns[0] == "."
    kinds = header.returns[1:] if single else header.returns
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
            raise RuntimeError(f"{header.symbol} failed with status {status}")
        out = _unpack(room, kinds)
        return out[0] if single else tuple(out)

    return call


def _address_of(name: str) -> int:
    return _helpers().get(name) or address_in_process(name)


def _by_llvm(symbol: str, code: bytes) -> int:
    """The address of a kernel that LLVM loads from its object code."""
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(symbol)
    if not address:
        raise RuntimeError(symbol)
    return int(address)


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
        self._owner, self._release = owner, _release()
        self.__array_interface__ = {"version": 3, "data": (data, False), "shape": shape, "typestr": _TYPESTR[kind]}

    def __del__(self) -> None:
        if self._owner:
            self._release(self._owner)


_TYPESTR = {kind: np.dtype(kind).str for kind in "lqid?bh"}


@functools.cache
def _release() -> Callable[[int], None]:
    """Gives memory back to its owner."""
    return ctypes.CFUNCTYPE(None, POINTER)(_helpers()["NRT_MemInfo_release"])


@functools.cache
def _helpers() -> dict[str, int]:
    """The C functions that compiled code calls, from numba's two extension modules; numba itself stays unimported."""
    found = importlib.util.find_spec("numba")
    if found is None or found.origin is None:
        raise ImportError("numba")
    root = Path(found.origin).parent
    helpers = _extension("numba._helperlib", root / "_helperlib").c_helpers
    runtime = _extension("numba.core.runtime._nrt_python", root / "core" / "runtime" / "_nrt_python").c_helpers
    return {f"numba_{k}": v for k, v in helpers.items()} | {f"NRT_{k}": v for k, v in runtime.items()}


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
    for name, address in _helpers().items():
        llvm.add_symbol(name, address)
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
