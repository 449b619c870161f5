"""How cost grows: CPU of ``taut analyze`` over ops, ranks and steps, and of what-ifs over their number, as exponents.

    python bench/exponents.py [--rounds 3] [--plot docs/pictures/exponents.svg]

Modelled jobs (bench/generate_job.py) that differ in one size only, each at least sixteenfold, all rounds of all sizes by
turns. What a job of 1,600 ops takes is start-up and is taken off. The exponent is the slope of log CPU over log size, with its
95 % interval. A step of more ops has more of the same classes, or more classes, each of which is a what-if over all ops. Of
what-ifs it is that of many replays side by side on one graph of 499,200 ops, in this process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from generate_job import table
from measure import load, run
from pyarrow import parquet

import taut
from taut.core.student import student_quantile
from taut.replay.timeline import batch

LINE = 1.05
Shape = tuple[int, int, int, int]
SIZES: dict[str, list[tuple[int, Shape]]] = {
    "ops a step": [(10 * blocks, (64, 20, blocks, 10)) for blocks in (10, 20, 40, 80, 160)],
    "ops a step, and classes": [(10 * blocks, (64, 20, blocks, blocks)) for blocks in (10, 20, 40, 80, 160)],
    "ranks": [(ranks, (ranks, 20, 10, 10)) for ranks in (64, 128, 256, 512, 1024)],
    "steps": [(steps, (64, steps, 10, 10)) for steps in (20, 40, 80, 160, 320)],
}
"""By what grows: (size, (ranks, steps, blocks of ten ops a step, blocks with names of their own))."""
WHATIFS = (64, 128, 256, 512, 1024)
SMALLEST = (8, 2, 10, 10)
Points = list[tuple[float, float]]


def write(path: str, shape: Shape) -> None:
    """A modelled job of so many ranks, steps, blocks a step and blocks with names of their own."""
    ranks, steps, blocks, named = shape
    parquet.write_table(table(ranks, steps, 3, 1, blocks, named), path, compression="zstd")


def cpu_s(path: str) -> float:
    """User and system CPU of one analysis."""
    cost = run([sys.executable, "-m", "taut", "analyze", path, "-o", path + ".run"])
    assert cost.code == 0, path
    return cost.user_s + cost.system_s


def fitted(points: Points) -> tuple[float, float, float]:
    """(exponent, ends of its 95 % interval)."""
    x, y = np.log(np.array(points)).T
    slope, base = np.polyfit(x, y, 1)
    free = len(x) - 2
    error = float(np.sqrt(((y - base - slope * x) ** 2).sum() / free / ((x - x.mean()) ** 2).sum()))
    half = student_quantile(0.025, free) * error
    return float(slope), float(slope) - half, float(slope) + half


def cost_of(paths: Mapping[int, str], size: int) -> float:
    """CPU of an analysis of the job of a size, s."""
    return cpu_s(paths[size])


def grown(sizes: list[int], cost_s: Callable[[int], float], rounds: int, start_up_s: float = 0.0) -> Points:
    """(size, CPU s beyond start-up), sizes by turns."""
    return [(size, max(cost_s(size) - start_up_s, 1e-3)) for _ in range(rounds) for size in sizes]


def asked(rounds: int, path: str) -> Points:
    """CPU of so many what-ifs side by side."""
    write(path, (64, 78, 10, 10))
    graph = taut.link(taut.read([path]))
    prepared, half = batch(graph), graph.work_ns // 2
    number = np.arange(len(graph))

    def cost_s(count: int) -> float:
        began = time.process_time()
        prepared.walls(graph.work_ns, half, (number * count // len(graph)).astype(np.int32), count, graph.gap_ns)
        return time.process_time() - began

    cost_s(WHATIFS[0])
    return grown(list(WHATIFS), cost_s, rounds)


def plotted(found: dict[str, Points], path: str) -> None:
    """CPU over size, both logarithmic, relative to the smallest of each kind."""
    import altair as alt

    values = []
    for what, points in found.items():
        least = min(size for size, _ in points)
        first = median(cpu for size, cpu in points if size == least)
        values += [{"what": what, "size": size / least, "cpu": cpu / first} for size, cpu in points]
    scale = alt.Scale(type="log", base=2)
    dots = alt.Chart(alt.Data(values=values)).mark_point(filled=True, opacity=0.6).encode(
        x=alt.X("size:Q", scale=scale, title="size, times the smallest"),
        y=alt.Y("cpu:Q", scale=scale, title="CPU, times that of the smallest"),
        color=alt.Color("what:N", title="what grows"),
    )  # fmt: skip
    straight = alt.Data(values=[{"size": s, "cpu": s} for s in (1, 16)])
    line = alt.Chart(straight).mark_line(strokeDash=[4, 3], color="#888").encode(x="size:Q", y="cpu:Q")
    (dots + line).properties(width=380, height=300).save(path)


def main() -> None:
    """Measure, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plot", help="write growth as a picture")
    args = parser.parse_args()
    found: dict[str, Points] = {}
    print(load() + "\n")
    print(f"| what grows | sizes | CPU s, smallest and largest | exponent (95 %) | at most {LINE} | of the largest three |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        smallest = str(Path(scratch) / "smallest.parquet")
        write(smallest, SMALLEST)
        start_up_s = median([cpu_s(smallest) for _ in range(args.rounds + 1)][1:])
        for what in (*SIZES, "what-ifs"):
            shapes = dict(SIZES.get(what, []))
            paths = {size: str(Path(scratch) / f"{size}.parquet") for size in shapes}
            for size, path in paths.items():
                write(path, shapes[size])
            if shapes:
                cpu_s(paths[min(paths)])  # kernels that only larger jobs use are compiled here
                points = grown(list(shapes), partial(cost_of, paths), args.rounds, start_up_s)
            else:
                points = asked(args.rounds, smallest)
            found[what] = points
            slope, low, high = fitted(points)
            sizes = sorted({size for size, _ in points})
            ends = [median(cpu for size, cpu in points if size == end) for end in (sizes[0], sizes[-1])]
            met = "yes" if slope <= LINE else "no"
            sizes_told = f"{sizes[0]:,.0f} to {sizes[-1]:,.0f}, {len(sizes)}"
            top = "{:.2f} ({:.2f}–{:.2f})".format(*fitted([one for one in points if one[0] >= sizes[-3]]))
            cells = (what, sizes_told, f"{ends[0]:.2f}, {ends[1]:.2f}", f"{slope:.2f} ({low:.2f}–{high:.2f})", met, top)
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nstart-up, taken off: {start_up_s:.2f} s of CPU; {args.rounds} rounds\n\n{load()}")
    if args.plot:
        plotted(found, args.plot)


if __name__ == "__main__":
    main()
