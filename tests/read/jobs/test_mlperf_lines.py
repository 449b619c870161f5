"""MLPerf's lines: runs with their result, their accelerators, and how far they came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taut.read.jobs import mlperf_lines, training_log


def line(ms: int, key: str, value: Any = None, **metadata: Any) -> str:
    body = {"namespace": "", "time_ms": 1_633_357_000_000 + ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f":::MLLOG {json.dumps(body | {'metadata': metadata})}\n"


SIZE = line(0, "submission_benchmark", "bert") + line(1, "number_of_nodes", 2) + line(2, "accelerators_per_node", 4)


def attempts(text: str, *names: str) -> list[tuple[Any, ...]]:
    assert training_log.sniff(text.encode())
    log = training_log.load(text.encode(), "result_0.txt")
    assert log is not None
    return list(zip(*(log.attempts.columns[name].tolist() for name in names), strict=True))


def test_a_run_that_succeeded() -> None:
    epochs = "".join(line(1000 * n, "epoch_stop", epoch_num=n) for n in (1, 2))
    text = "preamble\n" + SIZE + line(5, "run_start") + epochs + line(2500, "run_stop", status="success")
    assert attempts(text, "name", "outcome", "accelerators", "unit", "first_step", "last_step") == [
        ("bert", "completed", 8, "accelerator", 1, 2)
    ]
    assert attempts(text, "start_ns", "end_ns") == [(1_633_357_000 * 10**9, 1_633_357_002_500 * 10**6)]


def test_a_run_that_was_aborted_and_one_after_it() -> None:
    text = (
        line(5, "run_start")
        + line(9, "run_stop", status="aborted")
        + line(20, "run_start")
        + line(30, "run_stop", status="success")
    )
    assert attempts(text, "job", "outcome", "reason") == [
        ("result_0", "failed", "run_stop with status aborted"),
        ("result_0", "completed", ""),
    ]


def test_what_follows_the_end_of_a_run_belongs_to_it() -> None:
    text = line(5, "run_start") + line(9, "run_stop", status="success") + "Training completed\nsaving checkpoint at step 5\n"
    assert attempts(text + line(50, "tracked_stats", {}, step=[2, 740]), "outcome", "last_step", "end_ns") == [
        ("completed", -1, 1_633_357_000_009 * 10**6)
    ]


def test_samples_are_counted_where_nothing_else_is() -> None:
    text = line(5, "run_start") + "".join(line(n, "eval_accuracy", 0.5, samples_count=n) for n in (10, 20))
    assert attempts(text, "first_step", "last_step") == [(10, 20)]


def test_two_runs_that_succeeded_are_no_restart() -> None:
    text = "".join(line(at, "init_start") + line(at + 5, "run_stop", status="success") for at in (0, 100))
    assert [job for (job,) in attempts(text, "job")] == ["result_0 run 1", "result_0 run 2"]


def test_steps_are_better_than_epochs_and_one_rank_is_followed() -> None:
    steps = "".join(f"{rank}: " + line(n * 10, "tracked_stats", {}, step=n) for n in (1, 2, 3) for rank in (0, 1))
    assert attempts(steps + line(90, "epoch_stop", epoch_num=1), "first_step", "last_step") == [(1, 3)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (':::MLL 1571433686.379 run_start: {"metadata": {"lineno": 1}, "value": null}', "run_start"),
        (":::MLPv0.5.0 ncf 1541650000.250000 (ncf.py:10) run_start", "run_start"),
        (':::MLPv0.5.0 ncf 1541650000.250000 (ncf.py:10) run_stop: {"success": true}', "run_stop"),
        (':::MLLOG {"time_ms": "x"}', None),
        (":::MLLOG {", None),
        (":::MLLOG nothing", None),
    ],
)
def test_older_and_torn_lines(text: str, key: str | None) -> None:
    event = mlperf_lines.event_of(text)
    assert (event and event.key) == key
