"""Processes of taut in bad surroundings: full disks, closed streams, little memory, signals. The answer survives."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from op_tables import op_table
from stores import step_times
from taut.cli import main

MB = 1 << 20
SCALES = "1536,3072,6144,12288,24576,49152,98304,131040"
"""Of gpt-175b: seconds of work, to be interrupted."""


def taut_(
    *args: object, cwd: Path, before: Callable[[], None] | None = None, **streams: int
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with limits set by ``before``."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(
        [sys.executable, "-m", "taut", *map(str, args)],
        cwd=cwd,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
        **given,
    )


def limit(kind: int, to: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (to, to))


def small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def started(cwd: Path, *args: str) -> subprocess.Popen[str]:
    """A command that has begun; interrupts reach it, whoever started the tests."""
    return subprocess.Popen(
        [sys.executable, "-m", "taut", *args], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("table") / "ops.csv"
    path.write_text(op_table(), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("options", "code"), [((), 0), (("-o", "run"), 1), (("--json",), 0), (("--json", "-o", "run"), 1)])
def test_a_run_folder_that_does_not_fit_costs_no_answer(
    tmp_path: Path, table: str, options: tuple[str, ...], code: int
) -> None:
    done = taut_("analyze", table, "-q", *options, cwd=tmp_path, before=small_files)
    assert done.returncode == code
    assert ("{" if "--json" in options else "Findings") in done.stdout
    (line,) = done.stderr.splitlines()
    assert "the run folder was not written: " in line
    assert "-o" in line
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path: Path, table: str) -> None:
    tmp_path.chmod(0o555)
    done = taut_("analyze", table, "-q", cwd=tmp_path)
    root = os.geteuid() == 0  # who may write everywhere
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 0 if root else 1)
    assert "Findings" in done.stdout
    tmp_path.chmod(0o755)


def test_a_place_that_is_no_folder_costs_no_answer(tmp_path: Path, table: str) -> None:
    done = taut_("analyze", table, "-q", "-o", "/dev/null/run", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "Findings" in done.stdout


def test_control_and_evidence_print_before_they_write(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("2026-01-01T00:00:01Z hpa replicas=3 web\n2026-01-01T00:00:02Z ops replicas=1 web\n")
    control = taut_("control", "a.log", "-o", "run", cwd=tmp_path, before=limit(resource.RLIMIT_FSIZE, 10))
    evidence = taut_("project", "gpt-175b", "-q", "--evidence", "there", cwd=tmp_path, before=small_files)
    for done in (control, evidence):
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
        assert "was not written: " in done.stderr
        assert "File too large" in done.stderr
        assert done.stdout
    assert [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")] == []


@pytest.mark.usefixtures("small_demo")
def test_no_save_writes_nothing_and_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    done = CliRunner().invoke(main, ["demo", "--no-save"])
    assert done.exit_code == 0
    assert list(here.iterdir()) == []
    cost, last = done.stderr.splitlines()[-2:]
    assert cost.startswith("what it cost: the same with -o RUN, then taut bill RUN --prices ")
    assert last.startswith("next: the same with -o RUN, then taut export RUN --to html")
    both = CliRunner().invoke(main, ["demo", "--no-save", "-o", "run"])
    assert (both.exit_code, len(both.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    "verb", [("demo",), ("whatif", "RUN", "--fix", "rank=1"), ("project", "gpt-175b"), ("project", "--list")]
)
@pytest.mark.parametrize("megabytes", [150, 250, 400, 700])
def test_too_little_memory_is_one_line(demo_run: Path, tmp_path: Path, verb: tuple[str, ...], megabytes: int) -> None:
    asked = [str(demo_run) if part == "RUN" else part for part in verb]
    done = taut_(*asked, cwd=tmp_path, before=limit(resource.RLIMIT_AS, megabytes * MB))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("taut: not enough memory: the address space is limited")
    assert "ulimit -v 1000000" in done.stderr


def test_help_needs_little_memory(tmp_path: Path) -> None:
    assert taut_("--help", cwd=tmp_path, before=limit(resource.RLIMIT_AS, 200 * MB)).returncode == 0


def test_the_least_memory_is_enough_for_a_small_job(tmp_path: Path) -> None:
    done = taut_("demo", "-q", cwd=tmp_path, before=limit(resource.RLIMIT_AS, 1_000_000 << 10))
    assert (done.returncode, done.stderr) == (0, "")


def closed(*numbers: int) -> Callable[[], None]:
    return lambda: [os.close(number) for number in numbers] and None


@pytest.mark.parametrize("numbers", [(1,), (2,), (1, 2), (0, 1, 2)])
def test_closed_streams_are_no_error_and_get_into_no_file(tmp_path: Path, table: str, numbers: tuple[int, ...]) -> None:
    done = taut_("analyze", table, "-o", "run", cwd=tmp_path, before=closed(*numbers))
    assert done.returncode == 0
    assert json.loads((tmp_path / "run" / "run.json").read_bytes())["result"]
    assert CliRunner().invoke(main, ["whatif", str(tmp_path / "run"), "--fix", "rank=1"]).exit_code == 0


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--fail-on", "0.05"), 3)])
def test_a_reader_who_leaves_early_takes_the_exit_code_with_him(
    tmp_path: Path, table: str, options: tuple[str, ...], code: int
) -> None:
    read, write = os.pipe()
    os.close(read)
    done = taut_("analyze", table, "-q", "-o", "run", *options, cwd=tmp_path, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (code, "")
    assert (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("args", [("analyze", "TABLE", "-q", "-o", "run"), ("--help",), ("whatif", "RUN", "--fix", "rank=1")])
def test_a_full_standard_output_is_one_line_and_exit_1(
    demo_run: Path, table: str, tmp_path: Path, args: tuple[str, ...]
) -> None:
    places = {"RUN": demo_run, "TABLE": table}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = taut_(*(places.get(part, part) for part in args), cwd=tmp_path, stdout=full.fileno())
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "No space left on device" in done.stderr
    assert "-o" not in args or (tmp_path / "run" / "run.json").exists()


def test_output_that_is_cut_is_reported(tmp_path: Path, table: str) -> None:
    """Also where Python does not buffer, and would drop the rest."""
    command = f"PYTHONUNBUFFERED=1 {sys.executable} -m taut analyze {table} -q --no-save > out.txt"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, preexec_fn=small_files, check=False)
    assert done.returncode == 1
    assert b"standard output: cannot be written (File too large)" in done.stderr


@pytest.mark.parametrize(("number", "code", "message"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.2, 0.5])
def test_a_signal_ends_in_one_line(tmp_path: Path, number: str, code: int, message: str, after_s: float) -> None:
    process = started(tmp_path, "project", "gpt-175b", "--envelope", "--ranks", SCALES, "-q")
    while not listens(process.pid):
        time.sleep(0.005)
    time.sleep(after_s)
    process.send_signal(signal.Signals[number])
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (code, "", f"taut: {message}\n")
    assert list(tmp_path.iterdir()) == []


def listens(pid: int) -> bool:
    """Whether taut runs yet: it handles the signal of timers, which Python alone does not."""
    (caught,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGALRM - 1) & 1)


def test_signals_that_the_caller_ignores_stay_ignored(tmp_path: Path, table: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "taut", "analyze", table, "-q"], cwd=tmp_path, stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None,
    )  # fmt: skip
    while not listens(process.pid):
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(("number", "left"), [("SIGTERM", 2), ("SIGKILL", 2), ("SIGINT", 0)])
def test_what_was_read_outlives_a_kill_and_no_interrupt(tmp_path: Path, number: str, left: int) -> None:
    for rank in range(2):
        (tmp_path / f"worker{rank}.csv").write_bytes(step_times(rank))
    os.mkfifo(tmp_path / "never")  # nobody writes there: reading stops at it
    process = started(tmp_path, "analyze", "worker0.csv", "worker1.csv", "never", "-o", "run", "--resume")
    kept = tmp_path / ".run.reading"
    while not (kept.exists() and len([one for one in kept.iterdir() if one.suffix == ".read"]) == 2):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.Signals[number])
    process.communicate(timeout=60)
    assert len(list(kept.iterdir()) if kept.exists() else []) == left
