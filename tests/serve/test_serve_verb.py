"""``taut serve`` as a process: one line with the address, an answer, and an end that is an interruption."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from taut.cli import main

LINE = re.compile(r"serving (.*) at http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32}) \(Ctrl-C ends it\)\n")


@contextmanager
def process(*arguments: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "taut", "serve", *arguments]
    started = subprocess.Popen(command, cwd=cwd, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize(
    ("number", "says"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated"), (signal.SIGHUP, "terminated")]
)
def test_from_start_to_end(runs: Path, number: signal.Signals, says: str) -> None:
    with process("--no-open", "--port", "0", cwd=runs.parent) as server:
        assert server.stderr is not None
        found = LINE.fullmatch(server.stderr.readline())
        assert found is not None
        assert found[1] == "taut-runs"
        address = f"http://127.0.0.1:{found[2]}"
        assert httpx.get(f"{address}/api/runs").status_code == 401
        with httpx.Client(follow_redirects=True) as browser:
            page = browser.get(f"{address}/?token={found[3]}")
            assert (page.status_code, page.url.path, page.url.query) == (200, "/", b"")
            assert len(browser.get(f"{address}/api/runs").json()["runs"]) == 1
        os.kill(server.pid, number)
        out, err = server.communicate(timeout=30)
        assert (server.returncode, out, err) == (128 + number, "", f"taut: {says}\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "nowhere: is no folder"),
        ([], "taut-runs: there is no such folder here"),
        ([".", "--host", "0.0.0.0"], "--host 0.0.0.0: others could reach it; give --token"),
        ([".", "--host", "::"], "--host ::: others could reach it; give --token"),
        (
            [".", "--host", "example.invalid", "--token", "0123456789abcdef"],
            "--host example.invalid: no address of this machine; give one that `hostname -I` lists",
        ),
        ([".", "--token", "short"], "--token: give at least 16 characters"),
        ([".", "--port", "70000"], "Invalid value for '--port'"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(main, ["serve", "--no-open", *arguments])
    assert found.exit_code == 2
    assert says in found.stderr
    assert found.stderr.count("\n") == 1


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    really = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else really(name))
    found = CliRunner().invoke(main, ["serve", str(tmp_path)])
    assert (found.exit_code, found.stderr) == (
        1, "taut: taut serve needs uvicorn, which is not installed: pip install 'taut[serve]'\n",
    )  # fmt: skip


def test_nothing_is_recorded(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_AUDIT", "on")
    monkeypatch.chdir(runs.parent)
    CliRunner().invoke(main, ["serve", "taut-runs", "--token", "short"])
    assert not (runs / "audit.db").exists()
