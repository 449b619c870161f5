"""The app for tests: asked in the process itself, or over a socket as browsers do."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import httpx

from build import analyze, job
from taut.serve.app import make_app
from taut.serve.catalogue import Catalogue
from taut.serve.guard import Door
from taut.serve.listening import bound
from taut.serve.opened import OpenRuns
from taut.serve.routes import House
from taut.serve.server import make_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp

T = TypeVar("T")
TOKEN = "a-token-of-24-characters"
PORT = 8321
HOST = f"127.0.0.1:{PORT}"
BEARER = {"authorization": f"Bearer {TOKEN}"}
SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}


def run_folder(folder: Path, steps: int = 4, slow: dict[int, str] | None = None) -> Path:
    """A run of a small job: rank 1 of two is late."""
    analyze(job(slow or SLOW, steps=steps)).save(folder)
    return folder


class App:
    """The app over some folders, with a loop of its own."""

    def __init__(self, roots: Sequence[Path], log: Path | None = None, **about: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.said: list[str] = []
        self.runs = OpenRuns(Catalogue(roots), **about)
        self.door = Door(TOKEN, port=PORT)
        self.asgi = make_app(House(self.runs, log), self.door, self.said.append)

    def do(self, work: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
        """What a client is answered."""

        async def asked() -> T:
            transport = httpx.ASGITransport(self.asgi)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                return await work(client)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result(60)

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """A GET of somebody who has the token."""
        return self.do(lambda client: client.get(path, headers=BEARER if headers is None else headers))

    def ask(self, method: str, path: str, headers: dict[str, str], content: bytes = b"") -> httpx.Response:
        """Anything, as it stands."""
        return self.do(lambda client: client.request(method, path, headers=headers, content=content))

    def ids(self) -> list[str]:
        """Of the runs in the list."""
        return [one["id"] for one in self.get("/api/runs").json()["runs"]]

    def close(self) -> None:
        """End it."""
        self.runs.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Served(Protocol):
    """What a server can be put before."""

    @property
    def asgi(self) -> ASGIApp:
        """What answers."""


@contextmanager
def listening(app: Served) -> Iterator[tuple[str, int]]:
    """The app behind a real server; the address to connect to."""
    place = bound("127.0.0.1", 0)
    server = make_server(app.asgi)
    thread = threading.Thread(target=server.run, args=([place],), daemon=True)
    address = place.getsockname()[:2]
    thread.start()
    try:
        yield address
    finally:
        server.should_exit = True
        thread.join(10)


def said(address: tuple[str, int], data: bytes) -> bytes:
    """All that a server answers to some bytes, until it closes the connection."""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))
