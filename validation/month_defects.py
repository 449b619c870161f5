"""Defects planted in the bill of `month_bill.py`, each with what it moves, to the cent.

Part of `bill_month.py`. Nothing of taut is imported. A bill is written as two files: `compute`, `rest`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from month_bill import NEGOTIATED, Charge, bill, hours_of, on_demand, plain, priced
from month_jobs import BEGIN, DAY, END, HOUR, MISSING_HOST, Cluster, at

Files = dict[str, list[Charge]]
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "PricingCurrencyEffectiveCost")
SHIFT = 2 * HOUR


@dataclass(frozen=True)
class Planted:
    """What should be found."""

    name: str
    kind: str
    """Pattern of the word that names it."""
    money: Decimal | None
    """What it moves; None where the sum of the bill stays what it is."""
    rows: int


def total(charges: list[Charge]) -> Decimal:
    return sum((one.effective for one in charges), Decimal(0))


def split(charges: list[Charge]) -> Files:
    first = [one for one in charges if one.row["InvoiceId"] == "INV-1"]
    return {"compute": first, "rest": [one for one in charges if one.row["InvoiceId"] != "INV-1"]}


def hours(files: Files, host: str) -> list[Charge]:
    return [one for one in files["compute"] if one.host == host and one.item == "host"]


def duplicated_lines(files: Files, rng: random.Random) -> Planted:
    apart = {f"gpu-{n:03}" for n in (26, 27, 29, 30, 31, 41, 42, 43, 44)}  # those of other defects
    usage = [one for one in files["compute"] if one.item == "host" and one.host not in apart]
    twice = rng.sample(usage, 37)
    for one in twice:
        files["compute"].insert(rng.randrange(len(files["compute"])), one)
    return Planted("duplicated lines", r"duplicat|twice|identical", total(twice), 37)


def file_twice(files: Files, rng: random.Random) -> Planted:
    files["rest (1)"] = list(files["rest"])
    cost = [one for one in files["rest"] if one.effective or one.billed]  # copies that cost nothing need not be counted
    return Planted("file twice", r"twice|duplicat|identical|delivered", total(cost), len(cost))


def accelerator_count(files: Files, rng: random.Random) -> Planted:
    """Hosts of a type that has 8 are charged, and described, as having 16."""
    more, rows = Decimal(0), 0
    for place, one in enumerate(files["compute"]):
        if one.row.get("SkuId") != "mega-gpu" or not "gpu-041" <= one.host <= "gpu-044":
            continue
        double = {name: Decimal(str(one.row[name])) * 2 for name in (*COSTS, "PricingQuantity", "ConsumedQuantity")}
        details = json.dumps({"GpuCount": 16, "InstanceType": "mega8"})
        files["compute"][place] = one.but(**double, SkuPriceDetails=details)
        more, rows = more + one.effective, rows + 1
    return Planted("accelerator count", r"count|accelerators|GPU", more, rows)


def negative_rows(files: Files, rng: random.Random) -> Planted:
    """Usage below zero that says neither correction nor credit."""
    turned = []
    for one in hours(files, "gpu-030")[100:105]:
        below = {name: -Decimal(str(one.row[name])) for name in (*COSTS, "PricingQuantity", "ConsumedQuantity")}
        turned.append(one.but(**below, ChargeDescription="manual adjustment"))
    files["compute"] += turned
    return Planted("negative rows", r"negative|below zero", total(turned), len(turned))


def two_currencies(files: Files, rng: random.Random) -> Planted:
    """Licences in dollars on the same bill."""
    rows = []
    for n in range(12):
        amount = Decimal("83.19") + n
        row = plain("INV-6", BEGIN + n * DAY, BEGIN + (n + 1) * DAY, (amount,) * 4)
        row |= priced("licence", "list", Decimal(1), "Days", amount, amount) | {"SkuPriceId": f"licence.{n}"}
        row |= {"BillingCurrency": "USD", "PricingCurrency": "USD", "ServiceCategory": "Other", "ChargeDescription": "licence",
                "ServiceSubcategory": "Other (Other)", "ServiceName": "Licences"}  # fmt: skip
        rows.append(Charge(row, "foreign"))
    files["compute"] += rows
    return Planted("two currencies", r"currenc", total(rows), len(rows))


def overlapping_periods(files: Files, rng: random.Random) -> Planted:
    """A host's day as one row, beside its 24 hours."""
    day = at("2026-10-09")
    again = on_demand("gpu-027", day, day + DAY, Decimal(24))
    files["compute"].append(again)
    return Planted("overlapping periods", r"overlap", again.effective, 1)


def missing_day(files: Files, rng: random.Random) -> Planted:
    day = at("2026-10-15")
    lost = [one for one in hours(files, MISSING_HOST) if day <= int(str(one.row["ChargePeriodStart"])) < day + DAY]
    files["compute"] = [one for one in files["compute"] if one not in lost]
    return Planted("missing day", r"missing|without a charge|not charged", -total(lost), 0)


def other_cluster(files: Files, rng: random.Random) -> Planted:
    rows = []
    for k in range(5):
        for n in range(72):
            start = BEGIN + 6 * DAY + n * HOUR
            one = on_demand("gpu-030", start, start + HOUR, Decimal(1))
            tags = json.dumps({"cluster": "b", "Name": f"dgx-b{k}"})
            rows.append(one.but(ResourceId=f"i-b{k:07}", ResourceName=f"dgx-b{k}", Tags=tags))
    files["compute"] += rows
    return Planted("other cluster", r"cluster|unmatched|no host", total(rows), len(rows))


def wrong_product(files: Files, rng: random.Random) -> Planted:
    """Eight hours that cost a fifth more than price × quantity."""
    places = [k for k, one in enumerate(files["compute"]) if one.host == "gpu-026"][200:208]
    for k in places:
        one = files["compute"][k]
        files["compute"][k] = one.but(
            **{name: Decimal(str(one.row[name])) * Decimal("1.2") for name in COSTS if name[:4] != "List"}
        )
    return Planted("wrong product", r"price|product|multipl", NEGOTIATED * Decimal("0.2") * len(places), len(places))


def outside_period(files: Files, rng: random.Random) -> Planted:
    start = at("2026-09-25T10:00:00")
    rows = [on_demand("gpu-031", start + n * HOUR, start + (n + 1) * HOUR, hours_of(HOUR)) for n in range(6)]
    files["compute"] += rows
    return Planted("outside period", r"outside", total(rows), len(rows))


PLANTS: dict[str, Callable[[Files, random.Random], Planted]] = {
    "duplicated-lines": duplicated_lines,
    "file-twice": file_twice,
    "accelerator-count": accelerator_count,
    "negative-rows": negative_rows,
    "two-currencies": two_currencies,
    "overlapping-periods": overlapping_periods,
    "missing-day": missing_day,
    "other-cluster": other_cluster,
    "wrong-product": wrong_product,
    "outside-period": outside_period,
}
LOCAL = "local-time"
DEFECTS = (*PLANTS, LOCAL)


def local_time(cluster: Cluster) -> list[Charge]:
    """The month by a clock that is two hours ahead, written as if it were UTC."""

    def moved(one: Charge) -> Charge:
        begins, ends = (int(str(one.row[name])) for name in ("ChargePeriodStart", "ChargePeriodEnd"))
        return one.but(ChargePeriodStart=begins + SHIFT, ChargePeriodEnd=ends + SHIFT)

    return [moved(one) for one in bill(cluster, BEGIN - SHIFT, END - SHIFT)]


def planted(cluster: Cluster, names: list[str], seed: int) -> tuple[Files, list[Planted]]:
    """The bill with these defects, as files, and what should be found; a file that comes twice is copied last."""
    rng = random.Random(seed)
    files = split(local_time(cluster) if LOCAL in names else bill(cluster))
    found = [plant(files, rng) for name, plant in PLANTS.items() if name in names and name != "file-twice"]
    if "file-twice" in names:
        found.append(file_twice(files, rng))
    if LOCAL in names:
        moved = sum(len(charges) for charges in files.values())
        found.append(Planted("local time", r"zone|shift|local", None, moved))
    return files, found
