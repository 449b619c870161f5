"""CPU of frames of the timeline, and bytes of what is prepared for them, as Markdown.

    python bench/frames.py [--ranks 200] [--steps 50] [--columns 1200] [--lines 600] [--broken] [--run RUN] [--turns 5]

The job is that of ``generate_job.py``; ``--run`` takes a run folder instead. Its ranks compute without a break between gates,
so they do few different things one after the other; ``--broken`` gives every second op to the host, so that about every op is a
piece of its own (the most that can be is three). Kernels that no run has kept yet are compiled by the first call.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from taut.core.array_types import Floats
from taut.core.tables import Kind, Table
from taut.graph import Graph
from taut.run import analyze
from taut.stored import open_run
from taut.views.frames import Frames
from taut.views.op_detail import OpDetails
from taut.views.packed_timeline import pack

GENERATE = Path(__file__).parent / "generate_job.py"


@dataclass(frozen=True)
class Traced:
    """What a timeline is made of."""

    graph: Graph
    waits: Table
    reference_ns: Floats


def opened(args: argparse.Namespace) -> Traced:
    """The job to look at."""
    if args.run:
        run = open_run(args.run)
        made = Traced(run.graph, run.waits, run.reference_ns)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            job = f"{scratch}/job.parquet"
            options = ["--ranks", str(args.ranks), "--steps", str(args.steps)]
            subprocess.run([sys.executable, str(GENERATE), job, *options], check=True)
            done = analyze(job)
        made = Traced(done.graph, done.blame.waits, done.blame.peers.value_ns)
    return broken(made) if args.broken else made


def broken(run: Traced) -> Traced:
    """The same with every second op on the host."""
    ops = run.graph.ops
    kind = np.where((np.arange(len(ops)) // len(run.graph.ranks)) % 2 == 0, ops.kind, Kind.COORDINATE).astype(np.int8)
    return replace(run, graph=replace(run.graph, ops=ops.replace(kind=kind)))


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU of a call, ms."""
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1e3


def row(name: str, ask: Callable[[], object], turns: int) -> None:
    """A line of the table: the first call, then the median of later ones and their range."""
    first, later = cpu_ms(ask), sorted(cpu_ms(ask) for _ in range(turns))
    print(f"| {name} | {first:.1f} | {median(later):.1f} ({later[0]:.1f}–{later[-1]:.1f}) |", flush=True)


def main() -> None:
    """Prepare, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("ranks", 200), ("steps", 50), ("columns", 1200), ("lines", 600), ("turns", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--run", help="a run folder")
    parser.add_argument("--broken", action="store_true", help="every second op on the host")
    args = parser.parse_args()
    run = opened(args)
    began = time.process_time()
    frames = Frames(run)
    prepared = time.process_time() - began
    ops, rows, wall = len(run.graph), len(run.graph.ranks), frames.axis.wall_ns
    print(f"{ops:,} ops, {rows:,} ranks, {len(run.graph.steps)} steps, {len(frames.pieces) / ops:.2f} pieces an op\n")
    print(f"prepared in {prepared:.2f} s of CPU, {frames.nbytes / ops:.1f} bytes an op\n")
    step, some = frames.axis.steps()[len(run.graph.steps) // 2], (args.columns, args.lines)
    asked: dict[str, Callable[[], object]] = {
        "zoomed out": lambda: frames.frame(0, wall, 0, rows, *some),
        "half of the time and ranks": lambda: frames.frame(wall // 4, 3 * wall // 4, rows // 4, max(rows // 2, 1), *some),
        "one step": lambda: frames.frame(step.begin_ns, max(step.end_ns, step.begin_ns + 1), 0, rows, *some),
        "one rank": lambda: frames.frame(0, wall, rows // 2, 1, *some),
        "one rank in one step": lambda: frames.frame(step.begin_ns, step.end_ns, rows // 2, 1, *some),
        "finest (4,096 × 2,048)": lambda: frames.frame(0, wall, 0, rows, 4096, 2048),
    }
    print(f"| frame | first, ms of CPU | later, median of {args.turns} (range) |\n|---|---|---|")
    for name, ask in asked.items():
        row(name, ask, args.turns)
    details = OpDetails(frames)
    waited = int(run.waits.op[run.waits.wait_ns.argmax()]) if len(run.waits) else 0
    row("an op and its path", lambda: details.by_number(waited), args.turns)
    began = time.process_time()
    size = len(pack(frames))
    print(f"\npacked for a file: {size:,} bytes in {time.process_time() - began:.2f} s of CPU")


if __name__ == "__main__":
    main()
