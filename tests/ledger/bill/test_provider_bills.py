"""Bills as providers write them: nothing is wrong with any of them, and every accelerator hour finds its money."""

from __future__ import annotations

from pathlib import Path

import pytest

from bill_months import HOUR, at, held, hour, iso, read
from taut.core.prices import HostFacts, Prices
from taut.core.tables import Table
from taut.ledger.bill.booking import Booking, book

DAY = {"BillingPeriodStart": "2026-10-05T00:00:00Z", "BillingPeriodEnd": "2026-10-06T00:00:00Z"}
Rows = list[dict[str, str]]


def day(*accelerators: int) -> Table:
    """Hosts gpu-1 … held all day."""
    return held(*((f"job{i}", f"gpu-{i}", "05T00:00", "06T00:00", count) for i, count in enumerate(accelerators, 1)))


def clean(folder: Path, rows: Rows, table: Table, prices: Prices | None = None) -> Booking:
    booking = book(table, read(folder, [row | DAY for row in rows]), prices)
    assert [(one.kind, one.money, one.because) for one in booking.defects] == []
    assert booking.booked.effective.sum() == booking.effective
    assert int(booking.uncharged.effective.sum()) == 0
    return booking


def hours() -> list[str]:
    return [iso(at("05T00:00") + h * HOUR)[:19] for h in range(24)]


def share(booking: Booking, item: str) -> float:
    money = booking.booked.effective
    return round(float(money[booking.booked.item == item].sum() / money.sum()), 4)


def test_cores_memory_and_accelerators_in_rows_of_their_own(tmp_path: Path) -> None:
    parts = (("c", "vCPU-Hours", "208", "5.20"), ("m", "GiB-Hours", "1872", "7.80"), ("g", "GPU-Hours", "8", "70.00"))
    rows = [
        hour("gpu-1", start, cost=cost, SkuId=sku, SkuPriceId=sku, ConsumedUnit=unit, PricingUnit=unit, ConsumedQuantity=many,
             PricingQuantity=many, SkuPriceDetails="", ChargeDescription=f"{sku} of a3-megagpu in r1")
        for start in hours() for sku, unit, many, cost in parts
    ]  # fmt: skip
    assert share(clean(tmp_path, rows, day(4)), "idle accelerators") == 0.5


def test_a_row_a_day_of_a_resource_that_is_a_path(tmp_path: Path) -> None:
    path = "/subscriptions/1/resourcegroups/ml/providers/compute/virtualmachines/gpu-"
    rows = [
        hour("", "05T00:00", "06T00:00", cost="240.00", ResourceId=f"{path}{i}", ResourceName="", PricingUnit="1 Hour",
             ConsumedUnit="1 Hour", SkuPriceDetails='{"InstanceType": "Standard_ND96isr_H100_v5"}', ChargeDescription="ND96isr")
        for i in (1, 2)
    ]  # fmt: skip
    assert share(clean(tmp_path, rows, day(8, 8)), "accelerator time") == 1


def test_prices_by_the_hundred_hours_and_months_in_one_row(tmp_path: Path) -> None:
    rows = [hour("gpu-1", "05T00:00", "06T00:00", cost="240.00", PricingUnit="100 Hours", PricingQuantity="0.24")]
    assert share(clean(tmp_path, rows, day(8)), "accelerator time") == 1


def test_seconds(tmp_path: Path) -> None:
    rows = [hour("gpu-1", start, ConsumedUnit="Seconds", ConsumedQuantity="3600") for start in hours()]
    assert share(clean(tmp_path, rows, day(8)), "accelerator time") == 1


def test_an_instance_that_stops_and_starts_within_the_hour(tmp_path: Path) -> None:
    table = held(("a", "gpu-1", "05T10:00", "05T10:20", 8), ("b", "gpu-1", "05T10:40", "05T11:00", 8))
    part = {"ConsumedQuantity": "0.333333333", "PricingQuantity": "0.333333333"}
    rows = [
        hour("gpu-1", "05T10:00", "05T10:20", cost="5.33", **part), hour("gpu-1", "05T10:40", "05T11:00", cost="5.33", **part),
        hour("", "05T00:00", "06T00:00", cost="1.00", ServiceCategory="Storage", ResourceId="v", ResourceName=""),
    ]  # fmt: skip
    booking = clean(tmp_path, rows, table)
    assert share(booking, "idle accelerators") == 0


def test_hosts_of_several_sizes_where_jobs_take_what_they_need(tmp_path: Path) -> None:
    sizes = {1: 8, 2: 8, 3: 4, 4: 16}
    rows = [
        hour(f"gpu-{i}", start, cost=f"{2 * count}.00", SkuId=f"s{count}", SkuPriceId=f"s{count}.p",
             SkuPriceDetails=f'{{"GpuCount": {count}}}', ChargeDescription="an hour")
        for i, count in sizes.items() for start in hours()
    ]  # fmt: skip
    booking = clean(tmp_path, rows, day(2, 8, 1, 12))
    assert share(booking, "accelerator time") == round((2 + 8 + 1 + 12) / 36, 4)


def test_jobs_that_follow_each_other_overlap_by_seconds(tmp_path: Path) -> None:
    table = held(*((f"j{h}", "gpu-1", f"05T{h:02}:00", f"05T{h + 1:02}:00:09" if h < 23 else "06T00:00", 8) for h in range(24)))
    clean(tmp_path, [hour("gpu-1", start) for start in hours()], table)


def test_part_of_the_accelerators_for_part_of_the_hour(tmp_path: Path) -> None:
    rows = [
        hour("gpu-1", start, cost="8.00", ConsumedUnit="GPU-Hours", ConsumedQuantity="4", SkuPriceDetails="")
        for start in hours()
    ]
    prices = Prices(hosts=HostFacts(accelerators=8))
    clean(tmp_path, rows, day(4), prices)


def test_a_refund_a_reversal_and_a_correction_of_the_same_hour(tmp_path: Path) -> None:
    rows = [
        *(hour("gpu-1", start) for start in hours()),
        hour("gpu-1", hours()[3], cost="-16.00", ChargeDescription="Refund for an interrupted hour"),
        hour("gpu-1", hours()[4], cost="-16.00", ChargeClass="Correction"),
        hour("gpu-1", hours()[4], cost="15.00", ChargeClass="Correction"),
    ]
    clean(tmp_path, rows, day(8))


def test_notebooks_with_accelerators_that_no_scheduler_knows_are_unmatched(tmp_path: Path) -> None:
    rows = [hour("gpu-1", start) for start in hours()]
    notebooks = [hour(f"notebook-{i}", "05T10:00", cost="2.00", SkuId="small", SkuPriceId="small.p") for i in range(5)]
    booking = clean(tmp_path, [*rows, *notebooks], day(8))
    assert len(booking.unmatched) == 5


@pytest.mark.parametrize("currency", ["JPY", "EUR"])
def test_amounts_rounded_to_what_the_currency_has(tmp_path: Path, currency: str) -> None:
    price, cost = ("1234.5678", "1235") if currency == "JPY" else ("12.345678", "12.35")
    rows = [
        hour("gpu-1", start, cost=cost, BillingCurrency=currency, PricingCurrency=currency, ContractedUnitPrice=price)
        for start in hours()
    ]
    clean(tmp_path, rows, day(8))


def test_a_maintenance_window_without_charges_and_jobs(tmp_path: Path) -> None:
    table = held(("a", "gpu-1", "05T00:00", "05T08:00", 8), ("b", "gpu-1", "05T14:00", "06T00:00", 8))
    clean(tmp_path, [hour("gpu-1", start) for start in hours() if not "T08" <= start[10:13] < "T14"], table)
