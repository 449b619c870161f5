"""Where the CPU of a large analysis goes: seconds by phase and by kernel, and what it would take to send their columns away.

    python bench/phases.py JOB [-o RUN] [--threads 0]

Everything runs in one thread. A kernel *touches* the bytes of the arrays that it is given and returns, each counted once
(``add_at``, which looks at few rows of its arrays, by its rows). Over a network they would take ``touched / GB_S`` seconds:
where that is more than the kernel's CPU, a worker elsewhere cannot pay, however many there are.

With ``--threads`` it runs as ``--on local`` has it on so many cores, and the longest chain is told: the CPU of the main thread,
and where it waits for others with their shares of rows, theirs. No such analysis takes less wall clock, and on a busy machine
that says more than wall clocks do.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from measure import load

import taut.run
from taut.core import memory, row_shares
from taut.core.jit import Kernel

GB_S = 1.0
"""A network of 10 Gbit/s."""
PHASES = {
    "read": "read", "link": "link", "replay": "replay", "batch": "prepare what-ifs", "decompose": "ask what-ifs",
    "blame": "blame", "diagnose": "detectors", "instability": "instability", "charge": "ledger", "report": "report",
    "_write": "write the run folder",
}  # fmt: skip


@contextmanager
def here(pays: bool, threads: int = 1) -> Iterator[Callable[[Callable[[], Any]], Callable[[], Any]]]:
    """A second thread that does everything at once, here."""
    del pays, threads

    def at_once(work: Callable[[], Any]) -> Callable[[], Any]:
        done = work()
        return lambda: done

    yield at_once


class Clock:
    """CPU by phase and by kernel, and bytes that kernels touch, by phase and kernel."""

    def __init__(self) -> None:
        self.now, self.inside, self.order = "other", 0.0, ["other"]
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.kernels: defaultdict[str, float] = defaultdict(float)
        self.touched: defaultdict[str, float] = defaultdict(float)

    def phase(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: object, **more: object) -> object:
            before, self.now, began = self.now, name, time.process_time()
            outer, self.inside = self.inside, 0.0
            try:
                return work(*args, **more)
            finally:
                spent = time.process_time() - began
                self.cpu[name] += spent - self.inside
                self.now, self.inside = before, outer + spent

        return timed

    def kernel(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(one: Kernel[Any], *args: Any) -> Any:
            began = time.process_time()
            out = work(one, *args)
            spent = time.process_time() - began
            given = args[2:] if one.__name__ == "add_at" else args
            for key in (self.now, f"kernel {one.__name__}"):
                self.kernels[key] += spent
                self.touched[key] += (_bytes(given) + _bytes(out)) / 1e9
            return out

        return timed


def _bytes(value: object) -> int:
    if isinstance(value, tuple):
        return sum(map(_bytes, value))
    return value.nbytes if isinstance(value, np.ndarray) and 0 not in value.strides else 0


def chain(job: str, threads: int) -> None:
    """Tell the longest chain of an analysis by some threads."""
    longest, shared, done, main = 0.0, 0.0, row_shares._done, threading.get_ident()

    def timed(team: Any, work: Callable[[slice], Any], shares: list[slice]) -> list[Any]:
        nonlocal longest, shared
        spent: list[tuple[bool, float]] = []

        def one(share: slice) -> object:
            began = time.thread_time()
            out = work(share)
            spent.append((threading.get_ident() == asker, time.thread_time() - began))
            return out

        asker = threading.get_ident()
        out = done(team, one, shares)
        if team is not None and len(shares) > 1:
            own, others = (sum(cpu for mine, cpu in spent if mine is whose) for whose in (True, False))
            shared += own + others
            if asker == main:  # others work for longer than it does itself
                longest += max(others / max(threads - 1, 1) - own, 0.0)
        return out

    row_shares._done = timed
    began, here = time.process_time(), time.thread_time()
    with row_shares.side_by_side(threads):
        analysis = taut.run.analyze(job)
        analysis.to_json()
    whole, alone = time.process_time() - began, time.thread_time() - here
    print(
        f"{job}: {len(analysis.graph):,} ops, {threads} threads: {whole:.2f} s of CPU without start-up, {shared:.2f} in "
        f"shares; longest chain {alone + longest:.2f} s, {alone:.2f} of them in the main thread; {load()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("-o", dest="folder")
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    memory.fit()
    if asked.threads:
        chain(asked.job, asked.threads)
        return
    clock = Clock()
    taut.run._second_thread = here
    for name, told in PHASES.items():
        setattr(taut.run, name, clock.phase(told, getattr(taut.run, name)))
    Kernel.__call__ = clock.kernel(Kernel.__call__)  # type: ignore[method-assign]
    began = time.process_time()
    analysis = taut.run.analyze(asked.job)
    analysis.to_json()
    if asked.folder is not None:
        analysis.save(asked.folder)
    whole = time.process_time() - began
    clock.cpu["other"] = whole - sum(clock.cpu.values())
    print(f"{asked.job}: {len(analysis.graph):,} ops, {whole:.1f} s of CPU without start-up; {load()}\n")
    print("| phase | CPU s | share | of that in kernels, s | these touch, GB | over the network, s |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in [*PHASES.values(), "other"]:
        if name in clock.cpu:
            print(_row(name, clock, clock.cpu[name], whole))
    print(_row("all", clock, whole, whole))
    print("\n| kernel | CPU s | share | touches, GB | over the network, s |\n|---|---:|---:|---:|---:|")
    kernels = sorted((key for key in clock.kernels if key.startswith("kernel ")), key=lambda key: -clock.kernels[key])
    for key in kernels[:16]:
        cpu, touched = clock.kernels[key], clock.touched[key]
        print(f"| `{key.removeprefix('kernel ')}` | {cpu:.2f} | {cpu / whole:.1%} | {touched:.1f} | {touched / GB_S:.1f} |")


def _row(name: str, clock: Clock, cpu: float, whole: float) -> str:
    keys = [key for key in clock.kernels if not key.startswith("kernel ") and name in (key, "all")]
    kernels, touched = sum(clock.kernels[key] for key in keys), sum(clock.touched[key] for key in keys)
    return f"| {name} | {cpu:.2f} | {cpu / whole:.1%} | {kernels:.2f} | {touched:.1f} | {touched / GB_S:.1f} |"


if __name__ == "__main__":
    main()
