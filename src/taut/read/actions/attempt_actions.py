"""Attempts of jobs → actions: every start is a decision of a scheduler or a launcher, some ends are, too.

A job table or ``sacct`` tells no more than attempts; the log of a controller tells the ends better than its attempts do,
so those, and submissions, are made here only of jobs that no such log speaks of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.core.tables import NULL, Action, Table, concat
from taut.read.jobs import job_words as words

USER = "user"
LAUNCHER = "torchrun"
KEPT = {words.COMPLETED: "kept", **dict.fromkeys((words.RUNNING, words.PENDING, ""), "")}
"""What became of an attempt in the words of actions; any other end is a failure."""
ENDS = {
    words.PREEMPTED: "preempted", words.TIMED_OUT: "time limit", words.NODE_FAILED: "node failed",
    words.CANCELLED: "cancelled",
}  # fmt: skip
"""Outcomes that somebody decided, and why."""


def actions(attempts: Table, controller: Any, told: Any) -> Table:
    """Submissions, starts and decided ends; ``controller`` is each attempt's scheduler, ``told`` if a log tells the rest."""
    if not len(attempts):
        return Table(Action, {}, 0)
    first = np.concatenate([[True], attempts.job[1:] != attempts.job[:-1]])
    many = np.repeat(_sizes(first) > 1, _sizes(first))
    # Workers that a launcher restarts keep their accelerators; the first of them it started, too.
    launched = (attempts.held == 1) | (first & (controller == "") & (np.append(attempts.held[1:], NULL) == 1) & many)
    shown = many | (controller != "")
    starts = _starts(attempts, np.flatnonzero(shown & (attempts.start_ns >= 0)), controller, launched, first)
    submits = _submits(attempts, first & ~told & (controller != ""))
    return concat(Action, [starts, submits, _ends(attempts, controller, ~told & shown)])


def _sizes(first: Any) -> Any:
    begins = np.flatnonzero(first)
    return np.diff(np.append(begins, len(first)))


def _starts(attempts: Table, rows: Any, controller: Any, launched: Any, first: Any) -> Table:
    a, inside = attempts.take(rows), launched[rows]
    number = a.attempt.astype(np.int64) - 1
    same = np.concatenate([[False], a.job[1:] == a.job[:-1]]) if len(rows) else np.zeros(0, dtype=np.bool_)
    before = np.maximum(rows - 1, 0)
    trigger = np.where(first[rows], "", _why(attempts)[before])
    limit = np.where(a.limit_ns >= 0, a.start_ns + np.maximum(a.limit_ns, 0), NULL)
    ran = np.where((a.end_ns >= a.start_ns) & (a.end_ns >= 0), a.end_ns - a.start_ns, NULL)
    kept = np.array([KEPT.get(outcome, "failed") for outcome in a.outcome.tolist()], dtype=object)
    texts = number.astype(str).astype(object)
    return Table(
        Action,
        {
            "time_ns": a.start_ns, "layer": np.where(inside, "runtime", "scheduler").astype(object),
            "controller": np.where(inside, LAUNCHER, controller[rows]).astype(object), "target": a.job, "work": a.job,
            "knob": np.where(inside, "attempt", "allocation").astype(object),
            "before": np.where(inside & (number > 0), (number - 1).astype(str).astype(object), ""),
            "after": np.where(inside, texts, ""), "direction": np.where(inside, 0, 1), "trigger": trigger,
            "parent": np.where(same, np.arange(len(rows)) - 1, NULL), "attempt": number, "deadline_ns": limit,
            "outcome": kept, "busy_ns": ran, "accelerators": np.where(a.unit == "accelerator", a.accelerators, NULL),
        },
        len(rows),
    )  # fmt: skip


def _why(attempts: Table) -> Any:
    """Why each attempt ended, in a few words: a limit that ran out, else its outcome."""
    why = attempts.outcome.copy()
    # A job that failed by itself has a limit, too; of a launcher's attempt it is known only because it ran out.
    out = (why == words.TIMED_OUT) | ((attempts.held != 0) & (why == words.FAILED))
    for row in np.flatnonzero((attempts.limit_ns >= 0) & out).tolist():
        why[row] = f"timeout of {attempts.limit_ns[row] / 1e9:g} s"
    return why


def _submits(attempts: Table, first: Any) -> Table:
    rows = np.flatnonzero(first & (attempts.submit_ns >= 0))
    a = attempts.take(rows)
    return Table(
        Action,
        {
            "time_ns": a.submit_ns, "controller": np.full(len(rows), USER, dtype=object), "target": a.job, "work": a.job,
            "knob": np.full(len(rows), "submission", dtype=object),
        },
        len(rows),
    )  # fmt: skip


def _ends(attempts: Table, controller: Any, shown: Any) -> Table:
    rows = np.flatnonzero(shown & (attempts.end_ns >= 0) & np.isin(attempts.outcome, list(ENDS)))
    a = attempts.take(rows)
    who = np.where(a.outcome == words.CANCELLED, USER, controller[rows]).astype(object)
    return Table(
        Action,
        {
            "time_ns": a.end_ns, "layer": np.where(who == USER, "", "scheduler").astype(object), "controller": who,
            "target": a.job, "work": a.job, "knob": np.full(len(rows), "allocation", dtype=object),
            "direction": np.full(len(rows), -1),
            "trigger": np.array([ENDS[outcome] for outcome in a.outcome.tolist()], dtype=object),
        },
        len(rows),
    )  # fmt: skip
