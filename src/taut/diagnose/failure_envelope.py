"""The failure envelope: where a job sits on scale × heterogeneity × synchronisation intensity, and what dominates around.

Nothing is drawn: at every point of the map this graph is replayed with more ranks at each full rendezvous, with its ranks
more or less unequal, and with each rendezvous divided into several. Losses come off one after the other (findings mended,
jitter out, ranks as their references, host and gaps out, transfers out, ranks even), so that they sum to the whole. Each is
the signature of a failure mode; steps drawn again tell the interval of its share, and whether another is as large.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import weighed
from taut.core.interval import LEVEL, drawn, estimate
from taut.core.reporting import LISTED_SHARE
from taut.core.tables import Kind
from taut.diagnose.finding import Finding
from taut.diagnose.job_regime import mended
from taut.diagnose.more_ranks import Meetings, latest, meetings
from taut.diagnose.rank_residuals import own_ops, usual_of_rank
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.mixtures import grid
from taut.replay.timeline import Batch
from taut.result.types import Envelope, EnvelopeCell, EnvelopePoint, Estimate

RANKS = (1.0, 4.0, 16.0)
"""Times as many ranks at each full rendezvous."""
HETEROGENEITY = (0.5, 1.0, 2.0, 4.0)
"""Times as far as ranks differ for good."""
INTENSITY = (1.0, 2.0, 4.0)
"""Gates for one: each has its share of the transfer and of the work before it, and the latency of the quickest of all."""
LOSSES = ("fault wait", "jitter wait", "structural wait", "gap", "transfer", "structural wait")
"""What can dominate, in the order in which it comes off; ranks unequal for good and what the schedule leaves are one."""
OVERLAP = 0.8
"""A failure mode that takes at least this share of what the largest takes dominates with it."""
LEAST_STEPS, LEAST_RANKS = 4, 3
"""Fewer steps, or fewer ranks of one role, tell no envelope."""
Place = tuple[float, float, float]
"""Factors of ranks, heterogeneity and intensity."""


def envelope(batch: Batch, blame: Blame, findings: Sequence[Finding]) -> Envelope | None:
    """The job's point and the map around it; None where the input is too small to tell."""
    g = batch.graph
    met = meetings(g) if len(g.steps) >= LEAST_STEPS else None
    if met is None:
        return None
    usual, work, gap = mended(g, blame, findings)
    own = own_ops(g)
    spread = _heterogeneity(g, np.where(own, work, 0))
    if spread is None:
        return None
    members = np.bincount(g.window[g.gate >= 0], minlength=len(g.steps)) / len(g.ranks)
    intensity = estimate(lambda s: members[s].mean(axis=-1), len(members))
    if intensity is None:
        return None
    ranks, modes = len(g.ranks), _modes(g, own, findings)
    where = [(c, h, i) for c in RANKS for h in HETEROGENEITY for i in INTENSITY]
    losses, walls = _losses(batch, met, own, (usual, work, gap), where)
    cells = [
        replace(
            _cell(losses[:, :, n], walls[:, n], modes),
            ranks=round(ranks * c),
            heterogeneity=spread.value * h,
            intensity=float(members.mean()) * i,
        )
        for n, (c, h, i) in enumerate(where)
    ]
    point = EnvelopePoint(ranks=Estimate(value=ranks, lo=ranks, hi=ranks), heterogeneity=spread, intensity=intensity)
    return Envelope(point=point, map=cells)


def _modes(graph: Graph, own: Mask, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The failure mode that each of LOSSES is the signature of, in this job."""
    fault = next((finding.mode for finding in findings if finding.changes), "straggler cascade")
    names = np.array([1 if name.startswith("input: ") else 2 if name == "checkpoint" else 0 for name in graph.names])
    host = own & (graph.ops.kind == Kind.COORDINATE)
    spent = weighed(names[graph.ops.name], np.where(host, graph.work_ns, 0) + graph.gap_ns, 3)
    stall = ("host stall", "input stall", "checkpoint stall")[int(np.argmax(spent))]
    return fault, "structural instability", "work imbalance", stall, "exposed transfer", "work imbalance"


def _cell(losses: Floats, walls: Floats, modes: tuple[str, ...]) -> EnvelopeCell:
    """What dominates at a point, from its losses (draws × losses) and walls; the first draw is the run as it is."""
    by_fate = {fate: losses[0, [n for n, one in enumerate(LOSSES) if one == fate]].sum() for fate in LOSSES}
    whole = np.maximum(walls, 1.0)
    share = {
        mode: losses[:, [n for n, one in enumerate(modes) if one == mode]].sum(axis=1) / whole for mode in dict.fromkeys(modes)
    }
    order = sorted(share, key=lambda mode: -share[mode][0])
    largest = max(by_fate, key=lambda fate: by_fate[fate])
    return EnvelopeCell(
        ranks=0,
        heterogeneity=0.0,
        intensity=0.0,
        dominates=largest if by_fate[largest] > 0 else None,
        loss_share=float(losses[0].sum() / whole[0]),
        modes=[mode for mode in order if _dominates(share[mode], share[order[0]])],
        losses={mode: _estimate(share[mode]) for mode in order if share[mode][0] > 0},
    )


def _dominates(one: Floats, largest: Floats) -> bool:
    """Whether a mode is worth listing and takes nearly as much as the largest, or as much as far as these steps tell."""
    near = one[0] >= OVERLAP * largest[0] or float(np.quantile((largest - one)[1:], LEVEL[0])) <= 0
    return bool(one[0] >= LISTED_SHARE and near)


def _estimate(share: Floats) -> Estimate:
    low, high = np.quantile(share[1:], LEVEL)
    return Estimate(value=float(share[0]), lo=min(float(low), float(share[0])), hi=max(float(high), float(share[0])))


def _losses(
    batch: Batch, met: Meetings, own: Mask, mended_ns: tuple[Ints, Ints, Ints], where: list[Place]
) -> tuple[Floats, Floats]:
    """Draws × losses × points, ns over the run, and draws × points the wall; the first draw is the run as it is."""
    g, (usual, work, gap) = batch.graph, mended_ns
    unequal = np.where(own, usual_of_rank(g, work) - usual, 0.0)
    within = work - usual - unequal
    host = own & (g.ops.kind == Kind.COORDINATE)
    busy = np.where(own & ~host, usual, 0)
    quickest = np.zeros(len(g))
    quickest[met.rows] = max(int(usual[met.rows].min()), 0)
    #         0: own work  1: transfers            2: host and gaps            3: within 4: unequal 5: faults     6: latency
    before = [None, None, gap, None, None, g.gap_ns - gap, None]
    after = [busy, np.where(own, 0, usual), np.where(host, usual, 0), within, unequal, g.work_ns - work, quickest]
    prepared = grid(batch, before, after)
    at = np.searchsorted(batch.short.ops, met.rows)
    # Lateness depends on how unequal ranks are: arrivals are replayed once for each factor, with jitter and without.
    spreads = (0.0, *HETEROGENEITY)
    tried = np.zeros((len(after), 1 + len(spreads) + len(HETEROGENEITY)))
    tried[:3] = 1.0
    tried[3, 1 : 1 + len(spreads)] = 1.0
    tried[4, 1:] = (*spreads, *HETEROGENEITY)
    came = prepared.arrivals(tried)[at]
    late = [latest(met, came[:, n] - came[:, 0], RANKS) for n in range(1, tried.shape[1])]
    # One ingredient for each scale of the jitter alone, then what more ranks add at each factor, with jitter and without.
    added = [late[0][:, k] for k in range(len(RANKS))]
    added += [some[:, k] - some[:, 0] for some in late[1:] for k in range(1, len(RANKS))]
    more = np.zeros((len(added), len(batch.short.ops)))
    more[:, at] = added
    share = _columns(where, len(after), len(added))
    walls = prepared.with_after(*more).walls(share)
    steps = np.concatenate([np.arange(len(g.steps))[None], drawn(len(g.steps))])
    weight = np.stack([np.bincount(some, minlength=len(g.steps)) for some in steps]).astype(np.float64)
    total = (weight @ walls).reshape(len(weight), len(LOSSES), len(where))
    even = np.minimum((weight @ _even(g, busy))[:, None], total[:, -1])
    return -np.diff(np.concatenate([total, even[:, None]], axis=1), axis=1), total[:, 0]


def _columns(where: list[Place], parts: int, lates: int) -> Floats:
    """Shares of the ingredients: for every point as it would be, then with each loss but the last taken off."""
    share = np.zeros((parts + lates, len(LOSSES), len(where)))
    share[0] = 1.0
    share[1, :5] = 1.0
    share[2, :4] = 1.0
    share[3, :2] = 1.0
    share[5, 0] = 1.0
    for n, (c, h, i) in enumerate(where):
        k, spread = RANKS.index(c), HETEROGENEITY.index(h)
        share[4, :3, n] = h
        share[6, :5, n] = i - 1
        # More gates: jitter within ranks, which one gate would have averaged, is paid i times over a 1/√i of it each; what
        # ranks differ by for good is not.
        share[parts + k, :2, n] += np.sqrt(i) - 1
        if k:  # more ranks: the last of c times as many instead of the last of these
            each = len(RANKS) - 1
            row = parts + len(RANKS) + spread * each + k - 1
            share[row, :2, n] += 1.0
            share[row + len(HETEROGENEITY) * each, 2, n] += 1.0
    return share.reshape(parts + lates, -1)


def _even(graph: Graph, own: Ints) -> Floats:
    """Windows if all ranks had the same work: the busiest lane of each rank, mean over ranks, ns."""
    lanes, windows = int(graph.ops.lane.max()) + 1, len(graph.steps)
    key = (graph.rank_index.astype(np.int64) * lanes + graph.ops.lane) * windows + graph.window
    busy = weighed(key, own, len(graph.ranks) * lanes * windows)
    found: Floats = busy.reshape(len(graph.ranks), lanes, windows).max(axis=1).mean(axis=0)
    return found


def _heterogeneity(graph: Graph, own: Ints) -> Estimate | None:
    """Robust coefficient of variation of ranks' work within a class (role and name), weighted by work, with its interval."""
    names, windows = len(graph.names), len(graph.steps)
    key = (graph.rank_index.astype(np.int64) * names + graph.ops.name) * windows + graph.window
    table = weighed(key, own, len(graph.ranks) * names * windows).reshape(len(graph.ranks), names, windows)
    role = graph.role_of_rank
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
