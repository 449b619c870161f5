"""Who meets whom, where the trace does not say: groups and peers inferred from the times themselves.

Members of a rendezvous end together, nobody ends before the last has begun, and who comes late stays short: once the
wait is taken out, the work that remains is alike. Candidate groups are the partitions a job can have (all ranks, the
ranks of one stage, the ranks of one data-parallel index); the one that explains the durations and lets its members end
together is taken. A class whose name promises no rendezvous needs far more evidence than one whose name does.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import distinct, greatest, least, numbered, occurrence
from taut.core.tables import NULL, Kind, Table, Verb

VALID_SHARE = 0.99
"""Share of instances in which nobody ends before the last has begun."""
EXPLAINS = 1.5
"""A partition explains the durations if its residual is within this factor of the best one's."""
UNNAMED = 0.2
"""A class without a telling name is a rendezvous only if that takes away four fifths of its spread."""
NOTICEABLE = 0.01
"""… and only if that spread was more than rounding, as a share of the duration."""
FREE_GROUPS = 1024
"""Groups that may be inferred beyond one for each op: where there are more, most of them have no member."""
STEPS = 8
"""Groups are inferred from this many steps."""


def infer(ops: Table, members: Table) -> tuple[Indices, Indices, Indices, list[str]]:
    """(verb, group, peer, new group names) for every op; given groups and peers are kept."""
    verb, group, peer = ops.verb, ops.group, ops.peer
    p2p = (ops.verb == Verb.SEND) | (ops.verb == Verb.RECV)
    roles = bool((members.stage >= 0).any())
    # A reader that calls an op communication without a verb says that nobody is met there: a copy, or half an exchange.
    loose = (group < 0) & ~p2p & ((ops.verb != Verb.NONE) | (roles & (ops.kind != Kind.COMMUNICATE)))
    unpaired = p2p & (peer < 0) & bool((members.stage >= 0).all())
    if len(members) < 2 or not (loose.any() or unpaired.any()):
        return verb, group, peer, []
    index = np.searchsorted(members.rank, ops.rank)
    sample = np.flatnonzero(_first_steps(ops.step))
    few = ops.take(sample)
    stage, dp = members.stage[index[sample]].astype(np.int64), members.dp_rank[index[sample]].astype(np.int64)
    offset, key, barrier, names = _partitions(few, loose[sample], stage, dp, members, ops.name)
    found = np.flatnonzero(loose & (offset[ops.name] >= 0))
    which, codes = key
    group = group.copy()
    group[found] = offset[ops.name[found]] + codes[which[ops.name[found]], index[found]]
    verb = np.where(loose & barrier[ops.name], Verb.BARRIER, verb).astype(np.int8)
    if unpaired.any():
        which, to = _peers(few, np.flatnonzero(unpaired[sample]), stage, members, len(offset))
        other = to[which[ops.name], (ops.verb == Verb.SEND).astype(np.int64), index]
        peer = np.where(unpaired, other, peer).astype(np.int32)
    return verb, group, peer, names


def _first_steps(step: Indices) -> Mask:
    """A few steps are evidence enough."""
    labels = distinct(step)
    return step <= labels[min(len(labels), STEPS) - 1] if len(labels) else np.zeros(0, dtype=bool)


def _partitions(
    ops: Table, loose: Mask, stage: Ints, dp: Ints, members: Table, all_names: Indices
) -> tuple[Ints, tuple[Ints, Ints], Mask, list[str]]:
    """Per class name: offset of its first group (-1: none), how it divides the ranks, and if it is a barrier.

    How classes divide ranks: a number per class, and for each of these numbers the group of every rank.
    """
    classes = int(all_names.max()) + 1
    offset, which = np.full(classes, NULL, dtype=np.int64), np.zeros(classes, dtype=np.int64)
    barrier = np.zeros(classes, dtype=bool)
    divided = {"": np.zeros(len(members), dtype=np.int64), "stage": members.stage, "dp": members.dp_rank}
    groups = {label: np.unique(values, return_inverse=True) for label, values in divided.items()}
    names: list[str] = []
    rows = np.flatnonzero(loose)
    for name, mine in _by_class(ops.name, rows):
        named = bool((ops.verb[mine] != Verb.NONE).any())
        label = _partition(ops, mine, stage, dp, named)
        if label is None or len(names) + len(groups[label][0]) > len(all_names) + FREE_GROUPS:
            continue
        offset[name], which[name], barrier[name] = len(names), list(groups).index(label), not named
        names += [f"{label} {v}" if label else "all" for v in groups[label][0]]
    return offset, (which, np.stack([code.ravel() for _, code in groups.values()])), barrier, names


def _by_class(names: Indices, rows: Ints) -> Iterator[tuple[int, Ints]]:
    """Every class among some rows, ascending, with its rows in their order."""
    if len(rows) == 0:
        return
    order = rows[np.argsort(names[rows], kind="stable")]
    for mine in np.split(order, np.flatnonzero(np.diff(names[order])) + 1):
        yield int(names[mine[0]]), mine


def _partition(ops: Table, rows: Ints, stages: Ints, dps: Ints, named: bool) -> str | None:
    """The partition the times speak for: "stage", "dp", "" for all ranks; None for none."""
    stage, dp = stages[rows], dps[rows]
    start, end = ops.start_ns[rows], ops.end_ns[rows]
    nth = occurrence(ops.step[rows], ops.rank[rows], ops.part[rows])
    instance, _ = numbered(ops.step[rows], ops.part[rows], nth)
    alone = _spread(end - start)
    candidates = []
    for label, key in (("stage", stage), ("dp", dp), ("", np.zeros_like(stage))):
        cell, cells = numbered(instance, key)
        size = np.bincount(cell)
        if size.max() < 2 or (key < 0).any():
            continue
        # If these ops meet, the last start opens the gate, and what is left of each duration is the work.
        opens, first, last = greatest(cell, cells, start), least(cell, cells, end), greatest(cell, cells, end)
        tolerance = 1000 + (last - opens) // 20  # 1 µs of timer error, and a twentieth of the transfer
        if (first >= opens - tolerance).mean() < VALID_SHARE:
            continue
        candidates.append((_spread(end - opens[cell]), float((last - first).mean()), label))
    if not candidates:
        return None
    best = min(c[0] for c in candidates)
    if not named and (best > UNNAMED * alone or alone < NOTICEABLE * float((end - start).mean())):
        return None
    explaining = [c for c in candidates if c[0] <= EXPLAINS * best + 1000]
    return min(explaining, key=lambda c: c[1])[2]


def _spread(work: Ints) -> float:
    """Mean distance of the work from its median."""
    return float(np.abs(work - np.median(work)).mean())


def _peers(ops: Table, rows: Ints, stage: Ints, members: Table, classes: int) -> tuple[Ints, Ints]:
    """Other ends of receives and sends: a number per class, and for each of these [is a send, rank], -1 for none.

    Sends of a class go to the next or to the previous stage: whichever lets each find an other end that overlaps it.
    """
    stages = int(members.stage.max()) + 1
    at = _RankGrid(members)
    which, ways = np.zeros(classes, dtype=np.int64), {(0, False): np.full((2, len(members)), NULL, dtype=np.int64)}
    for name, mine in _by_class(ops.name, rows):
        sends = ops.verb[mine] == Verb.SEND
        best = 0.5
        for shift in (1, -1):
            way = shift, _wraps(stage[mine], sends, stages, shift)
            if way not in ways:
                ways[way] = np.stack([at.neighbour(s, stages, way[1]) for s in (-shift, shift)])
            other = ways[way][sends.astype(np.int64), np.searchsorted(members.rank, ops.rank[mine])]
            score = _agreement(ops, mine, sends, other)
            if score > best:
                best, which[name] = score, list(ways).index(way)
    return which, np.stack(list(ways.values()))


class _RankGrid:
    """Which rank has which data-parallel index and stage; a table of all pairs would be as large as a trace asks for."""

    def __init__(self, members: Table) -> None:
        self._stage, self._dp, self._rank = members.stage.astype(np.int64), members.dp_rank.astype(np.int64), members.rank
        self._order = np.lexsort((self._stage, self._dp))
        self._keys = self._packed(self._stage)[self._order]

    def _packed(self, stage: Ints) -> Ints:
        return (self._dp + 1 << 32) + stage

    def neighbour(self, shift: int, stages: int, wraps: bool) -> Ints:
        """For every rank: that of the same index some stages on, -1 beyond the ends of a pipeline that does not wrap."""
        to = self._stage + shift
        inside = (to >= 0) & (to < stages) | wraps
        wanted = self._packed(to % stages)
        place = np.maximum(np.searchsorted(self._keys, wanted, side="right") - 1, 0)  # of several ranks the last
        found = np.where(self._keys[place] == wanted, self._rank[self._order[place]].astype(np.int64), NULL)
        return np.where(inside, found, NULL)


def _wraps(stage: Ints, sends: Mask, stages: int, shift: int) -> bool:
    """Interleaved schedules also hop from the last stage to the first."""
    edge = stages - 1 if shift > 0 else 0
    return bool((sends & (stage == edge)).any() and (~sends & (stage == stages - 1 - edge)).any())


def _agreement(ops: Table, rows: Ints, sends: Mask, other: Ints) -> float:
    """Share of ops that find their other end, neither having ended before the other began."""
    rank = ops.rank[rows].astype(np.int64)
    source, sink = np.where(sends, rank, other), np.where(sends, other, rank)
    channel, _ = numbered(ops.step[rows], ops.part[rows], source, sink)
    cell, cells = numbered(channel, occurrence(channel, sends))
    pairs = np.bincount(cell) == 2
    first, opens = least(cell, cells, ops.end_ns[rows]), greatest(cell, cells, ops.start_ns[rows])
    good = pairs & (first >= opens - 1_000_000)
    return float(good[cell][other >= 0].mean()) if (other >= 0).any() else 0.0
