"""Kineto traces without an accelerator: operators on threads, gloo."""

from __future__ import annotations

from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.read.kineto import reader as kineto
from taut.read.merge import merge

ONE_GROUP = {"pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}


def load(tiny: Any, events: list[Any], **header: Any) -> Any:
    return kineto.load(tiny.as_bytes(events, **header), "t.json")


def test_outermost_operators_are_compute(tiny: Any) -> None:
    events = [
        tiny.event("cpu_op", "aten::linear", 10, 20, **{"Input Dims": [[4, 8], [8, 8]]}),
        tiny.event("cpu_op", "aten::addmm", 12, 10),
        tiny.event("cpu_op", "aten::relu", 30, 5),
        tiny.event("python_function", "forward", 0, 50),
    ]
    trace = load(tiny, events)
    linear, relu = tiny.ops_of(trace)
    assert (linear["kind"], linear["lane"], linear["name"], linear["size"]) == (
        "compute",
        "thread 1",
        "aten::linear",
        32,
    )
    assert (relu["start"], relu["end"], relu["size"]) == (30, 35, -1)
    assert trace.counts["dropped: nested cpu_op"] == 1
    assert trace.counts["dropped: python_function"] == 1


def test_an_operator_is_cut_where_it_issues_collectives(tiny: Any) -> None:
    events = [
        tiny.event("cpu_op", "backward", 0, 100),
        tiny.c10d("allreduce_", 10, 5, [[[64]], []]),
        tiny.c10d("allreduce_", 50, 10, [[[64]], []]),
    ]
    assert [(op["kind"], op["name"], op["start"], op["end"]) for op in tiny.ops_of(load(tiny, events))] == [
        ("compute", "backward", 0, 10),
        ("coordinate", "c10d::allreduce_", 10, 15),
        ("compute", "backward (after)", 15, 50),
        ("coordinate", "c10d::allreduce_", 50, 60),
        ("compute", "backward (after)", 60, 100),
    ]


def test_a_reduce_scatter_in_disguise(tiny: Any) -> None:
    events = [
        tiny.c10d("_reduce_scatter_base_", 0, 5, [[16], [64], []]),
        tiny.c10d("allreduce_", 10, 5, [[[32]], []]),
        tiny.gloo("all_reduce", 20, 5, 64),
        tiny.gloo("all_reduce", 30, 5, 32),
    ]
    ops = [op for op in tiny.ops_of(load(tiny, events, distributedInfo=ONE_GROUP)) if op["kind"] == "communicate"]
    assert [(op["verb"], op["name"], op["size"], op["launch"], op["group"], op["lane"]) for op in ops] == [
        ("reduce-scatter", "gloo reduce-scatter", 256, "c10d::_reduce_scatter_base_", "0", "gloo 9"),
        ("all-reduce", "gloo all-reduce", 128, "c10d::allreduce_", "0", "gloo 9"),
    ]


def test_collectives_match_their_calls_in_order_but_never_before_them(tiny: Any) -> None:
    events = [
        tiny.gloo("all_reduce", 0, 4, 64),
        tiny.c10d("allreduce_", 10, 1, [[[64]], []]),
        tiny.c10d("allreduce_", 20, 1, [[[64]], []]),
        tiny.gloo("all_reduce", 30, 4, 64),
        tiny.gloo("all_reduce", 40, 4, 64),
    ]
    trace = load(tiny, events)
    ops = trace.ops
    rows = sorted((r for r in range(len(ops)) if ops.verb[r]), key=lambda r: ops.start_ns[r])
    issued = [(int(ops.start_ns[ops.launch[r]]) - tiny.BASE_NS) // 1000 if ops.launch[r] >= 0 else None for r in rows]
    assert issued == [None, 10, 20]
    assert trace.counts["collectives without their call"] == 1


def test_asynchronous_send_and_receive_have_peers_and_serial_lanes(tiny: Any) -> None:
    events = [
        tiny.c10d("recv_", 0, 2, [[[8, 4]], []], ["", "", "3", "0"]),
        tiny.gloo("recv", 1, 50, 32, tid=1),
        tiny.c10d("send", 10, 2, [[[8, 4]], []], ["", "", "2", "0"]),
        tiny.gloo("send", 11, 60, 32, tid=1),
    ]
    ops = [op for op in tiny.ops_of(load(tiny, events)) if op["kind"] == "communicate"]
    assert [(op["verb"], op["peer"], op["size"], op["lane"]) for op in ops] == [
        ("recv", 3, 128, "gloo 1"),
        ("send", 2, 128, "gloo 1/1"),
    ]


def test_the_root_of_a_broadcast_is_its_peer(tiny: Any) -> None:
    events = [tiny.c10d("broadcast_", 0, 2, [[[8]], []], ["", "", "1", "0"]), tiny.gloo("broadcast", 3, 5, 8)]
    groups = {"pg_config": [{"pg_name": "5", "ranks": [4, 6]}]}
    op = tiny.ops_of(load(tiny, events, distributedInfo=groups))[-1]
    assert (op["verb"], op["peer"], op["group"]) == ("broadcast", 6, "5")


def test_copies_on_a_run_loop_thread_belong_to_the_collective(tiny: Any) -> None:
    events = [
        tiny.c10d("_allgather_base_", 0, 2, [[64], [16]]),
        tiny.gloo("all_gather", 5, 20, 16),
        tiny.event("cpu_op", "aten::copy_", 8, 5, tid=9),
    ]
    trace = load(tiny, events)
    assert [op["name"] for op in tiny.ops_of(trace)] == ["c10d::_allgather_base_", "gloo all-gather"]
    assert trace.counts["dropped: inside a collective"] == 1


def test_waiting_for_data_is_coordination_only_where_no_operator_runs(tiny: Any) -> None:
    events = [
        tiny.event("user_annotation", "data_load", 0, 10),
        tiny.event("user_annotation", "data_load", 20, 10),
        tiny.event("cpu_op", "aten::randn", 22, 5),
    ]
    first, second = tiny.ops_of(load(tiny, events))
    assert (first["kind"], first["name"], first["lane"]) == ("coordinate", "input: data_load", "thread 1")
    assert second["name"] == "aten::randn"


def test_steps_are_marks_and_collectives_belong_to_the_step_that_issued_them(tiny: Any) -> None:
    events = [
        tiny.step(4, 0, 100),
        tiny.step(5, 100, 100),
        tiny.c10d("allreduce_", 90, 5, [[[64]], []]),
        tiny.gloo("all_reduce", 110, 20, 64),
        tiny.event("cpu_op", "aten::mm", 250, 5),
    ]
    trace = load(tiny, events)
    assert trace.marks.step.tolist() == [4, 5]
    assert (trace.marks.end_ns - tiny.BASE_NS).tolist() == [100_000, 200_000]
    assert [op["step"] for op in tiny.ops_of(trace)] == [4, 4, -1]


def test_gradient_accumulation_joins_profiler_steps(tiny: Any) -> None:
    events = [tiny.step(n, 100 * n, 100) for n in range(5)]
    events += [tiny.event("user_annotation", "Optimizer.step#AdamW.step", ts, 10) for ts in (180, 380)]
    events += [tiny.event("cpu_op", "aten::mm", 50 + 100 * n, 5) for n in range(5)]
    trace = load(tiny, events)
    assert trace.marks.step.tolist() == [0, 2]
    assert (trace.marks.end_ns - tiny.BASE_NS).tolist() == [200_000, 400_000]
    assert [op["step"] for op in tiny.ops_of(trace)] == [0, 0, 2, 2, -1]
    assert trace.counts["profiler steps without their optimiser step"] == 1
    assert trace.partial == ("4 profiler steps make 2: the optimiser steps once in several",)


def test_an_operator_that_waits_for_a_transfer_is_cut_there(tiny: Any) -> None:
    """FSDP reduces inside a backward node and blocks in it: that time is a wait, not work."""
    events = [
        tiny.event("cpu_op", "autograd::engine::evaluate_function: Post", 0, 1200),
        tiny.c10d("allreduce_", 10, 5, [[[64]], []]),
        tiny.gloo("all_reduce", 12, 988, 64),
        tiny.event("cpu_op", "aten::copy_", 1050, 100),
    ]
    ops = [op for op in tiny.ops_of(load(tiny, events)) if op["lane"] == "thread 1"]
    assert [(op["start"], op["end"]) for op in ops] == [(0, 10), (10, 15), (1000, 1200)]


def test_work_that_merely_outlasts_a_transfer_is_not_cut(tiny: Any) -> None:
    events = [
        tiny.c10d("allreduce_", 0, 5, [[[64]], []]),
        tiny.gloo("all_reduce", 2, 998, 64),
        tiny.event("cpu_op", "autograd::engine::evaluate_function: Mul", 10, 1100),
        tiny.event("cpu_op", "MulBackward", 12, 1090),
    ]
    ops = [op for op in tiny.ops_of(load(tiny, events)) if op["kind"] == "compute"]
    assert [(op["start"], op["end"]) for op in ops] == [(10, 1110)]


def test_hops_recorded_by_the_hook_name_both_ends(tiny: Any) -> None:
    shape = {"Input Dims": [[8, 4]], "Input type": ["float"]}
    events = [
        tiny.event("cpu_op", "taut::recv", 0, 50, **shape, **{"Src Rank": 3, "Dst Rank": 0, "Seq": 7}),
        tiny.c10d("recv_", 1, 2, [[[8, 4]], []]),
        tiny.gloo("recv", 2, 47, 32, tid=1),
        tiny.event("cpu_op", "taut::send", 60, 5, **shape, **{"Src Rank": 0, "Dst Rank": 2, "Seq": 1}),
    ]
    ops = tiny.ops_of(load(tiny, events))
    assert [(op["verb"], op["peer"], op["size"], op["start"], op["end"]) for op in ops] == [
        ("recv", 3, 128, 0, 50),
        ("send", 2, 128, 60, 65),
    ]


def test_a_checkpoint_is_one_op_of_its_thread_with_all_that_runs_inside(tiny: Any) -> None:
    events = [
        tiny.event("cpu_op", "aten::add", 0, 10),
        tiny.event("user_annotation", "checkpoint", 20, 100),
        tiny.event("cpu_op", "aten::copy_", 30, 10),
        tiny.event("cpu_op", "aten::mul", 130, 10),
    ]
    assert [(op["name"], op["lane"]) for op in tiny.ops_of(load(tiny, events))] == [
        ("aten::add", "thread 1"),
        ("checkpoint", "thread 1"),
        ("aten::mul", "thread 1"),
    ]


def test_launches_without_device_events_are_reported(tiny: Any) -> None:
    """What the device did is missing: that is no trace of a host alone."""
    events = [tiny.event("cpu_op", "aten::mm", 0, 50), tiny.launch(1, 10), tiny.launch(2, 20, name="cudaGetDeviceCount")]
    trace = merge([("t.json", kineto.load(tiny.as_bytes(events), "t.json"))], [], name="t", source="t.json")
    (note,) = [line for line in trace.partial if "device" in line]
    assert note.startswith("1 launches onto a device of which no event is recorded: the device's side is missing")
    assert "ProfilerActivity.CUDA" in note


def test_unknown_categories_beside_a_host_are_reported(tiny: Any) -> None:
    events = [
        tiny.event("cpu_op", "aten::mm", 0, 50),
        tiny.event("graphcore", "x", 0, 5),
        tiny.event("python_function", "f", 0, 9),
    ]
    trace = merge([("t.json", kineto.load(tiny.as_bytes(events), "t.json"))], [], name="t", source="t.json")
    assert [line[:43] for line in trace.partial] == ["1 events of categories that are not known: "]


def test_a_trace_of_other_categories_is_refused_by_their_names(tiny: Any) -> None:
    with pytest.raises(InputRefused, match="categories that are not known \\('graphcore'"):
        kineto.load(tiny.as_bytes([tiny.event("graphcore", "x", 0, 5)]), "t.json")
    with pytest.raises(InputRefused, match="1 launches onto a device"):
        kineto.load(tiny.as_bytes([tiny.launch(1, 10)]), "t.json")
