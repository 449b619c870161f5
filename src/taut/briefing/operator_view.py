"""The operator graph of a run, condensed: one node a class of ops or of gates, and the critical path through them.

The critical path is that of the run as it was observed: what the last end of each segment is bound to, op by op. Shares of rank
time are those of the ledger, so that what hides under other work counts nowhere.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Literal

import numpy as np

from taut.briefing.cells import cells_of
from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import weighed
from taut.core.tables import Kind, Table
from taut.graph import Graph
from taut.ledger.charge import FATES
from taut.replay.timeline import Timeline, replay
from taut.result.brief_types import OperatorEdge, OperatorNode, OperatorView
from taut.stored import Run

NODES = 12
"""Classes that have a node of their own at most; the others are together in one more."""
LEAST = 0.002
"""Those take at least this share: of rank time, waiting or the critical path, summed."""
WAITS = ("fault wait", "jitter wait", "structural wait")
"""Fates of time in which a rank waits at a gate."""
WORK = ("productive", "slow compute", "exposed copy", "exposed transfer", "communication undivided", "discarded")
"""Fates of time in which an op of a class holds its rank; of what a host does, ``gap`` does too."""
KINDS: tuple[Literal["compute", "communicate", "synchronise", "coordinate"], ...] = (
    "compute", "communicate", "synchronise", "coordinate",
)  # fmt: skip


def view_of(run: Run) -> OperatorView:
    """The condensed operator graph of a run."""
    return condensed(run.graph, cells_of(run, ("fate", "name", "rank_ns")))


def condensed(graph: Graph, cells: Table) -> OperatorView:
    """The same of a graph and its ledger."""
    names, of_name = _families(graph)
    classes = _Classes(graph, cells, replay(graph), of_name, len(names))
    chosen = classes.chosen()
    rest = np.setdiff1d(np.flatnonzero(classes.ops), chosen)
    nodes = [classes.node(np.array([one]), names[int(one)]) for one in chosen]
    if len(rest):
        nodes.append(classes.node(rest, "1 other class" if len(rest) == 1 else f"{len(rest):,} other classes"))
    node_of = np.full(len(names), len(chosen), dtype=np.int64)
    node_of[chosen] = np.arange(len(chosen))
    return OperatorView(nodes=nodes, edges=classes.edges(node_of[classes.of], len(nodes)), left_out=len(rest))


def _families(graph: Graph) -> tuple[list[str], Ints]:
    """(names of classes, class of every name of the graph): of very many classes, those that differ in numbers are one."""
    used = np.bincount(graph.ops.name, minlength=len(graph.names)) > 0
    if int(used.sum()) <= NODES:
        return list(graph.names), np.arange(len(graph.names))
    families: dict[str, int] = {}
    of = [families.setdefault(re.sub(r"[0-9]+", "#", name), len(families)) for name in graph.names]
    alone = np.bincount(of)
    names = list(families)
    for name, family in zip(graph.names, of, strict=True):
        if alone[family] == 1:
            names[family] = name
    return names, np.array(of, dtype=np.int64)


class _Classes:
    """What the classes of a graph take, by their numbers."""

    def __init__(self, graph: Graph, cells: Table, observed: Timeline, of_name: Ints, count: int) -> None:
        self.graph, self.cells, self.observed = graph, cells, observed
        self.of_name, self.count = of_name, count
        self.of: Ints = of_name[graph.ops.name]
        self.ops: Ints = np.bincount(self.of, minlength=count)

    @cached_property
    def kinds(self) -> Ints:
        """How many ops of each kind a class has: classes × kinds."""
        code = self.of * len(KINDS) + self.graph.ops.kind
        return np.bincount(code, minlength=self.count * len(KINDS)).reshape(self.count, len(KINDS))

    @cached_property
    def gated(self) -> Ints:
        """Ops of each class that meet others."""
        return np.bincount(self.of[self.graph.gate >= 0], minlength=self.count)

    @cached_property
    def rank_share(self) -> Floats:
        """Of all rank time, what ops of each class hold."""
        host = self.kinds.argmax(axis=1) == Kind.COORDINATE
        named = self._share(np.isin(self.cells.fate, [FATES.index(fate) for fate in WORK]))
        return named + np.where(host, self._share(self.cells.fate == FATES.index("gap")), 0.0)

    @cached_property
    def wait_share(self) -> Floats:
        """Of all rank time, what is waited at the gates of each class."""
        return self._share(np.isin(self.cells.fate, [FATES.index(fate) for fate in WAITS]))

    def _share(self, some: Mask) -> Floats:
        """Of all rank time, that of some cells, by class."""
        whole = int(self.cells.rank_ns.sum()) if len(self.cells) else 0
        rows = np.flatnonzero(some & (self.cells.name >= 0)) if len(self.cells) else np.zeros(0, dtype=np.int64)
        held = np.bincount(self.of_name[self.cells.name[rows]], weights=self.cells.rank_ns[rows], minlength=self.count)
        return held / max(whole, 1)

    @cached_property
    def path(self) -> Ints:
        """The ops of the critical path."""
        return np.flatnonzero(self.observed.critical)

    @cached_property
    def critical_share(self) -> Floats:
        """Of the wall, work on the critical path."""
        work = self.observed.work_ns[self.path]
        return np.bincount(self.of[self.path], weights=work, minlength=self.count) / max(self.observed.wall_ns, 1)

    @cached_property
    def place(self) -> Floats:
        """Where in its step each op begins, 0–1, summed over the ops of a class."""
        graph, length = self.graph, self.observed.window_ns
        end = np.zeros(len(graph.steps), dtype=np.int64)
        for segment in np.unique(graph.segment):
            here = graph.segment == segment
            end[here] = np.cumsum(length[here])
        begin = (end - length)[graph.window]
        at = np.clip((graph.ops.start_ns - begin) / np.maximum(length, 1)[graph.window], 0, 1)
        return weighed(self.of, at, self.count)

    def chosen(self) -> Ints:
        """The classes that matter most, the largest first."""
        present = np.flatnonzero(self.ops)
        weight = (self.rank_share + self.wait_share + self.critical_share)[present]
        order = np.argsort(-weight, kind="stable")
        large: Ints = present[order[weight[order] >= LEAST]][:NODES]
        return large if len(large) else present[order[:1]]

    def node(self, classes: Ints, name: str) -> OperatorNode:
        """One node for some classes."""
        ops = int(self.ops[classes].sum())
        return OperatorNode(
            name=name,
            kind=KINDS[int(self.kinds[classes].sum(axis=0).argmax())],
            gate=2 * int(self.gated[classes].sum()) > ops,
            ops=ops,
            rank_share=float(self.rank_share[classes].sum()),
            wait_share=float(self.wait_share[classes].sum()),
            critical_share=float(self.critical_share[classes].sum()),
            place=float(self.place[classes].sum() / max(ops, 1)),
        )

    def edges(self, node: Ints, nodes: int) -> list[OperatorEdge]:
        """Which node follows which, within a rank or through a gate, and in how many steps the critical path goes there."""
        graph = self.graph
        # Ops whose gate somebody of another class opened: a receive follows its send.
        met = np.flatnonzero(self.observed.opener >= 0)
        count = self._pairs(node, graph.pred, np.repeat(np.arange(len(graph)), np.diff(graph.pred_ptr)), nodes)
        count = count + self._pairs(node, self.observed.opener[met], met, nodes)
        taken, steps = self._taken(node, nodes), len(graph.steps)
        found = [(a, b) for a, b in zip(*np.nonzero(count + taken), strict=True) if a != b]
        return [
            OperatorEdge(first=int(a), then=int(b), count=int(count[a, b]), critical_share=float(taken[a, b] / steps))
            for a, b in found
        ]

    def _pairs(self, node: Ints, first: Ints, then: Ints, nodes: int) -> Ints:
        """How often one node follows another: nodes × nodes."""
        return np.bincount(node[first] * nodes + node[then], minlength=nodes * nodes).reshape(nodes, nodes)

    def _taken(self, node: Ints, nodes: int) -> Ints:
        """Steps in which the critical path goes from one node to another: nodes × nodes."""
        bound, opener, window = self.observed.bound, self.observed.opener, self.graph.window
        opened = np.where(opener[self.path] >= 0, opener[self.path], self.path)  # whose arrival set this end
        first, then = np.concatenate([bound[opened], opened]), np.concatenate([opened, self.path])
        at = np.concatenate([window[self.path], window[self.path]]).astype(np.int64)
        real = first >= 0
        pair = node[first[real]] * nodes + node[then[real]]
        once = np.unique(at[real] * nodes * nodes + pair) % (nodes * nodes)
        return np.bincount(once, minlength=nodes * nodes).reshape(nodes, nodes)
