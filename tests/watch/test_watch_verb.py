"""``taut watch collect`` as a process: it needs a secret, hears a rank, and ends as it is asked to."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from collecting import SECRET, Line, event
from taut.cli import main
from taut.cli.watch_verb import json_line
from taut.result.types import LiveFinding

LINE = re.compile(r"watching at 127\.0\.0\.1:(\d+), for this machine only \(Ctrl-C ends it\)\n")


@contextmanager
def process(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "taut", "watch", "collect", "--port", "0", *arguments]
    env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode()}
    started = subprocess.Popen(command, cwd=cwd, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize(("number", "code", "says"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")])
def test_from_start_to_end(tmp_path: Path, number: signal.Signals, code: int, says: str) -> None:
    with process("--json", cwd=tmp_path) as collector:
        assert collector.stderr is not None
        found = LINE.fullmatch(collector.stderr.readline())
        assert found is not None
        line = Line(int(found[1])).hello()
        line.name()
        line.events(event(begin=time.monotonic_ns()))
        assert collector.stderr.readline() == "job: a job begins to be heard\n"
        collector.send_signal(number)
        out, err = collector.communicate(timeout=20)
        line.close()
    assert (collector.returncode, out, err) == (code, "", f"taut: {says}\n")
    (kept,) = (tmp_path / "taut-runs" / "watch").glob("steps-*.jsonl")
    assert json.loads(kept.read_text())["received"] == 1


def test_a_port_for_metrics_that_is_taken_is_said_in_a_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process("--metrics-port", str(port), cwd=tmp_path) as collector:
            _, said = collector.communicate(timeout=30)
    why = f"127.0.0.1:{port}: cannot be listened at (Address already in use); give another --metrics-port or --metrics-host"
    assert (collector.returncode, said) == (2, f"taut: {why}\n")


@pytest.mark.parametrize(("secret", "says"), [(None, "is not set"), ("short", "has 5 characters")])
def test_without_a_secret_it_does_not_start(secret: str | None, says: str) -> None:
    result = CliRunner(env={"TAUT_WATCH_SECRET": secret}).invoke(main, ["watch", "collect"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"taut: TAUT_WATCH_SECRET {says}: give at least 16")
    assert result.stderr.count("\n") == 1


def test_a_finding_is_one_line_that_is_safe_to_show() -> None:
    told = LiveFinding(
        at_ns=1, id="f", job="evil\x1b[2J\njob", mode="hang", state="open", ranks=[3], hosts=[None], links=["2:1"],
        since_step=None, delay_steps=None, money_per_hour="2.50", currency="EUR", false_alarms_per_hour=0.01,
        cannot_see=["device time"],
    )  # fmt: skip
    line = json_line(told)
    assert line.count(b"\n") == 1
    assert b"\x1b" not in line
    assert msgspec.json.decode(line, type=LiveFinding) == told
