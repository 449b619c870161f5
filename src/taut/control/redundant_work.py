"""Redundant work: attempts whose result nobody used, each counted once. Listed from 3 % of what all attempts took.

Of actions: lost hedges, duplicates, and attempts in whose place another was made, where the log says so: numbers alone do
not tell a retry of what failed from work done twice. Exact accounting: no test.

Of jobs: attempts that were started again although they fail again. Restarts alone are none: what was preempted, lost its
node, was cancelled, ran to its limit or went on from where it was saved is explained, and so is an attempt whose cause is not
told if another job was started before it came again: its place had been given away. What led to a completed job was not for
nothing. Two tests of what is left, the smaller chance doubled:

- *Again.* Null hypothesis: failures are independent, so that what was started again fails no more often than first attempts
  do (Fisher's exact test). What lies above must be 3 % of the time.
- *At the same point.* Null hypothesis: failures come without memory, so that of two attempts, one after the other, the longer
  lasts at most a tenth longer than the other with a chance of 4.8 %, however long they last; the number of such pairs.

Work that could not be tested is not listed: the ledger of attempts has its hours.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from taut.control.action_log import Log
from taut.control.job_attempts import SECOND, Jobs
from taut.control.relation import Relation, joined, since, spell, thing
from taut.core.array_types import Floats, Mask
from taut.core.reporting import LISTED_SHARE
from taut.core.tables import Table

KIND = "redundant work"
INSTEAD = ("attempt", "model")
"""Knobs of actions that take the place of the attempt before."""
THROWN = ("duplicate", "lost")
"""Outcomes of attempts that nobody uses."""
MILLISECOND = 1_000_000
HOUR_NS = 3_600_000_000_000
MOST = 20
"""Targets that are listed."""
EXPLAINED = ("completed", "preempted", "node failed", "cancelled", "timed out", "running", "pending")
"""Outcomes after which an attempt comes again for a reason that is told."""
OWN = ("failed", "out of memory")
"""Outcomes of an attempt that failed by itself."""
ALIKE = 1.1
"""Attempts that last no longer than so many times each other failed at the same point."""
FINENESS = 10
"""Attempts shorter than so many units of the log's times cannot be told apart by a tenth."""


def thrown_away(log: Log) -> Mask:
    """Mask over the actions: attempts whose result nobody used."""
    gone = log.matching("outcome", rf"^({'|'.join(THROWN)})$")
    instead = log.matching("knob", rf"^({'|'.join(INSTEAD)})$") & (log.recorded_parent >= 0)
    gone[log.recorded_parent[instead]] = True
    return gone


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """By target, the costliest first; then jobs."""
    gone, counts = thrown_away(log) & ~log.of_job, log.trace.counts
    busy, tokens = np.where(log.of_job, 0, np.maximum(log.busy_ns, 0)), np.maximum(log.tokens, 0)
    of_busy = max(counts.get("call ns", int(busy.sum())), 1)
    of_tokens = max(counts.get("tokens in", 0) + counts.get("tokens out", 0), int(tokens.sum()), 1)
    out = []
    for rows in log.groups(log.target, np.flatnonzero(gone)):
        share = float(max(busy[rows].sum() / of_busy, tokens[rows].sum() / of_tokens))
        if share < LISTED_SHARE:
            continue
        outcomes = Counter(log.outcome[rows].tolist())
        kinds = ", ".join(f"{n} {log.word('outcome', code) or 'thrown away'}" for code, n in outcomes.items())
        names, target = log.controllers(rows), log.name("target", rows[0])
        because = (
            f"{joined(names)} made {len(rows)} attempts at {thing(target)} that nobody used ({kinds}): {share:.1%} of what all "
            f"attempts took was wasted"
        )
        out.append(Relation(KIND, names, target, "attempt", len(rows), share, None, because, *log.cost(rows)))
    return sorted(out, key=lambda r: -(r.statistic or 0.0))[:MOST] + _restarted(log)


def _ends(outcomes: list[str]) -> str:
    """How attempts ended, the most frequent first."""
    return ", ".join(f"{n:,} {word or 'not told why'}" for word, n in Counter(outcomes).most_common())


def _restarted(log: Log) -> list[Relation]:
    """Jobs that are started again although they fail again; an upper bound, because what was saved is not known here."""
    jobs, who = log.jobs, log.launchers()
    left = jobs.known & ~jobs.last & ~np.isin(jobs.outcome, EXPLAINED)
    if not left.any():
        return []
    vain = ~jobs.completed[jobs.job]
    lost = np.flatnonzero(left & vain)
    total, wasted = jobs.held_ns(np.flatnonzero(jobs.known)), jobs.held_ns(lost)
    if not wasted or wasted < LISTED_SHARE * total:
        return []
    again = _again(jobs, _progressed(log.trace.attempts, jobs))
    share = jobs.held_ns(np.flatnonzero(again & jobs.known & vain)) / total
    if share < LISTED_SHARE:
        return []
    failed, tried, first_failed, first_tried, p_again = _more_than_first(jobs, again, share)
    alike, pairs, p_alike = _same_point(jobs, again)
    whole = f"{total / HOUR_NS:,.0f} hours" if total >= 100 * HOUR_NS else spell(total)
    count = len(np.unique(jobs.job[lost]))
    because = (
        f"{count} of {len(jobs.names)} jobs were restarted{' by ' + joined(who) if any(who) else ''}: up to "
        f"{wasted / total:.1%} of the {whole} that attempts {'held accelerators' if jobs.counted else 'ran'} was done "
        f"again; so much lies in attempts that were not the last ({_ends(jobs.outcome[lost].tolist())}), if nothing was "
        f"saved of them{since(jobs.end_ns[lost])}; {failed:,} of {tried:,} that were started again failed again, where "
        f"{first_failed:,} of {first_tried:,} first attempts did, and {alike:,} of {pairs:,} pairs failed at the same point; "
        f"mend what fails before it is started again, and resume from checkpoints"
    )
    p = min(1.0, 2 * min(p_again, p_alike))
    return [Relation(KIND, who, "", "attempt", count, wasted / total, p, because, jobs.rank_ns(lost))]


def _progressed(attempts: Table, jobs: Jobs) -> Mask:
    """Attempts after which the next one of their job began at a later step: what they did was kept."""
    begun = np.where(attempts.resumed_step >= 0, attempts.resumed_step, attempts.first_step)[jobs.rows]
    out = np.zeros(len(begun), dtype=np.bool_)
    out[:-1] = ~jobs.last[:-1] & (begun[:-1] >= 0) & (begun[1:] > begun[:-1])
    return out


def _again(jobs: Jobs, progressed: Mask) -> Mask:
    """Attempts after which another was made, and nothing but their own failure explains that."""
    out = ~jobs.last & ~progressed & ~np.isin(jobs.outcome, EXPLAINED)
    untold = np.flatnonzero(out & (jobs.outcome == ""))
    starts = np.sort(jobs.start_ns[jobs.start_ns >= 0])
    since_ns = jobs.end_ns[untold] - SECOND
    others = np.searchsorted(starts, jobs.start_ns[untold + 1]) - np.searchsorted(starts, since_ns)
    out[untold] = jobs.known[untold] & (jobs.start_ns[untold + 1] >= 0) & (others - (jobs.start_ns[untold] >= since_ns) <= 0)
    return out


def _more_than_first(jobs: Jobs, again: Mask, share: float) -> tuple[int, int, int, int, float]:
    """(failures, attempts) of what was started again, and of first attempts; the chance of as many (Fisher)."""
    from scipy.special import gammaln

    failed = again | (jobs.last & np.isin(jobs.outcome, OWN))
    judged = failed | (jobs.outcome == "completed") | (jobs.last & (jobs.outcome == ""))
    follows = np.append(False, again[:-1])
    first = np.append(True, np.diff(jobs.job) != 0)
    a, n = int((failed & follows).sum()), int((judged & follows).sum())
    b, m = int((failed & first).sum()), int((judged & first).sum())
    above = 1 - (b / m) / (a / n) if a and m else 0.0
    if above * share < LISTED_SHARE:
        return a, n, b, m, 1.0

    def choose(of: Floats | int, some: Floats | int) -> Floats:
        ways: Floats = gammaln(of + 1.0) - gammaln(some + 1.0) - gammaln(of - some + 1.0)
        return ways

    k = np.arange(a, min(n, a + b) + 1, dtype=np.float64)
    return a, n, b, m, min(float(np.exp(choose(n, k) + choose(m, a + b - k) - choose(n + m, a + b)).sum()), 1.0)


def _same_point(jobs: Jobs, again: Mask) -> tuple[int, int, float]:
    """Pairs of attempts that lasted equally long, pairs of all, and the chance of as many."""
    from scipy.special import betainc

    bad = again | (jobs.last & np.isin(jobs.outcome, OWN))
    begins = np.flatnonzero(np.append(True, np.diff(jobs.job) != 0))
    place = np.arange(len(jobs.job)) - np.repeat(begins, np.diff(np.append(begins, len(jobs.job))))
    one = np.flatnonzero(again & jobs.known & (place % 2 == 0))  # no attempt is in two pairs
    one = one[bad[one + 1] & jobs.known[one + 1]]
    took = np.stack([jobs.took_ns[one], jobs.took_ns[one + 1]]).astype(np.float64)
    low, high = took.min(axis=0), took.max(axis=0)
    unit = SECOND if not (jobs.start_ns[one] % SECOND).any() and not (jobs.end_ns[one] % SECOND).any() else MILLISECOND
    long = low >= FINENESS * unit
    alike, pairs = int((high[long] <= ALIKE * low[long]).sum()), int(long.sum())
    chance = (ALIKE - 1) / (ALIKE + 1)
    return alike, pairs, float(betainc(alike, pairs - alike + 1, chance)) if alike else 1.0
