"""Reversals of a controller, accounted against those of demand."""

from __future__ import annotations

import numpy as np

from actions import SECOND, act, trace
from taut.control import oscillation
from taut.control.relations import prepare


def found(made):
    log = prepare(made)
    return oscillation.relate(log, np.random.default_rng(0)), log.notes


def wave(span: float, half: float):
    """On and off, one sample a second, off before it begins."""
    times = np.arange(-1, span)
    return times, np.where(times < 0, 0.0, 6.0 * ((times // half) % 2 == 0))


def scaled(times, ways) -> list:
    return [act(t, "autoscaler", w) for t, w in zip(times, ways, strict=True)]


def test_reversals_of_its_own_are_told_from_those_that_demand_forced() -> None:
    turns = [3, 19, 26, 29, 37, 50, 55, 61, 65, 80, 97, 110]
    ways = [1 if k % 2 == 0 else -1 for k in range(len(turns))]
    (one,), notes = found(trace(scaled(turns, ways), demand=wave(120, 15)))
    assert (one.count, one.p, one.controllers) == (11, None, ("autoscaler",))
    assert "demand (demand) turned 7 times" in one.because
    assert "too few for a p-value" in one.because
    assert notes == []


def test_following_demand_is_no_oscillation() -> None:
    edges = np.arange(0, 120, 15) + 2.0
    ways = [1 if k % 2 == 0 else -1 for k in range(len(edges))]
    assert found(trace(scaled(edges, ways), demand=wave(120, 15))) == ([], [])


def test_without_demand_nothing_is_claimed_but_it_is_noted() -> None:
    rows = scaled(range(0, 100, 5), [1, -1] * 10)
    relations, notes = found(trace(rows))
    assert relations == []
    assert "reversed replicas of pool 19 times; demand is not recorded, so whether" in notes[0]


def test_what_the_controller_saw_when_it_acted_is_not_demand() -> None:
    rows = scaled(range(0, 100, 5), [1, -1] * 10)
    seen = [("pool", "ongoing_requests", range(0, 100, 5), [6.0, 1.0] * 10)]
    relations, notes = found(trace(rows, metrics=seen))
    assert relations == []
    assert "as it saw it when it acted, turned 18 times" in notes[0]


def swinging(seed: int, size: float):
    """Red demand, followed every 5 s with noise, and a swing of the controller's own."""
    rng = np.random.default_rng(seed)
    demand = rng.standard_normal(4100)
    for k in range(1, len(demand)):
        demand[k] += 0.98 * demand[k - 1]
    demand = 5 + 0.4 * demand[500:]
    at = np.arange(0, 3600, 5)
    want = np.round(demand[at] + size * np.sin(at / 11) + 0.4 * rng.standard_normal(len(at)))
    step = np.diff(want, prepend=want[0])
    rows = [act(t, "hpa", int(np.sign(s)), after=str(int(w))) for t, s, w in zip(at, step, want, strict=True) if s]
    return trace(rows, demand=(np.arange(len(demand)), demand))


def test_a_period_beside_red_demand_is_found() -> None:
    (one,), _ = found(swinging(1, 2.0))
    assert one.p is not None
    assert one.p <= 0.01
    assert "a period of 6" in one.because or "a period of 7" in one.because


def test_following_red_demand_is_rarely_called_an_oscillation() -> None:
    chances = [one.p for seed in range(30) for one in found(swinging(seed, 0.0))[0]]
    assert len(chances) == 30
    assert sum(p is not None and p <= 0.05 for p in chances) <= 4


def test_a_job_that_is_started_and_preempted_by_turns_is_no_swing() -> None:
    rows = [act(100 * k, "slurmctld", 1 if k % 2 == 0 else -1, "7", "allocation", work="7") for k in range(12)]
    jobs = [{"job": "7", "attempt": k + 1, "start_ns": 200 * k * SECOND, "end_ns": (200 * k + 100) * SECOND} for k in range(6)]
    assert found(trace(rows, attempts=jobs)) == ([], [])
    assert found(trace(rows))[1]
