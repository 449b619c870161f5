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
    "df_index_resolver": ["kineto-single/df_index_resolver.json.gz"],
}
CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
Row = tuple[str, str, str, float, float, float]
"""(trace, tool, quantity, theirs on the whole trace, theirs inside taut's windows, taut's)."""


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
    by_type = dict(zip(kernels["kernel_type"], kernels["sum"], strict=True))
    covered = parts["kernel_time(us)"]
    return {
        "idle": parts["idle_time_pctg"],
        "compute": parts["compute_time_pctg"],
        "not compute, busy": parts["non_compute_time_pctg"],
        "communication under compute, of communication": hidden,
        "communication alone": 100 * by_type.get("COMMUNICATION", 0) / covered,
        "copies alone": 100 * by_type.get("MEMORY", 0) / covered,
    }


def tracelens(path: Path) -> dict[str, float]:
    from TraceLens.TreePerf.gpu_event_analyser import GPUEventAnalyser

    parts = GPUEventAnalyser(json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]).compute_metrics()
    names = {
        "idle": "idle_time",
        "busy": "busy_time",
        "compute": "computation_time",
        "communication": "total_comm_time",
        "communication not under compute": "exposed_comm_time",
        "copies": "total_memcpy_time",
        "copies alone": "exposed_memcpy_time",
    }
    return {name: 100 * parts[key] / parts["total_time"] for name, key in names.items()}


def ours(said: dict[str, float]) -> dict[str, float]:
    """Taut's figures under the names above."""
    busy, compute, communication = said["busy_share"], said["compute_share"], said["communication_share"]
    names = {
        "idle": said["idle_share"],
        "busy": busy,
        "compute": compute,
        "not compute, busy": busy - compute,
        "communication": communication,
        "communication under compute, of communication": said["hidden_share"] / communication
        if communication
        else float("nan"),
        "communication alone": said["exposed_share"],
        "communication not under compute": said["exposed_share"],
        "copies": said["copy_share"],
        "copies alone": said["exposed_copy_share"],
    }
    return {name: 100 * share for name, share in names.items()}


def rows(shared: Path, command: str) -> Iterator[Row]:
    tools = [tool for tool, module in ((hta, "hta"), (tracelens, "TraceLens")) if _there(module)]
    for name, files in TRACES.items():
        paths = [shared / f for f in files]
        said = device.taut(command, paths)
        if isinstance(said, str):
            print(f"{name}: {said}", file=sys.stderr)
            continue
        for path, rank in zip(paths, sorted(said["ranks"], key=int), strict=True):
            windows = sorted((w["start_ns"], w["end_ns"]) for w in said["windows"] if str(w["rank"]) == rank)
            mine = ours(said["ranks"][rank])
            with tempfile.TemporaryDirectory() as folder:
                inside = cut(path, windows, Path(folder) / path.name)
                for tool in tools:
                    whole, same = tool(path), tool(inside)
                    label = name if len(paths) == 1 else f"{name} rank {rank}"
                    for quantity in whole:
                        yield label, tool.__name__, quantity, whole[quantity], same[quantity], mine[quantity]


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
    print("| trace | tool | share, % | theirs, whole trace | theirs, taut's windows | taut |\n|---|---|---|---|---|---|")
    for trace, tool, quantity, whole, same, mine in rows(asked.shared, asked.taut):
        print(f"| {trace} | {tool} | {quantity} | {whole:.1f} | {same:.1f} | {mine:.1f} |", flush=True)


if __name__ == "__main__":
    main()
