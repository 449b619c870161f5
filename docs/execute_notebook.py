"""Execute examples/incident.ipynb and store its outputs, without anything that changes from run to run.

Run `python docs/execute_notebook.py` after changing a cell, a card or a picture. It needs nbclient, ipykernel and pandas.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "incident.ipynb"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path = NOTEBOOK) -> dict[str, Any]:
    """The notebook with fresh outputs, run in a folder of its own."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, kernel_name="python3", resources=resources, record_timing=False).execute()
    return stripped(json.loads(nbformat.writes(notebook)))


def stripped(notebook: dict[str, Any]) -> dict[str, Any]:
    """Without versions, times, random names and what goes to standard error."""
    for number, cell in enumerate(notebook["cells"]):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {key: value for key, value in cell["metadata"].items() if key == "tags"}
        if "outputs" in cell:
            cell["outputs"] = [one for one in cell["outputs"] if one.get("name") != "stderr"]
    return {**notebook, "metadata": {"kernelspec": KERNEL, "language_info": {"name": "python"}}}


if __name__ == "__main__":
    NOTEBOOK.write_text(json.dumps(execute(), indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
