"""Retries that multiply."""

from __future__ import annotations

import numpy as np
import pytest

from actions import act, attempt, poisson, trace
from taut.control import amplification
from taut.control.relations import prepare


def found(made):
    return amplification.relate(prepare(made), np.random.default_rng(0))


def nested(outer: int, inner: int) -> list:
    rows = []
    for o in range(outer):
        rows.append(attempt(10 * o, o, "w", 9, "failed", controller="app"))
        rows += [attempt(10 * o + 1 + i, i, "w", 1, "failed", controller="sdk") for i in range(inner)]
    return rows


def test_three_retries_over_a_client_that_retries_twice_are_twelve_attempts() -> None:
    (one,) = found(trace(nested(4, 3)))
    assert (one.statistic, one.p, one.controllers) == (12.0, None, ("app", "sdk"))
    assert "4 (app) × 3 (sdk) = 12 attempts allowed, 12 made" in one.because


def test_layers_are_found_through_parents_where_each_names_its_own_work() -> None:
    rows = []
    for o in range(4):
        rows.append(attempt(10 * o, o, "outer", controller="app", parent=-1 if o == 0 else 4 * (o - 1)))
        rows += [attempt(10 * o + 1 + i, i, f"inner {o}", controller="sdk", parent=4 * o + i) for i in range(3)]
    (one,) = found(trace(rows))
    assert one.statistic == 12.0


def test_one_layer_that_retries_now_and_then_is_none() -> None:
    rows = [attempt(k, n, f"w{k}") for k in range(100) for n in range(1 + (k % 5 == 0))]
    assert found(trace(rows)) == []


def test_a_load_that_is_mostly_repeats_is_reported_with_its_interval() -> None:
    rows = [attempt(k + n / 10, n, f"w{k}") for k in range(100) for n in range(3 + k % 2)]
    (one,) = found(trace(rows))
    assert one.statistic == pytest.approx(3.5)
    assert "350 attempts at 100 requests to" in one.because


def test_works_that_were_never_repeated_count_where_the_log_leaves_them_out() -> None:
    rows = [attempt(k + n / 10, n, f"w{k}") for k in range(50) for n in range(3)]
    assert found(trace(rows))
    assert found(trace(rows, counts={"calls": 10_000})) == []


def hawkes(seed: int, ratio: float, base) -> np.ndarray:
    rng = np.random.default_rng(seed)
    born = poisson(rng, base)
    every = [born]
    while len(born):
        born = np.repeat(born, rng.poisson(ratio, len(born)))
        born = born + rng.exponential(0.5, len(born))
        every.append(born[born < len(base)])
    return np.sort(np.concatenate(every))


SQUARE = 0.2 + 1.0 * (np.arange(3600) % 120 < 60)


@pytest.mark.parametrize("base", [np.full(3600, 0.5), SQUARE], ids=["constant rate", "square wave"])
def test_branching_ratio_of_a_hawkes_process(base) -> None:
    at = hawkes(1, 0.5, base)
    steps = amplification.rate_steps(at)
    ratio, low, high = amplification.branching(at, steps, 0.5, np.random.default_rng(0))
    assert low <= ratio <= high
    assert ratio == pytest.approx(0.5, abs=0.1)


def test_a_square_wave_alone_has_no_branching() -> None:
    at = hawkes(2, 0.0, SQUARE)
    constant = amplification.branching(at, np.array([at[0], at[-1] + 1]), 20.0, np.random.default_rng(0))[0]
    behind = amplification.branching(at, amplification.rate_steps(at), 20.0, np.random.default_rng(0))[0]
    assert constant > 0.7, "a constant baseline reads clustering into a plain square wave"
    assert behind < 0.35


def loose(at) -> list:
    return [act(t, "sdk", 0, "api", "attempt", layer="retry") for t in at]


def test_unlinked_repeats_that_follow_each_other_are_found() -> None:
    (one,) = found(trace(loose(hawkes(3, 0.4, SQUARE))))
    assert one.p is not None
    assert one.p < 0.01
    assert one.statistic == pytest.approx(0.4, abs=0.15)


def test_a_square_wave_is_rarely_called_amplification() -> None:
    chances = [found(trace(loose(hawkes(seed, 0.0, SQUARE))))[0].p for seed in range(30)]
    assert sum(p is not None and p <= 0.05 for p in chances) <= 4
