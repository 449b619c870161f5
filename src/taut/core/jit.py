"""Kernels: functions over arrays that run as machine code where that pays, and as plain Python where it does not.

A call tries, in this order: code loaded before; code that an earlier run left behind (``native.py``); for small arrays,
before a large one was compiled for and before ``expect`` announced many, plain Python (or the ``plain`` numpy twin),
because a few thousand rows take less than the compiler takes to load; and last, compilation by numba, whose result is
left for the next run. All give the same numbers. Whether somebody else has imported numba does not matter.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypedDict, TypeVar, Unpack

import numpy as np

from taut.core import memory, scratch
from taut.core.array_types import Value

if TYPE_CHECKING:
    from taut.core import native

SMALL = 10_000
"""Rows up to which plain Python is faster than loading the compiler."""
COMPILER_BYTES, COMPILING_BYTES = 400 << 20, 100 << 20
"""Address space that the compiler takes when it is loaded, and for one more kernel; with less, it aborts the process."""
_LOADING, _COMPILING = threading.Lock(), threading.Lock()
LARGE = threading.Event()
"""Set once there was, or will be, enough to do to compile for: from then on small arrays are compiled for too."""


Result = TypeVar("Result")
Twin = TypeVar("Twin", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """What the compiler is told about a kernel."""

    error_model: Literal["python", "numpy"]
    fastmath: bool | set[str]
    inline: Literal["never", "always"]
    _nrt: bool
    """False for kernels that make no arrays: references to those that they are given are not counted then."""


class Kernel(Generic[Result]):
    """One kernel; calls decide how it runs."""

    def __init__(
        self,
        function: Callable[..., Result],
        plain: Callable[..., Result] | None,
        lists: bool,
        small: int | None,
        options: Options,
    ) -> None:
        self.function, self.twin, self.lists, self.small, self.options = function, plain, lists, small, options
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self._loaded: dict[str, Callable[..., Result] | None] = {}

    def __call__(self, *args: Value) -> Result:
        """Run the kernel on arrays and numbers."""
        from taut.core import native

        # In order of cost: what is loaded or kept; the interpreter while that pays; the compiler.
        kind = native.signature(args)
        if kind is None:  # one that lies in pieces, perhaps
            args = tuple(_dense(value) for value in args)
            kind = native.signature(args)
        ready = None if kind is None else self._kept(kind)
        if ready is None and self._pays(args):
            ready = self.compiled if kind is None else self._compile(kind, args)
        if ready is not None:
            return _on_disk(ready(*args)) if scratch.is_on_disk() else ready(*args)
        return self.plain(*map(_listed, args)) if self.lists else self.plain(*args)

    def _kept(self, kind: str) -> Callable[..., Result] | None:
        """Code of one signature that is loaded, or that an earlier run left behind; None if there is none."""
        from taut.core import native

        if kind not in self._loaded:
            with _LOADING:  # one engine loads for all threads, one at a time
                if kind not in self._loaded:
                    self._loaded[kind] = native.load(self.code(kind))
        return self._loaded[kind]

    def _pays(self, args: tuple[Value, ...]) -> bool:
        """Whether to compile: for large arrays, and from then on, or from ``expect`` on, for small ones too."""
        if max(map(_rows, args), default=0) > (SMALL if self.small is None else self.small):
            LARGE.set()
        return LARGE.is_set()

    def _compile(self, kind: str, args: tuple[Value, ...]) -> Callable[..., Result]:
        """Compile for one signature, once, and leave the code for the next run."""
        with _COMPILING:
            ready = self._loaded.get(kind) or self._left(kind) or self._made(kind, args) or self.compiled
            self._loaded[kind] = ready
            return ready

    def _made(self, kind: str, args: tuple[Value, ...]) -> Callable[..., Result] | None:
        """Code that numba makes now, called as kept code is; None if it cannot be."""
        from taut.core import native

        if not hasattr(self.inner, "compile"):  # NUMBA_DISABLE_JIT leaves the plain function
            return self.inner
        from numba import typeof

        self.inner.compile(tuple(map(typeof, args)))
        return native.store(self.code(kind), self.inner)

    def _left(self, kind: str) -> Callable[..., Result] | None:
        """Code that another process has left since this one looked first."""
        from taut.core import native

        with _LOADING:
            return native.load(self.code(kind))

    def code(self, kind: str) -> native.Code:
        """What decides the kernel's object code for arguments of these types."""
        from taut.core import native

        return native.Code(self.function.__code__.co_filename, self.__module__, self.__name__, self.source, kind)

    @cached_property
    def plain(self) -> Callable[..., Result]:
        """The kernel as Python runs it: its twin, or itself with the plain forms of the kernels it calls."""
        return self.twin or self._rebound(lambda k: k.plain)

    @cached_property
    def compiled(self) -> Callable[..., Result]:
        """The kernel compiled by numba, to be called from Python."""
        return self._jit(alone=True)

    @cached_property
    def inner(self) -> Callable[..., Result]:
        """The kernel compiled by numba, to be called by other kernels or as kept code is."""
        return self._jit(alone=False)

    def _jit(self, alone: bool) -> Callable[..., Result]:
        memory.require(COMPILING_BYTES if "numba" in sys.modules else COMPILER_BYTES, "compiling")
        from numba import njit

        compiler: Callable[..., Callable[..., Callable[..., Result]]] = njit  # its types leave out ``_nrt``
        # What unpacks Python's objects, and what C would call, takes a quarter of the time of compiling.
        wrappers = {"no_cpython_wrapper": not alone, "no_cfunc_wrapper": True}
        return compiler(nogil=True, **wrappers, **self.options)(self._rebound(lambda k: k.inner))

    @cached_property
    def source(self) -> str:
        """What decides what the kernel does: its code, its constants, its options, and the values and kernels it uses."""
        code, space = self.function.__code__, self.function.__globals__
        cells = [cell.cell_contents for cell in self.function.__closure__ or ()]
        used = [f"{name}={_as_text(space[name])}" for name in code.co_names if name in space]
        parts = [
            *_instructions(code, self.function.__doc__),
            *map(_as_text, cells),
            _as_text(self.function.__defaults__),
            *used,
        ]
        parts += [f"{k}={sorted(v) if isinstance(v, set) else v!r}" for k, v in sorted(self.options.items())]
        return repr(parts)

    def _rebound(self, form: Callable[[Kernel[Any]], Callable[..., Any]]) -> Callable[..., Result]:
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
        LARGE.set()


class MakesKernel(Protocol):
    """A decorator that keeps the type of what a function returns."""

    def __call__(self, function: Callable[..., Result], /) -> Kernel[Result]:
        """The kernel of a function."""


def kernel(
    plain: Callable[..., Any] | None = None, lists: bool = False, small: int | None = None, **options: Unpack[Options]
) -> MakesKernel:
    """Make a function over arrays a kernel; ``options`` go to the compiler.

    For small inputs (of up to ``small`` rows, if given) ``plain`` is a numpy twin; ``lists`` says that the function reads
    its one-dimensional arguments element by element, so that the interpreter is better served with lists.
    """
    return lambda function: Kernel(function, plain, lists, small, options)


def numpy_twin_of_kernel(function: Twin) -> Twin:
    """Mark a function as the ``plain`` form of a kernel: it takes the arguments of the kernel, however many these are."""
    return function


def _instructions(code: types.CodeType, doc: str | None = None) -> list[str]:
    """What a code object holds but its documentation and its place in the file."""
    # The docstring is the first constant: changing it changes nothing that is computed.
    consts = code.co_consts[1:] if doc is not None and code.co_consts[:1] == (doc,) else code.co_consts
    inner = [repr(_instructions(one)) if isinstance(one, types.CodeType) else repr(one) for one in consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return [code.co_code.hex(), code.co_exceptiontable.hex(), *inner, *map(repr, names)]


def _as_text(value: object) -> str:
    """A value that a kernel uses, as text that changes when the value does."""
    if isinstance(value, Kernel):
        return value.source
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype}{value.shape}{value.tobytes().hex()}"
    return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or repr(value)


def _rows(value: Value) -> int:
    return len(value) if isinstance(value, np.ndarray) and value.ndim else 0


def _dense(value: Value) -> Value:
    """The value, an array copied where machine code could not walk it: it takes contiguous, aligned arrays only."""
    if isinstance(value, np.ndarray) and not (value.flags.c_contiguous and value.flags.aligned):
        return value.copy()
    return value


def _on_disk(result: Result) -> Result:
    """What a kernel returned, its long arrays on disk."""
    moved: Any = result
    if isinstance(result, tuple):
        moved = tuple(map(_on_disk, result))
    elif isinstance(result, np.ndarray):
        moved = scratch.kept(result)
    found: Result = moved
    return found


def _listed(value: Value) -> Value:
    return value.tolist() if isinstance(value, np.ndarray) and value.ndim == 1 else value
