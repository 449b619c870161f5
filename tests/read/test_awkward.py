"""Awkward Kineto traces of several ranks, from bytes to gates: what meets, what stays alone, what is reported missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taut.core.tables import Verb
from taut.graph import Graph, link
from taut.read.kineto import reader as kineto
from taut.read.trace import read
from taut.replay.timeline import replay

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
Write = Any


def param_comms(tiny: Any, name: str, ts: float, dur: float = 4, **args: Any) -> dict[str, Any]:
    """What torch records around a collective; underscores stand for blanks."""
    words = {key.replace("_", " "): value for key, value in args.items()}
    return tiny.event("cpu_op", "record_param_comms", ts, dur, **{"Collective name": name, "dtype": "Float", **words})


def called(tiny: Any, verb: str, kernel: str, at: float, took: float, n: int, stream: int = 20, **args: Any) -> list[Any]:
    """A collective: the recorded call, the launch inside it, the kernel. ``args`` as in :func:`param_comms`."""
    begin = at - 10
    return [
        param_comms(tiny, verb, begin, 4, In_msg_nelems=n, Out_msg_nelems=n, **args),
        tiny.launch(int(at * 10) + stream, begin + 1, 1),
        tiny.kernel(kernel, int(at * 10) + stream, at, took, stream),
    ]


def group(name: str, ranks: list[int], **more: Any) -> dict[str, Any]:
    return {"Process_Group_Name": name, "Process_Group_Ranks": str(ranks), "Group_size": len(ranks), **more}


def config(*groups: tuple[str, list[int]]) -> dict[str, Any]:
    return {"pg_config": [{"pg_name": n, "ranks": r, "backend_config": "cuda:nccl"} for n, r in groups], "backend": "nccl"}


def linked(write: Write, ranks: dict[int, list[Any]], world_size: int | None = None, **header: Any) -> Graph:
    """Write one file per rank, read them, link them; an unchanged replay gives the recorded times."""
    header.setdefault("host_name", "node")
    for rank, events in ranks.items():
        path = write(f"rank{rank}.json", events, rank=rank, world_size=world_size or len(ranks), **header)
    graph = link(read([path.parent]))
    assert (replay(graph).end_ns == graph.ops.end_ns).all()
    return graph


def met(graph: Graph) -> list[tuple[str, list[tuple[int, int]]]]:
    """Gates in order of opening: the verb, and rank and start (µs) of every member."""
    ops, out = graph.ops, []
    first = graph.origin_ns[graph.segment[graph.window]] if len(graph.origin_ns) > 1 else graph.origin_ns[0]
    start = (ops.start_ns + first - 1_700_000_000_000_000_000) // 1000
    for gate in range(len(graph.gates)):
        rows = np.flatnonzero(graph.gate == gate)
        out.append(
            (Verb(int(ops.verb[rows].max())).word, sorted(zip(ops.rank[rows].tolist(), start[rows].tolist(), strict=True)))
        )
    return sorted(out, key=lambda found: max(at for _, at in found[1]))


def is_reported(graph: Graph, words: str) -> bool:
    return any(words in line for line in graph.partial)


# Several calls, one kernel; several kernels, one call.


def block(tiny: Any, calls: list[Any], at: float) -> list[Any]:
    """A coalescing block: calls that launch nothing, then one annotation that launches one kernel for all."""
    return [*calls, tiny.event("user_annotation", "nccl:coalesced", at - 5, 4), tiny.launch(int(at), at - 4, 1)]


def test_a_grouped_send_and_receive_is_one_op_for_each_partner(tiny: Any) -> None:
    pp = group("9", [1, 2, 3])
    events = [
        *block(tiny, [param_comms(tiny, "recv", 10, Src_Rank=1, In_msg_nelems=8, Out_msg_nelems=8, Seq=3, **pp),
                      param_comms(tiny, "send", 20, Dst_Rank=3, In_msg_nelems=4, Out_msg_nelems=4, Seq=3, **pp)], 100),
        tiny.kernel(SEND_RECV, 100, 100, 50),
        tiny.launch(7, 200),
        tiny.kernel("gemm", 7, 210, 5),
    ]  # fmt: skip
    trace = kineto.load(tiny.as_bytes(events, rank=2), "t")
    hops = [
        (op["verb"], op["peer"], op["size"], op["start"], op["end"], op["lane"]) for op in tiny.ops_of(trace) if op["peer"] >= 0
    ]
    assert sorted(hops) == [("recv", 1, 32, 100, 150, "stream 7"), ("send", 3, 16, 100, 150, "stream 7")]


def test_a_pipeline_of_grouped_sends_meets_pairwise(tiny: Any, write: Write) -> None:
    """Rank 1 receives from 0 and sends to 2 in one kernel. That is no all-to-all of three ranks."""
    pp, n = group("9", [0, 1, 2]), {"In_msg_nelems": 8, "Out_msg_nelems": 8}
    calls = {
        0: [param_comms(tiny, "send", 10, Dst_Rank=1, **n, **pp)],
        1: [param_comms(tiny, "recv", 10, Src_Rank=0, **n, **pp), param_comms(tiny, "send", 20, Dst_Rank=2, **n, **pp)],
        2: [param_comms(tiny, "recv", 10, Src_Rank=1, **n, **pp)],
    }
    begin = {0: 100, 1: 130, 2: 110}
    ranks = {
        r: [*block(tiny, c, begin[r]), tiny.kernel(SEND_RECV, begin[r], begin[r], 200 - begin[r])] for r, c in calls.items()
    }
    graph = linked(write, ranks, distributedInfo=config(("0", [0, 1, 2]), ("9", [0, 1, 2])))
    assert met(graph) == [("recv", [(0, 100), (1, 130)]), ("recv", [(1, 130), (2, 110)])]


def test_a_grouped_kernel_whose_calls_are_unknown_meets_nobody(tiny: Any, write: Write) -> None:
    ranks = {r: [*block(tiny, [], 100 + r), tiny.kernel(SEND_RECV, 100 + r, 100 + r, 50 - r)] for r in range(3)}
    graph = linked(write, ranks)
    assert met(graph) == []
    assert is_reported(graph, "3 grouped sends and receives without their calls")


def test_a_coalesced_collective_is_one_op_of_all_its_bytes(tiny: Any) -> None:
    """Three all-reduces in a block are one kernel; had they launched one each, each would be an op."""
    calls = [
        param_comms(
            tiny, "allreduce", 10 * i, In_msg_nelems=10 + i, Out_msg_nelems=10 + i, Seq=4 + (i > 0), **group("1", [0, 1])
        )
        for i in range(3)
    ]
    one = kineto.load(tiny.as_bytes([*block(tiny, calls, 100), tiny.kernel(ALL_REDUCE, 100, 100, 50)]), "t")
    (op,) = [op for op in tiny.ops_of(one) if op["verb"] != "none"]
    assert (op["verb"], op["group"], op["size"], op["seq"]) == ("all-reduce", "1", 4 * (10 + 11 + 12), 4)
    kernels = [tiny.kernel(ALL_REDUCE, 100, 100 + 20 * i, 15) for i in range(3)]
    each = kineto.load(tiny.as_bytes([*block(tiny, calls, 100), *kernels]), "t")
    assert [op["size"] for op in tiny.ops_of(each) if op["verb"] != "none"] == [40, 44, 48]


def test_a_coalesced_call_that_launches_itself(tiny: Any) -> None:
    call = called(
        tiny,
        "reduce_scatter_tensor_coalesced",
        "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL",
        50,
        20,
        64,
        Seq=2,
        **group("3", [0, 1]),
    )
    (op,) = [op for op in tiny.ops_of(kineto.load(tiny.as_bytes(call), "t")) if op["verb"] != "none"]
    assert (op["verb"], op["group"], op["seq"], op["size"]) == ("reduce-scatter", "3", 2, 256)


def test_several_kernels_of_one_sequence_number_meet_one_by_one(tiny: Any, write: Write) -> None:
    """A large coalesced call launches two kernels under one record."""

    def rank(late: float) -> list[Any]:
        call = called(tiny, "allreduce_coalesced", ALL_REDUCE, 50 + late, 30 - late, 64, Seq=2, **group("0", [0, 1]))
        again = {**call[2], "ts": 90 + late, "dur": 20 - late}
        return [*call, again]

    graph = linked(write, {0: rank(0), 1: rank(5)})
    assert met(graph) == [("all-reduce", [(0, 50), (1, 55)]), ("all-reduce", [(0, 90), (1, 95)])]


def test_a_sequence_number_that_never_counts_is_none(tiny: Any, write: Write) -> None:
    """Some recorders write 0 for every call: order tells instead."""

    def rank(late: float) -> list[Any]:
        return [
            e
            for i in range(3)
            for e in called(tiny, "allreduce", ALL_REDUCE, 50 + 40 * i + late, 20 - late, 64 + i, Seq=0, **group("0", [0, 1]))
        ]

    graph = linked(write, {0: rank(0), 1: rank(5)})
    assert [members for _, members in met(graph)] == [[(0, 50 + 40 * i), (1, 55 + 40 * i)] for i in range(3)]


# CUDA graphs: no call of their own, no group, no number.


def graph_launch(tiny: Any, at: float, kernels: list[tuple[str, float, float, int]]) -> list[Any]:
    """One launch; every kernel has its correlation, and a node of its own."""
    run = [
        tiny.kernel(name, int(at), ts, dur, stream, **{"graph id": 4, "graph node id": (4 << 32) + i})
        for i, (name, ts, dur, stream) in enumerate(kernels)
    ]
    return [tiny.launch(int(at), at, 5, name="cudaGraphLaunch"), *run]


def test_collectives_of_a_cuda_graph_meet_in_the_order_of_their_start(tiny: Any, write: Write) -> None:
    """One group is declared, so that the kernels belong to it; all are issued by the same launch."""

    def rank(late: float) -> list[Any]:
        nodes = [
            ("gemm", 20, 20 + late, 7),
            (ALL_REDUCE, 40 + late, 30 - late, 20),
            ("gemm", 70, 10, 7),
            (ALL_REDUCE, 80, 10, 20),
        ]
        return graph_launch(tiny, 10, nodes)

    graph = linked(write, {0: rank(0), 1: rank(8)}, distributedInfo=config(("0", [0, 1])))
    assert met(graph) == [("all-reduce", [(0, 40), (1, 48)]), ("all-reduce", [(0, 80), (1, 80)])]
    assert graph.counts["launched by cuda graphs"] == 8
    assert set(graph.gates.expected.tolist()) == {2}


def test_collectives_of_a_cuda_graph_with_several_groups_are_not_forced_into_one(tiny: Any, write: Write) -> None:
    """Ranks 0 and 1 meet, and so do 2 and 3, at other times. Nothing says which: four in one gate would be wrong."""
    ranks = {
        r: graph_launch(tiny, 10, [("gemm", 20, 10, 7), (ALL_REDUCE, 100 + 300 * (r // 2) + r, 50 - r, 20)]) for r in range(4)
    }
    graph = linked(write, ranks, distributedInfo=config(("0", [0, 1, 2, 3]), ("1", [0, 1]), ("2", [2, 3])))
    assert met(graph) == []
    assert is_reported(graph, "4 collectives that do not name their group")


# The same collective under several names.


def test_eager_and_compiled_ranks_meet(tiny: Any, write: Write) -> None:
    """Rank 0 calls c10d::allreduce_, rank 1 the functional op; neither records a size on both, nor a number."""
    eager = [
        tiny.c10d("allreduce_", 10, 8, [[[256]]]),
        param_comms(tiny, "allreduce", 11, 6, In_msg_nelems=256, Out_msg_nelems=256, **group("0", [0, 1])),
        tiny.launch(1, 12), tiny.kernel(ALL_REDUCE, 1, 30, 50, 20),
    ]  # fmt: skip
    compiled = [
        tiny.event("cpu_op", "_c10d_functional::all_reduce", 10, 8),
        param_comms(tiny, "all_reduce", 11, 6, **group("0", [0, 1])),
        tiny.launch(1, 12), tiny.kernel("ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevComm*)", 1, 45, 35, 20),
        tiny.event("cpu_op", "_c10d_functional::wait_tensor", 60, 2),
    ]  # fmt: skip
    graph = linked(write, {0: eager, 1: compiled})
    assert met(graph) == [("all-reduce", [(0, 30), (1, 45)])]


def test_a_host_only_rank_of_functional_collectives(tiny: Any, write: Write) -> None:
    """The same over gloo: the functional op wraps the c10d call, and wait_tensor is a wait, not work."""

    def rank(compiled: bool) -> list[Any]:
        wrap = [
            tiny.event("cpu_op", "_c10d_functional::all_reduce", 9, 6),
            tiny.event("cpu_op", "_c10d_functional::wait_tensor", 20, 30),
        ]
        return [
            tiny.event("cpu_op", "aten::mm", 0, 8), *(wrap if compiled else []),
            tiny.c10d("allreduce_", 10, 4, [[[8]]]), tiny.gloo("all_reduce", 12, 38, 8),
            tiny.event("cpu_op", "aten::add", 51, 5),
        ]  # fmt: skip

    graph = linked(write, {0: rank(False), 1: rank(True)})
    assert met(graph) == [("all-reduce", [(0, 12), (1, 12)])]
    assert not any("wait_tensor" in name for name in graph.names)


# Several groups and streams at once; uneven sizes.


def test_overlapping_collectives_of_several_groups(tiny: Any, write: Write) -> None:
    """Tensor-parallel and data-parallel all-reduces of one size overlap on two streams, finished in another order."""

    def rank(r: int) -> list[Any]:
        tp, dp = [[0, 1], [2, 3]][r // 2], [[0, 2], [1, 3]][r % 2]
        return [
            *called(tiny, "allreduce", ALL_REDUCE, 100 + r, 300 - r, 64, 20, Seq=7, **group(f"tp{tp[0]}", tp)),
            *called(tiny, "allreduce", ALL_REDUCE, 120 + r, 80 - r, 64, 24, Seq=7, **group(f"dp{dp[0]}", dp)),
            *called(tiny, "allreduce", ALL_REDUCE, 220 + r, 80 - r, 64, 24, Seq=8, **group(f"dp{dp[0]}", dp)),
        ]  # fmt: skip

    found = [[rank for rank, _ in members] for _, members in met(linked(write, {r: rank(r) for r in range(4)}))]
    assert sorted(found) == [[0, 1], [0, 2], [0, 2], [1, 3], [1, 3], [2, 3]]


def test_an_uneven_all_to_all_is_one_gate(tiny: Any, write: Write) -> None:
    """Splits differ on every rank, and so do sizes; without numbers too."""

    def rank(r: int) -> list[Any]:
        split = {"In_split_size": str([r + 1, 3]), "Out_split_size": str([1, 3 * r]), **group("0", [0, 1, 2])}
        call = called(tiny, "all_to_allv", SEND_RECV, 50 + 10 * r, 50 - 10 * r, 4 + r, **split)
        call[0]["args"]["Out msg nelems"] = 1 + 30 * r
        return call

    assert met(linked(write, {r: rank(r) for r in range(3)})) == [("all-to-all", [(0, 50), (1, 60), (2, 70)])]


# Steps: accumulation, warm-up, several windows.


def test_collectives_only_in_some_steps(tiny: Any, write: Write) -> None:
    """Gradient accumulation without an optimiser annotation: steps 1 and 3 synchronise, 0, 2 and 4 do not."""

    def rank(late: float) -> list[Any]:
        out = []
        for k in range(5):
            out += [
                tiny.step(k, 1000 * k, 1000),
                tiny.launch(10 + k, 1000 * k + 5),
                tiny.kernel("gemm", 10 + k, 1000 * k + 50, 300),
            ]
            if k % 2:
                out += called(tiny, "allreduce", ALL_REDUCE, 1000 * k + 400 + late, 100 - late, 64, **group("0", [0, 1]))
        return out

    graph = linked(write, {0: rank(0), 1: rank(30)})
    assert met(graph) == [("all-reduce", [(0, 1400), (1, 1430)]), ("all-reduce", [(0, 3400), (1, 3430)])]
    assert graph.steps.tolist() == [1, 2, 3, 4]


def test_two_windows_in_one_file(tiny: Any, write: Write) -> None:
    """Steps 10–12 and 50–52: the first of each is the profiler's own, and the gap between them is no time of the job."""

    def rank(late: float) -> list[Any]:
        out = []
        for at, k in enumerate((10, 11, 12, 50, 51, 52)):
            ts = 1000 * at + (900_000 if k >= 50 else 0)
            out += [
                tiny.step(k, ts, 1000),
                *called(tiny, "allreduce", ALL_REDUCE, ts + 400 + late, 100 - late, 64, **group("0", [0, 1])),
            ]
        return out

    graph = linked(write, {0: rank(0), 1: rank(30)})
    assert (graph.steps.tolist(), graph.segment.tolist()) == ([11, 12, 51, 52], [0, 0, 1, 1])
    assert [len(members) for _, members in met(graph)] == [2] * 4
    assert replay(graph).wall_ns < 5_000_000


def test_a_first_step_without_device_events(tiny: Any, write: Write) -> None:
    """The profiler woke late on rank 1: its first step has marks and host calls, no kernels."""

    def rank(late: float, first: int) -> list[Any]:
        out = [tiny.step(k, 1000 * k, 1000) for k in range(4)]
        for k in range(first, 4):
            out += [*called(tiny, "allreduce", ALL_REDUCE, 1000 * k + 400 + late, 100 - late, 64, **group("0", [0, 1]))]
        return out

    graph = linked(write, {0: rank(0, 0), 1: rank(30, 1)})
    assert met(graph)[-2:] == [("all-reduce", [(0, 2400), (1, 2430)]), ("all-reduce", [(0, 3400), (1, 3430)])]
    assert is_reported(graph, "1 of 4 steps were not recorded on all ranks")


# One side only.


def test_a_host_only_trace_of_an_accelerator_job(tiny: Any, write: Write) -> None:
    """Calls without kernels: when a collective ran is not known, so none is a gate, and that is reported."""

    def rank(late: float) -> list[Any]:
        return [
            tiny.event("cpu_op", "aten::mm", 0, 8 + late), tiny.c10d("allreduce_", 20 + late, 4, [[[8]]]),
            param_comms(tiny, "allreduce", 21 + late, 2, Seq=1, **group("0", [0, 1])),
        ]  # fmt: skip

    graph = linked(write, {0: rank(0), 1: rank(3)}, distributedInfo={"backend": "nccl"})
    assert met(graph) == []
    assert is_reported(graph, "2 collectives called without a device event")


def test_a_device_only_trace(tiny: Any, write: Write) -> None:
    """Kernels without calls: streams, collectives by their names; who launched what is unknown."""

    def rank(late: float) -> list[Any]:
        out = []
        for k in range(4):
            out += [tiny.kernel("gemm", 0, 100 * k, 40 + late), tiny.kernel(ALL_GATHER, 0, 100 * k + 40 + late, 30 - late, 20)]
        return out

    graph = linked(write, {0: rank(0), 1: rank(5)})
    assert [members for _, members in met(graph)] == [[(0, 100 * k + 40), (1, 100 * k + 45)] for k in range(4)]
    assert (graph.ops.launch < 0).all()


# Times.


def test_times_may_be_text_and_have_their_own_base(tiny: Any) -> None:
    events = [tiny.kernel("a", 1, "10.125", "2.5"), tiny.kernel("b", 2, 20, 1)]
    header = {
        "baseTimeNanoseconds": "1700000000000000000",
        "trace_id": "AB",
        "displayTimeUnit": "ns",
        "deviceProperties": [5, {"name": "X"}],
    }
    trace = kineto.load(tiny.as_bytes(events, **header), "t")
    assert [(op["start"], op["end"]) for op in tiny.ops_of(trace)] == [(10.125, 12.625), (20, 21)]
    assert trace.members.device.tolist() == ["X"]


# Some of the ranks.


def sampled(tiny: Any, ranks: list[int], world: int, steps: int = 4, extra: float = 0) -> dict[int, list[Any]]:
    """Ranks of a world-wide all-reduce a step; ``extra`` is how long an untraced rank keeps them after the last of these."""
    out = {}
    for i, r in enumerate(ranks):
        events = []
        for k in range(steps):
            at = 1000 * k + 400 + 10 * i
            took = 100 + 10 * (len(ranks) - 1 - i) + (extra if k == 2 else 0)
            events += [
                tiny.step(k, 1000 * k, 1000),
                *called(tiny, "allreduce", ALL_REDUCE, at, took, 64, Seq=k, **group("0", list(range(world)))),
            ]
        out[r] = events
    return out


def test_a_tenth_of_the_ranks_names_nobody(tiny: Any, write: Write) -> None:
    """Two of twenty: somebody else may have come last everywhere."""
    graph = linked(write, sampled(tiny, [0, 10], 20), world_size=20)
    assert (len(graph.gates), graph.counts["gates without their last arriver"]) == (0, 3)
    assert is_reported(graph, "3 of 3 gates lack members that were not traced")


def test_most_of_the_ranks_name_the_last_where_it_goes_straight_through(tiny: Any, write: Write) -> None:
    """Three of four: in step 2 all three are kept for half a millisecond by the fourth."""
    graph = linked(write, sampled(tiny, [0, 1, 3], 4, extra=500), world_size=4)
    assert [members for _, members in met(graph)] == [[(0, 1400), (1, 1410), (3, 1420)], [(0, 3400), (1, 3410), (3, 3420)]]
    assert (graph.gates.members.tolist(), graph.gates.expected.tolist()) == ([3, 3], [4, 4])
    assert is_reported(graph, "1 of 3 gates lack members")


def test_all_ranks_of_a_small_group_of_a_large_job(tiny: Any, write: Write) -> None:
    """Two of twenty, but both members of the group: nobody is missing at its gates."""
    ranks = {r: called(tiny, "allreduce", ALL_REDUCE, 100 + 20 * r, 100 - 20 * r, 64, **group("3", [0, 1])) for r in range(2)}
    graph = linked(write, ranks, world_size=20)
    assert met(graph) == [("all-reduce", [(0, 100), (1, 120)])]
    assert not is_reported(graph, "gates lack members")


# Clocks.


def ticking(tiny: Any, jump: Any, steps: int = 8) -> dict[int, list[Any]]:
    """Two ranks on two hosts, rank 1 the later; ``jump`` gives how far (µs) rank 1's clock is ahead in a step."""
    out: dict[int, list[Any]] = {}
    for r in range(2):
        out[r] = []
        for k in range(steps):
            at = 1000 * k + r * jump(k)
            out[r] += [tiny.step(k, at, 1000), tiny.launch(90 + k, at + 5), tiny.kernel("gemm", 90 + k, at + 50, 300 + 30 * r)]
            out[r] += called(tiny, "allreduce", ALL_REDUCE, at + 400 + 30 * r, 100 - 30 * r, 64, **group("0", [0, 1]))
    return out


@pytest.mark.parametrize("seq", [True, False])
def test_a_clock_that_jumps_is_set_back(tiny: Any, write: Write, seq: bool) -> None:
    """From step 5 on rank 1 is two seconds ahead. The gates are those of a sound clock, and the jump is reported."""
    ranks = ticking(tiny, lambda k: 2_000_000 * (k >= 5))
    if seq:
        for events in ranks.values():
            for n, event in enumerate(e for e in events if e["name"] == "record_param_comms"):
                event["args"]["Seq"] = n
    graph = linked(write, ranks, host_name="")
    assert [members for _, members in met(graph)] == [[(0, 1000 * k + 400), (1, 1000 * k + 430)] for k in range(1, 8)]
    assert is_reported(graph, "the clock of rank 1 jumps by +2.000 s")
    assert replay(graph).wall_ns < 8_000_000


def test_a_clock_that_is_always_ahead_does_not_jump(tiny: Any, write: Write) -> None:
    graph = linked(write, ticking(tiny, lambda k: 2_000_000), host_name="")
    assert (len(graph.gates), is_reported(graph, "jumps")) == (7, False)
    assert (graph.clock.offset_ns.tolist(), graph.clock.applied.tolist()) == ([0, 2_000_000_000], [0, 1])


def test_a_late_rank_is_no_clock(tiny: Any, write: Write) -> None:
    """From step 5 on rank 1 comes 50 ms late, and rank 0 waits for it."""
    ranks: dict[int, list[Any]] = {0: [], 1: []}
    for r in range(2):
        for k in range(8):
            ts, late = 1000 * k + 50_000 * max(k - 5, 0), 50_000 * (k >= 5)
            begin, took = ts + 400 + r * late, 100 + (1 - r) * late
            call = called(tiny, "allreduce", ALL_REDUCE, begin, took, 64, **group("0", [0, 1]))
            ranks[r] += [tiny.step(k, ts, 900 + late), *call]
    graph = linked(write, ranks, host_name="")
    assert (len(graph.gates), is_reported(graph, "jumps")) == (7, False)
    assert int(graph.gates.late_ns.max()) == 25_000_000


def test_a_clock_that_is_set_back_is_reported(tiny: Any, write: Write) -> None:
    graph = linked(write, ticking(tiny, lambda k: -2500 * (k >= 5)), host_name="")
    assert is_reported(graph, "1 profiler steps that begin before the one before them ended: a clock was set back")
    assert all(len({start // 1000 for _, start in members}) == 1 for _, members in met(graph))


def test_kernels_of_other_libraries_meet_apart_from_those_of_nccl(tiny: Any, write: Write) -> None:
    """One rank's recording lacks the first all-reduce of NCCL: the exchange of experts still meets its like, in order."""
    dispatch, custom = (
        "void deep_ep::intranode::dispatch<8>(int4*)",
        "void vllm::cross_device_reduce_1stage<half, 2>(RankData*)",
    )
    ranks = {}
    for rank in range(2):
        late = 5 * rank
        ranks[rank] = [
            *called(tiny, "allreduce", ALL_REDUCE, 100 + late, 50 - late, 8, Seq=1)[rank * 3 :],
            *called(tiny, "allreduce", ALL_REDUCE, 200 + late, 50 - late, 8, Seq=2),
            tiny.kernel(dispatch, 7000, 300 + late, 50 - late),
            tiny.kernel(custom, 7001, 400 + late, 50 - late),
            tiny.kernel("void deep_ep::internode_ll::combine<8>(void*)", 7002, 500 + late, 50 - late),
        ]
    graph = linked(write, ranks)
    assert met(graph) == [
        ("all-reduce", [(0, 200), (1, 205)]),
        ("all-to-all", [(0, 300), (1, 305)]),
        ("all-reduce", [(0, 400), (1, 405)]),
    ]


def test_generic_kernels_without_labels_meet_nobody(tiny: Any, write: Write) -> None:
    generic = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
    graph = linked(write, {r: [tiny.kernel(generic, 1, 100 + r, 50 - r)] for r in range(2)})
    assert met(graph) == []
    assert is_reported(graph, "2 communication kernels that do not say what they do")
