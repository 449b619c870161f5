"""The bill in a sentence: figures that its tables have too."""

from __future__ import annotations

from results import filled
from taut.result.bill_verdict import Spent, bill_verdict
from taut.result.types import BillLine, BillShare

WAITS = "lower effective utilisation"


def test_the_largest_cause_has_all_its_lines() -> None:
    """As the drill-down by cause has it: three lines of one cause, none of which is the largest."""
    rows = [("a", "3"), ("a", "3"), ("b", "4"), ("a", "1")]
    lines = [filled(BillLine, {"category": WAITS, "cause": cause, "money": money}) for cause, money in rows]
    shares = [filled(BillShare, {"name": WAITS, "money": "11", "share": 1.0})]
    assert bill_verdict("October", Spent(shares, lines, {"a": "rank 3"}, "EUR"), "it closes") == (
        "October cost 11.00 EUR: 0 % useful work, 100 % waits and gaps (the largest: rank 3, 7.00 EUR); it closes."
    )
