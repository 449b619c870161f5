"""Text as Windows saves it: behind a byte-order mark, or as UTF-16, of which the mark may be lost."""

from __future__ import annotations

import codecs
import io
import re
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BOM = b"\xef\xbb\xbf"
CHUNK_BYTES = 64 << 10
_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_WIDE = re.compile(rb"(?:[\t\r\n -~]\x00){32}")


def wide(head: bytes) -> str | None:
    """The encoding of text whose signs are two bytes wide; None for other bytes."""
    return _MARKS.get(head[:2]) or ("utf-16-le" if _WIDE.match(head) else None)


class Recoded(io.RawIOBase):
    """Text that Windows wrote as UTF-16, as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder(encoding)("replace")
        self._pending = b""

    def readable(self) -> bool:
        """Always: there is no other use for it."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Decode up to a buffer full."""
        while not self._pending:
            chunk = self._stream.read(CHUNK_BYTES)
            self._pending = self._decoder.decode(chunk, final=not chunk).encode("utf-8", "replace")
            if not chunk and not self._pending:
                return 0
        view = memoryview(buffer).cast("B")
        size = min(len(self._pending), len(view))
        view[:size], self._pending = self._pending[:size], self._pending[size:]
        return size
