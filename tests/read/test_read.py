"""Files, folders and archives → one Trace."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taut.core.errors import InputRefused, NotATrace
from taut.read import load as room
from taut.read import load_inputs
from taut.read.trace import read

Write = Any


def one_op(tiny: Any, ts: float = 10, dur: float = 100) -> list[dict[str, Any]]:
    return [tiny.event("cpu_op", "aten::mm", ts, dur)]


def test_ranks_are_merged_by_what_the_traces_say(tiny: Any, write: Write) -> None:
    write("a.json", [*one_op(tiny), tiny.gloo("barrier", 200, 5, 1)], rank=1, world_size=2)
    folder = write("b.json.gz", [tiny.event("cpu_op", "aten::add", 5, 1)], rank=0, world_size=2).parent
    trace = read([folder])
    assert [(op["rank"], op["name"]) for op in tiny.ops_of(trace)] == [
        (0, "aten::add"),
        (1, "aten::mm"),
        (1, "gloo barrier"),
    ]
    assert (trace.name, trace.world_size, trace.partial, trace.counts["files"]) == ("job", 2, (), 2)
    assert trace.members.rank.tolist() == [0, 1]


def test_launch_rows_are_offset(tiny: Any, write: Write) -> None:
    for rank in range(3):
        events = [tiny.launch(1, 10), tiny.kernel(f"k{rank}", 1, 20, 5)]
        folder = write(f"{rank}.json", events, rank=rank, world_size=3).parent
    ops = read([folder]).ops
    launched = ops.launch >= 0
    assert ops.rank[ops.launch[launched]].tolist() == ops.rank[launched].tolist() == [0, 1, 2]


def test_a_group_name_used_for_two_sets_of_ranks_becomes_two_groups(tiny: Any, write: Write) -> None:
    for rank, ranks in ((0, [0, 1]), (2, [2, 3])):
        group = {"pg_config": [{"pg_name": "7", "ranks": ranks}]}
        folder = write(f"{rank}.json", [tiny.gloo("barrier", 0, 1, 1)], rank=rank, distributedInfo=group).parent
    trace = read([folder])
    assert trace.group_ranks == {"7": [0, 1], "7 (2,3)": [2, 3]}
    assert [op["group"] for op in tiny.ops_of(trace)] == ["7", "7 (2,3)"]


def test_ranks_fall_back_to_the_file_name_and_then_to_the_order(tiny: Any, write: Write) -> None:
    for name in ("x_rank2.json", "x_rank5.json"):
        folder = write(name, one_op(tiny), rank=None).parent
    trace = read([folder])
    assert trace.members.rank.tolist() == [2, 5]
    assert "does not name its rank: taken as rank 2 from the file name" in trace.partial[0]
    write("plain.json", one_op(tiny), rank=None)
    trace = read([folder])
    assert trace.members.rank.tolist() == [0, 1, 2]
    assert "from the order of the files" in trace.partial[0]


def test_disjoint_cycles_of_a_rank_are_joined(tiny: Any, write: Write) -> None:
    write("a.json", [tiny.step(9, 1000, 50), *one_op(tiny, 1000, 50)])
    folder = write("b.json", [tiny.step(1, 0, 50), *one_op(tiny, 0, 50)]).parent
    trace = read([folder])
    assert trace.marks.step.tolist() == [1, 9]
    assert [op["step"] for op in tiny.ops_of(trace)] == [1, 9]
    assert len(trace.members) == 1


def test_two_files_of_the_same_time_of_a_rank_are_refused(tiny: Any, write: Write) -> None:
    write("a.json", one_op(tiny))
    folder = write("copy.json", one_op(tiny)).parent
    with pytest.raises(InputRefused, match=r"copy\.json: covers the same time of rank 0 as .*a\.json"):
        read([folder])


def test_two_jobs_are_refused(tiny: Any, write: Write) -> None:
    write("a.json", one_op(tiny), rank=0, world_size=2)
    folder = write("b.json", one_op(tiny), rank=1, world_size=4).parent
    with pytest.raises(InputRefused, match="two different jobs"):
        read([folder])


@pytest.mark.parametrize(
    ("present", "line"),
    [
        ((0, 1), "ranks 2–7 of 8 missing: waits for them cannot be seen"),
        ((0, 1, 3, 6, 7), "ranks 2, 4–5 of 8 missing: waits for them cannot be seen"),
        ((0, 1, 2, 3, 4, 5, 6), "rank 7 of 8 missing: waits for it cannot be seen"),
    ],
)
def test_missing_ranks_are_reported(tiny: Any, write: Write, present: tuple[int, ...], line: str) -> None:
    for rank in present:
        folder = write(f"{rank}.json", one_op(tiny), rank=rank, world_size=8).parent
    assert read([folder]).partial == (line,)


def test_a_truncated_file_in_a_set_is_left_out_and_reported(tiny: Any, write: Write) -> None:
    folder = write("rank0.json.gz", one_op(tiny), rank=0, world_size=2).parent
    whole = gzip.compress(tiny.as_bytes(one_op(tiny), rank=1, world_size=2))
    (folder / "rank1.json.gz").write_bytes(whole[:-20])
    trace = read([folder])
    assert trace.members.rank.tolist() == [0]
    assert "rank1.json.gz left out: the gzip stream breaks off" in trace.partial[0]
    assert trace.partial[1] == "rank 1 of 2 missing: waits for it cannot be seen"
    with pytest.raises(InputRefused, match="breaks off after byte"):
        read([folder / "rank1.json.gz"])


def test_truncated_json_in_a_set_is_left_out_and_reported(tiny: Any, write: Write) -> None:
    folder = write("rank0.json", one_op(tiny), rank=0, world_size=2).parent
    write("rank1.json", tiny.as_bytes(one_op(tiny), rank=1)[:-9])
    assert "rank1.json left out: the JSON breaks off at byte" in read([folder]).partial[0]


def test_what_is_not_a_trace_is_skipped_and_the_answer_key_never_opened(
    tiny: Any, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("odd.name", one_op(tiny)).parent
    write("README.md", b"hello")
    write("binary", bytes(range(256)))
    write("other.json", b'{"nodes": []}')
    write("truth.json", one_op(tiny, 500))
    opened: list[str] = []
    whole = room.load_file
    monkeypatch.setattr(load_inputs, "load_file", lambda path, *_, **__: opened.append(Path(path).name) or whole(path))
    trace = read([folder])
    assert "truth.json" not in opened
    assert (len(trace.ops), trace.counts["files"], trace.counts["files skipped"]) == (1, 1, 3)
    with pytest.raises(NotATrace):
        read([folder / "truth.json"])


def test_a_tar_is_streamed_whatever_its_members_are_called(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "job.anything"
    with tarfile.open(path, "w:gz") as tar:
        for rank in range(2):
            data = tiny.as_bytes(one_op(tiny), rank=rank, world_size=2)
            for name, content in ((f"../../etc/rank{rank}", gzip.compress(data)), ("truth.json", data)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    trace = read([path])
    assert trace.members.rank.tolist() == [0, 1]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(tiny: Any, monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:
    data = pack(tiny.as_bytes(one_op(tiny)))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    trace = read(["-"])
    assert (trace.name, len(trace.ops)) == ("job", 1)


def test_files_are_read_in_processes_when_there_is_much_to_read(
    tiny: Any, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        folder = write(f"{rank}.json", one_op(tiny), rank=rank, world_size=2).parent
    serial = tiny.ops_of(read([folder]))
    monkeypatch.setattr(load_inputs, "PARALLEL_BYTES", 0)
    seen: list[tuple[int, int]] = []
    parallel = read([folder], progress=lambda done, total: seen.append((done, total)))
    assert tiny.ops_of(parallel) == serial
    assert seen[-1][0] == seen[-1][1] > 0


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(NotATrace, match="empty folder"):
        read([tmp_path])
    with pytest.raises(InputRefused, match="no such file"):
        read([tmp_path / "absent"])
    (tmp_path / "binary").write_bytes(bytes(1000))
    with pytest.raises(NotATrace, match="not a trace"):
        read([tmp_path / "binary"])
    with pytest.raises(InputRefused, match="nothing to read"):
        read([])


def test_formats_are_known_by_content() -> None:
    sniffed = [
        b'{"schemaVersion": 1, "traceEvents": []}',
        b' [ {"name": "a", "ph": "X"} ]',
        b'{"nodes": []}',
        b"PAR1",
        b"",
    ]
    kineto = next(one.reader for one in room.FORMATS if one.name == "kineto")
    assert [kineto.sniff(head) for head in sniffed] == [True, True, False, False, False]


def fr_entry(seq: int, created_us: float, name: str = "gloo:all_reduce", group: str = "0") -> dict[str, Any]:
    created = 1_700_000_000_000_000_000 + int(created_us * 1000)
    return {
        "collective_seq_id": seq,
        "profiling_name": name,
        "time_created_ns": created,
        "process_group": [group, "pg"],
        "is_p2p": False,
    }


def test_the_flight_recorder_names_group_and_sequence(tiny: Any, write: Write) -> None:
    events = [
        tiny.c10d("allreduce_", 1000, 500, [[[64]], []]),
        tiny.gloo("all_reduce", 2000, 500, 64),
        tiny.c10d("allreduce_", 5000, 500, [[[64]], []]),
        tiny.gloo("all_reduce", 6000, 500, 64),
    ]
    entries = [fr_entry(7, -9000), fr_entry(8, 1100), fr_entry(3, 5100, group="tp")]
    dump = {"entries": entries, "pg_config": {"tp": {"name": "tp", "ranks": "[0, 1]"}}}
    write("fr_rank0.json", json.dumps(dump).encode())
    folder = write("rank0.json", events).parent
    trace = read([folder])
    found = [(op["group"], op["seq"]) for op in tiny.ops_of(trace) if op["kind"] == "communicate"]
    assert found == [("0", 8), ("tp", 3)]
    assert trace.group_ranks["tp"] == [0, 1]
    assert trace.counts["collectives named by the flight recorder"] == 2


def test_two_jobs_one_after_the_other_are_refused_with_the_commands_that_compare_them(tiny: Any, write: Write) -> None:
    """The same steps of the same rank, later: no further cycle of the profiler."""
    write("a/rank0.json", [tiny.step(3, 0, 50), *one_op(tiny, 0, 50)])
    folder = write("b/rank0.json", [tiny.step(3, 9000, 50), *one_op(tiny, 9000, 50)]).parent.parent
    why = r"it begins 0\.00895 s after .*a/rank0.json ends, and rank 0 has steps 3 there and 3 here: two different jobs; "
    with pytest.raises(InputRefused, match=why + r".*taut analyze \S+/a -o RUN-A, .*/b -o RUN-B, taut compare RUN-A RUN-B"):
        read([folder])


def test_recordings_of_a_rank_without_steps_are_joined_only_where_they_follow_closely(tiny: Any, write: Write) -> None:
    write("a.json", one_op(tiny, 0, 50))
    folder = write("b.json", one_op(tiny, 60, 50)).parent
    assert len(read([folder]).ops) == 2
    write("b.json", one_op(tiny, 6000, 50))
    why = "no step marks say that rank 0 goes on where it ended: two different jobs; compare them: .*"
    with pytest.raises(InputRefused, match=why + r"; or, if they are cycles of one run, .*schedule\(repeat=…\) numbers all"):
        read([folder])


def test_files_that_name_no_rank_and_never_ran_together_are_two_jobs(tiny: Any, write: Write) -> None:
    write("bs32.json", one_op(tiny, 0, 50), rank=None)
    folder = write("bs64.json", one_op(tiny, 6000, 50), rank=None).parent
    why = "neither names its rank: two different jobs; .*; or, if they are cycles of one process, call them NAME.TIME.pt"
    with pytest.raises(InputRefused, match=why):
        read([folder])


def test_ranks_of_one_host_that_never_ran_together_are_two_jobs(tiny: Any, write: Write) -> None:
    write("r0.json", one_op(tiny, 0, 50), rank=0, host_name="node1")
    folder = write("r1.json", one_op(tiny, 6000, 50), rank=1, host_name="node1").parent
    with pytest.raises(InputRefused, match="on the same host node1: two different jobs"):
        read([folder])
    write("r1.json", one_op(tiny, 6000, 50), rank=1, host_name="node2")  # another host has another clock
    assert len(read([folder]).members) == 2


def test_a_rank_on_two_hosts_is_of_two_jobs(tiny: Any, write: Write) -> None:
    write("a.json", one_op(tiny), host_name="node1")
    folder = write("b.json", one_op(tiny), host_name="node2").parent
    with pytest.raises(InputRefused, match=r"rank 0 is on host node1 in .*a.json and on node2 here: two different jobs"):
        read([folder])


def test_cycles_of_a_process_that_names_no_rank_are_one_rank(tiny: Any, write: Write) -> None:
    for cycle in range(2):
        events = [tiny.step(cycle, 9000 * cycle, 50), *one_op(tiny, 9000 * cycle, 50)]
        folder = write(f"box_77.170000000{cycle}000.pt.trace.json", events, rank=None).parent
    trace = read([folder])
    assert trace.members.rank.tolist() == [0]
    assert trace.marks.step.tolist() == [0, 1]


ROCPROF = b"""{ "traceEvents":[{}
,{"args":{"name":"CPU HIP API"},"ph":"M","pid":2,"name":"process_name","sort_index":0}
,{"ph":"X","name":"hipLaunchKernel","ts":"100","dur":"10","pid":"2","tid":"77",
  "args":{
    "BeginNs":"100000",
    "EndNs":"110000"
  }
}
]}"""
ROCPROFV3 = b'{"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}, "buffer_records": {"kernel_dispatch": []}}]}'
AUTOGRAD = b"""[{"name": "aten::mm", "ph": "X", "ts": 12.5, "dur": 3.0, "tid": 1, "pid": "CPU functions", "args": {}},
{"name": "aten::mm", "ph": "s", "ts": 12.5, "tid": 1, "pid": "CPU functions", "id": 0, "cat": "cpu_to_cuda", "args": {}}]"""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (ROCPROF, "a trace of rocprof, which does not tell collectives and steps"),
        (ROCPROFV3, "a trace of rocprof, which does not tell collectives and steps"),
        (AUTOGRAD, "an export of torch.autograd.profiler, which has no events of devices"),
    ],
)
def test_traces_of_other_profilers_are_refused_by_name(write: Write, content: bytes, why: str) -> None:
    with pytest.raises(InputRefused, match=rf"{why}; record with torch\.profiler\.profile\("):
        read([write("trace.json", content)])


@pytest.mark.parametrize(
    ("content", "why"), [(b"", "it is empty"), (b"<html>", "it is no trace"), (bytes(99), "it is no trace")]
)
def test_a_file_called_like_the_traces_that_nobody_can_read_is_reported(
    tiny: Any, write: Write, content: bytes, why: str
) -> None:
    folder = write("rank0.json", one_op(tiny), rank=0, world_size=2).parent
    write("notes9.json", b"[]")
    write("rank1.json", content)
    notes = read([folder]).partial
    assert notes[0].endswith(f"rank1.json left out: {why}")
    assert notes[1:] == ("rank 1 of 2 missing: waits for it cannot be seen",)


def test_a_table_of_step_times_beside_traces_is_left_out(tiny: Any, write: Write) -> None:
    folder = write("rank0.json", one_op(tiny), rank=0, world_size=1).parent
    write("times.csv", b"worker,step,step_time_s\n0,0,1\n0,1,1\n")
    assert "times.csv left out: its times count from their steps" in read([folder]).partial[0]


def test_the_word_rank_in_a_file_name_comes_before_others(tiny: Any, write: Write) -> None:
    for rank in (4, 5):
        folder = write(f"node1_rank{rank}.json", one_op(tiny), rank=None).parent
    assert read([folder]).members.rank.tolist() == [4, 5]
