"""Bytes → Trace. One file per format, sniffed from content; none imports another room."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from taut.errors import InputRefused, NotATrace, TooLarge
from taut.read import (
    chakra,
    execution,
    files,
    flight,
    job_gather,
    job_table,
    kineto,
    kubernetes,
    merge,
    metric_given,
    metrics,
    nsys,
    nsys_ranks,
    optable,
    otf2,
    sacct,
    sacct_json,
    schedule,
    slurmctld,
    steptimes,
    training_log,
)
from taut.read import progress as log
from taut.read.job_words import JobLog
from taut.tables import Member, Op, Table, Trace

__all__ = ["FORMATS", "Format", "read"]

PARALLEL_BYTES = 30 << 20
"""Below this much input, starting processes costs more than it saves."""


class Format(Protocol):
    """What a module of this room offers."""

    def sniff(self, head: bytes) -> bool:
        """Whether these first bytes are of this format."""

    def load(self, data: bytes, label: str) -> Trace:
        """The trace in these bytes."""


FORMATS: tuple[Format, ...] = (kineto, optable, steptimes)
IN_PLACE = (nsys, otf2)
"""Formats that are opened where they lie, because they are too large to hold or are more than one file."""
JOB_LOGS = (sacct, sacct_json, slurmctld, kubernetes, job_table, training_log)
"""Readers of what tells the attempts of a job, beside its traces or alone; the loosest comes last."""


KNOWN = "Kineto JSON, Nsight Systems exports, OTF2, Chakra, op tables, step times and job logs; README.md lists them"
SUFFIXES = (
    ".gz", ".tar", ".tgz", ".json", ".parquet", ".csv", ".sqlite", ".otf2", ".trace", ".pt", ".txt", ".log", ".out", ".err",
)  # fmt: skip
Found = Trace | nsys.Report | chakra.Plan | execution.Execution | flight.Dump | metrics.Metrics | JobLog | Table
"""What a member may hold; a bare table is a progress log."""


@dataclass
class Part:
    """What became of one member: a trace, what lies beside traces (a dump, metrics, a log), a refusal, or nothing."""

    label: str
    found: Found | InputRefused | None


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
    inputs = files.expand(paths)
    parts = _load_all(inputs, progress or _silent)
    traces = [(part.label, part.found) for part in parts if isinstance(part.found, Trace)]
    traces += nsys_ranks.traces([part.found for part in parts if isinstance(part.found, nsys.Report)])
    refused = [part.found for part in parts if isinstance(part.found, InputRefused)]
    dumps = [part.found for part in parts if isinstance(part.found, flight.Dump)]
    measured = [part.found for part in parts if isinstance(part.found, metrics.Metrics)]
    logs = [part.found for part in parts if isinstance(part.found, Table)]
    jobs = [part.found for part in parts if isinstance(part.found, JobLog)]
    executed = [part.found for part in parts if isinstance(part.found, execution.Execution)]
    plans = [part.found for part in parts if isinstance(part.found, chakra.Plan)]
    if traces:
        refused += [InputRefused(plan.label, "without starts, beside traces that have them") for plan in plans]
    elif plans:
        traces = schedule.laid_out(plans)
    if not traces and not jobs and not any(dump.rank >= 0 for dump in dumps):
        beside = {
            "execution traces without times": executed,
            "flight-recorder dumps that do not say their rank": dumps,
            "metrics": measured,
            "progress logs": logs,
        }
        raise _nothing(paths, parts, refused, next((name for name, found in beside.items() if found), ""))
    about = {"name": _job_name(paths[0]), "source": _source(paths)}
    if traces:
        trace = merge.merge(traces, refused, **about)
    elif any(dump.rank >= 0 for dump in dumps):
        trace = flight.alone(dumps, refused, **about)
    else:
        trace = _jobs_alone(refused, **about)
    logs += [trace.progress for _, trace in traces if len(trace.progress)]
    if logs:
        trace = replace(trace, progress=log.gather(logs))
    skipped = sum(part.found is None for part in parts)
    trace = flight.apply(trace, dumps, {"files": len(traces), "files skipped": skipped})
    trace = execution.apply(trace, executed)
    trace = metrics.apply(trace, [*measured, *metric_given.load(metrics_at, trace, places)])
    return job_gather.apply(trace, jobs)


def _jobs_alone(refused: Sequence[InputRefused], *, name: str, source: str) -> Trace:
    """A trace without ops, where only job logs are there."""
    notes = [f"{error.where} left out: {error.why}" for error in refused]
    return Trace(Table(Op, {}, 0), [], [], [], Table(Member, {}, 0), name=name, source=source, partial=notes)


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


def _load_all(inputs: list[str], progress: Callable[[int, int], None]) -> list[Part]:
    sizes = {path: files.size_of(path) for path in inputs}
    total, done = sum(sizes.values()), 0
    results: dict[str, list[Part]] = {}
    for path, parts in _loaded(inputs, total):
        results[path] = parts
        done += sizes[path]
        progress(done, total)
    return [part for path in dict.fromkeys(inputs) for part in results[path]]


def _loaded(inputs: list[str], total: int) -> Iterator[tuple[str, list[Part]]]:
    """Every input with its parts, in processes where that pays."""
    unique = list(dict.fromkeys(inputs))
    finished: set[str] = set()
    if total > PARALLEL_BYTES and len(unique) > 1 and _cpus() > 1 and files.STDIN not in unique:
        for path, parts in _in_processes(unique):
            finished.add(path)
            yield path, parts
    for path in unique:
        if path not in finished:
            yield path, load_file(path)


def _in_processes(paths: list[str]) -> Iterator[tuple[str, list[Part]]]:
    """Inputs as worker processes finish them; fewer than all if the workers cannot run."""
    # Imported here because most runs read little and never need it.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(len(paths), _cpus()), mp_context=context) as pool:
            futures = {pool.submit(load_file, path): path for path in paths}
            for future in as_completed(futures):
                yield futures[future], future.result()
    except BrokenProcessPool:
        # A worker ran out of memory, or the caller's script cannot be imported: the rest is read one at a time.
        return


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_file(path: str) -> list[Part]:
    """The parts of one input. A cap refuses the whole run; any other refusal is kept for the report."""
    parts: list[Part] = []
    try:
        for member in files.members(path):
            parts.append(_load_member(member))
    except TooLarge:
        raise
    except InputRefused as refusal:
        parts.append(Part(refusal.where, refusal))
    return parts


def _load_member(member: files.Member) -> Part:
    try:
        if nsys.is_report(member):
            return Part(member.label, None)
        for in_place in IN_PLACE:
            if in_place.sniff(member.head):
                return Part(member.label, in_place.load(member))
        for reader in FORMATS:
            if reader.sniff(member.head):
                return Part(member.label, _load_first(reader, member))
        for beside in (flight, chakra, execution, log, metrics):
            if beside.sniff(member.head):
                return Part(member.label, beside.load(member.read(), member.label))
        for told in JOB_LOGS:
            if told.sniff(member.head):
                return Part(member.label, told.load(member.read(), member.label))
    except TooLarge:
        raise
    except InputRefused as refusal:
        return Part(member.label, refusal)
    return Part(member.label, None)


def _load_first(reader: Format, member: files.Member) -> Trace | metrics.Metrics:
    """A trace, or metrics if a Parquet file holds those; a table of step times that also tells the loss is a progress log."""
    data = member.read()
    if reader is optable and metrics.is_parquet(data):
        return metrics.load(data, member.label)
    if reader is not steptimes or not log.sniff(member.head):
        return reader.load(data, member.label)
    return replace(steptimes.load(data, member.label), progress=log.load(data, member.label))


def _nothing(paths: Sequence[str | Path], parts: list[Part], refused: list[InputRefused], beside: str) -> InputRefused:
    """Why there is no trace."""
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    if len(refused) == 1:
        return refused[0]
    if refused:
        return InputRefused(refused[0].where, f"{refused[0].why} (and {len(refused) - 1} more files refused)")
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
