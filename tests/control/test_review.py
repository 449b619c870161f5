"""A change of control loops, reviewed before it runs: what would fight, with its numbers; near-misses stay silent."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taut.control.review import review
from taut.read.actions.loops_config import Loop
from taut.render.review_screen import render_review
from taut.render.terminal import Screen
from taut.result.types import ReviewChange

SDK = Loop("sdk", "retry", target="tools", timeout_s=5, retries=2, back_off_s=0.5)


def fights(*loops: Loop) -> dict[str, dict[str, object]]:
    return {one["kind"]: one for one in review((), loops)["relations"]}


def test_a_limit_shorter_than_what_it_limits() -> None:
    found = fights(Loop("gateway", timeout_s=8, calls=("sdk",)), SDK)
    assert list(found) == ["timeout mismatch"]
    assert found["timeout mismatch"]["because"] == (
        "sdk may take 3 × 5 s + 2 × 0.5 s = 16 s; within the 8 s of gateway 2 of 3 attempts can begin, and the one "
        "that is still running then is wasted"
    )
    assert found["timeout mismatch"]["remedy"] == "give gateway at least 16 s, or sdk at most 0 retries"
    assert fights(Loop("gateway", timeout_s=16, calls=("sdk",)), SDK) == {}


def test_a_loop_that_outlives_its_own_deadline() -> None:
    assert "within its own deadline of 10 s 2 of 3" in str(fights(replace(SDK, deadline_s=10))["timeout mismatch"]["because"])


def test_retries_of_layers_multiply_along_the_worst_chain() -> None:
    gateway = Loop("gateway", retries=3, calls=("cache", "sdk"))
    found = fights(gateway, SDK, Loop("cache", retries=1))
    assert found["amplification"]["statistic"] == 12
    assert found["amplification"]["controllers"] == ["gateway", "sdk"]
    assert "4 (gateway) × 3 (sdk) = 12 attempts" in str(found["amplification"]["because"])
    assert fights(replace(gateway, retries=0), SDK, Loop("cache", retries=1)) == {}


def test_a_chain_that_calls_itself_has_no_end() -> None:
    found = fights(Loop("a", retries=1, calls=("b",)), Loop("b", retries=1, calls=("a",)), Loop("c", calls=("a",)))
    assert list(found) == ["feedback loop"]
    assert found["feedback loop"]["controllers"] == ["a", "b"]


def test_two_owners_of_one_knob() -> None:
    scaler = Loop("scaler", "autoscaler", "replicas", "chat", period_s=15)
    saver = Loop("saver", "policy", "replicas", "chat", period_s=60)
    assert fights(scaler, saver)["conflict"]["controllers"] == ["scaler", "saver"]
    assert fights(replace(scaler, owner="serving"), replace(saver, owner="serving")) == {}
    assert fights(scaler, replace(saver, target="search")) == {}


def test_a_loop_that_cannot_see_what_it_did() -> None:
    blind = Loop("scaler", knob="replicas", target="chat", period_s=15, look_back_s=30, delay_s=40)
    assert "3 decisions before the first has an effect" in str(fights(blind)["oscillation"]["because"])
    assert fights(replace(blind, look_back_s=40)) == {}
    assert fights(replace(blind, period_s=60)) == {}


def test_periods_that_meet() -> None:
    one, two = Loop("one", knob="a", target="chat", period_s=15), Loop("two", knob="b", target="chat", period_s=16)
    assert fights(one, two)["aliasing"]["statistic"] == pytest.approx(240)
    assert "always decide together" in str(fights(one, replace(two, period_s=15))["aliasing"]["because"])
    assert fights(one, replace(two, period_s=45)) == {}


def test_two_stable_loads() -> None:
    """30 requests a second at 50 served, half a second of patience: metastable with 3 retries, not with none."""
    found = fights(Loop("caller", timeout_s=0.5, retries=3, per_s=30, serves_per_s=50))
    assert found["metastability"]["statistic"] == pytest.approx(4)
    assert "120 with 100% too late" in str(found["metastability"]["because"])
    assert fights(Loop("caller", timeout_s=0.5, retries=0, per_s=30, serves_per_s=50)) == {}
    layered = fights(Loop("app", retries=1, calls=("caller",)), Loop("caller", timeout_s=0.5, per_s=30, serves_per_s=50))
    assert "2 attempts have two stable loads" in str(layered["metastability"]["because"])


def test_only_what_the_change_brings_is_new() -> None:
    scaler = Loop("scaler", "autoscaler", "replicas", "chat", period_s=15)
    saver = Loop("saver", "policy", "replicas", "chat", period_s=60)
    found = review((scaler, saver), (scaler, saver, SDK, Loop("gateway", timeout_s=8, calls=("sdk",))))
    assert found["added"] == ["sdk", "gateway"]
    assert [(one["kind"], one["new"]) for one in found["relations"]] == [("timeout mismatch", True), ("conflict", False)]
    back = review((scaler, saver), (replace(scaler, period_s=30),))
    assert back["removed"] == ["saver"]
    assert back.changed == [ReviewChange(name="scaler", key="period_s", before=15, after=30)]
    assert [one["kind"] for one in back["resolved"]] == ["conflict"]


def test_a_review_on_a_terminal() -> None:
    text = render_review(review((SDK,), (SDK, Loop("gate\x1b[31mway", timeout_s=8, calls=("sdk",)))), Screen(width=100))
    assert text.startswith("1 loop added, 0 removed: 1 relation that would fight.")
    assert "\x1b" not in text
    assert "2 of 3 attempts can begin" in " ".join(text.split())


NAMES = ("a", "b", "c", "d")
LOOPS = st.builds(
    Loop, name=st.just(""), knob=st.sampled_from(("", "x")), target=st.sampled_from(("", "t")),
    period_s=st.none() | st.floats(1e-3, 1e6), look_back_s=st.none() | st.floats(1e-3, 1e6),
    delay_s=st.none() | st.floats(0, 1e6), timeout_s=st.none() | st.floats(1e-3, 1e6), retries=st.integers(0, 5),
    back_off_s=st.floats(0, 1e6), deadline_s=st.none() | st.floats(1e-3, 1e6), per_s=st.none() | st.floats(1e-3, 1e3),
    serves_per_s=st.none() | st.floats(1e-3, 1e3), calls=st.lists(st.sampled_from(NAMES), max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(LOOPS, min_size=4, max_size=4), st.lists(LOOPS, min_size=4, max_size=4))
@settings(max_examples=40, deadline=None)
def test_any_configuration_can_be_reviewed(old: list[Loop], new: list[Loop]) -> None:
    named = [tuple(replace(loop, name=name) for loop, name in zip(some, NAMES, strict=True)) for some in (old, new)]
    found = review(*named)
    assert all(one["because"] and one["remedy"] for one in found["relations"])
    assert not any(one["new"] for one in review(named[1], named[1])["relations"])
    render_review(found, Screen(width=80))


def test_a_budget_is_what_the_remedy_asks_for() -> None:
    """Without one 30 requests a second have two stable loads at 50 served; with the budget that is proposed, one."""
    loop = Loop("caller", target="tools", timeout_s=0.5, retries=3, per_s=30, serves_per_s=50)
    assert "a budget of 0.5 retries a request in all" in str(fights(loop)["metastability"]["remedy"])
    assert fights(replace(loop, budget_share=0.5)) == {}


def test_layers_with_a_budget_do_not_multiply() -> None:
    outer, inner = Loop("outer", retries=3, calls=("inner",)), Loop("inner", retries=2)
    assert "amplification" in fights(outer, inner)
    assert fights(outer, replace(inner, budget_share=0.2)) == {}
