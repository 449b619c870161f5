"""What the cases of `bill_cases.py` are written with: small job logs, small FOCUS bills, and questions to `taut bill`.

Nothing of taut is imported: the command line is asked, its JSON or its screen read.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from month_jobs import at, iso

Said = dict[str, Any]
Row = dict[str, object]
NS = 10**9
HEADER = "JobID|JobName|Account|State|Submit|Start|End|Elapsed|ExitCode|AllocTRES|NodeList"


def job(
    number: object, start: str, end: str, gpus: int | None = 8, nodes: str = "gpu-1", state: str = "COMPLETED",
    name: str = "train", account: str = "", submit: str = "", count: int = 1,
) -> str:  # fmt: skip
    """A row of sacct."""
    tres = f"billing=1,cpu=8,{'' if gpus is None else f'gres/gpu={gpus},'}node={count}"
    return f"{number}|{name}|{account}|{state}|{submit or start}|{start}|{end}||0:0|{tres}|{nodes}"


def moment(text: str) -> int:
    """Seconds since 1970; UTC unless an offset is named."""
    found = datetime.fromisoformat(text)
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def charge(start: str, end: str, cost: object, host: str | None = "gpu-1", **other: object) -> Row:
    """A row of FOCUS: a host of eight accelerators at list price, unless it is told otherwise."""
    try:
        hours = Decimal(moment(end) - moment(start)) / 3600
    except ValueError:
        hours = Decimal(1)
    hours = hours.quantize(Decimal("1e-10")) or Decimal(1)
    row: Row = {
        "BilledCost": cost, "EffectiveCost": cost, "ListCost": cost, "ContractedCost": cost, "BillingAccountId": "1",
        "BillingAccountName": "Lab", "BillingAccountType": "Account", "BillingCurrency": "EUR", "PricingCurrency": "EUR",
        "BillingPeriodStart": "2026-10-01T00:00:00Z", "BillingPeriodEnd": "2026-11-01T00:00:00Z", "ChargePeriodStart": start,
        "ChargePeriodEnd": end, "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based", "ChargeDescription": "gpu8",
        "InvoiceIssuerName": "Nimbus SE", "ProviderName": "Nimbus", "PublisherName": "Nimbus", "InvoiceId": "INV-1",
        "ServiceCategory": "Compute", "ServiceSubcategory": "Virtual Machines", "ServiceName": "Machines", "ResourceId": host,
        "ResourceName": host, "ResourceType": host and "Instance", "SkuId": "gpu8", "SkuPriceId": "gpu8.list",
        "SkuPriceDetails": '{"GpuCount": 8}', "PricingCategory": "Standard", "PricingQuantity": hours, "PricingUnit": "Hours",
        "ConsumedQuantity": hours, "ConsumedUnit": "Hours",
    }  # fmt: skip
    return row | other


def hourly(host: str, start: str, hours: int, each: object, **other: object) -> list[Row]:
    begin = at(start)
    return [charge(iso(begin + k * 3600) + "Z", iso(begin + (k + 1) * 3600) + "Z", each, host, **other) for k in range(hours)]


def service(category: str, cost: object, **other: object) -> Row:
    """A charge of the month that belongs to no host."""
    no = dict.fromkeys(("SkuPriceDetails", "ResourceId", "ResourceName", "ResourceType"))
    return charge("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", cost, None) | no | {
        "ServiceCategory": category, "ServiceName": category, "ServiceSubcategory": f"Other ({category})",
        "SkuId": category.lower(), "SkuPriceId": f"{category.lower()}.list", "PricingQuantity": 1, "PricingUnit": "Units",
        "ConsumedQuantity": 1, "ConsumedUnit": "Units",
    } | other  # fmt: skip


@dataclass
class Trial:
    """One case at work: what it asks, and what was found."""

    taut: list[str]
    folder: Path
    checks: list[tuple[str, bool, str]] = field(default_factory=list)
    asked: int = 0

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def jobs(self, *rows: str, name: str = "sacct.txt", header: str = HEADER) -> Path:
        return self.file(name, "\n".join([header, *rows]) + "\n")

    def bill(self, rows: Sequence[Row], name: str = "bill.csv", columns: Iterable[str] = ()) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = list(columns) or list(
            dict.fromkeys(key for row in [charge("2026-10-01", "2026-10-02", 1), *rows] for key in row)
        )
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(columns)
            out.writerows(["" if row.get(key) is None else row[key] for key in columns] for row in rows)
        return path

    def call(self, *words: object) -> tuple[int, str, str]:
        command = [*self.taut, "bill", *map(str, words)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=self.folder)
        return told.returncode, told.stdout, told.stderr.strip()

    def ask(self, *words: object) -> Said:
        """The JSON, of which the laws that every bill keeps are checked on the way."""
        code, out, told = self.call(*words, "--json", "-q")
        if code:
            raise Refused(f"exit {code}: {told[-300:]}")
        said: Said = json.loads(out)
        self.laws(said)
        return said

    def laws(self, said: Said) -> None:
        """All ways to add up give one sum; residuals are what they are called."""
        whole = money(said["lines"])
        for by, rows in {"categories": said["categories"], **said["by"]}.items():
            if rows and abs(money(rows) - whole) > Decimal("1e-9"):
                self.checks.append((f"{by} add up", False, f"lines {whole}, {by} {money(rows)}"))
        accrual = said["accrual"]
        if accrual["effective"] is not None:
            gap = Decimal(accrual["effective"]) - Decimal(accrual["ledger"])
            if gap != Decimal(accrual["residual"]) or accrual["closes"] != (gap == 0):
                self.checks.append(("residual", False, f"{accrual}"))
        for one in said["invoices"]:
            if Decimal(one["billed"]) - Decimal(one["allocated"]) != Decimal(one["residual"]):
                self.checks.append(("invoice", False, f"{one}"))
        if any(math.isnan(row["share"] or 0) for row in said["categories"]):
            self.checks.append(("share", False, "not a number"))

    def money(self, what: str, said: object, true: object, within: str = "0.005") -> None:
        fine = said is not None and abs(Decimal(str(said)) - Decimal(str(true))) <= Decimal(within)
        self.checks.append((what, fine, f"true {true}, said {said}"))

    def near(self, what: str, said: float | None, true: float, within: float = 1e-6) -> None:
        fine = said is not None and abs(said - true) <= within * abs(true) + 1e-12
        self.checks.append((what, fine, f"true {true:.9g}, said {said if said is None else f'{said:.9g}'}"))

    def holds(self, what: str, fine: object, why: object = "") -> None:
        self.checks.append((what, bool(fine), str(why)[:260]))

    def refused(self, what: str, *words: object, telling: Sequence[str] = ()) -> None:
        """Exit 4 with one line that names things; no traceback."""
        code, _, told = self.call(*words, "--json", "-q")
        fine = code == 4 and len(told.splitlines()) == 1 and all(one.lower() in told.lower() for one in telling)
        self.checks.append((what, fine, f"exit {code}: {told[-300:]}"))


class Refused(Exception):
    """taut said no where it should not have."""


def money(rows: Iterable[Said]) -> Decimal:
    return sum((Decimal(row["money"]) for row in rows if row["money"] is not None), Decimal(0))


def lines(said: Said, **like: object) -> Decimal:
    """Money of the lines that are like this."""
    return money(line for line in said["lines"] if all(line[key] == value for key, value in like.items()))


def drilled(said: Said, by: str, name: str | None) -> Decimal | None:
    """Money of one row of a drill-down; None where it has none."""
    rows = [row for row in said["by"].get(by, []) if row["name"] == name]
    return money(rows) if rows and rows[0]["money"] is not None else None


def kinds(said: Said) -> str:
    return "; ".join(f"{one['kind']} {one['money']}" for one in said["defects"]) or "none"


def shown(said: Said) -> str:
    """Lines and closing, to print when something is wrong."""
    short = [f"{line['item']}/{line['fate']} {line['money']}" for line in said["lines"]]
    return f"{said['accrual']} | {', '.join(short)} | defects: {kinds(said)} | unmatched {said['unmatched']}"
