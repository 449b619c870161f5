"""Logs of many kinds whose truth is known because they are written here, against what the command line says of them.

    python validation/log_cases.py [--only WORD] [--keep FOLDER]

Every case is a log as a tool of the field writes it (own text throughout) with what is true of it: jobs, attempts, restarted
jobs, accelerator-hours held and discarded, the last step, outcomes, failed spans, and for `taut control` which relations are
to be found, mostly none. Nothing of taut is imported.
"""

# ruff: noqa: E501
from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HOUR_NS = 3.6e12
T0 = datetime(2024, 5, 6, 8, 0, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def iso(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%S")


def isoz(seconds: float) -> str:
    return iso(seconds) + "Z"


def milli(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


@dataclass(frozen=True)
class Case:
    kind: str
    verb: str
    files: Mapping[str, str]
    want: Mapping[str, Any]
    args: tuple[str, ...] = ()
    encoding: str = "utf-8"


@dataclass
class Cases:
    all: list[Case] = field(default_factory=list)

    def analyze(
        self, kind: str, files: Mapping[str, str] | str, args: tuple[str, ...] = (), encoding: str = "utf-8", **want: Any
    ) -> None:
        self.all.append(Case(kind, "analyze", named(files), want, args, encoding))

    def control(self, kind: str, files: Mapping[str, str] | str, args: tuple[str, ...] = (), **want: Any) -> None:
        self.all.append(Case(kind, "control", named(files), want, args))

    def both(self, kind: str, files: Mapping[str, str] | str, args: tuple[str, ...] = (), **want: Any) -> None:
        """Analyze with this truth, and control quiet."""
        self.analyze(kind, files, args, **want)
        self.control(kind, files, args, relations=[])


def named(files: Mapping[str, str] | str) -> Mapping[str, str]:
    return {"log.txt": files} if isinstance(files, str) else files


# ---------------------------------------------------------------------------------------------------------------- Slurm


def ctld(seconds: float, text: str) -> str:
    return f"[{milli(seconds)}] {text}\n"


def slurm_requeue_by_preemption() -> str:
    """Version 23: job 801 on 2 nodes 1 h, preempted for 802, requeued, then 2 h to its end; 802 runs 30 min."""
    return (
        ctld(0, "_slurm_rpc_submit_batch_job: JobId=801 InitPrio=1000 usec=412")
        + ctld(1, "sched: Allocate JobId=801 NodeList=gpu[01-02] #CPUs=128 Partition=low")
        + ctld(3600, "_slurm_rpc_submit_batch_job: JobId=802 InitPrio=9000 usec=388")
        + ctld(3601, "preempted JobId=801 has been requeued to reclaim resources for JobId=802")
        + ctld(3601.2, "job_signal: 9 of running JobId=801 successful 0x8")
        + ctld(3631, "cleanup_completing: JobId=801 completion process took 30 seconds")
        + ctld(3632, "sched: Allocate JobId=802 NodeList=gpu[01-02] #CPUs=128 Partition=high")
        + ctld(5432, "_job_complete: JobId=802 WEXITSTATUS 0")
        + ctld(5432.1, "_job_complete: JobId=802 done")
        + ctld(5500, "backfill: Started JobId=801 in low on gpu[01-02]")
        + ctld(12700, "_job_complete: JobId=801 WEXITSTATUS 0")
        + ctld(12700.1, "_job_complete: JobId=801 done")
    )


def slurm_array() -> str:
    """Array 900_[0-3], each its own job id, 10 minutes, one node."""
    text = ctld(0, "_slurm_rpc_submit_batch_job: JobId=900 InitPrio=4294901757 usec=700")
    ids = {0: "901", 1: "902", 2: "903", 3: "900"}
    for task, job in ids.items():
        text += ctld(5 + task, f"sched: Allocate JobId=900_{task}({job}) NodeList=n{task} #CPUs=16 Partition=gpu")
    for task, job in ids.items():
        text += ctld(605 + task, f"_job_complete: JobId=900_{task}({job}) WEXITSTATUS 0")
        text += ctld(605.1 + task, f"_job_complete: JobId=900_{task}({job}) done")
    return text


def slurm_het() -> str:
    """Version 20: a het job of two components, 1 h, and a salloc that queued for 10 minutes and ran 20."""
    return (
        ctld(0, "sched: _slurm_rpc_allocate_resources JobId=1002 NodeList=(null) usec=900")
        + ctld(2, "sched: Allocate JobId=1000+0(1000) NodeList=a[1-2] #CPUs=64 Partition=gpu")
        + ctld(2, "sched: Allocate JobId=1000+1(1001) NodeList=b1 #CPUs=8 Partition=cpu")
        + ctld(600, "sched: Allocate JobId=1002 NodeList=a3 #CPUs=32 Partition=gpu")
        + ctld(1800, "_job_complete: JobId=1002 WEXITSTATUS 0")
        + ctld(1800, "_job_complete: JobId=1002 done")
        + ctld(3602, "_job_complete: JobId=1000+0(1000) WEXITSTATUS 0")
        + ctld(3602, "_job_complete: JobId=1000+0(1000) done")
        + ctld(3602.2, "_job_complete: JobId=1000+1(1001) WEXITSTATUS 0")
        + ctld(3602.2, "_job_complete: JobId=1000+1(1001) done")
    )


def slurm_node_fail() -> str:
    return (
        ctld(0, "_slurm_rpc_submit_batch_job: JobId=77 InitPrio=100 usec=400")
        + ctld(10, "sched: Allocate JobId=77 NodeList=n[1-4] #CPUs=256 Partition=gpu")
        + ctld(7210, "error: Nodes n3 not responding")
        + ctld(7390, "error: Nodes n3 not responding, setting DOWN")
        + ctld(7390.1, "requeue job JobId=77 due to failure of node n3")
        + ctld(7390.2, "Requeuing JobId=77")
        + ctld(7520, "sched: Allocate JobId=77 NodeList=n[1-2,4-5] #CPUs=256 Partition=gpu")
        + ctld(9000, "Time limit exhausted for JobId=77")
        + ctld(9000.5, "job_signal: 15 of running JobId=77 successful")
    )


def slurm_healthy_month() -> str:
    """Four hundred jobs of a busy site: users' sweeps, one minute's scheduling cycle, limits named, a few cancelled, none restarted."""
    draw = random.Random(7)
    rows: list[tuple[float, str]] = []
    for n in range(400):
        job = 5000 + n
        submit = draw.uniform(0, 20 * 86400)
        start = (submit // 60 + 1) * 60
        rows.append((submit, f"_slurm_rpc_submit_batch_job: JobId={job} InitPrio={draw.randrange(1000, 9000)} usec=500"))
        rows.append((start, f"sched/backfill: _start_job: Started JobId={job} in gpu on n{draw.randrange(40)}"))
        kind = draw.random()
        if kind < 0.1:
            rows.append((start + 7200 + draw.uniform(0, 30), f"Time limit exhausted for JobId={job}"))
        elif kind < 0.2:
            rows.append(
                (
                    start + draw.uniform(60, 7000),
                    f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={job} uid 1{draw.randrange(100):03d}",
                )
            )
        else:
            end = start + draw.lognormvariate(7.5, 1)
            code = 1 if kind < 0.35 else 0
            rows.append((end, f"_job_complete: JobId={job} WEXITSTATUS {code}"))
            rows.append((end + 0.01, f"_job_complete: JobId={job} done"))
    return "".join(ctld(t, text) for t, text in sorted(rows))


def slurm(cases: Cases) -> None:
    cases.both(
        "slurmctld 23: preempt, requeue",
        slurm_requeue_by_preemption(),
        jobs=2,
        attempts=3,
        restarted=1,
        held_h=2 * (3600 + 7200 + 1800) / 3600,
        unit="node",
    )
    cases.both("slurmctld array of 4", slurm_array(), jobs=4, attempts=4, restarted=0, held_h=4 * 600 / 3600)
    cases.analyze("slurmctld 20: het job, queued salloc", slurm_het(), restarted=0, held_h=(3 * 3600 + 1200) / 3600)
    cases.both(
        "slurmctld node failure, limit", slurm_node_fail(), jobs=1, attempts=2, restarted=1, held_h=4 * (7380 + 1480) / 3600
    )
    cases.both("slurmctld healthy month", slurm_healthy_month(), jobs=400, attempts=400, restarted=0)
    log = slurm_node_fail()
    syslog = "".join(
        f"May  6 10:{n:02d}:01 head slurmctld[881]: {line.split('] ', 1)[1]}\n" for n, line in enumerate(log.splitlines())
    )
    cases.analyze("slurmctld behind syslog, own dates off", syslog, jobs=1, attempts=2, restarted=1)

    head = "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n"
    cases.analyze("sacct default columns -P: no times", head + "1|a|gpu|x|8|COMPLETED|0:0\n", refused=True, says="Start")
    parsable = (
        "JobIDRaw|JobID|User|State|ElapsedRaw|Submit|Start|End|ReqTRES|AllocTRES|NodeList|Restarts|\n"
        "40|40|amy|CANCELLED by 1001|3600|2024-05-06T08:00:00|2024-05-06T08:30:00|2024-05-06T09:30:00|billing=8,cpu=8,gres/gpu=4,node=1|billing=8,cpu=8,gres/gpu:h100=4,gres/gpu=4,mem=8G,node=1|n1|0|\n"
        "40.batch|40.batch||CANCELLED|3601|2024-05-06T08:30:00|2024-05-06T08:30:00|2024-05-06T09:30:01||cpu=8,gres/gpu=4,mem=8G,node=1|n1|0|\n"
        "40.extern|40.extern||COMPLETED|3600|2024-05-06T08:30:00|2024-05-06T08:30:00|2024-05-06T09:30:00||cpu=8,gres/gpu=4,mem=8G,node=1|n1|0|\n"
        "40.0|40.0||FAILED|1800|2024-05-06T08:31:00|2024-05-06T08:31:00|2024-05-06T09:01:00||cpu=8,gres/gpu=4,mem=8G,node=1|n1|0|\n"
        "41|41_1|amy|OUT_OF_MEMORY|60|2024-05-06T08:00:00|2024-05-06T08:30:00|2024-05-06T08:31:00|gres/gpu=1|cpu=1,gres/gpu=1,node=1|n2|0|\n"
        "42|41_2|amy|PENDING|0|2024-05-06T08:00:00|Unknown|Unknown|gres/gpu=1|||0|\n"
        "43|43|bob|CANCELLED by 1002|0|2024-05-06T08:00:00|None|2024-05-06T09:00:00|gres/gpu=8|||0|\n"
        "44|44|bob|RUNNING|3600|2024-05-06T08:00:00|2024-05-06T09:00:00|Unknown|gres/gpu=2|cpu=1,gres/gpu=2,node=1|n3|0|\n"
    )
    cases.both("sacct -p with steps, array, pending, typed gpus", parsable, restarted=0, held_h=4 + 1 / 60 + 2)
    duplicates = (
        "JobID|State|Submit|Start|End|AllocTRES\n"
        "7|PREEMPTED|2024-05-06T08:00:00|2024-05-06T08:00:00|2024-05-06T10:00:00|gres/gpu=8,node=1\n"
        "7|NODE_FAIL|2024-05-06T10:00:00|2024-05-06T11:00:00|2024-05-06T12:00:00|gres/gpu=8,node=1\n"
        "7|REQUEUED|2024-05-06T12:00:00|2024-05-06T12:30:00|2024-05-06T13:00:00|gres/gpu=8,node=1\n"
        "7|COMPLETED|2024-05-06T13:00:00|2024-05-06T13:10:00|2024-05-06T16:10:00|gres/gpu=8,node=1\n"
        "8|BOOT_FAIL|2024-05-06T08:00:00|2024-05-06T08:00:00|2024-05-06T08:05:00|gres/gpu=8,node=1\n"
        "8|DEADLINE|2024-05-06T08:05:00|2024-05-06T08:10:00|2024-05-06T09:10:00|gres/gpu=8,node=1\n"
    )
    cases.both(
        "sacct --duplicates: every way to end",
        duplicates,
        jobs=2,
        attempts=6,
        restarted=2,
        held_h=8 * (6.5 + 65 / 60),
        discarded_h=8 * (3.5 + 5 / 60),
    )
    fixed = (
        "JobID        JobName      State               Start                 End    Elapsed  AllocTRES\n"
        "------------ ---------- ---------- ------------------- ------------------- ---------- ----------\n"
        "12345        llama-pre+  TIMEOUT   2024-05-06T08:00:00 2024-05-07T08:00:01 1-00:00:01 billing=6+\n"
        "12345.batch  batch       CANCELLED 2024-05-06T08:00:00 2024-05-07T08:00:03 1-00:00:03 cpu=8,mem+\n"
        "12346        llama-pre+ COMPLETED  2024-05-07T08:01:00 2024-05-07T10:01:00   02:00:00 billing=6+\n"
    )
    cases.both("sacct plain columns, truncated TRES", fixed, jobs=2, attempts=2, restarted=0)
    cases.analyze(
        "sacct -n with --columns",
        "3|train|FAILED|1:0|2024-05-06T08:00:00|2024-05-06T09:00:00|8\n3|train|COMPLETED|0:0|2024-05-06T09:00:10|2024-05-06T10:00:10|8\n",
        ("--columns", "JobID,JobName,State,ExitCode,Start,End,AllocCPUS"),
        jobs=1,
        attempts=2,
        restarted=1,
        held_h=16.0,
    )
    cases.analyze(
        "sacct with Elapsed, Start and no End",
        "JobID|State|Start|Elapsed|NNodes\n9|COMPLETED|2024-05-06T08:00:00|1-02:00:00|4\n10|FAILED|2024-05-06T08:00:00|00:30:00|2\n",
        jobs=2,
        attempts=2,
        restarted=0,
        held_h=26 * 4 + 1.0,
    )

    def js(job: int, states: list[str], start: int, end: int, gpus: int) -> dict[str, Any]:
        return {
            "job_id": job,
            "name": "pre",
            "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
            "het": {"job_id": 0, "job_offset": {"set": False, "infinite": False, "number": 0}},
            "state": {"current": states, "reason": "None"},
            "exit_code": {"status": ["SUCCESS"], "return_code": {"set": True, "infinite": False, "number": 0}},
            "time": {"submission": start - 60, "eligible": start - 60, "start": start, "end": end, "elapsed": max(0, end - start), "suspended": 0, "limit": {"set": True, "infinite": False, "number": 1440}},
            "tres": {
                "allocated": [{"type": "cpu", "name": "", "id": 1, "count": 8}, {"type": "node", "name": "", "id": 4, "count": 1}, {"type": "gres", "name": "gpu", "id": 1001, "count": gpus}, {"type": "gres", "name": "gpu:h100", "id": 1002, "count": gpus}],
                "requested": [],
            },
            "nodes": "n1",
            "restart_cnt": 0,
            "steps": [],
        }  # fmt: skip

    base = int(T0.timestamp())
    document = {
        "jobs": [js(1, ["NODE_FAIL"], base, base + 3600, 8), js(1, ["COMPLETED"], base + 3700, base + 7300, 8), js(2, ["RUNNING"], base, 0, 4)],
        "meta": {"plugin": {"type": "openapi/slurmdbd", "name": "x", "data_parser": "data_parser/v0.0.41"}, "slurm": {"version": {"major": "24", "micro": "1", "minor": "05"}, "release": "24.05.1"}},
        "errors": [],
        "warnings": [],
    }  # fmt: skip
    cases.both(
        "sacct --json of 24.05, typed gpus", json.dumps(document, indent=2), jobs=2, attempts=3, restarted=1, discarded_h=8.0
    )
    comp = "".join(
        f"JobId={j} UserId=amy(1000) GroupId=amy(1000) Name=run JobState={s} Partition=gpu TimeLimit=60 StartTime={iso(a)} EndTime={iso(b)} NodeList=n[1-2] NodeCnt=2 ProcCnt=64 WorkDir=/home/amy ReservationName= Tres=cpu=64,mem=100G,node=2,billing=64,gres/gpu=16 Account=a QOS=normal WcKey= Cluster=unknown SubmitTime={iso(a - 30)} EligibleTime={iso(a - 30)} DerivedExitCode=0:0 ExitCode=0:0 \n"
        for j, s, a, b in (
            (1, "COMPLETED", 0, 1800),
            (2, "TIMEOUT", 0, 3610),
            (3, "FAILED", 100, 101),
            (4, "TIMEOUT", 4000, 7605),
        )
    )
    cases.both(
        "jobcomp/filetxt with limits", comp, jobs=4, attempts=4, restarted=0, held_h=16 * (1800 + 3610 + 1 + 3605) / 3600
    )
    cases.analyze(
        "job-completion and slurmctld of the same jobs",
        {
            "slurmctld.log": ctld(0, "sched: Allocate JobId=1 NodeList=n[1-2] #CPUs=64 Partition=gpu") + ctld(1800, "_job_complete: JobId=1 WEXITSTATUS 0") + ctld(1800.1, "_job_complete: JobId=1 done"),
            "slurm_jobcomp.log": comp.splitlines()[0] + "\n",
        },
        jobs=1,
        attempts=1,
        restarted=0,
        held_h=8.0,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ PBS and LSF


def batch(cases: Cases) -> None:
    start, b = "05/06/2024", int(T0.timestamp())
    common = f"user=amy group=g project=_pbs_project_default jobname=tr queue=gpuq ctime={b} qtime={b} etime={b}"
    res = "Resource_List.ncpus=16 Resource_List.ngpus=4 Resource_List.nodect=2 Resource_List.select=2:ncpus=8:ngpus=2 Resource_List.walltime=04:00:00"
    pbs = (
        f"{start} 08:00:00;Q;31.pbs01;queue=gpuq\n"
        f"{start} 08:10:00;S;31.pbs01;{common} start={b + 600} exec_host=n1/0*8+n2/0*8 {res}\n"
        f"{start} 09:10:00;R;31.pbs01;{common} start={b + 600} exec_host=n1/0*8+n2/0*8 {res} end={b + 4200} Exit_status=-11 resources_used.walltime=01:00:00 run_count=1\n"
        f"{start} 09:20:00;S;31.pbs01;{common} start={b + 4800} exec_host=n3/0*8+n2/0*8 {res}\n"
        f"{start} 11:20:00;E;31.pbs01;{common} start={b + 4800} exec_host=n3/0*8+n2/0*8 {res} session=22 end={b + 12000} Exit_status=0 resources_used.walltime=02:00:00 run_count=2\n"
        f"{start} 08:00:00;L;license;floating license hour:0 day:0 month:0 max:0\n"
        f"{start} 11:30:00;Q;32[].pbs01;queue=gpuq\n"
        f"{start} 11:31:00;D;33.pbs01;requestor=amy@login\n"
    )
    cases.both("OpenPBS accounting, requeued, one queued", pbs, jobs=2, restarted=1, held_h=12.0, discarded_h=4.0)
    torque = (
        f"{start} 08:00:00;S;5.srv;user=bob group=g jobname=j queue=batch ctime={b} qtime={b} etime={b} start={b} owner=bob@login exec_host=n1/0-7+n2/0-7 Resource_List.neednodes=2:ppn=8:gpus=2 Resource_List.nodes=2:ppn=8:gpus=2 Resource_List.walltime=01:00:00 \n"
        f"{start} 09:00:20;E;5.srv;user=bob group=g jobname=j queue=batch ctime={b} qtime={b} etime={b} start={b} owner=bob@login exec_host=n1/0-7+n2/0-7 Resource_List.nodes=2:ppn=8:gpus=2 Resource_List.walltime=01:00:00 session=9 end={b + 3620} Exit_status=-11 resources_used.walltime=01:00:20\n"
    )  # fmt: skip
    cases.both("TORQUE accounting, gpus in nodes=", torque, jobs=1, attempts=1, restarted=0, held_h=4 * 3620 / 3600)

    def lsf(job: int, submit: int, began: int, end: int, status: int, hosts: str) -> str:
        count = len(hosts.split())
        return (
            f'"JOB_FINISH" "10.1" {end} {job} 1000 33816578 {count} {submit} 0 0 {began} "amy" "gpu" "" "" "" "login1" "/home/amy" "" "out.%J" "" "1715000000.{job}" 0 {count} {hosts} 64 100.0 "train" "python train.py" '
            f'1.0 0.1 1000 0 -1 0 0 0 0 0 0 0 -1 0 0 0 0 0 -1 "" "default" 0 {count} "" "" 0 4096 8192 "" "" "" "" 0 "" 0 "" -1 "" "" "" "" -1 "" "" {began} "" "" "" -1\n'
        )

    acct = lsf(11, b, b + 60, b + 3660, 64, '"h1" "h1" "h2" "h2"') + lsf(12, b, 0, b + 100, 32, "").replace(
        " 64 100.0", " 32 100.0"
    )
    cases.both("lsb.acct: one done, one killed while queued", acct, restarted=0, held_h=4.0)


# -------------------------------------------------------------------------------------------------------------- Kubernetes


def event(reason: str, kind: str, name: str, first: float, last: float, **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.17c{int(first):x}{reason}", "namespace": "ml", "creationTimestamp": isoz(first)},
        "involvedObject": {
            "kind": kind,
            "namespace": "ml",
            "name": name,
            "uid": f"uid-{name}",
            "fieldPath": "spec.containers{main}",
        },
        "reason": reason,
        "message": more.pop("message", reason),
        "source": {"component": "kubelet", "host": "gpu-1"},
        "firstTimestamp": isoz(first),
        "lastTimestamp": isoz(last),
        "type": "Normal",
        "count": more.pop("count", 1),
    }
    made.update(more)
    return made


def crash_loop() -> list[dict[str, Any]]:
    return [
        event("Scheduled", "Pod", "tr-0", 0, 0, message="Successfully assigned ml/tr-0 to gpu-1"),
        event("Pulled", "Pod", "tr-0", 2, 1500, count=6, message='Container image "x" already present on machine'),
        event("Created", "Pod", "tr-0", 3, 1501, count=6, message="Created container main"),
        event("Started", "Pod", "tr-0", 3, 1501, count=6, message="Started container main"),
        event(
            "BackOff",
            "Pod",
            "tr-0",
            40,
            1700,
            count=88,
            type="Warning",
            message="Back-off restarting failed container main in pod tr-0_ml(uid-tr-0)",
        ),
    ]


def kubernetes(cases: Cases) -> None:
    cases.both(
        "events -o json: CrashLoopBackOff with counts",
        json.dumps({"apiVersion": "v1", "kind": "List", "items": crash_loop(), "metadata": {"resourceVersion": ""}}, indent=4),
        jobs=1,
        attempts=6,
        restarted=1,
        stuck=1,
    )
    series = []
    for e in crash_loop():
        count = e.pop("count")
        last = e.pop("lastTimestamp")
        first = e.pop("firstTimestamp")
        obj = e.pop("involvedObject")
        e |= {
            "apiVersion": "events.k8s.io/v1",
            "regarding": obj,
            "note": e.pop("message"),
            "eventTime": first.replace("Z", ".123456Z"),
            "reportingController": "kubelet",
            "reportingInstance": "gpu-1",
            "action": "Binding",
        }
        e |= {"deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}
        if count > 1:
            e["series"] = {"count": count, "lastObservedTime": last.replace("Z", ".000000Z")}
        series.append(e)
    cases.both(
        "events.k8s.io/v1 with series",
        json.dumps({"kind": "EventList", "apiVersion": "events.k8s.io/v1", "items": series}),
        jobs=1,
        attempts=6,
        restarted=1,
        stuck=1,
    )
    plain = (
        "LAST SEEN   TYPE      REASON             OBJECT           MESSAGE\n"
        "28m         Normal    Scheduled          pod/tr-0         Successfully assigned ml/tr-0 to gpu-1\n"
        "3m          Normal    Pulled             pod/tr-0         Container image \"x\" already present on machine\n"
        "3m          Normal    Created            pod/tr-0         Created container main\n"
        "3m          Normal    Started            pod/tr-0         Started container main\n"
        "12s         Warning   BackOff            pod/tr-0         Back-off restarting failed container main in pod tr-0_ml(uid-tr-0)\n"
    )  # fmt: skip
    cases.both("kubectl get events, plain", plain, jobs=1, stuck=1)
    everywhere = (
        "NAMESPACE     LAST SEEN   TYPE      REASON              OBJECT                                MESSAGE\n"
        "kube-system   4m2s        Normal    LeaderElection      lease/kube-scheduler                  master_0 became leader\n"
        "ml            60s         Normal    Scheduled           pod/web-7d9f8c6b5-abcde               Successfully assigned ml/web-7d9f8c6b5-abcde to n1\n"
        "ml            58s         Normal    Started             pod/web-7d9f8c6b5-abcde               Started container web\n"
        "ml            61s         Normal    SuccessfulCreate    replicaset/web-7d9f8c6b5              Created pod: web-7d9f8c6b5-abcde\n"
        "ml            61s         Normal    ScalingReplicaSet   deployment/web                        Scaled up replica set web-7d9f8c6b5 to 1\n"
        "other         5m          Warning   FailedScheduling    pod/big-0                             0/5 nodes are available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod.\n"
    )
    cases.both("kubectl get events -A, one pod pending", everywhere, jobs=2, restarted=0, stuck=1)
    cells = [
        ("LAST SEEN", "TYPE", "REASON", "OBJECT", "SUBOBJECT", "SOURCE", "MESSAGE", "FIRST SEEN", "COUNT", "NAME"),
        (
            "25m",
            "Normal",
            "Scheduled",
            "pod/tr-0",
            "",
            "default-scheduler",
            "Successfully assigned ml/tr-0 to gpu-1",
            "25m",
            "1",
            "tr-0.17a",
        ),
        (
            "60s",
            "Normal",
            "Started",
            "pod/tr-0",
            "spec.containers{main}",
            "kubelet, gpu-1",
            "Started container main",
            "25m",
            "6",
            "tr-0.17b",
        ),
        (
            "20s",
            "Warning",
            "BackOff",
            "pod/tr-0",
            "spec.containers{main}",
            "kubelet, gpu-1",
            "Back-off restarting failed container main in pod tr-0_ml(u)",
            "24m",
            "88",
            "tr-0.17c",
        ),
    ]
    widths = [max(map(len, column)) + 3 for column in zip(*cells, strict=True)]
    wide = "".join("".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells)
    cases.both("kubectl get events -o wide with COUNT", wide, jobs=1, attempts=6, restarted=1, stuck=1, failures=88)
    custom = (
        "TIME                   COUNT   REASON      KIND   NAME   MSG\n"
        "2024-05-06T08:00:00Z   1       Scheduled   Pod    tr-0   Successfully assigned ml/tr-0 to gpu-1\n"
        "2024-05-06T08:25:00Z   6       Started     Pod    tr-0   Started container main\n"
        "2024-05-06T08:28:00Z   88      BackOff     Pod    tr-0   Back-off restarting failed container main\n"
    )
    cases.analyze("kubectl get events -o custom-columns", custom, jobs=1, attempts=6)
    describe = f"""Name:             tr-0
Namespace:        ml
Priority:         0
Service Account:  default
Node:             gpu-1/10.0.0.4
Start Time:       {at(0).strftime("%a, %d %b %Y %H:%M:%S +0000")}
Labels:           app=tr
Annotations:      <none>
Status:           Running
IP:               10.1.0.9
Containers:
  main:
    Container ID:  containerd://abc
    Image:         tr:1
    Command:
      torchrun
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      {at(1500).strftime("%a, %d %b %Y %H:%M:%S +0000")}
      Finished:     {at(1530).strftime("%a, %d %b %Y %H:%M:%S +0000")}
    Ready:          False
    Restart Count:  5
    Limits:
      memory:          64Gi
      nvidia.com/gpu:  8
    Requests:
      memory:          64Gi
      nvidia.com/gpu:  8
Conditions:
  Type              Status
  Initialized       True
  Ready             False
Events:
  Type     Reason     Age                  From               Message
  ----     ------     ----                 ----               -------
  Normal   Scheduled  28m                  default-scheduler  Successfully assigned ml/tr-0 to gpu-1
  Normal   Started    3m (x6 over 28m)     kubelet            Started container main
  Warning  BackOff    12s (x88 over 27m)   kubelet            Back-off restarting failed container main in pod tr-0_ml(u)
"""
    cases.both("kubectl describe pod, OOMKilled loop", describe, jobs=1, attempts=6, restarted=1, unit="accelerator", stuck=1)
    yaml = "apiVersion: v1\nitems:\n"
    for e in crash_loop():
        yaml += f"- apiVersion: v1\n  count: {e['count']}\n  eventTime: null\n  firstTimestamp: \"{e['firstTimestamp']}\"\n  involvedObject:\n    apiVersion: v1\n    fieldPath: spec.containers{{main}}\n    kind: Pod\n    name: tr-0\n    namespace: ml\n    uid: u\n  kind: Event\n  lastTimestamp: \"{e['lastTimestamp']}\"\n  message: >-\n    {e['message'].replace(': ', ' ')}\n  metadata:\n    creationTimestamp: \"{e['firstTimestamp']}\"\n    name: {e['metadata']['name']}\n    namespace: ml\n  reason: {e['reason']}\n  reportingComponent: kubelet\n  reportingInstance: gpu-1\n  source:\n    component: kubelet\n    host: gpu-1\n  type: {e['type']}\n"  # fmt: skip
    yaml += 'kind: List\nmetadata:\n  resourceVersion: ""\n'
    cases.both("events -o yaml with folded messages", yaml, jobs=1, attempts=6, restarted=1, stuck=1)
    mount = [
        event("Scheduled", "Pod", "nb-0", 0, 0, message="Successfully assigned ml/nb-0 to gpu-2"),
        event(
            "FailedMount",
            "Pod",
            "nb-0",
            30,
            7200,
            count=64,
            type="Warning",
            message='MountVolume.SetUp failed for volume "data" : secret "x" not found',
        ),
    ]
    cases.analyze(
        "events: volume never mounts",
        json.dumps({"kind": "List", "apiVersion": "v1", "items": mount}),
        jobs=1,
        restarted=0,
        stuck=1,
    )
    hpa: list[dict[str, Any]] = []
    for n, size in enumerate((4, 8, 12)):
        t = n * 7200.0
        hpa.append(
            event(
                "SuccessfulRescale",
                "HorizontalPodAutoscaler",
                "web",
                t,
                t,
                message=f"New size: {size}; reason: cpu resource utilization (percentage of request) above target",
                source={"component": "horizontal-pod-autoscaler"},
            )
        )
        hpa.append(
            event(
                "ScalingReplicaSet",
                "Deployment",
                "web",
                t + 1,
                t + 1,
                message=f"Scaled up replica set web-6f to {size} from {max(2, size - 4)}",
                source={"component": "deployment-controller"},
            )
        )
    cases.control(
        "HPA grows three times: healthy", json.dumps({"kind": "List", "apiVersion": "v1", "items": hpa}), relations=[]
    )
    flap: list[dict[str, Any]] = []
    for n in range(24):
        t = n * 300.0
        size, why = (
            (10, "cpu resource utilization (percentage of request) above target")
            if n % 2 == 0
            else (2, "All metrics below target")
        )
        flap.append(
            event(
                "SuccessfulRescale",
                "HorizontalPodAutoscaler",
                "web",
                t,
                t,
                message=f"New size: {size}; reason: {why}",
                source={"component": "horizontal-pod-autoscaler"},
            )
        )
    cases.control(
        "HPA flaps 2-10 every 5 min", json.dumps({"kind": "List", "apiVersion": "v1", "items": flap}), relations=[], regime=None
    )


# -------------------------------------------------------------------------------------------------------------- autoscalers


def klog(seconds: float, where: str, text: str) -> str:
    return at(seconds).strftime("I%m%d %H:%M:%S.%f") + f"       1 {where}] {text}\n"


def autoscalers(cases: Cases) -> None:
    healthy = ""
    for n in range(30):
        healthy += klog(n * 10, "static_autoscaler.go:274", "Starting main loop")
        healthy += klog(n * 10 + 0.2, "filter_out_schedulable.go:63", "Filtering out schedulables")
        healthy += klog(n * 10 + 0.3, "static_autoscaler.go:420", "No unschedulable pods")
        healthy += klog(n * 10 + 0.4, "static_autoscaler.go:467", "Calculating unneeded nodes")
    up = klog(400, "scale_up.go:477", "Best option to resize: asg-gpu") + klog(
        400, "scale_up.go:481", "Estimated 2 nodes needed in asg-gpu"
    )
    up += klog(400.1, "scale_up.go:601", "Final scale-up plan: [{asg-gpu 3->5 (max: 10)}]") + klog(
        400.2, "scale_up.go:700", "Scale-up: setting group asg-gpu size to 5"
    )
    cases.control("cluster-autoscaler klog: one scale-up", healthy + up, relations=[], actions_min=1)
    thrash = ""
    for n in range(16):
        t = n * 1200.0
        thrash += (
            klog(t, "orchestrator.go:186", "Best option to resize: asg-gpu")
            + klog(t + 0.1, "orchestrator.go:310", "Final scale-up plan: [{asg-gpu 3->4 (max: 10)}]")
            + klog(t + 0.2, "executor.go:147", "Scale-up: setting group asg-gpu size to 4")
        )
        thrash += klog(t + 660, "nodes.go:126", f"ip-10-0-0-{n}.ec2.internal was unneeded for 10m3.2s") + klog(t + 660.1, "actuator.go:161", f"Scale-down: removing empty node \"ip-10-0-0-{n}.ec2.internal\"") + klog(t + 661, "delete.go:103", f"Successfully added DeletionCandidateTaint on node ip-10-0-0-{n}.ec2.internal")  # fmt: skip
    cases.control("cluster-autoscaler klog: 16 x up and down", healthy + thrash, actions_min=32)

    def kp(seconds: float, message: str, **more: Any) -> str:
        return (
            json.dumps(
                {
                    "level": "INFO",
                    "time": milli(seconds) + "Z",
                    "logger": "controller",
                    "message": message,
                    "commit": "5bdf9c3",
                    **more,
                }
            )
            + "\n"
        )

    one = kp(0, "found provisionable pod(s)", controller="provisioner", Pods="ml/tr-0", duration="12ms")
    one += kp(0.1, "computed new nodeclaim(s) to fit pod(s)", controller="provisioner", nodeclaims=1, pods=1)
    one += kp(
        0.2,
        "created nodeclaim",
        controller="provisioner",
        NodePool={"name": "gpu"},
        NodeClaim={"name": "gpu-x1"},
        requests={"nvidia.com/gpu": "8"},
    )
    one += kp(
        3,
        "launched nodeclaim",
        controller="nodeclaim.lifecycle",
        NodeClaim={"name": "gpu-x1"},
        **{"instance-type": "p5.48xlarge", "zone": "us-east-1a", "capacity-type": "spot"},
    )
    one += kp(40, "registered nodeclaim", controller="nodeclaim.lifecycle", NodeClaim={"name": "gpu-x1"}, Node={"name": "ip-1"})
    one += kp(
        60, "initialized nodeclaim", controller="nodeclaim.lifecycle", NodeClaim={"name": "gpu-x1"}, Node={"name": "ip-1"}
    )
    cases.control("Karpenter JSON: one node", one, relations=[], actions=1)


# ------------------------------------------------------------------------------------------------------------- torchrun


def glog(seconds: float, level: str, where: str, text: str) -> str:
    return at(seconds).strftime(f"{level}%m%d %H:%M:%S.%f") + f" 4242 torch/distributed/elastic/{where}] {text}\n"


def elastic(seconds: float, node: int, left: int) -> str:
    text = glog(
        seconds,
        "E",
        "multiprocessing/api.py:869",
        f"failed (exitcode: -6) local_rank: {node} (pid: 99) of binary: /usr/bin/python3",
    )
    return text + glog(seconds + 0.01, "I", "agent/server/api.py:889", f"[default] Worker group FAILED. {left}/3 attempts left; will restart worker group") + glog(seconds + 0.02, "I", "agent/server/api.py:699", "[default] Stopping worker group") + glog(seconds + 3, "I", "agent/server/api.py:677", "[default] Rendezvous'ing worker group")  # fmt: skip


def rendezvous(seconds: float, count: int, node: int) -> str:
    text = glog(seconds, "I", "agent/server/api.py:525", "[default] Rendezvous complete for workers. Result:")
    for line in (
        f"restart_count={count}",
        "master_addr=n0",
        "master_port=29500",
        f"group_rank={node}",
        "group_world_size=2",
        "local_ranks=[0, 1, 2, 3, 4, 5, 6, 7]",
        "global_world_sizes=[16, 16, 16, 16, 16, 16, 16, 16]",
    ):
        text += glog(seconds, "I", "agent/server/api.py:525", "  " + line)
    return text + glog(seconds + 0.1, "I", "agent/server/api.py:533", "[default] Starting worker group")


def torchrun(cases: Cases) -> None:
    def node_log(node: int) -> str:
        text = glog(node * 0.1, "I", "agent/server/api.py:677", "[default] Rendezvous'ing worker group") + rendezvous(
            2 + node * 0.1, 0, node
        )
        text += elastic(1000 + node, node, 3) + rendezvous(1010 + node * 0.1, 1, node)
        text += elastic(1900 + node, node, 2) + rendezvous(1910 + node * 0.1, 2, node)
        return text + glog(
            5000,
            "I",
            "agent/server/api.py:870",
            "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.",
        )

    one = node_log(0)
    cases.both("torchrun one node, restart_count 0-2", one, jobs=1, attempts=3, restarted=1)
    mixed = [(line.split(" 4242 ")[0][1:], f"{n}: {line}") for n in range(2) for line in node_log(n).splitlines(keepends=True)]
    mixed.sort(key=lambda pair: pair[0])
    cases.both("torchrun two nodes under srun -l", "".join(line for _, line in mixed), jobs=1, attempts=3, restarted=1)
    stamped = "".join(f"{milli(i * 2)}456789Z {line}\n" for i, line in enumerate(one.splitlines()))
    cases.both("torchrun behind kubectl logs --timestamps", stamped, jobs=1, attempts=3, restarted=1)
    journal = "".join(
        f"May 06 08:{i // 60:02d}:{i % 60:02d} gpu-1 torchrun[4242]: {line}\n" for i, line in enumerate(one.splitlines())
    )
    cases.both("torchrun behind journald", journal, jobs=1, attempts=3, restarted=1)
    child = (
        "[2024-05-06 08:00:00,100] torch.distributed.run: [WARNING] \n"
        "[2024-05-06 08:00:00,100] torch.distributed.run: [WARNING] *****************************************\n"
        "[2024-05-06 08:00:00,100] torch.distributed.run: [WARNING] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
    )
    child += "".join(f"step {n} | loss {10 - n * 0.01:.4f} | 1.0 s/it\n" for n in range(0, 300))
    child += (
        "[rank3]:[E506 08:40:00.100 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=901, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800041 milliseconds before timing out.\n"
        "[2024-05-06 08:40:05,500] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -6) local_rank: 3 (pid: 88) of binary: /usr/bin/python\n"
        "Traceback (most recent call last):\n  File \"/usr/bin/torchrun\", line 8, in <module>\n    sys.exit(main())\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\ntrain.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  time      : 2024-05-06_08:40:05\n  host      : gpu-1\n  rank      : 3 (local_rank: 3)\n  exitcode  : -6 (pid: 88)\n  error_file: <N/A>\n  traceback : Signal 6 (SIGABRT) received by PID 88\n============================================================\n"
    )  # fmt: skip
    cases.both(
        "torchrun: NCCL watchdog timeout ends it",
        child,
        jobs=1,
        attempts=1,
        restarted=0,
        last_step=299,
        outcome_not="completed",
    )


# -------------------------------------------------------------------------------------------------------------- training


def megatron(first: int, last: int, begin: float, per: float = 10.0, every: int = 10) -> str:
    out = ""
    for n in range(first, last + 1, every):
        stamp = at(begin + (n - first) * per).strftime("%Y-%m-%d %H:%M:%S")
        out += f" [{stamp}] iteration {n:8d}/    5000 | consumed samples: {n * 512:12d} | elapsed time per iteration (ms): {per * 1000:.1f} | throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate: 1.500000E-04 | global batch size:   512 | lm loss: 4.100000E+00 | loss scale: 1.0 | grad norm: 0.400 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    return out


def training(cases: Cases) -> None:
    preamble = "using world size: 64, data-parallel size: 8, context-parallel size: 1, tensor-model-parallel size: 8, pipeline-model-parallel size: 1\n------------------------ arguments ------------------------\n"
    preamble += "".join(f"  some_argument_{n} ................................ {n}\n" for n in range(40000))
    saved = "saving checkpoint at iteration     200 to /ckpt in torch_dist format\n  successfully saved checkpoint from iteration     200 to /ckpt [ t 1/8, p 1/1 ]\n"
    first = megatron(10, 200, 0) + saved + megatron(210, 290, 2000)
    oom = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.11 GiB of which 1.00 GiB is free.\n"
    second = (
        " loading checkpoint from /ckpt at iteration 200\n  successfully loaded checkpoint from /ckpt [ t 1/8, p 1/1 ] at iteration 200\n"
        + megatron(210, 500, 4000)
    )
    cases.both(
        "Megatron: 2 MB of preamble, OOM, resumed at 200",
        {"train.out": preamble + first + oom + preamble + second},
        jobs=1,
        attempts=2,
        restarted=1,
        last_step=500,
        unit="accelerator",
        resumed=200,
    )
    two = (
        megatron(10, 500, 0)
        + "[after training is done] datetime: 2024-05-06 09:23:20\n"
        + preamble
        + megatron(10, 500, 7000)
        + "[after training is done] datetime: 2024-05-06 11:20:00\n"
    )
    cases.both("Megatron: two whole runs in one file", {"train.out": two}, restarted=0, attempts=2, last_step=500)
    nan = (
        megatron(10, 100, 0)
        .replace("number of nan iterations:   0", "number of nan iterations:   3")
        .replace("lm loss: 4.100000E+00", "lm loss: nan")
    )
    cases.both("Megatron with nan losses", {"train.out": nan}, jobs=1, attempts=1, restarted=0, last_step=100)
    deepspeed = "".join(f"[2024-05-06 08:{n // 6:02d}:{(n % 6) * 10:02d},123] [INFO] [logging.py:96:log_dist] [Rank 0] step={n * 10}, skipped=0, lr=[3e-05, 3e-05], mom=[(0.9, 0.999)]\n" f"[2024-05-06 08:{n // 6:02d}:{(n % 6) * 10:02d},124] [INFO] [timer.py:260:stop] epoch=0/micro_step={n * 40}/global_step={n * 10}, RunningAvgSamplesPerSec=30.1, CurrSamplesPerSec=31.0, MemAllocated=4.0GB, MaxMemAllocated=30GB\n" for n in range(1, 60))  # fmt: skip
    cases.both("DeepSpeed log_dist", deepspeed, jobs=1, attempts=1, restarted=0, last_step=590)
    titan = "".join(
        f"[rank0]:[titan] 2024-05-06 08:{n // 6:02d}:{(n % 6) * 10:02d},456 - root - INFO - step: {n * 10:2d}  loss:  8.1234  grad_norm:  1.0  memory: 40.1GiB(50.2%)  tps: 7,012  tflops: 400.11  mfu: 40.46%\n"
        for n in range(1, 60)
    )
    cases.both("torchtitan with torchrun rank prefix", titan, jobs=1, attempts=1, restarted=0, last_step=590)
    ansi = "".join(
        f"\x1b[32m[titan] 2024-05-06 08:{n // 6:02d}:{(n % 6) * 10:02d},456 - root - INFO - \x1b[31mstep: {n:2d}  \x1b[32mloss:  8.1234  \x1b[33mmemory: 40.1GiB(50.2%)  \x1b[34mtps: 7,012  \x1b[39m\n"
        for n in range(1, 40)
    )
    cases.both("torchtitan with colours", ansi, jobs=1, attempts=1, restarted=0, last_step=39)
    nemo = "".join(
        f"Epoch 0: :   {n}%|#         | {n}/100 [{n // 60:02d}:{n % 60:02d}<01:40, v_num=1, reduced_train_loss=9.1, global_step={n}.0, consumed_samples={n * 8}.0, train_step_timing in s=1.00]\r"
        for n in range(1, 101)
    )
    cases.both(
        "NeMo progress bar with \\r",
        "[NeMo I 2024-05-06 08:00:00 exp_manager:396] Experiments will be logged at /r\n" + nemo + "\n",
        jobs=1,
        attempts=1,
        restarted=0,
        last_step=100,
    )
    ptl = "".join(
        f"Epoch {e}:  {n}%|###       | {n}/50 [00:{n // 2:02d}<00:25,  2.00it/s, v_num=0, train_loss=0.5]\r"
        for e in range(3)
        for n in range(0, 51, 5)
    )
    cases.both(
        "Lightning 3 epochs of 50: bar starts again",
        "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1]\n" + ptl + "\n`Trainer.fit` stopped: `max_epochs=3` reached.\n",
        jobs=1,
        attempts=1,
        restarted=0,
    )
    hf = "".join(
        f"{n}%|{'#' * (n // 10)}| {n * 10}/1000 [{n // 6:02d}:{n % 6 * 10:02d}<16:40,  1.00s/it]\r"
        + (f"{{'loss': 1.2, 'grad_norm': 0.3, 'learning_rate': 5e-05, 'epoch': {n / 50:.2f}}}\n" if n % 10 == 0 else "")
        for n in range(1, 101)
    )
    cases.both(
        "HF Trainer: tqdm and dicts, done",
        hf
        + "{'train_runtime': 1000.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 1.0, 'train_loss': 1.2, 'epoch': 2.0}\n",
        jobs=1,
        attempts=1,
        restarted=0,
        last_step=1000,
        ran_s=1000.0,
    )
    evaluate = "".join(
        f"{n}%|#| {n}/300 [00:{n // 10:02d}<00:30, 10.00it/s]\r"
        + (
            "".join(f"{k * 10}%|#| {k}/10 [00:01<00:00, 9.0it/s]\r" for k in range(11))
            + "{'eval_loss': 1.1, 'eval_runtime': 1.1, 'epoch': 1.0}\n"
            if n % 100 == 0
            else ""
        )
        for n in range(1, 301)
    )
    cases.both("HF Trainer: evaluation bars between", evaluate, jobs=1, attempts=1, restarted=0, last_step=300)
    mll = ""
    for key, value, t in [
        ("cache_clear", True, 0),
        ("init_start", None, 1),
        ("submission_benchmark", "llama2_70b_lora", 2),
        ("global_batch_size", 8, 3),
        ("init_stop", None, 60),
        ("run_start", None, 61),
    ]:
        mll += f":::MLLOG {json.dumps({'namespace': '', 'time_ms': int((T0.timestamp() + t) * 1000), 'event_type': 'POINT_IN_TIME', 'key': key, 'value': value, 'metadata': {'file': 'train.py', 'lineno': 1}})}\n"
    for n in range(1, 11):
        mll += f":::MLLOG {json.dumps({'namespace': '', 'time_ms': int((T0.timestamp() + 61 + 60 * n) * 1000), 'event_type': 'POINT_IN_TIME', 'key': 'eval_accuracy', 'value': 0.93, 'metadata': {'file': 'train.py', 'lineno': 9, 'samples_count': n * 384}})}\n"
    mll += f":::MLLOG {json.dumps({'namespace': '', 'time_ms': int((T0.timestamp() + 662) * 1000), 'event_type': 'INTERVAL_END', 'key': 'run_stop', 'value': None, 'metadata': {'file': 'train.py', 'lineno': 9, 'status': 'success', 'samples_count': 3840}})}\n"
    cases.both(
        "MLPerf :::MLLOG behind a rank prefix",
        "".join(f"0: {line}\n" for line in mll.splitlines()),
        jobs=1,
        attempts=1,
        restarted=0,
        outcome="completed",
    )
    composer = "".join(
        f"2024-05-06 08:{n:02d}:00,001: rank0[88][MainThread]: INFO: llmfoundry.x: ok\n[batch={n * 10}/600]:\n\t Train time/batch: {n * 10 - 1}\n\t Train loss/train/total: 3.2\n\t Train throughput/tokens_per_sec: 1000\n"
        for n in range(1, 50)
    )
    cases.both("Composer [batch=…]", composer, jobs=1, attempts=1, restarted=0, last_step=490)
    maxtext = "".join(
        f"completed step: {n}, seconds: 2.000, TFLOP/s/device: 180.1, Tokens/s/device: 9000.1, total_weights: 65536, loss: 9.876\n"
        for n in range(0, 200)
    )
    cases.both("MaxText undated", maxtext, jobs=1, attempts=1, restarted=0, last_step=199, ran_s=400.0)
    llmc = "".join(
        f"step {n:4d}/19560 | loss 4.123456 (+0.11z)| norm 0.5000 (-0.12z)| lr 6.00e-04 | 250.00 ms | 40.1% bf16 MFU | 2000000 tok/s\n"
        for n in range(1, 401)
    )
    cases.both(
        "llm.c", "| device                | NVIDIA H100\n" + llmc, jobs=1, attempts=1, restarted=0, last_step=400, ran_s=100.0
    )
    nano = "".join(f"iter {n}: loss 3.1234, time 500.00ms, mfu 35.00%\n" for n in range(0, 300)) + "Traceback (most recent call last):\n  File \"train.py\", line 300, in <module>\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB\n"  # fmt: skip
    cases.both("nanoGPT undated, OOM traceback", nano, jobs=1, attempts=1, restarted=0, last_step=299, outcome_not="completed")
    again = (
        "".join(f"iter {n}: loss 3.1, time 500.00ms, mfu 35.00%\n" for n in range(0, 260))
        + "Resuming training from out\n"
        + "".join(f"iter {n}: loss 3.1, time 500.00ms, mfu 35.00%\n" for n in range(200, 500))
    )
    cases.both("nanoGPT undated, resumed at 200 in one file", again, jobs=1, attempts=2, restarted=1, last_step=499)
    state = {
        "best_metric": None, "epoch": 2.0, "global_step": 1000, "max_steps": 1000, "num_train_epochs": 2, "is_world_process_zero": True, "total_flos": 1.0e18,
        "log_history": [{"epoch": n / 50, "grad_norm": 0.4, "learning_rate": 5e-05, "loss": 1.1, "step": n * 10} for n in range(1, 101)] + [{"epoch": 2.0, "step": 1000, "total_flos": 1e18, "train_loss": 1.1, "train_runtime": 3600.0, "train_samples_per_second": 2.0, "train_steps_per_second": 0.28}],
    }  # fmt: skip
    cases.both(
        "trainer_state.json, done",
        {"trainer_state.json": json.dumps(state, indent=2)},
        jobs=1,
        attempts=1,
        restarted=0,
        last_step=1000,
        ran_s=3600.0,
        outcome="completed",
    )
    docker = "".join(
        json.dumps({"log": line + "\n", "stream": "stdout", "time": f"{milli(i * 10)}000000Z"}, separators=(",", ":")) + "\n"
        for i, line in enumerate(maxtext.splitlines())
    )
    cases.both("MaxText in Docker's JSON log", docker, jobs=1, attempts=1, restarted=0, last_step=199)
    ranks = "".join(f"{r}: {line}\n" for line in llmc.splitlines() for r in range(4))
    cases.both("llm.c under srun -l, 4 ranks print", ranks, jobs=1, attempts=1, restarted=0, last_step=400)
    sbatch = "srun: job 7001 queued and waiting for resources\nsrun: job 7001 has been allocated resources\n" + megatron(
        10, 100, 0
    )
    sbatch += "slurmstepd: error: *** STEP 7001.0 ON n1 CANCELLED AT 2024-05-06T08:20:00 DUE TO PREEMPTION ***\nslurmstepd: error: *** JOB 7001 ON n1 CANCELLED AT 2024-05-06T08:20:00 DUE TO PREEMPTION ***\n"
    sbatch += (
        megatron(60, 200, 3600)
        + "slurmstepd: error: *** JOB 7001 ON n1 CANCELLED AT 2024-05-06T10:00:00 DUE TO TIME LIMIT ***\n"
    )
    cases.both(
        "slurm-7001.out appended: preempted, then limit",
        {"slurm-7001.out": sbatch},
        jobs=1,
        attempts=2,
        restarted=1,
        last_step=200,
    )


# ------------------------------------------------------------------------------------------------------------------ spans


def spans(cases: Cases) -> None:
    base = int(T0.timestamp() * 1_000_000)

    def jaeger(requests: int, bad: int) -> str:
        data = []
        for n in range(requests):
            t, trace = base + n * 1_000_000, f"{n + 1:032x}"
            root = {
                "traceID": trace,
                "spanID": f"{n:08x}aaaa0001",
                "operationName": "GET /chat",
                "references": [],
                "startTime": t,
                "duration": 50_000,
                "tags": [{"key": "span.kind", "type": "string", "value": "server"}],
                "logs": [],
                "processID": "p1",
            }
            child = {
                "traceID": trace,
                "spanID": f"{n:08x}aaaa0002",
                "operationName": "query",
                "references": [{"refType": "CHILD_OF", "traceID": trace, "spanID": f"{n:08x}aaaa0001"}],
                "startTime": t + 1000,
                "duration": 40_000,
                "tags": [{"key": "span.kind", "type": "string", "value": "client"}],
                "logs": [],
                "processID": "p1",
            }
            if n < bad:
                child["tags"] = [
                    {"key": "span.kind", "type": "string", "value": "client"},
                    {"key": "error", "type": "bool", "value": True},
                    {"key": "otel.status_description", "type": "string", "value": "deadline exceeded"},
                ]
            data.append(
                {
                    "traceID": trace,
                    "spans": [root, child],
                    "processes": {"p1": {"serviceName": "gw", "tags": [{"key": "hostname", "type": "string", "value": "h1"}]}},
                    "warnings": None,
                }
            )
        return json.dumps({"data": data, "total": 0, "limit": 0, "offset": 0, "errors": None})

    cases.both("Jaeger: 40 requests, 7 with errors", {"traces.json": jaeger(40, 7)}, failed=7, spans=80)
    cases.both("Jaeger: healthy", {"traces.json": jaeger(40, 0)}, failed=0)

    def zipkin(bad: int) -> str:
        out = []
        for n in range(30):
            trace = f"{n + 1:016x}"
            out.append(
                {
                    "traceId": trace,
                    "id": trace,
                    "kind": "SERVER",
                    "name": "get /",
                    "timestamp": base + n * 500_000,
                    "duration": 30_000,
                    "localEndpoint": {"serviceName": "front", "ipv4": "10.0.0.1"},
                    "tags": {"http.path": "/"},
                }
            )
            out.append(
                {
                    "traceId": trace,
                    "parentId": trace,
                    "id": f"{n + 101:016x}",
                    "kind": "CLIENT",
                    "name": "get",
                    "timestamp": base + n * 500_000 + 500,
                    "duration": 20_000,
                    "localEndpoint": {"serviceName": "front", "ipv4": "10.0.0.1"},
                    "tags": {"error": "500"} if n < bad else {},
                }
            )
        return json.dumps(out)

    cases.both("Zipkin v2: 5 errors", {"zipkin.json": zipkin(5)}, failed=5, spans=60)

    def attribute(key: str, value: str | int) -> dict[str, Any]:
        return {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}

    def otlp(bad: int, inference: bool) -> str:
        made = []
        for n in range(30):
            t, trace = (base + n * 2_000_000) * 1000, f"{n + 1:032x}"
            kind = [attribute("openinference.span.kind", "AGENT")] if inference else []
            call = (
                [
                    attribute("openinference.span.kind", "LLM"),
                    attribute("llm.model_name", "m"),
                    attribute("llm.token_count.prompt", 100),
                    attribute("llm.token_count.completion", 20),
                ]
                if inference
                else [attribute("server.address", "db")]
            )
            made.append(
                {
                    "traceId": trace,
                    "spanId": f"{n + 1:016x}",
                    "name": "turn",
                    "kind": 1,
                    "startTimeUnixNano": str(t),
                    "endTimeUnixNano": str(t + 1_000_000_000),
                    "attributes": kind,
                    "status": {},
                }
            )
            tries = 2 if n < bad else 1
            for k in range(tries):
                failed = k == 0 and n < bad
                made.append({"traceId": trace, "parentSpanId": f"{n + 1:016x}", "spanId": f"{n * 2 + k + 1001:016x}", "name": "call", "kind": 3, "startTimeUnixNano": str(t + 10_000_000 + k * 400_000_000), "endTimeUnixNano": str(t + 310_000_000 + k * 400_000_000), "attributes": call, "status": {"code": 2, "message": "429 rate limited"} if failed else {}})  # fmt: skip
        return (
            json.dumps(
                {
                    "resourceSpans": [
                        {
                            "resource": {"attributes": [attribute("service.name", "agent"), attribute("host.name", "h")]},
                            "scopeSpans": [{"scope": {"name": "x"}, "spans": made}],
                        }
                    ]
                }
            )
            + "\n"
        )

    cases.analyze("OTLP: 6 calls fail and are tried again", {"otlp.jsonl": otlp(6, False)}, failed=6, spans=66, redundant=6)
    cases.analyze(
        "OpenInference in OTLP: 4 rate limits, retried", {"otlp.jsonl": otlp(4, True)}, failed=4, spans=64, redundant=4
    )
    cases.control("OTLP: healthy", {"otlp.jsonl": otlp(0, False)}, relations=[])

    def langfuse(bad: int) -> str:
        rows: list[dict[str, Any]] = []
        for n in range(20):
            rows.append(
                {
                    "id": f"s{n}",
                    "traceId": f"t{n}",
                    "type": "SPAN",
                    "name": "agent",
                    "startTime": milli(n * 10) + "Z",
                    "endTime": milli(n * 10 + 5) + "Z",
                    "parentObservationId": None,
                    "level": "DEFAULT",
                    "statusMessage": None,
                    "metadata": {},
                }
            )
            rows.append(
                {
                    "id": f"g{n}",
                    "traceId": f"t{n}",
                    "type": "GENERATION",
                    "name": "chat",
                    "model": "m-1",
                    "startTime": milli(n * 10 + 1) + "Z",
                    "endTime": milli(n * 10 + 4) + "Z",
                    "parentObservationId": f"s{n}",
                    "level": "ERROR" if n < bad else "DEFAULT",
                    "statusMessage": "context length exceeded" if n < bad else None,
                    "usage": {"input": 100, "output": 10, "total": 110, "unit": "TOKENS"},
                }
            )
        return json.dumps({"data": rows, "meta": {"page": 1, "limit": 50, "totalItems": 40, "totalPages": 1}})

    cases.both("Langfuse observations: 3 errors", {"langfuse.json": langfuse(3)}, failed=3, spans=40)


# ------------------------------------------------------------------------------------------------------------ second round


def pasted(cases: Cases) -> None:
    """Scheduler logs as they are pasted: with a prompt, fences, Windows line ends, other delimiters, other versions."""
    table = (
        "JobID|JobName|State|Submit|Start|End|AllocTRES\n"
        "7|tr|NODE_FAIL|2024-05-06T08:00:00|2024-05-06T08:00:00|2024-05-06T10:00:00|billing=8,gres/gpu:a100=8,node=1\n"
        "7|tr|COMPLETED|2024-05-06T10:00:00|2024-05-06T10:30:00|2024-05-06T12:30:00|billing=8,gres/gpu:a100=8,node=1\n"
    )
    truth: dict[str, Any] = {"jobs": 1, "attempts": 2, "restarted": 1, "held_h": 32.0, "discarded_h": 16.0}
    cases.analyze(
        "sacct pasted with its prompt",
        "amy@login01:~$ sacct -j 7 --duplicates -P -o JobID,JobName,State,Submit,Start,End,AllocTRES\n"
        + table
        + "amy@login01:~$ \n",
        **truth,
    )
    cases.analyze("sacct pasted in a fence", "```\n" + table + "```\n", **truth)
    cases.analyze("sacct with CRLF and a BOM", "\ufeff" + table.replace("\n", "\r\n"), **truth)
    cases.analyze(
        "sacct --delimiter=, (typed gpus only)",
        table.replace("billing=8,gres/gpu:a100=8,node=1", "gres/gpu:a100=8").replace("|", ","),
        **truth,
    )
    seconds = table
    for hour in (8, 10, 12):
        for minute in (0, 30):
            seconds = seconds.replace(
                f"2024-05-06T{hour:02d}:{minute:02d}:00", str(int(T0.timestamp()) + (hour - 8) * 3600 + minute * 60)
            )
    cases.analyze("sacct with SLURM_TIME_FORMAT=%s", seconds, **truth)
    het = (
        "JobID|State|Start|End|AllocTRES\n"
        "50+0|COMPLETED|2024-05-06T08:00:00|2024-05-06T09:00:00|gres/gpu=8,node=2\n"
        "50+0.batch|COMPLETED|2024-05-06T08:00:00|2024-05-06T09:00:00|gres/gpu=8,node=2\n"
        "50+1|COMPLETED|2024-05-06T08:00:00|2024-05-06T09:00:00|gres/gpu=2,node=1\n"
        "60_[3-10%2]|PENDING|Unknown|Unknown|\n"
        "60_1|COMPLETED|2024-05-06T08:00:00|2024-05-06T09:00:00|gres/gpu=1,node=1\n"
        "60_2|FAILED|2024-05-06T08:00:00|2024-05-06T08:30:00|gres/gpu=1,node=1\n"
    )
    cases.both("sacct het job and a pending array", het, restarted=0, held_h=11.5)
    old = {
        "meta": {"plugin": {"type": "openapi/dbv0.0.37"}, "Slurm": {"version": {"major": 21, "micro": 8, "minor": 8}, "release": "21.08.8"}},
        "errors": [],
        "jobs": [
            {"job_id": 9, "name": "t", "state": {"current": s, "reason": "None"}, "exit_code": {"status": "SUCCESS", "return_code": 0},
             "time": {"elapsed": 3600, "eligible": b, "end": b + 3600, "start": b, "submission": b - 10, "suspended": 0, "limit": 120},
             "tres": {"allocated": [{"type": "node", "name": None, "id": 4, "count": 1}, {"type": "gres", "name": "gpu", "id": 1001, "count": 2}], "requested": []}, "nodes": "n1", "steps": []}
            for s, b in (("PREEMPTED", int(T0.timestamp())), ("COMPLETED", int(T0.timestamp()) + 4000))
        ],
    }  # fmt: skip
    cases.both("sacct --json of 21.08", json.dumps(old), jobs=1, attempts=2, restarted=1, held_h=4.0, discarded_h=2.0)
    mixed = (
        ctld(0, "sched: _slurm_rpc_allocate_resources JobId=55 NodeList=n1 usec=500")
        + ctld(1, "_slurm_rpc_submit_batch_job: JobId=60 InitPrio=1 usec=9")
        + ctld(600, "_job_complete: JobId=55 WTERMSIG 9")
        + ctld(600, "_job_complete: JobId=55 done")
        + ctld(700, "_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=60 uid 1000")
        + ctld(800, "_slurm_rpc_submit_batch_job: JobId=61 InitPrio=1 usec=9")
        + ctld(801, "sched: Allocate JobId=61 NodeList=n[1-2] #CPUs=8 Partition=p")
        + ctld(1401, "_job_complete: JobId=61 OOM failure")
        + ctld(1401, "_job_complete: JobId=61 done")
        + ctld(1500, "_slurm_rpc_submit_batch_job: JobId=62 InitPrio=1 usec=9")
        + ctld(1501, "sched: Allocate JobId=62 NodeList=n3 #CPUs=8 Partition=p")
        + ctld(1560, "_slurm_rpc_requeue: Processing RPC: REQUEST_JOB_REQUEUE from uid=0")
        + ctld(1560.1, "_slurm_rpc_requeue: requeue JobId=62: No error")
        + ctld(1700, "sched: Allocate JobId=62 NodeList=n3 #CPUs=8 Partition=p")
        + ctld(1760, "_job_complete: JobId=62 WEXITSTATUS 0")
        + ctld(1760, "_job_complete: JobId=62 done")
    )
    cases.both(
        "slurmctld srun, killed while queued, OOM, scontrol requeue",
        mixed,
        restarted=1,
        held_h=(600 + 2 * 600 + 59 + 60) / 3600,
    )
    sweep = "JobID|State|Submit|Start|End|Timelimit|AllocTRES\n"
    draw = random.Random(3)
    for n in range(300):
        start = (n // 20) * 7300 + draw.randrange(3)
        state, length = (
            ("TIMEOUT", 7200 + draw.randrange(25))
            if draw.random() < 0.4
            else ("COMPLETED", draw.randrange(3000, 7100))
            if draw.random() < 0.8
            else ("FAILED", draw.randrange(1, 4))
        )
        sweep += f"90_{n}|{state}|{iso(0)}|{iso(start)}|{iso(start + length)}|02:00:00|cpu=8,gres/gpu=1,node=1\n"
    cases.both("sacct: sweep of 300 under a named limit, healthy", sweep, jobs=300, attempts=300, restarted=0)
    cron = "JobID|JobName|State|Submit|Start|End|AllocTRES\n" + "".join(
        f"{100 + n}|sleep|COMPLETED|{iso(n * 3600)}|{iso(n * 3600 + 2)}|{iso(n * 3600 + 1802)}|gres/gpu=1\n" for n in range(200)
    )
    cases.both("sacct: hourly cron of equal lengths, healthy", cron, jobs=200, attempts=200, restarted=0, held_h=100.0)


def cluster(cases: Cases) -> None:
    """More of what kubectl prints."""
    new = (
        "LAST SEEN               TYPE      REASON      OBJECT     MESSAGE\n"
        "28m                     Normal    Scheduled   Pod/tr-0   Successfully assigned ml/tr-0 to gpu-1\n"
        "3m (x6 over 28m)        Normal    Started     Pod/tr-0   Started container main\n"
        "12s (x88 over 27m)      Warning   BackOff     Pod/tr-0   Back-off restarting failed container main in pod tr-0_ml(u)\n"
    )
    cases.both(
        "kubectl events (x6 over 28m)",
        "$ kubectl events -n ml --for pod/tr-0\n" + new,
        jobs=1,
        attempts=6,
        restarted=1,
        stuck=1,
    )
    pods = "NAME                   READY   STATUS             RESTARTS        AGE\ntr-0                   0/1     CrashLoopBackOff   9 (2m3s ago)    25m\nweb-7d9f8c6b5-abcde    1/1     Running            0               3d\n"
    cases.analyze("kubectl get pods", pods, refused=True, says="kubectl get")
    retry: list[dict[str, Any]] = []
    for n, name in enumerate(("tr-aaaaa", "tr-bbbbb", "tr-ccccc")):
        t = n * 1000.0
        retry.append(
            event("SuccessfulCreate", "Job", "tr", t, t, message=f"Created pod: {name}", source={"component": "job-controller"})
        )
        retry.append(
            event(
                "Scheduled",
                "Pod",
                name,
                t + 1,
                t + 1,
                message=f"Successfully assigned ml/{name} to gpu-{n}",
                source={"component": "default-scheduler"},
            )
        )
        retry.append(event("Started", "Pod", name, t + 5, t + 5, message="Started container main"))
    retry.append(
        event(
            "BackoffLimitExceeded",
            "Job",
            "tr",
            2900,
            2900,
            type="Warning",
            message="Job has reached the specified backoff limit",
            source={"component": "job-controller"},
        )
    )
    cases.both(
        "events of a Job: 3 pods in turn, limit reached",
        json.dumps({"kind": "List", "apiVersion": "v1", "items": retry}),
        jobs=1,
        attempts=3,
        restarted=1,
        outcome_not="completed",
    )
    done = [
        event("SuccessfulCreate", "Job", "ok", 0, 0, message="Created pod: ok-aaaaa", source={"component": "job-controller"}),
        event(
            "Scheduled",
            "Pod",
            "ok-aaaaa",
            1,
            1,
            message="Successfully assigned ml/ok-aaaaa to gpu-1",
            source={"component": "default-scheduler"},
        ),
        event("Started", "Pod", "ok-aaaaa", 5, 5, message="Started container main"),
        event("Completed", "Job", "ok", 3605, 3605, message="Job completed", source={"component": "job-controller"}),
    ]
    cases.both(
        "events of a Job that completed",
        json.dumps({"kind": "List", "apiVersion": "v1", "items": done}),
        jobs=1,
        attempts=1,
        restarted=0,
        outcome="completed",
        stuck=0,
    )
    probe = [
        event("Started", "Pod", "web-6f-x", 0, 0, message="Started container web"),
        event(
            "Unhealthy",
            "Pod",
            "web-6f-x",
            30,
            4000,
            count=12,
            type="Warning",
            message="Readiness probe failed: HTTP probe failed with statuscode: 503",
        ),
    ]
    cases.both(
        "events: readiness probe fails, nothing restarts",
        json.dumps({"kind": "List", "apiVersion": "v1", "items": probe}),
        attempts=1,
        restarted=0,
    )
    init = [
        event("Scheduled", "Pod", "ds-0", 0, 0, message="Successfully assigned ml/ds-0 to gpu-1"),
        event("Pulling", "Pod", "ds-0", 1, 2000, count=4, message='Pulling image "reg/x:bad"'),
        event("Failed", "Pod", "ds-0", 2, 2001, count=4, type="Warning", message="Error: ErrImagePull"),
        event("BackOff", "Pod", "ds-0", 3, 2500, count=30, type="Warning", message='Back-off pulling image "reg/x:bad"'),
        event("Failed", "Pod", "ds-0", 4, 2500, count=30, type="Warning", message="Error: ImagePullBackOff"),
    ]
    cases.both(
        "events: ImagePullBackOff never starts",
        json.dumps({"kind": "List", "apiVersion": "v1", "items": init}),
        jobs=1,
        restarted=0,
        stuck=1,
    )


def frameworks(cases: Cases) -> None:
    """Training logs whose counters begin anew for good reasons, and more frameworks."""
    one: dict[str, Any] = {"jobs": 1, "attempts": 1, "restarted": 0}
    timm = "".join(
        f"Train: {e} [{n:>4}/1251 ({n * 100 // 1250:>3}%)]  Loss: 6.9 (6.9)  Time: 0.500s, 2048.00/s  (0.500s, 2048.00/s)  LR: 1.0e-06  Data: 0.010 (0.020)\n"
        for e in range(3)
        for n in range(0, 1251, 50)
    )
    cases.both("timm: three epochs", timm, **one)
    imagenet = "".join(
        f"Epoch: [{e}][{n:>4}/5005]\tTime  0.500 ( 0.600)\tData  0.010 ( 0.020)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.10)\n"
        for e in range(3)
        for n in range(0, 5005, 100)
    )
    cases.both("imagenet example: three epochs", imagenet, **one)
    keras = "".join(
        f"Epoch {e}/3\n100/100 [==============================] - 5s 50ms/step - loss: 1.0 - accuracy: 0.5\n"
        for e in range(1, 4)
    )
    cases.both("Keras: three epochs", keras, **one)
    mm = "".join(
        f"2024/05/06 08:{e * 10 + n // 10:02d}:00 - mmengine - INFO - Epoch(train) [{e}][{n}/100]  lr: 1.0e-02  eta: 0:10:00  time: 6.0  data_time: 0.01  memory: 900  loss: 1.0\n"
        for e in range(1, 4)
        for n in range(10, 101, 10)
    )
    cases.both("mmengine: three epochs", mm, **one)
    nano = ""
    for n in range(0, 1001):
        nano += f"step {n}: train loss 4.1234, val loss 4.2345\nsaving checkpoint to out\n" if n % 250 == 0 else ""
        nano += f"iter {n}: loss 4.1234, time 500.00ms, mfu 35.00%\n"
    cases.both("nanoGPT with its evaluations", nano, **one, last_step=1000)
    detectron = "".join(
        f"[05/06 08:{n // 60:02d}:{n % 60:02d} d2.utils.events]:  eta: 1:00:00  iter: {n}  total_loss: 1.2  loss_cls: 0.5    time: 1.0000  last_time: 1.0  data_time: 0.01  lr: 0.001  max_mem: 5000M\n"
        for n in range(19, 600, 20)
    )
    cases.both("detectron2", detectron, **one, last_step=599)
    olmo = "".join(
        f"2024-05-06 08:{n // 60:02d}:{n % 60:02d}.123\tgpu-1:0\tolmo.train:967\tINFO\t[step={n}/1000,epoch=0]\n    optim/total_grad_norm=0.5\n    train/CrossEntropyLoss=3.1\n    throughput/total_tokens=1,000\n"
        for n in range(1, 300)
    )
    cases.both("OLMo", olmo, **one, last_step=299)
    litgpt = "".join(
        f"Epoch 1 | iter {n} step {n // 4} | loss train: 1.234, val: n/a | iter time: 300.00 ms{' (step)' if n % 4 == 0 else ''}\n"
        for n in range(1, 401)
    )
    cases.both("LitGPT: iter and step", litgpt, **one)
    tune = "".join(
        f"1|{n}|Loss: 1.2345:  {n}%|#| {n}/100 [{n // 60:02d}:{n % 60:02d}<01:40,  1.00s/it]\r" for n in range(1, 101)
    )
    cases.both("torchtune bar", tune, **one, last_step=100)
    fairseq = "".join(
        f"2024-05-06 08:{n // 600:02d}:{n // 10 % 60:02d} | INFO | train_inner | epoch {1 + n // 500:03d}:    {n % 500} / 500 loss=9.1, ppl=500, wps=10000, ups=1, wpb=9000, bsz=32, num_updates={n}, lr=0.0001, gnorm=1, train_wall=100, wall=120\n"
        for n in range(100, 1500, 100)
    )
    cases.both("fairseq train_inner, three epochs", fairseq, **one, last_step=1400)
    ray = "".join(
        f"\x1b[36m(RayTrainWorker pid=1234, ip=10.0.0.{r})\x1b[0m iter {n}: loss 3.1, time 500.00ms, mfu 35.00%\n"
        for n in range(0, 200)
        for r in (1, 2)
    )
    cases.both("Ray Train prefix, two workers print", ray, **one, last_step=199)
    overflow = "".join(
        f"[2024-05-06 08:{n // 60:02d}:{n % 60:02d},123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768\n[2024-05-06 08:{n // 60:02d}:{n % 60:02d},124] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped={n // 2}, lr=[3e-05], mom=[[0.9, 0.95]]\n"
        for n in range(1, 100)
    )
    overflow += "[2024-05-06 08:02:00,000] [INFO] [launch.py:347:main] Process 4242 exits successfully.\n"
    cases.both("DeepSpeed with overflows, exits successfully", overflow, **one, last_step=99)
    resumed = "".join(f"{n}%|#| {n * 10}/1000 [{n - 40:02d}:00<60:00,  6.00s/it]\r" for n in range(40, 60)) + "\n"
    cases.both(
        "HF Trainer resumed at 400: one attempt",
        "Continuing training from checkpoint, will skip to saved global_step\n  Continuing training from global step 400\n"
        + resumed,
        **one,
        last_step=590,
    )
    midnight = "".join(
        f"{(86390 + n) // 3600 % 24:02d}:{(86390 + n) // 60 % 60:02d}:{(86390 + n) % 60:02d} | INFO | step {n} | loss 3.1\n"
        for n in range(0, 60)
    )
    cases.both("clock without a date over midnight", midnight, **one, last_step=59)
    lines = "".join(json.dumps({"step": n, "loss": 3.1, "timestamp": isoz(n * 10)}) + "\n" for n in range(1, 100))
    cases.both("JSON lines of step and loss, dated", {"metrics.jsonl": lines}, **one, last_step=99)
    early = "".join(
        f"INFO:torch.distributed.elastic.agent.server.api:[default] {t}\n"
        for t in (
            "Starting worker group",
            "Worker group FAILED. 3/3 attempts left; will restart worker group",
            "Stopping worker group",
            "Rendezvous'ing worker group",
            "Rendezvous complete for workers. Result:",
        )
    )
    early += "  restart_count=1\n  master_addr=127.0.0.1\n  global_world_sizes=[4, 4, 4, 4]\n\nINFO:torch.distributed.elastic.agent.server.api:[default] Starting worker group\nINFO:torch.distributed.elastic.agent.server.api:[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.\n"
    cases.both("torchelastic 1.9, undated", early, jobs=1, attempts=2, restarted=1)
    scale = rendezvous(2, 0, 0) + glog(600, "I", "agent/server/api.py:900", "[default] Detected 1 new nodes from group_rank=0; will restart worker group") + glog(601, "I", "agent/server/api.py:699", "[default] Stopping worker group") + rendezvous(610, 1, 0).replace("restart_count=1", "restart_count=0") + glog(4000, "I", "agent/server/api.py:870", "[default] worker group successfully finished. Waiting 300 seconds for other agents to finish.")  # fmt: skip
    cases.analyze("torchrun: a node joins, no failure", scale, jobs=1, attempts=2, outcome="completed")
    dmesg = "".join(f"[{n}.123456] NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, GPU has fallen off the bus.\n" for n in range(5))
    cases.analyze("dmesg: no job log", dmesg, refused=True, says="log.txt")


# ------------------------------------------------------------------------------------------------------------- third round


def more_schedulers(cases: Cases) -> None:
    log = slurm_requeue_by_preemption()
    truth: dict[str, Any] = {"jobs": 2, "attempts": 3, "restarted": 1, "held_h": 7.0}
    cases.analyze(
        "slurmctld behind grep's file names",
        "".join(f"/var/log/slurm/slurmctld.log:{line}\n" for line in log.splitlines()),
        **truth,
    )
    cases.analyze(
        "slurmctld behind grep -n", "".join(f"{7 * n + 12000}:{line}\n" for n, line in enumerate(log.splitlines())), **truth
    )
    b, day = int(T0.timestamp()), "05/06/2024"
    array = ""
    for n in range(1, 4):
        keys = f"user=amy group=g project=_pbs_project_default jobname=sweep queue=gpuq ctime={b} qtime={b} etime={b} start={b + n} exec_host=n{n}/0*8 Resource_List.ncpus=8 Resource_List.ngpus=1 Resource_List.select=1:ncpus=8:ngpus=1"
        array += f"{day} 08:00:0{n};S;40[{n}].pbs01;{keys}\n{day} 09:00:0{n};E;40[{n}].pbs01;{keys} session=1 end={b + n + 3600} Exit_status={271 if n == 3 else 0} resources_used.walltime=01:00:00 run_count=1\n"
    cases.both("OpenPBS array of 3", array, jobs=3, attempts=3, restarted=0, held_h=3.0)
    held = [(0.0, "COMPLETED", 3600.0), (4000.0, "TIMEOUT", 3600.0)]
    for what, name in (("blanks in a job's name", "my job"), ("a job's name not in ASCII, padded by bytes", "größe")):
        head = (
            "JobID".ljust(12),
            *map(
                str.rjust, ("JobName", "Account", "State", "ExitCode", "Start", "End", "AllocTRES"), (10, 10, 10, 8, 19, 19, 30)
            ),
        )
        text = " ".join(head) + " \n" + " ".join("-" * n for n in (12, 10, 10, 10, 8, 19, 19, 30)) + " \n"
        for n, (start, state, length) in enumerate(held):
            padded = " " * (10 - len(name.encode())) + name
            text += f"{70 + n:<12} {padded} {'acct':>10} {state:>10} {'0:0':>8} {iso(start)} {iso(start + length)} {'billing=4,gres/gpu=4,node=2':>30} \n"
        cases.both(f"sacct plain, {what}", text, jobs=2, attempts=2, restarted=0, held_h=8.0)
    cases.analyze(
        "sacct --json with a BOM (saved by PowerShell)",
        "\ufeff" + json.dumps({"jobs": [], "meta": {"plugin": {"type": "x"}}, "errors": []}),
        refused=True,
        says="job",
    )


def more_pods(cases: Cases) -> None:
    def listed(items: list[dict[str, Any]]) -> str:
        return json.dumps({"kind": "List", "apiVersion": "v1", "items": items})

    gang: list[dict[str, Any]] = []
    for n in range(4):
        name = f"tr-{n}-x7k2{'abcd'[n]}"
        gang.append(
            event("SuccessfulCreate", "Job", "tr", 0, 0, message=f"Created pod: {name}", source={"component": "job-controller"})
        )
        gang.append(
            event(
                "Scheduled",
                "Pod",
                name,
                1,
                1,
                message=f"Successfully assigned ml/{name} to gpu-{n}",
                source={"component": "default-scheduler"},
            )
        )
        gang.append(event("Started", "Pod", name, 5, 5, message="Started container main"))
    gang.append(event("Completed", "Job", "tr", 3601, 3601, message="Job completed", source={"component": "job-controller"}))
    cases.both(
        "events of an indexed Job of 4, healthy", listed(gang), jobs=1, attempts=1, restarted=0, outcome="completed", held_h=4.0
    )
    preempted = [
        event(
            "Scheduled",
            "Pod",
            "tr-0",
            0,
            0,
            message="Successfully assigned ml/tr-0 to gpu-1",
            source={"component": "default-scheduler"},
        ),
        event("Started", "Pod", "tr-0", 2, 2, message="Started container main"),
        event(
            "Preempted",
            "Pod",
            "tr-0",
            1800,
            1800,
            message="Preempted by pod 1b2c on node gpu-1",
            source={"component": "default-scheduler"},
        ),
        event("Killing", "Pod", "tr-0", 1801, 1801, message="Stopping container main"),
        event(
            "Scheduled",
            "Pod",
            "tr-0",
            2400,
            2400,
            message="Successfully assigned ml/tr-0 to gpu-2",
            source={"component": "default-scheduler"},
        ),
        event("Started", "Pod", "tr-0", 2402, 2402, message="Started container main"),
    ]
    preempted[4]["involvedObject"]["uid"] = preempted[5]["involvedObject"]["uid"] = "second"
    cases.both("events of a StatefulSet's pod: preempted, again", listed(preempted), jobs=1, attempts=2, restarted=1, stuck=0)
    lost = [
        *preempted[:2],
        event(
            "NodeNotReady",
            "Pod",
            "tr-0",
            900,
            900,
            type="Warning",
            message="Node is not ready",
            source={"component": "node-controller"},
        ),
        event(
            "TaintManagerEviction",
            "Pod",
            "tr-0",
            1200,
            1200,
            message="Marking for deletion Pod ml/tr-0",
            source={"component": "taint-eviction-controller"},
        ),
        *preempted[4:],
    ]
    cases.both("events: node lost, pod evicted, again", listed(lost), jobs=1, attempts=2, restarted=1, stuck=0)
    rollout: list[dict[str, Any]] = []
    for n in range(3):
        rollout.append(
            event(
                "ScalingReplicaSet",
                "Deployment",
                "web",
                10 + 20 * n,
                10 + 20 * n,
                message=f"Scaled up replica set web-new to {n + 1} from {n}",
                source={"component": "deployment-controller"},
            )
        )
        rollout.append(
            event(
                "ScalingReplicaSet",
                "Deployment",
                "web",
                20 + 20 * n,
                20 + 20 * n,
                message=f"Scaled down replica set web-old to {2 - n} from {3 - n}",
                source={"component": "deployment-controller"},
            )
        )
    cases.control("a rolling update: healthy", listed(rollout), relations=[])


def more_training(cases: Cases) -> None:
    one: dict[str, Any] = {"jobs": 1, "attempts": 1, "restarted": 0}
    early = "".join(
        f"[rank{r}]: 2024-05-06 08:{s // 60:02d}:{s % 60:02d} step {s - (r and s % 2)} loss 3.1\n"
        for s in range(2, 300)
        for r in (0, 1)
    )
    cases.both("two ranks print, one a step behind", early, **one, last_step=299)
    shown = "".join(
        f"Epoch 0:  {n}%|#| {n}/100 [00:{n // 2:02d}<00:50,  2.00it/s, v_num=0]\r"
        + (
            "".join(f"Validation DataLoader 0: {k * 10}%|#| {k}/10 [00:00<00:00, 30.0it/s]\r" for k in range(11))
            if n % 25 == 0
            else ""
        )
        for n in range(1, 101)
    )
    cases.both("Lightning with validation bars", shown + "\n", **one, last_step=100)
    quiet = ""
    for start, end in ((0, 120), (100, 250), (200, 400)):
        quiet += "".join(f"iter {n}: loss 3.1, time 500.00ms, mfu 35.00%\n" for n in range(start, end))
        quiet += (
            glog(
                end * 10,
                "E",
                "multiprocessing/api.py:869",
                "failed (exitcode: 1) local_rank: 2 (pid: 99) of binary: /usr/bin/python3",
            )
            if end < 400
            else ""
        )
    cases.both("torchrun at its default level: 2 restarts", quiet, jobs=1, attempts=3, restarted=1, last_step=399)
    runs = ""
    for k in range(2):
        for key, t, more in (("run_start", 0, {}), ("run_stop", 600, {"status": "success"})):
            runs += f":::MLLOG {json.dumps({'namespace': '', 'time_ms': int((T0.timestamp() + k * 1000 + t) * 1000), 'event_type': 'INTERVAL_START', 'key': key, 'value': None, 'metadata': {'file': 't.py', 'lineno': 1, **more}})}\n"
    cases.both("MLPerf: two runs in a file", runs, restarted=0, jobs=2, attempts=2, outcome="completed")
    crash = (
        megatron(10, 200, 0)
        + "srun: error: n3: task 24: Exited with exit code 1\nsrun: Terminating StepId=7001.0\nslurmstepd: error: *** STEP 7001.0 ON n1 CANCELLED AT 2024-05-06T08:40:00 ***\nsrun: Force Terminated StepId=7001.0\n"
    )
    cases.both(
        "Megatron: srun ends it after a task failed", {"slurm-7001.out": crash}, **one, last_step=200, outcome_not="completed"
    )
    noisy = "".join(
        f"gpu-1:4242:4300 [{n % 8}] NCCL INFO Channel 00/0 : {n % 8}[{n % 8}] -> {(n + 1) % 8}[{(n + 1) % 8}] via P2P/CUMEM\n"
        for n in range(20000)
    ) + megatron(10, 100, 0)
    cases.both("Megatron behind 20,000 lines of NCCL INFO", {"train.out": noisy}, **one, last_step=100)
    rewound = megatron(10, 300, 0) + megatron(310, 400, 10000) + " > rewinding\n"
    cases.both("Megatron: two hours' pause, no restart", {"train.out": rewound}, **one, last_step=400)
    llama = "".join(
        f"[INFO|trainer.py:2100] 2024-05-06 08:{n:02d}:00,123 >> step\n{{'loss': 1.2, 'learning_rate': 5e-05, 'epoch': {n / 10:.1f}}}\n"
        for n in range(1, 31)
    )
    cases.both(
        "HF dicts with epochs only",
        llama + "{'train_runtime': 1800.0, 'train_loss': 1.2, 'epoch': 3.0}\n",
        **one,
        outcome="completed",
    )


def more_spans(cases: Cases) -> None:
    base = int(T0.timestamp() * 1e9)
    made: list[dict[str, Any]] = []
    for n in range(20):
        for depth in range(3):
            made.append({"traceId": f"{n + 1:032x}", "spanId": f"{n * 3 + depth + 1:016x}", "parentSpanId": f"{n * 3 + depth:016x}" if depth else "", "name": ("http", "agent", "llm")[depth], "kind": 2 if depth == 0 else 1, "startTimeUnixNano": str(base + n * 10**9 + depth * 10**6), "endTimeUnixNano": str(base + n * 10**9 + 10**8 - depth * 10**6), "attributes": [], "status": {"code": "STATUS_CODE_ERROR", "message": "boom"} if n < 3 else {"code": "STATUS_CODE_UNSET"}})  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "gw"}}]}
    cases.both(
        "OTLP: 3 errors passed up three levels",
        {"otlp.json": json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": made}]}]})},
        failed=9,
        began=3,
        spans=60,
    )


def fourth_round(cases: Cases) -> None:
    """Further ways to save and paste what the rounds before hold."""
    table = (
        "JobID|JobName|State|Submit|Start|End|AllocTRES\n"
        "7|tr|NODE_FAIL|2024-05-06T08:00:00|2024-05-06T08:00:00|2024-05-06T10:00:00|billing=8,gres/gpu:a100=8,node=1\n"
        "7|tr|COMPLETED|2024-05-06T10:00:00|2024-05-06T10:30:00|2024-05-06T12:30:00|billing=8,gres/gpu:a100=8,node=1\n"
    )
    truth: dict[str, Any] = {"jobs": 1, "attempts": 2, "restarted": 1, "held_h": 32.0, "discarded_h": 16.0}
    cases.analyze("sacct saved by PowerShell as UTF-16", {"log.txt": table}, encoding="utf-16", **truth)
    cases.analyze("sacct behind root's prompt", "[root@head ~]# sacct -j 7 -D -P\n" + table, **truth)
    cases.analyze("sacct whose Start is cut", table.replace("T10:30:00|", "T10:3|"), jobs=1, attempts=2, noted=1)
    log = slurm_requeue_by_preemption().splitlines()
    rotated = "".join(f"slurmctld.log:{line}\n" for line in log[6:]) + "".join(f"slurmctld.log.1:{line}\n" for line in log[:6])
    cases.analyze("slurmctld, zgrep over rotated logs", rotated, jobs=2, attempts=3, restarted=1, held_h=7.0)
    cases.analyze(
        "kubectl: No resources found", "No resources found in ml namespace.\n", refused=True, says="No resources found"
    )
    wide = (
        "LAST SEEN   TYPE      REASON    OBJECT     SUBOBJECT               SOURCE           MESSAGE                  FIRST SEEN   COUNT   NAME\n"
        "3m Normal Started pod/tr-0 spec.containers{main} kubelet, gpu-1 Started container main 25m 6 tr-0.17c\n"
        "2s Warning BackOff pod/tr-0 spec.containers{main} kubelet, gpu-1 Back-off restarting failed container main 24m 88 tr-0.17d\n"
    )
    cases.both("kubectl get events -o wide, blanks lost", wide, jobs=1, attempts=6, restarted=1, stuck=1, failures=88)
    one: dict[str, Any] = {"jobs": 1, "attempts": 1, "restarted": 0}
    crash = megatron(10, 200, 0) + (
        "srun: error: n3: task 24: Exited with exit code 1\nsrun: Terminating StepId=7001.0\n"
        "slurmstepd: error: *** STEP 7001.0 ON n1 CANCELLED AT 2024-05-06T08:40:00 ***\n"
    )
    cases.analyze("Megatron: a task failed, srun ends the step", {"slurm-7001.out": crash}, **one, outcome="failed")
    keras = "".join(f"Epoch {e}/3\n100/100 - 5s - 50ms/step - accuracy: 0.5 - loss: 1.0\n" for e in range(1, 4))
    cases.both("Keras, one plain line an epoch", keras, **one, last_step=300, ran_s=15.0)
    tune = "".join(
        f"{1 + n // 51}|{n}|Loss: 1.2345:  {2 * n % 100}%|#| {1 + (n - 1) % 50}/50 [00:{1 + (n - 1) % 50:02d}<01:40,  1.00s/it]\r"
        for n in range(1, 101)
    )
    cases.both("torchtune, two epochs", tune, **one, last_step=100)
    syslog = (
        "May  6 08:00:00 head slurmctld[7]: sched: Allocate JobId=5 NodeList=n1 #CPUs=8 Partition=p\n"
        "May  6 09:00:00 head slurmctld[7]: _job_complete: JobId=5 WEXITSTATUS 0\n"
    )
    cases.analyze("slurmctld by syslog, no year", syslog, **one, started=None, ran_s=3600.0)
    futile = "JobID|State|Submit|Start|End|AllocTRES\n" + "".join(
        f"{n}|{state}|{iso(3600 * n)}|{iso(3600 * n + start)}|{iso(3600 * n + start + length)}|gres/gpu=8\n"
        for n in range(60)
        for start, length, state in (
            ((0, 3000, "COMPLETED"),) if n % 6 else tuple((5000 * k, 1500 + 900 * k, "FAILED") for k in range(4))
        )
    )
    cases.control("sacct: ten jobs fail four times each", futile, relations=["redundant work"])
    preempted = futile.replace("FAILED", "PREEMPTED")
    cases.control("sacct: ten jobs are preempted four times each", preempted, relations=[])


# ------------------------------------------------------------------------------------------------------------------ judging


def taut(verb: str, paths: list[Path], args: tuple[str, ...]) -> tuple[int, dict[str, Any], str]:
    command = [shutil.which("taut", path=str(Path(sys.executable).parent)) or "taut", verb, "--json", "-q", *args]
    command += ["--no-save"] if verb == "analyze" else []
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, timeout=300, check=False)
    result: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 and done.stdout else {}
    return done.returncode, result, done.stderr.strip()


def hours(attempts: Mapping[str, Any], *fates: str) -> float:
    return float(sum(e["rank_ns"] for e in attempts["entries"] or [] if e["fate"] in fates)) / HOUR_NS


Reader = Callable[[dict[str, Any]], Any]
ATTEMPTS: dict[str, Reader] = {
    "jobs": lambda a: a["jobs"],
    "attempts": lambda a: a["attempts"],
    "restarted": lambda a: a["restarted_jobs"],
    "unit": lambda a: a["unit"],
    "held_h": lambda a: a["held_rank_ns"] / HOUR_NS if a["held_rank_ns"] is not None else None,
    "discarded_h": lambda a: hours(a, "discarded", "discarded at most"),
    "failures": lambda a: a["stuck"][0]["failures"] if a["stuck"] else None,
    "stuck": lambda a: len(a["stuck"]),
    "last_step": lambda a: max((x["last_step"] for x in a["list"] if x["last_step"] is not None), default=None),
    "resumed": lambda a: next((x["resumed_step"] for x in a["list"] if x["resumed_step"] is not None), None),
    "ran_s": lambda a: sum(x["ran_ns"] or 0 for x in a["list"]) / 1e9,
    "outcome": lambda a: a["list"][-1]["outcome"],
    "started": lambda a: a["list"][-1]["start_ns"],
}


def answer(name: str, result: dict[str, Any]) -> Any:
    if name in ATTEMPTS:
        return ATTEMPTS[name](result["attempts"]) if result.get("attempts") else None
    if name == "failed":
        return result["failed"]["failed"] if result.get("failed") else 0
    if name == "began":
        return result["failed"]["began"] if result.get("failed") else 0
    if name == "spans":
        return result["failed"]["spans"] if result.get("failed") else None
    if name == "redundant":
        return result["redundant"]["calls"] if result.get("redundant") else 0
    if name == "relations":
        return [r["kind"] for r in result["relations"]]
    if name == "regime":
        return result["regime"]["class"]
    if name == "noted":
        return sum("no date" in line for line in result["job"]["partial"])
    return result[name.removesuffix("_min")]


def agrees(name: str, want: Any, got: Any) -> bool:
    if name == "actions_min":
        return bool(got >= want)
    if isinstance(want, float) and got is not None:
        return bool(abs(got - want) <= 0.01 * max(abs(want), 0.01) + 0.002)
    return bool(want == got)


def judge(case: Case, folder: Path) -> tuple[str, str, bool]:
    """Truth, answer, and whether they agree."""
    folder.mkdir(parents=True)
    paths = []
    for name, text in case.files.items():
        (folder / name).write_bytes(text.encode(case.encoding))
        paths.append(folder / name)
    code, result, said = taut(case.verb, paths, case.args)
    truth = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in case.want.items())
    if case.want.get("refused"):
        return truth, f"exit {code}: {said[:160]}", code == 4 and str(case.want.get("says", "")) in said
    if code:
        return truth, f"exit {code}: {said[:200]}", False
    parts, right = [], True
    for name, want in case.want.items():
        if name == "outcome_not":
            got = answer("outcome", result)
            fits = got != want
        else:
            got = answer(name, result)
            fits = agrees(name, want, got)
        right &= fits
        parts.append(f"{name}={got:.4g}" if isinstance(got, float) else f"{name}={got}")
    return truth, " ".join(parts), right


def rows(only: str, skip: int, folder: Path) -> Iterator[tuple[Case, str, str, bool]]:
    cases = Cases()
    more = (more_schedulers, more_pods, more_training, more_spans, fourth_round)
    for part in (slurm, batch, kubernetes, autoscalers, torchrun, training, spans, pasted, cluster, frameworks, *more):
        part(cases)
    for n, case in enumerate(cases.all):
        if n >= skip and only in case.kind:
            yield case, *judge(case, folder / f"{n:03d}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose kind has this word")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of the first cases")
    parser.add_argument("--keep", type=Path, help="write the logs here and leave them")
    given = parser.parse_args()
    right = count = 0
    with tempfile.TemporaryDirectory() as temporary:
        for case, truth, said, fits in rows(given.only, given.skip, given.keep or Path(temporary)):
            count += 1
            right += fits
            print(f"{'right' if fits else 'WRONG'} | {case.kind} | {case.verb} | {truth} | {said}", flush=True)
    print(f"{right} of {count} right")


if __name__ == "__main__":
    main()
