"""The screen of ``taut bill``: verdict and closing first, then where the money went, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from results import filled
from taut.render.bill_card import bill_card
from taut.render.bill_screen import render_bill
from taut.render.terminal import Screen
from taut.result.types import BillResult

HOUR = 3_600_000_000_000
SHARES = [
    {"name": "useful work", "money": "61.00", "share": 0.61, "rank_ns": 61 * HOUR, "lost": "0.00"},
    {"name": "re-runs and discarded work", "money": "20.00", "share": 0.2, "rank_ns": 20 * HOUR, "lost": "20.00"},
    {"name": "energy wasted", "joules": 3.6e6, "kg_co2e": 0.4},
    {"name": "lower effective utilisation", "money": "19.00", "share": 0.19, "rank_ns": 19 * HOUR, "lost": "19.00"},
]
LINE = {"category": "lower effective utilisation", "kind": "hidden", "item": "accelerator time", "fate": "fault wait",
        "cause": "f-1", "money": "19.00", "rank_ns": 19 * HOUR, "source": "measured", "from": "run a: 9 steps"}  # fmt: skip
RESULT: dict[str, Any] = {
    "currency": "EUR", "period": {"start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z", "open": True},
    "verdict": "October 2026 cost 100 EUR.",
    "accrual": {"ledger": "100.00", "effective": "120.00", "residual": "20.00", "closes": False, "explained": "20.00"},
    "invoices": [{"id": "inv-1\x1b[31m", "billed": "120.00", "allocated": "120.00", "residual": "0.00", "closes": True}],
    "categories": SHARES, "lines": [LINE], "causes": {"f-1": "rank 3 (gpu-17), straggler cascade"},
    "by": {"team": [SHARES[0] | {"name": "vision"}, SHARES[1] | {"name": None}], "job": [], "host": []},
    "unmatched": [{"resource": "i-1", "money": "3.00", "rows": 2, "remedy": "tag it"}],
    "defects": [{"kind": "duplicated line", "rows": 4, "places": ["a:1"], "money": "20.00", "because": "they stand twice"}],
    "rules": [{"rule": "r", "because": "ContractedCost is null", "rows": 7, "places": [], "validator": "x", "disputed": False}],
    "energy": {
        "joules": {"value": 7.2e6, "lo": 3.6e6, "hi": 10.8e6}, "source": "counter", "stall_joules": 3.6e6,
        "sources": [
            {"name": "counter", "joules": 7.2e6, "coverage": 1.0}, {"name": "states", "joules": 3.6e6, "coverage": 1.0},
        ],
    },
    "recoverable": [{
        "cause": "f-1", "remedy": "repair rank 3", "saved_share": {"value": 0.1, "lo": 0.08, "hi": 0.16},
        "per_hour": {"value": 10.0, "lo": 8.0, "hi": 16.0}, "per_day": {"value": 240.0}, "per_month": {"value": 7200.0},
        "payback_days": {"value": 5.0, "lo": 3.0, "hi": 6.0},
    }],
    "budget": {"budget": "90.00", "actual": "100.00", "forecast": "110.00", "left": "-20.00"},
    "missing": ["sla: broken promises cost nothing here"], "notes": ["n1"], "defaults": ["d1"], "inputs": [],
}  # fmt: skip


def screen(width: int = 80, by: str | None = None, unicode: bool = True, **changed: Any) -> str:
    return render_bill(filled(BillResult, {**RESULT, **changed}), Screen(width=width, unicode=unicode), by)


def row(text: str, begins: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(begins))


def test_everything_in_its_order() -> None:
    text = screen(120, "team")
    heads = [
        "October 2026 cost", "Closing", "Where 100.00 EUR went", "The largest lines", "What is wrong", "Charges for",
        "The bill breaks", "Energy", "What would come back", "Budget", "By team", "default: d1", "note: n1", "not given: sla",
    ]  # fmt: skip
    places = [text.index(head) for head in heads]
    assert places == sorted(places)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_longer_than_the_screen_and_none_of_the_figures_is_cut(width: int) -> None:
    text = screen(width, "team")
    assert max(map(len, text.splitlines())) <= width
    for figure in ("61.00", "20.00", "19.00", "120.00"):
        assert figure in text


def test_rows_say_what_they_are() -> None:
    text = screen(120)
    assert row(text, "accrual").split()[-2:] == ["named", "below"]
    assert row(text, "invoice").endswith("closes")
    assert row(text, "fault wait").split("  ")[-1] == "run a: 9 steps"
    assert "rank 3 (gpu-17), straggler cascade" in row(text, "fault wait")
    assert "2 (1–3) kWh by counter · 50.0 % of it while nothing useful was done" in text
    assert "5 (3–6)" in row(text, "repair rank 3")
    assert "20.00 EUR over" in row(text, "Budget")


def test_what_has_no_price_has_no_share() -> None:
    assert [word for word in row(screen(), "energy wasted").split() if word == "–"] == ["–", "–"]


def test_without_a_bill_there_is_no_closing_and_without_a_price_time_is_shown() -> None:
    bare = [{"name": "useful work", "rank_ns": HOUR, "money": None}]
    text = screen(accrual={"ledger": None}, categories=bare, lines=[], recoverable=[], budget=None, unit="node")
    assert "Closing" not in text
    assert "Where 60.0 min of node time went" in text


def test_kinds_are_told_apart_without_colour_and_in_ascii() -> None:
    text = screen(120, unicode=False)
    assert text.isascii()
    assert row(text, "useful ").rstrip().endswith("#")
    assert row(text, "direct").rstrip().endswith("x")
    assert row(text, "hidden").rstrip().endswith("=")


def test_names_cannot_harm_a_terminal_or_a_page() -> None:
    assert "\x1b" not in screen(120)
    assert "<b>October" in bill_card(filled(BillResult, RESULT))
    assert "<script>" not in bill_card(filled(BillResult, {**RESULT, "verdict": "<script>"}))
