"""Gates that wait for each other in circles: which of them to take apart, the least likely to be real first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

import numpy as np

from taut.core.array_types import Indices, Ints
from taut.core.group_kernels import group_sort
from taut.core.tables import Table
from taut.graph.arrays import Predecessors, Slots

Key = tuple[int, int]


class Circles:
    """What is left when ops are put in order as far as their gates allow: ops that are stuck, and what each lacks.

    Taking a gate apart lets go only what depended on it, so that thousands of circles take one pass over the ops together.
    """

    def __init__(self, ops: Table, predecessors: Predecessors, slots: Slots, gate: Indices, position: Indices) -> None:
        pred, join, wait = predecessors.pred, slots.join, slots.wait
        stuck = position < 0
        absent = np.bincount(join[stuck & (join >= 0)], minlength=slots.count + 1)
        ended = ~stuck & ((wait < 0) | (absent[wait] == 0))
        target = np.repeat(np.arange(len(ops)), np.diff(predecessors.ptr))
        open_edges = ~ended[pred]
        target, source = target[open_edges], pred[open_edges]
        self._lacks = np.bincount(target, minlength=len(ops)).tolist()
        self._after = _rows_by(source, len(ops), target)
        inside = np.flatnonzero(gate >= 0)
        self._members = _rows_by(gate[inside], slots.count, inside)
        self._start, self._join, self._wait = ops.start_ns, join.tolist(), wait.tolist()
        self._absent, self._ended, self._stuck = absent.tolist(), ended.tolist(), stuck.tolist()
        self._left = int(stuck.sum())
        self._gates = np.unique(gate[stuck & (gate >= 0)]).tolist()

    def taken_apart(self) -> Iterator[int]:
        """Gates to take apart, one after the other, until nothing is stuck or no gate is.

        Always the one whose stuck members begin farthest apart; the first of those that are alike.
        """
        heap = [self._key(gate) for gate in self._gates]
        heapify(heap)
        while heap and self._left:
            apart, gate = heappop(heap)
            if not any(self._stuck[row] for row in self._members[gate]):
                continue
            now = self._key(gate)
            if now[0] > apart:  # some of its members were let go meanwhile
                heappush(heap, now)
                continue
            yield gate
            self._open(gate)

    def _key(self, gate: int) -> Key:
        starts = [int(self._start[row]) for row in self._members[gate] if self._stuck[row]]
        return (min(starts) - max(starts) if starts else 0), gate  # the heap gives the smallest: the farthest apart

    def _open(self, gate: int) -> None:
        """Nobody joins the gate or waits at it any more."""
        members = self._members[gate].tolist()
        for row in members:
            self._join[row] = self._wait[row] = -1
        self._end([row for row in members if not self._stuck[row] and not self._ended[row]])

    def _end(self, ending: list[int]) -> None:
        """These ops end, and so does all that lacked nothing else."""
        while ending:
            row = ending.pop()
            if self._ended[row]:
                continue
            self._ended[row] = True
            for after in self._after[row].tolist():
                self._lacks[after] -= 1
                if self._lacks[after] == 0:
                    ending += self._arrived(after)

    def _arrived(self, row: int) -> list[int]:
        """One op is no longer stuck: those that end with that."""
        self._stuck[row] = False
        self._left -= 1
        join = self._join[row]
        if join >= 0:
            self._absent[join] -= 1
            if self._absent[join] == 0:
                waits = [other for other in self._members[join].tolist() if self._wait[other] == join]
                return [other for other in {*waits, row} if not self._stuck[other] and self._may_end(other)]
        return [row] if self._may_end(row) else []

    def _may_end(self, row: int) -> bool:
        wait = self._wait[row]
        return bool(wait < 0 or self._absent[wait] == 0)


def _rows_by(ids: Indices, count: int, rows: Ints) -> list[Ints]:
    """The rows of each id."""
    order, begin = group_sort(ids, count)
    return np.split(rows[order], begin[1:-1]) if count else []
