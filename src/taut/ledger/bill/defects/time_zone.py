"""A bill whose times are those of another zone: charges and holdings agree only if all charges are moved by whole hours."""

from __future__ import annotations

import numpy as np

from taut.ledger.bill.charge_rows import DAY_NS, ChargeRows
from taut.ledger.bill.defects.found import Found, reported_only
from taut.ledger.bill.divided_charges import HOUR_NS
from taut.ledger.bill.holdings import Holdings
from taut.ledger.bill.overlap import Spans, covered_ns, merged

KIND = "time zone"
FARTHEST = 14
"""Hours between UTC and the zone that is farthest from it."""
LEAST_SHARE = 0.001
"""Of the held time so much must lie outside all charges before another zone is tried …"""
EXPLAINED = 0.8
"""… the other zone must explain this share of it …"""
EPISODES = 5
"""… on so many hosts, or separate times, each of which is better covered: fewer are chance."""


def find(rows: ChargeRows, holdings: Holdings) -> tuple[list[Found], int]:
    """The defect, if there is one, and by how many ns charges are to be moved."""
    charges = merged(_charges(rows))
    busy = holdings.busy
    busy = busy.take(np.isin(busy.host, np.unique(charges.host)))
    hours = shift_hours(charges, busy)
    if not hours:
        return [], 0
    moved = np.flatnonzero(rows.kept & (rows.spans.start >= 0) & (rows.spans.length < DAY_NS))
    because = (
        f"charges fit what was held only {abs(hours)} h {'earlier' if hours < 0 else 'later'}: their times are local, not UTC; "
        "they were booked so, and cost neither more nor less"
    )
    return [reported_only(KIND, moved, because, 0)], hours * HOUR_NS


def shift_hours(charges: Spans, busy: Spans) -> int:
    """By how many hours charges fit holdings better than as they are; 0 unless that is beyond chance."""
    length = busy.length
    here = length - covered_ns(busy, charges)
    if here.sum() <= LEAST_SHARE * max(int(length.sum()), 1):
        return 0
    left = {hours: length - covered_ns(busy, _later(charges, hours)) for hours in range(-FARTHEST, FARTHEST + 1) if hours}
    best = min(left, key=lambda hours: (int(left[hours].sum()), abs(hours)))
    gained = here - left[best]
    enough = int(((gained > 0) & (left[best] <= (1 - EXPLAINED) * here)).sum()) >= EPISODES
    return best if enough and left[best].sum() <= (1 - EXPLAINED) * here.sum() else 0


def _later(spans: Spans, hours: int) -> Spans:
    return Spans(spans.host, spans.start + hours * HOUR_NS, spans.end + hours * HOUR_NS)


def _charges(rows: ChargeRows) -> Spans:
    """Charges for accelerators by the hour or less: a day's row tells nothing of its zone."""
    return rows.spans.take(rows.accelerator() & (rows.spans.length < DAY_NS) & rows.kept)
