"""PyTorch execution traces: what they add to the Kineto traces beside them, and what they lack."""

from __future__ import annotations

import json
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
from taut.read.chakra import execution
from taut.read.trace import read

Write = Callable[..., Path]
TENSOR = [5, 6, 0, 256, 4, "cuda:0"]
"""id, storage, offset, elements, bytes of one, device."""


def old(id: int, call: str, seq: int, rank: int, address: int = 94594108284448) -> dict[str, Any]:
    """A collective as schema 1.0.1 has it: the group is an address."""
    inputs = [TENSOR, seq, address, rank, call, [], []]
    return {"name": "record_param_comms", "id": id, "rf_id": id, "parent": 1, "tid": 1, "inputs": inputs, "outputs": [TENSOR]}


def new(id: int, call: str, seq: int, group: str, rank: int) -> dict[str, Any]:
    """The same as schema 1.1 has it: pairs, attributes, and the ranks of the group at the end."""
    values = [[TENSOR], [seq, False], [group, "mesh"], rank, call, [], [], 0, 1, 4]
    attrs = [{"name": "rf_id", "type": "uint64", "value": id}, {"name": "pg_name", "type": "string", "value": group}]
    sides = {"inputs": {"values": values, "shapes": [], "types": []}, "outputs": {"values": [], "shapes": [], "types": []}}
    return {"name": "record_param_comms", "id": id, "ctrl_deps": 1, "attrs": attrs, **sides}


def made(groups: dict[str, list[int]]) -> dict[str, Any]:
    text = json.dumps([{"pg_name": name, "ranks": ranks} for name, ranks in groups.items()])
    return {"name": "## process_group:init ##", "id": 2, "ctrl_deps": 1, "inputs": {"values": [text]}, "attrs": []}


def document(*nodes: dict[str, Any], schema: str = "1.0.1") -> bytes:
    root = {"name": "[pytorch|profiler|execution_trace|process]", "id": 1, "parent": 1, "inputs": [], "outputs": []}
    top = {"schema": schema, "pid": 7, "time": "2023-09-07 16:09:59", "start_ts": 6672645}
    return json.dumps({**top, "nodes": [*nodes, root], "finish_ts": 6674697}).encode()


def kineto(tiny: Any, *kernels: str) -> list[dict[str, Any]]:
    """A compute kernel, and one for each collective, of which nothing but the name is known."""
    events = [tiny.launch(1, 0), tiny.kernel("gemm", 1, 5, 10)]
    for k, name in enumerate(kernels):
        events += [tiny.launch(k + 2, 10 + 50 * k), tiny.kernel(name, k + 2, 20 + 50 * k, 30, stream=9)]
    return events


def collectives(trace: Trace) -> list[tuple[Any, ...]]:
    """(rank, group, seq, size, peer) of the collectives."""
    ops = trace.ops
    return [
        (int(ops.rank[i]), trace.groups[ops.group[i]], int(ops.seq[i]), int(ops.size[i]), int(ops.peer[i]))
        for i in range(len(ops))
        if ops.verb[i]
    ]


ALL_REDUCE, BROADCAST = "ncclKernel_AllReduce_RING_LL_Sum_float", "ncclKernel_Broadcast_RING_LL_Sum_int8_t"


def test_sequence_and_size_are_put_onto_the_trace(write: Write, tiny: Any) -> None:
    wait = {"name": "record_param_comms", "id": 30, "rf_id": 30, "parent": 1, "inputs": [41, 0, 0, "wait", [], []]}
    for rank in range(2):
        write(f"rank{rank}.json", kineto(tiny, ALL_REDUCE, ALL_REDUCE), rank=rank, world_size=2)
        path = write(f"et_{rank}.json", document(old(20, "allreduce", 41, rank), wait, old(40, "allreduce", 42, rank)))
    trace = read([path.parent])
    assert collectives(trace) == [(rank, "default", seq, 1024, -1) for rank in (0, 1) for seq in (41, 42)]
    assert trace.partial == ()
    assert trace.counts["collectives named by execution traces"] == 4


def test_groups_roots_and_ranks_of_a_newer_schema(write: Write, tiny: Any) -> None:
    groups = {"0": [0, 1, 2, 3], "5": [1, 3]}
    calls = [new(20, "allreduce", 8, "0", 3), new(30, "broadcast", 2, "5", 0)]
    write("trace.json", kineto(tiny, ALL_REDUCE, BROADCAST), rank=3, world_size=4)
    trace = read([write("et.json", document(made(groups), *calls, schema="1.1.1-chakra.0.0.4")).parent])
    assert collectives(trace) == [(3, "0", 8, 1024, -1), (3, "5", 2, 1024, 1)]
    assert trace.group_ranks == groups


def test_what_stands_in_one_record_only_is_counted_and_reported(write: Write, tiny: Any) -> None:
    write("rank0.json", kineto(tiny, ALL_REDUCE, BROADCAST), rank=0)
    calls = [old(20, "allreduce", 41, 0), old(30, "allgather", 42, 0)]
    trace = read([write("et_0.json", document(*calls)).parent])
    assert trace.counts["collectives in execution traces only"] == 2
    assert trace.counts["collectives in traces only"] == 2
    assert "execution traces hold 2 collectives that the traces do not, and lack 2 that they do" in trace.partial
    assert {seq for _, _, seq, _, _ in collectives(trace)} == {-1}


def test_a_missing_parent_is_counted_and_reported(write: Write, tiny: Any) -> None:
    write("rank0.json", kineto(tiny, ALL_REDUCE), rank=0)
    lost = {"name": "aten::mm", "id": 9, "rf_id": 3, "parent": 500, "inputs": [], "outputs": []}
    trace = read([write("et_0.json", document(old(20, "allreduce", 41, 0), lost)).parent])
    assert trace.counts["dependencies on a node that is not there"] == 1
    assert any("not in the trace" in line for line in trace.partial)


def test_the_rank_by_the_file_name_is_reported(write: Write, tiny: Any) -> None:
    write("rank3.json", kineto(tiny, BROADCAST), rank=3)
    trace = read([write("et_3.json", document(old(20, "broadcast", 41, 0))).parent])
    assert any("et_3.json does not name its rank: taken as rank 3 from the file name" in line for line in trace.partial)
    assert collectives(trace) == [(3, "default", 41, 1024, -1)]


def test_an_execution_trace_of_another_rank_is_left_out(write: Write, tiny: Any) -> None:
    write("rank0.json", kineto(tiny, ALL_REDUCE), rank=0)
    trace = read([write("et_7.json", document(old(20, "allreduce", 41, 7))).parent])
    assert any("et_7.json left out: an execution trace without" in line for line in trace.partial)


def test_two_groups_behind_addresses_give_no_sequence(write: Write, tiny: Any) -> None:
    write("rank0.json", kineto(tiny, ALL_REDUCE, ALL_REDUCE), rank=0)
    calls = [old(20, "allreduce", 41, 0, address=1), old(30, "allreduce", 3, 0, address=2)]
    trace = read([write("et_0.json", document(*calls)).parent])
    assert [seq for _, _, seq, _, _ in collectives(trace)] == [-1, -1]


def test_alone_they_are_refused(write: Write) -> None:
    with pytest.raises(InputRefused, match="only execution traces without times here; put the profiler traces"):
        read([write("et_0.json", document(old(20, "allreduce", 41, 0)))])


def linked(at: int) -> bytes:
    """As Chakra's linker writes it: a host operator and the kernels it launched, which begin with their launch."""
    host = {"id": 10, "name": "aten::mm", "ctrl_deps": 1, "ts": at, "inclusive_dur": 20, "attrs": [{"name": "tid", "value": 1}]}
    call = {**new(12, "allreduce", 4, "0", 2), "ts": at + 30, "inclusive_dur": 10}
    kernel = {"ctrl_deps": 10, "ts": at + 20, "exclusive_dur": 50, "cat": "kernel", "stream": 7}
    nodes = [host, {**kernel, "id": 11, "name": "gemm"}, call, {**kernel, "id": 14, "name": "gemm", "ts": at + 40}]
    meet = {**new(13, "allreduce", 4, "0", 2), **kernel, "ctrl_deps": 12, "name": ALL_REDUCE, "ts": at + 90, "stream": 9}
    return document(*nodes, meet, schema="1.0.3-chakra.0.0.4")


def test_a_linked_trace_holds_times(write: Write, tiny: Any) -> None:
    trace = read([write("linked.2.json", linked(tiny.BASE_NS // 1000))])
    found = [(row["lane"], row["name"], row["start"], row["end"], row["launch"], row["group"]) for row in tiny.ops_of(trace)]
    assert found == [
        ("thread 1", "aten::mm", 0, 20, "", ""),
        ("stream 7", "gemm", 20, 70, "aten::mm", ""),
        ("thread", "record_param_comms", 30, 40, "", ""),
        ("stream 7", "gemm", 70, 120, "aten::mm", ""),
        ("stream 9", "nccl all-reduce", 90, 140, "record_param_comms", "0"),
    ]
    assert (trace.members.rank.tolist(), tiny.ops_of(trace)[4]["size"]) == ([2], 1024)
    assert any("one behind the other" in line for line in trace.partial)


@given(st.sampled_from([document(old(20, "allreduce", 41, 0)), linked(10**15)]), st.data())
def test_a_damaged_file_loads_or_is_refused(whole: bytes, data: st.DataObject) -> None:
    broken = bytearray(whole)
    at = data.draw(st.integers(0, len(broken) - 1))
    words = st.binary(max_size=4) | st.sampled_from([b"[", b"{", b"1e99", b"-"])
    broken[at : at + data.draw(st.integers(0, 8))] = data.draw(words)
    with suppress(InputRefused):
        execution.load(bytes(broken), "et_0.json")


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(InputRefused, match="nested too deeply"):
        execution.load(b'{"schema": "1.0.1", "nodes": [{"inputs": ' + b"[" * 100_000, "et")


def test_dlrm(shared: Path) -> None:
    trace = read([shared / "dlrm-8rank"])
    assert (trace.partial, trace.counts["collectives named by execution traces"]) == ((), 64)
    assert [seq for rank, _, seq, _, _ in collectives(trace) if rank == 7] == list(range(147, 155))
    graph = link(trace)
    last = gates.table(graph).last_rank.tolist()
    assert last[:5] == [7] * 5
    assert set(last[5:]) == {4, 5}
    assert not graph.clock.applied.any()
