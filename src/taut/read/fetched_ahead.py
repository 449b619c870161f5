"""Small files at addresses, fetched side by side, a little ahead of whoever reads them one after the other.

To ask a store for a small file takes longer than to read it. Whatever fails here is no failure: the file is then read as any
other, which asks again, waits and says what is wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from taut.read import remote

if TYPE_CHECKING:
    from concurrent.futures import Future

SMALL_BYTES = 1 << 20
"""Larger files are read in blocks where they lie."""
AT_ONCE, AHEAD_FILES, AHEAD_BYTES = 16, 64, 32 << 20
"""Files that are asked for at once; and files and bytes that are fetched, or asked for, before they are read."""


def fetched(paths: Sequence[str], sizes_bytes: Sequence[int]) -> Iterator[bytes | None]:
    """The bytes of each input, in their order; None for one that is to be read where it lies."""
    known = [(path, size) for path, size in zip(paths, sizes_bytes, strict=True) if remote.is_address(path)]
    small = deque((path, size) for path, size in known if 0 < size <= SMALL_BYTES)
    if len(small) < 2:
        yield from [None] * len(paths)
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="taut-fetch")
    under_way: dict[str, tuple[Future[bytes | None], int]] = {}
    room_bytes = AHEAD_BYTES
    try:
        for path in paths:
            while small and len(under_way) < AHEAD_FILES and small[0][1] <= room_bytes:
                ahead, size = small.popleft()
                fetch = remote.fetcher(ahead, SMALL_BYTES)
                if fetch is not None:
                    under_way[ahead] = pool.submit(fetch), size
                    room_bytes -= size
            found, size = under_way.pop(path, (None, 0))
            yield None if found is None else found.result()
            room_bytes += size
    finally:  # whoever was interrupted waits for nobody
        pool.shutdown(wait=False, cancel_futures=True)
