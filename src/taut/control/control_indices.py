"""Dimensionless numbers of control, each with an interval; docs/control.md defines them.

None where what a number needs is not recorded. Units (works, actions, samples) are drawn again in blocks of neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.control import amplification, conflict
from taut.control.action_log import Demand, Log, demanded, series
from taut.control.job_attempts import jobs
from taut.control.redundant_work import thrown_away
from taut.core.block_bootstrap import BLOCKS, proportion, ratio
from taut.core.interval import Estimate, estimate, over

PLANNED = ("planned", "forecast", "predicted")
CAPACITY = ("capacity", "provisioned", "allocated")
ATTRIBUTED, SPENT = ("attributed",), ("actual_cost", "cost", "spent")
NAMES = (
    "actual_attempt_multiplier", "cost_per_completion", "retry_cascade_frequency", "decision_conflict_rate",
    "compensatory_action_rate", "cross_layer_coherence", "control_overhead_fraction", "control_oscillation_frequency",
    "sla_margin_utilisation", "margin_erosion_rate", "planning_accuracy", "cost_attribution_accuracy",
    "capacity_planning_error",
)  # fmt: skip


def indices(log: Log) -> dict[str, Estimate | None]:
    """All of them, by name."""
    found = (*_attempts(log), *_decisions(log), *_margins(log), *_plans(log))
    return dict(zip(NAMES, found, strict=True))


def _attempts(log: Log) -> tuple[Estimate | None, ...]:
    """Attempts per work, cost of all attempts over that of those kept, works whose retries were retried."""
    rows = np.flatnonzero((log.attempt >= 0) & ~log.of_job)
    leaf = [amplification.per_work(log, rows)[0], np.bincount(jobs(log.attempts).job)]
    leaf += [] if log.calls is None else [np.ones(max(0, log.calls - len(rows)), dtype=np.int64)]
    each = np.concatenate(leaf)
    busy = np.where(log.busy_ns > 0, log.busy_ns, 0)[rows] * log.accelerators[rows]
    kept = (log.holding("outcome", "^(kept|completed)$") & ~thrown_away(log))[rows]
    return (
        ratio(each, np.ones(len(each))),
        None if log.calls is not None else ratio(busy, busy * kept),
        proportion(each > 2) if len(each) else None,
    )


def _decisions(log: Log) -> tuple[Estimate | None, ...]:
    """Undone by another, turned back by anybody, layers that agree, overhead, turned back by oneself."""
    rows = np.flatnonzero((log.direction != 0) & (log.target >= 0))
    knob = log.target.astype(np.int64) * (len(log.words["knob"]) + 1) + log.knob + 1
    order = rows[np.argsort(knob[rows], kind="stable")]
    before, after = order[:-1], order[1:]
    same = knob[before] == knob[after]
    before, after = before[same], after[same]
    opposite = (log.direction[before] == -log.direction[after]) & ~_forced(log, before, after)
    other = log.controller[before] != log.controller[after]
    soon = (log.time_ns[after] - log.time_ns[before]) <= _usual(log, rows)
    shared = bool(conflict.meetings(log)[-1])
    named = rows[log.controller[rows] >= 0]
    own = named[np.argsort(log.stream[named], kind="stable")]
    mine, then = own[:-1], own[1:]
    one = log.stream[mine] == log.stream[then]
    mine, then = mine[one], then[one]
    turned = (log.direction[mine] == -log.direction[then]) & ~_forced(log, mine, then)
    busy = np.where((log.busy_ns > 0) & ~log.of_job, log.busy_ns, 0) * log.accelerators
    gone = thrown_away(log)
    # Of attempts that nothing links, nobody knows which were thrown away: that is not none.
    linked = (log.attempt >= 0) & ((log.work >= 0) | (log.parent >= 0))
    overhead = ratio(busy * ((log.attempt < 0) | gone), busy) if (busy[linked] > 0).any() else None
    return (
        proportion((opposite & other & soon)[np.argsort(after)]) if shared and len(after) else None,
        proportion(opposite[np.argsort(after)]) if len(after) else None,
        _coherence(log, rows),
        overhead,
        proportion(turned[np.argsort(then)]) if len(then) else None,
    )


def _coherence(log: Log, rows: Any) -> Estimate | None:
    """Of two actions that follow each other on one target in different layers, the share that go the same way."""
    order = rows[np.argsort(log.target[rows], kind="stable")]
    before, after = order[:-1], order[1:]
    met = (log.target[before] == log.target[after]) & (log.layer[before] != log.layer[after])
    before, after = before[met], after[met]
    return proportion((log.direction[before] == log.direction[after])[np.argsort(after)]) if len(after) else None


def _usual(log: Log, rows: Any) -> float:
    """Median time between two actions of one controller on one knob of a target."""
    order = rows[np.argsort(log.stream[rows], kind="stable")]
    gaps = np.diff(log.time_ns[order])[np.diff(log.stream[order]) == 0]
    return float(np.median(gaps)) if len(gaps) else 0.0


def _forced(log: Log, before: Any, after: Any) -> Any:
    """Pairs of actions between which demand moved the way of the second."""
    out = np.zeros(len(after), dtype=bool)
    if not log.demand:
        return out
    for target in set(log.target[after].tolist()) if len(log.demand) > 1 or -1 not in log.demand else {-1}:
        known: Demand | None = log.demand_of(target)
        if known is None or known.own:
            continue
        here = log.target[after] == target if target >= 0 else np.ones(len(after), dtype=bool)
        moved = known.at(log.time_ns[after[here]]) - known.at(log.time_ns[before[here]])
        out[here] = moved * log.direction[after[here]] > 0
    return out


def _margins(log: Log) -> tuple[Estimate | None, ...]:
    """Share of the allowed time that works used, and how much of it they use more at the end of the log than at its begin."""
    work = amplification.roots(log)
    rows = np.flatnonzero((work >= 0) & (log.attempt >= 0) & (log.busy_ns >= 0) & ~log.of_job)
    groups, inverse = np.unique(work[rows], return_inverse=True)
    if not len(groups):
        return None, None
    begin = np.full(len(groups), np.iinfo(np.int64).max)
    end, wanted = np.full(len(groups), -1), np.full(len(groups), -1)
    np.minimum.at(begin, inverse, log.time_ns[rows])
    np.maximum.at(end, inverse, log.time_ns[rows] + log.busy_ns[rows])
    np.maximum.at(wanted, inverse, log.deadline_ns[rows])
    known = np.flatnonzero(wanted > begin)
    known = known[np.argsort(begin[known], kind="stable")]
    if not len(known):
        return None, None
    used = (end[known] - begin[known]) / (wanted[known] - begin[known])
    when = (begin[known] - begin[known[0]]) / max(float(begin[known[-1]] - begin[known[0]]), 1.0)
    return ratio(used, np.ones(len(used))), _slope(when, used)


def _slope(when: Any, used: Any) -> Estimate | None:
    """Straight line over the length of the log."""
    if len(used) < 8:
        return None
    if len(used) > BLOCKS:
        cuts = np.linspace(0, len(used), BLOCKS + 1).astype(np.int64)
        size = np.diff(cuts)
        when, used = np.add.reduceat(when, cuts[:-1]) / size, np.add.reduceat(used, cuts[:-1]) / size

    def line(some: Any) -> Any:
        x, y = when[some], used[some]
        x = x - x.mean(axis=-1, keepdims=True)
        return over((x * y).sum(axis=-1), (x * x).sum(axis=-1))

    return estimate(line, len(used))


def _plans(log: Log) -> tuple[Estimate | None, ...]:
    """Accuracy of plans and of attribution, and error of capacity, from the series that lie beside the log."""
    found = series(log.metrics)
    plan = _matched(found, lambda name: _holds(name, PLANNED), _is_demand)
    cost = _matched(
        found, lambda name: _holds(name, ATTRIBUTED), lambda name: _holds(name, SPENT) and not _holds(name, ATTRIBUTED)
    )
    capacity = _matched(found, lambda name: _holds(name, CAPACITY) and not _holds(name, PLANNED), _is_demand)
    return _close(plan, 1.0), _close(cost, 2.0), _off(capacity)


def _is_demand(name: str) -> bool:
    return demanded(name) is not None


def _holds(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name.lower() for word in words)


def _matched(found: Any, said: Any, was: Any) -> tuple[Any, Any] | None:
    """Two kinds of series of the same component, the second where the first was sampled; all components together."""
    one, two = [], []
    for (component, name), (time_ns, value) in found.items():
        if not said(name):
            continue
        other = next((key for key in sorted(found) if key[0] == component and was(key[1])), None)
        if other is None:
            continue
        actual = Demand("", *found[other])
        one.append(value)
        two.append(actual.at(time_ns))
    return (np.concatenate(one), np.concatenate(two)) if one else None


def _off(pair: tuple[Any, Any] | None) -> Estimate | None:
    """Sum of the differences over the sum of what was."""
    return None if pair is None else ratio(np.abs(pair[0] - pair[1]), np.abs(pair[1]))


def _close(pair: tuple[Any, Any] | None, times: float) -> Estimate | None:
    """One less the difference; attribution counts a wrong unit twice, where it is missing and where it is too much."""
    off = _off(pair)
    if off is None:
        return None
    value, low, high = (None if off[key] is None else 1 - float(off[key] or 0.0) / times for key in ("value", "hi", "lo"))
    return {"value": value, "lo": low, "hi": high}
