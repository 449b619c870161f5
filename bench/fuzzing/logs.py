"""Small inputs that lie beside traces or stand alone: metrics, progress logs, job logs and control logs."""

from __future__ import annotations

import importlib
import json
from types import ModuleType

from fuzzing.seeds import Seed, beside, dated_ops, each, of, seed, shared

# what lies beside traces


def progress() -> list[Seed]:
    """Progress logs beside a trace: CSV and JSON lines."""
    rows = "".join(
        json.dumps({"step": s, "loss": 2.5 - s / 10, "tokens": 512, "time": 3.5 + s, "kept": s != 1}) + "\n" for s in range(4)
    )
    return [
        *each("loss.csv", of("read/jobs/test_progress_log").CSV, beside=beside()),
        *each("loss.jsonl", rows, beside=beside()),
        *each("rank0_loss.csv", "step,loss,skipped,discarded\n0,2.5,0,0\n1,2.4,1,0\n1,2.3,0,1\n", beside=beside()),
    ]


def metric_texts() -> list[Seed]:
    """Dumps and scrapes of Prometheus."""
    t = of("read/metrics/test_prometheus_text")
    return each("metrics.txt", t.DUMP, t.OPEN, t.SCRAPES, beside={"ops.csv": dated_ops()})


def metric_csv() -> list[Seed]:
    """Tables of samples as text."""
    t = of("read/metrics/test_reader")
    return each("metrics.csv", t.SMI, t.TIDY, t.HOST, beside={"ops.csv": dated_ops()})


def metric_parquet() -> list[Seed]:
    """Tables of samples as Parquet."""
    import pyarrow as pa

    t = of("read/metrics/test_sample_table")
    wide = t.parquet(
        time=t.TIMES, rank=pa.array([0, 1, 0]), power_w=[300.0, 310.0, 305.0], power_w_limit=[700.0] * 3, host=["node7"] * 3
    )
    return each("metrics.parquet", t.GOOD, wide, beside={"ops.csv": dated_ops()})


def metric_lines() -> list[Seed]:
    """Samples as JSON lines."""
    return each("metrics.jsonl", of("read/metrics/test_reader").LINES, beside={"ops.csv": dated_ops()})


def metric_matrix() -> list[Seed]:
    """Answers of a Prometheus."""
    actions = of("read/metrics/test_setting_actions").matrix(
        ({"__name__": "kube_deployment_spec_replicas", "namespace": "ml", "deployment": "web"}, [2, 2, 5, 3]),
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": "node7"}, [10, 20, 30, 40]),
    )
    return each("answer.json", of("read/metrics/test_reader").MATRIX, actions, beside={"ops.csv": dated_ops()})


# job logs and control logs


def sacct() -> list[Seed]:
    """Accounting as text: for programs, for people, and as it is kept."""
    t = of("read/jobs/test_sacct")
    return each(
        "sacct.txt",
        t.PARSABLE,
        t.FIXED,
        t.JOBCOMP,
        of("read/jobs/test_gather_jobs").SACCT,
        *shared("slurm/sacct_X.txt", "slurm/jobcomp.txt"),
    )


def sacct_json() -> list[Seed]:
    """Accounting as JSON."""
    full = {
        "job_id": 7, "name": "train", "user": "a", "nodes": "n[1-2]", "restart_cnt": 1,
        "state": {"current": ["NODE_FAIL"], "reason": "None"},
        "time": {"submission": 1767225600, "start": 1767225610, "end": 1767229210, "elapsed": 3600, "limit": {"set": True,
        "number": 60}},
        "tres": {"allocated": [{"type": "gres", "name": "gpu", "count": 8}, {"type": "node", "name": "", "count": 2}]},
    }  # fmt: skip
    return each(
        "sacct.json",
        json.dumps({"jobs": [full, {**full, "job_id": 8, "state": {"current": "RUNNING"}}]}),
        of("read/test_job_hostile").VALID[_reader("jobs.sacct_json")],
    )


def _reader(name: str) -> ModuleType:
    return importlib.import_module(f"taut.read.{name}")


def slurmctld() -> list[Seed]:
    """Logs of Slurm's controller."""
    return each(
        "slurmctld.log", of("read/jobs/test_sacct").CONTROLLER, of("read/actions/test_slurm_actions").CTLD,
        *shared("slurm/slurmctld.log", "control/slurmctld-preempt-rescue.log"),
    )  # fmt: skip


def kubernetes() -> list[Seed]:
    """Events of jobs, and of autoscalers."""
    gang = json.dumps({"apiVersion": "v1", "items": of("read/jobs/test_kubernetes_events").GANG, "kind": "List"})
    return each("events.json", gang, of("read/actions/test_kube_actions").SCALED, *shared("wild/logs/k8s_crashloop_count.json"))


def job_tables() -> list[Seed]:
    """Tables of jobs and attempts: JSON, JSON lines, CSV."""
    t = of("read/jobs/test_job_table")
    return each(
        "jobs.json",
        json.dumps(t.JOBS),
        json.dumps(t.DETAILED),
        "\n".join(map(json.dumps, t.JOBS)),
        of("read/actions/test_attempt_actions").JOBS,
    )


def job_csv() -> list[Seed]:
    """Tables of attempts as CSV."""
    rows = "job_id,attempt,start,end,num_gpus,status,first_step,last_step,saved_step\n"
    rows += "a,1,2026-01-01 00:00:00,2026-01-01 01:00:00,8,failed,0,100,90\na,2,1767229800,1767233400,8,completed,90,200,\n"
    return each("jobs.csv", rows)


def training_logs() -> list[Seed]:
    """What trainers and launchers print, alone and beside accounting."""
    t, gathered = of("read/jobs/test_training_log"), of("read/jobs/test_gather_jobs")
    actions = of("read/actions/test_attempt_actions")
    alone = each(
        "train.log", t.MEGATRON, t.TRAINER, t.TITAN, t.NEMO, t.LAUNCHER, actions.launcher((8, actions.GLOO), (12,
        actions.NCCL)),
        *shared("control/torchrun-c10d-timeout.err"),
    )  # fmt: skip
    return [*alone, seed({"slurm_9.out": gathered.INSIDE, "err.log": gathered.LAUNCHER}, {"sacct.txt": gathered.SACCT})]


def kube_audit() -> list[Seed]:
    """Audit logs."""
    t = of("read/actions/test_kube_audit")
    scaled = "\n".join(json.dumps(t.scale(n, user, r)) for n, user, r in ((1, t.HPA, 3), (2, "ops", 1), (3, t.HPA, 3)))
    return each("audit.log", of("read/test_control_hostile").VALID[_reader("actions.kube_audit")], scaled)


def action_csv() -> list[Seed]:
    """Tables of actions as CSV."""
    hostile = of("read/test_control_hostile").VALID[_reader("actions.action_table")]
    return each(
        "actions.csv",
        of("read/actions/test_action_table").CSV,
        hostile,
        *(text[:2000] for text in shared("control/attempts.csv")),
    )


def action_json() -> list[Seed]:
    """Tables of actions as JSON lines and as a list."""
    t = of("read/actions/test_action_table")
    rows = t.as_objects(t.CSV)
    return each("actions.jsonl", "\n".join(map(json.dumps, rows)), json.dumps(rows))


def ray_serve() -> list[Seed]:
    """Logs of Ray Serve's controller."""
    return each("serve.log", of("read/actions/test_ray_serve").LOG, *shared("control/ray_serve_controller.log"))


def action_lines() -> list[Seed]:
    """Plain lines of actions."""
    return each(
        "rescuer.log", of("read/actions/test_action_lines").LOG, of("test_control_cli").LOG, *shared("control/rescuer.log")
    )
