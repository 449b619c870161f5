"""Control logs of all files → the actions of the trace, once each and in order of time, and what they leave open.

An action that was delivered twice, in one log or in two, counts once. A change that Slurm's log knows by a user id only is the
action of the controller whose own log has it at that time. Clocks that run backwards inside a log are counted; nothing is
moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from taut.core.array_types import Ints, Mask, Texts
from taut.core.ids import rows_of_ids
from taut.core.tables import NULL, Action, Metric, Table, Trace, concat
from taut.read.actions import attempt_actions
from taut.read.contents import ControlLog, JobLog, Metrics
from taut.read.jobs.job_words import SLURM
from taut.read.metrics import rank_metrics, setting_actions

# Threads write their lines this much out of order; only more is a clock that ran backwards.
SWAPPED_NS = 100_000_000
# A controller and its scheduler log one change within this time.
SAME_NS = 2_000_000_000
OWN_WORDS = ("", attempt_actions.USER, SLURM)
"""Names in Slurm's own log: they are no controllers that keep one of their own."""
SAME = ("layer", "controller", "target", "knob", "after", "trigger", "work", "outcome")
"""What two deliveries agree in; the value before may be known to one of them only."""
NUMBERS = ("rank", "attempt", "deadline_ns", "busy_ns", "accelerators", "tokens_in", "tokens_out")
# Logs named in a note.
MANY = 5


def logs(found: Sequence[ControlLog], jobs: Sequence[JobLog], metrics: Sequence[Metrics]) -> list[ControlLog]:
    """All logs of decisions: control logs, those inside job logs, settings among the metrics."""
    changed_settings = [setting_actions.log(one.label, one.settings) for one in metrics if one.settings]
    return [*found, *(job.control for job in jobs if job.control is not None), *changed_settings]


def apply(trace: Trace, found: Sequence[ControlLog], jobs: Sequence[JobLog]) -> Trace:
    """The trace with the actions of logs and attempts, beside those it has."""
    if not found and not jobs:
        return trace
    steps = [_backwards(log) for log in found]
    derived = attempt_actions.actions(*_attempts(trace, jobs))
    actions, counts = _once(_joined([*(log.actions for log in found), derived]))
    counts["duplicate deliveries"] += sum(log.repeated for log in found)
    actions, merged = _signed(actions)
    if len(trace.actions):
        actions = _joined([trace.actions, actions])
    actions = _ended(_in_order(actions))
    counts |= {
        "torn lines": sum(log.torn for log in found),
        "clock steps": sum(n for n, _ in steps),
        "told by two logs": merged,
        "unknown controllers": int((actions.controller == "").sum()),
        "actions": len(actions),
    }
    notes = [*_notes(found, steps, counts), *(line for log in found for line in log.partial)]
    counts_of_all = {**trace.counts, **{key: number for key, number in counts.items() if number}}
    trace = _with_demand(trace, found)
    return replace(trace, actions=actions, partial=(*trace.partial, *dict.fromkeys(notes)), counts=counts_of_all)


def _attempts(trace: Trace, jobs: Sequence[JobLog]) -> tuple[Table, Texts, Mask]:
    """The attempts, who started each, and whether a log has the decisions about its job."""
    controllers: dict[str, str] = {}
    decided: set[str] = set()
    for log in jobs:
        names = set(log.attempts.job.tolist())
        if not log.inside or log.controller:
            controllers.update(dict.fromkeys(names, log.controller))
        if log.control is not None:
            decided |= names
    job = trace.attempts.job.tolist()
    who = np.array([controllers.get(name, "") for name in job], dtype=np.object_)
    return trace.attempts, who, np.array([name in decided for name in job], dtype=np.bool_)


def _joined(tables: Sequence[Table]) -> Table:
    """One table; parents are rows of it."""
    kept, offset = [], 0
    for one in tables:
        if offset and len(one):
            one = one.replace(parent=np.where(one.parent >= 0, one.parent + offset, NULL))
        kept.append(one)
        offset += len(one)
    return concat(Action, [one for one in kept if len(one)])


def _take(actions: Table, rows: Ints) -> Table:
    """Those rows in that order; parents move with them, one that is left out is no parent."""
    place = rows_of_ids(rows, len(actions) + 1, NULL)
    out = actions.take(rows)
    return out.replace(parent=place[out.parent]) if len(out) else out


def _in_order(actions: Table) -> Table:
    if (np.diff(actions.time_ns) >= 0).all():
        return actions
    return _take(actions, np.argsort(actions.time_ns, kind="stable"))


def _ended(actions: Table) -> Table:
    """A decision against a job has the job's last start as its parent, which holds what it cost."""
    rows = np.flatnonzero((actions.work != "") & (actions.knob == "allocation"))
    parent, running = actions.parent.copy(), dict[str, int]()
    columns = (actions.work[rows].tolist(), actions.direction[rows].tolist(), actions.attempt[rows].tolist())
    for row, work, way, attempt in zip(rows.tolist(), *columns, strict=True):
        if attempt >= 0:
            running[work] = row
        elif way < 0 and work in running:
            parent[row] = running.pop(work)
    return actions.replace(parent=parent)


def _once(actions: Table) -> tuple[Table, Counter[str]]:
    """Every action once: those of one time that agree in all columns are one."""
    time = actions.time_ns
    order = np.argsort(time, kind="stable")
    same = np.diff(time[order]) == 0
    # Only actions that share their time with a neighbour can be the same.
    suspects = order[np.append(same, False) | np.append(False, same)] if len(order) else order
    gone = []
    seen: set[tuple[str | int, ...]] = set()
    now = NULL
    columns = zip(*(actions.columns[key][suspects].tolist() for key in (*SAME, *NUMBERS)), strict=True)
    for row, at, what in zip(suspects.tolist(), time[suspects].tolist(), columns, strict=True):
        if at != now:
            now, seen = at, set()
        if what in seen:
            gone.append(row)
        seen.add(what)
    if not gone:
        return actions, Counter()
    kept = np.ones(len(actions), dtype=np.bool_)
    kept[gone] = False
    return _take(actions, np.flatnonzero(kept)), Counter({"duplicate deliveries": len(gone)})


def _signed(actions: Table) -> tuple[Table, int]:
    """The actions without changes by a user id that a controller's own log has, too; it takes the direction from them."""
    unsigned = np.array([name.startswith("uid ") for name in actions.controller.tolist()], dtype=np.bool_)
    if not unsigned.any():
        return actions, 0
    keys = list(zip(actions.target.tolist(), actions.knob.tolist(), strict=True))
    wanted = {keys[row] for row in np.flatnonzero(unsigned).tolist()}
    others: dict[tuple[str, str], list[int]] = {}
    own = ~unsigned & ~np.isin(actions.controller, OWN_WORDS) & (actions.attempt < 0)
    for row in np.flatnonzero(own).tolist():
        if keys[row] in wanted:
            others.setdefault(keys[row], []).append(row)
    kept, way = np.ones(len(actions), dtype=np.bool_), actions.direction.copy()
    # Of each change by a user id: the controller's own actions on the same knob at that time, not in the other direction.
    for row in np.flatnonzero(unsigned).tolist():
        near = np.array(others.get(keys[row], ()), dtype=np.int64)
        near = near[(np.abs(actions.time_ns[near] - actions.time_ns[row]) <= SAME_NS) & (way[near] * way[row] >= 0)]
        if len(near):
            kept[row] = False
            way[near] = np.where(way[near] == 0, way[row], way[near])
    return _take(actions.replace(direction=way), np.flatnonzero(kept)), int((~kept).sum())


def _backwards(log: ControlLog) -> tuple[int, int]:
    """How often time ran backwards in a log, deliveries that came twice left out, and how far at most."""
    if (np.diff(log.actions.time_ns) >= -SWAPPED_NS).all():
        return 0, 0
    back = -np.diff(_once(log.actions)[0].time_ns)
    back = back[back > SWAPPED_NS]
    return len(back), int(back.max(initial=0))


def _notes(found: Sequence[ControlLog], steps: Sequence[tuple[int, int]], counts: Counter[str]) -> Iterable[str]:
    if zoneless := [log.label for log in found if log.zoneless]:
        yield f"{_some(zoneless)}: times without a time zone, taken as UTC"
    if number := counts["duplicate deliveries"]:
        yield f"{number:,} duplicate deliveries of an action counted once"
    if torn := [log.label for log in found if log.torn]:
        yield f"{_some(torn)}: {counts['torn lines']:,} torn lines, or lines without a time, left out"
    for log, (number, most) in zip(found, steps, strict=True):
        if number:
            yield f"{log.label}: its clock runs backwards {number:,} times, by {most / 1e9:,.1f} s at most: order is by time"
    if number := counts["told by two logs"]:
        yield f"{number:,} changes by a user id in Slurm's log are those of the controller whose own log has them"
    if number := counts["unknown controllers"]:
        yield f"{number:,} actions name no controller: taken as those of one unknown controller"


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels[:MANY]) + (f" and {len(labels) - MANY} more" if len(labels) > MANY else "")


def _with_demand(trace: Trace, found: Sequence[ControlLog]) -> Trace:
    """The trace with what controllers reacted to, as metrics."""
    demand = [Metrics(log.label, log.demand) for log in found if log.demand]
    if not demand:
        return trace
    new = rank_metrics.apply(replace(trace, partial=(), counts={}), demand).metrics
    return replace(trace, metrics=concat(Metric, [table for table in (trace.metrics, new) if len(table)]))
