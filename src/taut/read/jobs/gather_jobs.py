"""Job logs of all files → the attempts of each job, once: what several logs hold of one attempt is put together.

Logs of schedulers come first. Jobs are matched by their id, attempts by their start. A log written inside a job (its
training, its launcher) is put into the scheduler's attempts by time, where it has none by order; a launcher's restarts
inside one allocation become attempts of their own that held the accelerators in between.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import numpy as np

from taut.core.reporting import FIRST_DATE_NS
from taut.core.tables import NULL, Attempt, Table, Trace
from taut.read.contents import JobLog
from taut.read.jobs.job_words import PENDING, RUNNING, SECOND, numbered
from taut.read.jobs.log_lines import NO_YEAR

# Attempts of one job that start within this much in two logs are one.
SAME_NS = 5 * SECOND
TIMES = ("submit_ns", "start_ns", "end_ns", "first_step_ns", "last_step_ns", "saved_ns")
INSIDE = (
    "first_step", "first_step_ns", "last_step", "last_step_ns", "resumed_step", "saved_step", "saved_ns", "save_took_ns",
    "restore_took_ns", "restarts_left", "limit_ns",
)  # fmt: skip
"""Columns that only logs written inside a job have."""
Row = dict[str, Any]
Jobs = dict[str, list[Row]]


def apply(trace: Trace, logs: Sequence[JobLog]) -> Trace:
    """The trace with the attempts of the logs, and with notes on what they leave open."""
    if not logs:
        return trace
    attempts, notes = gather(logs)
    attempts = _known_dates(_stepped(attempts, trace.progress))
    zoneless = [log.label for log in logs if log.zoneless]
    if zoneless:
        some = zoneless[0] + (f" and {len(zoneless) - 1} more" if len(zoneless) > 1 else "")
        notes.append(f"{some}: times without a time zone, taken as UTC")
    yearless = [log.label for log in logs if log.yearless]
    if yearless and all(log.inside or log.yearless for log in logs):
        notes.append(f"{yearless[0]}: dates without a year, good for lengths only")
    notes += [line for log in logs for line in log.partial]
    return replace(trace, attempts=attempts, partial=(*trace.partial, *dict.fromkeys(notes)))


def gather(logs: Sequence[JobLog]) -> tuple[Table, list[str]]:
    """One table of attempts, and what could not be put together."""
    if len(logs) == 1:
        return logs[0].attempts, []
    frame: Jobs = {}
    for log in sorted((log for log in logs if not log.inside), key=lambda log: -len(log.attempts)):
        for job, rows in _by_job(log.attempts).items():
            frame[job] = _joined(frame.get(job, []), rows)
    inner: Jobs = {}
    for log in (log for log in logs if log.inside):
        runs = _by_job(log.attempts)
        if frame and len(runs) > 1:
            runs = _in_one_allocation(runs)
        for job, rows in runs.items():
            rows = [_dated(row, frame) for row in rows] if log.yearless and frame else rows
            inner[job] = _merged(inner.get(job, []), rows)
    notes: list[str] = []
    if not frame:
        return _table(_chained(inner)), notes
    found: Jobs = {}
    apart: Jobs = {}
    for job, rows in inner.items():
        home = _home(frame, job, rows)
        if home is None:
            notes.append(f"{job}: which of {len(frame)} jobs this log belongs to is not known; left apart")
            apart[job] = rows
        else:
            found[home] = _merged(found.get(home, []), rows)
    return _table({**frame, **{job: _nested(frame[job], rows, job, notes) for job, rows in found.items()}, **apart}), notes


def _known_dates(attempts: Table) -> Table:
    """Attempts whose times stand in no known year have lengths only: a year that stands for an unknown one is never told."""
    latest = np.maximum(attempts.start_ns, np.maximum(attempts.end_ns, attempts.submit_ns))
    return attempts.replace(dated=np.where((latest >= 0) & (latest < FIRST_DATE_NS), 0, attempts.dated))


def _rows(table: Table) -> list[Row]:
    columns = {name: column.tolist() for name, column in table.columns.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _by_job(table: Table) -> Jobs:
    jobs: Jobs = {}
    for row in _rows(table):
        jobs.setdefault(row["job"], []).append(row)
    return jobs


def _in_one_allocation(runs: Jobs) -> Jobs:
    """Complete runs that a job of the scheduler made one after the other: one attempt, with the steps of the last run."""
    every = [row for rows in runs.values() for row in rows]
    return {every[0]["job"].rpartition(" run ")[0]: [{**every[-1], "start_ns": every[0]["start_ns"]}]}


def _table(jobs: Jobs) -> Table:
    rows = [{**row, "job": job} for job, found in jobs.items() for row in found]
    columns = {name: np.array([row[name] for row in rows], dtype=object) for name in (rows[0] if rows else ())}
    return numbered(Table(Attempt, columns, len(rows)))


def _filled(row: Row, other: Row) -> Row:
    """A row with what only the other one knows, or knows to less than a second; accelerators are better than other units."""
    out = {key: other[key] if value in (NULL, "") else value for key, value in row.items()}
    # A time in whole seconds gives way to one of the same second with a fraction.
    out |= {key: other[key] for key in TIMES if out[key] % SECOND == 0 and 0 < other[key] - out[key] < SECOND}
    if other["unit"] == "accelerator" != row["unit"]:
        out |= {"accelerators": other["accelerators"], "unit": "accelerator"}
    if row["outcome"] in (RUNNING, PENDING, "") and other["outcome"] not in (RUNNING, PENDING, ""):
        out |= {"outcome": other["outcome"], "end_ns": other["end_ns"], "reason": other["reason"]}
    return out


def _joined(known: list[Row], more: list[Row]) -> list[Row]:
    """Attempts of one job out of two logs of schedulers: one of each is the same, of several the one that starts nearest.

    What one log has as several attempts stays apart, unless the other has one attempt over all that time.
    """
    out, free = list(known), set(range(len(known)))
    order = sorted(free, key=lambda i: int(known[i]["start_ns"]))
    starts = [int(known[i]["start_ns"]) for i in order]
    # The latest end so far never falls, so what could overlap a row is found by bisection.
    until = list(accumulate((_until(known[i]) for i in order), max))
    for row in more:
        near = order[bisect_left(until, int(row["start_ns"]) - SAME_NS) : bisect_right(starts, _until(row) + SAME_NS)]
        same = [i for i in near if _same(known[i], row) and (i in free or _over_half(known[i], row))]
        best = min(same, key=lambda i: (i not in free, abs(known[i]["start_ns"] - row["start_ns"])), default=None)
        if best is None:
            out.append(row)
        else:
            out[best] = _filled(out[best], row)
            free.discard(best)
    return out


def _same(a: Row, b: Row) -> bool:
    if a["start_ns"] < 0 and b["start_ns"] < 0:  # a job waits once at a time; logs that lack a time may still be about it
        return any(min(a[key], b[key]) < 0 or abs(a[key] - b[key]) <= SAME_NS for key in ("submit_ns", "end_ns"))
    if a["start_ns"] < 0 or b["start_ns"] < 0:  # what still waits in a log that ends earlier
        waits, ran = (a, b) if a["start_ns"] < 0 else (b, a)
        return bool(waits["outcome"] == PENDING and 0 <= waits["submit_ns"] <= ran["start_ns"] + SAME_NS)
    return bool(abs(a["start_ns"] - b["start_ns"]) <= SAME_NS) or _over_half(a, b)


def _until(row: Row) -> int:
    return max(int(row["end_ns"]), int(row["start_ns"]))


def _over_half(a: Row, b: Row) -> bool:
    return 2 * _overlap(a, b) > min(_length(a), _length(b)) > 0


def _length(row: Row) -> int:
    return max(int(row["end_ns"]) - int(row["start_ns"]), 0) if row["start_ns"] >= 0 and row["end_ns"] >= 0 else 0


def _overlap(a: Row, b: Row) -> int:
    if min(a["start_ns"], a["end_ns"], b["start_ns"], b["end_ns"]) < 0 or not (a["dated"] and b["dated"]):
        return 0
    return int(max(min(a["end_ns"], b["end_ns"]) - max(a["start_ns"], b["start_ns"]), 0))


def _merged(known: list[Row], more: list[Row]) -> list[Row]:
    """Attempts out of two logs written inside one job: what overlaps is one, what does not is another."""
    if not known or not more:
        return known or more
    base, other = (known, more) if len(known) >= len(more) else (more, known)
    out = list(base)
    for row in other:
        most = max(range(len(base)), key=lambda i: _overlap(base[i], row))
        older = next((i for i, one in enumerate(out) if _saved_earlier(row, one) or _saved_earlier(one, row)), None)
        if older is not None:
            out[older] = max(out[older], row, key=lambda one: int(one["last_step"]))
        elif _overlap(base[most], row) > 0:
            out[most] = _filled(out[most], row)
        else:
            out.append(row)
    return sorted(out, key=lambda row: int(row["start_ns"]))


def _saved_earlier(a: Row, b: Row) -> bool:
    """Whether one is the same attempt as another at an earlier step, as states without dates show it."""
    return not a["dated"] and not b["dated"] and a["first_step"] == b["first_step"] and a["saved_step"] == a["last_step"] >= 0


def _chained(inner: Jobs) -> Jobs:
    """Logs of one time are of one job, and logs that go on from each other: the later from a step that the earlier reached."""
    order = sorted(inner, key=lambda job: int(inner[job][0]["start_ns"]))
    out: Jobs = {}
    for job in order:
        rows = inner[job]
        before = next(reversed(out), None)
        if before is not None and any(_overlap(a, b) for a in out[before] for b in rows):
            out[before] = _merged(out[before], rows)
        elif before is not None and _goes_on(out[before], rows):
            out[before] = [*out[before], *rows]
        else:
            out[job] = rows
    return out


def _goes_on(before: list[Row], rows: list[Row]) -> bool:
    reached = max(max(int(row["last_step"]), int(row["saved_step"])) for row in before)
    ended = max(int(row["end_ns"]) for row in before)
    return 0 < int(rows[0]["resumed_step"]) <= reached and 0 <= ended <= int(rows[0]["start_ns"])


def _dated(row: Row, frame: Jobs) -> Row:
    """Times of a log without a year, in the year of the scheduler's attempts."""
    starts = [int(one["start_ns"]) for rows in frame.values() for one in rows if one["start_ns"] >= 0]
    if not starts:
        return row
    year = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=max(starts) // 10**9)).year
    since = (datetime(year, 1, 1, tzinfo=UTC) - datetime(NO_YEAR, 1, 1, tzinfo=UTC)).days
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    # The year that stands for an unknown one is a leap year: in others, days from March on are one less.
    march = int((datetime(NO_YEAR, 3, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**9

    def in_year(at: int) -> int:
        return at if at < 0 else at + (since - (0 if leap or at < march else 1)) * 86_400 * 10**9

    return {**row, **{key: in_year(row[key]) for key in TIMES}}


def _home(frame: Jobs, job: str, rows: list[Row]) -> str | None:
    """The scheduler's job that a log belongs to: by its id, by time, or because there is only one."""
    if job in frame:
        return job
    if len(frame) == 1:
        return next(iter(frame))
    shared = {name: sum(_overlap(a, b) for a in attempts for b in rows) for name, attempts in frame.items()}
    while_it_ran = [name for name, ns in shared.items() if ns > 0]
    return while_it_ran[0] if len(while_it_ran) == 1 else None


def _nested(frame: list[Row], inner: list[Row], job: str, notes: list[str]) -> list[Row]:
    """The scheduler's attempts, with what the log inside has of each."""
    ran = [row for row in frame if row["start_ns"] >= 0]
    homes = [max(ran, key=lambda one: _overlap(one, row), default=None) for row in inner]
    inside: list[list[Row]] = [
        [row for row, home in zip(inner, homes, strict=True) if home is one and _overlap(one, row) > 0] for one in frame
    ]
    if not any(inside):
        if len(ran) != len(inner):
            why = f"the scheduler has {len(ran)} attempts, the log inside {len(inner)}, and they share no time"
            notes.append(f"{job}: {why}: its steps are not used")
            return frame
        order = iter(inner)
        return [_placed(row, next(order)) if row["start_ns"] >= 0 else row for row in frame]
    return [part for row, found in zip(frame, inside, strict=True) for part in _parts(row, found)]


def _placed(row: Row, inner: Row) -> Row:
    """Steps without their times, which belong to another clock."""
    steps = {key: NULL if key.endswith("step_ns") or key == "saved_ns" else inner[key] for key in INSIDE}
    return {**row, **steps, "reason": row["reason"] or inner["reason"]}


def _parts(row: Row, inner: list[Row]) -> list[Row]:
    """One attempt of the scheduler as the attempts inside it; the first begins and the last ends as the scheduler says."""
    if not inner:
        return [row]
    out = []
    for i, one in enumerate(inner):
        first, last = i == 0, i == len(inner) - 1
        out.append(
            {
                **row,
                **{key: one[key] for key in INSIDE},
                "start_ns": row["start_ns"] if first else one["start_ns"],
                "end_ns": row["end_ns"] if last else one["end_ns"],
                "submit_ns": row["submit_ns"] if first else NULL,
                "held": row["held"] if first else 1,
                "outcome": row["outcome"] or one["outcome"] if last else one["outcome"],
                "reason": (row["reason"] or one["reason"]) if last else one["reason"],
            }
        )
    return out


def _stepped(attempts: Table, progress: Table) -> Table:
    """Attempts without steps take them from the progress log's rows of their time."""
    timed = progress.take((progress.end_ns >= 0) & (progress.rank == progress.rank.min())) if len(progress) else progress
    if not len(timed):
        return attempts
    columns = {key: attempts.columns[key].copy() for key in ("first_step", "first_step_ns", "last_step", "last_step_ns")}
    for i in np.flatnonzero((attempts.first_step < 0) & (attempts.start_ns >= 0) & (attempts.end_ns >= 0)).tolist():
        mine = timed.take((timed.end_ns >= attempts.start_ns[i]) & (timed.end_ns <= attempts.end_ns[i]))
        if len(mine):
            for key, value in zip(columns, (mine.step[0], mine.end_ns[0], mine.step[-1], mine.end_ns[-1]), strict=True):
                columns[key][i] = value
    return attempts.replace(**columns)
