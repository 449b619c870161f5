"""One controller undoes what another has done."""

from __future__ import annotations

import numpy as np
import pytest

from actions import SECOND, act, poisson, trace
from taut.control import conflict
from taut.control.relations import prepare


def found(made):
    return conflict.relate(prepare(made), np.random.default_rng(0))


def loop(cycles: int, lag: float) -> list:
    """A scheduler takes a job's place every 6 s; a rescuer gives it back soon after."""
    rows = []
    for k in range(cycles):
        rows += [act(6 * k, "scheduler", -1, "job 12", "allocation"), act(6 * k + lag, "rescuer", 1, "job 12", "allocation")]
        rows += [act(6 * k + lag + 0.5, "scheduler", 1, "job 12", "allocation")]
    return rows


def test_eight_cycles_are_counted_without_a_chance() -> None:
    (one,) = found(trace(loop(8, 0.7)))
    assert (one.controllers, one.target, one.knob, one.count, one.p) == (
        ("scheduler", "rescuer"),
        "job 12",
        "allocation",
        8,
        None,
    )
    assert "8 of 8 times, every 6 s; each was undone after" in one.because
    assert "too few for a p-value" in one.because


def test_a_hundred_cycles_by_the_clock_are_too_regular_for_a_chance() -> None:
    (one,) = found(trace(loop(100, 0.7)))
    assert (one.count, one.p) == (100, None)
    assert "too regular for a p-value" in one.because


def test_a_conflict_costs_the_attempts_that_it_ended() -> None:
    jobs = [{"job": "job 12", "attempt": k, "start_ns": (6 * k - 4) * SECOND, "end_ns": 6 * k * SECOND, "accelerators": 2,
             "unit": "accelerator"} for k in range(1, 8)]  # fmt: skip
    (one,) = found(trace(loop(8, 0.7), attempts=jobs))
    assert one.rank_ns == 7 * 4 * 2 * SECOND


@pytest.mark.parametrize(
    "rows",
    [
        [act(30 * k, "up", 1) for k in range(0, 16, 2)] + [act(30 * k, "down", -1) for k in range(1, 17, 2)],
        loop(4, 0.7),
        [row for row in loop(8, 0.7) if row["controller"] == "scheduler"],
        [{**row, "target": f"job {k}"} for k, row in enumerate(loop(8, 0.7))],
    ],
    ids=["who scales up and who scales down take turns", "four cycles", "one controller alone", "never the same target"],
)
def test_what_looks_alike_is_none(rows: list) -> None:
    assert found(trace(rows)) == []


def test_what_demand_forces_is_no_conflict() -> None:
    """Bursts of a second every 6 s: one controller scales up, another down, as demand does."""
    rows = [act(6 * k + 0.1, "up", 1) for k in range(8)] + [act(6 * k + 1.1, "down", -1) for k in range(8)]
    times = np.arange(0, 50, 0.5)
    assert found(trace(rows))
    assert found(trace(rows, demand=(times, (times % 6 < 1).astype(float)))) == []


def fighting(seed: int, share: float) -> list:
    rng = np.random.default_rng(seed)
    at = poisson(rng, np.full(3600, 0.03))
    way = rng.choice([-1, 1], len(at))
    answered = rng.random(len(at)) < share
    rows = [act(t, "a", int(d)) for t, d in zip(at, way, strict=True)]
    rows += [act(t + 1, "b", -int(d)) for t, d in zip(at[answered], way[answered], strict=True)]
    return rows + [act(t, "b", int(rng.choice([-1, 1]))) for t in poisson(rng, np.full(3600, 0.02))]


def test_a_third_undone_is_found_and_named_in_its_order() -> None:
    (one,) = found(trace(fighting(1, 0.33)))
    assert one.controllers == ("a", "b")
    assert one.p is not None
    assert one.p <= 0.01


def test_independent_controllers_are_rarely_called_a_conflict() -> None:
    chances = [found(trace(fighting(seed, 0.0)))[0].p for seed in range(40)]
    assert sum(p is not None and p <= 0.05 for p in chances) <= 5


def test_many_targets_are_one_pair() -> None:
    rows = [row | {"target": f"job {k % 5}"} for k in range(40) for row in (act(60 * k, "a", -1), act(60 * k + 1, "b", 1))]
    rows += [act(60 * k + 31, "a", 1, f"job {k % 5}") for k in range(40)]
    (one,) = found(trace(rows))
    assert one.count == 40
