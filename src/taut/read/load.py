"""Members → what they hold: every file is recognised by its first bytes, and read in processes where that pays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from taut.errors import InputRefused, TooLarge
from taut.read import files, kineto, metrics, optable, steptimes
from taut.read import progress as log
from taut.read.columns import paused_gc
from taut.read.control_log import ControlLog
from taut.read.job_words import JobLog
from taut.tables import Trace

PARALLEL_BYTES = 30 << 20
"""Below this much input, starting processes costs more than it saves."""


class Format(Protocol):
    """What a module of this room offers."""

    def sniff(self, head: bytes) -> bool:
        """Whether these first bytes are of this format."""

    def load(self, data: bytes, label: str) -> Trace:
        """The trace in these bytes."""


FORMATS: tuple[Format, ...] = (kineto, optable, steptimes)
REPORTS = (".nsys-rep", ".qdrep")
"""What nsys itself keeps, and only it can open."""


def _in_place() -> Iterator[Any]:
    """Formats that are opened where they lie, because they are too large to hold or are more than one file.

    They, and those below, are loaded one by one as they are asked: most inputs never come to them.
    """
    from taut.read import nsys

    yield nsys
    from taut.read import otf2

    yield otf2


def _others() -> Iterator[Any]:
    """Formats that tell less than a trace of their own, or lie beside traces, and job logs; the loosest come last."""
    from taut.read import flight

    yield flight
    from taut.read import otlp

    yield otlp
    from taut.read import inspector

    yield inspector
    from taut.read import chakra

    yield chakra
    from taut.read import execution

    yield execution
    yield from control_logs()
    yield log
    yield metrics
    yield from job_logs()
    from taut.read import action_lines

    yield action_lines


def control_logs() -> Iterator[Any]:
    """Readers of what tells the decisions of controllers and nothing else; plain lines are the loosest, and come last."""
    from taut.read import action_table, kube_audit, ray_serve

    yield from (kube_audit, action_table, ray_serve)


def job_logs() -> Iterator[Any]:
    """Readers of what tells the attempts of a job, beside its traces or alone."""
    from taut.read import job_table, kubernetes, sacct, sacct_json, slurmctld, training_log

    yield from (sacct, sacct_json, slurmctld, kubernetes, job_table, training_log)


@dataclass
class Part:
    """What became of one member: something, a refusal, or nothing that is known."""

    label: str
    found: Any
    door: str = ""
    """The module that read it; empty for a trace, a refusal and nothing."""


def load_all(inputs: list[str], progress: Callable[[int, int], None]) -> list[Part]:
    """What all inputs hold, in their order; ``progress`` is told bytes done and in all."""
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
            with paused_gc():
                parts.append(_load_member(member))
    except TooLarge:
        raise
    except InputRefused as refusal:
        parts.append(Part(refusal.where, refusal))
    return parts


def _load_member(member: files.Member) -> Part:
    try:
        if member.name.lower().endswith(REPORTS):
            from taut.read import nsys

            if nsys.is_report(member):
                return Part(member.label, None)
        for reader in FORMATS:
            if reader.sniff(member.head):
                return _part(member, reader, _load_first(reader, member))
        for in_place in _in_place():
            if in_place.sniff(member.head):
                return _part(member, in_place, in_place.load(member))
        for other in _others():
            if other.sniff(member.head):
                return _part(member, other, other.load(member.read(), member.label))
    except TooLarge:
        raise
    except InputRefused as refusal:
        return Part(member.label, refusal)
    return Part(member.label, None)


def _part(member: files.Member, door: Any, found: Any) -> Part:
    if isinstance(found, Trace):
        return Part(member.label, found)
    for kind, name in ((metrics.Metrics, "metrics"), (JobLog, "job_logs"), (ControlLog, "control")):
        if isinstance(found, kind):
            return Part(member.label, found, name)
    return Part(member.label, found, door.__name__.rpartition(".")[2])


def _load_first(reader: Format, member: files.Member) -> Trace | metrics.Metrics:
    """A trace, or metrics if a Parquet file holds those; a table of step times that also tells the loss is a progress log."""
    if reader is kineto:
        return kineto.flow(member.chunks(), member.label, member.samples)
    data = member.read()
    if reader is optable and metrics.is_parquet(data):
        return metrics.load(data, member.label)
    if reader is not steptimes or not log.sniff(member.head):
        return reader.load(data, member.label)
    return replace(steptimes.load(data, member.label), progress=log.load(data, member.label))
