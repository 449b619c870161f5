"""Code of the looks at jobs, compiled before the first look needs it: once in an installation that takes half a minute.

Another process does it, because the compiler takes 300 MB and gives nothing back; here its code is loaded before looks begin.
Where code cannot be kept, it is compiled here.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading

from taut.core.jit import expect
from taut.lab.live_jobs import LiveJob, Played
from taut.watch.live_findings import Live

MANY_OPS = 1 << 20
STEPS, SINCE = 90, 50
COMMAND = "from taut.watch.compiled_ahead import look_at_a_fault; look_at_a_fault()"


class Compiling:
    """Has a small modelled job looked at, by another process and then in a thread: what that compiles is kept."""

    def __init__(self) -> None:
        self._other: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # no more processes may be begun: it is compiled here
            command, nowhere = [sys.executable, "-c", COMMAND], subprocess.DEVNULL
            self._other = subprocess.Popen(command, stdin=nowhere, stdout=nowhere, stderr=nowhere)
        self._thread = threading.Thread(target=self._load, name="taut-compile", daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        """Whether looks find their code compiled."""
        return not self._thread.is_alive()

    def close(self) -> None:
        """End the other process."""
        if self._other is not None:
            self._other.kill()

    def _load(self) -> None:
        if self._other is None or self._other.wait() >= 0:  # it was not killed
            look_at_a_fault()


def look_at_a_fault() -> None:
    """Look at a modelled job with a fault until it is named, as looks at large jobs do."""
    expect(MANY_OPS)
    job = LiveJob(8, seed=1, fault="slow", since=SINCE, strength=0.4)
    played = Played(job)
    live = Live(played.new)
    while job.step < STEPS:
        live.look(played.now_ns)
