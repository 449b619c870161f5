"""Tiny traces written by the tests themselves, and a way to look at the ops that come out."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taut.core.tables import Kind, Trace, Verb

BASE_NS = 1_700_000_000_000_000_000


def event(cat: str, name: str, ts: Any, dur: Any, tid: Any = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(correlation: int, ts: float, dur: float = 2, tid: int = 1, name: str = "cudaLaunchKernel") -> dict[str, Any]:
    return event("cuda_runtime", name, ts, dur, tid, correlation=correlation)


def kernel(name: str, correlation: int, ts: float, dur: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    return event("kernel", name, ts, dur, stream, correlation=correlation, stream=stream, device=0, **args)


def step(number: int, ts: float, dur: float) -> dict[str, Any]:
    return event("user_annotation", f"ProfilerStep#{number}", ts, dur)


def c10d(name: str, ts: float, dur: float, dims: list[Any], concrete: list[str] | None = None) -> dict[str, Any]:
    args = {"Input Dims": dims, "Input type": ["float"] * len(dims), "Concrete Inputs": concrete or []}
    return event("cpu_op", f"c10d::{name}", ts, dur, 1, **args)


def gloo(name: str, ts: float, dur: float, elements: int, tid: int = 9) -> dict[str, Any]:
    args = {"Input Dims": [[elements]], "Input type": ["float"]}
    return event("user_annotation", f"gloo:{name}", ts, dur, tid, **args)


def document(events: list[Any], rank: int | None = 0, world_size: int = 1, **header: Any) -> dict[str, Any]:
    top: dict[str, Any] = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, **header}
    if rank is not None:
        info = {"backend": "gloo", "rank": rank, "world_size": world_size, **header.get("distributedInfo", {})}
        top["distributedInfo"] = info
    return {**top, "traceEvents": events}


def as_bytes(events: list[Any], **header: Any) -> bytes:
    return json.dumps(document(events, **header)).encode()


def ops_of(trace: Trace) -> list[dict[str, Any]]:
    """The ops as readable rows, in order of start; times in µs after BASE_NS."""
    ops = trace.ops
    rows = [
        {
            "rank": int(ops.rank[i]),
            "lane": trace.lanes[ops.lane[i]],
            "kind": Kind(int(ops.kind[i])).name.lower(),
            "name": trace.names[ops.name[i]],
            "start": (int(ops.start_ns[i]) - BASE_NS) / 1000,
            "end": (int(ops.end_ns[i]) - BASE_NS) / 1000,
            "verb": Verb(int(ops.verb[i])).word,
            "group": trace.groups[ops.group[i]] if ops.group[i] >= 0 else "",
            "launch": trace.names[ops.name[ops.launch[i]]] if ops.launch[i] >= 0 else "",
            **{name: int(ops.columns[name][i]) for name in ("step", "seq", "size", "peer")},
        }
        for i in range(len(ops))
    ]
    return sorted(rows, key=lambda row: (row["start"], row["end"], row["lane"]))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a trace file into the test's folder ``job``; ``.gz`` names are compressed."""

    def _write(name: str, events: list[Any] | bytes, **header: Any) -> Path:
        path = tmp_path / "job" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = events if isinstance(events, bytes) else as_bytes(events, **header)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return _write


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """The words in which tests write events."""
    words = (event, launch, kernel, step, c10d, gloo, document, as_bytes, ops_of)
    return SimpleNamespace(BASE_NS=BASE_NS, **{word.__name__: word for word in words})
