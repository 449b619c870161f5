"""The server: one process, one event loop, a socket that is bound before anything is announced, and clients with limits.

uvicorn waits for ever for the head of a request, and for a client that does not read. Here both are closed. Where all
connections are taken, a newcomer gets the place of one that is not being answered: opening many locks nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from taut.serve.guard import MOST_HEAD, SAID

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HEAD_S = 10.0
"""A request has its head sent in this time, whole; and its body in as much again."""
STALL_S = 30.0
"""A client reads 64 KiB in this time."""
KEEP_ALIVE_S = 20
"""A connection without requests is kept this long; pages ask every few seconds."""
GRACE_S = 1
"""Answers under way are waited for this long when the server ends."""
MAX_CONNECTIONS = 1024
"""Connections at a time: those of 170 browsers, which open six to a server each."""
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def most_connections() -> int:
    """Connections at a time: half of the files that the process may have open."""
    return max(16, min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class Bounded(H11Protocol):
    """A connection whose client is waited for only so long."""

    _head: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    most = MAX_CONNECTIONS
    by_age: ClassVar[dict[Bounded, None]] = {}
    """Connections of one server, the oldest first; ``make_server`` gives each server its own."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, in the place of another connection where there are too many."""
        super().connection_made(transport)
        if len(self.by_age) >= self.most:
            self._evict()
        self.by_age[self] = None
        self._head = self.loop.call_later(HEAD_S, transport.abort)

    def _evict(self) -> None:
        """Close the oldest connection that is not being answered, else the oldest."""
        evicted = next((one for one in self.by_age if not one._is_being_answered()), next(iter(self.by_age)))
        del self.by_age[evicted]  # now, because asyncio tells that it is lost only later
        evicted.transport.abort()

    def _is_being_answered(self) -> bool:
        """Whether an answer is being made, or is not sent whole."""
        return not self._idle() or self.transport.get_write_buffer_size() > 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self.by_age.pop(self, None)
        for timer in (self._head, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request: a head that comes byte by byte is not waited for longer than any other, nor is a body."""
        waiting = self._idle()
        if waiting and self._head is None:
            self._head = self.loop.call_later(HEAD_S, self.transport.abort)
        super().data_received(data)
        if self._head is None or self._idle():
            return
        if waiting:  # a request has begun: its body has as much time again
            self._head.cancel()
            self._head = self.loop.call_later(HEAD_S, self.transport.abort)
        if not self.cycle.more_body:
            self._head.cancel()
            self._head = None

    def _idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        """Wait for the next request; what is left of the body of this one is not read for ever."""
        if self._head is not None and not self.cycle.more_body:
            self._head.cancel()
            self._head = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read: wait, and then no longer."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def timeout_keep_alive_handler(self) -> None:
        """Nothing was asked for a while."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is answered as everything is."""
        body = b'{"error":"no HTTP request"}'
        said = "".join(f"{name}: {value}\r\n" for name, value in SAID.items())
        head = f"HTTP/1.1 400 Bad Request\r\n{said}cache-control: no-store\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()


class LimitedServer(uvicorn.Server):
    """A server that ends when the process is asked to, and then lets the process end in its own way."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop serving at a signal, then hand it to whoever handled it before."""
        if threading.current_thread() is not threading.main_thread():  # only there can signals be heard
            yield
            return
        asked: list[int] = []

        def stop(number: int, _: FrameType | None) -> None:
            asked.append(number)
            self.should_exit = True
            self.force_exit = len(asked) > 1

        before = {number: signal.signal(number, stop) for number in ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        if asked:
            signal.raise_signal(asked[0])


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Answer until the process is asked to end."""
    make_server(app).run([listening])


def make_server(app: ASGIApp) -> LimitedServer:
    """A server that is not running yet."""
    protocol = type("Limited", (Bounded,), {"most": most_connections(), "by_age": {}})
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=MOST_HEAD,
    )
    return LimitedServer(config)
