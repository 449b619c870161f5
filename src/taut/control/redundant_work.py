"""Redundant work: attempts whose result nobody used, each counted once. Exact accounting: no test.

Of actions: lost hedges, duplicates, and attempts in whose place another was made, where the log says so: numbers alone do
not tell a retry of what failed from work done twice. Of jobs: attempts that were not the
last. Listed where they take at least 3 % of the time (or tokens) of all attempts on record, as findings are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.control.action_log import Log
from taut.control.job_attempts import Jobs, jobs
from taut.control.relation import Relation, spell
from taut.core.reporting import LISTED_SHARE

KIND = "redundant work"
INSTEAD = ("attempt", "model")
"""Knobs of actions that take the place of the attempt before."""
THROWN = ("duplicate", "lost")
"""Outcomes of attempts that nobody uses."""
HOUR_NS = 3_600_000_000_000
MOST = 20
"""Targets that are listed."""


def thrown_away(log: Log) -> Any:
    """Mask over the actions: attempts whose result nobody used."""
    gone = log.holding("outcome", rf"^({'|'.join(THROWN)})$")
    instead = log.holding("knob", rf"^({'|'.join(INSTEAD)})$") & (log.told_parent >= 0)
    gone[log.told_parent[instead]] = True
    return gone


def relate(log: Log, rng: np.random.Generator) -> list[Relation]:
    """By target, the costliest first; then jobs."""
    gone = thrown_away(log) & ~log.of_job
    busy, tokens = np.where(log.of_job, 0, np.maximum(log.busy_ns, 0)), np.maximum(log.tokens, 0)
    of_busy = max(log.counts.get("call ns", int(busy.sum())), 1)
    of_tokens = max(log.counts.get("tokens in", 0) + log.counts.get("tokens out", 0), int(tokens.sum()), 1)
    out = []
    for rows in log.groups(log.target, np.flatnonzero(gone)):
        share = max(busy[rows].sum() / of_busy, tokens[rows].sum() / of_tokens)
        if share < LISTED_SHARE:
            continue
        words = [log.word("outcome", o) or "thrown away" for o in log.outcome[rows].tolist()]
        kinds = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
        names = [log.word("controller", c) for c in dict.fromkeys(log.controller[rows].tolist()) if c >= 0]
        rank_ns, used = log.cost(rows)
        target = log.word("target", int(log.target[rows[0]]))
        because = f"{len(rows)} attempts at {target} were for nothing ({kinds}): {share:.1%} of what all attempts took"
        out.append(Relation(KIND, tuple(names), target, "attempt", len(rows), float(share), None, because, rank_ns, used))
    return sorted(out, key=lambda r: -(r.statistic or 0.0))[:MOST] + _restarted(jobs(log.attempts), log.launchers())


def _long(ns: int) -> str:
    return f"{ns / HOUR_NS:,.0f} hours" if ns >= 100 * HOUR_NS else spell(ns)


def _restarted(found: Jobs, who: tuple[str, ...]) -> list[Relation]:
    """Attempts of jobs that were not the last: an upper bound, because what was saved is not known here."""
    early = np.flatnonzero(found.known & ~found.last)
    total, lost = found.held_ns(np.flatnonzero(found.known)), found.held_ns(early)
    if not lost or lost < LISTED_SHARE * total:
        return []
    because = (
        f"{found.restarted} of {found.count} jobs were restarted; {lost / total:.1%} of the {_long(total)} that "
        f"attempts held {'accelerators' if found.counted else 'their place'} lies in attempts that were not the last: at most "
        f"so much was done again"
    )
    return [Relation(KIND, who, "", "attempt", found.restarted, lost / total, None, because, found.rank_ns(early))]
