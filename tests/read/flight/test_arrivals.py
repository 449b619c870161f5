"""Flight-recorder dumps of a job that runs: arrivals, what lies between them, steps, waits and clocks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.core.tables import Kind, Trace, Verb
from taut.graph import link
from taut.read.flight.reader import BARE
from taut.read.trace import read
from taut.run import analyze_trace

MS = 1_000_000
BASE_NS = 1_700_000_000_000_000_000
WORLD = (0, 1, 2, 3)
Work = Callable[[int, int], float]


@dataclass
class Job:
    """A job of four ranks that is played call by call, and what its flight recorders hold."""

    groups: Mapping[str, tuple[str, Sequence[int]]] = field(default_factory=lambda: {"0": ("default_pg", WORLD)})
    now: dict[int, float] = field(default_factory=lambda: dict.fromkeys(WORLD, 0.0))
    entries: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: {rank: [] for rank in WORLD})
    ready: dict[str, float] = field(default_factory=dict)
    """Group → when its last collective ended."""

    def work(self, ms: Callable[[int], float]) -> None:
        """Every rank works as long as this says."""
        for rank in WORLD:
            self.now[rank] += ms(rank)

    def call(self, verb: str, group: str = "0", size: int = 64, wait: bool = True, transfer: float = 1.0) -> None:
        """All ranks of a group meet; they wait for the end or go on."""
        ranks = self.groups[group][1]
        for rank in ranks:
            self._made(rank, verb, group, size, peer=-1)
        self.ready[group] = max(self.now[rank] for rank in ranks) + transfer
        if wait:
            self.wait(group)

    def wait(self, group: str = "0") -> None:
        """The ranks of a group wait for its last collective."""
        for rank in self.groups[group][1]:
            self.now[rank] = max(self.now[rank], self.ready[group])

    def hop(self, source: int, sink: int) -> None:
        """One rank sends, another waits for it."""
        self._made(source, "send", "0", 64, peer=sink)
        self._made(sink, "recv", "0", 64, peer=source)
        self.now[sink] = max(self.now[sink], self.now[source] + 1)

    def _made(self, rank: int, verb: str, group: str, size: int, peer: int) -> None:
        mine = self.entries[rank]
        name, p2p = f"nccl:{verb}", peer >= 0
        number = 1 + sum(e["process_group"][0] == group and e["is_p2p"] == p2p for e in mine)
        mine.append(
            {
                "record_id": len(mine), "pg_id": int(group), "process_group": [group, self.groups[group][0]],
                "collective_seq_id": 0 if p2p else number, "p2p_seq_id": number if p2p else 0,
                "profiling_name": f"{name} {rank}{'->' if verb == 'send' else '<-'}{peer}" if p2p else name,
                "time_created_ns": BASE_NS + round(self.now[rank] * MS), "input_sizes": [[size]], "is_p2p": p2p,
                "state": "completed", "retired": True,
            }
        )  # fmt: skip

    def dumps(self, folder: Path, lost: Mapping[int, int] | None = None, off_ms: Mapping[int, float] | None = None) -> Trace:
        """What is read back; some ranks lost their oldest calls, some have a clock that is off."""
        config = {name: {"name": name, "desc": desc, "ranks": str(list(ranks))} for name, (desc, ranks) in self.groups.items()}
        for rank, entries in self.entries.items():
            kept = entries[(lost or {}).get(rank, 0) :]
            shift = round((off_ms or {}).get(rank, 0) * MS)
            kept = [{**entry, "time_created_ns": entry["time_created_ns"] + shift} for entry in kept]
            dump = {"version": "2.9", "nccl_version": "2.27", "pg_config": config, "pg_status": {}, "entries": kept}
            (folder / f"flight_rank{rank}.json").write_text(json.dumps(dump))
        return read([folder])


def spans(trace: Trace, rank: int, name: str) -> list[tuple[float, float]]:
    """Start and end of a rank's ops of a class, in ms."""
    ops = trace.ops
    rows = np.flatnonzero((ops.rank == rank) & (ops.name == list(trace.names).index(name)))
    rows = rows[np.argsort(ops.start_ns[rows])]
    return [((int(ops.start_ns[i]) - BASE_NS) / MS, (int(ops.end_ns[i]) - BASE_NS) / MS) for i in rows]


def jitter(seed: int = 1) -> Work:
    """Ordinary variation of work, by rank and step, in ms."""
    noise = np.random.default_rng(seed).normal(0, 0.3, (4, 100))
    return lambda rank, step: float(noise[rank, step])


def blocking(slow: Work, steps: int = 30, groups: Any = None) -> Job:
    """20 ms of work, a reduction in which all wait, 5 ms of work, a gathering in which all wait."""
    job, noise = Job() if groups is None else Job(groups), jitter()
    for step in range(steps):
        job.work(lambda rank, step=step: 20 + noise(rank, step) + slow(rank, step))  # type: ignore[misc]
        for group in job.groups:
            job.call("all_reduce", group, 64)
        job.work(lambda rank, step=step: 5 + noise(rank, step + 50))  # type: ignore[misc]
        for group in job.groups:
            job.call("all_gather", group, 16)
    return job


def healthy(rank: int, step: int) -> float:
    return 0.0


def test_arrivals_and_the_work_between_them(tmp_path: Path) -> None:
    """Two calls a step; rank 1 comes 3 ms after the others to every reduction. A transfer takes 1 ms, seen as work."""
    job = Job()
    for _ in range(4):
        job.work(lambda rank: 13 if rank == 1 else 10)
        job.call("all_reduce")
        job.work(lambda rank: 4)
        job.call("all_gather")
    trace = job.dumps(tmp_path)
    assert np.unique(trace.ops.step).tolist() == [1, 2, 3], "what came before the first call is not known"
    assert spans(trace, 0, "work or transfer before nccl:all_reduce")[0] == (18, 29)
    assert spans(trace, 1, "work or transfer before nccl:all_reduce")[0] == (18, 32)
    assert spans(trace, 0, "nccl:all_reduce")[0] == (29, 32)
    assert spans(trace, 1, "nccl:all_reduce")[0] == (32, 32)
    assert spans(trace, 0, "work or transfer before nccl:all_gather")[0] == (32, 37)
    reduce = trace.ops.take(trace.ops.verb == Verb.ALL_REDUCE)
    assert set(zip(reduce.step.tolist(), reduce.seq.tolist(), strict=True)) == {(1, 3), (2, 5), (3, 7)}
    assert {trace.groups[g] for g in reduce.group} == {"0"}
    assert any("3 steps found from the calls that recur, 8 calls outside them left out" in line for line in trace.partial)
    assert any("made by the host" in line for line in trace.partial)


def test_a_call_beside_which_ranks_go_on(tmp_path: Path) -> None:
    """The reduction of a bucket is waited for 15 ms later, before the next step: what lies before that wait is no wait."""
    job, noise = Job(), jitter()
    for step in range(30):
        job.work(lambda rank, step=step: 30 + noise(rank, step) + (25 if rank == step % 4 else 0))  # type: ignore[misc]
        job.call("all_reduce", wait=False, transfer=0)
        job.work(lambda rank: 15)
        job.wait()
    trace = job.dumps(tmp_path)
    beside = spans(trace, 0, "work beside nccl:all_reduce")
    assert {round(end - start) for start, end in beside} <= {13, 14, 15, 16, 17}
    work = spans(trace, 0, "work or transfer before nccl:all_reduce")
    assert np.median([end - start for start, end in work]) == pytest.approx(30, abs=2)


@pytest.mark.parametrize("who", WORLD)
def test_the_rank_that_became_slow_is_named(tmp_path: Path, who: int) -> None:
    trace = blocking(lambda rank, step: 8.0 if rank == who and step >= 12 else 0.0).dumps(tmp_path)
    found = analyze_trace(trace).findings
    assert [(f.mode, f.ranks, f.steps) for f in found] == [("straggler cascade", (who,), (12, 29))]


def test_a_healthy_job_has_no_finding(tmp_path: Path) -> None:
    analysis = analyze_trace(blocking(healthy).dumps(tmp_path))
    assert analysis.findings == []
    assert analysis.result["ledger"]["closes"]


MESH = {
    "1": ("mesh_shard", (0, 1)), "2": ("mesh_shard", (2, 3)),
    "3": ("mesh_replicate", (0, 2)), "4": ("mesh_replicate", (1, 3)),
}  # fmt: skip


@pytest.mark.parametrize("groups", [None, MESH], ids=["one group", "groups that share ranks"])
def test_clocks_that_are_off_are_set_right(tmp_path: Path, groups: Any) -> None:
    trace = blocking(healthy, groups=groups).dumps(tmp_path, off_ms={1: 9.0, 3: -6.0})
    (note,) = (line for line in trace.partial if line.startswith("clocks set right"))
    for rank, off in ((1, 9.0), (3, -6.0)):
        assert float(note.split(f"rank {rank} ")[1].split(" ms")[0]) == pytest.approx(off, abs=1.0)
    assert analyze_trace(trace).findings == []


def test_recorders_that_lost_their_oldest_calls(tmp_path: Path) -> None:
    """A ring buffer keeps as many calls on every rank, but ranks are not dumped at the same call of a step."""
    slow = blocking(lambda rank, step: 8.0 if rank == 2 and step >= 16 else 0.0)
    trace = slow.dumps(tmp_path, lost={0: 7, 1: 8, 2: 9, 3: 11})
    analysis = analyze_trace(trace)
    assert [(f.mode, f.ranks) for f in analysis.findings] == [("straggler cascade", (2,))]
    assert len(analysis.graph.steps) >= 22


def test_sizes_that_differ_from_step_to_step(tmp_path: Path) -> None:
    job = Job()
    for step in range(6):
        job.work(lambda rank: 10)
        job.call("all_to_all", size=100 + step)
        job.work(lambda rank: 4)
        job.call("all_reduce")
    trace = job.dumps(tmp_path)
    assert np.unique(trace.ops.step).tolist() == [1, 2, 3, 4, 5]
    assert (trace.ops.size == -1).all(), "or no two steps would have an op in common"


def test_the_receiver_of_a_hop_waits_for_its_sender(tmp_path: Path) -> None:
    """A pipeline of four stages and an all-reduce: a stage's work begins when it has received."""
    job, noise = Job(), jitter()
    for step in range(20):
        for stage in WORLD:
            if stage:
                job.hop(stage - 1, stage)
            job.now[stage] += 10 + noise(stage, step)
        job.call("all_reduce")
    trace = job.dumps(tmp_path)
    received = trace.ops.take((trace.ops.verb == Verb.RECV) & (trace.ops.rank == 2))
    assert received.peer.tolist() == [1] * 19
    waited = (received.end_ns - received.start_ns) / MS
    assert np.median(waited) == pytest.approx(20, abs=2), "two stages before it"
    work = spans(trace, 2, "work or transfer before nccl:send")
    assert np.median([end - start for start, end in work]) == pytest.approx(11, abs=1), "a transfer and its own work"


def test_what_is_not_a_running_job_stays_as_it_is(tmp_path: Path) -> None:
    once = Job()
    for verb in ("all_reduce", "all_gather", "barrier"):
        once.call(verb)
    assert once.dumps(tmp_path).partial == [BARE]
    behind = blocking(healthy)
    behind.entries[2].pop()
    trace = behind.dumps(tmp_path)
    assert trace.partial == [BARE]
    assert (trace.ops.kind == Kind.COMMUNICATE).all()
    running = blocking(healthy)
    running.entries[1][-1]["state"], running.entries[1][-1]["retired"] = "started", False
    assert running.dumps(tmp_path).partial == [BARE]


def test_dumps_without_calls_hold_no_operator(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="holds no operator"):
        link(Job().dumps(tmp_path))


def test_a_rank_without_a_dump(tmp_path: Path) -> None:
    job = blocking(healthy)
    job.dumps(tmp_path)
    (tmp_path / "flight_rank3.json").unlink()
    assert read([tmp_path]).partial == [BARE, "no dump of rank 3"]


scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3), st.just([[1]]))
FIELDS = ("time_created_ns", "collective_seq_id", "process_group", "profiling_name", "input_sizes", "is_p2p", "record_id")


@given(st.lists(st.tuples(st.sampled_from(WORLD), st.integers(0, 15), st.sampled_from(FIELDS), scalars), max_size=6))
def test_mutated_dumps_are_read_or_refused(tmp_path_factory: Any, changes: list[tuple[int, int, str, Any]]) -> None:
    job = blocking(healthy, steps=8)
    for rank, at, name, value in changes:
        job.entries[rank][at][name] = value
    folder = tmp_path_factory.mktemp("mutated")
    dumps: dict[int, list[dict[str, Any]]] = job.entries
    for rank, entries in dumps.items():
        dump = {"version": "2.9", "nccl_version": "2.27", "pg_config": {}, "pg_status": {}, "entries": entries}
        (folder / f"flight_rank{rank}.json").write_text(json.dumps(dump))
    with contextlib.suppress(InputRefused):
        link(read([folder]))


def test_a_job_that_is_dumped_while_it_runs_is_read_up_to_where_all_had_come(tmp_path: Path) -> None:
    job = blocking(lambda rank, step: 12.0 if rank == 2 else 0.0)
    calls = job.entries
    for name, most in (("before", 31), ("now", 60)):
        (tmp_path / name).mkdir()
        # One rank after the other is dumped, each in the middle of a call.
        job.entries = {rank: [dict(call) for call in calls[rank][: most - rank % 3]] for rank in WORLD}
        for rank in WORLD:
            job.entries[rank][-1] |= {"state": "scheduled", "retired": False}
        job.dumps(tmp_path / name)
    trace = read([tmp_path])
    assert BARE not in trace.partial
    assert any(note.startswith("the job runs: 9 calls") for note in trace.partial)
    assert [finding.ranks for finding in analyze_trace(trace).findings] == [(2,)]
