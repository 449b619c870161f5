"""The component view: what is inside its limit, who says so, and what is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from build import MS, analyze, barriers
from taut.core.tables import Member, Metric, Table, Trace

Sample = tuple[str, int, str, list[float], float, str]


def measured(*series: Sample, device: str = "", slow: float = 1.0) -> Trace:
    """Twelve steps of two ranks, rank 1 slow in the last half; (component, rank, metric, values, limit, source) beside it."""
    work = np.full((12, 2), 100 * MS)
    work[6:, 1] = int(slow * 100 * MS)
    built = barriers(work, 5 * MS)
    columns: dict[str, list[Any]] = {
        name: [] for name in ("time_ns", "component", "rank", "metric", "value", "limit", "limit_source")
    }
    for component, rank, metric, values, limit, source in series:
        for turn, value in enumerate(values):
            row = (turn * 100 * MS, component, rank, metric, value, limit, source)
            for name, cell in zip(columns, row, strict=True):
                columns[name].append(cell)
    columns |= {name: np.array(columns[name], dtype=object) for name in ("component", "metric", "limit_source")}  # type: ignore[misc]
    members = Table(Member, {"rank": [0, 1], "device": np.array([device, device], dtype=object)})
    return replace(built, metrics=Table(Metric, columns), members=members)


NONE = float("nan")


def view(trace: Trace) -> list[tuple[Any, ...]]:
    rows = analyze(trace).result["components"]
    return [
        tuple(row[key] for key in ("component", "metric", "value", "value_is", "limit", "limit_source", "inside"))
        for row in rows
    ]


def test_limits_of_the_file_hold_first() -> None:
    trace = measured(("rank 0", 0, "power_w", [300.0, 500.0], 450.0, "our contract"), device="NVIDIA H100 80GB HBM3")
    assert view(trace) == [("rank 0", "power_w", pytest.approx(498.0), "99th percentile", 450.0, "our contract", False)]


def test_a_default_says_that_it_is_one() -> None:
    power = ("rank 0", 0, "power_w", [300.0] * 3, NONE, "")
    flag = ("rank 0", 0, "slowdown", [0.0, 1.0], NONE, "")
    rows = view(measured(power, flag, device="NVIDIA H100 80GB HBM3"))
    assert [row[2:5] + row[6:] for row in rows] == [
        (300.0, "99th percentile", 700.0, True),
        (0.5, "share of samples", 0.0, False),
    ]
    assert all(row[5].startswith("default: ") for row in rows)


@pytest.mark.parametrize("metric", ["power_w", "utilisation_share", "temperature_c", "anything"])
def test_without_a_limit_nothing_is_inside_or_outside(metric: str) -> None:
    row = view(measured(("rank 0", 0, metric, [300.0], NONE, "")))[0]
    assert row[4:] == (None, None, None)


def test_the_limit_of_utilisation_is_the_least() -> None:
    assert view(measured(("rank 0", 0, "utilisation_share", [0.2, 0.95, 1.0], 0.9, "x")))[0][2:] == (
        0.95,
        "median",
        0.9,
        "x",
        True,
    )


def test_no_metrics_no_view() -> None:
    result = analyze(barriers(np.full((4, 2), MS))).result
    assert (result["components"], result["verdict"]["components"]) == ([], None)


def test_the_sentence_sets_components_beside_the_loss() -> None:
    healthy = [(f"rank {r}", r, "power_w", [300.0] * 3, 700.0, "x") for r in range(2)]
    assert analyze(measured(*healthy, slow=1.6)).result["verdict"]["components"] == (
        "2 of 2 components inside their limits; the job loses 22 %"
    )
    assert analyze(measured(*healthy)).result["verdict"]["components"] == (
        "2 of 2 components inside their limits; no loss was found"
    )


def test_the_sentence_names_who_is_not_inside_and_who_has_no_limit() -> None:
    hot = ("rank 1", 1, "temperature_c", [95.0] * 3, 90.0, "vendor")
    cool = ("rank 0", 0, "temperature_c", [60.0] * 3, 90.0, "vendor")
    link = ("leaf1", -1, "errors", [1.0], NONE, "")
    assert analyze(measured(hot, cool, link)).result["verdict"]["components"] == (
        "1 of 2 components inside their limits, 1 more without a known limit; rank 1 is not: temperature_c 95 above 90 "
        "(vendor); no loss was found"
    )


def test_components_without_any_limit() -> None:
    assert analyze(measured(("a", -1, "x", [1.0], NONE, ""), ("b", -1, "x", [1.0], NONE, ""))).result["verdict"][
        "components"
    ] == ("2 components measured, no limit known; no loss was found")
