"""The bill of a briefing: waterfall, direct and hidden categories, what would come back; without one the ledger."""

from __future__ import annotations

from typing import Any

from briefs import blocks, briefed_bill, briefed_run, briefed_scenario, briefing, table, words
from results import FINDING, RESULT
from taut.render.brief.document import Bars, Picture, Waterfall
from taut.render.brief.sections.money import money

HOUR_NS = 3_600_000_000_000
SHARES = [
    {"name": "useful work", "money": "60.00", "share": 0.6, "rank_ns": 60 * HOUR_NS, "joules": 3.6e6, "lost": "0.00"},
    {"name": "re-runs and discarded work", "money": "25.00", "share": 0.25, "rank_ns": 25 * HOUR_NS, "lost": "25.00"},
    {"name": "lower effective utilisation", "money": "15.00", "share": 0.15, "rank_ns": 15 * HOUR_NS, "lost": "15.00"},
]
WAIT: dict[str, Any] = {
    "category": "lower effective utilisation", "kind": "hidden", "item": "accelerator time",
    "fate": "fault wait", "cause": "f-1",
    "money": "10.00", "source": "measured", "from": "run a",
}  # fmt: skip
LINES = [
    {"category": "useful work", "kind": "useful", "item": "accelerator time", "money": "60.00", "source": "measured"},
    {"category": "re-runs and discarded work", "kind": "direct", "item": "accelerator time", "fate": "discarded",
     "money": "25.00", "source": "given"},
    WAIT, WAIT | {"money": "5.00", "source": "modelled"},
]  # fmt: skip
BILL: dict[str, Any] = {
    "currency": "EUR", "verdict": "October cost 100 EUR.", "unit": "accelerator", "categories": SHARES, "lines": LINES,
    "period": {"start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z", "open": False},
    "accrual": {"ledger": "100.00", "effective": "100.00", "residual": "0.00", "closes": True},
    "invoices": [{"id": "1", "billed": "100.00", "allocated": "100.00", "residual": "0.00", "closes": True}],
    "causes": {"f-1": "rank 3 (gpu-17), straggler cascade"},
    "recoverable": [{
        "cause": "f-1", "remedy": "repair rank 3", "saved_share": {"value": 0.1, "lo": 0.08, "hi": 0.16},
        "per_month": {"value": 7200.0, "lo": 5760.0, "hi": 11520.0}, "payback_days": {"value": 5.0},
    }],
    "energy": {"joules": {"value": 7.2e6}, "source": "counter", "stall_joules": 3.6e6},
}  # fmt: skip


def test_the_waterfall_leads_from_the_invoice_to_useful_work() -> None:
    (picture,) = blocks(money(briefing(bills=[briefed_bill(BILL)])), Picture)
    assert isinstance(picture.chart, Waterfall)
    assert [(one.label, one.begin, one.end) for one in picture.chart.steps] == [
        ("invoiced", 0, 100),
        ("re-runs and discarded work (direct)", 100, 75),
        ("lower effective utilisation (hidden)", 75, 60),
        ("useful work", 0, 60),
    ]
    assert "lower effective utilisation (hidden) 15.00 EUR, 15 %" in picture.alt


def test_categories_have_kind_money_share_time_and_energy() -> None:
    made = money(briefing(bills=[briefed_bill(BILL)]))
    assert table(made, "Direct and hidden")[0][2:] == ["good: useful", "60.00", "60 %", "60.0 h", "1.00"]
    assert table(made, "Direct and hidden")[1][2:] == ["bad: direct", "25.00", "25 %", "25.0 h", "–"]
    assert "Energy, kWh" in words(made)


def test_lines_that_differ_in_their_source_are_one_loss() -> None:
    made = money(briefing(bills=[briefed_bill(BILL)]))
    assert table(made, "The largest losses") == [
        ["accelerator time", "work that was thrown away", "–", "25.00", "given"],
        [
            "accelerator time",
            "waiting for somebody at fault",
            "rank 3 (gpu-17), straggler cascade",
            "15.00",
            "measured and modelled",
        ],
    ]


def test_what_would_come_back_has_intervals() -> None:
    made = money(briefing(bills=[briefed_bill(BILL)]))
    row = ["rank 3 (gpu-17), straggler cascade", "repair rank 3", "10 % (8–16)", "7,200 (5,760–11,520)", "not given", "5.00"]
    assert table(made, "What would come back") == [row]


def test_a_bill_that_does_not_close_says_by_how_much() -> None:
    accrual = {"ledger": "100.00", "effective": "120.00", "residual": "20.00", "closes": False}
    assert "20.00 EUR is charged and not explained" in words(money(briefing(bills=[briefed_bill(BILL | {"accrual": accrual})])))


def test_several_bills_stand_one_after_the_other() -> None:
    said = words(money(briefing(bills=[briefed_bill(BILL, "bills/a"), briefed_bill(BILL, "bills/b")])))
    assert said.index("bills/a") < said.index("bills/b")


def test_a_bill_without_prices_is_told_what_it_needs() -> None:
    unpriced = [one | {"money": None, "share": None} for one in SHARES]
    bare = BILL | {"currency": None, "categories": unpriced, "lines": [], "accrual": {}, "recoverable": [], "energy": {}}
    assert "Nothing in it has a price." in words(money(briefing(bills=[briefed_bill(bare)])))


def test_without_a_bill_the_ledger_and_how_to_price_it() -> None:
    made = money(briefing(runs=[briefed_run()]))
    (picture,) = blocks(made, Picture)
    assert isinstance(picture.chart, Bars)
    assert [bar.label for bar in picture.chart.bars] == [
        "computing at its usual speed", "waiting for somebody at fault", "host, input and launch gaps",
    ]  # fmt: skip
    assert "taut brief RUN" in words(made)
    priced = RESULT["ledger"] | {"currency": "EUR"}
    assert "The same, priced" in words(money(briefing(runs=[briefed_run(ledger=priced)])))


def test_a_scenario_tells_what_a_unit_of_work_costs_and_where_paid_time_goes() -> None:
    forecast = {"ranks": 64, "step_ns": {}, "in_range": True, "cost_per_unit": 1.96, "currency": "USD",
                "groups": {"compute": 0.4, "interconnect": None, "synchronisation": 0.5, "recovery": 0.1}}  # fmt: skip
    made = money(briefing(scenarios=[briefed_scenario({"forecasts": [forecast], "workload": "loops"})]))
    assert "Cost of a thousand requests 1.96 USD" in words(made)
    (picture,) = blocks(made, Picture)
    assert picture.alt == "useful work 40 %, waiting, queues and idle accelerators 50 %, failures, retries and restarts 10 %."


def test_job_logs_alone_have_the_time_of_attempts() -> None:
    attempts = {"total_rank_ns": 4 * HOUR_NS, "unit": "accelerator", "entries": [{"fate": "kept", "rank_ns": 3 * HOUR_NS}]}
    made = money(briefing(runs=[briefed_run(ledger=None, attempts=attempts)]))
    assert table(made, "Where the time of accelerators went")[0] == ["attempts whose work was kept", "3.00 h", "75 %"]


def test_what_comes_back_stands_in_the_order_and_words_of_the_recommendations() -> None:
    repair = FINDING | {"id": "f-1", "remedy": {"do": "let no new job start on node2, and test it", "ticket": ""}}
    policy = FINDING | {"id": "f-2", "loss_share": {"value": 0.25}, "policy": {"name": "local-steps=4", "saved_wall_ns": 9}}
    dearer = BILL["recoverable"][0] | {"cause": "f-2", "remedy": "policy local-steps=4", "per_month": {"value": 7300.0}}
    bound = dearer | {
        "cause": "exposed transfer",
        "remedy": "another fabric",
        "per_month": {"value": 9e3, "lo": 0.0, "hi": 9e3},
    }
    bill = BILL | {"recoverable": [bound, dearer, *BILL["recoverable"]]}
    made = money(briefing(bills=[briefed_bill(bill)], runs=[briefed_run(findings=[repair, policy])]))
    assert [row[1] for row in table(made, "What would come back")] == [
        "let no new job start on node2, and test it; then mend or replace it",
        "let ranks meet every 4 steps only (policy local-steps=4); first check that the model still converges",
        "another fabric",
    ]


def test_useful_work_and_energy_say_what_they_are_of() -> None:
    verdict = {"text": "", "class": "component", "effective_share": 0.8}
    attempts = {"entries": [{"fate": "down", "rank_ns": 2 * HOUR_NS}]}
    spare = {"name": "over-provisioning", "money": "1.00", "share": 0.01, "joules": 4.4e6}
    bill = BILL | {"categories": [*SHARES, spare]}
    said = words(money(briefing(bills=[briefed_bill(bill)], runs=[briefed_run(verdict=verdict, attempts=attempts)])))
    assert "Useful work is 60 % of everything charged, idle accelerators and services included. Page one has 80 %" in said
    assert "2.00 h of accelerator time lie between attempts" in said
    assert "These are the accelerators alone" in said
    assert "These are the accelerators alone" not in words(money(briefing(bills=[briefed_bill(BILL)])))
