"""References: what an op's work (or gap) should have been.

Two kinds. *Across roles* (``across``): all ops of a class whatever their stage, the mean for computes and the median for
transfers, as the published what-if reference has it; only ``whatif.slowdown`` and ``by`` use it. *Peers* (``peers``):
the same op at the same place in the step on the other ranks of the role, leaving the op's own rank out, because a mean
that includes the culprit hides part of it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.ids import numbered
from taut.core.tables import NULL
from taut.graph import Graph
from taut.replay.mixed_classes import kinds_and_mixed


class Reference(Struct, frozen=True):
    """Per op: the reference, and how far an ordinary peer strays from it within a rank and between ranks (ns)."""

    value_ns: Floats
    within_ns: Floats
    between_ns: Floats
    mixed: Mask
    """Ops whose class holds ops of several lengths: they have no reference, and count as they were."""


def whatever_role(graph: Graph) -> tuple[Ints, int]:
    """Class of every op whatever its role and micro-batch, and how many there are."""
    ops = graph.ops
    named = ops.part >= 0
    place = np.zeros(len(ops), dtype=np.int64) if named.all() else np.where(named, 0, graph.place)
    return numbered(ops.name, ops.size, place)


def across(graph: Graph) -> Ints:
    """Reference work of every op over all roles, ns: mean for computes, median for ops that meet at a gate."""
    from taut.core.group_kernels import group_sort
    from taut.replay.wait_kernels import describe_cells

    cls, classes = whatever_role(graph)
    meets = graph.gate >= 0
    order, begin = group_sort(cls[meets], classes)
    median, _ = describe_cells(graph.work_ns[meets], order, begin)
    mean = np.bincount(cls, weights=graph.work_ns, minlength=classes) / np.maximum(np.bincount(cls, minlength=classes), 1)
    return np.rint(np.where(meets, np.nan_to_num(median)[cls], mean[cls])).astype(np.int64)


def peers(graph: Graph) -> Reference:
    """Leave-one-out reference of every op's work from the other ranks of its role; NaN where there is nobody to ask.

    Members of a gate are compared inside it, with the fastest of the others: what slows the whole gate is common to
    all, and a slow link shows as ending later than they did.
    """
    from taut.replay.wait_kernels import fastest_other

    ops = graph.ops
    # What is compared inside a gate is the work above the fastest other member; outside gates the base is 0.
    base = fastest_other(graph.gate, len(graph.gates), graph.work_ns)
    cls, classes = numbered(graph.roles, ops.name, graph.shape, graph.place, graph.gate >= 0)
    kind, mixed = kinds_and_mixed(graph, cls, classes)
    if kind.any():
        cls, classes = numbered(cls, kind)
    value, within, between = _leave_one_out(graph.work_ns - base, cls, classes, graph.ops.rank)
    value[mixed] = np.nan
    return Reference(base + value, within, between, mixed)


def _leave_one_out(values: Ints, cls: Ints, classes: int, rank: Indices) -> tuple[Floats, Floats, Floats]:
    """Per op, from the other ranks of its class: (reference, spread within a rank, spread between ranks)."""
    from taut.core.group_kernels import group_sort
    from taut.replay.wait_kernels import describe_cells, leave_one_out

    cell, cells = numbered(cls, rank)
    order, begin = group_sort(cell, cells)
    median, spread = describe_cells(values, order, begin)
    class_of_cell = np.zeros(cells, dtype=np.int64)
    class_of_cell[cell] = cls
    cell_order, cell_begin = group_sort(class_of_cell, classes)
    reference, within, between = leave_one_out(median, spread, cell_order, cell_begin)
    return reference[cell], within[cell], np.nan_to_num(between)[cell]


def gap_classes(graph: Graph) -> tuple[Ints, int]:
    """Class of the gap before every op, by the op and its predecessor, and how many there are."""
    ops = graph.ops
    before = np.full(len(ops), NULL, dtype=np.int64)
    has = np.diff(graph.pred_ptr) > 0
    before[has] = ops.name[graph.pred[graph.pred_ptr[:-1][has]]]
    return numbered(graph.roles, before, ops.name, ops.size)


def gap_peers(graph: Graph) -> Floats:
    """Reference gap of every op: the gap before the same op after the same predecessor, on the other ranks.

    NaN where there is nobody to ask, and for classes that have no gap at all.
    """
    ops, (cls, classes) = graph.ops, gap_classes(graph)
    gaps = np.zeros(classes, dtype=bool)
    gaps[cls[graph.gap_ns > 0]] = True
    rows = np.flatnonzero(gaps[cls])
    out = np.full(len(ops), np.nan)
    if len(rows):
        out[rows] = _leave_one_out(graph.gap_ns[rows], *numbered(cls[rows]), ops.rank[rows])[0]
    return out
