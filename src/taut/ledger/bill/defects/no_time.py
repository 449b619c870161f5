"""Accelerators charged for a period of no length, and periods that end before they begin."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Mask
from taut.ledger.bill.charge_rows import NO_TIME, ChargeRows
from taut.ledger.bill.defects.found import Found, reported_only, whole
from taut.ledger.bill.hosts import NONE

KIND = "period of no length"
BACKWARDS = "period backwards"


def find(rows: ChargeRows) -> list[Found]:
    """Usage of accelerators without time is charged for nothing; what is written backwards is taken the other way round."""
    used: Mask = rows.v.is_("ChargeCategory", "Usage") & ~rows.v.correction() & rows.kept & rows.in_period
    paid = (rows.effective != 0) | (rows.billed != 0)
    of_host = rows.is_item("accelerator time") & (rows.host != NONE) & (rows.spans.start != NO_TIME)
    empty = np.flatnonzero(used & paid & of_host & (rows.spans.length == 0))
    turned = np.flatnonzero(used & rows.backwards)
    found = [whole(KIND, rows, empty, "accelerators are charged for a period of no length")] if len(empty) else []
    because = "the period ends before it begins: taken the other way round, which costs neither more nor less"
    return [*found, *([reported_only(BACKWARDS, turned, because, 0)] if len(turned) else [])]
