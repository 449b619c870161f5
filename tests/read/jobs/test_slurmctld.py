"""Logs of Slurm's daemons: what queues a job, what starts it, and what stands before the lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import taut
from taut.read.jobs import slurmctld

LINES = (
    ("00:00:00", "_slurm_rpc_submit_batch_job: JobId=12 InitPrio=100 usec=217"),
    ("00:00:01", "sched: Allocate JobId=12 NodeList=n[1-2] #CPUs=2 Partition=low"),
    ("00:01:00", "preempted JobId=12 has been requeued to reclaim resources for JobId=13"),
    ("00:02:00", "sched/backfill: _start_job: Started JobId=12 in low on n1"),
    ("00:03:00", "_job_complete: JobId=12 WEXITSTATUS 0"),
)


def attempts(text: str) -> list[tuple[Any, ...]]:
    assert slurmctld.sniff(text.encode())
    found = slurmctld.load(text.encode(), "s").attempts
    return list(zip(found.job, ((found.end_ns - found.start_ns) // 10**9).tolist(), found.outcome, strict=True))


def own(*lines: str) -> str:
    """Lines a minute apart, as the controller writes them."""
    return "".join(f"[2026-01-01T00:{k:02d}:00.000] {line}\n" for k, line in enumerate(lines))


PREEMPTED = [("12", 59, "preempted"), ("12", 60, "completed")]
PREFIXES = {
    "own": "[2026-01-01T{}.000] ",
    "zone": "[2026-01-01T{}.000+01:00] ",
    "short": "[Jan 01 {}] ",
    "syslog": "Jan  1 {} head slurmctld[77]: ",
    "journald": "Jan 01 {} head.example.org slurmctld[77]: ",
    "short-precise": "Jan 01 {}.123456 head slurmctld[77]: slurmctld: ",
    "short-iso": "2026-01-01T{}+0100 head slurmctld[77]: ",
    "rsyslog": "2026-01-01T{}.123456+01:00 head slurmctld[77]: [2026-01-01T{}.123] ",
    "container": "slurmctld-1  | [2026-01-01T{}.000] ",
    "kubectl": "2026-01-01T{}.123456789Z slurmctld: ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_whatever_stands_before_a_line(prefix: str) -> None:
    assert attempts("".join(prefix.replace("{}", at) + text + "\n" for at, text in LINES)) == PREEMPTED


def test_entries_of_the_journal_as_json() -> None:
    entry = '{{"__REALTIME_TIMESTAMP":"{}","SYSLOG_IDENTIFIER":"slurmctld","MESSAGE":"{}"}}\n'
    seconds = [sum(int(part) * size for part, size in zip(at.split(":"), (3600, 60, 1), strict=True)) for at, _ in LINES]
    lines = zip(seconds, LINES, strict=True)
    assert attempts("".join(entry.format(10**6 * (1_767_225_600 + s), text) for s, (_, text) in lines)) == PREEMPTED


def test_dates_without_a_year_go_on_after_new_year_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    path.write_text(
        "Dec 31 23:00:00 head slurmctld[7]: sched: Allocate JobId=1 NodeList=n1 #CPUs=1 Partition=p\n"
        "Jan  1 01:00:00 head slurmctld[7]: _job_complete: JobId=1 WEXITSTATUS 0\n"
    )
    trace = taut.read([str(path)])
    assert (trace.attempts.end_ns - trace.attempts.start_ns).tolist() == [7200 * 10**9]
    assert any("dates without a year" in line for line in trace.partial)
    told = taut.analyze(path).result.attempts
    assert told is not None
    (one,) = told.rows
    assert (one.submit_ns, one.start_ns, one.end_ns, one.ran_ns) == (None, None, None, 7200 * 10**9)


def test_a_queued_salloc_is_not_started() -> None:
    text = own(
        "sched: _slurm_rpc_allocate_resources JobId=3 NodeList=(null) usec=133",
        "sched: Allocate JobId=3 NodeList=n1 #CPUs=1 Partition=p",
        "_job_complete: JobId=3 WEXITSTATUS 13",
    )
    found = slurmctld.load(text.encode(), "s").attempts
    assert ((found.start_ns - found.submit_ns) // 10**9).tolist() == [60]
    assert attempts(text) == [("3", 60, "failed")]


def test_tasks_of_an_array_are_jobs_that_were_queued_with_it() -> None:
    text = own(
        "_slurm_rpc_submit_batch_job: JobId=100 InitPrio=1 usec=1",
        "sched: Allocate JobId=100_1(101) NodeList=n1 #CPUs=1 Partition=p",
        "sched: Allocate JobId=100_2(100) NodeList=n2 #CPUs=1 Partition=p",
        "_job_complete: JobId=100_1(101) WEXITSTATUS 0",
        "_job_complete: JobId=100_2(100) WEXITSTATUS 0",
    )
    found = slurmctld.load(text.encode(), "s").attempts
    assert attempts(text) == [("100_1", 120, "completed"), ("100_2", 120, "completed")]
    assert ((found.start_ns - found.submit_ns) // 60_000_000_000).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("sched: Allocate JobID=5 NodeList=n1 #CPUs=1 Partition=p", "job_complete: JobID=5 State=0x1 NodeCnt=1 WEXITSTATUS 1"),
         [("5", 60, "failed")]),
        (("backfill: Started JobId=5 in p on n1", "requeue job 5 due to failure of node n1",
          "backfill: Started JobId=5 in p on n2", "preempted job 5 has been killed"),
         [("5", 60, "node failed"), ("5", 60, "preempted")]),
        (("sched: Allocate JobId=5 NodeList=n1 #CPUs=1 Partition=p",
          "Batch JobId=5 missing from batch node n1 (not found BatchStartTime after startup), Requeuing job"),
         [("5", 60, "node failed"), ("5", 0, "pending")]),
        (("sched: Allocate JobId=5 NodeList=n1 #CPUs=1 Partition=p", "_job_signal: 9 of running JobId=5 successful 0x8004"),
         [("5", 60, "cancelled")]),
        (("Launching batch job 5 for UID 1000", "[5.batch] sending REQUEST_COMPLETE_BATCH_SCRIPT, error:0 status:256"),
         [("5", 60, "failed")]),
        (("Launching batch job 5 for UID 1000",
          "[5.batch] error: *** JOB 5 ON n1 CANCELLED AT 2026-01-01T00:01:00 DUE TO TIME LIMIT ***"), [("5", 60, "timed out")]),
    ],
    ids=["JobID", "before 18.08", "missing batch", "signal", "slurmd", "slurmd time limit"],
)  # fmt: skip
def test_lines_of_other_versions_and_of_the_daemon_on_a_node(lines: tuple[str, ...], expected: list[tuple[Any, ...]]) -> None:
    assert attempts(own(*lines)) == expected


def test_a_start_that_is_told_twice_is_one() -> None:
    text = (
        "[2026-01-01T00:00:00.000] sched: Allocate JobId=5 NodeList=n1 #CPUs=1 Partition=p\n"
        "[2026-01-01T00:00:00.800] sched: _slurm_rpc_allocate_resources JobId=5 NodeList=n1 usec=9\n"
        "[2026-01-01T00:01:00.000] _job_complete: JobId=5 WEXITSTATUS 0\n"
    )
    assert attempts(text) == [("5", 60, "completed")]


RECORD = "JobId={} JobState={} StartTime={} EndTime={} NodeList={} NodeCnt=1 ProcCnt=1\n"


def test_the_controller_and_completion_records_of_the_same_jobs_are_not_restarts(tmp_path: Path) -> None:
    (tmp_path / "slurmctld.log").write_text(
        own(
            "sched: _slurm_rpc_allocate_resources JobId=3 NodeList=(null) usec=133",
            "_slurm_rpc_submit_batch_job: JobId=4 InitPrio=1 usec=1",
            "sched: Allocate JobId=3 NodeList=n1 #CPUs=1 Partition=p",
            "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=4 uid 7",
            "_job_complete: JobId=3 WEXITSTATUS 0",
        )
    )
    at = "2026-01-01T00:{:02d}:00"
    (tmp_path / "jobcomp.txt").write_text(
        RECORD.format(3, "COMPLETED", at.format(2), at.format(4), "n1")
        + RECORD.format(4, "CANCELLED", at.format(3), at.format(3), "(null)")
    )
    found = taut.read([str(tmp_path)]).attempts
    assert sorted(zip(found.job, found.outcome, strict=True)) == [("3", "completed"), ("4", "cancelled")]


def test_components_of_a_heterogeneous_job_are_jobs_of_their_own() -> None:
    text = own(
        "_slurm_rpc_submit_batch_het_job: JobId=1000 InitPrio=1 usec=2",
        "sched: Allocate JobId=1000+0(1000) NodeList=a[1-2] #CPUs=64 Partition=gpu",
        "sched: Allocate JobId=1000+1(1001) NodeList=b1 #CPUs=8 Partition=cpu",
        "_job_complete: JobId=1000+0(1000) WEXITSTATUS 0",
        "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=1000 uid 7",
    )
    assert attempts(text) == [("1000+0", 120, "completed"), ("1000+1", 120, "cancelled")]
