"""Tails of fan-outs: a root that asks many and gathers their answers waits for the slowest, beyond what independent calls give.

Null hypothesis: a fan-out to n takes as long as the longest of n/m fan-outs to m, drawn independently from the narrowest one
of the same class. The statistic is the ratio of an upper quantile to the median; its chance is taken from seeded draws under
that null, Bonferroni over the fan-outs compared. The latency of a fan-out is the time from the root's arrival to its end.

``tails`` holds every fan-out against what its own calls would give if each were drawn from a request of its own: the calls are
shuffled between requests, rank by rank.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered
from taut.core.reporting import spell
from taut.diagnose.finding import Evidence, Finding
from taut.graph import Graph
from taut.graph.gate_matching import ROOT_TAKES
from taut.replay.timeline import Change
from taut.result.types import Tail

MODE = "tail latency inflation"
FALSE_ALARMS = 0.01
"""Chance that a job whose tails are independent is said to have inflated ones."""
LEAST = 40
"""Gates of a fan-out below which it has no tail to speak of."""
DRAWS = 999
"""Samples drawn under the null hypothesis."""
MOST_DRAWN = 20_000_000
"""Calls shuffled at most, for one class and width."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """One finding for every class name whose widest fan-out of answers has too long a tail."""
    graph = evidence.graph
    root, width = fans = fan_outs(graph)
    took = np.zeros(len(graph.gates))
    took[root >= 0] = (graph.ops.end_ns - graph.ops.start_ns)[root[root >= 0]]
    out: list[Finding | None] = []
    cls, count = numbered(graph.gates.name)
    for one in range(count):
        mine = np.flatnonzero((cls == one) & (root >= 0))
        members = width[mine]
        wide = [n for n in np.unique(members).tolist() if np.count_nonzero(members == n) >= LEAST]
        out += [_compared(evidence, took, fans, mine[members == wide[0]], mine[members == n], len(wide) - 1) for n in wide[1:]]
    return [finding for finding in out if finding is not None] if out else None


def fan_outs(graph: Graph) -> tuple[Ints, Ints]:
    """Per gate: the op of the root that gathers answers, -1 where there is none; and how many it waits for."""
    ops = graph.ops
    root = np.full(len(graph.gates), -1, dtype=np.int64)
    takes = np.flatnonzero((graph.gate >= 0) & np.isin(ops.verb, ROOT_TAKES) & (ops.rank == ops.peer))
    root[graph.gate[takes]] = takes
    return root, graph.gates.members - (root >= 0)


def _late_work(graph: Graph, root: Ints, rows: Ints, limit: int) -> tuple[Ints, Ints]:
    """What makes answers late: the longest work in the lane of each late one, and how long it takes without being late."""
    ops = graph.ops
    over = ops.start_ns[rows] - ops.start_ns[root[graph.gate[rows]]] - limit
    late, over = rows[over > 0], over[over > 0]
    cell, _ = numbered(ops.rank, ops.lane, graph.window)
    by_cell = np.argsort(cell, kind="stable")
    first, last = (np.searchsorted(cell[by_cell], cell[late], side) for side in ("left", "right"))
    found: dict[int, int] = {}
    for a, b, extra in zip(first.tolist(), last.tolist(), over.tolist(), strict=True):
        # An answer is late because of the longest work in its lane.
        longest = int(max(by_cell[a:b].tolist(), key=lambda op: int(graph.work_ns[op])))
        found[longest] = max(int(graph.work_ns[longest]) - extra, 0)
    return np.array(list(found), dtype=np.int64), np.array(list(found.values()), dtype=np.int64)


def _compared(e: Evidence, took: Floats, fans: tuple[Ints, Ints], narrow: Ints, wide: Ints, tests: int) -> Finding | None:
    """Hold a wide fan-out against draws from the narrow one."""
    graph, (root, width) = e.graph, fans
    fewer, more = (int(width[some[0]]) for some in (narrow, wide))
    draws = max(round(more / fewer), 1)
    rng = np.random.default_rng(len(wide))
    high = 0.99 if len(wide) >= 200 else 0.95
    base = np.sort(took[narrow])
    # The largest of k uniform variables is the k-th root of one: one draw instead of k.
    null = base[(rng.random((DRAWS, len(wide))) ** (1 / draws) * len(base)).astype(np.int64)]
    expected = _inflation(null, high)
    seen = float(_inflation(took[wide][None, :], high)[0])
    chance = min(1.0, tests * (1 + int(np.count_nonzero(expected >= seen))) / (DRAWS + 1))
    limit = float(np.quantile(null, high))
    tail = wide[took[wide] > limit]
    if chance >= FALSE_ALARMS or not len(tail):
        return None
    rows = np.flatnonzero((graph.gate >= 0) & np.isin(graph.gate, tail))
    rows, usual = _late_work(graph, root, rows, round(limit))
    if not len(rows):
        return None
    name = graph.names[int(graph.gates.name[wide[0]])]
    return Finding(
        mode=MODE,
        classes=(name,),
        steps=e.steps_of(rows),
        lost_rank_ns=int((graph.work_ns[rows] - usual).sum()),
        confidence=1 - chance,
        because=f"{name} among {more} ranks has a tail of {seen:.1f} times its median, where independent tails of {fewer} "
        f"ranks would give {float(np.median(expected)):.1f}: {len(tail)} of {len(wide)} take longer than {spell(limit)}",
        changes=(Change(rows, "work", "set", usual, f"{name} with independent tails"),),
    )


def _inflation(samples: Floats | Ints, high: float) -> Floats:
    """Upper quantile over median, along the last axis."""
    top, middle = np.quantile(samples, (high, 0.5), axis=-1)
    return np.asarray(top / np.maximum(middle, 1.0))


def tails(graph: Graph) -> list[Tail] | None:
    """Every fan-out of answers, by class and width: its tail, and that of independent calls; None where there are none."""
    root, width = fan_outs(graph)
    if not (root >= 0).any():
        return None
    cls, count = numbered(graph.gates.name, np.where(root >= 0, width, 0))
    order = np.argsort(graph.gate, kind="stable")
    order = order[graph.gate[order] >= 0]
    begin = np.searchsorted(graph.gate[order], np.arange(len(graph.gates)))
    out = []
    for one in range(count):
        gates = np.flatnonzero((cls == one) & (root >= 0))
        if len(gates):
            rows = order[(begin[gates][:, None] + np.arange(int(width[gates[0]]) + 1)).ravel()].reshape(len(gates), -1)
            out.append(_tail(graph, root[gates], rows))
    return sorted(out, key=lambda row: (row.op_class, row.fan_out))


def _tail(graph: Graph, root: Ints, rows: Ints) -> Tail:
    """One class and width; calls of fewer requests than have a tail get no prediction."""
    ops = graph.ops
    answers = rows[rows != root[:, None]].reshape(len(root), -1)
    # Columns are ranks, rows requests: shuffling a column keeps what the rank is like.
    by_rank = np.argsort(ops.rank[answers], axis=1, kind="stable")
    answers = np.take_along_axis(answers, by_rank, axis=1)
    latency = ops.start_ns[answers] - ops.start_ns[root][:, None]
    high = 0.99 if len(root) >= 200 else 0.95
    longest = latency.max(axis=1)
    top, middle = (round(float(np.quantile(longest, q))) for q in (high, 0.5))
    seen = float(_inflation(longest, high))
    expected = _shuffled(latency, high) if len(root) >= LEAST else None
    return Tail(
        op_class=graph.names[int(ops.name[root[0]])],
        fan_out=answers.shape[1],
        gates=len(root),
        quantile=high,
        p50_ns=middle,
        high_ns=top,
        ratio=seen,
        independent_ratio=None if expected is None else float(np.median(expected)),
        chance=None if expected is None else float((1 + np.count_nonzero(expected >= seen)) / (len(expected) + 1)),
    )


def _shuffled(latency: Ints, high: float) -> Floats:
    """Inflation of the longest call when every rank's calls are shuffled between requests."""
    rng = np.random.default_rng(latency.shape[0])
    draws = max(19, min(199, MOST_DRAWN // latency.size))
    return np.array([float(_inflation(rng.permuted(latency, axis=0).max(axis=1), high)) for _ in range(draws)])
