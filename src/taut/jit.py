"""Kernels that run as plain Python while the input is small, and compiled beyond.

Loading the compiler costs more than half a second of CPU, and a cold cache many seconds more; a graph of a few thousand
ops is swept in less than that by the interpreter. A kernel is an ordinary function over arrays. Called with small arrays
before anything was compiled, it runs as it stands (or as its ``plain`` twin, where numpy does the same faster); with a
large one it is compiled, cached on disk, and from then on always used so. Both ways give the same numbers.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

SMALL = 10_000
"""Rows up to which the interpreter is faster than loading the compiler."""


class Kernel:
    """One kernel; calls decide between plain and compiled."""

    def __init__(
        self, function: Callable[..., Any], plain: Callable[..., Any] | None, lists: bool, options: dict[str, Any]
    ) -> None:
        self.function, self.twin, self.lists, self.options = function, plain, lists, options
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self._plain: Callable[..., Any] | None = None
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """Run the kernel on arrays and numbers."""
        if self._compiled is None and "numba" not in sys.modules and max(map(_rows, args)) <= SMALL:
            return self.plain(*map(_listed, args)) if self.lists else self.plain(*args)
        return self.compiled(*args)

    @property
    def plain(self) -> Callable[..., Any]:
        """The kernel as Python runs it: its twin, or itself with the plain forms of the kernels it calls."""
        if self._plain is None:
            self._plain = self.twin or self._rebound(lambda k: k.plain)
        return self._plain

    @property
    def compiled(self) -> Callable[..., Any]:
        """The kernel compiled (and cached on disk) with the compiled forms of the kernels it calls."""
        if self._compiled is None:
            from numba import njit

            bound = self._rebound(lambda k: k.compiled)
            self._compiled = njit(cache=True, nogil=True, **self.options)(bound)
        return self._compiled

    def _rebound(self, form: Callable[[Kernel], Callable[..., Any]]) -> Callable[..., Any]:
        """The function in a namespace where other kernels are what they should be called as."""
        names = self.function.__code__.co_names
        space = self.function.__globals__
        others = {n: form(space[n]) for n in names if isinstance(space.get(n), Kernel)}
        if not others:
            return self.function
        bound = types.FunctionType(self.function.__code__, {**space, **others}, self.function.__name__)
        bound.__module__, bound.__qualname__ = self.function.__module__, self.function.__qualname__
        bound.__doc__ = self.function.__doc__
        return bound


def kernel(
    plain: Callable[..., Any] | None = None, lists: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function over arrays a kernel; ``options`` go to the compiler.

    For small inputs ``plain`` is a numpy twin; ``lists`` says that the function reads its one-dimensional arguments
    element by element, so that the interpreter is better served with lists.
    """
    return lambda function: Kernel(function, plain, lists, options)


def _rows(value: Any) -> int:
    shape = getattr(value, "shape", None)
    return int(shape[0]) if shape else 0


def _listed(value: Any) -> Any:
    return value.tolist() if getattr(value, "ndim", 0) == 1 else value
