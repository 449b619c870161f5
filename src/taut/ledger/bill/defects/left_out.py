"""Charges of a bill that taut wrote: what it left out then is left out again, and was decided there."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.defects.found import Found, whole

KIND = "left out before"
ITEM, ORIGIN = "x_taut_item", "x_taut_origin"
NOT_BOOKED = "not booked"
"""Item and category of what a bill left out: a line that stands twice, a charge of another period."""


def find(rows: ChargeRows) -> list[Found]:
    """Charges, or parts of charges, that the bill that wrote them had taken out."""
    if ITEM not in rows.table.column_names:
        return []
    some = np.flatnonzero(rows.v.is_(ITEM, NOT_BOOKED) & rows.kept & ((rows.effective != 0) | (rows.billed != 0)))
    _give_back_hours(rows, some)
    because = "the bill that was exported had named these as wrong, and left them out"
    return [whole(KIND, rows, some, because)] if len(some) else []


def _give_back_hours(rows: ChargeRows, some: Ints) -> None:
    """Hours that were written with a part that was left out are again those of the other parts of its charge."""
    if not len(some) or ORIGIN not in rows.table.column_names:
        return
    names, origin = rows.v.words(ORIGIN)
    hours = np.nan_to_num(rows.hours)
    whole = np.bincount(origin, hours, minlength=len(names))
    left = whole - np.bincount(origin[some], hours[some], minlength=len(names))
    rows.hours = rows.hours * np.where(left > 0, whole / np.where(left > 0, left, 1), 1)[origin]


def tried_before(rows: ChargeRows) -> Mask:
    """Charges that were tried for defects when they were written: their quantities go with what was booked of them."""
    if ITEM not in rows.table.column_names:
        return np.zeros(len(rows), dtype=np.bool_)
    return rows.v.there(ITEM)
