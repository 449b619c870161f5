"""XLA profiles: devices as ranks, lanes and kinds of work, steps, launches, and what is refused."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import taut
from taut.core.errors import InputRefused
from taut.core.tables import Kind, Trace, Verb
from taut.read import load
from taut.read.trace import read
from taut.read.xplane import reader, trace_json
from xla_profiles import (
    US,
    Event,
    Line,
    Ref,
    as_viewed,
    counted,
    gpu_job,
    instruction,
    listed,
    meshed,
    module,
    plane,
    put,
    space,
    tpu_job,
    varint,
)

Save = Callable[[str, bytes], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def write(name: str, data: bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


def rows(trace: Trace, rank: int, lane: str) -> list[tuple[str, int, int]]:
    """(class, start, duration in µs) of one lane, in order."""
    ops = trace.ops
    mine = np.flatnonzero((ops.rank == rank) & np.array([trace.lanes[k] == lane for k in ops.lane]))
    mine = mine[np.argsort(ops.start_ns[mine])]
    return [(trace.names[ops.name[k]], int(ops.start_ns[k]) // US, int(ops.end_ns[k] - ops.start_ns[k]) // US) for k in mine]


def test_every_device_is_a_rank_and_streams_are_its_lanes(save: Save) -> None:
    trace = read([save("node0.xplane.pb", gpu_job(steps=1))])
    assert trace.members.rank.tolist() == trace.members.gpu.tolist() == [0, 1]
    assert set(trace.members.host) == {"node0"}
    assert sorted(trace.lanes) == ["stream 13", "stream 14", "thread Host Threads/1"]
    assert rows(trace, 1, "stream 13") == [("loop_fusion_1", 1000, 300), ("nccl all-reduce", 1300, 400)]
    assert rows(trace, 0, "stream 14") == [("copy h2d", 1750, 100)]
    assert rows(trace, 0, "thread Host Threads/1")[0] == ("cuLaunchKernel", 500, 1)


def test_kernels_that_run_at_once_on_one_stream_keep_their_times() -> None:
    """As those of a CUDA graph do: communication under compute is hidden, not cut out."""
    events = [Event("ncclDevKernel_AllReduce", 0, 100 * US), Event("kernel", 20 * US, 30 * US)]
    trace = reader.load(space(plane("/device:GPU:0", Line("Stream #7(Compute)", events))), "a").devices[0][1]
    assert rows(trace, 0, "stream 7") == [("nccl all-reduce", 0, 100)]
    assert rows(trace, 0, "stream 7/1") == [("kernel", 20, 30)]


def test_a_kernel_is_the_whole_of_its_collective() -> None:
    one = Event("all_reduce_one_shot_kernel", 0, 100 * US, {"hlo_op": "all-reduce-start.3"})
    trace = reader.load(space(plane("/device:GPU:0", Line("Stream #7", [one]))), "a").devices[0][1]
    assert (list(trace.names), trace.ops.verb.tolist()) == (["xla all-reduce"], [Verb.ALL_REDUCE])


def test_kinds_verbs_and_bytes(save: Save) -> None:
    trace = read([save("a.xplane.pb", gpu_job(devices=1, steps=1))])
    found = {trace.names[op]: (Kind(k), Verb(v), s) for op, k, v, s in zip(*columns(trace), strict=True)}
    assert found["loop_fusion_1"] == (Kind.COMPUTE, Verb.NONE, -1)
    assert found["nccl all-reduce"] == (Kind.COMMUNICATE, Verb.ALL_REDUCE, -1)
    assert found["copy h2d"] == (Kind.COMMUNICATE, Verb.NONE, 4096)
    assert found["cuLaunchKernel"][0] == Kind.COORDINATE


def columns(trace: Trace) -> tuple[Any, ...]:
    return trace.ops.name, trace.ops.kind, trace.ops.verb, trace.ops.size


def test_lines_that_tell_the_same_again_are_not_read(save: Save) -> None:
    trace = read([save("a.xplane.pb", gpu_job(devices=1, steps=3))])
    assert trace.counts["dropped: lines that repeat the time of others"] == 3
    assert "jit_train(7)" not in trace.names


def test_work_belongs_to_the_step_that_launched_it(save: Save) -> None:
    trace = read([save("a.xplane.pb", gpu_job(devices=1, steps=3))])
    assert trace.marks.step.tolist() == [5, 6, 7]
    ops = trace.ops
    kernels = np.flatnonzero(ops.name == trace.names.index("loop_fusion_1"))
    assert ops.step[kernels].tolist() == [5, 6, 7]
    assert (ops.launch[kernels] >= 0).all()
    assert (ops.start_ns[ops.launch[kernels]] < ops.start_ns[kernels]).all()


def looped(names: list[str], step: int = 100, mark: bool = False) -> Trace:
    """Calls of jitted functions on a thread, three equal layers launched in each; the last one with half as many behind it."""
    host, kernels = [], []
    for k, name in enumerate(names):
        at = k * step * US
        host.append(Event(name, at, 50 * US, {"step_num": k + 3} if mark else {}))
        for layer, inside in enumerate((5, 15, 25, 60)):
            number = 10 * k + layer + 1
            host.append(Event("cuGraphLaunch", at + inside * US, US, {"correlation_id": number}))
            kernels.append(Event("layer", at + (inside + 10) * US, 8 * US, {"correlation_id": number}))
    device = plane("/device:GPU:0", Line("Stream #1", kernels))
    return reader.load(space(plane("/host:CPU", Line("python3", host)), device), "a").devices[0][1]


def test_calls_of_the_function_that_launched_most_are_the_steps_that_nobody_marked() -> None:
    trace = looped(["PjitFunction(layers)"] * 4)
    assert trace.marks.step.tolist() == [0, 1, 2, 3]
    assert trace.partial == ("no step marks: calls of 'layers' are taken as steps",)
    assert len(looped([f"PjitFunction(op {k})" for k in range(4)]).marks) == 0


def test_the_last_mark_reaches_as_far_as_the_others() -> None:
    trace = looped(["train"] * 4, mark=True)
    assert (trace.ops.step >= 0).all()
    assert np.bincount(trace.ops.step).tolist()[3:] == [8, 8, 8, 8]


def test_waits_of_the_host_are_those_of_threads_that_launched() -> None:
    def call(name: str, at: int, number: int) -> Event:
        return Event(name, at * US, US, {"correlation_id": number})

    mine = Line("Host Threads/1", [call("cuLaunchKernel", 0, 1), call("cuStreamSynchronize", 5, 2), call("cuEventQuery", 7, 4)])
    other = Line("Host Threads/2", [call("cuStreamSynchronize", 5, 3)])
    device = plane("/device:GPU:0", Line("Stream #1", [Event("kernel", 10 * US, US, {"correlation_id": 1})]))
    trace = reader.load(space(plane("/host:CPU", mine, other), device), "a").devices[0][1]
    assert sorted(trace.names) == ["cuLaunchKernel", "cuStreamSynchronize", "kernel"]
    assert "thread Host Threads/2" not in trace.lanes


def test_the_slow_device_is_the_one_the_others_wait_for(save: Save) -> None:
    result = taut.analyze(save("a.xplane.pb", gpu_job(devices=4, steps=8, slow=2))).result
    assert result.waits.observed_rank_ns > 0
    assert result.blame[0].cause.rank == 2


def test_profiles_of_several_hosts_are_one_job(save: Save) -> None:
    for k in range(2):
        save(f"run/node{k}.xplane.pb", gpu_job(host=f"node{k}"))
    trace = read([save("run/README", b"").parent])
    assert trace.members.rank.tolist() == [0, 1, 2, 3]
    assert list(trace.members.host) == ["node0", "node0", "node1", "node1"]
    assert trace.members.gpu.tolist() == [0, 1, 0, 1]
    assert any("ranks are assumed" in line for line in trace.partial)


def test_devices_of_one_profile_are_one_job_whenever_they_ran(save: Save) -> None:
    lines = [Line("Stream #1", [Event("kernel", at * US, 10 * US)]) for at in (0, 10_000)]
    data = space(*(plane(f"/device:GPU:{2 * k}", line) for k, line in enumerate(lines)))
    assert read([save("a.xplane.pb", data)]).members.gpu.tolist() == [0, 2]


def test_two_recordings_of_one_device_are_not_two_ranks(save: Save) -> None:
    later = gpu_job().replace(varint(10**18), varint(2 * 10**18)).replace(varint(10**18 + 10**10), varint(2 * 10**18 + 10**10))
    save("one/node0.xplane.pb", gpu_job())
    with pytest.raises(InputRefused, match="two recordings"):
        read([save("two/node0.xplane.pb", later).parents[1]])


def test_on_a_tpu_the_innermost_op_counts_and_steps_are_its_own(save: Save) -> None:
    trace = read([save("a.xplane.pb", tpu_job(steps=2))])
    assert rows(trace, 0, "stream XLA Ops")[:5] == [
        ("fusion.1", 10, 300),
        ("xla all-reduce-start", 310, 10),
        ("fusion.2", 320, 200),
        ("xla all-reduce-done", 520, 290),
        ("while.1", 810, 100),
    ]
    assert rows(trace, 0, "stream async")[0] == ("xla all-reduce", 310, 500)
    assert trace.marks.step.tolist() == [0, 1, 0, 1]
    assert set(trace.members.device) == {"TPU v4"}
    assert trace.group_ranks == {"replicas 0,1": [0, 1]}


def test_a_transfer_in_two_halves_meets_others_once(save: Save) -> None:
    for beside in (True, False):
        trace = read([save("a.xplane.pb", tpu_job(steps=2, beside=beside))])
        assert rows(trace, 1, "stream async")[0] == ("xla all-reduce", 360, 450)
        met = np.flatnonzero(trace.ops.verb == Verb.ALL_REDUCE)
        assert Counter(trace.lanes[k] for k in trace.ops.lane[met]) == {"stream async": 4}
        assert trace.ops.size[met].tolist() == [4096] * 4


def test_of_several_groups_of_replicas_nobody_is_guessed(save: Save) -> None:
    trace = read([save("a.xplane.pb", tpu_job(devices=4, groups="{{0,1},{2,3}}"))])
    assert not trace.ops.verb.any()


def test_threads_are_the_shape_of_a_kernel() -> None:
    details = {"kernel_details": "regs:38 shm:0 grid:160,1,1 block:1024,1,1"}
    met = Event("ncclDevKernel_AllReduce", 20 * US, US, details)
    lines = plane("/device:GPU:0", Line("Stream #1", [Event("kernel", 0, US, details), met]))
    trace = reader.load(space(lines), "a").devices[0][1]
    assert dict(zip(trace.names, trace.ops.size.tolist(), strict=True)) == {"kernel": 163_840, "nccl all-reduce": -1}


@pytest.mark.parametrize(
    ("written", "mine"),
    [
        (listed((0, 2), (1, 3)), [1, 3]),
        (listed((0, 1, 2, 3)), [0, 1, 2, 3]),
        (counted(2, 2, (2, 2), (1, 0)), [1, 3]),
        (counted(2, 2, (4,), ()), [2, 3]),
        (meshed((2, 2), (0,)), [1, 3]),
        (meshed((1, 4), (1,)), [0, 1, 2, 3]),
        (b"".join(put(49, put(1, bytes(group))) for group in ((0, 1), (2, 3))), [2, 3]),
        (listed((0, 9), (3, 8)), None),
        (counted(2, 2, (3,), ()), None),
        (b"", None),
    ],
)
def test_the_module_says_what_a_kernel_is_and_whom_it_meets(written: bytes, mine: list[int] | None) -> None:
    """Device 3 of four; ``psum.1`` is only called so."""
    met = {"hlo_op": Ref("psum.1"), "program_id": 7}
    kernel = Event("ncclDevKernel_Generic_4(x)", 0, 90 * US, met)
    devices = [plane(f"/device:GPU:{k}", Line("Stream #1", [kernel])) for k in range(4)]
    made = module(7, instruction("x.1", "fusion", 8), instruction("psum.1", "all-reduce", 1024, written))
    trace = dict(reader.load(space(made, *devices), "a").devices)[3]
    assert list(trace.names) == ["nccl all-reduce"]
    assert trace.ops.size.tolist() == [4096]
    if mine:
        assert trace.group_ranks[trace.groups[trace.ops.group[0]]] == mine
    else:
        assert trace.ops.verb[0] == Verb.NONE or not trace.group_ranks


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (listed((0, 1, 2, 3)), {"replicas 0,1,2,3": [0, 1, 2, 3]}),
        (listed((0, 1)), {"replicas 0,1 of node0": [0, 1], "replicas 0,1 of node1": [2, 3]}),
    ],
    ids=["all hosts", "each host"],
)
def test_groups_of_replicas_on_several_hosts(save: Save, written: bytes, expected: dict[str, list[int]]) -> None:
    kernel = Event("ncclDevKernel_Generic_4(x)", 0, 90 * US, {"hlo_op": "psum.1", "program_id": 7})
    devices = [plane(f"/device:GPU:{k}", Line("Stream #1", [kernel])) for k in range(2)]
    made = module(7, instruction("psum.1", "all-reduce", 1024, written))
    for host in ("node0", "node1"):
        save(f"run/{host}.xplane.pb", space(made, *devices, host=host))
    trace = read([save("run/README", b"").parent])
    assert {name: list(ranks) for name, ranks in trace.group_ranks.items()} == expected
    assert sorted({trace.groups[group] for group in trace.ops.group}) == sorted(expected)


def test_a_module_that_is_damaged_tells_nothing() -> None:
    kernel = Event("fusion", 0, 90 * US, {"hlo_op": "psum.1", "program_id": 7})
    broken = module(7, b"\x0a\x7f")
    trace = reader.load(space(broken, plane("/device:GPU:0", Line("Stream #1", [kernel]))), "a").devices[0][1]
    assert trace.ops.verb.tolist() == [Verb.ALL_REDUCE]


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("MemcpyD2H", "", "copy d2h"),
        ("Memcpy HtoD (Pageable -> Device)", "", "copy h2d"),
        ("MemcpyP2P", "", "copy d2d"),
        ("Memset (Device)", "", "set"),
        ("__amd_rocclr_copyBuffer.kd", "hipMemcpyHtoDAsync", "copy h2d"),
        ("__amd_rocclr_copyBuffer.kd", "", "copy"),
        ("__amd_rocclr_fillBufferAligned.kd", "", "set"),
        ("CopyDeviceToHost memcpy", "", "copy d2h"),
    ],
)
def test_classes_of_copies(name: str, call: str, expected: str) -> None:
    from taut.read.xplane.op_words import meaning

    assert meaning(name, call=call).name == expected


@pytest.mark.parametrize(
    ("name", "hlo", "verb", "kind"),
    [
        (
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
            "reduce-scatter.7",
            Verb.REDUCE_SCATTER,
            Kind.COMMUNICATE,
        ),
        ("ncclDevKernel_SendRecv(x)", "collective-permute-start.2", Verb.NONE, Kind.COMMUNICATE),
        ("all_reduce_one_shot", "all-reduce-start", Verb.ALL_REDUCE, Kind.COMMUNICATE),
        ("input_reduce_fusion", "all_reduce_fusion", Verb.NONE, Kind.COMPUTE),
        ("reduce-window.3", "", Verb.NONE, Kind.COMPUTE),
        ("ragged-all-to-all.3", "", Verb.ALL_TO_ALL, Kind.COMMUNICATE),
        ("sendable_fusion", "", Verb.NONE, Kind.COMPUTE),
    ],
)
def test_what_a_kernel_does(name: str, hlo: str, verb: Verb, kind: Kind) -> None:
    from taut.read.xplane.op_words import meaning

    found = meaning(name, "", hlo)
    assert (found.verb, found.kind) == (verb, kind)


def test_without_an_accelerator_the_ops_of_the_host_are_read_and_that_is_reported(save: Save) -> None:
    def thunk(name: str, at: int, ordinal: int) -> Event:
        return Event(name, at, 90 * US, {"hlo_op": name, "device_ordinal": ordinal})

    lines = [Line(f"tf_XLA/{k}", [thunk("dot.1", 0, k), thunk("all-reduce.1", 100 * US, k)]) for k in range(2)]
    trace = read([save("a.xplane.pb", space(plane("/host:CPU", *lines)))])
    assert trace.members.rank.tolist() == [0, 1]
    assert trace.members.gpu.tolist() == [-1, -1]
    assert rows(trace, 1, "thread tf_XLA/1") == [("dot.1", 0, 90), ("xla all-reduce", 100, 90)]
    assert any("no accelerator" in line for line in trace.partial)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (space(plane("/host:CPU", Line("python", [Event("main", 0, 5)]))), "threads of the host only"),
        (space(plane("/device:GPU:0"), plane("/host:CPU")), "its devices recorded nothing"),
        (gpu_job()[:-40], "broken off"),
        (put(1, put(2, "/device:GPU:0") + put(3, b"\x22\x7f\x08")), "no field at byte"),
        (put(1, put(2, "/device:GPU:0") + put(3, b"\x22\x0b\x08" + b"\xff" * 10)), "no field at byte"),
        (put(1, put(2, "/device:GPU:0") + put(3, b"\x23\x24")), "no field at byte"),
    ],
    ids=["host", "empty", "cut", "length", "varint", "group"],
)
def test_what_is_refused(data: bytes, why: str) -> None:
    assert reader.sniff(data)
    with pytest.raises(InputRefused, match=why):
        reader.load(data, "a.xplane.pb")


def test_times_beyond_64_bits_are_dropped(save: Save) -> None:
    far = [Event("far", 0, 2**60), Event("near", US, US), Event("odd", -(2**52), 1)]
    trace = read([save("a.xplane.pb", space(plane("/device:GPU:0", Line("Stream #1", far))))])
    assert trace.counts["dropped: time out of range"] == 1
    assert "near" in trace.names


@pytest.mark.parametrize("data", [gpu_job(), tpu_job(beside=False)], ids=["gpu", "tpu"])
def test_the_viewers_file_tells_the_same(save: Save, data: bytes) -> None:
    one, other = read([save("a.xplane.pb", data)]), read([save("b.trace.json.gz", as_viewed(data))])
    for key in ("rank", "start_ns", "end_ns", "kind", "verb", "step", "launch", "size"):
        assert one.ops.columns[key].tolist() == other.ops.columns[key].tolist(), key
    assert [one.names[k] for k in one.ops.name] == [other.names[k] for k in other.ops.name]
    assert one.marks.start_ns.tolist() == other.marks.start_ns.tolist()


def test_a_profile_and_its_viewers_file_are_one(save: Save) -> None:
    save("run/node0.trace.json.gz", as_viewed(gpu_job()))
    trace = read([save("run/node0.xplane.pb", gpu_job()).parent])
    assert trace.members.rank.tolist() == [0, 1]
    assert list(trace.members.host) == ["node0", "node0"]


def test_the_viewers_file_is_no_kineto_trace() -> None:
    head = gzip.decompress(as_viewed(gpu_job()))
    first = next(one.name for one in load.FORMATS if one.reader.sniff(head))
    assert first == "xla viewer"
    for_perfetto = head.replace(b'"metadata": {"highres-ticks": true}, ', b"")
    assert for_perfetto != head
    assert trace_json.sniff(for_perfetto)
    assert not trace_json.sniff(b'{"displayTimeUnit":"ns","metadata":{"highres-ticks":true},"traceEvents":[]}')


def test_a_viewers_file_that_breaks_off_is_refused() -> None:
    data = gzip.decompress(as_viewed(gpu_job()))
    with pytest.raises(InputRefused, match="breaks off"):
        trace_json.load(data[:-30], "a.trace.json")
