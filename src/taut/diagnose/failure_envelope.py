"""The failure envelope: where a job sits on scale × heterogeneity × synchronisation intensity, and what dominates around.

Nothing is drawn: at every point of the map this graph is replayed with more ranks at each full rendezvous, with its ranks
more or less unequal, and with each rendezvous divided into several. Losses come off one after the other (findings mended,
every op at reference, gaps out, transfers out, ranks even), so that they sum to the whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, weighed
from taut.core.interval import LEVEL, drawn, estimate
from taut.core.tables import Kind
from taut.diagnose.finding import Finding
from taut.diagnose.job_regime import mended
from taut.diagnose.more_ranks import Meetings, latest, meetings
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.exposed import copies
from taut.replay.mixtures import grid
from taut.replay.timeline import Batch
from taut.result.types import Envelope, EnvelopeCell, EnvelopePoint, Estimate

RANKS = (1.0, 4.0, 16.0)
"""Times as many ranks at each full rendezvous."""
HETEROGENEITY = (0.5, 1.0, 2.0, 4.0)
"""Times as far as ranks differ for good."""
INTENSITY = (1.0, 2.0, 4.0)
"""Gates for one: each has its share of the transfer and of the work before it, and the latency of the quickest of all."""
LOSSES = ("fault wait", "jitter wait", "gap", "transfer", "structural wait")
"""What can dominate, in the order in which it comes off."""
LEAST_STEPS, LEAST_RANKS = 4, 3
"""Fewer steps, or fewer ranks of one role, tell no envelope."""


def envelope(batch: Batch, blame: Blame, findings: Sequence[Finding]) -> Envelope | None:
    """The job's point and the map around it; None where the input is too small to tell."""
    g = batch.graph
    met = meetings(g) if len(g.steps) >= LEAST_STEPS else None
    if met is None:
        return None
    usual, work, gap = mended(g, blame, findings)
    own = (~np.isin(g.ops.kind, (Kind.COMMUNICATE, Kind.SYNCHRONISE)) | copies(g)) & (g.gate < 0)
    spread = _heterogeneity(g, np.where(own, work, 0))
    if spread is None:
        return None
    members = np.bincount(g.window[g.gate >= 0], minlength=len(g.steps)) / len(g.ranks)
    intensity = estimate(lambda s: members[s].mean(axis=-1), len(members))
    if intensity is None:
        return None
    ranks, value = len(g.ranks), spread.value
    where = [(c, h, i) for c in RANKS for h in HETEROGENEITY for i in INTENSITY]
    losses, shares = _losses(batch, met, own, (usual, work, gap), where)
    cells = [
        EnvelopeCell(
            ranks=round(ranks * c),
            heterogeneity=value * h,
            intensity=float(members.mean()) * i,
            dominates=LOSSES[int(np.argmax(loss))] if loss.max() > 0 else None,
            loss_share=float(share),
        )
        for (c, h, i), loss, share in zip(where, losses, shares, strict=True)
    ]
    point = EnvelopePoint(ranks=Estimate(value=ranks, lo=ranks, hi=ranks), heterogeneity=spread, intensity=intensity)
    return Envelope(point=point, map=cells)


def _losses(
    batch: Batch, met: Meetings, own: Mask, mended_ns: tuple[Ints, Ints, Ints], where: list[tuple[float, float, float]]
) -> tuple[Floats, Floats]:
    """(points × losses in ns over the run, share of the wall that all of them take)."""
    g, (usual, work, gap) = batch.graph, mended_ns
    unequal = np.where(own, _for_good(g, work) - usual, 0.0)
    within = work - usual - unequal
    quickest = np.zeros(len(g))
    quickest[met.rows] = max(int(usual[met.rows].min()), 0)
    #          0: own work      1: transfers                2: gaps 3: within 4: unequal 5: faults          6: latency
    before = [None, None, gap, None, None, g.gap_ns - gap, None]
    after = [np.where(own, usual, 0), np.where(own, 0, usual), None, within, unequal, g.work_ns - work, quickest]
    prepared = grid(batch, before, after)
    at = np.searchsorted(batch.short.ops, met.rows)
    # Lateness depends on how unequal ranks are: arrivals are replayed once for each factor.
    spreads = (0.0, *HETEROGENEITY)
    tried = np.zeros((len(after), len(spreads) + 1))
    tried[:3] = 1.0
    tried[3, 1:] = 1.0
    tried[4, 1:] = spreads
    came = prepared.arrivals(tried)[at]
    lateness = [latest(met, came[:, 1 + n] - came[:, 0], RANKS) for n in range(len(spreads))]
    late = np.zeros((len(spreads) * len(RANKS), len(g)))
    for n, found in enumerate(lateness):
        late[n * len(RANKS) : (n + 1) * len(RANKS), met.rows] = found.T
    share = _columns(where, spreads, len(after), len(late))
    walls = prepared.with_after(*late).walls(share).sum(axis=0).reshape(5, len(where))
    even = np.minimum(_even(g, np.where(own, usual, 0)), walls[4])
    return -np.diff(np.concatenate([walls, even[None]]), axis=0).T, 1 - even / np.maximum(walls[0], 1.0)


def _columns(where: list[tuple[float, float, float]], spreads: tuple[float, ...], parts: int, lates: int) -> Floats:
    """Shares of the ingredients: for every point as it would be, then with each of the first four losses taken off."""
    share = np.zeros((parts + lates, 5, len(where)))
    share[0] = 1.0
    share[1, :4] = 1.0
    share[2, :3] = 1.0
    share[3, :2] = 1.0
    share[5, 0] = 1.0
    for n, (c, h, i) in enumerate(where):
        k, row = RANKS.index(c), parts + spreads.index(h) * len(RANKS)
        share[4, :2, n] = h
        share[6, :4, n] = i - 1
        # More ranks: the last of c times as many instead of the last of these. More gates: jitter within ranks, which
        # one gate would have averaged, is paid i times over a 1/√i of it each; what ranks differ by for good is not.
        share[row + k, :2, n] += 1.0
        share[row, :2, n] -= 1.0
        share[parts + k, :2, n] += np.sqrt(i) - 1
    return share.reshape(parts + lates, -1)


def _for_good(graph: Graph, work: Ints) -> Floats:
    """Median work of the same op on the same rank over the run, ns."""
    from taut.core.group_kernels import group_sort
    from taut.replay.wait_kernels import describe_cells

    cell, cells = numbered(graph.ops.rank, graph.ops.name, graph.ops.size, graph.place)
    order, begin = group_sort(cell, cells)
    return describe_cells(work, order, begin)[0][cell]


def _even(graph: Graph, own: Ints) -> float:
    """The run if all ranks had the same work: per window the busiest lane of each rank, mean over ranks, ns."""
    lanes, windows = int(graph.ops.lane.max()) + 1, len(graph.steps)
    key = (graph.rank_index * lanes + graph.ops.lane) * windows + graph.window
    busy = weighed(key, own, len(graph.ranks) * lanes * windows)
    return float(busy.reshape(len(graph.ranks), lanes, windows).max(axis=1).mean(axis=0).sum())


def _heterogeneity(graph: Graph, own: Ints) -> Estimate | None:
    """Robust coefficient of variation of ranks' work within a class (role and name), weighted by work, with its interval."""
    names, windows = len(graph.names), len(graph.steps)
    key = (graph.rank_index * names + graph.ops.name) * windows + graph.window
    table = weighed(key, own, len(graph.ranks) * names * windows).reshape(len(graph.ranks), names, windows)
    role = np.zeros(len(graph.ranks), dtype=np.int64)
    role[graph.rank_index] = graph.roles
    groups = [table[role == r] for r in np.unique(role) if (role == r).sum() >= LEAST_RANKS]
    if not groups:
        return None
    value = _variation([group.mean(axis=2) for group in groups])
    weights = (np.bincount(steps, minlength=windows) / windows for steps in drawn(windows))
    again = [_variation([group @ weight for group in groups]) for weight in weights]
    if not np.isfinite(value):
        return None
    low, high = np.nanquantile(again, LEVEL)
    return Estimate(value=value, lo=min(float(low), value), hi=max(float(high), value))


def _variation(groups: list[Floats]) -> float:
    """1.4826 · MAD ÷ median over the ranks (rows) of each class (column), weighted by the medians; NaN without work."""
    apart = weight = 0.0
    for group in groups:
        middle = np.median(group, axis=0)
        # 1.4826 turns a median absolute deviation into the standard deviation of a normal distribution.
        apart += len(group) * float(1.4826 * np.median(np.abs(group - middle), axis=0).sum())
        weight += len(group) * float(middle.sum())
    return apart / weight if weight > 0 else float("nan")
