"""The thread that sends what a rank saw to the collector: as often as it pays, never in the job's way.

Without a collector, or with a slow one, events are dropped and counted; it is asked again after a while, at most once in half
a minute.
"""

from __future__ import annotations

import socket
import threading
import time

from taut.watch.observed import Observer
from taut.watch.wire import (
    BYE,
    CLOCK,
    EVENTS,
    GREETING,
    MOST_BYTES,
    NAMES,
    NONCE_BYTES,
    Json,
    encoded,
    hello_proof,
    packed,
    session_key,
)

EVERY_S = 1.0
"""How often it sends."""
MOST_EVENTS = 4096
"""Of one message."""
TIMEOUT_S = 2.0
LONGEST_PAUSE_S = 30.0


class Sender(threading.Thread):
    """Sends the events of an observer until it is stopped."""

    def __init__(self, observer: Observer, address: tuple[str, int], secret: bytes, hello: Json) -> None:
        super().__init__(name="taut-watch", daemon=True)
        self.observer, self.address, self.secret, self.hello = observer, address, secret, hello
        self.sent_bytes, self.refused = 0, 0
        self._done = threading.Event()
        self._pause_s = EVERY_S
        self._line: socket.socket | None = None
        self._key, self._number, self._named = b"", 0, 0

    def run(self) -> None:
        """Until it is stopped; whatever goes wrong is tried again later."""
        while not self._done.wait(self._pause_s):
            self._once()
        self._once()
        if self._line is not None:
            try:
                self._send(BYE, b"")
                self._line.close()
            except OSError:
                pass

    def stop(self) -> None:
        """Send what is left, and end."""
        self._done.set()
        self.join(TIMEOUT_S)

    def _once(self) -> None:
        try:
            if self._line is None:
                self._connect()
            self._tell()
            self._pause_s = EVERY_S
        except (OSError, ValueError):
            self.refused += 1
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            if self._line is not None:
                self._line.close()
            self._line = None

    def _connect(self) -> None:
        line = socket.create_connection(self.address, timeout=TIMEOUT_S)
        try:
            line.settimeout(TIMEOUT_S)
            greeting = _exactly(line, len(GREETING) + NONCE_BYTES)
            if not greeting.startswith(GREETING):
                raise ValueError("not a collector of taut")
            nonce, hello = greeting[len(GREETING) :], encoded(self.hello)
            line.sendall(len(hello).to_bytes(4, "little") + hello_proof(self.secret, nonce, hello) + hello)
            self._key, self._number, self._named = session_key(self.secret, nonce, hello), 0, 0
        except BaseException:
            line.close()
            raise
        self._line = line

    def _tell(self) -> None:
        """Names that are new, the time, and the events."""
        places = self.observer.places
        for first in range(self._named, len(places), 64):
            some = places[first : first + 64]
            self._send(NAMES, encoded({"first": first, "places": some}))  # type: ignore[dict-item]
        self._named = len(places)
        clocks = {"monotonic_ns": time.monotonic_ns(), "time_ns": time.time_ns(), "dropped": self.observer.ring.dropped,
                  "faults": self.observer.faults}  # fmt: skip
        self._send(CLOCK, encoded({**clocks}))
        while len(self.observer.ring):
            self._send(EVENTS, self.observer.ring.take(MOST_EVENTS))

    def _send(self, kind: int, body: bytes) -> None:
        if self._line is None:
            raise OSError("not connected")
        if len(body) > MOST_BYTES:
            raise ValueError("a message that is too long")
        data = packed(self._key, self._number, kind, body)
        self._number += 1
        self._line.sendall(data)
        self.sent_bytes += len(data)


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = line.recv(count - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data
