"""What the readers of job logs share: words for outcomes, times, counts of accelerators, and what one log tells."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import numpy as np

from taut.core.errors import TooLarge
from taut.core.tables import NULL, Attempt, Table, columns_of
from taut.read.dates import parsed

COMPLETED, FAILED, PREEMPTED, NODE_FAILED = "completed", "failed", "preempted", "node failed"
TIMED_OUT, OUT_OF_MEMORY, CANCELLED, RUNNING, PENDING = "timed out", "out of memory", "cancelled", "running", "pending"
OUTCOMES = (COMPLETED, FAILED, PREEMPTED, NODE_FAILED, TIMED_OUT, OUT_OF_MEMORY, CANCELLED, RUNNING, PENDING)
"""How an attempt ended; what a log does not say is empty."""
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
TEXT = 200
"""Names and reasons are cut here."""
MOST_ATTEMPTS = 5_000_000
"""More attempts than this in one file are a mistake, or worse."""
MOST_COUNT = 1 << 24
"""More accelerators than this are no accelerators."""
SECOND = 1_000_000_000
SLURM = "slurmctld"
_LATEST_S = (2**63 - 1) // SECOND
_CLOCK = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,5}):(\d{1,2})(?:\.\d+)?")
_HOST = re.compile(r"(?:\[[^][]*+\]|[^,\[]++)++")
_BRACKET = re.compile(r"\[([^][]*+)\]")
_GPUS = re.compile(r"(?:^|,)gres/gpu(?::[^=,]*)?=(\d{1,9})")


@dataclass(frozen=True)
class JobLog:
    """What one file tells of attempts."""

    label: str
    attempts: Table
    inside: bool = False
    """True for a log written inside the job (a launcher, the training): a scheduler's attempts may hold several of these."""
    zoneless: bool = False
    """Times were written without a time zone, and taken as UTC."""
    yearless: bool = False
    """Dates were written without a year: times are right only against each other."""
    partial: Sequence[str] = ()
    controller: str = ""
    """Who starts the jobs of this log; empty if it does not say."""
    control: Any = None
    """The decisions that the log tells beside its attempts (``control_log.ControlLog``), None if it tells none."""


def outcome(word: str) -> str:
    """The outcome that a scheduler's word means, empty if none."""
    text = word.strip().lower()
    return WORDS.get(text) or WORDS.get(text.split(" ")[0], "") if text else ""


def few(attempts: int, label: str) -> None:
    """Refuses more attempts than a log can tell."""
    if attempts > MOST_ATTEMPTS:
        raise TooLarge(label, f"more than {MOST_ATTEMPTS:,} attempts", "cut the log to the jobs in question")


def table(columns: Mapping[str, Sequence[Any]], label: str) -> Table:
    """A table of attempts; those of a job numbered in order of start."""
    rows = len(columns["job"])
    few(rows, label)
    kinds = {name: object if dtype == "str" else dtype for name, dtype, _ in columns_of(Attempt)}
    return numbered(Table(Attempt, {key: np.array(values, dtype=kinds[key]) for key, values in columns.items()}, rows))


def numbered(attempts: Table) -> Table:
    """Attempts in order of job (as first seen) and start, numbered from 1; one that never started comes where it was queued."""
    if not len(attempts):
        return attempts
    begins = np.flatnonzero(np.concatenate([[True], attempts.job[1:] != attempts.job[:-1]]))
    names = attempts.job[begins].tolist()
    code = dict(zip(dict.fromkeys(names), count(), strict=False))
    job = np.fromiter(map(code.__getitem__, names), dtype=np.int64, count=len(names))
    job = np.repeat(job, np.diff(begins, append=len(attempts)))
    at = np.where(
        attempts.start_ns >= 0, attempts.start_ns, np.where(attempts.submit_ns >= 0, attempts.submit_ns, attempts.end_ns)
    )
    if not ((job[1:] > job[:-1]) | ((job[1:] == job[:-1]) & (at[1:] >= at[:-1]))).all():
        order = np.lexsort((np.arange(len(job)), at, job))
        attempts, job = attempts.take(order), job[order]
    begins = np.flatnonzero(np.concatenate([[True], job[1:] != job[:-1]]))
    number = np.arange(len(job)) - np.repeat(begins, np.diff(np.append(begins, len(job)))) + 1
    return attempts.replace(attempt=number)


def times(texts: Sequence[Any]) -> tuple[Any, bool]:
    """ISO dates, or seconds (by size: ms, µs, ns) since 1970, as ns, NULL where there is none; and if a zone was missing."""
    dates = parsed(texts)
    if dates is not None:  # of one shape, as almost all files have
        seconds, ns, bare = dates
        known = (seconds > 0) & (seconds < _LATEST_S)
        return np.where(known, np.where(known, seconds, 0) * SECOND + ns, NULL), bare
    if not all(texts):
        given = [text for text in texts if text]
        out = np.full(len(texts), NULL, dtype=np.int64)
        out[np.fromiter(map(bool, texts), dtype=bool, count=len(texts))], bare = times(given)
        return out, bare
    kinds = set(map(type, texts))
    if kinds and kinds <= {int, float}:
        with suppress(OverflowError):  # a whole number of hundreds of digits
            return _numbers(texts), False
    return _one_by_one([text if isinstance(text, (str, int, float)) else None for text in texts])


def _numbers(values: Sequence[float]) -> Any:
    """What ``_since_1970`` makes of one, of many."""
    value = np.array(values, dtype=np.float64)
    good = (value > 0) & (value < 9e18)
    value = np.where(good, value, 0)
    ns = np.rint(value * np.select([value < 1e11, value < 1e14, value < 1e17], [1e9, 1e6, 1e3], 1.0))
    good &= ns < 2.0**63 - 1024
    return np.where(good, np.where(good, ns, 0).astype(np.int64), NULL)


def _one_by_one(told: Sequence[Any]) -> tuple[Any, bool]:
    times_of = {text: _time(text) for text in set(told)}
    found = [times_of[text] for text in told]
    return np.array([at for at, _ in found], dtype=np.int64), any(bare for _, bare in found)


def _time(value: Any) -> tuple[int, bool]:
    """One time in ns, and whether it is a date without a zone."""
    if value is None or isinstance(value, bool):
        return NULL, False
    if isinstance(value, (int, float)) or value.strip().replace(".", "", 1).isdecimal():
        try:
            return _since_1970(float(value)), False
        except OverflowError:
            return NULL, False
    try:
        at = datetime.fromisoformat(value.strip().replace("/", "-").replace(" UTC", "+00:00")[:40])
        since = (at.replace(tzinfo=UTC) if at.tzinfo is None else at) - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return NULL, False
    seconds = since.days * 86_400 + since.seconds
    return (seconds * SECOND + since.microseconds * 1000 if 0 < seconds < _LATEST_S else NULL), at.tzinfo is None


def _since_1970(value: float) -> int:
    if not 0 < value < 9e18:
        return NULL
    factor = 1e9 if value < 1e11 else 1e6 if value < 1e14 else 1e3 if value < 1e17 else 1.0
    ns = round(value * factor)
    return ns if ns < 2**63 - 1 else NULL


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


def whole(value: Any, most: int = MOST_COUNT) -> int:
    """A count, NULL where there is none."""
    if isinstance(value, str):
        value = value.strip()
        if not value.isdecimal() or len(value) > 18:
            return NULL
    elif isinstance(value, bool) or not isinstance(value, int):
        return NULL
    return int(value) if 0 <= int(value) <= most else NULL


def counted(gpus: Any, tasks: Any = None, cpus: Any = None, nodes: Any = None) -> tuple[int, str]:
    """How many of what an attempt held: accelerators if the log tells, else the next best."""
    for value, unit in ((gpus, "accelerator"), (tasks, "task"), (cpus, "cpu"), (nodes, "node")):
        number = whole(value)
        if number > 0:
            return number, unit
    return NULL, ""


def gpus_in(tres: str) -> int:
    """Accelerators in ``billing=8,cpu=8,gres/gpu:h100=8``; NULL if it names none. One line per type is under the total."""
    found = [int(number) for number in _GPUS.findall(tres)]
    return max(found) if found else NULL


def hosts(text: str) -> int:
    """How many hosts ``n[1-4,7],m1`` are; NULL if it cannot be told."""
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


def cut(text: Any) -> str:
    """A name or a reason, not too long."""
    return (text if type(text) is str else str(text)).strip()[:TEXT] if text is not None else ""


def blank(columns: Iterable[str]) -> dict[str, list[Any]]:
    """Empty columns to fill."""
    return {column: [] for column in columns}
