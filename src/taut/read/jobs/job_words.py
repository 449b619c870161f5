"""What the readers of job logs share: words for outcomes, times, counts of accelerators, and what one log holds."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.core.tables import NULL, Attempt, Table, columns_of
from taut.read.columns import Codes, whole_or_null
from taut.read.dates import date_ns, ns_per_unit, same_form_ns
from taut.read.limits import check_count

if TYPE_CHECKING:
    from taut.core.array_types import Column, Ints, Json

COMPLETED, FAILED, PREEMPTED, NODE_FAILED = "completed", "failed", "preempted", "node failed"
TIMED_OUT, OUT_OF_MEMORY, CANCELLED, RUNNING, PENDING = "timed out", "out of memory", "cancelled", "running", "pending"
# How an attempt ended; what a log does not say is empty.
OUTCOMES = (COMPLETED, FAILED, PREEMPTED, NODE_FAILED, TIMED_OUT, OUT_OF_MEMORY, CANCELLED, RUNNING, PENDING)
WORDS = {
    "completed": COMPLETED, "complete": COMPLETED, "succeeded": COMPLETED, "success": COMPLETED, "pass": COMPLETED,
    "passed": COMPLETED, "finished": COMPLETED, "done": COMPLETED,
    "failed": FAILED, "failure": FAILED, "fail": FAILED, "error": FAILED, "boot_fail": FAILED, "launch_failed": FAILED,
    "crashed": FAILED,
    "preempted": PREEMPTED, "evicted": PREEMPTED,
    "node_fail": NODE_FAILED, "node_failed": NODE_FAILED, "node failed": NODE_FAILED, "nodefail": NODE_FAILED,
    "timeout": TIMED_OUT, "timed_out": TIMED_OUT, "timed out": TIMED_OUT, "deadline": TIMED_OUT,
    "out_of_memory": OUT_OF_MEMORY, "oom": OUT_OF_MEMORY, "oomkilled": OUT_OF_MEMORY, "out of memory": OUT_OF_MEMORY,
    "cancelled": CANCELLED, "canceled": CANCELLED, "killed": CANCELLED, "revoked": CANCELLED, "requeued": CANCELLED,
    "stopped": CANCELLED,
    "running": RUNNING, "completing": RUNNING, "suspended": RUNNING, "resizing": RUNNING, "configuring": RUNNING,
    "pending": PENDING, "queued": PENDING, "requeue_hold": PENDING, "waiting": PENDING,
}  # fmt: skip
"""The words of schedulers, in lower case."""
# Names and reasons are cut here, lists of hosts here.
TEXT, LIST = 200, 1 << 16
# More attempts than this in one file are a mistake, or worse.
MOST_ATTEMPTS = 5_000_000
# More accelerators than this are no accelerators.
MOST_COUNT = 1 << 24
SECOND = 1_000_000_000
SLURM = "slurmctld"
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,5}):(\d{1,2})(?:\.\d+)?")
_HOST = re.compile(r"(?:\[[^][]*+\]|[^,\[]++)++")
_BRACKET = re.compile(r"\[([^][]*+)\]")
_GPUS = re.compile(r"(?:^|,)gres/gpu(?::[^=,]*)?=(\d{1,9})")


def outcome(word: str) -> str:
    """The outcome that a scheduler's word means, empty if none."""
    text = word.strip().lower()
    return WORDS.get(text) or WORDS.get(text.split(" ")[0], "") if text else ""


def check_attempts(count: int, label: str) -> None:
    """Refuse more attempts than one log has."""
    check_count(count, MOST_ATTEMPTS, "attempts", label, "cut the log to the jobs in question")


def table(columns: Mapping[str, Sequence[Json] | Column], label: str) -> Table:
    """A table of attempts; those of a job numbered in order of start."""
    rows = len(columns["job"])
    check_attempts(rows, label)
    kinds = {name: object if dtype == "str" else dtype for name, dtype, _ in columns_of(Attempt)}
    return numbered(Table(Attempt, {key: np.array(values, dtype=kinds[key]) for key, values in columns.items()}, rows))


def table_of(rows: Sequence[Mapping[str, Json]], label: str) -> tuple[Table, bool]:
    """Attempts whose times are written as in the log, which all have the same keys; and whether a start names no zone."""
    columns: dict[str, Sequence[Json] | Column] = {key: [row[key] for row in rows] for key in rows[0]}
    zoneless = {}
    for key in ("submit_ns", "start_ns", "end_ns"):
        columns[key], zoneless[key] = times([row[key] for row in rows])
    return table(columns, label), zoneless["start_ns"]


def numbered(attempts: Table) -> Table:
    """Attempts in order of job (as first seen) and start, numbered from 1.

    One that never started comes where it was queued, one without any time behind the one before it.
    """
    if not len(attempts):
        return attempts
    begins = np.flatnonzero(np.concatenate([[True], attempts.job[1:] != attempts.job[:-1]]))
    names = attempts.job[begins].tolist()
    job = np.repeat(Codes().of(names), np.diff(begins, append=len(attempts)))
    at = np.where(
        attempts.start_ns >= 0, attempts.start_ns, np.where(attempts.submit_ns >= 0, attempts.submit_ns, attempts.end_ns)
    )
    if (at < 0).any():
        before = np.maximum.accumulate(np.where(at >= 0, np.arange(len(at)), 0))
        at = np.where((at < 0) & (job[before] == job), at[before], at)
    if not ((job[1:] > job[:-1]) | ((job[1:] == job[:-1]) & (at[1:] >= at[:-1]))).all():
        order = np.lexsort((np.arange(len(job)), at, job))
        attempts, job = attempts.take(order), job[order]
    begins = np.flatnonzero(np.concatenate([[True], job[1:] != job[:-1]]))
    number = np.arange(len(job)) - np.repeat(begins, np.diff(np.append(begins, len(job)))) + 1
    return attempts.replace(attempt=number)


def times(texts: Sequence[Any]) -> tuple[Ints, bool]:
    """ISO dates, or seconds (by size: ms, µs, ns) since 1970, as ns, NULL where there is none; and if a zone was missing."""
    found = same_form_ns(texts)
    if found is not None:  # as in almost all files
        return np.where(found[0] >= SECOND, found[0], NULL), found[1]
    if not all(texts):
        out = np.full(len(texts), NULL, dtype=np.int64)
        out[np.fromiter(map(bool, texts), dtype=bool, count=len(texts))], bare = times([text for text in texts if text])
        return out, bare
    kinds = set(map(type, texts))
    if kinds == {str} and all(map(_is_number, texts)):
        return _numbers_ns([float(text) for text in texts]), False
    if kinds and kinds <= {int, float}:
        with suppress(OverflowError):  # a whole number of hundreds of digits
            return _numbers_ns(texts), False
    scalars = [text if isinstance(text, (str, int, float)) else None for text in texts]
    time_of = {text: _time(text) for text in set(scalars)}
    return np.array([time_of[text][0] for text in scalars], dtype=np.int64), any(bare for _, bare in time_of.values())


def _is_number(text: str) -> bool:
    return text.strip().replace(".", "", 1).isdecimal()


def _numbers_ns(values: Sequence[float]) -> Ints:
    value = np.array(values, dtype=np.float64)
    value = np.where((value > 0) & (value < 9e18), value, np.nan)
    return whole_or_null(np.rint(value * ns_per_unit(value)), 2.0**63 - 1025)


def _time(value: str | float | None) -> tuple[int, bool]:
    """One time in ns, and whether it is a date without a zone."""
    if value is None or isinstance(value, bool):
        return NULL, False
    if isinstance(value, (int, float)) or _is_number(value):
        with suppress(OverflowError):
            return int(_numbers_ns([float(value)])[0]), False
        return NULL, False
    ns, bare = date_ns(value.strip().replace(" UTC", "+00:00")[:40]) or (NULL, False)
    return ns if ns >= SECOND else NULL, bare


def elapsed_ns(text: str) -> int:
    """``[days-][hours:]minutes:seconds`` or plain seconds, as ns; NULL if neither."""
    text = text.strip()
    if text.isdecimal() and len(text) < 11:
        return int(text) * SECOND
    found = _CLOCK.fullmatch(text)
    if not found:
        return NULL
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    ns = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND
    return ns if ns < 2**62 else NULL


def count_or_null(value: Json, most: int = MOST_COUNT) -> int:
    """A count, written as a number or as a text; NULL where there is none."""
    if isinstance(value, str):
        value = value.strip()
        if not value.isdecimal() or len(value) > 18:
            return NULL
    elif isinstance(value, bool) or not isinstance(value, int):
        return NULL
    return int(value) if 0 <= int(value) <= most else NULL


def held(gpus: Json, cpus: Json = None, nodes: Json = None) -> tuple[int, str]:
    """How many of what an attempt held: accelerators if the log has them, else processors, else hosts."""
    for value, unit in ((gpus, "accelerator"), (cpus, "cpu"), (nodes, "node")):
        number = count_or_null(value)
        if number > 0:
            return number, unit
    return NULL, ""


def held_of_table(gpus: Json) -> tuple[int, str]:
    """The same of a column of accelerators alone, in which 0 is none of them."""
    return (0, "accelerator") if count_or_null(gpus) == 0 else held(gpus)


def gpus_in(tres: str) -> int:
    """Accelerators in ``billing=8,cpu=8,gres/gpu:h100=8``: 0 if it lists other things, NULL if nothing.

    One line per type is under the total.
    """
    found = [int(number) for number in _GPUS.findall(tres)]
    return max(found) if found else 0 if "=" in tres else NULL


def without_accelerators(rows: Sequence[dict[str, Any]], none: Sequence[bool]) -> None:
    """Rows that are known to hold none hold 0 accelerators, if others of their log hold some; else their CPUs are counted."""
    if any(row["unit"] == "accelerator" for row in rows):
        for row in (row for row, bare in zip(rows, none, strict=True) if bare):
            row["accelerators"], row["unit"] = 0, "accelerator"


@lru_cache(maxsize=4096)
def hosts(text: str) -> int:
    """How many hosts ``n[1-4,7],m1`` are; NULL if that is not known."""
    if not text or text.count("[") != text.count("]"):
        return NULL
    total = 0
    for name in _HOST.findall(text[:10_000]):
        sizes = [sum(map(_ranged, inner.split(","))) for inner in _BRACKET.findall(name)]
        total += math.prod(sizes)
    return total if 0 < total <= MOST_COUNT else NULL


def _ranged(part: str) -> int:
    low, dash, high = part.partition("-")
    if not (low.isdecimal() and (high.isdecimal() or not dash)) or len(part) > 30:
        return 0
    return int(high) - int(low) + 1 if dash else 1


def cut(text: Json, most: int = TEXT) -> str:
    """A name or a reason, not too long."""
    return (text if type(text) is str else str(text)).strip()[:most] if text is not None else ""
