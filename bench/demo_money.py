"""Prices, power and a FOCUS bill for the incident of `taut demo`: made for it, not recorded.

python bench/demo_money.py src/taut/demo

The job, its steps and its hosts are those that were recorded; nothing of them is changed. Power follows the recorded ops of
each rank (computing, in a collective, neither) with noise, ten samples a second. The bill is what a provider that charges by
the second and invoices every job would send for the hosts of both attempts and the time between them: four hosts under a
commitment for five, four at list price, the unused fifth, the purchase of the commitment, storage, tax.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from focus_rows import FocusRow, render

SEED = 22
LOAD_W, STALL_W, IDLE_W, NOISE_W = 612.0, 388.0, 121.0, 7.0
"""Of an accelerator that computes, that is in a collective, that does neither; and what samples scatter by."""
EVERY_NS = 100_000_000
LIST, COMMITTED = Decimal("0.0007"), Decimal("0.00045")
"""Of one accelerator for one second, EUR: 2.52 and 1.62 an hour."""
COMMITTED_HOSTS, BOUGHT = 4, 5
PRICES = """\
# Prices of the incident that `taut demo` analyses. Made up, like its bill and its power: only the job was recorded.
currency = "EUR"
gpu_hour = "2.52"            # list price, where there is no bill

[power]                      # W of one accelerator, where nobody measured
load_w = 620
stall_w = 400
idle_w = 110

[electricity]
per_kwh = "0.21"
in_rate = true               # the provider pays for it

[carbon]
kg_per_kwh = 0.35

[cooling]
pue = 1.2

[hosts]
accelerators = 1             # of every host

[[fix]]                      # another host for the slow rank
kind = "repair"
name = "straggler*"
price = "150"

[teams]
"*" = "vision"
"""


def intervals(events: Sequence[dict[str, Any]], wanted: str) -> list[tuple[float, float]]:
    """When ops whose names match ran, overlaps joined, in µs of the trace."""
    found: list[tuple[float, float]] = []
    for event in sorted(events, key=lambda event: event["ts"]):
        if re.match(wanted, event["name"]):
            begin, end = event["ts"], event["ts"] + event["dur"]
            if found and begin <= found[-1][1]:
                found[-1] = found[-1][0], max(end, found[-1][1])
            else:
                found.append((begin, end))
    return found


def inside(spans: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(min(last, end) - max(first, begin), 0.0) for first, last in spans)


def samples(trace: dict[str, Any], draw: random.Random) -> Iterator[tuple[int, int]]:
    """(ns, W) of one rank, each the mean of the time since the sample before."""
    events, base = trace["traceEvents"], int(trace["baseTimeNanoseconds"])
    work = intervals(events, r"_Paced|autograd")
    busy = intervals([event for event in events if re.match(r"_Paced|autograd|gloo", event["name"])], ".")
    steps = [event for event in events if event["name"].startswith("ProfilerStep")]
    first, last = (round(edge * 1000) for edge in (min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)))
    level = draw.gauss(1.0, 0.012)
    for at in range(-(-(base + first) // EVERY_NS) * EVERY_NS, base + last + EVERY_NS, EVERY_NS):
        begin, end = (at - EVERY_NS - base) / 1000, (at - base) / 1000
        load, any_ = (inside(some, begin, end) * 1000 / EVERY_NS for some in (work, busy))
        watts = load * LOAD_W + (any_ - load) * STALL_W + (1 - any_) * IDLE_W
        yield at, round(level * watts + draw.gauss(0.0, NOISE_W))


def power(folder: Path) -> str:
    """Metrics of all ranks."""
    draw = random.Random(SEED)
    lines = ["rank,time_ns,power_w"]
    for path in sorted(folder.glob("rank*.json.gz")):
        rank = int(re.sub(r"\D", "", path.name))
        lines += [f"{rank},{at},{watts}" for at, watts in samples(json.loads(gzip.decompress(path.read_bytes())), draw)]
    return "\n".join(lines) + "\n"


def times(folder: Path) -> tuple[datetime, datetime]:
    """The whole seconds around both attempts, as the training log tells them."""
    stamps = re.findall(r"^\[(\S+?)Z\]", (folder / "train.log").read_text(encoding="utf-8"), re.MULTILINE)
    first, last = (datetime.fromisoformat(stamp).replace(tzinfo=UTC) for stamp in (stamps[0], stamps[-1]))
    return first.replace(microsecond=0), last.replace(microsecond=0) + timedelta(seconds=1)


def bill(start: datetime, end: datetime, hosts: int) -> Iterator[FocusRow]:
    """The charges."""
    minute = end.replace(second=0)
    for i in range(hosts):
        for begin, stop in ((start, minute), (minute, end)):
            yield usage(i, begin, stop)
    seconds = Decimal((end - start) // timedelta(seconds=1))
    whole = usage(0, start, end)
    nobody = dict.fromkeys(("consumed_quantity", "consumed_unit", "resource_id", "resource_name", "resource_type"))
    spare = seconds * (BOUGHT - COMMITTED_HOSTS)
    yield replace(whole, **nobody, **costs(spare, Decimal(0)), commitment_discount_status="Unused",
                  commitment_discount_quantity=spare * COMMITTED, charge_description="commitment that nobody used")  # fmt: skip
    bought = seconds * BOUGHT
    yield replace(
        whole, **nobody, charge_category="Purchase", charge_frequency="Recurring", commitment_discount_status=None,
        sku_id="plan", sku_price_id="plan.1y", sku_meter="Plan", list_unit_price=COMMITTED, contracted_unit_price=COMMITTED,
        pricing_quantity=bought, commitment_discount_quantity=bought * COMMITTED, billed_cost=bought * COMMITTED,
        effective_cost=Decimal(0), list_cost=bought * COMMITTED, contracted_cost=bought * COMMITTED,
        charge_description="commitment for five accelerators, one year, this minute's part",
    )  # fmt: skip
    storage = Decimal("0.0041")
    stored = replace(
        usage(hosts, start, end), service_category="Storage", service_name="Block storage",
        service_subcategory="Block Storage", sku_meter="Disk", resource_id="vol-checkpoints",
        resource_name="checkpoints", resource_type="Volume", sku_id="disk", sku_price_id="disk.list", sku_price_details=None,
        **dict.fromkeys(("list_unit_price", "contracted_unit_price"), storage),
        **dict.fromkeys(("pricing_quantity", "consumed_quantity"), Decimal(1)),
        **dict.fromkeys(("pricing_unit", "consumed_unit"), "GB-Hours"), **dict.fromkeys(COSTS, storage),
        charge_description="checkpoints",
    )  # fmt: skip
    yield stored
    due = (seconds * (hosts - COMMITTED_HOSTS) * LIST + bought * COMMITTED + storage) * Decimal("0.19")
    yield replace(
        usage(hosts, start, end), **nobody, **dict.fromkeys(COSTS, due), charge_category="Tax", charge_frequency="Recurring",
        **dict.fromkeys(("pricing_category", "pricing_quantity", "pricing_unit", "list_unit_price", "contracted_unit_price",
                         "sku_id", "sku_price_id", "sku_meter", "sku_price_details")),
        charge_description="value added tax, 19 %",
    )  # fmt: skip


COSTS = ("billed_cost", "effective_cost", "list_cost", "contracted_cost")


def costs(seconds: Decimal, billed: Decimal) -> dict[str, Decimal]:
    """Amounts of time under the commitment."""
    of_list = dict.fromkeys(("list_cost", "contracted_cost"), seconds * LIST)
    return {**of_list, "billed_cost": billed, "effective_cost": seconds * COMMITTED, "pricing_quantity": seconds}


def usage(host: int, start: datetime, end: datetime) -> FocusRow:
    """A host for some seconds: the first ones under the commitment, the others at list price."""
    seconds = Decimal((end - start) // timedelta(seconds=1))
    row = FocusRow(
        **dict.fromkeys(COSTS, seconds * LIST), billing_currency="EUR", billing_account_id="acct-7",
        billing_account_name="Research", billing_period_start=start, billing_period_end=end,
        charge_period_start=start, charge_period_end=end, invoice_id="2026-11-0042", invoice_issuer_name="A Cloud",
        service_provider_name="A Cloud", service_name="Virtual machines", charge_description="host with one accelerator",
        resource_id=f"i-{host:04}", resource_name=f"node{host}", resource_type="Instance", region_id="west-1",
        region_name="West", sku_id="gpu1", sku_price_id="gpu1.list", sku_price_details='{"GpuCount": 1}',
        pricing_category="Standard", pricing_quantity=seconds, pricing_unit="Seconds", list_unit_price=LIST,
        contracted_unit_price=LIST, consumed_quantity=seconds, consumed_unit="Seconds", billing_account_type="Account",
        sub_account_id="p-77", sub_account_name="training", sub_account_type="Project", sku_meter="Host",
        pricing_currency="EUR", service_subcategory="Virtual Machines", tags='{"cluster": "c1"}',
    )  # fmt: skip
    if host >= COMMITTED_HOSTS:
        return row
    plan = {"commitment_discount_category": "Spend", "commitment_discount_id": "plan-1", "commitment_discount_name": "one year",
            "commitment_discount_type": "Plan", "commitment_discount_unit": "EUR"}  # fmt: skip
    return replace(
        row, **plan, **costs(seconds, Decimal(0)), commitment_discount_status="Used", pricing_category="Committed",
        sku_price_id="gpu1.plan", commitment_discount_quantity=seconds * COMMITTED,
    )  # fmt: skip


def _priced(row: FocusRow) -> FocusRow:
    """The same in the currency of the price list, which is that of the bill."""
    return replace(
        row, pricing_currency_effective_cost=row.effective_cost, pricing_currency_list_unit_price=row.list_unit_price,
        pricing_currency_contracted_unit_price=row.contracted_unit_price,
    )  # fmt: skip


def add_money(folder: Path) -> None:
    """Write the three files beside what was recorded."""
    (folder / "power.csv.gz").write_bytes(gzip.compress(power(folder).encode(), 9, mtime=0))
    (folder / "prices.toml").write_text(PRICES, encoding="utf-8")
    start, end = times(folder)
    first, last = start.replace(second=0), end.replace(second=0) + timedelta(minutes=1)
    period = {"billing_period_start": first, "billing_period_end": last}
    charges = [_priced(replace(row, **period)) for row in bill(start, end, len(list(folder.glob("rank*.json.gz"))))]
    with (folder / "bill.csv").open("wb") as out:
        render(charges, out, "1.2")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    add_money(parser.parse_args().target)


if __name__ == "__main__":
    main()
