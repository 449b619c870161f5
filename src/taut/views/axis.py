"""The time axis that pictures of a run have in common: where steps begin on it, and which rows it has.

Perfetto traces lie on the same one, but for its zero: theirs is the clock's, that of the app the begin of the first segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from taut.core.array_types import Ints
from taut.core.errors import UsageError
from taut.core.ids import distinct, greatest
from taut.core.rank_words import rank_label
from taut.graph import Graph
from taut.replay.timeline import completion, window_times
from taut.result.types import Finding
from taut.result.view_types import STATES, TimelineAxis, TimelineRow, TimelineStep

LONGEST_NS = 1 << 59
"""An axis is shorter: 18 years. What a piece of a row does lies in the four bits below its time."""


def segment_begins(graph: Graph, completion_ns: Ints) -> Ints:
    """Where each segment begins: when it did, or right after the one before where steps have no time in common.

    ``completion_ns`` is when the last op of each window has ended, of all timelines that are shown.
    """
    if not graph.trace.relative:
        return graph.origin_ns - min(int(graph.origin_ns.min()), 0)
    longest = np.zeros(int(graph.segment.max()) + 1, dtype=np.int64)
    np.maximum.at(longest, graph.segment, completion_ns)
    return np.cumsum(longest) - longest


class Axis:
    """The axis of a graph as it was observed, from 0 to ``wall_ns``."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._done = completion(graph, graph.ops.end_ns)
        begins = segment_begins(graph, self._done)
        first = int(begins.min())
        stops = greatest(graph.segment, len(begins), self._done)
        last = max(int(begin) + int(stop) for begin, stop in zip(begins, stops, strict=True))
        if last - first >= LONGEST_NS:
            years = (last - first) / 3.156e16
            raise UsageError(f"{graph.trace.name or 'run'}: its steps lie {years:,.0f} years apart: too long for a timeline")
        self.begins_ns: Ints = begins - first
        """Per segment."""
        self.stops_ns: Ints = self.begins_ns + stops
        """Per segment: when its last op has ended."""
        self.wall_ns = max(last - first, 1)
        self.zero_ns = None if graph.trace.relative else first
        """What the clock of the trace showed at 0; None where steps have no time in common."""

    @cached_property
    def window_zero_ns(self) -> Ints:
        """Per window: the zero of the times of its ops."""
        return self.begins_ns[self.graph.segment]

    @cached_property
    def lane_keys(self) -> Ints:
        """All pairs of a row and one of its lanes, as row × lanes + lane, ascending."""
        graph, lanes = self.graph, len(self.graph.trace.lanes)
        return distinct(graph.rank_index.astype(np.int64) * lanes + graph.ops.lane)

    @cached_property
    def lane_first(self) -> Ints:
        """Per row: the place of its first lane among ``lane_keys``; one more than there are rows."""
        return np.searchsorted(self.lane_keys, np.arange(len(self.graph.ranks) + 1) * len(self.graph.trace.lanes))

    def lane_places(self, ops: Ints | slice = slice(None)) -> Ints:
        """Place of each of some ops among the lanes of its row."""
        row = self.graph.rank_index[ops]
        key = row * len(self.graph.trace.lanes) + self.graph.ops.lane[ops]
        return np.searchsorted(self.lane_keys, key) - self.lane_first[row]

    @property
    def covered(self) -> tuple[Ints, Ints]:
        """(begins, ends) of the stretches of the axis that some segment covers, ascending."""
        order = np.argsort(self.begins_ns, kind="stable")
        begin, reach = self.begins_ns[order], np.maximum.accumulate(self.stops_ns[order])
        opens = np.concatenate([[True], begin[1:] > reach[:-1]])
        return begin[opens], reach[np.append(np.flatnonzero(opens)[1:] - 1, len(reach) - 1)]

    def steps(self) -> list[TimelineStep]:
        """Where each step lies: steps of a segment tile it."""
        graph = self.graph
        length = window_times(graph, self._done)
        running = np.cumsum(length)
        first = np.concatenate([[True], graph.segment[1:] != graph.segment[:-1]])
        before = (running - length)[np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))]
        end = self.window_zero_ns + running - before
        return [
            TimelineStep(step=int(step), begin_ns=int(stop - took), end_ns=int(stop))
            for step, took, stop in zip(graph.steps, length, end, strict=True)
        ]

    def rows(self) -> list[TimelineRow]:
        """One a rank."""
        graph, lanes = self.graph, self.graph.trace.lanes
        of_row = np.split(self.lane_keys % max(len(lanes), 1), self.lane_first[1:-1])
        return [
            TimelineRow(rank=int(rank), label=rank_label(int(rank), graph.members), lanes=[lanes[int(one)] for one in mine])
            for rank, mine in zip(graph.ranks, of_row, strict=True)
        ]

    def described(self, findings: Iterable[Finding] = ()) -> TimelineAxis:
        """All that can be asked for, and the ranks that findings name."""
        return TimelineAxis(
            wall_ns=self.wall_ns,
            zero_ns=self.zero_ns,
            rows=self.rows(),
            steps=self.steps(),
            ops=len(self.graph),
            states=list(STATES),
            named=sorted({rank for one in findings for rank in one.ranks}),
        )
