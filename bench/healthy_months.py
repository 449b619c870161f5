"""Size of the relations of control on healthy clusters, as Markdown: ``python bench/healthy_months.py [--months 100]``.

Every month is a small cluster in which nothing is wrong, simulated event by event and written as three logs: by Slurm's
controller, by ``sacct --duplicates``, and as a table of jobs that tells no outcome of attempts that were not the last.
Jobs have time limits that the log names; jobs of low priority are preempted and started again on a scheduling cycle of
120 s; there are arrays, failures after milliseconds, jobs that fail at the same point each time they are tried, requeues
after failed nodes and failed prologs, users who cancel, submit again, or let a job requeue itself before its limit, queued
``salloc``, and a maintenance. A relation listed in such a month is false. ``--plant`` adds a limit that no log names, which
ends jobs that are then started again; ``--futile`` lets a share of the jobs fail at any point and be started again for nothing.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np
from control_size import percent

import taut
from taut.control.relations import RELATIONS, prepare, relations

Rng = np.random.Generator
DAY_S = 86_400.0
CYCLE_S = 120.0
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
LIMITS_S = (1800.0, 3600.0, 4 * 3600.0, 8 * 3600.0, 12 * 3600.0, DAY_S, 2 * DAY_S)


@dataclass
class Try:
    """One attempt as it was."""

    start_s: float
    nodes: list[str]
    end_s: float = -1.0
    state: str = "RUNNING"
    exit_code: int = 0


@dataclass
class Job:
    """One job, and what it would do if it were left alone."""

    name: str
    uid: int
    submit_s: float
    nodes: int
    limit_s: float
    runs_s: float
    ends: str
    """complete, fail, cancel, or requeue itself."""
    low: bool = False
    interactive: bool = False
    again: int = 0
    """How often it may fail and be started again."""
    ready_s: float = 0.0
    tries: list[Try] = field(default_factory=list)


@dataclass
class Site:
    """What differs from cluster to cluster."""

    rng: Rng
    nodes: int = 0
    low: float = 0.0
    arrays: float = 0.0
    instant: float = 0.0
    too_long: float = 0.0
    fails: float = 0.0
    fault_days: float = 0.0
    load: float = 0.0
    flaky: float = 0.0

    def __post_init__(self) -> None:
        draw = self.rng.uniform
        self.nodes = int(self.rng.choice([8, 16, 32, 64]))
        self.low, self.arrays, self.instant = draw(0.05, 0.5), draw(0, 0.3), draw(0.02, 0.15)
        self.too_long, self.fails, self.load = draw(0.02, 0.2), draw(0.05, 0.25), draw(0.6, 1.1)
        self.fault_days, self.flaky = draw(20, 200), draw(0, 0.02)


class Month:
    """The cluster, its queue and its log."""

    def __init__(self, rng: Rng, days: float, plant_s: float = 0.0, cycle_s: float = CYCLE_S, futile: float = 0.0) -> None:
        self.futile = futile
        self.rng, self.site, self.days, self.plant_s, self.cycle_s = rng, Site(rng), days, plant_s, cycle_s
        self.lines: list[tuple[float, str]] = []
        self.jobs: list[Job] = []
        self.free = [f"n{k:02d}" for k in range(1, self.site.nodes + 1)]
        self.down: set[str] = set()
        self.queue: list[Job] = []
        self.running: dict[str, Job] = {}
        self.events: list[tuple[float, int, str, Job | str, Try | None]] = []
        self.order, self.ids = count(), count(int(rng.integers(1000, 900_000)))
        self.maintenance = (rng.uniform(0.3, 0.7) * days * DAY_S // 3600 * 3600, 8 * 3600.0)

    def log(self, at: float, text: str) -> None:
        self.lines.append((at, text))

    def at(self, when: float, what: str, whom: Job | str = "", attempt: Try | None = None) -> None:
        heapq.heappush(self.events, (when, next(self.order), what, whom, attempt))

    def submissions(self) -> None:
        """Users who come and go; some send arrays, or the same job again."""
        rng, site = self.rng, self.site
        at, work = 0.0, 0.0
        whole = site.load * site.nodes * self.days * DAY_S
        gap = DAY_S * self.days / 3000.0
        while at < self.days * DAY_S and work < whole and len(self.jobs) < 4000:
            rush = 1.6 if 8 < (at % DAY_S) / 3600 < 20 else 0.5
            at += float(rng.exponential(gap / rush))
            size = int(rng.integers(5, 60)) if rng.random() < site.arrays * 0.1 else 1
            first = self.job(at, next(self.ids), size)
            work += sum(min(job.runs_s, job.limit_s) * job.nodes for job in first)
            if first[0].ends == "fail" and rng.random() < 0.4:  # mended, or hoped to be
                later = at + float(rng.exponential(1800))
                work += sum(min(job.runs_s, job.limit_s) * job.nodes for job in self.job(later, next(self.ids), 1))

    def job(self, at: float, number: int, size: int) -> list[Job]:
        rng, site = self.rng, self.site
        limit = float(rng.choice(LIMITS_S))
        kind = rng.random()
        typical = min(float(rng.lognormal(7.5, 1.6)), 0.9 * limit)
        ends, spread, again = "complete", 0.2, 0
        if kind < site.instant:  # a missing file, or an import that fails
            ends, spread, typical = "fail", 0.05, float(rng.choice([rng.uniform(0.02, 0.09), rng.uniform(1, 8)]))
        elif kind < site.instant + site.too_long:
            typical, spread = 3 * limit, 0.0
        elif kind < site.instant + site.too_long + site.fails:
            ends, spread = "fail", 0.3
        elif kind < site.instant + site.too_long + site.fails + 0.08:
            ends = "cancel"
        elif kind > 0.99:
            ends, typical = "requeue", limit - 600.0  # a job that saves, and goes on after its limit
        if rng.random() < site.flaky:  # fails at the same point each time, and is told to be started again
            ends, spread, again, typical = "fail", 0.002, int(rng.integers(2, 9)), float(rng.lognormal(5, 1.5))
        low, nodes, uid = bool(rng.random() < site.low), int(rng.choice([1, 1, 1, 1, 2, 2, 4])), int(rng.integers(1001, 1030))
        talks = size == 1 and rng.random() < 0.1
        if self.plant_s and low and rng.random() < 0.05:
            ends, spread, again, typical = "watched", 0.001, int(rng.integers(1, 4)), self.plant_s
        if self.futile and ends == "complete" and rng.random() < self.futile:
            ends, again = "futile", int(rng.integers(2, 5))
        made = []
        for task in range(size):
            name = f"{number}_{task}({number + task})" if size > 1 else str(number)
            runs = typical * float(np.exp(spread * rng.standard_normal()))
            if ends == "watched":
                runs = typical + float(rng.exponential(0.001 * typical))
            job = Job(name, uid, at, nodes, limit, max(runs, 0.02), ends, low, talks, again, at)
            made.append(job)
            self.jobs.append(job)
            self.at(at, "submit", job)
        for _ in range(size - 1):
            next(self.ids)
        text = f"_slurm_rpc_submit_batch_job: JobId={number} InitPrio={int(rng.integers(1000, 9000))} usec=412"
        self.log(at, f"sched: _slurm_rpc_allocate_resources JobId={number} NodeList=(null) usec=203" if talks else text)
        return made

    def schedule(self, now: float, cycle: bool) -> None:
        """Start what fits; on a cycle also jobs of low priority, and preempt these for others."""
        hold, length = self.maintenance
        waiting = sorted((job for job in self.queue if job.ready_s <= now and (cycle or not job.low)), key=lambda j: j.low)
        for job in waiting[:50]:
            if hold <= now < hold + length or now < hold < now + job.limit_s:
                continue
            if len(self.free) < job.nodes and cycle and not job.low:
                self.preempt(now, job)
            if len(self.free) >= job.nodes:
                self.start(now, job, cycle)

    def preempt(self, now: float, wanted: Job) -> None:
        victims = sorted((job for job in self.running.values() if job.low), key=lambda job: -job.tries[-1].start_s)
        if len(self.free) + sum(job.nodes for job in victims) < wanted.nodes:
            return
        for job in victims:
            if len(self.free) >= wanted.nodes:
                return
            self.log(now, f"preempted JobId={job.name} has been requeued to reclaim resources for JobId={wanted.name}")
            self.end(now, job, "PREEMPTED", again_s=self.cycle_s)

    def start(self, now: float, job: Job, cycle: bool) -> None:
        self.queue.remove(job)
        nodes = [self.free.pop(0) for _ in range(job.nodes)]
        one = Try(now, nodes)
        job.tries.append(one)
        self.running[job.name] = job
        where = ",".join(nodes)
        if cycle:
            self.log(now, f"sched/backfill: _start_job: Started JobId={job.name} in main on {where}")
        else:
            self.log(now, f"sched: Allocate JobId={job.name} NodeList={where} #CPUs={8 * job.nodes} Partition=main")
        if self.rng.random() < 0.003:
            self.at(now + float(self.rng.uniform(0.02, 0.06)), "prolog", job, one)
        runs = job.runs_s * float(self.rng.uniform(0.05, 1.0)) if job.ends == "futile" else job.runs_s
        self.at(now + min(runs, job.limit_s + float(self.rng.uniform(0, 30))), "over", job, one)

    def end(self, now: float, job: Job, state: str, code: int = 0, again_s: float = -1.0) -> None:
        one = job.tries[-1]
        one.end_s, one.state, one.exit_code = now, state, code
        del self.running[job.name]
        self.free += [node for node in one.nodes if node not in self.down]
        if again_s >= 0:
            job.ready_s = now + again_s
            self.queue.append(job)

    def over(self, now: float, job: Job) -> None:
        """A job is over by itself, by its limit, or by its user."""
        one = job.tries[-1]
        failed = int(self.rng.choice([1, 1, 2, 127]))
        if now - one.start_s >= job.limit_s:
            self.log(now, f"Time limit exhausted for JobId={job.name}")
            self.end(now, job, "TIMEOUT")
        elif job.ends == "cancel":
            self.log(now, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={job.name} uid {job.uid}")
            self.end(now, job, f"CANCELLED by {job.uid}")
        elif job.ends == "requeue" and len(job.tries) < 4:
            self.log(now, f"_slurm_rpc_requeue: Requeue of JobId={job.name} returned requeue")
            self.end(now, job, "REQUEUED", again_s=self.cycle_s)
        elif job.ends in ("fail", "watched", "futile") and len(job.tries) <= job.again:
            self.log(now, f"_job_complete: JobId={job.name} WEXITSTATUS {failed}")
            self.log(now + 0.001, f"_slurm_rpc_submit_batch_job: JobId={job.name} InitPrio=1000 usec=100")
            self.end(now, job, "FAILED", failed, again_s=float(self.rng.uniform(5, 60)))
        else:
            code = failed if job.ends in ("fail", "watched", "futile") else 0
            self.log(now, f"_job_complete: JobId={job.name} WEXITSTATUS {code}")
            self.log(now + 0.001, f"_job_complete: JobId={job.name} done")
            self.end(now, job, "FAILED" if code else "COMPLETED", code)

    def fault(self, now: float, node: str) -> None:
        for job in [job for job in self.running.values() if node in job.tries[-1].nodes]:
            self.log(now, f"requeue job JobId={job.name} due to failure of node {node}")
            self.end(now, job, "NODE_FAIL", again_s=self.cycle_s)
        if node in self.free:
            self.free.remove(node)
        self.down.add(node)
        self.at(now + 4 * 3600, "mended", node)

    def live(self) -> None:
        """All events in order."""
        rng, until = self.rng, self.days * DAY_S
        self.submissions()
        tick = float(rng.uniform(0, self.cycle_s))
        while tick < until:
            self.at(tick, "cycle")
            tick += self.cycle_s + float(rng.lognormal(-3, 1))  # it takes a little time itself
        for k in range(1, self.site.nodes + 1):
            at = float(rng.exponential(self.site.fault_days * DAY_S))
            if at < until:
                self.at(at, "fault", f"n{k:02d}")
        self.at(self.maintenance[0], "maintenance")
        while self.events:
            now, _, what, whom, attempt = heapq.heappop(self.events)
            if now > until:
                break
            self.event(now, what, whom, attempt)

    def event(self, now: float, what: str, whom: Job | str, attempt: Try | None) -> None:
        if isinstance(whom, Job):
            if what == "submit":
                self.queue.append(whom)
            elif attempt is not whom.tries[-1] or attempt.end_s >= 0:
                return
            elif what == "over":
                self.over(now, whom)
            else:
                self.log(now, f"error: Prolog launch failure, JobId={whom.name}")
                self.log(now, f"Requeuing JobId={whom.name}")
                self.end(now, whom, "REQUEUED", again_s=self.cycle_s)
        elif what == "fault":
            self.fault(now, whom)
        elif what == "mended":
            self.down.discard(whom)
            self.free.append(whom)
        elif what == "maintenance":
            for job in list(self.running.values()):
                self.log(now, f"Requeuing JobId={job.name}")
                self.end(now, job, "REQUEUED", again_s=self.cycle_s)
        self.schedule(now + (0.0 if what == "cycle" else 0.01), what == "cycle")

    def controller_log(self) -> str:
        lines = sorted(self.lines, key=lambda line: line[0])
        return "".join(f"[{_stamp(at, 'milliseconds')}] {text}\n" for at, text in lines)

    def sacct(self) -> str:
        rows = ["JobID|State|Submit|Start|End|ExitCode|AllocTRES|NodeList|Timelimit"]
        for job in self.jobs:
            name = job.name.partition("(")[0]
            for one in job.tries:
                end = _stamp(one.end_s) if one.end_s >= 0 else "Unknown"
                tres = f"billing={8 * job.nodes},cpu={8 * job.nodes},gres/gpu={8 * job.nodes},node={job.nodes}"
                limit = f"{int(job.limit_s) // 3600:02d}:{int(job.limit_s) // 60 % 60:02d}:00"
                rows.append(f"{name}|{one.state}|{_stamp(job.submit_s)}|{_stamp(one.start_s)}|{end}|{one.exit_code}:0|{tres}"
                            f"|{','.join(one.nodes)}|{limit}")  # fmt: skip
        return "\n".join(rows) + "\n"

    def table(self) -> str:
        jobs = [
            {"id": job.name, "num_gpus": 8 * job.nodes, "submitted_time": _stamp(job.submit_s), "status":
             job.tries[-1].state.partition(" ")[0], "attempts": [{"start_time": _stamp(one.start_s), "end_time":
             _stamp(one.end_s) if one.end_s >= 0 else None} for one in job.tries]}
            for job in self.jobs if job.tries
        ]  # fmt: skip
        return json.dumps(jobs)

    def truth(self) -> tuple[int, int]:
        """Jobs that were restarted, and attempts."""
        return sum(len(job.tries) > 1 for job in self.jobs), sum(len(job.tries) for job in self.jobs)


def _stamp(at_s: float, spec: str = "seconds") -> str:
    return (BEGIN + timedelta(seconds=at_s)).replace(tzinfo=None).isoformat(timespec=spec)


VIEWS = {"slurmctld": ("log", Month.controller_log), "sacct": ("txt", Month.sacct), "table of jobs": ("json", Month.table)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first month")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--plant", type=float, default=0.0, help="seconds of a limit that no log names")
    parser.add_argument("--futile", type=float, default=0.0, help="share of jobs that fail each time and are started again")
    parser.add_argument("--cycle", type=float, default=CYCLE_S, help="seconds of the scheduling cycle")
    parser.add_argument("--show", action="store_true", help="print every relation that is listed")
    given = parser.parse_args()
    kinds = [kind.KIND for kind in RELATIONS]
    hits: dict[str, Counter[str]] = {view: Counter() for view in VIEWS}
    size = Counter[str]()
    for number in range(given.first, given.first + given.months):
        month = Month(np.random.default_rng([number, 28]), given.days, given.plant, given.cycle, given.futile)
        month.live()
        restarted, attempts = month.truth()
        size += Counter(jobs=len(month.jobs), attempts=attempts, restarted=restarted)
        for view, (ending, write) in VIEWS.items():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"month.{ending}")
                path.write_text(write(month))
                trace = taut.read([str(path)])
            log = prepare(trace)
            found = relations(log)
            if given.show:
                for one in found:
                    print(f"{number} {view}: {one.kind}: {one.because}", file=sys.stderr)
            right = log.jobs.restarted == restarted and int((trace.attempts.start_ns >= 0).sum()) == attempts
            hits[view].update({one.kind for one in found} | ({"counted right"} if right else set()))
    months = given.months
    print(f"{months} months: {size['jobs'] / months:,.0f} jobs, {size['attempts'] / months:,.0f} attempts and "
          f"{size['restarted'] / months:,.0f} restarted jobs each\n")  # fmt: skip
    print("| listed, % of months | " + " | ".join([*kinds, "counted right"]) + " |\n|---|" + "---:|" * (len(kinds) + 1))
    for view, counts in hits.items():
        print(f"| {view} | " + " | ".join(percent(counts[kind], months) for kind in [*kinds, "counted right"]) + " |")


if __name__ == "__main__":
    sys.exit(main())
