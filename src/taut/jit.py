"""Kernels: functions over arrays that run as machine code where that pays, and as plain Python where it does not.

A call tries, in this order: code loaded before; code that an earlier run left behind (``native.py``); for small arrays,
before anything was compiled, plain Python (or the ``plain`` numpy twin), because a few thousand rows take less than the
compiler takes to load; and last, compilation by numba, whose result is left for the next run. All give the same numbers.
"""

from __future__ import annotations

import importlib
import sys
import threading
import types
from collections.abc import Callable
from functools import cached_property
from typing import Any

SMALL = 10_000
"""Rows up to which plain Python is faster than loading the compiler."""
_COMPILING = threading.Lock()


class Kernel:
    """One kernel; calls decide how it runs."""

    def __init__(
        self,
        function: Callable[..., Any],
        plain: Callable[..., Any] | None,
        lists: bool,
        small: int | None,
        options: dict[str, Any],
    ) -> None:
        self.function, self.twin, self.lists, self.small, self.options = function, plain, lists, small, options
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self._loaded: dict[str, Callable[..., Any] | None] = {}

    def __call__(self, *args: Any) -> Any:
        """Run the kernel on arrays and numbers."""
        from taut import native

        args = tuple(_dense(value) for value in args)
        kind = native.signature(args)
        if kind is None:
            return self.compiled(*args)
        if kind not in self._loaded:
            with _COMPILING:  # one engine loads for all threads, one at a time
                if kind not in self._loaded:
                    self._loaded[kind] = native.load(self.source, self._file, self.__name__, kind)
        ready = self._loaded[kind]
        if ready is not None:
            return ready(*args)
        if "numba" not in sys.modules and max(map(_rows, args)) <= (SMALL if self.small is None else self.small):
            return self.plain(*map(_listed, args)) if self.lists else self.plain(*args)
        return self._compile(kind)(*args)

    def _compile(self, kind: str) -> Callable[..., Any]:
        """Compile for one signature, once, and leave the code for the next run."""
        from taut import native

        with _COMPILING:
            if self._loaded.get(kind) is None:
                compiled = self._jit()

                def first(*args: Any) -> Any:
                    out = compiled(*args)
                    native.store(self.source, self._file, self.__name__, kind, compiled)
                    self._loaded[kind] = compiled
                    return out

                return first
        return self._loaded[kind] or self.compiled

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """The kernel as Python runs it: its twin, or itself with the plain forms of the kernels it calls."""
        return self.twin or self._rebound(lambda k: k.plain)

    @cached_property
    def compiled(self) -> Callable[..., Any]:
        """The kernel compiled by numba, with the compiled forms of the kernels it calls."""
        return self._jit()

    def _jit(self) -> Callable[..., Any]:
        from numba import njit

        made: Callable[..., Any] = njit(nogil=True, **self.options)(self._rebound(lambda k: k.compiled))
        return made

    @cached_property
    def source(self) -> str:
        """What decides what the kernel does: its code, its constants, its options, and the kernels it calls."""
        code, space = self.function.__code__, self.function.__globals__
        parts = [code.co_code.hex(), repr(code.co_consts[1:]), repr(code.co_names), repr(code.co_varnames)]
        parts += [f"{k}={sorted(v) if isinstance(v, set) else v!r}" for k, v in sorted(self.options.items())]
        for name in code.co_names:
            used = space.get(name)
            if isinstance(used, Kernel):
                parts.append(used.source)
            elif isinstance(used, (int, float)):
                parts.append(f"{name}={used!r}")
        return "\n".join(parts)

    @property
    def _file(self) -> str:
        return self.function.__code__.co_filename

    def _rebound(self, form: Callable[[Kernel], Callable[..., Any]]) -> Callable[..., Any]:
        """The function in a namespace where other kernels are what they should be called as."""
        space = self.function.__globals__
        names = self.function.__code__.co_names
        others = {n: form(space[n]) for n in names if isinstance(space.get(n), Kernel)}
        if not others:
            return self.function
        bound = types.FunctionType(self.function.__code__, {**space, **others}, self.function.__name__)
        bound.__module__, bound.__qualname__ = self.function.__module__, self.function.__qualname__
        bound.__doc__ = self.function.__doc__
        return bound


def expect(ops: float) -> None:
    """Say how much work is to come in many small calls: if it pays, kernels are compiled however few rows each is given."""
    if ops > SMALL:
        importlib.import_module("numba")


def kernel(
    plain: Callable[..., Any] | None = None, lists: bool = False, small: int | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function over arrays a kernel; ``options`` go to the compiler.

    For small inputs (of up to ``small`` rows, if given) ``plain`` is a numpy twin; ``lists`` says that the function reads
    its one-dimensional arguments element by element, so that the interpreter is better served with lists.
    """
    return lambda function: Kernel(function, plain, lists, small, options)


def _rows(value: Any) -> int:
    shape = getattr(value, "shape", None)
    return int(shape[0]) if shape else 0


def _dense(value: Any) -> Any:
    flags = getattr(value, "flags", None)
    return value if flags is None or flags.c_contiguous else value.copy()


def _listed(value: Any) -> Any:
    return value.tolist() if getattr(value, "ndim", 0) == 1 else value
