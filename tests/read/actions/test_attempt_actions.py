"""Attempts as actions: starts of job tables and restarts of launchers."""

from __future__ import annotations

import json
from pathlib import Path

from action_rows import rows, trace_of

JOBS = json.dumps(
    [
        {
            "id": "a", "num_gpus": 8, "submitted_time": "2026-01-01 00:00:00",
            "attempts": [
                {"start_time": "2026-01-01 00:00:10", "end_time": "2026-01-01 00:00:20"},
                {"start_time": "2026-01-01 00:00:30", "end_time": "2026-01-01 00:01:00"},
            ],
        },
        {"id": "b", "num_gpus": 1, "attempts": [{"start_time": "2026-01-01 00:00:15", "end_time": "2026-01-01 00:00:25"}]},
    ]
)  # fmt: skip


def test_every_start_in_a_job_table_is_a_decision(tmp_path: Path) -> None:
    actions = trace_of(tmp_path, jobs__json=JOBS).actions
    asked = ("time_s", "controller", "work", "knob", "direction", "attempt", "parent", "busy_ns", "accelerators")
    assert rows(actions, *asked) == [
        (0.0, "user", "a", "submission", 0, -1, -1, -1, -1),
        (10.0, "scheduler", "a", "allocation", 1, 0, -1, 10_000_000_000, 8),
        (15.0, "scheduler", "b", "allocation", 1, 0, -1, 10_000_000_000, 1),
        (30.0, "scheduler", "a", "allocation", 1, 1, 1, 30_000_000_000, 8),
    ]


def launcher(*failures: tuple[int, str]) -> str:
    lines = ["W0101 00:00:00.000000 7 torch/distributed/run.py:1] begin 2026-01-01 00:00:00"]
    for at, error in failures:
        lines.append(f"[rank0]: {error}")
        lines.append(
            f"E0101 00:00:{at:02d}.000000 7 torch/distributed/elastic/multiprocessing/api.py:1] "
            "failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: p"
        )
    return "\n".join(lines) + "\n"


GLOO = "RuntimeError: [a.cc:78] Timed out waiting 5000ms for recv operation to complete"
NCCL = (
    "torch.distributed.DistBackendError: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, "
    "OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=2000) ran for 2010 milliseconds before timing out."
)


def test_restarts_after_a_timeout_carry_it_as_trigger_and_deadline(tmp_path: Path) -> None:
    actions = trace_of(tmp_path, train__err=launcher((8, GLOO), (12, NCCL), (20, "ValueError: no"))).actions
    asked = ("time_s", "layer", "controller", "knob", "before", "after", "trigger", "attempt", "parent", "busy_ns", "outcome")
    assert rows(actions, *asked) == [
        (0.0, "runtime", "torchrun", "attempt", "", "0", "", 0, -1, 8_000_000_000, "failed"),
        (8.0, "runtime", "torchrun", "attempt", "0", "1", "timeout of 5 s", 1, 0, 4_000_000_000, "failed"),
        (12.0, "runtime", "torchrun", "attempt", "1", "2", "timeout of 2 s", 2, 1, 8_000_000_000, "failed"),
    ]
    assert [d - t if d >= 0 else None for t, d in rows(actions, "time_ns", "deadline_ns")] == [
        5_000_000_000,
        2_000_000_000,
        None,
    ]


def test_a_launcher_that_never_restarted_decided_nothing(tmp_path: Path) -> None:
    assert len(trace_of(tmp_path, train__err=launcher((8, "ValueError: no"))).actions) == 0


def test_restarts_inside_an_allocation_are_the_launchers(tmp_path: Path) -> None:
    sacct = "JobID|State|Submit|Start|End\n5|FAILED|2025-12-31T23:59:50|2025-12-31T23:59:59|2026-01-01T00:00:30\n"
    actions = trace_of(tmp_path, sacct__txt=sacct, slurm_5__out=launcher((8, GLOO), (20, GLOO))).actions
    assert rows(actions, "controller", "knob", "direction", "attempt") == [
        ("user", "submission", 0, -1), ("slurmctld", "allocation", 1, 0), ("torchrun", "attempt", 0, 1),
    ]  # fmt: skip


def test_a_cancelled_attempt_that_was_started_again_was_requeued_and_not_by_its_user(tmp_path: Path) -> None:
    sacct = (
        "JobID|State|Start|End\n7|REQUEUED|2026-01-01T00:00:00|2026-01-01T00:00:10\n"
        "7|CANCELLED by 5|2026-01-01T00:00:20|2026-01-01T00:00:30\n"
    )
    ends = [
        row for row in rows(trace_of(tmp_path, sacct__txt=sacct).actions, "controller", "direction", "trigger") if row[1] < 0
    ]
    assert ends == [("slurmctld", -1, "requeued"), ("user", -1, "cancelled")]
