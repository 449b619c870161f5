"""References: what an op's work (or gap) should have been.

Two kinds. *Across roles* (``across``): all ops of a class whatever their stage, the mean for computes and the median for
transfers, as the published what-if reference has it; only ``whatif.slowdown`` and ``by`` use it. *Peers* (``peers``):
the same op at the same place in the step on the other ranks of the role, leaving the op's own rank out, because a mean
that includes the culprit hides part of it. With a *baseline* (``baseline``), a healthy run of the same job, the reference
is what the same op at the same place took on the same rank there; peers serve only what the baseline does not know.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask
from taut.core.ids import coded
from taut.core.row_shares import over_rows
from taut.core.scratch import empty, kept, zeros
from taut.core.tables import NULL
from taut.graph import Graph
from taut.graph.joined import Joined
from taut.replay.cell_medians import medians, medians_and_spreads
from taut.replay.mixed_classes import kinds_and_mixed

BETWEEN_RUNS = 0.01
"""Two healthy runs of a job differ at least by this spread in the work of a class on a rank, as a share of it."""


class Reference(Struct, frozen=True):
    """Per op: the reference, and how far an ordinary peer strays from it within a rank and between ranks (ns).

    Spreads are kept by cell: one number for every op would take four times the memory.
    """

    value_ns: Floats
    cell: Codes
    """Ops that have the spreads in common: a class on a rank."""
    within_of_cell_ns: Floats
    between_of_cell_ns: Floats
    mixed: Mask
    """Ops whose class holds ops of several lengths: they have no reference, and count as they were."""

    @property
    def arrays(self) -> tuple[Floats, Codes, Floats, Floats]:
        """Reference and cell of every op, spreads of every cell, in the order in which kernels take them."""
        return self.value_ns, self.cell, self.within_of_cell_ns, self.between_of_cell_ns

    @property
    def within_ns(self) -> Floats:
        """Per op: how far an ordinary peer strays within a rank."""
        return self.within_of_cell_ns[self.cell]

    @property
    def between_ns(self) -> Floats:
        """Per op: how far ordinary peers are apart."""
        return self.between_of_cell_ns[self.cell]


def whatever_role(graph: Graph) -> tuple[Codes, int]:
    """Class of every op whatever its role and micro-batch, and how many there are.

    Where ranks do not agree on how many ops there are of a kind, their places are not known, and ops of one name may be of
    several lengths. What ranks have in common is then not told by their mean: a class is that of one rank.
    """
    ops = graph.ops
    named = ops.part >= 0
    place = np.broadcast_to(np.int32(0), len(ops)) if named.all() else graph.place
    keys = [ops.name, ops.size, np.where(named, 0, place) if named.any() else place]
    loose = ~graph.aligned & (graph.gate < 0)
    return coded(*keys, np.where(loose, graph.rank_index, -1)) if loose.any() else coded(*keys)


def across(graph: Graph) -> Ints:
    """Reference work of every op over all roles, ns: mean for computes, median for ops that meet at a gate."""
    from taut.core.group_kernels import group_sort, table_sums

    cls, classes = whatever_role(graph)
    meets = np.flatnonzero(graph.gate >= 0)
    median = medians(graph.work_ns[meets], *group_sort(cls[meets], classes))
    mean = table_sums(cls, classes, zeros(len(cls)), 1, graph.work_ns) / np.maximum(np.bincount(cls, minlength=classes), 1)
    usual = np.rint(mean).astype(np.int64)[cls]
    usual[meets] = np.rint(np.nan_to_num(median)).astype(np.int64)[cls[meets]]
    return kept(usual)


def peers(graph: Graph) -> Reference:
    """Leave-one-out reference of every op's work from the other ranks of its role; NaN where there is nobody to ask.

    Members of a gate are compared inside it, with the fastest of the others: what slows the whole gate is common to
    all, and a slow link shows as ending later than they did.
    """
    from taut.replay.wait_kernels import fastest_other

    ops = graph.ops
    # What is compared inside a gate is the work above the fastest other member; outside gates the base is 0.
    base = fastest_other(graph.gate, len(graph.gates), graph.work_ns)
    cls, classes = coded(graph.roles, ops.name, graph.shape, graph.place, graph.gate >= 0)
    kind, mixed = kinds_and_mixed(graph, cls, classes)
    if kind.any():
        cls, classes = coded(cls, kind)
    del kind
    above = graph.work_ns - base
    del base
    cell, reference, within, between = _leave_one_out(above, cls, classes, graph.ops.rank)
    del cls
    value = reference[cell]
    value[mixed] = np.nan
    value += np.subtract(graph.work_ns, above, out=above)
    return Reference(kept(value), kept(cell), within, between, kept(mixed))


def baseline_medians(both: Joined, values: Ints) -> tuple[Floats, Floats, Floats]:
    """Per op of the later run: (median of its class on its rank in the baseline, spread within that rank, between runs).

    ``values`` are those of both runs. A class across runs is the same name, shape, place, role and rank. The spread
    between runs is how ranks differ in how far they moved, the one that moved most left out; NaN where there is no class.
    """
    from taut.core.group_kernels import group_sort
    from taut.replay.wait_kernels import leave_one_out

    g = both.graph
    cls, classes = coded(g.roles, g.ops.name, g.shape, g.place, g.gate >= 0)
    kind, mixed = kinds_and_mixed(g, cls, classes)
    cls, classes = coded(cls, kind)
    cell, cells = coded(cls, g.ops.rank)
    found = []
    for part in (slice(0, both.ops), slice(both.ops, None)):
        order, begin = group_sort(cell[part], cells)
        found.append(medians_and_spreads(values[part], order, begin))
    (usual, within), (now, _) = found
    moved = np.flatnonzero(~np.isnan(now - usual))
    class_of_cell = np.zeros(cells, dtype=np.int64)
    class_of_cell[cell] = cls
    order, begin = group_sort(class_of_cell[moved], classes)
    between = np.full(cells, np.nan)
    between[moved] = leave_one_out((now - usual)[moved], within[moved], order, begin)[2]
    here = cell[both.ops :]
    value = np.where(mixed[both.ops :], np.nan, usual[here])
    apart = np.fmax(np.nan_to_num(between)[here], BETWEEN_RUNS * np.abs(value))
    return value, within[here], apart


def baseline(both: Joined, others: Reference) -> Reference:
    """Reference of every op's work from the baseline, and from the others (peers) where the baseline does not know it."""
    value, within, between = baseline_medians(both, both.graph.work_ns)
    known = ~(np.isnan(value) | np.isnan(within) | others.mixed)
    return Reference(
        np.where(known, value, others.value_ns),
        np.arange(len(value), dtype=np.int32),
        np.where(known, within, others.within_ns),
        np.where(known, between, others.between_ns),
        others.mixed,
    )


def _leave_one_out(values: Ints, cls: Indices, classes: int, rank: Indices) -> tuple[Codes, Floats, Floats, Floats]:
    """(cell of each op, its class on its rank), and of each cell, from the other ranks of its class: (reference, spread within
    a rank, spread between ranks)."""
    from taut.core.group_kernels import group_sort
    from taut.replay.wait_kernels import leave_one_out

    cell, cells = coded(cls, rank)
    median, spread = medians_and_spreads(values, *group_sort(cell, cells))
    class_of_cell = np.zeros(cells, dtype=np.int32)
    class_of_cell[cell] = cls
    reference, within, between = leave_one_out(median, spread, *group_sort(class_of_cell, classes))
    return cell, reference, within, np.nan_to_num(between)


def gap_classes(graph: Graph) -> tuple[Codes, int]:
    """Class of the gap before every op, by the op and its predecessor, and how many there are."""
    ops, name, ptr, pred = graph.ops, graph.ops.name, graph.pred_ptr, graph.pred
    before = empty((len(ops),), np.int32)

    def name_before(share: slice) -> None:
        has = np.diff(ptr[share.start : share.stop + 1]) > 0
        before[share] = NULL
        before[share][has] = name[pred[ptr[share][has]]]

    over_rows(name_before, len(ops))
    return coded(graph.roles, before, ops.name, ops.size)


def gap_peers(graph: Graph) -> Floats:
    """Reference gap of every op: the gap before the same op after the same predecessor, on the other ranks.

    NaN where there is nobody to ask, and for classes that have no gap at all.
    """
    ops, (cls, classes) = graph.ops, gap_classes(graph)
    gaps = np.zeros(classes, dtype=bool)
    gaps[cls[graph.gap_ns > 0]] = True
    rows = np.flatnonzero(gaps[cls])
    if not len(rows):
        return np.broadcast_to(np.nan, len(ops))
    out = np.full(len(ops), np.nan)
    cell, reference, _, _ = _leave_one_out(graph.gap_ns[rows], *coded(cls[rows]), ops.rank[rows])
    out[rows] = reference[cell]
    return out
