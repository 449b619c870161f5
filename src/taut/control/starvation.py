"""Starvation: a work that is preempted or postponed again and again while others get through.

Statistic: the most preemptions of one work. Null hypothesis: each time it runs again, a work is preempted with the same
chance as every other that came so far, so the tail of preemptions per work is geometric; the chance that the largest is as
large. Many preemptions spread over many works are therefore no starvation, however many they are. A job that got through
in the end (its last attempt completed, failed by itself, or ran to its time limit) was delayed, not starved: long jobs of low
priority are preempted more often than others.
"""

from __future__ import annotations

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, joined, since, thing
from taut.core.array_types import Ints, Mask

KIND = "starvation"
WORDS = r"preempt|evict|requeue|postpone|defer|displac|starv"
"""Actions that preempt or postpone a job."""
MOST = 20
"""Controllers that are looked at, the busiest."""
LEAST = 5
"""Fewer preemptions of one work are a few."""
TAIL = 20
"""Works that must reach a count for the tail to begin there: long works are preempted more often than short ones."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """The jobs preempted most, as actions tell it, by controller; as the attempts of jobs do, where no action does."""
    pushed, work = preemptions(log)
    out = []
    for rows in log.groups(log.controller + 1, pushed, LEAST, MOST):
        others = len(np.unique(work[(work >= 0) & (log.knob == log.knob[rows[0]])]))
        names, first, counts = np.unique(work[rows], return_index=True, return_counts=True)
        waits = np.where(_got_through(log, rows[first]), 0, counts)
        if waits.max() >= LEAST:
            mine = rows[work[rows] == names[np.argmax(waits)]]
            out.append(_by_actions(log, mine, counts, max(others, len(names))))
    return out or _of_jobs(log)


def _got_through(log: Log, rows: Ints) -> Mask:
    """Of the job of each action: whether its attempts are listed, and the last ran to its own end."""
    through = dict(zip(log.jobs.names, log.jobs.through.tolist(), strict=True))
    names = [log.name("work", row) or log.name("target", row) for row in rows.tolist()]
    return np.array([through.get(name, False) for name in names], dtype=np.bool_)


def preemptions(log: Log) -> tuple[Ints, Ints]:
    """Rows that preempt or postpone a job, and the job of every row."""
    back = np.zeros(len(log), dtype=bool)
    for column in ("knob", "after", "trigger", "outcome"):
        back |= log.matching(column, WORDS)
    work = _works(log)
    return np.flatnonzero(back & (log.direction <= 0) & (work >= 0)), work


def _works(log: Log) -> Ints:
    """The job of each action: the work it names, else its target, under the same number if both have one name."""
    known = {word: number for number, word in enumerate(log.words["work"])}
    number = [known.get(word, len(known) + k) for k, word in enumerate(log.words["target"])] + [-1]
    return np.where(log.work >= 0, log.work, np.array(number, dtype=np.int64)[log.target])


def _of_jobs(log: Log) -> list[Relation]:
    jobs = log.jobs
    preempted = jobs.outcome == "preempted"
    counts = np.bincount(jobs.job[preempted], minlength=len(jobs.names))
    waits = np.where(jobs.through, 0, counts)
    if waits.max(initial=0) < LEAST:
        return []
    worst = int(np.argmax(waits))
    mine = np.flatnonzero(preempted & (jobs.job == worst))
    lost = jobs.rank_ns(mine)
    return [_relation((), jobs.names[worst], (counts, jobs.end_ns[mine]), len(jobs.names), (lost, None))]


def _by_actions(log: Log, mine: Ints, counts: Ints, works: int) -> Relation:
    """``mine`` preempt the one job; ``counts`` has the preemptions of each."""
    name, who = log.name("work", mine[0]) or log.name("target", mine[0]), _preempted_by(log, mine)
    rank_ns, tokens = log.cost(mine)
    lost = log.jobs.rank_ns(log.jobs.ended_at(name, log.time_ns[mine]))
    return _relation(
        (who,) if who else (), name, (counts, log.time_ns[mine]), works, (rank_ns if lost is None else lost, tokens)
    )


def _preempted_by(log: Log, rows: Ints) -> str:
    """Who preempted a job. An attempt only answers that; whoever last took something from its target did it."""
    did = rows[log.attempt[rows] < 0]
    if len(did):
        return log.name("controller", did[0])
    taken = np.flatnonzero(
        (log.direction < 0) & (log.target == log.target[rows[0]]) & (log.attempt < 0) & (log.controller >= 0)
    )
    before = np.searchsorted(taken, rows) - 1
    if not len(taken) or (before < 0).all():
        return log.name("controller", rows[0])
    who, times = np.unique(log.controller[taken[before[before >= 0]]], return_counts=True)
    return log.word("controller", int(who[np.argmax(times)]))


def _relation(
    who: tuple[str, ...], name: str, preempted: tuple[Ints, Ints], works: int, cost: tuple[int | None, int | None]
) -> Relation:
    """``preempted``: how often each job was, and when this one."""
    counts, most = preempted[0], len(preempted[1])
    p, total = longest(counts, works, most), int(counts.sum())
    by = f" by {joined(who)}" if who else ""
    when = since(preempted[1])
    because = (
        f"{thing(name)} was preempted {most} of {total} times{by} and did not get through{when}; {works} jobs were there, "
        f"{total / works:.2g} preemptions each on average: with equal chances, one log in {1 / max(p, 1e-12):.3g} has a job "
        f"that is preempted so often, so this one makes way for the others: raise its priority, let it save its work, or "
        f"exempt it from preemption for as long as it needs"
    )
    return Relation(KIND, who, name, "preemption", most, most / max(total / works, 1e-9), p, because, *cost)


def longest(counts: Ints, works: int, most: int | None = None) -> float:
    """Chance that one of the works is preempted so often (as the most unlucky one), if the tail goes on as it begins.

    ``counts`` are those of works that were preempted at all. The tail begins at the highest count that enough works
    reach; from there on each is preempted once more with the same chance, which those works tell.
    """
    most = int(counts.max()) if most is None else most
    reach, begin = works, 0
    for level in range(1, most):
        here = int((counts >= level).sum())
        if here < TAIL:
            break
        reach, begin = here, level
    # Maximum likelihood of a geometric tail: steps taken beyond its begin, over steps taken and works that stopped.
    beyond = int(np.maximum(counts - begin, 0).sum())
    again = beyond / (beyond + reach)
    # One minus (1 − q)ⁿ for n works that each get so far with chance q, in a form that does not lose small chances.
    return float(-np.expm1(-reach * again ** (most - begin)))
