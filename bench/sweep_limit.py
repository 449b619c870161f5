"""Taut's replay beside a C++ sweep over the same arrays (bench/sweep_limit.cpp), one thread each, in one process.

    python bench/sweep_limit.py --shared ../shared/data [--rounds 9] [--plot docs/pictures/replay-limit.svg]

Both take turns on every job and every result is compared, to the nanosecond. Figures are ns of CPU an op (and a column, where
many replays run side by side): median and range of the rounds. C++ writes into arrays that it was given; taut's call makes
its own, checks and passes its arguments, so that a ratio of 1 cannot be reached by the shorter jobs.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from generate_job import table
from pyarrow import parquet

import taut
from taut.core import jit
from taut.core.array_types import Ints
from taut.replay.engine import sweep, sweep_many
from taut.replay.timeline import batch, replay

HERE = Path(__file__).parent
LINE = 2.0
"""Taut's replay may take this many times as long as the C++ sweep."""
COLUMNS = (8, 32, 128)
Row = tuple[str, str, int, list[float], list[float]]
"""(job, what, ops, ns an op of taut by round, of C++ by round)."""


class Arrays(ctypes.Structure):
    """Fields of the two structures of ``sweep_limit.cpp``: a number and pointers, or pointers alone."""

    _fields_ = [(f"f{i}", ctypes.c_void_p) for i in range(14)]


def packed(*fields: int | np.ndarray) -> Arrays:
    """Numbers and addresses of arrays, one after the other."""
    return Arrays(*(one if isinstance(one, int) else one.ctypes.data for one in fields))


def compiled(folder: str) -> ctypes.CDLL:
    """The C++ sweep, compiled for this processor."""
    library = f"{folder}/sweep_limit.so"
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", library, str(HERE / "sweep_limit.cpp")], check=True)
    return ctypes.CDLL(library)


def alternating(rounds: int, ops: int, *calls: Callable[[], object]) -> list[list[float]]:
    """Ns of CPU an op that each call takes in each round; each has run once before."""
    for call in calls:
        call()
    repeat = max(1, 1_000_000 // ops)  # the clock of the process counts in microseconds
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, costs in zip(calls, found, strict=True):
            began = time.process_time_ns()
            for _ in range(repeat):
                call()
            costs.append((time.process_time_ns() - began) / repeat / ops)
    return found


def one_replay(name: str, graph: taut.Graph, library: ctypes.CDLL, rounds: int) -> list[Row]:
    """The sweep of one replay as kernel, and ``taut.replay`` as a whole, each beside C++."""
    n, slots = len(graph), graph.slots
    g, keep = program(len(graph.events), graph.program(graph.join, graph.wait))
    work, gap = (np.ascontiguousarray(a, dtype=np.int64) for a in (graph.work_ns, graph.gap_ns))
    times = [np.empty(n, np.int64) for _ in range(2)]
    codes = [np.empty(n, np.int32) for _ in range(2)]
    opens, last = np.empty(slots + 1, np.int64), np.empty(slots + 1, np.int32)
    out = packed(*times, *codes, opens, last)
    here, there = ctypes.byref(g), ctypes.byref(out)
    sizes = ctypes.c_int64(n), ctypes.c_int64(slots)

    def limit() -> None:
        library.sweep(here, ctypes.c_void_p(work.ctypes.data), ctypes.c_void_p(gap.ctypes.data), *sizes, there)

    def kernel() -> tuple[Ints, ...]:
        return sweep(*graph.program(graph.join, graph.wait), slots, graph.work_ns, graph.gap_ns)

    limit()
    for ours, theirs in zip(kernel(), [*times, *codes], strict=True):
        assert np.array_equal(ours, theirs), name
    assert np.array_equal(replay(graph).end_ns, times[1])
    assert len(keep)
    mine, cpp, whole = alternating(rounds, n, kernel, limit, lambda: replay(graph))
    return [(name, "sweep", n, mine, cpp), (name, "whole call of replay", n, whole, cpp)]


def program(n_events: int, arrays: Sequence[np.ndarray]) -> tuple[Arrays, list[np.ndarray]]:
    """Arrays of a program as C++ takes them, and what has to stay alive."""
    kinds = (np.int32, np.int32, np.int32, np.int64, np.int32, np.int32, np.int64)
    kept = [np.ascontiguousarray(a, dtype=kind) for a, kind in zip(arrays, kinds, strict=True)]
    return packed(n_events, *kept), kept


def many(name: str, graph: taut.Graph, library: ctypes.CDLL, rounds: int, columns: int) -> list[Row]:
    """So many what-ifs side by side, each with another part of the ops at half their work, as kernel beside C++."""
    p, n, windows = batch(graph).whole, len(graph), len(graph.steps)
    g, keep = program(len(p.events), p.arrays[:7])
    base, other = graph.work_ns, graph.work_ns // 2
    key = (np.arange(n) * columns // n).astype(np.int32)
    gap = graph.gap_ns.astype(np.float64)
    state, opens = np.zeros((p.n_ops + 1, columns)), np.zeros((p.n_slots + 1, columns))
    done, seen = np.zeros((windows, columns)), np.zeros(len(p.slot_register), np.bool_)
    kinds = (np.int32, np.int32, np.int32, np.bool_, np.float64, np.int64, np.int64, np.int32)
    given = (p.op_register, p.slot_register, p.window, p.closes, gap, base, other, key)
    read = [np.ascontiguousarray(a, dtype=kind) for a, kind in zip(given, kinds, strict=True)]
    c = packed(columns, *read, state, opens, done, seen)
    here, there = ctypes.byref(g), ctypes.byref(c)

    def limit() -> None:
        for one in (done, seen):
            one[:] = 0
        library.sweep_many(here, there)

    def kernel() -> Ints:
        offset = np.zeros(1, np.int64)
        return sweep_many(*p.arrays, windows, gap, gap, base, other, key[None, :], offset, columns)

    limit()
    assert np.array_equal(kernel(), done.astype(np.int64)), name
    assert len(keep)
    mine, cpp = alternating(rounds, n * columns, kernel, limit)
    return [(name, f"{columns} replays side by side", n, mine, cpp)]


def spread(values: Sequence[float]) -> str:
    """Median and range, of figures from fractions of a ns to hundreds."""
    digits = 1 if median(values) >= 1 else 2
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def plotted(rows: Sequence[Row], path: str) -> None:
    """The ratios as a picture."""
    import altair as alt

    values = [
        {"job": name, "what": what, "ratio": round(mine / cpp, 3)}
        for name, what, _, ours, theirs in rows
        for mine, cpp in zip(ours, theirs, strict=True)
    ]
    order = list(dict.fromkeys(one["what"] for one in values))
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("what:N", sort=order, title=None),
        x=alt.X("ratio:Q", title="times as long as the C++ sweep, each round", scale=alt.Scale(zero=True)),
    )
    line = alt.Chart(alt.Data(values=[{"ratio": LINE}])).mark_rule(strokeDash=[4, 3], color="#b00").encode(x="ratio:Q")
    dots = base.mark_point(filled=True, opacity=0.6).encode(color=alt.Color("job:N", title="job"))
    (dots + line).properties(width=420, height=160).save(path)


def main() -> None:
    """Measure, print the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--plot", help="write the ratios as a picture")
    args = parser.parse_args()
    jit.expect(np.inf)
    keep_memory()
    rows: list[Row] = []
    print("| job | ops | what | taut, ns an op | C++, ns an op | ratio (range of rounds) |\n|---|---:|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        library = compiled(scratch)
        jobs = {name: str(args.shared / f"bytedance-stragglers/trace-{name}.parquet") for name in ("ST", "AR")}
        for ranks, steps in ((64, 156), (1024, 10)):
            name = f"modelled, {ranks:,} × {steps}"
            jobs[name] = f"{scratch}/{ranks}.parquet"
            parquet.write_table(table(ranks, steps, 37, 1), jobs[name])
        for name, path in jobs.items():
            graph = taut.link(taut.read([path]))
            found = one_replay(name, graph, library, args.rounds)
            for columns in COLUMNS:
                found += many(name, graph, library, args.rounds, columns)
            for job, what, ops, mine, cpp in found:
                ratios = [a / b for a, b in zip(mine, cpp, strict=True)]
                print(f"| {job} | {ops:,} | {what} | {spread(mine)} | {spread(cpp)} | {spread(ratios)} |", flush=True)
            rows += found
    worst = max(rows, key=lambda row: median(a / b for a, b in zip(row[3], row[4], strict=True)))
    print(f"\nlargest ratio of medians: {median(worst[3]) / median(worst[4]):.2f}, {worst[0]}, {worst[1]} (line: {LINE:g})")
    if args.plot:
        plotted(rows, args.plot)


def keep_memory() -> None:
    """Have the C library keep freed memory, as the command has it."""
    if sys.platform == "linux":
        mallopt = ctypes.CDLL(None).mallopt
        for option, value in ((-3, 1 << 30), (-1, (1 << 31) - 1), (-2, 64 << 20), (-8, 1)):
            mallopt(option, value)


if __name__ == "__main__":
    main()
