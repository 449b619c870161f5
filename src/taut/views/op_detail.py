"""One op of the timeline: what is known of it, and the path back to what made it wait.

The path follows the binding forest of the observed timeline: through a gate to whoever came last there, else to what bound the
arrival, until the branch of whoever came last meets that of the waiting op, as blame does.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Ints, Mask
from taut.core.errors import UsageError
from taut.core.rank_words import rank_label
from taut.core.tables import Kind
from taut.replay.blame import PARTS
from taut.replay.timeline import replay
from taut.result.view_types import OpDetail, PathOp, WaitParts
from taut.views.frames import LEVELS, Frames

LONGEST = 200
"""Ops of a path at most."""
AT_ONCE = 100_000
"""Ops of a row at one time that are looked at."""
Because = Literal["asked", "last at the gate", "before it on its rank", "before it in its chain"]
ASKED: Because = "asked"
LAST: Because = "last at the gate"


class _Passed(Struct):
    """An op on a path."""

    op: int
    because: Because
    worked: bool
    """Whether the one before hangs on its end, and so on its work."""
    came: bool
    """Whether the path goes on over its arrival, and so over the gap before it."""


class _Bindings(Struct, frozen=True):
    """Who bound whom in the observed timeline, and what lateness each op can take."""

    bound: Codes
    opener: Codes
    slack_ns: Ints
    critical: Mask


class OpDetails:
    """The ops of a timeline; who bound whom is found out when the first is asked for, and kept: 17 bytes an op."""

    def __init__(self, frames: Frames) -> None:
        self.frames, self.graph = frames, frames.graph

    def by_number(self, op: int) -> OpDetail:
        """The op of this number."""
        if not 0 <= op < len(self.graph):
            raise UsageError(f"no op {op}; the run has {len(self.graph)}, from 0 on")
        return self._detail(op)

    def at(self, row: int, at_ns: int, lane: int | None = None) -> OpDetail | None:
        """The op that a row, or one of its lanes by its place, shows at a time; None where it does nothing."""
        self.frames.check(at_ns, at_ns + 1, row, 1, 1, 1)
        ops = self.frames.ops_between(at_ns, at_ns + 1, row, 1, AT_ONCE)
        if ops is None:
            raise UsageError(f"more than {AT_ONCE:,} ops at once in row {row}; ask for an op by its number")
        if lane is not None:
            ops = ops[self.frames.axis.lane_places(ops) == lane]
        return self._detail(int(ops[np.lexsort((ops, self._levels(ops, at_ns)))[0]])) if len(ops) else None

    def _levels(self, ops: Ints, at_ns: int) -> Ints:
        """Which of some ops shows at a time, the least first."""
        waits = self.frames.ends_ns(ops) - self.graph.work_ns[ops] > at_ns
        return np.where(waits, LEVELS[self.frames.wait[ops]], LEVELS[self.frames.state[ops]])

    @cached_property
    def _bindings(self) -> _Bindings:
        observed = replay(self.graph)
        found = observed.bound.astype(np.int32), observed.opener.astype(np.int32), observed.slack_ns, observed.critical
        return _Bindings(*found)

    def _detail(self, op: int) -> OpDetail:
        graph, ops = self.graph, self.graph.ops
        wait, opener, gate = self._wait(op), int(self._bindings.opener[op]), int(graph.gate[op])
        path = self._path(op, wait)[:LONGEST]
        begin, opening, end = self._times(op)
        reference = float(self.frames.run.reference_ns[op])
        gates = self.frames.gates
        return OpDetail(
            op=op,
            rank=int(ops.rank[op]),
            label=self._label(op),
            lane=graph.trace.lanes[int(ops.lane[op])],
            name=graph.names[int(ops.name[op])],
            kind=Kind(int(ops.kind[op])).name.lower(),
            step=int(graph.steps[graph.window[op]]),
            begin_ns=begin,
            opening_ns=opening,
            end_ns=end,
            work_ns=int(graph.work_ns[op]),
            reference_ns=None if np.isnan(reference) else reference,
            size_bytes=None if ops.size[op] < 0 else int(ops.size[op]),
            gate=None if gate < 0 else gate,
            members=None if gate < 0 else int(gates.first[gate + 1] - gates.first[gate]),
            last_label=None if opener < 0 else self._label(opener),
            wait=wait,
            slack_ns=int(self._bindings.slack_ns[op]),
            critical=bool(self._bindings.critical[op]),
            path=[self._shown(one) for one in path],
            root=None if wait is None else self._root(path, wait),
        )

    def _times(self, op: int) -> tuple[int, int, int]:
        """Arrival, opening and end of an op on the axis."""
        zero = int(self.frames.axis.window_zero_ns[self.graph.window[op]])
        end = int(self.graph.ops.end_ns[op])
        return zero + int(self.graph.ops.start_ns[op]), zero + end - int(self.graph.work_ns[op]), zero + end

    def _label(self, op: int) -> str:
        return rank_label(int(self.graph.ops.rank[op]), self.graph.members)

    def _wait(self, op: int) -> WaitParts | None:
        """What the wait of an op is made of; None where it did not wait."""
        begin, opening, _ = self._times(op)
        if opening <= begin:
            return None
        waits = self.frames.run.waits
        row = np.flatnonzero(waits.op == op)
        if not len(row):
            return WaitParts(
                wait_ns=opening - begin, fault_ns=0, jitter_ns=0, structural_ns=0, gap_ns=0, unexplained_ns=opening - begin
            )
        return WaitParts(**{key: int(waits.columns[key][row[0]]) for key in ("wait_ns", *PARTS)})

    # -----------------------------------------------------------------------------------------------------------------
    # Paths

    def _path(self, op: int, wait: WaitParts | None) -> list[_Passed]:
        """From an op back to its root cause; of one that did not wait, to the beginning of its step."""
        path = [_Passed(op, ASKED, worked=False, came=wait is None)]
        opener = int(self._bindings.opener[op])
        if wait is None or opener < 0:
            path[0].came = True
            self._follow(path, op, until_step=int(self.graph.window[op]))
            return path
        path.append(_Passed(opener, LAST, worked=False, came=True))
        above, net = self._to_meeting(path, opener, op)
        if above >= 0 and wait.fault_ns > 0 and net < wait.fault_ns:
            path[-1].came = True
            self._follow(path, above, needed=wait.fault_ns - net)
        return path

    def _to_meeting(self, path: list[_Passed], last: int, mine: int) -> tuple[int, float]:
        """Follow the last arriver's branch to where it meets that of the waiting op.

        Returns the arrival from which on both are one, -1 for the origin, and the excess of the one branch over the other.
        """
        bound, net = self._bindings.bound, 0.0
        while last != mine and len(path) < LONGEST:
            if min(last, mine) >= 0 and bound[last] >= 0 and bound[last] == bound[mine]:
                shared = int(bound[last])
                self._pass(path, last)
                path[-1].came = False
                return shared, net
            if last > mine:
                last, excess = self._pass(path, last)
                net += excess
            else:
                mine, excess = self._pass(None, mine)
                net -= excess
        if last >= 0:
            path[-1].came = False  # both came by it
        return last if last == mine else -1, net

    def _follow(self, path: list[_Passed], at: int, until_step: int | None = None, needed: float = np.inf) -> None:
        """Follow one branch: to the origin, to the beginning of a step, or until so much excess was passed."""
        while at >= 0 and len(path) < LONGEST and needed > 0:
            before = len(path)
            at, excess = self._pass(path, at)
            needed -= excess
            if until_step is not None and any(self.graph.window[one.op] != until_step for one in path[before:]):
                del path[before:]
                return

    def _pass(self, path: list[_Passed] | None, at: int) -> tuple[int, float]:
        """One step back from an arrival: to what bound it and, through its gate, to who came last there.

        Returns the arrival to go on from, -1 for the origin, and the excess of what bound it.
        """
        u = int(self._bindings.bound[at])
        if u < 0:
            return -1, 0.0
        through = int(self._bindings.opener[u])
        if path is not None:
            same = self.graph.ops.rank[u] == self.graph.ops.rank[at]
            how: Because = "before it on its rank" if same else "before it in its chain"
            path.append(_Passed(u, how, worked=True, came=through < 0))
            if through >= 0:
                path.append(_Passed(through, LAST, worked=False, came=True))
        return (u if through < 0 else through), self._excess(u)

    def _excess(self, op: int) -> float:
        """Work of an op above its reference, ns; negative where it is below, 0 where it has none."""
        reference = float(self.frames.run.reference_ns[op])
        return 0.0 if np.isnan(reference) else int(self.graph.work_ns[op]) - reference

    def _root(self, path: list[_Passed], wait: WaitParts) -> int:
        """Place of the op that carries most of the cause: by work above references or by gaps, as blame split the wait."""
        excess = [self._excess(one.op) if one.worked else 0.0 for one in path]
        gap = [float(self.graph.gap_ns[one.op]) if one.came else 0.0 for one in path]
        work = [float(self.graph.work_ns[one.op]) if one.worked else 0.0 for one in path]
        by_work = wait.fault_ns + wait.jitter_ns + wait.structural_ns
        first, second = (excess, gap) if by_work >= wait.gap_ns else (gap, excess)
        for weights in (first, second, work):
            if max(weights) > 0:
                return int(np.argmax(weights))
        return len(path) - 1

    def _shown(self, one: _Passed) -> PathOp:
        begin, opening, end = self._times(one.op)
        return PathOp(
            op=one.op,
            rank=int(self.graph.ops.rank[one.op]),
            label=self._label(one.op),
            name=self.graph.names[int(self.graph.ops.name[one.op])],
            row=int(self.graph.rank_index[one.op]),
            begin_ns=begin,
            opening_ns=opening,
            end_ns=end,
            because=one.because,
            excess_ns=max(round(self._excess(one.op)), 0),
            gap_ns=max(int(self.graph.gap_ns[one.op]), 0),
        )
