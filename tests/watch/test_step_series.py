"""Events become one row of series for every step that all have done, in whatever pieces they come."""

from __future__ import annotations

import numpy as np

from taut.lab.live_jobs import LiveJob
from taut.watch.event_rows import RECEIVED, Room
from taut.watch.seen import BACKWARD, LOAD, Feed, Seen, joined
from taut.watch.step_series import BUSY, FIRST_LOOK, LATE, LOADER, STEP, StepSeries
from taut.watch.window import Hello, Names, Place, Window
from taut.watch.wire import GATE, STAGE
from taut.watch.wire import STEP as ENDED


def series(job: LiveJob) -> StepSeries:
    return StepSeries(list(range(job.ranks)), [f"node{rank // job.a_host}" for rank in range(job.ranks)])


def of_kind(made: StepSeries, rows: np.ndarray, kind: int) -> np.ndarray:
    return rows[:, made.kind == kind]


def test_lateness_work_and_loader_of_a_rank_and_the_step_of_the_job() -> None:
    job = LiveJob(8, 1, jitter=0.0, unequal=0.0, hiccups=0.0, fault="slow", since=0, strength=0.25)
    block = job.block(20)
    made = series(job)
    told = made.add(block.seen())
    assert told is not None
    late, busy = (np.median(of_kind(made, told.rows, kind), axis=0) for kind in (LATE, BUSY))
    assert late.argmax() == busy.argmax() == job.rank
    assert abs(late[job.rank] - 0.25 * job.step_s) < 0.02
    assert abs(np.median(of_kind(made, told.rows, LOADER))) < 0.001
    assert np.allclose(of_kind(made, told.rows, STEP)[5:, 0], told.step_s, rtol=0.1)


def test_pieces_give_the_same_rows_as_the_whole() -> None:
    whole, parts = LiveJob(4, 2, sees="hooks", gates=3), LiveJob(4, 2, sees="hooks", gates=3)
    blocks = [parts.block(n) for n in (FIRST_LOOK + 2, 1, 3, 6)]
    seen = [block.seen() for block in blocks]
    at_once = series(whole)
    gates, stages, steps = (joined([getattr(one, part) for one in seen]) for part in ("gates", "stages", "steps"))
    together = Seen(gates, stages, steps, seen[0].classes, seen[0].seats)
    expected = at_once.add(together)
    by_parts = series(parts)
    rows = [told.rows for one in seen if (told := by_parts.add(one)) is not None]
    assert expected is not None
    assert np.allclose(np.concatenate(rows), expected.rows, equal_nan=True)


def test_a_rank_that_is_silent_for_long_is_no_longer_waited_for() -> None:
    job = LiveJob(4, 3)
    made, done = series(job), list[int]()
    for _ in range(12):
        seen = job.block(10).seen()
        without = (part.take(part.rank != 2) for part in (seen.gates, seen.stages, seen.steps))
        made.add(seen if job.step <= 20 else Seen(*without, seen.classes, seen.seats))
        done.append(made.done)
    assert done[1] == done[4] == 19
    assert done[-1] == 119


def test_a_window_of_the_collector_feeds_it() -> None:
    window = Window("job", Room(1 << 24))
    members = [
        window.join(Hello(rank, 2, f"node{rank}", 0, "job", rank, f"p{rank}", "calls", f"boot{rank}"), 1)[0]
        for rank in range(2)
    ]
    for member in members:
        window.name(member, Names(0, [Place(LOAD), Place(BACKWARD)]))
    feed, made = Feed(window), StepSeries([0, 1], ["node0", "node1"])
    for step in range(12):
        for member in members:
            begin, came, end = (1_000_000 + step * 1000 + at for at in (0, 500 + 200 * member.rank, 800))
            rows = [
                (STAGE, 0, 0, step, begin, begin + 100, 0),
                (GATE, 0, 1, step, came, end, 0),
                (ENDED, 0, 0, step, begin, begin + 1000, 0),
            ]
            window.add(member, np.array(rows, RECEIVED).tobytes(), 2)
    window.fold(2)
    told = made.add(feed.new(2))
    assert told is not None
    assert len(told.rows) == 12
    assert feed.lost == 0
    assert np.allclose(of_kind(made, told.rows, BUSY)[:, 1] - of_kind(made, told.rows, BUSY)[:, 0], 200e-9)
    assert len(feed.new(2).gates) == 0
