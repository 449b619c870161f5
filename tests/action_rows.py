"""Actions as tests write them down: the columns that are asked for, one tuple a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from taut.core.tables import Table, Trace
from taut.read.trace import read

DAY_NS = 1_767_225_600_000_000_000
"""2026-01-01, midnight UTC."""


def rows(actions: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of actions; times in seconds of 2026."""
    found = [
        ((actions.time_ns - DAY_NS) / 1e9).tolist() if name == "time_s" else actions.columns[name].tolist() for name in columns
    ]
    return list(zip(*found, strict=True))


def trace_of(folder: Path, **files: str | bytes) -> Trace:
    """What is read of files of these names (two underscores are a point) and contents."""
    return read(written(folder, **files))


def written(folder: Path, **files: str | bytes) -> Sequence[Path]:
    """Files of these names and contents."""
    paths = []
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        paths.append(path)
    return paths
