"""Nsight Systems exports: written by a few lines of SQL, read back as ops, ranks, groups and steps."""

from __future__ import annotations

import gzip
import sqlite3
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.device_words import NO_BYTES
from taut.core.errors import InputRefused, NotATrace
from taut.core.tables import Kind, Trace, Verb
from taut.graph.link import link
from taut.read.trace import read

COLUMNS = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, demangledName, graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, streamId, correlationId, globalPid, graphId, graphExecId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "NVTX_EVENTS": "start, end, eventType, text, globalTid, textId, domainId, jsonText, binaryData",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId, schemaId, idx, type, name, offset",
    "TARGET_INFO_SYSTEM_ENV": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "MPI_RANKS": "globalTid, rank",
}
SCHEMAS = {
    "ncclCommInitRank": (1, (("NCCL communicator ID", 18), ("No. of ranks", 5), ("Rank", 5), ("CUDA device", 5))),
    "ncclAllReduce": (2, (("NCCL communicator ID", 18), ("Message size [bytes]", 22))),
    "ncclSend": (3, (("NCCL communicator ID", 18), ("Message size [bytes]", 22), ("Peer rank", 5))),
}
SCHEMAS["ncclRecv"] = SCHEMAS["ncclSend"]
SCHEMAS["ncclAllGather"] = SCHEMAS["ncclAllReduce"]
KERNELS = {"ncclAllReduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)", "ncclGroupEnd": "ncclDevKernel_SendRecv(args)"}


class Export:
    """An export under construction; times are in µs, and process p runs on its own device unless given otherwise."""

    def __init__(self, path: Path) -> None:
        self.path, self.correlation = path, 0
        self.db = sqlite3.connect(path)
        self.db.executescript("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF")
        self.strings: dict[str, int] = {}
        for table, columns in COLUMNS.items():
            self.db.execute(f"CREATE TABLE {table} ({columns})")
        for schema, fields in dict(SCHEMAS.values()).items():
            offset = 0
            for idx, (name, kind) in enumerate(fields):
                self.row("NVTX_PAYLOAD_SCHEMA_ENTRIES", 1, schema, idx, kind, name, offset or None)
                offset += 4 if kind == 5 else 8

    def row(self, table: str, *values: Any) -> None:
        self.db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def text(self, value: str) -> int:
        if value not in self.strings:
            self.strings[value] = len(self.strings) + 10
            self.row("StringIds", self.strings[value], value)
        return self.strings[value]

    def call(self, process: int, start: float, name: str = "cudaLaunchKernel_v7000", took: float = 1) -> int:
        self.correlation += 1
        times = int(start * 1000), int((start + took) * 1000)
        self.row("CUPTI_ACTIVITY_KIND_RUNTIME", *times, (process << 24) + 7, self.correlation, self.text(name))
        return self.correlation

    def kernel(self, process: int, start: float, end: float, name: str, launched: float | None = None, **place: Any) -> None:
        correlation = place.get("correlation") or (0 if launched is None else self.call(process, launched))
        where = place.get("device", process - 1), place.get("stream", 7), correlation, process << 24
        values = int(start * 1000), int(end * 1000), *where, self.text(name), place.get("node")
        self.row("CUPTI_ACTIVITY_KIND_KERNEL", *values)

    def note(
        self, process: int, start: float, end: float, text: str, payload: Sequence[int] = (), json: str | None = None
    ) -> None:
        blob = None
        if payload:
            schema, fields = SCHEMAS[text]
            body = b"".join(struct.pack("<i" if k == 5 else "<Q", v) for (_, k), v in zip(fields, payload, strict=True))
            body += bytes(-len(body) % 8)
            blob = struct.pack("<QQQQ", 1, schema, len(body), 32) + body
        times = int(start * 1000), int(end * 1000)
        values = *times, 59, None, (process << 24) + 7, self.text(text), 1, json, blob
        self.row("NVTX_EVENTS", *values)

    def all_reduce(self, process: int, at: float, start: float, end: float, payload: Sequence[int] = (), **place: Any) -> None:
        self.note(process, at - 1, at + 2, "ncclAllReduce", payload)
        self.kernel(process, start, end, KERNELS["ncclAllReduce"], at, stream=20, **place)

    def save(self) -> Path:
        self.db.commit()
        self.db.close()
        return self.path


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., Export]:
    return lambda name="report.sqlite": Export(tmp_path / name)


def table(trace: Trace, *columns: str) -> list[tuple[Any, ...]]:
    ops = trace.ops
    texts = {"name": trace.names, "lane": trace.lanes, "group": [*trace.groups, ""]}
    order = np.lexsort((ops.start_ns, ops.rank))
    return [tuple(texts[c][ops.columns[c][i]] if c in texts else int(ops.columns[c][i]) for c in columns) for i in order]


def steady(e: Export, process: int, comm: int | None, late: float = 0, steps: int = 4, first: int = 5) -> None:
    """Steps of 100 µs: a launch, a kernel, and an all-reduce that waits for the last."""
    for step in range(steps):
        t = 100 * step
        e.note(process, t, t + 95, f"iteration {step + first}")
        e.kernel(process, t + 10, t + 40 + late, "gemm(float*)", t + 5)
        e.all_reduce(process, t + 42, t + 45 + late, t + 80, () if comm is None else (comm, 4096))


def test_kernels_copies_and_their_launches(export: Callable[..., Export]) -> None:
    e = export()
    e.kernel(1, 10, 30, "void gemm<float>(int)", launched=5)
    copy = e.call(1, 20, "cudaMemcpyAsync_v3020")
    e.row("CUPTI_ACTIVITY_KIND_MEMCPY", 30_000, 31_000, 0, 7, copy, 1 << 24, 4096, 1)
    e.call(1, 32, "cudaStreamSynchronize_v3020", took=3)
    e.call(1, 40, "cudaEventQuery_v3020")
    trace = read([e.save()])
    assert table(trace, "rank", "lane", "name", "kind", "start_ns", "end_ns", "size") == [
        (0, "thread 7", "cudaLaunchKernel", Kind.COORDINATE, 5_000, 6_000, -1),
        (0, "stream 7", "void gemm<float>(int)", Kind.COMPUTE, 10_000, 30_000, -1),
        (0, "thread 7", "cudaMemcpyAsync", Kind.COORDINATE, 20_000, 21_000, -1),
        (0, "stream 7", "copy h2d", Kind.COMMUNICATE, 30_000, 31_000, 4096),
        (0, "thread 7", "cudaStreamSynchronize", Kind.COORDINATE, 32_000, 35_000, -1),
    ]
    launch = trace.ops.launch
    assert [trace.names[trace.ops.name[row]] for row in launch[launch >= 0]] == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert trace.counts["dropped: runtime calls that launch nothing"] == 1


def test_kernels_of_other_libraries_communicate(export: Callable[..., Export]) -> None:
    """And a generic kernel without a call around its launch is no exchange."""
    e = export()
    e.kernel(1, 10, 30, "void vllm::cross_device_reduce_1stage<half, 2>(RankData*)", launched=5, device=3)
    e.kernel(1, 40, 50, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", launched=35, device=3)
    trace = read([e.save()])
    found = [row for row in table(trace, "name", "kind", "verb", "lane") if row[1] == Kind.COMMUNICATE]
    assert found == [
        ("custom all-reduce cross_device_reduce_1stage", Kind.COMMUNICATE, Verb.ALL_REDUCE, "stream 7"),
        ("nccl collective", Kind.COMMUNICATE, Verb.NONE, "stream 7"),
    ]
    assert trace.members.gpu.tolist() == [3]
    assert "1 communication kernels that do not say what they do" in " ".join(trace.partial)


def test_several_gpus_of_one_report_meet_in_their_communicator(export: Callable[..., Export]) -> None:
    e = export()
    for process, rank in ((1, 1), (2, 0)):  # the rank is not the order of the devices
        e.note(process, 0, 1, "ncclCommInitRank", (0xABC, 2, rank, process - 1))
        steady(e, process, 0xABC, late=5 * rank)
    trace = read([e.save()])
    ops = trace.ops
    loud = ops.kind == Kind.COMMUNICATE
    assert (trace.world_size, dict(trace.group_ranks)) == (2, {"nccl 0xabc": [0, 1]})
    assert set(ops.verb[loud].tolist()) == {Verb.ALL_REDUCE}
    assert set(ops.size[loud].tolist()) == {4096}
    assert set(ops.step[loud].tolist()) == {5, 6, 7, 8}
    assert "ranks are assumed: those in the largest NCCL communicator, of 2 ranks" in trace.partial
    late = ops.start_ns[(ops.rank == 1) & loud] - ops.start_ns[(ops.rank == 0) & loud]
    assert late.tolist() == [5000] * 4
    graph = link(trace)
    assert graph.counts["gates"] == 3  # the first recorded step is the profiler's


def test_payloads_as_json(export: Callable[..., Export]) -> None:
    e = export()
    e.note(1, 0, 3, "ncclAllReduce", json='{"NCCL communicator ID": "18,446,744,073,709,551,615", "Message size [bytes]": 64}')
    e.kernel(1, 5, 9, KERNELS["ncclAllReduce"], 1)
    trace = read([e.save()])
    assert table(trace, "name", "group", "size")[1] == ("nccl all-reduce", "nccl 0xffffffffffffffff", 64)


def test_groups_of_sends_and_receives_are_taken_apart(export: Callable[..., Export]) -> None:
    """A middle stage receives from 0 and sends to 2 in one kernel; one op each, over the same time."""
    e = export()
    hops = {0: [("ncclSend", 1)], 1: [("ncclRecv", 0), ("ncclSend", 2)], 2: [("ncclRecv", 1)]}
    for rank, calls in hops.items():
        process = rank + 1
        e.note(process, 0, 1, "ncclCommInitRank", (7, 3, rank, rank))
        e.note(process, 10, 11, "ncclGroupStart")
        for place, (name, peer) in enumerate(calls):
            e.note(process, 12 + place, 12.5 + place, name, (7, 256, peer))
        e.note(process, 15, 18, "ncclGroupEnd")
        e.kernel(process, 20, 30, KERNELS["ncclGroupEnd"], 16)
        e.kernel(process, 30, 40, "gemm", 19)
    trace = read([e.save()])
    messages = [row for row in table(trace, "rank", "verb", "peer", "size", "start_ns", "end_ns", "lane") if row[1]]
    assert messages == [
        (0, Verb.SEND, 1, 256, 20_000, 30_000, "stream 7"),
        (1, Verb.RECV, 0, 256, 20_000, 30_000, "stream 7"),
        (1, Verb.SEND, 2, 256, 20_000, 30_000, "stream 7"),
        (2, Verb.RECV, 1, 256, 20_000, 30_000, "stream 7"),
    ]
    launched = trace.ops.launch >= 0
    assert (trace.ops.rank[trace.ops.launch[launched]] == trace.ops.rank[launched]).all()
    assert link(trace).counts["gates"] == 2


@pytest.mark.parametrize(("known", "size", "no_bytes"), [(True, 4 * 256, 0), (False, 256, 1)])
def test_bytes_of_an_all_gather_are_those_of_all_ranks(
    export: Callable[..., Export], known: bool, size: int, no_bytes: int
) -> None:
    """NCCL tells the share of one rank; where the size of the communicator is not known, there are no bytes."""
    e = export()
    if known:
        e.note(1, 0, 1, "ncclCommInitRank", (7, 4, 0, 0))
    e.note(1, 10, 20, "ncclAllGather", (7, 256))
    e.kernel(1, 30, 40, "ncclDevKernel_AllGather_RING_LL(args)", 15)
    trace = read([e.save()])
    assert [row for row in table(trace, "verb", "size") if row[0]] == [(Verb.ALL_GATHER, size)]
    assert trace.counts.get(NO_BYTES, 0) == no_bytes


def test_bytes_of_an_exchange_are_what_a_rank_sends(export: Callable[..., Export]) -> None:
    e = export()
    e.note(1, 0, 1, "ncclCommInitRank", (7, 2, 0, 0))
    e.note(1, 10, 11, "ncclGroupStart")
    for place, (name, peer) in enumerate((("ncclSend", 0), ("ncclRecv", 0), ("ncclSend", 1), ("ncclRecv", 1))):
        e.note(1, 12 + place / 2, 12.2 + place / 2, name, (7, 256, peer))
    e.note(1, 15, 18, "ncclGroupEnd")
    e.kernel(1, 20, 30, KERNELS["ncclGroupEnd"], 16)
    assert [row for row in table(read([e.save()]), "verb", "size") if row[0]] == [(Verb.ALL_TO_ALL, 512)]


def test_peers_of_communicators_made_before_the_recording(export: Callable[..., Export]) -> None:
    e = export()
    for process, (name, peer) in ((1, ("ncclSend", 1)), (2, ("ncclRecv", 0))):
        for k in range(3):
            e.note(process, 50 * k, 50 * k + 3, name, (7, 256, peer))
            e.kernel(process, 50 * k + 10, 50 * k + 30, KERNELS["ncclGroupEnd"], 50 * k + 1)
    trace = read([e.save()])
    assert [row for row in table(trace, "rank", "verb", "peer") if row[1]] == [(0, 10, 1)] * 3 + [(1, 11, 0)] * 3
    assert any("assumed to be in order" in line for line in trace.partial)


def test_peers_that_do_not_agree_are_left_unknown(export: Callable[..., Export]) -> None:
    e = export()
    for process, (name, peer) in ((1, ("ncclSend", 3)), (2, ("ncclRecv", 2))):
        e.note(process, 0, 3, name, (7, 256, peer))
        e.kernel(process, 10, 30, KERNELS["ncclGroupEnd"], 1)
    assert [row[1] for row in table(read([e.save()]), "verb", "peer") if row[0]] == [-1, -1]


def test_without_payloads_who_meets_whom_is_judged_by_time(export: Callable[..., Export]) -> None:
    e = export()
    for process in (1, 2):
        steady(e, process, None, late=3 * process)
    trace = read([e.save()])
    assert trace.groups == []
    assert any("--include-blobs=true" in line for line in trace.partial)
    assert "ranks are assumed: the order of the devices" in trace.partial
    assert link(trace).counts["gates"] == 3


def test_a_wait_for_the_device_begins_when_the_device_is_done(export: Callable[..., Export]) -> None:
    e = export()
    e.kernel(1, 10, 30, "gemm(float*)", launched=5)
    e.call(1, 12, "cudaDeviceSynchronize_v3020", took=25)
    trace = read([e.save()])
    assert table(trace, "name", "start_ns", "end_ns")[-1] == ("cudaDeviceSynchronize", 30_000, 37_000)


@pytest.mark.parametrize("comm", [0xABC, None])
def test_collectives_that_the_recording_cut_off_shift_nobody(export: Callable[..., Export], comm: int | None) -> None:
    """One GPU misses the first, the other the last: as many on both, but the k-th of one is not the k-th of the other."""
    e = export()
    e.row("TARGET_INFO_SYSTEM_ENV", "Hostname", "node")
    for process, missing in ((1, 0), (2, 9)):
        for k in range(10):
            e.kernel(process, 100 * k + 10, 100 * k + 40, "gemm", 100 * k + 5)
            if k != missing:
                e.all_reduce(process, 100 * k + 42, 100 * k + 45, 100 * k + 80, () if comm is None else (comm, 4096))
    trace = read([e.save()])
    assert "2 collectives at the edges of the recording have no counterpart on other ranks and are not matched" in trace.partial
    graph = link(trace)
    rows = np.flatnonzero(graph.gate >= 0)
    starts = [set(graph.ops.start_ns[rows][graph.gate[rows] == gate].tolist()) for gate in range(graph.counts["gates"])]
    assert len(starts) == 8
    assert all(len(start) == 1 for start in starts)


def test_pytorch_notes_name_an_exchange(export: Callable[..., Export]) -> None:
    e = export()
    e.row("NVTX_EVENTS", 0, 9_000, 59, "nccl:all_to_all, op_id = 12, sizes = [[2, 3], [4]]", (1 << 24) + 7, None, 0, None, None)
    e.row("NVTX_EVENTS", 0, 9_000, 59, "aten::empty, op_id = 11", (1 << 24) + 7, None, 0, None, None)
    e.note(1, 2, 8, "ncclGroupEnd")
    e.kernel(1, 10, 20, KERNELS["ncclGroupEnd"], 4)
    assert table(read([e.save()]), "verb", "size")[1] == (Verb.ALL_TO_ALL, 10)


def test_graphs_node_by_node_and_whole(export: Callable[..., Export]) -> None:
    e = export()
    launch = e.call(1, 1, "cudaGraphLaunch_v10000")
    e.kernel(1, 5, 10, "gemm", correlation=launch, node=3)
    e.kernel(1, 10, 15, KERNELS["ncclAllReduce"], correlation=launch, node=4)
    whole = e.call(1, 20, "cudaGraphLaunch_v10000")
    e.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", 25_000, 40_000, 0, 7, whole, 1 << 24, 712, 713)
    trace = read([e.save()])
    names = [row[0] for row in table(trace, "name")]
    assert names == ["cudaGraphLaunch", "gemm", "nccl all-reduce", "cudaGraphLaunch", "cuda graph 0"]
    assert (trace.counts["launched by cuda graphs"], trace.counts["cuda graphs recorded whole"]) == (2, 1)
    assert any("--cuda-graph-trace=node" in line for line in trace.partial)
    assert int((trace.ops.launch >= 0).sum()) == 3


def test_repeated_ranges_are_steps_and_their_microbatches_are_not(export: Callable[..., Export]) -> None:
    e = export()
    for step in range(3):
        t = 100 * step
        e.note(1, t, t + 80, "train_step")
        for half in (0, 40):
            e.note(1, t + half, t + half + 39, "forward_backward")
            e.kernel(1, t + half + 10, t + half + 38, "gemm", t + half + 5)
    trace = read([e.save()])
    marks = trace.marks
    assert list(zip(marks.step.tolist(), marks.start_ns.tolist(), marks.end_ns.tolist(), strict=True)) == [
        (0, 0, 100_000),
        (1, 100_000, 200_000),
        (2, 200_000, 280_000),
    ]
    assert "NVTX ranges named 'train_step' are taken as steps, numbered in their order" in trace.partial


def test_ranges_of_servers_tell_steps_and_phases(export: Callable[..., Export]) -> None:
    e = export()
    counts = [(2, 0), (0, 2), (0, 2), (1, 2)]
    for step, (context, generation) in enumerate(counts):
        e.note(
            1, 100 * step, 100 * step + 80, f"[Executor] _forward_step {40 + step}: {context} ctx reqs, {generation} gen reqs"
        )
        for layer in range(4):
            at = 100 * step + 10 * layer
            e.note(1, at, at + 9, f"layer_{layer}")
            e.kernel(1, at + 2, at + 9, "gemm", at + 1)
    marks = read([e.save()]).marks
    assert marks.step.tolist() == [40, 41, 42, 43]
    assert marks.phase.tolist() == ["prefill", "decode", "decode", "mixed"]


def test_ranges_that_pytorch_numbers_are_ranges_of_people(export: Callable[..., Export]) -> None:
    e = export()
    for step in range(3):
        t = 100 * step
        e.note(1, t, t + 80, f"train_step, op_id = {9 * step}")
        e.note(1, t, t + 70, f"aten::linear, op_id = {9 * step + 1}")
        e.note(1, t, t + 60, f"AddmmBackward0, op_id = {9 * step + 2}")
        e.kernel(1, t + 10, t + 60, "gemm", t + 5)
    assert read([e.save()]).marks.start_ns.tolist() == [0, 100_000, 200_000]


def test_layers_that_are_marked_are_no_steps(export: Callable[..., Export]) -> None:
    e = export()
    for layer in range(24):
        e.note(1, 10 * layer, 10 * layer + 9, f"layer_{layer}")
        e.kernel(1, 10 * layer + 2, 10 * layer + 9, "gemm", 10 * layer + 1)
    assert len(read([e.save()]).marks) == 0


def test_ranges_that_hold_little_of_the_work_are_no_steps(export: Callable[..., Export]) -> None:
    e = export()
    for k in range(4):
        e.note(1, 100 * k, 100 * k + 5, "logging step")
        for launch in (1, 20, 40, 60):
            e.kernel(1, 100 * k + launch + 2, 100 * k + launch + 9, "gemm", 100 * k + launch)
    assert len(read([e.save()]).marks) == 0


def one_rank(e: Export, process: int, environment: str, utc: int, first: int = 5) -> Path:
    e.row("TARGET_INFO_SYSTEM_ENV", "DeviceEnvironment", environment)
    e.row("TARGET_INFO_SYSTEM_ENV", "Hostname", f"node{process}")
    e.row("TARGET_INFO_SESSION_START_TIME", utc)
    steady(e, process, 0xABC, first=first)
    return e.save()


def test_one_report_a_rank_on_the_clock_of_utc(export: Callable[..., Export]) -> None:
    now = 1_779_782_330_000_000_000
    paths = [one_rank(export(f"{k}.sqlite"), 1, f"HOME=/root;RANK={1 - k};WORLD_SIZE=2;A=1", now + k * 10**5) for k in (0, 1)]
    trace = read(paths)
    assert trace.world_size == 2
    assert not any("assumed" in line for line in trace.partial)
    first = [int(trace.ops.start_ns[trace.ops.rank == rank].min()) for rank in (0, 1)]
    assert first == [now + 10**5 + 5000, now + 5000]


@pytest.mark.parametrize(
    ("names", "environment", "ranks", "how"),
    [
        (("rank3.sqlite", "rank4.sqlite"), "", [3, 4], "from the file names"),
        (("a.sqlite", "b.sqlite"), "", [0, 1], "the order of the files, and of the devices in each"),
        (
            ("a.sqlite", "b.sqlite"),
            "SLURM_PROCID=0;SLURM_NTASKS=1",
            [0, 1],
            "the order of the files, and of the devices in each",
        ),
    ],
)
def test_ranks_that_no_report_names(
    export: Callable[..., Export], names: tuple[str, ...], environment: str, ranks: list[int], how: str
) -> None:
    paths = [one_rank(export(name), place + 1, environment, 10**18) for place, name in enumerate(names)]
    trace = read(paths)
    assert trace.members.rank.tolist() == ranks
    assert f"ranks are assumed: {how}" in trace.partial


def test_nodes_of_several_gpus(export: Callable[..., Export]) -> None:
    paths = []
    for node in (1, 0):
        e = export(f"{node}.sqlite")
        for process in (1, 2):
            steady(e, process, 0xABC)
        e.row("TARGET_INFO_SYSTEM_ENV", "DeviceEnvironment", f"SLURM_NODEID={node};SLURM_PROCID={node}")
        e.row("TARGET_INFO_SYSTEM_ENV", "Hostname", f"node{node}")
        paths.append(e.save())
    trace = read(paths)
    assert dict(zip(trace.members.rank.tolist(), trace.members.host.tolist(), strict=True)) == {
        0: "node0", 1: "node0", 2: "node1", 3: "node1",
    }  # fmt: skip


def test_mpi_tells_the_rank(export: Callable[..., Export]) -> None:
    e = export()
    for process in (1, 2):
        steady(e, process, 0xABC)
        e.row("MPI_RANKS", (process << 24) + 7, 2 - process)
    trace = read([e.save()])
    assert trace.members.rank.tolist() == [0, 1]
    assert not any("assumed" in line for line in trace.partial)


def test_two_windows_of_one_process_are_one_rank(export: Callable[..., Export]) -> None:
    paths = [one_rank(export(f"part{k}.sqlite"), 1, "", 10**18 + k * 10**9, 5 + 4 * k) for k in (0, 1)]
    assert read(paths).members.rank.tolist() == [0]
    with pytest.raises(InputRefused, match="the same time of rank 0"):
        read([*paths, one_rank(export("copy.sqlite"), 1, "", 10**18)])


def test_a_compressed_export(export: Callable[..., Export], tmp_path: Path) -> None:
    e = export()
    steady(e, 1, None)
    packed = tmp_path / "report.sqlite.gz"
    packed.write_bytes(gzip.compress(e.save().read_bytes()))
    assert len(read([packed]).ops) == 16


@pytest.mark.parametrize("name", ["job.nsys-rep", "job.qdrep"])
def test_a_report_is_answered_with_the_export_command(export: Callable[..., Export], tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00report")
    with pytest.raises(InputRefused, match=f"nsys export --type sqlite --include-blobs=true .*{name}$"):
        read([tmp_path])
    e = export("job.sqlite")
    steady(e, 1, None)
    e.save()
    assert read([tmp_path]).counts["files skipped"] == 1


def plain_database(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return path


STRINGS = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"
TIMES = "(start, end, deviceId, streamId, correlationId, globalPid, demangledName)"


def test_a_database_that_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match="no export of Nsight Systems"):
        read([plain_database(tmp_path / "a.db", "CREATE TABLE runs (id, name)")])


@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_database_that_was_not_closed_says_so(tmp_path: Path, end: str) -> None:
    path = plain_database(tmp_path / "a.sqlite", "CREATE TABLE runs (id, name)")
    Path(f"{path}{end}").write_bytes(b"pages")
    with pytest.raises(InputRefused, match=r"was not closed: .* export it again"):
        read([path])


def test_an_export_without_gpus(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="no GPU activity in this export; record with nsys profile --trace=cuda,nvtx"):
        read([plain_database(tmp_path / "a.sqlite", STRINGS)])


@pytest.mark.parametrize(
    "trap",
    [
        f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL {TIMES} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) "
        "SELECT i, i+1, 0, 0, 0, 0, 0 FROM n",
        f"CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5{TIMES}",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end AS (zeroblob(1000000000)), deviceId)",
    ],
    ids=["endless view", "virtual table", "computed column"],
)
def test_traps_under_expected_names_are_not_touched(tmp_path: Path, trap: str) -> None:
    with pytest.raises(InputRefused, match="no GPU activity"):
        read([plain_database(tmp_path / "a.sqlite", STRINGS, trap)])


def test_a_page_that_points_at_itself(tmp_path: Path) -> None:
    table = f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL {TIMES}"
    fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 5000) SELECT i, i+1, 0, 0, i, 0, 0 FROM n"
    path = plain_database(tmp_path / "a.sqlite", STRINGS, table, f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL {fill}")
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    root = next(at for at in range(size, len(data), size) if data[at] == 5)  # an interior page: let it be its own child
    data[root + 8 : root + 12] = (root // size + 1).to_bytes(4, "big")
    cell = int.from_bytes(data[root + 12 : root + 14], "big")
    data[root + cell : root + cell + 4] = (root // size + 1).to_bytes(4, "big")
    path.write_bytes(data)
    with pytest.raises(InputRefused, match="damaged SQLite file"):
        read([path])


def test_absurd_values_cost_their_row(export: Callable[..., Export]) -> None:
    e = export()
    e.kernel(1, 10, 20, "gemm", 5)
    odd: list[Sequence[Any]] = [
        (30, 10, 0, 7, 1, 1 << 24, 10),
        (-5, 10, 0, 7, 1, 1 << 24, 10),
        ("soon", 10, 0, 7, 1, 1 << 24, 10),
        (10, 2**62, 0, 7, 1, 1 << 24, 10),
        (None, None, None, None, None, None, None),
    ]
    for values in odd:
        e.row("CUPTI_ACTIVITY_KIND_KERNEL", *values, None)
    e.row("CUPTI_ACTIVITY_KIND_KERNEL", 40_000, 50_000, 0, b"x", 2**63 - 1, 1 << 24, "name", "node")
    e.row("NVTX_EVENTS", 0, 9_000, 59, b"\xff\xfe", (1 << 24) + 7, 2**60, 1, "{", b"\x00" * 40)
    e.row("StringIds", 99, "x" * 1_000_000)
    trace = read([e.save()])
    assert trace.counts["dropped: no time"] == 5
    assert [row[0] for row in table(trace, "name")] == ["cudaLaunchKernel", "gemm", "kernel without a name"]


@pytest.mark.parametrize("device", [2**40, -7, None])
def test_a_device_that_is_none_has_no_number(export: Callable[..., Export], device: int | None) -> None:
    e = export()
    e.kernel(1, 10, 20, "gemm", 5, device=device)
    assert read([e.save()]).members.gpu.tolist() == [-1]


def test_a_communicator_of_two_thousand_million_ranks(export: Callable[..., Export]) -> None:
    e = export()
    e.note(1, 0, 1, "ncclCommInitRank", (0xABC, 2**31 - 1, 0, 0))
    steady(e, 1, 0xABC)
    trace = read([e.save()])
    assert (trace.world_size, dict(trace.group_ranks)) == (2**31 - 1, {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    e = Export(tmp_path_factory.mktemp("nsys") / "good.sqlite")
    for process in (1, 2):
        e.note(process, 0, 1, "ncclCommInitRank", (0xABC, 2, process - 1, 0))
        steady(e, process, 0xABC)
    return e.save()


def loads_or_is_refused(path: Path) -> None:
    try:
        found: Any = read([path])
    except InputRefused as refusal:
        found = refusal
    assert "\n" not in str(found) if isinstance(found, InputRefused) else len(found.ops)


@given(data=st.data())
def test_damaged_exports_load_or_are_refused(whole: Path, data: st.DataObject) -> None:
    damaged = bytearray(whole.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + 1] = data.draw(st.binary(min_size=1, max_size=4))
    path = whole.with_name("bad.sqlite")
    path.write_bytes(bytes(damaged[: data.draw(st.integers(100, len(damaged)))]))
    loads_or_is_refused(path)


@given(tail=st.binary(max_size=4096))
def test_any_bytes_after_the_magic_are_refused(whole: Path, tail: bytes) -> None:
    path = whole.with_name("bad.sqlite")
    path.write_bytes(b"SQLite format 3\x00" + tail)
    with pytest.raises(InputRefused):
        read([path])


def test_a_real_export_of_two_gpus(shared: Path) -> None:
    """33 exchanges on each GPU; the k-th of one overlaps the k-th of the other, and no other."""
    path = shared / "nsys" / "mfu_2gpu_before.sqlite"
    trace = read([path])
    ops = trace.ops
    spans = [np.stack([ops.start_ns[mine], ops.end_ns[mine]]) for mine in ((ops.verb > 0) & (ops.rank == r) for r in (0, 1))]
    assert [span.shape for span in spans] == [(2, 33)] * 2
    overlap = (spans[0][0][:, None] < spans[1][1]) & (spans[1][0] < spans[0][1][:, None])
    assert (overlap == np.eye(33, dtype=bool)).all()
    graph = link(trace)
    # Two exchanges a step; the last one lies in a step that the recording cuts, which is left out.
    assert (len(graph.steps), graph.counts["gates"]) == (16, 32)
    rows = np.flatnonzero(graph.gate >= 0)
    starts = {r: np.sort(graph.ops.start_ns[rows][graph.ops.rank[rows] == r]) for r in (0, 1)}
    by_gate = [sorted(graph.ops.start_ns[rows][graph.gate[rows] == g].tolist()) for g in range(32)]
    assert sorted(by_gate) == sorted(sorted(pair) for pair in zip(starts[0].tolist(), starts[1].tolist(), strict=True))


def test_a_table_whose_definition_is_no_text(tmp_path: Path) -> None:
    path = plain_database(tmp_path / "a.sqlite", STRINGS)
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE StringIds", b"CREATE TABLE \xff\xfe\xff\xfeIds "))
    with pytest.raises(InputRefused, match="damaged SQLite file"):
        read([path])
