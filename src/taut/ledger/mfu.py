"""Model FLOPs utilisation: what shapes of operators account for, over what the accelerators could do in the same time."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Mask
from taut.core.tables import Table
from taut.graph import Graph
from taut.ledger.peak_flops import element_type, peaks_of
from taut.result.types import Device, Mfu

UNCOUNTED, MOST_UNCOUNTED = 0.05, 0.5
"""Share of the time of products without shapes from which the result is a lower bound, and from which there is none."""
_TF32 = re.compile(r"tf32|s1688", re.IGNORECASE)


def mfu(graph: Graph, device: Device) -> Mfu:
    """The utilisation in the windows of the devices; null, and why, where shapes, types or the peak do not tell."""
    work = graph.trace.matrix_work
    if not len(work):
        how = ": profile with record_shapes=True" if graph.trace.counts.get("dropped: cpu_op") else ""  # of PyTorch
        return _unknown(f"no operator with its shapes was recorded{how}")
    kept = _kept(graph, work)
    if not kept.any():
        return _unknown("operators lie in no step that the trace marks")
    work = work.take(kept)
    ops, unsized = int(work.ops.sum()), int(work.unsized.sum())
    if not ops or unsized:
        return _unknown(f"{unsized:,} of {ops:,} products were recorded without their shapes: profile with record_shapes=True")
    rest = _uncounted_share(work)
    if rest > MOST_UNCOUNTED:
        return _unknown(f"{100 * rest:.0f} % of the time of products is of kernels without shapes (CUDA graphs, own kernels)")
    return _known(graph, device, work, rest)


def _known(graph: Graph, device: Device, work: Table, rest: float) -> Mfu:
    flops, lengths = float(work.flops.sum()), window_lengths(device)
    ranks = [rank for rank in np.unique(work.rank).tolist() if rank in lengths]
    spent_ns = sum(lengths[rank] for rank in ranks)
    names = {str(name) for rank, name in zip(graph.members.rank.tolist(), graph.members.device, strict=True) if rank in ranks}
    name = names.pop() if len(names) == 1 else ""
    rate = flops / max(spent_ns, 1) / 1e3
    by_type = _by_type(work, uses_tf32(graph))
    peaks = peaks_of(name) or {}
    main = max(by_type, key=lambda one: by_type[one]) if by_type else None
    result = Mfu(
        value=None,
        flops=int(flops),
        tflops_per_s=rate,
        peak_tflops=peaks.get(main or ""),
        dtype=main,
        device=name or None,
        lower_bound=rest > UNCOUNTED,
        why=f"the peak of {name or 'an accelerator that the trace does not name'} is not known",
    )
    if not peaks or main is None:
        return result
    missing = [one for one in by_type if one not in peaks]
    if missing:
        return replace(result, why=f"the peak of {name} for {', '.join(missing)} is not known")
    # Each type takes its own time at its own peak.
    at_peak_ns = sum(amount / peaks[one] / 1e3 for one, amount in by_type.items())
    return replace(result, value=at_peak_ns / max(spent_ns, 1), why=f"dense peak of the {name}, data sheet")


def _unknown(why: str) -> Mfu:
    return Mfu(value=None, flops=None, tflops_per_s=None, peak_tflops=None, dtype=None, device=None, lower_bound=False, why=why)


def _kept(graph: Graph, work: Table) -> Mask:
    """What belongs to the kept steps; without any steps, all of it."""
    if not len(graph.trace.marks) and len(graph.steps) == 1 and (work.step < 0).all():
        return np.ones(len(work), dtype=np.bool_)
    kept: Mask = np.isin(work.step, graph.steps) & np.isin(work.rank, graph.ranks)
    return kept


def _uncounted_share(work: Table) -> float:
    """Share of the time of kernels that are called like products, of those that no operator with shapes launched."""
    counted, other = int(work.counted_ns.sum()), int(work.uncounted_ns.sum())
    return other / max(counted + other, 1)


def window_lengths(device: Device) -> Mapping[int, int]:
    """Rank → length of its windows, ns."""
    out: dict[int, int] = {}
    for one in device.windows:
        out[one.rank] = out.get(one.rank, 0) + one.end_ns - one.start_ns
    return out


def _by_type(work: Table, tf32: bool) -> dict[str, float]:
    """FLOPs by type of elements."""
    out: dict[str, float] = {}
    for dtype, flops in zip(work.dtype, work.flops.tolist(), strict=True):
        if flops:
            name = element_type(dtype) or "an unknown type"
            name = "tf32" if tf32 and name == "fp32" else name
            out[name] = out.get(name, 0.0) + flops
    return out


def uses_tf32(graph: Graph) -> bool:
    """Whether kernels say that they compute 32-bit products with less precise multipliers."""
    return any(_TF32.search(graph.names[code]) for code in np.unique(graph.ops.name).tolist())
