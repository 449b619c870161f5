"""Attempts of jobs → actions: every start is a decision of a scheduler or a launcher, some ends are, too.

A job table or ``sacct`` holds no more than attempts; the log of a controller knows the ends better than its attempts do, so
those, and submissions, are made here only for jobs that no such log names.
"""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints, Mask, Texts
from taut.core.tables import NULL, Action, Table, concat
from taut.read.jobs import job_words as words

USER = "user"
LAUNCHER = "torchrun"
RESTARTS_INSIDE = {"kubernetes": "kubelet"}
"""Who starts again what keeps its place, by who started it first; else a launcher."""
KEPT = {words.COMPLETED: "kept", **dict.fromkeys((words.RUNNING, words.PENDING, ""), "")}
"""What became of an attempt in the words of actions; any other end is a failure."""
ENDS = {
    words.PREEMPTED: "preempted", words.TIMED_OUT: "time limit", words.NODE_FAILED: "node failed",
    words.CANCELLED: "cancelled",
}  # fmt: skip
"""Outcomes that somebody decided, and why."""


def actions(attempts: Table, controller: Texts, decided: Mask) -> Table:
    """Submissions, starts and decided ends; ``controller`` started an attempt, a log has the decisions on ``decided`` ones."""
    if not len(attempts):
        return Table(Action, {}, 0)
    first = np.concatenate([[True], attempts.job[1:] != attempts.job[:-1]])
    of_job = np.cumsum(first) - 1
    again = np.bincount(of_job)[of_job] > 1
    # Workers that a launcher restarts keep their accelerators; the first of them it started, too.
    launched = (attempts.held == 1) | (first & (controller == "") & (np.append(attempts.held[1:], NULL) == 1) & again)
    shown = again | (controller != "")
    starts = _starts(attempts, np.flatnonzero(shown & (attempts.start_ns >= 0)), controller, launched, first)
    submits = _submits(attempts, first & ~decided & (controller != ""))
    return concat(Action, [starts, submits, _ends(attempts, controller, ~decided & shown)])


def _starts(attempts: Table, rows: Ints, controller: Texts, launched: Mask, first: Mask) -> Table:
    a, inside = attempts.take(rows), launched[rows]
    number = a.attempt.astype(np.int64) - 1
    same = np.concatenate([[False], a.job[1:] == a.job[:-1]]) if len(rows) else np.zeros(0, dtype=np.bool_)
    trigger = np.where(first[rows], "", _why(attempts)[np.maximum(rows - 1, 0)])
    limit = np.where(a.limit_ns >= 0, a.start_ns + np.maximum(a.limit_ns, 0), NULL)
    ran = np.where((a.end_ns >= a.start_ns) & (a.end_ns >= 0), a.end_ns - a.start_ns, NULL)
    kept = np.array([KEPT.get(outcome, "failed") for outcome in a.outcome.tolist()], dtype=np.object_)
    texts = number.astype(str).astype(np.object_)
    launcher = np.array([RESTARTS_INSIDE.get(name, LAUNCHER) for name in controller[rows].tolist()], dtype=np.object_)
    return Table(
        Action,
        {
            "time_ns": a.start_ns,
            "layer": np.where(inside, "runtime", "scheduler").astype(np.object_),
            "controller": np.where(inside, launcher, controller[rows]).astype(np.object_),
            "target": a.job,
            "work": a.job,
            "knob": np.where(inside, "attempt", "allocation").astype(np.object_),
            "before": np.where(inside & (number > 0), (number - 1).astype(str).astype(np.object_), ""),
            "after": np.where(inside, texts, ""),
            "direction": np.where(inside, 0, 1),
            "trigger": trigger,
            "parent": np.where(same, np.arange(len(rows)) - 1, NULL),
            "attempt": number,
            "deadline_ns": limit,
            "outcome": kept,
            "busy_ns": ran,
            "accelerators": np.where(a.unit == "accelerator", a.accelerators, NULL),
        },
        len(rows),
    )


def _why(attempts: Table) -> Texts:
    """Why each attempt ended, in a few words: a limit that ran out, else its outcome."""
    why: Texts = attempts.outcome.copy()
    # A job that failed by itself has a limit, too; of a launcher's attempt it is known only because it ran out.
    out = (why == words.TIMED_OUT) | ((attempts.held != 0) & (why == words.FAILED))
    for row in np.flatnonzero((attempts.limit_ns >= 0) & out).tolist():
        why[row] = f"timeout of {attempts.limit_ns[row] / 1e9:g} s"
    return why


def _submits(attempts: Table, first: Mask) -> Table:
    rows = np.flatnonzero(first & (attempts.submit_ns >= 0))
    a = attempts.take(rows)
    return Table(
        Action,
        {
            "time_ns": a.submit_ns,
            "controller": np.full(len(rows), USER, dtype=np.object_),
            "target": a.job,
            "work": a.job,
            "knob": np.full(len(rows), "submission", dtype=np.object_),
        },
        len(rows),
    )


def _ends(attempts: Table, controller: Texts, shown: Mask) -> Table:
    rows = np.flatnonzero(shown & (attempts.end_ns >= 0) & np.isin(attempts.outcome, list(ENDS)))
    a = attempts.take(rows)
    # What is cancelled is not started again: such an attempt was requeued, and who asked for that is not told.
    again = np.append(attempts.job[1:] == attempts.job[:-1], False)[rows] & (a.outcome == words.CANCELLED)
    who = np.where((a.outcome == words.CANCELLED) & ~again, USER, controller[rows]).astype(np.object_)
    why = np.array([ENDS[outcome] for outcome in a.outcome.tolist()], dtype=np.object_)
    return Table(
        Action,
        {
            "time_ns": a.end_ns,
            "layer": np.where(who == USER, "", "scheduler").astype(np.object_),
            "controller": who,
            "target": a.job,
            "work": a.job,
            "knob": np.full(len(rows), "allocation", dtype=np.object_),
            "direction": np.full(len(rows), -1),
            "trigger": np.where(again, "requeued", why).astype(np.object_),
        },
        len(rows),
    )
