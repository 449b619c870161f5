"""Flight-recorder dumps that no recorder wrote."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.core.errors import InputRefused, NotATrace
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.read.flight import reader as flight
from taut.read.trace import read
from taut.run import analyze


def entry(**more: Any) -> dict[str, Any]:
    return {
        "time_created_ns": 10**18,
        "collective_seq_id": 1,
        "profiling_name": "nccl:all_reduce",
        "process_group": ["0"],
        **more,
    }


def dump(**more: Any) -> dict[str, Any]:
    return {"entries": [entry()], "rank": 0, **more}


def test_a_pickle_reads_as_its_json_does() -> None:
    value = dump(pg_config={"0": {"name": "0", "ranks": "[0, 1]"}}, pg_status={"0": {"last_enqueued_collective": 4}})
    binary, text = (flight.load(data, "d") for data in (pickle.dumps(value, 2), json.dumps(value).encode()))
    assert binary.calls.to_arrow().equals(text.calls.to_arrow())
    assert (binary.names, binary.groups, binary.group_ranks) == (text.names, text.groups, text.group_ranks)


@pytest.mark.parametrize("name", [["a"] * 3, {"a": 1}, [["b"]]])
def test_a_name_that_is_no_text_is_none(name: Any) -> None:
    assert flight.load(pickle.dumps(dump(entries=[entry(profiling_name=name, process_group=[name])]), 2), "d").names == [""]


def test_long_names_are_cut() -> None:
    found = flight.load(json.dumps(dump(entries=[entry(profiling_name="a" * 10**6)])).encode(), "d")
    assert len(found.names[0]) == 200


def test_groups_that_share_a_text_of_ranks_share_the_list() -> None:
    ranks = str(list(range(1000)))
    found = flight.load(pickle.dumps(dump(pg_config={str(i): {"name": str(i), "ranks": ranks} for i in range(50)}), 2), "d")
    assert len({id(some) for some in found.group_ranks.values()}) == 1


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {"entries": 3}, {"entries": [1]}])
def test_other_pickles_are_refused(value: Any) -> None:
    with pytest.raises(InputRefused):
        flight.load(pickle.dumps(value, 2), "d")


def test_another_pickle_beside_dumps_is_left_out(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"dump_{rank}.json").write_text(json.dumps(dump(rank=rank)))
    (tmp_path / "other.pkl").write_bytes(pickle.dumps({"a": 1}, 4))
    found = read([tmp_path])
    assert found.members.rank.tolist() == [0, 1]
    assert any("other.pkl left out" in line for line in found.partial)
    with pytest.raises(NotATrace):
        read([tmp_path / "other.pkl"])


@pytest.mark.parametrize("rank", [2**31, 2**62])
def test_a_rank_that_no_job_has_is_refused(rank: int) -> None:
    with pytest.raises(InputRefused, match="which no job has"):
        flight.load(json.dumps(dump(rank=rank)).encode(), "d")


@pytest.mark.parametrize("entries", [[], [entry(time_created_ns=0)], [entry(time_created_ns=-5)]])
def test_dumps_without_a_call_with_a_time_are_not_taken_for_control_logs(tmp_path: Path, entries: list[Any]) -> None:
    for rank in range(2):
        (tmp_path / f"dump_{rank}.pickle").write_bytes(pickle.dumps(dump(rank=rank, entries=entries), 2))
    with pytest.raises(NotATrace, match="no call with a time in these flight-recorder dumps"):
        analyze([tmp_path])


def test_a_high_rank_alone_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(dump(rank=2**31 - 1)))
    assert read([tmp_path]).members.rank.tolist() == [2**31 - 1]


def test_of_very_many_ranks_without_a_dump_the_first_are_listed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(dump(pg_config={"0": {"name": "0", "ranks": list(range(5000))}})))
    lines = [line for line in read([tmp_path]).partial if line.startswith("no dump of")]
    assert len(lines) == 1001
    assert lines[-1] == "no dump of 3,999 more ranks"


def test_transfers_without_their_call_are_named_in_the_order_they_were_issued_and_copies_never() -> None:
    """The host issues four collectives of two groups before the device lets the first begin; its copies are no collectives."""
    sizes = [300, 100, 100, 200]
    entries = [
        {
            "record_id": i, "process_group": [str(i % 2), ""], "collective_seq_id": 10 * step + i, "time_created_ns": at + i,
            "profiling_name": "gloo:all_reduce", "input_sizes": [[size]], "state": "completed",
        }
        for step, at in enumerate((1_000, 2_000, 3_000)) for i, size in enumerate(sizes)
    ]  # fmt: skip
    known = flight.load(json.dumps(dump(entries=entries)).encode(), "d")
    starts = [at + 500 + 10 * i for at in (2_000, 3_000) for i in range(4)]  # the first step was not traced
    ops = {
        "rank": np.zeros(9), "lane": [*[0] * 8, 1], "step": np.zeros(9), "kind": np.full(9, Kind.COMMUNICATE),
        "name": [*[0] * 8, 1], "start_ns": [*starts, 2_505], "end_ns": [*(at + 5 for at in starts), 2_506],
        "verb": [*[Verb.ALL_REDUCE, Verb.REDUCE_SCATTER] * 4, Verb.NONE], "size": [*[4 * n for n in sizes] * 2, 400],
    }  # fmt: skip
    members = Table(Member, {"rank": [0]})
    trace = Trace(ops=Table(Op, ops), names=["gloo", "copy h2d"], lanes=["thread 1", "stream 7"], groups=[], members=members)
    named = flight.apply(trace, [known])
    assert named.ops.seq.tolist() == [10, 11, 12, 13, 20, 21, 22, 23, -1]
    assert [named.groups[g] for g in named.ops.group[:4].tolist()] == ["0", "1", "0", "1"]


@pytest.mark.parametrize(("status", "done"), [((7, 7), 1), ((3, 3), 1), ((9, 9), 0), ((3, 2), 0), ((3, 9), 0)])
def test_the_status_of_a_group_counts_if_it_is_that_of_the_newest_entry(status: tuple[int, int], done: int) -> None:
    """As its own kind numbers it, or as all calls of the group are numbered; what counts something else shows nothing."""
    told = {"0": {"last_enqueued_collective": status[0], "last_completed_collective": status[1]}}
    one = entry(collective_seq_id=3, op_id=7, pg_id=0, state="scheduled")
    assert flight.load(json.dumps(dump(entries=[one], pg_status=told)).encode(), "d").calls.done[0] == done


def test_a_call_that_was_retired_completed_though_the_other_thread_of_gloo_set_the_status_back() -> None:
    told = {"0": {"last_enqueued_collective": 3, "last_completed_collective": 2}}
    calls = [entry(collective_seq_id=3, op_id=3, pg_id=0, state="scheduled", retired=retired) for retired in (True, False)]
    found = [flight.load(json.dumps(dump(entries=[one], pg_status=told)).encode(), "d").calls.done[0] for one in calls]
    assert found == [1, 0]


def test_of_two_dumps_the_later_one_counts_and_says_whether_its_rank_moved() -> None:
    one, two = entry(state="scheduled"), entry(state="scheduled", time_created_ns=10**18 + 5, collective_seq_id=2)
    several = [(0, [one, two]), (0, [one]), (1, [one])]
    loaded = [flight.load(json.dumps(dump(rank=r, entries=e)).encode(), "d") for r, e in several]
    again = [*loaded, flight.load(json.dumps(dump(rank=1, entries=[one])).encode(), "d")]
    found = flight.alone(again, [], name="", source="")
    assert found.moved == {0: True, 1: False}
    assert len(found.calls) == 3


def test_groups_of_one_name_and_different_members_are_told_apart() -> None:
    loaded = [
        flight.load(json.dumps(dump(rank=r, pg_config={"0": {"name": "0", "ranks": ranks}})).encode(), "d")
        for r, ranks in enumerate(["[0, 1]", "[0, 1]", "[2, 3]", "[2, 3]"])
    ]
    found = flight.alone(loaded, [], name="", source="")
    assert found.group_ranks == {"0 of 0, 1": [0, 1], "0 of 2, 3": [2, 3]}
