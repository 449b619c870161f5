"""Several logs of one job are put together: schedulers by id and start, logs inside by time or by order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taut.core.errors import NotATrace
from taut.core.tables import Trace
from taut.read.trace import read

SACCT = """JobID|JobName|State|Submit|Start|End|AllocTRES
9|train|NODE_FAIL|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:00:00|gres/gpu=8
9|train|COMPLETED|2026-01-01T01:00:00|2026-01-01T02:00:00|2026-01-01T03:00:00|gres/gpu=8
"""
INSIDE = """[2026-01-01 00:20:00] iteration 1/100 | loss 1
[2026-01-01 00:30:00] successfully saved checkpoint at iteration 11
[2026-01-01 00:40:00] iteration 21/100 | loss 1
[2026-01-01 02:01:00] loading checkpoint at iteration 11
[2026-01-01 02:11:00] successfully loaded checkpoint at iteration 11
[2026-01-01 02:12:00] iteration 12/100 | loss 1
[2026-01-01 02:50:00] iteration 50/100 | loss 1
"""
LAUNCHER = """W0101 00:11:00.000000 99 torch/distributed/run.py:874] ****
E0101 00:30:00.000000 99 torch/distributed/elastic/api.py:1] failed (exitcode: 1) local_rank: 0 (pid: 7)
E0101 00:50:00.000000 99 torch/distributed/elastic/api.py:1] failed (exitcode: 1) local_rank: 0 (pid: 8)
"""


def folder(tmp_path: Path, **files: str) -> Trace:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".").replace("_", "-")).write_text(text)
    return read([tmp_path])


def columns(trace: Trace, *names: str) -> list[tuple[Any, ...]]:
    """Columns of the attempts, times in minutes of the first of January 2026."""
    t = trace.attempts
    minutes = {
        n: [(v / 1e9 - 1_767_225_600) / 60 if v >= 0 else None for v in t.columns[n].tolist()]
        for n in names
        if n.endswith("_ns")
    }
    return list(zip(*(minutes.get(n, t.columns[n].tolist()) for n in names), strict=True))


def test_a_training_log_tells_the_steps_of_the_schedulers_attempts(tmp_path: Path) -> None:
    trace = folder(tmp_path, sacct__txt=SACCT, slurm_9__out=INSIDE)
    assert columns(trace, "job", "start_ns", "end_ns", "outcome", "accelerators", "last_step", "saved_ns", "resumed_step") == [
        ("9", 10, 60, "node failed", 8, 21, 30, -1),
        ("9", 120, 180, "completed", 8, 50, None, 11),
    ]


def test_a_log_of_another_name_belongs_to_the_only_job(tmp_path: Path) -> None:
    assert columns(folder(tmp_path, sacct__txt=SACCT, train__log=INSIDE), "job", "last_step") == [("9", 21), ("9", 50)]


def test_restarts_inside_one_allocation_are_attempts_that_held_it(tmp_path: Path) -> None:
    trace = folder(tmp_path, sacct__txt=SACCT, err__log=LAUNCHER)
    assert columns(trace, "attempt", "start_ns", "end_ns", "outcome", "held") == [
        (1, 10, 30, "failed", 0),
        (2, 30, 60, "node failed", 1),
        (3, 120, 180, "completed", 0),
    ]


def test_a_log_without_dates_is_put_in_by_order_or_not_at_all(tmp_path: Path) -> None:
    plain = "".join(line[22:] + "\n" for line in INSIDE.splitlines())
    assert columns(folder(tmp_path, sacct__txt=SACCT, train__log=plain), "last_step", "resumed_step") == [(21, -1), (50, 11)]
    one = folder(tmp_path, sacct__txt=SACCT, train__log=plain.split("loading")[0])
    assert columns(one, "last_step") == [(-1,), (-1,)]
    assert any("its steps are not used" in line for line in one.partial)


def test_a_log_that_may_belong_to_several_jobs_is_left_apart(tmp_path: Path) -> None:
    two = SACCT + SACCT.split("\n", 1)[1].replace("9|", "8|")
    trace = folder(tmp_path, sacct__txt=two, train__log=INSIDE)
    assert sorted(set(trace.attempts.job.tolist())) == ["8", "9", "train"]
    assert any("which of 2 jobs" in line for line in trace.partial)


def test_two_logs_of_a_scheduler_tell_an_attempt_once(tmp_path: Path) -> None:
    last = "JobID|State|Start|End|NodeList\n9|COMPLETED|2026-01-01T02:00:01|2026-01-01T03:00:00|n1\n"
    trace = folder(tmp_path, a__txt=last, sacct__txt=SACCT)
    assert columns(trace, "attempt", "start_ns", "accelerators", "nodes") == [(1, 10, 8, ""), (2, 120, 8, "n1")]


def test_attempts_that_follow_each_other_within_seconds_stay_apart(tmp_path: Path) -> None:
    """Accounting cuts times to the second: attempt by attempt, the controller's log tells them better."""
    starts = ("00:00:01", "00:00:04", "00:00:07")
    sacct = "".join(f"9|PREEMPTED|2026-01-01T{at}|2026-01-01T{at[:-1]}{int(at[-1]) + 1}|gres/gpu=8\n" for at in starts)
    ctld = "".join(
        f"[2026-01-01T{at}.500] sched: Allocate JobId=9 NodeList=n1 #CPUs=2 Partition=low\n"
        f"[2026-01-01T{at[:-1]}{int(at[-1]) + 1}.750] preempted JobId=9 has been requeued to reclaim resources for JobId=10\n"
        for at in starts
    )
    trace = folder(tmp_path, sacct__txt="JobID|State|Start|End|AllocTRES\n" + sacct, slurmctld__log=ctld)
    assert columns(trace, "job", "attempt", "start_ns", "end_ns", "outcome", "accelerators") == [
        ("9", k + 1, pytest.approx((int(at[-1]) + 0.5) / 60), pytest.approx((int(at[-1]) + 1.75) / 60), "preempted", 8)
        for k, at in enumerate(starts)
    ] + [("9", 4, None, None, "pending", -1)]


def test_logs_that_go_on_from_each_other_are_one_job(tmp_path: Path) -> None:
    first, _, second = INSIDE.partition("[2026-01-01 02:01")
    trace = folder(tmp_path, slurm_1__out=first, slurm_2__out="[2026-01-01 02:01" + second)
    assert columns(trace, "job", "attempt", "last_step") == [("1", 1, 21), ("1", 2, 50)]


def test_logs_that_have_nothing_to_do_with_each_other_are_two_jobs(tmp_path: Path) -> None:
    later = LAUNCHER.replace("0101 00", "0101 05")
    assert len(set(folder(tmp_path, a__log=LAUNCHER, b__log=later).attempts.job.tolist())) == 2


def test_a_progress_log_tells_the_steps_of_attempts(tmp_path: Path) -> None:
    start = 1_767_225_600
    rows = "".join(f"{s},1.0,{start + 60 * (11 + s)}\n" for s in range(20)) + "".join(
        f"{s},1.0,{start + 60 * (115 + s)}\n" for s in range(10, 20)
    )
    trace = folder(tmp_path, sacct__txt=SACCT, steps__csv="step,loss,time_s\n" + rows)
    assert columns(trace, "first_step", "last_step") == [(0, 19), (10, 19)]


def test_text_that_tells_nothing_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("CUDA is fine\n")
    with pytest.raises(NotATrace):
        read([tmp_path])


def test_all_logs_of_a_cluster_together(shared: Path) -> None:
    trace = read([shared / "slurm"])
    assert len(trace.attempts) == 9
    assert sorted(set(trace.attempts.job.tolist())) == list("1234567")
