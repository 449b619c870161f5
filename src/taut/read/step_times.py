"""Per-worker step times: a CSV with worker, step (or time index) and the time of that step, optionally when it began.

Rows of one step are those with the same value in its column: a compute op of that length on each worker, then a barrier
that all workers join, because that is what a synchronous job does. The least a site can record: it shows who is late and
when, never why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Floats, Ints, Numbers
from taut.core.errors import InputRefused
from taut.core.ids import greatest
from taut.core.tables import Kind, Mark, Member, Op, Table, Trace, Verb
from taut.read.arrow_columns import FAR, numbers, wholes
from taut.read.files import Member as File
from taut.read.jobs import progress_log
from taut.read.table_file import BOM, header_cells, open_table

if TYPE_CHECKING:
    import pyarrow as pa

WORKER = ("worker", "rank", "replica")
STEP = ("time", "step", "sample", "iteration")
TIME = (
    "batch_time_norm", "batch_time", "step_time", "step_time_s", "step_time_ms", "step_time_ns",
    "duration", "duration_s", "duration_ms", "duration_ns",
)  # fmt: skip
# Steps in these columns carry their own numbers; samples and times are numbered from 0 in their order.
NUMBERED = ("step", "iteration")
# A column that says neither when nor how long: read as how long beside nothing but these, where its values fall and rise.
BARE = "time"
BESIDE_BARE = {"", "index", "gpu", "host", "node", "epoch"}
LEAST_ROWS = 5
# When a step began: puts metrics that lie beside the table on its steps.
START = "start_ns"
# No step lasts ten years.
LONGEST_NS = 10 * 366 * 86_400 * 10**9
# A time without a unit counts as milliseconds: shares do not depend on it, and a note says so.
UNIT_NS = 1_000_000


def sniff(head: bytes) -> bool:
    """A CSV header that names a worker, a step and a step time, and no op class."""
    line = head.removeprefix(BOM).split(b"\n", 1)[0]
    if b"\x00" in line or line[:1] in (b"{", b"["):
        return False
    return _columns(list(map(str.lower, header_cells(line)))) is not None


def _columns(header: list[str]) -> tuple[str, str, str] | None:
    """The names of the columns that hold worker, step and step time; None where one is missing."""
    worker, step, took = (next((name for name in names if name in header), None) for names in (WORKER, STEP, TIME))
    if took is None and BARE in header:
        step = next((name for name in STEP if name in header and name != BARE), None)
        took = BARE if not set(header) - BESIDE_BARE - {worker, step, BARE, START} else None
    return (worker, step, took) if worker and step and took else None


def load_member(member: File) -> Trace:
    """One trace out of one table; one that also has the loss is a progress log as well."""
    data = member.read()
    trace = load(data, member.label)
    return replace(trace, progress=progress_log.load(data, member.label)) if progress_log.sniff(member.head) else trace


def load(data: bytes, label: str) -> Trace:
    """One trace out of one table of step times."""
    file = open_table(data, label)
    header = {name.lower(): name for name in file.names}
    found = _columns(list(header))
    if found is None:
        raise InputRefused(label, "no columns of a worker, a step and a step time", "name them worker, step and step_time_s")
    worker, step, unit = found
    table = file.read([header[name] for name in (worker, step, unit, START) if name in header])
    table, values, dropped = _timed(table, header[unit], (header[worker], header[step]), label)
    rank = wholes(table[header[worker]], worker, label, 0)
    order, steps, numbering = _steps(rank.astype(np.int64), numbers(table[header[step]], step, label), step)
    rank = rank[order].astype(np.int64)
    if unit == BARE:
        _refuse_time_stamps(rank, values[order], label)
    factor = {"_s": 1e9, "_ns": 1.0}.get(unit[unit.rfind("_") :], float(UNIT_NS))
    if float(values.max()) * factor > LONGEST_NS:
        raise InputRefused(label, f"a step of {values.max():g} in column {unit} lasts for years", "check its unit")
    took = np.rint(values[order] * factor).astype(np.int64)
    n = len(rank)
    marks: dict[str, Ints] = {}
    if (began := _began(table, header, label)) is not None:
        began = began[order]
        marks = {"rank": rank, "step": steps, "start_ns": began, "end_ns": began + took}
    labels, window = np.unique(steps, return_inverse=True)
    latest = greatest(window, len(labels), took)

    def both(a: Ints | int, b: Ints | int) -> Ints:
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
            "end_ns": both(took, latest[window]),
            "verb": both(Verb.NONE, Verb.BARRIER),
            "group": both(-1, 0),
            "seq": both(-1, steps),
        },
    )
    present = np.bincount(window)
    short = int((present < len(np.unique(rank))).sum())
    partial = [f"{short} steps lack a worker: their waits are measured among the others only"] if short else []
    if factor == UNIT_NS and not unit.endswith("_ms"):
        partial.append(f"{unit} has no unit: read as milliseconds, shares do not depend on it")
    partial += numbering
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
        counts={"events": n + dropped, "ops": 2 * n, "dropped: unreadable": dropped},
    )


def _steps(rank: Ints, at: Numbers, column: str) -> tuple[Ints, Ints, list[str]]:
    """(order of the rows by worker and step, step of each row in that order, notes on their numbers).

    Where a worker has one value several times, values do not tell steps (they begin anew with every epoch): then a worker's
    n-th row, as the file has them, is the n-th step.
    """
    order = np.lexsort((at, rank))
    again = (np.diff(rank[order]) == 0) & (np.diff(at[order]) == 0)
    if again.any():
        order = np.argsort(rank, kind="stable")
        begins = np.flatnonzero(np.concatenate([[True], np.diff(rank[order]) != 0]))
        steps = np.arange(len(rank)) - np.repeat(begins, np.diff(np.append(begins, len(rank))))
        return order, steps, [f"a worker has the same {column} several times: its n-th row is taken as the n-th step"]
    values, steps = np.unique(at[order], return_inverse=True)
    first, last = float(values[0]), float(values[-1])
    if column in NUMBERED and first >= 0 and last < 2**31 and (values == np.floor(values)).all():
        return order, values.astype(np.int64)[steps], []
    if first == 0 and last == len(values) - 1:
        return order, steps, []
    numbered = f"steps are numbered from 0 in the order of {column}, which runs from {first:.12g} to {last:.12g}"
    return order, steps, [numbered] if len(values) > 1 else []


def _refuse_time_stamps(rank: Ints, values: Floats, label: str) -> None:
    """Refuse a column of times that may say when a step was, not how long it took: on some worker it only rises.

    Durations of five steps rise by chance all the way once in 120 times, and are then refused, not read wrongly.
    """
    same = np.diff(rank) == 0
    begins = np.flatnonzero(np.concatenate([[True], ~same]))
    steps = np.diff(np.append(begins, len(rank)))
    # A time stamp differs from the one before it: a time that falls or stays is a duration.
    falls = np.add.reduceat(np.concatenate([[0], same & (np.diff(values) <= 0)]), begins)
    if not falls.any() or ((falls == 0) & (steps >= LEAST_ROWS)).any():
        why = f"the column {BARE} may say when a step was, or how long it took"
        raise InputRefused(label, why, "name a column of durations step_time_s, step_time_ms or step_time_ns")


def _timed(table: pa.Table, time: str, others: tuple[str, str], label: str) -> tuple[pa.Table, Floats, int]:
    """The rows that have a worker, a step and a time of at least 0, their times, and how many rows have not."""
    import pyarrow as pa

    values = numbers(table[time], time, label).astype(np.float64)
    good = np.isfinite(values) & (values >= 0)
    for name in others:
        there = numbers(table[name], name, label)
        good &= ~np.isnan(there) if there.dtype.kind == "f" else True
    if not good.any():
        raise InputRefused(label, "no row holds a worker, a step and a step time of at least 0")
    return (table if good.all() else table.filter(pa.array(good))), values[good], int((~good).sum())


def _began(table: pa.Table, header: dict[str, str], label: str) -> Ints | None:
    """When the steps began, ns, where whole numbers record that."""
    import pyarrow as pa

    if START not in header or not pa.types.is_integer(table[header[START]].type):
        return None
    began: Ints = wholes(table[header[START]], START, label, -FAR, FAR).astype(np.int64)
    return began
