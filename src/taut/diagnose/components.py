"""Component view: every metric of every component against its limit, and who says that this is the limit.

Evidence, never the verdict: a job may lose a third of its time while every component is inside its limits. A limit comes
from the metrics file, else from DEFAULTS (and says so), else it is unknown. There is no default for utilisation, because
an accelerator that waits in a collective reads as fully used, nor for temperature, because boards differ and tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.graph import Graph
from taut.result.types import Component

FLOORS = ("utilisation_share", "clock_mhz", "memory_clock_mhz")
"""Metrics whose limit is the least they should be; of all others it is the most."""
EVENTS = ("slowdown", "xid", "ecc_uncorrected")
"""Metrics that must not be anything but zero: the share of samples that were is compared."""
FLAGS = (*EVENTS, "power_capped")
"""Metrics of which the share of samples that are not zero is told."""
BOARD_W: tuple[tuple[str, float], ...] = (
    ("B200", 1000.0), ("H200 NVL", 600.0), ("H200", 700.0), ("H100 PCIe", 350.0), ("H100 NVL", 400.0), ("H100", 700.0),
    ("A100-PCIE-40GB", 250.0), ("A100 80GB PCIe", 300.0), ("A100", 400.0), ("V100-SXM2", 300.0), ("L40S", 350.0),
)  # fmt: skip
"""Largest board power by the name of the device, W: NVIDIA's data sheets of the boards; the first name found counts."""
COUNTED = "energy_j"
"""How metrics end that only ever grow: they have no value to hold against a limit."""
DEFAULT = "default: "
"""Opens the source of a limit that no file named."""


def components(graph: Graph) -> list[Component]:
    """One row per component and metric; empty without metrics."""
    return [_row(graph, *series) for series in series_of(graph) if not series[2].partition("{")[0].endswith(COUNTED)]


def series_of(graph: Graph) -> Iterator[tuple[str, int, str, Floats, tuple[Floats, str]]]:
    """Component, rank, metric, values and limits of each series, in the traced time where it was sampled then."""
    table = graph.trace.metrics
    if not len(table):
        return
    inside = _traced(graph, table.time_ns)
    # Samples of a series lie together: a series ends where component or metric changes.
    new = (table.component[1:] != table.component[:-1]) | (table.metric[1:] != table.metric[:-1])
    edges = np.concatenate([[0], np.flatnonzero(new) + 1, [len(table)]])
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows = slice(first, last)
        chosen = inside[rows] if inside[rows].any() else slice(None)
        limit, source = table.limit[rows][chosen], table.limit_source[first]
        yield table.component[first], int(table.rank[first]), table.metric[first], table.value[rows][chosen], (limit, source)


def _traced(graph: Graph, time_ns: Ints) -> Mask:
    """Which samples fall into the traced time; none where steps have no common time."""
    marks = graph.trace.marks
    if len(marks):
        first, last = int(marks.start_ns.min()), int(marks.end_ns.max())
    elif graph.trace.relative:
        return np.zeros(len(time_ns), dtype=bool)
    else:
        begin = graph.origin_ns[graph.segment[graph.window]]
        first, last = int((begin + graph.ops.start_ns).min()), int((begin + graph.ops.end_ns).max())
    return (time_ns >= first) & (time_ns <= last)


def _row(graph: Graph, component: str, rank: int, metric: str, values: Floats, given: tuple[Floats, str]) -> Component:
    value, how = _value(metric, values)
    limit, source = _limit(graph, rank, metric, *given)
    least = metric in FLOORS
    return Component(
        component=component,
        rank=rank if rank >= 0 else None,
        metric=metric,
        value=value,
        value_is=how,
        limit=limit,
        limit_is=None if limit is None else "at least" if least else "at most",
        limit_source=source,
        inside=None if limit is None else bool(value >= limit if least else value <= limit),
        samples=len(values),
    )


def _value(metric: str, values: Floats) -> tuple[float, str]:
    """What of a series is held against its limit, and what that is: single samples are no state of a component."""
    if metric in FLAGS:
        return float((values != 0).mean()), "share of samples"
    if metric in FLOORS:
        return float(np.median(values)), "median"
    return float(np.quantile(values, 0.99)), "99th percentile"


def _limit(graph: Graph, rank: int, metric: str, limit: Floats, source: str) -> tuple[float | None, str | None]:
    known = limit[np.isfinite(limit)]
    if len(known):
        return float(np.median(known)), source
    if metric in EVENTS:
        return 0.0, DEFAULT + "the device itself reports it as a protection or an error (NVML)"
    if metric == "power_w" and rank >= 0:
        device = str(graph.members.device[graph.members.rank == rank][0])
        for name, power_w in BOARD_W:
            if name.lower() in device.lower():
                return power_w, DEFAULT + f"board power of {name} (NVIDIA data sheet)"
    return None, None


def summary(rows: list[Component], lost_share: float) -> str | None:
    """The component view in one sentence beside the share of the wall that mending all findings saves; None without metrics."""
    if not rows:
        return None
    judged = {row.component for row in rows if row.inside is not None}
    beyond = {row.component: row for row in reversed(rows) if row.inside is False}  # the first row of each that is
    outside = [name for name in dict.fromkeys(row.component for row in rows) if name in beyond]
    components = len({row.component for row in rows})
    unknown = components - len(judged)
    loses = f"the job loses {100 * lost_share:.0f} %" if lost_share > 0 else "no loss was found"
    if not judged:
        return f"{_many(components)} measured, no limit known; {loses}"
    without = f", {unknown} more without a known limit" if unknown else ""
    inside = f"{len(judged) - len(outside)} of {_many(len(judged))} inside their limits{without}"
    if not outside:
        return f"{inside}; {loses}"
    row = beyond[outside[0]]
    more = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
    side = "below" if row.limit_is == "at least" else "above"
    limit = f"{row.metric} {row.value:.4g} {side} {row.limit:.4g} ({row.limit_source})"
    return f"{inside}; {outside[0]}{more} is not: {limit}; {loses}"


def _many(count: int) -> str:
    return f"{count} component" if count == 1 else f"{count} components"
