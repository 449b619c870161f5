"""Tables of actions, one a row, columns named as those of ``Action``: CSV with a header, JSON lines, or a JSON list.

The spellings are listed below and in docs/control-logs.md. A table is read in pieces, each turned into columns at once,
so that a million actions take seconds and little more memory than they fill.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from taut.core.array_types import Codes, Floats, Ints, Mask, Texts
from taut.core.errors import InputRefused
from taut.core.tables import NULL, Action, Table, concat
from taut.read.actions.control_log import KINDS, check_actions, direction, moments
from taut.read.actions.json_rows import LISTED, PIECE_BYTES, Coded, Rows, Torn
from taut.read.columns import whole_or_null
from taut.read.contents import ControlLog
from taut.read.dates import FAR, ns_per_unit, number_ns, same_form_ns
from taut.read.jobs.job_words import TEXT
from taut.read.table_file import CsvTable, header_cells

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from taut.read.actions.json_rows import Cells, Columns

TIME = ("time_ns", "time_us", "time_ms", "time_s", "time", "timestamp", "ts")
DEADLINE = ("deadline_ns", "deadline_us", "deadline_ms", "deadline_s", "deadline")
ALLOWED = ("timeout_ns", "timeout_us", "timeout_ms", "timeout_s", "timeout")
BUSY = ("busy_ns", "busy_us", "busy_ms", "busy_s", "duration_ns", "duration_us", "duration_ms", "duration_s")
COST = ("cost_rank_ns", "rank_ns", "cost_rank_s", "rank_s")
"""Time summed over accelerators: that of one, where the table does not say of how many."""
WORDS: Mapping[str, tuple[str, ...]] = {
    "layer": ("layer",), "controller": ("controller", "actor"), "target": ("target", "resource", "object"),
    "knob": ("knob", "action", "setting"), "before": ("before", "old"), "after": ("after", "new", "value"),
    "trigger": ("trigger", "reason", "cause"), "work": ("work", "work_id", "request_id", "job_id", "job", "task_id"),
    "outcome": ("outcome", "result"),
}  # fmt: skip
"""Columns of text, and how they may be spelled; the first that is there counts."""
NUMBERS: Mapping[str, tuple[str, ...]] = {
    "rank": ("rank",), "attempt": ("attempt", "try"), "accelerators": ("accelerators", "gpus"),
    "tokens_in": ("tokens_in",), "tokens_out": ("tokens_out", "tokens"),
}  # fmt: skip
OTHERS = ("direction", "id", "action_id", "event_id", "parent", "parent_id")
SPELLED = frozenset(
    (*TIME, *DEADLINE, *ALLOWED, *BUSY, *COST, *OTHERS, *(s for names in (*WORDS.values(), *NUMBERS.values()) for s in names))
)
CODED = frozenset(("direction", *(spelled for names in WORDS.values() for spelled in names)))
"""Columns of which many rows hold the same."""
ROWS = Rows(SPELLED, CODED)
PER = {"_ns": 1.0, "_us": 1e3, "_ms": 1e6, "_s": 1e9}
# Times looked at to tell dates from numbers; a number among dates is read by its size nevertheless.
PROBE = 200
_NUMBER = r"^\s*[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?\s*$"


def sniff(head: bytes) -> bool:
    """A header, or keys of the first object, with a time, a controller, and what it acted on or changed."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        found = {key.decode() for key in re.findall(rb'"([a-z_]{2,20})"\s*:', text.split(b"}", 1)[0])}
    else:
        line = text.split(b"\n", 1)[0]
        found = set() if b"\x00" in line else set(map(str.lower, header_cells(line)))
    return bool(found & set(TIME)) and "controller" in found and bool(found & {*WORDS["target"], *WORDS["knob"]})


def load(data: bytes, label: str) -> ControlLog:
    """The actions of one file."""
    start = bytes(data[:64]).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    torn = Torn()
    listed = start == b"[" or LISTED.match(data) is not None
    pieces = ROWS.lists(data, label) if listed else ROWS.lines(data, torn) if start == b"{" else _csv(data, label, torn)
    tables, marks, bare, rows = [], _Marks(), False, 0
    for columns in pieces:
        found, kept, zoneless = _table(columns)
        torn.count += int((~kept).sum())
        marks.add(columns, kept)
        tables.append(found)
        bare, rows = bare or zoneless, rows + len(found)
        check_actions(rows, label)
    actions = concat(Action, tables)
    if not len(actions):
        raise InputRefused(label, "no row has a time", "give every action its time (ISO 8601 with a zone, or time_ns)")
    actions, repeated = marks.linked(actions)
    return ControlLog(label, actions, zoneless=bare, torn=torn.count, repeated=repeated)


def _csv(data: bytes, label: str, torn: Torn) -> Iterator[Columns]:
    import pyarrow as pa
    import pyarrow.csv as arrow

    data = _sound(data)
    begin = len(data) - len(bytes(data).lstrip(b"\xef\xbb\xbf \t\r\n"))
    header = list(map(str.lower, CsvTable(data[begin:], label).names))
    if len(set(header)) != len(header):
        raise InputRefused(label, "two columns of one name", "name every column once")
    used = [name for name in header if name in SPELLED]
    if not set(used) & set(TIME):
        raise InputRefused(label, "no column holds the time", "name it time (ISO 8601 with a zone), time_s or time_ns")
    try:
        reader = arrow.open_csv(
            io.BytesIO(data[begin:]),
            read_options=arrow.ReadOptions(column_names=header, skip_rows=1, block_size=PIECE_BYTES),
            parse_options=arrow.ParseOptions(invalid_row_handler=torn),
            convert_options=arrow.ConvertOptions(
                column_types=dict.fromkeys(used, pa.string()), include_columns=used, strings_can_be_null=False
            ),
        )
        for batch in reader:
            yield dict(zip(used, batch.columns, strict=True))
    except (pa.ArrowException, OSError) as error:
        raise InputRefused(label, f"not a readable CSV ({str(error).splitlines()[0][:120]})", "write it again") from None


def _sound(data: bytes) -> bytes:
    """The bytes with what is no UTF-8 replaced; a copy only where that is needed."""
    try:
        bytes(data).decode()
    except UnicodeDecodeError:
        return bytes(data).decode("utf-8", "replace").encode()
    return data


def _texts(values: Cells) -> pa.Array:
    """Values as text: at once where all are texts, or all whole numbers, else one by one. Nothing is the empty text."""
    import pyarrow as pa

    if isinstance(values, Coded):
        return _texts(values.values).take(pa.array(values.code))
    if isinstance(values, pa.Array):
        return values
    values = values.tolist() if isinstance(values, np.ndarray) else values
    kinds = set(map(type, values)) - {type(None)}
    if kinds <= {str} or kinds <= {int}:
        with suppress(pa.ArrowException, OverflowError):
            return pa.array(values, pa.int64() if kinds == {int} else pa.string()).cast(pa.string()).fill_null("")
    texts = ["" if value is None else value if isinstance(value, str) else str(value)[:TEXT] for value in values]
    return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())


def _first(columns: Columns, spellings: Sequence[str]) -> str:
    return next((name for name in spellings if name in columns), "")


def _table(columns: Columns) -> tuple[Table, Mask, bool]:
    """The actions of one piece, which of its rows they are (those with a time), and if a time named no zone."""
    rows = len(next(iter(columns.values()))) if columns else 0
    time, bare = _times(columns, TIME, rows)
    kept = time != NULL
    out: dict[str, NDArray[np.generic]] = {"time_ns": time}
    for key, spelled in WORDS.items():
        if name := _first(columns, spelled):
            out[key] = _words(columns[name])
    for key, spelled in NUMBERS.items():
        if name := _first(columns, spelled):
            out[key] = whole_or_null(_numbers(columns[name]), np.iinfo(KINDS[key]).max // 2).astype(KINDS[key])
    out["direction"] = _directions(columns, rows)
    out["busy_ns"] = _lengths(columns, BUSY, rows)
    if not _first(columns, BUSY) and _first(columns, COST):
        out |= {"busy_ns": _lengths(columns, COST, rows), "accelerators": np.ones(rows, dtype=np.int32)}
    allowed = _lengths(columns, ALLOWED, rows)
    deadline = _times(columns, DEADLINE, rows)[0]
    out["deadline_ns"] = np.where((deadline == NULL) & (allowed >= 0) & kept, time + np.maximum(allowed, 0), deadline)
    found = Table(Action, out, rows)
    return (found if kept.all() else found.take(kept)), kept, bare


def _numbers(column: Cells) -> Floats:
    """Numbers, NaN where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, Coded):
        return _numbers(column.values)[column.code]
    if isinstance(column, np.ndarray):
        return column.astype(np.float64)
    if isinstance(column, list) and set(map(type, column)) <= {int, float, type(None)}:
        with suppress(OverflowError):
            return np.array(column, dtype=np.float64)
    texts = _texts(column)
    good = pc.if_else(pc.match_substring_regex(texts, _NUMBER), pc.utf8_trim_whitespace(texts), None)
    found: Floats = good.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return found


def _exact(column: Cells) -> Ints:
    """Whole ns: those of an epoch do not fit a float."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, np.ndarray) and column.dtype == np.int64:
        return np.where((column >= 0) & (column < FAR), column, NULL).astype(np.int64)
    texts = _texts(column)
    good = pc.if_else(pc.match_substring_regex(texts, r"^\s*[0-9]{1,18}\s*$|^\s*[1-3][0-9]{18}\s*$"), texts, None)
    found: Ints = pc.utf8_trim_whitespace(good).cast(pa.int64()).fill_null(NULL).to_numpy(zero_copy_only=False)
    return found


def _times(columns: Columns, spellings: Sequence[str], rows: int) -> tuple[Ints, bool]:
    """Times in ns, and if one named no zone: by the unit in the column's name, as dates, else by size."""
    name = _first(columns, spellings)
    if not name:
        return np.full(rows, NULL, dtype=np.int64), False
    column, unit = columns[name], PER.get(name[name.rfind("_") :])
    if unit == 1.0:
        return _exact(column), False
    if unit or isinstance(column, Coded) or np.isfinite(_numbers(column[:PROBE])).any():
        value = _numbers(column)
        unit = unit or float(ns_per_unit(np.abs(value[np.isfinite(value)]).max(initial=0.0)))
        return (_exact(column) if unit == 1.0 else number_ns(value, unit)), False
    return (same_form_ns(column) if isinstance(column, list) else None) or moments(_texts(column))


def _lengths(columns: Columns, spellings: Sequence[str], rows: int) -> Ints:
    """Lengths of time in ns; without a unit they are seconds."""
    name = _first(columns, spellings)
    if not name:
        return np.full(rows, NULL, dtype=np.int64)
    with np.errstate(over="ignore"):
        return whole_or_null(_numbers(columns[name]) * PER.get(name[name.rfind("_") :], 1e9), float(FAR))


def _coded(column: Cells) -> tuple[list[str], Ints | Codes]:
    """Distinct texts, and a code per row."""
    if isinstance(column, Coded):
        return ["" if value is None else str(value)[:TEXT].strip() for value in column.values], column.code
    encoded = _texts(column).dictionary_encode()
    words = [str(word)[:TEXT].strip() for word in encoded.dictionary.to_pylist()]
    return words, encoded.indices.to_numpy(zero_copy_only=False)


def _words(column: Cells) -> Texts:
    """Texts, each distinct one held once."""
    words, code = _coded(column)
    return np.array([*words, ""], dtype=np.object_)[code]


def _directions(columns: Columns, rows: int) -> NDArray[np.int8]:
    """As the table has them, else from the value before to the one after."""
    out = np.zeros(rows, dtype=np.int8)
    before, after = (_first(columns, WORDS[key]) for key in ("before", "after"))
    if before and after:
        step = _numbers(columns[after]) - _numbers(columns[before])
        out = np.where(np.isfinite(step), np.sign(np.nan_to_num(step)), 0).astype(np.int8)
    if "direction" in columns:
        words, code = _coded(columns["direction"])
        given = np.array([*map(direction, words), 0], dtype=np.int8)[code]
        out = np.where(np.array([*map(bool, words), False])[code], given, out)
    return out


class _Marks:
    """Ids and parents of the rows, where a table has them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.parents: list[str] = []
        self.rows: list[int] = []
        """Number of each kept row in the file."""
        self.seen = 0

    def add(self, columns: Columns, kept: Mask) -> None:
        """One piece more."""
        mine, theirs = _first(columns, ("id", "action_id", "event_id")), _first(columns, ("parent", "parent_id"))
        at = np.flatnonzero(kept)

        if mine:
            self.ids += _texts(columns[mine]).take(at).to_pylist()
        if theirs:
            self.parents += _texts(columns[theirs]).take(at).to_pylist()
            if not mine:
                self.rows += (self.seen + at).tolist()
        self.seen += len(kept)

    def linked(self, actions: Table) -> tuple[Table, int]:
        """The actions, those with an id once, each with its parent's row; and how many came again."""
        if len(self.ids) != len(actions):
            if len(self.parents) == len(actions):
                place = {str(row): i for i, row in enumerate(self.rows)}
                parent = np.array([place.get(text.removesuffix(".0"), NULL) for text in self.parents], dtype=np.int64)
                return actions.replace(parent=parent), 0
            return actions, 0
        first: dict[str, int] = {}
        keep = np.array([not one or first.setdefault(one, i) == i for i, one in enumerate(self.ids)])
        row = np.cumsum(keep) - 1
        actions = actions.take(keep) if not keep.all() else actions
        if len(self.parents) == len(keep):
            parents = (text for text, good in zip(self.parents, keep.tolist(), strict=True) if good)
            parent = np.array([row[first[text]] if text in first else NULL for text in parents], dtype=np.int64)
            actions = actions.replace(parent=parent)
        return actions, int((~keep).sum())
