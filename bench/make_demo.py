"""Make the traces of `taut demo` out of a recorded lab job: fewer steps, and of each event only what a reader uses.

python bench/make_demo.py ../shared/data/lab-slow-link src/taut/demo
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

EVENT_FIELDS = ("ph", "cat", "name", "pid", "tid", "ts", "dur", "args")
COMMUNICATION = ("c10d::", "gloo:")
MARGIN_NS = 1_000_000
"""A dump entry is created a little before or after the call it belongs to."""


def step_of(event: dict[str, Any]) -> int | None:
    found = re.fullmatch(r"ProfilerStep#(\d+)", event["name"])
    return int(found[1]) if found and event.get("cat") == "user_annotation" else None


def window(events: list[dict[str, Any]], steps: int) -> tuple[float, float]:
    """From the begin of the first marked step to the end of the last one kept, in µs of the trace."""
    marks = sorted((event for event in events if step_of(event) is not None), key=lambda event: event["ts"])[:steps]
    return marks[0]["ts"], marks[-1]["ts"] + marks[-1]["dur"]


def slim(event: dict[str, Any]) -> dict[str, Any]:
    """The fields a reader looks at; the shapes of all ops, the rest of the arguments of collectives only."""
    wanted = {"Input Dims"}
    if event["name"].startswith(COMMUNICATION):
        wanted |= {"Input type", "Concrete Inputs"}
    kept = {key: event[key] for key in EVENT_FIELDS if key in event}
    kept["args"] = {key: value for key, value in event.get("args", {}).items() if key in wanted and value}
    return kept if kept["args"] else {key: value for key, value in kept.items() if key != "args"}


def trim_trace(trace: dict[str, Any], steps: int) -> tuple[dict[str, Any], tuple[int, int]]:
    """A smaller trace, and its window in ns of the wall clock."""
    begin, end = window(trace["traceEvents"], steps)
    events = [
        slim(event)
        for event in trace["traceEvents"]
        if event.get("ph") == "X"
        and event.get("cat") in ("cpu_op", "user_annotation")
        and begin <= event["ts"]
        and event["ts"] + event["dur"] <= end
    ]
    base = int(trace["baseTimeNanoseconds"])
    header = {key: value for key, value in trace.items() if key not in ("traceEvents", "traceName", "trace_id")}
    return {**header, "traceEvents": events}, (base + round(begin * 1000), base + round(end * 1000))


def trim_dump(dump: dict[str, Any], span: tuple[int, int]) -> dict[str, Any]:
    """The collectives a flight recorder saw in the window."""
    fields = ("collective_seq_id", "is_p2p", "process_group", "profiling_name", "time_created_ns")
    entries = [
        {field: entry[field] for field in fields}
        for entry in dump["entries"]
        if span[0] - MARGIN_NS <= entry["time_created_ns"] <= span[1] + MARGIN_NS
    ]
    return {**dump, "entries": entries}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", type=int, default=7, help="profiled steps to keep; taut drops the first")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    for path in sorted(options.source.glob("rank*.json.gz")):
        trace, span = trim_trace(json.loads(gzip.decompress(path.read_bytes())), options.steps)
        packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0)
        (options.target / path.name).write_bytes(packed)
        beside = options.source / f"fr_{path.name.removesuffix('.gz')}"
        dump = trim_dump(json.loads(beside.read_bytes()), span)
        (options.target / beside.name).write_text(json.dumps(dump, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
