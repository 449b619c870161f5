"""Policies of which a measured graph tells a range: what is saved at least, and what if all goes well.

Backup workers: from finishing what comes too late to abandoning it when the others meet; by the sample, because the batch is
smaller by what is dropped. Overlap: nothing, to all of the data-parallel transfer that fits under compute. Deal by speed: from
whole micro-batches to any share of the work, with speeds taken from the other half of the run.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.tables import NULL, Kind
from taut.graph import Graph
from taut.replay.engine import sweep
from taut.replay.exact_policies import NEVER, NOTHING, Measured, Outcome, apart, windows, with_slots
from taut.replay.timeline import window_times

LEAST_STEPS = 4
"""Fewer steps tell no speeds."""


def own_times(job: Measured) -> Floats:
    """How long each replica takes for each step by itself: windows × replicas, ns."""
    free = apart(job, np.ones(len(job.window_ns), dtype=bool))
    _, end, _, _ = sweep(*free.program(free.join, free.wait), free.slots, free.work_ns, free.gap_ns)
    done = np.zeros(len(free.steps) * job.met.units, dtype=np.int64)
    np.maximum.at(done, free.window.astype(np.int64) * job.met.units + job.met.unit[job.graph.rank_index], end)
    return window_times(free, done.reshape(len(free.steps), -1)).astype(np.float64)


def backup_workers(job: Measured, backups: int) -> Outcome:
    """The slowest so many replicas are not waited for, and what they did is dropped; walls are for as many samples."""
    units = job.met.units
    if job.met.refused or backups >= units:
        return NOTHING
    own, price = own_times(job), units / (units - backups)
    slowest = np.zeros(own.shape, dtype=bool)
    np.put_along_axis(slowest, np.argsort(-own, axis=1, kind="stable")[:, :backups], True, axis=1)
    abandoned = (windows(_abandoned(job, slowest)) * price).astype(np.float64)
    # Of sampled steps nobody knows what a late replica holds up next: at worst no time is saved.
    finished = _finished(job, _late(job, own, backups)) if job.consecutive else job.window_ns.astype(np.float64)
    return Outcome(
        without_ns=job.window_ns.astype(np.float64),
        with_ns=np.maximum(finished * price, abandoned),
        most_ns=abandoned,
        blocks=float(len(own)),
    )


def _dropped(job: Measured, dropped: Mask) -> Mask:
    """Per op: whether its replica is dropped in its window."""
    return np.asarray(dropped[job.graph.window, job.met.unit[job.graph.rank_index]])


def _abandoned(job: Measured, dropped: Mask) -> Graph:
    """Dropped replicas stop when the others meet, and go on with them: what they did until then takes no time."""
    g, out = job.graph, _dropped(job, dropped)
    cell = g.rank_step
    last = np.full(len(g.ranks) * len(g.steps), NULL, dtype=np.int64)
    mine = np.flatnonzero(job.at >= 0)
    last[cell[mine]] = mine  # ops are in the order of their arrival
    before = out & (np.arange(len(g)) < last[cell])
    meets = out & (job.at >= 0)
    join = np.where(meets, NULL, g.join).astype(np.int64)
    work, gap = (np.where(before & ~meets, 0, column) for column in (g.work_ns, g.gap_ns))
    return _checked(replace(g, work_ns=work, gap_ns=gap, lag_ns=_unheard(job, out)), join, g.wait.astype(np.int64))


def _late(job: Measured, own: Floats, backups: int) -> Mask:
    """Which replicas come too late to each meeting if everybody finishes its step before the next."""
    out = np.zeros(own.shape, dtype=bool)
    now = np.zeros(own.shape[1])
    for w in range(len(own)):
        now = (now if job.place[w] else np.zeros_like(now)) + own[w]
        order = np.argsort(now, kind="stable")
        out[w, order[len(order) - backups :]] = True
        now = np.maximum(now, now[order[len(order) - backups - 1]])
    return out


def _finished(job: Measured, dropped: Mask) -> Floats:
    """Window lengths if dropped replicas finish their steps, and come late to the next ones; a step ends with the others."""
    g, out = job.graph, _dropped(job, dropped)
    meets = out & (job.at >= 0)
    join, wait = (np.where(meets, NULL, column).astype(np.int64) for column in (g.join, g.wait))
    changed = _checked(replace(g, lag_ns=_unheard(job, out)), join, wait)
    _, end, _, _ = sweep(*changed.program(changed.join, changed.wait), changed.slots, changed.work_ns, changed.gap_ns)
    done = np.zeros(len(g.steps), dtype=np.int64)
    np.maximum.at(done, g.window[~out], end[~out])
    return window_times(g, done).astype(np.float64)


def _unheard(job: Measured, out: Mask) -> Ints:
    """Lags of the edges, where nobody waits for these ops of other replicas."""
    lag = job.graph.lag_ns.copy()
    lag[job.between[out[job.graph.pred[job.between]]]] = NEVER
    return lag


def _checked(graph: Graph, join: Ints, wait: Ints) -> Graph:
    """The graph with these slots; nobody waits at a slot that nobody joins."""
    joined = np.zeros(graph.slots + 1, dtype=bool)
    joined[join[join >= 0]] = True
    return with_slots(graph, join, np.where(joined[wait], wait, NULL), graph.slots)


def overlap(job: Measured, share: float) -> Outcome:
    """At most: data-parallel transfers hide under this share of the compute of their rank and step. At least: nothing."""
    if job.met.refused:
        return NOTHING
    g, mine = job.graph, job.at >= 0
    cell, cells = g.rank_step, len(g.ranks) * len(g.steps)
    moved, computed = (
        np.bincount(cell, weights=g.work_ns * some, minlength=cells) for some in (mine, g.ops.kind == Kind.COMPUTE)
    )
    hidden = np.minimum(1.0, share * computed / np.maximum(moved, 1.0))[cell]
    work = np.where(mine, np.rint(g.work_ns * (1 - hidden)), g.work_ns).astype(np.int64)
    without = job.window_ns.astype(np.float64)
    return Outcome(
        without_ns=without,
        with_ns=without,
        most_ns=windows(replace(g, work_ns=work)).astype(np.float64),
        blocks=float(len(without)),
    )


def deal_by_speed(job: Measured) -> Outcome:
    """Replicas that are unequal for good get work by their speed; work is linear in micro-batches."""
    g, count = job.graph, len(job.window_ns)
    if job.met.refused or count < LEAST_STEPS:
        return NOTHING
    own, computed = own_times(job), _compute(job)
    half = (np.arange(count) >= count // 2).astype(np.int64)
    # Speeds come from the other half: what was slower by chance there is not slower here.
    shares = np.stack([_dealt(own[half != h].mean(axis=0), computed[half != h].mean(axis=0)) for h in (0, 1)])
    without = job.window_ns.astype(np.float64)
    most = windows(replace(g, work_ns=_scaled(job, shares[half])))
    parts = int(g.ops.part.max(initial=-1)) + 1
    sure = windows(replace(g, work_ns=_scaled(job, _whole(shares, parts)[half]))) if parts > 1 else without
    return Outcome(
        without_ns=without,
        with_ns=np.maximum(sure, most).astype(np.float64),
        most_ns=most.astype(np.float64),
        blocks=float(count),
    )


def _compute(job: Measured) -> Floats:
    """Compute of each replica's busiest rank: windows × replicas, ns."""
    g = job.graph
    cell = g.window * len(g.ranks) + g.rank_index
    of_rank = np.bincount(cell, weights=g.work_ns * (g.ops.kind == Kind.COMPUTE), minlength=len(g.steps) * len(g.ranks))
    out = np.zeros((len(g.steps), job.met.units))
    for rank, unit in enumerate(job.met.unit.tolist()):
        out[:, unit] = np.maximum(out[:, unit], of_rank.reshape(len(g.steps), -1)[:, rank])
    return out


def _dealt(own: Floats, computed: Floats) -> Floats:
    """How many times its work each replica gets so that all take equally long: rest + share × compute, shares 1 on average."""
    if not (computed > 0).all():
        return np.ones(len(own))
    rest = np.maximum(own - computed, 0.0)
    level = (len(own) + (rest / computed).sum()) / (1 / computed).sum()
    share: Floats = np.maximum((level - rest) / computed, 0.0)
    return np.asarray(share * (len(own) / share.sum()))


def _whole(shares: Floats, parts: int) -> Floats:
    """Shares in whole micro-batches of a replica's usual number: largest remainders."""
    wanted = shares * parts
    out = np.floor(wanted)
    for row, want in zip(out, wanted, strict=True):
        missing = round(want.sum() - row.sum())
        row[np.argsort(row - want, kind="stable")[:missing]] += 1
    return np.asarray(out / parts)


def _scaled(job: Measured, shares: Floats) -> Ints:
    """Work of every op if compute is dealt so; shares are windows × replicas."""
    g = job.graph
    share = shares[g.window, job.met.unit[g.rank_index]]
    return np.where(g.ops.kind == Kind.COMPUTE, np.rint(g.work_ns * share), g.work_ns).astype(np.int64)
