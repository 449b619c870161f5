"""Jobs of which small accelerator traces are written, in the forms of several profilers; ``device_cases.py`` uses them."""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import device

GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
RELU = "void at::native::vectorized_elementwise_kernel<4, at::native::relu>"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
H2D, D2H, FILL = "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memset (Device)"
XLA_COPIES = {H2D: "MemcpyH2D", D2H: "MemcpyD2H", FILL: "Memset"}


@dataclass
class Job:
    """One rank's trace; times in ms, on the device as first-in-first-out streams."""

    rank: int = 0
    world: int = 1
    clock: float = 1000.0
    """What this rank's clock shows at 0, ms."""
    events: list[dict[str, Any]] = field(default_factory=list)
    free: dict[tuple[int, int], float] = field(default_factory=dict)
    correlation: int = 100
    header: dict[str, Any] = field(default_factory=dict)
    """What else stands before the events."""

    def event(self, cat: str, name: str, start: float, length: float, tid: int = 1, pid: int = 1, **args: Any) -> None:
        ts, dur = round((self.clock + start) * 1000, 3), round(length * 1000, 3)
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    def mark(self, name: int | str, start: float, end: float) -> None:
        self.event("user_annotation", f"ProfilerStep#{name}" if isinstance(name, int) else name, start, end - start)

    def call(self, at: float, name: str = "cudaLaunchKernel", length: float = 0.004, tid: int = 1) -> int:
        self.correlation += 1
        self.event("cuda_runtime", name, at, length, tid, correlation=self.correlation)
        return self.correlation

    def on_device(
        self, name: str, start: float, length: float, correlation: int, stream: int = 7, dev: int = 0, **args: Any
    ) -> float:
        """An event exactly here; gives its end."""
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "gpu_memset" if name.startswith("Memset") else "kernel"
        self.event(
            cat, name, start, length, stream, pid=dev, correlation=correlation, device=dev, stream=stream, context=1, **args
        )
        self.free[dev, stream] = max(self.free.get((dev, stream), 0.0), start + length)
        return start + length

    def run(
        self, name: str, at: float, length: float, stream: int = 7, dev: int = 0, after: float = 0.0, tid: int = 1, **args: Any
    ) -> float:
        """Launch at ``at``; begins when its stream is free and ``after`` has passed; gives its end."""
        api = "cudaMemcpyAsync" if name.startswith("Memcpy") else "cudaLaunchKernel"
        start = max(at + 0.01, after, self.free.get((dev, stream), 0.0))
        return self.on_device(name, start, length, self.call(at, api, tid=tid), stream, dev, **args)

    def write(self, folder: Path, form: str = "kineto") -> Path:
        return {"kineto": self.write_kineto, "nsight": self.write_nsight, "xla": self.write_xla}[form](folder)

    def write_kineto(self, folder: Path) -> Path:
        groups = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": list(range(self.world))}]
        info = {"backend": "nccl", "rank": self.rank, "world_size": self.world, "pg_config": groups}
        path = folder / f"rank{self.rank}.json"
        path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, **self.header, "traceEvents": self.events}))
        return path

    def write_xla(self, folder: Path) -> Path:
        """The same as JAX's trace viewer writes it: a process a device, a thread a stream, correlations on both sides."""
        named, events = [{"ph": "M", "name": "process_name", "pid": 701, "args": {"name": "/host:CPU"}}], []
        threads: dict[tuple[int, int], str] = {(701, tid): f"python {tid}" for tid in {e["tid"] for e in self.events}}
        for e in self.events:
            pid, args = e["args"].get("device"), {"correlation_id": str(e["args"].get("correlation"))}
            if e["cat"] in device.DEVICE and pid is not None:
                threads[pid + 1, e["tid"]] = f"Stream #{e['tid']}(Compute)"
                name = XLA_COPIES.get(e["name"], e["name"])
            elif e["cat"] == "user_annotation" and e["name"].startswith("ProfilerStep#"):
                name, pid, args = "train", 700, {"step_num": e["name"].split("#")[1]}
            elif e["cat"] == "cuda_runtime" and "correlation" in e["args"]:
                name, pid = e["name"].replace("cudaLaunchKernel", "cuLaunchKernel"), 700
            else:
                continue
            where = {"pid": pid + 1, "tid": e["tid"], "ts": e["ts"], "dur": e["dur"]}
            events.append({"ph": "X", "name": name, **where, "args": args})
        for pid, tid in threads:
            if pid != 701:
                named.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"/device:GPU:{pid - 1}"}})
            named.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": threads[pid, tid]}})
        head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
        path = folder / f"rank{self.rank}.trace.json.gz"
        path.write_bytes(gzip.compress(json.dumps({**head, "traceEvents": named + events}).encode()))
        return path

    def write_nsight(self, folder: Path) -> Path:
        """The same as an export of Nsight Systems; marks of steps are NVTX ranges."""
        path, process = folder / f"rank{self.rank}.sqlite", self.rank + 1
        strings: dict[str, int] = {}
        rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in NSIGHT}
        for e in self.events:
            name, args = strings.setdefault(e["name"], len(strings) + 1), e["args"]
            start = round(e["ts"] * 1000)
            times = start, start + round(e["dur"] * 1000)
            where = args.get("device"), args.get("stream"), args.get("correlation"), process << 24
            if e["cat"] == "kernel":
                rows["CUPTI_ACTIVITY_KIND_KERNEL"].append((*times, *where, name, args.get("graph node id")))
            elif e["cat"] == "gpu_memcpy":
                way = 1 if "HtoD" in e["name"] else 2
                rows["CUPTI_ACTIVITY_KIND_MEMCPY"].append((*times, *where, args.get("bytes", 1), way))
            elif e["cat"] == "gpu_memset":
                rows["CUPTI_ACTIVITY_KIND_MEMSET"].append((*times, *where, args.get("bytes", 1), 0))
            elif e["cat"] == "cuda_runtime":
                rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append((*times, (process << 24) + e["tid"], args.get("correlation"), name))
            elif e["cat"] == "user_annotation":
                text = e["name"].replace("ProfilerStep#", "step ")
                rows["NVTX_EVENTS"].append((*times, 59, text, (process << 24) + e["tid"], None, 0))
        rows["StringIds"] = [(code, text) for text, code in strings.items()]
        with contextlib.closing(sqlite3.connect(path)) as db:
            for table, columns in NSIGHT.items():
                db.execute(f"create table {table} ({columns})")
                db.executemany(f"insert into {table} values ({', '.join('?' * len(columns.split(',')))})", rows[table])
            db.commit()
        return path


NSIGHT = {
    "StringIds": "id integer primary key, value text",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, demangledName, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, streamId, correlationId, globalPid, bytes, value",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid, textId, domainId",
}


@dataclass
class Truth:
    """What is true of every rank; shares in percent, None where the windows chosen decide."""

    step_ms: float | None
    busy: float | None = None
    compute: float | None = None
    communication: float | None = None
    exposed: float | None = None
    copy: float | None = None
    exposed_copy: float | None = None
    windows: tuple[int, int] = (1, 10**6)
    """Fewest and most windows a rank."""
    ranks: tuple[int, ...] = (0,)
    several_devices: bool = False


Case = tuple[list[Job], Truth]
CASES: dict[str, Callable[[], Case]] = {}
KINETO_ONLY = (
    "annotations_on_the_device",
    "device_and_host_collectives",
    "prefill_and_decode",
    "categories_of_old_pytorch",
    "numbers_as_text",
    "intel_xpu",
    "hip_launches",
    "marks_of_two_threads",
    "synchronisation_events",
    "correlations_reused",
)
LEFT_OUT = {
    "kineto": set[str](),
    "nsight": {*KINETO_ONLY, "before_zero"},
    "xla": {*KINETO_ONLY, "decode_marks", "rank_without_device"},
}
"""Cases that a form cannot tell."""


def case(write: Callable[[], Case]) -> Callable[[], Case]:
    CASES[write.__name__] = write
    return write


def kineto_case(write: Callable[[], Case]) -> Callable[[], Case]:
    """A case that only Kineto's form can tell."""
    for form in ("nsight", "xla"):
        LEFT_OUT[form].add(write.__name__)
    return case(write)


def ahead(job: Job, steps: range, body: Callable[[int, float], None], host: float = 2.0) -> None:
    """Marks of ``host`` ms, one after another, whatever the device does."""
    for i, step in enumerate(steps):
        job.mark(step, i * host, (i + 1) * host - 0.02)
        body(step, i * host)
