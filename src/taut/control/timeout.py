"""Timeout against retry: an outer limit shorter than what it limits.

Exact, where deadlines are recorded: attempts made after the deadline of their work. Exact, where launchers say so: a job
that burned all its restarts, every attempt ended by a timeout: doing the same again under the same limit cannot help.

Tested, where only durations are known: a spike of the durations of attempts that did not complete, at a constant that
nobody told. Statistic: attempts that end within a narrow window behind a duration. Null hypothesis: durations around it
are spread smoothly, so as many fall into it as its width has of its surroundings (Poisson; the surroundings are less
than a factor away). Every duration seen, and every round one, is tried with three widths; the chance is corrected for all.
A limit that ends attempts which then get through when tried again is no mismatch.

Of jobs only attempts count that were started again, and whose outcome names no cause: who was preempted, cancelled, or ran
out of a limit that the log names was not ended by a hidden one. What ends within seconds failed before it began. Attempts
of one job or array that end alike fail at the same point, and attempts that end alike at one moment were ended by one event
(a maintenance, a failed node): either counts once. A scheduler that starts and takes away on a cycle makes heaps at its
multiples: where the durations are periodic (Rayleigh, 1 %), each is spread over the period, so that only what stands out
from several cycles is left; where outcomes are not told, what lasts a few cycles at most says nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, joined, since, spell, thing
from taut.core.array_types import Codes, Floats, Ints, Mask

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
CAUSE = re.compile(rf"{ENDED.pattern}|preempt|evict|cancel|requeue|oom|out of memory|node|exit code 124\b", re.I)
"""Reasons that name who or what ended an attempt; 124 is what ``timeout`` exits with."""
FAILED = "failed"
GOLDEN = 0.6180339887498949
DONE = ("completed", "kept", "running", "pending")
"""Outcomes of attempts that no limit ended."""
MOST_TARGETS = 50
"""Targets that are looked at, those with the most attempts."""
LEAST_CHANCE = 1e-300
"""Less than this is not told apart from zero."""
FLOOR_S = 30.0
"""Attempts of jobs that end sooner failed before they began: no limit is that short."""
UNTOLD_S = 600.0
"""The same where no outcome is told: it may be a few cycles of a scheduler that preempts."""
MOMENT_NS = 2_000_000_000
"""Attempts that end within this time were ended by one event."""
ALIKE = 1.02
"""Durations of one job within this factor are one."""
PERIODS_S = (10.0, 900.0)
"""Cycles of schedulers lie between these."""
CYCLES = (3, 60)
"""Durations of so many cycles are asked: with fewer anything smooth has a phase, with more a clock that drifts has none."""
PERIODIC = 0.01
"""Chance from which durations count as periodic."""
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

    def holds(self, took: Floats) -> Mask:
        """Which durations are in it."""
        return (took >= self.at) & (took < self.at + self.width)


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """Deadlines, jobs out of restarts, and spikes."""
    return _deadlines(log) + _out_of_restarts(log) + _spikes_of_jobs(log) + _spikes_of_actions(log)


def done(log: Log) -> Mask:
    """Mask of the actions that no limit ended."""
    return log.matching("outcome", rf"^({'|'.join(DONE)})$")


def _deadlines(log: Log) -> list[Relation]:
    """Attempts that were made when the work was already too late, by target."""
    has = (log.deadline_ns >= 0) & (log.attempt > 0)
    retries = np.bincount(log.target[has] + 1, minlength=len(log.words["target"]) + 1)
    out = []
    for late in log.groups(log.target, np.flatnonzero(has & (log.time_ns > log.deadline_ns)), most=MOST_TARGETS):
        retried = int(retries[log.target[late[0]] + 1])
        over = float(np.median(log.time_ns[late] - log.deadline_ns[late]))
        names, target = log.controllers(late), log.name("target", late[0])
        because = (
            f"{joined(names)} began {len(late)} of {retried} retries at {thing(target)} after the deadline of the request, "
            f"{spell(over)} late at the median; attempts and pauses may take longer than the deadline allows, so that these "
            f"retries are for nothing"
        )
        share = len(late) / retried
        out.append(Relation(KIND, names, target, "timeout", len(late), share, None, because, *log.cost(late)))
    return out


def _out_of_restarts(log: Log) -> list[Relation]:
    """Jobs that ended with no restart left, every attempt ended by a timeout."""
    jobs, table = log.jobs, log.trace.attempts
    words = [f"{reason} {outcome}" for reason, outcome in zip(table.reason[jobs.rows], jobs.outcome, strict=True)]
    out = []
    for last in np.flatnonzero(jobs.last & (table.restarts_left[jobs.rows] == 0)).tolist():
        mine = np.flatnonzero(jobs.job == jobs.job[last])
        if len(mine) < 2 or not all(ENDED.search(words[k]) and jobs.outcome[k] not in DONE for k in mine):
            continue
        name = jobs.names[int(jobs.job[last])]
        who = log.controllers(log.matching("work", f"^{re.escape(name)}$"))
        limit_ns = table.limit_ns[jobs.rows[mine]].max()
        limit = f" of {spell(limit_ns)}" if limit_ns > 0 else _named_limit(words[mine[0]])
        took = float(np.median(jobs.took_ns[mine][jobs.known[mine]]))
        because = (
            f"all {len(mine)} attempts of {thing(name)} were ended by a timeout{limit}, after {spell(took)} at the median; no "
            f"restart is left{' to ' + joined(who) if any(who) else ''}, and restarts cannot help: what the attempts wait for "
            f"takes longer than the timeout{since(jobs.end_ns[mine])}; raise the timeout above it, or mend what stalls"
        )
        out.append(Relation(KIND, who, name, "timeout", len(mine), float(len(mine)), None, because, jobs.rank_ns(mine)))
    return out


def _named_limit(reason: str) -> str:
    """The limit as the log words it."""
    found = re.search(r"(\d{1,12}(?:\.\d{1,6})?) ?(ms|s|sec|seconds|min|minutes|h|hours)\b", reason)
    return f" of {found[1]} {found[2]}" if found else ""


def _ended_there(spike: Spike, what: str) -> str:
    return (
        f"{spike.count} {what} ended within {spell(spike.width * 1e9)} after {_limit(spike.at)}, where the durations around it "
        f"would put {spike.usual:.2g}"
    )


def _spikes_of_jobs(log: Log) -> list[Relation]:
    jobs = log.jobs
    unnamed = np.isin(jobs.outcome, ("", FAILED)) & ~_says_why(log)
    floor_s = np.where(jobs.outcome == FAILED, FLOOR_S, UNTOLD_S)
    ended = np.flatnonzero(jobs.known & ~jobs.last & unnamed & (jobs.took_ns >= floor_s * 1e9))
    took = jobs.took_ns[ended] / 1e9
    at = np.argsort(jobs.end_ns[ended])
    event = np.empty(len(ended), dtype=np.int64)
    event[at] = np.cumsum(np.diff(jobs.end_ns[ended][at], prepend=0) > MOMENT_NS)
    apart = took[_one_of_each(jobs.array[ended], took) & _one_of_each(event, took)]
    out = []
    for spike in _beside_cycles(apart):
        rows = ended[spike.holds(took)]
        who, count = log.launchers(), len(rows)
        _, usual, _ = _usual(np.sort(took), np.array([spike.at]), np.array([spike.width]))
        all_of_it = replace(spike, count=count, usual=float(usual[0]))
        of = len(np.unique(jobs.job[rows]))
        because = (
            f"{_ended_there(all_of_it, 'attempts of jobs')}{since(jobs.end_ns[rows])}; a limit of {_limit(spike.at)} "
            f"that the log does not name ends them, and all {count} were started again"
            f"{' by ' + joined(who) if any(who) else ''} under the same limit: {of} jobs did up to "
            f"{spell(float(jobs.took_ns[rows].sum()))} of work for nothing; look for what stops a job after {_limit(spike.at)} "
            f"(a watchdog, a session or token that expires, a collective's timeout)"
            f"{_next_attempts(jobs.gaps_ns() / 1e9)}"
        )
        out.append(Relation(KIND, who, "", "time limit", count, spike.at, spike.p, because, jobs.rank_ns(rows)))
    return out


def _says_why(log: Log) -> Mask:
    """Attempts of jobs whose reason names what ended them."""
    reason = log.trace.attempts.reason[log.jobs.rows].tolist()
    named = {text: CAUSE.search(text) is not None for text in set(reason)}
    return np.array([named[text] for text in reason], dtype=np.bool_)


def _one_of_each(of: Ints | Codes, took: Floats) -> Mask:
    """Which durations to count: those of one group that are alike only once."""
    order = np.lexsort((took, of))
    of, took = of[order], took[order]
    new = np.ones(len(took), dtype=np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (took[1:] > ALIKE * took[:-1])
    out = np.empty(len(took), dtype=np.bool_)
    out[order] = new
    return out


def _beside_cycles(took: Floats) -> list[Spike]:
    """The spike of durations; where all others are multiples of a cycle, of those spread over it."""
    found = constants(took, listed=False, least=2 * LEAST)
    period = period_of(took[~found[0].holds(took)]) if found else 0.0
    if not period:
        return found
    order = np.argsort(took, kind="stable")
    spread = took.copy()
    spread[order] += period * ((np.arange(len(took)) * GOLDEN) % 1 - 0.5)  # evenly, and never by chance
    return constants(spread, listed=False, least_width=period, least=2 * LEAST)


def period_of(took: Floats) -> float:
    """The period of which durations are multiples, in seconds; 0 if they are of none.

    Rayleigh's test over periods so close that neighbours are alike, each on durations of some cycles.
    """
    step = 1 + 1 / (4 * CYCLES[1])
    periods = PERIODS_S[0] * step ** np.arange(int(np.log(PERIODS_S[1] / PERIODS_S[0]) / np.log(step)))
    took = np.sort(took)
    score = np.zeros(len(periods))
    for k, period in enumerate(periods.tolist()):
        low, high = np.searchsorted(took, (CYCLES[0] * period, CYCLES[1] * period))
        if high - low >= 2 * LEAST:
            near = took[low : high : -(-(high - low) // 2000)]
            score[k] = np.abs(np.exp(2j * np.pi * near / period).sum()) ** 2 / len(near)
    best = float(score.max(initial=0.0))
    if best < np.log(len(periods) / PERIODIC):
        return 0.0
    return float(periods[np.flatnonzero(score >= 0.7 * best)[-1]])  # a comb is also one of each half of its period


def _spikes_of_actions(log: Log) -> list[Relation]:
    """The same for attempts as actions tell them, by target: a limit that nobody named, or one that retries run into again."""
    named = log.matching("trigger", ENDED.pattern) | log.matching("outcome", ENDED.pattern)
    tried = (log.busy_ns > 0) & (log.attempt >= 0) & (log.outcome >= 0) & ~log.of_job
    out = []
    for rows in log.groups(log.target, np.flatnonzero(tried & ~done(log)), 4 * LEAST, MOST_TARGETS):
        took = log.busy_ns[rows] / 1e9
        for spike in constants(took, listed=False):
            mine = rows[spike.holds(took)]
            again, of = _again(log, np.flatnonzero(tried & (log.target == log.target[rows[0]])), mine)
            if (of and 2 * again <= of) or (not of and (named[mine].any() or (log.root[mine] >= 0).any())):
                continue
            names, target = log.controllers(mine), log.name("target", rows[0])
            because = (
                f"{_ended_there(spike, f'attempts of {joined(names)} at {thing(target)}')}; a timeout of {_limit(spike.at)} "
                f"ends them" + (f", and {again} of {of} that were tried again ended there again" if of else "")
            )
            out.append(Relation(KIND, names, target, "timeout", spike.count, spike.at, spike.p, because, *log.cost(mine)))
    return out


def _again(log: Log, rows: Ints, ended: Ints) -> tuple[int, int]:
    """Of the attempts that ended at the limit, how many had a next one that ended there too, and how many had one at all."""
    rows = rows[log.root[rows] >= 0]
    order = rows[np.lexsort((log.time_ns[rows], log.attempt[rows], log.root[rows]))]
    there = np.isin(order, ended)
    followed = there[:-1] & (np.diff(log.root[order]) == 0)
    return int((followed & there[1:]).sum()), int(followed.sum())


def _limit(seconds: float) -> str:
    """A limit in the largest unit in which it is round."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size and abs(seconds / size - round(seconds / size)) < 1e-9:
            return f"{seconds / size:.0f} {unit}" + (f" ({seconds / 60:.0f} min)" if unit == "h" else "")
    return spell(seconds * 1e9)


def constants(took_s: Floats, listed: bool = True, least_width: float = 0.0, least: int = 4 * LEAST) -> list[Spike]:
    """The spike of durations that stands out most, a round constant rather than another as sure; none if too few.

    ``listed`` leaves it out where chance would explain it (5 %); no window is narrower than ``least_width``, and
    of fewer durations than ``least`` nothing is claimed.
    """
    took = np.sort(took_s[took_s > 0])
    took = took[:: -(-len(took) // MOST)] if len(took) > MOST else took
    if len(took) < least:
        return []
    free, fixed = _scan(took, took, 1, least_width), _scan(took, rounds(took[0], took[-1]), 0, least_width)
    best = [spike for spike in (fixed, free) if spike is not None]
    if not best:
        return []
    # A round constant as good as certain is the configured one, even if a window that begins elsewhere catches more; not if
    # that one catches most: a moment in which a client was held up makes a heap of its own somewhere above the limit.
    by_name = len(best) == 2 and best[0].p <= max(2 * best[1].p, 1e-6) and 2 * best[0].count >= best[1].count
    chosen = best[0] if by_name else min(best, key=lambda spike: spike.p)
    spike = replace(chosen, p=min(1.0, max(2 * chosen.p, LEAST_CHANCE)))
    return [spike] if not listed or spike.p <= 0.05 else []


def rounds(low: float, high: float) -> Floats:
    """Round durations between two, in seconds."""
    every = np.unique(np.round(np.outer(ROUND, UNITS_S).ravel(), 6))
    return every[(every >= low) & (every <= high)]


def _scan(took: Floats, starts: Floats, own: int, least_width: float) -> Spike | None:
    """The surest window that begins at one of the starts; a start that is a duration itself does not count (``own``)."""
    from scipy.special import gammainc

    step = np.diff(took)
    resolution = float(step[step > 1e-9].min(initial=np.inf))  # the ticks in which durations are recorded
    resolution = max(resolution if np.isfinite(resolution) else 0.0, least_width)
    best: Spike | None = None
    for width in WIDTHS if len(starts) else ():
        size = np.maximum(starts * width, resolution)
        count, usual, room = _usual(took, starts, size)
        rest = count - own
        # P(Poisson(usual) ≥ rest) is the regularised lower incomplete gamma function.
        chance = np.where(rest > 0, gammainc(np.maximum(rest, 1), usual), 1.0)
        chance = np.where((count >= LEAST) & (room > size), chance, 1.0)
        k = int(np.argmin(chance))
        p = min(1.0, float(chance[k]) * len(starts) * len(WIDTHS))
        if count[k] >= LEAST and (best is None or p < best.p):
            best = Spike(float(starts[k]), float(size[k]), int(count[k]), float(usual[k]), p)
    return best


def _usual(took: Floats, starts: Floats, size: Floats) -> tuple[Ints, Floats, Floats]:
    """How many durations are in each window, how many its surroundings would put there, and how much room these have."""
    low, high = starts / AROUND, starts * AROUND
    # What lies just beside the window may belong to the spike: it is left out of the surroundings.
    near_low, near_high = starts - size, starts + 2 * size
    around = _between(took, low, near_low) + _between(took, near_high, high)
    room = np.maximum(near_low - low, 0) + np.maximum(high - near_high, 0)
    # One more than were seen: none is no proof of none.
    return _between(took, starts, starts + size), (around + 1) * size / np.maximum(room, size), room


def _between(took: Floats, low: Floats, high: Floats) -> Ints:
    count: Ints = np.maximum(np.searchsorted(took, high) - np.searchsorted(took, low), 0)
    return count


def _next_attempts(gaps_s: Floats) -> str:
    """How long after an attempt the next begins, if that heaps up in places."""
    peaks = [f"about {spell(at * 1e9)} ({n} times)" for at, n in heaps(gaps_s)]
    return f"; the next attempt begins {' or '.join(peaks)} later" if peaks else ""


def heaps(gaps_s: Floats) -> list[tuple[float, int]]:
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
