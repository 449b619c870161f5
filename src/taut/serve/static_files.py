"""Scripts, style and icon of the pages. Vega's bundle is put together by another process: that takes seconds, and holds up all
threads of the process that does it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

VEGA = "vega.js"
MADE = "import sys; from taut.render.page.bundle import vega; sys.stdout.buffer.write(vega())"
PATIENCE_S = 120

_lock = threading.Lock()


@cache
def _begun() -> Future[bytes]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="taut-vega")
    made = pool.submit(_bundle)
    pool.shutdown(wait=False)
    return made


def prepare() -> Future[bytes]:
    """Begin to put Vega's bundle together, once."""
    with _lock:
        return _begun()


def static_file(name: str) -> tuple[bytes, str]:
    """A file and its content type; raises ``KeyError`` for all that is not on the list. To be called in a thread."""
    from taut.render.page import bundle

    return (prepare().result(), bundle.STATIC[name]) if name == VEGA else bundle.static(name)


def _bundle() -> bytes:
    command = [sys.executable, "-c", MADE]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=False)
    if done.returncode == 0 and done.stdout:
        return done.stdout
    from taut.render.page.bundle import vega

    return vega()  # as slowly as it is, or with the line that says what is missing
