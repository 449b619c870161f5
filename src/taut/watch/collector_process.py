"""The process of a collector: it hears ranks until it is asked to end, and may have as many connections open as it takes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from types import FrameType

from taut.core.signals import GRACE_S
from taut.watch.collect import Collector

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MMAP_THRESHOLD, MAPPED_BYTES = -3, 1 << 17
"""The option of mallopt(3), and bytes from which an array is mapped by itself."""
FILES = 64
"""Open files that are no connections."""


def give_back_memory() -> None:
    """Have memory of arrays go back to the system when they end, and not wait for the next ones: GNU's allocator keeps it."""
    with contextlib.suppress(AttributeError, OSError):  # another system's
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, MAPPED_BYTES)


def run(collector: Collector, listening: socket.socket, metrics: socket.socket | None = None) -> None:
    """Hear ranks until the process is asked to end; then what is held is written, and it ends in its own way."""
    give_back_memory()
    asked = asyncio.run(_run(collector, listening, metrics))
    if asked is not None:
        signal.raise_signal(asked)


async def _run(collector: Collector, listening: socket.socket, metrics: socket.socket | None) -> int | None:
    """The signal that asked the process to end."""
    done = asyncio.Event()
    with _asked(done) as asked:
        await collector.serve(listening, done, metrics)
    return asked[0] if asked else None


@contextlib.contextmanager
def _asked(done: asyncio.Event) -> Iterator[list[int]]:
    """Signals that ask the process to end; at the first it is done, one that comes later ends it at once."""
    loop, asked, first_s = asyncio.get_running_loop(), list[int](), list[float]()

    def stop(number: int, _: FrameType | None) -> None:
        if asked and time.monotonic() - first_s[0] > GRACE_S:
            os._exit(128 + number)
        asked.append(number)
        first_s.append(time.monotonic())
        loop.call_soon_threadsafe(done.set)

    heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]  # nohup, and jobs of a script
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def open_files(wanted: int) -> int:
    """Have the process open so many connections; returns how many it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted + FILES if hard == resource.RLIM_INFINITY else min(wanted + FILES, hard)
    if most > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(most, soft) - FILES
