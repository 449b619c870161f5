"""A measured graph with more replicas at its gates and larger groups in its transfers, ready to be replayed many times."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.ids import greatest, least, numbered, occurrence
from taut.diagnose.instability import host_numbers
from taut.graph import Graph
from taut.graph.gate_matching import EVERYBODY
from taut.project.measured.residuals import Arrivals, Residuals, residuals
from taut.replay.mixtures import Grid, grid

if TYPE_CHECKING:
    from taut.project.measured.scaled_run import Measured

# Replays side by side.
COLUMNS = 12
# Gates of a kind in a step that have a pool of their own; of more, all share one.
MOST_TURNS = 64
TERMS = ("compute", "jitter wait", "gap", "transfer", "structural wait")


class Widened:
    """The measured job with ``factor`` times the ranks, up to ``crowd`` times as many on each host.

    Two things are not known, and are drawn: how much of what a rank takes beyond its quickest, of its gaps and of its
    transfers is its turn on the host (``share``, none to all: that much grows with the crowd), and whether a rare stall comes
    with messages (then more of them bring more of it) or with time (``power``, 0 to 1, of what everything else grows by).
    """

    def __init__(self, m: Measured, factor: float, crowd: float) -> None:
        self.m, self.factor, self.crowd = m, factor, crowd
        self.meets, self.grows = m.graph.gate >= 0, m.moves >= 0
        own = m.work_ns - m.stall_ns
        self.fastest = np.where(self.meets, 0.0, m.fastest_ns)
        self.rest = np.where(self.grows, 0.0, own - self.fastest)
        self.moved = np.where(self.grows, own, 0.0)
        self.gap = m.gap_ns - m.stall_gap_ns - m.fastest_gap_ns
        grows = m.meeting.grows & np.isin(m.graph.gates.verb, EVERYBODY)
        self.rows = np.flatnonzero(self.meets & grows[m.graph.gate]) if len(grows) else np.zeros(0, dtype=np.int64)
        self.gate, self.gates = numbered(m.graph.gate[self.rows])

    def crowd_factor(self, share: float) -> float:
        """How many times as long everything takes that grows with the crowd."""
        return 1 + share * (self.crowd - 1)

    def _plain(self) -> Grid:
        """The job ready to replay, without the transfers that grow: what stays, what grows with the crowd, stalls."""
        m = self.m
        stall = np.where(self.grows, 0.0, m.stall_ns)
        return grid(m.batch, [m.fastest_gap_ns, self.gap, m.stall_gap_ns], [self.fastest, self.rest, stall])

    def _transfer(self, grown: Floats, crowd: float, power: float) -> Floats:
        """Work of the transfers that grow, per op."""
        more = crowd * (grown[self.m.moves] if len(grown) else np.ones(len(self.moved)))
        return np.where(self.grows, self.moved * more + self.m.stall_ns * more**power, 0.0)

    def residuals(self, grown: Floats) -> Residuals | None:
        """How replicas stray at the gates that grow."""
        g, met = self.m.graph, self.m.meeting
        if not self.gates:
            return None
        crowd = self.crowd_factor(0.5)
        mixed = np.array([[1.0], [crowd], [crowd**0.5], [1.0]])
        after = self._transfer(grown, crowd, 0.5)[self.m.batch.short.ops]
        arrived = self._plain().with_after(after).arrivals(mixed)[:, 0]
        first = np.zeros(self.gates, dtype=np.int64)
        first[self.gate] = self.rows
        of = g.gate[first]
        kind, _ = numbered(g.ops.name[first], g.ops.size[first], met.members[of])
        window = g.window[first]
        turn = occurrence(kind, met.which[of], window)
        track, tracks = numbered(kind, met.which[of], turn)
        pool, _ = numbered(kind, turn if turn.max() < MOST_TURNS else np.zeros_like(turn))
        of_track = np.zeros(tracks, dtype=np.int64)
        of_track[track] = pool
        at = np.searchsorted(self.m.batch.short.ops, self.rows)
        arrivals = Arrivals(self.gate, met.replica[g.rank_index[self.rows]], arrived[at])
        found = residuals(arrivals, track, window, of_track, met.replicas, len(g.steps))
        return replace(found, host=_hosts(g, met.replica, met.replicas))

    def walls(self, grown: Floats, share: Floats, power: Floats, late: Floats) -> Floats:
        """Step lengths, windows × draws, ns: each with its transfers, its share, its power, and its lateness at the gates."""
        plain, out, crowd = self._plain(), [], 1 + share * (self.crowd - 1)
        for first in range(0, len(grown), COLUMNS):
            some = np.arange(first, min(first + COLUMNS, len(grown)))
            at = self.m.batch.short.ops
            after = [self._late(self._transfer(grown[i], crowd[i], power[i]), late[i])[at] for i in some]
            mixed = np.vstack([np.ones(len(some)), crowd[some], crowd[some] ** power[some], np.eye(len(some))])
            out.append(plain.with_after(*after).walls(mixed))
        return np.concatenate(out, axis=1)

    def _late(self, work: Floats, late: Floats) -> Floats:
        if len(late):
            work[self.rows] += late[self.gate]
        return work

    def terms(self, grown: Floats, late: Floats, mean_ns: float) -> dict[str, float]:
        """What the mean step is made of: losses come off one after the other, so that they sum to it."""
        m, crowd = self.m, self.crowd_factor(0.5)
        work = self.fastest + self.rest * crowd + np.where(self.grows, 0.0, m.stall_ns * crowd**0.5)
        usual = m.fastest_ns + crowd * np.maximum(m.usual_ns - m.fastest_ns, 0)
        own = np.where(self.meets, 0.0, usual)
        moved = self._transfer(grown, crowd, 0.5) + np.where(self.meets, work, 0.0)
        astray = self._late(np.where(self.meets, 0.0, work - usual), late)
        gap = m.fastest_gap_ns + self.gap * crowd + m.stall_gap_ns * crowd**0.5
        ready = grid(m.batch, [gap, None, None, None], [None, own, moved, astray])
        # Columns of the replay: each takes one more loss off.
        #                  as it is, no jitter, no gaps, no transfers
        share = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]], dtype=np.float64)
        walls = ready.walls(share).mean(axis=0)
        even = min(_balanced_ns(m.graph, own), walls[-1])
        lost = (walls - np.append(walls[1:], even)) * (mean_ns - even) / max(walls[0] - even, 1.0)
        return dict(zip(TERMS, [even, *lost.tolist()], strict=True))


def _hosts(graph: Graph, replica: Ints, replicas: int) -> Ints:
    """Host of each replica; -1 where it has several."""
    host = host_numbers(graph)
    low = least(replica, replicas, host)
    return np.where(low == greatest(replica, replicas, host), low, -1)


def _balanced_ns(graph: Graph, own: Floats) -> float:
    """A step if all ranks had the same work: the busiest lane of each rank, mean over ranks and steps, ns."""
    cell, cells = numbered(graph.rank_index, graph.window, graph.ops.lane)
    busy, where = np.bincount(cell, weights=own, minlength=cells), np.zeros(cells, dtype=np.int64)
    where[cell] = graph.rank_step
    longest = np.zeros(len(graph.ranks) * len(graph.steps))
    np.maximum.at(longest, where, busy)
    return float(longest.mean())
