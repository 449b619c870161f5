"""A run folder opened again, for the verbs that start from one.

A folder may come from anywhere, and kernels trust the indices they are given. So nothing of it is used before it was
checked: the files against the manifest, the columns against their types, every index against what it points into.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from taut.core import memory
from taut.core.array_types import Ints
from taut.core.boundary import refusing_unexpected
from taut.core.coded_columns import Words, codes_of, unique, values_of
from taut.core.errors import RunError, UsageError
from taut.core.folder import FORMAT, MOST_BYTES, RUN, File, read_file, read_listed, read_steadily
from taut.core.scratch import is_on_disk, kept, stay_on_disk
from taut.core.tables import Action, Kind, Member, Op, Table, Trace, Verb, fields_of
from taut.graph import Clock, Gate, Graph
from taut.graph.stored_arrays import FAR_NS, Unsound, check
from taut.replay.blame import Wait
from taut.replay.timeline import replay
from taut.result.types import AnalysisResult

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    from taut.render.run_charts import RunPlots

FREE_BYTES, RATIO = 64 << 20, 400
"""Tables may decode to this much, or to this many times the size of their file: constant columns take no room in it."""
OP_ARRAYS = {
    "work_ns": "int64", "gap_ns": "int64", "join": "int32", "wait": "int32", "wait_lag_ns": "int64", "gate": "int32",
    "explained": "bool", "window": "int32", "roles": "int32",
}  # fmt: skip
"""Columns of ops.parquet beside those of ``Op``: arrays of the graph and their types."""
OPENED_BYTES = 400
"""Memory that verbs take for an op of a run that they open, at most as measured."""
TABLES: dict[type, str] = {Gate: "gates", Member: "members", Clock: "clock", Wait: "waits", Action: "actions"}
"""Tables of one row type each, by the name of their file."""


_Small = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
"""A number that arrays hold."""
_Smaller = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class About(msgspec.Struct):
    """What the tables of a run folder refer to, as ``run.json`` tells it."""

    names: list[str]
    lanes: list[str]
    groups: list[str]
    name: str
    source: str
    world_size: int | None
    backend: str
    relative: bool
    group_ranks: dict[str, list[int]]
    slots: int
    steps: list[_Small]
    segment: list[_Smaller]
    origin_ns: list[_Small]
    clock_residual_ns: int | None
    dropped_edges: int
    partial: list[str]
    counts: dict[str, int]
    zero_ns: list[_Small] | None = None


class Stored(msgspec.Struct):
    """``run.json``."""

    format: int
    version: str
    digest: str
    result: msgspec.Raw
    graph: About | None
    files: dict[str, File]


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """A run folder opened again: its graph, its references, and what was printed."""

    folder: Path
    graph: Graph
    reference_ns: Any
    result: AnalysisResult
    files: Mapping[str, File]
    """The manifest: what the folder may hold."""
    digest: str = ""
    """SHA-256 of what it was made of."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder}: {self.verdict}>"

    def _repr_html_(self) -> str:
        from taut.render.card import card

        return card(self.result, str(self.folder))

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        return self.result.verdict.text

    @property
    def plot(self) -> RunPlots:
        """Pictures of it: ``plot.fates()``, ``steps()``, ``lateness()``, ``waits()``, ``ranks()``; they need altair."""
        from taut.views.run_plots import run_plots

        return run_plots(self)

    def table(self, name: str) -> Table:
        """One of its tables: ops, gates, members, clock, waits or ledger; it knows the words of its codes."""
        return table_of(self.graph, name, {"waits": lambda: self.waits, "ledger": self._cells})

    def _cells(self) -> Table:
        from taut.ledger.charge import Cell
        from taut.views.cells import cells_of

        return cells_of(self, list(schema_of(Cell)))

    @cached_property
    def ideal_step_ns(self) -> Ints | None:
        """What each step takes in the ideal of the pages (``views/ideal.py``); None where the folder does not keep it."""
        if "steps.parquet" not in self.files:
            return None
        columns = read_columns(self.folder, self.files, "steps", {"ideal_ns": "int64"}, newer=("ideal_ns",))
        if not columns:
            return None
        found: Ints = columns["ideal_ns"]
        if len(found) != len(self.graph.steps) or int(found.min()) < 0 or int(found.max()) >= FAR_NS:
            raise damaged(self.folder, "steps.parquet: ideal_ns is not that of its steps")
        return found

    @cached_property
    def waits(self) -> Table:
        """The observed waits, split."""
        waits = _table(self.folder, self.files, Wait)
        for column in (waits.op, waits.opener) if len(waits) else ():
            if int(column.min()) < 0 or int(column.max()) >= len(self.graph):
                raise damaged(self.folder, "a wait belongs to no op")
        for name, column in waits.columns.items():
            if name.endswith("_ns") and len(waits) and not -FAR_NS < int(column.min()) <= int(column.max()) < FAR_NS:
                raise damaged(self.folder, "a wait is out of range")
        return waits


def refusing_runs(*folders: str | Path) -> AbstractContextManager[None]:
    """A block that works with runs: what nobody foresaw there is a refusal of these folders."""
    named = ", ".join(map(str, folders[:3])) + (" …" if len(folders) > 3 else "")
    return refusing_unexpected(lambda why: damaged(Path(named), why))


def open_run(folder: str | Path) -> Run:
    """Open a run folder; says in one line what is wrong with it if anything is."""
    root = Path(folder)
    with refusing_unexpected(lambda why: damaged(root, why)):
        return read_steadily(root, lambda: _open(root))


def _open(root: Path) -> Run:
    stored = read_stored(root)
    about, read_table = stored.graph, partial(_table, root, stored.files)
    if about is None:
        raise RunError(f"{root}: made of logs alone, it has no graph; put the traces of the job beside them")
    result = _result(root, stored.result)
    _make_room(result.job.ops)
    members = read_table(Member)
    trace = Trace(
        ops=Table(Op, {}, 0),
        names=about.names,
        lanes=about.lanes,
        groups=about.groups,
        members=members,
        name=about.name,
        source=about.source,
        world_size=about.world_size,
        backend=about.backend,
        relative=about.relative,
        group_ranks=about.group_ranks,
        partial=about.partial,
        counts=about.counts,
        actions=read_table(Action) if "actions.parquet" in stored.files else Table(Action, {}, 0),
        zero_ns=about.zero_ns,
    )
    columns = {**schema_of(Op), **OP_ARRAYS, "reference_ns": "float64", "preds": "int64"}
    ops = read_columns(root, stored.files, "ops", columns, op_words(trace))
    edges = read_columns(root, stored.files, "edges", {"pred": "int64", "lag_ns": "int64"})
    graph = Graph(
        trace=trace,
        ops=Table(Op, {name: ops[name] for name in schema_of(Op)}),
        pred_ptr=kept(np.concatenate([[0], np.cumsum(ops["preds"])]).astype(np.int64)),
        pred=edges["pred"],
        lag_ns=edges["lag_ns"],
        events=read_columns(root, stored.files, "events", {"event": "int64"})["event"],
        clock=read_table(Clock),
        members=members,
        slots=about.slots,
        steps=np.array(about.steps, dtype=np.int64),
        segment=np.array(about.segment, dtype=np.int32),
        origin_ns=np.array(about.origin_ns, dtype=np.int64),
        clock_residual_ns=about.clock_residual_ns,
        dropped_edges=about.dropped_edges,
        partial=about.partial,
        counts=about.counts,
        stored_phases=_phases(result, len(about.steps)),
        **{name: ops[name] for name in OP_ARRAYS},
    )
    try:
        check(graph)
        check_replay(graph)
    except Unsound as error:
        raise damaged(root, str(error)) from None
    reference_ns = ops["reference_ns"]
    if not (np.isnan(reference_ns) | (np.abs(reference_ns) < FAR_NS)).all():
        raise damaged(root, "a reference is out of range")
    return Run(root, graph, reference_ns, result, stored.files, stored.digest)


def _make_room(ops: int) -> None:
    """Have columns lie on disk from here on, in a process of taut's own that has too little memory for so many ops."""
    most = memory.available_bytes() if memory.OWN.is_set() and not is_on_disk() else None
    if most is not None and OPENED_BYTES * ops > most:
        stay_on_disk()


def _phases(result: AnalysisResult, steps: int) -> list[str]:
    """The phase of each step as it was printed."""
    phases: list[str] = [window.phase or "" for window in result.windows or []]
    return phases if len(phases) == steps else [""] * steps


def decoded_result(root: Path, text: msgspec.Raw) -> AnalysisResult:
    """What was printed."""
    try:
        return msgspec.json.decode(text, type=AnalysisResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why, _, place = str(error).rpartition(" - at ")
        raise damaged(root, f"result {place}: {why}") from None


def _result(root: Path, text: msgspec.Raw) -> AnalysisResult:
    """What was printed, with all that other verbs take from it."""
    result = decoded_result(root, text)
    for key in ("windows", "waits", "ledger", "indices", "recoverable_wall_ns"):
        if getattr(result, key) in (None, []):
            raise damaged(root, f"result: {key} is missing")
    zones = [one.zone for one in result.control.relations if one.zone] if result.control else []
    if any(abs(ns) > 2**62 for zone in zones for ns in (zone.first_ns, zone.last_ns, zone.ops)):
        raise damaged(root, "result: a zone is out of range")
    return result


def check_replay(graph: Graph) -> None:
    """Raise ``Unsound`` unless the graph, replayed unchanged, gives the times that its ops have."""
    timeline = replay(graph)
    if not ((timeline.arrival_ns == graph.ops.start_ns) & (timeline.end_ns == graph.ops.end_ns)).all():
        raise Unsound("the replay of its graph does not give its times")


def read_stored(root: Path) -> Stored:
    """``run.json`` of a folder."""
    try:
        data = read_file(root / RUN, MOST_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise damaged(root, f"{RUN} is larger than it may be") from None
        made = f"taut analyze {shlex.quote(str(root))} -o RUN" if root.exists() else f"taut analyze TRACES -o {root}"
        raise RunError(f"{root}: not a run folder (no {RUN}); make one with: {made}") from None
    try:
        layout = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("format", msgspec.Raw(b"null"))
        if bytes(layout) != str(FORMAT).encode():
            raise RunError(f"{root}: written by another version of taut; analyze the traces again: taut analyze TRACES -o NEW")
        return msgspec.json.decode(data, type=Stored)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged(root, str(error)) from None


def _table(root: Path, files: Mapping[str, File], row: type) -> Table:
    """One table of a run folder."""
    return Table(row, read_columns(root, files, TABLES[row], schema_of(row)))


def damaged(root: Path, why: str) -> RunError:
    """The refusal of a run folder that is not as it was written."""
    return RunError(f"{root}: damaged run folder ({' '.join(why.split())[:100]}); analyze the traces again")


def schema_of(row: type) -> dict[str, str]:
    """Columns of a row type and their numpy types; text is ``str``."""
    return {name: column.dtype for name, column in fields_of(row).items()}


def op_words(trace: Trace) -> dict[str, list[str]]:
    """Coded columns of ops and what their codes are called."""
    verbs = [verb.word for verb in Verb]
    kinds = [kind.name.lower() for kind in Kind]
    return {
        "lane": unique(trace.lanes), "kind": kinds, "name": unique(trace.names), "verb": verbs, "group": unique(trace.groups),
    }  # fmt: skip


def table_of(graph: Graph, name: str, others: Mapping[str, Callable[[], Table]]) -> Table:
    """A table by its name, of a graph or one of the others, knowing what its codes are called."""
    from taut.ledger.charge import FATES

    words = {**op_words(graph.trace), "fate": FATES}
    known = {"ops": lambda: graph.ops, "gates": lambda: graph.gates, "members": lambda: graph.members,
             "clock": lambda: graph.clock, **others}  # fmt: skip
    if name not in known:
        raise UsageError(f"no table {name!r}: there are {', '.join(known)}")
    table = known[name]()
    coded = [column for column, kind in schema_of(table.row).items() if column in words and kind != "str"]
    return table.named({column: words[column] for column in coded})


def read_columns(
    root: Path,
    files: Mapping[str, File],
    name: str,
    schema: Mapping[str, str],
    words: Words | None = None,
    newer: Container[str] = (),
) -> dict[str, Any]:
    """The columns of one stored table, of exactly these names and types; those that are stored as words as their codes.

    Columns in ``newer`` came later: folders of before have none of them.
    """
    coded = words or {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = f"{name}.parquet"
    data = read_listed(root, file, files.get(file))
    try:
        stored = pq.ParquetFile(pa.BufferReader(data))
        schema = {key: kind for key, kind in schema.items() if key not in newer or key in stored.schema_arrow.names}
        _check_schema(root, file, stored, _arrow_types(schema, coded), len(data))
        out = {}
        for column, kind in schema.items():  # one after the other: of a job larger than memory each goes to disk
            found = stored.read(columns=[column])[column]
            if found.null_count and column not in coded:
                raise damaged(root, f"{file} has empty cells")
            out[column] = kept(codes_of(found, coded[column], kind) if column in coded else values_of(found))
        return out
    except (OSError, pa.ArrowException, UnicodeDecodeError, ValueError) as error:
        raise damaged(root, str(error)) from None


def _arrow_types(schema: Mapping[str, str], coded: Container[str]) -> dict[str, pa.DataType]:
    """Column → its type in a file; a coded one is a dictionary of words."""
    import pyarrow as pa

    plain = {name: pa.string() if dtype == "str" else pa.from_numpy_dtype(np.dtype(dtype)) for name, dtype in schema.items()}
    return {name: pa.dictionary(kind, pa.string()) if name in coded else kind for name, kind in plain.items()}


def _check_schema(root: Path, file: str, stored: ParquetFile, expected: Mapping[str, pa.DataType], size: int) -> None:
    """Refuse other columns or types than expected, and more rows than the file can hold."""
    names = stored.schema_arrow.names
    found = dict(zip(names, stored.schema_arrow.types, strict=True))
    if len(found) < len(names):
        raise damaged(root, f"{file} has a column twice")
    wrong = next((n for n, t in expected.items() if found.get(n) != t), None)
    if wrong is not None:
        raise damaged(root, f"{file}: column {wrong} is {found.get(wrong, 'missing')}, not {expected[wrong]}")
    if stored.metadata.num_rows * 8 * len(expected) > max(FREE_BYTES, RATIO * size):
        raise damaged(root, f"{file} holds more rows than its size allows")
