"""The observability ladder: the same runs analysed from less, beside what each rung costs the job.

Says what a site must record to be able to answer which question. A rung takes things away from a trace that is
already read, so it works for modelled jobs too; the step times go through their reader, as a site's own would.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.errors import RunError
from taut.core.ids import greatest, least, numbered
from taut.core.tables import NULL, Kind, Mark, Table, Trace, Verb
from taut.graph.steps import windows
from taut.lab.score import Row, attempt, spread, summarise
from taut.lab.score_table import NOT_YET, Grid, cell, right
from taut.lab.truth import HEALTHY, MODES, TRACES, Truth, load
from taut.read import step_times as steptimes
from taut.read.flight import reader as flight
from taut.read.merge import missing_ranks
from taut.read.trace import read
from taut.render.text import percent, size
from taut.run import analyze_trace

ALL = ("trace_bytes", "flight_bytes")
COSTS = {
    "step times": ("logged_ms", ("log_bytes",)),
    "flight recorder only": ("flight_ms", ("flight_bytes",)),
    "collectives only": ("flight_ms", ("flight_bytes",)),
    "a tenth of the ranks": ("tenth_ms", ALL),
    "no clock alignment": ("profiled_ms", ALL),
    "full trace": ("profiled_ms", ALL),
}
"""Every rung, the cheapest first; what ``Truth.overhead`` may call its step time (against ``plain_ms``) and its bytes.

Modelled jobs have no flight recorder.
"""
Recorded = tuple[Trace, Table | None, Truth]
"""A run and all that was recorded of it: the trace, the step log (rows of ``Mark``) if there is one, and the truth."""
ANSWERS = 0.9
"""Share of the runs of a fault that a rung must get right to count as answering it."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One run seen from one rung: its score, and what recording that much costs; None where that was not measured."""

    rung: str
    row: Row
    overhead: float | None
    """Step time above that of the job without it, as a share."""
    bytes_per_rank_step: float | None


def recorded(folder: Path) -> Recorded:
    """A lab run's folder, read."""
    path, names = folder / TRACES / "steps.csv", ("rank", "step", "start_ns", "end_ns")
    try:
        columns = np.loadtxt(path, dtype=np.int64, delimiter=",", skiprows=1, usecols=range(4), ndmin=2).T
    except FileNotFoundError:
        return read([folder / TRACES]), None, load(folder)
    except ValueError as error:
        raise RunError(f"{path}: damaged ({str(error)[:100]}); run the lab again") from None
    return read([folder / TRACES]), Table(Mark, dict(zip(names, columns, strict=True))), load(folder)


def rungs(trace: Trace, steps: Table | None = None) -> dict[str, Trace]:
    """What is left of a run on every rung, by name."""
    ops, ranks = trace.ops, trace.members.rank
    tenth, world = ranks[::10], trace.world_size or len(ranks)
    some = replace(
        _only(trace, np.isin(ops.rank, tenth)),
        members=trace.members.take(np.isin(ranks, tenth)),
        world_size=world,
        marks=trace.marks.take(np.isin(trace.marks.rank, tenth)),
        partial=(*trace.partial, *missing_ranks(tenth, world)),
    )
    # Ranks that are said to share a host share its clock: nothing is fitted, nothing is shifted.
    one_host = trace.members.replace(host=np.full(len(ranks), "one clock", dtype=object))
    return {
        "step times": _step_times(trace, steps),
        **({"flight recorder only": flight.calls_only(trace)} if len(trace.calls) else {}),
        "collectives only": _only(trace, (ops.kind == Kind.COMMUNICATE) | (ops.verb != Verb.NONE)),
        "a tenth of the ranks": some,
        "no clock alignment": replace(trace, members=one_host),
        "full trace": trace,
    }


def _only(trace: Trace, keep: Mask) -> Trace:
    """These ops alone; one whose launch is gone has none."""
    row = np.full(len(trace.ops) + 1, NULL, dtype=np.int64)
    row[:-1][keep] = np.arange(np.count_nonzero(keep))
    ops = trace.ops.take(keep)
    return replace(trace, ops=ops.replace(launch=row[ops.launch]))


def _step_times(trace: Trace, steps: Table | None) -> Trace:
    """What the reader makes of the times of those steps that the analysis keeps, numbered as they are there."""
    found = windows(trace)
    log = steps if steps is not None else trace.marks if len(trace.marks) else _extents(trace.ops, found.step)
    kept = np.intersect1d(found.labels, log.step)
    log = log.take(np.isin(log.step, kept))
    if len(log) == 0:
        return _only(trace, np.zeros(len(trace.ops), dtype=bool))
    rows = zip(log.rank.tolist(), log.step.tolist(), (log.end_ns - log.start_ns).tolist(), strict=True)
    text = "rank,step,step_time_ns\n" + "".join(f"{rank},{step},{took}\n" for rank, step, took in rows)
    times = steptimes.load(text.encode(), trace.source or trace.name)
    return replace(times, name=trace.name)


def _extents(ops: Table, step: Ints) -> Table:
    """Steps as marks, from their first start to their last end on each rank."""
    ids, count = numbered(ops.rank, step)
    where = np.unique(ids, return_index=True)[1]
    times = {"start_ns": least(ids, count, ops.start_ns), "end_ns": greatest(ids, count, ops.end_ns)}
    return Table(Mark, {"rank": ops.rank[where], "step": step[where], **times})


def ladder(runs: Iterable[Recorded], built: frozenset[str]) -> list[Rung]:
    """Every run scored from every rung."""
    seen = ((name, left, *run) for run in runs for name, left in rungs(*run[:2]).items())
    return [_scored(name, left, trace, truth, built) for name, left, trace, _, truth in seen]


def _scored(name: str, left: Trace, trace: Trace, truth: Truth, built: frozenset[str]) -> Rung:
    """Bytes are known of all ranks and recorded steps together, so a tenth of the ranks writes a tenth of them."""
    row = attempt(truth, lambda: analyze_trace(left).result, built)
    known, (time, kinds), ranks = truth.overhead, COSTS[name], len(trace.members)
    took, plain, written = known.get(time), known.get("plain_ms"), [known[kind] for kind in kinds if kind in known]
    cells = ranks * np.count_nonzero(np.unique(trace.ops.step) >= 0)
    each = len(left.members) / ranks * sum(written) / cells if cells and len(written) == len(kinds) else None
    return Rung(rung=name, row=row, overhead=took / plain - 1 if took and plain else None, bytes_per_rank_step=each)


def tables(seen: Sequence[Rung]) -> tuple[Grid, Grid]:
    """(what every rung can say and costs, which rung answers which fault)."""
    names = [name for name in COSTS if any(r.rung == name for r in seen)]
    answers = []
    for fault in (fault for fault in MODES if any(r.row.fault == fault for r in seen)):
        cells = [cell([r.row for r in seen if (r.rung, r.row.fault) == (name, fault)]) for name in names]
        able = [name for name, text in zip(names, cells, strict=True) if (right(text) or 0) >= ANSWERS]
        first = able[0] if able else NOT_YET if set(cells) == {NOT_YET} else "none"
        answers.append([fault, *cells, "" if fault in HEALTHY else first])
    header = ["rung", "root cause right", "false findings", "counterfactual error", "overhead", "bytes a rank and step"]
    rows = [_row(name, [r for r in seen if r.rung == name]) for name in names]
    return Grid(header, rows), Grid(["fault", *names, "least that answers"], answers)


def _row(name: str, seen: Sequence[Rung]) -> list[str]:
    s = summarise([r.row for r in seen])
    counts = [f"{share.count} of {share.of}" for share in (s.right, s.false_findings)]
    overhead, written = spread(r.overhead for r in seen).median, spread(r.bytes_per_rank_step for r in seen).median
    shares = ["–" if share is None else percent(share) for share in (s.counterfactual.median, overhead)]
    return [name, *counts, *shares, "–" if written is None else size(round(written))]
