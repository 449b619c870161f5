"""More of a commitment used than was bought."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.ledger.bill.charge_rows import NO_TIME, ChargeRows
from taut.ledger.bill.defects.found import Found, reported_only
from taut.ledger.bill.money_units import amount

KIND = "commitment exceeded"
# Quantities of many rows are rounded each.
SLACK = 1.001
# Used beyond this is another measure than what was bought.
MOST = 2


def find(rows: ChargeRows) -> list[Found]:
    """Commitments whose purchase the bill has: used quantity against bought, of the same unit and time."""
    ids, code = rows.v.words("CommitmentDiscountId")
    quantity = rows.v.number("CommitmentDiscountQuantity")
    known = rows.v.there("CommitmentDiscountId") & ~np.isnan(quantity) & rows.kept & ~rows.v.correction()
    bought = known & rows.v.is_("ChargeCategory", "Purchase")
    used = known & rows.v.is_("CommitmentDiscountStatus", "Used")
    limits = np.bincount(code[bought], quantity[bought], minlength=len(ids))
    spent = np.bincount(code[used], quantity[used], minlength=len(ids))
    beyond = np.flatnonzero((limits > 0) & (spent > limits * SLACK))
    return [
        _found(rows, str(ids[one]), np.flatnonzero(used & (code == one)), quantity, float(limits[one]), float(spent[one]))
        for one in beyond.tolist()
        if _comparable(rows, bought & (code == one), used & (code == one))
        and _same_measure(rows, code == one, float(limits[one]), float(spent[one]))
    ]


def _comparable(rows: ChargeRows, bought: Mask, used: Mask) -> bool:
    """Whether purchases are in the unit of the usage and for all of its time."""
    unit = rows.v.words("CommitmentDiscountUnit")[1]
    span = rows.spans
    if len(np.unique(unit[bought | used])) > 1 or (span.start[bought | used] == NO_TIME).any():
        return False
    return bool(span.start[bought].min() <= span.start[used].min() and span.end[bought].max() >= span.end[used].max())


def _same_measure(rows: ChargeRows, mine: Mask, limit: float, spent: float) -> bool:
    """Whether the purchase counts what usage counts: some exporters count plans in it, or what is bought for an hour.

    What is partly unused is not exceeded; cost tells nothing, because a part may have been paid in advance.
    """
    unused = mine & rows.v.is_("CommitmentDiscountStatus", "Unused") & rows.kept
    return spent <= MOST * limit and not unused.any()


def _found(rows: ChargeRows, name: str, some: Ints, quantity: Floats, limit: float, spent: float) -> Found:
    money = round(int(rows.effective[some].sum()) * (1 - limit / spent))
    because = f"{name[:80]}: {spent:,.2f} were used and {limit:,.2f} bought; {amount(money, rows.unit)} lie beyond"
    last = some[np.argsort(rows.spans.start[some], kind="stable")]
    beyond = np.cumsum(quantity[last]) > limit
    return reported_only(KIND, last[beyond], because, money)
