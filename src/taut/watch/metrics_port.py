"""The collector's metrics over HTTP: ``GET /metrics``, and nothing else.

It shares the collector's loop, so it is small on purpose: one short request to a connection, few connections, each for a few
seconds. The text is made in a thread, once for each state of the collector however many ask.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import ip_address

from taut import __version__
from taut.render.prometheus_export import CONTENT_TYPE, exposition
from taut.result.types import LiveState

MOST_CONNECTIONS, MOST_HEAD = 16, 8 << 10
"""At a time; and bytes of a request."""
LASTS_S = 10.0
"""From a connection's begin to its end, whoever is slow."""
REQUEST = re.compile(rb"([A-Z]{1,16}) (/[!-~]*) HTTP/1\.[01]\r\n")
HOST = re.compile(rb"^host:[ \t]*([^\r\n]*?)[ \t]*\r$", re.I | re.M)
OK, BAD = HTTPStatus.OK, HTTPStatus.BAD_REQUEST


class MetricsPort:
    """Answers with the metrics of what ``state`` returns."""

    def __init__(self, state: Callable[[], LiveState]) -> None:
        self._state = state
        self._told: tuple[LiveState, bytes] | None = None
        self._open: set[Asker] = set()
        self.names_checked = False

    async def listen(self, listening: socket.socket) -> asyncio.Server:
        """Begin to answer. At an address of this machine alone, a Host must not be a name that somebody's DNS could turn."""
        self.names_checked = ip_address(listening.getsockname()[0]).is_loopback
        return await asyncio.get_running_loop().create_server(lambda: Asker(self), sock=listening, backlog=MOST_CONNECTIONS)

    def close(self) -> None:
        """End all connections."""
        for asker in list(self._open):
            asker.end()

    def came(self, asker: Asker) -> bool:
        """Whether there is room for one more."""
        if len(self._open) >= MOST_CONNECTIONS:
            return False
        self._open.add(asker)
        return True

    def left(self, asker: Asker) -> None:
        """A connection is over."""
        self._open.discard(asker)

    def refusal(self, head: bytes) -> HTTPStatus:
        """What a request is answered: OK, or what is wrong with it."""
        request, hosts = REQUEST.match(head), HOST.findall(head)
        if request is None or len(hosts) > 1 or (self.names_checked and hosts and not _is_here(hosts[0])):
            return BAD
        if request[2].partition(b"?")[0] != b"/metrics":
            return HTTPStatus.NOT_FOUND
        return OK if request[1] == b"GET" else HTTPStatus.METHOD_NOT_ALLOWED

    async def text(self) -> bytes:
        """The metrics of now."""
        state, told = self._state(), self._told
        if told is None or told[0] is not state:
            self._told = told = state, await asyncio.to_thread(exposition, state, __version__)
        return told[1]


class Asker(asyncio.Protocol):
    """One connection: a request, an answer, the end."""

    def __init__(self, port: MetricsPort) -> None:
        self._port, self._head = port, b""
        self._line: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, if there is room."""
        assert isinstance(transport, asyncio.Transport)
        self._line = transport
        if self._port.came(self):
            self._timer = asyncio.get_running_loop().call_later(LASTS_S, self.end)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Collect the head of a request; what comes behind it is not read."""
        if self._answering is not None or self._line is None:
            return
        self._head += data
        whole = b"\r\n\r\n" in self._head
        if not whole and len(self._head) <= MOST_HEAD:
            return
        self._line.pause_reading()
        asked = self._port.refusal(self._head) if whole and len(self._head) <= MOST_HEAD else BAD
        self._answering = asyncio.get_running_loop().create_task(self._answer(asked))

    async def _answer(self, status: HTTPStatus) -> None:
        body = await self._port.text() if status is OK else f"{status.value} {status.phrase}\n".encode()
        kind = CONTENT_TYPE if status is OK else "text/plain; charset=utf-8"
        allow = "Allow: GET\r\n" if status is HTTPStatus.METHOD_NOT_ALLOWED else ""
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{allow}"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        )
        if self._line is not None:
            self._line.write(head.encode() + body)
            self._line.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._line = None
        self._port.left(self)
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """End it at once, whatever was not sent."""
        if self._answering is not None:
            self._answering.cancel()
        if self._line is not None:
            self._line.abort()


def _is_here(host: bytes) -> bool:
    """Whether a Host header is ``localhost`` or an address, not a name."""
    name = re.sub(rb":\d*$", b"", host).strip(b"[]").decode("latin-1")
    try:
        return name.lower() == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
