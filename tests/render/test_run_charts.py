"""Pictures of runs, comparisons and forecasts: they draw what was computed, say the number, and names are text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from results import filled
from taut.core.errors import TautError, UsageError
from taut.render.chart_style import shown
from taut.render.compare_charts import ComparePlots
from taut.render.forecast_charts import ForecastPlots
from taut.render.run_charts import RunPlots, RunViews
from taut.result.brief_types import RankLateness
from taut.result.types import CompareResult, ProjectResult, RankRow
from taut.result.view_types import FateShare, LatenessMap, StepTimes

HOSTILE = "</script><script>alert(1)</script>"
FATES = [
    FateShare(fate="productive", group="useful", share=0.6, rank_ns=60, money="1.50"),
    FateShare(fate="fault wait", group="waiting", share=0.3, rank_ns=30, money="0.75"),
    FateShare(fate="something new", group="other", share=0.1, rank_ns=10, money=None),
]
STEPS = StepTimes(
    step=[3, 4, 5], observed_ns=[100_000_000, 300_000_000, 110_000_000], ideal_ns=[90_000_000] * 3, baseline_ns=9.5e7
)


def plots(name: str = "rank 1", **other: Any) -> RunPlots:
    late = LatenessMap(labels=["rank 0", name], ranks=[0, 1], steps=[3, 4], late_ns=[[0.0, None], [2e6, 5e7]])
    waits = RankLateness(labels=["rank 0", name], cause=[1], victim=[0], share=[0.8])
    row = {"label": name, "compute_share": 0.7, "communication_share": 0.1, "copy_share": 0.0, "wait_share": 0.2,
           "gap_share": 0.0, "late_ns": 5e6}  # fmt: skip
    ranks = [filled(RankRow, {**row, "rank": 1}), filled(RankRow, {**row, "rank": 0, "label": "rank 0", "late_ns": None})]
    views: dict[str, Any] = {
        "unit": "step", "currency": "EUR", "fates": lambda: FATES, "steps": lambda: STEPS, "lateness": lambda: late,
        "waits": lambda: waits, "ranks": lambda: ranks,
    }  # fmt: skip
    return RunPlots(RunViews(**{**views, **other}))


def comparison(name: str = "tuesday") -> ComparePlots:
    runs = [
        {"run": f"runs/{one}", "step_ns": 1e8 + k * 1e7, "effective_throughput_ratio": {"value": 0.9, "lo": 0.8, "hi": 0.95}}
        for k, one in enumerate(("monday", name, "wednesday"))
    ]
    slope = {"value": 1e7, "lo": 0.9e7, "hi": 1.1e7}
    trend = {"quantity": "step_ns", "runs": 3, "q": 0.002, "slope": slope}
    return ComparePlots(filled(CompareResult, {"verdict": {"text": name}, "runs": runs, "trends": [trend]}))


def scale(ranks: int) -> dict[str, Any]:
    rate = {"value": 100.0 * ranks, "lo": 80.0 * ranks, "hi": 120.0 * ranks}
    return {"ranks": ranks, "step_ns": {"p10": 0.9e9, "p50": 1e9, "p90": 1.2e9}, "in_range": ranks < 1000,
            "tokens_per_s_interval": rate}  # fmt: skip


def forecast(name: str = "gpt", **other: Any) -> ProjectResult:
    gains = [
        {"name": "overlap", "together": False, "ranks": 4096, "rate_change": -0.01},
        {"name": f"overlap,{name}", "together": True, "ranks": 4096, "rate_change": 0.03},
        {"name": "spares", "together": False, "ranks": 4096, "rate_change": None, "refused": name},
    ]
    given = {"scenario": name, "workload": "training", "ranks": 4096, "forecasts": [scale(4096), scale(64)], "gains": gains,
             "threshold": {"ranks": 1024, "lo": 32, "hi": None, "rule": name, "tried": 8192}}  # fmt: skip
    return filled(ProjectResult, {**given, **other})  # type: ignore[no-any-return]


DRAWN: dict[str, Callable[[str], Any]] = {
    "fates": lambda name: plots(name).fates(),
    "steps": lambda name: plots(name).steps(),
    "lateness": lambda name: plots(name).lateness(),
    "waits": lambda name: plots(name).waits(),
    "ranks": lambda name: plots(name).ranks(),
    "compared steps": lambda name: comparison(name).steps(),
    "trend": lambda name: comparison(name).trend(),
    "growth": lambda name: ForecastPlots(forecast(name)).growth(),
    "throughput": lambda name: ForecastPlots(forecast(name), forecast("b")).growth("throughput"),
    "policies": lambda name: ForecastPlots(forecast(name)).policies(),
}
SAYS = {
    "fates": ["60.0 % of the rank time is productive", "Largest loss: fault wait, 30.0 %"],
    "steps": ["510 ms observed, 270 ms with everything at its reference"],
    "lateness": ["Rank 1 comes latest: 50.0 ms behind the median arrival in step 4"],
    "waits": ["Rank 1 causes 80.0 % of the waiting that has a cause"],
    "ranks": ["Rank 1 comes 5.00 ms late in the median step"],
    "compared steps": ["Median step of each run", "rank 1"],
    "trend": ["Step time from run to run", "+10.0 ms a run (+9.00 ms to +11.0 ms), q 0.002"],
    "growth": ["Step time against ranks", "One more accelerator stops paying at 1,024 ranks (32 at least)",
               "band: 10–90 %; hollow points are guesses"],
    "throughput": ["Tokens/s against ranks", "rank 1: One more accelerator stops paying at 1,024 ranks (32 at least)",
                   "b: One more accelerator stops paying at 1,024 ranks (32 at least)",
                   "band: 80 % interval; hollow points are guesses"],
    "policies": ["2 policies together give 3.0 % more tokens/s on 4,096 ranks", "spares: rank 1"],
}  # fmt: skip


def title(chart: Any) -> list[str]:
    """What stands above a chart."""
    drawn = chart.to_dict()
    found = drawn.get("title") or next(layer["title"] for layer in drawn["layer"] if "title" in layer)
    return [found["text"], *found["subtitle"]]


@pytest.mark.parametrize("kind", DRAWN)
def test_titles_say_the_number(kind: str) -> None:
    pytest.importorskip("altair")
    assert title(DRAWN[kind]("rank 1")) == SAYS[kind]


@pytest.mark.parametrize("kind", DRAWN)
def test_a_name_cannot_end_the_script_that_it_stands_in(kind: str) -> None:
    pytest.importorskip("altair")
    html = DRAWN[kind](HOSTILE).to_html(fullhtml=False)
    assert "<script>alert" not in html
    assert "</script><" not in html.replace("</script>\n<", "")


@pytest.mark.parametrize("kind", DRAWN)
def test_pictures_are_drawn_without_a_browser(kind: str) -> None:
    pytest.importorskip("altair")
    convert = pytest.importorskip("vl_convert")
    assert convert.vegalite_to_svg(DRAWN[kind]("rank 1").to_dict()).startswith("<svg")


def test_only_what_could_end_a_script_is_replaced() -> None:
    assert shown("gemm<float, 4> a</b") == "gemm<float, 4> a‹/b"
    assert shown("<!-- <SCRIPT>") == "‹!-- ‹SCRIPT>"


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (lambda: plots(lateness=lambda: None).lateness(), "the ranks meet at no gate"),
        (lambda: plots(waits=lambda: None).waits(), "nobody caused anybody to wait"),
        (lambda: plots(ranks=list).ranks(), "they were not traced"),
        (lambda: ForecastPlots(forecast(gains=UNSET)).policies(), "give policies="),
        (lambda: comparison().trend("waiting_share"), "no run tells it"),
    ],
)
def test_what_is_not_there_is_refused_in_a_line(draw: Callable[[], object], why: str) -> None:
    pytest.importorskip("altair")
    with pytest.raises(TautError, match=why):
        draw()


def test_policies_that_cost_say_so_and_bands_only_where_there_are_some() -> None:
    pytest.importorskip("altair")
    gain = {"name": "one-retry-layer", "together": False, "ranks": 32, "rate_change": -0.06}
    alone = {"ranks": 32, "step_ns": {"p10": None, "p50": 1e9, "p90": None}, "in_range": True, "tokens_per_s_interval": UNSET,
             "requests_per_s": 7.5}  # fmt: skip
    drawn = ForecastPlots(forecast(gains=[gain], forecasts=[alone], threshold=None, workload="loops"))
    assert title(drawn.policies())[0] == "one-retry-layer costs 6.0 % of the requests/s on 32 accelerators"
    assert title(drawn.growth("throughput")) == ["Requests/s against accelerators"]


def test_what_nobody_draws_is_named() -> None:
    with pytest.raises(UsageError, match="no quantity 'speed': there are step_ns"):
        comparison().trend("speed")
    with pytest.raises(UsageError, match="'step' and 'throughput'"):
        ForecastPlots(forecast()).growth("money")  # type: ignore[arg-type]


def test_many_steps_are_drawn_as_the_slowest_of_some() -> None:
    pytest.importorskip("altair")
    many = StepTimes(
        step=list(range(2500)), observed_ns=[1_000_000] * 2499 + [9_000_000], ideal_ns=[1] * 2500, baseline_ns=None
    )
    drawn = plots(steps=lambda: many).steps().to_dict()
    values = [row["ms"] for row in next(iter(drawn["datasets"].values())) if row["which"] == "observed"]
    assert len(values) == 834
    assert max(values) == 9
    assert title(plots(steps=lambda: many).steps())[1] == "each point the slowest of 3 steps"


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(TautError, match="pip install altair vl-convert-python"):
        plots().fates()
