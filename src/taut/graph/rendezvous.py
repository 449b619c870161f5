"""Who meets whom, where the trace does not say: groups and peers inferred from the times themselves.

Members of a rendezvous end together, nobody ends before the last has begun, and who comes late stays short: once the
wait is taken out, the work that remains is alike. Candidate groups are the partitions a job can have (all ranks, the
ranks of one stage, the ranks of one data-parallel index); the one that explains the durations and lets its members end
together is taken. A class whose name promises no rendezvous needs far more evidence than one whose name does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.graph.ids import greatest, least, numbered, occurrence
from taut.tables import NULL, Table, Verb

VALID_SHARE = 0.99
"""Share of instances in which nobody ends before the last has begun."""
EXPLAINS = 1.5
"""A partition explains the durations if its residual is within this factor of the best one's."""
UNNAMED = 0.2
"""A class without a telling name is a rendezvous only if that takes away four fifths of its spread."""
NOTICEABLE = 0.01
"""… and only if that spread was more than rounding, as a share of the duration."""
STEPS = 8
"""Groups are inferred from this many steps."""


def infer(ops: Table, members: Table) -> tuple[Any, Any, Any, list[str]]:
    """(verb, group, peer, new group names) for every op; given groups and peers are kept."""
    verb, group, peer = ops.verb.copy(), ops.group.astype(np.int64), ops.peer.copy()
    index = np.searchsorted(members.rank, ops.rank)
    stage, dp = members.stage[index].astype(np.int64), members.dp_rank[index].astype(np.int64)
    names: list[str] = []
    p2p = (ops.verb == Verb.SEND) | (ops.verb == Verb.RECV)
    if len(members) > 1:
        roles = bool((members.stage >= 0).any())
        open_ops = np.flatnonzero((group < 0) & ~p2p & ((ops.verb != Verb.NONE) | roles))
        sample = _first_steps(ops.step[open_ops])
        for name in np.flatnonzero(np.bincount(ops.name[open_ops])):
            mine = ops.name[open_ops] == name
            named = bool((ops.verb[open_ops[mine]] != Verb.NONE).any())
            label = _partition(ops, open_ops[mine & sample], stage, dp, named)
            if label is None:
                continue
            rows = open_ops[mine]
            key = {"stage": stage, "dp": dp}[label][rows] if label else np.zeros(len(rows), dtype=np.int64)
            values, where = np.unique(key, return_inverse=True)
            group[rows] = len(names) + where.ravel()
            names += [f"{label} {v}" if label else "all" for v in values]
            if not named:
                verb[rows] = Verb.BARRIER
    unpaired = p2p & (peer < 0)
    if unpaired.any() and (members.stage >= 0).all():
        _peers(ops, np.flatnonzero(unpaired), stage, dp, members, peer)
    return verb, group, peer, names


def _first_steps(step: Any) -> Any:
    """A few steps are evidence enough."""
    labels = np.unique(step)
    return step <= labels[min(len(labels), STEPS) - 1] if len(labels) else np.zeros(0, dtype=bool)


def _partition(ops: Table, rows: Any, stages: Any, dps: Any, named: bool) -> str | None:
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
        opens, first, last = greatest(cell, cells, start), least(cell, cells, end), greatest(cell, cells, end)
        tolerance = 1000 + (last - opens) // 20
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


def _spread(work: Any) -> float:
    """Mean distance of the work from its median."""
    return float(np.abs(work - np.median(work)).mean())


def _peers(ops: Table, rows: Any, stage: Any, dp: Any, members: Table, peer: Any) -> None:
    """Sends of a class go to the next or to the previous stage: whichever makes the two ends end together."""
    stages = int(members.stage.max()) + 1
    at = {
        (int(m_dp), int(m_stage)): int(r) for r, m_stage, m_dp in zip(members.rank, members.stage, members.dp_rank, strict=True)
    }
    lookup = np.full((int(members.dp_rank.max()) + 2, stages), NULL, dtype=np.int64)
    for (m_dp, m_stage), rank in at.items():
        lookup[m_dp, m_stage] = rank
    for name in np.unique(ops.name[rows]):
        mine = rows[ops.name[rows] == name]
        sends = ops.verb[mine] == Verb.SEND
        sample = _first_steps(ops.step[mine])
        best: tuple[float, Any] | None = None
        for shift in (1, -1):
            to = np.where(sends, stage[mine] + shift, stage[mine] - shift)
            inside = (to >= 0) & (to < stages) | _wraps(stage[mine], sends, stages, shift)
            other = np.where(inside, lookup[dp[mine], to % stages], NULL)
            score = _agreement(ops, mine[sample], sends[sample], other[sample])
            if best is None or score > best[0]:
                best = score, other
        if best is not None and best[0] > 0.5:
            peer[mine] = best[1]


def _wraps(stage: Any, sends: Any, stages: int, shift: int) -> bool:
    """Interleaved schedules also hop from the last stage to the first."""
    edge = stages - 1 if shift > 0 else 0
    return bool((sends & (stage == edge)).any() and (~sends & (stage == stages - 1 - edge)).any())


def _agreement(ops: Table, rows: Any, sends: Any, other: Any) -> float:
    """Share of ops that find their other end, neither having ended before the other began."""
    rank = ops.rank[rows].astype(np.int64)
    source, sink = np.where(sends, rank, other), np.where(sends, other, rank)
    channel, _ = numbered(ops.step[rows], ops.part[rows], source, sink)
    cell, cells = numbered(channel, occurrence(channel, sends))
    pairs = np.bincount(cell) == 2
    first, opens = least(cell, cells, ops.end_ns[rows]), greatest(cell, cells, ops.start_ns[rows])
    good = pairs & (first >= opens - 1_000_000)
    return float(good[cell][other >= 0].mean()) if (other >= 0).any() else 0.0
