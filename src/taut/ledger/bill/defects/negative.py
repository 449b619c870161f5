"""Negative charges that call themselves neither correction nor credit nor refund, and credits that take more."""

from __future__ import annotations

import re

import numpy as np

from taut.core.array_types import Mask
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.defects.found import Found, reported_only, whole

KIND = "negative charge"
CREDIT = "credit above 0"
# Words by which providers name what they give back, in whatever column.
_GIVEN_BACK = re.compile(r"refund|credit|discount|rebate|revers|correct|negation|savings", re.IGNORECASE)
TOLD_BY = ("ChargeDescription", "SkuMeter", "ServiceName")


def find(rows: ChargeRows) -> list[Found]:
    """Usage and purchases below 0."""
    some = np.flatnonzero(negative(rows))
    found = [whole(KIND, rows, some, "below 0, and neither a correction nor a credit nor a refund")] if len(some) else []
    given = rows.v.is_("ChargeCategory", "Credit") & ~rows.v.correction() & rows.kept & rows.in_period
    more = np.flatnonzero(given & ((rows.effective > 0) | (rows.billed > 0)))
    worth = int(rows.effective[more].sum()) or int(rows.billed[more].sum())
    if len(more):
        found.append(reported_only(CREDIT, more, "credits that are added to the bill instead of taken off it", worth))
    return found


def negative(rows: ChargeRows) -> Mask:
    """Charges for usage or a purchase that are below 0 and do not say why."""
    found: Mask = ((rows.effective < 0) | (rows.billed < 0)) & rows.v.is_("ChargeCategory", "Usage", "Purchase")
    found &= ~rows.v.correction() & rows.kept
    for column in TOLD_BY:
        found &= ~rows.v.where(column, lambda text: bool(text) and _GIVEN_BACK.search(text or "") is not None)
    return found
