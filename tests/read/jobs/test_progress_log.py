"""Progress logs: which files are one, what they hold, and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.read import step_times as steptimes
from taut.read.jobs import progress_log as progress
from taut.read.trace import read

CSV = """rank,step,start_ns,end_ns,loss
0,0,1700000000000000001,1700000000000000003,2.5
0,1,1700000000000000004,1700000000000000009,nan
"""
OPS = "rank,step,class,start_ms,duration_ms\n" + "".join(
    f"{r},{s},{name},{100 * s + at},{took}\n"
    for s in range(4)
    for r in range(2)
    for name, at, took in (("fwd", 0, 10 + r), ("all-reduce", 10 + r, 3 - r))
)


def columns(text: str, *names: str) -> list[list[object]]:
    table = progress.load(text.encode(), "log")
    return [table.columns[name].tolist() for name in names]


def test_a_csv_keeps_its_nanoseconds() -> None:
    assert progress.sniff(CSV.encode())
    rank, step, start, end = columns(CSV, "rank", "step", "start_ns", "end_ns")
    assert (rank, step) == ([0, 0], [0, 1])
    assert start == [1700000000000000001, 1700000000000000004]
    assert end == [1700000000000000003, 1700000000000000009]
    loss = progress.load(CSV.encode(), "log").loss
    assert loss[0] == 2.5
    assert np.isnan(loss[1])


def test_json_lines_with_a_header_an_evaluation_and_a_torn_end() -> None:
    text = (
        '{"config": {"lr": 0.1}}\n{"step": 1, "loss": 2.0, "tokens": 512, "time": 3.5}\n{"step": 1, "eval_loss": 9}\n'
        '{"step": 2, "loss": NaN, "skipped": true}\n{"step": 3, "loss": 1.5, "kept": false}\n{"step": 4, "lo'
    )
    assert progress.sniff(text.encode())
    assert columns(text, "step", "tokens", "kept", "end_ns") == [[1, 2, 3], [512, -1, -1], [-1, 2, 0], [3_500_000_000, -1, -1]]


@pytest.mark.parametrize(
    "text",
    ["worker,time,batch_time_norm\n0,1,5\n", OPS, "step,lr\n1,0.1\n", '{"traceEvents": []}', "PAR1\x00\x00", "", "loss"],
)
def test_other_files_are_no_progress_logs(text: str) -> None:
    assert not progress.sniff(text.encode())


def test_step_times_with_a_loss_are_both(tmp_path: Path) -> None:
    text = "rank,step,step_time_ms,loss\n" + "".join(f"{r},{s},{10 + r},{3 - 0.1 * s}\n" for s in range(5) for r in range(3))
    assert steptimes.sniff(text.encode())
    (tmp_path / "steps.csv").write_text(text)
    trace = read([tmp_path])
    assert len(trace.ops) == 30
    assert len(trace.progress) == 15


def test_logs_beside_a_trace_come_in_the_order_of_their_times(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text(OPS)
    (tmp_path / "a-second.jsonl").write_text('{"step": 5, "loss": 1, "time_s": 20}\n')
    (tmp_path / "b-first.jsonl").write_text('{"step": 4, "loss": 1, "time_s": 10}\n')
    assert read([tmp_path]).progress.step.tolist() == [4, 5]


def test_a_file_named_after_a_rank_is_its_log() -> None:
    table = progress.load(b"step,loss\n0,1\n", "logs/rank7.csv")
    assert table.rank.tolist() == [7]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"step": 1, "loss": 2}\nnonsense\n{"step": 2, "loss": 1}\n', "log:2"),
        ("step,loss\nx,y\n", "log"),
        ("step,loss\n" + "9" * 400 + ",1\n", "log"),
        ("step,loss\n1,\"" + "a" * 200_000 + '"\n', "log:"),
    ],
)  # fmt: skip
def test_refusals_name_the_place(text: str, where: str) -> None:
    with pytest.raises(InputRefused, match=where):
        progress.load(text.encode(), "log")


def test_a_log_alone_shows_attempts(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step,train_loss_step\n0,9,2\n0,19,2\n0,29,2\n0,19,2\n")
    found = read([tmp_path]).attempts
    assert list(zip(found.job, found.first_step, found.last_step, found.start_ns, strict=True)) == [
        ("metrics", 9, 29, -1),
        ("metrics", 19, 19, -1),
    ]


@pytest.mark.parametrize(("first", "dated"), [(1_700_000_000, 1), (5, 0)])
def test_times_of_a_log_alone_are_dates_or_lengths(tmp_path: Path, first: int, dated: int) -> None:
    rows = [(1, first), (2, first + 10), (1, first + 20), (2, first + 40)]
    (tmp_path / "p.jsonl").write_text("".join(f'{{"step": {step}, "loss": 1, "time": {at}}}\n' for step, at in rows))
    found = read([tmp_path]).attempts
    assert found.dated.tolist() == [dated, dated]
    assert (found.end_ns - found.start_ns).tolist()[1] == (20 if dated else 30) * 10**9


ANY = (
    st.none()
    | st.booleans()
    | st.integers(-5, 2**64)
    | st.floats()
    | st.sampled_from(["", "7", "1.5", "x", "true"])
    | st.just([])
)
KEYS = ("step", "loss", "metric", "rank", "tokens", "kept", "skipped", "start_ns", "end_ms", "time", "Loss", "other")
LINES = st.lists(st.fixed_dictionaries({"step": ANY}, optional=dict.fromkeys(KEYS[1:], ANY)), min_size=1, max_size=4)


@given(LINES, st.booleans())
def test_lines_read_at_once_are_what_lines_read_one_by_one_are(rows: list[dict[str, Any]], cut: bool) -> None:
    lines = [json.dumps(row) for row in rows]
    tables: list[Any] = []
    for text in ("\n".join([*lines, '{"step": 1, "lo'] if cut else lines), "\n\n".join(lines) + "\n\n"):
        tables.append(None)
        with suppress(InputRefused):
            tables[-1] = progress.load(text.encode(), "log").columns
    assert (tables[0] is None) == (tables[1] is None)
    for name, values in (tables[0] or {}).items():
        assert np.array_equal(values, tables[1][name], equal_nan=name == "loss"), name
