"""A collector for tests, in a thread, and ranks that speak to it over a socket as ranks do, or as nobody should."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from taut.serve.listening import bound
from taut.watch.collect import Collector, Limits
from taut.watch.window import Window
from taut.watch.wire import (
    BYE,
    CLOCK,
    EVENT,
    EVENTS,
    GATE,
    GREETING,
    NAMES,
    NONCE_BYTES,
    encoded,
    hello_body,
    hello_proof,
    job_secret,
    packed,
    runs,
    session_key,
)

SECRET = b"a secret of sixteen and more"
"""The collector's; ranks get that of their job."""
JOB_SECRET = job_secret(SECRET, "job")
HELLO = {"rank": 0, "world": 2, "host": "gpu-1", "gpu": 0, "job": "job", "pid": 7, "process": "p0", "boot": "b1"}
ALLREDUCE = {"verb": "allreduce", "group": "0", "peer": -1, "ranks": runs([0, 1])}


def event(kind: int = GATE, place: int = 0, number: int = 0, begin: int = 1000, end: int = 0, flags: int = 0) -> bytes:
    return EVENT.pack(kind, flags, place, number, begin, end, 0)


OPEN: list[Line] = []
"""Connections of a test; closed when its collector ends."""


class Line:
    """A connection of a rank, or of somebody who says that he is one."""

    def __init__(self, port: int, timeout_s: float = 5.0) -> None:
        self.line = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        OPEN.append(self)
        greeting = self._exactly(len(GREETING) + NONCE_BYTES)
        self.nonce, self.number, self.key = greeting[len(GREETING) :], 0, b""

    def hello(self, secret: bytes | None = None, **about: object) -> Line:
        self.line.sendall(self.hello_bytes(secret, **about))
        return self

    def hello_bytes(self, secret: bytes | None = None, **about: object) -> bytes:
        body = hello_body({**HELLO, **about})  # type: ignore[dict-item]
        secret = secret or job_secret(SECRET, str({**HELLO, **about}["job"]))
        self.key = session_key(secret, self.nonce, body)
        return len(body).to_bytes(4, "little") + hello_proof(secret, self.nonce, body) + body

    def message(self, kind: int, body: bytes) -> bytes:
        data = packed(self.key, self.number, kind, body)
        self.number += 1
        return data

    def send(self, kind: int, body: bytes) -> None:
        self.line.sendall(self.message(kind, body))

    def name(self, *places: dict[str, object], first: int = 0) -> None:
        self.send(NAMES, encoded({"first": first, "places": list(places or (ALLREDUCE,))}))  # type: ignore[dict-item]

    def clock(self, sent: int = 0, dropped: int = 0) -> None:
        now = {"monotonic_ns": time.monotonic_ns(), "time_ns": time.time_ns()}
        self.send(CLOCK, encoded({**now, "dropped": dropped, "faults": 0, "sent": sent}))

    def events(self, *some: bytes) -> None:
        self.send(EVENTS, b"".join(some))

    def bye(self) -> None:
        self.send(BYE, b"")

    def is_closed(self, within_s: float = 3.0) -> bool:
        """Whether the other side ends it."""
        self.line.settimeout(within_s)
        try:
            return self.line.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        self.line.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.line.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data


class Running:
    """A collector that runs in a thread."""

    def __init__(self, collector: Collector, said: list[str]) -> None:
        self.collector, self.said = collector, said
        listening = bound("127.0.0.1", 0, waiting=4096)
        self.port = int(listening.getsockname()[1])
        metrics = bound("127.0.0.1", 0)
        self.metrics_port = int(metrics.getsockname()[1])
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(listening, metrics), daemon=True)
        self._thread.start()

    def _run(self, listening: socket.socket, metrics: socket.socket) -> None:
        self._loop.run_until_complete(self.collector.serve(listening, self._done, metrics))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def call(self, work: Callable[[], object]) -> None:
        """Do something where the collector runs."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (work(), done.set()))
        assert done.wait(10)

    def line(self, **about: object) -> Line:
        """A rank that has said hello."""
        return Line(self.port).hello(**about)  # type: ignore[arg-type]

    def until(self, true: Callable[[], object]) -> None:
        """Wait until something has come to pass."""
        end = time.monotonic() + 10
        while not true():
            assert time.monotonic() < end, f"it did not come to pass; said: {self.said}; {self.collector.counts}"
            time.sleep(0.01)

    def window(self, job: str = "job") -> Window:
        """The window of a job, when something was heard of it."""
        self.until(lambda: job in self.collector.windows)
        return self.collector.windows[job]

    def works(self) -> None:
        """A rank is heard as ever."""
        line = self.line(job="after", process=str(time.monotonic_ns()))
        line.name()
        line.clock()
        window = self.collector.windows
        before = len(window["after"].gates) if "after" in window else 0
        line.events(event())
        self.until(lambda: "after" in window and len(window["after"].gates) == before + 1)
        line.bye()
        line.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(10)
        assert not self._thread.is_alive()


@contextmanager
def collecting(limits: Limits | None = None, **about: object) -> Iterator[Running]:
    said: list[str] = []
    running = Running(Collector(SECRET, limits=limits, say=said.append, **about), said)  # type: ignore[arg-type]
    try:
        yield running
    finally:
        while OPEN:
            OPEN.pop().close()
        running.stop()


def mutated(messages: Sequence[bytes], chance: random.Random) -> bytes:
    """What a rank sends, changed so that it is no longer what the rank sent."""
    some = list(messages)
    what = chance.randrange(7)
    at = chance.randrange(len(some))
    if what == 0:  # a bit
        data = bytearray(some[at])
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        some[at] = bytes(data)
    elif what == 1:  # said twice
        some.insert(at, some[at])
    elif what == 2:  # left out, but for the last, after which nothing is missed
        at = chance.randrange(len(some) - 1)
        del some[at]
    elif what == 3:  # in another order
        at = chance.randrange(len(some) - 1)
        some[at], some[at + 1] = some[at + 1], some[at]
    elif what == 4:  # a byte too many, or too few
        data = bytearray(some[at])
        place = chance.randrange(len(data))
        if chance.random() < 0.5 and at < len(some) - 1:
            del data[place]
        else:
            data.insert(place, data[place] ^ 255)
        some[at] = bytes(data)
    elif what == 5:  # a length that no message has
        some[at] = struct.pack("<I", chance.randrange(1 << 18, 1 << 32)) + some[at][4:]
    else:  # something else altogether
        some[at] = chance.randbytes(max(chance.randrange(600), 45))
    return b"".join(some)
