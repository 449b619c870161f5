"""Charges that do not tell what they cost."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.defects.found import Found, reported_only

KIND = "cost not known"


def find(rows: ChargeRows) -> list[Found]:
    """Charges without billed and effective cost, and those that a commitment covers whose effective cost is missing."""
    some = np.flatnonzero(rows.unknown & rows.kept & rows.in_period)
    if not len(some):
        return []
    because = "neither EffectiveCost nor BilledCost tells what they cost, so the bill cannot close: they count as nothing"
    return [replace(reported_only(KIND, some, because, 0), unknown=True)]
