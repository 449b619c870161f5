"""What every test may ask for: the shared data, and a quiet, repeatable hypothesis."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    import taut

ROOT = Path(__file__).resolve().parents[1]
SHARED_ABSENT = "needs ../shared/data (not part of a user's clone)"

os.environ["TAUT_AUDIT"] = "off"  # tests that ask for records switch them on
# What taut remembers of a user (keys, logs, files it wrote) stays out of the configuration of whoever runs the tests.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="taut-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
# Tests start taut some hundred times: its modules are compiled once, also where the surroundings ask Python to keep nothing.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces used for validation; never part of the repository."""
    folder = Path(os.environ.get("TAUT_SHARED", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(SHARED_ABSENT)
    return folder


@pytest.fixture(scope="session")
def demo_analysis() -> taut.Analysis:
    """The job that ships, analysed once for all tests that only look at it."""
    import taut
    from taut.cli import DEMO

    return taut.analyze(DEMO)


@pytest.fixture(scope="session")
def demo_run(demo_analysis: taut.Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its run folder, to be read and not written to."""
    return demo_analysis.save(tmp_path_factory.mktemp("demo") / "run")


@pytest.fixture
def small_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A smaller job in the place of the one that ships, for what ``taut demo`` does with any; its table."""
    from op_tables import op_table

    table = tmp_path / "demo" / "ops.csv"
    table.parent.mkdir()
    table.write_text(op_table(), encoding="utf-8")
    monkeypatch.setattr("taut.cli.DEMO", table.parent)
    return table
