"""Excess of every rank in every step, and how far the largest of a step reaches.

Each step is asked by itself: the rank with the largest excess is put at its reference in that step only, what came
before stays as it was, and the gates of the step open again. All steps fit into one sweep, because none looks at the
changed ends of another.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints
from taut.core.interval import FALSE_ALARMS
from taut.core.jit import kernel
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.excess_kernels import spread_of_steps
from taut.replay.timeline import Timeline


class Excess(Struct, frozen=True):
    """Net excess of ranks in windows; what stays inside the prediction interval of the peers counts as none."""

    beyond_ns: Floats
    """Excess outside the interval, else 0; ranks × windows, ns."""
    spread_ns: Floats
    """How far an ordinary rank strays in a window, ranks × windows, ns; NaN where no peer tells."""

    @property
    def known(self) -> bool:
        """Whether some rank has peers to be compared with."""
        return bool(np.isfinite(self.spread_ns).any())

    @property
    def largest(self) -> Ints:
        """Per window: index of the rank with the largest excess, -1 where nobody is outside."""
        return np.where(self.beyond_ns.max(axis=0) > 0, self.beyond_ns.argmax(axis=0), -1)


def excess(blame: Blame) -> Excess:
    """Work above the leave-one-out reference, summed over a rank's ops in a window.

    Spreads add as in blame: within a rank in quadrature, between ranks linearly; the level is corrected for the number
    of ranks and windows.
    """
    g, peers = blame.graph, blame.peers
    shape = len(g.ranks), len(g.steps)
    has = ~(np.isnan(peers.value_ns) | np.isnan(peers.within_of_cell_ns)[peers.cell])
    net, variance, shared, count = spread_of_steps(*by_step(g), has, g.work_ns, *peers.arrays)
    spread = np.where(count > 0, np.maximum(np.sqrt(variance + shared * shared), 1.0), np.nan)
    # Bonferroni over all ranks and windows, as blame corrects over its waits.
    level = NormalDist().inv_cdf(1 - FALSE_ALARMS / max(net.size, 1))
    beyond = np.where(net > level * np.nan_to_num(spread, nan=np.inf), net, 0.0)
    return Excess(beyond.reshape(shape), spread.reshape(shape))


def by_step(graph: Graph) -> tuple[Indices, Indices, int, int]:
    """What kernels sum by: rank and window of every op, and how many there are."""
    return graph.rank_index, graph.window, len(graph.ranks), len(graph.steps)


def reached(blame: Blame, gap_free: Timeline, late: Excess) -> Ints:
    """Windows × ranks: how much earlier some gate of a rank would open without the window's largest excess, ns."""
    g, top = blame.graph, late.largest
    shape = len(g.steps), len(g.ranks)
    if (top < 0).all():
        return np.zeros(shape, dtype=np.int64)
    return opening_shifts(
        *g.program(g.join, g.wait),
        g.slots,
        g.work_ns,
        blame.peers.value_ns,
        gap_free.arrival_ns,
        gap_free.opening_ns,
        gap_free.end_ns,
        g.window,
        g.rank_index,
        top,
        shape[1],
    ).reshape(shape)


@kernel(lists=True)
def opening_shifts(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    slots: int,
    work: Ints,
    reference: Floats,
    arrival: Ints,
    opening: Ints,
    end: Ints,
    window: Indices,
    rank: Indices,
    top: Ints,
    ranks: int,
) -> Ints:
    """Gap-free replay of every window with the ops of its rank ``top`` at reference (-1: as it was).

    Returns per window and rank the largest shift of a waiting op's opening. Ends of other windows are those given.
    """
    n = len(work)
    came = np.zeros(n, np.int64)
    done = np.zeros(n, np.int64)
    opens = np.full(slots + 1, -(1 << 62), np.int64)
    shift = np.zeros(len(top) * ranks, np.int64)
    for event in events:
        v = event if event >= 0 else ~event
        w = window[v]
        if top[w] < 0:  # nothing changes in this window, but others may look at its slots
            if event >= 0 and join[v] >= 0:
                opens[join[v]] = max(opens[join[v]], arrival[v])
            continue
        took = work[v]
        if rank[v] == top[w] and not np.isnan(reference[v]):
            took = max(int(reference[v] + 0.5), 0)
        if event >= 0:
            t = 0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                u = pred[i]
                # Ends inside the window as changed, those of earlier windows as they were: every window is asked alone.
                t = max(t, (done[u] if window[u] == w else end[u]) + lag[i])
            came[v] = t
            done[v] = t + took
            if join[v] >= 0:
                opens[join[v]] = max(opens[join[v]], t)
        else:
            t = max(came[v], opens[wait[v]] + wait_lag[v])
            done[v] = t + took
            k = w * ranks + rank[v]
            shift[k] = max(shift[k], opening[v] - t)
    return shift
