"""Starvation: a work that is preempted or postponed again and again while others get through.

Statistic: the most preemptions of one work. Null hypothesis: each time it runs again, a work is preempted with the same
chance as every other that came so far, so the tail of preemptions per work is geometric; the chance that the largest is as
large. Many preemptions spread over many works are therefore no starvation, however many they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.job_attempts import Jobs, jobs
from taut.control.relation import Relation

KIND = "starvation"
WORDS = r"preempt|evict|requeue|postpone|defer|displac|starv"
"""What pushes a work back."""
MOST = 20
"""Controllers that are looked at, the busiest."""
LEAST = 5
"""Fewer preemptions of one work are a few."""
TAIL = 20
"""Works that must reach a count for the tail to begin there: long works are preempted more often than short ones."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """The works pushed back most, as actions tell it, by controller; as the attempts of jobs do, where no action does."""
    pushed, work = pushed_back(log)
    out = []
    held = jobs(log.attempts)
    for rows in log.groups(log.controller + 1, pushed, LEAST, MOST):
        others = len(np.unique(work[(work >= 0) & (log.knob == log.knob[rows[0]])]))
        names, counts = np.unique(work[rows], return_counts=True)
        out.append(_tested(log, rows, names, counts, max(others, len(names)), work, held))
    return [found for found in out if found] or _of_jobs(log)


def pushed_back(log: Log) -> tuple[Any, Any]:
    """Rows that push a work back, and the work of every row."""
    back = np.zeros(len(log), dtype=bool)
    for column in ("knob", "after", "trigger", "outcome"):
        back |= log.holding(column, WORDS)
    work = _works(log)
    return np.flatnonzero(back & (log.direction <= 0) & (work >= 0)), work


def _works(log: Log) -> Any:
    """The work of each action: what it names, else its target, under the same number if both have one name."""
    known = {word: number for number, word in enumerate(log.words["work"])}
    number = [known.get(word, len(known) + k) for k, word in enumerate(log.words["target"])] + [-1]
    return np.where(log.work >= 0, log.work, np.array(number, dtype=np.int64)[log.target])


def _of_jobs(log: Log) -> list[Relation]:
    found = jobs(log.attempts)
    preempted = np.array([word == "preempted" for word in found.outcome.tolist()], dtype=bool)
    if preempted.sum() < LEAST:
        return []
    counts = np.bincount(found.job[preempted], minlength=found.count)
    worst = int(np.argmax(counts))
    if counts[worst] < LEAST:
        return []
    lost = found.rank_ns(np.flatnonzero(preempted & (found.job == worst)))
    p = longest(counts, found.count)
    return [_relation((), found.names[worst], int(counts[worst]), int(counts.sum()), found.count, p, lost, None)]


def _tested(log: Log, rows: Any, names: Any, counts: Any, works: int, work: Any, held: Jobs) -> Relation | None:
    worst = int(np.argmax(counts))
    if counts[worst] < LEAST:
        return None
    mine = rows[work[rows] == names[worst]]
    row = int(mine[0])
    name = log.word("work", int(log.work[row])) or log.word("target", int(log.target[row]))
    who = _pushed(log, mine)
    p = longest(counts, works)
    rank_ns, tokens = log.cost(mine)
    lost = held.rank_ns(held.ended_at(name, log.time_ns[mine]))
    cost = rank_ns if lost is None else lost
    return _relation((who,) if who else (), name, int(counts[worst]), int(counts.sum()), works, p, cost, tokens)


def _pushed(log: Log, rows: Any) -> str:
    """Who pushed a work back. An attempt only answers that; whoever last took something from its target did it."""
    did = rows[log.attempt[rows] < 0]
    if len(did):
        return log.word("controller", int(log.controller[did[0]]))
    taken = np.flatnonzero(
        (log.direction < 0) & (log.target == log.target[rows[0]]) & (log.attempt < 0) & (log.controller >= 0)
    )
    before = np.searchsorted(taken, rows) - 1
    if not len(taken) or (before < 0).all():
        return log.word("controller", int(log.controller[rows[0]]))
    who, times = np.unique(log.controller[taken[before[before >= 0]]], return_counts=True)
    return log.word("controller", int(who[np.argmax(times)]))


def _relation(
    who: tuple[str, ...], name: str, most: int, total: int, works: int, p: float, rank_ns: int | None, tokens: int | None
) -> Relation:
    because = (
        f"{'job ' if name.isdigit() else ''}{name} was preempted {most} of {total} times; {works} jobs were there, "
        f"{total / works:.2g} preemptions each on average: with equal chances, one log in {1 / max(p, 1e-12):.3g} has a job "
        "that is preempted so often"
    )
    return Relation(KIND, who, name, "preemption", int(most), most / max(total / works, 1e-9), p, because, rank_ns, tokens)


def longest(counts: Any, works: int) -> float:
    """Chance that one of the works is pushed back as often as the most unlucky one, if the tail goes on as it begins.

    ``counts`` are those of works that were pushed back at all. The tail begins at the highest count that enough works
    reach; from there on each is pushed back once more with the same chance, which those works tell.
    """
    most, reach, begin = int(counts.max()), works, 0
    for level in range(1, most):
        here = int((counts >= level).sum())
        if here < TAIL:
            break
        reach, begin = here, level
    beyond = int(np.maximum(counts - begin, 0).sum())
    again = beyond / (beyond + reach)
    return float(-np.expm1(-reach * again ** (most - begin)))
