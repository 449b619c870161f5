"""A modelled job whose ranks speak to a collector over sockets, as fast as the job is modelled to run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from collecting import Line
from taut.lab.live_jobs import LiveJob
from taut.watch.event_rows import RECEIVED
from taut.watch.seen import Events, Seen
from taut.watch.wire import GATE, STAGE, STEP, runs

AT_ONCE_S = 0.5
"""Ranks send this often."""


class SimulatedRanks:
    """Connections of all ranks of a job to the collector at a port."""

    def __init__(self, port: int, job: LiveJob, name: str = "job", secret: bytes | None = None) -> None:
        self._job, self._steps = job, max(round(AT_ONCE_S / job.step_s), 1)
        self._lines = [Line(port, timeout_s=20.0) for _ in range(job.ranks)]
        first = job.block(self._steps).seen()
        for rank, line in enumerate(self._lines):
            seat = first.seats[rank]
            where = {"host": seat.host, "gpu": seat.gpu, "boot": seat.boot, "sees": seat.sees}
            line.hello(secret, rank=rank, world=job.ranks, job=name, process=f"p{rank}", **where)
            line.name(*({"verb": one.verb, "group": one.group, "peer": -1, "ranks": runs(one.ranks)} for one in first.classes))
        self._sent = [0] * job.ranks
        self._shift = time.monotonic_ns() - int(first.steps.end.max())
        self._send(first)

    def run_until(self, done: threading.Event) -> None:
        """Send what happened, when it has happened."""
        while not done.is_set():
            seen = self._job.block(self._steps).seen()
            done.wait(max(int(seen.steps.end.max()) + self._shift - time.monotonic_ns(), 0) / 1e9)
            self._send(seen)

    def close(self) -> None:
        """End all connections."""
        for line in self._lines:
            line.close()

    def _send(self, seen: Seen) -> None:
        kinds = ((GATE, seen.gates), (STAGE, seen.stages), (STEP, seen.steps))
        rows = [(rows.rank, self._rows(kind, rows)) for kind, rows in kinds]
        for rank, line in enumerate(self._lines):
            body = b"".join(data[ranks == rank].tobytes() for ranks, data in rows)
            line.clock(self._sent[rank])
            line.events(body)
            self._sent[rank] += len(body) // RECEIVED.itemsize

    def _rows(self, kind: int, events: Events) -> np.ndarray:
        out = np.zeros(len(events), RECEIVED)
        out["kind"], out["number"], out["flags"] = kind, events.number, events.flags
        out["place"] = np.maximum(events.klass, 0)
        out["begin_ns"] = events.begin + self._shift
        out["end_ns"] = np.where(events.end > 0, events.end + self._shift, 0)
        return out


@contextmanager
def simulated(port: int, job: LiveJob, name: str = "job", secret: bytes | None = None) -> Iterator[None]:
    """The ranks of a job run in a thread of this process."""
    ranks, done = SimulatedRanks(port, job, name, secret), threading.Event()
    thread = threading.Thread(target=ranks.run_until, args=(done,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(20)
        ranks.close()
