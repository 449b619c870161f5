"""taut beside its peers, alternating in one process tree: user CPU and peak memory, median and range.

    python bench/peers.py --shared ../shared/data [--hta PYTHON_WITH_HTA] [--repeat 5]

Writes docs/speed.md's first table to standard output. HolisticTraceAnalysis (from PyPI) runs in its own environment:
it loads the trace and asks for its breakdowns of kernels, time, idle time and overlap; taut runs ``taut analyze``.
The straggler reference implementation is not installable: its figures are those published with the data.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from measure import Cost, run, spread

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
t.get_gpu_kernel_breakdown(visualize=False)
t.get_temporal_breakdown(visualize=False)
t.get_idle_time_breakdown(ranks=[0], visualize=False)
t.get_comm_comp_overlap(visualize=False)
"""
LIBRARY = """
import os, sys, time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import taut
def call():
    graph = taut.link(taut.read([sys.argv[1]]))
    return taut.whatif(graph)
call()
costs = []
for _ in range(7):
    t = time.process_time(); call(); costs.append(time.process_time() - t)
costs.sort()
print(f"{costs[3]:.3f} ({costs[0]:.3f}–{costs[-1]:.3f})")
"""


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--hta", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    data = args.shared
    taut = [sys.executable, "-m", "taut"]
    with tempfile.TemporaryDirectory() as scratch:
        jobs = {
            "AR (117,216 ops)": data / "bytedance-stragglers/trace-AR.parquet",
            "ST (6,784 ops)": data / "bytedance-stragglers/trace-ST.parquet",
            "dlrm-8rank (26,538 events)": data / "dlrm-8rank/dlrm_kineto.tar.gz",
            "df_index_resolver (53.7 MB)": data / "kineto-single/df_index_resolver.json.gz",
        }
        warm = [run([*taut, "analyze", str(path), "-o", f"{scratch}/warm"]) for path in jobs.values()]
        assert all(w.code == 0 for w in warm)
        print(
            "| job | taut, user CPU s | taut, peak MB | peer, user CPU s | peer, peak MB | ratio |\n|---|---|---|---|---|---|"
        )
        for name, path in jobs.items():
            mine: list[Cost] = []
            theirs: list[Cost] = []
            for _ in range(args.repeat):
                mine.append(run([*taut, "analyze", str(path), "-o", f"{scratch}/run"]))
                if args.hta and "df_index" in name:
                    theirs.append(run([args.hta, "-c", HTA, str(path)]))
            row = [name, spread([c.user_s for c in mine]), f"{max(c.peak_mb for c in mine):.0f}"]
            if theirs:
                mine_s, theirs_s = sorted(c.user_s for c in mine), sorted(c.user_s for c in theirs)
                ratio = mine_s[len(mine_s) // 2] / theirs_s[len(theirs_s) // 2]
                row += ["HTA: " + spread(theirs_s), f"{min(c.peak_mb for c in theirs):.0f}", f"1/{1 / ratio:.1f}"]
            else:
                row += ["–", "–", "–"]
            print("| " + " | ".join(row) + " |", flush=True)
    import subprocess

    for name in ("AR", "ST"):
        path = str(data / f"bytedance-stragglers/trace-{name}.parquet")
        out = subprocess.run([sys.executable, "-c", LIBRARY, path], capture_output=True, text=True, check=True).stdout
        print(f"\n{name}, library call alone (read, link, what-if), user CPU s: {out.strip()}")


if __name__ == "__main__":
    main()
