"""Trim a GPU lab run to a fixture: what the analysis reads of its traces, and its truth.

python tests/lab/trim.py RUN tests/lab/gpu/NAME
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
from pathlib import Path
from typing import Any

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
NOTES = ("user_annotation",)
OPERATORS = ("c10d::", "aten::mm", "aten::addmm", "taut::")
ARGS = frozenset({
    "correlation", "External id", "stream", "device", "grid", "block", "bytes", "Input Dims", "Input type", "Concrete Inputs",
    "Collective name", "Process Group Name", "Process Group Ranks", "In msg nelems", "Out msg nelems", "Group size", "dtype",
    "Seq", "Src Rank", "Dst Rank", "name", "labels", "sort_index",
})  # fmt: skip


def kept(event: dict[str, Any], launches: set[int]) -> bool:
    """Whether the analysis reads an event: work of the device and its launches, waits, notes, collectives, names."""
    category, name = event.get("cat"), str(event.get("name"))
    if category in CALLS:
        return "Synchronize" in name or event.get("args", {}).get("correlation") in launches
    if category == "cpu_op":
        return name.startswith(OPERATORS)
    return category in DEVICE or category in NOTES or event.get("ph") == "M"


def trimmed(trace: dict[str, Any]) -> dict[str, Any]:
    """A trace with the events and arguments that are kept."""
    events = trace["traceEvents"]
    launches = {event["args"]["correlation"] for event in events if event.get("cat") in DEVICE}
    out = []
    for event in events:
        if kept(event, launches):
            args = {key: value for key, value in event.get("args", {}).items() if key in ARGS}
            out.append({**event, "args": args} if args else {key: value for key, value in event.items() if key != "args"})
    return {**trace, "traceEvents": out, "traceName": "rank.json"}


def main(run: Path, fixture: Path) -> None:
    """Write the fixture."""
    (fixture / "faulted").mkdir(parents=True, exist_ok=True)
    shutil.copy(run / "truth.json", fixture)
    for path in sorted((run / "faulted").glob("rank*.json*")):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = json.dumps(trimmed(json.loads(data)), separators=(",", ":"))
        packed = gzip.compress(text.encode(), 9, mtime=0)
        (fixture / "faulted" / path.name.removesuffix(".gz")).with_suffix(".json.gz").write_bytes(packed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
