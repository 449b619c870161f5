"""The window of a job: its rows are what ranks sent, places of ranks that meet are one class, losses are counted."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collecting import HELLO, event
from taut.watch.event_rows import Room
from taut.watch.observed import RECEIVE, SEND
from taut.watch.window import HOP, MOST_NS, Clock, Hello, Member, Names, Place, PlaceClass, Window
from taut.watch.wire import EVENT, GATE, STAGE, STEP, WAIT, WireError, runs

BOTH = tuple(runs([0, 1]))
PLACES = [Place("allreduce", "0", -1, BOTH), Place("load"), Place("barrier", "0", -1, BOTH)]
TIMES = st.one_of(st.integers(-5, 10**12), st.integers(-(1 << 63), (1 << 63) - 1))
EVENTS = st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 1 << 31), TIMES, TIMES)


def window() -> Window:
    return Window("job", Room(1 << 24))


def joined(found: Window, rank: int, places: list[Place] | None = None, **about: object) -> Member:
    hello = {**HELLO, "rank": rank, "process": f"p{rank}", **about}
    member, _ = found.join(msgspec.convert(hello, Hello), 0)
    found.name(member, Names(0, PLACES if places is None else places))
    return member


def naive(body: bytes, rank: int) -> tuple[list[tuple[int, ...]], int, int]:
    """(kind, rank, class, number, begin, end) of events one by one, and how many are strange or of no name."""
    out, strange, unnamed = [], 0, 0
    for kind, _, place, number, begin, end, _ in EVENT.iter_unpack(body):
        if kind > WAIT or not 0 < begin < MOST_NS or not 0 <= end < MOST_NS or (end and not 0 <= end - begin < 1 << 52):
            strange += 1
        elif kind != STEP and place >= len(PLACES):
            unnamed += 1
        else:
            out.append((kind, rank, -1 if kind == STEP else place, number, begin, end))
    return out, strange, unnamed


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(EVENTS, max_size=8)), max_size=8))
def test_rows_are_those_of_a_naive_decoder(sent: list[tuple[int, list[tuple[int, int, int, int, int]]]]) -> None:
    found = window()
    members = [joined(found, 0), joined(found, 1)]
    expected, strange, unnamed = list[tuple[int, ...]](), [0, 0], [0, 0]
    for rank, events in sent:
        body = b"".join(EVENT.pack(kind, 0, place, number, begin, end, 0) for kind, place, number, begin, end in events)
        found.add(members[rank], body, 0)
        rows, odd, nameless = naive(body, rank)
        expected += rows
        strange[rank] += odd
        unnamed[rank] += nameless
    found.fold(0)
    names = ["rank", "klass", "number", "begin_ns", "end_ns"]
    for kind, table in ((GATE, found.gates), (STAGE, found.stages), (STEP, found.steps), (WAIT, found.waits)):
        assert table.since(0)[names].tolist() == [row[1:] for row in expected if row[0] == kind]
    assert [(one.strange, one.unnamed) for one in members] == list(zip(strange, unnamed, strict=True))
    assert sum(one.received for one in members) == len(expected) + sum(strange) + sum(unnamed)


def test_places_of_ranks_that_meet_are_one_class() -> None:
    found = window()
    joined(found, 0, [Place("load"), Place("allreduce", "0", -1, BOTH), Place("send", "0", 1, BOTH)])
    joined(found, 1, [Place("recv", "0", 0, BOTH), Place("allreduce", "0", -1, BOTH), Place("allreduce", "1", -1, BOTH)])
    assert found.classes == [
        PlaceClass("load", "", ()),
        PlaceClass("allreduce", "0", BOTH),
        PlaceClass(HOP, "0", (), 0, 1),
        PlaceClass("allreduce", "1", BOTH),
    ]
    assert [list(one.ranks) for one in found.classes] == [[], [0, 1], [0, 1], [0, 1]]


def test_rows_of_one_gate() -> None:
    found = window()
    members = [joined(found, rank) for rank in (0, 1)]
    found.add(members[0], event(number=5) + event(number=6) + event(place=2, number=5), 0)
    found.add(members[1], event(number=6) + event(number=5), 0)
    found.fold(0)
    gates = found.joined(found.gates.since(0))
    assert gates.gate.tolist() == [0, 1, 2, 1, 0]
    assert (gates.klass.tolist(), gates.number.tolist(), gates.members.tolist()) == ([0, 0, 2], [5, 6, 5], [2, 2, 1])


def test_a_hop_is_a_gate_of_two() -> None:
    found = window()
    sender, receiver = joined(found, 0, [Place("send", "0", 1)]), joined(found, 1, [Place("recv", "0", 0)])
    found.add(sender, event(flags=SEND), 0)
    found.add(receiver, event(flags=RECEIVE), 0)
    found.fold(0)
    assert found.joined(found.gates.since(0)).members.tolist() == [2]


def test_ranks_of_one_boot_share_a_clock() -> None:
    found = window()
    one, other, third = joined(found, 0), joined(found, 1), joined(found, 2, boot="b2")
    found.tell_time(one, Clock(5_000, 0), 9_000, None)
    found.tell_time(third, Clock(1_000, 0), 9_000, None)
    for member in (one, other, third):
        found.add(member, event(begin=6_000) + event(begin=6_000, end=7_000), 0)
    found.fold(0)
    begin, end = found.aligned(found.gates.since(0), 9_000)
    assert begin.tolist() == [10_000] * 4 + [14_000] * 2
    assert end.tolist() == [0, 11_000, 0, 11_000, 0, 15_000]


def test_totals_never_fall_when_a_rank_is_started_anew() -> None:
    found = window()
    member = joined(found, 0)
    member.count_missing(Clock(monotonic_ns=1, time_ns=1, dropped=7, faults=1))
    joined(found, 0, process="another").count_missing(Clock(monotonic_ns=2, time_ns=2, dropped=2))
    totals = found.totals()
    assert (totals["dropped"], totals["faults"], member.dropped) == (9, 1, 2)


def test_a_restart_forgets_names_and_joins_nothing_of_before() -> None:
    found = window()
    old = joined(found, 0)
    found.add(old, event(number=0), 0)
    again, what = found.join(msgspec.convert({**HELLO, "process": "p0"}, Hello), 0)
    assert (again is old, what) == (True, "again")
    hello = msgspec.convert({**HELLO, "process": "another"}, Hello)
    member, what = found.join(hello, 0)
    assert (member is old, what, member.attempt) == (True, "restarted", 1)
    found.add(member, event(number=0), 0)
    found.fold(0)
    assert member.unnamed == 1
    found.name(member, Names(0, PLACES))
    found.add(member, event(number=0), 0)
    found.fold(0)
    rows = found.gates.since(0)
    assert rows["attempt"].tolist() == [0, 1]
    assert found.joined(rows).gates == 2
    with pytest.raises(WireError, match="has replaced"):
        found.join(msgspec.convert({**HELLO, "process": "p0"}, Hello), 0)


def test_what_was_sent_and_never_came_is_missing() -> None:
    found = window()
    member = joined(found, 0)
    found.tell_time(member, Clock(1, 0, sent=40, dropped=3), 2, None)  # before this collector began
    found.add(member, event() * 5, 0)
    found.tell_time(member, Clock(1, 0, sent=45), 2, None)
    assert member.missing == 0
    found.add(member, event() * 5, 0)
    found.tell_time(member, Clock(1, 0, sent=57, dropped=9), 2, None)
    assert (member.missing, member.dropped, member.received) == (7, 9, 10)
    assert found.totals() == {"received": 10, "dropped": 9, "missing": 7, "unnamed": 0, "strange": 0, "over": 0, "faults": 0}


def test_many_ranks_and_places() -> None:
    found = window()
    members = [joined(found, rank, [Place(f"verb{k}", str(rank)) for k in range(40)]) for rank in range(50)]
    for member in members:
        found.add(member, event(place=39), 0)
    found.fold(0)
    rows = found.gates.since(0)
    assert rows["rank"].tolist() == list(range(50))
    assert [found.classes[k].group for k in rows["klass"]] == [str(rank) for rank in range(50)]


@pytest.mark.parametrize("names", [Names(-1, PLACES), Names(65_535, PLACES), Names(0, [Place("x", "", -1, (0, 1))])])
def test_names_that_cannot_be(names: Names) -> None:
    found = window()
    with pytest.raises(WireError):
        found.name(joined(found, 0), names)


def test_events_that_are_cut_off() -> None:
    found = window()
    with pytest.raises(WireError, match="cut off"):
        found.add(joined(found, 0), event()[:-1], 0)


def test_memory_is_bounded() -> None:
    found = Window("job", Room(1 << 20))
    member = joined(found, 0)
    for number in range(100):
        found.add(member, event(number=number) * 1000, 0)
    found.fold(0)
    assert found.room.used_bytes <= 1 << 20
    assert found.gates.end == 100_000
    rows = found.gates.since(0)
    assert len(rows) * rows.itemsize <= 1 << 20
    assert np.unique(rows["number"]).max() == 99


def test_names_take_a_quarter_of_the_memory_at_most() -> None:
    found = Window("job", Room(1 << 20))
    member = joined(found, 0)
    for first in range(0, 4000, 100):
        found.name(member, Names(first, [Place(f"verb{first + k}", "g" * 200) for k in range(100)]))
    assert 100 < len(found.classes) < 1000
    assert found.room.held_bytes <= 1 << 18
    found.add(member, event(place=3999) + event(place=0), 0)
    found.fold(0)
    assert (member.unnamed, len(found.gates)) == (1, 1)
    found.close()
    assert (found.room.held_bytes, found.room.used_bytes) == (0, 0)


def test_a_job_that_goes_on_with_fewer_ranks_forgets_the_others_once_they_are_silent() -> None:
    found = Window("job", Room(1 << 20))
    for rank in range(4):
        joined(found, rank, world=4)
    for rank in range(2):
        joined(found, rank, world=2, process=f"new{rank}").heard_ns = 20 * 10**9
    assert sorted(found.ranks) == [0, 1, 2, 3]
    assert [one.rank for one in found.miss(21 * 10**9)] == [2, 3]
    assert (sorted(found.ranks), found.world) == ([0, 1], 2)
    assert found.miss(22 * 10**9) == []
