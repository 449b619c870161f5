"""Nominal beside effective: the utilisation that a dashboard shows, and the share of the time that was productive.

Nominal is measured where metrics hold utilisation. Else it is derived as nvidia-smi defines it: the share of time in which
any kernel runs on the device, one that spins in a collective included. Without an accelerator it is the share of time that
a rank is inside any op, waiting at gates included. Effective is the productive share of the ledger.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct

from taut.core.device_words import NO_DEVICE, is_copy, on_device
from taut.core.span_kernels import union_of_groups
from taut.core.spans import Spans
from taut.core.tables import Kind
from taut.diagnose.components import series_of
from taut.graph import Graph
from taut.ledger.device_use import LONGEST_AXIS, device_axis, device_mask
from taut.result.computed import Computed

UTILISATION = "utilisation_share"
Source = Literal["measured", "derived from kernels", "derived from ops"]


class Shares(Struct, frozen=True):
    """What a dashboard would show, where that comes from, and what was produced; None where it is not known."""

    nominal: float | None
    source: Source | None
    effective: float | None


def utilised_and_productive(a: Computed) -> Shares:
    """Both shares of a job, 0–1."""
    unseen = host_only(a.graph) or not bool((a.graph.ops.kind == Kind.COMPUTE).any())  # dumps hold calls, and no work
    effective = None if unseen else _productive(a)
    measured = _measured(a.graph)
    if measured is not None:
        return Shares(measured, "measured", effective)
    if a.graph.trace.waits_recorded or unseen:  # spans of services are no device either
        return Shares(None, None, effective)
    if a.graph.device is not None and device_mask(a.graph).any():
        return Shares(_under_kernels(a.graph), "derived from kernels", effective)
    share = _inside_ops(a.graph, a.ledger.total_rank_ns)
    return Shares(share, None if share is None else "derived from ops", effective)


def host_only(graph: Graph) -> bool:
    """Whether work was put onto devices, and nothing of what they did is recorded."""
    return bool(graph.trace.counts.get(NO_DEVICE)) and not on_device(graph.trace.lanes).any()


def _productive(a: Computed) -> float | None:
    fates = a.ledger.by_fate
    observed = a.ledger.total_rank_ns - fates["unobserved"]
    return fates["productive"] / observed if observed > 0 else None


def _measured(graph: Graph) -> float | None:
    """Mean of the sampled utilisation of the accelerators, those of ranks where any are known to be theirs."""
    found = [(rank, float(np.mean(values))) for _, rank, metric, values, _ in series_of(graph) if metric == UTILISATION]
    own = [value for rank, value in found if rank >= 0] or [value for _, value in found]
    return float(np.clip(np.mean(own), 0.0, 1.0)) if own else None


def _under_kernels(graph: Graph) -> float | None:
    """Share of the windows of the devices in which any kernel runs; copies are none."""
    axis = None if graph.device is None else device_axis(graph, graph.device)
    if axis is None or axis.windows.ns <= 0:
        return None
    kernels = device_mask(graph) & ~is_copy(graph.names)[graph.ops.name]
    return (axis.windows & axis.busy(kernels)).ns / axis.windows.ns


def _inside_ops(graph: Graph, total_rank_ns: int) -> float | None:
    """Share of the rank time in which some op of the rank runs or waits."""
    ops, ranks = graph.ops, len(graph.ranks)
    low = int(ops.start_ns.min())
    longest = int(ops.end_ns.max()) - low + 1
    if total_rank_ns <= 0 or ranks * (int(graph.segment.max()) + 1) * longest >= LONGEST_AXIS:
        return None
    # All ranks and segments one after the other on one axis.
    group = graph.segment[graph.window].astype(np.int64) * ranks + graph.rank_index
    zero = np.arange(ranks * (int(graph.segment.max()) + 1)) * longest - low
    inside = Spans(*union_of_groups(group, zero, np.ones(len(ops), dtype=np.bool_), ops.start_ns, ops.end_ns))
    return min(inside.ns / total_rank_ns, 1.0)
