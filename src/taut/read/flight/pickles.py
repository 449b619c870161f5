"""Plain values out of a pickle, without unpickling: only opcodes that build numbers, text, lists, tuples and dictionaries.

A pickle is a program. The opcodes that import, call or build objects are not known here, so none can run. What is left can
still refer to one value many times, and so write a value of any size in a few bytes: every value is therefore counted as if
each reference were a copy, and what is deeper or larger than a dump of its length can be is refused while it is built.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from taut.core.errors import InputRefused

# Containers inside one another, and marks that may be open at once: a dump needs five.
DEPTH = 64
# Values that a byte of the file may stand for, and how many any file may hold. A dump that refers to its stack frames holds
# about one for each byte.
PER_BYTE, FREE = 16, 4096
# A text counts as one value for each so many bytes.
_TEXT_BYTES = 64
# Bytes of an integer: longer ones are no counter and no time.
_LONGEST = 64
# Of an integer that is a key: longer ones can be chosen so that all have one hash.
_KEY_BITS = 64
_STOP, _RECALL = ord("."), ord("h")
_CONTAINERS = frozenset((list, dict, tuple))
if TYPE_CHECKING:  # a type that refers to itself, which Python 3.11 cannot evaluate
    Plain: TypeAlias = bool | int | float | str | bytes | list["Plain"] | tuple["Plain", ...] | dict["Plain", "Plain"] | None
    """What a pickle of plain values holds."""
else:
    Plain = Any
_T = TypeVar("_T")
# How deep a container is, and how many values are in it if every reference is a copy.
_Extent = tuple[int, int]
_EMPTY: _Extent = (1, 0)


def sniff(head: bytes | bytearray) -> bool:
    """The first two bytes of every binary pickle: the protocol."""
    return head[:1] == b"\x80" and 2 <= head[1] <= 5 if len(head) > 1 else False


def plain(data: bytes | bytearray, label: str) -> Plain:
    """The value that a pickle of plain values holds; refused, with its place, if it holds anything else."""
    machine = _Machine(bytes(data))
    try:
        return machine.run()
    except (_Refused, ValueError, TypeError, IndexError) as error:
        why = " ".join(str(error).split())[:80] or type(error).__name__
        place = f"{why} at byte {machine.place:,}"
        raise InputRefused(label, f"a pickle that taut does not read: {place}", "dump it as JSON") from None


class _Refused(Exception):
    """Why a pickle is not read."""


class _Machine:
    """A stack, the marks on it, and the memo: a list, so that nobody chooses its size.

    A container that was put into another one takes no more values: so nothing contains itself, and what was counted stays.
    """

    def __init__(self, data: bytes) -> None:
        self.place = self._at = 0
        self._data = data
        self._most = PER_BYTE * len(data) + FREE
        self._stack: list[Plain] = []
        self._marks: list[int] = []
        self._memo: list[Plain] = []
        self._extents: dict[int, _Extent] = {}
        """Of every container, by its identity, which may be that of one that is gone: containers are entered when made."""
        self._closed: set[int] = set()

    def run(self) -> Plain:
        """The one value that the pickle leaves."""
        data, size, steps, push, memo = self._data, len(self._data), self._table(), self._stack.append, self._memo
        while self._at < size:
            self.place = at = self._at
            code = data[at]
            if code == _RECALL:  # nearly all of a dump, so it is done here
                push(memo[data[at + 1]])
                self._at = at + 2
                continue
            self._at = at + 1
            if code == _STOP:
                return self._result()
            if code not in steps:
                raise _Refused(f"the opcode {_name_of(code)}")
            steps[code]()
        raise _Refused("exhausted before its end")

    def _table(self) -> dict[int, Callable[[], object]]:
        """Opcode → what it does, of those that are known here."""
        values: dict[bytes, Callable[[], Plain]] = {
            b"N": lambda: None, b"\x88": lambda: True, b"\x89": lambda: False, b")": tuple,
            b"K": partial(self._number, 1), b"M": partial(self._number, 2), b"J": partial(self._number, 4, signed=True),
            b"G": lambda: struct.unpack(">d", self._take(8))[0],
            b"\x8a": partial(self._long, 1), b"\x8b": partial(self._long, 4),
            b"X": partial(self._text, 4), b"\x8c": partial(self._text, 1), b"\x8d": partial(self._text, 8),
            b"U": partial(self._text, 1, "latin-1"), b"T": partial(self._text, 4, "latin-1"),
            b"C": partial(self._bytes, 1), b"B": partial(self._bytes, 4), b"\x8e": partial(self._bytes, 8),
        }  # fmt: skip
        steps: dict[bytes, Callable[[], object]] = {
            b"\x80": partial(self._take, 1), b"\x95": partial(self._take, 8),  # the protocol, and the length of a frame
            b"(": self._mark, b"]": lambda: self._make([], []), b"}": lambda: self._make({}, []),
            b"q": lambda: self._remember(self._number(1)), b"r": lambda: self._remember(self._number(4)),
            b"\x94": lambda: self._remember(len(self._memo)), b"j": lambda: self._stack.append(self._memo[self._number(4)]),
            b"a": lambda: self._append(self._popped(1)), b"e": lambda: self._append(self._since_mark()),
            b"s": lambda: self._set(self._popped(2)), b"u": lambda: self._set(self._since_mark()),
            b"t": lambda: self._tuple(self._since_mark()), b"\x85": lambda: self._tuple(self._popped(1)),
            b"\x86": lambda: self._tuple(self._popped(2)), b"\x87": lambda: self._tuple(self._popped(3)),
        }  # fmt: skip
        pushes: dict[bytes, Callable[[], object]] = {code: partial(self._push, value) for code, value in values.items()}
        return {code[0]: step for code, step in {**pushes, **steps}.items()}

    def _result(self) -> Plain:
        if len(self._stack) != 1 or self._marks:
            raise _Refused("not exactly one value")
        return self._stack[0]

    def _take(self, size: int) -> bytes:
        """The next bytes."""
        piece = self._data[self._at : self._at + size]
        if len(piece) < size:
            raise _Refused("breaks off")
        self._at += size
        return piece

    def _number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _bytes(self, width: int) -> bytes:
        """Bytes behind their number."""
        return self._take(self._number(width))

    def _text(self, width: int, encoding: str = "utf-8") -> str:
        return self._bytes(width).decode(encoding, "surrogatepass")

    def _long(self, width: int) -> int:
        digits = self._bytes(width)
        if len(digits) > _LONGEST:
            raise _Refused("an integer too long")
        return int.from_bytes(digits, "little", signed=True)

    def _push(self, value: Callable[[], Plain]) -> None:
        self._stack.append(value())

    def _mark(self) -> None:
        if len(self._marks) >= DEPTH:
            raise _Refused("nested too deeply")
        self._marks.append(len(self._stack))

    def _remember(self, index: int) -> None:
        if index > len(self._memo):
            raise _Refused(f"memo index {index:,} out of order")
        if index == len(self._memo):
            self._memo.append(self._stack[-1])
        else:
            self._memo[index] = self._stack[-1]

    def _since_mark(self) -> list[Plain]:
        """The values since the last mark, taken off the stack."""
        return self._popped(len(self._stack) - self._marks.pop())

    def _popped(self, count: int) -> list[Plain]:
        """So many last values, taken off the stack."""
        begin = len(self._stack) - count
        if begin < (self._marks[-1] if self._marks else 0):
            raise _Refused("fewer values than it takes")
        last = self._stack[begin:]
        del self._stack[begin:]
        return last

    def _append(self, values: list[Plain]) -> None:
        self._target(list, values).extend(values)

    def _set(self, values: list[Plain]) -> None:
        keys = values[::2]
        if not {*map(type, keys)} <= {str}:
            _check_keys(keys)
        self._target(dict, values).update(zip(keys, values[1::2], strict=True))

    def _tuple(self, values: list[Plain]) -> None:
        self._make(tuple(values), values)

    def _make(self, container: Plain, values: list[Plain]) -> None:
        """Push a new container."""
        self._closed.discard(id(container))
        self._extents[id(container)] = self._grown(_EMPTY, values)
        self._stack.append(container)

    def _target(self, kind: type[_T], values: list[Plain]) -> _T:
        """The container on top of the stack, which these values are put into."""
        target = self._stack[-1]
        if isinstance(target, kind) and id(target) not in self._closed:
            self._extents[id(target)] = self._grown(self._extents[id(target)], values)
            if id(target) not in self._closed:  # which it is now if it was put into itself
                return target
        raise _Refused("values put into no container")

    def _grown(self, extent: _Extent, values: list[Plain]) -> _Extent:
        """The extent of a container with more values in it, none of which takes any more itself."""
        depth, size = extent
        size += len(values)
        extents, close = self._extents, self._closed.add
        for value in values:
            if type(value) is str or type(value) is bytes:
                size += len(value) // _TEXT_BYTES
            elif type(value) in _CONTAINERS:
                key = id(value)
                close(key)
                below, more = extents.get(key, _EMPTY)  # the empty tuple is one for all, and not entered
                size += more
                if below >= depth:
                    depth = below + 1
        if depth > DEPTH:
            raise _Refused("nested too deeply")
        if size > self._most:
            raise _Refused(f"references that stand for more than {self._most:,} values")
        return depth, size


def _check_keys(keys: list[Plain]) -> None:
    """Refuse what is no name and no number: the hash of a tuple takes as long as what it refers to is large."""
    for key in keys:
        short = type(key) is int and key.bit_length() <= _KEY_BITS
        if not short and key is not None and type(key) not in (str, bool):
            raise _Refused(f"a key of type {type(key).__name__}")


def _name_of(code: int) -> str:
    # Imported here because only a refusal needs it.
    from pickletools import opcodes

    return next((one.name for one in opcodes if one.code == chr(code)), f"{code:#04x}")
