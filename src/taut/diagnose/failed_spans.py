"""Failed spans: what failed, how often, since when, and what it took. Exact accounting: no test and no threshold.

An error that a caller only passed on is not counted again: classes are those in which errors began.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from taut.core.reporting import dated, spell
from taut.core.tables import Trace
from taut.result.types import FailedClass, FailedSpans

MOST = 20
"""Classes that are listed."""
TOLD = 3
"""Classes in the verdict."""
REMEDIES = (
    (r"429|rate.?limit|throttl|quota|too many|overloaded", "ask less at once, or for a higher limit"),
    (r"timed? ?out|timeout|deadline", "compare its timeout with how long it takes when it succeeds"),
    (r"HTTP 40[13]|unauthori|forbidden|permission|credential|api.?key", "check the credentials of the caller"),
    (r"context.?length|too long|max.?tokens|token limit", "send it less, or use a model with a longer context"),
    (r"connect|refused|unreachable|reset|dns|resolve", "check whether its service runs and can be reached"),
    (r"HTTP 4\d\d|invalid|validation|bad.?request|parse|schema|not.?found", "check what it is asked"),
    (r"HTTP 5\d\d|internal|unavailable", "read the logs of its service at that time"),
)
"""What to do, by what the error says; the first that fits."""


def failed_spans(trace: Trace) -> FailedSpans | None:
    """All failures of spans; None where none failed, or the trace has no spans."""
    t = trace.failures
    if not len(t):
        return None
    began = t.take(t.passed_on != 1)
    rows: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(began.name.tolist()):
        rows[name].append(row)
    classes = []
    for name, at in rows.items():
        mine = began.take(np.array(at, dtype=np.int64))
        why = Counter(word for word in mine.error.tolist() if word).most_common(1)
        classes.append(
            FailedClass(
                op_class=name,
                failed=len(mine),
                spans=int(mine.alike[0]),
                error=why[0][0] if why else None,
                first_ns=int(mine.time_ns.min()),
                last_ns=int(mine.time_ns.max()),
                busy_ns=int(mine.busy_ns.sum()),
                tokens=int(mine.tokens.sum()) or None,
                remedy=_remedy(why[0][0]) if why else None,
            )
        )
    classes.sort(key=lambda one: (-one.failed, -one.busy_ns, one.op_class))
    requests = len(trace.zero_ns or ())
    return FailedSpans(
        failed=len(t),
        spans=int(trace.counts.get("spans", 0)),
        began=len(began),
        requests=requests,
        touched_requests=len(np.unique(t.step)),
        failed_requests=len(np.unique(t.step[t.request == 1])),
        first_ns=int(t.time_ns.min()),
        last_ns=int(t.time_ns.max()),
        busy_ns=int(began.busy_ns.sum()),
        by=classes[:MOST],
    )


def failed_text(found: FailedSpans) -> str:
    """What failed, in one or two sentences."""
    share = 100 * found.failed / max(found.spans, 1)
    many = f"{found.failed:,} of {found.spans:,} spans failed ({share:.2g} %)"
    where = f" in {found.touched_requests:,} of {found.requests:,} requests" if found.requests > 1 else ""
    when = dated(found.first_ns)
    last = f", {'since' if found.failed > 1 else 'at'} {when}" if when else ""
    ended = f", {found.failed_requests:,} of which failed as a whole" if found.requests > 1 and found.failed_requests else ""
    parts = "; ".join(map(_one, found.by[:TOLD])) + _more(found.by)
    held = f"That took {spell(float(found.busy_ns))} for nothing"
    remedy = f"; {found.by[0].op_class}: {found.by[0].remedy}" if found.by[0].remedy else ""
    return f"{many}{where}{ended}{last}: {parts}. {held}{remedy}."


def _remedy(error: str) -> str | None:
    return next((remedy for pattern, remedy in REMEDIES if re.search(pattern, error, re.IGNORECASE)), None)


def _one(row: FailedClass) -> str:
    """One class: how many of its spans, and why."""
    why = f" ({row.error})" if row.error else ""
    return f"{row.failed:,} of {row.spans:,} {row.op_class}{why}"


def _more(rows: Sequence[FailedClass]) -> str:
    left = len(rows) - TOLD
    return f"; and {left} more kinds" if left > 0 else ""
