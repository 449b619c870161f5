"""The collector over real sockets: it hears ranks, and whoever is none costs nothing."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from collecting import ALLREDUCE, HELLO, JOB_SECRET, Line, collecting, event, mutated
from taut.result.types import LiveFinding, WatchedJob
from taut.serve.listening import bound
from taut.watch.collect import CONNECT_BYTES, Limits
from taut.watch.event_ring import Ring
from taut.watch.kept import Kept
from taut.watch.live_state import job_state
from taut.watch.observed import Observer
from taut.watch.sender import Sender
from taut.watch.window import Window
from taut.watch.wire import CLOCK, EVENT, EVENTS, GATE, GREETING, HEAD, NAMES, STEP, encoded
from taut.watch.wire import HELLO as HELLO_KIND


def test_a_job_is_heard() -> None:
    with collecting() as running:
        for rank in (0, 1):
            line = running.line(rank=rank, process=f"p{rank}")
            line.name()
            line.clock()
            line.events(event(number=0), event(number=1), event(STEP, number=0, begin=5, end=9))
            line.clock(sent=3)
            line.bye()
            assert line.is_closed()
            line.close()
        window = running.window()
        running.until(lambda: len(window.gates) == 4)
        assert window.joined(window.gates.since(0)).members.tolist() == [2, 2]
        assert len(window.steps) == 2
        assert {name: count for name, count in window.totals().items() if count} == {"received": 6}
        assert window.living() == []
        assert "job: a job begins to be heard" in running.said


def test_the_sender_of_a_rank_is_heard() -> None:
    with collecting() as running:
        observer = Observer(Ring(64))
        about = {**HELLO, "world": 4096}
        sender = Sender(observer, ("127.0.0.1", running.port), JOB_SECRET, lambda: about)  # type: ignore[return-value, arg-type]
        for number in range(40):
            place = observer.place(f"verb{number % 7}", "0", -1, list(range(4096)))
            observer.ring.add((GATE, 0, place, number, 1000 + number, 0, 0))
        sender._once()
        window = running.window()
        running.until(lambda: len(window.gates) == 40)
        assert window.gates.since(0)["number"].tolist() == list(range(40))
        assert [(one.verb, len(one.ranks)) for one in window.classes] == [(f"verb{k}", 4096) for k in range(7)]
        sender._once()
        assert (sender.sent_events, window.totals()["missing"], observer.ring.dropped) == (40, 0, 0)
        assert sender._line is not None
        sender._line.close()


# -- strangers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + b" " * 40,
        b"\x00" * 36,
        b"\xff" * 4,
        (4097).to_bytes(4, "little"),
        (10).to_bytes(4, "little") + b"\x00" * 42,
    ],
)
def test_garbage_is_refused(data: bytes) -> None:
    with collecting() as running:
        line = Line(running.port)
        line.line.sendall(data)
        assert line.is_closed()
        assert running.collector.windows == {}
        assert running.collector.counts["refused"] == 1
        running.works()


def test_a_wrong_secret_is_refused() -> None:
    with collecting() as running:
        assert Line(running.port).hello(b"another secret, not the right one").is_closed()
        assert running.collector.windows == {}
        running.works()


def test_a_hello_of_another_connection_is_refused() -> None:
    with collecting() as running:
        one, other = Line(running.port), Line(running.port)
        other.line.sendall(one.hello_bytes())
        assert other.is_closed()
        assert running.collector.windows == {}


@pytest.mark.parametrize(
    "about", [{"rank": -1}, {"rank": 1 << 31}, {"rank": "0"}, {"job": "x" * 257}, {"process": None}, {"gpu": -2}]
)
def test_a_hello_that_says_nothing_sensible(about: dict[str, object]) -> None:
    with collecting() as running:
        assert running.line(**about).is_closed()
        assert running.collector.windows == {}
        running.works()


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (EVENTS, event()[:-1]),
        (NAMES, b"{}"),
        (NAMES, b"[" * 1000),
        (NAMES, encoded({"first": 0, "places": [{**ALLREDUCE, "ranks": [0, 1 << 30, 1]}]})),
        (CLOCK, b'{"monotonic_ns":-1,"time_ns":0}'),
        (CLOCK, b'{"monotonic_ns":1e400,"time_ns":0}'),
        (HELLO_KIND, encoded(HELLO)),  # type: ignore[arg-type]
    ],
)
def test_a_proved_message_that_cannot_be(kind: int, body: bytes) -> None:
    with collecting() as running:
        line = running.line()
        line.send(kind, body)
        assert line.is_closed()
        running.works()


def test_changed_repeated_and_reordered_messages_are_refused() -> None:
    chance = random.Random(26)
    with collecting() as running:
        for case in range(60):
            line = Line(running.port)
            begin = line.hello_bytes(job=f"job{case % 8}", process=str(case))
            clock = encoded({"monotonic_ns": 1000, "time_ns": 0, "sent": 0})
            rest = [line.message(kind, body) for kind, body in
                    ((NAMES, encoded({"first": 0, "places": [ALLREDUCE]})), (CLOCK, clock), (EVENTS, event()),
                     (EVENTS, event(number=1)), (CLOCK, clock))]  # fmt: skip
            line.line.sendall(mutated([begin, *rest], chance))
            line.line.shutdown(socket.SHUT_WR)
            assert line.is_closed()
            line.close()
        running.until(lambda: not running.collector._unproved and not running.collector._sessions)
        for window in running.collector.windows.values():
            window.fold(0)
            assert set(window.gates.since(0)["number"].tolist()) <= {0, 1}, "nobody sent another"
        assert running.collector.flight_bytes == 0
        running.works()


def test_an_oversized_message_is_refused_unread() -> None:
    with collecting() as running:
        line = running.line()
        line.line.sendall(HEAD.pack((1 << 18) + 1, EVENTS, 0))
        assert line.is_closed()
        assert running.collector.flight_bytes == 0


# -- limits --------------------------------------------------------------------------------------------------


def test_who_says_nothing_or_not_all_is_not_waited_for() -> None:
    with collecting(Limits(hello_s=0.2, message_s=0.2, silent_s=0.5)) as running:
        silent, slow, half, quiet = Line(running.port), Line(running.port), running.line(), running.line(rank=1)
        slow.line.sendall(b"\x20")
        half.line.sendall(half.message(EVENTS, event() * 100)[:50])
        quiet.clock()
        assert all(one.is_closed() for one in (silent, slow, half, quiet))
        running.until(lambda: running.collector.flight_bytes == 0)
        running.works()


def test_connections_without_a_hello_push_out_nobody_who_is_young() -> None:
    with collecting(Limits(unproved=4, hello_s=60)) as running:
        some = [Line(running.port) for _ in range(4)]
        with pytest.raises(OSError, match=r"closed|reset"):
            Line(running.port)
        proved = [one.hello(rank=rank, process=str(rank)) for rank, one in enumerate(some[:3])]
        running.until(lambda: len(running.collector._unproved) == 1)
        assert not any(one.is_closed(0.05) for one in proved)
        running.works()


def test_the_oldest_without_a_hello_goes_when_it_had_its_time() -> None:
    with collecting(Limits(unproved=2, hello_s=60)) as running:
        first, second = Line(running.port), Line(running.port)
        running.call(lambda: [setattr(one, "made_ns", one.made_ns - 2 * 10**9) for one in running.collector._unproved])
        third = Line(running.port)
        assert first.is_closed()
        assert not second.is_closed(0.05)
        assert not third.is_closed(0.05)


@pytest.mark.parametrize(
    ("limits", "second"),
    [
        (Limits(ranks=1), {"rank": 1}),
        (Limits(jobs=1), {"job": "another"}),
        (Limits(connections=1), {"rank": 1}),
    ],
)
def test_over_a_limit_it_refuses_and_goes_on(limits: Limits, second: dict[str, object]) -> None:
    with collecting(limits) as running:
        first = running.line()
        first.name()
        running.window()
        with suppress(OSError):  # refused before it could speak
            assert running.line(**second).is_closed()
        first.events(event())
        running.until(lambda: len(running.window().gates) == 1)
        assert running.collector.counts["refused"] == 1


def test_bytes_above_the_rate_are_dropped_and_counted() -> None:
    with collecting(Limits(bytes_per_s=1, burst_bytes=CONNECT_BYTES + 10 * 100 * EVENT.size + 2500)) as running:
        line = running.line()
        line.name()
        for number in range(25):
            line.events(event(number=number) * 100)
        line.clock(sent=2500)
        window = running.window()
        running.until(lambda: window.totals()["received"] == 2500)
        running.until(lambda: len(window.gates) == 1000)
        assert window.ranks[0].over == 1500
        running.until(lambda: window.ranks[0].missing == 0)
        assert sum("sends more than is taken" in one for one in running.said) == 1


def test_who_is_far_above_the_rate_is_not_read_for_a_while() -> None:
    with collecting(Limits(bytes_per_s=100_000, burst_bytes=CONNECT_BYTES + 1000)) as running:
        line = running.line()
        line.name()
        line.events(event() * 4000)  # 112,000 bytes: a second too many
        line.events(event())
        window = running.window()
        running.until(lambda: window.totals()["received"] == 4001)
        assert window.ranks[0].over >= 4000


def test_unfinished_messages_are_bounded() -> None:
    with collecting(Limits(flight_bytes=1000)) as running:
        line = running.line()
        line.line.sendall(line.message(EVENTS, event() * 100)[:1500])
        assert line.is_closed()
        running.until(lambda: running.collector.flight_bytes == 0)
        running.works()


# -- ranks that come again, and ranks that do not ------------------------------------------------------------


def test_a_restart_is_said_and_the_old_process_does_not_come_back() -> None:
    with collecting() as running:
        first = running.line()
        first.clock()
        running.window()
        second = running.line(process="p1", pid=8)
        assert first.is_closed()
        running.until(lambda: "job: rank 0 was started anew (gpu-1, process 8)" in running.said)
        assert running.line().is_closed(), "the first process again"
        second.name()
        second.events(event())
        running.until(lambda: len(running.window().gates) == 1)


def test_the_same_process_may_connect_again() -> None:
    with collecting() as running:
        first = running.line()
        first.name()
        first.events(event())
        window = running.window()
        running.until(lambda: len(window.gates) == 1)
        second = running.line()
        assert first.is_closed()
        second.events(event())  # names are known
        running.until(lambda: len(running.window().gates) == 2)
        assert running.window().ranks[0].attempt == 0


def test_a_lost_rank_is_said_and_so_is_its_return() -> None:
    with collecting(Limits(lost_s=0.3)) as running:
        for rank in (0, 1):
            line = running.line(rank=rank, process=str(rank))
            line.clock()
            if rank:
                line.bye()
            line.line.close()
        running.until(lambda: "job: nothing was heard of rank 0 for 0.3 s" in running.said)
        running.line(process="0").clock()
        running.until(lambda: "job: rank 0 is back" in running.said)
        assert not any("rank 1" in one for one in running.said)


def test_a_job_that_is_over_is_forgotten() -> None:
    with collecting(Limits(forget_job_s=0.2)) as running:
        line = running.line()
        line.name()
        line.events(event())
        line.bye()
        running.until(lambda: any("forgotten" in one for one in running.said))
        assert running.collector.windows == {}
        assert running.collector.room.used_bytes == 0
        running.works()


# -- the job never notices -----------------------------------------------------------------------------------


def test_a_collector_that_does_not_read_costs_the_job_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket fills up, the sender gives up, events are dropped, and all of them are counted."""
    monkeypatch.setattr("taut.watch.sender.TIMEOUT_S", 0.2)
    listening = bound("127.0.0.1", 0)
    listening.setblocking(True)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    observer = Observer(Ring(512))
    sender = Sender(observer, listening.getsockname(), JOB_SECRET, lambda: HELLO)  # type: ignore[return-value, arg-type]
    observer.place("allreduce", "0", -1, [0, 1])
    added = 0

    def accept() -> socket.socket:
        line, _ = listening.accept()
        line.sendall(GREETING + b"n" * 16)
        return line  # and reads nothing

    accepted: list[socket.socket] = []
    threading.Thread(target=lambda: accepted.append(accept()), daemon=True).start()
    for _ in range(4000):
        for _ in range(512):
            observer.ring.add((GATE, 0, 0, added, 1, 0, 0))
            added += 1
        sender._once()
        if sender.refused:
            break
    assert sender.refused == 1, "it gave up"
    assert observer.ring.dropped + sender.sent_events + len(observer.ring) == added
    before = observer.ring.dropped
    for _ in range(1000):
        observer.ring.add((GATE, 0, 0, 0, 1, 0, 0))
        added += 1
    assert observer.ring.dropped > before
    assert observer.ring.dropped + sender.sent_events + len(observer.ring) == added
    for one in (*accepted, listening):
        one.close()


def test_no_collector_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.watch.sender.TIMEOUT_S", 0.2)
    gone = bound("127.0.0.1", 0)
    address = gone.getsockname()
    gone.close()
    observer = Observer(Ring(8))
    sender = Sender(observer, address, JOB_SECRET, lambda: HELLO)  # type: ignore[return-value, arg-type]
    for number in range(20):
        observer.ring.add((STEP, 0, 0, number, 1, 2, 0))
    sender._once()
    assert (sender.refused, observer.ring.dropped, len(observer.ring)) == (1, 12, 8)


# -- what is found -------------------------------------------------------------------------------------------


def finding(state: str = "open", at_ns: int = 1, name: str = "f1") -> LiveFinding:
    return LiveFinding(
        at_ns=at_ns, id=name, job="job", mode="straggler cascade", state=state, ranks=[1], hosts=["gpu-1"], links=[],  # type: ignore[arg-type]
        since_step=3, delay_steps=2, money_per_hour=None, false_alarms_per_hour=0.1, cannot_see=["device time"],
    )  # fmt: skip


class Looks:
    """Opens a finding when a gate was seen, and closes it at the next look; then fails."""

    def __init__(self, window: Window) -> None:
        self.window, self.states = window, ["open", "closed"]

    def look(self, now_ns: int) -> list[LiveFinding]:
        if not len(self.window.gates):
            return []
        return [finding(self.states.pop(0), time.time_ns())]

    def state(self, window: Window) -> WatchedJob:
        raise RuntimeError("no state")


def test_what_watchers_find_is_told_and_kept(tmp_path: Path) -> None:
    told: list[LiveFinding] = []
    kept = Kept(tmp_path)
    with collecting(watcher=Looks, tell=told.append, kept=kept) as running:
        line = running.line()
        line.name()
        line.events(event())
        running.until(lambda: running.collector.counts["failed looks"])
        assert [one.state for one in told] == ["open", "closed"]
        assert sum("could not be looked at: IndexError" in one for one in running.said) == 1
        line.events(event())
        running.until(lambda: len(running.window().gates) == 2)
    kept.close()
    (lines,) = [path.read_text().splitlines() for path in tmp_path.glob("findings-*.jsonl")]
    assert len(lines) == 1
    assert '"state":"closed"' in lines[0]


def test_what_is_seen_is_told_while_a_look_takes_long() -> None:
    going_on, looked = threading.Event(), threading.Event()

    class Slow(Looks):
        def look(self, now_ns: int) -> list[LiveFinding]:
            looked.set()
            going_on.wait(10)
            return []

    with collecting(watcher=Slow) as running:
        running.line()
        assert looked.wait(10)
        running.until(lambda: running.collector.latest.jobs and running.collector.latest.jobs[0].job == "job")
        before = running.collector.latest.at_ns
        running.until(lambda: running.collector.latest.at_ns > before)
        going_on.set()


class StaysOpen(Looks):
    """Opens a finding that nobody closes."""

    def look(self, now_ns: int) -> list[LiveFinding]:
        return [finding(self.states.pop(0), time.time_ns())] if len(self.window.gates) and len(self.states) > 1 else []

    def state(self, window: Window) -> WatchedJob:
        return msgspec.structs.replace(job_state(window, None), findings=[finding("open", 1)])


def test_what_is_open_when_a_job_is_forgotten_is_closed(tmp_path: Path) -> None:
    told: list[LiveFinding] = []
    kept = Kept(tmp_path)
    with collecting(Limits(forget_job_s=1.5), watcher=StaysOpen, tell=told.append, kept=kept) as running:
        line = running.line()
        line.name()
        line.events(event())
        running.until(lambda: any("forgotten" in one for one in running.said))
    kept.close()
    assert [one.state for one in told] == ["open", "closed"]
    assert (tmp_path / "open.json").read_text() == "[]"
