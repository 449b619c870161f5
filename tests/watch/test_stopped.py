"""Jobs that stand still: who stopped, who only waits, and what cannot be told."""

from __future__ import annotations

import msgspec
import numpy as np

from taut.watch.live_findings import Live
from taut.watch.seen import Events, Meeting, Seat, Seen, no_events
from taut.watch.stopped import LastCalls, stopped
from taut.watch.wire import COUNTED

S = 1_000_000_000
DP = Meeting("allreduce", "dp", (0, 1, 2, 3))


def events(*rows: tuple[int, int, int, float, float]) -> Events:
    """Rank, class, number, begin and end in seconds."""
    table = np.array(rows, np.float64)
    rank, klass, number = table[:, :3].T.astype(np.int64)
    begin, end = (table[:, 3:] * S).T.astype(np.int64)
    return Events(rank, klass, number, np.zeros(len(table), np.int64), begin, end)


def seen(*rows: tuple[int, int, int, float, float], classes: tuple[Meeting, ...] = (DP,)) -> Seen:
    steps = [(rank, -1, step, float(step), step + 1.0) for rank in range(4) for step in range(5)]
    seats = {rank: Seat(f"node{rank}", sees="hooks") for rank in range(4)}
    return Seen(events(*rows) if rows else no_events(), no_events(), events(*steps), list(classes), seats)


def last(what: Seen) -> LastCalls:
    out = LastCalls()
    out.add(what, 5 * S)
    return out


def test_the_rank_that_the_others_wait_for_has_stopped() -> None:
    job = seen(*((rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)), (2, 0, 6, 4.0, 0.0))
    found = stopped(last(job), job, {0: True}, 1.0, 40 * S)
    assert found is not None
    assert (found.ranks, found.waiting) == ((2,), (0, 1, 3))


def test_a_pause_that_is_not_long_enough_is_none() -> None:
    job = seen(*((rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)), (2, 0, 6, 4.0, 0.0))
    assert stopped(last(job), job, {0: True}, 1.0, 30 * S) is None
    assert stopped(last(job), job, {0: True}, 5.0, 60 * S) is None


def test_whoever_is_missing_but_waits_elsewhere_has_not_stopped() -> None:
    tp = Meeting("allgather", "tp", (2, 3))
    rows = [
        (0, 0, 7, 5.0, 0.0),
        (1, 0, 7, 5.0, 0.0),
        (2, 0, 6, 4.0, 0.0),
        (3, 0, 6, 4.0, 0.0),
        (2, 1, 9, 4.5, 0.0),
        (3, 1, 8, 3.0, 0.0),
    ]
    job = seen(*rows, classes=(DP, tp))
    found = stopped(last(job), job, {0: True, 1: True}, 1.0, 40 * S)
    assert found is not None
    assert found.ranks == (3,)


def test_where_calls_are_seen_only_when_they_end_nobody_is_named_and_it_takes_longer() -> None:
    job = seen()
    assert stopped(last(job), job, {}, 1.0, 60 * S) is None
    found = stopped(last(job), job, {}, 1.0, 400 * S)
    assert found is not None
    assert found.ranks == ()


def test_a_job_that_said_goodbye_has_not_stopped() -> None:
    job = seen()
    over = Seen(job.gates, job.stages, job.steps, job.classes, job.seats, frozenset(range(4)))
    assert stopped(last(over), over, {}, 1.0, 4000 * S) is None


def test_a_hang_is_told_once_and_closes_when_the_job_goes_on() -> None:
    rows = [(rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)]
    rest = seen()
    empty = Seen(no_events(), no_events(), no_events(), rest.classes, rest.seats)
    more = Seen(events((2, 0, 7, 60.0, 0.0)), no_events(), no_events(), rest.classes, rest.seats)
    feed = iter([seen(*rows, (2, 0, 6, 4.0, 0.0)), empty, empty, more])
    live = Live(lambda now: next(feed))
    live.look(6 * S)
    assert live.series is not None
    live.series.meets[0] = True
    told = [live.look(at * S) for at in (45, 50, 61)]
    assert [[(one.mode, one.ranks, one.state) for one in some] for some in told] == [
        [("hang", [2], "open")], [], [("hang", [2], "closed")],
    ]  # fmt: skip


def test_of_a_job_that_nobody_hears_any_more_what_was_open_closes_and_no_hang_is_told() -> None:
    rows = [(rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)]
    rest = seen()
    empty = Seen(no_events(), no_events(), no_events(), rest.classes, rest.seats)
    killed = msgspec.structs.replace(empty, lost=frozenset(range(4)))
    feed = iter([seen(*rows, (2, 0, 6, 4.0, 0.0)), empty, killed, killed])
    live = Live(lambda now: next(feed))
    live.look(6 * S)
    assert live.series is not None
    live.series.meets[0] = True
    told = [live.look(at * S) for at in (45, 61, 4000)]
    assert [[(one.mode, one.state) for one in some] for some in told] == [[("hang", "open")], [("hang", "closed")], []]


def with_waits(job: Seen, *rows: tuple[int, int, int, float, float]) -> Seen:
    return msgspec.structs.replace(job, waits=events(*rows))


def test_calls_that_last_name_the_rank_that_is_not_there_also_where_calls_are_seen_only_when_they_end() -> None:
    done = [(rank, 0, 6, 4.0, 4.5) for rank in range(4)]
    job = with_waits(seen(*done), *((rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)))
    found = stopped(last(job), job, {0: True}, 1.0, 40 * S)
    assert found is not None
    assert (found.ranks, found.waiting, found.at) == ((2,), (0, 1, 3), "allreduce of group dp")


def test_a_call_that_ended_waits_for_nobody() -> None:
    hops = tuple(Meeting("hop", "pp", source=one, sink=two) for one, two in ((0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)))
    received = [(rank, klass, 9, 4.0, 4.5) for klass, rank in ((0, 1), (1, 2), (2, 3))]
    job = with_waits(seen(*received, classes=hops), (2, 3, 5, 5.0, 0.0), (1, 4, 5, 5.0, 0.0), (0, 5, 5, 5.0, 0.0))
    found = stopped(last(job), job, {}, 1.0, 40 * S)
    assert found is not None
    assert (found.ranks, found.waiting) == ((3,), (0, 1, 2))


def test_calls_that_are_only_counted_name_who_made_fewer() -> None:
    counted = Meeting(COUNTED, "dp", (0, 1, 2, 3))
    counts = [(rank, 0, 57 - (rank == 1), 5.0, 0.0) for rank in range(4)]
    job = with_waits(seen(classes=(counted,)), *counts)
    found = stopped(last(job), job, {}, 1.0, 40 * S)
    assert found is not None
    assert (found.ranks, found.at) == ((1,), "a call of group dp")


def test_a_count_of_long_ago_says_nothing_of_ranks_that_went_on() -> None:
    counted = Meeting(COUNTED, "dp", (0, 1, 2, 3))
    job = with_waits(seen(classes=(counted,)), *((rank, 0, 57, 1.0, 0.0) for rank in (0, 1, 2)))
    assert stopped(last(job), job, {}, 1.0, 40 * S) is None


def test_one_old_event_alone_is_no_hang() -> None:
    rest = seen()
    job = Seen(events((0, 0, 0, 1.0, 2.0)), no_events(), no_events(), rest.classes, rest.seats)
    calls = LastCalls()
    calls.add(job, 4000 * S)
    assert stopped(calls, job, {0: True}, 1.0, 4000 * S) is None
    assert stopped(calls, job, {0: True}, 1.0, 9000 * S) is None


def test_events_that_are_old_when_they_come_say_nothing_of_now() -> None:
    job = seen(*((rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)), (2, 0, 6, 4.0, 0.0))
    calls = LastCalls()
    calls.add(job, 4000 * S)  # nobody listened for an hour
    assert stopped(calls, job, {0: True}, 1.0, 4000 * S) is None
    assert stopped(calls, job, {0: True}, 1.0, 4040 * S) is not None


def test_who_paused_before_may_pause_again() -> None:
    calls, waiting = LastCalls(), [(rank, 0, 7, 100.0, 0.0) for rank in (0, 1, 3)]
    calls.add(seen((2, 0, 5, 4.0, 0.0)), 5 * S)
    job = msgspec.structs.replace(seen(*waiting, (2, 0, 6, 60.0, 0.0)), steps=no_events())  # 55 s after its last step
    calls.add(job, 100 * S)
    assert stopped(calls, job, {0: True}, 1.0, 150 * S) is None
    assert stopped(calls, job, {0: True}, 1.0, 230 * S) is not None


def test_a_rank_that_was_started_anew_counts_anew() -> None:
    calls = LastCalls()
    calls.add(seen(*((rank, 0, 70, 4.0, 4.5) for rank in range(4))), 5 * S)
    job = seen(*((rank, 0, 2, 6.0, 0.0) for rank in (0, 1, 3)), (2, 0, 1, 5.5, 6.0))
    job = msgspec.structs.replace(job, restarted=frozenset(range(4)))
    calls.add(job, 6 * S)
    found = stopped(calls, job, {0: True}, 1.0, 40 * S)
    assert found is not None
    assert found.ranks == (2,)


def test_a_job_that_ended_without_goodbye_has_not_stopped() -> None:
    over = msgspec.structs.replace(seen(), lost=frozenset(range(4)))
    assert stopped(last(over), over, {}, 1.0, 4000 * S) is None


def test_who_said_goodbye_while_the_others_wait_for_it_has_stopped() -> None:
    rows = [(rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)]
    job = msgspec.structs.replace(seen(*rows, (2, 0, 6, 4.0, 0.0)), ended=frozenset({2}))
    found = stopped(last(job), job, {0: True}, 1.0, 60 * S)
    assert found is not None
    assert (found.ranks, found.waiting) == ((2,), (0, 1, 3))


def test_whoever_ends_later_than_the_others_has_not_stopped() -> None:
    job = msgspec.structs.replace(seen(*((rank, 0, 7, 5.0, 0.0) for rank in range(4))), ended=frozenset({1, 2, 3}))
    assert stopped(last(job), job, {0: True}, 1.0, 4000 * S) is None


def test_who_saves_a_checkpoint_while_the_others_wait_has_time_for_it() -> None:
    rows = [(rank, 0, 7, 5.0, 0.0) for rank in (0, 1, 3)]
    job = seen(*rows, (2, 0, 6, 4.0, 0.0), classes=(DP, Meeting("save"), Meeting(COUNTED, "dp")))
    job = with_waits(job, (2, 1, 5, 5.0, 0.0), (2, 2, 7, 9.0, 0.0), *((rank, 2, 8, 9.0, 0.0) for rank in (0, 1, 3)))
    assert stopped(last(job), job, {0: True}, 1.0, 200 * S) is None
    found = stopped(last(job), job, {0: True}, 1.0, 310 * S)
    assert found is not None
    assert found.ranks == (2,)
