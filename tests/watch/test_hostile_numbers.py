"""Messages that are proved, with numbers that no job has: what they expand to is bounded, and metrics answer all the while."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from collecting import SECRET, Line, collecting, event
from taut.watch.collect import CONNECT_BYTES, Limits
from taut.watch.wire import CLOCK, NAMES, STEP, encoded

MOST_RANKS = 1 << 17


def resident(pid: int, word: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(word))


class Process:
    """A collector of its own, as the command starts it."""

    def __init__(self, folder: Path) -> None:
        ports = ["--port", "0", "--metrics-port", "0"]
        command = [sys.executable, "-m", "taut", "watch", "collect", *ports, "--keep", str(folder)]
        env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode(), "TAUT_AUDIT": "off"}
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = [self.process.stderr.readline() for _ in range(2)]
        self.metrics, self.port = said[0].split()[-1], int(said[1].split(",")[0].rpartition(":")[2])

    def answered_s(self) -> float:
        began = time.monotonic()
        with urlopen(self.metrics, timeout=60) as answer:
            answer.read()
        return time.monotonic() - began


@contextmanager
def collector(folder: Path) -> Iterator[Process]:
    started = Process(folder)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.communicate()


def groups(count: int, world: int) -> bytes:
    """Names of so many groups, each of nearly all ranks of a large job."""
    some = [{"verb": f"v{k}", "group": "0", "peer": -1, "ranks": [0, world - 1 - k, 1]} for k in range(count)]
    return encoded({"first": 0, "places": some})  # type: ignore[dict-item]


@pytest.mark.parametrize("world", [1 << 20, MOST_RANKS])
def test_groups_of_a_large_job_are_not_expanded(tmp_path: Path, world: int) -> None:
    """29 kB of names stood for 500 million ranks: 4.8 GB, and metrics that answered after 19 s."""
    with collector(tmp_path) as found:
        before = resident(found.process.pid, "VmRSS:")
        line = Line(found.port).hello(world=world)
        line.line.sendall(line.message(NAMES, groups(480, world)))
        end, slowest = time.monotonic() + 3, 0.0
        while time.monotonic() < end:
            slowest = max(slowest, found.answered_s())
        line.close()
        assert slowest < 1
        # Code of the looks is loaded meanwhile, or compiled: that is no more than this.
        assert resident(found.process.pid, "VmHWM:") - before < 400 << 20


@pytest.mark.parametrize(
    "about", [{"rank": (1 << 30) - 1, "world": -1}, {"world": MOST_RANKS + 1}, {"rank": MOST_RANKS, "world": MOST_RANKS}]
)
def test_ranks_that_no_job_has_are_refused(about: dict[str, object]) -> None:
    with collecting() as running:
        assert running.line(**about).is_closed()
        running.works()


@pytest.mark.parametrize("ranks", [[0, 2, 1], [0, 1, 1, 0, 1, 1], [0, MOST_RANKS, 1], [1, 0, -1, 0, 0, 1]])
def test_groups_that_its_job_does_not_have_are_refused(ranks: list[int]) -> None:
    with collecting() as running:
        line = running.line(world=2)
        line.name({"verb": "allreduce", "group": "0", "peer": -1, "ranks": ranks})
        assert line.is_closed()


def test_every_kind_of_message_is_within_the_rate() -> None:
    """Of 500 messages of the time, 129 bytes each with what one counts for, a rank may send a part at once."""
    with collecting(Limits(bytes_per_s=10, burst_bytes=CONNECT_BYTES + 20_000)) as running:
        line = running.line()
        for _ in range(500):
            line.send(CLOCK, encoded({"monotonic_ns": 1, "time_ns": 1}))
        running.until(lambda: running.collector.counts["over the rate"])
        heard = running.collector.counts["messages"]
        assert 50 < heard < 200
        time.sleep(0.5)
        assert running.collector.counts["messages"] == heard, "it is not read until it may send again"
        running.works()


def test_who_connects_again_and_again_gains_nothing() -> None:
    with collecting(Limits(bytes_per_s=1, burst_bytes=4 * CONNECT_BYTES)) as running:
        lines = [running.line(process=f"p{turn}") for turn in range(16)]
        assert lines[-1].is_closed()
        assert running.collector.counts["restarts"] < 16
        running.works()


def test_clocks_that_nobody_uses_give_way() -> None:
    with collecting() as running:
        for turn in range(100):
            running.line(process=f"p{turn}", boot=f"boot {turn}").bye()
            running.until(lambda turn=turn: running.collector.counts["restarts"] == turn)
            time.sleep(0.06)  # as often as a rank may
        assert len(running.window().clocks.clocks) <= 1 + 64


def test_a_step_of_a_great_number_makes_no_table_of_all_before(tmp_path: Path) -> None:
    """Two ranks leap from step 20 to the last that a message can name."""
    from taut.watch.live_findings import Live
    from taut.watch.seen import Feed

    with collecting(watcher=lambda window: Live(Feed(window).new, window.job)) as running:
        numbers = [*range(20), (1 << 32) - 1]
        lines = [running.line(rank=rank, process=f"p{rank}", host=f"h{rank}") for rank in (0, 1)]
        for line in lines:
            line.name()
            line.events(*(event(STEP, number=n, begin=1 + 10**8 * k, end=10**8 * (k + 1)) for k, n in enumerate(numbers)))
        running.until(lambda: running.collector.latest.jobs)
        running.until(lambda: (running.collector.latest.jobs[0].last_step or 0) > 20)
        assert running.collector.counts["failed looks"] == 0


def test_the_seventeenth_who_asks_for_metrics_is_answered() -> None:
    import socket

    with collecting() as running:
        idle = [socket.create_connection(("127.0.0.1", running.metrics_port), timeout=10) for _ in range(16)]
        with urlopen(f"http://127.0.0.1:{running.metrics_port}/metrics", timeout=10) as answer:
            assert answer.status == 200
        with closing(idle[0]) as oldest:
            assert oldest.recv(1) == b""
        for line in idle[1:]:
            line.close()
