"""Progress logs beside the traces: CSV or JSON lines with a step and its loss (or metric), one line per executed step.

They show which steps were kept: one that is executed again was lost the first time. Rank, tokens, times and flags
(``kept``, ``discarded``, ``skipped``) are used where a log has them. What was kept is judged elsewhere.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET

from taut.core.array_types import Floats, Ints, Json, Mask
from taut.core.errors import InputRefused
from taut.core.tables import NULL, Progress, Table, concat
from taut.read.columns import compact, float_or_nan, joined, whole_or_null
from taut.read.json_fields import Keys, json_object, line_slabs, sampled
from taut.read.json_values import without_nan
from taut.read.table_file import csv_rows

if TYPE_CHECKING:
    from taut.read.columns import Values

Columns: TypeAlias = "dict[str, Values]"
"""Our own name → what the lines hold, UNSET where a line does not have it; only names that some line has."""
_LOSSES = (
    "loss train_loss training_loss lm_loss train/loss train_loss_step train/loss_step loss_step reduced_train_loss loss/train"
    " metric perplexity reward"
)
SPELLINGS: dict[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration", "iter", "train_step"),
    "loss": ("lm loss", *_LOSSES.split()),
    "rank": ("rank", "global_rank", "worker", "replica"),
    "tokens": ("tokens", "num_tokens", "step_tokens", "samples"),
    "kept": ("kept",),
    "discarded": ("discarded", "rolled_back"),
    "skipped": ("skipped", "skipped_step"),
    "start": ("start_ns", "start_ms", "start_s", "start"),
    "end": ("end_ns", "end_ms", "end_s", "end", "time_ns", "timestamp", "time_s", "wall_time", "time"),
}
UNITS_NS = {"ns": 1.0, "ms": 1e6, "s": 1e9}
"""Times without a unit in their name are seconds."""
# JSON lines looked at for a step and a loss: the first ones may hold the configuration.
LINES = 50
# Larger numbers are no steps.
MOST = 2**53
# A longer number is no time.
DIGITS = 40
MOST_WHOLE = 2**63 - 1024
# Values of ``Progress.kept``.
KEPT, DISCARDED, SKIPPED = 1, 0, 2
TRUE, FALSE = ("1", "true", "yes", "t", "y", "1.0"), ("0", "false", "no", "f", "n", "0.0")
NEITHER = "a progress log without a line that holds a step and a loss"
_NAMES = frozenset(name for names in SPELLINGS.values() for name in names)
_TIMES = ("start", "end")
_BREAKS = (b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""What ends a line of text, and is nothing special to JSON."""
_RANK = re.compile(r"(?:rank|worker)\D?(\d{1,7})(?!\d)", re.IGNORECASE)


def sniff(head: bytes) -> bool:
    """A CSV header, or one of the first JSON lines, that names a step and a loss."""
    if b"\x00" in head[:1024]:
        return False
    lines = head.decode("utf-8", "replace").lstrip("\ufeff").splitlines()[:LINES]
    if lines and lines[0].lstrip().startswith("{"):
        return any(_has(json_object(line)) for line in lines if _may(line))
    return bool(lines) and _has(next(csv.reader(lines[:1]), []))


def _has(names: Iterable[str] | None) -> bool:
    found = {str(name).strip().lower() for name in names or ()}
    return all(found.intersection(SPELLINGS[key]) for key in ("step", "loss"))


def _may(line: str) -> bool:
    """Whether a line could name a step: most that do not need not be decoded."""
    return "\\" in line or any(name in line.lower() for name in SPELLINGS["step"])


def load(data: bytes, label: str) -> Table:
    """The steps of one log, in the order they were written."""
    text = bytes(data).removeprefix(b"\xef\xbb\xbf")
    found = _columns(text) if text.lstrip().startswith(b"{") else None
    if found is None:
        found = _listed(text.decode("utf-8", "replace").lstrip("\ufeff"), label)
    if not {"step", "loss"} <= found.keys():
        raise InputRefused(label, NEITHER, "leave the file out")
    step = _numbers(found["step"])
    used = (np.abs(step) <= MOST) & ~_unset(found["loss"])
    if not used.any():
        raise InputRefused(label, NEITHER, "leave the file out")
    none = np.full(len(step), np.nan)
    tokens, rank, start, end = (_wholes(found.get(key, none)) for key in ("tokens", "rank", "start", "end"))
    columns = {
        "step": np.where(used, step, 0).astype(np.int64),
        "loss": _numbers(found["loss"]),
        "tokens": tokens,
        "rank": np.where(rank < 1 << 31, rank, NULL),
        "kept": _kept(found),
        "start_ns": start,
        "end_ns": end,
    }
    table = Table(Progress, {key: values[used] for key, values in columns.items()})
    named = _RANK.search(re.split(r"[/\\:]", label)[-1])
    return table if named is None or (table.rank >= 0).any() else table.replace(rank=np.full(len(table), int(named[1])))


def _columns(text: bytes) -> Columns | None:
    """JSON lines by our own names, many at once; None unless every line spells everything alike, in lower case."""
    end = text.rfind(b"\n") + 1
    whole = text[:end] if json_object(text[end:].decode("utf-8", "replace")) is None else text
    keys = sampled(whole)
    known = {key: [name for name in spellings if name in keys] for key, spellings in SPELLINGS.items()}
    known = {key: names for key, names in known.items() if names}
    if _needs_lines(whole, keys):
        return None
    names = {name: (Any, UNSET) for found in known.values() for name in found}
    decoder = msgspec.json.Decoder(Keys(keys).struct("Line", names, gc=False))
    used = {key: names[0] for key, names in known.items()}
    # Python writes NaN, which is no JSON: such files are decoded with null in its place.
    out = _decode(whole, decoder, used) or _decode(without_nan(whole) or b"", decoder, used)
    if out is None:
        return None
    count = whole.count(b"\n") + (not whole.endswith(b"\n"))
    for key, values in out.items():
        if len(values) != count or (len(known[key]) > 1 and _unset(values).any()):
            return None  # empty lines, objects of several lines, or several spellings
    return {key: _times_ns(values, used[key]) if key in _TIMES else values for key, values in out.items()}


def _needs_lines(text: bytes, keys: set[str]) -> bool:
    """Whether keys are not in lower case, or lines end where JSON has no line end: then line by line."""
    if b"\r" in text or any(key not in _NAMES and key.strip().lower() in _NAMES for key in keys):
        return True
    return not text.isascii() and any(mark in text for mark in _BREAKS)


def _unset(values: Values) -> Mask:
    """Which lines do not have this."""
    some: list[Any] = values if isinstance(values, list) else []
    return np.array([value is UNSET for value in some]) if UNSET in some else np.zeros(len(values), dtype=np.bool_)


def _decode(lines: bytes, decoder: msgspec.json.Decoder[msgspec.Struct], used: Mapping[str, str]) -> Columns | None:
    """What lines hold under these names; None if one cannot be read, or there is none."""
    parts: dict[str, list[Values]] = {key: [] for key in used}
    try:
        for rows in line_slabs(lines, decoder):
            for key, name in used.items():
                parts[key].append(compact(list(map(attrgetter(name), rows))))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return {key: joined(some) for key, some in parts.items()} if lines else None


def _listed(text: str, label: str) -> Columns:
    """The same, line by line."""
    if text.lstrip().startswith("{"):
        rows = list(map(_spelled, _json_rows(text, label)))
    else:
        rows = [_spelled(row) for _, row in csv_rows(text, label)]
    return {key: [row.get(key, UNSET) for row in rows] for key in SPELLINGS if any(key in row for row in rows)}


def _json_rows(text: str, label: str) -> Iterator[dict[str, Json]]:
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        found = json_object(line)
        if found is not None:
            yield {str(key).strip().lower(): value for key, value in found.items()}
        elif line.strip() and number < len(lines):  # the last line may break off: the job was stopped while it wrote
            raise InputRefused(f"{label}:{number}", "not a JSON line", "cut the file before this line")


def _spelled(row: Mapping[str, Json]) -> dict[str, Any]:
    """The fields by our own names, times in ns."""
    out: dict[str, Any] = {}
    for key, spellings in SPELLINGS.items():
        name = next((s for s in spellings if s in row), None)
        if name is not None:
            out[key] = _times_ns([row[name]], name)[0] if key in _TIMES else row[name]
    return out


def _times_ns(values: Values, name: str) -> Values:
    """Whole nanoseconds: an integer stays exact, which a float of an epoch time would not."""
    unit = UNITS_NS.get(name.rpartition("_")[2], 1e9)
    if unit != 1.0:
        return _numbers(values) * unit
    if isinstance(values, np.ndarray):
        return values
    return [int(v) if isinstance(v, str) and len(v) <= DIGITS and v.strip().isdecimal() else v for v in values]


def _numbers(values: Values) -> Floats:
    """Numbers; NaN for anything else, infinities included."""
    if isinstance(values, list):
        kinds = set(map(type, values))
        try:
            found = np.array(values if kinds <= {int, float} else list(map(float_or_nan, values)), dtype=np.float64)
        except OverflowError:
            found = np.array(list(map(float_or_nan, values)), dtype=np.float64)
    else:
        found = values.astype(np.float64, copy=False)
    return np.where(np.isfinite(found), found, np.nan)


def _wholes(values: Values) -> Ints:
    """Counts or times, NULL where there is none; whole numbers as they are, because floats cannot hold all."""
    values = compact(values) if isinstance(values, list) else values
    if isinstance(values, np.ndarray) and values.dtype == np.int64:
        return np.where((values >= 0) & (values < MOST_WHOLE), values, NULL).astype(np.int64)
    found = _numbers(values)
    out = whole_or_null(found, MOST_WHOLE - 1)
    if isinstance(values, list):
        for row in np.flatnonzero((out >= 0) & (found > MOST)).tolist():
            value = values[row]
            out[row] = value if isinstance(value, int) else out[row]
    return out


def _kept(columns: Columns) -> Ints:
    """What the log's own flags say of every step."""
    out = np.full(len(columns["step"]), NULL, dtype=np.int64)
    for key, yes, no in (("kept", KEPT, DISCARDED), ("discarded", DISCARDED, KEPT), ("skipped", SKIPPED, NULL)):
        flags = columns.get(key, [])
        for row, value in enumerate(flags if isinstance(flags, list) else flags.tolist()):
            flag = str(value).strip().lower()
            out[row] = yes if flag in TRUE else no if flag in FALSE and no != NULL else out[row]
    return out


def gather(logs: Sequence[Table]) -> Table:
    """One log out of several, in the order of time where all of them have it, else in the order of the files."""
    table = concat(Progress, logs)
    if len(logs) > 1 and (table.end_ns >= 0).all():
        table = table.take(np.argsort(table.end_ns, kind="stable"))
    return table
