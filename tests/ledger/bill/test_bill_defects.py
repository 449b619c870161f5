"""What is wrong with a bill is named with its amount; an ordinary bill has nothing wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bill_months import HOUR, PERIOD, at, held, hour, iso, items, ordinary, read
from focus_bills import Row, bill, usage
from taut.core.prices import HostFacts, Prices
from taut.core.tables import Table
from taut.ledger.bill.booking import Booking, book
from taut.ledger.bill.defects.all_kinds import KINDS
from taut.read.focus.focus_reader import read_focus

Rows = list[dict[str, str]]


def found(folder: Path, rows: Sequence[Row], table: Table, prices: Prices | None = None) -> Booking:
    """The bill booked; whatever is wrong with it, the books add up."""
    booking = book(table, read(folder, rows), prices)
    assert booking.booked.effective.sum() + booking.removed == booking.effective
    return booking


def kinds(booking: Booking) -> list[tuple[str, str | None, int]]:
    return [(one.kind, one.money, one.rows) for one in booking.defects]


def of_host(rows: Rows, host: str) -> Rows:
    """Its charges in order of time."""
    mine = [row for row in rows if row["ResourceName"] == host and not row["ChargeClass"]]
    return sorted(mine, key=lambda row: row["ChargePeriodStart"])


def cost(rows: Sequence[Row]) -> str:
    return f"{sum(round(float(row['EffectiveCost']) * 100) for row in rows) / 100:.2f}"


@pytest.mark.parametrize("seed", range(6))
def test_an_ordinary_bill_has_no_defects_and_closes(tmp_path: Path, seed: int) -> None:
    rows, table = ordinary(seed)
    booking = found(tmp_path, rows, table)
    assert kinds(booking) == []
    assert (booking.unmatched, booking.removed, int(booking.uncharged.effective.sum())) == ([], 0, 0)
    assert (booking.open, all(one.closes for one in booking.invoices)) == (False, True)


def test_lines_that_stand_twice(tmp_path: Path) -> None:
    rows, table = ordinary()
    twice = [
        *of_host(rows, "node3")[10:13],
        of_host(rows, "node6")[2],
        next(row for row in rows if row["ChargeCategory"] == "Tax"),
    ]
    booking = found(tmp_path, [*rows, *twice], table)
    assert kinds(booking) == [("duplicated line", cost(twice), 5)]
    assert booking.defects[0].places[0].endswith(f"bill.csv:{len(rows) + 1}")
    assert [one.closes for one in booking.invoices] == [False]


def test_a_file_that_was_delivered_twice(tmp_path: Path) -> None:
    rows, table = ordinary()
    paid = [row for row in rows if float(row["EffectiveCost"]) or float(row["BilledCost"])]
    files = [bill(tmp_path, rows, "a.csv"), bill(tmp_path, rows, "b.csv")]
    booking = book(table, read_focus(files))
    assert kinds(booking) == [("duplicated line", cost(rows), len(paid))]
    assert "b.csv" in booking.defects[0].because


def test_negative_rows_that_do_not_say_why(tmp_path: Path) -> None:
    rows, table = ordinary()
    wrong = hour("node3", "06T10:00", cost="-12.34") | {"BillingPeriodStart": "2026-10-05T00:00:00Z"}
    given = hour("node3", "06T10:00", cost="-1.00", ChargeDescription="refund of an outage")
    assert kinds(found(tmp_path, [*rows, wrong, given], table)) == [("negative charge", "-12.34", 1)]


def test_charges_in_another_currency_keep_it(tmp_path: Path) -> None:
    rows, table = ordinary()
    other = [row | {"BillingCurrency": "USD", "SkuId": "away"} for row in of_host(rows, "node3")[:2]]
    booking = book(table, read(tmp_path, [*rows, *other]), currency="EUR")
    assert [(one.kind, one.money, one.currency) for one in booking.defects] == [("another currency", "20.80", "USD")]


def test_a_row_over_hours_that_are_charged_already(tmp_path: Path) -> None:
    rows, table = ordinary()
    over = of_host(rows, "node3")[20] | {
        "ChargePeriodEnd": of_host(rows, "node3")[25]["ChargePeriodEnd"], "ConsumedQuantity": "6", "PricingQuantity": "6",
        **dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), "62.40"),
    }  # fmt: skip
    assert kinds(found(tmp_path, [*rows, over], table)) == [("overlapping periods", "62.40", 1)]


def test_a_row_that_overlaps_two_by_half(tmp_path: Path) -> None:
    rows, table = ordinary()
    start = of_host(rows, "node3")[20]["ChargePeriodStart"]
    half = of_host(rows, "node3")[20] | {
        "ChargePeriodStart": iso(at(start[:19]) + HOUR // 2),
        "ChargePeriodEnd": iso(at(start[:19]) + 3 * HOUR // 2),
    }
    assert kinds(found(tmp_path, [*rows, half], table)) == [("overlapping periods", "10.40", 1)]


def test_two_parts_of_one_hour_do_not_overlap(tmp_path: Path) -> None:
    parts = [
        hour("node1", "05T10:00", cost="6.00", ConsumedQuantity="0.6", PricingQuantity="0.6", CommitmentDiscountStatus="Used",
             CommitmentDiscountId="c"),
        hour("node1", "05T10:00", cost="6.40", ConsumedQuantity="0.4", PricingQuantity="0.4"),
    ]  # fmt: skip
    assert kinds(found(tmp_path, parts, held(("a", "node1", "05T10:00", "05T11:00", 8)))) == []


def test_a_missing_day_of_a_host_that_is_charged_around_the_clock(tmp_path: Path) -> None:
    rows, table = ordinary()
    day = [row for row in of_host(rows, "node4") if row["ChargePeriodStart"].startswith("2026-10-06")]
    booking = found(tmp_path, [row for row in rows if row not in day], table)
    assert kinds(booking) == [("missing period", f"-{cost(day)}", 0)]
    assert "node4" in booking.defects[0].because
    assert -int(booking.uncharged.effective.sum()) == -round(float(cost(day)) * booking.unit)


@pytest.mark.parametrize("hours", [2, -5, 9])
def test_a_bill_in_local_time(tmp_path: Path, hours: int) -> None:
    rows, table = ordinary()
    times = ("ChargePeriodStart", "ChargePeriodEnd")
    local = [
        row | {name: iso(at(row[name][:19]) + hours * HOUR) for name in times} if row["ConsumedUnit"] == "Hours" else row
        for row in rows
    ]
    booking = found(tmp_path, local, table)
    assert [(one.kind, one.money) for one in booking.defects] == [("time zone", "0.00")]
    assert f"{abs(hours)} h {'earlier' if hours > 0 else 'later'}" in booking.defects[0].because
    assert int(booking.uncharged.effective.sum()) == 0


def test_a_bill_in_local_time_of_a_local_month(tmp_path: Path) -> None:
    always = [hour(f"node{i}", iso(at("05T00:00") + h * HOUR)[:19]) | PERIOD for i in range(8) for h in range(0, 96, 5)]
    times = [("a", f"node{i}", at("04T22:00") + h * HOUR) for i in range(8) for h in range(0, 96, 5)]
    table = held(*((job, host, iso(time)[:19], iso(time + HOUR)[:19], 8) for job, host, time in times))
    booking = found(tmp_path, always, table)
    assert [(one.kind, one.money) for one in booking.defects] == [("time zone", "0.00")]
    assert (booking.period, booking.uncharged.effective.sum()) == ((at("04T22:00"), at("08T22:00")), 0)


def test_a_bill_of_another_cluster_is_said_once(tmp_path: Path) -> None:
    rows = [hour(f"other{i}", "05T10:00") for i in range(9)]
    booking = found(tmp_path, rows, held(("a", "node1", "05T10:00", "05T11:00", 8)))
    assert kinds(booking) == [("another cluster", "144.00", 9)]
    assert (len(booking.unmatched), booking.removed, set(booking.uncharged.why.tolist())) == (9, 0, {"unbilled"})


@pytest.mark.parametrize("border", [{"SubAccountId": "sub2"}, {"RegionId": "r2"}, {"Tags": '{"cluster": "two"}'}, {}])
def test_part_of_another_clusters_bill(tmp_path: Path, border: dict[str, str]) -> None:
    rows, table = ordinary()
    rows = [row | {"Tags": '{"cluster": "one"}'} for row in rows]
    away = [hour(f"east-{i}", "06T10:00") | border for i in range(4)]
    booking = found(tmp_path, [*rows, *away], table)
    assert kinds(booking) == [("another cluster", "64.00", 4)]
    assert booking.removed == 64 * booking.unit


def test_a_host_of_ours_that_nobody_held_is_idle(tmp_path: Path) -> None:
    rows, table = ordinary()
    booking = found(tmp_path, [*rows, hour("node9", "06T10:00")], table)
    assert (kinds(booking), booking.unmatched) == ([], [])
    assert any("node9" in note for note in booking.notes)


def test_a_price_that_does_not_multiply(tmp_path: Path) -> None:
    rows, table = ordinary()
    dear = of_host(rows, "node3")[30]
    dear |= dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), "14.02")
    assert kinds(found(tmp_path, rows, table)) == [("price times quantity", "3.62", 1)]


def test_usage_outside_its_billing_period(tmp_path: Path) -> None:
    rows, table = ordinary()
    away = of_host(rows, "node3")[0] | {"ChargePeriodStart": "2026-09-28T10:00:00Z", "ChargePeriodEnd": "2026-09-28T11:00:00Z"}
    assert kinds(found(tmp_path, [*rows, away], table)) == [("outside the billing period", "10.40", 1)]


def counted(rows: Rows, host: str, count: int) -> Rows:
    """The charges of a host as those of another number of accelerators, at the price of each."""
    scale = count / 8
    costs = ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost", "ListUnitPrice", "ContractedUnitPrice")
    wrong = {"SkuPriceDetails": f'{{"GpuCount": {count}}}', "SkuId": f"s{count}", "SkuPriceId": f"s{count}.p",
             "ChargeDescription": "an hour"}  # fmt: skip
    return [
        row | wrong | {name: f"{float(row[name]) * scale:.2f}" for name in costs} if row["ResourceName"] == host else row
        for row in rows if not (row["ResourceName"] == host and row["ChargeClass"])
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "prices"), [(16, None), (4, None), (16, Prices(hosts=HostFacts(accelerators=8)))])
def test_another_number_of_accelerators_than_the_host_has(tmp_path: Path, count: int, prices: Prices | None) -> None:
    rows, table = ordinary()
    wrong = counted(rows, "node3", count)
    expected = f"{(count / 8 - 1) * float(cost(of_host(rows, 'node3'))):.2f}"
    booking = found(tmp_path, wrong, table, prices)
    assert kinds(booking) == [("accelerator count", expected, 96)]


def test_more_of_a_commitment_than_was_bought(tmp_path: Path) -> None:
    cells = {"CommitmentDiscountId": "c", "CommitmentDiscountUnit": "Hours", "CommitmentDiscountQuantity": "1"}
    used = [hour("node1", f"05T{h}:00", CommitmentDiscountStatus="Used", **cells) for h in (10, 11, 12, 13)]
    bought = hour("", "01T00:00", "2026-11-01", cost="0", ChargeCategory="Purchase", ResourceId="", ResourceName="",
                  BilledCost="48.00", **(cells | {"CommitmentDiscountQuantity": "3"}))  # fmt: skip
    table = held(("a", "node1", "05T10:00", "05T14:00", 8))
    assert kinds(found(tmp_path, [*used, bought], table)) == [("commitment exceeded", "16.00", 1)]
    plans = bought | {"CommitmentDiscountQuantity": "1", "BilledCost": "64.00"}
    assert kinds(found(tmp_path, [*used, plans], table)) == []


def test_hosts_that_the_bill_does_not_name(tmp_path: Path) -> None:
    table = held(("a", "node1", "05T10:00", "05T11:00", 8), ("b", "box", "05T10:00", "05T11:00", 8))
    assert kinds(found(tmp_path, [hour("node1", "05T10:00")], table)) == [("host not in the bill", "-16.00", 0)]


def test_all_at_once(tmp_path: Path) -> None:
    rows, table = ordinary()
    gone = [row for row in of_host(rows, "node4") if row["ChargePeriodStart"].startswith("2026-10-06")]
    rows = counted([row for row in rows if row not in gone], "node2", 16)
    third = of_host(rows, "node3")
    dear = third[30]
    dear |= dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), "14.02")
    away = [hour(f"east-{i}", "06T10:00", SubAccountId="sub2") for i in range(4)]
    outside = third[0] | {"ChargePeriodStart": "2026-09-28T10:00:00Z", "ChargePeriodEnd": "2026-09-28T11:00:00Z"}
    below = third[1] | dict.fromkeys(("BilledCost", "EffectiveCost"), "-2.22")
    over = third[40] | {"SkuPriceId": "s1.p2", "BilledCost": "10.41", "EffectiveCost": "10.41", "ContractedCost": "10.41",
                        "ContractedUnitPrice": "10.41"}  # fmt: skip
    booking = found(tmp_path, [*rows, third[5], *away, outside, below, over], table)
    money = {one.kind: one.money for one in booking.defects}
    assert money == {
        "duplicated line": "10.40", "negative charge": "-2.22", "outside the billing period": "10.40",
        "another cluster": "64.00", "accelerator count": "998.40", "price times quantity": "3.62",
        "overlapping periods": "10.41", "missing period": "-249.60",
    }  # fmt: skip


def test_every_kind_is_in_the_documentation(root: Path) -> None:
    page = (root / "docs" / "bill-defects.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in page] == []


def test_local_time_of_hosts_that_are_charged_around_the_clock(tmp_path: Path) -> None:
    rows, _ = ordinary()
    period = {"BillingPeriodStart": rows[0]["BillingPeriodStart"], "BillingPeriodEnd": rows[0]["BillingPeriodEnd"]}
    always = [hour(f"node{i}", iso(at("05T02:00") + h * HOUR)[:19]) | period for i in range(8) for h in range(96)]
    table = held(*((f"job{i}", f"node{i}", "05T00:00", "09T00:00", 8) for i in range(8)))
    assert [(one.kind, one.money) for one in found(tmp_path, always, table).defects] == [("time zone", "0.00")]


def test_a_bill_that_begins_late_is_in_no_other_zone(tmp_path: Path) -> None:
    always = [hour(f"node{i}", iso(at("05T02:00") + h * HOUR)[:19]) for i in range(8) for h in range(94)]
    table = held(*((f"job{i}", f"node{i}", "05T00:00", "09T00:00", 8) for i in range(8)))
    assert {one.kind for one in found(tmp_path, always, table).defects} == {"missing period"}


def defects(tmp_path: Path, *rows: dict[str, str]) -> list[tuple[str, str | None, int]]:
    used = held(("a", "node1", "05T10:00", "05T12:00", 8))
    return kinds(book(used, read(tmp_path, list(rows))))


NEXT = {"ChargePeriodStart": "2026-10-05T11:00:00Z", "ChargePeriodEnd": "2026-10-05T12:00:00Z"}


def test_a_total_line_is_no_charge(tmp_path: Path) -> None:
    total_line = dict.fromkeys(usage(), "") | {"BilledCost": "40", "EffectiveCost": "40"}
    booking = book(held(("a", "node1", "05T10:00", "05T12:00", 8)), read(tmp_path, [usage(), usage(**NEXT), total_line]))
    assert kinds(booking) == [("no charge", "40.00", 1)]
    assert booking.effective == 40 * 10**9


def test_a_cost_that_is_not_told_is_unknown(tmp_path: Path) -> None:
    unknown = {"BilledCost": "", "EffectiveCost": ""}
    assert defects(tmp_path, usage(**NEXT), usage(**unknown)) == [("cost not known", None, 1)]
    covered = {"EffectiveCost": "", "BilledCost": "0", "CommitmentDiscountStatus": "Used", "CommitmentDiscountId": "c1"}
    assert ("cost not known", None, 1) in defects(tmp_path, usage(**NEXT), usage(**covered))


def test_a_period_without_length_is_for_nothing_and_one_backwards_is_turned(tmp_path: Path) -> None:
    empty = usage(ChargePeriodEnd="2026-10-05T10:00:00Z", SkuId="s2")
    assert defects(tmp_path, usage(), usage(**NEXT), empty) == [("period of no length", "20.00", 1)]
    turned = usage(ChargePeriodStart=NEXT["ChargePeriodEnd"], ChargePeriodEnd=NEXT["ChargePeriodStart"])
    assert defects(tmp_path, usage(), turned) == [("period backwards", "0.00", 1)]


def test_a_credit_that_is_added_is_named(tmp_path: Path) -> None:
    credit = usage(ChargeCategory="Credit", BilledCost="7", EffectiveCost="7", ResourceId="", ResourceName="")
    assert ("credit above 0", "7.00", 1) in defects(tmp_path, usage(), usage(**NEXT), credit)


def test_a_copy_that_was_taken_back_is_no_defect(tmp_path: Path) -> None:
    back = usage(ChargeClass="Correction", BilledCost="-20.00", EffectiveCost="-20.00")
    assert defects(tmp_path, usage(), usage(), usage(**NEXT), back) == []


def test_a_purchase_that_stands_twice_moves_what_is_billed(tmp_path: Path) -> None:
    bought = usage(ChargeCategory="Purchase", EffectiveCost="0", BilledCost="500", ResourceId="plan", ResourceName="plan",
                   ContractedUnitPrice="50", ServiceCategory="Other")  # fmt: skip
    assert ("duplicated line", "500.00", 1) in defects(tmp_path, usage(), usage(**NEXT), bought, bought)


def test_accelerators_that_are_charged_one_by_one(tmp_path: Path) -> None:
    one = {"SkuPriceDetails": '{"GpuCount": 1}', "SkuId": "one", "ChargeDescription": "an accelerator, one hour"}
    rows = [hour("node1", f"05T1{n}:00", cost="2.00", **one) for n in range(4) for _ in range(8)]
    booking = found(tmp_path, rows, held(("a", "node1", "05T10:00", "05T14:00", 4), ("b", "node1", "05T10:00", "05T13:00", 4)))
    assert kinds(booking) == []
    assert items(booking) == {"accelerator time": "56.00", "idle accelerators": "8.00"}


@pytest.mark.parametrize(("category", "named"), [("Standard", ["144.00"]), ("Dynamic", [])])
def test_one_hour_at_ten_times_the_price_of_all_others(tmp_path: Path, category: str, named: list[str]) -> None:
    rows = [hour("node1", f"{5 + n // 24:02}T{n % 24:02}:00", cost="160.00" if n == 70 else "16.00") for n in range(150)]
    rows = [row | {"PricingCategory": category} for row in rows]
    booking = found(tmp_path, rows, held(("a", "node1", "05T00:00", "11T06:00", 8)))
    assert kinds(booking) == [("unit price", money, 1) for money in named]


def test_prices_that_change_within_the_month(tmp_path: Path) -> None:
    rows = [hour("node1", f"{5 + n // 24:02}T{n % 24:02}:00", cost="16.00" if n < 140 else "32.00") for n in range(150)]
    assert kinds(found(tmp_path, rows, held(("a", "node1", "05T00:00", "11T06:00", 8)))) == []


def test_a_tax_that_stands_in_two_invoices(tmp_path: Path) -> None:
    rows, table = ordinary()
    tax = next(row for row in rows if row["ChargeCategory"] == "Tax")
    booking = found(tmp_path, [*rows, tax | {"InvoiceId": "inv-2"}], table)
    assert kinds(booking) == [("duplicated line", cost([tax]), 1)]
    assert [(one.id, one.closes, one.explained == one.residual) for one in booking.invoices] == [
        ("inv-1", True, True),
        ("inv-2", False, True),
    ]
