"""The alert rules that ship: promtool reads them and runs their tests; and what they ask for is told by the collector."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from taut.render.prometheus_export import METRICS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "watch"
ABSENT = "needs prometheus and promtool (apt-get install prometheus)"


@pytest.mark.parametrize("arguments", [("check", "rules", "taut-alerts.yml"), ("test", "rules", "taut-alerts-test.yml")])
def test_promtool_finds_nothing_wrong(arguments: tuple[str, ...]) -> None:
    if not shutil.which("promtool"):
        pytest.skip(ABSENT)
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["taut-alerts.yml", "taut-alerts-test.yml", "taut-dashboard.json"])
def test_only_metrics_that_are_told_are_asked_for(name: str) -> None:
    asked = set(re.findall(r"\btaut_\w+", (FOLDER / name).read_text(encoding="utf-8")))
    assert asked
    assert asked <= set(METRICS)
