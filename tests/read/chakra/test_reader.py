"""Chakra execution traces: every layout, with and without times, whole and damaged."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.core.tables import Trace
from taut.graph import gate_matching as gates
from taut.graph.link import link
from taut.read.chakra import reader as chakra
from taut.read.chakra.schedule import laid_out
from taut.read.trace import read

Write = Callable[..., Path]
COMP, SEND, RECV, COLL = 4, 5, 6, 7


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name: str, value: Any) -> bytes:
    """In the current layout: booleans, text, real numbers, lists of booleans, whole numbers."""
    if isinstance(value, list):
        encoded = field(28, field(1, bytes(value)))
    elif isinstance(value, bool):
        encoded = field(27, int(value))
    else:
        encoded = field({str: 29, float: 3, int: 9}[type(value)], value.encode() if isinstance(value, str) else value)
    return field(1, name.encode()) + encoded


def node(
    id: int, name: str, kind: int, deps: tuple[int, ...] = (), start: int = 0, duration: int = 0, ctrl: tuple[int, ...] = (),
    **attributes: Any,
) -> bytes:  # fmt: skip
    """A node of the current layout; protobuf leaves out what is 0."""
    out = (field(1, id) if id else b"") + field(2, name.encode()) + field(3, kind)
    out += field(4, b"".join(map(varint, ctrl))) if ctrl else b""
    out += field(5, b"".join(map(varint, deps))) if deps else b""
    out += (field(6, start) if start else b"") + (field(7, duration) if duration else b"")
    return out + b"".join(field(10, attribute(key, value)) for key, value in attributes.items())


def file(*messages: bytes, head: bytes = field(1, b"0.0.4")) -> bytes:
    return b"".join(varint(len(message)) + message for message in (head, *messages))


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    """(rank, lane, name, start and end in µs, launched by) in order of start."""
    ops = trace.ops
    found = [
        (
            int(ops.rank[i]), trace.lanes[ops.lane[i]], trace.names[ops.name[i]], int(ops.start_ns[i]) // 1000,
            int(ops.end_ns[i]) // 1000, trace.names[ops.name[ops.launch[i]]] if ops.launch[i] >= 0 else "",
        )
        for i in range(len(ops))
    ]  # fmt: skip
    return sorted(found, key=lambda row: (row[3], row[0], row[1]))


def step(rank: int, forward: int) -> list[bytes]:
    """Compute, meet, compute: ranks differ in how long they compute."""
    return [
        node(0, "forward", COMP, duration=forward),
        node(1, "gradients", COLL, (0,), duration=30 - rank, comm_type=0, comm_size=4096),
        node(2, "update", COMP, (1,), duration=10),
    ]


def test_a_plan_of_two_ranks_is_laid_out_behind_its_dependencies(write: Write) -> None:
    write("job.0.et", file(*step(0, forward=100)))
    write("job.1.et", file(*step(1, forward=160)))
    trace = read([write("job.1.et", file(*step(1, forward=160))).parent])
    assert rows(trace) == [
        (0, "compute", "forward", 0, 100, ""),
        (1, "compute", "forward", 0, 160, ""),
        (0, "network", "all-reduce", 100, 189, ""),
        (1, "network", "all-reduce", 160, 189, ""),
        (0, "compute", "update", 189, 199, ""),
        (1, "compute", "update", 189, 199, ""),
    ]
    assert trace.ops.size[trace.ops.verb > 0].tolist() == [4096, 4096]
    text = "\n".join(trace.partial)
    assert "job.1.et does not name its rank: taken as rank 1 from the file name" in text
    assert "laid out" in text
    assert "quickest member" in text


def test_the_graph_finds_who_came_last(write: Write) -> None:
    write("job.0.et", file(*step(0, forward=100)))
    graph = link(read([write("job.1.et", file(*step(1, forward=160))).parent]))
    gate = gates.table(graph)
    assert (gate.last_rank.tolist(), gate.members.tolist()) == ([1], [2])


def test_recorded_starts_are_kept_and_kernels_hang_on_their_launch(write: Write) -> None:
    at = 1_700_000_000_000_000
    data = file(
        node(1, "outer", COMP, start=at, duration=100, is_cpu_op=True, tid=1),
        node(2, "aten::mm", COMP, start=at + 10, duration=20, ctrl=(1,), is_cpu_op=True, tid=1),
        node(3, "gemm", COMP, (2,), start=at + 40, duration=50, is_cpu_op=False, stream=7),
        node(4, "ncclKernel_AllReduce", COLL, (3,), start=at + 90, duration=30, is_cpu_op=False, stream=20, comm_type=0,
             comm_size=1024, pg_name="3"),
        node(5, "no time", COMP, (3,), is_cpu_op=False, stream=7),
    )  # fmt: skip
    trace = read([write("job.5.et", data)])
    assert [(row[0], row[1], row[2], row[3] - at, row[4] - at, row[5]) for row in rows(trace)] == [
        (5, "thread 1", "aten::mm", 10, 30, ""),
        (5, "stream 7", "gemm", 40, 90, "aten::mm"),
        (5, "stream 20", "nccl all-reduce", 90, 120, ""),
    ]
    assert (trace.groups, trace.counts["dropped: no start"]) == (["3"], 1)
    assert not any("laid out" in line for line in trace.partial)


def test_the_rank_in_the_header_counts_before_the_file_name(write: Write) -> None:
    head = field(1, b"0.0.4") + field(2, attribute("rank", 6))
    trace = read([write("job.0.et", file(*step(0, 100), head=head))])
    assert trace.members.rank.tolist() == [6]
    assert not any("file name" in line for line in trace.partial)


def as_graph(times: dict[str, Any]) -> bytes:
    nodes = [
        {"Id": 1, "Name": "forward", "NodeType": COMP, "data_deps": [], "runtime": times["forward"], "is_cpu_op": False},
        {"Id": 2, "Name": "x", "NodeType": COLL, "data_deps": [1], "runtime": 30, "comm_type": 6, "comm_size": 8},
    ]
    return json.dumps({"workload_graph": nodes}, indent=2).encode()


def test_a_workload_graph_in_json(write: Write) -> None:
    trace = read([write("job.0.json", as_graph({"forward": 20.5}))])
    assert [row[1:5] for row in rows(trace)] == [("compute", "forward", 0, 20), ("network", "all-to-all", 20, 50)]
    assert sorted(trace.ops.end_ns.tolist()) == [20_500, 50_500]


@pytest.mark.parametrize("written", ["[1]", '["1"]', "[ 1, 1 ]", '["1", 1]', "[1, -7]", "[1, 77]", '["1", "-7"]', "[1, 1.0]"])
def test_a_dependency_may_be_written_in_many_ways(write: Write, written: str) -> None:
    data = as_graph({"forward": 20}).replace(b'"data_deps": []', b'"data_deps": null, "ctrl_deps": [ ]')
    ids = f'"data_deps": {written}'.encode()
    trace = read([write("job.0.json", re.sub(rb'"data_deps": \[\s+1\s+\]', ids, data))])
    assert [row[1:5] for row in rows(trace)] == [("compute", "forward", 0, 20), ("network", "all-to-all", 20, 50)]


@pytest.mark.parametrize("written", ['["1 1"]', '"[1]"', "[[1]]", "[1.5]", "[true]", "7", "[123456789012345678901]"])
def test_what_is_no_list_of_ids_is_refused(write: Write, written: str) -> None:
    ids = f'"data_deps": {written}'.encode()
    with pytest.raises(InputRefused, match="not valid trace JSON"):
        read([write("job.0.json", re.sub(rb'"data_deps": \[\s+1\s+\]', ids, as_graph({"forward": 20})))])


def test_nodes_as_protobuf_prints_them(write: Write) -> None:
    head = {"version": "0.0.4", "attr": [{"name": "rank", "int64Val": "4"}]}
    nodes = [
        {"id": "1", "name": "a}{b", "type": "COMP_NODE", "durationMicros": "20"},
        {
            "id": "2",
            "name": "meet",
            "type": "COMM_COLL_NODE",
            "dataDeps": ["1"],
            "durationMicros": "5",
            "attr": [{"name": "comm_type", "int64Val": "7"}, {"name": "pg_name", "stringVal": "tp"}],
        },
    ]
    trace = read([write("job.json", "".join(json.dumps(part, indent=2) for part in (head, *nodes)).encode())])
    assert [row[:5] for row in rows(trace)] == [(4, "compute", "a}{b", 0, 20), (4, "network", "reduce-scatter", 20, 25)]
    assert trace.groups == ["tp"]


def test_the_earlier_layout_with_typed_attributes(write: Write) -> None:
    def typed(name: str, kind: int, number: int, value: int | bytes) -> bytes:
        return field(11, field(1, name.encode()) + field(2, kind) + field(number, value))

    compute = field(1, 1) + field(2, b"forward") + field(3, COMP) + field(5, b"[]") + typed("runtime", 2, 6, 40)
    meet = field(1, 2) + field(2, b"meet") + field(3, COLL) + field(4, 1) + typed("comm_type", 3, 7, 1)
    meet += typed("comm_size", 2, 6, 64) + typed("pg_name", 4, 8, b"dp") + typed("involved_dim", 5, 9, 1)
    head = field(1, field(1, b"schema") + field(2, 4) + field(8, b"x"))
    trace = read([write("job.0.et", file(compute, meet, head=head))])
    assert [row[1:5] for row in rows(trace)] == [("compute", "forward", 0, 40), ("network", "all-to-all", 40, 40)]
    assert (trace.groups, trace.counts["messages without a duration"]) == (["dp"], 1)


def test_the_first_layout_with_a_field_for_everything(write: Write) -> None:
    compute = field(1, 1) + field(2, b"forward") + field(3, COMP) + field(7, 40) + field(12, 900)
    send = field(1, 2) + field(2, b"hop") + field(3, SEND) + field(4, 1) + field(16, 0) + field(17, 1) + field(18, 64)
    meet = field(1, 3) + field(2, b"meet") + field(3, COLL) + field(4, 2) + field(13, 3) + field(14, 1) + field(18, 64)
    data = b"".join(varint(len(message)) + message for message in (compute, send, meet))
    trace = read([write("job.0.et", data)])
    assert [row[1:5] for row in rows(trace)] == [
        ("compute", "forward", 0, 40),
        ("network", "send", 40, 40),
        ("network", "all-gather", 40, 40),
    ]
    assert trace.ops.peer[trace.ops.verb > 0].tolist() == [1, -1]


def test_a_receive_waits_for_its_send(write: Write) -> None:
    write("job.0.et", file(node(1, "work", COMP, duration=70), node(2, "s", SEND, (1,), duration=5, comm_dst=1, comm_tag=9)))
    later = node(2, "go on", COMP, (1,), duration=10)
    path = write("job.1.et", file(node(1, "r", RECV, duration=5, comm_src=0, comm_tag=9), later))
    assert [row[:5] for row in rows(read([path.parent]))] == [
        (0, "compute", "work", 0, 70),
        (1, "network", "recv", 0, 75),
        (0, "network", "send", 70, 75),
        (1, "compute", "go on", 75, 85),
    ]


def test_groups_come_from_the_note_of_their_making(write: Write) -> None:
    groups = json.dumps([{"pg_name": "7", "ranks": [0, 2]}])
    made = node(9, "## process_group:init ##", 1) + field(8, field(1, str([groups]).encode()))
    meet = node(2, "meet", COLL, (1,), duration=5, comm_type=0, comm_size=8, pg_name="7")
    trace = read([write("job.0.et", file(made, node(1, "work", COMP, duration=5), meet))])
    assert trace.group_ranks == {"7": [0, 2]}


def test_a_dependency_on_nothing_is_counted_and_reported(write: Write) -> None:
    trace = read([write("job.0.et", file(node(1, "a", COMP, (77, 78), duration=5)))])
    assert trace.counts["dependencies on a node that is not there"] == 2
    assert chakra.UNFOLLOWED in trace.partial


def test_a_circle_is_opened_and_reported(write: Write) -> None:
    circle = [node(1, "a", COMP, (2,), duration=5), node(2, "b", COMP, (1,), duration=5)]
    trace = read([write("job.0.et", file(*circle))])
    assert [row[2:5] for row in rows(trace)] == [("a", 0, 5), ("b", 5, 10)]
    assert trace.counts["dependencies that close a circle"] == 1
    assert any("circle" in line for line in trace.partial)


def test_who_called_whom_yields_to_the_data(write: Write) -> None:
    nodes = [node(1, "second", COMP, (2,), duration=5), node(2, "first", COMP, duration=5, ctrl=(1,))]
    trace = read([write("job.0.et", file(*nodes))])
    assert [row[2:5] for row in rows(trace)] == [("first", 0, 5), ("second", 5, 10)]
    assert trace.counts["control dependencies against the data"] == 1


def test_ranks_that_disagree_about_their_collectives_are_laid_out_alone(write: Write) -> None:
    write("job.0.et", file(*step(0, 100)))
    path = write("job.1.et", file(*step(1, 160), node(3, "more", COLL, (2,), duration=4, comm_type=0, comm_size=8)))
    trace = read([path.parent])
    assert trace.counts["messages without a counterpart"] == 3
    assert [row[3:5] for row in rows(trace) if row[2] == "all-reduce"] == [(100, 130), (160, 189), (199, 203)]


def test_collectives_that_wait_for_each_other_in_a_circle(write: Write) -> None:
    def two(first: str, second: str) -> bytes:
        meet = {"comm_type": 0, "comm_size": 8, "duration": 5}
        return file(node(1, "m", COLL, pg_name=first, **meet), node(2, "m", COLL, (1,), pg_name=second, **meet))

    write("job.0.et", two("a", "b"))
    trace = read([write("job.1.et", two("b", "a")).parent])
    assert trace.counts["messages that wait in a circle"] == 4
    assert trace.ops.end_ns.max() == 10_000


def test_some_dimensions_are_no_group(write: Write) -> None:
    meet = node(2, "m", COLL, (1,), duration=5, comm_type=0, comm_size=8, involved_dim=[True, False])
    whole = node(3, "m", COLL, (2,), duration=5, comm_type=0, comm_size=8, involved_dim=[True, True])
    trace = read([write("job.0.et", file(node(1, "a", COMP, duration=5), meet, whole))])
    assert sorted(trace.ops.group[trace.ops.verb > 0].tolist()) == [-1, 0]
    assert (trace.groups, trace.counts["collectives without a group"]) == (["default"], 1)
    assert chakra.NOT_MATCHED in trace.partial


def test_steps_are_left_to_be_found_where_messages_recur(write: Write) -> None:
    steps = [
        made
        for k in range(0, 8, 2)
        for made in (
            node(k + 1, "work", COMP, (k,) if k else (), duration=9),
            node(k + 2, "meet", COLL, (k + 1,), duration=1, comm_type=0, comm_size=8),
        )
    ]
    trace = read([write("job.0.et", file(*steps))])
    assert (len(trace.marks), set(trace.ops.step.tolist())) == (0, {-1})
    assert link(trace).steps.tolist() == [0, 1, 2, 3]


def test_messages_without_a_duration_are_waited_for_all_the_same(write: Write) -> None:
    for rank in range(2):
        pairs = [
            (
                node(k + 1, "work", COMP, (k,) if k else (), duration=9 + 4 * rank),
                node(k + 2, "meet", COLL, (k + 1,), comm_type=0, comm_size=8),
            )
            for k in range(0, 12, 2)
        ]
        path = write(f"job.{rank}.et", file(*(made for pair in pairs for made in pair)))
    trace = read([path.parent])
    graph = link(trace)
    assert trace.counts["messages without a duration"] == 12
    assert (len(graph.steps), gates.table(graph).last_rank.tolist()) == (6, [1] * 6)
    assert not graph.clock.applied.any()


def test_a_file_of_many_nodes_is_a_chain_as_long(write: Write) -> None:
    chain = [node(i, "work", COMP, (i - 1, i - 2), duration=3, tensor_size=i, is_cpu_op=False) for i in range(2, 1002)]
    trace = read([write("job.0.et", file(*chain))])
    assert (len(trace.ops), int(trace.ops.end_ns.max())) == (1000, 3_000_000)
    assert trace.ops.size.tolist() == list(range(2, 1002))


def test_a_plan_beside_measured_traces_is_left_out(write: Write, tiny: Any) -> None:
    write("job.0.et", file(*step(0, 100)))
    path = write("rank0.json", [tiny.event("cpu_op", "aten::mm", 1, 2)])
    trace = read([path.parent])
    assert trace.names == ["aten::mm"]
    assert any("job.0.et left out: without starts" in line for line in trace.partial)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([node(1, "a", COMP, num_ops=7), node(2, "m", COLL, comm_type=0, comm_size=8)], "neither starts nor durations"),
        ([node(1, "a", COMP, num_ops=7), node(2, "b", COMP, duration=5)], "1 of 2 computing nodes have operations to do"),
        ([node(1, "init", 1)], "no node that takes time"),
        ([], "no node in this trace"),
    ],
)
def test_refusals_say_what_is_missing(messages: list[bytes], why: str) -> None:
    with pytest.raises(InputRefused, match=why):
        chakra.load(file(*messages), "job.0.et")


LONG = b"\xff" * 9
DAMAGED = {
    "a length beyond the file": file(*step(0, 100)) + varint(1000) + b"x",
    "a length of 2^63": file(*step(0, 100)) + LONG + b"\x01",
    "a length without end": file(*step(0, 100)) + LONG + b"\xff\xff\x01",
    "a broken varint": file(*step(0, 100), b"\x08\xff"),
    "a field of 2^63 bytes": file(*step(0, 100), field(1, 5) + b"\x12" + LONG + b"\x01"),
    "a name longer than its node": file(*step(0, 100), field(1, 5) + b"\x12\x7fab"),
    "groups in groups": file(*step(0, 100), b"\x0b" * 100_000),
    "field 0": file(*step(0, 100), b"\x00\x00"),
    "half a fixed number": file(*step(0, 100), b"\x09\x01\x02"),
    "dependencies without end": file(node(1, "a", COMP, duration=5) + field(5, b"\x80\x80")),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED.keys())
def test_damage_is_refused_with_its_byte(data: bytes) -> None:
    with pytest.raises(InputRefused, match=r"at byte [\d,]+") as caught:
        chakra.load(data, "job.0.et")
    assert "\n" not in str(caught.value)


def test_numbers_out_of_range_are_no_times() -> None:
    wild = [node(1, "a", COMP, duration=2**63), node(2, "b", COMP, duration=-5), node(3, "c", COMP, duration=7)]
    plan = chakra.load(file(*wild), "job.0.et")
    assert isinstance(plan, chakra.Plan)
    assert plan.duration_ns.tolist() == [0, 0, 7000]
    assert plan.counts["dropped: duration out of range"] == 2


def test_durations_in_another_unit_are_refused(write: Write) -> None:
    long = [node(i, "a", COMP, (i - 1,), duration=4 * 10**12) for i in range(1, 1100)]
    with pytest.raises(InputRefused, match="more than a century together; check their unit"):
        read([write("job.0.et", file(*long))])


WHOLE = (
    file(*step(0, 100), node(4, "k", COMP, (1,), is_cpu_op=False, stream=7, duration=3, pg_name="g", involved_dim=[True])),
    file(*(node(i, "n", COMP, (i - 1,), start=10**15 + i, duration=2, is_cpu_op=i % 2 == 0, tid=1) for i in range(1, 6))),
    as_graph({"forward": 20}),
)


@given(st.sampled_from(WHOLE), st.data())
def test_a_damaged_file_loads_or_is_refused(whole: bytes, data: st.DataObject) -> None:
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(broken) - 1))
        broken[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        if not broken:
            break
    end = data.draw(st.integers(0, len(broken)))
    for candidate in (bytes(broken), bytes(broken[:end])):
        with suppress(InputRefused):
            found = chakra.load(candidate, "job.0.et") if chakra.sniff(candidate) else None
            traces = [trace for _, trace in laid_out([found])] if isinstance(found, chakra.Plan) else [found]
            assert all(trace is None or 0 < len(link(trace).ops) <= len(trace.ops) for trace in traces)


@given(st.binary(max_size=200))
def test_any_bytes_are_sniffed_without_an_error(data: bytes) -> None:
    chakra.sniff(data)


@pytest.mark.parametrize("data", [b"", b"\0", b"\x80\x04\x95", b"rank,step\n0,1\n", b"PAR1\x15\x04", b"\x0ahello world"])
def test_other_files_are_not_taken_for_chakra(data: bytes) -> None:
    assert not chakra.sniff(data)


def test_the_published_protobuf_trace(shared: Path) -> None:
    trace = read([shared / "chakra" / "feeder_tests_trace.tar.gz"])
    assert (len(trace.ops), trace.counts["dependencies"]) == (3664, 185_542)
    assert trace.counts["dependencies on a node that is not there"] == 1277
    assert sorted(trace.ops.size[trace.ops.verb > 0].tolist()) == [
        424, 212_480, 8_196_000, 9_724_160, 26_255_360, 26_550_272, 31_502_336,
    ]  # fmt: skip
    assert set(trace.lanes) == {"thread 1", "thread 2", "stream 7", "stream 14"}


def test_the_published_json_trace_holds_the_same_work(shared: Path, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(shared / "chakra" / "json_trace.tar.gz") as archive:
        inner = archive.extractfile("jsonData/chakra.0.json")
        assert inner is not None
        (tmp_path / "chakra.0.json").write_bytes(inner.read())
    other = read([shared / "chakra" / "feeder_tests_trace.tar.gz"]).ops
    ops = read([tmp_path]).ops
    assert (ops.end_ns - ops.start_ns).sum() == (other.end_ns - other.start_ns).sum()
