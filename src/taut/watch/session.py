"""One connection to the collector: greeted, proved, then read message by message; whatever is wrong ends it.

Before its proof was checked nothing of a message is decoded but its length, and of a hello the name of its job. All connections
receive into one buffer; only what is left of a message that is not complete, or of a rank that is not read for a while, is kept
for each.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from typing import TYPE_CHECKING

import msgspec

from taut.watch.captures import CaptureAnswer
from taut.watch.window import Clock, Hello, Names
from taut.watch.wire import (
    BYE,
    CLOCK,
    EVENT,
    EVENTS,
    GREETING,
    HEAD,
    HELLO,
    NAMES,
    NONCE_BYTES,
    PROFILE,
    PROFILED,
    PROOF_BYTES,
    WireError,
    check,
    head_of,
    hello_proof,
    job_of,
    job_secret,
    packed,
    request_key,
    session_key,
)

if TYPE_CHECKING:
    from taut.watch.collect import Collector
    from taut.watch.window import Member, Window

HELLO_PROOF_BYTES = 32
MESSAGE_BYTES = 100
"""That a message counts for beside its own bytes: an empty one takes about the time that so many bytes of events take."""
_hello = msgspec.json.Decoder(Hello)
_names = msgspec.json.Decoder(Names)
_clock = msgspec.json.Decoder(Clock)
_answer = msgspec.json.Decoder(CaptureAnswer)


class Session(asyncio.BufferedProtocol):
    """A connection."""

    def __init__(self, house: Collector) -> None:
        self.house = house
        self.window: Window | None = None
        self.member: Member | None = None
        self.made_ns = self.heard_ns = 0
        self.rest = bytearray()
        """What came of a message that is not complete."""
        self.rest_since_ns = 0
        self._need = 0
        """Bytes that make it complete, where that is known."""
        self._line: asyncio.Transport | None = None
        self._nonce, self._key, self._number = b"", b"", 0
        self._request_key, self._requests = b"", 0
        self._greeted_ns: int | None = None
        self.open, self.paused = False, False
        """``paused``: it is not read, and what was read of it is not looked at."""

    # -- what asyncio calls ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet, if there is room."""
        assert isinstance(transport, asyncio.Transport)
        self._line, self.open = transport, True
        self.made_ns = self.heard_ns = time.monotonic_ns()
        if not self.house.let_in(self):
            return
        self._nonce = os.urandom(NONCE_BYTES)
        transport.write(GREETING + self._nonce)
        self._greeted_ns = time.monotonic_ns()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it; say of one that never said anything what it may have been."""
        if self.open and self._greeted_ns is not None and not self._key and not self.rest:
            self.house.refuse(self, "nothing said (a check of the port, or a rank of another version of taut)")
        self.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where bytes go."""
        return self.house.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._hear(self.house.buffer[:nbytes])

    def _hear(self, new: memoryview) -> None:
        if not self.open:
            return
        self.heard_ns = time.monotonic_ns()
        try:
            self._read(new)
        except (WireError, msgspec.DecodeError, ValueError, OverflowError) as error:
            self.house.refuse(self, _why(error))

    # -- messages ---------------------------------------------------------------------------------------------------------

    def _read(self, new: memoryview) -> None:
        if self.rest:
            self.rest += new
            self.house.holds(self, len(new))
            if len(self.rest) < self._need:
                return
        data, at = bytes(self.rest) if self.rest else bytes(new), 0
        self._need = 0
        while self.open and not self.paused:
            used = self._message(data, at) if self._key else self._say_hello(data)
            if not used:
                break
            at += used
        if self.open:
            self._keep(data[at:], at > 0)

    def _keep(self, left: bytes, begins: bool) -> None:
        """Keep what is left of the bytes that came: the beginning of a message, perhaps."""
        if begins or not self.rest:
            self.rest_since_ns = self.heard_ns
        more = len(left) - len(self.rest)
        self.rest = bytearray(left)
        self.house.holds(self, more)

    def _say_hello(self, data: bytes) -> int:
        """Bytes of a hello; 0 if it is not complete."""
        length = int.from_bytes(data[:4], "little")
        if len(data) >= 4 and length > self.house.limits.hello_bytes:
            raise WireError("a hello that is too long")
        begin = 4 + HELLO_PROOF_BYTES
        if len(data) < begin or len(data) < begin + length:
            return 0
        body = data[begin : begin + length]
        job, at = job_of(body)
        secret = job_secret(self.house.secret, job)
        if not hmac.compare_digest(hello_proof(secret, self._nonce, body), data[4:begin]):
            raise WireError("a hello whose proof is wrong (taut watch collect --secret-for JOB prints the secret of a job)")
        self._key = session_key(secret, self._nonce, body)
        self._request_key = request_key(secret, self._nonce, body)
        hello = _hello.decode(body[at:])
        if hello.job != job:
            raise WireError("a hello of another job than the one that proves it")
        self.window, self.member = self.house.welcome(self, hello)
        return begin + length

    def _message(self, data: bytes, at: int) -> int:
        """Bytes of the message that begins there; 0 if it is not complete."""
        begin = at + HEAD.size + PROOF_BYTES
        if len(data) < at + HEAD.size:
            return 0
        head = data[at : at + HEAD.size]
        length, kind, _ = head_of(head)
        if len(data) < begin + length:
            self._need = begin + length - at
            return 0
        body = data[begin : begin + length]
        check(self._key, self._number, head, data[at + HEAD.size : begin], body)
        self._number += 1
        self._take(kind, body, HEAD.size + PROOF_BYTES + length + MESSAGE_BYTES)
        return begin + length - at

    def _take(self, kind: int, body: bytes, cost: int) -> None:
        """Do what a proved message says."""
        window, member = self.window, self.member
        if window is None or member is None or kind == HELLO:
            raise WireError("a hello after the hello")
        if window.ranks.get(member.rank) is not member:
            raise WireError("a rank without which its job goes on")
        within = self.house.within_rate(self, member, kind, cost)
        member.heard_ns = window.heard_ns = self.heard_ns
        count = self.house.counts
        count["messages"] += 1
        count["bytes"] += len(body)
        if kind == EVENTS:
            if within:
                window.add(member, body, self.heard_ns)
            else:
                member.drop_over(len(body) // EVENT.size)
        elif kind == CLOCK:
            window.tell_time(member, _clock.decode(body), self.heard_ns, self._greeted_ns)
            self._greeted_ns = None
        elif kind == NAMES:
            window.name(member, _names.decode(body))
        elif kind == PROFILED:
            answer = _answer.decode(body)
            if self.house.captures is not None:
                self.house.captures.note_answer(window, member, answer)
        elif kind == BYE:
            self.house.goodbye(self, member)
        else:
            raise WireError("a message that no rank sends")

    def request(self, body: bytes) -> None:
        """Ask the rank for a profile."""
        if self._line is not None and self.open and self._request_key:
            self._line.write(packed(self._request_key, self._requests, PROFILE, body))
            self._requests += 1

    # -- its end ----------------------------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Read nothing for a while."""
        if self._line is not None and self.open and not self.paused:
            self.paused = True
            self._line.pause_reading()
            asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self.paused = False
        if self._line is not None and self.open:
            self._line.resume_reading()
            self.rest_since_ns = time.monotonic_ns()
            self._hear(memoryview(b""))

    def close(self) -> None:
        """End it, at once."""
        if self.open:
            self.open = False
            self.house.left(self)
            self.rest = bytearray()
            if self._line is not None:
                self._line.abort()


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, WireError) else "a message that says nothing sensible"
