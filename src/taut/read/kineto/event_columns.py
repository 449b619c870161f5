"""Kineto events → columns: one row per event that a reader of ops can use, everything else counted."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import lru_cache, reduce
from itertools import compress
from operator import attrgetter
from typing import cast

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Mask
from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.columns import Codes, Flags
from taut.read.copy_words import copy_class, is_memory
from taut.read.json_values import elements, integer, without_nan
from taut.read.kineto.comm_table import CommTable
from taut.read.kineto.event_kinds import (
    ANNOTATION,
    COPY,
    CPU_OP,
    DEVICE,
    HOST,
    LANE,
    MATRIX,
    RUNTIME,
    SHADOW,
    category,
    is_checkpoint,
    is_comm,
    is_copied,
    is_marked,
    is_operator,
    is_waiting,
    task_kind,
)
from taut.read.kineto.json_events import (
    SEPARATOR,
    Batch,
    Buffer,
    CommArgs,
    CopyArgs,
    DeviceArgs,
    DimsArgs,
    Event,
    Header,
    Piece,
    Place,
    RuntimeArgs,
    args_of,
    slices,
    whole,
)
from taut.read.kineto.matrix_work import MatrixOps, is_matrix_op
from taut.read.kineto.paired_events import joined
from taut.read.limits import near

# More than these are no devices of one host.
DEVICES = 4096
# Half of 64 bits: a time and its base may each reach it.
LIMIT_NS = 4.5e18
# The text of a kernel's grid is shorter.
SHAPE_BYTES = 64
NO_INTERVAL = "dropped: not an interval"


class Events(Struct):
    """The usable events of one file, as columns of equal length."""

    header: Header
    kind: Ints
    name: Ints
    start: Ints
    end: Ints
    place: Ints
    """Code of the thread id, for device events of (device, stream)."""
    correlation: Ints
    size: Ints
    comm_row: Ints
    """Row in ``comm`` of what the event records about a collective, -1 if nothing."""
    names: list[str]
    threads: list[Hashable]
    streams: list[tuple[Place, Place]]
    comm: CommTable
    matrix: MatrixOps
    counts: Counter[str]
    base: int = 0
    """What was added to the times of the file, ns."""

    def comm_args(self, row: int) -> CommArgs:
        """What an event records about the collective it belongs to."""
        at = int(self.comm_row[row])
        return self.comm.at(at) if at >= 0 else CommArgs()

    def without_far_times(self) -> Events:
        """Those that do not lie years away from the others; the rest is counted."""
        kept = near(self.start, self.end)
        if kept.all():
            return self
        self.counts["dropped: time out of range"] += int((~kept).sum())
        columns = ("kind", "name", "start", "end", "place", "correlation", "size", "comm_row")
        return replace(self, **{name: getattr(self, name)[kept] for name in columns})

    def rows(self, *kinds: int) -> Ints:
        """The rows of some kinds."""
        return np.flatnonzero(self._of(*kinds))

    def _of(self, *kinds: int) -> Mask:
        """One boolean per row: whether it is of one of these kinds (numpy's ``isin`` takes ten times as long for so few)."""
        return reduce(np.logical_or, (self.kind == kind for kind in kinds))

    @property
    def has_device(self) -> bool:
        """Whether anything ran on an accelerator."""
        return bool(self._of(DEVICE, COPY).any())

    def main_device(self) -> int:
        """The device that most events of devices ran on; -1 where there is none, or it is no number."""
        used = np.bincount(self.place[self.rows(DEVICE, COPY)], minlength=1)
        by_device = Counter[Place]()
        for (device, _), count in zip(self.streams, used.tolist(), strict=False):
            by_device[device] += count
        most = max(by_device, key=lambda device: by_device[device], default=None)
        return most if type(most) is int and 0 <= most < DEVICES else -1

    def named(self, rows: Ints, test: Callable[[str], bool]) -> Mask:
        """One boolean per row: whether its name passes the test (asked once per distinct name)."""
        name = self.name[rows]
        passed = np.zeros(len(self.names), dtype=np.bool_)
        used = np.flatnonzero(np.bincount(name))
        passed[used] = [test(self.names[code]) for code in used.tolist()]
        return passed[name]

    def chosen(self, kind: int, test: Callable[[str], bool]) -> Ints:
        """The rows of one kind whose name passes the test."""
        rows = self.rows(kind)
        return rows[self.named(rows, test)]


def decode(data: Piece, label: str) -> Events:
    """The usable events of a Kineto trace; refuses with one line what cannot be decoded."""
    # A trace with device events needs few of its host events; knowing that before saves most of the work.
    guess = _looks_like_device(data)
    events = _decode(data, label, guess)
    if guess and not events.has_device:
        apart = events.counts[NO_INTERVAL] > len(events.kind)
        events = _decode(data, label, device=apart, apart=apart)
    return events


def shows_device(samples: Iterable[Piece]) -> bool:
    """Whether bytes from a file that is too large to hold show device events."""
    return any(_DEVICE_EVENT.search(sample) for sample in samples)


def decode_flow(chunks: Iterable[Piece], label: str, device: bool) -> Events:
    """The same of a file that is too large to hold; what is wrong in it cannot be tried again in another way."""
    buffer = Buffer(chunks)
    try:
        return _columns(slices(buffer), device, shared=True)
    except (RecursionError, OverflowError) as error:
        raise TooLarge(label, str(error) if isinstance(error, OverflowError) else "nested too deeply to be a trace") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        size = buffer.passed + len(buffer.bytes) - buffer.at
        raise InputRefused(label, _malformed(error, size), "write the trace again, or leave this file out") from None


def _looks_like_device(data: Piece) -> bool:
    """Whether samples of the file show device events, which come late; to search all of it would cost a tenth of decoding."""
    stride = max(len(data) // 32, 1 << 14)
    samples = (bytes(data[at : at + (1 << 14)]) for at in reversed(range(0, len(data), stride)))
    return any(word in sample for sample in samples for word in _DEVICE_WORDS)


_DEVICE_EVENT = re.compile(rb'"cat"\s*:\s*"(?:[Kk]ernel|gpu_mem|Memcpy|Memset|mtia_ccp)')
_DEVICE_WORDS = (b'"kernel"', b'"gpu_mem', b'"Kernel"', b'"Memcpy"', b'"Memset"', b'"mtia_ccp')


def _decode(data: Piece, label: str, device: bool, apart: bool = False) -> Events:
    """``apart``: events begin and end apart."""
    try:
        batches = slices(Buffer([data]))
        return _columns(joined(batches) if apart else batches, device)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError):
        data = bytes(data)
    try:
        return _columns(whole(data), device)
    except RecursionError:
        raise TooLarge(label, "nested too deeply to be a trace") from None
    except UnicodeDecodeError:
        return _decode(data.decode("utf-8", "replace").encode(), label, device)
    except msgspec.DecodeError as error:
        repaired = without_nan(data)
        if repaired is not None:
            return _decode(repaired, label, device)
        raise InputRefused(label, _malformed(error, len(data)), "write the trace again, or leave this file out") from None


def _malformed(error: Exception, size: int) -> str:
    broken = "truncated" in str(error)
    return f"the JSON breaks off at byte {size:,}" if broken else f"not valid trace JSON: {error}"


_CAT, _NAME, _TS, _DUR, _TID = map(attrgetter, ("cat", "name", "ts", "dur", "tid"))
_STREAM = attrgetter("device", "stream")
# Of the columns of a part: kind, name, start, end, place, correlation, size, comm_row.
_DTYPES = (np.int8, np.int32, np.int64, np.int64, np.int32, np.int64, np.int64, np.int32)


class _Columns:
    """Grows the columns slice by slice; operators of the host are let go once the file turns out to hold device events."""

    def __init__(self, device: bool, shared: bool) -> None:
        self.device = device
        self.names, self.threads, self.streams = _Names(), Codes(), Codes()
        self.parts: list[tuple[Ints, ...]] = []
        self.comm = CommTable(shared)
        self.counts: Counter[str] = Counter()
        self.matrix = MatrixOps()
        self._is_comm, self._is_save = Flags(self.names, is_comm), Flags(self.names, is_checkpoint)
        self._is_matrix, self._is_memory = Flags(self.names, is_matrix_op), Flags(self.names, is_memory)
        self._is_operator, self._is_marked = Flags(self.names, is_operator), Flags(self.names, is_marked)
        self._is_copied, self._is_waiting = Flags(self.names, is_copied), Flags(self.names, is_waiting)

    def add(self, events: list[Event]) -> None:
        cats = Codes()
        cat = cats.of(map(_CAT, events))
        kinds = np.array([category(str(word)) for word in cats], dtype=np.int64)
        kind = kinds[cat] if len(cat) else cat
        if None in cats:
            rows = np.flatnonzero(cat == cats[None])
            kind[rows] = [task_kind(events[row]) for row in rows.tolist()]
        usable = kind >= 0
        for key, n in zip(cats, np.bincount(cat[~usable], minlength=len(cats)).tolist(), strict=True):
            if n:
                self.counts[f"dropped: {key or 'no category'}"] += n
        self._keep(_picked(events, usable), kind[usable])

    def _keep(self, events: list[Event], kind: Ints) -> None:
        name = self.names.of(map(_NAME, events))
        kind = self._by_name(kind, name)
        complete = np.array([event.ph == "X" for event in events], dtype=np.bool_)
        self.counts[NO_INTERVAL] += int((~complete).sum())
        waits = complete & (kind < 0)
        self.counts["dropped: waits of a stream"] += int(waits.sum())
        complete &= ~waits
        if self.device:
            kind = np.where((kind == CPU_OP) & self._is_matrix(name), MATRIX, kind)
            complete &= ~self._unused(kind, name, complete)
        self._add_complete(_picked(events, complete), kind[complete], name[complete])

    def _add_complete(self, events: list[Event], kind: Ints, name: Ints) -> None:
        """Append events with a beginning and an end; operators of known FLOPs are no ops of a trace with device events."""
        matrix = kind == MATRIX
        start, end, good = self._times(events)
        if not good.all():
            events, kind, name = _picked(events, good), kind[good], name[good]
        if matrix.any():
            matrix = matrix[good]
            picked, rest = _picked(events, matrix), ~matrix
            self.matrix.add(picked, start[matrix], end[matrix], self.threads.of(map(_TID, picked)))
            events, kind, name, start, end = _picked(events, rest), *(one[rest] for one in (kind, name, start, end))
        self._append(events, kind, name, start, end)
        if not self.device and ((kind == DEVICE) | (kind == COPY)).any():
            self.device = True
            self.parts = [self._used(part) for part in self.parts]

    def _by_name(self, kind: Ints, name: Ints) -> Ints:
        """The kinds, with those that the category left open found by the name; -1 where one stream waits for another."""
        kind = np.where((kind == DEVICE) & self._is_memory(name), COPY, kind)
        kind = np.where((kind == CPU_OP) & self._is_marked(name), ANNOTATION, kind)
        if (kind == HOST).any():
            kind = np.where(kind != HOST, kind, np.where(self._is_operator(name), CPU_OP, ANNOTATION))
        if (kind == LANE).any():
            by_name = np.where(self._is_copied(name), COPY, np.where(self._is_waiting(name), -1, DEVICE))
            kind = np.where(kind != LANE, kind, by_name)
        return kind

    def _unused(self, kind: Ints, name: Ints, among: Mask | bool = True) -> Mask:
        """Operators of the host that a trace with device events has no use for, and shadows of collectives; counted."""
        unused: Mask = among & (kind == CPU_OP) & ~self._is_comm(name) & ~self._is_save(name)
        self.counts["dropped: cpu_op"] += int(unused.sum() + (among & (kind == MATRIX)).sum())
        shadows: Mask = among & (kind == SHADOW) & self._is_comm(name)
        self.counts["dropped: gpu_user_annotation"] += int(shadows.sum())
        return unused | shadows

    def _used(self, part: tuple[Ints, ...]) -> tuple[Ints, ...]:
        keep = ~self._unused(part[0], part[1])
        return tuple(column[keep] for column in part)

    def _times(self, events: list[Event]) -> tuple[Ints, Ints, Mask]:
        """Start and end in ns of the events whose times can be used, and which those are."""
        ts, dur = (np.array(list(map(field, events)), dtype=np.float64) for field in (_TS, _DUR))
        with np.errstate(invalid="ignore", over="ignore"):
            # What is no number compares as false.
            good: Mask = (dur >= 0) & (np.abs(ts) * 1e3 + dur * 1e3 < LIMIT_NS)
        if not good.all():
            self._count_bad_times(ts, dur, good)
            ts, dur = ts[good], dur[good]
        whole_us = np.floor(ts)
        # ts·1000 of an epoch time exceeds 53 bits: scale the whole and the broken microseconds apart.
        start = whole_us.astype(np.int64) * 1000 + np.rint((ts - whole_us) * 1000).astype(np.int64)
        return start, start + np.rint(dur * 1000).astype(np.int64), good

    def _count_bad_times(self, ts: Floats, dur: Floats, good: Mask) -> None:
        missing = ~(np.isfinite(ts) & np.isfinite(dur))
        negative = ~missing & (dur < 0)
        self.counts["dropped: no time or duration"] += int(missing.sum())
        self.counts["dropped: negative duration"] += int(negative.sum())
        self.counts["dropped: time out of range"] += int((~(missing | negative | good)).sum())

    def _append(self, events: list[Event], kind: Ints, name: Ints, start: Ints, end: Ints) -> None:
        place, correlation, size, comm_row = (np.full(len(events), -1, dtype=np.int64) for _ in range(4))
        self._link_device(events, (kind == DEVICE) | (kind == COPY), place, correlation, size)
        if (kind == COPY).any():
            self._name_copies(events, kind == COPY, name, size)
        self._link_host(events, kind, place, correlation, size)
        comm = self._is_comm(name)
        comm_row[comm] = np.arange(len(self.comm), len(self.comm) + int(comm.sum()))
        for args in args_of(_picked(events, comm), CommArgs):
            self.comm.add(args)
        columns = (kind, name, start, end, place, correlation, size, comm_row)
        self.parts.append(tuple(column.astype(dtype) for column, dtype in zip(columns, _DTYPES, strict=True)))

    def _link_device(self, events: list[Event], work: Mask, place: Ints, correlation: Ints, size: Ints) -> None:
        busy = _picked(events, work)
        args = args_of(busy, DeviceArgs)
        correlation[work] = _ints([a.correlation for a in args])
        both = SEPARATOR.join
        size[work] = _ints([_threads(both((a.grid, a.block))) if a.bytes < 0 else a.bytes for a in args])
        place[work] = self._streams_of(busy, args)

    def _streams_of(self, busy: list[Event], args: list[DeviceArgs]) -> Ints:
        """Codes of device and stream: of the arguments, else of the process and thread that stand for them."""
        pairs = Codes()
        code = pairs.of(map(_STREAM, args))
        if not any(None in pair for pair in pairs):
            return np.append(self.streams.of(pairs), NULL)[code]
        return self.streams.of(
            (e.pid if a.device is None else a.device, e.tid if a.stream is None else a.stream)
            for e, a in zip(busy, args, strict=True)
        )

    def _name_copies(self, events: list[Event], copies: Mask, name: Ints, size: Ints) -> None:
        """Give copies the name of their class, in place, and their bytes where another argument holds them."""
        rows = np.flatnonzero(copies)
        _, first, inverse = np.unique(name[rows], return_index=True, return_inverse=True)
        known = [copy_class(events[row].name or "") for row in rows[first].tolist()]
        name[rows] = self.names.of(known)[inverse]
        # Most copies tell direction and bytes as CUDA does; only the arguments of the others are looked at again.
        rows = rows[np.array([word == "copy" for word in known], dtype=np.bool_)[inverse] | (size[rows] < 0)]
        args = args_of([events[row] for row in rows.tolist()], CopyArgs)
        for row, a in zip(rows.tolist(), args, strict=True):
            name[row] = self.names[copy_class(events[row].name or "", a.kind, a.direction)]
        size[rows] = np.where(size[rows] >= 0, size[rows], _ints([a.size for a in args]))

    def _link_host(self, events: list[Event], kind: Ints, place: Ints, correlation: Ints, size: Ints) -> None:
        hosted, calls = (kind != DEVICE) & (kind != COPY), kind == RUNTIME
        place[hosted] = self.threads.of(map(_TID, _picked(events, hosted)))
        args = args_of(_picked(events, calls), RuntimeArgs)
        correlation[calls] = _ints([a.correlation for a in args])
        if not self.device:
            ops = kind == CPU_OP
            shapes = args_of(_picked(events, ops), DimsArgs)
            size[ops] = _ints([elements(a.dims[0]) if a.dims else -1 for a in shapes])

    def finish(self, header: Header) -> Events:
        columns = [np.concatenate([part[k] for part in self.parts]) for k in range(len(_DTYPES))]
        self.parts = []
        kind, name, start, end, place, correlation, size, comm_row = columns
        return Events(
            header=header,
            kind=kind,
            name=name,
            start=start,
            end=end,
            place=place,
            correlation=correlation,
            size=size,
            comm_row=comm_row,
            names=list(map(str, self.names)),
            threads=list(self.threads),
            streams=cast("list[tuple[Place, Place]]", list(self.streams)),
            comm=self.comm,
            matrix=self.matrix,
            counts=+self.counts,
        )


class _Names(Codes):
    """Codes of names; what has none is called nothing."""

    def __missing__(self, key: Hashable) -> int:
        if key is None:
            return self[""]
        code = self[key] = len(self)
        return code


@lru_cache(1 << 14)
def _threads(grid_and_block: bytes) -> int:
    """Threads of a kernel by the joined texts of its grid and block: its shape, as far as a trace tells; else -1."""
    if len(grid_and_block) > SHAPE_BYTES and max(map(len, grid_and_block.split(SEPARATOR))) >= SHAPE_BYTES:
        return -1
    try:
        total = math.prod(map(math.prod, _EXTENTS.decode(b"[%b]" % grid_and_block.replace(SEPARATOR, b","))))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1
    return total if 0 < total < 1 << 40 else -1


_EXTENTS = msgspec.json.Decoder(list[list[int]])


def _picked(events: list[Event], chosen: Mask) -> list[Event]:
    return events if chosen.all() else list(compress(events, chosen.tolist()))


def _columns(batches: Iterator[Batch], device: bool, shared: bool = False) -> Events:
    columns = _Columns(device, shared)
    header = Header()
    for found, batch, odd in batches:
        header = found or header
        columns.counts["events"] += len(batch) + odd
        columns.counts["dropped: not an event"] += odd
        columns.add(batch)
    # Newer traces count from a base, so that a float can hold fractions of a microsecond.
    base = integer(header.baseTimeNanoseconds, 0)
    events = columns.finish(header).without_far_times()
    if abs(base) < LIMIT_NS:
        events.start += base
        events.end += base
        events.base = base
        for times in (*events.matrix.start, *events.matrix.end):
            times += base
    return events


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)
