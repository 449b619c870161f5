"""Redundant work: attempts whose result nobody used, each counted once. Exact accounting: no test.

Of actions: lost hedges, duplicates, and attempts in whose place another was made, where the log says so: numbers alone do
not tell a retry of what failed from work done twice. Of jobs: attempts that were not the
last. Listed where they take at least 3 % of the time (or tokens) of all attempts on record, as findings are.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from taut.control.action_log import Log
from taut.control.relation import Relation, joined, since, spell, thing
from taut.core.array_types import Mask
from taut.core.reporting import LISTED_SHARE

KIND = "redundant work"
INSTEAD = ("attempt", "model")
"""Knobs of actions that take the place of the attempt before."""
THROWN = ("duplicate", "lost")
"""Outcomes of attempts that nobody uses."""
HOUR_NS = 3_600_000_000_000
MOST = 20
"""Targets that are listed."""


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
    """Attempts of jobs that were not the last: an upper bound, because what was saved is not known here."""
    jobs, who = log.jobs, log.launchers()
    early = np.flatnonzero(jobs.known & ~jobs.last)
    total, lost = jobs.held_ns(np.flatnonzero(jobs.known)), jobs.held_ns(early)
    if not lost or lost < LISTED_SHARE * total:
        return []
    whole = f"{total / HOUR_NS:,.0f} hours" if total >= 100 * HOUR_NS else spell(total)
    because = (
        f"{jobs.restarted} of {len(jobs.names)} jobs were restarted{' by ' + joined(who) if any(who) else ''}: up to "
        f"{lost / total:.1%} of the {whole} that attempts {'held accelerators' if jobs.counted else 'ran'} was done "
        f"again; so much lies in attempts that were not the last ({_ends(jobs.outcome[early].tolist())}), if nothing was "
        f"saved of them{since(jobs.end_ns[early])}; checkpoints between them, and resuming from the last, keep most of it"
    )
    return [Relation(KIND, who, "", "attempt", jobs.restarted, lost / total, None, because, jobs.rank_ns(early))]
