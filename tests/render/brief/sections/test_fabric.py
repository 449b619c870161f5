"""The ceiling of the fabric: transfers, other fabrics, growth, and what faster devices would need."""

from __future__ import annotations

from briefings import charts, empties, grid, run, scenario, texts, words
from briefs import briefing
from taut.render.brief.document import Cell, Lines
from taut.render.brief.sections.fabric import fabric

NEXT = [
    {"ranks": 64, "generation": g, "exposed_today": 0.2, "exposed_on_todays_network": 0.2 + 0.1 * k, "bandwidth_times": 1.1 * g}
    for k, g in enumerate((2.0, 4.0), 1)
]
FABRICS = [
    {"topology": name, "oversubscription": over, "latency_times": 1.0, "ranks": 64, "step_ns": 2e9, "network_price": 1e6 / over,
     "cost_per_unit": cost}
    for name, over, cost in (("fat-tree", 1.0, 4.2), ("rail-only", 2.0, 4.5))
]  # fmt: skip
GROWTH = [
    {"ranks": 64, "network_price": 1e6, "added_price": 1e6, "network_w": 2000.0, "tiers": ["leaf"], "new_tiers": ["leaf"],
     "in_range": True},
    {"ranks": 128, "network_price": 3e6, "added_price": 2e6, "network_w": 5000.0, "tiers": ["leaf", "spine"],
     "new_tiers": ["spine"], "scaling": 0.97, "in_range": False},
]  # fmt: skip
AROUND = {
    "next_generation": NEXT, "fabrics": FABRICS, "growth": GROWTH,
    "traffic": [{"kind": "data parallel", "tier": "spine", "bytes_per_step": 2.5e12, "joules_per_step": 1500.0}],
    "elasticities": [
        {"knob": "bandwidth of leaf", "per": "percent", "rate": {"value": 0.1, "lo": 0.09, "hi": 0.11}, "cost_per_unit": None},
        {"knob": "jitter", "per": "percent", "rate": {"value": 0.2}, "cost_per_unit": None},
    ],
}  # fmt: skip
SCENARIO = {"ranks": 64, "forecasts": [{"ranks": 64, "currency": "EUR", "movement_share": 0.13}], "envelope": AROUND}


def test_what_faster_devices_would_need_in_a_sentence() -> None:
    section = fabric(briefing(scenarios=[scenario(SCENARIO)]))
    assert texts(section) == [
        "toy: transfers take 20 % of a step on 64 ranks. With devices 2 times as fast on today's network it would be 30 %; "
        "2.20 times the bandwidth would keep the share as it is."
    ]
    assert [line.name for line in charts(section, Lines)[0].lines] == [
        "today's devices", "devices 2 × as fast", "devices 4 × as fast",
    ]  # fmt: skip


def test_fabrics_growth_and_traffic_are_tables() -> None:
    section = fabric(briefing(scenarios=[scenario(SCENARIO)]))
    table = grid(section, "on other fabrics")
    assert words(table)[1] == ["rail-only", "2:1", "1 ×", "2.00 s", "500,000", "4.50"]
    assert table.rows[0][5] == Cell("4.20", "good")
    grown = words(grid(section, "grown"))
    assert grown[1] == ["128 (extrapolated)", "leaf · spine (new)", "3,000,000", "2,000,000", "5.00 kW", "97 %"]
    moved = grid(section, "What a step moves")
    assert words(moved) == [["data parallel", "spine", "2.50 TB", "1.50 kJ"]]
    assert "13 % of all energy" in moved.note
    assert words(grid(section, "better network")) == [["bandwidth of leaf", "0.10 % (0.09–0.11)", "–"]]


def test_collectives_of_a_run_are_lower_bounds_where_waiting_is_in_them() -> None:
    found = {"class": "nccl all-reduce", "bytes": 1_000_000, "members": 8, "count": 4, "median_ns": 2e6, "bus_gb_per_s": 10.0,
             "waiting_included": True}  # fmt: skip
    device = {"mean": {"exposed_share": 0.26, "hidden_share": 0.06}, "collectives": [found]}
    section = fabric(briefing(runs=[run({"job": {"name": "job", "ranks": 8}, "device": device})]))
    assert texts(section) == [
        "job: transfers that nothing hides take 26 % of the accelerators' time, 6 % more lie under computing."
    ]
    assert words(grid(section, "collectives")) == [["nccl all-reduce", "1.00 MB", "8", "4", "2.00 ms", "at least 10.0"]]


def test_a_run_without_an_accelerators_side_says_what_to_record() -> None:
    ledger = {"total_rank_ns": 100, "entries": [{"fate": "exposed transfer", "rank_ns": 8}]}
    section = fabric(briefing(runs=[run({"job": {"name": "job", "ranks": 8}, "whatif": {}, "ledger": ledger})]))
    assert texts(section) == ["job: transfers that nothing hides take 8 % of the rank time."]
    assert len(list(empties(section))) == 1
    assert len(list(empties(fabric(briefing())))) == 1
