"""Partial synchronisation loss: ranks that used to meet no longer do, and the groups that are left drift apart.

Which ranks meet, directly or through others, is read from the gates of every step. Null hypotheses: a stretch of steps in
which fewer ranks meet is no longer than twice the stretches the job makes anyhow (local steps between two joint ones are
a policy, not a fault); and in such a stretch the groups begin their steps as close to each other as before (Mann and
Whitney's test at 1 %).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.change_points import LEAST_INSIDE, LEAST_STEPS
from taut.core.rank_words import rank_labels
from taut.core.reporting import spell
from taut.diagnose.finding import Evidence, Finding
from taut.graph import Graph

MODE = "partial synchronisation loss"
MODES = (MODE,)
FALSE_ALARMS = 0.01
"""Chance that groups which stay as close as before are said to drift apart."""
LONGER = 2
"""A stretch of steps apart must be this many times as long as any other to be more than the job's rhythm."""


class SplitGroup(Struct, frozen=True):
    """A group of ranks (indices) that meets no others in windows first … last."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    first: int
    last: int
    chance: float
    apart_ns: float
    """How far apart the two came, ns."""

    def holds(self, rank: int, first: int, last: int) -> bool:
        """Whether a rank is of the group while it is apart."""
        return rank in self.ranks and min(last, self.last) >= max(first, self.first)


def split_group(graph: Graph) -> SplitGroup | None:
    """The group that no longer meets the others, if there is one."""
    if len(graph.steps) < LEAST_STEPS or len(graph.ranks) < 4 or graph.trace.relative or not len(graph.gates):
        return None
    widest = np.zeros(len(graph.steps), dtype=np.int64)
    np.maximum.at(widest, np.searchsorted(graph.steps, graph.gates.step).clip(0, len(widest) - 1), graph.gates.members)
    if (widest == len(graph.ranks)).all():
        return None  # all meet in every step
    label = _meeting(graph)
    many = np.array([len(np.unique(column)) for column in label.T])
    stretch = _longest(many > many[: LEAST_INSIDE + 1].min())
    if stretch is None:
        return None
    first, last = stretch
    groups = [np.flatnonzero((label[:, first:last] == row).all(axis=1)) for row in np.unique(label[:, first:last], axis=0)]
    groups = [group for group in groups if len(group) > 1]
    if len(groups) < 2:
        return None
    # Of the groups that are left, the one whose steps got longest is the one that fell behind.
    begin = _begins(graph)
    longer = [_longer(begin[group], first, last) for group in groups]
    slow = groups[int(np.argmax(longer))]
    rest = np.concatenate([group for group in groups if group is not slow])
    offset = np.nanmedian(begin[slow], axis=0) - np.nanmedian(begin[rest], axis=0)
    from scipy.stats import mannwhitneyu

    off = np.abs(offset - np.nanmedian(np.delete(offset, slice(first, last))))
    # They part during the first step of the stretch: its begin is still together.
    chance = float(mannwhitneyu(off[first + 1 : last], np.delete(off, slice(first, last)), alternative="greater").pvalue)
    if not chance < FALSE_ALARMS:
        return None
    return SplitGroup(tuple(slow.tolist()), tuple(rest.tolist()), first, last - 1, chance, float(off[first:last].max()))


def _meeting(graph: Graph) -> Ints:
    """Rank × window: ranks that meet in a window, through whatever gates, have the same label."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ranks, windows = len(graph.ranks), len(graph.steps)
    rows = np.flatnonzero(graph.gate >= 0)
    node, gate = graph.rank_index[rows].astype(np.int64) * windows + graph.window[rows], ranks * windows + graph.gate[rows]
    size = ranks * windows + len(graph.gates)
    # Ranks in windows and gates are nodes, taking part is an edge: who is connected meets, directly or through others.
    links = coo_array((np.ones(len(rows), dtype=np.int8), (node, gate)), shape=(size, size))
    label = np.asarray(connected_components(links, directed=False)[1])
    return label[: ranks * windows].reshape(ranks, windows)


def _longest(mask: Mask) -> tuple[int, int] | None:
    """The longest run of a mask (begin, end), if it is much longer than all the others."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    runs = sorted(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True), key=lambda run: run[0] - run[1])
    if not runs or runs[0][1] - runs[0][0] < LEAST_INSIDE + 1:
        return None
    other = max((end - begin for begin, end in runs[1:]), default=0)
    return runs[0] if runs[0][1] - runs[0][0] > LONGER * other else None


def _begins(graph: Graph) -> Floats:
    """Rank × window: when the first op began, ns."""
    begin = np.full(len(graph.ranks) * len(graph.steps), np.inf)
    np.minimum.at(begin, graph.rank_step, graph.ops.start_ns.astype(np.float64))
    begin[np.isinf(begin)] = np.nan
    return begin.reshape(len(graph.ranks), -1)


def _longer(begin: Floats, first: int, last: int) -> float:
    """By how much the steps of a group got longer while it was apart, ns."""
    took = np.diff(np.nanmedian(begin, axis=0))
    inside = took[first : max(last - 1, first + 1)]
    outside = np.delete(took, slice(first, last))
    return float(np.median(inside) - np.median(outside)) if len(outside) else float(np.median(inside))


def detect(evidence: Evidence) -> list[Finding] | None:
    """At most one finding, with what its ranks do more than before."""
    split, graph = evidence.split, evidence.graph
    if split is None:
        return None
    slow = [f for f in evidence.late_ranks if f.mode == MODE]
    ranks, others = ([int(graph.ranks[r]) for r in some] for some in (split.ranks, split.others))
    steps = evidence.steps(split.first, split.last)
    return [
        Finding(
            mode=MODE,
            reference="past",
            ranks=tuple(ranks),
            classes=tuple(dict.fromkeys(name for f in slow for name in f.classes))[:3],
            steps=steps,
            lost_rank_ns=sum(f.lost_rank_ns for f in slow),
            confidence=1 - split.chance,
            because=f"from step {steps[0]} on, {rank_labels(ranks, graph.members)} meet {rank_labels(others, graph.members)} "
            f"at no gate any more; the two groups are up to {spell(split.apart_ns)} apart (chance {split.chance:.1g} if they "
            f"were as close as before)",
            changes=tuple(change for f in slow for change in f.changes),
            certain="results of the two groups no longer agree, whatever time it costs",
        )
    ]
