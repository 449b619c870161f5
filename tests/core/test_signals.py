"""Signals in a process that listens: held where a step must not be torn apart, raised right after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HELD = """
import os, signal, subprocess, sys
from taut.core import signals
signals.listen()
try:
    with signals.Held():
        os.kill(os.getpid(), signal.{name})
        child = subprocess.run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT); print(1)"])
        print("whole", child.returncode, flush=True)
    print("never", flush=True)
except signals.Stopped:
    signals.leave()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_held_step_is_finished_first_and_its_children_hear_no_interrupt(tmp_path: Path, name: str, code: int) -> None:
    command = [sys.executable, "-c", HELD.replace("{name}", name)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (code, "1\nwhole 0\n")
    assert done.stderr in ("taut: interrupted\n", "taut: terminated\n")


LOST = """
from taut.core import signals
import os, signal
signals.listen()
class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
try:
    one = Swallows()
    del one
    while True: pass
except signals.Stopped:
    signals.leave()
"""


def test_an_interrupt_in_a_destructor_is_raised_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LOST], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "taut: interrupted\n")


def test_a_timer_that_is_due_before_it_is_set_loses_no_interrupt(tmp_path: Path) -> None:
    """As on a busy machine, where a process may not run for longer than the timer takes."""
    late = "set_timer = signal.setitimer\ntimes = [1e-6]\n"
    late += "signal.setitimer = lambda which, s: set_timer(which, times.pop() if times else s)\n"
    code = LOST.replace("signals.listen()\n", f"signals.listen()\n{late}")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (130, "taut: interrupted\n")
