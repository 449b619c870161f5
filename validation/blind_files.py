"""Writes the month of ``blind_month`` as a provider and a scheduler would: FOCUS rows, tables of jobs, ``sacct``."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from blind_month import Attempt, Charge, Host, Style

MONEY = {"BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "ListUnitPrice", "ContractedUnitPrice",
         "PricingQuantity", "ConsumedQuantity", "CommitmentDiscountQuantity"}  # fmt: skip
TIMES = {"ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd"}
SINCE_1_2 = {"InvoiceId", "CommitmentDiscountQuantity", "CommitmentDiscountUnit", "ServiceSubcategory", "SkuMeter",
             "SkuPriceDetails", "BillingAccountType", "SubAccountType", "PricingCurrency"}  # fmt: skip
SINCE_1_4 = {"ServiceProviderName", "HostProviderName"}
UNTIL_1_2 = {"ProviderName", "PublisherName"}
Cell = str | Decimal | int | None
SLURM = {"completed": "COMPLETED", "failed": "FAILED", "cancelled": "CANCELLED by 1001", "node failed": "NODE_FAIL",
         "preempted": "PREEMPTED", "requeued": "REQUEUED"}  # fmt: skip


@dataclass(frozen=True)
class Zone:
    """How times are written: the zone's clock, with its offset, or as if it were UTC."""

    name: str = "UTC"
    pretend: bool = False

    def text(self, seconds: int) -> str:
        local = datetime.fromtimestamp(seconds, ZoneInfo(self.name))
        if self.pretend or self.name == "UTC":
            return local.replace(tzinfo=None).isoformat() + "Z"
        return local.isoformat()


def focus_row(charge: Charge, style: Style) -> dict[str, Cell]:
    """One row under the names of its version."""
    row = {**_costs(charge, style), **_what(charge, style), **_who(charge, style)}
    drop = set() if style.version != "1.0" else SINCE_1_2
    drop |= UNTIL_1_2 if style.version == "1.4" else SINCE_1_4
    return {key: row[key] for key in sorted(row) if key not in drop}


def _costs(charge: Charge, style: Style) -> dict[str, Cell]:
    usage = charge.price is not None
    product = charge.billed
    if charge.pricing == "Committed" and charge.price is not None:
        product = charge.price * charge.quantity
    return {
        "BilledCost": charge.billed, "EffectiveCost": charge.effective,
        "ListCost": product, "ContractedCost": product,
        "ListUnitPrice": charge.price, "ContractedUnitPrice": charge.price,
        "PricingQuantity": charge.quantity if usage else None, "PricingUnit": charge.unit if usage else None,
        "ConsumedQuantity": charge.quantity if usage and charge.category == "Usage" and charge.status != "Unused" else None,
        "ConsumedUnit": charge.unit if usage and charge.category == "Usage" and charge.status != "Unused" else None,
        "BillingCurrency": charge.currency or style.currency, "PricingCurrency": charge.currency or style.currency,
        "CommitmentDiscountQuantity": charge.bought,
        "CommitmentDiscountUnit": style.unit if charge.bought is not None else None,
        "InvoiceId": charge.invoice,
    }  # fmt: skip


def _what(charge: Charge, style: Style) -> dict[str, Cell]:
    usage = charge.price is not None
    plan = charge.commitment
    details = json.dumps({"GpuCount": charge.gpus}) if usage and (charge.gpus or charge.service == "Compute") else None
    return {
        "ChargePeriodStart": charge.start, "ChargePeriodEnd": charge.end,
        "BillingPeriodStart": charge.billing[0], "BillingPeriodEnd": charge.billing[1],
        "ChargeCategory": charge.category, "ChargeClass": "Correction" if charge.correction else None,
        "ChargeDescription": charge.what, "ChargeFrequency": "Recurring" if charge.category == "Purchase" else "Usage-Based",
        "CommitmentDiscountId": plan, "CommitmentDiscountName": plan, "CommitmentDiscountStatus": charge.status,
        "CommitmentDiscountCategory": "Usage" if plan else None, "CommitmentDiscountType": "Reservation" if plan else None,
        "PricingCategory": charge.pricing if usage else None,
        "ServiceCategory": charge.service, "ServiceName": f"{charge.service} of A",
        "ServiceSubcategory": f"Other ({charge.service})",
        "SkuId": charge.sku or None, "SkuPriceId": f"{charge.sku}-p" if charge.sku else None,
        "SkuMeter": charge.unit if charge.sku else None, "SkuPriceDetails": details if charge.sku else None,
    }  # fmt: skip


def _who(charge: Charge, style: Style) -> dict[str, Cell]:
    host = charge.host.name if charge.host else None
    tags = {"team": charge.team} if charge.team else {}
    named = charge.resource
    if host and style.named_by == "tag":
        tags["Name"] = host
    if host and style.named_by == "id":
        named = host
    return {
        "ResourceId": named, "ResourceName": (host or named) if style.named_by == "name" else named,
        "ResourceType": "Instance" if charge.host else (charge.service if named else None),
        "Tags": json.dumps(tags),
        "BillingAccountId": "acct-1", "BillingAccountName": "Lab", "BillingAccountType": "Account",
        "SubAccountId": charge.account, "SubAccountName": charge.account, "SubAccountType": "Project",
        "RegionId": "eu-1", "RegionName": "EU 1", "InvoiceIssuerName": "A", "ProviderName": "A", "PublisherName": "A",
        "ServiceProviderName": "A", "HostProviderName": "A",
    }  # fmt: skip


def write_bill(path: Path, charges: list[Charge], style: Style, zone: Zone | None = None) -> Path:
    """The bill as one file; its name ends as its form does."""
    rows = [focus_row(charge, style) for charge in charges]
    path = path.with_name(f"{path.name}.{style.form}")
    if style.form == "parquet":
        pq.write_table(_table(rows), path)
        return path
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=";" if style.form == "csv.gz" else ",", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(key, value, zone or Zone(style.zone)) for key, value in row.items()} for row in rows)
    blob = text.getvalue().encode()
    path.write_bytes(gzip.compress(blob) if style.form == "csv.gz" else blob)
    return path


def _cell(key: str, value: Cell, zone: Zone) -> str:
    if value is None:
        return ""
    if key in TIMES and isinstance(value, int):
        return zone.text(value)
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _table(rows: list[dict[str, Cell]]) -> pa.Table:
    columns = {}
    for key in rows[0]:
        values = [row[key] for row in rows]
        if key in MONEY:
            columns[key] = pa.array(values, pa.decimal128(30, 12))
        elif key in TIMES:
            columns[key] = pa.array(values, pa.timestamp("s", "UTC")).cast(pa.timestamp("ms", "UTC"))
        else:
            columns[key] = pa.array(values, pa.string())
    return pa.table(columns)


def write_jobs(path: Path, attempts: list[Attempt]) -> Path:
    """A table of jobs, one attempt a row."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["job", "attempt", "start", "end", "gpus", "nodes", "team", "outcome"])
        for row in attempts:
            times = [Zone().text(row.start), Zone().text(row.end)]
            writer.writerow([row.job, row.number, *times, row.gpus, ",".join(row.hosts), row.team, row.outcome])
    return path


def write_sacct(path: Path, attempts: list[Attempt]) -> Path:
    """What ``sacct --duplicates -P`` prints, jobs numbered."""
    numbers = {job: 1000 + n for n, job in enumerate(dict.fromkeys(row.job for row in attempts))}
    lines = ["JobID|JobName|Account|State|Submit|Start|End|ExitCode|AllocTRES|NodeList"]
    for row in attempts:
        first, last = row.hosts[0], row.hosts[-1]
        nodes = first if first == last else f"{first[:3]}[{first[3:]}-{last[3:]}]"
        times = [datetime.fromtimestamp(t, UTC).replace(tzinfo=None).isoformat() for t in (row.start, row.start, row.end)]
        held = f"billing={row.gpus},cpu=8,gres/gpu={row.gpus},node={len(row.hosts)}"
        code = "0:0" if row.outcome == "completed" else "1:0"
        lines.append("|".join([str(numbers[row.job]), row.job, row.team, SLURM[row.outcome], *times, code, held, nodes]))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_prices(path: Path, hosts: list[Host], style: Style, more: str = "", rates: bool = False) -> Path:
    """What the customer knows: which resource is which host, what it has, and maybe what it costs."""
    lines = ["resource,host,accelerators,model", *(f"{h.resource},{h.name},{h.gpus},{h.model}" for h in hosts)]
    path.with_name("hosts.csv").write_text("\n".join(lines) + "\n")
    text = f'currency = "{style.currency}"\n{more}\n'
    if rates:
        text += "".join(f'[[rate]]\nkind = "list"\ngpu_hour = "{h.hour / h.gpus}"\nhosts = "{h.name}"\n' for h in hosts)
    path.write_text(text + '[hosts]\nfile = "hosts.csv"\n')
    return path
