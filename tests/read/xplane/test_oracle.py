"""The decoder against JAX's own reader, ``jax.profiler.ProfileData``; skipped where JAX is not installed."""

from __future__ import annotations

import gzip
import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.read.xplane.space import decode
from xla_profiles import gpu_job, tpu_job

WILD = ("tracelens_jax08_gemm_mi300.xplane.pb", "tensorflow_gpu_multi_worker.xplane.pb")
Decoded = dict[tuple[str, str], Any]


@pytest.fixture
def jax() -> Any:
    """JAX, after whatever else a test needs: tests that need the shared data too are skipped for that first."""
    try:
        return importlib.import_module("jax")
    except ImportError:
        pytest.skip("needs jax, which is no dependency of the tests")


def ours(data: bytes) -> Decoded:
    """(plane, line) → how many events, sums of their starts and durations in ns, and of their names."""
    decoded: Decoded = {}
    for plane in decode(data, "a", lambda _, names: [True] * len(names)).planes:
        for number, line in enumerate(plane.lines):
            names = Counter(plane.programs[code] for code in line.name_of.tolist())
            decoded[plane.name, f"{line.name} {number}"] = (
                len(line),
                int(line.start.sum()),
                int((line.end - line.start).sum()),
                names,
            )
    return decoded


def theirs(data: bytes) -> Decoded:
    """The same, as JAX reads it."""
    from jax.profiler import ProfileData

    decoded: Decoded = {}
    for plane in ProfileData.from_serialized_xspace(data).planes:
        lines = [(line.name, list(line.events)) for line in plane.lines]
        for number, (name, events) in enumerate((name, events) for name, events in lines if events):
            start, duration = (np.array([getattr(e, key) for e in events]) for key in ("start_ns", "duration_ns"))
            names = Counter(event.name for event in events)
            decoded[plane.name, f"{name} {number}"] = (len(events), start.sum(), duration.sum(), names)
    return decoded


def same(data: bytes) -> int:
    """Compare line by line; returns how many events there were."""
    one, other = ours(data), theirs(data)
    assert list(one) == list(other)
    for key, (count, start, duration, names) in one.items():
        assert (count, names) == (other[key][0], other[key][3]), key
        # Fractions of a nanosecond are rounded here.
        assert abs(start - other[key][1]) <= count, key
        assert abs(duration - other[key][2]) <= count, key
    return sum(count for count, *_ in one.values())


@pytest.mark.parametrize("data", [gpu_job(), tpu_job()], ids=["gpu", "tpu"])
def test_synthetic_profiles(jax: Any, data: bytes) -> None:
    assert same(data) > 20


@pytest.mark.parametrize("name", WILD)
def test_recorded_profiles(shared: Path, jax: Any, name: str) -> None:
    assert same((shared / "wild" / name).read_bytes()) > 3000


def union(spans: list[tuple[float, float]]) -> float:
    total, last = 0.0, -np.inf
    for start, end in sorted(spans):
        total += max(end - max(start, last), 0.0)
        last = max(last, end)
    return total


@pytest.mark.parametrize("name", WILD)
def test_device_shares_are_unions_of_raw_events(shared: Path, jax: Any, name: str) -> None:
    from jax.profiler import ProfileData

    import taut

    path = shared / "wild" / name
    device = taut.analyze(path).result.device
    planes = {plane.name: list(plane.lines) for plane in ProfileData.from_file(str(path)).planes}
    assert device.windows
    found: dict[int, list[tuple[float, float]]] = {}
    for window in device.windows:
        lines = [line for line in planes[f"/device:GPU:{window.rank}"] if line.name.startswith("Stream #")]
        spans = [(max(e.start_ns, window.start_ns), min(e.end_ns, window.end_ns)) for line in lines for e in line.events]
        busy = union([(start, end) for start, end in spans if end > start])
        found.setdefault(window.rank, []).append((busy, window.end_ns - window.start_ns))
    for rank, both in found.items():
        busy, wall = (sum(column) for column in zip(*both, strict=True))
        assert device.ranks[str(rank)].busy_share == pytest.approx(busy / wall, abs=1e-6)


def test_a_profile_that_is_recorded_now(jax: Any, tmp_path: Path) -> None:
    from taut.read.trace import read

    step = jax.jit(lambda x: (x @ x.T).sum())
    x = jax.numpy.ones((200, 200))
    step(x).block_until_ready()
    jax.profiler.start_trace(str(tmp_path))
    for k in range(4):
        with jax.profiler.StepTraceAnnotation("train", step_num=k):
            step(x).block_until_ready()
    jax.profiler.stop_trace()
    (path,), (viewed,) = (list(tmp_path.rglob(pattern)) for pattern in ("*.xplane.pb", "*.trace.json.gz"))
    same(path.read_bytes())
    one, other = read([path]), read([viewed])
    assert one.marks.step.tolist() == other.marks.step.tolist() == [0, 1, 2, 3]
    assert one.ops.start_ns.tolist() == other.ops.start_ns.tolist()
    events = json.loads(gzip.decompress(viewed.read_bytes()))["traceEvents"]
    assert sum("hlo_op" in event.get("args", {}) for event in events) >= len(one.ops) > 0
