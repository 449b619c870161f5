"""Bytes → Trace. One file per format, sniffed from content; none imports another room."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from taut.core.boundary import refusing_unexpected
from taut.core.errors import InputRefused, NotATrace
from taut.core.tables import Member, Op, Table, Trace
from taut.read import files, merge
from taut.read.jobs import progress_log as log
from taut.read.load import LEAVE, Part, brief, load_all
from taut.read.metrics import named_sources as metric_given
from taut.read.metrics import reader as metrics
from taut.read.op_table import REQUIRED as OP_COLUMNS

KNOWN = "Kineto JSON, Nsight Systems exports, OTF2, Chakra, op tables, step times, spans and job logs; see README.md"
STEP_COLUMNS = "worker, step and one of batch_time, step_time_s, step_time_ms, step_time_ns, duration_ms"
SUFFIXES = (
    ".gz", ".tar", ".tgz", ".json", ".parquet", ".csv", ".sqlite", ".otf2", ".trace", ".pt", ".txt", ".log", ".out", ".err",
)  # fmt: skip


def read(
    paths: files.Paths,
    *,
    metrics_at: Sequence[str | Path] = (),
    places: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Trace:
    """One Trace out of the files, folders, archives or standard input (``-``) that hold a job's traces.

    ``metrics_at`` are further files of metrics, or a Prometheus; ``places`` says which of their labels make a rank.
    """
    paths = files.listed(paths)
    if not paths:
        raise InputRefused("no input", "nothing to read", "name a trace file or a folder of them")
    loaded = load_all(files.expand(paths), progress or _silent)
    parts = [part for one in loaded for part in one.parts]

    def by(name: str) -> list[Any]:
        return [part.found for part in parts if part.format == name]

    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    with refusing_unexpected(lambda why: InputRefused(where, f"cannot be put together ({brief(why)})", LEAVE)):
        trace = _joined(paths, parts, by)
    trace = _with_what_lies_beside(trace, by, lambda: metric_given.load(metrics_at, trace, places))
    return replace(trace, digest=_digest([one.digest for one in loaded], trace if metrics_at else None))


def _joined(paths: Sequence[str | Path], parts: list[Part], by: Callable[[str], list[Any]]) -> Trace:
    """One trace out of what tells of ops; without any, one out of dumps or of job and control logs."""
    refused: list[InputRefused] = [part.found for part in parts if isinstance(part.found, InputRefused)]
    dumps, logs, spans = by("flight"), by("progress"), by("otlp")
    traces = _traces(parts, by, refused)
    about = {"name": _job_name(paths[0]), "source": _source(paths)}
    if spans and traces:
        refused += [InputRefused(span.label, "spans are not read with traces; analyze them alone") for span in spans]
        spans = []
    if spans:
        from taut.read.otlp import reader as otlp

        trace = otlp.gather(spans, refused, **about)
    elif traces:
        trace = merge.merge(traces, refused, **about)
    elif any(dump.rank >= 0 for dump in dumps):
        from taut.read.flight import reader as flight

        trace = flight.alone(dumps, refused, **about)
    elif by("job_logs") or _decided(by):
        trace = _jobs_alone(refused, **about)
    else:
        raise _nothing(paths, parts, refused, by)
    logs += [trace.progress for _, trace in traces if len(trace.progress)]
    if logs:
        trace = replace(trace, progress=log.gather(logs))
    skipped = sum(part.found is None for part in parts)
    return replace(trace, counts={**trace.counts, "files": len(traces) + len(spans), "files skipped": skipped})


def _with_what_lies_beside(trace: Trace, by: Callable[[str], list[Any]], given: Callable[[], list[Any]]) -> Trace:
    """The trace with dumps, execution traces, metrics, job and control logs; one that cannot be used is left out."""
    if dumps := by("flight"):
        from taut.read.flight import reader as flight

        trace = _unless_unusable(trace, "flight-recorder dumps", lambda: flight.apply(trace, dumps))
    if executed := [found for found in by("execution") if not _is_plan(found)]:
        from taut.read.chakra import execution

        trace = _unless_unusable(trace, "execution traces", lambda: execution.apply(trace, executed))
    trace = _unless_unusable(trace, "metrics", lambda: metrics.apply(trace, [*by("metrics"), *given()]))
    if jobs := by("job_logs"):
        from taut.read.jobs import gather_jobs as job_gather

        trace = _unless_unusable(trace, "job logs", lambda: job_gather.apply(trace, jobs))
    if (decided := _decided(by)) or jobs:
        from taut.read.actions import gather_actions as control_gather

        trace = _unless_unusable(trace, "control logs", lambda: control_gather.apply(trace, decided, jobs))
    return trace


def _unless_unusable(trace: Trace, what: str, apply: Callable[[], Trace]) -> Trace:
    """The trace with something applied; without it, and with a note, if that goes wrong in a way nobody foresaw."""
    try:
        with refusing_unexpected(lambda why: Unforeseen(what, why)):
            return apply()
    except Unforeseen as error:
        return replace(trace, partial=[*trace.partial, f"{what} left out: they do not fit the traces ({brief(error.why)})"])


class Unforeseen(InputRefused):
    """Raised by no reader: an exception of another kind, at the boundary."""


def _digest(used: Sequence[str], fetched: Trace | None) -> str:
    """SHA-256 over the inputs that were used, in whatever order they were given, and metrics fetched from elsewhere."""
    total = hashlib.sha256("\n".join(sorted(filter(None, used))).encode("utf-8", "surrogateescape"))
    if fetched is not None:
        table = fetched.metrics
        total.update("\0".join(dict.fromkeys(map("\1".join, zip(table.component, table.metric, strict=True)))).encode())
        for column in (table.time_ns, table.rank, table.value, table.limit):
            total.update(np.ascontiguousarray(column).data)
    return total.hexdigest()


def _decided(by: Callable[[str], list[Any]]) -> list[Any]:
    """What tells of control, if anything does."""
    jobs = by("job_logs")
    if not (jobs or by("control") or any(one.settings for one in by("metrics"))):
        return []
    from taut.read.actions import gather_actions as control_gather

    return control_gather.logs(by("control"), jobs, by("metrics"))


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def _traces(parts: Sequence[Part], by: Callable[[str], list[Any]], refused: list[InputRefused]) -> list[tuple[str, Trace]]:
    """The traces; where there are none, what can be made of logs and plans, which tell less and stand back otherwise."""
    traces = [(part.label, part.found) for part in parts if isinstance(part.found, Trace)]
    if reports := by("nsys"):
        from taut.read.nsys import rank_traces as nsys_ranks

        traces += nsys_ranks.traces(reports)
    if inspected := by("inspector"):
        if not traces:
            from taut.read.flight import inspector

            return [(inspected[0].label, inspector.gather(inspected))]
        refused.append(InputRefused(inspected[0].label, f"{len(inspected)} Inspector logs beside traces that tell more"))
    if plans := [plan for plan in (*by("chakra"), *by("execution")) if _is_plan(plan)]:
        if not traces:
            from taut.read.chakra import schedule

            return schedule.laid_out(plans)
        refused += [InputRefused(plan.label, "without starts, beside traces that have them") for plan in plans]
    return traces


def _is_plan(found: Any) -> bool:
    """Whether ops have an order but no times (``chakra.Plan``)."""
    return hasattr(found, "place")


def _jobs_alone(refused: Sequence[InputRefused], *, name: str, source: str) -> Trace:
    """A trace without ops, where only job logs or control logs are there."""
    notes = [f"{error.where} left out: {error.why}" for error in refused]
    return Trace(Table(Op, {}, 0), [], [], [], Table(Member, {}, 0), name=name, source=source, partial=notes)


BESIDE = {
    "execution": "execution traces without times", "flight": "flight-recorder dumps that do not say their rank",
    "metrics": "metrics", "progress": "progress logs",
}  # fmt: skip


def _nothing(
    paths: Sequence[str | Path], parts: list[Part], refused: list[InputRefused], by: Callable[[str], list[Any]]
) -> InputRefused:
    """Why there is no trace."""
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if len(refused) == 1:
        return refused[0]
    if refused:
        return InputRefused(refused[0].where, f"{refused[0].why} (and {len(refused) - 1} more files refused)")
    beside = next((words for name, words in BESIDE.items() if by(name)), "")
    if beside:
        return NotATrace(where, f"only {beside} here", "put the profiler traces of the job beside them")
    if len(parts) != 1:
        return NotATrace(where, f"no trace among {len(parts)} files", f"taut reads {KNOWN}")
    if parts[0].columns:
        why = f"a table of {', '.join(parts[0].columns)}, which taut does not know"
        return NotATrace(where, why, f"op tables have {', '.join(OP_COLUMNS)}; step times have {STEP_COLUMNS}")
    if parts[0].is_empty:
        return NotATrace(parts[0].label, "it was empty", "check what writes to it")
    return NotATrace(where, "not a trace", f"taut reads {KNOWN}")


def _job_name(path: str | Path) -> str:
    if str(path) == files.STDIN:
        return "job"
    stem = files.as_text(Path(path).resolve().name)
    for suffix in SUFFIXES:
        stem = stem.removesuffix(suffix)
    return stem or "job"


def _source(paths: Sequence[str | Path]) -> str:
    return files.as_text(", ".join(map(str, paths)) if len(paths) <= 3 else f"{paths[0]} and {len(paths) - 1} more")
