"""The collector's metrics over HTTP: ``GET /metrics``, and nothing else.

It answers from a thread and a loop of its own, whatever ranks send meanwhile: one short request to a connection, few
connections, each for a few seconds. The text is made once for each state of the collector, and not by who asks.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from http import HTTPStatus
from ipaddress import ip_address

from taut import __version__
from taut.render.prometheus_export import CONTENT_TYPE, exposition
from taut.result.types import LiveState

MOST_CONNECTIONS, MOST_HEAD = 16, 8 << 10
"""At a time; and bytes of a request."""
MOST_WAITING = 32 << 20
"""Bytes of all answers that were not read yet: those of the largest state that is told are 13 MB."""
LASTS_S = 10.0
"""From a connection's begin to its end, whoever is slow."""
REQUEST = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]\r\n")
HOST = re.compile(rb"^host:[ \t]*([^\r\n]*?)[ \t]*\r$", re.I | re.M)
OK, BAD = HTTPStatus.OK, HTTPStatus.BAD_REQUEST


class MetricsPort(threading.Thread):
    """Answers with the metrics of the last state that it was told."""

    def __init__(self, listening: socket.socket, state: LiveState) -> None:
        super().__init__(name="taut-metrics", daemon=True)
        self.text = b""
        self.tell(state)
        # At an address of this machine alone, a Host must not be a name that somebody's DNS could turn.
        self.names_checked = ip_address(listening.getsockname()[0]).is_loopback
        self._listening = listening
        self._open: dict[Asker, None] = {}
        """In the order in which they came."""
        self._loop = asyncio.new_event_loop()
        self._done = asyncio.Event()

    def tell(self, state: LiveState) -> None:
        """What is answered from now on."""
        self.text = exposition(state, __version__)

    def run(self) -> None:
        """Answer until it is stopped."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._answer_all())

    async def _answer_all(self) -> None:
        server = await self._loop.create_server(lambda: Asker(self), sock=self._listening, backlog=MOST_CONNECTIONS)
        await self._done.wait()
        server.close()
        for asker in list(self._open):
            asker.end()

    def stop(self) -> None:
        """End all connections, and answer no more."""
        self._loop.call_soon_threadsafe(self._done.set)
        self.join()

    def came(self, asker: Asker) -> None:
        """One more connection; where there are too many, the oldest ends: who is slow keeps nobody from asking."""
        if len(self._open) >= MOST_CONNECTIONS:
            self._end_oldest()
        self._open[asker] = None

    def make_room(self) -> None:
        """End the oldest connections until the answers that nobody has read leave room for one more."""
        while self._open and sum(one.unread() for one in self._open) + len(self.text) > MOST_WAITING:
            self._end_oldest()

    def _end_oldest(self) -> None:
        oldest = next(iter(self._open))
        self.left(oldest)
        oldest.end()

    def left(self, asker: Asker) -> None:
        """A connection is over."""
        self._open.pop(asker, None)

    def refusal(self, head: bytes) -> HTTPStatus:
        """What a request is answered: OK, or what is wrong with it."""
        request, hosts = REQUEST.match(head), HOST.findall(head)
        if request is None or len(hosts) > 1 or (self.names_checked and hosts and not _is_here(hosts[0])):
            return BAD
        if request[2].partition(b"?")[0] != b"/metrics":
            return HTTPStatus.NOT_FOUND
        return OK if request[1] == b"GET" else HTTPStatus.METHOD_NOT_ALLOWED


class Asker(asyncio.Protocol):
    """One connection: a request, an answer, the end."""

    def __init__(self, port: MetricsPort) -> None:
        self._port, self._head = port, b""
        self._line: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request."""
        assert isinstance(transport, asyncio.Transport)
        self._line = transport
        self._timer = asyncio.get_running_loop().call_later(LASTS_S, self.end)
        self._port.came(self)

    def data_received(self, data: bytes) -> None:
        """Collect the head of a request; what comes behind it is not read."""
        if self._answered or self._line is None:
            return
        self._head += data
        whole = b"\r\n\r\n" in self._head
        if not whole and len(self._head) <= MOST_HEAD:
            return
        self._line.pause_reading()
        self._answered = True
        self._answer(self._line, self._port.refusal(self._head) if whole and len(self._head) <= MOST_HEAD else BAD)

    def _answer(self, line: asyncio.Transport, status: HTTPStatus) -> None:
        body = self._port.text if status is OK else f"{status.value} {status.phrase}\n".encode()
        kind = CONTENT_TYPE if status is OK else "text/plain; charset=utf-8"
        allow = "Allow: GET\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{allow}"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        self._port.make_room()
        line.write(head.encode())
        line.write(body)
        line.close()

    def unread(self) -> int:
        """Bytes of the answer that were not read yet."""
        return 0 if self._line is None else self._line.get_write_buffer_size()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._line = None
        self._port.left(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """End it at once, whatever was not sent."""
        if self._line is not None:
            self._line.abort()


def _is_here(host: bytes) -> bool:
    """Whether a Host header is ``localhost`` or an address, not a name."""
    name = re.sub(rb":\d*$", b"", host).strip(b"[]").decode("latin-1")
    try:
        return name.lower() == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
