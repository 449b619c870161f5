"""Timeout against retry: an outer limit shorter than what it limits.

Exact, where deadlines are recorded: attempts made after the deadline of their work. Exact, where launchers say so: a job
that burned all its restarts, every attempt ended by a timeout: doing the same again under the same limit cannot help.

Tested, where only durations are known: a spike of the durations of attempts that did not complete, at a constant that
nobody told. Statistic: attempts that end within a narrow window behind a duration. Null hypothesis: durations around it
are spread smoothly, so as many fall into it as its width has of its surroundings (Poisson; the surroundings are less
than a factor away). Every duration seen, and every round one, is tried with three widths; the chance is corrected for all.
A limit that ends attempts which then get through when tried again is no mismatch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.amplification import roots
from taut.control.job_attempts import Jobs, jobs
from taut.control.relation import Relation, spell

KIND = "timeout mismatch"
WIDTHS = (0.001, 0.004, 0.016)
"""Widths of the window, as parts of the duration."""
AROUND = 1.25
"""The surroundings reach this factor up and down."""
LEAST = 5
"""Fewer attempts make no spike."""
ROUND = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 16, 18, 20, 24, 25, 30, 36, 40, 45, 48, 50)
"""Limits are configured in round numbers of these, in tens of them, and in these units."""
UNITS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0, 86400.0)
ENDED = re.compile(r"time[sd]?[ -]?out|deadline|time limit", re.I)
DONE = ("completed", "kept", "running", "pending")
"""Outcomes of attempts that no limit ended."""
MOST_TARGETS = 50
"""Targets that are looked at, those with the most attempts."""
LEAST_CHANCE = 1e-300
"""Less than this is not told apart from zero."""
MOST = 200_000
"""Of more durations than this a sample is scanned, evenly taken: a spike is a share of them."""


@dataclass(frozen=True)
class Spike:
    """Durations that end at a constant."""

    at: float
    """The constant, in the unit of the durations."""
    width: float
    count: int
    usual: float
    """How many the surroundings would put there."""
    p: float
    """Corrected for everything that was tried."""


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Deadlines, burned restarts, and spikes."""
    found = jobs(log.attempts)
    return _deadlines(log) + _burned(log, found) + _spikes_of_jobs(log, found) + _spikes_of_actions(log)


def _deadlines(log: Log) -> list[Relation]:
    """Attempts that were made when the work was already too late, by target."""
    has = (log.deadline_ns >= 0) & (log.attempt > 0)
    retries = np.bincount(log.target[has] + 1, minlength=len(log.words["target"]) + 1)
    out = []
    for late in log.groups(log.target, np.flatnonzero(has & (log.time_ns > log.deadline_ns)), most=MOST_TARGETS):
        retried = int(retries[log.target[late[0]] + 1])
        over = float(np.median(log.time_ns[late] - log.deadline_ns[late]))
        names = [log.word("controller", c) for c in dict.fromkeys(log.controller[late].tolist())]
        target = log.word("target", int(log.target[late[0]]))
        because = (
            f"{len(late)} of {retried} retries at {target} began after the deadline of their work, {spell(over)} late at "
            f"the median: the attempts and pauses allowed together take longer than the outer deadline"
        )
        out.append(Relation(KIND, tuple(names), target, "timeout", len(late), len(late) / retried, None, because,
                            *log.cost(late)))  # fmt: skip
    return out


def _burned(log: Log, found: Jobs) -> list[Relation]:
    """Jobs that ended with no restart left, every attempt ended by a timeout."""
    left = log.attempts.restarts_left[found.rows]
    words = [f"{reason} {outcome}" for reason, outcome in zip(
        log.attempts.reason[found.rows].tolist(), log.attempts.outcome[found.rows].tolist(), strict=True)]  # fmt: skip
    out = []
    for last in np.flatnonzero(found.last & (left == 0)).tolist():
        mine = np.flatnonzero(found.job == found.job[last])
        if len(mine) < 2 or not all(ENDED.search(words[k]) for k in mine) or any(found.outcome[k] in DONE for k in mine):
            continue
        took = found.took_ns[mine][found.known[mine]]
        name = found.names[int(found.job[last])]
        who = tuple(
            log.word("controller", c)
            for c in dict.fromkeys(log.controller[log.holding("work", f"^{re.escape(name)}$")].tolist())
        )
        limits = log.attempts.columns.get("limit_ns", np.full(len(log.attempts), -1))[found.rows[mine]]
        limit = f" of {spell(limits.max())}" if limits.max() > 0 else _named(words[mine[0]])
        because = (
            f"all {len(mine)} attempts of {name} were ended by a timeout{limit}, after {spell(float(np.median(took)))} at the "
            f"median, and no restart is left: what they waited for takes longer than the timeout, which restarts do not change"
        )
        out.append(Relation(KIND, who, name, "timeout", len(mine), float(len(mine)), None, because, found.rank_ns(mine)))
    return out


def _named(reason: str) -> str:
    """The limit as the log words it."""
    found = re.search(r"(\d{1,12}(?:\.\d{1,6})?) ?(ms|s|sec|seconds|min|minutes|h|hours)\b", reason)
    return f" of {found[1]} {found[2]}" if found else ""


def _spikes_of_jobs(log: Log, found: Jobs) -> list[Relation]:
    ended = found.known & ~np.isin(found.outcome, DONE) & (~found.last | (found.outcome != ""))
    took = found.took_ns[ended].astype(np.float64) / 1e9
    spikes = constants(took, listed=False)
    if not spikes:
        return []
    out = []
    for spike in spikes:
        mine = (took >= spike.at) & (took < spike.at + spike.width)
        rows = np.flatnonzero(ended)[mine]
        again = int((~found.last[rows]).sum())
        because = (
            f"{spike.count} attempts ended within {spell(spike.width * 1e9)} after {_limit(spike.at)}, where the durations "
            f"around it would put {spike.usual:.2g}: a limit of {_limit(spike.at)} that the log does not name ends attempts, "
            f"and {again} of them were started again{_clusters(found)}"
        )
        out.append(
            Relation(KIND, log.launchers(), "", "time limit", spike.count, spike.at, spike.p, because, found.rank_ns(rows))
        )
    return out


def _spikes_of_actions(log: Log) -> list[Relation]:
    """The same for attempts as actions tell them, by target: a limit that nobody named, or one that retries run into again."""
    kept = log.holding("outcome", rf"^({'|'.join(DONE)})$")
    told = log.holding("trigger", ENDED.pattern) | log.holding("outcome", ENDED.pattern)
    tried = (log.busy_ns > 0) & (log.attempt >= 0) & (log.outcome >= 0) & ~log.of_job
    work = roots(log)
    out = []
    for rows in log.groups(log.target, np.flatnonzero(tried & ~kept), 4 * LEAST, MOST_TARGETS):
        took = log.busy_ns[rows].astype(np.float64) / 1e9
        for spike in constants(took, listed=False):
            mine = rows[(took >= spike.at) & (took < spike.at + spike.width)]
            again, of = _again(log, work, np.flatnonzero(tried & (log.target == log.target[rows[0]])), mine)
            if (of and 2 * again <= of) or (not of and (told[mine].any() or (work[mine] >= 0).any())):
                continue
            names = [log.word("controller", c) for c in dict.fromkeys(log.controller[mine].tolist())]
            target = log.word("target", int(log.target[rows[0]]))
            because = (
                f"{spike.count} attempts at {target} ended within {spell(spike.width * 1e9)} after {_limit(spike.at)}, where "
                f"the durations around it would put {spike.usual:.2g}: a timeout of {_limit(spike.at)} ends them"
                + (f", and {again} of {of} that were tried again ended there again" if of else "")
            )
            out.append(
                Relation(KIND, tuple(names), target, "timeout", spike.count, spike.at, spike.p, because, *log.cost(mine))
            )
    return out


def _again(log: Log, work: Any, rows: Any, ended: Any) -> tuple[int, int]:
    """Of the attempts that ended at the limit, how many had a next one at the same work, and how many of those ended there."""
    rows = rows[work[rows] >= 0]
    order = rows[np.lexsort((log.time_ns[rows], log.attempt[rows], work[rows]))]
    if len(order) < 2:
        return 0, 0
    there = np.isin(order, ended)
    followed = there[:-1] & (np.diff(work[order]) == 0)
    return int((followed & there[1:]).sum()), int(followed.sum())


def _limit(seconds: float) -> str:
    """A limit in the largest unit in which it is round."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-9:
            return f"{seconds / size:.0f} {unit}" + (f" ({seconds / 60:.0f} min)" if unit == "h" else "")
    return spell(seconds * 1e9)


def constants(took_s: Any, listed: bool = True) -> list[Spike]:
    """The spike of durations that stands out most, a round constant rather than another as sure; none if too few.

    ``listed`` leaves it out where chance would explain it (5 %).
    """
    took = np.sort(took_s[took_s > 0])
    took = took[:: -(-len(took) // MOST)] if len(took) > MOST else took
    if len(took) < 4 * LEAST:
        return []
    free, fixed = _scan(took, took, own=1), _scan(took, rounds(took[0], took[-1]), own=0)
    best = [spike for spike in (fixed, free) if spike is not None]
    if not best:
        return []
    # A round constant as good as certain is the configured one, even if a window that begins elsewhere catches more; not if
    # that one catches most: a moment in which a client was held up makes a heap of its own somewhere above the limit.
    by_name = len(best) == 2 and best[0].p <= max(2 * best[1].p, 1e-6) and 2 * best[0].count >= best[1].count
    chosen = best[0] if by_name else min(best, key=lambda spike: spike.p)
    spike = Spike(chosen.at, chosen.width, chosen.count, chosen.usual, min(1.0, max(2 * chosen.p, LEAST_CHANCE)))
    return [spike] if not listed or spike.p <= 0.05 else []


def rounds(low: float, high: float) -> Any:
    """Round durations between two, in seconds."""
    every = np.unique(np.round(np.outer(ROUND, UNITS_S).ravel(), 6))
    return every[(every >= low) & (every <= high)]


def _scan(took: Any, starts: Any, own: int) -> Spike | None:
    """The surest window that begins at one of the starts; a start that is a duration itself does not count (``own``)."""
    from scipy.special import gammainc

    resolution = _resolution(took)
    best: Spike | None = None
    for width in WIDTHS:
        size = np.maximum(starts * width, resolution)
        count = _between(took, starts, starts + size)
        low, high = starts / AROUND, starts * AROUND
        # What lies just beside the window may belong to the spike: it is left out of the surroundings.
        near_low, near_high = starts - size, starts + 2 * size
        around = _between(took, low, near_low) + _between(took, near_high, high)
        room = np.maximum(near_low - low, 0) + np.maximum(high - near_high, 0)
        usual = (around + 1) * size / np.maximum(room, size)
        rest = count - own
        chance = np.where(rest > 0, gammainc(np.maximum(rest, 1), usual), 1.0)
        chance = np.where((count >= LEAST) & (room > size), chance, 1.0)
        k = int(np.argmin(chance)) if len(chance) else 0
        p = min(1.0, float(chance[k]) * len(starts) * len(WIDTHS)) if len(chance) else 1.0
        if len(chance) and count[k] >= LEAST and (best is None or p < best.p):
            best = Spike(float(starts[k]), float(size[k]), int(count[k]), float(usual[k]), p)
    return best


def _between(took: Any, low: Any, high: Any) -> Any:
    return np.maximum(np.searchsorted(took, high) - np.searchsorted(took, low), 0)


def _resolution(took: Any) -> float:
    """The ticks in which durations are recorded: the smallest difference seen."""
    step = np.diff(took)
    step = step[step > 1e-9]
    return float(step.min()) if len(step) else 0.0


def _clusters(found: Jobs) -> str:
    """How long after an attempt the next begins, if that heaps up in places."""
    peaks = heaps(found.gaps_ns() / 1e9)
    return (
        f"; the next attempt begins {' or '.join(f'about {spell(at * 1e9)} ({n} times)' for at, n in peaks)} later"
        if peaks
        else ""
    )


def heaps(gaps_s: Any) -> list[tuple[float, int]]:
    """Peaks of the density of the logarithm of gaps: (place, gaps around it), if at least two stand apart.

    A peak holds at least a tenth of the gaps, and the density falls to half of the lower one between two of them.
    """
    gaps = np.sort(np.log10(np.maximum(gaps_s, 1.0)))
    if len(gaps) < 50:
        return []
    places = np.linspace(gaps[0], gaps[-1] + 1e-9, 256)
    # A tenth of a decade is what separates delays a person would call different.
    density = np.exp(-0.5 * ((places[:, None] - gaps[None, :: max(1, len(gaps) // 5000)]) / 0.1) ** 2).mean(axis=1)
    tops = [k for k in range(256) if density[k] == density[max(0, k - 5) : k + 6].max()]
    kept: list[int] = []
    for k in sorted(tops, key=lambda k: -density[k]):
        if all(density[min(k, j) : max(k, j) + 1].min() <= 0.5 * density[k] for j in kept):
            kept.append(k)
    out = []
    for k in sorted(kept):
        near = int((np.abs(gaps - places[k]) <= 0.2).sum())
        if near >= 0.1 * len(gaps):
            out.append((float(10 ** places[k]), near))
    return out if len(out) > 1 else []
