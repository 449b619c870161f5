"""Whether a billing period is still open: charges may still come, so that what they do not cover yet is no defect."""

from __future__ import annotations

import numpy as np

from taut.core.tables import Table
from taut.ledger.bill.charge_rows import NO_TIME, US, ChargeRows
from taut.ledger.bill.period import Period
from taut.read.focus.focus_charged import Charged
from taut.read.focus.focus_reader import Charges

MONTHLY_NS = 27 * 86_400 * 10**9
"""Charges as long as this are of the month as a whole and say nothing of how far the bill has come."""
# A bill is written in steps; one step and a little may lie between its last charge and its end.
STEPS = 1.5


def last_charge_ns(rows: ChargeRows) -> int | None:
    """Until when the bill charges usage; None where it charges none by time."""
    span = rows.spans
    some = rows.v.is_("ChargeCategory", "Usage") & ~rows.v.correction() & (span.start != NO_TIME) & (span.length < MONTHLY_NS)
    some &= (span.length > 0) & rows.in_period
    return int(span.end[some].max()) if some.any() else None


def last_usage_ns(charges: Charges) -> int | None:
    """The same of a bill before its charges meet anything."""
    v = Charged(charges.table, charges.version, [], {})
    start, end = v.time("ChargePeriodStart"), v.time("ChargePeriodEnd")
    some = v.is_("ChargeCategory", "Usage") & (start != NO_TIME) & (end > start)
    some &= np.where(some, end - start, 0) * US < MONTHLY_NS
    return int(end[some].max()) * US if some.any() else None


def is_open(rows: ChargeRows, period: Period) -> bool:
    """Whether the last charge ends before the period does, by more than the step in which the bill is written."""
    last = last_charge_ns(rows)
    if last is None:
        return False
    span = rows.spans
    used = (span.start != NO_TIME) & (span.length > 0) & (span.length < MONTHLY_NS)
    step = float(np.quantile(span.length[used], 0.9))
    return period[1] - last > STEPS * step


def mark_open(uncharged: Table, rows: ChargeRows, still_open: bool) -> Table:
    """What is used behind the last charge of an open period is not missing: its charges have not come yet."""
    last = last_charge_ns(rows)
    if not still_open or last is None:
        return uncharged
    waits = (uncharged.start_ns >= last) & np.isin(uncharged.why, ("missing", "host"))
    return uncharged.replace(why=np.where(waits, "open", uncharged.why))
