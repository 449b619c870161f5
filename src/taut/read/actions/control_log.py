"""What the readers of control logs share: what one log holds, times of any zone, directions, layers.

A control log says who changed what, and when. Readers hand over its actions in the order of the log; ``gather_actions``
counts deliveries that came twice and clocks that ran backwards, and puts all logs into one order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from taut.core.tables import NULL, Action, Table, columns_of, fields_of
from taut.read.dates import same_form_ns
from taut.read.jobs.job_words import SECOND, cut, times
from taut.read.limits import check_count

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.core.array_types import Ints

Change = dict[str, "str | int"]
"""Columns of one action: what was changed, from what, to what, in which direction."""

# More actions than this in one file are a mistake, or worse.
MOST_ACTIONS = 20_000_000
KINDS = {name: object if dtype == "str" else np.dtype(dtype) for name, dtype, _ in columns_of(Action)}
"""Column → numpy type."""
LAYERS = (
    (re.compile(r"autoscal|\bhpa\b|\bvpa\b|keda|karpenter|autopilot", re.IGNORECASE), "autoscaler"),
    (re.compile(r"sched|slurm|kueue|volcano|yunikorn|preempt", re.IGNORECASE), "scheduler"),
    (re.compile(r"torchrun|elastic|runtime|launcher", re.IGNORECASE), "runtime"),
    (re.compile(r"retry|retries", re.IGNORECASE), "retry"),
)
"""Layers by a controller's own name."""
ALLOCATION = {
    **dict.fromkeys(("requeue", "hold", "suspend", "cancel", "kill", "preempt"), -1),
    **dict.fromkeys(("release", "resume", "start"), 1),
}
"""Requests about a job that all turn one knob: whether it holds its accelerators."""
_ZONED = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)$"
_BARE = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?$"
_UP = re.compile(r"(?:scale[-_ ]?)?up(?:scal\w*)?|increas\w*|add|raise|start", re.IGNORECASE)
_DOWN = re.compile(r"(?:scale[-_ ]?)?down(?:scal\w*)?|decreas\w*|remove|lower|stop", re.IGNORECASE)


def table(rows: Sequence[Mapping[str, str | int]], label: str = "") -> Table:
    """Actions out of rows that name only what they know."""
    check_actions(len(rows), label)
    used = {key for row in rows for key in row}
    unset = {name: column.default for name, column in fields_of(Action).items() if name in used}
    columns = {key: np.array([row.get(key, none) for row in rows], dtype=KINDS[key]) for key, none in unset.items()}
    return Table(Action, columns, len(rows))


def check_actions(count: int, label: str) -> None:
    """Refuse more actions than one log has."""
    check_count(count, MOST_ACTIONS, "actions", label, "cut the log to the time in question")


def moments(texts: list[str] | pa.Array) -> tuple[Ints, bool]:
    """Dates as ns since 1970, each from its own zone, NULL where there is none; and whether one named no zone."""
    if isinstance(texts, list) and (found := same_form_ns(texts)):
        return found
    import pyarrow as pa
    import pyarrow.compute as pc

    column = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    column = pc.replace_substring(pc.replace_substring(pc.utf8_trim_whitespace(column), ",", "."), "/", "-")
    out, left = np.full(len(column), NULL, dtype=np.int64), np.ones(len(column), dtype=np.bool_)
    bare = False
    for pattern, kind in ((_ZONED, pa.timestamp("ns", "UTC")), (_BARE, pa.timestamp("ns"))):
        fits = pc.match_substring_regex(column, pattern).fill_null(False).to_numpy(zero_copy_only=False)
        if not fits.any():
            continue
        try:
            out[fits] = column.filter(pa.array(fits)).cast(kind).cast(pa.int64()).to_numpy()
        except pa.ArrowInvalid:  # a month 13 among them: one by one
            continue
        left &= ~fits
        bare |= kind.tz is None
    if left.any():
        out[left], odd = times(["" if text is None else text for text in column.filter(pa.array(left)).to_pylist()])
        bare |= odd
    return out, bare


def start_direction(start_ns: int, now_ns: int) -> int:
    """1 if a job was asked to start at once, -1 if later, 0 if it is not known when."""
    return 0 if start_ns == NULL else 1 if start_ns <= now_ns + SECOND else -1


def direction(word: str) -> int:
    """1 up, -1 down, 0 neither, of what a log writes for it."""
    text = word.strip()
    return towards(0, text) or (1 if _UP.fullmatch(text) else -1 if _DOWN.fullmatch(text) else 0)


def towards(before: str | float, after: str | float) -> int:
    """The direction from one value to another, 0 unless both are numbers."""
    try:
        step = float(after) - float(before)
    except ValueError:
        return 0
    return (step > 0) - (step < 0)


def layer_of(controller: str) -> str:
    """The layer of a controller of this name; empty if the name does not show it."""
    return next((layer for pattern, layer in LAYERS if pattern.search(controller)), "")


class Settings:
    """The last value of every knob of every target, so that a change knows what was before."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], str] = {}

    def change(self, target: str, knob: str, value: str, before: str = "") -> Change:
        """A knob is set: the columns before, after and direction."""
        was = before or self._last.get((target, knob), "")
        self._last[target, knob] = value
        return {"before": cut(was), "after": cut(value), "direction": towards(was, value)}

    def observe(self, target: str, knob: str, value: str) -> None:
        """A value was seen without anybody setting it."""
        self._last[target, knob] = value


def lines_of(data: bytes | bytearray, longest: int = 4000) -> Iterator[str]:
    """The lines of a text that hold something, each cut to what is looked at."""
    for line in bytes(data).decode("utf-8", "replace").splitlines():
        if line.strip():
            yield line[:longest]
