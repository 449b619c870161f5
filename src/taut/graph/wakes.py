"""Why a lane woke: what ended just then on another lane of its rank, and what therefore it follows in every step.

A trace does not record what one lane waits for on another (stream-wait events, futures). It shows where the lane was idle
before an op: the op begins when what it needed ends. Communication wakes compute and the other way round; the same kind
wakes the same kind only where nothing else explains the start (a replicated all-reduce after its reduce-scatter) and the
same two classes meet that way step after step, because busy lanes of one kind end close together by chance.

A lane that is busy until the op begins shows nothing: while a rank waits at a gate, the buckets behind it queue up, and a
replay in which the gate opens earlier would start them before their gradients exist. So what wakes a class where its lane
was idle is learned, over all ranks of a role, and holds in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import in_groups, numbered
from taut.core.tables import Kind, Table, constant

if TYPE_CHECKING:
    from taut.graph.link import Lanes

IDLE_NS = 20_000
"""A lane idle for longer than this asks for an explanation; what ended within this of a start explains it."""
USUAL = 0.5
"""Share of a class's idle starts, of those that no commoner cause explains, which the same cause must explain."""
LEAST_STEPS = 3
"""Steps in which that must be seen: inside one step, gates let all ranks show the same coincidence."""
HOLDS = 0.95
"""Share of a class's ops that must begin after the cause ended, idle or not."""


class Wakes(Struct, frozen=True):
    """Edges (source, target) of two kinds: seen at an idle lane, and learned from other steps and ranks."""

    source: Ints
    target: Ints
    learned_source: Ints
    learned_target: Ints


def edges(ops: Table, lanes: Lanes, window: Indices, roles: Indices, timer_ns: int) -> Wakes:
    """What woke idle lanes, and the same where the lane was busy; nothing for ranks of one lane."""
    from taut.graph.sweeps import idle_causes

    none = np.zeros(0, dtype=np.int64)
    count = int(ops.lane.max()) + 1
    if count == 1:
        return Wakes(none, none, none, none)
    order, cuts = in_groups(lanes.rank, lanes.ranks, ops.start_ns, ops.end_ns)
    lane, start, end, kind = (a[order] for a in (ops.lane, ops.start_ns, ops.end_ns, ops.kind))
    cause, woken, kin, kin_woken = (
        order[a].astype(np.int64) for a in idle_causes(lane, start, end, kind, cuts, count, IDLE_NS)
    )
    seen = _evidence(ops, window, cause, woken, kin, kin_woken)
    if len(seen[0]) == 0:
        return Wakes(cause, woken, none, none)
    cell, cells = numbered(ops.rank, window)
    cls, classes = _classes(ops, roles, cell, cells)
    causes = _usual_causes(cls, classes, window, *seen, _idle(ops, lanes))
    source, target = _learned_edges(ops, cls, cell, cells, causes, timer_ns)
    # An edge that was learned is not added twice, and a distant guess gives way to a learned cause that explains the start.
    learned = np.zeros(len(ops), dtype=bool)
    learned[target[np.abs(ops.start_ns[target] - ops.end_ns[source]) <= IDLE_NS]] = True
    again = np.isin(cause * len(ops) + woken, source * len(ops) + target)
    keep = ~again & ~(learned[woken] & (ops.kind[woken] == Kind.COMMUNICATE))
    return Wakes(cause[keep], woken[keep], source, target)


def _launched(ops: Table, rows: Ints) -> Mask:
    """True for ops that begin as soon as they are issued: their launch says all."""
    launch = ops.launch[rows]
    return (launch >= 0) & (ops.start_ns[rows] - ops.end_ns[np.maximum(launch, 0)] <= IDLE_NS)


def _idle(ops: Table, lanes: Lanes) -> Ints:
    """Ops before which their lane was idle: the cases from which a class learns."""
    order: Indices = lanes.order
    rows = order[1:]
    quiet = ~lanes.begins[1:] & ~lanes.sibling[1:] & (ops.start_ns[rows] - ops.end_ns[order[:-1]] > IDLE_NS)
    rows = np.concatenate([order[lanes.begins], rows[quiet]]).astype(np.int64)
    return rows if constant(ops.launch) else rows[~_launched(ops, rows)]


def _evidence(ops: Table, window: Indices, cause: Ints, woken: Ints, kin: Ints, kin_woken: Ints) -> tuple[Ints, Ints]:
    """At most one cause for each idle start, of the same step, that ended just then: (cause, woken)."""
    nearest = np.ones(len(woken), dtype=bool)
    nearest[1:] = woken[1:] != woken[:-1]
    source, target = np.concatenate([cause[nearest], kin]), np.concatenate([woken[nearest], kin_woken])
    tight = (np.abs(ops.start_ns[target] - ops.end_ns[source]) <= IDLE_NS) & (window[source] == window[target])
    if not constant(ops.launch):
        tight &= ~_launched(ops, target)
    return source[tight], target[tight]


def _classes(ops: Table, roles: Indices, cell: Ints, cells: int) -> tuple[Ints, int]:
    """The same op of every rank of a role and every step: name, size, and its turn among those of its rank and step."""
    from taut.core.group_kernels import turn

    family, families = numbered(ops.name, ops.size)
    nth, _ = turn(*numbered(cell, family)) if families > 1 else turn(cell, cells)
    return numbered(roles, family, nth)


def _usual_causes(cls: Ints, classes: int, window: Indices, source: Ints, target: Ints, idle: Ints) -> Ints:
    """Causes × classes: the classes whose end usually begins a class, the commonest first, -1 for none."""
    pair, pairs = numbered(cls[target], cls[source])
    windows = int(window.max()) + 1
    steps = np.bincount(np.unique(pair * windows + window[target]) // windows, minlength=pairs)
    cases = np.bincount(pair, minlength=pairs)
    woken, by = np.zeros((2, pairs), dtype=np.int64)
    woken[pair], by[pair] = cls[target], cls[source]
    order = np.lexsort((-cases, woken))
    woken, by, cases, steps = woken[order], by[order], cases[order], steps[order]
    first = np.searchsorted(woken, woken)
    before = np.cumsum(cases) - cases
    # Causes of a class from the commonest on, as long as each explains USUAL of what the commoner ones left over.
    left = np.bincount(cls[idle], minlength=classes)[woken] - (before - before[first])
    fails = (cases < USUAL * left) | (steps < LEAST_STEPS)
    failed = np.cumsum(fails)  # a cause counts only if none before it in its class failed
    good = np.equal(failed, (failed - fails)[first])
    nth = np.arange(pairs) - first
    causes = np.full((int(nth[good].max(initial=0)) + 1, classes), -1, dtype=np.int64)
    causes[nth[good], woken[good]] = by[good]
    return causes


def _learned_edges(ops: Table, cls: Ints, cell: Ints, cells: int, causes: Ints, timer_ns: int) -> tuple[Ints, Ints]:
    """Edges from every learned cause to the op of its rank and step, where the cause had ended; none if it often had not."""
    is_cause = np.zeros(causes.shape[1], dtype=bool)
    is_cause[causes[causes >= 0]] = True
    rows = np.flatnonzero(is_cause[cls])
    key = cls[rows] * cells + cell[rows]
    order = np.argsort(key)
    rows, key = rows[order], key[order]
    sources, targets = [rows[:0]], [rows[:0]]
    for cause in causes if len(rows) else ():
        target = np.flatnonzero(cause[cls] >= 0)
        wanted = cause[cls[target]] * cells + cell[target]
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        there = key[at] == wanted
        source, target = rows[at[there]], target[there]
        ended = (ops.end_ns[source] <= ops.start_ns[target] + timer_ns) & (ops.start_ns[source] < ops.start_ns[target])
        total = np.bincount(cls[target], minlength=len(cause))
        holds = np.bincount(cls[target[ended]], minlength=len(cause)) >= HOLDS * total
        ended &= holds[cls[target]]
        sources.append(source[ended])
        targets.append(target[ended])
    return np.concatenate(sources), np.concatenate(targets)
