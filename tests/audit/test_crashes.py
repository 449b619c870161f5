"""A writer that is killed loses nothing that it had acknowledged, at whatever system call it dies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from taut.audit.verify import verify

KILLER = Path(__file__).resolve().parents[1] / "killed_writer.py"


def test_a_writer_killed_at_any_system_call_loses_no_acknowledged_record(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(KILLER), str(tmp_path), "--every", "6"], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] >= 20
    assert (told["lost"], told["damaged"], told["unwritable"]) == (0, 0, 0)
    assert verify(tmp_path / "audit.db").ok
