"""The failure envelope: the map, where the job stands in it, and what loses what."""

from __future__ import annotations

from typing import Any

import pytest

from briefings import charts, empties, grid, run, scenario, texts, words
from briefs import briefing
from taut.render.brief.document import Bars, Heat
from taut.render.brief.sections.envelope import envelope


def cell(ranks: int, spread: float, mode: str, lost: float, gates: float = 2.0) -> dict[str, Any]:
    share = {"value": lost, "lo": lost - 0.01, "hi": lost + 0.01}
    return {
        "ranks": ranks, "heterogeneity": spread, "intensity": gates, "dominates": mode, "loss_share": lost + 0.1,
        "modes": [mode], "losses": {mode: share},
    }  # fmt: skip


POINT = {"ranks": {"value": 8}, "heterogeneity": {"value": 0.05, "lo": 0.04, "hi": 0.06}, "intensity": {"value": 2.0}}
MAP = [
    cell(8, 0.05, "straggler cascade", 0.2), cell(32, 0.05, "structural instability", 0.4),
    cell(8, 0.1, "straggler cascade", 0.3), cell(32, 0.1, "structural instability", 0.5),
    cell(8, 0.05, "work imbalance", 0.9, gates=8.0),
]  # fmt: skip


def test_the_map_at_the_jobs_own_intensity_with_its_cell_marked() -> None:
    given = {"job": {"name": "job", "ranks": 8}, "whatif": {}, "envelope": {"point": POINT, "map": MAP}}
    section = envelope(briefing(runs=[run(given)]))
    assert texts(section) == [
        "job: where the job stands, straggler cascade takes 20 % (19–21) of the wall. At 32 ranks structural instability takes "
        "over, with 40 %."
    ]
    (heat,) = charts(section, Heat)
    assert (heat.rows, heat.columns, heat.marked) == (["±5 %", "±10 %"], ["8", "32"], (0, 0))
    assert (0, 0, pytest.approx(0.2), "straggler 20 %") in heat.values


def test_a_scenario_tells_what_each_mechanism_loses() -> None:
    losses = [
        {"ranks": 64, "mechanism": name, "loss_share": {"value": lost, "lo": lost, "hi": lost}}
        for name, lost in (("all", 0.3), ("jitter", 0.1), ("failures", 0.2))
    ]
    regions = [
        {"ranks": n, "heterogeneity": 1.0, "intensity": 1.0, "dominates": "failures", "loss_share": 0.3 * k, "class": "stable"}
        for k, n in enumerate((64, 256), 1)
    ]
    spare = [
        {"what": what, "extra_ranks": more, "target_share": reached, "met": reached >= 1, "cost_per_unit_change": 0.4}
        for what, more, reached in (("as it stands", 0, 0.7), ("replicas", 30, 1.0), ("spares", 8, 0.71), ("spares", 16, 0.71))
    ]
    around = {"losses": losses, "regimes": regions, "spare_capacity": spare}
    section = envelope(briefing(scenarios=[scenario({"ranks": 64, "forecasts": [{"ranks": 64}], "envelope": around})]))
    assert texts(section) == ["toy: on 64 ranks 30 % of the work is lost, most of it to failures: 20 %."]
    assert [bar.label for bar in charts(section, Bars)[0].bars] == ["failures", "jitter"]
    assert words(grid(section, "Work lost")) == [["64", "30 %", "10 %", "20 %"]]
    # Spares beyond the first that reach no more are left out.
    assert [row[:2] for row in words(grid(section, "hide the loss"))] == [
        ["as it stands", "0"],
        ["replicas", "30"],
        ["spares", "8"],
    ]


def test_other_workloads_show_where_their_time_goes() -> None:
    serving = {"workload": "serving", "forecasts": [{"ranks": 8, "terms": {"compute": 0.6, "queue": 0.4}}]}
    section = envelope(briefing(scenarios=[scenario(serving)]))
    assert [(bar.label, bar.colour) for bar in charts(section, Bars)[0].bars] == [("compute", "useful"), ("queue", "waiting")]


def test_a_run_without_its_envelope_says_how_to_get_it() -> None:
    (empty,) = empties(envelope(briefing(runs=[run({"job": {"name": "job", "ranks": 8}, "whatif": {}})])))
    assert empty.command == "taut analyze TRACES --envelope"
    assert envelope(briefing(runs=[run({"job": {"name": "job", "ranks": 8}, "whatif": {}})])).commands == []
    assert len(list(empties(envelope(briefing())))) == 1
