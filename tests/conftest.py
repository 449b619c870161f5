"""What every test may ask for: the shared data, and a quiet, repeatable hypothesis."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
SHARED_ABSENT = "needs ../shared/data (not part of a user's clone)"

os.environ["TAUT_AUDIT"] = "off"  # tests that ask for records switch them on
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
