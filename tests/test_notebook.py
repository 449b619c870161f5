"""The notebook of examples/: every cell runs, and what is stored in it is small and the same everywhere."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import taut

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "incident.ipynb"
TEXT = NOTEBOOK.read_text(encoding="utf-8")
CODE = [cell for cell in json.loads(TEXT)["cells"] if cell["cell_type"] == "code"]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; the value of its last expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def kinds(value: Any) -> set[str]:
    """The forms in which a value shows itself."""
    if hasattr(value, "_repr_mimebundle_"):
        found = value._repr_mimebundle_()
        return set(found[0] if isinstance(found, tuple) else found)
    return {"text/html"} if hasattr(value, "_repr_html_") else set()


def forms(cell: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """What the outputs of a cell are."""
    return [(one["output_type"], sorted(one.get("data", {}))) for one in cell["outputs"]]


def test_every_cell_runs_and_shows_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    altair = pytest.importorskip("altair")
    monkeypatch.chdir(tmp_path)
    frames = importlib.util.find_spec("pandas") is not None
    names: dict[str, Any] = {}
    renderer = altair.renderers.active
    try:
        for cell in CODE:
            if "pandas" in cell["metadata"].get("tags", []) and not frames:
                continue
            value = run_cell("".join(cell["source"]), names)
            stored = {kind for one in cell["outputs"] for kind in one.get("data", {})} - {"text/plain"}
            assert stored <= kinds(value), cell["source"]
    finally:
        altair.renderers.enable(renderer)
    opened = taut.open_run(names["run"])
    assert opened._repr_html_().count("<div") == names["analysis"]._repr_html_().count("<div")
    assert opened.plot.waits().to_dict() == names["analysis"].plot.waits().to_dict()
    assert opened.table("ledger").to_words().equals(names["analysis"].table("ledger").to_words())
    assert names["analysis"].verdict.split(".")[0] in TEXT
    assert names["bill"].verdict in TEXT


def test_cells_that_need_pandas_say_so() -> None:
    needing = [cell for cell in CODE if "to_pandas" in "".join(cell["source"])]
    assert needing
    assert all(cell["metadata"]["tags"] == ["pandas"] for cell in needing)


def test_stored_outputs_are_small_and_hold_nothing_of_a_machine() -> None:
    assert len(TEXT.encode()) < 300_000
    assert all(cell["outputs"] for cell in CODE)
    assert not re.search(r"/(?:home|root|tmp|work|Users|usr)/|<script|altair-viz-", TEXT)
    assert not re.search(r'"(?:iopub|shell)\.|"output_type": "error"|"name": "stderr"', TEXT)
    assert set(json.loads(TEXT)["metadata"]["language_info"]) == {"name"}


@pytest.fixture(scope="module")
def execute_notebook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute_notebook", ROOT / "docs" / "execute_notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_changes_from_run_to_run_is_not_stored(execute_notebook: ModuleType) -> None:
    cell = {
        "id": "a3f9", "metadata": {"tags": ["pandas"], "execution": {"iopub.status.busy": "2026"}},
        "outputs": [{"output_type": "stream", "name": "stderr"}, {"output_type": "stream", "name": "stdout"}],
    }  # fmt: skip
    kept = execute_notebook.stripped({"cells": [cell], "metadata": {"language_info": {"version": "3.11.2"}}})
    assert kept["cells"][0] == {
        "id": "cell-0", "metadata": {"tags": ["pandas"]}, "outputs": [{"output_type": "stream", "name": "stdout"}],
    }  # fmt: skip
    assert "3.11.2" not in json.dumps(kept)


def test_a_kernel_runs_it_from_the_first_cell_to_the_last(execute_notebook: ModuleType) -> None:
    for library in ("pandas", "nbclient", "ipykernel"):
        pytest.importorskip(library)
    fresh = [cell for cell in execute_notebook.execute()["cells"] if cell["cell_type"] == "code"]
    for stored, cell in zip(CODE, fresh, strict=True):
        assert forms(cell) == forms(stored), cell["source"]
