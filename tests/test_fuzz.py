"""A short run of the fuzzer with a fixed seed, over all targets, and every seed that once broke something."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASES = 220
"""Of each share: some seconds."""
SHARES = 4


def fuzz(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "bench" / "fuzz.py"), *map(str, args)]
    environment = {**os.environ, "TAUT_SHARED": "/nowhere"}  # a run is the same on every machine
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)


@cache
def targets() -> list[str]:
    return fuzz("--list").stdout.split()


@pytest.mark.parametrize("share", range(SHARES))
def test_mutated_inputs_are_read_or_refused(share: int, tmp_path: Path) -> None:
    """Kernels run as Python that refuses indices out of bounds; what is found lies in the output."""
    chosen = [word for name in targets()[share::SHARES] for word in ("--target", name)]
    done = fuzz("--plain", "--jobs", 1, "--seed", 16, "--cases", CASES, "--out", tmp_path, *chosen)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mode", ["--plain", "--small"])
def test_what_once_broke_something_no_longer_does(mode: str) -> None:
    done = fuzz("--kept", mode)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_target_has_seeds_that_are_accepted() -> None:
    done = fuzz("--seeds", "--small")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_case_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    made = []
    for k in range(2):
        fuzz("--target", "op-table", "--seed", 3, "--case", 5, "--small", "--show", tmp_path / str(k))
        made.append({path.name: path.read_bytes() for path in sorted((tmp_path / str(k)).rglob("*.csv"))})
    assert made[0] == made[1]
    assert made[0]
