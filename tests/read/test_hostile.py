"""Hostile input: handled or refused with one line, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from taut.core.errors import InputRefused, NotATrace, TooLarge
from taut.read import files
from taut.read.kineto import json_events as kineto_json
from taut.read.kineto import reader as kineto
from taut.read.trace import read

Write = Any
HEAD = b'{"schemaVersion": 1, "traceEvents": ['


def refused(data: bytes) -> str:
    with pytest.raises(InputRefused) as caught:
        kineto.load(data, "t.json")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "bomb",
    [b"[" * 2_000_000, b'{"schemaVersion":' + b'{"a":' * 500_000, HEAD + b'{"args":' + b"[" * 2_000_000],
    ids=["list", "header", "args"],
)
def test_deep_nesting(bomb: bytes) -> None:
    assert "nested too deeply" in refused(bomb)


def test_a_number_of_five_million_digits(tiny: Any) -> None:
    good = json.dumps(tiny.event("cpu_op", "aten::mm", 1, 2)).encode()
    bad = b'{"ph":"X","cat":"cpu_op","name":"big","ts":' + b"9" * 5_000_000 + b',"dur":1}'
    trace = kineto.load(HEAD + good + b"," + bad + b"]}", "t")
    assert trace.names == ["aten::mm"]
    assert trace.counts["dropped: no time or duration"] == 1


@pytest.mark.parametrize(
    ("ts", "dur", "reason"),
    [
        (10, -5, "negative duration"),
        (float("nan"), 5, "no time or duration"),
        (10, float("inf"), "no time or duration"),
        (None, 5, "no time or duration"),
        ("soon", 5, "no time or duration"),
        (1e18, 5, "time out of range"),
    ],
)
def test_bad_times_are_dropped_and_counted(tiny: Any, ts: Any, dur: Any, reason: str) -> None:
    events = [tiny.event("cpu_op", "aten::mm", 1, 2), tiny.event("cpu_op", "bad", ts, dur)]
    trace = kineto.load(tiny.as_bytes(events), "t")
    assert [op["name"] for op in tiny.ops_of(trace)] == ["aten::mm"]
    assert trace.counts[f"dropped: {reason}"] == 1


def test_odd_types_cost_the_field_not_the_file(tiny: Any) -> None:
    events = [
        tiny.event("cpu_op", "strings", "10.5", "2", tid="main"),
        tiny.event("cpu_op", "listed", 20, 2, tid=[1]),
        {**tiny.event("cpu_op", "no args", 30, 2), "args": None},
        {**tiny.event("cpu_op", "odd args", 40, 2), "args": [1, 2]},
        {**tiny.event("cpu_op", "odd dims", 50, 2), "args": {"Input Dims": [["a", None], 5]}},
        {"ph": "X", "cat": "cpu_op", "ts": 60, "dur": 2},
        {"ph": "X", "cat": "cpu_op", "name": "no time"},
        None,
        "text",
        7,
    ]
    trace = kineto.load(tiny.as_bytes(events), "t")
    ops = tiny.ops_of(trace)
    assert [op["name"] for op in ops] == ["strings", "listed", "no args", "odd args", "odd dims", ""]
    assert (ops[0]["start"], ops[0]["end"], ops[0]["lane"]) == (10.5, 12.5, "thread main")
    assert trace.counts["dropped: not an event"] == 3
    assert trace.counts["dropped: no time or duration"] == 1


def test_odd_arguments_of_device_events(tiny: Any) -> None:
    events = [
        tiny.launch(1, 0),
        tiny.kernel("a", 1, 10, 5),
        tiny.kernel("b", 2**80, 20, 5),
        tiny.kernel("c", "1", 30, 5),
    ]
    events += [tiny.kernel("ncclDevKernel_AllReduce", 1, 40, 5, **{"Process Group Ranks": {}, "Seq": "x", "dtype": 5})]
    trace = kineto.load(tiny.as_bytes(events), "t")
    assert [op["launch"] for op in tiny.ops_of(trace)] == [
        "",
        "cudaLaunchKernel",
        "",
        "cudaLaunchKernel",
        "cudaLaunchKernel",
    ]


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": {"rank": "x", "world_size": -3, "pg_config": 5}},
        {"distributedInfo": {"rank": 2**40, "world_size": 1e300}},
        {"baseTimeNanoseconds": "later", "deviceProperties": "many", "host_name": 5},
        {"baseTimeNanoseconds": 10**30},
    ],
)
def test_odd_headers(tiny: Any, header: dict[str, Any]) -> None:
    document = tiny.document([tiny.event("cpu_op", "aten::mm", 1, 2)]) | header
    assert len(kineto.load(json.dumps(document).encode(), "t").ops) == 1


def test_a_world_of_two_billion_ranks_costs_no_memory(tiny: Any, write: Write) -> None:
    path = write("a.json", [tiny.event("cpu_op", "aten::mm", 1, 2)], rank=0, world_size=2_000_000_000)
    assert read([path]).partial == ("ranks 1–1999999999 of 2000000000 missing: waits for them cannot be seen",)


def test_duplicate_keys_and_events_out_of_order(tiny: Any) -> None:
    second = b'{"ph":"X","cat":"cpu_op","name":"first said","name":"b","ts":50,"dur":5,"tid":1}'
    first = b'{"ph":"X","cat":"cpu_op","name":"a","ts":10,"dur":5,"tid":1}'
    trace = kineto.load(HEAD + second + b"," + first + b"]}", "t")
    assert [trace.names[code] for code in trace.ops.name] == ["a", "b"]


def test_names_are_data(tiny: Any) -> None:
    name = "\x1b[31m<script>alert(1)</script>\u202e" + "x" * 500
    trace = kineto.load(tiny.as_bytes([tiny.event("cpu_op", name, 1, 2)]), "t")
    assert trace.names == [name[:200]]


def test_bytes_that_are_no_text(tiny: Any) -> None:
    data = tiny.as_bytes([tiny.event("cpu_op", "mmXmm", 1, 2)]).replace(b"mmXmm", b"mm\xffmm")
    assert kineto.load(data, "t").names == ["mm�mm"]


def test_a_bare_list_of_events(tiny: Any) -> None:
    trace = kineto.load(json.dumps([tiny.event("cpu_op", "aten::mm", 1, 2)]).encode(), "t")
    assert (trace.names, trace.members.rank.tolist()) == (["aten::mm"], [-1])


def test_empty_traces_are_refused() -> None:
    assert "no operator events" in refused(HEAD + b"]}")
    assert "no operator events" in refused(b"[]")
    assert "no operator events" in refused(b'{"schemaVersion": 1}')
    assert "not valid trace JSON" in refused(b'{"traceEvents": 5}')


def test_broken_json_names_the_byte(tiny: Any) -> None:
    data = tiny.as_bytes([tiny.event("cpu_op", "aten::mm", 1, 2)])
    assert f"breaks off at byte {len(data) - 5}" in refused(data[:-5])
    assert "byte 21" in refused(b'{"schemaVersion": 1, oops}')


@pytest.mark.parametrize("indent", [None, 2])
def test_slices_see_the_same_as_the_whole(tiny: Any, monkeypatch: pytest.MonkeyPatch, indent: int | None) -> None:
    events = [tiny.event("cpu_op", f"}},{{ {i % 7}", i * 10, 5, **{"nested": [{"a": 1}, {"b": 2}]}) for i in range(300)]
    plain = [tiny.event("cpu_op", f"op {i % 7}", i * 10, 5) for i in range(300)]
    for rows in (events, plain):
        data = json.dumps({**tiny.document(rows), "after": {"x": [{}, {}]}}, indent=indent).encode()
        whole = tiny.ops_of(kineto.load(data, "t"))
        monkeypatch.setattr(kineto_json, "SLICE_BYTES", 1000)
        assert tiny.ops_of(kineto.load(data, "t")) == whole
        monkeypatch.undo()


def bomb(megabytes: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + packer.flush()


def test_a_gzip_bomb_is_stopped_early(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    head = gzip.compress(HEAD)
    path.write_bytes(head + bomb(400))
    tracemalloc.start()
    with pytest.raises(TooLarge, match="200:1"):
        read([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


def test_the_size_cap_is_checked_while_reading(tiny: Any, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.json", [tiny.event("cpu_op", "aten::mm", 1, 2)] * 30_000)
    monkeypatch.setattr(files, "SIZE_BYTES", 1 << 20)
    with pytest.raises(TooLarge, match="more than 1 MiB when read"):
        read([path])


def test_too_many_members(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(20):
            tar.addfile(tarfile.TarInfo(str(i)), io.BytesIO())
    monkeypatch.setattr(files, "MEMBERS", 10)
    with pytest.raises(TooLarge, match="more than 10 members"):
        read([path])


def test_an_archive_header_that_is_itself_a_bomb(tmp_path: Path) -> None:
    header = tarfile.TarInfo("name")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 50 << 20
    path = tmp_path / "long.tar.gz"
    path.write_bytes(gzip.compress(header.tobuf() + bytes(50 << 20), 1))
    with pytest.raises(TooLarge, match="archive header"):
        read([path])


def test_damaged_archives_and_streams(tiny: Any, tmp_path: Path) -> None:
    good = gzip.compress(tiny.as_bytes([tiny.event("cpu_op", "aten::mm", 1, 2)] * 500))
    cases = {
        "flipped.gz": good[:30] + bytes([good[30] ^ 255]) + good[31:],
        "cut.tar": tarfile.TarInfo("a").tobuf()[:400],
        "other.zst": b"\x28\xb5\x2f\xfd" + bytes(100),
        "empty": b"",
        "empty.gz": gzip.compress(b""),
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(InputRefused) as caught:
            read([path])
        assert "\n" not in str(caught.value)
    assert issubclass(NotATrace, InputRefused)


def test_many_threads_and_overlaps_stay_fast(tiny: Any) -> None:
    events = [tiny.event("cpu_op", f"op{i}", i * 0.001, 1e6, tid=i) for i in range(5_000)]
    events += [tiny.kernel(f"k{i}", 0, i * 0.5, 1e6) for i in range(5_000)]
    trace = kineto.load(tiny.as_bytes(events), "t")
    assert trace.counts["overlapping in a lane"] == 4_999
