"""Controllers that make each other act."""

from __future__ import annotations

import numpy as np
import pytest

from actions import act, trace
from taut.control import feedback
from taut.control.relations import prepare


def coupled(seed: int, gain: float, shared: float = 0.3, steps: int = 500):
    """Two controllers that act on each other with opposite signs, and both on demand."""
    rng = np.random.default_rng(seed)
    demand = rng.standard_normal(steps)
    for k in range(1, steps):
        demand[k] += 0.9 * demand[k - 1]
    a, b = np.zeros(steps), np.zeros(steps)
    for k in range(1, steps):
        a[k] = gain * b[k - 1] + rng.standard_normal() + shared * demand[k]
        b[k] = -gain * a[k - 1] + rng.standard_normal() + shared * demand[k]
    rows = []
    for who, knob, one in (("hpa", "replicas", a), ("batcher", "batch", b)):
        for k, n in enumerate(np.round(2 * one).astype(int)):
            rows += [act(6 * k + float(t), who, int(np.sign(n)), "pool", knob) for t in rng.uniform(0, 6, abs(n))]
    return rows, (6.0 * np.arange(steps), demand)


def found(rows, demand):
    log = prepare(trace(rows, demand=demand))
    return feedback.relate(log, np.random.default_rng(0)), log.notes


def test_a_loop_is_found_with_its_gain() -> None:
    (one,), _ = found(*coupled(1, 0.5))
    assert set(one.controllers) == {"hpa", "batcher"}
    assert one.p is not None
    assert one.p <= 0.05
    assert one.statistic == pytest.approx(0.5, abs=0.25)


def test_shared_demand_is_no_loop() -> None:
    chances = [one.p for seed in range(20) for one in found(*coupled(seed, 0.0))[0]]
    assert len(chances) == 20
    assert sum(p is not None and p <= 0.05 for p in chances) <= 3


def test_without_demand_no_loop_is_looked_for() -> None:
    relations, notes = found(coupled(1, 0.5)[0], None)
    assert relations == []
    assert "demand is not recorded" in notes[0]


def test_components_are_those_that_reach_each_other() -> None:
    linked = np.zeros((5, 5), dtype=bool)
    for a, b in ((0, 1), (1, 2), (2, 0), (3, 4)):
        linked[a, b] = True
    assert feedback.components(linked) == [[0, 1, 2]]
