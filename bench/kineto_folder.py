"""Write a folder of Kineto traces of any size by repeating the steps of a recorded one, and say what reading it takes.

    python bench/kineto_folder.py TRACES OUT --files 4 --mb 512 [--gz] [--measure]

TRACES is a folder of traces of all ranks (``rank*.json.gz``), such as one of the lab's; file i repeats rank i of them, modulo
their number. With --measure, ``taut analyze OUT --no-save`` runs on it: peak memory of its process and of each worker.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STEP = re.compile(r"ProfilerStep#(\d+)")
MARK = "\0"
APART_US = 50.0
"""Between the last op of a repetition and the first of the next."""
Pieces = tuple[tuple[str, ...], tuple[tuple[str, float], ...]]


def pieces(event: dict[str, Any]) -> Pieces:
    """An event as text with holes, and the numbers in them that change with every repetition, by what they count."""
    event, holes = dict(event), [("us", float(event["ts"]))]
    event["ts"] = MARK
    step = STEP.match(event.get("name", ""))
    if "id" in event:
        holes.append(("id", event["id"]))
        event["id"] = MARK
    if "External id" in event.get("args", {}):
        holes.append(("id", event["args"]["External id"]))
        event["args"] = {**event["args"], "External id": MARK}
    if step:
        holes.append(("step", int(step[1])))
        event["name"] = f"ProfilerStep#{MARK}"
    kinds = {"us": '"ts": ', "id": 'id": ', "step": "Step#"}
    text = json.dumps(event).replace(json.dumps(MARK), MARK).replace(json.dumps(MARK)[1:-1], MARK)
    order = sorted(holes, key=lambda hole: text.index(kinds[hole[0]] + MARK))
    return tuple(text.split(MARK)), tuple(order)


def repeated(events: list[Pieces], by: dict[str, float], turn: int) -> str:
    """All events of one repetition as text."""
    out = []
    for texts, holes in events:
        parts = [texts[0]]
        for (kind, value), text in zip(holes, texts[1:], strict=True):
            now = value + turn * by[kind]
            parts += (f"{now:.3f}" if kind == "us" else str(int(now)), text)
        out.append("".join(parts))
    return ",\n".join(out)


def content(trace: dict[str, Any], period_us: float, rank: int, ranks: int, size: int) -> Iterator[str]:
    """The text of one file of about this many bytes."""
    head = {key: value for key, value in trace.items() if key != "traceEvents"}
    group = {**head["distributedInfo"]["pg_config"][0], "pg_size": ranks, "ranks": list(range(ranks))}
    head["distributedInfo"] = {**head["distributedInfo"], "rank": rank, "world_size": ranks, "pg_config": [group]}
    events = [event for event in trace["traceEvents"] if event.get("ph") in "Xsf" and event.get("cat") != "Trace"]
    ids = [event.get("args", {}).get("External id", event.get("id", 0)) for event in events]
    steps = [match for match in (STEP.match(event.get("name", "")) for event in events) if match]
    by = {"us": period_us, "id": float(max(ids) + 1), "step": float(len({match[1] for match in steps}))}
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    prepared, written, turn = [pieces(event) for event in events], 0, 0
    while written < size:
        text = (",\n" if turn else "") + repeated(prepared, by, turn)
        yield text
        written, turn = written + len(text), turn + 1
    yield "\n]}\n"


def period(traces: list[dict[str, Any]]) -> float:
    """How long the ranks took together, first start to last end, µs."""
    timed = [event for trace in traces for event in trace["traceEvents"] if "dur" in event and event.get("cat") != "Trace"]
    return float(max(e["ts"] + e["dur"] for e in timed) - min(e["ts"] for e in timed)) + APART_US


def write(source: Path, out: Path, count: int, size: int, packed: bool) -> None:
    """The folder of traces."""
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(source.glob("rank*.json.gz"))]
    period_us = period(traces)
    out.mkdir(parents=True, exist_ok=True)
    for rank in range(count):
        name = out / f"rank{rank}.json{'.gz' if packed else ''}"
        with gzip.open(name, "wt", compresslevel=1) if packed else open(name, "w", encoding="utf-8") as file:
            for text in content(traces[rank % len(traces)], period_us, rank, count, size):
                file.write(text)


def peaks(command: list[str]) -> tuple[dict[int, float], dict[int, str], float, float]:
    """Peak resident memory in MB of a command's process and of all below it, what each is, CPU seconds and wall seconds."""
    began, found, kind = time.perf_counter(), dict[int, float](), dict[int, str]()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        for pid in [process.pid, *_below(process.pid)]:
            try:
                status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
                found[pid] = max(found.get(pid, 0.0), int(status.partition("VmHWM:")[2].split()[0]) / 1024)
                kind[pid] = "parent" if pid == process.pid else "worker"
            except (OSError, IndexError, ValueError):
                continue
        time.sleep(0.05)
    times = os.times()
    return found, kind, times.children_user + times.children_system, time.perf_counter() - began


def _below(pid: int) -> list[int]:
    """Processes that a process, or one below it, started."""
    try:
        mine = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []
    return [*mine, *(inner for one in mine for inner in _below(one))]


def main() -> None:
    """Write the folder; with --measure say what reading it takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--mb", type=float, default=64, help="size of each file before it is packed, MB")
    parser.add_argument("--gz", action="store_true")
    parser.add_argument("--measure", action="store_true")
    args = parser.parse_args()
    write(args.traces, args.out, args.files, int(args.mb * 1e6), args.gz)
    if not args.measure:
        return
    from taut.read.trace import read

    found, kind, cpu, wall = peaks([sys.executable, "-m", "taut", "analyze", str(args.out), "--no-save", "-q"])
    total = sum(path.stat().st_size for path in args.out.iterdir())
    ops = len(read([args.out]).ops)
    print("| process | peak MB |\n|---|---|")
    for pid, peak in found.items():
        print(f"| {kind[pid]} | {peak:.0f} |")
    most = max(peak for pid, peak in found.items() if kind[pid] == "parent")
    print(f"\n{total / 1e6:,.0f} MB in {args.files} files, {ops:,} ops: {cpu:.1f} s of CPU, {wall:.1f} s of wall; ", end="")
    print(f"parent {1048576 * most / ops:.0f} bytes an op, {most * 1.048576e6 / total:.3f} bytes a byte read")


if __name__ == "__main__":
    main()
