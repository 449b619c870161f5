"""What watching costs a job of the lab: processor time of all that taut adds, wall clock by turns, bytes.

    python bench/watch_cost.py [--jobs ddp fsdp tp-fsdp pipeline hsdp] [--ranks 8] [--minutes 4] [--seed 1] [--device cuda]

Ranks are processes of this machine that sleep where a device would compute, or share a GPU, and meet through gloo;
`taut watch collect` runs beside them. First every function that taut puts into the job is timed by its thread's CPU clock, what
it calls of torch taken off, and the sender's thread as a whole; by turns, functions that do nothing are timed in their place,
and what those take is the meter's and is taken off too. Then blocks of steps are done by turns with and without `taut.watch`,
with the same emulated work in both of a pair, until the time is over. A pair gives one ratio, of its median steps; the interval
is that of their mean (Student's t).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
from scipy import stats

SECRET = "a secret of the benchmark"
WARM, PROFILED, TURNS, BLOCK = 8, 30, 3, 20
CPU_SHARE, WALL_SHARE, BYTES = 0.002, 0.01, 3000
"""What watching may cost at most: of a step, of a step, of a rank's step."""


class Meter:
    """Processor time of ours, and how often it was spent; of functions that do nothing in the place of ours if it is empty."""

    def __init__(self, *, empty: bool) -> None:
        self.empty, self.marks, self.sender = empty, {}, []
        """By function its readings of the clock; and of the sender's thread, when it had sent: time, processor time so far."""

    def timed(self, function: Callable, name: str) -> Callable:
        marks, clock = self.marks.setdefault(name, []), time.thread_time_ns

        @functools.wraps(function)
        def timed(*args, **kwargs):
            clock()  # its own code is cold after a sleep, and none of ours
            began = clock()
            try:
                return function(*args, **kwargs)
            finally:
                marks.append(clock() - began)

        return timed

    def around(self, make: Callable, name: str) -> Callable:
        """The same maker of functions, what they add to what they call timed."""
        inside, clock = self.marks.setdefault(f"in {name}", []), time.thread_time_ns

        def made(owner, call, *rest):
            @functools.wraps(call)
            def inner(*args, **kwargs):
                began = clock()
                try:
                    return call(*args, **kwargs)
                finally:
                    inside.append(clock() - began)

            return self.timed(_passed_on(inner) if self.empty else make(owner, inner, *rest), name)

        return made

    def ns(self) -> dict[str, int]:
        """Processor time by function, what it called of torch taken off."""
        return {
            name: sum(marks) - sum(self.marks.get(f"in {name}", ()))
            for name, marks in self.marks.items() if not name.startswith("in ")
        }  # fmt: skip

    def calls(self) -> dict[str, int]:
        return {name: len(marks) for name, marks in self.marks.items() if not name.startswith("in ")}

    @contextmanager
    def on(self):
        """Time everything of ours that is attached now."""
        from taut.watch import functional_calls, observed_calls, observed_groups, observed_steps, sender

        makers = [(observed_calls, "called"), (observed_calls, "batched"), (observed_steps, "staged"),
                  (observed_steps, "passed"), (observed_steps.Steps, "scaled"), (observed_steps, "around"),
                  (functional_calls.FunctionalCalls, "_counted"), (functional_calls.FunctionalCalls, "_waited")]  # fmt: skip
        plain = [(observed_steps.Steps, "before"), (observed_steps.Steps, "after"), (observed_steps.Pass, "at_begin"),
                 (observed_steps.Pass, "at_work_done"), (observed_groups.GroupCalls, "before"),
                 (observed_groups.GroupCalls, "after"), (observed_groups.GroupCalls, "ended")]  # fmt: skip
        old = [(owner, name, getattr(owner, name)) for owner, name in [*makers, *plain, (sender.Sender, "_tell")]]
        for owner, name in makers:
            setattr(owner, name, self.around(getattr(owner, name), name))
        for owner, name in plain:
            function = _nothing if self.empty else getattr(owner, name)
            setattr(owner, name, self.timed(function, f"{owner.__name__}.{name}"))
        tell = sender.Sender._tell

        def told(thread):
            tell(thread)
            self.sender.append((time.monotonic_ns(), time.thread_time_ns()))

        sender.Sender._tell = told
        try:
            yield
        finally:
            for owner, name, value in old:
                setattr(owner, name, value)


def _passed_on(call: Callable) -> Callable:
    @functools.wraps(call)
    def passed_on(*args, **kwargs):
        return call(*args, **kwargs)

    return passed_on


def _nothing(*_: object) -> None:
    """In the place of a hook."""


class Rank:
    """One rank of a job that is watched and not watched by turns."""

    def __init__(self, rank: int, asked: argparse.Namespace, job: str, port: int, folder: str) -> None:
        import torch
        import torch.distributed as dist

        from taut.lab.case import Spec
        from taut.lab.torch_jobs import Job, Pace

        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(asked.ranks), JOB_NAME=job)
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=asked.ranks)
        spec = Spec(job=job, fault="none", ranks=asked.ranks, seed=asked.seed, device=asked.device, watch=True, folder=folder)
        self.dist, self.torch, self.rank, self.asked, self.folder = dist, torch, rank, asked, folder
        self.pace = Pace(spec, rank, ())
        self.job = Job(spec, rank, self.pace)
        self.address = f"127.0.0.1:{port}"

    def steps(self, count: int, turn: int) -> tuple[list[float], float]:
        """(time of every step, s; processor time of one, s); the same emulated work in the same turn."""
        self.pace.rng = np.random.default_rng((self.asked.seed, self.rank, turn))
        self.dist.barrier()
        took, cpu = [], time.process_time()
        for step in range(count):
            self.pace.begin("plain", step)
            began = time.perf_counter()
            self.job.step(1, self.folder)  # a number at which nothing is saved
            took.append(time.perf_counter() - began)
        return took, (time.process_time() - cpu) / count

    def watched(self, count: int, turn: int) -> tuple[list[float], float, int]:
        """The same, watched; and the bytes that were sent."""
        import taut.watch
        from taut.watch import in_job
        from taut.watch.wire import job_secret

        assert taut.watch.start(self.address, secret=job_secret(SECRET.encode(), os.environ["JOB_NAME"]).decode())
        sender = in_job._running[1]
        took, cpu = self.steps(count, turn)
        taut.watch.stop()
        if sender.observer.faults or sender.refused or sender.observer.ring.dropped:
            raise RuntimeError(
                f"{sender.observer.faults} faults, {sender.refused} refused, {sender.observer.ring.dropped} dropped"
            )
        return took, cpu, sender.sent_bytes

    def measured(self) -> dict:
        """Everything, until the time is over."""
        began = time.monotonic()
        self.steps(WARM, 0)
        real, empty, sends, sent = Counter(), Counter(), [], 0
        calls = Counter()
        for turn in range(2 * TURNS):
            meter = Meter(empty=turn % 2 == 0)
            with meter.on():
                *_, bytes_sent = self.watched(PROFILED, 0)
            (empty if meter.empty else real).update(meter.ns())
            if not meter.empty:
                calls.update(meter.calls())
                sends.append((meter.sender[0], meter.sender[-1]))
                sent += bytes_sent
        pairs = []
        while self._goes_on(began, len(pairs)):
            turn = len(pairs) + 1
            if turn % 2:
                without, (*with_, _) = self.steps(BLOCK, turn), self.watched(BLOCK, turn)
            else:
                (*with_, _), without = self.watched(BLOCK, turn), self.steps(BLOCK, turn)
            pairs.append((float(np.median(with_[0])), float(np.median(without[0])), with_[1], without[1]))
        return {"pairs": pairs, "real": dict(real), "empty": dict(empty), "calls": dict(calls), "sends": sends, "bytes": sent}

    def _goes_on(self, began: float, pairs: int) -> bool:
        """What rank 0 says."""
        more = pairs < 3 or time.monotonic() - began < self.asked.minutes * 60
        told = self.torch.tensor([int(more)])
        self.dist.broadcast(told, 0)
        return bool(told.item())


def run(job: str, asked: argparse.Namespace, port: int) -> list[dict]:
    """What every rank of a job measured."""
    links = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(asked.ranks):
            ours, theirs = Pipe()
            if os.fork() == 0:
                try:
                    theirs.send(Rank(rank, asked, job, port, folder).measured())
                except BaseException as error:
                    theirs.send({"error": f"{type(error).__name__}: {error}"})
                os._exit(0)
            links.append(ours)
        return [link.recv() for link in links]


def told(job: str, ranks: list[dict]) -> dict:
    """The figures of a job."""
    steps = PROFILED * TURNS
    cpu = np.array([sum(one["real"].values()) - sum(one["empty"].values()) for one in ranks]) / steps
    pairs = np.array([one["pairs"] for one in ranks]).mean(axis=0)
    log = np.log(pairs[:, 0] / pairs[:, 1])
    half = stats.t.ppf(0.975, len(log) - 1) * log.std(ddof=1) / np.sqrt(len(log))
    step_s = float(np.quantile(pairs[:, 1], 0.1))
    sends = np.array([one["sends"] for one in ranks])  # rank, turn, first (with which it connects) and last, time and CPU
    spent, lasted = (np.diff(sends[..., which], axis=2).sum(axis=(1, 2)) for which in (1, 0))
    sender = 1e9 * step_s * spent / lasted
    parts = {
        name: [sum(one[what].get(name, 0) for one in ranks) / len(ranks) / steps / 1e3 for what in ("real", "empty")]
        for name in ranks[0]["real"]
    }
    calls = sum(sum(one["calls"].values()) for one in ranks) / len(ranks) / steps
    return {
        "job": job, "step_ms": 1e3 * step_s, "median_step_ms": 1e3 * float(np.median(pairs[:, 1])),
        "calls_a_step": calls, "us_a_call": float(cpu.mean()) / calls / 1e3,
        "job_us": float(cpu.mean()) / 1e3, "sender_us": float(sender.mean()) / 1e3,
        "share": float((cpu + sender).mean()) / 1e9 / step_s, "worst_share": float((cpu + sender).max()) / 1e9 / step_s,
        "bytes": max(one["bytes"] for one in ranks) / steps, "pairs": len(log),
        "wall": float(np.exp(log.mean()) - 1), "low": float(np.exp(log.mean() - half) - 1),
        "high": float(np.exp(log.mean() + half) - 1),
        "cpu_ratio": float(np.median(pairs[:, 2] / pairs[:, 3]) - 1), "parts": parts,
    }  # fmt: skip


def line(one: dict) -> str:
    """A row for people."""
    short = [what for what, bad in (("CPU", one["worst_share"] > CPU_SHARE), ("wall", one["high"] > WALL_SHARE),
                                    ("bytes", one["bytes"] > BYTES)) if bad]  # fmt: skip
    return (
        f"| {one['job']} | {one['step_ms']:.0f} | {one['calls_a_step']:.0f} × {one['us_a_call']:.1f} | {one['job_us']:.0f} + "
        f"{one['sender_us']:.0f} | {100 * one['share']:.2f}, {100 * one['worst_share']:.2f} | {one['bytes']:.0f} | "
        f"{100 * one['wall']:+.2f} ({100 * one['low']:+.2f} to {100 * one['high']:+.2f}), {one['pairs']} | "
        f"{', '.join(short) or 'none'} |"
    )


def main() -> None:
    """Print one row per job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", default=["ddp", "fsdp", "tp-fsdp", "pipeline", "hsdp"])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=4.0, help="of every job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="also write everything there")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    import torch
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # once, before any fork

    import taut.lab.torch_jobs  # noqa: F401

    with tempfile.TemporaryDirectory() as kept:
        command = [sys.executable, "-m", "taut", "watch", "collect", "--port", "0", "--keep", kept]
        env = {**os.environ, "TAUT_WATCH_SECRET": SECRET, "TAUT_AUDIT": "off"}
        collector = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        port = int(collector.stderr.readline().split(",")[0].rpartition(":")[2])
        print(f"torch {torch.__version__}, {asked.ranks} ranks, {os.cpu_count()} cores, load {os.getloadavg()}")
        print("| job | step, ms | calls × µs | CPU of a step, µs: job + sender | % of a step: mean, worst rank | bytes | "
              "wall, % (95 %), pairs | short |")  # fmt: skip
        print("|---|---:|---:|---:|---:|---:|---:|---|", flush=True)
        done = []
        for job in asked.jobs:
            ranks = run(job, asked, port)
            wrong = [one["error"] for one in ranks if "error" in one]
            if wrong:
                print(f"{job}: {wrong[0]}")
                continue
            done.append(told(job, ranks))
            print(line(done[-1]), flush=True)
        print(f"load {os.getloadavg()}")
        collector.terminate()
        collector.communicate()
        if asked.json:
            asked.json.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
