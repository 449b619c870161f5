"""Hangs: whoever stopped is named, and nobody who only waits for him."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.core.tables import Member, Table
from taut.diagnose.hang import Hang as Calls
from taut.read.trace import read
from taut.run import Analysis, analyze_trace

TP, PP, DP = 2, 2, 3
RANKS = TP * PP * DP


def groups_of(rank: int) -> dict[str, list[int]]:
    """Process groups of a rank in a job with tensor, pipeline and data parallelism, numbered over the whole job."""
    tp, pp, dp = rank % TP, rank // TP % PP, rank // (TP * PP)

    def where(t: int, p: int, d: int) -> int:
        return t + TP * p + TP * PP * d

    return {
        "0": list(range(RANKS)),
        f"1{pp}{dp}": [where(t, pp, dp) for t in range(TP)],
        f"2{tp}{dp}": [where(tp, p, dp) for p in range(PP)],
        f"3{tp}{pp}": [where(tp, pp, d) for d in range(DP)],
    }


def program(rank: int, steps: int = 3) -> list[tuple[str, str, int]]:
    """What a rank calls, step by step: (group, verb, peer)."""
    world, tp, pp, dp = groups_of(rank)
    stage = rank // TP % PP
    peer = groups_of(rank)[pp][1 - stage]
    forward = [(pp, "send" if stage == 0 else "recv", peer)]
    backward = [(pp, "recv" if stage == 0 else "send", peer)]
    layer = [(tp, "all_reduce", -1), (tp, "all_gather", -1)]
    inner = layer + forward if stage == 0 else forward + layer
    return (inner * 2 + backward * 2 + layer + [(dp, "reduce_scatter", -1), (world, "all_reduce", -1)]) * steps


def played(stops: dict[int, int], blind: dict[int, int], ahead: int) -> list[dict[str, Any]]:
    """The dumps of a job in which some ranks stop after so many calls; hosts run ahead of their devices by so many calls.

    A rank that is ``blind`` no longer learns that its last so many calls completed: its device failed.
    """
    calls = [program(rank) for rank in range(RANKS)]
    host, device = [0] * RANKS, [0] * RANKS
    limit = [stops.get(rank, len(calls[rank])) for rank in range(RANKS)]
    number: list[list[int]] = []
    for rank in range(RANKS):
        seen: dict[tuple[str, bool], int] = defaultdict(int)
        number.append([])
        for group, _, peer in calls[rank]:
            seen[group, peer >= 0] += 1
            number[rank].append(seen[group, peer >= 0])
    moved = True
    while moved:
        moved = False
        for rank in range(RANKS):
            while host[rank] < min(limit[rank], device[rank] + ahead):
                host[rank] += 1
                moved = True
        for rank in range(RANKS):
            while device[rank] < host[rank]:
                group, _, peer = calls[rank][device[rank]]
                key = (group, number[rank][device[rank]], peer >= 0)
                members = [rank, peer] if peer >= 0 else groups_of(rank)[group]

                def there(other: int, key: Any = key) -> bool:
                    made = [
                        i for i in range(host[other])
                        if (calls[other][i][0], number[other][i], calls[other][i][2] >= 0) == key
                    ]  # fmt: skip
                    return bool(made) and device[other] >= made[0]

                if not all(there(other) for other in members if other != rank):
                    break
                device[rank] += 1
                moved = True
    dumps = []
    for rank in range(RANKS):
        entries = [
            {
                "record_id": i,
                "pg_id": list(groups_of(rank)).index(group),
                "process_group": [group, "pg"],
                "collective_seq_id": number[rank][i] if peer < 0 else 0,
                "p2p_seq_id": number[rank][i] if peer >= 0 else 0,
                "profiling_name": f"nccl:{verb}{_hop(rank, group, verb, peer)}",
                "time_created_ns": 1_700_000_000_000_000_000 + 1_000_000 * i + rank,
                "input_sizes": [[64, 64]],
                "state": "completed" if i < device[rank] - blind.get(rank, 0) else "scheduled",
                "retired": i < device[rank] - blind.get(rank, 0),
                "is_p2p": peer >= 0,
            }
            for i, (group, verb, peer) in enumerate(calls[rank][: host[rank]])
        ]
        status = {}
        for k, name in enumerate(groups_of(rank)):
            mine = [e for e in entries if e["process_group"][0] == name]
            done = [e for e in mine if e["retired"]]
            last = [max((max(e["collective_seq_id"], e["p2p_seq_id"]) for e in some), default=-1) for some in (mine, done)]
            status[str(k)] = {"last_enqueued_collective": last[0], "last_completed_collective": last[1]}
        config = {name: {"name": name, "desc": "pg", "ranks": str(ranks)} for name, ranks in groups_of(rank).items()}
        dumps.append({"version": "2.9", "nccl_version": "2.27", "pg_config": config, "pg_status": status, "entries": entries})
    return dumps


def _hop(rank: int, group: str, verb: str, peer: int) -> str:
    if peer < 0:
        return ""
    inside = groups_of(rank)[group]
    return f" {inside.index(rank)}{'->' if verb == 'send' else '<-'}{inside.index(peer)}"


def analysed(folder: Path, dumps: list[dict[str, Any]], *, active: bool = False, without: tuple[int, ...] = ()) -> Analysis:
    folder.mkdir(exist_ok=True)
    for rank, dump in enumerate(dumps):
        if rank in without:
            continue
        kept = {**dump, "entries": [e for e in dump["entries"] if not (active and e["retired"])]}
        (folder / f"_dump_{rank}").write_bytes(pickle.dumps(kept, protocol=2))
    return analyze_trace(read([folder]))


LENGTH = len(program(0))
positions = st.integers(4, LENGTH - 4)


ranks = st.integers(0, RANKS - 1)


@given(ranks, positions, st.integers(6, 12), st.booleans())
def test_exactly_the_rank_whose_host_stopped(tmp_path_factory: Any, who: int, at: int, ahead: int, active: bool) -> None:
    finding = analysed(tmp_path_factory.mktemp("hang"), played({who: at}, {}, ahead), active=active).findings[0]
    assert (finding.mode, finding.ranks) == ("hang", (who,))


@given(ranks, positions, st.integers(6, 12), st.booleans())
def test_exactly_the_rank_whose_device_failed(tmp_path_factory: Any, who: int, at: int, ahead: int, active: bool) -> None:
    finding = analysed(tmp_path_factory.mktemp("hang"), played({who: at}, {who: 3}, ahead), active=active).findings[0]
    assert (finding.mode, finding.ranks) == ("hang", (who,))
    assert "device stopped" in finding.because


@given(st.sets(ranks, min_size=2, max_size=2), positions, st.integers(6, 12), st.booleans())
def test_of_two_that_stopped_none_is_innocent(tmp_path_factory: Any, who: set[int], at: int, ahead: int, active: bool) -> None:
    """A second one may have an excuse that cannot be told from a good one; an innocent is never named."""
    dumps = played(dict.fromkeys(who, at), {}, ahead)
    finding = analysed(tmp_path_factory.mktemp("hang"), dumps, active=active).findings[0]
    assert set(finding.ranks) <= who


def test_two_of_different_replicas(tmp_path: Path) -> None:
    assert analysed(tmp_path, played({1: 12, 10: 12}, {}, 9), active=True).findings[0].ranks == (1, 10)


def test_one_that_stopped_while_it_waited(tmp_path: Path) -> None:
    """Rank 0 keeps the whole job waiting in its second all-reduce; rank 7 waits with the others, but made fewer calls since."""
    dumps = played({0: 12}, {}, 12)
    world = next(i for i, call in enumerate(program(7)) if call[0] == "0")
    dumps[7]["entries"] = dumps[7]["entries"][: world + 1]
    assert 7 in analysed(tmp_path, dumps).findings[0].ranks


def test_a_rank_that_left_no_dump(tmp_path: Path) -> None:
    found = analysed(tmp_path, played({5: 9}, {}, 8), without=(5,))
    assert found.findings[0].ranks == (5,)
    assert "it left no dump" in found.findings[0].because
    assert "no dump of rank 5" in found.graph.partial


def test_a_job_that_finished_has_no_finding(tmp_path: Path) -> None:
    assert analysed(tmp_path, played({}, {}, 8)).findings == []


def test_dumps_of_some_ranks_beside_the_traces_of_all_are_no_hang(tmp_path: Path) -> None:
    dumps = json.loads(json.dumps(played({}, {}, 8)).replace("nccl:", "gloo:"))
    traced = analysed(tmp_path, dumps, without=(2, 3)).graph.trace
    everybody = Table(Member, {"rank": list(range(RANKS))})
    assert Calls(traced).stopped == {2, 3}, "of two who left nothing it cannot be known"
    assert Calls(replace(traced, members=everybody)).stopped == set()


def test_a_rank_that_makes_another_call(tmp_path: Path) -> None:
    dumps = played({}, {}, LENGTH)
    for rank, dump in enumerate(dumps):
        for entry in dump["entries"][10:]:
            entry["state"], entry["retired"] = "scheduled", False
        dump["pg_status"] = {}
        if rank == 4:
            wrong = next(e for e in dump["entries"][10:] if e["process_group"][0] == "0")
            wrong["profiling_name"] = "nccl:broadcast"
    finding = analysed(tmp_path, dumps).findings[0]
    assert finding.ranks == (4,)
    assert "another call" in finding.because


def test_json_dumps_alone(tmp_path: Path) -> None:
    for rank, dump in enumerate(played({3: 9}, {}, 8)):
        (tmp_path / f"flight_rank{rank}.json").write_text(json.dumps(dump))
    found = analyze_trace(read([tmp_path]))
    assert found.findings[0].ranks == (3,)
    assert "hang" in found.verdict.lower()


def test_one_damaged_dump_is_left_out(tmp_path: Path) -> None:
    analysed(tmp_path, played({3: 9}, {}, 8))
    (tmp_path / "_dump_0").write_bytes(b"\x80\x02}q\x00(X\x07\x00\x00\x00ent")
    found = analyze_trace(read([tmp_path]))
    assert found.findings[0].ranks == (3,)
    assert any("left out" in line for line in found.graph.partial)


def test_dumps_that_do_not_say_their_rank(tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(pickle.dumps(played({3: 9}, {}, 8)[0], protocol=2))
    with pytest.raises(InputRefused, match="do not say their rank"):
        read([tmp_path])


@pytest.mark.parametrize("incident", ["gpu_error_2nd", "lock_gil_1st"])
def test_real_incidents(shared: Path, incident: str) -> None:
    finding = analyze_trace(read([shared / "flight-recorder" / incident])).findings[0]
    assert (finding.mode, finding.ranks) == ("hang", (9, 14))
