"""An XSpace as columns: planes (devices, the host), their lines (streams, threads), and the events of the lines that matter.

Times are ns on the clock of the file: a line's own timestamp and the offset of the event, as ``jax.profiler.ProfileData``
gives them. Names and texts are decoded once each, and only those that an event uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused
from taut.core.ids import numbered
from taut.core.tables import NULL
from taut.read.chakra.protobuf_bytes import VARINT, Fields, Octets, digests, fields
from taut.read.columns import Codes
from taut.read.limits import check_count
from taut.read.xplane.hlo_programs import Modules, program_number
from taut.read.xplane.plane_bytes import ABSENT, COUNT, NUMBER, REFERENCE, TIMESTAMP, events, line_heads, statistics

# Numbers and texts of events that are of use; all others are passed over.
NUMBERS = ("correlation_id", "step_num", "device_ordinal", "program_id")
TEXTS = ("hlo_op", "memcpy_details", "kernel_details", "step_name")
# The same of planes.
ABOUT = ("device_type_string", "device_vendor", "profile_start_time", "profile_stop_time")
METADATA_PLANE = "/host:metadata"
# The most of each in one file: more than a profile has, and what memory is taken for before it is looked at.
PLANES, LINES, METADATA, EVENTS = 10_000, 200_000, 5_000_000, 20_000_000
# Statistics are numbered from 1 on; one beyond this number is not looked for, nor one with a longer name than any wanted.
STATISTICS, LONGEST = 1 << 20, 40
TEXT_BYTES = 4096
# A quarter of 64 bits: timestamp, offset and duration together fit.
LIMIT = 1 << 61
REMEDY = "copy the file again, or leave it out"
FEWER = "profile fewer steps, or without the Python tracer"


@dataclass
class Line:
    """The events of one line, in the order of the file."""

    name: str
    start: Ints
    end: Ints
    name_of: Ints
    """Index into the names of the plane."""
    numbers: dict[str, Ints]
    """Statistics by their names, -1 where an event has none."""
    texts: dict[str, Ints]
    """The same as indices into the texts of the plane."""

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints | Mask) -> Line:
        """The chosen events."""
        numbers = {key: values[rows] for key, values in self.numbers.items()}
        texts = {key: values[rows] for key, values in self.texts.items()}
        return Line(self.name, self.start[rows], self.end[rows], self.name_of[rows], numbers, texts)


@dataclass
class Plane:
    """A device or a host; its lines share dictionaries of names and texts."""

    name: str
    lines: list[Line] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    """What events are called."""
    programs: list[str] = field(default_factory=list)
    """The longer form of each name: on some devices the text of an HLO instruction."""
    texts: list[str] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)
    """What the plane says of itself."""


@dataclass
class Space:
    """One profile."""

    label: str
    planes: list[Plane] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What the profiler says went wrong."""
    notes: list[str] = field(default_factory=list)
    modules: Modules = field(default_factory=lambda: Modules(np.zeros(0, dtype=np.int8)))
    """The HLO modules that were recorded with it."""
    counts: Counter[str] = field(default_factory=Counter)


Wanted = Callable[[str, list[str]], list[bool]]


def decode(data: bytes | bytearray, label: str, wanted: Wanted) -> Space:
    """The planes of a file; ``wanted`` says of a plane's lines which are to be decoded, by their names."""
    return _Decoder(data, label).space(wanted)


class _Decoder:
    """The bytes of one file, and what its messages hold."""

    def __init__(self, data: bytes | bytearray, label: str) -> None:
        self.bytes, self.label = data, label
        self.data: Octets = np.frombuffer(data, dtype=np.int8)
        self.counts: Counter[str] = Counter()
        self.modules = Modules(self.data)

    def space(self, wanted: Wanted) -> Space:
        top = self.fields(np.array([0]), np.array([len(self.data)]))
        planes = top.spans(1)
        check_count(len(planes.number), PLANES, "planes", self.label, FEWER)
        space = Space(self.label, hosts=self._texts(top.spans(4)), errors=self._texts(top.spans(2)), counts=self.counts)
        for begin, length in zip(planes.value.tolist(), planes.length.tolist(), strict=True):
            space.planes.append(self._plane(begin, begin + length, wanted))
        space.modules = self.modules
        return space

    def _plane(self, begin: int, end: int, wanted: Wanted) -> Plane:
        held = self.fields(np.array([begin]), np.array([end]))
        plane = Plane("".join(self._texts(held.spans(2))[-1:]))
        lines = held.spans(3)
        check_count(len(lines.number), LINES, "lines in a plane", self.label, FEWER)
        stat_names = _Metadata(self, held.spans(5))
        plane.about = self._about(begin, end, stat_names)
        inner = lines.value, lines.value + lines.length
        heads, bad = line_heads(self.data, *inner)
        self._check(bad)
        names = [self.text(*head[1:3]) or self.text(*head[3:5]) for head in heads.tolist()]
        chosen, counts = np.array(wanted(plane.name, names), dtype=np.bool_), heads[:, COUNT]
        self.counts["events"] += int(counts.sum())
        self.counts["dropped: lines that repeat the time of others"] += int(counts[~chosen].sum())
        check_count(int(counts.sum()), EVENTS, "events", self.label, FEWER)
        event_names = _Metadata(self, held.spans(4))
        if plane.name == METADATA_PLANE:
            event_names.look_into(self.modules)
        asked, codes, texts = stat_names.columns((*NUMBERS, *TEXTS)), Codes(), _Texts(self, stat_names)
        for row in np.flatnonzero(chosen & (counts > 0)).tolist():
            span = inner[0][row : row + 1], inner[1][row : row + 1]
            origin, count = int(heads[row, TIMESTAMP]), int(counts[row])
            plane.lines.append(self._line(names[row], span, origin, count, asked, codes, texts))
        plane.names, plane.programs = event_names.named(list(codes))
        plane.texts = texts.words
        return plane

    def _line(
        self, name: str, span: tuple[Ints, Ints], origin: int, count: int, asked: Ints, codes: Codes, texts: _Texts
    ) -> Line:
        metadata, offset, duration, stats, ends, bad = events(self.data, *span, count)
        self._check(bad)
        many = duration < 0
        far = ~many & ~((np.abs(offset) < LIMIT) & (duration < LIMIT)) if abs(origin) < LIMIT else ~many
        self.counts["dropped: counted without times"] += int(many.sum())
        self.counts["dropped: time out of range"] += int(far.sum())
        if (many | far).any():
            good = ~(many | far)
            metadata, offset, duration, stats, ends = (a[good] for a in (metadata, offset, duration, stats, ends))
        # Half a nanosecond and more is the next one; both ends alike, so that what followed one another still does.
        start, end = origin + (offset + 500) // 1000, origin + (offset + duration + 500) // 1000
        which, count = numbered(metadata)
        name_of = codes.of(_one_of_each(which, count, metadata).tolist())[which]
        values, kinds = self._statistics(stats, ends, 4, asked)
        numbers = {key: np.where(kinds[k] == NUMBER, values[k], NULL) for k, key in enumerate(NUMBERS)}
        rest = {key: texts.of(values[len(NUMBERS) + k], kinds[len(NUMBERS) + k]) for k, key in enumerate(TEXTS)}
        return Line(name, start, end, name_of, numbers, rest)

    def _statistics(self, begin: Ints, end: Ints, number: int, asked: Ints) -> tuple[Ints, Ints]:
        """Values and what they are, one row a statistic and one column a message."""
        columns = len(NUMBERS) + len(TEXTS)
        found, what = np.zeros((columns, len(begin)), np.int64), np.full((columns, len(begin)), ABSENT, np.int64)
        rows = np.flatnonzero(end > begin) if (asked >= 0).any() else np.zeros(0, dtype=np.int64)
        if len(rows):
            values, kinds, bad = statistics(self.data, begin[rows], end[rows], number, asked, columns)
            self._check(bad)
            found[:, rows], what[:, rows] = values.T, kinds.T
        return found, what

    def _about(self, begin: int, end: int, stat_names: _Metadata) -> dict[str, str]:
        """What a plane says of itself, as text."""
        keys = ABOUT
        values, kinds, bad = statistics(self.data, np.array([begin]), np.array([end]), 6, stat_names.columns(keys), len(keys))
        self._check(bad)
        texts = _Texts(self, stat_names)
        codes, words = texts.of(values[0], kinds[0]).tolist(), texts.words
        about = {key: words[code] for key, code in zip(keys, codes, strict=True) if code >= 0}
        numbers = zip(keys, values[0].tolist(), (kinds[0] == NUMBER).tolist(), strict=True)
        return about | {key: str(value) for key, value, known in numbers if known}

    def fields(self, begin: Ints, end: Ints) -> Fields:
        *columns, bad = fields(self.data, begin, end)
        self._check(bad)
        return Fields(*columns)

    def _check(self, bad: int) -> None:
        if bad >= 0:
            raise InputRefused(self.label, f"no field at byte {bad:,}: broken off or damaged, or no XSpace", REMEDY)

    def _texts(self, spans: Fields) -> list[str]:
        both = zip(spans.value[:100].tolist(), spans.length[:100].tolist(), strict=True)
        return [self.text(begin, length) for begin, length in both]

    def text(self, begin: int, length: int) -> str:
        return bytes(self.bytes[begin : begin + min(length, TEXT_BYTES)]).decode("utf-8", "replace")


def _one_of_each(which: Ints, count: int, values: Ints) -> Ints:
    """The value behind every dense number."""
    found = np.empty(count, dtype=np.int64)
    found[which] = values
    return found


class _Metadata:
    """The names of events or of statistics, by their numbers."""

    def __init__(self, decoder: _Decoder, entries: Fields) -> None:
        check_count(len(entries.number), METADATA, "names in a plane", decoder.label, FEWER)
        self._decoder = decoder
        pairs = decoder.fields(entries.value, entries.value + entries.length)
        keys = pairs.take((pairs.number == 1) & (pairs.wire == VARINT))
        key = np.zeros(len(entries.number), dtype=np.int64)
        key[keys.owner] = keys.value
        values = pairs.spans(2)
        held = decoder.fields(values.value, values.value + values.length)
        self._name, self._shown = (_span_of(held, number, values.owner, len(key)) for number in (2, 4))
        self._stats, self._stat_owner = held.spans(5), values.owner
        # Of several entries for one number the last counts, as in any map of protobuf.
        last = len(key) - 1 - np.unique(key[::-1], return_index=True)[1]
        self._keys, self._rows = key[last], last

    def _find(self, keys: Ints) -> Ints:
        """The entry of each key; -1 for none."""
        if not len(self._keys):
            return np.full(len(keys), NULL, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._rows[at], NULL)

    def named(self, keys: Sequence[int]) -> tuple[list[str], list[str]]:
        """What to call the events of these numbers, and their names in full."""
        rows = self._find(np.array(keys, dtype=np.int64)).tolist()
        names = [self._decoder.text(*self._name[row]) if row >= 0 else "" for row in rows]
        shown = [self._decoder.text(*self._shown[row]) if row >= 0 else "" for row in rows]
        return [short or name or f"event {key}" for short, name, key in zip(shown, names, keys, strict=True)], names

    def look_into(self, modules: Modules) -> None:
        """Hand over the HLO modules, which are statistics of entries that are named after them."""
        held = self._decoder.fields(self._stats.value, self._stats.value + self._stats.length)
        written = held.spans(6)
        for row, begin, length in zip(written.owner.tolist(), written.value.tolist(), written.length.tolist(), strict=True):
            name = self._decoder.text(*self._name[self._stat_owner[self._stats.owner[row]]])
            modules.add(program_number(name), begin, length)

    def columns(self, wanted: Sequence[str]) -> Ints:
        """For every number of a statistic its place among those that are wanted; -1 for the others."""
        found: dict[int, int] = {}
        for key, row in zip(self._keys.tolist(), self._rows.tolist(), strict=True):
            if 0 <= key < STATISTICS and self._name[row, 1] <= LONGEST:
                name = self._decoder.text(*self._name[row])
                if name in wanted:
                    found[key] = wanted.index(name)
        column = np.full(max(found, default=0) + 1, NULL, dtype=np.int64)
        column[list(found)] = list(found.values())
        return column


def _span_of(held: Fields, number: int, owner: Ints, count: int) -> Ints:
    """(begin, length) of one field of every message; (0, 0) where it has none."""
    found, spans = np.zeros((count, 2), dtype=np.int64), held.spans(number)
    found[owner[spans.owner], 0], found[owner[spans.owner], 1] = spans.value, spans.length
    return found


class _Texts:
    """Texts of statistics as codes: those written out, and those that refer to the names of statistics."""

    def __init__(self, decoder: _Decoder, references: _Metadata) -> None:
        self._decoder, self._references = decoder, references
        self._codes = Codes()

    @property
    def words(self) -> list[str]:
        """The text of every code."""
        return list(map(str, self._codes))

    def of(self, values: Ints, kinds: Ints) -> Ints:
        """The code of each value; -1 for one that is no text."""
        found = np.full(len(values), NULL, dtype=np.int64)
        referring, written = np.flatnonzero(kinds == REFERENCE), np.flatnonzero(kinds >= 0)
        if len(referring):
            which, count = numbered(values[referring])
            used = _one_of_each(which, count, values[referring]).tolist()
            found[referring] = self._codes.of(self._references.named(used)[1])[which]
        if len(written):
            begin, length = values[written], np.minimum(kinds[written], TEXT_BYTES)
            digest = digests(self._decoder.data, begin, length)
            _, first, inverse = np.unique(digest, return_index=True, return_inverse=True)
            spans = zip(begin[first].tolist(), length[first].tolist(), strict=True)
            found[written] = self._codes.of([self._decoder.text(*span) for span in spans])[inverse.ravel()]
        return found
