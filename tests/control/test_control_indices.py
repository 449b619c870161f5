"""The indices of control, each from a log small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from actions import SECOND, act, attempt, trace
from taut.control.control_indices import NAMES
from taut.control.relations import control
from taut.core.block_bootstrap import ratio


def index(name: str, made):
    return control(made)["indices"][name]


def test_nothing_recorded_is_null() -> None:
    found = control(trace([]))["indices"]
    assert list(found) == list(NAMES)
    assert all(value is None for value in found.values())


def test_attempts_per_work_and_their_cost() -> None:
    rows = [attempt(10 * k, 0, f"w{k}", 1, "failed" if k < 3 else "kept") for k in range(10)]
    rows += [attempt(10 * k + 2, 1, f"w{k}", 1, "failed" if k < 1 else "kept", parent=k) for k in range(3)]
    rows += [attempt(5, 2, "w0", 1, "kept", parent=10)]
    made = trace(rows)
    assert index("actual_attempt_multiplier", made)["value"] == pytest.approx(1.4)
    assert index("cost_per_completion", made)["value"] == pytest.approx(1.4)
    assert index("retry_cascade_frequency", made)["value"] == pytest.approx(0.1)
    assert index("control_overhead_fraction", made)["value"] == pytest.approx(4 / 14)


def test_intervals_hold_what_they_estimate() -> None:
    held = 0
    for seed in range(40):
        tries = np.random.default_rng(seed).geometric(0.7, 700)
        one = ratio(tries, np.ones(len(tries)))
        assert one is not None
        assert one["lo"] < one["value"] < one["hi"]
        held += one["lo"] < 1 / 0.7 < one["hi"]
    assert held >= 35


def test_who_undoes_whom() -> None:
    """a up, b down, b down, a up, a down: four pairs, three turned back, two of them by another."""
    rows = [act(t, w, d) for t, (w, d) in enumerate([("a", 1), ("b", -1), ("b", -1), ("a", 1), ("a", -1)])]
    made = trace(rows)
    assert index("compensatory_action_rate", made)["value"] == pytest.approx(3 / 4)
    assert index("decision_conflict_rate", made)["value"] == pytest.approx(2 / 4)
    assert index("control_oscillation_frequency", made)["value"] == pytest.approx(1 / 3)


def test_what_demand_forced_does_not_count() -> None:
    rows = [act(t, "a", 1 if t % 2 == 0 else -1) for t in range(10)]
    times = np.arange(-1, 11)
    assert index("control_oscillation_frequency", trace(rows))["value"] == 1.0
    assert index("control_oscillation_frequency", trace(rows, demand=(times, (times % 2 == 0) * 1.0)))["value"] == 0.0


def test_layers_that_agree() -> None:
    ways = [("hpa", "autoscaler", 1), ("slurm", "scheduler", 1), ("hpa", "autoscaler", -1), ("slurm", "scheduler", 1)]
    rows = [act(t, who, way, knob=who, layer=layer) for t, (who, layer, way) in enumerate(ways)]
    assert index("cross_layer_coherence", trace(rows))["value"] == pytest.approx(1 / 3)


def test_margins_used_and_eroded() -> None:
    rows = [attempt(10 * k, 0, f"w{k}", 1 + 0.1 * k, deadline_ns=(10 * k + 4) * SECOND) for k in range(21)]
    made = trace(rows)
    assert index("sla_margin_utilisation", made)["value"] == pytest.approx(0.5)
    assert index("margin_erosion_rate", made)["value"] == pytest.approx(0.5)


def test_plans_attribution_and_capacity_come_from_series() -> None:
    times = range(4)
    made = trace(
        [],
        metrics=[
            ("pool", "demand", times, [10, 10, 20, 20]), ("pool", "planned_demand", times, [10, 12, 20, 16]),
            ("pool", "capacity", times, [15, 15, 20, 20]),
            ("a", "actual_cost", [0], [6]), ("a", "attributed_cost", [0], [8]),
            ("b", "actual_cost", [0], [4]), ("b", "attributed_cost", [0], [2]),
        ],
    )  # fmt: skip
    assert index("planning_accuracy", made)["value"] == pytest.approx(0.9)
    assert index("capacity_planning_error", made)["value"] == pytest.approx(10 / 60)
    assert index("cost_attribution_accuracy", made)["value"] == pytest.approx(0.8)


def test_the_end_of_an_agreed_limit_reverses_nothing() -> None:
    rows = [act(100 * k + t, "slurmctld", way, f"{k}", "allocation", trigger=why) for k in range(5)
            for t, way, why in ((0, 1, ""), (50, -1, "time limit "))]  # fmt: skip
    assert index("control_oscillation_frequency", trace(rows)) is None
