"""Plain values out of a pickle, without unpickling: only opcodes that build numbers, text, lists, tuples and dictionaries.

A pickle is a program. The opcodes that import, call or build objects are not known here, so none can run; what is left
cannot take more memory than the file has bytes, because memo entries are numbered in the order in which they are made.
"""

from __future__ import annotations

import pickletools
from typing import Any

from taut.errors import InputRefused

DEPTH = 64
"""Marks that may be open at once: a dump needs five."""
_VALUES = frozenset(
    ("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
     "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BINSTRING", "SHORT_BINSTRING")
)  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset(("PROTO", "FRAME", "STOP"))
_LONGEST = 64
"""Bytes of an integer: longer ones are no counter and no time."""


def sniff(head: bytes | bytearray) -> bool:
    """The first two bytes of every binary pickle: the protocol."""
    return head[:1] == b"\x80" and 2 <= head[1] <= 5 if len(head) > 1 else False


def plain(data: bytes | bytearray, label: str) -> Any:
    """The value that a pickle of plain values holds; refused, with its place, if it holds anything else."""
    place, machine = 0, _Machine()
    try:
        for opcode, argument, position in pickletools.genops(bytes(data)):
            place = position or 0
            machine.step(opcode.name, argument)
        return machine.result()
    except (_Refused, ValueError, TypeError, IndexError, KeyError, OverflowError, UnicodeError) as error:
        why = " ".join(str(error).split())[:80] or type(error).__name__
        raise InputRefused(label, f"a pickle that taut does not read: {why} at byte {place:,}", "dump it as JSON") from None


class _Refused(Exception):
    """Why a pickle is not read."""


class _Machine:
    """A stack, the marks on it, and the memo: a list, so that nobody chooses its size."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: list[Any] = []

    def result(self) -> Any:
        """What is left at the end."""
        if len(self._stack) != 1 or self._marks:
            raise _Refused("not exactly one value")
        return self._stack[0]

    def step(self, name: str, argument: Any) -> None:
        """Do one opcode, or refuse."""
        stack = self._stack
        if name in _VALUES:
            if isinstance(argument, int) and argument.bit_length() > 8 * _LONGEST:
                raise _Refused("an integer too long")
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in ("EMPTY_LIST", "EMPTY_DICT"):
            stack.append([] if name == "EMPTY_LIST" else {})
        elif name == "MARK":
            if len(self._marks) >= DEPTH:
                raise _Refused("nested too deeply")
            self._marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self._remember(len(self._memo) if name == "MEMOIZE" else argument)
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name in ("APPEND", "APPENDS"):
            self._target(list, self._popped(1 if name == "APPEND" else None)).extend(self._last)
        elif name in ("SETITEM", "SETITEMS"):
            target = self._target(dict, self._popped(2 if name == "SETITEM" else None))
            target.update(zip(self._last[::2], self._last[1::2], strict=True))
        elif name == "TUPLE" or name in _TUPLES:
            stack.append(tuple(self._popped(_TUPLES.get(name))))
        elif name not in _IGNORED:
            raise _Refused(f"the opcode {name}")

    def _remember(self, index: int) -> None:
        if not 0 <= index <= len(self._memo):
            raise _Refused(f"memo index {index:,} out of order")
        if index == len(self._memo):
            self._memo.append(self._stack[-1])
        else:
            self._memo[index] = self._stack[-1]

    def _popped(self, count: int | None) -> list[Any]:
        """The last values of the stack: so many, or those since the last mark."""
        begin = self._marks.pop() if count is None else len(self._stack) - count
        if begin < (self._marks[-1] if self._marks else 0):
            raise _Refused("fewer values than it takes")
        self._last = self._stack[begin:]
        del self._stack[begin:]
        return self._last

    def _target(self, kind: type, values: list[Any]) -> Any:
        """The container on top of the stack; it may hold only what came before it, so nothing contains itself."""
        target = self._stack[-1]
        if type(target) is not kind or any(value is target for value in values):
            raise _Refused("values put into no container")
        return target
