"""Record the incident of `taut demo` in the lab, and trim it to what a reader uses.

sudo python bench/make_demo.py src/taut/demo --seed 40
sudo python bench/make_demo.py src/taut/demo --seed 40 --runs FOLDER   # keep the lab runs, or trim those that are there

One job of eight ranks in two attempts. A rank of the first is killed. The second goes on from the last checkpoint and is
traced: all ranks have hiccups of one law, one of them becomes slow after a while, and a balancer changes priorities of
the processes meanwhile. What is shipped is what was recorded: traces and flight-recorder dumps of the second attempt,
host metrics, the balancer's log, and a training log that is made of the steps of both attempts. Prices, power and a bill are
added by demo_money.py, and are made.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from demo_money import add_money

from taut.lab.case import SAVE_EVERY, Spec
from taut.lab.run_case import Lab
from taut.lab.truth import TRACES, TRUTH, load

RANKS, STEPS, FIRST_STEPS = 8, 80, 12
FIRST, SECOND, ACTIONS = "first", "second", "balancer.log"
EVENT_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
COMMUNICATION = ("c10d::", "gloo:")
MARGIN_NS = 1_000_000
"""A dump entry is created a little before or after the call it belongs to."""
SHORT_US = 5000.0
"""Ops of the host that take less are left out, and are gaps then: so small a job needs nothing compiled."""
EVERY_S = 0.8
"""Between two looks of the balancer."""
NICE = -5


def record(runs: Path, seed: int) -> None:
    """Both attempts, each a lab run of its own; the balancer looks on at the second."""
    with Lab() as lab:
        first = Spec(job="ddp", fault="kill", ranks=RANKS, seed=seed, steps=FIRST_STEPS, folder=str(runs / FIRST))
        second = Spec(job="ddp", fault="both", ranks=RANKS, seed=seed, steps=STEPS, folder=str(runs / SECOND))
        lab.run(first)
        balancer = Balancer(lab._host.pid)
        balancer.start()
        lab.run(second)
        balancer.stopping.set()
        balancer.join()
    (runs / ACTIONS).write_text("".join(balancer.lines), encoding="utf-8")


class Balancer(threading.Thread):
    """A controller: whichever rank got least of the processors since the last look has a higher priority until the next."""

    def __init__(self, parent: int) -> None:
        super().__init__(daemon=True)
        self.parent, self.lines = parent, list[str]()
        self.stopping = threading.Event()
        self.favoured: int | None = None

    def run(self) -> None:
        """Look and act until told to stop."""
        before: dict[int, int] = {}
        while not self.stopping.wait(EVERY_S):
            used = {pid: ticks for pid in newest_below(self.parent, RANKS) if (ticks := cpu_ticks(pid)) is not None}
            order = sorted(used)  # forked one after the other, rank by rank
            shares = [used[pid] - before.get(pid, used[pid]) for pid in order]
            if len(shares) == RANKS and min(shares) > 0:
                self.favour(shares.index(min(shares)), order)
            before = used

    def favour(self, rank: int, pids: Sequence[int]) -> None:
        """Give a rank priority and take it from the one that had it; what is done already is not done again."""
        if rank == self.favoured:
            return
        if self.favoured is not None:
            self.set(self.favoured, pids, NICE, 0)
        self.set(rank, pids, 0, NICE)
        self.favoured = rank

    def set(self, rank: int, pids: Sequence[int], before: int, after: int) -> None:
        """One action, done and logged."""
        os.setpriority(os.PRIO_PROCESS, pids[rank], after)
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.lines.append(f"{now} balancer nice={before}->{after} node{rank} trigger=cpu\n")


def newest_below(pid: int, count: int) -> list[int]:
    """The rank processes: of those without children below the lab's host process, those that were made last."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))

    def leaves(pid: int) -> Iterator[int]:
        below = parents.get(pid, [])
        if not below:
            yield pid
        for child in below:
            yield from leaves(child)

    return sorted(leaves(pid))[-count:]


def cpu_ticks(pid: int) -> int | None:
    """CPU time of a process so far; None if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])


def step_of(event: dict[str, Any]) -> int | None:
    found = re.fullmatch(r"ProfilerStep#(\d+)", event["name"])
    return int(found[1]) if found and event.get("cat") == "user_annotation" else None


def window(events: list[dict[str, Any]]) -> tuple[float, float]:
    """From the begin of the first marked step to the end of the last, in µs of the trace."""
    marks = sorted((event for event in events if step_of(event) is not None), key=lambda event: event["ts"])
    return marks[0]["ts"], marks[-1]["ts"] + marks[-1]["dur"]


def outermost(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Annotations, collectives, and of the other ops those that are not short and lie in no other (nobody reads those)."""
    ended: dict[int, float] = {}
    for event in sorted(events, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        if event["cat"] == "user_annotation" or event["name"].startswith(COMMUNICATION):
            yield event
        elif event["ts"] >= ended.get(event["tid"], float("-inf")):
            ended[event["tid"]] = event["ts"] + event["dur"]
            if event["dur"] >= SHORT_US:
                yield event


def slim(event: dict[str, Any]) -> dict[str, Any]:
    """The fields a reader looks at; the shapes of all ops, the rest of the arguments of collectives only."""
    wanted = {"Input Dims"}
    if event["name"].startswith(COMMUNICATION):
        wanted |= {"Input type", "Concrete Inputs"}
    kept = {key: event[key] for key in EVENT_FIELDS if key in event}
    kept["args"] = {key: value for key, value in event.get("args", {}).items() if key in wanted and value}
    return kept if kept["args"] else {key: value for key, value in kept.items() if key != "args"}


def trim_trace(trace: dict[str, Any]) -> tuple[dict[str, Any], tuple[int, int]]:
    """A smaller trace, and its window in ns of the wall clock."""
    begin, end = window(trace["traceEvents"])
    inside = [
        event
        for event in trace["traceEvents"]
        if event.get("ph") == "X"
        and event.get("cat") in ("cpu_op", "user_annotation")
        and begin <= event["ts"]
        and event["ts"] + event["dur"] <= end
    ]
    base = int(trace["baseTimeNanoseconds"])
    header = {key: value for key, value in trace.items() if key not in ("traceEvents", "traceName", "trace_id")}
    span = base + round(begin * 1000), base + round(end * 1000)
    return {**header, "traceEvents": [slim(event) for event in outermost(inside)]}, span


def trim_dump(dump: dict[str, Any], span: tuple[int, int]) -> dict[str, Any]:
    """The collectives a flight recorder saw in the window."""
    fields = ("collective_seq_id", "is_p2p", "process_group", "profiling_name", "time_created_ns", "state", "input_sizes")
    entries = [
        {field: entry[field] for field in fields}
        for entry in dump["entries"]
        if span[0] - MARGIN_NS <= entry["time_created_ns"] <= span[1] + MARGIN_NS
    ]
    return {**dump, "entries": entries}


def steps_of(part: Path) -> list[tuple[int, int, float]]:
    """Begin and end (ns) of every step of the first rank that wrote some, and its loss."""
    with (part / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rank = rows[0]["rank"]
    return [(int(row["start_ns"]), int(row["end_ns"]), float(row["loss"])) for row in rows if row["rank"] == rank]


def training_log(runs: Path) -> Iterator[str]:
    """What a training would have logged of both attempts: every step, every checkpoint, the failure, the restart."""
    parts = [steps_of(runs / FIRST / part) for part in ("healthy-0", "healthy-1", TRACES)]
    (lost,) = load(runs / FIRST).injected[0].ranks
    numbered = count()
    saved, last = 0, 0
    yield f"{stamp(parts[0][0][0])} world size: {RANKS}\n"
    for part in parts:
        for i, (begin, end, loss) in enumerate(part):
            number, last = next(numbered) + 1, end
            yield step_line(number, begin, end, loss)
            if i % SAVE_EVERY == SAVE_EVERY - 1:
                saved = number
                yield f"{stamp(end)} successfully saved checkpoint at iteration {saved} to checkpoints\n"
    yield f"{stamp(last)} RuntimeError: rank {lost} closed its connections, exit code -9 (SIGKILL)\n"
    again = steps_of(runs / SECOND / TRACES)
    yield f"{stamp(again[0][0])} world size: {RANKS}\n"
    yield f"{stamp(again[0][0])} successfully loaded checkpoint from checkpoints at iteration {saved}\n"
    for i, (begin, end, loss) in enumerate(again):
        number = saved + i + 1
        yield step_line(number, begin, end, loss)
        if i % SAVE_EVERY == SAVE_EVERY - 1:
            yield f"{stamp(end)} successfully saved checkpoint at iteration {number} to checkpoints\n"


def step_line(number: int, begin: int, end: int, loss: float) -> str:
    took = f"elapsed time per iteration (ms): {(end - begin) / 1e6:.1f}"
    return f"{stamp(end)} iteration {number:8d}/ {10 * STEPS:8d} | {took} | lm loss: {loss:.6E} |\n"


def stamp(ns: int) -> str:
    return f"[{datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec='milliseconds').replace('+00:00', 'Z')}]"


def assemble(runs: Path, target: Path) -> None:
    """Everything that is shipped, trimmed."""
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    for path in sorted((runs / SECOND / TRACES).glob("rank*.json.gz")):
        trace, span = trim_trace(json.loads(gzip.decompress(path.read_bytes())))
        packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0)
        (target / path.name).write_bytes(packed)
        beside = runs / SECOND / TRACES / f"flight_{path.name.removesuffix('.gz')}"
        dump = trim_dump(json.loads(beside.read_bytes()), span)
        (target / f"fr_{path.name.removesuffix('.gz')}").write_text(
            json.dumps(dump, separators=(",", ":")) + "\n", encoding="utf-8"
        )
    (target / "host.csv").write_bytes((runs / SECOND / TRACES / "host.csv").read_bytes().replace(b"\r\n", b"\n"))
    inside = [line for line in (runs / ACTIONS).read_text().splitlines(keepends=True) if span[0] <= time_of(line) <= span[1]]
    (target / ACTIONS).write_text("".join(inside), encoding="utf-8")
    (target / "train.log").write_text("".join(training_log(runs)), encoding="utf-8")
    add_money(target)


def time_of(line: str) -> int:
    return round(datetime.fromisoformat(line.split(maxsplit=1)[0]).timestamp() * 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=40)
    parser.add_argument("--runs", type=Path, help="folder for the lab runs; recorded only if they are not there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        runs = (options.runs or Path(scratch)).resolve()
        if not (runs / SECOND / TRUTH).exists():
            record(runs, options.seed)
        assemble(runs, options.target)


if __name__ == "__main__":
    main()
