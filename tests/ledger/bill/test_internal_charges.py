"""Bills at given prices as charges of the provider ``internal``."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.tables import Table
from taut.ledger.bill.allocated_parts import allocated_parts
from taut.ledger.bill.internal_charges import DAY_NS, HOUR_NS, Period, internal_charges
from taut.ledger.bill.rows import UNIT, Booked, Held
from taut.read.focus.focus_reader import read_focus
from taut.render.focus_table import render_parts

DAY = 20_000 * DAY_NS
MONTH = Period(DAY, DAY + 30 * DAY_NS)
HELD = Table(Held, {"job": ["j1", "j2"], "fate": ["productive", "discarded"], "host": ["node0", "node1"]})


def booked(rows: list[tuple[int, int, int, int, int]]) -> Table:
    """(held, start, end, rank_ns, effective) …"""
    names = ("held", "start_ns", "end_ns", "rank_ns", "effective")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    host = [HELD.host[row[0]] for row in rows]
    return Table(Booked, {**columns, "host": host, "item": ["accelerator time"] * len(rows)}, len(rows))


def test_a_night_shift_is_two_charges_with_the_price_that_was_given() -> None:
    rows = booked([(0, DAY + 22 * HOUR_NS, DAY + 25 * HOUR_NS, 24 * HOUR_NS, 60 * UNIT)])
    cut, charges = internal_charges(rows, "EUR", None)
    assert charges["EffectiveCost"].to_pylist() == [Decimal(40), Decimal(20)]
    assert charges["ListCost"].to_pylist() == charges["EffectiveCost"].to_pylist()
    assert charges["PricingQuantity"].to_pylist() == [Decimal(16), Decimal(8)]
    assert charges["ListUnitPrice"].to_pylist() == [Decimal("2.5")] * 2
    assert [str(time.date()) for time in charges["ChargePeriodStart"].to_pylist()] == ["2024-10-04", "2024-10-05"]
    assert [str(time.date()) for time in charges["BillingPeriodEnd"].to_pylist()] == ["2024-11-01"] * 2
    assert (set(charges["ServiceProviderName"].to_pylist()), cut.charge.tolist()) == ({"internal"}, [0, 1])


def test_what_has_no_time_is_of_the_whole_period_or_refused() -> None:
    rows = booked([(0, -1, -1, HOUR_NS, UNIT), (1, DAY, DAY + HOUR_NS, HOUR_NS, UNIT)])
    _, charges = internal_charges(rows, "EUR", MONTH)
    assert [str(time.date()) for time in charges["ChargePeriodEnd"].to_pylist()] == ["2024-11-03", "2024-10-05"]
    assert [str(time.date()) for time in charges["BillingPeriodEnd"].to_pylist()] == ["2024-12-01", "2024-11-01"]
    with pytest.raises(ValueError, match="lengths and no times"):
        internal_charges(rows, "EUR", None)


TIMES = st.integers(DAY, DAY + 4 * DAY_NS)
ROWS = st.tuples(st.integers(0, 1), TIMES, TIMES, st.integers(0, 10**15), st.integers(-(10**12), 10**13)).map(
    lambda row: (row[0], min(row[1:3]), max(row[1:3]), *row[3:])
)


@settings(deadline=None, max_examples=20)
@given(st.lists(ROWS, max_size=6))
def test_days_add_up_to_what_is_booked(rows: list[tuple[int, int, int, int, int]]) -> None:
    cut, charges = internal_charges(booked(rows), "EUR", None)
    assert cut.rank_ns.sum() == sum(row[3] for row in rows)
    total = sum(row[4] for row in rows)
    assert (pc.sum(charges["EffectiveCost"]).as_py() or 0) == Decimal(total) / UNIT
    parts = allocated_parts(HELD, cut, charges)
    assert "not booked" not in {parts.keys["item"][int(key)].as_py() for key in parts.key}


@pytest.mark.parametrize("version", ["1.0", "1.2", "1.4"])
def test_what_is_written_keeps_the_rules_and_is_read_as_the_same_amounts(tmp_path: Path, version: str) -> None:
    rows = booked([(0, DAY, DAY + 5 * DAY_NS // 3, 7 * HOUR_NS + 1, 17_123_456_789), (1, DAY, DAY + HOUR_NS, HOUR_NS, 1)])
    cut, charges = internal_charges(rows, "EUR", None)
    parts = allocated_parts(HELD, cut, charges)
    out = io.BytesIO()
    render_parts(parts.blocks(), parts.filled, out, version)
    (tmp_path / "bill.csv").write_bytes(out.getvalue())
    again = read_focus(tmp_path / "bill.csv")
    assert again.broken == ()
    assert pc.sum(again.table["EffectiveCost"]).as_py() == Decimal("17.123456790")
