"""OTF2 archives: written with the library's own writer, read back as ops, ranks, groups and steps."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.core.tables import Kind, Trace, Verb
from taut.graph.link import link
from taut.read.otf2 import reader as otf2
from taut.read.trace import read

US = 1000
ANCHOR = b"\x03BOTF2\x00" + bytes(64)
ROLES = {"MPI_Allreduce": "COLL_ALL2ALL", "MPI_Bcast": "COLL_ONE2ALL", "MPI_Barrier": "BARRIER", "omp barrier": "BARRIER"}


class Archive:
    """An MPI job under construction: ranks of one thread each, times in µs."""

    def __init__(self, folder: Path, ranks: int = 2) -> None:
        lib = pytest.importorskip("otf2")
        self.enums, self.path = pytest.importorskip("otf2.enums"), folder / "run"
        self.trace = lib.writer.Writer(str(self.path), timer_resolution=10**6)
        self.defs = self.trace.definitions
        machine = self.defs.system_tree_node("machine", class_name="machine")
        self.nodes = [self.defs.system_tree_node(f"node{k}", class_name="node", parent=machine) for k in range(ranks)]
        self.groups = [self.defs.location_group(f"MPI Rank {k}", system_tree_parent=node) for k, node in enumerate(self.nodes)]
        self.threads = [self.defs.location("Master thread", group=group) for group in self.groups]
        mpi = {"paradigm": self.enums.Paradigm.MPI}
        self.defs.group("", group_type=self.enums.GroupType.COMM_LOCATIONS, members=self.threads, **mpi)
        self.world = self.comm("MPI_COMM_WORLD", list(range(ranks)))
        self.writers = [self.trace.event_writer_from_location(thread) for thread in self.threads]

    def comm(self, name: str, members: list[int]) -> Any:
        kind, paradigm = self.enums.GroupType.COMM_GROUP, self.enums.Paradigm.MPI
        return self.defs.comm(name, group=self.defs.group(name, group_type=kind, paradigm=paradigm, members=members))

    def region(self, name: str) -> Any:
        mpi = name.startswith("MPI_")
        role = getattr(self.enums.RegionRole, ROLES.get(name, "POINT2POINT" if mpi else "FUNCTION"))
        return self.defs.region(name, region_role=role, paradigm=self.enums.Paradigm.MPI if mpi else self.enums.Paradigm.USER)

    def call(self, rank: int, start: int, end: int, name: str, **messages: Any) -> None:
        """A region of a rank, with what is recorded inside it: ``recv=[(sender, comm, tag, size)]``."""
        writer, region = self.writers[rank], self.region(name)
        writer.enter(start, region)
        if "collective" in messages:
            op, comm, root, size = messages["collective"]
            writer.mpi_collective_begin(start)
            writer.mpi_collective_end(end, getattr(self.enums.CollectiveOp, op), comm, root, size, size)
        for kind in ("send", "isend", "recv", "irecv", "irecv_request"):
            for message in messages.get(kind, ()):
                getattr(writer, f"mpi_{kind}")(end, *message)
        writer.leave(end, region)

    def save(self) -> Path:
        self.trace.close()
        return self.path


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Archive]:
    return lambda ranks=2: Archive(tmp_path, ranks)


def table(trace: Trace, *columns: str) -> list[tuple[Any, ...]]:
    ops, first = trace.ops, int(trace.ops.start_ns.min())
    texts = {"name": trace.names, "lane": trace.lanes, "group": [*trace.groups, ""]}

    def value(column: str, row: int) -> Any:
        number = ops.columns[column][row]
        return texts[column][number] if column in texts else int(number - first) // US if "_ns" in column else int(number)

    order = np.lexsort((ops.start_ns, ops.rank))
    return [tuple(value(column, row) for column in columns) for row in order.tolist()]


def test_nested_regions_follow_one_another(archive: Callable[..., Archive]) -> None:
    a = archive(1)
    main, solve = a.region("main"), a.region("solve")
    writer = a.writers[0]
    writer.enter(10, main)
    writer.enter(20, solve)
    a.call(0, 30, 45, "MPI_Barrier", collective=("BARRIER", a.world, 0, 0))
    writer.leave(60, solve)
    writer.leave(70, main)
    trace = read([a.save()])
    assert table(trace, "name", "kind", "start_ns", "end_ns") == [
        ("main", Kind.COMPUTE, 0, 10),
        ("solve", Kind.COMPUTE, 10, 20),
        ("MPI_Barrier", Kind.SYNCHRONISE, 20, 35),
        ("solve", Kind.COMPUTE, 35, 50),
        ("main", Kind.COMPUTE, 50, 60),
    ]
    assert trace.lanes == ["Master thread 0"]
    assert trace.members.host.tolist() == ["node0"]
    assert trace.partial == ()


def test_collectives_meet_in_their_communicator(archive: Callable[..., Archive]) -> None:
    """Roots and members are ranks of the communicator: rank 0 of the odd one is rank 1 of the job."""
    a = archive(4)
    odd = a.comm("odd", [1, 3])
    for rank in range(4):
        for step in range(3):
            t = 100 * step
            a.call(rank, t, t + 20 + rank, "compute")
            a.call(rank, t + 20 + rank, t + 40, "MPI_Allreduce", collective=("ALLREDUCE", a.world, 0xFFFFFFFF, 64))
            if rank % 2:
                a.call(rank, t + 50, t + 60, "MPI_Bcast", collective=("BCAST", odd, 0, 8))
    trace = read([a.save()])
    assert dict(trace.group_ranks) == {"MPI_COMM_WORLD": [0, 1, 2, 3], "odd": [1, 3]}
    messages = [row for row in table(trace, "rank", "verb", "group", "size", "peer") if row[1]]
    assert messages[:3] == [(0, Verb.ALL_REDUCE, "MPI_COMM_WORLD", 64, -1)] * 3
    assert messages[3:5] == [(1, Verb.ALL_REDUCE, "MPI_COMM_WORLD", 64, -1), (1, Verb.BROADCAST, "odd", 8, 1)]
    graph = link(trace)
    assert (graph.counts["gates"], graph.counts["unmatched"]) == (6, 0)


def test_messages_meet_by_tag_and_not_by_time(archive: Callable[..., Archive]) -> None:
    a = archive(2)
    a.call(0, 0, 1000, "MPI_Isend", isend=[(1, a.world, 7, 64, 1)])
    a.call(0, 1000, 2000, "MPI_Isend", isend=[(1, a.world, 8, 128, 2)])
    a.call(1, 0, 500, "MPI_Irecv", irecv_request=[(1,)])
    a.call(1, 500, 2500, "MPI_Recv", recv=[(0, a.world, 8, 128)])
    a.call(1, 3000, 4000, "MPI_Wait", irecv=[(0, a.world, 7, 64, 1)])
    trace = read([a.save()])
    messages = [row for row in table(trace, "name", "verb", "peer", "size", "start_ns") if row[1]]
    assert messages == [
        ("MPI_Isend", Verb.SEND, 1, 64, 0),
        ("MPI_Isend", Verb.SEND, 1, 128, 1000),
        ("MPI_Recv", Verb.RECV, 0, 128, 500),
        ("MPI_Wait", Verb.RECV, 0, 64, 3000),
    ]
    graph = link(trace)
    sizes = [sorted(graph.ops.size[graph.gate == gate].tolist()) for gate in range(2)]
    assert sorted(sizes) == [[64, 64], [128, 128]]


def test_a_call_of_several_messages_is_one_op_for_each(archive: Callable[..., Archive]) -> None:
    a = archive(3)
    a.call(1, 0, 10, "MPI_Sendrecv", send=[(2, a.world, 1, 8)], recv=[(0, a.world, 1, 8)])
    a.call(0, 0, 10, "MPI_Send", send=[(1, a.world, 1, 8)])
    a.call(2, 0, 10, "MPI_Recv", recv=[(1, a.world, 1, 8)])
    trace = read([a.save()])
    assert [row[1:] for row in table(trace, "rank", "verb", "peer", "start_ns", "end_ns") if row[0] == 1] == [
        (Verb.SEND, 2, 0, 10),
        (Verb.RECV, 0, 0, 10),
    ]
    assert link(trace).counts["gates"] == 2


def test_calls_that_were_not_recorded_stand_for_themselves(archive: Callable[..., Archive]) -> None:
    a = archive(2)
    for rank, writer in enumerate(a.writers):
        writer.enter(0, a.region("main"))
        writer.mpi_collective_begin(10 + rank)
        writer.mpi_collective_end(20, a.enums.CollectiveOp.ALLREDUCE, a.world, 0, 8, 8)
        writer.leave(30, a.region("main"))
    rows = table(read([a.save()]), "rank", "name", "kind", "start_ns", "end_ns")
    assert rows[:3] == [
        (0, "main", Kind.COMPUTE, 0, 10),
        (0, "MPI all-reduce", Kind.COMMUNICATE, 10, 20),
        (0, "main", Kind.COMPUTE, 20, 30),
    ]


def test_nonblocking_collectives_meet_nobody(archive: Callable[..., Archive]) -> None:
    a = archive(2)
    for rank, writer in enumerate(a.writers):
        a.call(rank, 0, 2, "MPI_Iallreduce")
        writer.enter(5, a.region("MPI_Wait"))
        writer.non_blocking_collective_complete(9, a.enums.CollectiveOp.ALLREDUCE, a.world, 0, 8, 8, 1)
        writer.leave(9, a.region("MPI_Wait"))
    trace = read([a.save()])
    assert not trace.ops.verb.any()
    assert trace.partial == ("2 nonblocking collectives: the waits for them are seen, but not which ranks they wait for",)


def test_threads_and_streams_are_lanes(archive: Callable[..., Archive]) -> None:
    a = archive(1)
    worker = a.defs.location("OMP thread", group=a.groups[0])
    kinds = a.enums.LocationGroupType, a.enums.LocationType
    gpu = a.defs.location_group("CUDA 0", location_group_type=kinds[0].ACCELERATOR, system_tree_parent=a.nodes[0],
                                creating_location_group=a.groups[0])  # fmt: skip
    stream = a.defs.location("stream", type=kinds[1].ACCELERATOR_STREAM, group=gpu)
    a.call(0, 0, 10, "compute")
    a.writers += [a.trace.event_writer_from_location(place) for place in (worker, stream)]
    a.call(1, 0, 10, "omp barrier")
    a.call(2, 5, 9, "kernel")
    assert sorted(table(read([a.save()]), "rank", "lane", "name", "kind")) == [
        (0, "CUDA 0 stream 0", "kernel", Kind.COMPUTE),
        (0, "Master thread 0", "compute", Kind.COMPUTE),
        (0, "OMP thread 1", "omp barrier", Kind.SYNCHRONISE),
    ]


def test_regions_named_after_iterations_are_steps(archive: Callable[..., Archive]) -> None:
    a = archive(2)
    for rank, writer in enumerate(a.writers):
        for step in range(4):
            writer.enter(100 * step, a.region("time_step"))
            a.call(rank, 100 * step + 5, 100 * step + 60, "compute")
            writer.leave(100 * step + 90, a.region("time_step"))
    trace = read([a.save()])
    assert trace.marks.step.tolist() == [0, 1, 2, 3] * 2
    assert "regions named 'time_step' are taken as steps, numbered in their order" in trace.partial
    assert set(trace.ops.step.tolist()) == {0, 1, 2, 3}


def test_regions_that_do_not_close(archive: Callable[..., Archive]) -> None:
    a = archive(1)
    a.writers[0].leave(5, a.region("never entered"))
    a.writers[0].enter(10, a.region("main"))
    a.call(0, 20, 30, "solve")
    trace = read([a.save()])
    assert table(trace, "name", "start_ns", "end_ns") == [("main", 0, 10), ("solve", 10, 20)]
    assert trace.counts["dropped: left a region that was not entered"] == 1
    assert trace.counts["regions left open"] == 1


def test_without_the_bindings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces.otf2").write_bytes(ANCHOR)
    monkeypatch.setattr(otf2, "available", lambda: False)
    with pytest.raises(InputRefused, match="needs the otf2 bindings; pip install otf2"):
        read([tmp_path])


def test_an_archive_inside_an_archive(tmp_path: Path) -> None:
    (tmp_path / "traces.otf2").write_bytes(ANCHOR)
    with tarfile.open(tmp_path / "job.tar", "w") as tar:
        tar.add(tmp_path / "traces.otf2", "traces.otf2")
    with pytest.raises(InputRefused, match="unpack it and name its"):
        read([tmp_path / "job.tar"])


def test_an_anchor_without_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("otf2")
    (tmp_path / "traces.otf2").write_bytes(ANCHOR)
    with pytest.raises(InputRefused, match="damaged OTF2 archive"):
        read([tmp_path / "traces.otf2"])


@given(data=st.data())
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_archives_load_or_are_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    a = Archive(tmp_path_factory.mktemp("otf2"))
    for rank in (0, 1):
        a.call(rank, 0, 10, "MPI_Allreduce", collective=("ALLREDUCE", a.world, 0, 64))
    files = sorted(file for file in a.save().rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files))
    damaged = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at : at + 1] = data.draw(st.binary(min_size=0, max_size=4))
    file.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    try:
        found: Any = read([a.path])
    except InputRefused as refusal:
        found = refusal
    assert "\n" not in str(found) if isinstance(found, InputRefused) else len(found.ops)
