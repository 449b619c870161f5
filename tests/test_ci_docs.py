"""The workflow of docs/ci.md: it is YAML, and its commands of taut end as the page says, on real runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "ci.md"


def workflow() -> dict[str, Any]:
    import yaml

    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    told = yaml.safe_load(found[1])
    assert isinstance(told, dict)
    return told


def commands() -> list[str]:
    steps = workflow()["jobs"]["step-time"]["steps"]
    return [step["run"] for step in steps if step.get("run", "").startswith("taut ")]


def run(command: str, folder: Path) -> int:
    """A command as a runner runs it; ``taut`` is this one."""
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), "PYTHON": sys.executable}
    told = f'taut() {{ "$PYTHON" -m taut "$@"; }}; {command}'
    return subprocess.run(["bash", "-ec", told], cwd=folder, env=environment, timeout=300, check=False).returncode


def test_the_workflow_restores_what_it_saved_and_judges_only_then() -> None:
    steps = workflow()["jobs"]["step-time"]["steps"]
    restored, saved = (next(one for one in steps if f"cache/{way}" in one.get("uses", "")) for way in ("restore", "save"))
    assert restored["with"]["path"] == saved["with"]["path"] == "baseline"
    assert saved["with"]["key"].startswith(restored["with"]["restore-keys"])
    judged = next(one for one in steps if "compare" in one.get("run", ""))
    assert judged["if"] == "hashFiles('baseline/run.json') != ''"


@pytest.mark.parametrize(("traces", "code"), [("lab-baseline", 0), ("lab-slow-rank", 3)])
def test_its_commands_end_as_the_page_says(shared: Path, tmp_path: Path, traces: str, code: int) -> None:
    analyze, compare = commands()
    (tmp_path / "traces").symlink_to(shared / "lab-baseline")
    assert run(analyze, tmp_path) == 0
    (tmp_path / "now").rename(tmp_path / "baseline")
    (tmp_path / "traces").unlink()
    (tmp_path / "traces").symlink_to(shared / traces)
    assert run(analyze, tmp_path) == 0
    assert run(compare, tmp_path) == code
    summary = (tmp_path / "summary.md").read_text("utf-8")
    assert summary.count("# taut analyze") == 2
    assert f"--fail-on 0.05 (longer by 5.0 % at least): {'reached' if code else 'not reached'}" in summary
    shutil.rmtree(tmp_path / "baseline")
    assert run(compare, tmp_path) == 1
