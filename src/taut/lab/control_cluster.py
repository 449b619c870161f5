"""A private Slurm cluster on this machine, and one case of ``control_slurm.py`` on it.

Runs as a process in namespaces of its own: its network has only itself, so no port is anybody else's; ``/run`` is a file
system in memory that nobody else sees, with the configuration, the key, the sockets and the state of its Slurm. Nothing
outside is touched, and all of it is gone with this process. Only the logs are copied out.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from taut.core.errors import RunError
from taut.lab.control_rescuer import HIGH, LOW, queue
from taut.lab.control_slurm import CaseReport, Plan

HOST, ADDRESS = "localhost", "192.0.2.1"
"""An address of the block for documentation: with loopback ones alone, no name is ever resolved to an IPv4 address."""
ROOT = Path("/run/taut-lab")
CONTROLLER, RESCUER, COMPLETIONS = "slurmctld.log", "rescuer.log", "jobcomp.txt"
NODES = ("n1", "n2")
CONFIG = """\
ClusterName=lab
SlurmctldHost={host}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge,cred_expire={wait_s}
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/%n.pid
SlurmctldLogFile={root}/{log}
SlurmdLogFile={root}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={root}/{completions}
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
MailProg=/bin/true
KillWait=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
NodeName=n[1-2] NodeHostname={host} NodeAddr={address} Port=[17001-17002] CPUs=1 RealMemory=100 State=UNKNOWN
PartitionName={low} Nodes=n[1-2] Default=YES PriorityTier=1 MaxTime=60 State=UP
PartitionName={high} Nodes=n[1-2] PriorityTier=10 MaxTime=60 State=UP
"""
START_S, LEAD_S, SPARE_S, POLL_S = 60.0, 1.0, 45.0, 0.3
"""A cluster that takes longer to start has failed; a low job runs alone so long; it is given so long beyond what it needs."""
UNIT_S = 0.25
UNITS = ROOT / "units"
LOW_JOB = """\
#!/bin/sh
exec {python} -IS {root}/low.py
"""
LOW_WORK = """\
import os, time
attempt = os.environ["SLURM_JOB_ID"] + " " + os.environ.get("SLURM_RESTART_COUNT", "0")
with open({notes!r}, "a", buffering=1) as notes:
    for unit in range({units}):
        time.sleep({unit_s})
        print(attempt, file=notes)
"""
"""A low job: units of work, each noted with the attempt that did it; it keeps none of them when it is preempted. It is one
process: of one with children Slurm may find some just after it killed them, and looks again a second later."""


def main(plan: Plan, logs: Path, seed: int) -> CaseReport:
    """Start the cluster, run the case, copy the logs."""
    os.chdir(logs)  # stays in reach, wherever it lies, when /run is covered
    _enclose()
    try:
        _start(plan)
        return Case(plan, random.Random(seed)).run()
    finally:
        for name in (CONTROLLER, RESCUER, COMPLETIONS):
            if (ROOT / name).exists():
                shutil.copyfile(ROOT / name, name)


def _enclose() -> None:
    """Addresses, a host name and a file system for this namespace only; no word of another Slurm in the environment."""
    for words in (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"),
        ("mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "taut-lab", "/run"),
    ):
        _do(*words)
    socket.sethostname(HOST)
    ROOT.mkdir(mode=0o755)
    for name in [name for name in os.environ if re.match("SLURM|SBATCH|SQUEUE|SINFO|SCONTROL|MUNGE", name)]:
        del os.environ[name]
    # Slurm writes local times without a zone: readers take them as UTC.
    os.environ.update(SLURM_CONF=str(ROOT / "slurm.conf"), TZ="UTC")
    time.tzset()


def _do(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"{words[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1][:200]}")
    return done.stdout


def _start(plan: Plan) -> None:
    for name in ("state", *NODES):
        (ROOT / name).mkdir()
    config = CONFIG.format(
        host=HOST, address=ADDRESS, root=ROOT, wait_s=plan.wait_s, log=CONTROLLER, completions=COMPLETIONS, low=LOW, high=HIGH
    )
    (ROOT / "slurm.conf").write_text(config)
    key = os.open(ROOT / "key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(key, os.urandom(128))
    os.close(key)
    own = {"key-file": "key", "log-file": "munged.log", "pid-file": "munged.pid", "seed-file": "munged.seed"}
    _daemon("munged", "-F", f"--socket={ROOT}/munge", *(f"--{word}={ROOT / name}" for word, name in own.items()))
    _until((ROOT / "munge").exists, "munged")
    _daemon("slurmctld", "-D")
    for node in NODES:
        _daemon("slurmd", "-D", "-N", node)
    _until(lambda: _states() == ["idle"] * len(NODES), "Slurm")


def _daemon(*words: str) -> None:
    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _states() -> list[str]:
    listing = subprocess.run(["sinfo", "-h", "-N", "-p", LOW, "-o", "%T"], capture_output=True, text=True, check=False)
    return listing.stdout.split()


def _until(there: Callable[[], bool], who: str) -> None:
    patience = time.monotonic() + START_S
    while not there():
        if time.monotonic() > patience:
            raise RunError(f"{who} did not start within {START_S:.0f} s")
        time.sleep(POLL_S)


class Case:
    """Low and urgent jobs, and the rescuer, if there is one."""

    def __init__(self, plan: Plan, rng: random.Random) -> None:
        self.plan, self.rng = plan, rng
        self.low: list[str] = []
        self.script = ROOT / "low.sh"
        self.script.write_text(LOW_JOB.format(python=shlex.quote(sys.executable), root=ROOT))
        work = LOW_WORK.format(units=round(plan.work_s / UNIT_S), unit_s=UNIT_S, notes=str(UNITS))
        (ROOT / "low.py").write_text(work)
        UNITS.touch()

    def run(self) -> CaseReport:
        """All urgent jobs, then until the low ones have ended."""
        began = time.monotonic()
        if not self.plan.room:
            self._submit_low()
            _until(lambda: any(job[1] == "R" for job in queue()), "the low job")
        rescuer = self._rescuer() if self.plan.rescuer else None
        time.sleep(LEAD_S)
        self._arrivals()
        self._wait()
        took_s = time.monotonic() - began
        printed = ""
        if rescuer is not None:
            rescuer.kill()
            printed = rescuer.communicate()[0]
        return self._report([line.split() for line in printed.splitlines()], took_s)

    def _submit_low(self, *words: str) -> None:
        self.low.append(_submit(LOW, "--requeue", *words, str(self.script)))

    def _rescuer(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "taut.lab.control_rescuer", str(ROOT / RESCUER), str(self.plan.poll_s),
                   str(self.plan.quiet_s)]  # fmt: skip
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def _arrivals(self) -> None:
        plan, at = self.plan, time.monotonic()
        nodes = 1 if plan.room else len(NODES)
        for _ in range(plan.arrivals):
            time.sleep(max(0.0, at - time.monotonic()))
            if plan.room:
                self._submit_low("--begin=now+1hour")
            _submit(HIGH, f"--nodes={nodes}", f"--wrap=sleep {plan.urgent_s}")
            at += plan.gap_s * self.rng.uniform(1 - plan.jitter, 1 + plan.jitter)

    def _wait(self) -> None:
        """Until no low job is left, or one should long have ended."""
        patience = time.monotonic() + self.plan.wait_s + self.plan.work_s + SPARE_S
        while any(job[3] == LOW for job in queue()) and time.monotonic() < patience:
            time.sleep(POLL_S)

    def _report(self, rescues: list[list[str]], took_s: float) -> CaseReport:
        """Requeues and end states as Slurm tells them of each job, and what the jobs noted of their work."""
        shown = {job: _do("scontrol", "show", "job", "-o", job) for job in self.low}
        requeued = {job: int(re.findall(r"\bRestarts=(\d+)", text)[0]) for job, text in shown.items()}
        units = Counter((job, int(attempt)) for job, attempt in map(str.split, UNITS.read_text().splitlines()))
        again = sum(count for (job, attempt), count in units.items() if attempt < requeued[job])
        ended = (ROOT / COMPLETIONS).read_text()
        preempted = [len(re.findall(rf"^JobId={job} .* JobState=PREEMPTED ", ended, re.MULTILINE)) for job in self.low]
        if preempted != list(requeued.values()):
            raise RunError(f"low jobs were requeued {requeued} times, but preempted {preempted}")
        return CaseReport(
            job=max(self.low, key=lambda job: requeued[job]),
            preempted=sum(preempted),
            rescued=len(rescues),
            undone=sum(requeued[job] > int(times) for job, times in rescues),
            completed=sum("JobState=COMPLETED " in text for text in shown.values()),
            thrown_away_s=again * UNIT_S,
            took_s=took_s,
        )


def _submit(partition: str, *words: str) -> str:
    return _do("sbatch", "--parsable", "-p", partition, "-o", "/dev/null", "-D", "/", *words).strip()


if __name__ == "__main__":
    try:
        answer = main(msgspec.json.decode(sys.argv[1], type=Plan), Path(sys.argv[2]), int(sys.argv[3]))
    except RunError as error:
        answer = CaseReport(error=str(error))
    print(msgspec.json.encode(answer).decode())
