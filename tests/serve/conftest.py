"""One run, and the app over its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from serving import App, run_folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run in it."""
    folder = tmp_path_factory.mktemp("served") / "taut-runs"
    run_folder(folder / "job-1")
    return folder


@pytest.fixture(scope="module")
def app(runs: Path) -> Iterator[App]:
    """The app over it."""
    made = App([runs])
    yield made
    made.close()
