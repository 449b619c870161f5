"""Tables of step times: which columns they have, and which rows are of one step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from taut.core.errors import InputRefused
from taut.core.tables import Kind
from taut.read import step_times
from taut.read.trace import read


def table(header: str, rows: list[tuple[float, ...]]) -> bytes:
    return "\n".join([header, *(",".join(map(str, row)) for row in rows)]).encode()


def took(data: bytes) -> dict[tuple[int, int], int]:
    """(worker, step) → the length of its step in ms."""
    assert step_times.sniff(data)
    ops = step_times.load(data, "t.csv").ops
    own = ops.take(ops.kind == Kind.COMPUTE)
    return {(int(r), int(s)): int(e) // 1_000_000 for r, s, e in zip(own.rank, own.step, own.end_ns, strict=True)}


def test_a_bare_time_that_falls_and_rises_is_how_long_a_step_took() -> None:
    data = table("worker,step,time", [(w, s, 5 + (w + s) % 3) for s in range(6) for w in range(2)])
    assert took(data)[1, 4] == 5 + (1 + 4) % 3
    assert any("time has no unit" in note for note in step_times.load(data, "t.csv").partial)


def test_a_bare_time_that_only_rises_may_be_a_time_stamp_and_is_refused() -> None:
    data = table("worker,step,time", [(w, s, 100 * s + w) for s in range(6) for w in range(2)])
    with pytest.raises(InputRefused, match="may say when a step was"):
        step_times.load(data, "t.csv")


def test_a_bare_time_beside_columns_of_something_else_is_no_table_of_step_times() -> None:
    assert not step_times.sniff(b"rank,step,loss,time\n0,1,2,3\n")
    assert not step_times.sniff(b"rank,time,power_w\n0,1,2\n")


def test_rows_of_one_step_have_the_same_number() -> None:
    """A row that is missing in the middle moves no other."""
    rows = [(w, s, 10 * s + w) for s in (7, 8, 9) for w in (0, 1) if (w, s) != (0, 8)]
    assert took(table("worker,step,step_time_ms", rows)) == {(w, s): t for w, s, t in rows}


def test_numbers_that_begin_anew_are_counted_on() -> None:
    rows = [(w, s, 100 * e + s) for e in (1, 2) for s in (0, 1) for w in (0, 1)]
    found = took(table("worker,step,step_time_ms", rows))
    assert [found[0, n] for n in range(4)] == [100, 101, 200, 201]


def test_samples_of_a_production_job_lie_in_the_order_of_their_times(shared: Path) -> None:
    trace = read([shared / "wild" / "job_4_norm.csv"])
    assert np.unique(trace.ops.step).tolist() == list(range(2183))
    assert "steps are numbered from 0 in the order of time, which runs from 1 to 21821" in trace.partial
