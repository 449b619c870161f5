"""HLO modules that lie in a profile → what its collectives are: opcode, bytes, groups of replicas.

Events name instructions, and instructions are called as the program liked (``psum.14``): only the module tells that this
is an all-reduce, of how many bytes, and who takes part. A module that cannot be decoded tells nothing.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from taut.core.array_types import Ints
from taut.core.jit import kernel
from taut.core.tables import NULL
from taut.read.chakra.protobuf_bytes import SPAN, VARINT, Fields, Octets, digests, fields, next_field, numbers

Groups = tuple[tuple[int, ...], ...]
# A module of more instructions than this is not looked into, nor more collectives of one, nor those of more replicas.
INSTRUCTIONS, COLLECTIVES, REPLICAS, AXES = 2_000_000, 20_000, 1 << 16, 16
_COLLECTIVE = re.compile(
    rb"(?:all-reduce|all-gather|reduce-scatter|all-to-all|ragged-all-to-all|collective-permute|collective-broadcast|send|recv)"
    rb"(?:-start|-done)?"
)
_PROGRAM = re.compile(r"\((\d{1,18})\)$")
# Bytes of an element, by the number of its type.
_ELEMENT = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 15: 8, 16: 2, 18: 16}
_ELEMENT |= dict.fromkeys((19, 20, 23, 24, 25, 28, 29), 1)
# Asynchronous collectives whose result is a pair of what goes in and what comes out.
_PAIRED = ("all-gather-start", "collective-permute-start", "reduce-scatter-start")


class Fact(NamedTuple):
    """What a module says of one collective."""

    opcode: str
    size: int = NULL
    """Bytes of the larger message, -1 where they are not known."""
    groups: Groups | None = None
    """Replicas that meet; empty if all do, None where that is not known."""


NO_COLLECTIVE = Fact("")


@kernel(lists=True)
def titles(data: Octets, begin: Ints, finish: Ints) -> tuple[Ints, int]:
    """(begin and length of fields 1 and 2 of every message, bad byte or -1)."""
    found = np.zeros((len(begin), 4), np.int64)
    for row in range(len(begin)):
        at, end = begin[row], finish[row]
        while at < end:
            here = at
            tag, value, size, at = next_field(data, at, end)
            if at < 0:
                return found, here
            if tag == 10 or tag == 18:
                column = 0 if tag == 10 else 2
                found[row, column] = value
                found[row, column + 1] = size
    return found, -1


def program_number(name: str) -> int:
    """The number in the name of a module (``jit_train(7)``); -1 if it has none."""
    found = _PROGRAM.search(name[-24:])
    return int(found[1]) if found else NULL


class Modules:
    """The modules of one file."""

    def __init__(self, data: Octets) -> None:
        self._data = data
        self.facts: dict[tuple[int, str], Fact] = {}
        """Number of a program and name of an instruction → what is known of it."""
        self.programs: set[int] = set()

    def add(self, program: int, begin: int, length: int) -> None:
        """Look through one module for its collectives."""
        instructions = self._inside(self._inside(self._inside(_one(begin, length), 1), 3), 2)
        if instructions is None or not 0 < len(instructions.value) <= INSTRUCTIONS:
            return
        ends = instructions.value + instructions.length
        found, bad = titles(self._data, instructions.value, ends)
        if bad >= 0:
            return
        self.programs.add(program)
        # Instructions are many and opcodes few: each is looked at once.
        _, first, which = np.unique(digests(self._data, found[:, 2], found[:, 3]), return_index=True, return_inverse=True)
        opcodes = [self._bytes(at, min(size, 80)) for at, size in found[first, 2:].tolist()]
        wanted = np.array([_COLLECTIVE.fullmatch(opcode) is not None for opcode in opcodes], dtype=np.bool_)
        for row in np.flatnonzero(wanted[which.ravel()]).tolist()[:COLLECTIVES]:
            name = self._bytes(int(found[row, 0]), min(int(found[row, 1]), 200)).decode("utf-8", "replace")
            span = int(instructions.value[row]), int(instructions.length[row])
            self.facts[program, name] = self._fact(opcodes[which.ravel()[row]].decode(), *span)

    def get(self, program: int, name: str) -> Fact | None:
        """What is known of an instruction: one that is no collective has no opcode; None where its module is not known."""
        return self.facts.get((program, name), NO_COLLECTIVE if program in self.programs else None)

    def _fact(self, opcode: str, begin: int, length: int) -> Fact:
        held = self._inside(_one(begin, length), None)
        if held is None:
            return Fact(opcode)
        groups = self._groups(held)
        sizes = self._sizes(held.spans(3))
        size = NULL if NULL in sizes else (sizes[-1] if opcode in _PAIRED and len(sizes) > 1 else sum(sizes))
        if size >= 0 and opcode.startswith("reduce-scatter"):
            size = size * len(groups[0]) if groups else NULL
        return Fact(opcode, size if size < 1 << 55 else NULL, groups)

    def _sizes(self, shapes: Fields | None, depth: int = 3) -> list[int]:
        """Bytes of each part of a shape, -1 for one that is not known."""
        if shapes is None or len(shapes.value) == 0 or depth == 0:
            return [NULL]
        held = self._inside(_first(shapes), None)
        if held is None:
            return [NULL]
        parts = held.spans(4)
        if len(parts.value):
            found = [self._sizes(_first(parts, at), depth - 1) for at in range(min(len(parts.value), 4096))]
            return [NULL if NULL in some else sum(some) for some in found]
        kinds = held.value[(held.number == 2) & (held.wire == VARINT)].tolist()
        each = _ELEMENT.get(kinds[-1]) if kinds else None
        dims = self._numbers(held, 3)
        if each is None or dims is None or any(not 0 <= d < 1 << 40 for d in dims) or len(dims) > 64:
            return [NULL]
        return [min(each * math.prod(dims), 1 << 60)]

    def _groups(self, held: Fields) -> Groups | None:
        """Groups of replicas in whichever of three forms they are written."""
        listed, apart, meshed = held.spans(49), held.spans(87), held.spans(93)
        if len(meshed.value):
            return self._meshed(meshed)
        if len(apart.value):
            inner = self._inside(_first(apart), None)
            if inner is None:
                return None
            if len(inner.spans(2).value):
                return self._counted(inner.spans(2))
            listed = inner.spans(1)
        if len(listed.value) > REPLICAS:
            return None
        found = []
        for at in range(len(listed.value)):
            inner = self._inside(_first(listed, at), None)
            replicas = None if inner is None else self._numbers(inner, 1)
            if not replicas:
                return None
            found.append(tuple(replicas))
        return tuple(found)

    def _counted(self, span: Fields) -> Groups | None:
        """Replicas counted through a reshaped and transposed grid."""
        held = self._inside(_first(span), None)
        lists = [None if held is None else self._numbers(held, number) for number in (1, 2, 3, 4)]
        groups, each, dims, order = (one or [] for one in lists)
        if len(groups) != 1 or len(each) != 1 or not 0 < len(dims) <= AXES or min(*dims, *each) < 1:
            return None
        if groups[0] * each[0] != math.prod(dims) or math.prod(dims) > REPLICAS:
            return None
        if sorted(order or range(len(dims))) != list(range(len(dims))):
            return None
        return _split(np.arange(math.prod(dims)).reshape(dims).transpose(order or None), each[0])

    def _meshed(self, span: Fields) -> Groups | None:
        """Replicas of a mesh that differ only along some of its axes."""
        held = self._inside(_first(span), None)
        mesh = None if held is None else self._inside(_first(held.spans(1)), None)
        if held is None or mesh is None:
            return None
        axes = [self._inside(one, None) for one in _each(mesh.spans(1))]
        sizes = [(self._numbers(one, 2) or [1])[-1] if one is not None else 0 for one in axes]
        which = self._whole_axes(held)
        total = math.prod(sizes) if len(sizes) <= AXES else 0
        if not 0 < total <= REPLICAS or min(sizes, default=0) < 1 or len(set(which)) < len(which) or not which:
            return None
        if not all(0 <= axis < len(sizes) for axis in which):
            return None
        ids = self._numbers(mesh, 2) or list(range(total))
        if len(ids) != total:
            return None
        rest = [axis for axis in range(len(sizes)) if axis not in which]
        grid = np.array(ids, dtype=np.int64).reshape(sizes).transpose([*rest, *which])
        return _split(grid, math.prod(sizes[axis] for axis in which))

    def _whole_axes(self, held: Fields) -> list[int]:
        """The axes along which the members of a group differ; none where one is only a part of an axis."""
        chosen = [self._inside(one, None) for one in _each(held.spans(2))]
        whole = [one for one in chosen if one is not None and not len(one.spans(2).value)]
        return [(self._numbers(one, 1) or [0])[-1] for one in whole] if len(whole) == len(chosen) else []

    def _numbers(self, held: Fields, number: int) -> list[int] | None:
        """The numbers of a repeated field, packed or not; None where they cannot be read."""
        mine = held.take(held.number == number)
        packed = mine.take(mine.wire == SPAN)
        if packed.length.sum() > 10 * REPLICAS:
            return None
        _, found, bad = numbers(self._data, packed.value, packed.value + packed.length)
        return None if bad >= 0 else [*mine.value[mine.wire == VARINT].tolist(), *found.tolist()]

    def _inside(self, spans: Fields | None, number: int | None) -> Fields | None:
        """The fields of messages, or only those of one number that hold bytes; None where they are none."""
        if spans is None or len(spans.value) == 0:
            return None
        *columns, bad = fields(self._data, spans.value, spans.value + spans.length)
        if bad >= 0:
            return None
        found = Fields(*columns)
        return found if number is None else found.spans(number)

    def _bytes(self, begin: int, length: int) -> bytes:
        return self._data[begin : begin + length].tobytes()


def _first(spans: Fields, at: int = 0) -> Fields:
    """One of some spans; none where there are fewer."""
    return spans.take(np.arange(at, min(at + 1, len(spans.value))))


def _each(spans: Fields) -> list[Fields]:
    return [_first(spans, at) for at in range(min(len(spans.value), 64))]


def _one(begin: int, length: int) -> Fields:
    nothing = np.zeros(1, dtype=np.int64)
    return Fields(nothing, nothing, nothing, np.array([begin]), np.array([length]))


def _split(grid: Ints, each: int) -> Groups:
    return tuple(map(tuple, grid.reshape(-1, each).tolist()))
