"""Bytes → Trace: the files of a job are read one by one, sorted by what they hold, and joined."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct, structs

from taut.core import seen_inputs
from taut.core.boundary import refusing_unexpected
from taut.core.errors import InputRefused, NotATrace
from taut.core.tables import Member, Op, Table, Trace
from taut.read import files, merge, remote
from taut.read.contents import ControlLog, Dump, Execution, InspectorLog, JobLog, Metrics, Plan, Profile, Report, Spans
from taut.read.kept_reading import KeptReading
from taut.read.load import LEAVE, Part, brief
from taut.read.load_inputs import load_all

if TYPE_CHECKING:
    from taut.core.executors import On

READABLE = (
    "Kineto JSON, Nsight Systems exports, XLA profiles, OTF2, Chakra, op tables, step times, spans and job logs; see README.md"
)
STEP_COLUMNS = "worker (or rank), step and one of batch_time, step_time_s, step_time_ms, step_time_ns, duration_s, duration_ms"
SUFFIXES = (
    ".gz", ".tar", ".tgz", ".json", ".parquet", ".csv", ".sqlite", ".otf2", ".pb", ".xplane", ".trace", ".pt",
    ".txt", ".log", ".out", ".err",
)  # fmt: skip
# What makes no trace alone, in the words of the refusal.
NOT_ENOUGH = (
    (Execution, "execution traces without times"),
    (Dump, "flight-recorder dumps that do not say their rank"),
    (Metrics, "metrics"),
)
_DIGITS = re.compile(r"\d+")
T = TypeVar("T")


class Inputs(Struct, frozen=True):
    """What the inputs named by a user hold, and how messages name them."""

    paths: Sequence[str | Path]
    parts: list[Part]

    def of(self, kind: type[T]) -> list[T]:
        """All contents of one type, in the order of the inputs."""
        return [part.found for part in self.parts if isinstance(part.found, kind)]

    @property
    def where(self) -> str:
        """The inputs in few words."""
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0]} and {len(self.paths) - 1} more"

    @property
    def source(self) -> str:
        """The inputs as the trace records them."""
        return files.as_text(", ".join(map(str, self.paths)) if len(self.paths) <= 3 else self.where)

    @property
    def job_name(self) -> str:
        """The name of the first input, without its suffixes."""
        if str(self.paths[0]) == files.STDIN:
            return "job"
        first = str(self.paths[0])
        stem = remote.job_name(first) if remote.is_address(first) else files.as_text(Path(first).resolve().name)
        for suffix in SUFFIXES:
            stem = stem.removesuffix(suffix)
        return stem or "job"


def read(
    paths: files.Paths,
    *,
    metrics_at: Sequence[str | Path] = (),
    places: str | None = None,
    columns: str = "",
    progress: Callable[[int, int], None] | None = None,
    on: On = None,
    kept: KeptReading | None = None,
) -> Trace:
    """One Trace out of the files, folders, archives or standard input (``-``) that hold a job's traces.

    ``metrics_at`` are further files of metrics, or a Prometheus; ``places`` says which of their labels make a rank;
    ``columns`` names the columns of a job list without a header, as ``sacct -o`` was given them;
    ``on`` says where files are read: ``local``, ``dask://HOST:PORT`` or a ``concurrent.futures.Executor``;
    what ``kept`` has of them is not read again.
    """
    if on is not None:
        from taut.core.executors import checked

        checked(on)
    paths = files.listed(paths)
    if not paths:
        raise InputRefused("no input", "nothing to read", "name a trace file or a folder of them")
    loaded = load_all(files.expand(paths), progress, columns, on, kept)
    for one in loaded:
        seen_inputs.note(*one.digest.rpartition("\0")[::2])
    inputs = _progress_alone(Inputs(paths, [part for one in loaded for part in one.parts]))
    with refusing_unexpected(lambda why: InputRefused(inputs.where, f"cannot be put together ({brief(why)})", LEAVE)):
        control = _control_logs(inputs)
        trace = _joined(inputs, control)
    trace = _with_other_files(trace, inputs, control, lambda: _named_metrics(metrics_at, trace, places))
    return replace(
        trace, digest=_digest([one.digest for one in loaded] + [columns] * bool(columns), trace if metrics_at else None)
    )


def _progress_alone(inputs: Inputs) -> Inputs:
    """Where progress logs are all there is, they are job logs: they show attempts."""
    kinds = {type(part.found) for part in inputs.parts if part.found is not None}
    if kinds != {Table}:
        return inputs
    from taut.read.jobs.progress_attempts import attempts

    made = [
        structs.replace(part, found=attempts(part.found, part.label)) if isinstance(part.found, Table) else part
        for part in inputs.parts
    ]
    return structs.replace(inputs, parts=made)


def _joined(inputs: Inputs, control: list[ControlLog]) -> Trace:
    """One trace out of whatever records ops; without any, one out of dumps or of job and control logs."""
    refused = [*inputs.of(InputRefused), *_unknown_ranks(inputs)]
    dumps, logs, spans = inputs.of(Dump), inputs.of(Table), inputs.of(Spans)
    traces = _traces(inputs, refused)
    name, source = inputs.job_name, inputs.source
    if spans and traces:
        refused += [InputRefused(span.label, "spans are not read with traces; analyze them alone") for span in spans]
        spans = []
    if spans:
        from taut.read.otlp import reader as otlp

        trace = otlp.gather(spans, refused, name=name, source=source)
    elif traces:
        trace = merge.merge(traces, refused, name=name, source=source)
    elif any(dump.rank >= 0 for dump in dumps):
        from taut.read.flight import reader as flight

        trace = flight.alone(dumps, refused, name=name, source=source)
    elif inputs.of(JobLog) or control:
        notes = merge.left_out(refused)
        trace = Trace(Table(Op, {}, 0), [], [], [], Table(Member, {}, 0), name=name, source=source, partial=notes)
    else:
        raise _why_no_trace(inputs, refused)
    logs += [trace.progress for _, trace in traces if len(trace.progress)]
    if logs:
        from taut.read.jobs import progress_log

        trace = replace(trace, progress=progress_log.gather(logs))
    # Files of no known format are no error: folders hold READMEs and scripts.
    skipped = sum(part.found is None for part in inputs.parts)
    return replace(trace, counts={**trace.counts, "files": len(traces) + len(spans), "files skipped": skipped})


def _unknown_ranks(inputs: Inputs) -> list[InputRefused]:
    """Files that nobody can read, called like traces but for their numbers: ranks that are missing."""
    alike = {_DIGITS.sub("#", part.label) for part in inputs.parts if isinstance(part.found, Trace | Report)}
    lost = [part for part in inputs.parts if part.found is None and _DIGITS.sub("#", part.label) in alike]
    return [NotATrace(part.label, "it is empty" if part.is_empty else "it is no trace") for part in lost]


def _traces(inputs: Inputs, refused: list[InputRefused]) -> list[tuple[str, Trace]]:
    """The traces; where there are none, what can be made of logs and plans, which record less and are else left out."""
    traces = [(part.label, part.found) for part in inputs.parts if isinstance(part.found, Trace)]
    if reports := inputs.of(Report):
        from taut.read.nsys import rank_traces

        traces += rank_traces.traces(reports)
    if profiles := inputs.of(Profile):
        from taut.read.xplane import profile_ranks

        traces += profile_ranks.traces(profiles)
    if len({trace.relative for _, trace in traces}) > 1:
        tables = [label for label, trace in traces if trace.relative]
        refused += [InputRefused(label, "its times count from their steps, beside traces on a clock") for label in tables]
        traces = [(label, trace) for label, trace in traces if not trace.relative]
    if inspected := inputs.of(InspectorLog):
        if not traces:
            from taut.read.flight import inspector

            return [(inspected[0].label, inspector.gather(inspected))]
        refused.append(InputRefused(inspected[0].label, f"{len(inspected)} Inspector logs beside traces, which record more"))
    if plans := inputs.of(Plan):
        if not traces:
            from taut.read.chakra import schedule

            return schedule.laid_out(plans)
        refused += [InputRefused(plan.label, "without starts, beside traces that have them") for plan in plans]
    return traces


def _with_other_files(
    trace: Trace, inputs: Inputs, control: list[ControlLog], named_metrics: Callable[[], list[Metrics]]
) -> Trace:
    """The trace with dumps, execution traces, metrics, job and control logs; one that cannot be used is left out."""
    if dumps := inputs.of(Dump):
        from taut.read.flight import reader as flight

        trace = _unless_unusable(trace, "flight-recorder dumps", lambda: flight.apply(trace, dumps))
    if executed := inputs.of(Execution):
        from taut.read.chakra import execution

        trace = _unless_unusable(trace, "execution traces", lambda: execution.apply(trace, executed))
    trace = _unless_unusable(trace, "metrics", lambda: _with_metrics(trace, [*inputs.of(Metrics), *named_metrics()]))
    if jobs := inputs.of(JobLog):
        from taut.read.jobs import gather_jobs

        trace = _unless_unusable(trace, "job logs", lambda: gather_jobs.apply(trace, jobs))
    if control or jobs:
        from taut.read.actions import gather_actions

        trace = _unless_unusable(trace, "control logs", lambda: gather_actions.apply(trace, control, jobs))
    return trace


def _named_metrics(metrics_at: Sequence[str | Path], trace: Trace, places: str | None) -> list[Metrics]:
    """What the named files and addresses of metrics hold."""
    if not metrics_at and places is None:
        return []
    from taut.read.metrics import named_sources

    return named_sources.load(metrics_at, trace, places)


def _with_metrics(trace: Trace, found: list[Metrics]) -> Trace:
    if not found:
        return trace
    from taut.read.metrics import reader as metrics

    return metrics.apply(trace, found)


def _unless_unusable(trace: Trace, what: str, apply: Callable[[], Trace]) -> Trace:
    """The trace with something applied; without it, and with a note, if that fails in a way nobody foresaw."""
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


def _control_logs(inputs: Inputs) -> list[ControlLog]:
    """Whatever records control decisions; job logs and metrics do so, too."""
    own, jobs, measured = inputs.of(ControlLog), inputs.of(JobLog), inputs.of(Metrics)
    if not (jobs or own or any(one.settings for one in measured)):
        return []
    from taut.read.actions import gather_actions

    return gather_actions.logs(own, jobs, measured)


def _why_no_trace(inputs: Inputs, refused: list[InputRefused]) -> InputRefused:
    """The refusal of inputs that make no trace."""
    parts = inputs.parts
    if len(refused) == 1:
        return refused[0]
    if refused:
        return InputRefused(refused[0].where, f"{refused[0].why} (and {len(refused) - 1} more files refused)")
    only = next((words for kind, words in NOT_ENOUGH if inputs.of(kind)), "")
    if only:
        return NotATrace(inputs.where, f"only {only} here", "put the profiler traces of the job beside them")
    if len(parts) != 1:
        return NotATrace(inputs.where, f"no trace among {len(parts)} files", f"taut reads {READABLE}")
    if parts[0].columns:
        from taut.read.op_table import REQUIRED as OP_COLUMNS

        why = f"a table of {', '.join(parts[0].columns)}, which taut does not know"
        return NotATrace(inputs.where, why, f"op tables have {', '.join(OP_COLUMNS)}; step times have {STEP_COLUMNS}")
    if parts[0].is_empty:
        return NotATrace(parts[0].label, "it was empty", "check what writes to it")
    return NotATrace(inputs.where, "not a trace", f"taut reads {READABLE}")
