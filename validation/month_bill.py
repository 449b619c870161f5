"""What the provider charges for the month of `month_jobs.py`: rows of FOCUS, each with what it truly is.

Part of `bill_month.py`. Nothing of taut is imported. Ordinary untidiness is here on purpose: a minimum of 60 s, amounts
rounded to cents, daily rows of storage, rows of 0, charges without a resource, amortised commitments, hours that two rows
share, a host whose accelerators are charged apart, machines without accelerators, corrections of the month before.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from month_jobs import ACCELERATORS, BEGIN, DAY, END, HOUR, Cluster, at, iso


def words(text: str) -> list[str]:
    return text.split()


COMMON = words(
    "AvailabilityZone BilledCost BillingAccountId BillingAccountName BillingCurrency BillingPeriodEnd BillingPeriodStart "
    "ChargeCategory ChargeClass ChargeDescription ChargeFrequency ChargePeriodEnd ChargePeriodStart "
    "CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName CommitmentDiscountStatus CommitmentDiscountType "
    "ConsumedQuantity ConsumedUnit ContractedCost ContractedUnitPrice EffectiveCost InvoiceIssuerName ListCost ListUnitPrice "
    "PricingCategory PricingQuantity PricingUnit RegionId RegionName ResourceId ResourceName ResourceType ServiceCategory "
    "ServiceName SkuId SkuPriceId SubAccountId SubAccountName Tags"
)
SINCE_1_2 = words(
    "BillingAccountType CommitmentDiscountQuantity CommitmentDiscountUnit InvoiceId PricingCurrency "
    "PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost PricingCurrencyListUnitPrice ServiceSubcategory SkuMeter "
    "SkuPriceDetails SubAccountType CapacityReservationId CapacityReservationStatus"
)
COLUMNS = {
    "1.0": [*COMMON, "ProviderName", "PublisherName", "x_InvoiceId"],
    "1.2": [*COMMON, *SINCE_1_2, "ProviderName", "PublisherName"],
    "1.4": [*COMMON, *SINCE_1_2, "ServiceProviderName", "HostProviderName", "InvoiceDetailId"],
}
NUMBERS = {name for name in (*COMMON, *SINCE_1_2) if name.endswith(("Cost", "Price", "Quantity"))}
TIMES = {name for name in COMMON if name.endswith(("PeriodStart", "PeriodEnd"))}
LIST, NEGOTIATED, COMMITTED = Decimal("24.00"), Decimal("22.80"), Decimal("14.00")
PAID = Decimal("13.50")
"""Of an hour of the plan, what is paid by the month; the rest was paid before."""
BODY, PER_GPU = Decimal("4.40"), Decimal("2.30")
"""A host that is charged in parts: its body an hour, and each of its accelerators."""
BOUGHT = 26
"""Hosts under the commitment; 24 exist."""
FREE = Decimal(0)


@dataclass(frozen=True)
class Charge:
    """One row, and what it is: accelerator time of a host, or an item of the bill."""

    row: dict[str, object]
    item: str
    host: str = ""
    start: int = 0
    end: int = 0

    @property
    def effective(self) -> Decimal:
        return Decimal(str(self.row["EffectiveCost"]))

    @property
    def billed(self) -> Decimal:
        return Decimal(str(self.row["BilledCost"]))

    def but(self, **changed: object) -> Charge:
        return replace(self, row={**self.row, **changed})


def hours_of(seconds: int) -> Decimal:
    return (Decimal(seconds) / HOUR).quantize(Decimal("1e-10")).normalize() + FREE


def cents(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"))


def plain(invoice: str | None, start: int, end: int, costs: Sequence[Decimal]) -> dict[str, object]:
    """What every row has; costs are billed, effective, list and contracted."""
    billed, effective, listed, contracted = costs
    return {
        "BilledCost": billed, "EffectiveCost": effective, "ListCost": listed, "ContractedCost": contracted,
        "BillingAccountId": "4711-0815", "BillingAccountName": "Research", "BillingAccountType": "Account",
        "BillingCurrency": "EUR", "PricingCurrency": "EUR", "PricingCurrencyEffectiveCost": effective,
        "BillingPeriodStart": BEGIN, "BillingPeriodEnd": END, "ChargePeriodStart": start, "ChargePeriodEnd": end,
        "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based", "InvoiceIssuerName": "Nimbus SE",
        "ProviderName": "Nimbus", "PublisherName": "Nimbus", "ServiceProviderName": "Nimbus", "HostProviderName": "Nimbus",
        "InvoiceId": invoice, "x_InvoiceId": invoice, "InvoiceDetailId": invoice and f"{invoice}-1",
        "RegionId": "eu-3", "RegionName": "Europe 3", "SubAccountId": "p-9", "SubAccountName": "training",
        "SubAccountType": "Project",
    }  # fmt: skip


def priced(sku: str, price: str, quantity: Decimal, unit: str, listed: Decimal, contracted: Decimal) -> dict[str, object]:
    return {
        "SkuId": sku, "SkuPriceId": f"{sku}.{price}", "SkuMeter": sku, "PricingQuantity": quantity, "PricingUnit": unit,
        "ConsumedQuantity": quantity, "ConsumedUnit": unit, "ListUnitPrice": listed, "ContractedUnitPrice": contracted,
        "PricingCurrencyListUnitPrice": listed, "PricingCurrencyContractedUnitPrice": contracted,
        "PricingCategory": {"spot": "Dynamic", "plan": "Committed"}.get(price, "Standard"),
    }  # fmt: skip


def resource(host: str) -> dict[str, object]:
    """How the bill names a host: by its name, a tag, a tag with its domain, an id, or an id that tells nothing."""
    number = int(host[-3:])
    id_ = host if 49 <= number <= 56 else f"i-{number * 2654435761 % 2**32:08x}"
    tags = {"cluster": "a"}
    if 17 <= number <= 32:
        tags["Name"] = host
    elif 33 <= number <= 48:
        tags["kubernetes.io/hostname"] = f"{host}.a.example.net"
    name = host.upper() if number <= 16 else f"worker {number * 7919 % 9973}"
    return {"ResourceId": id_, "ResourceName": name, "ResourceType": "Instance", "Tags": json.dumps(tags),
            "ServiceCategory": "Compute", "ServiceSubcategory": "Virtual Machines", "ServiceName": "Machines"}  # fmt: skip


def mapping(cluster: Cluster) -> dict[str, str]:
    """Resources that only a mapping can match."""
    return {str(resource(name)["ResourceId"]): name for name in cluster.hosts if int(name[-3:]) >= 57}


GPUS = json.dumps({"GpuCount": ACCELERATORS, "InstanceType": "gpu8.xl"})
PLAN = {
    "CommitmentDiscountCategory": "Usage", "CommitmentDiscountId": "plan-77", "CommitmentDiscountName": "one year",
    "CommitmentDiscountType": "Reserved", "CommitmentDiscountUnit": "Hours",
}  # fmt: skip


def on_demand(host: str, start: int, end: int, quantity: Decimal) -> Charge:
    costs = (NEGOTIATED * quantity, NEGOTIATED * quantity, LIST * quantity, NEGOTIATED * quantity)
    row = plain("INV-1", start, end, costs) | resource(host) | priced("gpu8", "list", quantity, "Hours", LIST, NEGOTIATED)
    return Charge(row | {"SkuPriceDetails": GPUS, "ChargeDescription": "gpu8.xl, hour or part"}, "host", host, start, end)


def committed(host: str, start: int, end: int, quantity: Decimal) -> Charge:
    costs = (FREE, COMMITTED * quantity, LIST * quantity, NEGOTIATED * quantity)
    row = plain("INV-1", start, end, costs) | resource(host) | priced("gpu8", "plan", quantity, "Hours", LIST, NEGOTIATED)
    row |= {**PLAN, "CommitmentDiscountStatus": "Used", "CommitmentDiscountQuantity": quantity, "SkuPriceDetails": GPUS,
            "ChargeDescription": "gpu8.xl under plan-77"}  # fmt: skip
    return Charge(row, "host", host, start, end)


def in_parts(host: str, start: int, end: int, quantity: Decimal) -> list[Charge]:
    body = plain("INV-1", start, end, (BODY * quantity,) * 4) | resource(host)
    body |= priced("body8", "list", quantity, "Hours", BODY, BODY) | {"ChargeDescription": "mega body"}
    count = ACCELERATORS * quantity
    gpus = plain("INV-1", start, end, (PER_GPU * count,) * 4) | resource(host)
    gpus |= priced("mega-gpu", "list", count, "GPU-Hours", PER_GPU, PER_GPU)
    gpus |= {"SkuPriceDetails": json.dumps({"GpuCount": 8, "InstanceType": "mega8"}), "ChargeDescription": "mega accelerators"}
    return [Charge(body, "host", host, start, end), Charge(gpus, "host", host, start, end)]


def spot(host: str, start: int, end: int, quantity: Decimal) -> Charge:
    """Its price moves every hour; what is paid is rounded to cents."""
    price = Decimal("8.2") + Decimal(start // HOUR % 24 * 37 % 29) / 10
    paid = cents(price * quantity)
    row = plain("INV-2", start, end, (paid, paid, LIST * quantity, NEGOTIATED * quantity)) | resource(host)
    row |= priced("gpu8", "spot", quantity, "Hours", LIST, NEGOTIATED)
    return Charge(row | {"SkuPriceDetails": GPUS, "ChargeDescription": "gpu8.xl, interruptible"}, "host", host, start, end)


def clock_hours(start: int, end: int) -> Iterable[tuple[int, int]]:
    while start < end:
        border = min(end, start // HOUR * HOUR + HOUR)
        yield start, border
        start = border


def sessions(cluster: Cluster, host: str) -> list[tuple[int, int]]:
    """When a spot host was there: for its attempts, and some time before and after most of them."""
    spans = []
    for one in cluster.attempts:
        if host in one.hosts:
            short = one.end - one.start < 600
            spans.append((one.start - (0 if short else 120), one.end + (0 if short or one.state == "PREEMPTED" else 30)))
    out: list[tuple[int, int]] = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1] + 300:
            out[-1] = out[-1][0], max(out[-1][1], b)
        else:
            out.append((a, b))
    return out


def of_hosts(cluster: Cluster, begin: int, end: int) -> list[Charge]:
    """Every host's hours between two moments."""
    out: list[Charge] = []
    for name, host in cluster.hosts.items():
        for up, down in sessions(cluster, name) if host.pool == "spot" else host.up:
            for a, b in clock_hours(max(up, begin), min(down, end)):
                quantity = hours_of(b - a)
                if host.pool == "committed" and int(name[-3:]) > 22 and a // DAY % 5 == 2:
                    half = quantity / 2  # the plan covers half of the hour
                    out += [committed(name, a, b, half), on_demand(name, a, b, half)]
                elif host.pool == "committed":
                    out.append(committed(name, a, b, quantity))
                elif host.pool == "parts":
                    out += in_parts(name, a, b, quantity)
                else:
                    charged = hours_of(60) if down - up < 60 else quantity
                    out.append((spot if host.pool == "spot" else on_demand)(name, a, b, charged))
    return out


def unused(charges: Sequence[Charge], begin: int, end: int) -> list[Charge]:
    """What the commitment was paid for and nobody used, hour by hour."""
    used: dict[int, Decimal] = {}
    for one in charges:
        if one.row.get("CommitmentDiscountStatus") == "Used":
            used[one.start // HOUR] = used.get(one.start // HOUR, FREE) + Decimal(str(one.row["PricingQuantity"]))
    out = []
    for a, b in clock_hours(begin, end):
        left = BOUGHT - used.get(a // HOUR, FREE)
        row = plain("INV-1", a, b, (FREE, COMMITTED * left, LIST * left, NEGOTIATED * left))
        row |= priced("gpu8", "plan", left, "Hours", LIST, NEGOTIATED) | PLAN
        row |= {"CommitmentDiscountStatus": "Unused", "CommitmentDiscountQuantity": left, "ConsumedQuantity": None,
                "ConsumedUnit": None, "ServiceCategory": "Compute", "ServiceSubcategory": "Virtual Machines",
                "ServiceName": "Machines", "ChargeDescription": "plan-77, not used"}  # fmt: skip
        out.append(Charge(row, "unused commitment"))
    return out


def service(invoice: str | None, start: int, end: int, names: tuple[str, str, str], quantity: Decimal, price: Decimal,
            unit: str, who: str | None, item: str) -> Charge:  # fmt: skip
    category, sub, name = names
    cost = quantity * price
    row = plain(invoice, start, end, (cost,) * 4) | priced(name.lower().replace(" ", "-"), "list", quantity, unit, price, price)
    row |= {"ServiceCategory": category, "ServiceSubcategory": sub, "ServiceName": name, "ResourceId": who, "ResourceName": who,
            "ResourceType": who and name, "ChargeDescription": f"{name}, {unit}"}  # fmt: skip
    return Charge(row, item)


def of_services(begin: int, end: int) -> list[Charge]:
    """Storage by the day, network with rows of 0, two machines without accelerators, a model behind an interface."""
    out = []
    for day in range(begin, end, DAY):
        until = min(day + DAY, end)
        n = (day - begin) // DAY
        for volume in range(12):
            size = Decimal(4000 + 250 * volume + 10 * n)
            names = ("Storage", "Block Storage", "Volumes")
            out.append(service("INV-3", day, until, names, size, Decimal("0.0031"), "GB-Days", f"vol-{volume:03}", "storage"))
        names = ("Networking", "Network Connectivity", "Transfer out")
        out.append(service("INV-3", day, until, names, Decimal(137 + 11 * n), Decimal("0.0817"), "GB", None, "network"))
        names = ("Networking", "Network Connectivity", "Transfer in")
        out.append(service("INV-3", day, until, names, Decimal(9000 + n), FREE, "GB", None, "network"))
        names = ("AI and Machine Learning", "Generative AI", "Model calls")
        out.append(service(None, day, until, names, Decimal(31 + n), Decimal("0.6"), "Million Tokens", None, "other service"))
    for a, b in clock_hours(begin, end):
        for k in (1, 2):
            names = ("Compute", "Virtual Machines", "Small machines")
            one = service("INV-1", a, b, names, hours_of(b - a), Decimal("0.384"), "Hours", f"login-{k}", "other service")
            out.append(one.but(ResourceType="Instance", SkuPriceDetails='{"CoreCount": 8, "InstanceType": "small.8"}'))
    return out


def once(kind: str, invoice: str, amount: Decimal, start: int, end: int, item: str, **more: object) -> Charge:
    row = plain(invoice, start, end, (amount,) * 4)
    row |= {"ChargeCategory": kind, "ChargeFrequency": "One-Time", "ServiceCategory": "Other",
            "ServiceSubcategory": "Other (Other)", "ServiceName": "Account", "ChargeDescription": item}  # fmt: skip
    return Charge(row | more, item)


def around(charges: Sequence[Charge], begin: int, end: int) -> list[Charge]:
    """The purchase of the plan, corrections of September, credits, support, tax of every invoice."""
    out = []
    price = PAID * BOUGHT * ((end - begin) // HOUR)
    bought = priced("plan", "year", Decimal(1), "Plan", price, price) | {"ConsumedQuantity": None, "ConsumedUnit": None}
    out.append(once("Purchase", "INV-4", price, begin, end, "purchase", **bought, **PLAN, EffectiveCost=FREE,
                    PricingCurrencyEffectiveCost=FREE, ChargeFrequency="Recurring",
                    CommitmentDiscountQuantity=Decimal(BOUGHT * ((end - begin) // HOUR)),
                    ServiceCategory="Compute", ServiceSubcategory="Virtual Machines", ServiceName="Machines"))  # fmt: skip
    for k, amount in enumerate(("-31.25", "-31.25", "118.40", "-7.07")):
        hour = at("2026-09-12T09:00:00") + k * HOUR
        out.append(once("Usage", "INV-1", Decimal(amount), hour, hour + HOUR, "correction", **resource("gpu-005"),
                        ChargeClass="Correction", ChargeFrequency="Usage-Based"))  # fmt: skip
    out.append(once("Credit", "INV-1", Decimal("-1500.00"), begin, end, "credit"))
    out.append(once("Credit", "INV-3", Decimal("-12.34"), begin, end, "credit"))
    out.append(once("Purchase", "INV-5", Decimal("2900.00"), begin, end, "other service", ChargeFrequency="Recurring",
                    ServiceName="Support", ChargeDescription="support, business",
                    **priced("support", "list", Decimal(1), "Month", Decimal(2900), Decimal(2900)),
                    ).but(ConsumedQuantity=None, ConsumedUnit=None))  # fmt: skip
    for invoice in ("INV-1", "INV-2", "INV-3", "INV-4", "INV-5"):
        net = sum((one.billed for one in (*charges, *out) if one.row["InvoiceId"] == invoice and one.item != "tax"), FREE)
        out.append(once("Tax", invoice, cents(net * Decimal("0.19")), begin, end, "tax"))
    return out


def bill(cluster: Cluster, begin: int = BEGIN, end: int = END) -> list[Charge]:
    """All charges between two moments; the month, unless it is told otherwise."""
    charges = of_hosts(cluster, begin, end)
    charges += unused(charges, begin, end)
    charges += of_services(begin, end)
    return charges + around(charges, begin, end)


def cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if name in TIMES and isinstance(value, int):
        return iso(value) + "Z"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def write_csv(charges: Iterable[Charge], to: Path, version: str = "1.2") -> None:
    with to.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS[version])
        out.writerows([cell(name, one.row.get(name)) for name in COLUMNS[version]] for one in charges)


def write_parquet(charges: Sequence[Charge], to: Path, version: str = "1.2") -> None:
    """The only place that needs more than the standard library."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def column(name: str) -> pa.Array:
        values = [one.row.get(name) for one in charges]
        if name in TIMES:
            return pa.array([None if v is None else v * 1_000_000 for v in values], pa.timestamp("us", "UTC"))
        return pa.array(values, pa.decimal128(38, 18) if name in NUMBERS else pa.string())

    pq.write_table(pa.table({name: column(name) for name in COLUMNS[version]}), to)
