"""Per-worker step times: a CSV with worker, step (or time index) and the time of that step, optionally when it began.

A worker's n-th sample is the job's n-th step: a compute op of that length on each worker, then a barrier that all
workers join, because that is what a synchronous job does. The least a site can record:
it tells who is late and when, never why.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from taut.errors import InputRefused
from taut.tables import Kind, Mark, Member, Op, Table, Trace, Verb

WORKER = ("worker", "rank", "replica")
STEP = ("time", "step", "sample", "iteration")
TIME = ("batch_time_norm", "batch_time", "step_time", "step_time_s", "step_time_ms", "step_time_ns", "duration_ms")
GPU = ("gpu",)
START = "start_ns"
"""When a step began: puts metrics that lie beside the table on its steps."""
UNIT_NS = 1_000_000
"""A time without a unit counts as milliseconds: shares do not depend on it, and the briefing says so."""


def sniff(head: bytes) -> bool:
    """A CSV header that names a worker, a step and a step time, and no op class."""
    line = head.split(b"\n", 1)[0]
    if b"\x00" in line or line[:1] in (b"{", b"["):
        return False
    header = [c.strip().strip('"').lower() for c in line.decode("utf-8", "replace").split(",")]
    return all(any(name in header for name in names) for names in (WORKER, STEP, TIME))


def load(data: bytes, label: str) -> Trace:
    """One trace out of one table of step times."""
    import pyarrow as pa
    import pyarrow.csv

    try:
        table = pyarrow.csv.read_csv(io.BytesIO(data))
    except pa.ArrowInvalid as error:
        raise InputRefused(label, f"not a readable CSV ({str(error).splitlines()[0][:120]})") from None
    header = {c.strip().lower(): c for c in table.column_names}

    def column(names: tuple[str, ...]) -> tuple[str, Any]:
        name = next(n for n in names if n in header)
        values = table[header[name]]
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
            raise InputRefused(label, f"column {name} holds no numbers")
        return name, values.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)

    worker, step = column(WORKER)[1], column(STEP)[1]
    unit, values = column(TIME)
    factor = {"_s": 1e9, "_ns": 1.0}.get(unit[unit.rfind("_") :], float(UNIT_NS))
    good = np.isfinite(values) & (values >= 0) & np.isfinite(worker) & np.isfinite(step)
    if not good.any():
        raise InputRefused(label, "no row holds a worker, a step and a step time of at least 0")
    order = np.lexsort((step[good], worker[good]))
    rank = worker[good][order].astype(np.int64)
    took = np.rint(values[good][order] * factor).astype(np.int64)
    n = len(rank)
    marks: dict[str, Any] = {}
    begins = np.flatnonzero(np.concatenate([[True], np.diff(rank) != 0]))
    steps = np.arange(n) - np.repeat(begins, np.diff(np.append(begins, n)))
    if START in header and pa.types.is_integer(table[header[START]].type):
        began = table[header[START]].fill_null(-1).to_numpy(zero_copy_only=False)[good][order]
        marks = {"rank": rank, "step": steps, "start_ns": began, "end_ns": began + took}
    latest = np.zeros(int(steps.max()) + 1, dtype=np.int64)
    np.maximum.at(latest, steps, took)

    def both(a: Any, b: Any) -> Any:
        return np.concatenate([np.broadcast_to(a, n), np.broadcast_to(b, n)])

    ops = Table(
        Op,
        {
            "rank": both(rank, rank),
            "lane": both(0, 0),
            "step": both(steps, steps),
            "kind": both(Kind.COMPUTE, Kind.SYNCHRONISE),
            "name": both(0, 1),
            "start_ns": both(0, took),
            "end_ns": both(took, latest[steps]),
            "verb": both(Verb.NONE, Verb.BARRIER),
            "group": both(-1, 0),
            "seq": both(-1, steps),
        },
    )
    present = np.bincount(steps, minlength=len(latest))
    short = int((present < len(np.unique(rank))).sum())
    partial = [f"{short} steps lack a worker: their wait is seen among the others only"] if short else []
    if factor == UNIT_NS and not unit.endswith("_ms"):
        partial.append(f"{unit} has no unit: read as milliseconds, shares do not depend on it")
    return Trace(
        ops=ops,
        names=["step", "barrier"],
        lanes=["worker"],
        groups=["all"],
        members=Table(Member, {"rank": np.unique(rank)}),
        marks=Table(Mark, marks, n if marks else 0),
        name=label.rsplit("/", 1)[-1].split(".")[0] or "steps",
        source=label,
        relative=True,
        group_ranks={"all": [int(r) for r in np.unique(rank)]},
        partial=partial,
        counts={"events": len(values), "ops": 2 * n, "dropped: unreadable": len(values) - n},
    )
