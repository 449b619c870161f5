"""A collector that is killed and started anew: a rank goes on, and what it could not tell is counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collecting import HELLO, JOB_SECRET, SECRET
from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.sender import Sender
from taut.watch.wire import GATE, STEP

ROOM = 64


def collector(folder: Path, port: int = 0) -> tuple[subprocess.Popen[str], int]:
    """A process that collects, and its port."""
    command = [sys.executable, "-m", "taut", "watch", "collect", "--port", str(port), "--keep", str(folder)]
    env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode(), "TAUT_AUDIT": "off"}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    return process, int(process.stderr.readline().split(",")[0].rpartition(":")[2])


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_rank_goes_on_and_counts_what_it_could_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.watch.sender.EVERY_S", 0.05)
    monkeypatch.setattr("taut.watch.sender.LONGEST_PAUSE_S", 0.05)
    first, port = collector(tmp_path / "first")
    observer = Observer(Ring(ROOM))
    sender = Sender(observer, ("127.0.0.1", port), JOB_SECRET, lambda: HELLO)  # type: ignore[return-value, arg-type]
    place, added = observer.place("allreduce", "0", -1, [0, 1]), 0

    def steps(count: int) -> None:
        nonlocal added
        for _ in range(count):
            observer.ring.add((GATE, 0, place, added, time.monotonic_ns(), 0, 0))
            observer.ring.add((STEP, 0, 0, added, time.monotonic_ns() - 1000, time.monotonic_ns(), 0))
            added += 2

    sender.start()
    steps(10)
    until(lambda: sender.sent_events == added)
    first.kill()
    first.communicate()
    steps(ROOM)  # more than there is room for, and nobody hears
    until(lambda: sender.refused > 1)
    assert observer.ring.dropped >= ROOM
    second, _ = collector(tmp_path / "second", port)
    until(lambda: len(observer.ring) == 0)
    steps(10)
    until(lambda: len(observer.ring) == 0)
    sender.stop()
    assert sender.sent_events + observer.ring.dropped == added
    second.send_signal(signal.SIGINT)
    second.communicate()
    [path] = (tmp_path / "second").glob("steps-*")
    kept = json.loads(path.read_text().splitlines()[-1])
    assert kept["received"] >= 20
    assert kept["lost"]["dropped"] == observer.ring.dropped
    assert observer.faults == 0
