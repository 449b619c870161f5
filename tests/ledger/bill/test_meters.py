"""Counters and samples as functions of time: parts add up, what was reset, missing or too far apart is unknown, never zero."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.tables import Metric, Table
from taut.ledger.bill.meters import counter_meter, metered, sample_meter

S = 1_000_000_000


def at(*seconds: float) -> np.ndarray:
    return np.array([round(one * S) for one in seconds], np.int64)


def drawn(meter: object, start: float, end: float) -> tuple[float, float]:
    joules, known = meter.between(at(start), at(end))
    return float(joules[0]), float(known[0])


def test_a_counter_is_exact_between_readings() -> None:
    meter = counter_meter(at(0, 10, 20), np.array([5.0, 1005.0, 3005.0]))
    assert drawn(meter, 0, 20) == (3000, 20)
    assert drawn(meter, 5, 15) == (1500, 10)


def test_what_lies_around_a_reset_is_unknown() -> None:
    meter = counter_meter(at(0, 10, 20, 30), np.array([5000.0, 6000.0, 10.0, 1010.0]))
    assert drawn(meter, 0, 30) == (2000, 20)


def test_a_counter_whose_range_is_known_wraps() -> None:
    meter = counter_meter(at(0, 10), np.array([990.0, 40.0]), range_j=1000.0)
    assert drawn(meter, 0, 10) == (50, 10)


@pytest.mark.parametrize("missing", [0.0, 9223372036854775794.0, np.nan, -1.0])
def test_a_missing_reading_is_no_zero(missing: float) -> None:
    meter = counter_meter(at(0, 10, 20), np.array([100.0, missing, 2100.0]))
    assert drawn(meter, 0, 20) == (2000, 20)
    assert counter_meter(at(0, 10), np.array([missing, missing])) is None


def test_a_counter_that_was_set_forward_was_not_counted() -> None:
    meter = counter_meter(at(0, 10, 20), np.array([100.0, 1e9, 1e9 + 100]))
    assert drawn(meter, 0, 20) == (100, 10)


def test_samples_are_joined_by_straight_lines() -> None:
    meter = sample_meter(at(0, 1, 2), np.array([100.0, 300.0, 100.0]))
    assert drawn(meter, 0, 2) == pytest.approx((400, 2))
    assert drawn(meter, 0, 0.5) == pytest.approx((75, 0.5))
    assert drawn(meter, -10, 10) == pytest.approx((500, 3))  # half a second more on either side


def test_a_gap_is_not_bridged_and_not_zero() -> None:
    meter = sample_meter(at(0, 1, 2, 12, 13), np.full(5, 200.0))
    joules, known = drawn(meter, 0, 13)
    assert known == pytest.approx(4)  # half a second of the gap on either side
    assert joules == pytest.approx(200 * known)


@pytest.mark.parametrize("missing", [0.0, np.nan, 2147483632.0])
def test_a_missing_sample_is_no_zero(missing: float) -> None:
    meter = sample_meter(at(0, 1, 2, 3), np.array([200.0, missing, 200.0, 200.0]))
    assert drawn(meter, 0, 3) == pytest.approx((600, 3))


times = st.lists(st.integers(0, 100 * S), min_size=2, max_size=20, unique=True).map(sorted)


@given(times, st.data(), st.lists(st.integers(-10 * S, 110 * S), max_size=10))
def test_any_split_of_time_gives_the_same_joules(moments: list[int], data: st.DataObject, cuts: list[int]) -> None:
    values = np.array(data.draw(st.lists(st.floats(1, 1000), min_size=len(moments), max_size=len(moments))))
    time_ns = np.array(moments, np.int64)
    for meter in (sample_meter(time_ns, values), counter_meter(time_ns, np.cumsum(values))):
        if meter is None:
            continue
        edges = np.array(sorted([-10 * S, *cuts, 110 * S]), np.int64)
        parts, whole = meter.between(edges[:-1], edges[1:]), meter.between(edges[:1], edges[-1:])
        for part, all_of_it in zip(parts, whole, strict=True):
            assert part.sum() == pytest.approx(all_of_it[0], rel=1e-9, abs=1e-6)
        assert (parts[0] >= -1e-6).all()


def test_each_component_has_the_meters_that_its_metrics_tell() -> None:
    rows = [("rank 0", 0, "energy_j"), ("rank 0", 0, "power_average_w"), ("n7 gpu 1", 3, "power_w"), ("n7", -1, "node_power_w")]
    rows.append(("n7", -1, "package_energy_j{index=0}"))
    columns = {
        "time_ns": np.tile(at(0, 1), len(rows)), "value": np.tile([100.0, 200.0], len(rows)),
        "component": np.repeat([one[0] for one in rows], 2), "rank": np.repeat([one[1] for one in rows], 2),
        "metric": np.repeat([one[2] for one in rows], 2),
    }  # fmt: skip
    found = [(one.component, one.host, list(one.meters), one.kind) for one in metered(Table(Metric, columns), {0: "n3"})]
    assert found == [
        ("rank 0", "n3", ["counter"], "accelerator"), ("n7 gpu 1", "n7", ["samples"], "accelerator"),
        ("n7", "n7", ["node samples"], "node"), ("n7", "n7", ["counter"], "processors"),
    ]  # fmt: skip
