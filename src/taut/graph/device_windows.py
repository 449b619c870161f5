"""Where the kept steps lie on the accelerators, and what these did meanwhile.

A host runs ahead of its device: when it begins a step, the device may still be busy with the one before. So the window of
a rank opens when its device has finished the step before (or with its own first work, where that is not known or comes
earlier), every step ends with the last work that it launched, and work of other steps that lies inside stays visible, as
ops that belong to no class. Host ops outside the window are cut off: what they launched was ready when it opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from msgspec import Struct, structs

from taut.core.array_types import Indices, Ints, Mask
from taut.core.device_words import is_copy, on_device
from taut.core.ids import coded, distinct, greatest, in_groups, least, numbered, positions
from taut.core.jit import kernel
from taut.core.row_shares import meanwhile, over_rows
from taut.core.scratch import empty, kept
from taut.core.tables import NULL, Kind, Trace, Verb
from taut.graph.steps import Windows
from taut.result.types import Device, DeviceRank, DeviceWindow

OTHER_STEP = {Kind.COMPUTE: "compute of another step", Kind.COMMUNICATE: "communication of another step"}
"""Class names of device work inside the windows that no kept step launched; copies keep theirs."""


class DeviceWindows(Struct, frozen=True):
    """The windows of all ranks, and the ops that open and close them; rows are those of the trace."""

    beside: Ints
    """Device work of other steps that may lie inside the windows."""
    step: Ints
    """The kept step in which each of it ends."""
    opens_with: Ints
    """The op that opens the window of each segment and rank …"""
    opens_after: Mask
    """… when it ends, else when it begins."""
    closes_with: Ints
    """The op with whose end it closes."""
    segment: Ints
    cuttable: Mask
    """One boolean an op of the trace: what makes no window (host work, work of other steps) may be cut at its edges."""
    told: Callable[[], Device]
    """What the devices did in their windows, which may be worked out meanwhile."""

    def cut(self, row: Ints, start: Ints, end: Ints, segment: Indices) -> tuple[Ints, Ints, Ints, Ints]:
        """(ops that lie inside, origin of each segment, starts and ends of all ops from there), of ops taken from some rows.

        A segment opens with the first of its ranks and closes with the last. What makes a window lies inside of it;
        host work and the work of other steps may reach beyond, and ends there.
        """
        place = np.full(len(self.cuttable), NULL, dtype=np.int32)
        place[row] = np.arange(len(row), dtype=np.int32)
        first, last = place[self.opens_with], place[self.closes_with]
        segments = int(segment.max()) + 1
        origin = least(self.segment, segments, np.where(self.opens_after, end[first], start[first]))
        stop = greatest(self.segment, segments, end[last]) - origin
        zero, close = (origin[0], stop[0]) if segments == 1 else (origin[segment], stop[segment])
        if self.cuttable.any():
            inside = np.flatnonzero(~self.cuttable[row] | ((end - zero > 0) & (start - zero < close)))
        else:
            inside = kept(np.arange(len(row)))
        begun, ended = empty((len(row),), np.int64), empty((len(row),), np.int64)

        def clip(share: slice) -> None:
            since, until = (zero, close) if segments == 1 else (zero[share], close[share])
            np.maximum(np.subtract(start[share], since, out=begun[share]), 0, out=begun[share])
            np.minimum(np.subtract(end[share], since, out=ended[share]), until, out=ended[share])

        over_rows(clip, len(row))
        return inside, origin, begun, ended


class _Work(Struct, frozen=True):
    """The ops that make a window, their ranks and windows as indices."""

    row: Ints | slice
    start: Ints
    end: Ints
    rank: Indices
    lane: Indices
    window: Indices

    def extents(self, segment: Ints, ranks: int) -> _Extents:
        """When the work of each segment and rank begins and ends, and with which row; when that of each window ends."""
        begun, ended, first, last, done = extents(self.window, self.rank, self.start, self.end, segment, ranks)
        return _Extents(begun, ended, self._rows(first), self._rows(last), done)

    def _rows(self, places: Ints) -> Ints:
        """Rows at some places, -1 where there is none."""
        return places if isinstance(self.row, slice) or not len(self.row) else np.where(places >= 0, self.row[places], NULL)

    def among(self, chosen: Mask) -> _Work:
        """Some of the ops; rows must be listed."""
        assert not isinstance(self.row, slice)
        return _Work(*(column[chosen] for column in (self.row, self.start, self.end, self.rank, self.lane, self.window)))


class _Extents(Struct, frozen=True):
    """Of each segment and rank: when its work begins and ends, and with which rows; of each window and rank: when it ends."""

    begun: Ints
    ended: Ints
    first: Ints
    last: Ints
    done: Ints


def device_windows(trace: Trace, windows: Windows) -> DeviceWindows | None:
    """The windows of the kept steps on the devices; None without any device."""
    lanes, ops, step = on_device(trace.lanes), trace.ops, windows.step
    if trace.relative or not lanes.any():
        return None
    device = lanes[ops.lane]
    if not (device & windows.keep).any():
        return None
    rank, ranks = coded(ops.rank)
    accelerated = np.bincount(rank[device & windows.keep], minlength=ranks) > 0
    # What is on a device or meets other ranks makes the window; of ranks without a device, everything.
    makes = device | (ops.verb != Verb.NONE) | ~accelerated[rank]
    kept = makes & windows.keep
    row = _rows(kept)
    work = _Work(row, ops.start_ns[row], ops.end_ns[row], rank[row], ops.lane[row], positions(windows.labels, step[row]))
    spans = _spans(work, _before(trace, windows, device, rank), windows, ranks)
    present = np.flatnonzero(spans.opens_with >= 0)
    other = np.flatnonzero(device & ~windows.keep)
    beside, label = _beside(trace, other, rank, spans, windows)

    def told() -> Device:
        raw, base = distinct(ops.rank), _bases(trace)
        table = [
            DeviceWindow(rank=int(raw[r]), step=label, start_ns=opened - base[r], end_ns=closed - base[r])
            for r, label, opened, closed in spans.rows(windows)
            if accelerated[r]
        ]
        return Device(windows=table, ranks=_use(trace, _rows(device), rank, spans, accelerated))

    return DeviceWindows(
        beside=beside,
        step=label,
        opens_with=spans.opens_with[present],
        opens_after=spans.opens_after[present],
        closes_with=spans.closes_with[present],
        segment=present // ranks,
        cuttable=~kept,
        told=meanwhile(told),
    )


def _rows(chosen: Mask) -> Ints | slice:
    """The chosen rows; all of them without a copy."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


class _Spans(Struct, frozen=True):
    """Windows on each rank's own clock: one entry for each segment and rank, -1 where it has no op."""

    opens_with: Ints
    opens_after: Mask
    closes_with: Ints
    opens: Ints
    """Segments × ranks: when the window opens; the greatest number where there is none."""
    since: Ints
    """The same: when the step before ended, where it was recorded, from which the period of the device counts."""
    done: Ints
    """Windows × ranks: when the last work of it or an earlier one of its segment ends."""
    segment: Indices
    """Of each window."""

    def closes(self, segment: int) -> Ints:
        """When the window of each rank closes."""
        last = int(np.flatnonzero(self.segment == segment)[-1])
        closes: Ints = self.done[last]
        return closes

    def rows(self, windows: Windows) -> Iterator[tuple[int, int, int, int]]:
        """(rank as an index, step, start, end), where the rank has work in the segment."""
        for s in range(len(self.opens)):
            before = self.opens[s]
            for w in np.flatnonzero(self.segment == s).tolist():
                for r in np.flatnonzero(self.closes(s) >= self.opens[s]).tolist():
                    yield r, int(windows.labels[w]), int(before[r]), int(self.done[w, r])
                before = self.done[w]


def with_other_steps(trace: Trace, windows: Windows, found: DeviceWindows) -> tuple[Trace, Windows]:
    """The trace and its windows with device work of other steps as ops of a class of their own, which meets nobody."""
    if not len(found.beside):
        return trace, windows
    names = [*trace.names, *OTHER_STEP.values()]
    row, ops = found.beside, trace.ops
    code = np.where(ops.kind[row] == Kind.COMPUTE, len(names) - 2, len(names) - 1)
    columns = {name: ops.columns[name].copy() for name in ("name", "verb", "group", "peer", "seq", "part", "launch")}
    columns["name"][row] = np.where(is_copy(trace.names)[ops.name[row]], ops.name[row], code)
    columns["verb"][row] = Verb.NONE
    columns["part"][row] = np.arange(len(row))  # each a class of its own: nothing says how long it ought to take
    for name in ("group", "peer", "seq", "launch"):
        columns[name][row] = NULL
    keep, step = windows.keep.copy(), windows.step.copy()
    keep[row], step[row] = True, found.step
    return replace(trace, ops=ops.replace(**columns), names=names), structs.replace(windows, keep=keep, step=step)


def _before(trace: Trace, windows: Windows, device: Mask, rank: Indices) -> _Work:
    """Device work of the recorded steps right before the first kept ones."""
    ops, known = trace.ops, np.flatnonzero(windows.before >= 0)
    row = np.flatnonzero(device & np.isin(windows.step, windows.before[known]))
    first = np.flatnonzero(np.diff(windows.segment, prepend=NULL))[known]  # window of each such segment
    window = first[np.searchsorted(windows.before[known], windows.step[row])]
    return _Work(row, ops.start_ns[row], ops.end_ns[row], rank[row], ops.lane[row], window)


def _in_order(before: _Work, work: _Work, own: _Extents, segment: Ints, ranks: int) -> _Work:
    """The work of steps before the first kept ones that tells when these ended.

    A stream runs in the order of launches: what begins behind work of a kept step was not launched in a step before, but
    shares a number with a launch there. What outlasts a whole kept step (a kernel that serves all steps, a long copy) says
    nothing about the end of its own.
    """
    late = before.end > own.begun[segment[before.window] * ranks + before.rank]
    if not late.any():
        return before
    beside = np.flatnonzero(np.isin(work.lane, before.lane[late]))
    mine = len(before.rank)
    place, places = numbered(
        np.concatenate([segment[before.window], segment[work.window[beside]]]),
        np.concatenate([before.rank, work.rank[beside]]),
        np.concatenate([before.lane, work.lane[beside]]),
    )
    first = least(place[mine:], places, work.start[beside])
    outlasts = before.end > own.done[before.window.astype(np.int64) * ranks + before.rank]
    return before.among(~late | ~(outlasts | (before.start >= first[place[:mine]])))


def _spans(work: _Work, before: _Work, windows: Windows, ranks: int) -> _Spans:
    segment = np.asarray(windows.segment)
    segments, count = int(segment.max()) + 1, len(segment)
    own = work.extents(segment, ranks)
    earlier = _in_order(before, work, own, segment, ranks).extents(segment, ranks)
    seen = earlier.last >= 0
    after = seen & (earlier.ended <= own.begun)
    opens = np.where(after, earlier.ended, own.begun).reshape(segments, ranks)
    opens_with, closes_with = np.where(after, earlier.last, own.first), own.last
    opens_with = np.where(closes_with >= 0, opens_with, NULL)
    done = own.done.reshape(count, ranks)
    for w in range(count):
        np.maximum(done[w], done[w - 1] if w and segment[w] == segment[w - 1] else opens[segment[w]], out=done[w])
    # A rank without any op in a segment has no window there.
    missing = closes_with.reshape(segments, ranks)[segment] < 0
    done = np.where(missing, np.iinfo(np.int64).min, done)
    known = seen & (earlier.ended < own.ended)
    since = np.where(known, earlier.ended, opens.ravel()).reshape(segments, ranks)
    return _Spans(opens_with, after, closes_with, opens, since, done, segment)


def _beside(trace: Trace, other: Ints, rank: Indices, spans: _Spans, windows: Windows) -> tuple[Ints, Ints]:
    """Rows among some that may lie inside the windows of their segment, and the kept steps in which they end.

    Windows of several ranks begin and end at different times: a step more on either side is enough for what lies between.
    """
    rows, labels = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    start, end, rank = trace.ops.start_ns[other], trace.ops.end_ns[other], rank[other]
    for s in range(len(spans.opens)):
        inside = np.flatnonzero(spans.segment == s)
        opens, closes = spans.opens[s], spans.closes(s)
        margin = np.where(closes >= opens, spans.done[inside[0]] - opens, 0) if len(opens) > 1 else np.zeros(1, dtype=np.int64)
        near = (closes >= opens)[rank] & (end >= (opens - margin)[rank]) & (start < (closes + margin)[rank])
        window = np.full(int(near.sum()), inside[0])
        for w in inside[:-1].tolist():
            window += spans.done[w, rank[near]] < end[near]
        rows.append(other[near])
        labels.append(windows.labels[window])
    return np.concatenate(rows), np.concatenate(labels)


def _use(trace: Trace, rows: Ints | slice, rank: Indices, spans: _Spans, accelerated: Mask) -> dict[str, DeviceRank]:
    """What each rank's device did inside its windows."""

    ops, rank, ranks = trace.ops, rank[rows], len(accelerated)
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    length, period = np.zeros((2, ranks), dtype=np.int64)
    what = np.full(len(start), 0b010, dtype=np.int8)
    what[is_copy(trace.names)[ops.name[rows]]] = 0b100
    what[ops.kind[rows] == Kind.COMPUTE] = 0b001
    order, begin = in_groups(rank, ranks, start, end)
    covered = np.zeros((ranks, len(_UNIONS)), dtype=np.int64)
    for s in range(len(spans.opens)):
        opens, closes = spans.opens[s], spans.closes(s)
        length += closes - np.minimum(opens, closes)
        period += closes - np.minimum(spans.since[s], closes)
        covered += union_lengths(begin, order, start, end, opens, closes, what, np.array(_UNIONS))
    steps = np.bincount(spans.segment)
    counts = (np.stack([spans.closes(s) >= spans.opens[s] for s in range(len(steps))]) * steps[:, None]).sum(axis=0)
    members = {int(r): i for i, r in enumerate(trace.members.rank)}
    raw, out = distinct(ops.rank), {}
    for r in np.flatnonzero(accelerated & (length > 0)).tolist():
        row = members.get(int(raw[r]))
        host, gpu = ("", NULL) if row is None else (str(trace.members.host[row]), int(trace.members.gpu[row]))
        out[str(raw[r])] = _shares(covered[r] / length[r], host, gpu, float(period[r] / counts[r]))
    return out


_UNIONS = (0b001, 0b010, 0b100, 0b101, 0b011, 0b111)
"""Unions that the shares are made of, as sets of compute (1), communication (2) and copies (4)."""


def _shares(share: Indices, host: str, gpu: int, step_ns: float) -> DeviceRank:
    compute, communication, copy, without_communication, without_copies, busy = map(float, share)
    return DeviceRank(
        host=host or None,
        gpu=None if gpu < 0 else gpu,
        step_ns=step_ns,
        busy_share=busy,
        compute_share=compute,
        communication_share=communication,
        hidden_share=max(communication - (busy - without_communication), 0.0),
        exposed_share=busy - without_communication,
        copy_share=copy,
        exposed_copy_share=busy - without_copies,
        idle_share=1 - busy,
    )


def _bases(trace: Trace) -> list[int]:
    """What readers added to the times of each rank, in the order of the ranks that have ops."""
    base = dict(zip(trace.members.rank.tolist(), trace.members.base_ns.tolist(), strict=True))
    return [base.get(rank, 0) for rank in distinct(trace.ops.rank).tolist()]


# core/spans.py keeps sets of time as arrays; of thousands of ranks only the lengths of six unions are needed here.
@kernel(lists=True)
def union_lengths(
    begin: Ints, order: Indices, start: Ints, end: Ints, opens: Ints, closes: Ints, what: Indices, unions: Ints
) -> Ints:
    """Groups × unions: the length, from when the group opens until it closes, of the union of the intervals that are part of
    it; ``order`` sorts a group by start."""
    out = np.zeros((len(begin) - 1, len(unions)), np.int64)
    reach = np.zeros(len(unions), np.int64)
    for g in range(len(begin) - 1):
        # Every interval adds what of it lies beyond the end of all before it.
        reach[:] = opens[g]
        for k in range(begin[g], begin[g + 1]):
            i = order[k]
            stop = min(end[i], closes[g])
            for u in range(len(unions)):
                if what[i] & unions[u] and stop > reach[u] and stop > start[i]:
                    out[g, u] += stop - max(start[i], reach[u])
                    reach[u] = stop
    return out


@kernel(lists=True)
def extents(
    window: Indices, rank: Indices, start: Ints, end: Ints, segment: Indices, ranks: int
) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Of each segment and rank: when its work begins and ends, and the last row that does so then, -1 without any; of each
    window and rank: when its work ends."""
    cells = 0
    for s in segment:
        cells = max(cells, (s + 1) * ranks)
    begun, ended = np.full(cells, (1 << 63) - 1, np.int64), np.full(cells, -(1 << 63), np.int64)
    first, last = np.full(cells, -1, np.int64), np.full(cells, -1, np.int64)
    done = np.full(len(segment) * ranks, -(1 << 63), np.int64)
    for i in range(len(start)):
        cell = segment[window[i]] * ranks + rank[i]
        if start[i] <= begun[cell]:
            begun[cell] = start[i]
            first[cell] = i
        if end[i] >= ended[cell]:
            ended[cell] = end[i]
            last[cell] = i
        at = window[i] * ranks + rank[i]
        done[at] = max(done[at], end[i])
    return begun, ended, first, last, done
