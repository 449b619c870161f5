"""The screen of ``taut control``."""

from __future__ import annotations

from typing import Any

from results import filled
from taut.render.control_screen import render_control
from taut.render.terminal import Screen
from taut.result.types import ControlResult

RESULT: dict[str, Any] = {
    "name": "logs", "actions": 67, "controllers": ["rescuer", "slurmctld"],
    "relations": [
        {
            "kind": "conflict", "controllers": ["slurmctld", "rescuer"], "target": "12", "knob": "allocation", "count": 8,
            "statistic": 1.0, "p": None, "q": None, "cost": {"rank_ns": 48_000_000_000, "tokens": None},
            "because": "rescuer undoes slurmctld's preemption of job 12: 8 of 8 times, every 6 s; so that neither lasts",
        },
        {
            "kind": "amplification", "controllers": ["proxy\x1b[31m"], "target": None, "knob": None, "count": 3,
            "statistic": 3.0, "p": 0.0001, "q": 0.02, "cost": {"rank_ns": None, "tokens": 1200}, "because": "",
        },
    ],
    "indices": {
        "decision_conflict_rate": {"value": 0.33, "lo": 0.19, "hi": 0.52}, "planning_accuracy": None,
        "margin_erosion_rate": None,
    },
    "regime": {"class": "incoherent"}, "partial": ["a.log: times without a time zone, taken as UTC"],
}  # fmt: skip


def screen(result: dict[str, Any], width: int = 120) -> str:
    return render_control(filled(ControlResult, result), Screen(width=width))


def test_everything_is_on_the_screen() -> None:
    text = screen(RESULT)
    headline = "rescuer undoes slurmctld's preemption of job 12: 8 of 8 times, every 6 s."
    assert " ".join(text.split()).startswith(
        f"{headline} Control is incoherent: conflict and amplification among 2 controllers. logs"
    )
    row = next(line for line in text.splitlines() if line.strip().startswith("conflict  "))
    assert row.split("  ")[0].strip() == "conflict"
    for word in ("slurmctld – rescuer: 12 allocation", "8", "1.00", "exact", "48.0 s"):
        assert word in row
    assert "conflict: rescuer undoes slurmctld's preemption" in text
    assert "decision conflict rate" in text
    assert "0.19 to 0.52" in text
    assert "2 not known from these logs" in text
    assert "partial: a.log: times without a time zone" in text


def test_chances_costs_and_names_are_shown_as_they_are() -> None:
    row = next(line for line in screen(RESULT).splitlines() if line.strip().startswith("amplification  "))
    for word in ("<0.001", "0.020", "1,200 tokens", r"proxy\x1b[31m"):
        assert word in row


def test_a_narrow_screen_and_one_without_unicode() -> None:
    text = render_control(filled(ControlResult, RESULT), Screen(width=80, unicode=False))
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 80


def test_nothing_found() -> None:
    calm = {
        **RESULT,
        "relations": [],
        "controllers": [],
        "actions": 0,
        "indices": {},
        "partial": [],
        "regime": {"class": None},
    }
    assert screen(calm) == "No decision of a controller is in these logs.\nlogs · 0 actions\n"


def test_what_could_not_be_judged_is_the_verdict() -> None:
    unknown = {"class": None, "because": "hpa reversed replicas of web 23 times; demand is not recorded"}
    text = " ".join(screen({**RESULT, "relations": [], "regime": unknown}).split())
    assert text.startswith("Whether control is coherent is not known: hpa reversed replicas of web 23 times; demand")


def test_what_is_stuck_comes_first_and_nothing_is_well() -> None:
    one = dict.fromkeys(("since_ns", "held_ns", "nodes", "remedy"))
    stuck = [{**one, "job": job, "attempts": 9, "failures": 2, "reason": "", "text": f"{job} fails."} for job in "abc"]
    text = screen({**RESULT, "relations": [], "regime": {"class": "coherent"}, "stuck": stuck})
    assert text.startswith("a fails. b fails. 1 more job is stuck. No controller works against another.\n")


def test_what_only_costs_is_named_and_is_no_fight() -> None:
    lost = {
        **RESULT["relations"][0],
        "kind": "redundant work",
        "because": "2 of 7 jobs were restarted: up to 62% was done again",
    }
    text = " ".join(screen({**RESULT, "relations": [lost], "regime": {"class": "coherent"}}).split())
    assert text.startswith(
        "2 of 7 jobs were restarted: up to 62% was done again. Control is coherent: no controller works against another, "
        "redundant work is what restarts and repeats cost. logs"
    )
