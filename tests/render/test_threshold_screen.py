"""What makes a threshold, on a terminal and in a sentence."""

from __future__ import annotations

from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from rich.console import Console

from taut.render.threshold_screen import made_by, what_makes_it
from taut.result.types import Estimate, Threshold

FOUND = Threshold(
    ranks=17_234, lo=5_406, hi=18_754, rule="it pays", tried=36_864, in_range=False,
    without={"jitter": 18_012, "failures": None, "warm-up and heat": 17_300},
    elasticity={
        "jitter": Estimate(value=-0.06, lo=-0.07, hi=-0.04), "failures": Estimate(value=-1.2), "warm-up and heat": None,
    },
    made_by="failures",
)  # fmt: skip


def printed(far: Threshold | None) -> str:
    console = Console(width=80, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as held:
        for part in what_makes_it(far):
            console.print(part)
    return held.get()


def test_a_recovery_number_is_called_one() -> None:
    assert made_by(FOUND) == " It is a recovery number: with failures off none up to 36,864."


def test_each_mechanism_has_its_line_within_80_columns() -> None:
    text = printed(FOUND)
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    rows = {line[:16].strip(): line[16:].split() for line in text.splitlines()[2:]}
    assert rows["jitter"] == ["18,012", "−0.06", "%", "(−0.07", "to", "−0.04)"]
    assert rows["failures"] == ["none", "up", "to", "36,864", "−1.20", "%"]
    assert rows["warm-up and heat"] == ["17,300", "–"]


def test_no_transition_is_said_and_by_when_some_draws_have_one() -> None:
    none = replace(FOUND, ranks=None, lo=None, hi=None, made_by=None, without=dict.fromkeys(("jitter", "failures")))
    assert printed(none).strip() == "There is no transition up to 36,864 ranks."
    assert "by 25,000 ranks" in made_by(replace(none, lo=25_000))


def test_several_mechanisms_together_are_said_to_be() -> None:
    assert "No mechanism makes it alone" in made_by(replace(FOUND, made_by=None))


def test_a_mechanism_without_a_name_of_its_own_is_called_by_what_it_is() -> None:
    assert "a number of retries" in made_by(replace(FOUND, without={"retries": 20_000}, made_by="retries"))


def test_nothing_is_said_where_nobody_asked() -> None:
    absent: UnsetType = UNSET
    assert made_by(replace(FOUND, without=absent)) == ""
    assert what_makes_it(replace(FOUND, without=absent)) == []
    assert what_makes_it(None) == []
