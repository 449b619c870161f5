"""Cards of notebooks: the verdict, figures with intervals, what to do next; whatever a name is, it is text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

import taut
from results import RESULT, filled
from taut.compare.comparison import Comparison
from taut.core.json_text import json_text
from taut.forecasts import Projection
from taut.render.bill_card import bill_card
from taut.render.brief_card import brief_card
from taut.render.card import card
from taut.render.compare_card import compare_card
from taut.render.forecast_card import forecast_card, two_card
from taut.result.types import AnalysisResult, BillResult, BriefResult, CompareResult, ProjectResult, TwoScenarios

HOSTILE = "</div><script>alert(1)</script>\x1b[31m\u202e"
SHARE = {"value": 0.07, "lo": 0.04, "hi": 0.11}
REMEDY = {"do": "drain node3", "drain": None, "ticket": ""}


def analysis(name: str) -> AnalysisResult:
    finding = {**RESULT["findings"][0], "because": name, "recoverable_share": SHARE, "remedy": {**REMEDY, "do": name}}
    given = {"verdict": {**RESULT["verdict"], "text": name}, "job": {**RESULT["job"], "name": name}, "findings": [finding]}
    return filled(AnalysisResult, {**RESULT, **given})  # type: ignore[no-any-return]


def comparison(name: str, kind: type[CompareResult] = CompareResult) -> CompareResult:
    runs = [
        {"run": f"{k} {name}", "job": name, "step_ns": 1e8 + 1e7 * k, "effective_throughput_ratio": {**SHARE, "value": 0.9}}
        for k in range(9)
    ]
    slope = {"value": 1e7, "lo": 0.9e7, "hi": 1.1e7}
    return filled(kind, {  # type: ignore[no-any-return]
        "verdict": {"text": name}, "runs": runs, "order": "given",
        "trends": [{"quantity": "step_ns", "runs": 9, "p": 0.001, "q": 0.002, "slope": slope}],
        "changed": [{"class": name, "rank": 3, "before_ns": 1e6, "after_ns": 2e6, "effect_wall_ns": 5_000_000}],
        "findings": [{"mode": name, "remedy": {**REMEDY, "do": name}}],
    })  # fmt: skip


def scale(ranks: int, name: str) -> dict[str, Any]:
    return {
        "ranks": ranks, "step_ns": {"p10": 0.9e9, "p50": 1e9, "p90": 1.2e9}, "in_range": ranks < 1000, "bound": name,
        "tokens_per_s_interval": {"value": 36_062.0, "lo": 28_792.0, "hi": 40_844.0}, "effective_throughput_ratio": 0.95,
        "budget": UNSET,
    }  # fmt: skip


def projection(name: str, kind: type[ProjectResult] = ProjectResult) -> ProjectResult:
    return filled(kind, {  # type: ignore[no-any-return]
        "scenario": name, "workload": "training", "ranks": 4096, "forecasts": [scale(4096, name), scale(64, name)],
        "turns": UNSET, "threshold": {"ranks": 17_225, "lo": 5_404, "hi": 18_745, "rule": name, "tried": 49_152},
        "gains": [{"name": "overlap,local-steps=4", "together": True, "ranks": 4096, "rate_change": 0.03}],
    })  # fmt: skip


def two(name: str) -> TwoScenarios:
    figure = {"figure": "tokens_per_s", "values": (1.0, 2.0), "ratio": 2.0}
    pair = {"ranks": (64, 64), "figures": [figure]}
    given = {"scenarios": (projection(name), projection("b")), "ratios": [pair], "thresholds": figure}
    return filled(TwoScenarios, given)  # type: ignore[no-any-return]


def bill(name: str) -> BillResult:
    return filled(BillResult, {  # type: ignore[no-any-return]
        "verdict": name, "currency": "EUR", "categories": [{"name": name, "money": "12.50", "share": 0.2}],
        "defects": [{"kind": name, "money": "1"}],
        "recoverable": [{"remedy": name, "saved_share": SHARE, "per_month": {"value": 868, "lo": 435, "hi": 1653}}],
    })  # fmt: skip


def briefing(name: str) -> BriefResult:
    cause = {"what": name, "share": SHARE, "share_is": "recoverable", "do": name, "source": "measured"}
    costs = {"per_month": 14_515.0, "useful_per_month": 7_950.0, "currency": name, "basis": name}
    question = {"question": name, "needs": name}
    return filled(BriefResult, {"title": name, "verdict": name, "causes": [cause], "costs": costs, "questions": [question]})  # type: ignore[no-any-return]


CARDS = {
    "analysis": lambda name: card(analysis(name), name),
    "comparison": lambda name: compare_card(comparison(name)),
    "projection": lambda name: forecast_card(projection(name)),
    "two": lambda name: two_card(two(name)),
    "bill": lambda name: bill_card(bill(name)),
    "brief": lambda name: brief_card(briefing(name)),
}


class Tags(HTMLParser):
    """The tags that a browser would see, and whether they close in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("kind", CARDS)
def test_a_hostile_name_is_text(kind: str) -> None:
    html = CARDS[kind](HOSTILE)
    tags = Tags()
    tags.feed(html)
    assert tags.seen <= {"div", "b", "table", "tr", "td", "th"}
    assert tags.open == []
    assert "&lt;script&gt;" in html
    assert "\x1b" not in html
    assert "\u202e" not in html


@pytest.mark.parametrize("kind", CARDS)
def test_letters_have_the_colour_of_the_notebook(kind: str) -> None:
    html = CARDS[kind]("a")
    assert "background:#" not in html
    assert ";color:#" not in html
    assert '"color:#' not in html


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("analysis", ["7 % (4–11) of the wall recoverable", "next: drain node3", "4 ranks", "partial: rank 5 missing"]),
        ("comparison", ["step time: +10.0 ms a run (+9.00 ms to +11.0 ms)", "1.00 ms → 2.00 ms a step, +5.00 ms on the wall",
                        "the first and the last 4 of 9 runs", "next: drain node3"]),
        ("projection", ["36,062 (28,792–40,844)", "17,225 ranks (5,404–18,745)", "4,096 ?", "900 ms–1.20 s", "a guess",
                        "next: overlap + local-steps=4 gives 3.0 % more tokens/s on 4,096 ranks"]),
        ("two", ["100.0 % more tokens/s", "stops paying at 17,225 ranks"]),
        ("bill", ["12.50 EUR", "20.0 %", "7 % (4–11) of the wall, 868 EUR (435–1,653) a month"]),
        ("brief", ["14,515 run-1 a month, of which 7,950 for useful work", "7 % (4–11) recoverable (measured)",
                   "1 of 1 questions", "next: run-1"]),
    ],
)  # fmt: skip
def test_a_card_has_figures_with_intervals_and_what_to_do(kind: str, words: list[str]) -> None:
    html = CARDS[kind]("drain node3" if kind in ("analysis", "comparison") else "run-1")
    assert [one for one in words if one not in html] == []
    assert len(html) < 5000


@pytest.mark.parametrize(
    ("made", "plain"),
    [(comparison("a", Comparison), comparison("a")), (projection("a", Projection), projection("a"))],
    ids=["comparison", "projection"],
)
def test_what_shows_itself_is_what_json_prints(made: Any, plain: Any) -> None:
    assert isinstance(made, type(plain))
    assert json_text(made) == json_text(plain)
    assert made["schema"] == plain["schema"]
    assert made._repr_html_().startswith("<div")
    assert len(repr(made)) < 200
    assert msgspec.structs.asdict(made) == msgspec.structs.asdict(plain)


def test_public_names_of_what_verbs_return() -> None:
    assert taut.Comparison is Comparison
    assert taut.Projection is Projection
