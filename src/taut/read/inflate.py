"""Inflating gzip: by ISA-L where it is installed, which takes a third of the time of zlib, else by zlib."""

from __future__ import annotations

from typing import Protocol

try:
    from isal.isal_zlib import decompressobj
    from isal.isal_zlib import error as Damaged
except ImportError:  # a processor that it is not made for
    from zlib import decompressobj
    from zlib import error as Damaged

__all__ = ["Damaged", "inflater"]
GZIP = 31
"""What both libraries call a gzip header with any window."""


class Inflater(Protocol):
    """One member of a gzip stream that is being inflated."""

    unconsumed_tail: bytes
    unused_data: bytes
    eof: bool

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """At most so many of the bytes that come next."""


def inflater() -> Inflater:
    """What inflates the next member of a gzip stream."""
    found: Inflater = decompressobj(wbits=GZIP)
    return found
