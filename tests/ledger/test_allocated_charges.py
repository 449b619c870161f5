"""Charges split among those who caused them add up, and stay what they were otherwise."""

from __future__ import annotations

import io
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_rows import month, usage
from taut.ledger.allocated_charges import SPLIT, Share, allocate, charge_of
from taut.read.focus.focus_reader import read_focus
from taut.render.focus import render
from taut.result.types import FocusRow

MONEY = st.decimals(min_value=-(10**9), max_value=10**9, allow_nan=False, allow_infinity=False, places=10)
WEIGHTS = st.lists(st.integers(0, 2**60), min_size=1, max_size=8).filter(any)


def written(rows: list[FocusRow], version: str = "1.4") -> bytes:
    out = io.BytesIO()
    render(rows, out, version)
    return out.getvalue()


@given(MONEY, MONEY, WEIGHTS)
def test_any_split_of_a_charge_adds_up_exactly(billed: Decimal, effective: Decimal, weights: list[int]) -> None:
    charge = usage(billed_cost=billed, effective_cost=effective)
    parts = allocate(charge, [Share(weight=weight, job=f"j{i}") for i, weight in enumerate(weights)])
    assert sum(Fraction(part.allocated_ratio or 0) for part in parts) == 1
    for name in SPLIT:
        whole = getattr(charge, name)
        if whole is None:
            assert all(getattr(part, name) is None for part in parts)
        else:
            assert sum(Fraction(getattr(part, name)) for part in parts) == Fraction(whole)


@settings(max_examples=25, deadline=None)
@given(MONEY, WEIGHTS, st.sampled_from(["1.0", "1.2", "1.4"]), st.booleans())
def test_what_was_written_is_read_as_the_same_amounts(cost: Decimal, weights: list[int], version: str, parquet: bool) -> None:
    parts = allocate(usage(billed_cost=cost, effective_cost=-cost), [Share(weight=weight, fate="idle") for weight in weights])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "bill"
        with path.open("wb") as out:
            render(parts, out, version, parquet=parquet)
        table = read_focus(path).table
    assert table["BilledCost"].to_pylist() == [part.billed_cost for part in parts]
    assert pc.sum(table["BilledCost"]).as_py() == cost
    assert pc.sum(table["EffectiveCost"]).as_py() == -cost
    assert [Decimal(ratio) for ratio in map(str, table["x_taut_ratio"].to_pylist())] == [part.allocated_ratio for part in parts]


def test_a_part_is_its_charge_but_for_the_amounts_and_to_whom_it_goes() -> None:
    charge = usage()
    first, second = allocate(
        charge, [Share(weight=1, fate="productive", job="j1"), Share(weight=3, fate="idle")], unit="Seconds"
    )
    assert (first.billed_cost, second.billed_cost) == (Decimal("7.8047"), Decimal("23.4141"))
    assert (first.allocated_resource_id, second.allocated_resource_id) == ("j1", None)
    assert (first.x_taut_fate, first.x_taut_job, first.x_taut_origin) == ("productive", "j1", "bill.csv:1")
    assert (second.allocated_ratio, second.allocated_usage_quantity) == (Decimal("0.75"), Decimal(3))
    assert (first.resource_id, first.list_unit_price, first.tags) == (charge.resource_id, charge.list_unit_price, charge.tags)


def test_charges_of_a_bill_become_parts_and_the_bill_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "bill.csv").write_bytes(written(month()))
    charges = read_focus(tmp_path / "bill.csv")
    assert charges.broken == ()
    rows = [charge_of(row, f"bill.csv:{row['row']}") for row in charges.table.to_pylist()]
    shares = [Share(weight=2, fate="productive", job="j1"), Share(weight=1, fate="fault wait", cause="rank 3", job="j1")]
    (tmp_path / "split.csv").write_bytes(written([part for row in rows for part in allocate(row, shares)]))
    again = read_focus(tmp_path / "split.csv")
    assert again.broken == ()
    for cost in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert pc.sum(again.table[cost]).as_py() == pc.sum(charges.table[cost]).as_py()


def test_what_a_bill_does_not_say_stays_unsaid() -> None:
    row = {"BillingCurrency": "EUR", "BilledCost": Decimal(3), "ChargeCategory": "Usage", "BillingAccountId": "a"}
    times = dict.fromkeys(
        ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd"), usage().billing_period_end
    )
    names = {"InvoiceIssuerName": "i", "ServiceProviderName": "p", "ServiceName": "s", "ServiceCategory": "Compute"}
    charge = charge_of({**row, **times, **names}, "x")
    assert (charge.billed_cost, charge.effective_cost) == (Decimal(3), None)
    assert [part.effective_cost for part in allocate(charge, [Share(weight=1), Share(weight=1)])] == [None, None]
    with pytest.raises(ValueError, match="cannot be written as a charge"):
        charge_of(row, "x")
