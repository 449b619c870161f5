"""Figures of HolisticTraceAnalysis and TraceLens beside those of taut, on real traces.

    pip install HolisticTraceAnalysis 'pandas<3'        (TraceLens: its repository, AMD-AGI/TraceLens)
    python validation/beside_others.py --shared ../shared/data

Each tool reads each trace twice: whole, as it comes, and cut to the windows that taut reports, so that a difference of
windows is told from a difference of definitions. Shares are percent of the time that the tool covers.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import device

TRACES = {
    "hta_trace_diff_test": ["wild/hta_trace_diff_test.json.gz"],
    "kineto-2of128": ["kineto-2of128/rank-0.json.gz", "kineto-2of128/rank-1.json.gz"],
    "mi300_resnet": ["wild/tracelens_mi300_resnet_act_checkpoint.json.gz"],
    "h200_offload": ["wild/h200_offload.json.gz"],
}
CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
COLUMNS = ("idle", "compute", "communication", "not under compute", "under nothing", "copies alone")
"""Shares of the time that is covered; the fourth and fifth are of communication."""
Row = tuple[str, str, dict[str, float]]
"""(trace, whose figures, shares in percent)."""


def cut(path: Path, windows: list[tuple[int, int]], out: Path) -> Path:
    """The trace with its device events clipped to windows and without marks of steps, by which tools choose their own."""
    data = json.loads(gzip.decompress(path.read_bytes()))
    kept = []
    for e in data["traceEvents"]:
        if e.get("cat") in CATEGORIES and e.get("ph") == "X":
            for start, end in windows:
                first, last = max(e["ts"], start / 1e3), min(e["ts"] + e["dur"], end / 1e3)
                if first < last or (e["dur"] == 0 and start / 1e3 <= e["ts"] < end / 1e3):
                    kept.append({**e, "ts": first, "dur": last - first})
        elif not str(e.get("name", "")).startswith("ProfilerStep"):
            kept.append(e)
    out.write_bytes(gzip.compress(json.dumps({**data, "traceEvents": kept}).encode()))
    return out


def hta(path: Path) -> dict[str, float]:
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
        trace = TraceAnalysis(trace_files={0: str(path)}, trace_dir=folder)
        parts = trace.get_temporal_breakdown(visualize=False).iloc[0]
        hidden = trace.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
        kernels, _ = trace.get_gpu_kernel_breakdown(visualize=False)
    shares = 100 * kernels.set_index("kernel_type")["sum"] / parts["kernel_time(us)"]
    communication = shares[[name for name in shares.index if "COMMUNICATION" in name]].sum()
    values = (
        parts["idle_time_pctg"],
        parts["compute_time_pctg"],
        communication,
        communication * (1 - hidden / 100) if communication else 0.0,
        shares.get("COMMUNICATION", 0.0),
        shares.get("MEMORY", 0.0),
    )
    return dict(zip(COLUMNS, values, strict=True))


def tracelens(path: Path) -> dict[str, float]:
    from TraceLens.TreePerf.gpu_event_analyser import GPUEventAnalyser

    parts = GPUEventAnalyser(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]).compute_metrics()
    keys = ("idle_time", "computation_time", "total_comm_time", "exposed_comm_time", None, "exposed_memcpy_time")
    found = zip(COLUMNS, keys, strict=True)
    return {name: 100 * parts[key] / parts["total_time"] for name, key in found if key is not None}


def ours(shares: dict[str, float]) -> dict[str, float]:
    """Taut's figures under these names."""
    names = ("idle_share", "compute_share", "communication_share", None, "exposed_share", "exposed_copy_share")
    return {column: 100 * shares[name] for column, name in zip(COLUMNS, names, strict=True) if name is not None}


def plain(path: Path, windows: list[tuple[int, int]]) -> dict[str, float]:
    """Unions of the raw file, by validation/device.py."""
    (raw,) = device.load(path)
    assert isinstance(raw, device.Raw)
    shares = device.shares(raw, windows)
    without_copies = device.Raw(raw.rank)
    for start, end, kind in zip(raw.start, raw.end, raw.kind, strict=True):
        if kind != device.COPY:
            without_copies.add(start, end, kind)
    bare = device.shares(without_copies, windows)["exposed"]
    values = shares["idle"], shares["compute"], shares["communication"], bare, shares["exposed"], shares["exposed_copy"]
    return {column: 100 * value for column, value in zip(COLUMNS, values, strict=True)}


def rows(shared: Path, command: str) -> Iterator[Row]:
    tools = [tool for tool, module in ((hta, "hta"), (tracelens, "TraceLens")) if _there(module)]
    for name, files in TRACES.items():
        paths = [shared / f for f in files]
        result = device.taut(command, paths)
        if isinstance(result, str):
            print(f"{name}: {result}", file=sys.stderr)
            continue
        for path, rank in zip(paths, sorted(result["ranks"], key=int), strict=True):
            windows = sorted((w["start_ns"], w["end_ns"]) for w in result["windows"] if str(w["rank"]) == rank)
            label = name if len(paths) == 1 else f"{name} rank {rank}"
            with tempfile.TemporaryDirectory() as folder:
                inside = cut(path, windows, Path(folder) / path.name)
                for tool in tools:
                    yield label, f"{TOOLS[tool.__name__]}, whole trace", tool(path)
                    yield label, f"{TOOLS[tool.__name__]}, taut's windows", tool(inside)
            yield label, "plain unions, taut's windows", plain(path, windows)
            yield label, "taut", ours(result["ranks"][rank])


TOOLS = {"hta": "HTA", "tracelens": "TraceLens"}


def _there(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        print(f"{module} is not installed: left out", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"))
    parser.add_argument("--taut", default=shutil.which("taut") or f"{sys.executable} -m taut", help="how to run taut")
    asked: Any = parser.parse_args()
    head = ["trace", "whose", *COLUMNS]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for trace, whose, shares in rows(asked.shared, asked.taut):
        figures = [f"{shares[name]:.1f}" if name in shares else "–" for name in COLUMNS]
        print(f"| {trace} | {whose} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
