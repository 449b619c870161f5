"""How a rank begins and ends: whom nobody hears says so once; a process that ends by itself says goodbye."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from collecting import HELLO, JOB_SECRET, collecting
from taut.serve.listening import bound
from taut.watch.event_ring import Ring
from taut.watch.observed import Observer
from taut.watch.sender import NOT_HEARD, Sender
from taut.watch.wire import Json

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
        code = CODE.format(hello=HELLO, port=running.port, secret=JOB_SECRET.decode(), last=last)
        subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=ended)
        window = running.window()
        running.until(lambda: 0 in window.ranks)
        member = window.ranks[0]
        running.until(lambda: member.ended == ended and not running.collector._sessions)
        assert member.ended == ended


@pytest.mark.parametrize(
    ("rank", "secret", "says"),
    [
        (0, "another secret of sixteen", "taut watch collect --secret-for job prints it"),
        (1, "another secret of sixteen", ""),
        (0, "", ""),
    ],
)
def test_a_rank_that_is_refused_says_so_once_and_only_rank_0(
    rank: int, secret: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("taut.watch.sender.EVERY_S", 0.02)
    monkeypatch.setattr("taut.watch.sender.LONGEST_PAUSE_S", 0.02)
    with collecting() as running:
        about: Json = {**HELLO, "rank": rank}  # type: ignore[dict-item]
        key = secret.encode() or JOB_SECRET
        sender = Sender(Observer(Ring(64)), ("127.0.0.1", running.port), key, lambda: about)
        sender.start()
        running.until(lambda: sender.refused > 2 * NOT_HEARD if secret else sender.sent_bytes > 1000)
        sender.stop()
    assert says in capsys.readouterr().err


def test_an_address_where_nobody_listens_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("taut.watch.sender.EVERY_S", 0.02)
    monkeypatch.setattr("taut.watch.sender.LONGEST_PAUSE_S", 0.02)
    with bound("127.0.0.1", 0) as free:
        port = int(free.getsockname()[1])
    sender = Sender(Observer(Ring(64)), ("127.0.0.1", port), JOB_SECRET, lambda: {**HELLO})  # type: ignore[dict-item]
    sender.start()
    end = time.monotonic() + 10
    while sender.refused <= 2 * NOT_HEARD and time.monotonic() < end:
        time.sleep(0.01)
    sender.stop()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"127.0.0.1:{port} does not answer (Connection refused)" in said
