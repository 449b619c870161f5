"""Bytes → Trace. One file per format, sniffed from content; none imports another room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from taut.errors import InputRefused, NotATrace
from taut.read import (
    chakra,
    execution,
    files,
    flight,
    inspector,
    job_gather,
    merge,
    metric_given,
    metrics,
    nsys,
    nsys_ranks,
    otlp,
    schedule,
)
from taut.read import progress as log
from taut.read.job_words import JobLog
from taut.read.load import FORMATS, Format, Part, load_all
from taut.read.otlp_json import Spans
from taut.tables import Member, Op, Table, Trace

__all__ = ["FORMATS", "Format", "read"]

KNOWN = "Kineto JSON, Nsight Systems exports, OTF2, Chakra, op tables, step times, spans and job logs; see README.md"
SUFFIXES = (
    ".gz", ".tar", ".tgz", ".json", ".parquet", ".csv", ".sqlite", ".otf2", ".trace", ".pt", ".txt", ".log", ".out", ".err",
)  # fmt: skip


def read(
    paths: Sequence[str | Path],
    *,
    metrics_at: Sequence[str | Path] = (),
    places: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """One Trace out of the files, folders, archives or standard input (``-``) that hold a job's traces.

    ``metrics_at`` are further files of metrics, or a Prometheus; ``places`` says which of their labels make a rank.
    """
    if not paths:
        raise InputRefused("no input", "nothing to read", "name a trace file or a folder of them")
    parts = load_all(files.expand(paths), progress or _silent)

    def all_of(kind: type) -> list[Any]:
        return [part.found for part in parts if isinstance(part.found, kind)]

    refused, dumps, logs, jobs = (all_of(kind) for kind in (InputRefused, flight.Dump, Table, JobLog))
    traces = _traces(parts, all_of, refused)
    spans = all_of(Spans)
    about = {"name": _job_name(paths[0]), "source": _source(paths)}
    if spans and traces:
        why = "spans of services and profiler traces are not read as one job"
        raise InputRefused(spans[0].label, why, "analyze the spans alone")
    if spans:
        trace = otlp.gather(spans, refused, **about)
    elif traces:
        trace = merge.merge(traces, refused, **about)
    elif any(dump.rank >= 0 for dump in dumps):
        trace = flight.alone(dumps, refused, **about)
    elif jobs:
        trace = _jobs_alone(refused, **about)
    else:
        raise _nothing(paths, parts, refused, all_of)
    logs += [trace.progress for _, trace in traces if len(trace.progress)]
    if logs:
        trace = replace(trace, progress=log.gather(logs))
    skipped = sum(part.found is None for part in parts)
    trace = flight.apply(trace, dumps, {"files": len(traces) + len(spans), "files skipped": skipped})
    trace = execution.apply(trace, all_of(execution.Execution))
    trace = metrics.apply(trace, [*all_of(metrics.Metrics), *metric_given.load(metrics_at, trace, places)])
    return job_gather.apply(trace, jobs)


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def _traces(parts: Sequence[Part], all_of: Callable[[type], list[Any]], refused: list[InputRefused]) -> list[tuple[str, Trace]]:
    """The traces; where there are none, what can be made of logs and plans, which tell less and stand back otherwise."""
    traces = [(part.label, part.found) for part in parts if isinstance(part.found, Trace)]
    traces += nsys_ranks.traces(all_of(nsys.Report))
    inspected, plans = all_of(inspector.Log), all_of(chakra.Plan)
    if not traces and inspected:
        return [(inspected[0].label, inspector.gather(inspected))]
    if not traces and plans:
        return schedule.laid_out(plans)
    if inspected:
        refused.append(InputRefused(inspected[0].label, f"{len(inspected)} Inspector logs beside traces that tell more"))
    refused += [InputRefused(plan.label, "without starts, beside traces that have them") for plan in plans]
    return traces


def _jobs_alone(refused: Sequence[InputRefused], *, name: str, source: str) -> Trace:
    """A trace without ops, where only job logs are there."""
    notes = [f"{error.where} left out: {error.why}" for error in refused]
    return Trace(Table(Op, {}, 0), [], [], [], Table(Member, {}, 0), name=name, source=source, partial=notes)


BESIDE = (
    ("execution traces without times", execution.Execution),
    ("flight-recorder dumps that do not say their rank", flight.Dump),
    ("metrics", metrics.Metrics),
    ("progress logs", Table),
)


def _nothing(
    paths: Sequence[str | Path], parts: list[Part], refused: list[InputRefused], all_of: Callable[[type], list[Any]]
) -> InputRefused:
    """Why there is no trace."""
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if len(refused) == 1:
        return refused[0]
    if refused:
        return InputRefused(refused[0].where, f"{refused[0].why} (and {len(refused) - 1} more files refused)")
    beside = next((name for name, kind in BESIDE if all_of(kind)), "")
    if beside:
        return NotATrace(where, f"only {beside} here", "put the profiler traces of the job beside them")
    why = f"no trace among {len(parts)} files" if len(parts) != 1 else "not a trace"
    return NotATrace(where, why, f"taut reads {KNOWN}")


def _job_name(path: str | Path) -> str:
    if str(path) == files.STDIN:
        return "job"
    stem = Path(path).resolve().name
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return stem or "job"


def _source(paths: Sequence[str | Path]) -> str:
    return ", ".join(map(str, paths)) if len(paths) <= 3 else f"{paths[0]} and {len(paths) - 1} more"
