"""Which files were read, by digest: noted while they are read, for whoever collects it. Without a collector nothing is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Seen(NamedTuple):
    """A file that was read."""

    name: str
    """Without its folder."""
    sha256: str


_collector: ContextVar[list[Seen] | None] = ContextVar("seen inputs", default=None)
HEX_DIGITS = 64


@contextmanager
def collected() -> Iterator[list[Seen]]:
    """What is read in this block."""
    seen: list[Seen] = []
    token = _collector.set(seen)
    try:
        yield seen
    finally:
        _collector.reset(token)


def note(name: str, sha256: str) -> None:
    """A file was read to its end; one that was cut short has no digest, and is not noted."""
    seen = _collector.get()
    if seen is not None and len(sha256) == HEX_DIGITS:
        seen.append(Seen(name, sha256))
