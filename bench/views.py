"""CPU that the pages of a run take, in a process that has opened it: a table of milliseconds.

python bench/views.py RUN... [--times 5]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from taut.stored import Run, open_run
from taut.views.delay_wave import delay_wave
from taut.views.overview import overview
from taut.views.questions import answer, question, questions
from taut.views.replays import Replays
from taut.views.run_card import run_card
from taut.views.structure import structure


def took(ask: Callable[[], object], times: int) -> str:
    """Wall and CPU of the first call, ms; then the median of both and the longest of each over the others."""
    spent = np.empty((times + 1, 2))
    for k in range(times + 1):
        begun = time.perf_counter(), time.process_time()
        ask()
        spent[k] = time.perf_counter() - begun[0], time.process_time() - begun[1]
    again = spent[1:]
    return " | ".join(f"{1e3 * one:.0f}" for one in (*spent[0], *np.median(again, axis=0), *again.max(axis=0)))


def pages(folder: str, times: int) -> None:
    """The rows of one run."""
    begun = time.perf_counter()
    run = open_run(folder)
    opened = (time.perf_counter() - begun) * 1e3
    replays, name = Replays(run), Path(folder)
    rank, step = _middle(run)
    label = run.graph.names[0]
    asked: dict[str, Callable[[], object]] = {
        "card": lambda: run_card(folder),
        "overview": lambda: overview(run),
        "structure": lambda: structure(run),
        "delay": lambda: delay_wave(run, rank, step, 5_000_000),
        "questions": lambda: questions(replays),
        "whatif, a rank": lambda: answer(replays, question([f"rank={rank}"])),
        "whatif, a class": lambda: answer(replays, question([f"class={label}"])),
        "whatif, scales": lambda: answer(replays, question(scales={"work": "0.9", "bandwidth": "2", "gaps": "0"})),
    }
    print(f"| {name} | {len(run.graph):,} | open | {opened:.0f} | | | | | |")
    for what, ask in asked.items():
        print(f"| {name} | {len(run.graph):,} | {what} | {took(ask, times)} |", flush=True)


def _middle(run: Run) -> tuple[int, int]:
    """A rank and a step in the middle."""
    graph = run.graph
    return int(graph.ranks[len(graph.ranks) // 2]), int(graph.steps[len(graph.steps) // 2])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args()
    print("| run | ops | page | first | its CPU | median | its CPU | longest | its CPU |")
    print("|---|---|---|---|---|---|---|---|---|")
    for folder in args.runs:
        pages(folder, args.times)
    print(f"\nmost memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


if __name__ == "__main__":
    main()
