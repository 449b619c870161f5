"""Code of the looks at jobs, compiled before the first look needs it: once in an installation that takes half a minute."""

from __future__ import annotations

import threading

from taut.core.jit import expect
from taut.lab.live_jobs import LiveJob, Played
from taut.watch.live_findings import Live

MANY_OPS = 1 << 20
STEPS, SINCE = 90, 50
_begun = threading.Event()


def compile_ahead() -> None:
    """Have a small modelled job looked at, in a thread, once in this process: what that compiles is kept."""
    if not _begun.is_set():
        _begun.set()
        threading.Thread(target=_look_at_a_fault, name="taut-compile", daemon=True).start()


def _look_at_a_fault() -> None:
    expect(MANY_OPS)
    job = LiveJob(8, seed=1, fault="slow", since=SINCE, strength=0.4)
    played = Played(job)
    live = Live(played.new)
    while job.step < STEPS:
        live.look(played.now_ns)
