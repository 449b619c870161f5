"""The main job, read → … → verdict, and the folder that keeps its result.

A run folder holds ``run.json`` (what ``--json`` prints, and the names the tables refer to) and the graph as Parquet
tables, so that later verbs start from it without reading the traces again.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from taut import __version__
from taut.core import memory
from taut.core.array_types import Ints
from taut.core.coded_columns import unique, worded
from taut.core.errors import NotATrace, UsageError
from taut.core.folder import FORMAT, save_folder
from taut.core.json_text import json_text
from taut.core.row_shares import is_shared, side_by_side, threads_at_work
from taut.core.scratch import columns_on_disk, is_on_disk
from taut.core.tables import Action, Attempt, Call, Member, Metric, Op, Table, Trace
from taut.diagnose import hang
from taut.diagnose.against_baseline import LEAST_STEPS
from taut.diagnose.detectors import Evidence, diagnose, most_recoverable
from taut.diagnose.instability import instability
from taut.diagnose.job_regime import PAYS
from taut.graph import Clock, Gate, Graph, link
from taut.graph.joined import Joined, difference, joined
from taut.ledger import Prices, charge
from taut.ledger.attempt_ledger import Attempts, charge_attempts
from taut.ledger.charge import FATES, Cell
from taut.read.files import Paths, expand, listed, size_of
from taut.read.kept_reading import KeptReading
from taut.read.remote import is_address
from taut.read.trace import read
from taut.replay.blame import Wait, blame
from taut.replay.own_time import OwnTimeRow, own_time_table
from taut.replay.timeline import batch, replay
from taut.replay.whatif import decompose, dimensions
from taut.result.analysis_result import report
from taut.result.baseline_result import baseline_result
from taut.result.computed import Computed
from taut.result.jobs_result import report_jobs
from taut.result.result_tables import result_tables
from taut.result.types import AnalysisResult
from taut.stored import OP_ARRAYS, Run, op_words, open_run, table_of

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.core.executors import On
    from taut.read.rank_topology import Topology
    from taut.render.run_charts import RunPlots

T = TypeVar("T")
ROW_GROUP = 1 << 20
"""Rows of a table that are written at once: a row group of a Parquet file."""
COLUMNS_PER_BYTE = 64
"""Bytes of memory that a byte of input may take: a row of a Parquet file has six, and an op takes 400 at most."""
TWO_AT_ONCE, WRITTEN_BESIDE = 1_000_000, 50_000
"""Ops from which what-ifs and diagnosis run beside blame and ledger, on the second core, where both fit into memory; and
from which tables are written beside what is computed for the last of them."""


@dataclass(frozen=True, repr=False, eq=False)
class Analysis(Computed):
    """Everything ``analyze`` found out about one job."""

    @cached_property
    def result(self) -> AnalysisResult:
        """What ``taut analyze --json`` prints."""
        return report(self)

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return self.result.verdict.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.result.job.name}: {self.verdict}>"

    def _repr_html_(self) -> str:
        from taut.render.card import card

        return card(self.result)

    @property
    def plot(self) -> RunPlots:
        """Pictures of it: ``plot.fates()``, ``steps()``, ``lateness()``, ``waits()``, ``ranks()``; they need altair."""
        from taut.views.run_plots import run_plots

        return run_plots(Run(Path(), self.graph, self.blame.peers.value_ns, self.result, {}, self.digest))

    def table(self, name: str) -> Table:
        """One of its tables: ops, gates, members, clock, waits or ledger; it knows the words of its codes."""
        return table_of(self.graph, name, {"waits": lambda: self.ledger.waits, "ledger": lambda: self.ledger.cells})

    def to_json(self) -> str:
        """The result as JSON text; the same input gives the same bytes."""
        return json_text(self.result)

    def save(self, folder: str | Path | None = None) -> Path:
        """Write the run folder (all of it or nothing) and return its path."""
        return save_run(folder, f"{_safe(self.graph.trace.name)}-{self.digest[:8]}", lambda scratch: _write(self, scratch))


@dataclass(frozen=True, repr=False, eq=False)
class JobAnalysis:
    """What ``analyze`` found out from job logs alone."""

    trace: Trace
    attempts: Attempts | None
    digest: str

    @cached_property
    def result(self) -> AnalysisResult:
        """What ``taut analyze --json`` prints; what only traces tell is null."""
        return report_jobs(self.trace, self.attempts)

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return self.result.verdict.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.result.job.name}: {self.verdict}>"

    def _repr_html_(self) -> str:
        from taut.render.card import card

        return card(self.result)

    def to_json(self) -> str:
        """The result as JSON text; the same input gives the same bytes."""
        return json_text(self.result)

    def save(self, folder: str | Path | None = None) -> Path:
        """Write the run folder (all of it or nothing) and return its path."""
        return save_run(folder, f"{_safe(self.trace.name)}-{self.digest[:8]}", self._write)

    def _write(self, folder: Path) -> dict[str, object]:
        import pyarrow.parquet as pq

        pq.write_table(self.trace.attempts.to_arrow(), folder / "attempts.parquet", compression="lz4")
        return {"digest": self.digest, "result": self.result, "graph": None}


def save_run(folder: str | Path | None, name: str, write: Callable[[Path], Mapping[str, object]]) -> Path:
    """A run folder, or ``taut-runs/NAME`` if none is given: ``write`` fills it and returns what ``run.json`` holds."""
    target = Path(folder) if folder is not None else Path("taut-runs") / name
    return save_folder(target, lambda scratch: {"format": FORMAT, "version": __version__, **write(scratch)})


@contextmanager
def within_memory(paths: Paths, memory_bytes: int | None = None) -> Iterator[None]:
    """Have the columns of a job lie on disk if its inputs may make more of them than this, or than there is memory."""
    most = memory.available_bytes() if memory_bytes is None else memory_bytes
    local = [] if most is None or is_on_disk() else expand([path for path in listed(paths) if not is_address(str(path))])
    with columns_on_disk() if most is not None and COLUMNS_PER_BYTE * sum(map(size_of, local)) > most else nullcontext():
        yield


def all_cores(on: On) -> AbstractContextManager[None]:
    """Have all cores of this machine work on what meets here, if work is to be spread at all."""
    if on is None or is_shared():
        return nullcontext()
    from taut.core.executors import cores

    return side_by_side(cores())


def analyze(
    paths: Paths,
    *,
    prices: Prices | None = None,
    topology: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
    pays: float = PAYS,
    envelope: bool = False,
    metrics: Sequence[str | Path] = (),
    places: str | None = None,
    columns: str = "",
    baseline: str | Path | None = None,
    memory_bytes: int | None = None,
    on: On = None,
    reading: str | Path | None = None,
    resume: bool = False,
) -> Analysis | JobAnalysis:
    """Read traces, or job logs alone, and answer: where did the bill go, why, and what would change it.

    ``baseline`` is the run folder of a healthy run of the same job, which findings are then compared with. Columns of a job
    that may take more than ``memory_bytes``, or than there is memory, lie on disk. ``on`` says where files are read: ``local``
    (all cores of this machine), ``dask://HOST:PORT`` or a ``concurrent.futures.Executor``. ``reading`` is a folder in which
    what was read of each file is kept until the analysis is done; with ``resume``, what one that was killed left there is not
    read again.
    """
    paths = listed(paths)
    say = progress or (lambda stage: None)
    say("reading")
    past = None if baseline is None else open_run(baseline)
    placed = None if topology is None else _topology(topology)
    keeping = nullcontext() if reading is None else KeptReading(Path(reading), columns, resume)
    with keeping as kept, within_memory(paths, memory_bytes), all_cores(on):
        told = partial(read, metrics_at=metrics, places=places, columns=columns, on=on, kept=kept)
        box = [told(paths, progress=lambda done, total: say(f"reading {done}/{total}"))]
        name = digest(box[0], prices, placed, pays, envelope, places, *([] if past is None else [past.digest]))
        if not len(box[0].ops):
            return _without_ops(box[0], name, paths, prices, baseline)
        found = analyze_trace(
            box.pop(), name, prices=prices, topology=placed, progress=progress, pays=pays, envelope=envelope, past=past
        )
        if is_on_disk() or is_shared():
            found.result  # noqa: B018 - computed while what it needs can lie on disk, and threads are there for it
        return found


def _without_ops(
    trace: Trace, name: str, paths: Sequence[str | Path], prices: Prices | None, baseline: str | Path | None
) -> JobAnalysis:
    """What job logs alone tell; refused where there are none."""
    if not len(trace.attempts):
        where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        if len(trace.members):  # only dumps tell of ranks without ops
            remedy = "set TORCH_NCCL_TRACE_BUFFER_SIZE above 0 and dump again, or put traces beside them"
            raise NotATrace(where, "no call with a time in these flight-recorder dumps", remedy)
        raise NotATrace(where, "only control logs here", "taut control reads them; or put traces or job logs beside them")
    if baseline is not None:
        raise UsageError(f"--baseline {baseline}: job logs alone have no graph to compare; put the traces beside them")
    return JobAnalysis(trace, charge_attempts(trace.attempts, prices, actions=trace.actions), name)


def _topology(path: str | Path) -> Topology:
    from taut.read.rank_topology import load

    return load(path)


def analyze_trace(
    trace: Trace,
    digest: str = "",
    *,
    prices: Prices | None = None,
    topology: Topology | None = None,
    progress: Callable[[str], None] | None = None,
    pays: float = PAYS,
    envelope: bool = False,
    past: Run | None = None,
) -> Analysis:
    """The main job on a trace that is already read; ``past`` is a healthy run of the same job."""
    say = progress or (lambda stage: None)
    placed = None if topology is None else topology.seated(trace.members)
    say("linking")
    box = [replace(trace, partial=[*trace.partial, *hang.notes(trace)])]
    large = len(trace.ops) >= TWO_AT_ONCE
    del trace  # a large job's ops need not be held twice: link lets go of them, too
    if large and not is_on_disk():
        memory.use_again()
    graph = link(box.pop())
    tidy = memory.give_back if large else lambda: None
    tidy()
    both = None if past is None else beside_baseline(past, graph)
    say("replaying")
    with _second_thread(large and not is_on_disk()) as beside:
        first = beside(lambda: batch(graph))
        observed = replay(graph)
        gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed
        say("asking what if, blaming, closing the ledger")
        asked = beside(lambda: decompose(graph, first(), dimensions(graph)))
        blamed = blame(graph, observed, gap_free, both)
        prepared = first()
        evidence = Evidence(graph, observed, blamed, prepared, both)
        findings, early = diagnose(evidence), evidence.early_warnings
        found, undecided = instability(evidence, findings, pays)
        findings = most_recoverable(found)
        # Fault is what a finding mends; what else lies outside ordinary variation has no culprit.
        booked = blamed.mended_by([change for finding in findings for change in finding.changes])
        shown, slowdowns = [evidence.exposed], evidence.slowdowns
        slowdowns.let_go()
        del evidence  # what only findings needed is let go
        tidy()
        ledger = charge(graph, observed, booked, prices, shown=shown.pop())  # which lets go of it
        world = graph.trace.world_size or len(graph.ranks)
        tries = charge_attempts(graph.trace.attempts, prices, world, graph.trace.actions)
        whatif = asked()
        tidy()
    told = (
        None if past is None else baseline_result(past.result, observed.window_ns, ledger.prices, str(past.folder), past.digest)
    )
    return Analysis(
        graph,
        observed,
        gap_free,
        blamed,
        prepared,
        whatif,
        findings,
        early,
        ledger,
        digest,
        pays,
        envelope,
        placed,
        tries,
        told,
        undecided,
        slowdowns,
    )


def beside_baseline(past: Run, graph: Graph) -> Joined:
    """The graph after that of its baseline; refused where they are not the same."""
    why = difference(past.graph, graph)
    if why is not None:
        raise UsageError(f"--baseline {past.folder}: not the same job: {why}; give a healthy run of this very job")
    if min(len(past.graph.steps), len(graph.steps)) < LEAST_STEPS:
        whose = "it" if len(past.graph.steps) < LEAST_STEPS else "this run"
        raise UsageError(f"--baseline {past.folder}: {whose} has one step, and how steps vary is not known; record more")
    return joined(past.graph, graph)


@contextmanager
def _second_thread(pays: bool, threads: int = 1) -> Iterator[Callable[[Callable[[], T]], Callable[[], T]]]:
    """What has work done beside this thread, by so many others, and returns what waits for its result.

    Where a second thread does not pay, the work is done here and now, and what threads are made with is not even imported.
    """
    if not pays:
        yield _at_once
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=threads) as pool:
        yield lambda work: pool.submit(work).result


def _at_once(work: Callable[[], T]) -> Callable[[], T]:
    done = work()
    return lambda: done


def digest(trace: Trace, *options: object) -> str:
    """SHA-256 over what was read (``Trace.digest``) and the options that change the result."""
    with np.printoptions(threshold=sys.maxsize):  # else a large matrix of a topology is abbreviated
        return hashlib.sha256("\0".join((trace.digest, *map(repr, options))).encode()).hexdigest()


def _safe(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-")
    return kept[:60] or "job"


def _write(analysis: Analysis, folder: Path) -> dict[str, object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def put(name: str, parts: Iterator[pa.Table]) -> None:
        one = next(parts)
        words = [field.name for field in one.schema if pa.types.is_dictionary(field.type) or pa.types.is_string(field.type)]
        path, how = folder / f"{name}.parquet", {"compression": "lz4", "use_dictionary": words, "write_statistics": False}
        with pq.ParquetWriter(path, one.schema, **how) as file:
            file.write_table(one)
            for one in parts:
                file.write_table(one)

    graph_tables = _graph_tables(analysis)
    with _second_thread(len(analysis.graph) >= WRITTEN_BESIDE, threads_at_work()) as beside:
        # A part of one table at a time, or of few: together they would take as much memory as the graph.
        first = [beside(partial(put, name, parts)) for name, parts in graph_tables.items()]
        told = result_tables(analysis, analysis.result, _ideal_step_ns(analysis))
        then = [beside(partial(put, name, iter([table]))) for name, table in told.items()]
        meta = _meta(analysis)
        for written in (*first, *then):
            written()
    return meta


def _ideal_step_ns(analysis: Analysis) -> Ints:
    """What each step takes in the ideal replay, as a page would tell it of the stored run."""
    from taut.views.ideal import least_times
    from taut.views.replays import Replays

    graph, trace = analysis.graph, analysis.graph.trace
    # Calls of flight recorders, and whether waits were recorded, are not stored: fixes on a page are told without them.
    unstored = len(trace.calls) > 0 or trace.waits_recorded
    if unstored:
        graph = replace(graph, trace=replace(trace, calls=Table(Call, {}, 0), waits_recorded=False))
    run = Run(Path(), graph, analysis.blame.peers.value_ns, analysis.result, {}, analysis.digest)
    work, gap = least_times(Replays(run, None if unstored else analysis.slowdowns))
    everywhere = np.broadcast_to(np.int32(0), len(graph))
    return analysis.batch.walls(work, work, everywhere, 1, gap)[:, 0].astype(np.int64)


def _graph_tables(analysis: Analysis) -> dict[str, Iterator[pa.Table]]:
    """The graph and what was computed of it, in parts that are made when asked; codes are the words they stand for."""
    import pyarrow as pa

    graph, ledger, trace, words = analysis.graph, analysis.ledger, analysis.graph.trace, op_words(analysis.graph.trace)

    def of(table: Table, *coded: str, **more: Sequence[str]) -> Iterator[pa.Table]:
        named = {name: words[name] for name in coded} | more
        return _in_parts(len(table), lambda rows: worded(table.sliced(rows).to_arrow(), named))

    return {
        "ops": _in_parts(len(graph), lambda rows: _ops_table(analysis, rows)),
        "edges": _in_parts(
            len(graph.pred), lambda rows: pa.table({"pred": graph.pred[rows].astype(np.int64), "lag_ns": graph.lag_ns[rows]})
        ),
        "events": _in_parts(len(graph.events), lambda rows: pa.table({"event": graph.events[rows].astype(np.int64)})),
        "own_time": of(own_time_table(analysis.own_time)),
        "waits": of(ledger.waits),
        "ledger": of(ledger.cells, "name", fate=FATES),
        "metrics": of(trace.metrics),
        "attempts": of(trace.attempts),
        **({"actions": of(trace.actions)} if len(trace.actions) else {}),
        "gates": of(graph.gates, "verb", "name", "group"),
        "members": of(graph.members),
        "clock": of(graph.clock),
    }


def _in_parts(count: int, make: Callable[[slice], pa.Table]) -> Iterator[pa.Table]:
    """The parts of a table of so many rows; of one without any rows, that one."""
    return (make(slice(first, first + ROW_GROUP)) for first in range(0, max(count, 1), ROW_GROUP))


def _ops_table(analysis: Analysis, rows: slice) -> pa.Table:
    """Some ops with what the graph and the blame say of them."""
    import pyarrow as pa

    graph = analysis.graph
    ops = graph.ops.sliced(rows).to_arrow()
    for name in OP_ARRAYS:
        ops = ops.append_column(name, pa.array(getattr(graph, name)[rows]))
    ops = ops.append_column("reference_ns", pa.array(analysis.blame.peers.value_ns[rows]))
    preds = np.diff(graph.pred_ptr[rows.start : rows.stop + 1]).astype(np.int64)
    return worded(ops.append_column("preds", pa.array(preds)), op_words(graph.trace))


def _meta(analysis: Analysis) -> dict[str, object]:
    """What ``run.json`` holds: the result, and what the tables refer to."""
    graph, trace = analysis.graph, analysis.graph.trace
    return {
        "digest": analysis.digest,
        "result": analysis.result,
        "graph": {
            "names": unique(trace.names), "lanes": unique(trace.lanes), "groups": unique(trace.groups), "name": trace.name,
            "source": trace.source, "world_size": trace.world_size, "backend": trace.backend, "relative": trace.relative,
            "group_ranks": {k: [int(r) for r in v] for k, v in trace.group_ranks.items()},
            "slots": graph.slots, "steps": graph.steps.tolist(), "segment": graph.segment.tolist(),
            "origin_ns": graph.origin_ns.tolist(), "clock_residual_ns": graph.clock_residual_ns,
            "dropped_edges": graph.dropped_edges, "partial": list(graph.partial), "counts": dict(graph.counts),
            **({} if trace.zero_ns is None else {"zero_ns": [int(ns) for ns in trace.zero_ns]}),
        },
    }  # fmt: skip


ROWS: tuple[type, ...] = (Op, Member, Gate, Clock, OwnTimeRow, Wait, Cell, Metric, Attempt, Action)
"""Row types of the tables in a run folder."""

__all__ = ["ROWS", "Analysis", "JobAnalysis", "Run", "analyze", "analyze_trace", "digest", "open_run"]
