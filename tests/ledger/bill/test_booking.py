"""Charges on what was held: by host and time, to the unit."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from bill_months import HOUR, at, held, hour, items, jobs, read
from focus_bills import usage
from taut.core.errors import InputRefused
from taut.core.ids import total
from taut.core.prices import HostFacts, Prices
from taut.core.tables import Table
from taut.ledger.bill.booking import book, book_at_prices
from taut.ledger.bill.rows import Held


def test_an_hour_is_divided_by_accelerator_time_and_the_rest_is_idle(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T10:30", 8), ("b", "node1", "05T10:30", "05T11:00", 4))
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00")]))
    assert jobs(found, rows) == {"": "4.00", "a": "8.00", "b": "4.00"}
    assert items(found) == {"accelerator time": "12.00", "idle accelerators": "4.00"}
    assert found.booked.rank_ns.sum() == 8 * HOUR


def test_charges_of_one_host_and_hour_all_belong_to_it_and_its_time_counts_once(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    add_on = hour(
        "node1", "05T10:00", cost="8.00", SkuId="s2", SkuPriceId="s2.p", ConsumedUnit="GPU-Hours", ConsumedQuantity="8"
    )
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00"), add_on]))
    assert jobs(found, rows) == {"a": "24.00"}
    assert found.booked.rank_ns.sum() == 8 * HOUR


def test_a_charge_for_part_of_its_hour_leaves_nothing_idle(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T10:15", 8))
    part = hour("node1", "05T10:00", cost="4.00", ConsumedQuantity="0.25", PricingQuantity="0.25")
    assert items(book(rows, read(tmp_path, [part]))) == {"accelerator time": "4.00"}


def test_a_least_charge_of_a_minute_belongs_to_the_job_of_seconds(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00:00", "05T10:00:20", 8))
    minute = {"ConsumedQuantity": "0.016666667", "PricingQuantity": "0.016666667"}
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00:00", "05T10:00:20", cost="0.27", **minute)]))
    assert items(found) == {"accelerator time": "0.27"}


def test_a_day_in_one_row(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T00:00", "05T18:00", 8))
    found = book(rows, read(tmp_path, [hour("node1", "05T00:00", "06T00:00", cost="384.00")]))
    assert items(found) == {"accelerator time": "288.00", "idle accelerators": "96.00"}


def test_hours_of_each_accelerator_in_rows_of_their_own(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 4))
    each = [hour("node1", "05T10:00", cost="2.00", ConsumedUnit="GPU-Hours", ConsumedQuantity="1", ChargeDescription=f"GPU {i}")
            for i in range(8)]  # fmt: skip
    assert items(book(rows, read(tmp_path, each))) == {"accelerator time": "8.00", "idle accelerators": "8.00"}


@pytest.mark.parametrize(
    ("cells", "item"),
    [
        ({"ServiceCategory": "Storage"}, "storage"),
        ({"ServiceCategory": "Networking"}, "network"),
        ({"ConsumedUnit": "GB", "PricingUnit": "GB"}, "network"),
        ({"ConsumedUnit": "GB-Months", "PricingUnit": "GB-Mo"}, "storage"),
        ({"ChargeCategory": "Tax"}, "tax"),
        ({"ChargeCategory": "Credit"}, "credit"),
        ({"ChargeCategory": "Purchase", "CommitmentDiscountId": "c"}, "purchase"),
        ({"ChargeCategory": "Purchase", "ServiceCategory": "Other"}, "other service"),
        ({"ChargeClass": "Correction"}, "correction"),
        ({"CommitmentDiscountStatus": "Unused", "CommitmentDiscountId": "c1"}, "unused commitment"),
        ({"ServiceCategory": "Databases"}, "other service"),
        ({"ResourceId": "i-9", "ResourceName": "elsewhere"}, "unmatched"),
    ],
)
def test_what_is_no_accelerator_time_is_an_item_of_its_own(tmp_path: Path, cells: dict[str, str], item: str) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00"), hour("node1", "05T11:00", cost="3.00", **cells)]))
    assert items(found) == {"accelerator time": "16.00", item: "3.00"}


def test_a_used_commitment_counts_at_effective_cost_and_its_purchase_on_the_invoice(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    used = hour("node1", "05T10:00", cost="9.00", BilledCost="0", CommitmentDiscountId="c", CommitmentDiscountStatus="Used")
    bought = hour("node1", "01T00:00", cost="0", BilledCost="100.00", ChargeCategory="Purchase", CommitmentDiscountId="c")
    found = book(rows, read(tmp_path, [used, bought]))
    assert items(found) == {"accelerator time": "9.00", "purchase": "0.00"}
    assert [(one.billed, one.allocated, one.closes) for one in found.invoices] == [("100.00", "100.00", True)]


def test_unmatched_resources_are_named_with_amount_and_remedy(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    away = [hour("", start, ResourceId="i-77", ResourceName="") for start in ("05T10:00", "05T11:00")]
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00"), *away]))
    assert [(one.resource, one.money, one.rows) for one in found.unmatched] == [("i-77", "32.00", 2)]
    assert "hosts" in found.unmatched[0].remedy


def test_prices_say_which_resource_is_which_host_and_what_it_has(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    away = hour("", "05T10:00", ResourceId="i-77", ResourceName="", SkuPriceDetails="", ChargeDescription="an hour")
    prices = Prices(hosts=HostFacts(resources={"i-77": "node1"}, accelerators=16))
    assert items(book(rows, read(tmp_path, [away]), prices)) == {"accelerator time": "8.00", "idle accelerators": "8.00"}


def test_a_period_cuts_charges_and_holdings(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T22:00", "06T02:00", 8))
    charges = read(tmp_path, [hour("node1", "05T22:00", "06T02:00", cost="64.00")])
    found = book(rows, charges, period=(at("06T00:00"), at("07T00:00")))
    assert (items(found), found.effective) == ({"accelerator time": "32.00"}, 32 * found.unit)


def test_a_month_takes_the_corrections_that_its_bill_has_of_the_month_before(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    late = hour("node1", "2026-09-05T10:00", cost="-4.00", ChargeClass="Correction")
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00"), late]), period=(at("01T00:00"), at("2026-11-01")))
    assert items(found) == {"accelerator time": "16.00", "correction": "-4.00"}


def test_two_currencies_are_refused_with_both_sums_unless_one_is_chosen(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    other = hour("node1", "05T11:00", cost="5.00", BillingCurrency="USD")
    charges = read(tmp_path, [hour("node1", "05T10:00"), other])
    with pytest.raises(InputRefused, match=r"16\.00 EUR and 5\.00 USD.*--currency EUR"):
        book(rows, charges)
    assert items(book(rows, charges, currency="EUR")) == {"accelerator time": "16.00"}


@pytest.mark.parametrize(("cost", "unit"), [("0.000000000001", 10**9), ("1E12", 10**6), ("12345678901234", 10**3)])
def test_tiny_and_vast_amounts_close(tmp_path: Path, cost: str, unit: int) -> None:
    rows = held(("a", "node1", "05T10:00", "05T10:20", 7))
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00", cost=cost)] * 3))
    assert found.unit == unit
    assert found.effective == round(3 * Decimal(cost) * unit)
    assert found.booked.effective.sum() + found.removed == found.effective


def test_what_lies_beyond_billionths_is_booked_as_rounding(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T12:00", 8))
    found = book(rows, read(tmp_path, [hour("node1", f"05T{h}:00", cost="1.0000000004") for h in (10, 11)]))
    rounding = found.booked.item == "rounding"
    assert (found.effective, found.booked.effective[rounding].tolist()) == (2_000_000_001, [1])
    assert [one.closes for one in found.invoices] == [True]


def test_a_host_held_where_no_charge_is_is_used_without_charge(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T14:00", 4))
    found = book(rows, read(tmp_path, [hour("node1", f"05T{h}:00") for h in (10, 11, 13)]))
    lost = found.uncharged
    assert lost.why.tolist() == ["missing", "missing"]
    assert (lost.held.tolist(), lost.effective.tolist()) == ([0, -1], [8 * 10**9, 8 * 10**9])
    assert lost.rank_ns.sum() == 8 * HOUR


def test_minutes_beside_a_charge_are_tolerance(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T09:59", "05T11:02", 8))
    found = book(rows, read(tmp_path, [hour("node1", "05T10:00")]))
    assert set(found.uncharged.why.tolist()) == {"tolerance"}
    assert found.uncharged.effective.sum() == 0
    assert found.booked.rank_ns.sum() + found.uncharged.rank_ns.sum() == rows.rank_ns.sum()


def test_a_host_that_the_bill_does_not_name_costs_what_prices_or_others_say(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8), ("b", "node2", "05T10:00", "05T11:00", 8))
    charges = read(tmp_path, [hour("node1", "05T10:00")])
    assert book(rows, charges).uncharged.effective.tolist() == [16 * 10**9]
    given = Prices(gpu_hour=Decimal(3), currency="EUR")
    assert book(rows, charges, given).uncharged.effective.tolist() == [24 * 10**9]


def test_an_open_period_says_so_and_its_end_is_not_missing(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T20:00", 8))
    found = book(rows, read(tmp_path, [hour("node1", f"05T{h}:00") for h in (10, 11, 12)]))
    assert (found.open, set(found.uncharged.why.tolist())) == (True, {"open"})


def test_a_bill_that_reaches_the_end_of_its_period_is_closed(tmp_path: Path) -> None:
    rows = held(("a", "node1", "31T22:00", "2026-11-01T02:00", 8))
    found = book(rows, read(tmp_path, [hour("node1", f"31T{h}:00") for h in (22, 23)]))
    assert (found.open, items(found), len(found.uncharged)) == (False, {"accelerator time": "32.00"}, 0)


def test_holdings_without_times_are_spread_over_the_period(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    rows = rows.replace(start_ns=np.array([-1]), end_ns=np.array([-1]))
    found = book(rows, read(tmp_path, [hour("node1", "01T00:00", "2026-11-01", cost="744.00")]))
    assert items(found) == {"accelerator time": "1.00", "idle accelerators": "743.00"}


def test_without_a_bill_prices_make_the_money(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8), ("b", "node2", "05T10:00", "05T10:20", 1))
    found = book_at_prices(rows, Prices(gpu_hour=Decimal("2.50"), currency="EUR"))
    assert (found.booked.effective.tolist(), found.effective, found.currency) == ([20 * 10**9, 833_333_333], None, "EUR")
    assert len(book_at_prices(rows, None).booked) == 0
    half = book_at_prices(rows, Prices(gpu_hour=Decimal(1), currency="EUR"), (at("05T10:30"), at("06T00:00")))
    assert half.booked.effective.tolist() == [4 * 10**9]


def test_rows_of_version_1_0_have_no_invoice(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    found = book(rows, read(tmp_path, [usage("1.0")]))
    assert [(one.id, one.billed, one.closes) for one in found.invoices] == [(None, "20.00", True)]


def test_time_beyond_64_bits_on_hosts_that_nobody_names() -> None:
    day, count = 86_400 * 10**9, 5
    columns = {"host": np.full(count, "", dtype=object), "accelerators": np.full(count, 100_000),
               "start_ns": np.full(count, 20_000 * day), "end_ns": np.full(count, 20_001 * day),
               "rank_ns": np.full(count, 100_000 * day)}  # fmt: skip
    found = book_at_prices(Table(Held, columns, count), Prices(gpu_hour=Decimal("2.123456789"), currency="EUR"))
    assert total(found.booked.effective) == count * 100_000 * 24 * 2_123_456_789


def test_a_charge_of_centuries_is_idle_but_for_what_was_held(tmp_path: Path) -> None:
    rows = held(("a", "node1", "05T10:00", "05T11:00", 8))
    charge = usage(ChargePeriodStart="1980-01-01T00:00:00Z", ChargePeriodEnd="2200-01-01T00:00:00Z")
    charge |= {"ConsumedQuantity": "1928568", "PricingQuantity": "1928568"}
    found = book(rows, read(tmp_path, [charge]), period=(0, 2**62)).booked
    idle = found.item == "idle accelerators"
    assert total(found.effective[idle]) > 0.99 * total(found.effective)
