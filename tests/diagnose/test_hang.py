"""Hangs: whoever stopped is named, nobody who only waits for him, and nobody in a job that runs."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hang_jobs import MS, SHAPES, Job, Stop, drawn, joined
from taut.core.errors import InputRefused
from taut.core.tables import Member, Metric, Progress, Table
from taut.diagnose.hang import Hang
from taut.read.trace import read
from taut.run import analyze_trace

seeds = st.integers(0, 10**6)


def asked(dumps: list[dict[str, Any]]) -> Hang:
    return Hang(joined(dumps))


def job(*stops: Stop, shape: tuple[int, int, int, int] = (2, 2, 2, 2), **more: Any) -> Job:
    return Job(*shape, seed=3, stops=list(stops), **more)


def dumped(job: Job, *, without: tuple[int, ...] = (), times: int = 2, **view: Any) -> list[dict[str, Any]]:
    """The dumps of a job at rest, two sets unless told."""
    return [job.dump(rank, **view) for rank in range(job.ranks) if rank not in without] * times


@settings(max_examples=60)
@given(seeds)
def test_nobody_innocent_is_named_and_what_is_not_told_is_said(seed: int) -> None:
    """One or two ranks stop, before a call, in it, or in their device; dumps are missing, or hold the last calls only."""
    case = drawn(seed, stops=True)
    found = asked(case.dumps)
    assert found.stopped <= case.stopped
    assert found.stopped == case.stopped or found.stopped or found.untold


@settings(max_examples=60)
@given(seeds)
def test_a_job_that_runs_does_not_hang(seed: int) -> None:
    assert asked(drawn(seed, stops=False).dumps).sign == ""


@settings(max_examples=40)
@given(
    seeds, st.sampled_from(SHAPES), st.sampled_from(["none", "first", "all", "every"]), st.sampled_from([1, 4, 12]), st.data()
)
def test_exactly_the_rank_whose_host_stopped(seed: int, shape: Any, sync: str, ahead: int, data: Any) -> None:
    """Nobody moved between two sets of dumps."""
    job = Job(*shape, ep=1, seed=seed, sync=sync, ahead=ahead)
    rank = data.draw(st.integers(0, job.ranks - 1))
    at = data.draw(st.integers(1, len(job.calls[rank]) - 2))
    active = data.draw(st.booleans())
    assert asked(dumped(replace(job, stops=[Stop(rank, at)]), active=active)).stopped == {rank}


def test_a_rank_that_stays_away_for_long_is_named_from_one_set() -> None:
    """Hosts run ahead by forty calls, so those that wait show that a lot of time went by."""
    found = asked(dumped(job(Stop(5, 60), ahead=40, steps=6), times=1))
    assert found.stopped == {5}
    assert "stays away" in found.sign


def test_one_set_of_dumps_of_a_job_that_waits_at_once_does_not_tell() -> None:
    found = asked(dumped(job(Stop(5, 60), ahead=1, sync="every", shape=(1, 1, 8, 1), steps=30), times=1))
    assert found.stopped == set()
    assert "if it did, rank 5 stopped" in found.untold[0]


def test_whatever_it_enqueued_later() -> None:
    """The others completed the oldest open call of rank 5, which has later ones open."""
    found = asked(dumped(job(Stop(5, 30, "blind"))))
    assert found.stopped == {5}
    assert len(found.calls.open[5]) > 1
    assert "device stopped" in found.describe(sorted(found.calls.open))


def test_a_device_that_did_not_begin_what_all_others_began() -> None:
    stopped = job(Stop(5, 31, "device"), shape=(4, 1, 2, 1))
    assert asked(dumped(stopped, started=True)).stopped == {5}
    silent = asked(dumped(stopped))
    assert silent.stopped == set()
    assert "a device or a link is stuck" in silent.untold[0]


def test_a_hang_without_a_name_is_a_hang(tmp_path: Path) -> None:
    for turn in range(2):
        (tmp_path / str(turn)).mkdir()
        for dump in dumped(job(Stop(5, 31, "inside")), times=1):
            (tmp_path / str(turn) / f"dump_{dump['rank']}").write_bytes(pickle.dumps(dump, protocol=2))
    found = analyze_trace(read([tmp_path]))
    assert (found.findings[0].mode, found.findings[0].ranks) == ("hang", ())
    assert "do not tell who stopped" in found.verdict


def test_a_pipeline_that_ends_names_no_neighbour() -> None:
    """What a rank waits for in a hop is asked of the hop: its own open send does not excuse it, and blames nobody."""
    for at in range(8, 14):
        found = asked(dumped(job(Stop(2, at), shape=(1, 4, 1, 1), ahead=3)))
        assert found.stopped == {2}


def test_two_of_different_replicas() -> None:
    assert asked(dumped(job(Stop(1, 14), Stop(6, 14), shape=(1, 1, 8, 2), steps=8))).stopped == {1, 6}


def test_one_that_made_fewer_calls_while_it_waited_may_have_stopped() -> None:
    """It may also wait for its device where the others do not (a rank that logs): it is not named."""
    dumps = dumped(job(Stop(0, 21), shape=(1, 1, 8, 1), ahead=12, steps=12))
    for dump in dumps:
        if dump["rank"] == 7:
            dump["entries"] = dump["entries"][:23]
    found = asked(dumps)
    assert found.stopped == {0}
    assert "rank 7 made fewer calls" in " ".join(found.untold)


def test_a_rank_that_left_no_dump_is_waited_for() -> None:
    found = asked(dumped(job(Stop(5, 30)), without=(5,)))
    assert found.stopped == set(), "it died, or its dump is lost and a device of those that wait is stuck"
    assert "others wait for rank 5, of which there is no dump" in " ".join(found.untold)
    assert "nobody moved" in found.sign


def test_dumps_of_different_times_are_told_by_what_others_completed() -> None:
    running = job(steps=6)
    at = 0.5 * running.end_ns
    dumps = [running.dump(rank, at + (40 * MS if rank != 3 else 0)) for rank in range(running.ranks)]
    found = asked(dumps)
    assert 3 in found.older
    assert found.sign == ""
    assert "the dumps are of different times" in " ".join(found.untold)


def test_who_moved_between_two_dumps_did_not_stop() -> None:
    running = job(steps=6, sync="every", ahead=1, shape=(1, 1, 8, 1))
    for part in (0.3, 0.37, 0.44, 0.51):
        dumps = [running.dump(rank, part * running.end_ns + more) for more in (0, 5 * MS) for rank in range(running.ranks)]
        assert asked(dumps).sign == ""


def test_a_job_that_finished_has_no_finding() -> None:
    found = asked(dumped(job()))
    assert (found.stopped, found.sign, found.untold) == (set(), "", [])


# Ten that are nasty.


def test_nasty_a_dump_twice_is_no_second_set() -> None:
    waits = job(Stop(5, 60), ahead=1, sync="every", shape=(1, 1, 8, 1), steps=30)
    once = dumped(waits, times=1)
    assert asked([*once, once[5]]).sign == ""


def test_nasty_groups_of_one_name() -> None:
    """Some frameworks give all tensor parallel groups one name: each process means its own."""
    dumps = dumped(job(Stop(5, 40)))
    for dump in dumps:
        for entry in dump["entries"]:
            if entry["process_group"][0].startswith("1"):
                entry["process_group"][0] = "1"
        for name in [name for name in dump["pg_config"] if name.startswith("1")]:
            dump["pg_config"]["1"] = {**dump["pg_config"].pop(name), "name": "1"}
    assert asked(dumps).stopped <= {5}


def test_nasty_an_order_of_calls_that_differs() -> None:
    """Rank 1 makes two calls of different groups in the other order: the two that wait for each other are named, or nobody."""
    calls = [("a", 1), ("b", 1)]
    dumps = []
    for rank in range(2):
        group = calls[rank][0]
        config = {name: {"name": name, "ranks": "[0, 1]"} for name in "ab"}
        entry = {
            "record_id": 0, "pg_id": "ab".index(group), "process_group": [group, ""], "collective_seq_id": 1,
            "state": "scheduled", "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + rank, "retired": False,
        }  # fmt: skip
        dumps.append({"rank": rank, "nccl_version": "2", "pg_config": config, "entries": [entry]})
    found = asked(dumps * 2)
    assert found.stopped == {0, 1}
    assert "waits in nccl:all_reduce 1 of group b for a rank that waits for it" in found.describe([])


def test_nasty_sizes_that_differ() -> None:
    """Rank 4 reduces another size than the seven others, in a call that nobody completes."""
    stuck = job(Stop(0, 20, "inside"), shape=(1, 1, 8, 1), steps=8)
    dumps = dumped(stuck, times=1)
    for entry in dumps[4]["entries"]:
        if entry["state"] != "completed" and entry["profiling_name"] == "nccl:all_reduce":
            entry["input_sizes"] = [[99]]
    assert asked(dumps).stopped == {4}
    for dump in dumps[:3]:  # then it is half of them
        for entry in dump["entries"]:
            if entry["state"] != "completed" and entry["profiling_name"] == "nccl:all_reduce":
                entry["input_sizes"] = [[99]]
    assert asked(dumps).stopped == set()


def test_nasty_a_rank_without_any_entry() -> None:
    dumps = dumped(job(Stop(5, 30)), active=True)
    assert all(not dump["entries"] for dump in dumps if dump["rank"] == 5)
    assert asked(dumps).stopped == {5}


def test_nasty_only_the_rank_that_stopped_left_a_dump() -> None:
    assert asked(dumped(job(Stop(5, 30)), without=(0, 1, 2, 3, 4, 6, 7))).stopped == set()


def test_nasty_half_of_the_ranks_stopped() -> None:
    assert asked(dumped(job(*(Stop(rank, 30) for rank in (0, 1, 4, 5))))).stopped <= {0, 1, 4, 5}


def test_nasty_clocks_that_are_off_by_seconds() -> None:
    dumps = dumped(job(Stop(5, 60), ahead=40, steps=6), times=1)
    for dump in dumps:
        for entry in dump["entries"]:
            entry["time_created_ns"] += 3 * 10**9 * (dump["rank"] % 2)
    assert asked(dumps).stopped <= {5}
    running = job(steps=6)
    dumps = [running.dump(rank, 0.5 * running.end_ns) for rank in range(running.ranks)]
    for dump in dumps:
        for entry in dump["entries"]:
            entry["time_created_ns"] += 3 * 10**9 * (dump["rank"] % 2)
    assert asked(dumps).sign == ""


def test_nasty_no_configuration_no_status() -> None:
    dumps = [{**dump, "pg_config": {}, "pg_status": {}} for dump in dumped(job(Stop(5, 30), shape=(2, 1, 4, 1)))]
    assert asked(dumps).stopped <= {5}


def test_nasty_numbers_that_are_missing() -> None:
    dumps = dumped(job(Stop(5, 30)))
    for dump in dumps:
        for entry in dump["entries"]:
            entry["collective_seq_id"] = entry["p2p_seq_id"] = None
    assert asked(dumps).stopped <= {5}


def test_dumps_of_some_ranks_beside_the_traces_of_all_are_no_hang() -> None:
    dumps = json.loads(json.dumps(dumped(job(), without=(2, 3), times=1)).replace("nccl:", "gloo:"))
    alone = joined(dumps)
    assert Hang(alone).stopped == set()
    assert "others wait for ranks 2, 3" in " ".join(Hang(alone).untold), "of two who left nothing it cannot be known"
    everybody = replace(alone, members=Table(Member, {"rank": list(range(8))}))
    assert Hang(everybody).untold == []


def write(folder: Path, dumps: list[dict[str, Any]]) -> None:
    for turn, dump in enumerate(dumps):
        (folder / f"set{2 * turn // len(dumps)}").mkdir(exist_ok=True)
        (folder / f"set{2 * turn // len(dumps)}" / f"flight_rank{dump['rank']}.json").write_text(json.dumps(dump))


def test_json_dumps_alone(tmp_path: Path) -> None:
    write(tmp_path, dumped(job(Stop(3, 30))))
    found = analyze_trace(read([tmp_path]))
    assert found.findings[0].ranks == (3,)
    assert "Hang: rank 3 stopped" in found.verdict


def test_one_damaged_dump_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, dumped(job(Stop(3, 30))))
    for turn in range(2):
        (tmp_path / f"set{turn}" / "flight_rank0.json").write_bytes(b"\x80\x02}q\x00(X\x07\x00\x00\x00ent")
    found = analyze_trace(read([tmp_path]))
    assert found.findings[0].ranks == (3,)
    assert any("left out" in line for line in found.graph.partial)


def test_dumps_that_do_not_say_their_rank(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(pickle.dumps({**dumped(job())[0], "rank": None}, protocol=2))
    with pytest.raises(InputRefused, match="do not say their rank"):
        read([tmp_path])


@pytest.mark.parametrize("incident", ["gpu_error_2nd", "lock_gil_1st"])
def test_real_incidents(shared: Path, incident: str) -> None:
    finding = analyze_trace(read([shared / "flight-recorder" / incident])).findings[0]
    assert (finding.mode, finding.ranks) == ("hang", (9, 14))


def test_metrics_that_go_on_show_that_a_job_stands_still() -> None:
    waits = joined(dumped(job(Stop(5, 60), ahead=1, sync="every", shape=(1, 1, 8, 1), steps=30), times=1))
    last = int(waits.calls.created_ns.max())
    metrics = Table(Metric, {"time_ns": [last, last + 60 * 10**9], "component": ["rank 0"] * 2, "rank": [0, 0]})
    assert Hang(replace(waits, metrics=metrics)).stopped == {5}
    logged = Table(Progress, {"rank": [0], "step": [9], "end_ns": [last + 50 * 10**9]})
    assert Hang(replace(waits, metrics=metrics, progress=logged)).stopped == set()
