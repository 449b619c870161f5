"""Fabric contention: the same transfer takes longer when others of the same ranks are under way, not when it is larger.

Null hypothesis: among transfers of one class (group, name, bytes, place in the step), those that open while a transfer of
another group is in progress at one of their ranks take no longer than those that open alone. Ranks of the durations inside
each class, so neither size nor place nor class can make it; summed over the classes of a step, because steps are the
sample: what one step does to all its transfers is seen once, and steps that resemble their neighbours say less
(``core/persistence.py``). What is under way *when a transfer opens* is counted, as long as that class *usually* takes: a
transfer that takes longer meets more others, and demand that lengthens all transfers makes them meet more often; neither
proves anything.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.group_kernels import group_sort
from taut.core.ids import distinct, numbered, weighed
from taut.core.persistence import above_zero
from taut.core.reporting import spell
from taut.diagnose.class_medians import class_medians
from taut.diagnose.finding import Evidence, Finding, top_classes
from taut.graph import Graph
from taut.replay.timeline import Change

MODE = "fabric contention"
MODES = (MODE,)
FALSE_ALARMS = 0.01
"""Chance that a job without contention is said to have some."""
SLOWER = 1.3
"""Times by which transfers in company take longer than those alone, at least: less is the ordinary price of overlap."""
LEAST = 5
"""Transfers of a class that must have been alone, and that must have been in company."""


def detect(evidence: Evidence) -> list[Finding] | None:
    """At most one finding: all classes of transfers that suffer from company."""
    graph = evidence.graph
    if not len(graph.gates) or len(distinct(graph.gates.group)) < 2:
        return None
    window, _, took = evidence.slowdowns.gates
    company, cls, count = _company(graph, took)
    tested = _tested(company, cls, count)
    if not tested.any():
        return None
    score, chance = _stratified(took[tested], company[tested], cls[tested], count, window[tested])
    together, alone = (class_medians(took, cls, count, tested & some) for some in (company, ~company))
    ratio = float(np.nanmedian(together / np.maximum(alone, 1.0)))
    if chance >= FALSE_ALARMS or ratio < SLOWER:
        return []
    slow = tested & company & (took > alone[cls])
    rows = np.flatnonzero((graph.gate >= 0) & np.append(slow, False)[graph.gate])
    usual = np.minimum(graph.work_ns[rows], np.rint(alone[cls][graph.gate[rows]])).astype(np.int64)
    lost = graph.work_ns[rows] - usual
    return [
        Finding(
            mode=MODE,
            reference="past",
            classes=top_classes(graph, rows, lost),
            steps=evidence.steps_of(rows),
            lost_rank_ns=int(lost.sum()),
            confidence=1 - chance,
            because=f"{int(slow.sum())} transfers that open while another transfer of the same ranks is under way take "
            f"{ratio:.1f} times as long as the same transfers alone ({spell(float(np.median(alone[cls][slow])))}; same class, "
            f"bytes and place in the step; {score:.1f} standard errors over {int(tested.sum())} transfers)",
            changes=(Change(rows, "work", "set", usual, "transfers as if alone"),),
        )
    ]


def _company(graph: Graph, took: Floats) -> tuple[Mask, Ints, int]:
    """Per gate: whether a transfer of another group was under way, its class, and how many classes there are."""
    rows = np.flatnonzero(graph.gate >= 0)
    gate, gates = graph.gate[rows], len(graph.gates)
    company, place = np.zeros(gates, dtype=bool), np.zeros(gates, dtype=np.int64)
    place[gate] = graph.place[rows]
    cls, count = numbered(graph.gates.group, graph.gates.name, graph.gates.size, place)
    opens = graph.ops.end_ns[rows] - graph.work_ns[rows]
    usual = np.rint(class_medians(took, cls, count))[cls[gate]].astype(np.int64)
    lane, lanes = numbered(graph.rank_index[rows], graph.segment[graph.window[rows]])
    group, groups = numbered(lane, graph.gates.group[gate])
    # A group's own transfers queue by design.
    active = _under_way(lane, lanes, opens, opens + usual) - _under_way(group, groups, opens, opens + usual)
    company[gate[active > 0]] = True
    return company, cls, count


def _under_way(lane: Ints, lanes: int, opens: Ints, end: Ints) -> Ints:
    """How many intervals of its lane are under way when each begins, itself not counted."""
    zero = int(opens.min())
    span = int(end.max()) - zero + 1
    # Lane by lane, intervals nearly follow each other as ops do: sorting that keeps what is in order has little left to do.
    order = group_sort(lane, lanes)[0]
    begins, ends = ((lane * span + (t - zero))[order] for t in (opens, end))
    by_time = np.argsort(begins, kind="stable")
    begins, ends = begins[by_time], np.sort(ends, kind="stable")
    out = np.empty(len(lane), dtype=np.int64)
    # In every lane as many end as begin, so what the lanes before it did cancels.
    out[order[by_time]] = np.searchsorted(begins, begins, "left") - np.searchsorted(ends, begins, "right")
    return out


def _tested(company: Mask, cls: Ints, count: int) -> Mask:
    """Mask over the gates of the classes that have enough of both kinds."""
    together = weighed(cls, company, count)
    alone = np.bincount(cls, minlength=count) - together
    return ((together >= LEAST) & (alone >= LEAST))[cls]


def _stratified(took: Floats, company: Mask, cls: Ints, count: int, window: Ints) -> tuple[float, float]:
    """Wilcoxon's rank sum of those in company, summed over the classes of each step: (score, chance) over the steps."""
    order = np.lexsort((took, cls))
    begin = np.searchsorted(cls[order], np.arange(count))
    rank = np.empty(len(took))
    rank[order] = np.arange(len(took)) - begin[cls[order]] + 1.0
    n = np.bincount(cls, minlength=count).astype(np.float64)
    share = weighed(cls, company, count) / np.maximum(n, 1)
    # Wilcoxon's statistic stratified by class (van Elteren): ranks are scaled by n + 1, so that classes weigh alike.
    agree = (company - share[cls]) * (rank / (n + 1)[cls] - 0.5)
    steps = numbered(window)[0]
    return above_zero(weighed(steps, agree))
