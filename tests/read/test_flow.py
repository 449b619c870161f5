"""Kineto files too large to hold: decoded while they flow, to the same trace, in bounded memory, or refused."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import Trace
from taut.read import files
from taut.read.kineto import json_events as kineto_json
from taut.read.kineto import reader as kineto
from taut.read.kineto.event_columns import shows_device
from taut.read.trace import read

Write = Any


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files above a kilobyte count as too large to hold, and slices are short."""
    shrink(monkeypatch)


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "WHOLE_BYTES", 1 << 10)
    monkeypatch.setattr(kineto_json, "SLICE_BYTES", 256)
    monkeypatch.setattr(kineto_json, "EVENT_BYTES", 64 << 10)


def flowing(data: bytes, piece: int = 100) -> Trace:
    """The trace of a file whose bytes come in pieces, after a first one as large as may be held."""
    first = kineto.WHOLE_BYTES + 1
    pieces = [memoryview(data[:first]), *(data[at : at + piece] for at in range(first, len(data), piece))]
    return kineto.flow(iter(pieces), "t", shows_device(pieces[:1]))


def same(a: Trace, b: Trace) -> None:
    for field in ("names", "lanes", "groups", "counts", "world_size", "group_ranks"):
        assert getattr(a, field) == getattr(b, field), field
    assert a.members.host.tolist() == b.members.host.tolist()
    for name, column in a.ops.columns.items():
        assert np.array_equal(column, b.ops.columns[name]), name


def job(tiny: Any, device: bool, n: int = 40) -> list[Any]:
    """Operators first, then what devices did, as the profiler writes it."""
    args = {"Collective name": "allreduce", "Process Group Name": "0", "In msg nelems": 8, "dtype": "Float"}
    out = [tiny.event("cpu_op", f"aten::op{k % 3}", 10 * k, 5, **{"Input Dims": [[k, 2]]}) for k in range(n)]
    out += [tiny.event("cpu_op", "record_param_comms", 10 * k, 6, Seq=k, **args) for k in range(0, n, 4)]
    for k in range(n if device else 0):
        out += [
            tiny.launch(k + 1, 10 * k + 1),
            tiny.kernel("gemm" if k % 4 else "ncclDevKernel_AllReduce", k + 1, 10 * k + 3, 4),
        ]
    return out


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("device", [False, True])
def test_a_file_that_flows_gives_the_same_trace(tiny: Any, device: bool) -> None:
    data = tiny.as_bytes(job(tiny, device), world_size=2, host_name="node", trace_id="x")
    same(flowing(data), kineto.load(data, "t"))
    same(flowing(data, 7), kineto.load(data, "t"))


NESTED = {"x": [{"a": 1}, {"b": 2}, {"c": [{"d": 3}, {"e": 4}]}] * 20}
AWKWARD = {
    "seams inside arguments": lambda e: [*e, *({**e[0], "args": NESTED} for _ in range(20))],
    "seams inside names": lambda e: [*e, *({**e[0], "name": 'a}, {b\\", ] [' * 40} for _ in range(20))],
    "not a number": lambda e: [*e, {**e[0], "dur": float("nan")}, *e, {**e[0], "args": {"x": float("inf")}}, *e],
    "no events": lambda e: [*e, None, 5, "}, {", [1, {"a": 2}], *e],
    "wrong types": lambda e: [*e, {**e[0], "ts": "12.5", "tid": [1]}, *e],
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("how", AWKWARD)
def test_awkward_seams(tiny: Any, how: str) -> None:
    data = tiny.as_bytes(AWKWARD[how](job(tiny, device=True)))
    same(flowing(data), kineto.load(data, "t"))


@pytest.mark.usefixtures("small")
def test_bytes_that_are_no_text(tiny: Any) -> None:
    data = tiny.as_bytes(job(tiny, device=True)).replace(b"aten::op1", b"aten::\xff")
    same(flowing(data), kineto.load(data, "t"))


@pytest.mark.usefixtures("small")
def test_what_stands_behind_the_events(tiny: Any) -> None:
    """The rank, and lists of objects of its own, come last."""
    events = job(tiny, device=True)
    tail = {"deviceProperties": [{"id": k, "name": "X"} for k in range(100)], "distributedInfo": {"rank": 3, "world_size": 4}}
    data = json.dumps({"schemaVersion": 1, "traceEvents": events, **tail}).encode()
    trace = flowing(data)
    assert (trace.members.rank.tolist(), trace.members.device.tolist(), trace.world_size) == ([3], ["X"], 4)
    same(trace, kineto.load(data, "t"))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda d: d[: len(d) // 2], "breaks off at byte"),
        (lambda d: d.replace(b'"ph": "X"', b'"ph" "X"'), "not valid trace JSON"),
        (lambda d: d[:2000] + b'{"args":' + b"[" * 9_000_000, "nested too deeply|nothing that could be one event"),
        (
            lambda d: d[:-3] + b',{"name": "' + b"x" * 200_000 + b'"}' + b"," + d[60:],
            "nothing that could be one event|not valid",
        ),
    ],
)
def test_damage_is_refused_in_one_line(tiny: Any, damage: Any, why: str) -> None:
    data = damage(tiny.as_bytes(job(tiny, device=True)))
    with pytest.raises(InputRefused, match=why) as caught:
        flowing(data, 1000)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutated_files_load_or_are_refused(tiny: Any, data: st.DataObject) -> None:
    good = tiny.as_bytes(job(tiny, device=data.draw(st.booleans()), n=12))
    at, length = data.draw(st.integers(0, len(good))), data.draw(st.integers(0, 40))
    bad = good[:at] + data.draw(st.binary(max_size=30)) + good[at + length :]
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        with suppress(InputRefused):
            flowing(bad, data.draw(st.integers(1, 3000)))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_large_files_are_read_through_the_same_door(tiny: Any, write: Write, name: str) -> None:
    path = write(name, job(tiny, device=True), world_size=1)
    trace = read([path])
    assert (len(trace.ops), trace.counts["dropped: cpu_op"]) == (80, 40)


def test_memory_does_not_grow_with_the_file(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty megabytes of operators, launches and kernels in a buffer of one: a fraction of the file is ever held."""
    monkeypatch.setattr(kineto, "WHOLE_BYTES", 1 << 20)
    monkeypatch.setattr(kineto_json, "SLICE_BYTES", 1 << 18)
    event = tiny.event("cpu_op", "aten::mm", 10, 5, **{"Input Dims": [[4, 4]] * 8, "Call stack": "x" * 400})
    many = json.dumps([event] * 1000).encode()[1:-1]
    rest = json.dumps([tiny.launch(1, 1), tiny.kernel("gemm", 1, 3, 4)]).encode()[1:-1]
    path = tmp_path / "a.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(b'{"schemaVersion": 1, "traceEvents": [' + b",".join([many] * 40 + [rest]) + b"]}")
    tracemalloc.start()
    try:
        trace = read([path])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(trace.ops), trace.counts["dropped: cpu_op"]) == (2, 40_000)
    assert peak < 12 << 20 < 40 * len(many)


def test_more_than_the_cap_is_refused_while_it_flows(tiny: Any, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SIZE_BYTES", 3000)
    path = write("a.json", job(tiny, device=True))
    with pytest.raises(TooLarge, match="MiB when read"):
        read([path])


@pytest.mark.parametrize("claim", ["all of it", "the last of two parts", "nothing"])
def test_a_held_file_is_read_whole_whatever_gzip_claims(tmp_path: Path, claim: str) -> None:
    content = bytes(range(256)) * 2048
    cut = 300_000 if claim == "the last of two parts" else len(content)
    packed = b"".join(gzip.compress(part) for part in (content[:cut], content[cut:]) if part)
    path = tmp_path / "a.gz"
    path.write_bytes(packed + (bytes(4) if claim == "nothing" else b""))  # padding, which is allowed
    assert [bytes(member.front(1 << 20)) for member in files.members(str(path))] == [content]


def test_no_more_is_held_than_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(200_000))
    for member in files.members(str(path)):
        assert (len(member.front(150_000)), sum(map(len, member.chunks()))) == (150_000, 50_000)
