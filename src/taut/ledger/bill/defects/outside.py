"""Usage that lies outside the billing period that its own row names."""

from __future__ import annotations

import numpy as np

from taut.ledger.bill.charge_rows import NO_TIME, ChargeRows
from taut.ledger.bill.defects.found import Found, whole

KIND = "outside the billing period"


def find(rows: ChargeRows) -> list[Found]:
    """Usage, no correction, of which nothing lies in its billing period."""
    span, billing = rows.spans, rows.billing
    known = (span.start != NO_TIME) & (span.length > 0) & (billing.start != NO_TIME) & (billing.end > billing.start)
    away = (span.end <= billing.start) | (span.start >= billing.end)
    used = rows.v.is_("ChargeCategory", "Usage") & ~rows.v.correction() & rows.kept
    paid = (rows.effective != 0) | (rows.billed != 0)
    some = np.flatnonzero(known & away & used & paid)
    if not len(some):
        return []
    return [whole(KIND, rows, some, "usage outside the billing period that its own row names")]
