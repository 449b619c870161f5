"""Small folders that are saved and looked at, by tests and by the processes they start: what these import is copied by every
fork."""

from __future__ import annotations

import json
import os
from pathlib import Path

from taut.core.errors import RunError
from taut.core.folder import manifest_of, read_listed, save_folder


def save(target: Path, text: str = "new") -> Path:
    """Save a folder of two files that hold a text."""

    def write(scratch: Path) -> dict[str, object]:
        (scratch / "a.parquet").write_text(text)
        (scratch / "b.parquet").write_text(text * 2)
        return {"format": 2, "version": "test", "digest": "d", "text": text}

    return save_folder(target, write)


def whole(target: Path) -> str:
    """The text that all files of a folder agree on; fails unless it is complete and listed."""
    manifest = manifest_of(target)
    try:
        assert manifest is not None
        assert {*manifest.files, "run.json"} == set(os.listdir(target))
        files = {name: read_listed(target, name, listed) for name, listed in manifest.files.items()}
        text = json.loads((target / "run.json").read_text())["text"]
        assert files["a.parquet"].decode() == text
    except (AssertionError, OSError) as error:
        raise RunError(f"not whole: {error}") from None
    return str(text)
