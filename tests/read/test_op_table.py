"""Op tables: columns of any type are times, numbers and names, or are refused; nothing is cut to fit."""

from __future__ import annotations

import io
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taut.core.errors import InputRefused
from taut.read import op_table as optable
from taut.read import step_times as steptimes

ROW: dict[str, Any] = {"rank": [0, 1], "step": [0, 0], "class": ["f", "g"], "start_ns": [5, 6], "duration_ns": [2, 3]}


def load(**columns: Any) -> Any:
    out = io.BytesIO()
    pq.write_table(pa.table({name: column for name, column in (ROW | columns).items() if column is not None}), out)
    return optable.load(out.getvalue(), "t.parquet")


@pytest.mark.parametrize(
    "columns",
    [
        {"start_ns": None, "start": pa.array([5, 6], pa.timestamp("ns", "UTC"))},
        {"duration_ns": None, "duration": pa.array([2, 3], pa.duration("ns"))},
        {"start_ns": [Decimal(5), Decimal(6)]},
        {"start_ns": pa.array([5, 6], pa.uint64())},
        {"rank": [0.0, 1.0]},
        {"rank": pa.array([0, 1]).dictionary_encode()},
        {"class": pa.array(["f", "g"], pa.large_string())},
        {"stage": pa.array([None, None], pa.int64()), "host": pa.nulls(2)},
    ],
)
def test_the_same_in_other_types(columns: dict[str, Any]) -> None:
    ops = load(**columns).ops
    assert ops.rank.tolist() == [0, 1]
    assert ops.start_ns.tolist() == [5, 6]
    assert ops.end_ns.tolist() == [7, 9]


def test_timestamps_and_durations_know_their_unit() -> None:
    start = pa.array([datetime(2024, 1, 1), datetime(2024, 1, 2)], pa.timestamp("s"))
    ops = load(
        start_ns=None, start=start, duration_ns=None, dur=pa.array([timedelta(milliseconds=2)] * 2, pa.duration("ms"))
    ).ops
    assert np.diff(ops.start_ns).tolist() == [86_400 * 10**9]
    assert (ops.end_ns - ops.start_ns).tolist() == [2_000_000] * 2


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"rank": [0, 2**32]}, "column rank holds 4294967296"),
        ({"rank": pa.array([0, 2**64 - 1], pa.uint64())}, "column rank holds 18446744073709551615"),
        ({"rank": [0, 0.5]}, "column rank holds 0.5, which is no whole number"),
        ({"rank": [0, -1]}, "column rank holds -1"),
        ({"rank": [0, float("inf")]}, "column rank holds inf"),
        ({"rank": [0, float("nan")]}, "column rank holds nothing in some row"),
        ({"rank": pa.nulls(2)}, "column rank holds nothing in some row"),
        ({"rank": [True, False]}, "column rank holds no numbers"),
        ({"step": [0, 1.25]}, "column step holds 1.25, which is no whole number"),
        ({"step": [0, 2**40]}, "column step holds 1099511627776"),
        ({"stage": [0, 2**31]}, "column stage holds 2147483648"),
        ({"start_ns": ["a", "b"]}, "column start_ns holds no numbers"),
        ({"start_ns": [[1], [2]]}, "column start_ns holds list"),
        ({"start_ns": [float("nan"), float("inf")]}, "no row has a finite start"),
        ({"start_ns": [9 * 10**18] * 2}, "all times are out of range .* check their unit"),
        ({"duration_ns": [1e30] * 2}, "all times are out of range"),
        ({"start_ns": None, "start": pa.array([2**62, 2**62], pa.timestamp("us"))}, "all times are out of range"),
        ({"class": pa.array([b"\xff", b"f"])}, "column class holds binary, not text"),
        ({name: pa.array(column)[:0] for name, column in ROW.items()}, "op table is empty; give one with a row for each op"),
    ],
)
def test_nonsense_is_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(InputRefused, match=why) as refused:
        load(**columns)
    assert "\n" not in str(refused.value)


def test_rows_without_times_are_dropped_whatever_else_they_hold() -> None:
    trace = load(rank=[0.0, None], start_ns=[5.0, None])
    assert trace.ops.rank.tolist() == [0]
    assert trace.counts["dropped: negative or not a number"] == 1


def test_a_header_behind_a_byte_order_mark() -> None:
    data = b"\xef\xbb\xbfrank,step,class,start_ns,duration_ns\n0,0,f,1,2\n"
    assert optable.sniff(data)
    assert optable.load(data, "t.csv").ops.end_ns.tolist() == [3]


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("0,0,1e300\n1,0,5\n", "a step of 1e.300 in column step_time_s lasts for years"),
        ("0,0,1e9\n1,0,5\n", "a step of 1e.09 in column step_time_s lasts for years"),
        ("0.5,0,1\n1,0,5\n", "column worker holds 0.5"),
        ("4294967296,0,1\n1,0,5\n", "column worker holds 4294967296"),
        ("a,0,1\nb,0,5\n", "column worker holds no numbers"),
        ("0,0,-1\n1,0,nan\n", "no row holds a worker"),
    ],
)
def test_step_times_that_are_none(rows: str, why: str) -> None:
    with pytest.raises(InputRefused, match=why):
        steptimes.load(f"worker,step,step_time_s\n{rows}".encode(), "t.csv")


@pytest.mark.parametrize(("advance", "relative"), [(0, True), (80, False), (100, False)])
def test_steps_that_overlap_have_an_origin_of_their_own_only_if_they_do_not_go_on(advance: int, relative: bool) -> None:
    """Steps of a pipeline overlap by some stages, and each begins most of a step after the one before."""
    step, place = np.divmod(np.arange(40), 10)
    read = load(
        rank=np.zeros(40, dtype=int), step=step, **{"class": ["f"] * 40}, start_ns=advance * step + 10 * place,
        duration_ns=np.full(40, 10),
    )  # fmt: skip
    assert read.relative is relative
