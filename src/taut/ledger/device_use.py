"""What accelerators did, for people who know them: classes of kernels and copies, idle time by what the host did
meanwhile, and how fast collectives were.

Works on the observed times of the graph. All ranks and segments lie one after the other on one axis, so that a set of time
is one pair of arrays whatever the number of ranks.
"""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Indices, Ints, Mask
from taut.core.device_words import LAUNCHES, NO_BYTES, is_copy, on_device
from taut.core.group_kernels import group_sort
from taut.core.ids import coded, in_groups, least, numbered, sums, taken, weighed
from taut.core.span_kernels import begin_at, union_of_groups
from taut.core.spans import Spans, union
from taut.core.tables import Kind, Verb
from taut.graph import Graph
from taut.graph.device_windows import OTHER_STEP
from taut.ledger.mfu import mfu, window_lengths
from taut.result.types import Device, DeviceClass, DeviceCollective, DeviceIdle, DeviceRank

MOST_CLASSES, MOST_COLLECTIVES, MOST_NAMED = 50, 20, 12
"""Classes and collectives that are listed; host ops that idle time is told apart by."""
LONGEST_AXIS = 1 << 62
LAUNCH, SYNCHRONISATION, CHECKPOINT = "launch", "synchronisation", "checkpoint"
LAUNCHED, SILENT, OTHER, UNKNOWN = "launched, not begun", "host between calls", "other host ops", "unknown"
_WAITS = re.compile(r"[Ss]ynchronize|^(?:cuda|hip)Memcpy$|^cuMemcpy(?:DtoH|HtoD)(?:_v2)?$")
PART_OF = {
    Verb.ALL_REDUCE: 2,
    Verb.ALL_GATHER: 1,
    Verb.REDUCE_SCATTER: 1,
    Verb.ALL_TO_ALL: 1,
    Verb.GATHER: 1,
    Verb.SCATTER: 1,
}
"""How often (n − 1) / n of the bytes cross the link of a rank, by nccl-tests (doc/PERFORMANCE.md); of other verbs all do,
once. Bytes are those of the larger buffer of a rank: what an all-gather gives, what a reduce-scatter takes."""


def device_use(graph: Graph, device: Device) -> Device:
    """What accelerators did in their windows, with all that the graph tells of it."""
    axis = device_axis(graph, device)
    return replace(
        device,
        mean=_mean(device),
        classes=classes(graph),
        idle=[] if axis is None else idle(graph, axis),
        collectives=collectives(graph),
        mfu=mfu(graph, device),
    )


def _mean(device: Device) -> DeviceRank | None:
    """Shares of the windows of all ranks together, and their mean period; None without any."""
    if not device.ranks:
        return None
    length = window_lengths(device)
    weight = [length[int(rank)] for rank in device.ranks]
    figures = [name for name in DeviceRank.__struct_fields__ if name not in ("host", "gpu")]
    values = {name: [getattr(one, name) for one in device.ranks.values()] for name in figures}
    means = {name: float(np.average(some, weights=None if name == "step_ns" else weight)) for name, some in values.items()}
    return DeviceRank(host=None, gpu=None, **means)


class Axis(Struct, frozen=True):
    """One axis of time for all ranks and segments: where their zeros lie on it, and the windows of the devices."""

    graph: Graph
    group: Indices
    """Rank of its segment of every op."""
    zero: Ints
    """Where each of these begins."""
    windows: Spans
    named: list[tuple[str, Spans]]
    """What people named on the hosts, and when that was."""

    def start(self, rows: Ints) -> Ints:
        """Where some ops begin."""
        found: Ints = self.graph.ops.start_ns[rows] + self.zero[self.group[rows]]
        return found

    def end(self, rows: Ints) -> Ints:
        """Where some ops end."""
        found: Ints = self.graph.ops.end_ns[rows] + self.zero[self.group[rows]]
        return found

    def busy(self, chosen: Mask) -> Spans:
        """All time under any of the chosen ops."""
        ops = self.graph.ops
        return Spans(*union_of_groups(self.group, self.zero, chosen, ops.start_ns, ops.end_ns))

    def spans(self, rows: Ints) -> Spans:
        """All time under any of a few ops."""
        return union(self.start(rows), self.end(rows))


def device_axis(graph: Graph, device: Device) -> Axis | None:
    """The ops and the windows of the devices on one axis; None without windows, or if it were too long."""
    ops, ranks, segments = graph.ops, len(graph.ranks), int(graph.segment.max()) + 1
    if not device.windows:
        return None
    rank, step, start, end = np.array([(w.rank, w.step, w.start_ns, w.end_ns) for w in device.windows], dtype=np.int64).T
    segment = graph.segment[np.searchsorted(graph.steps, step)].astype(np.int64)
    base = graph.members.base_ns[np.searchsorted(graph.ranks, rank)]
    start, end = start + base, end + base  # windows are given on the clock of the file, ops lie on that of the reader
    middle = (int(start.min()) + int(end.max())) // 2
    start, end = (_aligned(graph, rank, time, middle) - graph.origin_ns[segment] for time in (start, end))
    low = min(int(ops.start_ns.min()), int(start.min()))
    longest = max(int(ops.end_ns.max()), int(end.max())) - low + 1
    if ranks * segments * longest >= LONGEST_AXIS:
        return None
    group = graph.rank_index if segments == 1 else graph.segment[graph.window].astype(np.int64) * ranks + graph.rank_index
    of = (segment * ranks + np.searchsorted(graph.ranks, rank)) * longest - low
    windows, zero = union(start + of, end + of), np.arange(ranks * segments) * longest - low
    return Axis(graph, group, zero, windows, _named(graph, middle, low, longest))


def _aligned(graph: Graph, rank: Ints, time: Ints, middle: int) -> Ints:
    """Times of ranks on the clock of the first; ``middle`` of the run is where the offset is given, if it drifts."""
    clock, at = graph.clock, np.searchsorted(graph.clock.rank, rank)
    rate = np.where(clock.applied > 1, 1e-6 * clock.drift_ppm, 0.0)[at]
    offset: Ints = np.where(clock.applied > 0, clock.offset_ns, 0)[at]
    return time - offset - np.rint(rate * (time - middle)).astype(np.int64)


def _named(graph: Graph, middle: int, low: int, longest: int) -> list[tuple[str, Spans]]:
    """Ranges that people named on hosts, on the axis, the shortest kind first: it lies inside the others."""
    ranges = graph.trace.host_ranges
    ranges = ranges.take(np.isin(ranges.rank, graph.ranks))
    if not len(ranges):
        return []
    start, end = (_aligned(graph, ranges.rank, time, middle) for time in (ranges.start_ns, ranges.end_ns))
    segment = np.clip(np.searchsorted(graph.origin_ns, start, "right") - 1, 0, None)
    cell = segment * len(graph.ranks) + np.searchsorted(graph.ranks, ranges.rank)
    start, end = (np.clip(time - graph.origin_ns[segment] - low, 0, longest - 1) + cell * longest for time in (start, end))
    words, code = np.unique(ranges.name.astype(str), return_inverse=True)
    order, begin = in_groups(code, len(words), start, end)
    kinds = [order[begin[k] : begin[k + 1]] for k in range(len(words))]
    kinds = sorted(kinds, key=lambda rows: -int((end - start)[rows].sum()))[:MOST_NAMED]
    kinds.sort(key=lambda rows: float(np.median((end - start)[rows])))
    return [(str(words[code[rows[0]]]), union(start[rows], end[rows])) for rows in kinds]


def device_mask(graph: Graph) -> Mask:
    """Which ops ran on an accelerator."""
    found: Mask = on_device(graph.trace.lanes)[graph.ops.lane]
    return found


def classes(graph: Graph) -> list[DeviceClass]:
    """Kernels and copies that the kept steps launched, by class, the longest first."""
    ops, own = graph.ops, ~np.isin(graph.names, list(OTHER_STEP.values()))
    rows = _once(graph, np.flatnonzero(device_mask(graph) & own[graph.ops.name]).astype(np.int32))
    if not len(rows):
        return []
    name, names = coded(taken(ops.name, rows))
    took = taken(ops.end_ns, rows)
    took -= taken(ops.start_ns, rows)
    order, begin = group_sort(name, names)
    total, count = sums(name, took, names), np.diff(begin)
    whole = max(int(total.sum()), 1)
    known_size = np.flatnonzero(ops.size[rows] >= 0) if int(ops.size.max()) >= 0 else np.zeros(0, dtype=np.int64)
    moved, sized = weighed(name[known_size], ops.size[rows[known_size]], names), np.bincount(name[known_size], minlength=names)
    copy = is_copy(graph.names)
    out = []
    for k in np.argsort(-total, kind="stable")[:MOST_CLASSES].tolist():
        mine = order[begin[k] : begin[k + 1]]
        shortest = mine[np.argmin(took[mine])]
        row = rows[shortest]
        copies = bool(copy[ops.name[row]])
        known = copies and int(sized[k]) == int(count[k])
        out.append(
            DeviceClass(
                name=graph.names[ops.name[row]],
                kind="copy" if copies else "communication" if ops.kind[row] == Kind.COMMUNICATE else "compute",
                count=int(count[k]),
                rank_ns=int(total[k]),
                share=int(total[k]) / whole,
                median_ns=float(np.median(took[mine])),
                moved_bytes=int(moved[k]) if known else None,
                gb_per_s=float(moved[k] / total[k]) if known and total[k] > 0 else None,
            )
        )
    return out


def _once(graph: Graph, rows: Indices) -> Indices:
    """These ops, of those of one grouped call, which share an interval, only the first."""
    ops, once = graph.ops, np.ones(len(rows), dtype=np.bool_)
    place = np.flatnonzero(ops.kind[rows] == Kind.COMMUNICATE)
    call = rows[place]
    ids, count = numbered(ops.rank[call], graph.window[call], ops.lane[call], ops.start_ns[call], ops.end_ns[call])
    first = least(ids, count, place)
    once[place] = first[ids] == place
    kept: Indices = rows[once]
    return kept


def idle(graph: Graph, axis: Axis) -> list[DeviceIdle]:
    """Time of the windows in which nothing ran on the device, by what the host did; the parts sum to all of it.

    While the work that ends an idle time was not launched yet, its host is asked: what it did then is the cause. Once it was
    launched, the host is not: the work waited in its stream.
    """
    on = device_mask(graph)
    left = axis.windows - axis.busy(on)
    whole = max(axis.windows.ns, 1)
    spent: dict[str, int] = {}
    launched, unknown = _launched(graph, axis, left, on)
    spent[LAUNCHED] = launched.ns
    left = left - launched
    for cause, rows in _host_ops(graph, on):
        took = left & axis.spans(rows)
        spent[cause] = spent.get(cause, 0) + took.ns
        left = left - took
    for cause, when in axis.named:
        took = left & when
        spent[cause] = spent.get(cause, 0) + took.ns
        left = left - took
    spent[UNKNOWN] = (left & unknown).ns
    spent[SILENT] = left.ns - spent[UNKNOWN]
    found = sorted(((ns, cause) for cause, ns in spent.items() if ns > 0), key=lambda one: (-one[0], one[1]))
    return [DeviceIdle(cause=cause, rank_ns=ns, share=ns / whole) for ns, cause in found]


def _launched(graph: Graph, axis: Axis, idle_time: Spans, on: Mask) -> tuple[Spans, Spans]:
    """Of idle time: after the launch of the work that ends it, and where no launch of that is known."""
    after = begin_at(axis.group, axis.zero, on, graph.ops.start_ns, idle_time.end)
    follows = after >= 0  # else it ends with its window
    launch = np.where(follows, graph.ops.launch[after], -1)
    known = launch >= 0
    # Where launches were recorded, what has none here was launched before the window opened.
    before = follows & ~known & bool(graph.trace.counts.get(LAUNCHES))
    cut = np.where(known, np.clip(axis.end(launch), idle_time.start, idle_time.end), idle_time.end)
    cut, known = np.where(before, idle_time.start, cut), known | before
    return union(cut, idle_time.end), union(idle_time.start[~known], idle_time.end[~known])


def _host_ops(graph: Graph, on: Mask) -> list[tuple[str, Ints]]:
    """What hosts did, by cause, the most telling first: where two threads do something, the first of these counts."""
    ops, launches = graph.ops, np.zeros(len(graph) + 1, dtype=np.bool_)
    launches[ops.launch[on]] = True
    rows = np.flatnonzero(~on)
    ordered: list[tuple[str, list[Ints]]] = [(CHECKPOINT, []), (LAUNCH, []), (OTHER, []), (SYNCHRONISATION, [])]
    slots, inputs, named = dict(ordered), list[tuple[str, Ints]](), list[tuple[str, Ints]]()
    rows = rows[np.argsort(ops.name[rows], kind="stable")]
    for mine in np.split(rows, np.flatnonzero(np.diff(ops.name[rows])) + 1):
        name = graph.names[ops.name[mine[0]]] if len(mine) else ""
        if name.startswith("input: "):
            inputs.append((name, mine))
        elif name == CHECKPOINT:
            slots[CHECKPOINT].append(mine)
        elif _WAITS.search(name) or (ops.kind[mine] == Kind.SYNCHRONISE).all():
            slots[SYNCHRONISATION].append(mine)
        elif launches[mine].any():
            slots[LAUNCH].append(mine)
        else:
            named.append((name, mine))
    named.sort(key=lambda one: -int((ops.end_ns[one[1]] - ops.start_ns[one[1]]).sum()))
    slots[OTHER] += [mine for _, mine in named[MOST_NAMED:]]
    joined = {cause: np.concatenate([rows[:0], *some]) for cause, some in ordered}
    return [*inputs, (CHECKPOINT, joined[CHECKPOINT]), (LAUNCH, joined[LAUNCH]), *named[:MOST_NAMED],
            (OTHER, joined[OTHER]), (SYNCHRONISATION, joined[SYNCHRONISATION])]  # fmt: skip


def collectives(graph: Graph) -> list[DeviceCollective]:
    """Collectives by class, size (to a power of two) and size of the group; those that take most time first."""
    ops = graph.ops
    rows = np.flatnonzero(device_mask(graph) & (ops.verb != Verb.NONE) & (ops.verb != Verb.BARRIER))
    if not len(rows):
        return []
    size, members, in_bytes = ops.size[rows], _members(graph, rows), not graph.trace.counts.get(NO_BYTES)
    scale = np.where(size > 0, np.log2(np.maximum(size, 1)).astype(np.int64), size)
    ids, count = numbered(ops.name[rows], ops.verb[rows], members, scale)
    took, matched = ops.end_ns[rows] - ops.start_ns[rows], graph.gate[rows] >= 0
    spent, order = sums(ids, took, count), np.argsort(ids, kind="stable")
    begin = np.searchsorted(ids[order], np.arange(count + 1))
    out = []
    for k in np.argsort(-spent, kind="stable")[:MOST_COLLECTIVES].tolist():
        mine = order[begin[k] : begin[k + 1]]
        gated = mine[matched[mine]]
        apart = len(gated) > 0
        timed = graph.work_ns[rows[gated]] if apart else took[mine]
        rate = _rate(size[gated if apart else mine], timed) if in_bytes else None
        verb, n = Verb(int(ops.verb[rows[mine[0]]])), int(members[mine[0]])
        out.append(
            DeviceCollective(
                op_class=graph.names[ops.name[rows[mine[0]]]],
                verb=verb.word,
                size_bytes=int(np.median(size[mine])) if in_bytes and (size[mine] >= 0).all() else None,
                members=n if n > 0 else None,
                count=len(mine),
                rank_ns=int(spent[k]),
                median_ns=float(np.median(timed)),
                gb_per_s=rate,
                bus_gb_per_s=_bus(rate, verb, n),
                waiting_included=not apart,
            )
        )
    return out


def _bus(rate: float | None, verb: Verb, members: int) -> float | None:
    """Bus bandwidth of a collective; None without its bytes, or where the members count and are not known."""
    if rate is None or verb not in PART_OF:
        return rate
    return rate * PART_OF[verb] * (members - 1) / members if members > 1 else None


def _rate(size: Ints, took: Ints) -> float | None:
    """Bytes over ns, which is 10^9 bytes a second; None where some sizes are not known."""
    if not len(size) or (size < 0).any() or took.sum() <= 0:
        return None
    return float(size.sum(dtype=np.float64) / took.sum(dtype=np.float64))


def _members(graph: Graph, rows: Ints) -> Ints:
    """Ranks of the group of each op: as the trace names them, else as many as met where no rank is missing; else -1."""
    ops, trace = graph.ops, graph.trace
    # A group without a name is the whole job: readers call it so where no collective names its group.
    named = np.array(
        [len(trace.group_ranks.get(g, ())) or (trace.world_size or 0) * (g == "default") for g in trace.groups] + [0]
    )
    found = named[ops.group[rows]]
    all_here = trace.world_size is None or trace.world_size == len(graph.ranks)
    gate = graph.gate[rows]
    met = np.where(gate >= 0, graph.gates.members[gate], 0) if len(graph.gates) and all_here else np.zeros_like(found)
    return np.where(found > 0, found, np.where(met > 0, met, -1)).astype(np.int64)
