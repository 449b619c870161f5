"""What no job is, is refused whichever reader it came through; what a trace names takes no memory of its own."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from build import job
from taut import analyze
from taut.core.errors import InputRefused
from taut.core.tables import Member, Op, Table, Trace
from taut.graph import link

YEAR_NS = 365 * 86_400 * 10**9
HEADER = "rank,step,class,start_ns,duration_ns"


def traced(**columns: Any) -> Trace:
    """A trace of two ops, some of their columns set."""
    trace = job({0: "fwd 5", 1: "fwd 9"})
    return replace(trace, ops=trace.ops.replace(**{name: np.array(column) for name, column in columns.items()}))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"end_ns": [5, 11 * YEAR_NS]}, "a run of 11 years"),
        ({"start_ns": [-4 * 10**18, 0], "end_ns": [5, 4 * 10**18]}, "a time of -4,000,000,000,000,000,000 ns is out of range"),
        ({"end_ns": [5, -1]}, "an op ends before it begins"),
        ({"rank": [-7, 1]}, "rank -7 is negative"),
        ({"rank": [0, 5]}, "an op has a rank that is not among the members"),
        ({"name": [0, 9]}, "an op refers to a class or group that has no name"),
    ],
)
def test_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(InputRefused, match=why):
        link(traced(**columns))


def test_a_sum_of_steps_that_lasts_for_years_is_refused() -> None:
    ops = {"rank": [0] * 12, "lane": [0] * 12, "step": range(12), "name": [0] * 12, "start_ns": [0] * 12}
    table = Table(Op, {**{k: np.array(v) for k, v in ops.items()}, "end_ns": np.full(12, YEAR_NS)})
    with pytest.raises(InputRefused, match="a run of 12 years"):
        link(Trace(table, ["f"], ["l"], [], Table(Member, {"rank": np.array([0])}), relative=True))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**63 - 1])
def test_a_table_holds_no_number_that_it_would_have_to_cut(value: int) -> None:
    with pytest.raises(InputRefused, match=f"Op.rank: {value} is not a number of 32 bits"):
        Table(Op, {"rank": np.array([0, value])})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**63])
def test_nor_a_float_that_is_none(value: float) -> None:
    with pytest.raises(InputRefused, match=r"Op.start_ns: .* is not a number of 64 bits"):
        Table(Op, {"start_ns": np.array([0.0, value])})


@pytest.mark.parametrize(
    "rows",
    [
        "0,0,send,1,2,0,0\n1,0,recv,1,2,30000,30000\n0,1,send,11,2,0,0\n1,1,recv,11,2,30000,30000\n",
        "0,0,f,1,5,0,0\n2147483647,0,f,1,5,2147483647,2147483647\n",
        "".join(f"{7919 * i},0,f,{i},2,{i},0\n" for i in range(3000)),
    ],
    ids=["roles", "rank", "ranks"],
)
def test_memory_grows_with_rows_not_with_what_they_name(tmp_path: Path, rows: str) -> None:
    (tmp_path / "t.csv").write_text(f"{HEADER},stage,dp_rank\n{rows}")
    tracemalloc.start()
    try:
        done = analyze([tmp_path / "t.csv"])
        assert done.ledger.closes
        assert tracemalloc.get_traced_memory()[1] < 400_000_000
    finally:
        tracemalloc.stop()


def test_ranks_that_are_absent_from_nearly_all_steps_are_no_job(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"{HEADER}\n" + "".join(f"{i},{2 * i},f,{i},2\n" for i in range(4000)))
    with pytest.raises(InputRefused, match="most ranks are absent from most steps"):
        analyze([tmp_path / "t.csv"])
