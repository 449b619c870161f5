"""NCCL Inspector logs: operations with their communicator, number and size; times where they are, bounds where they are not."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused, NotATrace
from taut.core.tables import Kind, Trace, Verb
from taut.graph import link
from taut.read.flight import inspector
from taut.read.trace import read
from taut.run import analyze_trace

US = 1000
BASE_US = 1_752_867_229_000_000
HASH = "0x7f8c496ae9f661"


class Plugin:
    """What the plugin writes for one process, in the layout of a version of its format."""

    def __init__(self, rank: int, ranks: int, *, comm: str = HASH, markers: bool = False, verbose: bool = True) -> None:
        self.rank, self.ranks, self.comm, self.markers, self.verbose = rank, ranks, comm, markers, verbose
        self.lines: list[dict[str, Any]] = []
        self.counts: Counter[tuple[str, str]] = Counter()

    def head(self, dumped_us: float, comm: str, rank: int, ranks: int) -> dict[str, Any]:
        return {
            "header": {"id": comm, "rank": rank, "n_ranks": ranks, "nnodes": 2},
            "metadata": {
                "inspector_output_format_version": "v4.3" if self.markers else "v4.0", "git_rev": "",
                "rec_mechanism": "nccl_profiler_interface", "dump_timestamp_us": round(BASE_US + dumped_us),
                "hostname": f"node{self.rank // 2}", "pid": 100 + self.rank,
            },
        }  # fmt: skip

    def times(self, word: str, start_us: float, end_us: float) -> dict[str, Any]:
        call, kernels = round(BASE_US + start_us - 20), []
        for channel in range(2):  # the second one begins and ends a little inside the first
            begin, stop = round(BASE_US + start_us + channel), round(BASE_US + end_us - channel)
            kernels.append({"channel_id": channel, "kernel_start_ts": begin, "kernel_stop_ts": stop, "kernel_record_ts": stop})
        return {"event_trace_ts": {f"{word}_start_ts": call, f"{word}_stop_ts": call + 5, "kernel_events": kernels}}

    def write(
        self, name: str, start_us: float, end_us: float, size: int = 1 << 20, *, dumped_us: float | None = None,
        peer: int = -1, comm: str = "", seat: tuple[int, int] | None = None, lost: int = 0,
    ) -> None:  # fmt: skip
        """One operation, written to the log some time after its end."""
        comm, (rank, ranks) = comm or self.comm, seat or (self.rank, self.ranks)
        word, key = ("p2p", "p2p_perf") if peer >= 0 else ("coll", "coll_perf")
        perf: dict[str, Any] = {
            word: name, f"{word}_sn": self.counts[comm, name], f"{word}_msg_size_bytes": size,
            f"{word}_exec_time_us": round(end_us - start_us), f"{word}_timing_source": "kernel_gpu", f"{word}_busbw_gbs": 1.5,
        }  # fmt: skip
        self.counts[comm, name] += 1
        if peer >= 0:
            perf["p2p_peer"] = peer
        if self.verbose:
            perf |= self.times(word, start_us, end_us)
        head = self.head(end_us + 300 if dumped_us is None else dumped_us, comm, rank, ranks)
        if self.markers:
            self.lines += [{**head, "dump_stats": {"coll_records": 1, "coll_dropped_since_last_dump": lost}}, {key: perf}]
        else:
            self.lines.append({**head, key: perf})

    def save(self, folder: Path) -> None:
        text = "".join(json.dumps(line) + "\n" for line in self.lines)
        (folder / f"node{self.rank // 2}-pid{100 + self.rank}.log").write_text(text)


def logs(folder: Path, plugins: Sequence[Plugin]) -> Trace:
    for plugin in plugins:
        plugin.save(folder)
    return read([folder])


def spans(trace: Trace, rank: int, name: str) -> list[tuple[float, float]]:
    """Start and end of a rank's ops of a class, µs."""
    ops = trace.ops
    rows = np.flatnonzero((ops.rank == rank) & (ops.name == list(trace.names).index(name)))
    return sorted(
        (int(s) / US - BASE_US, int(e) / US - BASE_US) for s, e in zip(ops.start_ns[rows], ops.end_ns[rows], strict=True)
    )


@pytest.mark.parametrize("markers", [False, True], ids=["v4.0", "v4.3"])
def test_verbose_logs_tell_when(tmp_path: Path, markers: bool) -> None:
    """Rank 1 begins 200 µs later; both end together."""
    plugins = [Plugin(rank, 2, markers=markers) for rank in range(2)]
    for step in range(4):
        for rank, plugin in enumerate(plugins):
            plugin.write("AllReduce", 1000 * step + 200 * rank, 1000 * step + 300)
            plugin.write("AllGather", 1000 * step + 350, 1000 * step + 400, 4096)
    trace = logs(tmp_path, plugins)
    assert spans(trace, 1, "AllReduce") == [(200, 300), (1200, 1300), (2200, 2300), (3200, 3300)]
    assert spans(trace, 0, "launch of AllReduce")[0] == (-20, -15)
    assert spans(trace, 1, "between, before AllReduce") == [(400, 1200), (1400, 2200), (2400, 3200)]
    reduce = trace.ops.take(trace.ops.verb == Verb.ALL_REDUCE)
    assert set(reduce.seq.tolist()) == {0, 1, 2, 3}
    assert set(reduce.size.tolist()) == {1 << 20}
    assert (trace.ops.kind[reduce.launch] == Kind.COORDINATE).all()
    assert {trace.groups[g] for g in reduce.group} == {f"{HASH} AllReduce"}
    assert trace.group_ranks[f"{HASH} AllReduce"] == [0, 1]
    assert trace.world_size == 2
    assert trace.members.host.tolist() == ["node0", "node0"]
    assert np.unique(trace.ops.step).tolist() == [0, 1, 2, 3]
    assert not any("without times" in line for line in trace.partial)


def test_without_times_who_comes_late_is_as_measured(tmp_path: Path) -> None:
    """Ends are bounded by the lines; both members end where the first of the two was written."""
    plugins = [Plugin(rank, 2, verbose=False) for rank in range(2)]
    for step in range(4):
        for rank, plugin in enumerate(plugins):
            end = 1000 * step + 500
            plugin.write("AllReduce", end - 300 + 200 * rank, end, dumped_us=end + (40, 90)[rank])
    trace = logs(tmp_path, plugins)
    assert spans(trace, 0, "AllReduce")[1] == (1240, 1540)
    assert spans(trace, 1, "AllReduce")[1] == (1440, 1540)
    assert any("8 of 8 operations without times" in line for line in trace.partial)
    assert not any("written together" in line for line in trace.partial)


def test_operations_written_together_follow_each_other(tmp_path: Path) -> None:
    plugins = [Plugin(rank, 2, verbose=False) for rank in range(2)]
    for k in range(3):
        for rank, plugin in enumerate(plugins):
            plugin.write("AllReduce", 1000 * k + 100 * rank, 1000 * k + 400, dumped_us=5000)
    trace = logs(tmp_path, plugins)
    assert spans(trace, 0, "AllReduce") == [(3800, 4200), (4200, 4600), (4600, 5000)]
    assert spans(trace, 1, "AllReduce") == [(3900, 4200), (4300, 4600), (4700, 5000)]
    assert any("4 operations were written together with later ones" in line for line in trace.partial)


def job(slow: int, verbose: bool, steps: int = 30) -> list[Plugin]:
    """Four ranks, one of which comes 1.5 ms later to every reduction from step 12 on."""
    noise = np.random.default_rng(3).normal(0, 60, (steps, 2, 4))
    plugins, now = [Plugin(rank, 4, verbose=verbose) for rank in range(4)], 0.0
    for step in range(steps):
        for k, (name, work) in enumerate((("AllReduce", 8000), ("AllGather", 2000))):
            late = 1500 if step >= 12 and name == "AllReduce" else 0
            arrive = [now + work + noise[step, k, rank] + late * (rank == slow) for rank in range(4)]
            now = max(arrive) + 400
            for rank, plugin in enumerate(plugins):
                plugin.write(name, arrive[rank], now, dumped_us=now + 100 + 50 * rank)
    return plugins


@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("slow", [0, 3])
def test_the_rank_that_became_slow_is_named(tmp_path: Path, slow: int, verbose: bool) -> None:
    analysis = analyze_trace(logs(tmp_path, job(slow, verbose)))
    assert [(f.mode, f.ranks, f.steps) for f in analysis.findings] == [("straggler cascade", (slow,), (12, 29))]
    assert analysis.result["ledger"]["closes"]


@pytest.mark.parametrize("verbose", [True, False])
def test_a_healthy_job_has_no_finding(tmp_path: Path, verbose: bool) -> None:
    assert analyze_trace(logs(tmp_path, job(-1, verbose))).findings == []


def test_several_communicators_and_hops(tmp_path: Path) -> None:
    """Four processes in two pairs and all together; the second of a pair receives from the first."""
    plugins = [Plugin(rank, 4) for rank in range(4)]
    for step in range(4):
        for rank, plugin in enumerate(plugins):
            pair = {"comm": f"0xpair{rank // 2}", "seat": (rank % 2, 2)}
            if rank % 2 == 0:
                plugin.write("Send", 2000 * step, 2000 * step + 50, peer=1, **pair)  # type: ignore[arg-type]
            else:
                plugin.write("Recv", 2000 * step, 2000 * step + 60, peer=0, **pair)  # type: ignore[arg-type]
            plugin.write("AllReduce", 2000 * step + 900, 2000 * step + 1000)
    trace = logs(tmp_path, plugins)
    received = trace.ops.take(trace.ops.verb == Verb.RECV)
    assert set(zip(received.rank.tolist(), received.peer.tolist(), strict=True)) == {(1, 0), (3, 2)}
    assert trace.group_ranks["0xpair1"] == [2, 3]
    assert trace.members.host.tolist() == ["node0", "node0", "node1", "node1"]
    assert analyze_trace(trace).graph.counts["unmatched"] == 0


def test_processes_that_no_communicator_holds_together(tmp_path: Path) -> None:
    plugins = [Plugin(rank, 4) for rank in range(4)]
    for rank, plugin in enumerate(plugins):
        plugin.write("AllReduce", 0, 100, comm=f"0xpair{rank // 2}", seat=(rank % 2, 2))
    trace = logs(tmp_path, plugins)
    assert trace.members.rank.tolist() == [0, 1, 2, 3]
    assert trace.world_size is None
    assert any("numbered by host and process" in line for line in trace.partial)


def test_what_is_missing_is_reported(tmp_path: Path) -> None:
    plugins = [Plugin(rank, 3, markers=True) for rank in range(2)]
    for plugin in plugins:
        plugin.write("AllReduce", 0, 100, lost=7)
        plugin.counts[HASH, "AllReduce"] += 5
        plugin.write("AllReduce", 1000, 1100)
        plugin.lines.append({"header": {"id": "", "rank": 0}, "coll_perf": {}})
    plugins[0].save(tmp_path)
    plugins[1].save(tmp_path)
    with (tmp_path / "node0-pid101.log").open("a") as file:
        file.write('{"header": {"id": "0x7f8c')  # the job died while it wrote
    trace = read([tmp_path])
    assert any("14 operations lost in the plugin's ring buffer" in line for line in trace.partial)
    assert any("10 collectives are not in the logs" in line for line in trace.partial)
    assert any("rank 2 of 3 missing" in line for line in trace.partial)
    assert trace.counts["dropped: unreadable"] == 3


def test_an_operation_that_was_written_twice_is_one(tmp_path: Path) -> None:
    plugins = [Plugin(rank, 2) for rank in range(2)]
    for plugin in plugins:
        plugin.write("AllReduce", 0, 100)
        plugin.lines *= 2
    assert logs(tmp_path, plugins).counts["operations"] == 2


def test_beside_profiler_traces_they_are_left_out(tmp_path: Path, tiny: Any) -> None:
    (tmp_path / "rank0.json").write_bytes(tiny.as_bytes([tiny.event("cpu_op", "aten::mm", 1, 2)]))
    plugin = Plugin(0, 1)
    plugin.write("AllReduce", 0, 100)
    trace = logs(tmp_path, [plugin])
    assert list(trace.names) == ["aten::mm"]
    assert any("Inspector logs beside traces, which record more" in line for line in trace.partial)


@pytest.mark.parametrize(
    "line",
    [
        {
            "header": {"id": HASH, "rank": 0, "n_ranks": 2},
            "metadata": {"dump_timestamp_us": 1},
            "coll_perf": {"coll": "AllReduce"},
        },
        {"header": {"id": HASH, "rank": 5, "n_ranks": 2}, "metadata": {}, "coll_perf": {"coll_sn": 1, "coll_exec_time_us": 1}},
        {"header": {}, "dump_stats": {"coll_records": 0}},
        {"header": {"rank": "two"}, "coll_perf": {}},
    ],
    ids=["no number", "rank outside", "nothing but a marker", "no rank"],
)
def test_logs_without_an_operation_are_refused(tmp_path: Path, line: dict[str, Any]) -> None:
    (tmp_path / "node0-pid1.log").write_text(json.dumps(line) + "\n")
    with pytest.raises((InputRefused, NotATrace), match="no operation of a communicator"):
        read([tmp_path])


def valid() -> bytes:
    plugin = Plugin(0, 2, markers=True)
    for k in range(4):
        plugin.write("AllReduce", 100 * k, 100 * k + 50)
    return "".join(json.dumps(line) + "\n" for line in plugin.lines).encode()


@given(st.lists(st.tuples(st.integers(0, len(valid()) - 1), st.binary(min_size=1, max_size=6)), max_size=8))
def test_damaged_logs_are_read_or_refused(changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(valid())
    for at, what in changes:
        data[at : at + len(what)] = what
    with contextlib.suppress(InputRefused):
        link(inspector.gather([inspector.load(bytes(data), "log")]))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    inspector.sniff(data)
    with pytest.raises(InputRefused):
        inspector.load(data, "log")


def header(rank: int, ranks: int, pid: int = 100) -> dict[str, Any]:
    about = {"dump_timestamp_us": BASE_US, "hostname": "n", "pid": pid, "inspector_output_format_version": "v4.3"}
    return {"header": {"id": HASH, "rank": rank, "n_ranks": ranks}, "metadata": about}


def collective(**more: Any) -> dict[str, Any]:
    return {"coll_perf": {"coll": "AllReduce", "coll_sn": 0, "coll_msg_size_bytes": 8, "coll_exec_time_us": 4, **more}}


def as_lines(*lines: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, lines)).encode()


@pytest.mark.parametrize(
    "lines", [[collective()], [header(0, 2)], [header(5, 2), collective()], [header(0, 2), collective(coll="")]]
)
def test_a_log_without_an_operation_of_a_communicator_is_refused(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(InputRefused, match="no operation of a communicator"):
        inspector.load(as_lines(*lines), "log")


def test_a_process_whose_seat_is_impossible_is_left_out() -> None:
    log = inspector.load(as_lines(header(7, 2, 99), collective(), header(1, 2, 100), collective()), "log")
    assert [seat.pid for seat in log.seats] == [100]
    assert log.unreadable == 1


def test_ranks_that_disagree_on_how_many_they_are(tmp_path: Path) -> None:
    for pid, (rank, ranks) in enumerate([(0, 4), (1, 4), (2, 4), (5, 6), (0, 4)]):
        (tmp_path / f"{pid}.log").write_bytes(as_lines(header(rank, ranks, pid), collective()))
    assert read([tmp_path]).group_ranks == {}


def test_an_operation_of_years_is_none() -> None:
    log = inspector.load(as_lines(header(0, 2), collective(), collective(coll_sn=1, coll_exec_time_us=2**51)), "log")
    assert log.unreadable == 1
