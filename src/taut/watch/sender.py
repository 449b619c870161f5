"""The thread that sends what a rank saw to the collector: as often as it pays, never in the job's way.

Without a collector, or with a slow one, events are dropped and counted; it is asked again after a while, at most once in half
a minute.
"""

from __future__ import annotations

import contextlib
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable

from taut.watch.observed import Observer
from taut.watch.profile_on_request import Profiles, Requests
from taut.watch.wire import (
    BYE,
    CLOCK,
    EVENT,
    EVENTS,
    GREETING,
    MOST_BYTES,
    NAMES,
    NONCE_BYTES,
    PROFILED,
    Json,
    encoded,
    hello_body,
    hello_proof,
    packed,
    request_key,
    runs,
    session_key,
)

EVERY_S = 1.0
"""How often it sends."""
MOST_EVENTS = 4096
"""Of one message."""
NAMES_BYTES = 1 << 15
"""Names are sent in messages of about so many bytes."""
NOT_HEARD = 3
"""After so many failures in a row it is said, once, by rank 0: the others of a job fail for the same reason."""
TIMEOUT_S = 2.0
LONGEST_PAUSE_S = 30.0


class Sender(threading.Thread):
    """Sends the events of an observer until it is stopped."""

    def __init__(
        self,
        observer: Observer,
        address: tuple[str, int],
        secret: bytes,
        hello: Callable[[], Json],
        profiles: Profiles | None = None,
    ) -> None:
        super().__init__(name="taut-watch", daemon=True)
        self.observer, self.address, self.secret, self.hello = observer, address, secret, hello
        self.sent_bytes, self.sent_events, self.refused = 0, 0, 0
        self._goes_on = threading.Lock()
        """Held until it is stopped: waiting for a lock wakes faster than an event does."""
        self._goes_on.acquire()
        self._pause_s = EVERY_S
        self._told_in_row, self._failed_in_row, self._rank, self._job = 0, 0, -1, ""
        self._line: socket.socket | None = None
        self._key, self._number, self._named = b"", 0, 0
        self._profiles, self._requests = profiles, Requests(b"")

    def run(self) -> None:
        """Until it is stopped; whatever goes wrong is tried again later."""
        while not self._goes_on.acquire(timeout=self._pause_s if self._line is None else EVERY_S):
            self._once()
        self._once()
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._send((BYE, b""))
            self._line.close()

    def stop(self) -> None:
        """Send what is left, and end."""
        if self._profiles is not None:
            self._profiles.close()
        if self._goes_on.locked():
            self._goes_on.release()
        self.join(TIMEOUT_S)

    def _once(self) -> None:
        try:
            if self._line is None:
                self._connect()
            with self.observer.quietly():
                self.observer.beat()
            self._tell()
            self._heed()
            self._told_in_row += 1
            if self._told_in_row >= NOT_HEARD:  # a wrong secret is noticed by what is sent next: that is no success
                self._failed_in_row, self._pause_s = 0, EVERY_S
        except Exception as error:  # whatever it is, it is ours and not the job's
            self.refused += 1
            self._not_heard(error)
            self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
            if self._line is not None:
                self._line.close()
            self._line = None

    def _not_heard(self, error: Exception) -> None:
        """Say once that nobody hears this rank, and why; it goes on trying."""
        refused = self._line is not None
        self._told_in_row = 0
        self._failed_in_row += 1
        if self._failed_in_row == NOT_HEARD and not self._rank:
            place = f"{self.address[0]}:{self.address[1]}"
            why = getattr(error, "strerror", None) or error
            what = f"does not answer ({why}): is it the collector's address?"
            if refused:
                what = f"ends the connection: is TAUT_WATCH_SECRET the secret of job {self._job!r}? where the collector runs, "
                what += f"taut watch collect --secret-for {shlex.quote(self._job)} prints it; its standard error says why"
            elif isinstance(error, OtherVersion):
                what = str(error)
            print(f"taut.watch is not heard yet: {place} {what}", file=sys.stderr)

    def _connect(self) -> None:
        about = self.hello()  # asked when it connects: a job may be started before its ranks have numbers
        self._rank, self._job = about["rank"] if isinstance(about["rank"], int) else -1, str(about["job"])
        line = socket.create_connection(self.address, timeout=TIMEOUT_S)
        try:
            line.settimeout(TIMEOUT_S)
            greeting = _exactly(line, len(GREETING) + NONCE_BYTES)
            if not greeting.startswith(GREETING):
                raise OtherVersion(_other_version(greeting))
            nonce, hello = greeting[len(GREETING) :], hello_body(about)
            line.sendall(len(hello).to_bytes(4, "little") + hello_proof(self.secret, nonce, hello) + hello)
            self._key, self._number, self._named = session_key(self.secret, nonce, hello), 0, 0
            self._requests = Requests(request_key(self.secret, nonce, hello))
        except BaseException:
            line.close()
            raise
        self._line = line

    def _tell(self) -> None:
        """Names that are new, the time, and the events, in as few calls of the system as can be."""
        ring, more = self.observer.ring, True
        while more:
            data = ring.take(MOST_EVENTS)
            count = len(data) // EVENT.size
            try:
                self._tell_names()  # a place is named before its first event is in the ring
                self._send((CLOCK, self._clock()), *([(EVENTS, data)] if data else []))
            except BaseException:
                ring.lose(count)
                raise
            self.sent_events += count
            more = len(ring) > 0

    def _clock(self) -> bytes:
        observer = self.observer
        counts = observer.ring.dropped, observer.faults, self.sent_events
        return b'{"dropped":%d,"faults":%d,"sent":%d,"monotonic_ns":%d,"time_ns":%d}' % (
            *counts,
            time.monotonic_ns(),
            time.time_ns(),
        )

    def _heed(self) -> None:
        """Profile if the collector asks for it and the job allows it; tell what became of it."""
        if self._profiles is None or self._line is None:
            return
        for step, steps, most_ms in self._requests.read(self._line):
            self._profiles.ask(step, steps, most_ms)
        self._profiles.look()
        while self._profiles.answers:
            self._send((PROFILED, encoded(self._profiles.answers[0])))
            del self._profiles.answers[0]

    def _tell_names(self) -> None:
        """Places that the collector does not know yet."""
        places = self.observer.places
        while self._named < len(places):
            first, some, size = self._named, list[bytes](), 0
            while self._named < len(places) and size < NAMES_BYTES:
                some.append(_place(places[self._named]))
                size += len(some[-1])
                self._named += 1
            self._send((NAMES, b'{"first":%d,"places":[%s]}' % (first, b",".join(some))))

    def _send(self, *messages: tuple[int, bytes]) -> None:
        if self._line is None:
            raise OSError("not connected")
        if max(len(body) for _, body in messages) > MOST_BYTES:
            raise ValueError("a message that is too long")
        data = b"".join(packed(self._key, self._number + turn, kind, body) for turn, (kind, body) in enumerate(messages))
        self._number += len(messages)
        self._line.sendall(data)
        self.sent_bytes += len(data)


class OtherVersion(Exception):
    """Whoever answers does not speak as this rank does."""


def _other_version(greeting: bytes) -> str:
    said, ours = greeting.partition(b"\n")[0], GREETING.decode().strip()
    if not said.startswith(b"taut watch "):
        return "is not a collector of taut: is it the collector's address?"
    spoken = said.decode("ascii", "replace")
    return f"is a collector that speaks {spoken!r}, and this rank {ours!r}: install the same taut in the job and there"


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = line.recv(count - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


def _place(place: dict[str, str | int | list[int]]) -> bytes:
    """What a code stands for; without its ranks where their list is longer than a message."""
    ranks = place["ranks"]
    data = encoded({**place, "ranks": runs(ranks) if isinstance(ranks, list) else []})
    return data if len(data) < MOST_BYTES // 2 else encoded({**place, "ranks": []})
