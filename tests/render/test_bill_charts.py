"""Pictures of a bill: bars that add up, titles that say the number."""

from __future__ import annotations

import sys
from decimal import Decimal
from itertools import pairwise

import pytest

from taut.core.errors import TautError
from taut.render.bill_charts import BillPlots, amount, steps
from taut.result.types import Accrual, BillEnergy, BillPeriod, BillResult, BillShare, CostOverTime, Invoice

NO_ENERGY = BillEnergy(
    joules=None, source=None, sources=[], stall_joules=None, intrinsic_bloat_joules=None, extrinsic_bloat_joules=None,
    network_joules=None, data_movement_share=None,
)  # fmt: skip
COST = CostOverTime(
    time_ns=[0, 3_600_000_000_000], money={"compute": [0, 60], "waiting": [0, 30], "restarts": [0, 10]}, undated=2
)


def bill(
    categories: dict[str, str | None], billed: str | None = None, effective: str | None = None, ledger: str | None = None
) -> BillResult:
    shares = [
        BillShare(name=name, money=money, share=None, rank_ns=None, joules=None, kg_co2e=None, lost=None)
        for name, money in categories.items()
    ]
    invoice = [] if billed is None else [Invoice(id="i", billed=billed, allocated=billed, residual="0", closes=True)]
    return BillResult(
        currency="EUR", period=BillPeriod(start=None, end=None, open=False), verdict="", invoices=invoice, categories=shares,
        accrual=Accrual(ledger=ledger, effective=effective, residual=None, closes=None if effective is None else True),
        lines=[], by={}, unmatched=[], defects=[], energy=NO_ENERGY, recoverable=[], budget=None, missing=[], defaults=[],
        notes=[], inputs=[],
    )  # fmt: skip


MONTH = {"useful work": "60", "over-provisioning": "25.5", "services": "5", "corrections and credits": "-2", "unmatched": "0",
         "SLA and deadlines": "7"}  # fmt: skip


def test_bars_lead_from_the_invoice_to_useful_work() -> None:
    found = steps(bill(MONTH, billed="100", effective="90", ledger="88.5"))
    assert [(bar.name, bar.size) for bar in found] == [
        ("invoiced", Decimal(100)), ("commitments and other periods", Decimal(-10)),
        ("charged and not used", Decimal("-1.5")), ("not in the bill", Decimal(7)), ("services", Decimal(-5)),
        ("corrections and credits", Decimal(2)), ("over-provisioning", Decimal("-25.5")), ("SLA and deadlines", Decimal(-7)),
        ("useful work", Decimal(60)),
    ]  # fmt: skip
    assert all(one.end == other.begin for one, other in pairwise(found[:-1]))


def test_without_a_bill_bars_begin_with_what_was_used() -> None:
    assert [bar.name for bar in steps(bill({"useful work": "3", "over-provisioning": "1"}))] == [
        "used, at its price", "over-provisioning", "useful work",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [("201000", "201,000"), ("310.4", "310.40"), ("7", "7"), ("0.04512", "0.0451"), ("-1234.5", "-1,234")]
)
def test_amounts_are_short(value: str, text: str) -> None:
    assert amount(Decimal(value)) == text


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(TautError, match="pip install altair vl-convert-python"):
        BillPlots(bill(MONTH), lambda: COST).waterfall()


def test_what_has_no_money_has_no_picture() -> None:
    plots = BillPlots(bill({"useful work": None}), lambda: None)
    with pytest.raises(TautError, match="no cost over time"):
        plots.cost()


def test_titles_say_the_number() -> None:
    pytest.importorskip("altair")
    plots = BillPlots(bill(MONTH, billed="100", effective="90", ledger="88.5"), lambda: COST)
    title = plots.waterfall().to_dict()["layer"][0]["title"]
    assert title == {
        "text": "Useful work: 60.0 % of 100 EUR invoiced",
        "subtitle": ["Largest loss: over-provisioning, 25.50 EUR; the bill closes"],
    }
    shown = plots.cost().to_dict()["layer"][0]["title"]
    assert shown == {
        "text": "100 EUR, of which waiting and restarts 40.0 %", "subtitle": ["2 EUR more have no time and are not shown"],
    }  # fmt: skip
