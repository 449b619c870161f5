"""What taut writes as FOCUS, checked by focus-validator: 1.0.0 for rules of 1.0, 2.2.1 for rules of 1.2, as Markdown.

    python -m venv v1 && v1/bin/pip install focus-validator==1.0.0 'multimethod<2'
    python3.12 -m venv v2 && v2/bin/pip install focus-validator==2.2.1 'pyarrow<22'
    python validation/focus_written.py --v1 v1/bin/focus-validator --v2 v2/bin/focus-validator
    python validation/focus_written.py --v1 … --v2 … --bill BILL   # a run folder of taut bill, as taut export writes it

A month of charges (usage at list price, under a commitment, spot, the purchase, unused commitment, a credit, a tax, a
correction), each split among the fates of two jobs. 1.0.0 asks for four columns that no version of FOCUS has, and checks
one rule by a column that 1.0 renamed: the file is checked as it is written, and once more with copies under those names.
The model of rules that 2.2.1 ships has rules that contradict others of it (``CONTRADICTORY``); they are listed apart.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from focus_rows import FocusRow, render
from taut.core.exact_parts import ManyShares
from taut.core.tables import Table
from taut.ledger.bill.allocated_parts import Allocated, allocated_parts
from taut.ledger.bill.money_units import units
from taut.ledger.bill.rows import UNIT, Booked, Held
from taut.read.focus.focus_reader import read_focus
from taut.render.focus_table import render_parts

ASKED = {"InvoiceIssuer": "InvoiceIssuerName", "Provider": "ProviderName", "Publisher": "PublisherName",
         "ResourceID": "ResourceId", "ChargeType": "ChargeCategory"}  # fmt: skip
CONTRADICTORY = {
    "InvoiceId-C-004-C": "InvoiceId is null, always; InvoiceId-C-005-C: never",
    "CommitmentDiscountStatus-C-004-C": "it is not null where CommitmentDiscountId is; CommitmentDiscountStatus-C-003-C: it is",
}
START = datetime(2026, 10, 1, tzinfo=UTC)
CRITERIA = (
    "ACCOUNT_NAMING_SUPPORTED,COMMITMENT_DISCOUNT_SUPPORTED,MULTIPLE_PRICING_CATEGORIES_SUPPORTED,"
    "MULTIPLE_SUB_ACCOUNT_TYPES_SUPPORTED,MULTIPLE_BILLING_ACCOUNT_TYPES_SUPPORTED,NEGOTIATED_PRICING_SUPPORTED,"
    "PUBLIC_PRICE_LIST_SUPPORTED,USAGE_MEASUREMENT_SUPPORTED,UNIT_PRICING_SUPPORTED,SUB_ACCOUNT_SUPPORTED,"
    "BILLING_BASED_ON_PROVISIONED_RESOURCES_SUPPORTED,RESOURCE_TYPE_ASSIGNMENT_SUPPORTED,REGION_SUPPORTED,TAGGING_SUPPORTED"
)


def usage(hour: int) -> FocusRow:
    """An hour of a host at list price."""
    price, hours = Decimal("31.2188"), Decimal(1)
    return FocusRow(
        billed_cost=price, effective_cost=price, list_cost=price, contracted_cost=price, billing_currency="USD",
        billing_account_id="acct-1234", billing_account_name="Research", billing_account_type="Account",
        billing_period_start=START, billing_period_end=datetime(2026, 11, 1, tzinfo=UTC),
        charge_period_start=START + timedelta(hours=hour), charge_period_end=START + timedelta(hours=hour + 1),
        charge_description="host with eight GPUs, one hour",
        invoice_id="2026-10", invoice_detail_id="2026-10-1", invoice_issuer_name="A Cloud", service_provider_name="A Cloud",
        service_name="Virtual machines", service_subcategory="Virtual Machines", resource_id=f"i-{hour % 8}",
        resource_name=f"node{hour % 8}", resource_type="Instance", region_id="west-1", region_name="West",
        sub_account_id="p-77", sub_account_name="training", sub_account_type="Project", sku_id="gpu8",
        sku_price_id="gpu8.list", sku_meter="Host",
        pricing_currency="USD", pricing_currency_list_unit_price=price, pricing_currency_contracted_unit_price=price,
        pricing_currency_effective_cost=price,
        sku_price_details='{"GpuCount": 8}', pricing_category="Standard", pricing_quantity=hours, pricing_unit="Hours",
        list_unit_price=price, contracted_unit_price=price, consumed_quantity=hours, consumed_unit="Hours",
        tags='{"cluster": "c1"}', x_taut_origin=f"{hour}",
    )  # fmt: skip


def charges() -> list[FocusRow]:
    """One charge of every kind, and some of the common one."""
    plan = {"commitment_discount_category": "Spend", "commitment_discount_id": "plan-1", "commitment_discount_name": "one year",
            "commitment_discount_type": "Plan", "commitment_discount_unit": "USD"}  # fmt: skip
    at = Decimal("18.9")
    used = replace(
        usage(101), **plan, billed_cost=Decimal(0), effective_cost=at, pricing_category="Committed", sku_price_id="gpu8.plan",
        commitment_discount_status="Used", commitment_discount_quantity=at,
    )  # fmt: skip
    unused = replace(
        used, charge_period_start=START + timedelta(hours=102), charge_period_end=START + timedelta(hours=103),
        commitment_discount_status="Unused", consumed_quantity=None, consumed_unit=None, resource_id=None, resource_name=None,
        resource_type=None, x_taut_origin="102",
    )  # fmt: skip
    nothing = dict.fromkeys((
        "pricing_category", "pricing_quantity", "pricing_unit", "list_unit_price", "contracted_unit_price", "sku_id",
        "sku_price_id", "sku_meter", "sku_price_details", "pricing_currency_list_unit_price",
        "pricing_currency_contracted_unit_price", "consumed_quantity", "consumed_unit", "resource_id", "resource_name",
        "resource_type",
    ))  # fmt: skip
    bought = replace(
        usage(103), **plan, charge_category="Purchase", charge_frequency="Recurring", effective_cost=Decimal(0),
        commitment_discount_quantity=usage(0).list_cost, consumed_quantity=None, consumed_unit=None, sku_price_id="plan.1y",
        sku_id="plan", sku_meter="Plan",
    )  # fmt: skip
    tax = replace(usage(104), **nothing, charge_category="Tax", charge_frequency="Recurring")
    credit = replace(
        tax, charge_category="Credit", charge_frequency="One-Time", billed_cost=Decimal("-7.77"), x_taut_origin="105",
        effective_cost=Decimal("-7.77"), list_cost=Decimal("-7.77"), contracted_cost=Decimal("-7.77"),
    )  # fmt: skip
    correction = replace(
        usage(106), charge_class="Correction", billed_cost=Decimal("-1.5"), effective_cost=Decimal("-1.5"),
        list_cost=Decimal("-1.5"), contracted_cost=Decimal("-1.5"), pricing_quantity=None, pricing_unit=None,
    )  # fmt: skip
    spot = replace(
        usage(107),
        pricing_category="Dynamic",
        sku_price_id="gpu8.spot",
        billed_cost=Decimal("9.1"),
        effective_cost=Decimal("9.1"),
    )
    return [*map(usage, range(100)), used, unused, bought, tax, credit, correction, spot]


def written(folder: Path) -> Allocated:
    """Every charge in parts: of two jobs, and of nobody."""
    with (folder / "bill.csv").open("wb") as out:
        render(charges(), out)
    bill = read_focus(folder / "bill.csv").table
    weights = (9_000_000_000, 1_234_567_891, 3, 777)
    held = Table(Held, {
        "job": ["job-1", "job-1", "job-2", ""], "fate": ["productive", "fault wait", "jitter wait", "idle"],
        "cause": ["", "rank 3", "", ""], "host": ["node0"] * 4, "team": [""] * 4,
    })  # fmt: skip
    count = bill.num_rows
    shares = ManyShares(np.tile(weights, count), np.arange(count) * len(weights))
    money = {
        name: shares.of_units(units(bill[column], UNIT))
        for name, column in (("effective", "EffectiveCost"), ("billed", "BilledCost"))
    }
    booked = Table(Booked, {
        "held": np.tile(np.arange(len(weights)), count), "charge": np.repeat(np.arange(count), len(weights)),
        "item": ["accelerator time"] * count * len(weights), "rank_ns": np.tile(weights, count), **money,
    }, count * len(weights))  # fmt: skip
    return allocated_parts(held, booked, bill)


def copied(path: Path, to: Path) -> Path:
    """The file with the columns that focus-validator 1.0.0 asks for, copies of those that the specification has."""
    with path.open(newline="") as source, to.open("w", newline="") as target:
        rows = list(csv.DictReader(source))
        writer = csv.DictWriter(target, [*rows[0], *ASKED])
        writer.writeheader()
        writer.writerows({**row, **{new: row[old] for new, old in ASKED.items()}} for row in rows)
    return to


def failed(command: str, *options: str) -> tuple[list[str], str]:
    """Rules that a validator says are broken, and the last line that it says."""
    tool = Path(command).absolute()
    # It looks for its list of currencies below the folder in which it runs.
    home = next(tool.parents[1].glob("lib/python*/site-packages"))
    done = subprocess.run([str(tool), *options], cwd=home, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
    text = done.stdout + done.stderr
    # Rules that only gather others are left out.
    broken = re.findall(r"^(\w+) failed:|❌ (\S+): FAIL(?!.*AND failed - failed child rules)", text, re.MULTILINE)
    counts = re.findall(r"Total: .*", text)
    return [one or other for one, other in broken], counts[0] if counts else (text.strip().splitlines() or ["nothing said"])[-1]


def write(path: Path, version: str, bill: str) -> None:
    """The month, or a bill as ``taut export`` writes it."""
    if bill:
        command = ["taut", "export", bill, "--to", "focus", "--version", version, "-o", str(path)]
        subprocess.run([sys.executable, "-m", *command], check=True)
        return
    parts = written(path.parent)
    with path.open("wb") as out:
        render_parts(parts.blocks(), parts.filled, out, version)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--v1", default="", help="focus-validator 1.0.0")
    options.add_argument("--v2", default="", help="focus-validator 2.2.1")
    options.add_argument("--bill", default="", help="run folder of a bill")
    options.add_argument("--criteria", default=CRITERIA, help="what the provider of the bill supports, in words of 2.2.1")
    given = options.parse_args()
    print("| file | validator | rules broken | contradictory | it says |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for version in ("1.0", "1.2"):
            path = Path(folder) / f"focus-{version}.csv"
            write(path, version, given.bill)
            tool = given.v1 if version == "1.0" else given.v2
            if not tool:
                print(f"| {version} | not installed: --{'v1' if version == '1.0' else 'v2'} | | | |")
                continue
            extra = ["--block-download", "--focus-dataset", "CostAndUsage", "--applicability-criteria", given.criteria]
            checks = [(path, version)]
            if version == "1.0":
                checks.append((copied(path, Path(folder) / "copied.csv"), "1.0, with copies under the names it asks for"))
            for file, name in checks:
                wrong, said = failed(
                    tool, "--data-file", str(file), "--validate-version", version, *(extra if version == "1.2" else ())
                )
                apart = [rule for rule in wrong if rule in CONTRADICTORY]
                rest = [rule for rule in wrong if rule not in CONTRADICTORY]
                tool_name = "1.0.0" if version == "1.0" else "2.2.1"
                said = said.replace("|", "·")
                print(f"| {name} | {tool_name} | {', '.join(rest) or 'none'} | {', '.join(apart) or 'none'} | {said} |")
    for rule, why in CONTRADICTORY.items():
        print(f"\n{rule} asks: {why}.")


if __name__ == "__main__":
    main()
