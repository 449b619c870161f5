"""The main job, read → … → verdict, and the folder that keeps its result.

A run folder holds ``run.json`` (what ``--json`` prints, and the names the tables refer to) and the graph as Parquet
tables, so that later verbs start from it without reading the traces again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from taut import __version__
from taut.diagnose import Evidence, Finding, diagnose
from taut.diagnose.early import Warned
from taut.diagnose.regime import PAYS
from taut.errors import NotATrace, RunError
from taut.graph import Clock, Gate, Graph, link
from taut.jobs import report_jobs
from taut.ledger import Ledger, Prices, charge
from taut.ledger.attempts import Attempts, charge_attempts
from taut.ledger.charge import Cell
from taut.read import read
from taut.read.topology import Topology
from taut.read.topology import load as load_topology
from taut.replay import Batch, Blame, Timeline, Wait, WhatIf, batch, blame, decompose, dimensions, replay
from taut.replay.coupling import Coupling, couple
from taut.report import report
from taut.tables import Action, Attempt, Member, Metric, Op, Table, Trace

TWO_AT_ONCE = 1_000_000
"""Ops from which what-ifs and diagnosis run beside blame and ledger, on the second core."""
FORMAT = 1
"""Version of the run folder's layout."""


@dataclass(frozen=True)
class Analysis:
    """Everything ``analyze`` found out about one job."""

    graph: Graph
    observed: Timeline
    gap_free: Timeline
    blame: Blame
    batch: Batch
    whatif: WhatIf
    findings: list[Finding]
    early: list[Warned] | None
    """Series that recover ever more slowly: what may come; None where the run is too short to tell."""
    ledger: Ledger
    digest: str
    pays: float = PAYS
    """Share of its own throughput that the next accelerator must bring to pay."""
    ask_envelope: bool = False
    """Whether the result maps what dominates at other scales."""
    topology: Topology | None = None
    attempts: Attempts | None = None
    """The ledger of the job's attempts, where job logs lie beside the traces."""

    @cached_property
    def result(self) -> dict[str, Any]:
        """What ``taut analyze --json`` prints."""
        return report(self)

    @cached_property
    def coupling(self) -> Coupling:
        """How the ranks hold on to each other: reach, response to a delay, turnover of the critical path."""
        hops = self.topology.hops if self.topology is not None else None
        return couple(self.graph, self.blame, self.observed, self.gap_free, hops)

    @cached_property
    def recoverable_wall_ns(self) -> int:
        """What mending all findings together would save: less than their sum where they hide each other."""
        changes = [change for finding in self.findings for change in finding.changes]
        return self.observed.wall_ns - replay(self.graph, changes).wall_ns if changes else 0

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return str(self.result["verdict"]["text"])

    def to_json(self) -> str:
        """The result as JSON text; the same input gives the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self.result), indent=1).decode()

    def save(self, folder: str | Path | None = None) -> Path:
        """Write the run folder (all of it or nothing) and return its path."""
        return save_folder(folder, f"{_safe(self.graph.trace.name)}-{self.digest[:8]}", lambda scratch: _write(self, scratch))


@dataclass(frozen=True)
class JobAnalysis:
    """What ``analyze`` found out from job logs alone."""

    trace: Trace
    attempts: Attempts | None
    digest: str

    @cached_property
    def result(self) -> dict[str, Any]:
        """What ``taut analyze --json`` prints; what only traces tell is null."""
        return report_jobs(self.trace, self.attempts)

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return str(self.result["verdict"]["text"])

    def to_json(self) -> str:
        """The result as JSON text; the same input gives the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self.result), indent=1).decode()

    def save(self, folder: str | Path | None = None) -> Path:
        """Write the run folder (all of it or nothing) and return its path."""
        return save_folder(folder, f"{_safe(self.trace.name)}-{self.digest[:8]}", self._write)

    def _write(self, folder: Path) -> None:
        import pyarrow.parquet as pq

        pq.write_table(self.trace.attempts.to_arrow(), folder / "attempts.parquet", compression="lz4")
        meta = {"format": FORMAT, "version": __version__, "digest": self.digest, "result": self.result, "graph": None}
        (folder / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(meta), indent=1))


def save_folder(folder: str | Path | None, name: str, write: Callable[[Path], None]) -> Path:
    """A run folder, or ``taut-runs/NAME`` if none is given, written by ``write``: all of it or nothing."""
    target = Path(folder) if folder is not None else Path("taut-runs") / name
    if target.exists() and any(target.iterdir()) and not (target / "run.json").exists():
        raise RunError(f"{target}: exists and is no run folder; give another -o")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".taut-", dir=target.parent))
    try:
        write(scratch)
        scratch.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        scratch.replace(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def analyze(
    paths: Sequence[str | Path], *, prices: Prices | None = None, topology: str | Path | None = None,
    progress: Callable[[str], None] | None = None, pays: float = PAYS, envelope: bool = False,
    metrics: Sequence[str | Path] = (), places: str | None = None,
) -> Analysis | JobAnalysis:  # fmt: skip
    """Read traces, or job logs alone, and answer: where did the bill go, why, and what would change it."""
    (progress or (lambda stage: None))("reading")
    placed = None if topology is None else load_topology(topology)
    box = [read(paths, metrics_at=metrics, places=places)]
    name = digest(paths, box[0], metrics_given=bool(metrics))
    if not len(box[0].ops) and not len(box[0].attempts):
        where = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
        raise NotATrace(where, "only control logs here", "taut control reads them; or put traces or job logs beside them")
    if not len(box[0].ops):
        return JobAnalysis(box[0], charge_attempts(box[0].attempts, prices, actions=box[0].actions), name)
    return analyze_trace(box.pop(), name, prices=prices, topology=placed, progress=progress, pays=pays, envelope=envelope)


def analyze_trace(
    trace: Trace, digest: str = "", *, prices: Prices | None = None, topology: Topology | None = None,
    progress: Callable[[str], None] | None = None, pays: float = PAYS, envelope: bool = False,
) -> Analysis:  # fmt: skip
    """The main job on a trace that is already read."""
    say = progress or (lambda stage: None)
    placed = None if topology is None else topology.seated(trace.members)
    say("linking")
    graph = link(trace)
    del trace  # a large job's ops need not be held twice
    say("replaying")
    observed, prepared = replay(graph), batch(graph)
    gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed

    say("asking what if, blaming, closing the ledger")
    with ThreadPoolExecutor(max_workers=1) as pool:
        beside = pool.submit if len(graph) >= TWO_AT_ONCE else _at_once
        asked = beside(lambda: decompose(graph, prepared, dimensions(graph)))
        blamed = blame(graph, observed, gap_free)
        evidence = Evidence(graph, observed, blamed, prepared)
        diagnosed = beside(lambda: (diagnose(evidence), evidence.early))
        ledger = charge(graph, observed, blamed, prices)
        world = graph.trace.world_size or len(graph.ranks)
        tries = charge_attempts(graph.trace.attempts, prices, world, graph.trace.actions)
        whatif, (findings, early) = asked.result(), diagnosed.result()
    return Analysis(
        graph, observed, gap_free, blamed, prepared, whatif, findings, early, ledger, digest, pays, envelope, placed, tries
    )


def _at_once(work: Callable[[], Any]) -> Future[Any]:
    """Do it here and now: a small job gains nothing from a second thread."""
    done: Future[Any] = Future()
    done.set_result(work())
    return done


def digest(paths: Sequence[str | Path], trace: Trace, metrics_given: bool = False) -> str:
    """SHA-256 over the contents of the inputs, in the order of their names; of standard input and of metrics that lie
    elsewhere, over what they held."""
    total = hashlib.sha256()
    for path in paths:
        if str(path) == "-":
            for column in (c for table in (trace.ops, trace.attempts, trace.actions) for c in table.columns.values()):
                total.update(np.ascontiguousarray(column).data if column.dtype != object else repr(column.tolist()).encode())
            continue
        root = Path(path)
        files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        for file in files:
            with file.open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
    if metrics_given:
        table = trace.metrics
        total.update("\0".join(dict.fromkeys(map("\1".join, zip(table.component, table.metric, strict=True)))).encode())
        for column in (table.time_ns, table.rank, table.value, table.limit):
            total.update(np.ascontiguousarray(column).data)
    return total.hexdigest()


def _safe(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-")
    return kept[:60] or "job"


OP_ARRAYS = ("work_ns", "gap_ns", "join", "wait", "wait_lag_ns", "gate", "explained", "window", "roles")
TABLES = ("gates", "members", "clock")


def _write(analysis: Analysis, folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    graph = analysis.graph

    def put(name: str, table: Any) -> None:
        path = folder / f"{name}.parquet"
        pq.write_table(
            table, path, compression="lz4", use_dictionary=name in ("members", "metrics", "actions"), write_statistics=False
        )

    ops = graph.ops.to_arrow()
    for name in OP_ARRAYS:
        ops = ops.append_column(name, pa.array(getattr(graph, name)))
    ops = ops.append_column("reference_ns", pa.array(analysis.blame.peers.value_ns))
    ops = ops.append_column("preds", pa.array(np.diff(graph.pred_ptr)))
    tables = {
        "ops": ops,
        "edges": pa.table({"pred": graph.pred, "lag_ns": graph.lag_ns}),
        "events": pa.table({"event": graph.events}),
        "waits": analysis.blame.waits.to_arrow(),
        "ledger": analysis.ledger.cells.to_arrow(),
        "metrics": graph.trace.metrics.to_arrow(),
        "attempts": graph.trace.attempts.to_arrow(),
        **({"actions": graph.trace.actions.to_arrow()} if len(graph.trace.actions) else {}),
        **{name: getattr(graph, name).to_arrow() for name in TABLES},
    }
    with ThreadPoolExecutor(max_workers=1) as pool:
        written = pool.map(put, tables, tables.values())
        meta = _meta(analysis)
        list(written)
    (folder / "run.json").write_bytes(msgspec.json.format(msgspec.json.encode(meta), indent=1))


def _meta(analysis: Analysis) -> dict[str, Any]:
    """What ``run.json`` holds: the result, and what the tables refer to."""
    graph, trace = analysis.graph, analysis.graph.trace
    return {
        "format": FORMAT,
        "version": __version__,
        "digest": analysis.digest,
        "result": analysis.result,
        "graph": {
            "names": list(trace.names), "lanes": list(trace.lanes), "groups": list(trace.groups), "name": trace.name,
            "source": trace.source, "world_size": trace.world_size, "backend": trace.backend, "relative": trace.relative,
            "group_ranks": {k: [int(r) for r in v] for k, v in trace.group_ranks.items()},
            "slots": graph.slots, "steps": graph.steps.tolist(), "segment": graph.segment.tolist(),
            "origin_ns": graph.origin_ns.tolist(), "clock_residual_ns": graph.clock_residual_ns,
            "dropped_edges": graph.dropped_edges, "partial": list(graph.partial), "counts": dict(graph.counts),
            **({} if trace.zero_ns is None else {"zero_ns": [int(ns) for ns in trace.zero_ns]}),
        },
    }  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run folder opened again: its graph, its references, and what was printed."""

    folder: Path
    graph: Graph
    reference_ns: Any
    result: dict[str, Any]

    @cached_property
    def waits(self) -> Table:
        """The observed waits, split."""
        return Table.from_arrow(Wait, _stored(self.folder, "waits"))


def _stored(root: Path, name: str) -> Any:
    """One table of a run folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(root / f"{name}.parquet").read()
    except (OSError, pa.ArrowInvalid) as error:
        raise _damaged(root, error) from None


def _damaged(root: Path, error: Exception) -> RunError:
    return RunError(f"{root}: damaged run folder ({str(error).splitlines()[0][:100]}); analyze the traces again")


def _actions(root: Path) -> Table:
    """The actions of a run folder, where it has some."""
    there = (root / "actions.parquet").exists()
    return Table.from_arrow(Action, _stored(root, "actions")) if there else Table(Action, {}, 0)


def open_run(folder: str | Path) -> Run:
    """Open a run folder; says in one line what is wrong with it if anything is."""
    root = Path(folder)
    if not (root / "run.json").is_file():
        raise RunError(f"{root}: not a run folder (no run.json); make one with: taut analyze TRACES -o {root}")
    try:
        meta = msgspec.json.decode((root / "run.json").read_bytes())
        if meta["format"] != FORMAT:
            raise RunError(f"{root}: written by taut {meta['version']} in another layout; analyze the traces again")
        about = meta["graph"]
        if about is None:
            raise RunError(f"{root}: made of logs alone, it has no graph; put the traces of the job beside them")
    except (OSError, KeyError, msgspec.DecodeError) as error:
        raise _damaged(root, error) from None
    tables = {name: _stored(root, name) for name in ("ops", "edges", "events", "members", "clock")}
    ops = tables["ops"]
    columns = [f.name for f in dataclasses.fields(Op)]
    trace = Trace(
        ops=Table(Op, {}, 0), names=about["names"], lanes=about["lanes"], groups=about["groups"],
        members=Table.from_arrow(Member, tables["members"]), name=about["name"], source=about["source"],
        world_size=about["world_size"], backend=about["backend"], relative=about["relative"],
        group_ranks=about["group_ranks"], partial=about["partial"], counts=about["counts"],
        actions=_actions(root), zero_ns=about.get("zero_ns"),
    )  # fmt: skip
    arrays = {name: ops[name].to_numpy() for name in OP_ARRAYS}
    graph = Graph(
        trace=trace, ops=Table.from_arrow(Op, ops.select(columns)),
        pred_ptr=np.concatenate([[0], np.cumsum(ops["preds"].to_numpy())]).astype(np.int64),
        pred=tables["edges"]["pred"].to_numpy(), lag_ns=tables["edges"]["lag_ns"].to_numpy(),
        events=tables["events"]["event"].to_numpy(),
        clock=Table.from_arrow(Clock, tables["clock"]), members=trace.members, slots=about["slots"],
        steps=np.array(about["steps"]), segment=np.array(about["segment"], dtype=np.int32),
        origin_ns=np.array(about["origin_ns"]), clock_residual_ns=about["clock_residual_ns"],
        dropped_edges=about["dropped_edges"], partial=about["partial"], counts=about["counts"], **arrays,
    )  # fmt: skip
    return Run(root, graph, ops["reference_ns"].to_numpy(), meta["result"])


ROWS: tuple[type, ...] = (Op, Member, Gate, Clock, Wait, Cell, Metric, Attempt, Action)
"""Row types of the tables in a run folder."""

__all__ = ["ROWS", "Analysis", "JobAnalysis", "Run", "analyze", "analyze_trace", "digest", "open_run"]
