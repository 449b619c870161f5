"""Kernels as plain Python over arrays that refuse indices out of bounds, negative ones too.

Compiled kernels do not check indices: one that lies outside reads or writes foreign memory, mostly unseen. Here every kernel
runs as Python wrote it, and an index below zero raises as well, since Python would wrap it around.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

_CHECKED: dict[int, Any] = {}


class Checked(np.ndarray):
    """An array that refuses negative indices."""

    def __getitem__(self, key: Any) -> Any:
        """The element; never one counted from the end."""
        _refuse(key)
        return np.ndarray.__getitem__(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _refuse(key)
        np.ndarray.__setitem__(self, key, value)


def _refuse(key: Any) -> None:
    for one in key if isinstance(key, tuple) else (key,):
        if isinstance(one, (int, np.integer)) and one < 0:
            raise IndexError(f"index {one} is negative: machine code may read before the array")


class CheckedList(list[Any]):
    """A list that refuses negative indices: what a kernel that reads element by element is given."""

    def __getitem__(self, key: Any) -> Any:
        """The element; never one counted from the end."""
        _refuse(key)
        return list.__getitem__(self, key)


class _Numpy(types.ModuleType):
    """numpy whose new arrays are checked."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in ("empty", "zeros", "ones", "full", "arange", "empty_like", "zeros_like", "full_like", "ones_like"):
            return lambda *args, **more: found(*map(_bare, args), **more).view(Checked)
        return found


def _bare(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Checked) else value


def _checked(value: Any, lists: bool) -> Any:
    if lists and getattr(value, "ndim", 0) == 1:
        return CheckedList(value.tolist())
    return value.view(Checked) if isinstance(value, np.ndarray) else value


def install() -> None:
    """Have every kernel run as checked Python from now on."""
    from taut.core.jit import Kernel

    space_numpy = _Numpy("numpy")

    def rebound(kernel: Any) -> Any:
        if id(kernel) not in _CHECKED:
            function = kernel.function
            space = {**function.__globals__, "np": space_numpy}
            _CHECKED[id(kernel)] = function  # a kernel that calls itself finds something
            names = (n for n in function.__code__.co_names if isinstance(space.get(n), Kernel))
            space |= {n: rebound(space[n]) for n in list(names)}
            _CHECKED[id(kernel)] = types.FunctionType(function.__code__, space, function.__name__, function.__defaults__)
        return _CHECKED[id(kernel)]

    def call(self: Any, *args: Any) -> Any:
        with np.errstate(all="ignore"):
            out = rebound(self)(*(_checked(value, self.lists) for value in args))
        return tuple(map(_bare, out)) if isinstance(out, tuple) else _bare(out)

    Kernel.__call__ = call  # type: ignore[method-assign]
