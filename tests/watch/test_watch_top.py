"""``taut watch top``: once, as JSON, on a terminal until q is pressed; and without a collector."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from live_states import job, state
from taut.cli import main
from taut.result.types import LiveState


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a collector wrote just now."""
    told = state(job(), job(job="another", verdict="nothing found", findings=[]), at_ns=time.time_ns())
    (tmp_path / "live.json").write_bytes(msgspec.json.encode(told))
    return tmp_path


def top(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "100", "TAUT_AUDIT": "off"}).invoke(main, ["watch", "top", *map(str, arguments)])


def test_off_a_terminal_it_prints_once(folder: Path) -> None:
    done = top(folder)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("llm: rank 3 on node0 is slow")
    assert top(folder, "--job", "another", "--once").stdout.startswith("another: nothing found")


def test_colours_are_kept_where_they_are_asked_for(folder: Path) -> None:
    done = CliRunner(env={"FORCE_COLOR": "1", "NO_COLOR": None}).invoke(main, ["watch", "top", str(folder)])
    assert "\x1b[1;31mllm: rank 3" in done.stdout


def test_json_is_what_the_collector_sees(folder: Path) -> None:
    assert msgspec.json.decode(top(folder, "--json").stdout, type=LiveState).jobs[0] == job()


def test_what_is_old_says_so(folder: Path) -> None:
    (folder / "live.json").write_bytes(msgspec.json.encode(state(job(), at_ns=1_700_000_000 * 10**9)))
    assert top(folder).stdout.startswith("nothing is written since 22:13:20 UTC")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--job", "x"), 2, "--job x: not heard; heard are: llm, another"),
        (("elsewhere",), 4, "elsewhere: no collector has written here what it sees; start one: taut watch collect --keep"),
    ],
)
def test_what_is_not_there_is_one_line(folder: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    done = top(*([folder, *arguments] if arguments[0] == "--job" else arguments))
    assert (done.exit_code, done.stderr.count("\n")) == (code, 1)
    assert done.stderr.startswith(f"taut: {says}")


def test_on_a_terminal_it_goes_on_until_q(folder: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    env = {**os.environ, "TERM": "xterm-256color", "TAUT_AUDIT": "off", "PYTHONUTF8": "1"}
    env.pop("COLUMNS", None)
    command = [sys.executable, "-m", "taut", "watch", "top", str(folder)]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=env)
    try:
        shown = b""
        while b"the latest first" not in shown:
            shown += os.read(ours, 1 << 16)
        later = state(job(job="another"), job(verdict="rank 3 is well again"), at_ns=time.time_ns())
        (folder / "new").write_bytes(msgspec.json.encode(later))
        (folder / "new").replace(folder / "live.json")
        while b"llm: rank 3 is well again" not in shown:
            shown += os.read(ours, 1 << 16)
        os.write(ours, b"q")
        assert process.wait(20) == 0
        shown += os.read(ours, 1 << 16)
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.communicate()
        os.close(ours)
        os.close(theirs)
    assert " · ".encode() in shown
    assert shown.index(b"\x1b[?1049h") < shown.index(b"rank 3 on node0 is slow") < shown.index(b"\x1b[?1049l")
