"""Kineto traces of ranks with an accelerator, written event by event; times in µs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import taut
from taut.core.tables import Trace


@dataclass
class Rank:
    """One rank's file: steps of the host, and device work with the call that launched it."""

    rank: int = 0
    world: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    correlation: int = 0
    device: str = ""
    """The accelerator's name."""

    def step(self, number: int, start: float, end: float) -> None:
        """A profiler step of the host."""
        self.annotation(f"ProfilerStep#{number}", start, end)

    def annotation(self, name: str, start: float, end: float) -> None:
        """A range that somebody named on the host."""
        self._add("user_annotation", name, start, end - start, 1, 1)

    def work(self, launch: float | None, start: float, end: float, name: str = "gemm", stream: int = 7, **args: Any) -> None:
        """Device work, launched at a time, or by a call that was not recorded."""
        self.correlation += 1
        link = {"correlation": self.correlation}
        if launch is not None:
            self._add("cuda_runtime", "cudaLaunchKernel", launch, 2, 1, 1, link)
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        self._add(cat, name, start, end - start, 0, stream, link | {"device": 0, "stream": stream} | args)

    def call(self, name: str, start: float, end: float) -> None:
        """A call of the host that waits."""
        self.correlation += 1
        self._add("cuda_runtime", name, start, end - start, 1, 1, {"correlation": self.correlation})

    def _add(self, cat: str, name: str, ts: float, dur: float, pid: int, tid: int, args: Any = None) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args or {}}
        self.events.append(event)

    def save(self, folder: Path) -> Path:
        """Write the file."""
        path = folder / f"rank{self.rank}.json"
        path.write_bytes(self.encode())
        return path

    def encode(self) -> bytes:
        """The file's bytes; all ranks are on one host and share its clock."""
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.world}
        document = {"schemaVersion": 1, "host_name": "node-1", "distributedInfo": info, "traceEvents": self.events}
        document |= {"deviceProperties": [{"id": 0, "name": self.device}]} if self.device else {}
        return json.dumps(document).encode()


def read(folder: Path, *ranks: Rank) -> Trace:
    """The trace of these ranks."""
    return taut.read([one.save(folder) for one in ranks])


def host_ahead(
    steps: int = 4, *, kernels: int = 5, host_us: int = 1000, device_us: int = 5000, rank: Rank | None = None
) -> Rank:
    """A rank whose host takes ``host_us`` a step and whose device, always busy, ``device_us``."""
    one = rank or Rank()
    for s in range(steps):
        one.step(s, s * host_us, (s + 1) * host_us)
        for k in range(kernels):
            launch = s * host_us + k * host_us / kernels + 10
            start = 20 + s * device_us + k * device_us / kernels
            one.work(launch, start, start + device_us / kernels, f"gemm {k}")
    return one


def skewed(ranks: int, steps: int = 4, *, period: int = 5000, skew: int = 700) -> Sequence[Rank]:
    """Ranks whose devices begin every step one after the other, and meet at its end."""
    out = []
    for r in range(ranks):
        one = Rank(r, ranks)
        for s in range(steps):
            one.step(s, s * 1000, (s + 1) * 1000)
            start, end = 20 + s * period + (r * skew if s else 0), 20 + (s + 1) * period
            one.work(s * 1000 + 10, start, end - 500, "gemm")
            tag = {"Collective name": "allreduce", "Process Group Name": "default", "In msg nelems": 4, "dtype": "Float"}
            one.work(s * 1000 + 500, end - 500, end - 100 + r * skew, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8, **tag)
        out.append(one)
    return out
