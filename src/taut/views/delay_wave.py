"""A delay on its way over the graph: the run replayed with it, against the run as it was, gate by gate.

Times only ever move back, so the branch that carries the delay is exact: in the delayed replay, what an op is bound to moved at
least as far as the op itself did. Walked back from where the wall is lost (or, where nothing is, from the last op that moved),
every loss on the way is slack, and losses and what the wall loses sum to the delay.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from taut.core.array_types import Ints
from taut.core.rank_words import rank_label
from taut.core.tables import NULL
from taut.graph import Graph
from taut.replay.timeline import Timeline, completion, replay, window_times
from taut.replay.whatif import delay
from taut.result.view_types import AbsorbedDelay, DelayWave
from taut.stored import Run
from taut.views.rank_blocks import rank_blocks

GATES = 200
"""Gates that are shown, at most: the first that it reaches."""
ABSORBERS = 12
"""Places of slack that are listed one by one; the others together."""


def delay_wave(run: Run, rank: int, step: int, ns: int, op: int | None = None) -> DelayWave:
    """What a delay of a rank in a step does; of an op of it, else of its first one."""
    graph = run.graph
    change = delay(graph, rank, step, ns, op)
    delayed, moved = int(np.asarray(change.ops)[0]), _Moved(graph, replay(graph, [change]))
    actual, changed = moved.actual_wall_ns, moved.timeline.wall_ns
    gates = moved.gates()
    late, left = moved.at_gates(gates)
    return DelayWave(
        command=f"taut whatif {shlex.quote(str(run.folder))} --delay {delay_option(rank, step, ns, op)}",
        actual_wall_ns=actual,
        changed_wall_ns=changed,
        saved_wall_ns=actual - changed,
        delay_ns=ns,
        rank=rank,
        step=step,
        op=delayed,
        name=graph.names[int(graph.ops.name[delayed])],
        gates=[int(one) for one in gates],
        gate_names=[graph.names[int(one)] for one in graph.gates.name[gates]],
        gate_steps=[int(one) for one in graph.gates.step[gates]],
        labels=rank_blocks(graph).labels,
        late_ns=late,
        reached_ranks=len(np.unique(graph.rank_index[moved.end > 0])),
        left_ns=left,
        absorbed=_absorbed(graph, moved.branch(delayed, changed - actual)),
    )


def delay_option(rank: int, step: int, ns: int, op: int | None = None) -> str:
    """A delay as ``--delay`` takes it."""
    ms = f"{ns / 1e6:.6f}".rstrip("0").rstrip(".")
    return f"rank={rank},step={step},ms={ms}" + ("" if op is None else f",op={op}")


class _Moved:
    """How much later everything is than it was."""

    def __init__(self, graph: Graph, timeline: Timeline) -> None:
        self.graph, self.timeline = graph, timeline
        self.arrival: Ints = timeline.arrival_ns - graph.ops.start_ns
        self.end: Ints = timeline.end_ns - graph.ops.end_ns

    @property
    def actual_wall_ns(self) -> int:
        """The wall without the delay."""
        return int(window_times(self.graph, completion(self.graph, self.graph.ops.end_ns)).sum())

    def gates(self) -> Ints:
        """Gates to which somebody comes later, the first ones, in the order in which they open."""
        gate = self.graph.gate
        found = np.unique(gate[(gate >= 0) & ((self.arrival > 0) | (self.end > 0))]).astype(np.int64)
        last = np.full(int(gate.max(initial=NULL)) + 1, NULL, dtype=np.int64)
        rows = np.flatnonzero(gate >= 0)
        last[gate[rows]] = rows  # ops are numbered as they arrive, and gates group by group
        return found[np.argsort(last[found], kind="stable")][:GATES]

    def at_gates(self, gates: Ints) -> tuple[list[list[int | None]], list[int]]:
        """(rows × gates: how much later ranks leave each, the largest of each gate)."""
        graph, blocks = self.graph, rank_blocks(self.graph)
        rows, order = np.flatnonzero(np.isin(graph.gate, gates)), np.argsort(gates)
        late = np.full((len(blocks.starts), len(gates)), -1, dtype=np.int64)
        at = graph.rank_index[rows] // blocks.tall, order[np.searchsorted(gates, graph.gate[rows], sorter=order)]
        np.maximum.at(late, at, self.end[rows])
        cells: list[list[int | None]] = [[int(one) if one >= 0 else None for one in row] for row in late]
        return cells, [int(one) for one in late.max(axis=0, initial=0)]

    def branch(self, delayed: int, lost_ns: int) -> Iterator[tuple[int, int]]:
        """(op, what was lost of the delay there) along the branch that carries it; the last of it where it ends."""
        t, v, late = self.timeline, self._last(lost_ns), lost_ns
        yield v, int(self.end[v]) - late
        late = int(self.end[v])
        while True:
            # An op that moved and did not end later waited for somebody who did not move: its own arrival is the way back.
            cause = v if t.opener[v] < 0 or not late else int(t.opener[v])
            yield v, int(self.arrival[cause]) - late
            v, late = cause, int(self.arrival[cause])
            if v == delayed or not late:
                return
            cause = int(t.bound[v])
            yield v, int(self.end[cause]) - late
            v, late = cause, int(self.end[cause])

    def _last(self, lost_ns: int) -> int:
        """The op at which the wall is lost; where nothing is lost, the last one that moved."""
        if lost_ns > 0:
            moved = np.flatnonzero(self.end > 0)
            return int(moved[np.argmax(self.timeline.end_ns[moved])])
        moved = np.flatnonzero((self.arrival > 0) | (self.end > 0))
        return int(moved[-1]) if len(moved) else 0


def _absorbed(graph: Graph, lost: Iterator[tuple[int, int]]) -> list[AbsorbedDelay]:
    """Slack by rank and class, the most first; what is beyond the list together."""
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for op, ns in lost:
        sums[int(graph.ops.rank[op]), int(graph.ops.name[op])] += ns
    every = sorted(((ns, key) for key, ns in sums.items() if ns > 0), reverse=True)
    out = [
        AbsorbedDelay(label=rank_label(rank, graph.members), name=graph.names[name], ns=ns)
        for ns, (rank, name) in every[:ABSORBERS]
    ]
    rest = sum(ns for ns, _ in every[ABSORBERS:])
    return out + ([AbsorbedDelay(label=f"{len(every) - ABSORBERS} more places", name="", ns=rest)] if rest else [])
