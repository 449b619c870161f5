"""Slurm's accounting: rows are attempts, whatever the columns; steps are no jobs; what runs is followed so far."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.ledger.attempt_ledger import charge_attempts
from taut.read.contents import JobLog
from taut.read.jobs import sacct, sacct_json, slurmctld
from taut.read.trace import read

S = 1_000_000_000
PARSABLE = """JobID|JobName|State|Submit|Start|End|ElapsedRaw|AllocTRES|NodeList|Restarts
7|train|NODE_FAIL|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T01:00:10|3600|cpu=8,gres/gpu:h100=16,gres/gpu=16,node=2|n[1-2]|1
7.batch|batch|CANCELLED||2026-01-01T00:00:10|2026-01-01T01:00:10|3600|cpu=8|n1|
7|train|RUNNING|2026-01-01T01:00:10|2026-01-01T01:10:00|Unknown|60|cpu=8,gres/gpu=16,node=2|n[3-4]|1
8|eval|CANCELLED by 0|2026-01-01T00:00:00|None|2026-01-01T00:00:05|0||None assigned|0
9|next|PENDING|2026-01-01T00:00:00|Unknown|Unknown|0||None assigned|0
"""
FIXED = """JobID           JobName      State               Start                 End
------------ ---------- ---------- ------------------- -------------------
7                 train  PREEMPTED 2026-01-01T00:00:10 2026-01-01T01:00:10
7.batch           batch  CANCELLED 2026-01-01T00:00:10 2026-01-01T01:00:10
"""
JOBCOMP = (
    "JobId=3 Name=v JobState=PREEMPTED StartTime=2026-01-01T00:00:10 EndTime=2026-01-01T00:00:20 NodeList=n[1-4] NodeCnt=4 "
    "ProcCnt=8 Tres=cpu=8,gres/gpu=4 SubmitTime=2026-01-01T00:00:00 ExitCode=0:0\n"
    "JobId=4 Name=w JobState=CANCELLED StartTime=2026-01-01T00:00:10 EndTime=2026-01-01T00:00:10 NodeList=(null) NodeCnt=0 "
    "ProcCnt=1 SubmitTime=2026-01-01T00:00:00 ExitCode=0:0\n"
)
CONTROLLER = """[2026-01-01T00:00:00.000] slurmctld version 24.05 started on cluster c
[2026-01-01T00:00:01.000] _slurm_rpc_submit_batch_job: JobId=12 InitPrio=1 usec=2
[2026-01-01T00:00:02.000] sched: Allocate JobId=12 NodeList=n[1-2,5] #CPUs=6 Partition=low
[2026-01-01T00:00:08.500] preempted JobId=12 has been requeued to reclaim resources for JobId=13
[2026-01-01T00:00:09.000] Requeuing JobId=12
[2026-01-01T00:00:10.000] sched/backfill: _start_job: Started JobId=12 in low on n[1-2,5]
[2026-01-01T00:00:20.000] requeue job JobId=12 due to failure of node n2
[2026-01-01T00:00:21.000] _job_complete: JobId=12 WEXITSTATUS 143
[2026-01-01T00:00:30.000] sched: Allocate JobId=12 NodeList=n[1-3] #CPUs=6 Partition=low
[2026-01-01T00:01:30.000] Time limit exhausted for JobId=12
[2026-01-01T00:01:31.000] _slurm_rpc_submit_batch_job: JobId=14 InitPrio=1 usec=2
[2026-01-01T00:01:33.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=14 uid 0
"""


def rows(log: JobLog, *names: str) -> list[tuple[Any, ...]]:
    """The columns of interest, times in seconds after the first of January 2026."""
    day = 1_767_225_600
    columns = [
        [(v - day * S) / S if v >= 0 else None for v in log.attempts.columns[n].tolist()]
        if n.endswith("_ns")
        else log.attempts.columns[n].tolist()
        for n in names
    ]
    return list(zip(*columns, strict=True))


def test_a_requeued_job_is_one_job_with_its_attempts() -> None:
    assert sacct.sniff(PARSABLE.encode())
    log = sacct.load(PARSABLE.encode(), "sacct.txt")
    assert rows(log, "job", "attempt", "submit_ns", "start_ns", "end_ns", "outcome", "accelerators", "unit", "nodes") == [
        ("7", 1, 0, 10, 3610, "node failed", 16, "accelerator", "n[1-2]"),
        ("7", 2, 3610, 4200, 4260, "running", 16, "accelerator", "n[3-4]"),
        ("8", 1, 0, None, 5, "cancelled", -1, "", ""),
        ("9", 1, 0, None, None, "pending", -1, "", ""),
    ]
    assert log.zoneless
    assert log.partial == []


def test_a_job_with_more_restarts_than_rows_is_reported() -> None:
    text = "JobID|State|Start|End|Restarts\n7|COMPLETED|2026-01-01T00:00:10|2026-01-01T00:00:20|2\n"
    assert "sacct --duplicates" in sacct.load(text.encode(), "s").partial[0]


def test_plain_columns_and_other_delimiters() -> None:
    assert sacct.sniff(FIXED.encode())
    assert rows(sacct.load(FIXED.encode(), "s"), "job", "name", "start_ns", "end_ns", "outcome") == [
        ("7", "train", 10, 3610, "preempted")
    ]
    commas = PARSABLE.splitlines()[0].replace("|", ";") + "\n"
    assert sacct.sniff(commas.encode())


def test_a_row_without_start_begins_where_its_length_says() -> None:
    text = "JobID|State|End|Elapsed|AllocCPUS\n7|TIMEOUT|2026-01-01T01:00:10|01:00:00|8\n"
    assert rows(sacct.load(text.encode(), "s"), "start_ns", "end_ns", "outcome", "accelerators", "unit") == [
        (10, 3610, "timed out", 8, "cpu")
    ]


def test_completion_records() -> None:
    assert sacct.sniff(JOBCOMP.encode())
    found = rows(sacct.load(JOBCOMP.encode(), "s"), "job", "start_ns", "end_ns", "outcome", "accelerators", "unit")
    assert found == [("3", 10, 20, "preempted", 4, "accelerator"), ("4", None, 10, "cancelled", 1, "cpu")]


@pytest.mark.parametrize("wrapped", [False, True], ids=["old", "new"])
def test_both_generations_of_its_json(wrapped: bool) -> None:
    def number(n: int) -> Any:
        return {"set": True, "infinite": False, "number": n} if wrapped else n

    job = {
        "job_id": 7, "name": "train", "state": {"current": ["PREEMPTED"] if wrapped else "PREEMPTED", "reason": "None"},
        "time": {"submission": 1_767_225_600, "start": number(1_767_225_610), "end": number(1_767_225_620), "elapsed": 10},
        "exit_code": {"return_code": number(0)}, "nodes": "n[1-2]", "steps": [{"time": {}}],
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 16}, {"type": "cpu", "name": "", "count": 64}]},
    }  # fmt: skip
    data = json.dumps({"jobs": [job], "meta": {"Slurm": {}}}).encode()
    assert sacct_json.sniff(data)
    assert rows(sacct_json.load(data, "s"), "job", "submit_ns", "start_ns", "end_ns", "outcome", "accelerators", "unit") == [
        ("7", 0, 10, 20, "preempted", 16, "accelerator")
    ]


def test_the_controller_tells_preemption_failed_nodes_and_limits() -> None:
    assert slurmctld.sniff(CONTROLLER.encode())
    found = rows(
        slurmctld.load(CONTROLLER.encode(), "s"), "job", "submit_ns", "start_ns", "end_ns", "outcome", "accelerators", "reason"
    )
    assert found == [
        ("12", 1, 2, 8.5, "preempted", 3, "to reclaim resources for JobId=13"),
        ("12", 9, 10, 20, "node failed", 3, "failure of node n2"),
        ("12", 20, 30, 90, "timed out", 3, ""),
        ("14", 91, None, 93, "cancelled", -1, "uid 0"),
    ]


@pytest.mark.parametrize(
    ("reader", "text", "why"),
    [
        (sacct, "JobID|State|Start\n7|COMPLETED\n8|FAILED|x\n", "2: 2 fields instead of 3"),
        (sacct, "JobID|State|Start\n", "without a job"),
        (sacct_json, '{"jobs": [}', "not readable"),
        (sacct_json, '{"jobs": []}', "without a job"),
        (slurmctld, "[2026-01-01T00:00:00] slurmctld started\n", "without a job"),
    ],
)
def test_refusals_say_what_is_wrong(reader: Any, text: str, why: str) -> None:
    with pytest.raises(InputRefused, match=why):
        reader.load(text.encode(), "s")


@pytest.mark.parametrize("name", ["sacct_X.txt", "sacct_all.txt", "jobcomp.txt", "slurmctld.log", "sacct.json"])
def test_all_logs_of_one_cluster_tell_the_same_of_a_preempted_job(shared: Path, name: str) -> None:
    data = (shared / "slurm" / name).read_bytes()
    reader = next(r for r in (sacct, sacct_json, slurmctld) if r.sniff(data[: 64 << 10]))
    log = reader.load(data, name)
    mine = log.attempts.take(log.attempts.job == "3")
    assert mine.outcome.tolist() == ["preempted", "completed"]
    assert ((mine.end_ns - mine.start_ns) // S).tolist() in ([1, 19], [1, 18])


def test_a_preemption_against_rescue_loop_has_nine_attempts(shared: Path) -> None:
    data = (shared / "control" / "slurmctld-preempt-rescue.log").read_bytes()
    attempts = slurmctld.load(data, "log").attempts
    assert attempts.outcome[attempts.job == "12"].tolist() == [*["preempted"] * 8, "cancelled"]


MIXED = """JobID|State|Submit|Start|End|AllocTRES
1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T01:00:10|cpu=8,gres/gpu=8,node=1
2|COMPLETED|2026-01-01T00:00:00|2026-01-01T02:00:00|2026-01-01T03:00:00|cpu=4,mem=8G,node=1
3|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:30:00|2026-01-01T03:00:00|
"""


def test_a_job_that_lists_no_accelerator_beside_others_that_do_holds_none() -> None:
    found = sacct.load(MIXED.encode(), "s").attempts
    assert list(zip(found.accelerators.tolist(), found.unit, strict=True)) == [(8, "accelerator"), (0, "accelerator"), (-1, "")]
    alone = sacct.load("\n".join(MIXED.splitlines()[::2]).encode(), "s").attempts
    assert (alone.accelerators[0], alone.unit[0]) == (4, "cpu")


def test_the_delay_of_jobs_without_accelerators_counts_and_is_told_apart() -> None:
    recorded = sacct.load(MIXED.encode(), "s").attempts
    ledger = charge_attempts(recorded)
    assert ledger is not None
    assert (ledger.cpu_jobs, ledger.left_out) == (1, 1)
    assert (ledger.queue_ns, ledger.cpu_queue_ns) == (9010 * 10**9, 7200 * 10**9)
    assert ledger.closes


ROWS = """12|train|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T01:00:10|0:0
12.batch|batch|COMPLETED|2026-01-01T00:00:10|2026-01-01T00:00:10|2026-01-01T01:00:10|0:0
13|eval|CANCELLED by 1000|2026-01-01T00:00:00|2026-01-01T00:00:20|2026-01-01T02:00:20|0:15
"""


def lengths(text: str) -> list[tuple[Any, ...]]:
    assert sacct.sniff(text.encode())
    found = sacct.load(text.encode(), "s").attempts
    return list(zip(found.job, found.outcome, ((found.end_ns - found.start_ns) // 10**9).tolist(), strict=True))


TWO = [("12", "completed", 3600), ("13", "cancelled", 7200)]


def test_rows_without_a_header_whose_values_tell_what_they_are() -> None:
    assert lengths(ROWS) == TWO
    elapsed = "".join(f"{k}|COMPLETED|2026-01-01T00:00:00|2026-01-01T0{k}:00:00|0{k}:00:00|2-00:00:00\n" for k in (1, 2))
    assert lengths(elapsed) == [("1", "completed", 3600), ("2", "completed", 7200)]


def test_rows_without_a_header_that_leave_a_doubt_ask_for_it(tmp_path: Path) -> None:
    text = "".join(f"{k}|COMPLETED|2026-01-01T00:00:00|2026-01-01T0{k}:00:00\n" for k in (1, 2))
    with pytest.raises(InputRefused, match=r"without a header.*--columns JobID,State,Start,End"):
        sacct.load(text.encode(), "s")
    path = tmp_path / "rows.txt"
    path.write_text(text)
    found = read([path], columns="JobID,State,Start,End").attempts
    assert ((found.end_ns - found.start_ns) // 3_600_000_000_000).tolist() == [1, 2]
    with pytest.raises(InputRefused, match="4 fields, but --columns names 2"):
        read([path], columns="JobID,State")


def test_plain_rows_without_a_header_or_a_rule() -> None:
    rows = "12   COMPLETED 2026-01-01T00:00:10 2026-01-01T01:00:10   01:00:00\n"
    rows += "13  FAILED 2026-01-01T00:00:10 2026-01-01T02:00:10 02:00:00 \n"
    assert lengths(rows) == [("12", "completed", 3600), ("13", "failed", 7200)]
    assert lengths("JobID State Start End\n12 COMPLETED 2026-01-01T00:00:10 2026-01-01T01:00:10\n")[0] == TWO[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("JobID    JobName  Partition    Account  AllocCPUS      State ExitCode\n"
         "------------ ---------- ---------- ---------- ---------- ---------- --------\n12 a b c 1 COMPLETED 0:0\n",
         "without times.*Start, End or Elapsed"),
        ("JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n 12 main a b R 1:00 1 n1\n", "squeue.*sacct"),
        ("12|COMPLETED|a\n", "without a header"),
    ],
    ids=["no times", "squeue", "no header"],
)  # fmt: skip
def test_a_list_that_lacks_something_says_what(text: str, why: str) -> None:
    assert sacct.sniff(text.encode())
    with pytest.raises(InputRefused, match=why):
        sacct.load(text.encode(), "s")


@pytest.mark.parametrize("width", [len, lambda text: len(text.encode())], ids=["characters", "bytes"])
def test_plain_columns_padded_by_bytes_or_by_characters(width: Any) -> None:
    rows = [
        "JobID           JobName      State               Start                 End ",
        "-" * 12 + " " + "-" * 10 + " " + "-" * 10,
    ]
    rows[1] += " " + "-" * 19 + " " + "-" * 19 + " "
    for job, name in ((7, "größe"), (8, "日本")):
        padded = " " * (10 - width(name)) + name
        rows.append(f"{job:<12} {padded}  COMPLETED 2026-01-01T00:00:10 2026-01-01T01:00:10 ")
    log = sacct.load("\n".join(rows).encode(), "sacct.txt")
    assert log.attempts.name.tolist() == ["größe", "日本"]
    assert (log.attempts.end_ns - log.attempts.start_ns).tolist() == [3600 * S] * 2


def test_rows_with_unreadable_times_are_named() -> None:
    text = PARSABLE.replace("2026-01-01T00:00:10|2026-01-01T01:00:10|3600|cpu=8,gres", "2026-01-0|06.01.26 08:00||cpu=8,gres")
    log = sacct.load(text.encode(), "sacct.txt")
    (note,) = [line for line in log.partial if "no date" in line]
    assert "job 7: '2026-01-0'" in note
    assert not any("no date" in line for line in sacct.load(PARSABLE.encode(), "sacct.txt").partial)


def test_rows_that_do_not_keep_to_the_rule() -> None:
    text = FIXED.replace("7                 train  PREEMPTED", "7 train PREEMPTED").replace("00:00:10 2026", "00:00:10  2026")
    log = sacct.load(text.encode(), "sacct.txt")
    assert (log.attempts.end_ns - log.attempts.start_ns).tolist() == [3600 * S]
    assert log.attempts.name.tolist() == ["train"]
