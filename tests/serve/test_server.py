"""Over a real socket: slow clients are let go, many are served, what is no HTTP is refused."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from served_app import BEARER, TOKEN, App, listening, said
from taut.core.errors import UsageError
from taut.serve import server
from taut.serve.guard import CSP, MOST_BODY
from taut.serve.listening import bound, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEAD = f"GET /api/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n".encode()

OURS = f"host: localhost\r\norigin: http://localhost\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n"


@pytest.fixture
def address(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    for name in ("HEAD_S", "STALL_S", "KEEP_ALIVE_S"):
        monkeypatch.setattr(server, name, 0.3)
    with listening(app) as found:
        yield found


def test_an_answer(address: tuple[str, int]) -> None:
    found = said(address, HEAD + b"connection: close\r\n\r\n")
    head, _, body = found.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert CSP.encode() in head
    assert b"\nserver:" not in head.lower()
    assert b"\ndate:" not in head.lower()
    assert body.startswith(b'{"version":')


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /api/runs HT",
        HEAD,
        b"POST /api/runs/0/decide HTTP/1.1\r\nhost: localhost\r\n",
        HEAD + b"content-length: 10\r\n\r\n",
        HEAD + b"\r\n",
        HEAD + b"\r\nGET /api",
    ],
)
def test_who_sends_slowly_is_let_go(address: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(sent)
        while not closed(connection):
            pass


def closed(connection: socket.socket) -> bool:
    """Whether the server has closed a connection, or does so while it is waited for."""
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_byte_after_byte_is_slow_too(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=0.05) as connection:
        for byte in HEAD:
            connection.sendall(bytes([byte]))
            if closed(connection):
                return
    raise AssertionError("a head of a minute was waited for")


def test_a_body_that_comes_slowly_is_not_waited_for(address: tuple[str, int], app: App) -> None:
    head = f"POST /api/runs/{app.ids()[0]}/decide HTTP/1.1\r\n{OURS}content-length: 100\r\n\r\n{{"
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(head.encode())
        assert closed(connection)


def test_a_long_body_is_refused_before_it_is_sent(address: tuple[str, int], app: App) -> None:
    head = f"POST /api/runs/{app.ids()[0]}/decide HTTP/1.1\r\n{OURS}content-length: {MOST_BODY + 1}\r\n\r\n"
    assert said(address, head.encode()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "sent",
    [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET  / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
     HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
     HEAD + b"x: " + b"y" * 70_000 + b"\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_refused(address: tuple[str, int], sent: bytes) -> None:
    found = said(address, sent)
    assert found.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ", b"HTTP/1.1 431 "))
    assert CSP.encode() in found


def test_no_websockets(address: tuple[str, int]) -> None:
    found = said(address, HEAD + b"connection: upgrade, close\r\nupgrade: websocket\r\nsec-websocket-key: eA==\r\n\r\n")
    assert b" 101 " not in found.partition(b"\r\n")[0]


def test_two_hundred_clients_at_once(app: App) -> None:
    async def asked(address: tuple[str, int]) -> list[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{address[1]}", limits=limits, timeout=60) as client:
            name = (await client.get("/api/runs", headers=BEARER)).json()["runs"][0]["id"]
            paths = ("/api/runs", f"/api/runs/{name}/overview", f"/api/runs/{name}/decisions", "/api/runs/0/axis")
            return [
                one.status_code for one in await asyncio.gather(*(client.get(paths[k % 4], headers=BEARER) for k in range(200)))
            ]

    with listening(app) as address:
        assert sorted(asyncio.run(asked(address))) == [200] * 150 + [404] * 50


class Slow:
    """Answers ``/slow`` once it is released, and everything else at once."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.asked = threading.Semaphore(0)

    @property
    def asgi(self) -> ASGIApp:
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        if scope["path"] == "/slow":
            self.asked.release()
            await asyncio.to_thread(self.release.wait, 30)
        await send({"type": "http.response.body", "body": b"ok"})


@dataclass(frozen=True)
class Small:
    """A slow app behind a server that takes four connections."""

    app: Slow
    address: tuple[str, int]
    open_ones: ExitStack

    def ask(self, path: str = "") -> socket.socket:
        """A new connection that asks for a path, or for nothing; once a slow answer is under way."""
        connection = self.open_ones.enter_context(socket.create_connection(self.address, timeout=10))
        if path:
            connection.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert path != "/slow" or self.app.asked.acquire(timeout=10)
        return connection


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(server, "most_connections", lambda: 4)
    app = Slow()
    with listening(app) as address, ExitStack() as open_ones:
        yield Small(app, address, open_ones)
        app.release.set()


def body(connection: socket.socket) -> bytes:
    """What a connection is answered, behind the head; nothing where it was closed before."""
    found = b""
    while not found.endswith(b"\r\n\r\nok"):
        try:
            part = connection.recv(65536)
        except ConnectionError:
            return b""
        if not part:
            return b""
        found += part
    return b"ok"


def test_silent_strangers_lock_nobody_out(small: Small) -> None:
    strangers = [small.ask() for _ in range(4)]
    for stranger in strangers[:3]:
        assert body(small.ask("/")) == b"ok"
        assert closed(stranger)


def test_a_newcomer_takes_the_place_of_the_oldest_that_is_not_being_answered(small: Small) -> None:
    slow, answered, silent, youngest = small.ask("/slow"), small.ask("/"), small.ask(), small.ask()
    assert body(answered) == b"ok"
    assert body(small.ask("/")) == b"ok"
    assert closed(answered)
    assert body(small.ask("/")) == b"ok"
    assert closed(silent)
    small.app.release.set()
    assert body(slow) == b"ok"
    youngest.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert body(youngest) == b"ok"


def test_where_all_are_being_answered_the_oldest_goes(small: Small) -> None:
    slow_ones = [small.ask("/slow") for _ in range(4)]
    assert body(small.ask("/")) == b"ok"
    small.app.release.set()
    assert [body(one) for one in slow_ones] == [b"", b"ok", b"ok", b"ok"]


def test_a_port_that_is_taken(runs: Path) -> None:
    first = bound("127.0.0.1", 0)
    port = first.getsockname()[1]
    with pytest.raises(UsageError, match="give another --port"):
        bound("127.0.0.1", port)
    assert first.proto == socket.IPPROTO_TCP  # else asyncio does not set TCP_NODELAY, and answers take 40 ms more
    second = bound("127.0.0.1", port, other=True)
    assert second.getsockname()[1] != port
    for one in (first, second):
        one.close()


@pytest.mark.parametrize(
    ("host", "only_here"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("0.0.0.0", False),
        ("box", False),
        ("", False),
    ],
)
def test_loopback(host: str, only_here: bool) -> None:
    assert is_loopback(host) == only_here
