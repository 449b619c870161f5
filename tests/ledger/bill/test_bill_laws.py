"""Laws of a bill as people get it: whatever was held and whatever was charged, every euro is there once."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut

DAY = datetime(2026, 10, 5, tzinfo=UTC)
COLUMNS = (
    "BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingAccountId", "BillingAccountName", "BillingCurrency",
    "BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeClass",
    "ChargeDescription", "InvoiceIssuerName", "InvoiceId", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
    "PricingQuantity", "PricingUnit", "ResourceId", "ResourceName", "ResourceType", "SkuPriceDetails",
    "CommitmentDiscountId", "CommitmentDiscountStatus",
)  # fmt: skip


class Job(NamedTuple):
    """One attempt: minutes of the day, accelerators of one host."""

    host: int
    start: int
    minutes: int
    accelerators: int
    state: str


class Row(NamedTuple):
    """One charge: minutes of the day, what it is, and its costs in billionths of a cent."""

    host: int
    start: int
    minutes: int
    kind: str
    billed: int
    effective: int
    invoice: str
    currency: str


KINDS = ("host", "host", "host", "stranger", "Storage", "Networking", "Tax", "Credit", "Purchase", "correction", "unused")
ENDS = ("COMPLETED", "FAILED")
minutes = st.integers(0, 1200)
jobs = st.lists(
    st.builds(Job, st.integers(1, 3), minutes, st.integers(1, 239), st.integers(1, 8), st.sampled_from(ENDS)),
    min_size=1,
    max_size=6,
)
amounts = st.one_of(st.integers(-(10**13), 10**15), st.integers(0, 9), st.just(0))


def rows(currencies: Iterable[str] = ("EUR",)) -> st.SearchStrategy[list[Row]]:
    row = st.builds(
        Row, st.integers(1, 3), minutes, st.sampled_from([0, 1, 37, 60, 60, 239]), st.sampled_from(KINDS), amounts, amounts,
        st.sampled_from(["A", "B", ""]), st.sampled_from(list(currencies)),
    )  # fmt: skip
    return st.lists(row, min_size=1, max_size=12)


def clock(minute: int) -> str:
    return (DAY + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%S")


def cost(amount: int) -> Decimal:
    return Decimal(amount) / 10**11


def log(folder: Path, held: Iterable[Job]) -> Path:
    lines = ["JobID|JobName|State|Submit|Start|End|AllocTRES|NodeList"]
    for number, job in enumerate(held, 1):
        start, end = clock(job.start), clock(job.start + job.minutes)
        tres = f"cpu=8,gres/gpu={job.accelerators},node=1"
        lines.append(f"{number}|train|{job.state}|{start}|{start}|{end}|{tres}|gpu-{job.host}")
    path = folder / "sacct.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def cells(row: Row) -> dict[str, object]:
    on_host = row.kind in ("host", "stranger", "correction")
    name = f"{'other' if row.kind == 'stranger' else 'gpu'}-{row.host}" if on_host else None
    category = row.kind if row.kind in ("Storage", "Networking") else "Compute"
    return {
        "BilledCost": f"{cost(row.billed):f}", "EffectiveCost": f"{cost(row.effective):f}",
        "ListCost": "1", "ContractedCost": "1", "BillingAccountId": "1", "BillingAccountName": "Lab",
        "BillingCurrency": row.currency,
        "BillingPeriodStart": "2026-10-05T00:00:00Z", "BillingPeriodEnd": "2026-10-06T00:00:00Z",
        "ChargePeriodStart": clock(row.start) + "Z", "ChargePeriodEnd": clock(row.start + row.minutes) + "Z",
        "ChargeCategory": row.kind if row.kind in ("Tax", "Credit", "Purchase") else "Usage",
        "ChargeClass": "Correction" if row.kind == "correction" else None, "ChargeDescription": row.kind,
        "InvoiceIssuerName": "Nimbus", "InvoiceId": row.invoice, "ProviderName": "Nimbus", "PublisherName": "Nimbus",
        "ServiceCategory": category, "ServiceName": category, "ResourceId": name, "ResourceName": name,
        "ResourceType": name and "Instance", "SkuPriceDetails": '{"GpuCount": 8}' if on_host else None,
        "CommitmentDiscountId": "plan" if row.kind == "unused" else None,
        "CommitmentDiscountStatus": "Unused" if row.kind == "unused" else None,
    }  # fmt: skip


def bill_file(folder: Path, charges: Iterable[Row]) -> Path:
    path = folder / "bill.csv"
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, COLUMNS)
        out.writeheader()
        out.writerows(cells(row) for row in charges)
    return path


def same(said: str, true: Decimal) -> bool:
    """Money is whole billionths."""
    return abs(Decimal(said) - true) <= Decimal("0.5e-9")


def total(parts: Iterable[object]) -> Decimal:
    """Money of lines, or of rows of a drill-down."""
    return sum((Decimal(part.money) for part in parts if part.money is not None), Decimal(0))


@given(jobs, rows())
@settings(max_examples=15)
def test_any_bill_and_any_holdings_add_up(held: list[Job], charges: list[Row]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        said = taut.bill([log(folder, held)], focus=[bill_file(folder, charges)], period="2026-10-05").result
    assert same(said.accrual.effective, sum(cost(row.effective) for row in charges))
    assert Decimal(said.accrual.ledger) == total(said.lines)
    assert Decimal(said.accrual.residual) == Decimal(said.accrual.effective) - Decimal(said.accrual.ledger)
    assert said.accrual.closes == (Decimal(said.accrual.residual) == 0)
    for shares in (said.categories, *said.by.values()):
        assert total(shares) == total(said.lines)
    billed: dict[str | None, Decimal] = defaultdict(Decimal)
    for row in charges:
        billed[row.invoice or None] += cost(row.billed)
    assert {one.id for one in said.invoices} == set(billed)
    assert all(same(one.billed, billed[one.id]) for one in said.invoices)
    assert all(Decimal(one.billed) - Decimal(one.allocated) == Decimal(one.residual) for one in said.invoices)


@given(jobs, rows(("EUR", "USD")))
@settings(max_examples=8)
def test_no_currency_is_added_to_another(held: list[Job], charges: list[Row]) -> None:
    of = {row.currency: sum(cost(one.effective) for one in charges if one.currency == row.currency) for row in charges}
    with TemporaryDirectory() as name:
        folder = Path(name)
        sacct, focus = log(folder, held), bill_file(folder, charges)
        if len(of) > 1:
            with pytest.raises(taut.InputRefused, match=r"EUR.*USD|USD.*EUR"):
                taut.bill([sacct], focus=[focus], period="2026-10-05")
        for currency, effective in of.items():
            said = taut.bill([sacct], focus=[focus], period="2026-10-05", currency=currency).result
            assert said.currency == currency
            assert same(said.accrual.effective, effective)


@given(st.integers(1, 8), st.lists(st.integers(1, 59), min_size=1, max_size=4, unique=True), st.integers(1, 10**14))
@settings(max_examples=8)
def test_however_held_time_is_cut_the_parts_cost_what_the_whole_does(count: int, cuts: list[int], amount: int) -> None:
    ends = [0, *sorted(cuts), 60]
    whole = [Job(1, 0, 60, count, "COMPLETED")]
    parts = [Job(1, a, b - a, count, "COMPLETED") for a, b in pairwise(ends)]
    charges = [Row(1, 0, 60, "host", amount, amount, "A", "EUR")]
    with TemporaryDirectory() as name:
        folder = Path(name)
        focus = bill_file(folder, charges)
        one = taut.bill([log(folder, whole)], focus=[focus], period="2026-10-05").result
        many = taut.bill([log(folder, parts)], focus=[focus], period="2026-10-05").result
    used, cut = (total(line for line in said.lines if line.item == "accelerator time") for said in (one, many))
    assert abs(used - cut) <= Decimal(len(parts) + 1) / 10**9
    assert total(one.lines) == total(many.lines)
    assert same(str(total(one.lines)), cost(amount))
