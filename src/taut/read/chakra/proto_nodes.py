"""Chakra traces as protobuf: a header, then one message per node, each behind its length.

Three layouts are in use. The current one keeps most of a node in attributes; an earlier one did so under other numbers,
and the first gave every property a field of its own and had no header. Which one a file has shows in its fields.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL, Verb
from taut.read.chakra import protobuf_bytes as wire
from taut.read.chakra.nodes import (
    DEPENDENCIES,
    MEM_LOAD,
    METADATA,
    NUMBERS,
    VERBS,
    Needs,
    Nodes,
    codes_of,
    nanoseconds,
    process_groups,
)
from taut.read.columns import Codes
from taut.read.op_rows import NAME_LENGTH

_LATER = (Verb.ALL_REDUCE, Verb.ALL_TO_ALL, Verb.ALL_GATHER, Verb.REDUCE_SCATTER, Verb.BROADCAST)
_FIRST = (Verb.NONE, *_LATER[:4])
_OWN_FIELDS = {
    6: "tensor_size", 7: "runtime", 12: "num_ops", 13: "comm_type", 16: "comm_src", 17: "comm_dst", 18: "comm_size",
    19: "comm_tag",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where a version of the schema keeps things."""

    attributes: int
    """Field of a node that holds its attributes, 0 if it has none."""
    whole: tuple[int, ...]
    zigzag: tuple[int, ...]
    real: tuple[int, ...]
    text: int
    flags: int
    """Fields of an attribute: numbers in their several forms, text, a list of booleans."""
    verbs: tuple[Verb, ...]


CURRENT = Layout(10, (7, 9, 11, 13, 19, 21, 23, 25, 27), (15, 17), (3, 5), 29, 28, VERBS)
EARLIER = Layout(11, (4, 6, 7), (), (5,), 8, 9, _LATER)
FIRST = Layout(0, (), (), (), 0, 0, _FIRST)


def nodes(data: bytes | bytearray, label: str) -> Nodes:
    """The nodes of a protobuf trace."""
    begin, finish = wire.messages(data, label)
    if not len(begin):
        raise InputRefused(label, "no message in this trace", wire.REMEDY)
    head = wire.fields_of(data, begin[:1], finish[:1], label)
    # A header has nothing but texts and attributes; the first message of the oldest files is a node already.
    titled = bool(((head.wire == wire.SPAN) & (head.number <= 2)).all())
    reader = _Reader(data, label, _layout(data, begin[titled:], finish[titled:], titled, label))
    for part in wire.slices(begin[titled:], finish[titled:]):
        reader.add(begin[titled:][part], finish[titled:][part])
    found = reader.finish()
    if titled:
        found.rank = _rank(data, head, label)
    return found


def _layout(data: bytes | bytearray, begin: Ints, finish: Ints, titled: bool, label: str) -> Layout:
    """The layout that the first nodes are written in."""
    part = next(wire.slices(begin[:2000], finish[:2000]), slice(0, 0))
    seen = wire.fields_of(data, begin[part], finish[part], label)
    spans, plain = set(seen.number[seen.wire == wire.SPAN].tolist()), set(seen.number[seen.wire == wire.VARINT].tolist())
    if not titled and (plain & set(range(12, 23)) or not spans & {8, 9, 10, 11}):
        return FIRST
    return EARLIER if 11 in spans and _typed(data, seen.spans(11), label) else CURRENT


def _typed(data: bytes | bytearray, attributes: wire.Fields, label: str) -> bool:
    """Whether these spans are attributes of the earlier layout: a name and a type."""
    try:
        inner = wire.fields_of(data, attributes.value, attributes.value + attributes.length, label)
    except InputRefused:
        return False
    named, kind = inner.take(inner.number == 1), inner.take(inner.number == 2)
    return bool((named.wire == wire.SPAN).all() and len(kind.wire) and (kind.wire == wire.VARINT).all())


def _rank(data: bytes | bytearray, head: wire.Fields, label: str) -> int:
    """The rank, where the header's attributes hold one."""
    for number, layout in ((2, CURRENT), (1, CURRENT), (1, EARLIER)):
        try:
            numbers = Attributes(data, head.spans(number), layout, label).number
        except InputRefused:  # the version, which is text
            continue
        if "rank" in numbers and 0 <= numbers["rank"][1][-1] < 2**31:
            return int(numbers["rank"][1][-1])
    return NULL


class Attributes:
    """The attributes of nodes, as far as taut uses them."""

    def __init__(self, data: bytes | bytearray, spans: wire.Fields, layout: Layout, label: str) -> None:
        inner = wire.fields_of(data, spans.value, spans.value + spans.length, label)
        titles = inner.spans(1)
        name = np.full(len(spans.owner), NULL, dtype=np.int64)
        name[titles.owner], words = wire.words(data, titles)
        self._name = name[inner.owner]
        self._names = {word: code for code, word in enumerate(words)}
        self._data, self._spans, self._inner, self._layout = data, spans, inner, layout
        value, numeric = self._values()
        self.number: dict[str, tuple[Ints, Ints]] = {}
        """Attribute → (nodes, their values)."""
        for wanted in NUMBERS:
            rows = np.flatnonzero(numeric & self._is(wanted))
            if len(rows):
                self.number[wanted] = spans.owner[inner.owner[rows]], value[rows]
        self.groups = self._groups(value, numeric)
        self.some_dims = self._some_dims(label)

    def _is(self, wanted: str) -> Mask:
        return np.equal(self._name, self._names.get(wanted.encode(), -2))

    def _values(self) -> tuple[Ints, Mask]:
        """Every field as a whole number, and which of them are one."""
        inner, layout, value = self._inner, self._layout, self._inner.value
        numeric = np.isin(inner.number, layout.whole) & (inner.wire != wire.SPAN)
        zigzag = np.isin(inner.number, layout.zigzag) & (inner.wire == wire.VARINT)
        # Zigzag: 0, -1, 1, -2 … are written as 0, 1, 2, 3 …
        value = np.where(zigzag, (value >> 1 & (2**63 - 1)) ^ -(value & 1), value)
        for kind in (wire.FIXED64, wire.FIXED32):
            real = np.flatnonzero(np.isin(inner.number, layout.real) & (inner.wire == kind))
            value[real] = _rounded(value[real], kind)
            numeric[real] = True
        return value, numeric | zigzag

    def _groups(self, value: Ints, numeric: Mask) -> list[tuple[int, str]]:
        """(node, name of its process group), which some write as a number."""
        inner, mine = self._inner, self._is("pg_name")
        rows = np.flatnonzero(mine & (numeric | (inner.number == self._layout.text) & (inner.wire == wire.SPAN)))
        index, words = wire.words(self._data, inner.take(rows))
        texts = [word.decode("utf-8", "replace")[:NAME_LENGTH] for word in words]
        named = [
            str(number) if plain else texts[i]
            for i, number, plain in zip(index.tolist(), value[rows].tolist(), numeric[rows].tolist(), strict=True)
        ]
        return list(zip(self._spans.owner[inner.owner[rows]].tolist(), named, strict=True))

    def _some_dims(self, label: str) -> list[tuple[int, int]]:
        """(node, 1 if its list of dimensions holds one that it does not span, else 0)."""
        lists = self._inner.take(self._is("involved_dim") & (self._inner.number == self._layout.flags))
        if self._layout is CURRENT:  # the list is a message with one field
            inner = wire.fields_of(self._data, lists.value, lists.value + lists.length, label)
            inner.owner, lists = lists.owner[inner.owner], inner
        plain = lists.take(lists.wire == wire.VARINT)
        owner, value = wire.numbers_of(self._data, lists.take(lists.wire == wire.SPAN), label)
        some: dict[int, int] = {}
        flags = np.append(plain.value, value).tolist()
        for node, flag in zip(self._spans.owner[np.append(plain.owner, owner)].tolist(), flags, strict=True):
            some[node] = some.get(node, 0) | int(flag == 0)
        return list(some.items())


def _rounded(bits: Ints, kind: int) -> Ints:
    """Floating-point bits as whole numbers; -1 for what is none."""
    real = bits.view(np.float64) if kind == wire.FIXED64 else bits.astype(np.int32).view(np.float32).astype(np.float64)
    good = np.isfinite(real) & (np.abs(np.where(np.isfinite(real), real, 0)) < 2**62)
    return np.where(good, np.rint(np.where(good, real, 0)), NULL).astype(np.int64)


class _Reader:
    """Grows the columns slice by slice."""

    def __init__(self, data: bytes | bytearray, label: str, layout: Layout) -> None:
        self.data, self.label, self.layout = data, label, layout
        self.names, self.groups = Codes(), Codes()
        self.parts: list[dict[str, Ints]] = []
        self.needs: list[tuple[Ints, Ints, Mask]] = []
        self.group_ranks: dict[str, list[int]] = {}
        self.length = self.needed = 0

    def add(self, begin: Ints, finish: Ints) -> None:
        found = wire.fields_of(self.data, begin, finish, self.label)
        n = len(begin)
        part = {key: np.full(n, NULL, dtype=np.int64) for key in (*NUMBERS, "group", "some")}
        part["id"], part["type"] = _column(found, 1, n, 0), _column(found, 3, n, 0)
        part["name"] = self._names(found, n)
        part["start"], part["duration"] = (
            (_column(found, number, n) if self.layout is CURRENT else np.full(n, NULL, dtype=np.int64)) for number in (6, 7)
        )
        if self.layout is FIRST:
            self._own_fields(found, part, n)
        else:
            self._from_attributes(found.spans(self.layout.attributes), part)
        self._needs(found)
        self._made_groups(found, part)
        self.parts.append(part)
        self.length += n

    def _names(self, found: wire.Fields, n: int) -> Ints:
        spans = found.spans(2)
        name = np.full(n, NULL, dtype=np.int64)
        index, words = wire.words(self.data, spans)
        name[spans.owner] = self.names.of(word[: 4 * NAME_LENGTH] for word in words)[index]
        name[name < 0] = self.names[b""] if (name < 0).any() else 0
        return name

    def _own_fields(self, found: wire.Fields, part: dict[str, Ints], n: int) -> None:
        for number, key in _OWN_FIELDS.items():
            part[key] = _column(found, number, n)
        part["type"] = np.where(part["type"] == METADATA, MEM_LOAD, part["type"])  # 1 and 2 were both loads
        dims = found.take((found.number == 14) & (found.wire == wire.VARINT))
        part["some"][dims.owner] = 0
        part["some"][dims.owner[dims.value == 0]] = 1
        shared = found.take((found.number == 15) & (found.wire == wire.VARINT))
        part["group"][shared.owner] = codes_of([str(v) for v in shared.value.tolist()], self.groups)

    def _from_attributes(self, spans: wire.Fields, part: dict[str, Ints]) -> None:
        attributes = Attributes(self.data, spans, self.layout, self.label)
        for key, (nodes_, value) in attributes.number.items():
            part[key][nodes_] = value
        for node, name in attributes.groups:
            part["group"][node] = self.groups[name] if name else NULL
        for node, flag in attributes.some_dims:
            part["some"][node] = flag

    def _needs(self, found: wire.Fields) -> None:
        """Dependencies, packed or not; earlier layouts had one kind of them."""
        numbers = (4, 5) if self.layout is CURRENT else (4,)
        for number in numbers:
            plain = found.take((found.number == number) & (found.wire == wire.VARINT))
            owner, needed = wire.numbers_of(self.data, found.spans(number), self.label)
            owner, needed = np.append(plain.owner, owner) + self.length, np.append(plain.value, needed)
            control = np.full(len(owner), number == 4 and self.layout is CURRENT)
            self.needs.append((owner, needed, control))
            self.needed += len(owner)
        if self.needed > DEPENDENCIES:
            raise TooLarge(self.label, f"more than {DEPENDENCIES:,} dependencies", "trace fewer steps")

    def _made_groups(self, found: wire.Fields, part: dict[str, Ints]) -> None:
        """Process groups out of the inputs of the node that torch records when groups are made."""
        made = [code for text, code in self.names.items() if isinstance(text, bytes) and b"process_group:init" in text]
        if not made or self.layout is not CURRENT:
            return
        inputs = found.spans(8)
        for text in wire.words(self.data, inputs.take(np.isin(part["name"][inputs.owner], made)))[1]:
            self.group_ranks.update(process_groups(text.decode("utf-8", "replace")))

    def finish(self) -> Nodes:
        if not self.parts:
            raise InputRefused(self.label, "no node in this trace", "convert the trace again")
        columns = {key: np.concatenate([part[key] for part in self.parts]) for key in self.parts[0]}
        counts: Counter[str] = Counter({"nodes": self.length})
        owner, needed, control = (np.concatenate(column) for column in zip(*self.needs, strict=True))
        verbs = np.array([*self.layout.verbs, NULL], dtype=np.int64)
        kind = columns["comm_type"]
        columns["comm_type"] = verbs[np.where((kind >= 0) & (kind < len(verbs) - 1), kind, len(verbs) - 1)]
        duration = np.where(np.isin(columns["duration"], (NULL, 0)), columns["runtime"], columns["duration"])
        return Nodes(
            id=columns["id"],
            type=columns["type"],
            name=columns["name"],
            start_ns=nanoseconds(columns["start"], counts, "start"),
            duration_ns=nanoseconds(duration, counts, "duration"),
            names=[text.decode("utf-8", "replace")[:NAME_LENGTH] for text in self.names if isinstance(text, bytes)],
            number={key: columns[key] for key in NUMBERS},
            group=columns["group"],
            groups=list(map(str, self.groups)),
            some_dims=columns["some"],
            needs=Needs.linked(columns["id"], owner, needed, control, counts),
            group_ranks=self.group_ranks,
            counts=counts,
        )


def _column(found: wire.Fields, number: int, n: int, absent: int = NULL) -> Ints:
    """A number of every message; where it stands twice, the last counts."""
    column = np.full(n, absent, dtype=np.int64)
    rows = found.take((found.number == number) & (found.wire == wire.VARINT))
    column[rows.owner] = rows.value
    return column
