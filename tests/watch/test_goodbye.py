"""A process that ends by itself says goodbye; one that an error ends is lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

from collecting import HELLO, SECRET, collecting

CODE = """
import sys
import taut.watch.in_job as in_job
from taut.watch.observed import Observer

Observer.attach = lambda self: "calls"
in_job._hello = lambda *about: {hello}
in_job.Sender.__init__.__globals__["EVERY_S"] = 0.02
assert in_job.start("127.0.0.1:{port}", secret="{secret}")
import time
while not in_job._running[1].sent_bytes:
    time.sleep(0.01)
{last}
"""


@pytest.mark.parametrize(("last", "ended"), [("", True), ("sys.exit(0)", True), ("raise ValueError('of the job')", False)])
def test_a_rank_says_goodbye_when_its_process_ends_by_itself(last: str, ended: bool) -> None:
    with collecting() as running:
        code = CODE.format(hello=HELLO, port=running.port, secret=SECRET.decode(), last=last)
        subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=ended)
        window = running.window()
        running.until(lambda: 0 in window.ranks)
        member = window.ranks[0]
        running.until(lambda: member.ended == ended and not running.collector._sessions)
        assert member.ended == ended
