"""Rendezvous that no op records: gaps that end, step after step, when the last of some other ranks has arrived.

Frameworks synchronise in places a trace does not show (a loss averaged over data-parallel ranks, a barrier in a timer).
Taken as a gap, such a wait could never be recovered by mending whoever was late. A rank's gap before a class is
explained by a group of ranks if it ends shortly after the last of them finished the op before that class, in nearly all
steps; then the edges from all of them replace the mystery.

A rank may also wait until what it sent is received, while the trace records the call that sends and no more: its gap ends
as the receiver of one of its messages does.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import greatest, least, numbered, occurrence
from taut.core.tables import Table, Verb

BIG = 0.01
"""A gap is big above this share of an ordinary step."""
LEFT = 0.05
"""What may remain of an explained gap, as a share of it."""
MOMENT = 0.002
"""Share of a gap by which the receive may seem to end after it: another process records that, a moment later."""
AGREES = 0.9
"""Share of a rank's big gaps before a class that the same group must explain."""
LEAST_STEPS = 5
SPARSE = 256
"""Cells of the table of a class for each of its ops at most: a class that only few ranks share explains nothing."""


def edges(ops: Table, order: Indices, begins: Mask, window: Indices, members: Table, gate: Indices) -> tuple[Ints, Ints]:
    """(source, target) of the edges that explain big recurring gaps; ``gate`` says which sends and receives belong together."""
    none = np.zeros(0, dtype=np.int64)
    if len(members) < 2:
        return none, none
    from taut.graph.sweeps import gaps_in_lanes

    before, gap = gaps_in_lanes(order, begins, ops.start_ns, ops.end_ns)
    steps = int(window.max()) + 1
    big = gap > BIG * float(np.median(greatest(window, steps, ops.end_ns) - least(window, steps, ops.start_ns)))
    if big.sum() < LEAST_STEPS:
        return none, none
    asked = np.zeros(int(ops.name.max()) + 1, dtype=bool)
    asked[ops.name[big]] = True
    every = np.flatnonzero(asked[ops.name] & (before >= 0))
    every = every[np.argsort(ops.name[every], kind="stable")]
    source, target, left = [], [], big & (before >= 0)
    for rows in np.split(every, np.flatnonzero(np.diff(ops.name[every])) + 1):
        nth = occurrence(ops.step[rows], ops.rank[rows])
        instance, count = numbered(ops.step[rows], nth)
        if count < LEAST_STEPS or count * len(members) > SPARSE * len(rows) + (1 << 20):
            continue
        column = np.searchsorted(members.rank, ops.rank[rows])
        table = np.full((count, len(members)), -1, dtype=np.int64)
        table[instance, column] = rows
        for rank in np.unique(column[big[rows]]):
            mine = table[:, rank]  # the op of this rank in every instance of the class
            mine = np.flatnonzero((mine >= 0) & big[mine])
            group = _explaining_group(ops, before, gap, table, mine, int(rank), members)
            left[table[mine, rank]] &= group is None
            for other in [] if group is None else group:
                both = table[:, rank][mine], table[:, other][mine]
                present = both[1] >= 0
                source.append(before[both[1][present]])
                target.append(both[0][present])
    received, waited = _waited_for_receipt(ops, gate, before, gap, np.flatnonzero(left))
    found, woken = np.concatenate([*source, received]), np.concatenate([*target, waited])
    return found[found >= 0], woken[found >= 0]


def _waited_for_receipt(ops: Table, gate: Indices, before: Indices, gap: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """(receive, op) of gaps that end as a message is received which was under way: those before a class, or all of a rank."""
    receipt = _receipts(ops, gate, rows)
    rows = rows[(receipt[rows] >= 0) & (ops.end_ns[receipt[rows]] > ops.end_ns[before[rows]])]
    after = ops.start_ns[rows] - ops.end_ns[receipt[rows]]
    then = (after <= LEFT * gap[rows]) & (after >= -MOMENT * gap[rows])
    waits = np.zeros(len(rows), dtype=bool)
    for kind, count in (numbered(ops.rank[rows], ops.name[rows]), numbered(ops.rank[rows])):
        left = ~waits
        size = np.bincount(kind[left], minlength=count)
        agree = np.bincount(kind[left & then], minlength=count)
        waits |= left & ((size >= LEAST_STEPS) & (agree >= AGREES * size))[kind]
    waits &= after >= 0  # an edge that its own times contradict would be dropped
    return receipt[rows[waits]], rows[waits]


def _receipts(ops: Table, gate: Indices, asked: Ints) -> Ints:
    """Per op: the receive that ended last of those of what its rank had sent before in the step; -1 for none, and not asked."""
    out = np.full(len(ops), -1, dtype=np.int64)
    met = np.flatnonzero(gate >= 0)
    sent, received = (met[ops.verb[met] == verb] for verb in (Verb.SEND, Verb.RECV))
    if not len(sent) or not len(received):
        return out
    by_gate = np.full(int(gate.max()) + 1, -1, dtype=np.int64)
    by_gate[gate[received]] = received
    sent = sent[by_gate[gate[sent]] >= 0]
    ends = by_gate[gate[sent]]
    ends, sent = ends[np.argsort(ops.end_ns[ends], kind="stable")], sent[np.argsort(ops.end_ns[ends], kind="stable")]
    every = np.concatenate([sent, asked])
    cell, _ = numbered(ops.rank[every], ops.step[every])
    # The last receipt so far, cell by cell: numbers of a later cell are above those of all before.
    turn = np.append(np.arange(1, len(sent) + 1), np.zeros(len(asked), dtype=np.int64))
    order = np.lexsort((ops.start_ns[every], cell))
    last = np.maximum.accumulate((cell * (len(sent) + 1) + turn)[order]) % (len(sent) + 1)
    wanted = order >= len(sent)
    out[every[order[wanted]]] = np.append(-1, ends)[last[wanted]]
    return out


def _explaining_group(
    ops: Table, before: Indices, gap: Ints, table: Ints, mine: Ints, rank: int, members: Table
) -> Ints | None:
    """The smallest group of other ranks whose last arrival ends this rank's gaps, or None."""
    if len(mine) < LEAST_STEPS:
        return None
    ops_mine = table[mine, rank]
    for key in (members.dp_rank, members.stage, np.zeros(len(members))):
        group = np.flatnonzero((key == key[rank]) & (np.arange(len(members)) != rank))
        if len(group) == 0 or key[rank] < 0:
            continue
        theirs = table[np.ix_(mine, group)]
        # When the last of them had finished the op before; absent ones do not count.
        ready = np.where(theirs >= 0, ops.end_ns[before[theirs]], np.iinfo(np.int64).min).max(axis=1)
        left = ops.start_ns[ops_mine] - ready
        if ((left >= -1000) & (left <= LEFT * gap[ops_mine])).mean() >= AGREES:
            return group
    return None
