"""taut beside its peers, by turns in one process tree: user CPU, wall clock and peak memory, median and range of the rounds.

    python bench/peers.py --shared ../shared/data [--hta PYTHON_WITH_HTA] [--rounds 5] [--plot docs/pictures/peers.svg]

Prints the first tables of docs/speed.md. HolisticTraceAnalysis (from PyPI) runs in its own environment: it loads the trace and
asks for its breakdowns of kernels, time, idle time and overlap. Taut runs ``taut analyze``, which also replays, asks what-ifs,
looks for findings and writes a run folder. Peers that cannot be installed stand with the figures that are known of them:

- the OSDI'25 straggler analysis (ByteDance-Seed/StragglerAnalysis), as measured with the data (its README);
- TraceLens of AMD (AMD-AGI/TraceLens; ``tracelens`` of PyPI is something else), as measured with the data.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from measure import Cost, load, run, spread

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
files = dict(enumerate(sys.argv[1:]))
t = TraceAnalysis(trace_files=files, trace_dir="")
t.get_gpu_kernel_breakdown(visualize=False)
t.get_temporal_breakdown(visualize=False)
t.get_idle_time_breakdown(ranks=list(files), visualize=False)
t.get_comm_comp_overlap(visualize=False)
"""
LIBRARIES = "import click, msgspec, numpy, pyarrow.parquet, rich.console"
"""What every analysis that writes a run folder imports, whatever taut itself does."""
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


@dataclass(frozen=True)
class Job:
    """A real trace, and who else reads it: HTA by its files, or a peer by user CPU and peak memory known of it."""

    name: str
    path: Path
    files: tuple[Path, ...] = ()
    known: tuple[str, float, float, str] | None = None
    """(peer, least and most user CPU s, peak MB)."""


def jobs(data: Path, scratch: Path) -> list[Job]:
    """Two op tables, a job of eight ranks, and traces of one rank, 24 kB to 3 MB as packed (54 MB of JSON)."""
    dlrm = data / "dlrm-8rank/dlrm_kineto.tar.gz"
    with tarfile.open(dlrm) as archive:
        archive.extractall(scratch, filter="data")
    ranks = tuple(sorted(scratch.rglob("worker*.json")))
    osdi, tables = "OSDI'25", data / "bytedance-stragglers"
    single = {
        "df_index_resolver": "kineto-single/df_index_resolver.json.gz",
        "hta_trace_diff_test": "wild/hta_trace_diff_test.json.gz",
        "resnet_kineto": "kineto-single/resnet_kineto.json.gz",
        "mi300_resnet": "wild/tracelens_mi300_resnet_act_checkpoint.json.gz",
        "ns_resolution": "kineto-single/ns_resolution.pt.trace.json.gz",
        "resnet50_nw0": "wild/kineto_resnet50_nw0.pt.trace.json.gz",
        "b200_eager": "wild/tracelens_b200_eager.json.gz",
        "h200_offload": "wild/h200_offload.json.gz",
    }
    return [
        Job("AR (117,216 ops)", tables / "trace-AR.parquet", known=(osdi, 2.7, 3.1, "243")),
        Job("ST (6,784 ops)", tables / "trace-ST.parquet", known=(osdi, 1.5, 1.5, "156")),
        Job("dlrm-8rank (26,538 events)", dlrm, ranks, known=("TraceLens", 0.75, 0.81, "–")),
        *(Job(name, data / path, (data / path,)) for name, path in single.items()),
    ]


def ratio(mine: Sequence[float], theirs: Sequence[float]) -> str:
    """How many times less taut takes: of the medians, and the range of the rounds."""
    each = [b / a for a, b in zip(mine, theirs, strict=True)]
    return f"1/{median(theirs) / median(mine):.1f} (1/{min(each):.1f}–1/{max(each):.1f})"


def row(job: Job, mine: Sequence[Cost], theirs: Sequence[Cost]) -> list[str]:
    """Lines of the table: the job beside HTA, and beside the peer that is known by figures."""
    user = [c.user_s for c in mine]
    own = [job.name, spread(user), spread([c.wall_s for c in mine]), spread([c.peak_mb for c in mine], 0)]
    lines = []
    if theirs:
        cpu, wall, peak = ([getattr(c, what) for c in theirs] for what in ("user_s", "wall_s", "peak_mb"))
        lines.append([*own, "HTA", spread(cpu), spread(wall), spread(peak, 0), ratio(user, cpu)])
    if job.known:
        peer, least, most, peak_mb = job.known
        said = f"{least:g}–{most:g}" if least < most else f"{least:g}"
        middle = median(user)
        times = f"1/{least / middle:.1f} to 1/{most / middle:.1f}" if least < most else f"1/{least / middle:.1f}"
        lines.append([*own, f"{peer}, known", said, "–", peak_mb, times])
    return ["| " + " | ".join(line) + " |" for line in lines or [[*own, "–", "–", "–", "–", "–"]]]


def plotted(costs: dict[str, dict[str, list[float]]], path: str) -> None:
    """User CPU of both, a dot a round, as a picture."""
    import altair as alt

    values = [
        {"job": job, "tool": tool, "s": round(s, 3)}
        for job, tools in costs.items() for tool, each in tools.items() for s in each
    ]  # fmt: skip
    alt.Chart(alt.Data(values=values)).mark_point(filled=True, opacity=0.6, size=45).encode(
        y=alt.Y("job:N", sort=list(costs), title=None),
        x=alt.X("s:Q", scale=alt.Scale(type="log"), title="user CPU, s, each round (logarithmic)"),
        color=alt.Color("tool:N", title=None),
    ).properties(width=440, height=22 * len(costs)).save(path)


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--hta", help="python of an environment with HolisticTraceAnalysis")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plot", help="write user CPU as a picture")
    args = parser.parse_args()
    taut = [sys.executable, "-m", "taut", "analyze"]
    print(load() + "\n")
    print("| job | taut: user CPU s | wall s | peak MB | peer | user CPU s | wall s | peak MB | CPU of taut to the peer's |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        every: dict[Job, tuple[list[Cost], list[Cost]]] = {job: ([], []) for job in jobs(args.shared.resolve(), Path(scratch))}
        for job in every:
            assert run([*taut, str(job.path), "-o", f"{scratch}/warm"]).code == 0, job.name
        for job, (mine, theirs) in every.items():
            for _ in range(args.rounds):
                mine.append(run([*taut, str(job.path), "-o", f"{scratch}/run"]))
                if args.hta and job.files:
                    theirs.append(run([args.hta, "-c", HTA, *map(str, job.files)], cwd=scratch))
            assert all(cost.code == 0 for cost in (*mine, *theirs)), job.name
            print("\n".join(row(job, mine, theirs)), flush=True)
    floor = [run([sys.executable, "-c", LIBRARIES]).user_s for _ in range(args.rounds + 1)][1:]
    print(f"\nlibraries alone, imported ({LIBRARIES.removeprefix('import ')}), user CPU s: {spread(floor)}")
    for name in ("AR", "ST"):
        path = str(args.shared / f"bytedance-stragglers/trace-{name}.parquet")
        out = subprocess.run([sys.executable, "-c", LIBRARY, path], capture_output=True, text=True, check=True).stdout
        print(f"\n{name}, library call alone (read, link, what-if), user CPU s: {out.strip()}")
    print("\n" + load())
    if args.plot:
        tools = {"taut": 0, "HolisticTraceAnalysis": 1}
        costs = {job.name: {tool: [c.user_s for c in both[i]] for tool, i in tools.items()} for job, both in every.items()}
        for job in every:
            if job.known:
                costs[job.name][f"{job.known[0]} (known)"] = [*dict.fromkeys(job.known[1:3])]
        plotted(costs, args.plot)


if __name__ == "__main__":
    main()
