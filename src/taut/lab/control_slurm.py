"""Slurm's preemption and a rescuer of preempted jobs: who fights for a job, and who only waits for its turn.

A real private cluster for each case (``control_cluster.py``), a real rescuer (``control_rescuer.py``). Urgent jobs come
again and again, need every node, and have a low job requeued, which Slurm then keeps waiting. A rescuer that starts it
again at once sees it preempted by the next urgent job, and so on. The same without a rescuer, with one that waits until
no urgent job has come for a while, and with room for both are calm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from taut.core.errors import RunError

if TYPE_CHECKING:
    from taut.lab.control_truth import Truth

EXPERIMENT = "slurm"
LOGS = "logs"
FOUGHT, CALM = "fought over", "no fight"
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc")
"""A network, processes, mounts and a host name of its own: all of it dies with its first process, and that one with us."""
REAPER = ("sh", "-c", '"$@"; exit', "sh")
"""First process of the namespace. It reaps orphans: Slurm takes a job whose processes are zombies for one that still runs."""
DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "sinfo")
TOOLS = ("unshare", "setpriv", "mount", "ip")
MOST_S = 300.0
"""A case that takes longer is stopped."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One case, in seconds."""

    name: str
    rescuer: bool = True
    quiet_s: float = 0.0
    """The rescuer acts once no urgent job has been there for so long."""
    room: bool = False
    """Urgent jobs leave a node to the low ones; these are submitted for later, so that the rescuer has something to do."""
    arrivals: int = 10
    gap_s: float = 6.0
    jitter: float = 0.2
    """Urgent jobs come this share of the gap earlier or later."""
    urgent_s: float = 1.5
    work_s: float = 15.0
    """Longer than any gap: a low job that is preempted by every urgent one never ends."""
    wait_s: int = 120
    """How long Slurm keeps a requeued job waiting (``cred_expire``); its own default."""
    poll_s: float = 0.5


def plans(short: bool) -> list[Plan]:
    """Rescued at once, left alone, rescued when it is quiet, and with room for both."""
    base = Plan(name="rescued at once")
    if short:
        base = Plan(name=base.name, arrivals=6, gap_s=4.0, jitter=0.1, urgent_s=0.5, work_s=6.0, wait_s=28, poll_s=0.25)
    change = msgspec.structs.replace
    return [
        base,
        change(base, name="left alone", rescuer=False),
        change(base, name="rescued when quiet", quiet_s=1.25 * base.gap_s),
        change(base, name="room for both", room=True, work_s=base.urgent_s),
    ]


def missing() -> str | None:
    """Why it cannot run here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs Linux and root (a private Slurm cluster in namespaces of its own)"
    if absent := [name for name in DAEMONS if shutil.which(name) is None]:
        return f"{', '.join(absent)} not installed; apt-get install slurm-wlm munge"
    if absent := [name for name in TOOLS if shutil.which(name) is None]:
        return f"{', '.join(absent)} not installed; apt-get install iproute2 util-linux mount"
    if subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode:
        return "this system does not let it have namespaces of its own (unshare)"
    return None


def predict(plan: Plan) -> dict[str, float | str]:
    """Every urgent job preempts a low one that runs, unless there is room; who starts it again in between makes it run."""
    if plan.room:
        preempted, rescued = 0, plan.arrivals
    elif not plan.rescuer:
        preempted, rescued = 1, 0
    elif plan.quiet_s > plan.gap_s * (1 + plan.jitter):
        preempted, rescued = 1, 1
    else:
        preempted, rescued = plan.arrivals, plan.arrivals
    return outcome(preempted, rescued, max(preempted - 1, 0) if rescued else 0)


def outcome(preempted: int, rescued: int, undone: int) -> dict[str, float | str]:
    """A job is fought over if most rescues, and more than one, were undone by a preemption."""
    fought = undone > 1 and 2 * undone > rescued
    return {"outcome": FOUGHT if fought else CALM, "preempted": float(preempted), "rescued": float(rescued),
            "undone": float(undone)}  # fmt: skip


def run(folder: Path, seed: int, short: bool) -> list[tuple[Path, Truth]]:
    """Run all cases side by side, after their predictions are written; returns where each left its logs, and the truth."""
    from taut.lab.control_truth import Truth, save

    cases = []
    for plan in plans(short):
        place = folder.resolve() / EXPERIMENT / plan.name.replace(" ", "-")
        done = {key: value for key, value in msgspec.to_builtins(plan).items() if key != "name"}
        truth = Truth(
            experiment=EXPERIMENT,
            case=plan.name,
            seed=seed,
            done=done,
            predicted=predict(plan),
            relation="conflict",
            controllers=("slurmctld", "rescuer"),
        )
        save(truth, place)
        shutil.rmtree(place / LOGS, ignore_errors=True)
        (place / LOGS).mkdir()
        cases.append((plan, place, truth))
    out = []
    for (_, place, truth), report in zip(cases, _all([(plan, place) for plan, place, _ in cases], seed), strict=True):
        numbers = outcome(report.preempted, report.rescued, report.undone)
        also = ("redundant work",) if report.thrown_away_s else ()
        measured = {**numbers, "completed": float(report.completed), "work_thrown_away_s": report.thrown_away_s,
                    "all_done_after_s": report.took_s}  # fmt: skip
        present = numbers["outcome"] == FOUGHT
        truth = msgspec.structs.replace(truth, measured=measured, present=present, target=report.job * present, also=also)
        save(truth, place)
        out.append((place / LOGS, truth))
    return out


class CaseReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster's own process reports of its case, from the output of jobs, rescuer and Slurm."""

    job: str = ""
    """The low job that was preempted most."""
    preempted: int = 0
    rescued: int = 0
    undone: int = 0
    """Rescues after which the job was preempted again."""
    completed: int = 0
    """Low jobs that did all their work."""
    thrown_away_s: float = 0.0
    """Work that low jobs did and had to do again."""
    took_s: float = 0.0
    """From the first submission until every low job had ended, or was given up."""
    error: str = ""


def _all(cases: list[tuple[Plan, Path]], seed: int) -> list[CaseReport]:
    """One cluster for each case, all at once; they are killed at the end, however that comes."""
    started = []
    try:
        for plan, place in cases:
            command = ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, *REAPER, sys.executable, "-m", "taut.lab.control_cluster",
                       msgspec.json.encode(plan).decode(), str(place / LOGS), str(seed)]  # fmt: skip
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            started.append(process)
        return [_report(process, place) for process, (_, place) in zip(started, cases, strict=True)]
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _report(process: subprocess.Popen[bytes], place: Path) -> CaseReport:
    try:
        answer, words = process.communicate(timeout=MOST_S)
    except subprocess.TimeoutExpired:
        raise RunError(f"{place}: the cluster did not end within {MOST_S:.0f} s; see {LOGS}") from None
    if not answer:
        last = words.decode(errors="replace").strip().splitlines()[-1:] or ["without a word"]
        raise RunError(f"{place}: the cluster's process ended: {last[0][:300]}")
    report = msgspec.json.decode(answer, type=CaseReport)
    if report.error:
        raise RunError(f"{place}: {report.error}")
    return report
