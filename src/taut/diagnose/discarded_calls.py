"""Redundant work: calls whose result was thrown away, counted exactly once each.

An attempt is thrown away if another was made in its place (a retry, a fallback), if a sibling that was asked the same was
quicker (a lost hedge), or if the same had been asked before (a duplicate). Its cost is that of everything below it; what
lies inside an attempt that was thrown away is counted there. Exact accounting: there is no test and no threshold.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.tables import Table, Trace
from taut.result.types import DiscardedCalls, Redundant

INSTEAD = ("attempt", "model")
"""Knobs of actions that take the place of the attempt before."""
MOST_KINDS = 20
"""Kinds of redundant calls that are listed."""
THROWN = ("duplicate", "lost")
"""Outcomes of attempts that nobody uses."""


def thrown_away(actions: Table) -> Mask:
    """Mask over the actions: attempts whose result nobody used."""
    gone = np.isin(actions.outcome, THROWN)
    instead = np.isin(actions.knob, INSTEAD) & (actions.parent >= 0) & (actions.parent < len(actions))
    gone[actions.parent[instead]] = True
    return gone


def redundant(trace: Trace) -> Redundant | None:
    """Calls for nothing: how many, how long, how many tokens, of which kind; not priced. None where no calls are recorded."""
    if "calls" not in trace.counts:
        return None
    gone = trace.actions.take(thrown_away(trace.actions))
    busy, counts = int(gone.busy_ns.sum()), trace.counts
    of_tokens = counts.get("tokens in"), counts.get("tokens out")
    return Redundant(
        calls=len(gone),
        of_calls=counts["calls"],
        busy_ns=busy,
        share=busy / max(counts["call ns"], 1),
        tokens_in=_sum(gone.tokens_in, of_tokens[0]),
        tokens_out=_sum(gone.tokens_out, of_tokens[1]),
        of_tokens_in=of_tokens[0],
        of_tokens_out=of_tokens[1],
        unmetered_calls=int(((gone.tokens_in < 0) & (gone.tokens_out < 0)).sum()),
        by=_by_kind(gone),
        money=None,
        currency=None,
    )


def _sum(counts: Ints, of: int | None) -> int | None:
    """Sum of what was recorded; None where nothing was, 0 where nothing was thrown away of what was."""
    known = counts[counts >= 0]
    return int(known.sum()) if len(known) or (of is not None and not len(counts)) else None


def _by_kind(gone: Table) -> list[DiscardedCalls]:
    """The same by class of call and by what became of it, the longest first."""
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, key in enumerate(zip(gone.target.tolist(), gone.outcome.tolist(), strict=True)):
        rows[key].append(row)
    out = []
    for (target, outcome), at in rows.items():
        mine = gone.take(np.array(at, dtype=np.int64))
        out.append(
            DiscardedCalls(
                op_class=target,
                outcome=outcome,
                calls=len(mine),
                busy_ns=int(mine.busy_ns.sum()),
                tokens_in=_sum(mine.tokens_in, None),
                tokens_out=_sum(mine.tokens_out, None),
            )
        )
    return sorted(out, key=lambda row: (-row.busy_ns, row.op_class, row.outcome))[:MOST_KINDS]
