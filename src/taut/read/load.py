"""Members → what they hold: every file is recognised by its first bytes, and read in processes where that pays."""

from __future__ import annotations

import os
import re
import signal
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Protocol

from taut.core.boundary import refusing_unexpected
from taut.core.errors import InputRefused, TooLarge
from taut.core.signals import Held
from taut.core.tables import Trace
from taut.read import files
from taut.read import op_table as optable
from taut.read import step_times as steptimes
from taut.read.actions.control_log import ControlLog
from taut.read.columns import paused_gc
from taut.read.jobs import progress_log as log
from taut.read.jobs.job_words import JobLog
from taut.read.kineto import reader as kineto
from taut.read.metrics import reader as metrics

PARALLEL_BYTES = 30 << 20
"""Below this much input, starting processes costs more than it saves."""


LEAVE = "leave it out, or report it if other tools read it"
PR_SET_PDEATHSIG = 1
COLUMNS = 12
"""Columns of an unknown table that are named at most."""


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
    from taut.read.nsys import reader as nsys

    yield nsys
    from taut.read.otf2 import reader as otf2

    yield otf2


def _others() -> Iterator[Any]:
    """Formats that tell less than a trace of their own, or lie beside traces, and job logs; the loosest come last."""
    from taut.read.flight import reader as flight

    yield flight
    from taut.read.otlp import reader as otlp

    yield otlp
    from taut.read.flight import inspector

    yield inspector
    from taut.read.chakra import reader as chakra

    yield chakra
    from taut.read.chakra import execution

    yield execution
    yield from control_logs()
    yield log
    yield metrics
    yield from job_logs()
    from taut.read.actions import action_lines

    yield action_lines


def control_logs() -> Iterator[Any]:
    """Readers of what tells the decisions of controllers and nothing else; plain lines are the loosest, and come last."""
    from taut.read.actions import action_table, kube_audit, ray_serve

    yield from (kube_audit, action_table, ray_serve)


def job_logs() -> Iterator[Any]:
    """Readers of what tells the attempts of a job, beside its traces or alone."""
    from taut.read.jobs import job_table, sacct, sacct_json, slurmctld, training_log
    from taut.read.jobs import kubernetes_events as kubernetes

    yield from (sacct, sacct_json, slurmctld, kubernetes, job_table, training_log)


@dataclass
class Part:
    """What became of one member: something, a refusal, or nothing that is known."""

    label: str
    found: Any
    door: str = ""
    """The module that read it; empty for a trace, a refusal and nothing."""
    columns: tuple[str, ...] = ()
    """Columns of a table that nobody knows."""
    is_empty: bool = False


@dataclass
class Loaded:
    """What became of one input: its parts, and what its digest takes into account."""

    parts: list[Part]
    digest: str = ""
    """Name and hash of an input that was used, or why it was refused; empty for one that nobody knows."""


def load_all(inputs: list[str], progress: Callable[[int, int], None]) -> list[Loaded]:
    """What all inputs hold, in their order; ``progress`` is told how many are read, of how many."""
    unique = list(dict.fromkeys(inputs))
    results: dict[str, Loaded] = {}
    for path, loaded in _loaded(unique):
        results[path] = loaded
        progress(len(results), len(unique))
    return [results[path] for path in unique]


def _loaded(unique: list[str]) -> Iterator[tuple[str, Loaded]]:
    """Every input with its parts, in processes where that pays."""
    total = sum(map(files.size_of, unique))
    finished: set[str] = set()
    if total > PARALLEL_BYTES and len(unique) > 1 and _cpus() > 1 and files.STDIN not in unique:
        for path, loaded in _in_processes(unique):
            finished.add(path)
            yield path, loaded
    for path in unique:
        if path not in finished:
            yield path, load_file(path)


def _in_processes(paths: list[str]) -> Iterator[tuple[str, Loaded]]:
    """Inputs as worker processes finish them; fewer than all if the workers cannot run."""
    # Imported here because most runs read little and never need it.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(len(paths), _cpus()), mp_context=context, initializer=_end_with, initargs=(os.getpid(),))
    done = False
    try:
        with _without_main(), Held():
            futures = {pool.submit(load_file, path): path for path in paths}
        for future in as_completed(futures):
            yield futures[future], future.result()
        done = True
    except BrokenProcessPool:
        # A worker ran out of memory or was killed: the rest is read one at a time.
        return
    finally:
        if not done:  # interrupted, refused or broken: nobody waits for files that nobody wants
            for worker in multiprocessing.active_children():
                worker.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _without_main() -> Iterator[None]:
    """Start workers from taut alone: spawning would import the caller's script anew, and run it if it has no guard."""
    script, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _end_with(parent: int) -> None:
    """Have this worker end when the process that started it is killed (Linux; elsewhere it would wait for ever)."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_file(path: str) -> Loaded:
    """The parts of one input; a refusal, foreseen or not, is one of them, so that the other inputs are still read."""
    parts: list[Part] = []
    with files.Source(path) as source:
        try:
            with _refusing(source.label):
                for member in source.members():
                    with paused_gc():
                        parts.append(_load_member(member))
        except InputRefused as refusal:
            parts.append(Part(refusal.where, refusal))
        return Loaded(parts, _digest(source, parts))


def _digest(source: files.Source, parts: list[Part]) -> str:
    name = os.path.basename(source.path) if os.path.isfile(source.path) else ""
    refused = [part.found.why for part in parts if isinstance(part.found, InputRefused)]
    if len(refused) == sum(part.found is not None for part in parts):
        return "\0".join((name, *refused)) if refused else ""
    try:
        return f"{name}\0{source.digest()}"
    except (OSError, tarfile.TarError, InputRefused):  # cut short: what it was read up to is in its parts
        return f"{name}\0{len(parts)}"


@contextmanager
def _refusing(label: str) -> Iterator[None]:
    """The boundary of every file: whatever goes wrong while it is read is a refusal of that file."""
    try:
        with refusing_unexpected(
            lambda why: InputRefused(label, f"unreadable as the format it seems to be ({brief(why)})", LEAVE)
        ):
            yield
    except MemoryError:
        raise TooLarge(label, "needs more memory than there is", "profile fewer steps, or use a larger machine") from None


def brief(why: str) -> str:
    """An unforeseen reason in one short line."""
    return " ".join(why.split())[:120]


def _load_member(member: files.Member) -> Part:
    try:
        with _refusing(member.label):
            return _recognised(member)
    except InputRefused as refusal:
        return Part(member.label, refusal)


def _recognised(member: files.Member) -> Part:
    """What the first reader that knows a member makes of it."""
    try:
        if member.name.lower().endswith(REPORTS):
            from taut.read.nsys import reader as nsys

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
    except (OSError, tarfile.TarError) as error:
        raise files.unreadable(member.label, error) from None
    return Part(member.label, None, columns=_columns(member.head), is_empty=not member.head)


def _columns(head: bytes) -> tuple[str, ...]:
    """The names in the header of something that looks like a CSV table."""
    line = head.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    names = tuple(name.strip().strip('"') for name in line.split(",")[:COLUMNS])
    return names if len(names) > 1 and all(re.fullmatch(r"[\w .-]{1,40}", name) for name in names) else ()


def _part(member: files.Member, door: Any, found: Any) -> Part:
    if found is None or isinstance(found, Trace):
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
