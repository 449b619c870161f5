"""Timelines of tiny jobs, and the same painted naively: nanosecond by nanosecond in plain Python."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from build import analyze
from taut.core.array_types import Floats
from taut.core.tables import Table, Trace
from taut.graph import Graph
from taut.replay.timeline import replay
from taut.views.frames import Frames

ORDER = ((0, 1), (2,), (3,), (4, 5, 6, 7, 8), (9,))
"""Codes of states that show first, where lanes overlap."""
IDLE, NOTHING = 10, 255


@dataclass(frozen=True)
class Traced:
    """An analysis as a timeline takes it."""

    graph: Graph
    waits: Table
    reference_ns: Floats


def timeline_of(trace: Trace) -> Frames:
    """The timeline of a trace, analysed."""
    done = analyze(trace)
    return Frames(Traced(done.graph, done.blame.waits, done.blame.peers.value_ns))


def naive(frames: Frames) -> list[list[int]]:
    """Row by row, nanosecond by nanosecond: the code of what the rank does."""
    graph, axis, times = frames.graph, frames.axis, replay(frames.graph)
    zero = [int(axis.begins_ns[graph.segment[window]]) for window in graph.window]
    spans = [(zero[v] + int(times.arrival_ns[v]), zero[v] + int(times.opening_ns[v]), zero[v] + int(times.end_ns[v]))
             for v in range(len(graph))]  # fmt: skip
    return [[_code(frames, row, ns, spans) for ns in range(axis.wall_ns)] for row in range(len(graph.ranks))]


def _code(frames: Frames, row: int, ns: int, spans: list[tuple[int, int, int]]) -> int:
    mine = [v for v in range(len(spans)) if frames.graph.rank_index[v] == row and spans[v][0] <= ns < spans[v][2]]
    codes = [int(frames.wait[v] if ns < spans[v][1] else frames.state[v]) for v in mine]
    for level in ORDER:
        shown = [code for code in codes if code in level]
        if shown:
            return shown[0]  # ops come by their numbers
    covered = zip(frames.axis.begins_ns, frames.axis.stops_ns, strict=True)
    return IDLE if any(begin <= ns < end for begin, end in covered) else NOTHING


def condensed(painted: list[list[int]], begin: int, end: int, rows: range, columns: int, lines: int) -> list[list[int]]:
    """What is painted, in fewer lines and columns: the code that holds most of the time, of equals the lowest."""
    out = []
    for line in range(lines):
        mine = rows[line * len(rows) // lines : (line + 1) * len(rows) // lines]
        lefts = [begin + c * (end - begin) // columns for c in range(columns + 1)]
        spans = [(left, max(right, left + 1)) for left, right in pairwise(lefts)]
        out.append([_most(Counter(code for row in mine for code in painted[row][left:right])) for left, right in spans])
    return out


def _most(held: Counter[int]) -> int:
    return min((code for code in held if code != NOTHING), key=lambda code: (-held[code], code), default=NOTHING)
