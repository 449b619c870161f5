"""The operator graph of a run, condensed: one node a class of ops or of gates, and the critical path through them.

The critical path is that of the run as it was observed: what the last end of each segment is bound to, op by op. Shares of rank
time are those of the ledger, so that what hides under other work counts nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.core.ids import rows_of_ids, weighed
from taut.core.tables import NULL, Kind, Table
from taut.graph import Graph
from taut.ledger.charge import FATES
from taut.replay.timeline import Timeline, replay
from taut.result.brief_types import OperatorEdge, OperatorNode, OperatorView

NODES = 7
"""Classes that have a node of their own at most: more fit no half page."""
LEAST = 0.01
"""What a node takes at least: of rank time, waiting and the critical path, summed."""
OTHERS = 0.03
"""The same of all that have no node of their own, together."""
WAITS = ("fault wait", "jitter wait", "structural wait")
"""Fates of time in which a rank waits at a gate."""
WORK = ("productive", "slow compute", "exposed copy", "exposed transfer", "communication undivided", "discarded")
"""Fates of time in which an op of a class holds its rank; of what a host does, ``gap`` does too."""
KINDS: tuple[Literal["compute", "communicate", "synchronise", "coordinate"], ...] = (
    "compute", "communicate", "synchronise", "coordinate",
)  # fmt: skip


def condensed(graph: Graph, cells: Table) -> OperatorView:
    """The condensed operator graph of a graph and its ledger."""
    names, of_name = _families(graph)
    classes = _Classes(graph, cells, replay(graph), of_name, len(names))
    chosen = classes.chosen()
    rest = np.setdiff1d(np.flatnonzero(classes.ops), chosen)
    nodes = [classes.node(np.array([one]), names[int(one)]) for one in chosen]
    node_of = rows_of_ids(chosen, len(names), NULL)
    if float(classes.weight[rest].sum()) >= OTHERS:
        node_of[rest] = len(nodes)
        nodes.append(classes.node(rest, "1 other class" if len(rest) == 1 else f"{len(rest):,} other classes"))
    node = node_of[classes.of]
    nodes = _in_order(nodes, classes.taken(node, len(nodes), within=True))
    return OperatorView(nodes=nodes, edges=classes.edges(node, len(nodes)), left_out=len(rest))


def _in_order(nodes: list[OperatorNode], within: Ints) -> list[OperatorNode]:
    """The nodes placed in the order of the step, unless in another order the critical path goes back less.

    ``within`` is in how many steps it goes from node to node without leaving the step: a step has a beginning.
    """
    order = sorted(range(len(nodes)), key=lambda k: nodes[k].place)
    better: list[int] | None = order
    while better is not None:
        order = better
        better = next((one for one in _with_one_elsewhere(order) if _back(one, within) < _back(order, within)), None)
    place = {k: (at + 0.5) / len(order) for at, k in enumerate(order)}
    return [replace(node, place=place[k]) for k, node in enumerate(nodes)]


def _with_one_elsewhere(order: list[int]) -> Iterator[list[int]]:
    """The order with one of its nodes elsewhere."""
    for k in order:
        others = [one for one in order if one != k]
        yield from ([*others[:at], k, *others[at:]] for at in range(len(order)))


def _back(order: list[int], within: Ints) -> int:
    """How often the critical path goes back in an order."""
    return int(np.tril(within[np.ix_(order, order)], -1).sum())


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
    def held(self) -> Floats:
        """Of all rank time, what each class holds by fate: classes × fates."""
        cells, fates = self.cells, len(FATES)
        code = np.append(self.of_name, self.count)[cells.name] * fates + cells.fate  # what has no class comes last
        sums = weighed(code, cells.rank_ns, (self.count + 1) * fates).reshape(-1, fates)
        return sums[:-1] / max(float(sums.sum()), 1.0)

    @cached_property
    def rank_share(self) -> Floats:
        """Of all rank time, what ops of each class hold."""
        host = self.kinds.argmax(axis=1) == Kind.COORDINATE
        return self._of_fates(WORK) + np.where(host, self._of_fates(("gap",)), 0.0)

    @cached_property
    def wait_share(self) -> Floats:
        """Of all rank time, what is waited at the gates of each class."""
        return self._of_fates(WAITS)

    def _of_fates(self, some: Sequence[str]) -> Floats:
        found: Floats = self.held[:, [FATES.index(fate) for fate in some]].sum(axis=1)
        return found

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
        """Where in their step the ops of a class begin, on average, 0–1."""
        graph, length = self.graph, self.observed.window_ns
        end = np.zeros(len(graph.steps), dtype=np.int64)
        for segment in np.unique(graph.segment):
            here = graph.segment == segment
            end[here] = np.cumsum(length[here])
        begin = (end - length)[graph.window]
        at = np.clip((graph.ops.start_ns - begin) / np.maximum(length, 1)[graph.window], 0, 1)
        return weighed(self.of, at, self.count) / np.maximum(self.ops, 1)

    @cached_property
    def weight(self) -> Floats:
        """How much a class matters."""
        return self.rank_share + self.wait_share + self.critical_share

    def chosen(self) -> Ints:
        """The classes that matter most, the largest first."""
        present = np.flatnonzero(self.ops)
        weight = self.weight[present]
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
            place=float((self.place * self.ops)[classes].sum() / max(ops, 1)),
        )

    def edges(self, node: Ints, nodes: int) -> list[OperatorEdge]:
        """Which node follows which, within a rank or through a gate, and in how many steps the critical path goes there."""
        graph = self.graph
        # Ops whose gate somebody of another class opened: a receive follows its send.
        met = np.flatnonzero(self.observed.opener >= 0)
        count = self._pairs(node, graph.pred, np.repeat(np.arange(len(graph)), np.diff(graph.pred_ptr)), nodes)
        count = count + self._pairs(node, self.observed.opener[met], met, nodes)
        taken, steps = self.taken(node, nodes), len(graph.steps)
        found = [(a, b) for a, b in zip(*np.nonzero(count + taken), strict=True) if a != b]
        return [
            OperatorEdge(first=int(a), then=int(b), count=int(count[a, b]), critical_share=float(taken[a, b] / steps))
            for a, b in found
        ]

    def _pairs(self, node: Ints, first: Ints, then: Ints, nodes: int) -> Ints:
        """How often one node follows another: nodes × nodes."""
        wide = nodes + 1  # ops of no node have one of their own, which is left out
        of = np.where(node < 0, nodes, node)
        count = np.bincount(of[first] * wide + of[then], minlength=wide * wide).reshape(wide, wide)
        return count[:nodes, :nodes]

    def taken(self, node: Ints, nodes: int, within: bool = False) -> Ints:
        """Steps in which the critical path goes from one node to the next: nodes × nodes. Ops of no node are passed over.

        ``within`` leaves out where it goes from one step to the next.
        """
        window, opener = self.graph.window[self.path].astype(np.int64), self.observed.opener[self.path]
        segment = self.graph.segment[window]
        # Each op of the path comes behind the op whose arrival set its end: at a gate that is another rank's. Ops are numbered
        # as they arrive, and what such an op is bound to ended before: so their numbers are the order of the path.
        opened = np.where(opener >= 0, opener, self.path)
        order = np.lexsort((opened, segment))
        passed = node[np.stack([opened[order], self.path[order]], axis=1).ravel()]
        at, of = np.repeat(window[order], 2)[passed >= 0], np.repeat(segment[order], 2)[passed >= 0]
        passed = passed[passed >= 0]
        same = np.flatnonzero((at[1:] == at[:-1]) if within else (of[1:] == of[:-1]))
        pair = passed[same] * nodes + passed[same + 1]
        once = np.unique(at[same + 1] * nodes * nodes + pair) % (nodes * nodes)
        return np.bincount(once, minlength=nodes * nodes).reshape(nodes, nodes)
