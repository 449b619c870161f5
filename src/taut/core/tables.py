"""Row types: at once the names, the Arrow schema and the documentation of every column.

A row class lists its columns with ``col(dtype, doc)``; a :class:`Table` holds one numpy array per column. Rows themselves are
never made, so their classes are no dataclasses: to write the methods of those takes longer than a short trace takes to read.
Times are integers in nanoseconds; a missing integer is -1 (NULL), a missing name is the empty string.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import numpy as np
from msgspec import Struct

from taut.core.coded_columns import Words, worded
from taut.core.errors import InputRefused, TautError
from taut.core.scratch import kept, kept_together

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from numpy.typing import NDArray

    Array = NDArray[Any]

NULL = -1
"""The value of an integer column that was not measured."""
SHOWN = 20
"""Rows of a table that a notebook shows."""
Cell = TypeVar("Cell", int, float, str)


class Kind(enum.IntEnum):
    """What an op does with its rank's time."""

    COMPUTE = 0
    COMMUNICATE = 1
    SYNCHRONISE = 2
    COORDINATE = 3


class Verb(enum.IntEnum):
    """Which rendezvous an op takes part in; decides whom it waits for (see ``graph/gate_matching.py``)."""

    NONE = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BARRIER = 5
    BROADCAST = 6
    SCATTER = 7
    REDUCE = 8
    GATHER = 9
    SEND = 10
    RECV = 11

    @property
    def word(self) -> str:
        """The verb as people write it: ``all-reduce``."""
        return self.name.lower().replace("_", "-")


@overload
def col(dtype: str, doc: str) -> int: ...
@overload
def col(dtype: str, doc: str, default: Cell) -> Cell: ...
def col(dtype: str, doc: str, default: float | str = NULL) -> float | str:
    """Declare one column: numpy dtype, what it means (with its unit), and the value when unknown."""
    return Column(dtype, doc, default)  # type: ignore[return-value]  # a row's attribute is said to be what the column holds


class Column(Struct, frozen=True):
    """What a row type says of one column."""

    dtype: str
    """That of numpy; ``str`` for text."""
    doc: str
    default: float | str
    """The value when unknown."""


@cache
def fields_of(row: type) -> Mapping[str, Column]:
    """The columns of a row type, by their names."""
    return {name: column for name, column in vars(row).items() if isinstance(column, Column)}


class Op:
    """One operator instance: an interval of one lane of one rank."""

    rank: int = col("int32", "participant: the global rank")
    lane: int = col("int32", "serial resource inside the rank: index into Trace.lanes")
    step: int = col("int32", "iteration of the outer loop; -1 outside any step")
    kind: int = col("int8", "tables.Kind: compute, communicate, synchronise, coordinate", 0)
    name: int = col("int32", "index into Trace.names: the op's class name")
    start_ns: int = col("int64", "when it began, ns in the rank's own clock (or in the step, if steps are relative)")
    end_ns: int = col("int64", "when it ended, ns in the same clock")
    verb: int = col("int8", "tables.Verb: the rendezvous it takes part in, 0 for none", 0)
    group: int = col("int32", "index into Trace.groups: the process group of the rendezvous")
    seq: int = col("int64", "sequence number of the rendezvous inside its group; -1 if not recorded")
    size: int = col("int64", "bytes moved, or elements of a shape: distinguishes classes; -1 if not recorded")
    peer: int = col("int32", "the other rank of a send or receive, or the root of a rooted collective")
    part: int = col("int32", "micro-batch or chunk inside the step; -1 if not recorded")
    launch: int = col("int64", "row of the op that issued this one (kernel launch, collective call); -1 if none")


WORDS: Mapping[type, Words] = {Op: {"kind": [kind.name.lower() for kind in Kind], "verb": [verb.word for verb in Verb]}}
"""Row type → what codes are called that mean the same in every trace."""


class Mark:
    """One step of one rank, as marked in the trace."""

    rank: int = col("int32", "participant")
    step: int = col("int32", "iteration of the outer loop")
    start_ns: int = col("int64", "begin of the step, ns in the rank's own clock")
    end_ns: int = col("int64", "end of the step, ns in the rank's own clock")
    phase: str = col("str", "of inference: prefill, decode or mixed; empty if the mark does not tell", "")


class Member:
    """One rank of the job: who it is and which role it plays."""

    rank: int = col("int32", "participant")
    stage: int = col("int32", "pipeline stage; -1 if unknown")
    dp_rank: int = col("int32", "data-parallel rank; -1 if unknown")
    host: str = col("str", "host name or boot id; ranks of one host share a clock; empty if unknown", "")
    device: str = col("str", "accelerator model; empty if unknown", "")
    gpu: int = col("int32", "index of its accelerator on its host; -1 if unknown or several")
    base_ns: int = col("int64", "what the reader added to the times of the file, ns", 0)
    name: str = col("str", "what people call it (a service and its instance); empty if it has only its number", "")
    role: str = col("str", "what it does (the service): ranks of one role do the same work; empty if unknown", "")


class Call:
    """One communication call as a rank's flight recorder holds it: that it was made, and in which order."""

    rank: int = col("int32", "participant that made it")
    group: int = col("int32", "index into Trace.groups: its process group")
    name: int = col("int32", "index into Trace.names: its class name; -1 where only the group's status tells of it")
    seq: int = col("int64", "sequence number inside its group, sends and receives counted apart from collectives")
    verb: int = col("int8", "tables.Verb: the rendezvous it takes part in, 0 for none", 0)
    peer: int = col("int32", "the other rank of a send or receive; -1 for a collective")
    size: int = col("int64", "elements of what is sent; -1 if not recorded")
    created_ns: int = col("int64", "when it was made, ns in the rank's own clock; -1 where only the group's status tells of it")
    done: int = col("int8", "1 if it completed, 0 if it did not", 0)
    started: int = col("int8", "1 if its transfer is known to have begun, 0 if not", 0)


class MatrixWork:
    """What shapes tell of the matrix products, convolutions and attention that a rank launched in a step, of one type."""

    rank: int = col("int32", "participant")
    step: int = col("int32", "iteration of the outer loop; -1 outside any step")
    dtype: str = col("str", "type of the elements as the trace writes it; empty if unknown", "")
    flops: float = col("float64", "floating-point operations of those whose shapes are known", 0.0)
    ops: int = col("int64", "how many there were", 0)
    unsized: int = col("int64", "of how many of them the shapes do not tell", 0)
    counted_ns: int = col("int64", "time of kernels that are called like products and that these launched, ns", 0)
    uncounted_ns: int = col("int64", "time of kernels that are called like products and that others launched, ns", 0)


class HostRange:
    """A range that somebody named on the host of a rank with an accelerator."""

    rank: int = col("int32", "participant")
    name: str = col("str", "what it is called, without numbers", "")
    start_ns: int = col("int64", "when it began, ns in the rank's own clock")
    end_ns: int = col("int64", "when it ended, ns in the same clock")


class Metric:
    """One sample of one component: what a sensor or a counter said, and when."""

    time_ns: int = col("int64", "when it was sampled, ns in the clock of its host")
    component: str = col("str", "what was measured: `rank 3`, `node7 gpu 0`, a host, a link or free text", "")
    rank: int = col("int32", "the participant it belongs to; -1 if none or unknown")
    metric: str = col("str", "name with its unit: `power_w`, `clock_mhz`, `temperature_c`, `utilisation_share`", "")
    value: float = col("float64", "the sample; counters as their rate, those of energy (`energy_j`) as they stand", np.nan)
    limit: float = col("float64", "most it may be (utilisation, clock: least); NaN if the file names none", np.nan)
    limit_source: str = col("str", "who says so; empty if there is no limit", "")


class Progress:
    """One step of the outer loop as a progress log has it, in the order of execution."""

    rank: int = col("int32", "participant that logged it; -1 if the log speaks for the job")
    step: int = col("int64", "step number; one that comes again was executed again")
    loss: float = col("float64", "loss or metric of the step; NaN if none, infinite or not a number", np.nan)
    tokens: int = col("int64", "tokens or samples consumed in the step; -1 if not recorded")
    kept: int = col("int8", "1 if the log says kept, 0 if discarded or skipped, -1 if it says nothing")
    start_ns: int = col("int64", "when the step began, ns in the log's own clock; -1 if not recorded")
    end_ns: int = col("int64", "when the step ended, or was logged, ns in the same clock; -1 if not recorded")


class Attempt:
    """One try of a job, as its scheduler or its own logs tell it."""

    job: str = col("str", "which job: the id that its scheduler gave it, or the name of its log", "")
    name: str = col("str", "what people call the job; empty if the log does not say", "")
    attempt: int = col("int32", "which try of the job, from 1, in order of time")
    submit_ns: int = col("int64", "when it was queued, ns; -1 if not recorded")
    start_ns: int = col("int64", "when it began to hold its accelerators, ns; -1 if it never did, or not recorded")
    end_ns: int = col("int64", "when it ended, ns, or until when the log follows it while it runs; -1 if not recorded")
    dated: int = col("int8", "1 if its times are dates, 0 if they count from the log's begin or name no year: lengths only", 1)
    outcome: str = col("str", "how it ended: a word of read.jobs.job_words.OUTCOMES; empty if the log does not say", "")
    accelerators: int = col("int32", "accelerators it held, or what `unit` says; -1 if unknown")
    unit: str = col("str", "what `accelerators` counts: accelerator, task, cpu or node; empty if unknown", "")
    nodes: str = col("str", "the nodes it ran on, as the log writes them", "")
    team: str = col("str", "whose job it is: an account, a project, a group; empty if the log does not say", "")
    first_step: int = col("int64", "first step it logged; -1 if not recorded")
    first_step_ns: int = col("int64", "when that was logged, ns; -1 if not recorded")
    last_step: int = col("int64", "last step it logged; -1 if not recorded")
    last_step_ns: int = col("int64", "when that was logged, or the job last seen at work, ns; -1 if not recorded")
    resumed_step: int = col("int64", "step of the checkpoint it resumed from, 0 if it began anew; -1 if unknown")
    saved_step: int = col("int64", "step of the last checkpoint it saved; -1 if none is known")
    saved_ns: int = col("int64", "when that checkpoint was complete, ns; -1 if not recorded")
    save_took_ns: int = col("int64", "time its saves took together, ns; -1 if not recorded")
    restore_took_ns: int = col("int64", "time that loading its checkpoint took, ns; -1 if not recorded")
    held: int = col("int8", "1 if the accelerators stayed held since the attempt before, 0 if given back, -1 if unknown")
    restarts_left: int = col("int32", "restarts that were left when it ended; -1 if not recorded")
    limit_ns: int = col("int64", "how long it, or the collective that ended it, was allowed to take, ns; -1 if unknown")
    failures: int = col("int32", "how often what ended it, or keeps it from running, was reported; -1 if not counted")
    reason: str = col("str", "why it ended, in the words of the log", "")


class Action:
    """One control decision, or the first attempt that a later one follows: who changed what, why, and what it cost."""

    time_ns: int = col("int64", "when it was taken, ns in the clock of its rank")
    layer: str = col("str", "scheduler, orchestrator, runtime, model, policy, retry, fallback or autoscaler", "")
    controller: str = col("str", "who decided: a service, a scheduler, a policy", "")
    target: str = col("str", "what it acts on: a class of calls, a job, a pool", "")
    rank: int = col("int32", "participant that acted; -1 if none or unknown")
    knob: str = col("str", "what was changed: attempt, model, hedge, repeat, replicas, allocation, priority …", "")
    before: str = col("str", "value before; empty if unknown", "")
    after: str = col("str", "value after; empty if unknown", "")
    direction: int = col("int8", "1 up, -1 down, 0 neither or unknown", 0)
    trigger: str = col("str", "what it reacted to: an error type, an alarm; empty if unknown", "")
    work: str = col("str", "logical work: attempts at the same work share it; empty if unknown", "")
    parent: int = col("int64", "row of the action it follows (the attempt before); -1 if none")
    attempt: int = col("int32", "0 for the first attempt, then 1, 2 …; -1 if it is none")
    deadline_ns: int = col("int64", "by when the work was wanted, ns in the same clock; -1 if unknown")
    outcome: str = col("str", "kept, failed, duplicate, lost (a sibling was quicker); empty if unknown", "")
    busy_ns: int = col("int64", "how long it kept somebody busy, ns; 0 where the attempt around it counts it")
    accelerators: int = col("int32", "accelerators that busy_ns counts for; -1 if unknown")
    tokens_in: int = col("int64", "tokens read; -1 if not recorded")
    tokens_out: int = col("int64", "tokens written; -1 if not recorded")
    step: int = col("int32", "step it belongs to, where the trace itself tells (the request, the turn); -1 if unknown")


class Failure:
    """One span that ended in an error."""

    name: str = col("str", "the class of the span: its service and what it does", "")
    error: str = col("str", "what the span says of it: a type, a status, a message; empty if nothing", "")
    rank: int = col("int32", "participant whose span it is")
    step: int = col("int32", "the request, or turn, it belongs to")
    time_ns: int = col("int64", "when the span began, ns")
    busy_ns: int = col("int64", "how long it took, ns")
    tokens: int = col("int64", "tokens that it read and wrote, as far as recorded", 0)
    alike: int = col("int64", "spans of this class, failed or not")
    passed_on: int = col("int8", "1 if a span below it failed as well, and began it", 0)
    request: int = col("int8", "1 if it is the outermost span of its request", 0)


class Table:
    """Columns of one row type. Reads like a struct of arrays: ``table.start_ns``, ``len(table)``.

    A column that was not given is one value repeated, which takes no memory however many rows there are. ``words`` say what
    the codes of some columns are called. ``narrow`` columns are held as they are given, in fewer bytes than their type has;
    whoever asks for one gets a copy of that type.
    """

    def __init__(
        self,
        row: type,
        columns: Mapping[str, Any],
        length: int | None = None,
        words: Words | None = None,
        narrow: Collection[str] = (),
    ) -> None:
        fields = _fields(row)
        unknown = columns.keys() - fields.keys()
        if unknown:
            raise TypeError(f"{row.__name__} has no column {', '.join(sorted(unknown))}")
        if length is None:
            length = len(next(iter(columns.values()))) if columns else 0
        self.row, self.words = row, words or {}
        self._held: dict[str, Array] = {}
        self._narrow = frozenset(narrow)
        for name, (dtype, default) in fields.items():
            if name in columns:
                array = np.asarray(columns[name])
                if name not in self._narrow:
                    if not dtype.hasobject and array.dtype != dtype:
                        array = _narrowed(array, dtype, f"{row.__name__}.{name}")
                    array = array.astype(dtype, copy=False)
                if len(array) != length:
                    raise TypeError(f"column {name} has {len(array)} rows, expected {length}")
            elif dtype.hasobject:
                array = np.full(length, default, dtype=dtype)
            else:
                array = np.broadcast_to(np.array(default, dtype=dtype), (length,))
            self._held[name] = kept(array)
        self._length = length

    @property
    def nbytes(self) -> int:
        """Bytes that its columns take; one value repeated counts as often as it is repeated."""
        return sum(column.nbytes for column in self._held.values())

    @property
    def columns(self) -> Mapping[str, Array]:
        """Every column by its name."""
        return _Widened(self.row, self._held, self._narrow) if self._narrow else self._held

    def __getattr__(self, name: str) -> Array:
        held: dict[str, Array] = self.__dict__.get("_held", {})
        if name not in held:
            raise AttributeError(name)
        return _widened(self.row, name, held[name]) if name in self._narrow else held[name]

    def __len__(self) -> int:
        return self._length

    def __reduce__(self) -> tuple[object, ...]:
        """A column that is one value repeated travels as that value."""
        columns = {name: column[:1] if constant(column) else column for name, column in self.columns.items()}
        return _unpacked, (self.row, columns, self._length, self.words)

    def take(self, index: Array) -> Table:
        """The rows selected by an index array or a boolean mask."""
        length = len(np.empty(self._length, dtype=np.bool_)[index])
        taken = {
            name: np.broadcast_to(array[0], (length,)) if constant(array) else array[index]
            for name, array in self._held.items()
        }
        return Table(self.row, taken, length, self.words, self._narrow)

    def sliced(self, rows: slice) -> Table:
        """Some rows in a row."""
        columns = {name: array[rows] for name, array in self._held.items()}
        return Table(self.row, columns, len(range(*rows.indices(self._length))), self.words, self._narrow)

    def parts(self, rows: int) -> Iterator[Table]:
        """All rows, so many at a time: for what looks at each row by itself, so that temporaries are small."""
        return (self.sliced(slice(first, first + rows)) for first in range(0, self._length, rows))

    def narrowed(self, *names: str) -> Table:
        """The same table, whole numbers of these columns in as few bytes as they need: for what is seldom asked for."""
        columns = {name: narrowest(self._held[name]) for name in names}
        return Table(self.row, {**self._held, **columns}, self._length, self.words, {*self._narrow, *names})

    def reordered(self, order: Array) -> Table:
        """The rows in another order; this table is empty afterwards, so that a large one is not held twice."""
        from taut.core.ids import taken

        columns = {}
        for name in list(self._held):
            column = self._held.pop(name)
            numbers = column.dtype != object
            columns[name] = column if constant(column) else kept(taken(column, order) if numbers else column[order])
        length, self._length = self._length, 0
        return Table(self.row, columns, length, self.words, self._narrow)

    def on_disk(self) -> Table:
        """The same table in one file, where columns go to disk."""
        return Table(self.row, kept_together(self.columns), self._length, self.words)

    def replace(self, **columns: Array) -> Table:
        """The same table with some columns exchanged."""
        return Table(self.row, {**self._held, **columns}, self._length, self.words, self._narrow - set(columns))

    def named(self, words: Words) -> Table:
        """The same table, which now knows what the codes of these columns are called."""
        return Table(self.row, self._held, self._length, {**self.words, **words}, self._narrow)

    def to_arrow(self) -> pa.Table:
        """The table as Arrow; the column documentation travels as field metadata."""
        import pyarrow as pa

        fields, arrays = [], []
        for name, column in fields_of(self.row).items():
            values = self.columns[name]
            array = pa.array(values, type=pa.string()) if column.dtype == "str" else pa.array(values)
            arrays.append(array)
            fields.append(pa.field(name, array.type, metadata={"doc": column.doc}))
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def to_words(self) -> pa.Table:
        """The table as Arrow, codes as the words they stand for where the table knows them; what has no code is null."""
        return worded(self.to_arrow(), {**WORDS.get(self.row, {}), **self.words})

    def to_pandas(self) -> pd.DataFrame:
        """The table as a data frame of pandas; codes are categories where the table knows their words."""
        _wanted("pandas")
        found: pd.DataFrame = self.to_words().to_pandas()
        return found

    def to_polars(self) -> pl.DataFrame:
        """The table as a data frame of polars; codes are categories where the table knows their words."""
        found: pl.DataFrame = _wanted("polars").from_arrow(self.to_words())
        return found

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from html import escape

        names = list(self.columns)
        rows = self.take(np.arange(min(len(self), SHOWN))).to_words().to_pylist()
        head = "".join(f"<th>{escape(n)}</th>" for n in names)
        body = "".join("<tr>" + "".join(f"<td>{_cell(row[n])}</td>" for n in names) + "</tr>" for row in rows)
        return f"<table><caption>{self.row.__name__}: {len(self)} rows</caption><tr>{head}</tr>{body}</table>"


class _Widened(Mapping[str, "Array"]):
    """Columns of a table of which some are held in fewer bytes."""

    def __init__(self, row: type, columns: Mapping[str, Array], narrow: Collection[str]) -> None:
        self._row, self._columns, self._narrow = row, columns, narrow

    def __getitem__(self, name: str) -> Array:
        held = self._columns[name]
        return _widened(self._row, name, held) if name in self._narrow else held

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _widened(row: type, name: str, array: Array) -> Array:
    """A column in the type that its row has; one value repeated stays that."""
    dtype = fields_of(row)[name].dtype
    if constant(array):
        return np.broadcast_to(array[:1].astype(dtype), array.shape)
    return array.astype(dtype, copy=False)


def narrowest(array: Array) -> Array:
    """Whole numbers in as few bytes as all of them fit; one value repeated takes none as it is."""
    if not len(array) or constant(array):
        return array
    low, high = int(array.min()), int(array.max())
    return array.astype(np.promote_types(np.min_scalar_type(min(low, -1)), np.min_scalar_type(-high - 1)), copy=False)


def _unpacked(row: type, columns: Mapping[str, Array], length: int, words: Words) -> Table:
    """A table as it was before it travelled."""
    whole = {name: np.broadcast_to(one, (length,)) if len(one) < length else one for name, one in columns.items()}
    return Table(row, whole, length, words)


def _cell(value: object) -> str:
    """What a notebook shows of a value; names from a trace are text."""
    from html import escape

    return "–" if value is None else escape(str(value))


def _wanted(library: str) -> ModuleType:
    """A library of data frames: taut needs none, whoever asks for one has it."""
    try:
        return import_module(library)
    except ImportError:
        raise TautError(f"{library} is not installed: pip install {library}") from None


def _narrowed(array: Array, dtype: np.dtype[Any], where: str) -> Array:
    """The column, if all of its numbers fit the type: a cast would make rank 0 of rank 2³²."""
    if dtype.kind == "i" and array.dtype == object:
        try:
            array = array.astype(np.int64)
        except (OverflowError, TypeError, ValueError):
            raise InputRefused(where, "holds what is no whole number", "check what wrote the trace") from None
    if dtype.kind != "i" or not len(array) or array.dtype.kind not in "iuf" or np.can_cast(array.dtype, dtype):
        return array
    low, high, least = array.min(), array.max(), np.iinfo(dtype).min
    # Floats: the largest integer is none, so that the limit is a power of two; NaN fails both comparisons.
    if not (float(low) >= least and (float(high) < -float(least) if array.dtype.kind == "f" else int(high) < -least)):
        beyond = high if not float(high) < -float(least) else low
        raise InputRefused(where, f"{beyond} is not a number of {8 * dtype.itemsize} bits", "check what wrote the trace")
    return array


def constant(column: Array) -> bool:
    """True for a column that is one value repeated."""
    return len(column) > 0 and column.strides == (0,)


def concat(row: type, tables: Sequence[Table]) -> Table:
    """One table out of many of the same row type."""
    if len(tables) == 1:
        return tables[0]
    if not tables:
        return Table(row, {}, 0)
    length = sum(map(len, tables))
    return Table(row, {name: joined([t.columns[name] for t in tables], length) for name in fields_of(row)}, length)


def joined(columns: Sequence[Array], length: int) -> Array:
    """One column out of several; where all are one value repeated, so is it. One alone is not copied."""
    if len(columns) == 1:
        return kept(columns[0])
    if all(map(constant, columns)) and len({column[0].item() for column in columns}) == 1:
        return np.broadcast_to(columns[0][0], (length,))
    return kept(np.concatenate(columns))


@cache
def _fields(row: type) -> dict[str, tuple[np.dtype[Any], object]]:
    """Type and default of every column of a row type, by its name."""
    return {name: (np.dtype(object if c.dtype == "str" else c.dtype), c.default) for name, c in fields_of(row).items()}


@cache
def _none(row: type) -> Table:
    """A table without rows: nobody can change what is in it, so one serves all."""
    return Table(row, {}, 0)


def columns_of(row: type) -> Iterator[tuple[str, str, str]]:
    """(name, dtype, documentation) of every column of a row type."""
    for name, column in fields_of(row).items():
        yield name, column.dtype, column.doc


@dataclass(frozen=True, eq=False)
class Trace:
    """What a reader makes of bytes: ops as recorded, nothing linked, nothing judged."""

    ops: Table
    names: Sequence[str]
    lanes: Sequence[str]
    groups: Sequence[str]
    members: Table
    marks: Table = field(default_factory=lambda: _none(Mark))
    name: str = "job"
    source: str = ""
    digest: str = ""
    """SHA-256 over the names and contents of the files that were read."""
    world_size: int | None = None
    backend: str = ""
    relative: bool = False
    """True when every step has its own time origin."""
    zero_ns: Sequence[int] | None = None
    """When each step began, ns, by its number, where steps have their own time origin and the trace tells."""
    timer_ns: int = 1000
    """How far a recorded time may be off: ops of one lane may overlap by this much."""
    waits_recorded: bool = False
    """True when the trace says what every op waits for (calls, launches, order): nothing is inferred from times."""
    group_ranks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Process group name → its global ranks, where the trace says so."""
    calls: Table = field(default_factory=lambda: _none(Call))
    """What flight recorders hold, of the ranks in ``dumped``, each rank's calls in the order in which it made them."""
    dumped: Sequence[int] = ()
    moved: Mapping[int, bool] = field(default_factory=dict)
    """Of ranks with several dumps, whether the last holds anything that the one before it does not."""
    ended_ns: Mapping[int, int] = field(default_factory=dict)
    """When the last op of every rank that was traced ended, where dumps lie beside the traces."""
    partial: Sequence[str] = ()
    """What is missing and what that does to the answer, one line each."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Events seen, used and dropped, by reason."""
    metrics: Table = field(default_factory=lambda: _none(Metric))
    """What lay beside the traces: samples of components, one series after the other, each in order of time."""

    progress: Table = field(default_factory=lambda: _none(Progress))
    """Steps as the job's own logs tell them, where some lie beside the traces."""

    attempts: Table = field(default_factory=lambda: _none(Attempt))
    """The tries of the job, or of many jobs, as job logs tell them; those of a job in order of time."""

    actions: Table = field(default_factory=lambda: _none(Action))
    """Control decisions: retries, fallbacks and whatever else a controller did, in order of time within a step."""

    failures: Table = field(default_factory=lambda: _none(Failure))
    """Spans that ended in an error, in order of time."""

    matrix_work: Table = field(default_factory=lambda: _none(MatrixWork))
    """FLOPs by rank, step and type of elements, where operators were recorded with their shapes."""

    host_ranges: Table = field(default_factory=lambda: _none(HostRange))
    """What people named on hosts of accelerators."""

    ROWS: ClassVar[tuple[type, ...]] = (
        Op,
        Mark,
        Member,
        Call,
        Metric,
        Progress,
        Attempt,
        Action,
        MatrixWork,
        HostRange,
        Failure,
    )
