"""A stored bill, and what it cost by day or hour."""

from __future__ import annotations

from pathlib import Path

from taut.ledger.bill.cost_over_time import cost_over_time
from taut.result.view_types import BillView
from taut.stored_bill import open_bill, refusing_bill


def bill_view(folder: str | Path) -> BillView:
    """The bill that a run folder of ``taut bill`` holds."""
    with refusing_bill(folder):
        stored = open_bill(folder)
        over_time = cost_over_time(stored.held, stored.booked, unit=stored.result.money_units)
    return BillView(result=stored.result, over_time=over_time)
