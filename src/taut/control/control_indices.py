"""Dimensionless numbers of control, each with an interval; docs/control.md defines them.

None where what a number needs is not recorded. Units (works, actions, samples) are drawn again in blocks of neighbours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from taut.control.action_log import Demand, Log, demanded, series
from taut.control.amplification import per_work
from taut.control.conflict import meetings
from taut.control.redundant_work import thrown_away
from taut.core.array_types import Codes, Floats, Ints, Mask
from taut.core.block_bootstrap import BLOCKS, proportion, ratio
from taut.core.ids import greatest, least
from taut.core.interval import estimate, over
from taut.result.types import Estimate

PLANNED, CAPACITY = "planned|forecast|predicted", "capacity|provisioned|allocated"
ATTRIBUTED, SPENT = "attributed", "actual_cost|cost|spent"
Key = tuple[str, str]
"""Component and metric."""
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
    leaf = [per_work(log, rows)[0], np.bincount(log.jobs.job)]
    leaf += [] if log.calls is None else [np.ones(max(0, log.calls - len(rows)), dtype=np.int64)]
    each = np.concatenate(leaf)
    busy = np.where(log.busy_ns > 0, log.busy_ns, 0)[rows] * log.accelerators[rows]
    kept = (log.matching("outcome", "^(kept|completed)$") & ~thrown_away(log))[rows]
    return (
        ratio(each, np.ones(len(each))),
        None if log.calls is not None else ratio(busy, busy * kept),
        proportion(each > 2),
    )


def _decisions(log: Log) -> tuple[Estimate | None, ...]:
    """Undone by another, turned back by anybody, layers that agree, overhead, turned back by oneself."""
    rows = directed(log)
    before, after = followers(rows, settings(log))
    opposite = (log.direction[before] == -log.direction[after]) & ~forced(log, before, after)
    soon = (log.time_ns[after] - log.time_ns[before]) <= _usual(log, rows)
    undone = opposite & soon & (log.controller[before] != log.controller[after])
    mine, then = followers(rows[log.controller[rows] >= 0], log.stream)
    turned = (log.direction[mine] == -log.direction[then]) & ~forced(log, mine, then)
    one, other = followers(rows, log.target)
    met = log.layer[one] != log.layer[other]
    busy = np.where((log.busy_ns > 0) & ~log.of_job, log.busy_ns, 0) * log.accelerators
    # Of attempts that nothing links, nobody knows which were thrown away: that is not none.
    linked = (log.attempt >= 0) & ((log.work >= 0) | (log.parent >= 0))
    overhead = ratio(busy * ((log.attempt < 0) | thrown_away(log)), busy) if (busy[linked] > 0).any() else None
    return (
        proportion(undone[np.argsort(after)]) if meetings(log)[-1] else None,
        proportion(opposite[np.argsort(after)]),
        proportion((log.direction[one] == log.direction[other])[met][np.argsort(other[met])]),
        overhead,
        proportion(turned[np.argsort(then)]),
    )


def directed(log: Log) -> Ints:
    """Actions that have a direction and a target."""
    # A limit that was agreed when a job started carries that out: it reverses nothing.
    return np.flatnonzero((log.direction != 0) & (log.target >= 0) & ~log.matching("trigger", "^time limit"))


def settings(log: Log) -> Ints:
    """The setting that each action is about: a knob of a target."""
    of: Ints = log.target.astype(np.int64) * (len(log.words["knob"]) + 1) + log.knob + 1
    return of


def followers(rows: Ints, key: Codes | Ints) -> tuple[Ints, Ints]:
    """Actions, and the next one of each with the same key."""
    order = rows[np.argsort(key[rows], kind="stable")]
    same = np.diff(key[order]) == 0
    return order[:-1][same], order[1:][same]


def _usual(log: Log, rows: Ints) -> float:
    """Median time between two actions of one controller on one knob of a target."""
    before, after = followers(rows, log.stream)
    return float(np.median(log.time_ns[after] - log.time_ns[before])) if len(after) else 0.0


def forced(log: Log, before: Ints, after: Ints) -> Mask:
    """Pairs of actions between which demand moved the way of the second."""
    out = np.zeros(len(after), dtype=bool)
    if not log.demand:
        return out
    for target in set(log.target[after].tolist()) if len(log.demand) > 1 or -1 not in log.demand else {-1}:
        known = log.outside_demand(target)
        if known is None:
            continue
        here = log.target[after] == target if target >= 0 else np.ones(len(after), dtype=bool)
        moved = known.at(log.time_ns[after[here]]) - known.at(log.time_ns[before[here]])
        out[here] = moved * log.direction[after[here]] > 0
    return out


def _margins(log: Log) -> tuple[Estimate | None, ...]:
    """Share of the allowed time that works used, and how much of it they use more at the end of the log than at its begin."""
    rows = np.flatnonzero((log.root >= 0) & (log.attempt >= 0) & (log.busy_ns >= 0) & ~log.of_job)
    groups, inverse = np.unique(log.root[rows], return_inverse=True)
    begin = least(inverse, len(groups), log.time_ns[rows])
    end = greatest(inverse, len(groups), log.time_ns[rows] + log.busy_ns[rows])
    wanted = greatest(inverse, len(groups), log.deadline_ns[rows])
    known = np.flatnonzero(wanted > begin)
    known = known[np.argsort(begin[known], kind="stable")]
    if not len(known):
        return None, None
    used = (end[known] - begin[known]) / (wanted[known] - begin[known])
    when = (begin[known] - begin[known[0]]) / max(float(begin[known[-1]] - begin[known[0]]), 1.0)
    return ratio(used, np.ones(len(used))), _slope(when, used)


def _slope(when: Floats, used: Floats) -> Estimate | None:
    """Straight line over the length of the log."""
    if len(used) < 8:
        return None
    if len(used) > BLOCKS:
        # Means of neighbours: the line through them is nearly that of all, and bounded in memory.
        cuts = np.linspace(0, len(used), BLOCKS + 1).astype(np.int64)
        size = np.diff(cuts)
        when, used = np.add.reduceat(when, cuts[:-1]) / size, np.add.reduceat(used, cuts[:-1]) / size

    def line(some: Ints) -> Floats:
        x, y = when[some], used[some]
        x = x - x.mean(axis=-1, keepdims=True)
        slope: Floats = over((x * y).sum(axis=-1), (x * x).sum(axis=-1))
        return slope

    return estimate(line, len(used))


def _plans(log: Log) -> tuple[Estimate | None, ...]:
    """Accuracy of plans and of attribution, and error of capacity, from the series that lie beside the log."""
    found = series(log.trace.metrics)
    demand = {key for key in found if demanded(key[1]) is not None}
    planned, capacity, attributed, spent = (
        {key for key in found if re.search(words, key[1], re.I)} for words in (PLANNED, CAPACITY, ATTRIBUTED, SPENT)
    )
    return (
        _close(_matched(found, planned, demand), 1.0),
        _close(_matched(found, attributed, spent - attributed), 2.0),
        _off(_matched(found, capacity - planned, demand)),
    )


def _matched(found: Mapping[Key, tuple[Ints, Floats]], stated: set[Key], actual: set[Key]) -> tuple[Floats, Floats] | None:
    """Two kinds of series of the same component, the second where the first was sampled; all components together."""
    of = {component: (component, name) for component, name in sorted(actual, reverse=True)}
    both = [(found[key], found[of[key[0]]]) for key in found if key in stated and key[0] in of]
    if not both:
        return None
    values = [(value, Demand("", *other).at(time_ns)) for (time_ns, value), other in both]
    return np.concatenate([one for one, _ in values]), np.concatenate([two for _, two in values])


def _off(pair: tuple[Floats, Floats] | None) -> Estimate | None:
    """Sum of the differences over the sum of what was."""
    return None if pair is None else ratio(np.abs(pair[0] - pair[1]), np.abs(pair[1]))


def _close(pair: tuple[Floats, Floats] | None, times: float) -> Estimate | None:
    """One less the difference; attribution counts a wrong unit twice, where it is missing and where it is too much."""
    off = _off(pair)
    if off is None:
        return None
    low, high = (None if end is None else 1 - end / times for end in (off.hi, off.lo))
    return Estimate(value=1 - off.value / times, lo=low, hi=high)
