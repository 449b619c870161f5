"""Inflating gzip: by ISA-L where it is installed, which takes a third of the time of zlib, else by zlib."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, cast

__all__ = ["Damaged", "inflater"]
GZIP = 31
"""What both libraries call a gzip header with any window."""


class Inflater(Protocol):
    """One member of a gzip stream that is being inflated."""

    @property
    def unconsumed_tail(self) -> bytes:
        """What was put in and not taken yet."""

    @property
    def unused_data(self) -> bytes:
        """What came behind the end of the member."""

    @property
    def eof(self) -> bool:
        """Whether the member is at its end."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many of the bytes that come next."""


def _by_zlib() -> Inflater:
    return zlib.decompressobj(wbits=GZIP)


inflater: Callable[[], Inflater] = _by_zlib
"""What inflates the next member of a gzip stream; below, what it raises where that is damaged."""
Damaged: type[Exception] = zlib.error

with suppress(ImportError):  # a processor that it is not made for
    from isal import isal_zlib

    def _by_isal() -> Inflater:
        return isal_zlib.decompressobj(wbits=GZIP)

    inflater = _by_isal
    Damaged = cast("type[Exception]", isal_zlib.error)  # its stub calls the class an instance
