"""Slurm's controller: who took a job's allocation away, who gave it back, and who asked for it."""

from __future__ import annotations

from pathlib import Path

from action_rows import rows, trace_of

CTLD = """[2026-01-01T00:00:00.000] _slurm_rpc_submit_batch_job: JobId=12 InitPrio=100 usec=217
[2026-01-01T00:00:01.000] sched: Allocate JobId=12 NodeList=n1 #CPUs=2 Partition=low
[2026-01-01T00:00:05.000] preempted JobId=12 has been requeued to reclaim resources for JobId=13
[2026-01-01T00:00:05.100] Requeuing JobId=12
[2026-01-01T00:00:06.000] sched: _update_job: setting begin to 2026-01-01T00:00:06 for JobId=12
[2026-01-01T00:00:06.000] _slurm_rpc_update_job: complete JobId=12 uid=7 usec=146
[2026-01-01T00:00:07.000] sched: _update_job: setting priority to 50 for JobId=12
[2026-01-01T00:00:07.000] _slurm_rpc_update_job: complete JobId=12 uid=0 usec=146
[2026-01-01T00:00:08.000] sched: Allocate JobId=12 NodeList=n1 #CPUs=2 Partition=low
[2026-01-01T00:00:09.000] _slurm_rpc_suspend(suspend) for JobId=12
[2026-01-01T00:00:10.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=12 uid 7
"""
ASKED = ("time_s", "controller", "knob", "before", "after", "direction", "trigger", "attempt")
EXPECTED = [
    (0.0, "user", "submission", "", "", 0, "", -1),
    (1.0, "slurmctld", "allocation", "", "", 1, "", 0),
    (5.0, "slurmctld", "allocation", "", "", -1, "preempted for job 13", -1),
    (6.0, "uid 7", "allocation", "", "begin=2026-01-01T00:00:06", 1, "", -1),
    (7.0, "uid 0", "priority", "100", "50", -1, "", -1),
    (8.0, "slurmctld", "allocation", "", "", 1, "preempted", 1),
    (9.0, "user", "allocation", "", "", -1, "suspend", -1),
    (10.0, "uid 7", "allocation", "", "", -1, "cancelled", -1),
]


def test_every_decision_about_a_job(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, slurmctld__log=CTLD)
    assert rows(trace.actions, *ASKED) == EXPECTED
    assert set(trace.actions.target) == set(trace.actions.work) == {"12"}
    assert trace.actions.parent.tolist() == [-1, -1, 1, -1, -1, 1, 5, -1]
    assert trace.actions.busy_ns.tolist() == [-1, 4_000_000_000, -1, -1, -1, 2_000_000_000, -1, -1]


def test_a_log_that_was_delivered_twice_tells_the_same(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, slurmctld__log=CTLD + CTLD)
    assert rows(trace.actions, *ASKED) == EXPECTED
    assert trace.counts["duplicate deliveries"] == len(CTLD.splitlines())


def test_a_change_by_user_id_is_that_of_the_controller_that_logs_it(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, slurmctld__log=CTLD, rescuer__log="2026-01-01T00:00:06.003Z rescuer StartTime=now 12\n")
    rescued = (6.003, "rescuer", "allocation", "", "StartTime=now", 1, "", -1)
    assert rows(trace.actions, *ASKED) == [*EXPECTED[:3], rescued, *EXPECTED[4:]]
    assert trace.counts["told by two logs"] == 1


def test_a_controller_that_does_not_know_the_value_before_learns_the_direction(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, slurmctld__log=CTLD, ops__log="2026-01-01T00:00:07.010Z ops Priority=50 12\n")
    assert (7.01, "ops", "priority", "", "50", -1, "", -1) in rows(trace.actions, *ASKED)
    assert not any(row[1] == "uid 0" for row in rows(trace.actions, *ASKED))


def test_a_failed_node_and_a_limit_that_ran_out(tmp_path: Path) -> None:
    log = """[2026-01-01T00:00:01.000] sched: Allocate JobId=6 NodeList=n[3-4] #CPUs=2 Partition=low
[2026-01-01T00:00:02.000] requeue job JobId=6 due to failure of node n3
[2026-01-01T00:00:02.100] Requeuing JobId=6
[2026-01-01T00:00:03.000] sched: Allocate JobId=6 NodeList=n[3-4] #CPUs=2 Partition=low
[2026-01-01T00:00:04.000] Time limit exhausted for JobId=6
[2026-01-01T00:00:09.000] Requeuing JobId=7
"""
    trace = trace_of(tmp_path, slurmctld__log=log)
    assert rows(trace.actions, "time_s", "target", "direction", "trigger") == [
        (1.0, "6", 1, ""), (2.0, "6", -1, "failed node n3"), (3.0, "6", 1, "node failed"), (4.0, "6", -1, "time limit"),
        (9.0, "7", -1, "requeued"),
    ]  # fmt: skip


SACCT = """JobID|State|Submit|Start|End|Timelimit|AllocTRES
12|PREEMPTED|2026-01-01T00:00:00|2026-01-01T00:00:01|2026-01-01T00:00:05|01:00:00|gres/gpu=8
12|TIMEOUT|2026-01-01T00:00:05|2026-01-01T00:00:08|2026-01-01T00:01:08|00:01:00|gres/gpu=8
13|CANCELLED by 7|2026-01-01T00:00:02|None|2026-01-01T00:00:03|01:00:00|
"""


def test_accounting_tells_starts_and_decided_ends(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, sacct__txt=SACCT)
    asked = ("time_s", "controller", "target", "direction", "trigger", "attempt", "busy_ns", "accelerators", "outcome")
    assert rows(trace.actions, *asked) == [
        (0.0, "user", "12", 0, "", -1, -1, -1, ""),
        (1.0, "slurmctld", "12", 1, "", 0, 4_000_000_000, 8, "failed"),
        (2.0, "user", "13", 0, "", -1, -1, -1, ""),
        (3.0, "user", "13", -1, "cancelled", -1, -1, -1, ""),
        (5.0, "slurmctld", "12", -1, "preempted", -1, -1, -1, ""),
        (8.0, "slurmctld", "12", 1, "preempted", 1, 60_000_000_000, 8, "failed"),
        (68.0, "slurmctld", "12", -1, "time limit", -1, -1, -1, ""),
    ]
    starts = trace.actions.take(trace.actions.attempt >= 0)
    assert (starts.deadline_ns - starts.time_ns).tolist() == [3_600_000_000_000, 60_000_000_000]


def test_accounting_and_the_controllers_log_tell_one_story(tmp_path: Path) -> None:
    both = trace_of(tmp_path, sacct__txt=SACCT.splitlines()[0] + "\n" + SACCT.splitlines()[1] + "\n", slurmctld__log=CTLD)
    alone = trace_of(tmp_path, slurmctld__log=CTLD)
    assert rows(both.actions, "controller", "knob", "direction") == rows(alone.actions, "controller", "knob", "direction")
    assert both.actions.accelerators.max() == 8
