"""The timeline of a run at any level of detail: prepared once, then frame by frame in time that hardly grows with the run.

What a row does is kept piece by piece, as the ledger sees it: of several lanes the first that computes, transfers, copies,
waits, is busy on the host. Of several rows that share a line of cells, a loss shows before what holds more time. A compute op
is slow where its work exceeds its reference by more than ordinary spread, a wait is what most of it is.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from taut.core.array_types import Codes, Floats, Indices, Ints, Letters, Mask
from taut.core.errors import UsageError
from taut.core.jit import expect
from taut.core.tables import Kind, Table
from taut.graph import Graph
from taut.replay.blame import PARTS
from taut.replay.exposed import copies
from taut.replay.wait_kernels import UNEQUAL
from taut.result.view_types import STATES, TimelineFrame, TimelineGates, TimelineOps
from taut.views.axis import Axis

OPS = 4_000
"""Ops that are shown one by one at most."""
GATES, MEMBERS = 300, 64
"""Gates that a frame has at most, and rows of each."""
COLUMNS, LINES = 4_096, 2_048
"""The finest frame."""
PLAIN_CELLS = 100
"""Cells that the interpreter paints in the time of a row of other kernels."""
NO_WAIT = -1
COMPUTE, SLOW, COMMUNICATION, COPY, FAULT, HOST = map(
    STATES.index, ("compute", "slow compute", "communication", "copy", "fault wait", "host")
)
UNEXPLAINED = STATES.index("unexplained wait")
LEVELS = np.array([0, 0, 1, 2, 3, 3, 3, 3, 3, 4, 5], dtype=np.int64)
"""Per state: which of several lanes shows, the least first."""


class Traced(Protocol):
    """What a timeline is made of: a stored run, or a finished analysis."""

    @property
    def graph(self) -> Graph:
        """Ops, edges and gates."""

    @property
    def waits(self) -> Table:
        """Rows of ``blame.Wait``."""

    @property
    def reference_ns(self) -> Floats:
        """Per op: the work of its peers; NaN where it has none."""


def working_states(run: Traced) -> Letters:
    """Per op: the code of what it does when it works."""
    graph = run.graph
    state = np.array([COMPUTE, COMMUNICATION, COMMUNICATION, HOST], dtype=np.int8)[graph.ops.kind]
    state[copies(graph)] = COPY
    with np.errstate(invalid="ignore"):
        slow = graph.work_ns > (1 + UNEQUAL) * run.reference_ns
    state[slow & (graph.ops.kind == Kind.COMPUTE)] = SLOW
    return state


def waiting_states(run: Traced) -> Letters:
    """Per op: the code of what most of its wait is, -1 where it does not wait."""
    graph, waits = run.graph, run.waits
    out = np.full(len(graph), NO_WAIT, dtype=np.int8)
    out[graph.ops.end_ns - graph.work_ns > graph.ops.start_ns] = UNEXPLAINED
    most, code = waits.fault_ns.copy(), np.full(len(waits), FAULT, dtype=np.int8)
    for place, part in enumerate(PARTS[1:], FAULT + 1):
        more = waits.columns[part] > most
        most[more], code[more] = waits.columns[part][more], place
    out[waits.op] = code
    return out


class Gatherings(Struct, frozen=True):
    """The gates of a run: per gate its members by row, and when they come."""

    first: Ints
    """Where the members of each gate begin; one more than there are gates."""
    members: Codes
    """Ops, gate by gate, by row."""
    first_ns: Ints
    opens_ns: Ints
    waited_ns: Ints
    """Of all members together."""

    @classmethod
    def of(cls, graph: Graph, axis: Axis) -> Gatherings:
        """The gates of a graph."""
        from taut.core.group_kernels import order_groups

        rows = np.flatnonzero(graph.gate >= 0)
        if not len(rows):
            none = np.zeros(0, dtype=np.int64)
            return cls(np.zeros(1, dtype=np.int64), none.astype(np.int32), none, none, none)
        gate, row = graph.gate[rows].astype(np.int64), graph.rank_index[rows]
        order, first = order_groups(gate, int(gate.max()) + 1, row, rows)
        members, begins = rows[order], first[:-1]
        came = axis.window_zero_ns[graph.window[members]] + graph.ops.start_ns[members]
        wait = np.maximum(graph.ops.end_ns[members] - graph.work_ns[members] - graph.ops.start_ns[members], 0)
        return cls(
            first,
            members.astype(np.int32),
            np.minimum.reduceat(came, begins),
            np.maximum.reduceat(came, begins),
            np.add.reduceat(wait, begins),
        )

    def between(self, begin_ns: int, end_ns: int) -> Ints:
        """Gates of which some member arrives, or waits, between two times."""
        return np.flatnonzero((self.first_ns < end_ns) & (self.opens_ns >= begin_ns))

    def most_waited(self, gates: Ints, most: int) -> Ints:
        """Of some gates those that most is waited at, of equals the first, in their order."""
        if len(gates) <= most:
            return gates
        waited = self.waited_ns[gates]
        least = np.partition(waited, len(gates) - most)[len(gates) - most]
        chosen: Mask = waited > least
        chosen[np.flatnonzero(waited == least)[: most - int(chosen.sum())]] = True
        return gates[chosen]


class Frames:
    """The timeline of a run, prepared: 9 to 28 bytes an op beside the graph in measured jobs.

    At most 50: where every op idles, waits and works (three pieces) and meets one other (half a gate).
    """

    def __init__(self, run: Traced) -> None:
        from taut.core.group_kernels import order_groups
        from taut.views.frame_kernels import flattened, last_ends

        graph = run.graph
        self.run, self.graph, self.axis = run, graph, Axis(graph)
        self.state, self.wait = working_states(run), waiting_states(run)
        zero = self.axis.window_zero_ns[graph.window]
        order, self.first = order_groups(graph.rank_index, len(graph.ranks), zero + graph.ops.start_ns, zero + graph.ops.end_ns)
        del zero
        self.order: Codes = order.astype(np.int32)
        lane = self.axis.lane_places().astype(np.int32)
        self.pieces, self.piece_first = flattened(
            self.first,
            self.order,
            *self._times(),
            graph.work_ns,
            lane,
            int(lane.max(initial=0)) + 1,
            self.state,
            self.wait,
            LEVELS,
            *self.axis.covered,
            self.axis.wall_ns,
        )
        self.last_ends, self.blocks = last_ends(self.first, self.order, *self._window_times(), graph.ops.end_ns)
        self.gates = Gatherings.of(graph, self.axis)

    @property
    def nbytes(self) -> int:
        """Bytes of what was prepared."""
        gates = self.gates
        arrays: tuple[NDArray[np.signedinteger], ...] = (
            self.state, self.wait, self.order, self.first, self.pieces, self.piece_first, self.last_ends, self.blocks,
            gates.first, gates.members, gates.first_ns, gates.opens_ns, gates.waited_ns,
        )  # fmt: skip
        return sum(one.nbytes for one in arrays)

    def frame(self, begin_ns: int, end_ns: int, first_row: int, rows: int, columns: int, lines: int) -> TimelineFrame:
        """A part of the timeline: ops one by one where they are few, else cells of what holds most of the time."""
        self.check(begin_ns, end_ns, first_row, rows, columns, lines)
        ops = self.ops_between(begin_ns, end_ns, first_row, rows)
        gates = self._gates_between(begin_ns, end_ns, first_row, rows)
        shown = self.gates.most_waited(gates, GATES)
        codes = [] if ops is None else [self.graph.ops.name[ops]]
        names, place = np.unique(np.concatenate([*codes, self._gate_names(shown)]), return_inverse=True)
        lines = min(lines, rows)
        count = 0 if ops is None else len(ops)
        return TimelineFrame(
            begin_ns=begin_ns,
            end_ns=end_ns,
            first_row=first_row,
            rows=rows,
            columns=columns,
            lines=lines,
            cells=self.cells(begin_ns, end_ns, first_row, rows, columns, lines).tobytes() if ops is None else None,
            ops=None if ops is None else self._as_columns(ops, place[:count]),
            gates=self._as_gates(shown, place[count:], first_row, rows),
            left_out_gates=len(gates) - len(shown),
            names=[self.graph.names[int(one)] for one in names],
        )

    def check(self, begin_ns: int, end_ns: int, first_row: int, rows: int, columns: int, lines: int) -> None:
        """Refuse what is no part of the timeline, or too fine."""
        wall, count = self.axis.wall_ns, len(self.graph.ranks)
        if not 0 <= begin_ns < end_ns <= wall:
            raise UsageError(f"no such time: {begin_ns} to {end_ns} ns; the timeline goes from 0 to {wall}")
        if first_row < 0 or rows < 1 or first_row + rows > count:
            raise UsageError(f"no such rows: {rows} from {first_row} on; the timeline has {count}")
        if not (1 <= columns <= COLUMNS and 1 <= lines <= LINES):
            raise UsageError(f"no such frame: {columns} columns, {lines} lines; at least 1, at most {COLUMNS} and {LINES}")

    def cells(self, begin_ns: int, end_ns: int, first_row: int, rows: int, columns: int, lines: int) -> NDArray[np.uint8]:
        """Lines × columns codes of the state that holds most of the time, 255 where nothing is.

        Where rows share a line, slow compute and waits for faults show from a sixteenth of a cell on: see ``painted``.
        """
        from taut.views.frame_kernels import painted

        expect(rows * columns / PLAIN_CELLS)
        return painted(self.pieces, self.piece_first, first_row, rows, begin_ns, end_ns, columns, lines).view(np.uint8)

    def ops_between(self, begin_ns: int, end_ns: int, first_row: int, rows: int, most: int = OPS) -> Ints | None:
        """Ops of some rows between two times, row by row in order of time; None where there are more than ``most``."""
        from taut.views.frame_kernels import in_view

        ops, count = in_view(
            self.first, self.order, *self._times(), self.last_ends, self.blocks, first_row, rows, begin_ns, end_ns, most
        )
        return ops if count <= most else None

    def begins_ns(self, ops: Ints | Indices) -> Ints:
        """Arrivals of some ops on the axis."""
        return self.axis.window_zero_ns[self.graph.window[ops]] + self.graph.ops.start_ns[ops]

    def ends_ns(self, ops: Ints | Indices) -> Ints:
        """Ends of some ops on the axis."""
        return self.axis.window_zero_ns[self.graph.window[ops]] + self.graph.ops.end_ns[ops]

    def _window_times(self) -> tuple[Ints, Indices]:
        return self.axis.window_zero_ns, self.graph.window

    def _times(self) -> tuple[Ints, Indices, Ints, Ints]:
        return *self._window_times(), self.graph.ops.start_ns, self.graph.ops.end_ns

    def _as_columns(self, ops: Ints, names: Ints) -> TimelineOps:
        end = self.ends_ns(ops)
        return TimelineOps(
            op=ops.tolist(),
            row=self.graph.rank_index[ops].tolist(),
            lane=self.axis.lane_places(ops).tolist(),
            begin_ns=self.begins_ns(ops).tolist(),
            opening_ns=(end - self.graph.work_ns[ops]).tolist(),
            end_ns=end.tolist(),
            state=self.state[ops].tolist(),
            wait=self.wait[ops].tolist(),
            name=names.tolist(),
        )

    def _gates_between(self, begin_ns: int, end_ns: int, first_row: int, rows: int) -> Ints:
        """Gates with a member among some rows that are open for arrivals between two times."""
        gates = self.gates.between(begin_ns, end_ns)
        if rows == len(self.graph.ranks) or not len(gates):
            return gates
        from taut.views.frame_kernels import meeting

        found = meeting(gates, self.gates.first, self.gates.members, self.graph.rank_index, first_row, rows)
        return gates[found]

    def _gate_names(self, gates: Ints) -> Ints:
        return self.graph.ops.name[self.gates.members[self.gates.first[gates]]]

    def _as_gates(self, gates: Ints, names: Ints, first_row: int, rows: int) -> TimelineGates:
        members = [self.gates.members[self.gates.first[gate] : self.gates.first[gate + 1]] for gate in gates]
        return TimelineGates(
            gate=gates.tolist(),
            name=names.tolist(),
            first_ns=self.gates.first_ns[gates].tolist(),
            opens_ns=self.gates.opens_ns[gates].tolist(),
            rows=[self._some_rows(some, first_row, rows) for some in members],
            last_row=[int(self.graph.rank_index[self.last_arriver(some)]) for some in members],
        )

    def _some_rows(self, members: Codes, first_row: int, rows: int) -> list[int]:
        of = self.graph.rank_index[members]
        shown = of[np.searchsorted(of, first_row) : np.searchsorted(of, first_row + rows)]
        if len(shown) <= MEMBERS:
            return [int(one) for one in shown]
        return [int(one) for one in shown[np.linspace(0, len(shown) - 1, MEMBERS).astype(np.int64)]]

    def last_arriver(self, members: Codes) -> int:
        """Of the members of a gate the op that arrived last, of equals the one with the lowest number."""
        came = self.begins_ns(members)
        return int(members[came == came.max()].min())
