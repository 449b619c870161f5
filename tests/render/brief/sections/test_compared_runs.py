"""Runs of one job side by side: old struck through, new highlighted, and whether it gives the same time twice."""

from __future__ import annotations

from typing import Any

from briefings import charts, compared, empties, grid, run, texts, words
from briefs import briefing
from taut.render.brief.document import Cell, Lines, Section
from taut.render.brief.sections.compared_runs import comparison


def row(name: str, step_ms: float, kept: float, **more: Any) -> dict[str, Any]:
    ratio = {"value": kept, "lo": kept - 0.01, "hi": kept + 0.01}
    return {
        "run": name, "job": "job", "ranks": 4, "steps": 9, "step_ns": step_ms * 1e6, "effective_throughput_ratio": ratio,
        "waiting_share": 0.1, "cost_per_kept_step": "0.5", "currency": "EUR", **more,
    }  # fmt: skip


TWO = {"verdict": {"text": "Slower."}, "runs": [row("old", 100, 0.9), row("new", 150, 0.7)]}


def section(**more: Any) -> Section:
    given = {"non_determinism": {}, "restarts": {}, **TWO, **more}
    found = comparison(briefing(comparisons=[compared(given)]))
    assert found is not None
    return found


def test_before_is_struck_through_and_after_highlighted() -> None:
    table = grid(section(), "Before and after")
    assert table.rows[0] == ["Median step", Cell("100 ms", "old"), Cell("150 ms", "new"), Cell("+50 %", "bad")]
    assert words(table)[1] == ["Effective share of the work", "90 % (89–91)", "70 % (69–71)", "−20 points"]
    assert words(table)[2][3] == "none"


def test_a_change_within_intervals_is_not_called_good_or_bad() -> None:
    table = grid(section(runs=[row("old", 100, 0.90), row("new", 100, 0.91)]), "Before and after")
    assert table.rows[1][3] == "+1 points, not sure"


def test_several_runs_have_a_course_and_trends() -> None:
    trend = {"quantity": "step_ns", "runs": 3, "p": 0.01, "q": 0.02, "slope": {"value": 5.0, "lo": 1.0, "hi": 9.0}}
    runs = [row("a", 100, 0.9), row("b", 110, 0.9), row("c", 120, 0.9)]
    found = section(runs=runs, trends=[trend, {"quantity": "waiting_share", "runs": 3}])
    assert charts(found, Lines)[0].lines[0].y == [100.0, 110.0, 120.0]
    assert [line[:2] for line in words(grid(found, "Trends"))] == [["step ns", "rises"], ["waiting share", "too few runs"]]


def test_what_changed_with_its_effect() -> None:
    work = {
        "class": "all-reduce",
        "rank": 1,
        "before_ns": 1e6,
        "after_ns": 2e6,
        "p": 0.0,
        "q": 0.0,
        "effect_wall_ns": 5_000_000,
    }
    table = grid(section(changed=[work, {**work, "rank": 2, "effect_wall_ns": 0}], changed_tested=108), "What changed")
    assert words(table) == [
        ["all-reduce", "1", "1.00 ms", "2.00 ms", "5.00 ms"], ["all-reduce", "2", "1.00 ms", "2.00 ms", "nothing by itself"],
    ]  # fmt: skip
    assert table.note == "2 of 108 classes on ranks changed."


def test_irreproducibility_is_told_with_its_interval() -> None:
    repeat = {
        "runs": ["old", "new"], "within_share": 0.02, "between_share": {"value": 0.7, "lo": 0.3, "hi": 22.0}, "q": 1e-9,
    }  # fmt: skip
    found = section(non_determinism={"repeats": [repeat]})
    assert texts(found)[-1] == (
        "Irreproducibility: 2 runs of the same work differ by 70 % (at least 30 %) of the step time, beyond what their own "
        "steps vary by. Steps of one run differ by 2 %."
    )


def test_restarts_say_what_they_do() -> None:
    at = {"before": "old", "after": "new", "step": 40, "rerun_steps": 3, "before_ns": 1e8, "after_ns": 9e7}
    table = grid(section(restarts={"at": [at], "effect": "reset"}), "Restarts")
    assert words(table) == [["old → new", "40", "3", "100 ms", "90.0 ms"]]
    assert "builds up" in table.note


def test_one_run_tells_nothing_of_another() -> None:
    found = comparison(briefing(runs=[run({"job": {"name": "job", "ranks": 8}})]))
    assert found is not None
    (empty,) = empties(found)
    assert empty.command == "taut compare RUN RUN"
    assert comparison(briefing()) is None
