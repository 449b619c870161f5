"""What taut makes of a folder of real files, one row a job, as Markdown: ``python bench/formats.py ../shared/data``.

Collectives are matched if all members of their group meet at one gate. *On all their ranks* are those that every rank of
the group recorded: the others cannot be matched. *Wrong* are gates whose members carry different sequence numbers.
"""

from __future__ import annotations

import argparse
import re
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from taut.core.errors import InputRefused
from taut.core.ids import numbered
from taut.core.tables import Trace, Verb
from taut.graph import Graph, link
from taut.read.trace import read

APART = ("alibaba-pai-steps", "bytedance-stragglers", "chakra", "kineto-single", "control", "slurm")
"""Folders that hold several jobs, or several logs of one: read file by file."""
SCRATCH = Path(tempfile.mkdtemp())
ANSWER = re.compile(r"(ms|mw|result|meta)-")
"""What is known of a job, not a trace of it."""


def jobs(folder: Path) -> Iterator[list[Path]]:
    """The inputs of one ``taut analyze`` each."""
    for path in sorted(folder.iterdir()):
        if not path.is_dir():
            continue
        if path.name in APART:
            yield from ([one] for one in sorted(_apart(path)) if not ANSWER.match(one.name))
        else:
            inner = [one for one in sorted(path.iterdir()) if one.is_dir()]
            yield from ([one] for one in inner) if inner and path.name == "flight-recorder" else iter([[path]])


def _apart(folder: Path) -> Iterator[Path]:
    """Files of a folder, and what lies in archives of several jobs."""
    for one in folder.iterdir():
        if one.name.endswith(".tar.gz"):
            with tarfile.open(one) as archive:
                archive.extractall(SCRATCH / one.name, filter="data")
            yield from (file for file in (SCRATCH / one.name).rglob("*") if file.is_file())
        else:
            yield one


def matched(graph: Graph) -> tuple[int, int, int]:
    """(collective calls on all their ranks, of those matched, gates that are wrong)."""
    ops = graph.ops
    hop = (ops.verb == Verb.SEND) | (ops.verb == Verb.RECV)
    rows = np.flatnonzero((ops.verb != Verb.NONE) & ~hop & (ops.group >= 0))
    if not len(rows):
        return 0, 0, 0
    group, rank, seq = ops.group[rows].astype(np.int64), ops.rank[rows].astype(np.int64), ops.seq[rows]
    key, count = numbered(group, np.where(seq >= 0, seq, -1 - _nth(group, rank, rows, ops)))
    present = _distinct(key, rank, count)
    full = np.array([len(_members(graph, int(g), rank[group == g])) for g in range(int(group.max()) + 2)] or [0])
    everywhere = present[key] >= np.maximum(full[group], 2)
    met = graph.gate[rows] >= 0
    inside = np.flatnonzero(met & (seq >= 0))
    gates = graph.gate[rows[inside]]
    lowest, highest = np.full(len(graph.gates), 1 << 62), np.full(len(graph.gates), -1)
    np.minimum.at(lowest, gates, seq[inside])
    np.maximum.at(highest, gates, seq[inside])
    return int(everywhere.sum()), int((everywhere & met).sum()), int((highest > lowest).sum())


def _nth(group: Any, rank: Any, rows: Any, ops: Any) -> Any:
    """The turn of a call among those of its rank on its group."""
    cell, cells = numbered(group, rank, ops.verb[rows])
    order = np.lexsort((rows, cell))
    start = np.searchsorted(cell[order], np.arange(cells))
    out = np.empty(len(rows), dtype=np.int64)
    out[order] = np.arange(len(rows)) - start[cell[order]]
    return out


def _distinct(key: Any, rank: Any, count: int) -> Any:
    pairs = np.unique(np.stack([key, rank], axis=1), axis=0)
    return np.bincount(pairs[:, 0], minlength=count)


def _members(graph: Graph, group: int, seen: Any) -> set[int]:
    name = graph.trace.groups[group] if 0 <= group < len(graph.trace.groups) else ""
    known = graph.trace.group_ranks.get(name)
    if not known and (graph.trace.world_size or 0) > len(graph.ranks):
        return set(range(graph.trace.world_size or 0))  # whom it has is not known: perhaps some that were not traced
    return set(map(int, known)) if known else set(map(int, np.unique(seen)))


def row(paths: list[Path], root: Path) -> list[str]:
    """One line of the table."""
    name = f"`{_named(paths[0], root)}`"
    try:
        trace = read(paths)
        if not len(trace.ops):
            return [name, "–", "–", "–", "–", "–", f"a job log: {_attempts(trace)}"]
        graph = link(trace)
    except InputRefused as refusal:
        return [name, "–", "–", "–", "–", "–", f"refused: {refusal.why}"]
    everywhere, met, wrong = matched(graph)
    dropped = {k.removeprefix("dropped: "): v for k, v in graph.counts.items() if k.startswith("dropped: ") and v}
    reasons = ", ".join(f"{v:,} {k}" for k, v in sorted(dropped.items(), key=lambda x: -x[1])) or "none"
    share = f"{100 * met / everywhere:.1f} % of {everywhere:,}" if everywhere else "none there"
    if wrong:
        share += f", {wrong} wrong"
    events = graph.counts.get("events")
    partial = _short(graph.partial, paths[0]) or "–"
    return [name, f"{len(graph.ranks):,}", f"{events:,}" if events else "–", f"{len(trace.ops):,}", share, reasons, partial]


def _named(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path.relative_to(SCRATCH))


def _attempts(trace: Trace) -> str:
    """What a job log tells."""
    jobs = len(set(trace.attempts.job.tolist()))
    return f"{jobs:,} jobs, {len(trace.attempts):,} attempts; {_short(trace.partial, Path(trace.source))}".rstrip("; ")


def _short(lines: Sequence[str], path: Path) -> str:
    """The text, without the path that the row begins with."""
    return "; ".join(line.replace(f"{path}: ", "").replace(f"{path} ", "it ") for line in lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    print("| input | ranks | events | ops | matched, of those on all their ranks | dropped | what is said to be missing |")
    print("|---|---:|---:|---:|---|---|---|")
    for paths in jobs(folder):
        print("| " + " | ".join(cell.replace("|", "/") for cell in row(paths, folder)) + " |", flush=True)


if __name__ == "__main__":
    main()
