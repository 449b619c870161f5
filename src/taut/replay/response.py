"""The response kernel: what becomes of a delay that is put on one op.

In a coupled job a late rank makes its partners late, and those theirs: an idle wave, which travels so many ranks per
step and loses height wherever somebody had slack. Without noise nobody has any, and the wave keeps its height for ever;
ordinary variation gives some to everybody who is not the last. Measured by delaying a rank at the begin of some steps,
one at a time, and following what moves (``ripples.ripple``, the difference between two replays without their cost).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import isqrt

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import greatest
from taut.core.scratch import zeros
from taut.graph import Graph
from taut.replay.timeline import Timeline
from taut.result import types

DELAY = 0.1
"""The delay put in, as a share of the median step: long against jitter, short enough for slack to matter."""
FELT = 0.1
"""A rank is reached once its step ends later by this share of the delay."""
STEPS = 8
"""Steps that a delay is followed for, after the one it begins in."""
PROBES = 8
"""Steps at most in which a rank is delayed."""
VISITS = 1_000_000
"""Op visits that the probes of one rank may cost: above, fewer probes follow fewer steps; not one fits, nothing is asked."""
GATES = 16
"""Gates after which no more are counted apart."""


class Response(Struct, frozen=True, dict=True):
    """How the job answers to a delay of one rank, over several probes."""

    graph: Graph
    rank: int
    delay_ns: int
    shift_ns: Ints
    """Probes × steps since the delay × ranks: how much later the rank's step ended."""
    gate_shift_ns: Ints
    """Probes × gates passed: the greatest shift of any op."""
    absorbed_ns: Ints
    """By class on a rank: shift that a lane had and lost when it came to such an op, all probes."""
    caught_ns: int
    """Shift that lanes caught from others, all probes: probes × delay + caught = absorbed + what the lanes still have."""
    absorber: tuple[Indices, Ints]
    """Rank and class of each number of ``absorbed_ns``."""

    @cached_property
    def felt(self) -> Mask:
        """Probes × steps since × ranks: who had been reached by then."""
        return np.logical_or.accumulate(self.shift_ns >= max(FELT * self.delay_ns, 1), axis=1)

    @property
    def reached_ranks(self) -> int:
        """Ranks reached in the end, itself counted; the median probe."""
        return int(np.median(self.felt[:, -1].sum(axis=1)))

    @property
    def within_steps(self) -> int | None:
        """Steps, the first counted, until all of those were reached; the median probe. None if nobody was."""
        count = self.felt.sum(axis=2)
        some = count[:, -1] > 0
        return int(np.median((count == count[:, -1:]).argmax(axis=1)[some])) + 1 if some.any() else None

    @property
    def speed(self) -> types.Estimate | None:
        """Ranks per step and side that the front travels.

        Distance is counted round the ring of rank numbers, so that neither end of them is special. A delay that reaches
        rank d in its own step has travelled d ranks in one step.
        """
        ranks = self.felt.shape[2]
        if ranks < 2 or not self.felt.any():
            return None
        # Distance on the ring of rank numbers: the shorter way round.
        away = np.abs(np.arange(ranks) - int(np.searchsorted(self.graph.ranks, self.rank)))
        front = (self.felt * np.minimum(away, ranks - away)).max(axis=2)
        return estimate((front / np.maximum(np.arange(front.shape[1]), 1)).max(axis=1))

    @cached_property
    def left(self) -> Floats:
        """Probes × steps since: share of the delay left, as the rank that is latest then shows it."""
        latest: Floats = self.shift_ns.max(axis=2) / max(self.delay_ns, 1)
        return np.minimum(latest, 1.0)

    @property
    def decay(self) -> types.Estimate | None:
        """Share of the delay lost per step, until it is no longer felt; None where steps do not follow one another."""
        steps = self.left.shape[1] - 1
        if steps < 1:
            return None
        gone = self.left < FELT  # followed until the first step in which it is no longer felt, at least for one step
        upto = np.where(gone.any(axis=1), np.maximum(gone.argmax(axis=1), 1), steps)
        last = np.take_along_axis(self.left, upto[:, None], axis=1)[:, 0]
        return estimate((self.left[:, 0] - last) / upto)

    def absorbers(self, most: int) -> list[types.Absorber]:
        """Where shift was lost, the largest first: rank, class and share of all that was absorbed."""
        total = int(self.absorbed_ns.sum())
        lost, (rank, name) = self.absorbed_ns, self.absorber
        top = [int(i) for i in np.argsort(-lost, kind="stable")[:most] if lost[i] > 0]
        return [
            types.Absorber(rank=int(rank[i]), op_class=self.graph.names[name[i]], share=float(lost[i] / total)) for i in top
        ]

    def entry(self, most: int) -> types.Response:
        """The response as ``--json`` has it."""
        gates = np.median(self.gate_shift_ns / max(self.delay_ns, 1), axis=0)
        seen = np.flatnonzero(gates > 0)
        return types.Response(
            rank=self.rank,
            delay_ns=self.delay_ns,
            probes=len(self.shift_ns),
            speed_ranks_per_step=self.speed,
            decay=self.decay,
            left_by_step=[float(x) for x in np.median(self.left, axis=0)],
            left_by_gate=[float(min(x, 1.0)) for x in gates[: int(seen[-1]) + 1]] if len(seen) else [],
            reached_ranks=self.reached_ranks,
            within_steps=self.within_steps,
            absorbed_by=self.absorbers(most),
        )


def estimate(values: Floats) -> types.Estimate:
    """Median of the probes, and between which values nine of ten lie."""
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return types.Estimate(value=float(middle), lo=float(low), hi=float(high))


def respond(graph: Graph, observed: Timeline, ranks: Sequence[int]) -> list[Response]:
    """The response to a delay of each of these ranks; nothing where one probe would already cost too much."""
    follow, windows = _plan(graph)
    if len(windows) == 0:
        return []
    delay_ns = max(int(DELAY * np.median(observed.window_ns)), 1)
    out, about = [], _about(graph, observed)
    for rank in ranks:
        mine = np.flatnonzero(graph.ops.rank == rank)
        begins, first = np.unique(graph.window[mine], return_index=True)
        ops = mine[first[np.isin(begins, windows)]]
        if len(ops):
            out.append(delayed(graph, observed, np.sort(ops), delay_ns, follow, about))
    return out


class _About(Struct, frozen=True):
    """What delays of all ranks have in common."""

    last_ns: Ints
    """Windows × ranks: when the last op ends."""
    final: Ints
    """Per window: its last op."""
    opening_ns: Ints
    lane: Indices
    """Of each op its lane, and its class, on its rank; and how many there are."""
    lanes: int
    cell: Indices
    cells: int


def _about(graph: Graph, observed: Timeline) -> _About:
    """What is asked of every op before a delay is followed."""
    g, windows, ranks = graph, len(graph.steps), len(graph.ranks)
    last = greatest(g.window.astype(np.int64) * ranks + g.rank_index, windows * ranks, observed.end_ns)
    final = np.full(windows, -1, dtype=np.int64)
    final[g.window] = np.arange(len(g), dtype=np.int32)  # of several ops the last stays
    lane, cell = g.on_rank(g.ops.lane, int(g.ops.lane.max()) + 1), g.on_rank(g.ops.name, len(g.names))
    return _About(last.reshape(windows, ranks), final, observed.opening_ns, *lane, *cell)


def delayed(graph: Graph, observed: Timeline, ops: Ints, delay_ns: int, steps: int, about: _About | None = None) -> Response:
    """Follow a delay of each of these ops of one rank (one at a time, ascending) for so many steps after its own."""
    from taut.replay.ripples import NEVER, ripple

    g, t, about = graph, observed, about or _about(graph, observed)
    until = about.final[np.minimum(g.window[ops] + steps, len(g.steps) - 1)]
    cell, cells = about.cell, about.cells
    shift, left, absorbed, caught = ripple(
        *g.program(t.join, t.wait),
        t.gap_ns,
        t.arrival_ns,
        about.opening_ns,
        t.end_ns,
        about.lane,
        about.lanes,
        g.window,
        g.rank_index,
        len(g.ranks),
        cell,
        cells,
        about.last_ns,
        ops,
        until,
        delay_ns,
        steps + 1,
        GATES,
        zeros(len(g)),
        np.zeros(len(g), dtype=np.int32),
        np.full(g.slots + 1, NEVER),
        np.zeros(g.slots + 1, dtype=np.int32),
    )
    place, name = np.divmod(np.arange(cells), len(g.names))
    if cells != len(g.ranks) * len(g.names):  # they are numbered without holes
        place[cell], name[cell] = g.rank_index, g.ops.name
    return Response(g, int(g.ops.rank[ops[0]]), delay_ns, shift, left, absorbed, int(caught), (g.ranks[place], name))


def _plan(graph: Graph) -> tuple[int, Ints]:
    """(steps to follow a delay, windows to begin one in): as many as the visits allow, spread over the run.

    No further than half of it, so that several windows can begin one.
    """
    windows = len(graph.steps)
    starts = np.flatnonzero(np.diff(graph.segment, prepend=graph.segment[0] - 1))
    # Windows that follow each window in its segment: a delay does not cross segments.
    after = np.repeat(np.append(starts[1:], windows), np.diff(np.append(starts, windows))) - np.arange(windows) - 1
    affordable = int(VISITS / (len(graph) / windows))
    if affordable < 1:
        return 0, np.zeros(0, dtype=np.int64)
    # Probes × steps followed cost op visits: with a budget of a visits per step's ops, √a of each is the balance.
    follow = min(STEPS, (int(after.max()) + 1) // 2, isqrt(affordable) - 1)
    fit = np.flatnonzero(after >= follow)
    probes = min(PROBES, affordable // (follow + 1), len(fit))
    return follow, np.unique(fit[np.linspace(0, len(fit) - 1, probes).astype(np.int64)])
