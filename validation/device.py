"""What taut says accelerators did, against plain unions of intervals of the raw files.

    python validation/device.py [FILE|FOLDER…]        (../shared/data where none is given)

Nothing of taut is imported: raw events are read here, ``taut analyze --json`` runs as a program, and its ``device`` is
checked inside its own windows. A folder whose files are several ranks of one job is one job; other files stand alone.

- **shares**: busy, compute, communication, hidden, exposed, copies, exposed copies, idle: each within 1 point.
- **windows** of one rank do not overlap, and do not end before they start.
- **step**: within 1 % of what the raw marks say. A mark is a host annotation that people write once a step; where the
  optimiser steps in every fourth, say, four are one step. The work of
  a mark is every device event whose launch (same correlation; a graph's launch for all its kernels) lies inside it. The
  period of a step is the end of its own work less the end of the work of the mark before (for the first mark of a
  trace or of a profiler cycle: the end of its work less its beginning). Ends on the stream with work of most marks,
  beginnings, and the marks themselves where the host waits for the device in every step, give the same period another
  way, and any of them is accepted.
- **held**: at least 99 % of the device time that the marks of kept windows launched lies inside the kept windows.
- **laws**: the replay error is 0 and the ledger closes.

A trace with device events and ``device: null`` is a miss. Exit 1 on a miss.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

COMPUTE, COMMUNICATION, COPY, WAIT = 0, 1, 2, 3
NEVER = -(1 << 62)
POINT, STEP, HELD = 0.01, 0.01, 0.99

COMMUNICATES = re.compile(
    r"""^(nccl|rccl|mscclKernel|msccl_|ccl_|oneccl|hccl|hcom)      # libraries of collectives
      | nccl(Dev)?Kernel | mscclpp | msccl:: | oneccl | \bccl:: | hcom_ | hccl
      | nvshmem | rocshmem | ishmem | _on_stream_kernel               # one-sided
      | deep_ep | \b(intranode|internode|internode_ll)::            # expert parallel
      | moe_?a2a | moe_?all_?to_?all | uccl | pplx
      | multimem_ | (one|two)_?shot | cross_device_reduce | symm_mem # symmetric memory
      | quick_?reduce | userbuffers | lamport
      | all_?reduce | all_?gather | reduce_?scatter | all_?to_?all | send_?recv | ncclsend | ncclrecv""",
    re.X | re.I,
)
IS_COPY = re.compile(r"^mem(cpy|set)|^__amd_rocclr_(copy|fill)|^dma_request", re.I)
DEVICE = {"kernel": None, "gpu_memcpy": COPY, "gpu_memset": COPY, "memcpy": COPY, "memset": COPY, "mtia_ccp_events": None}
"""Kineto categories of device events, in lower case; None where the name tells what it is."""
LAUNCH = re.compile(r"(cuda_|hip_|xpu_|mtia_|privateuse1_)?(runtime|driver)")
ASKS = re.compile(r"Query|Synchronize|EventRecord")
"""Calls that launch nothing, whatever number they carry."""
MARKS = (re.compile(r"^ProfilerStep#(\d+)$"), re.compile(r"^execute_.*\d"), re.compile(r"^step\[.*\]$"))
"""Marks that people write once a step, the best first."""
STEP_RANGE = r"(?:ProfilerStep|train_?step|step|iter|iteration)[ _#:=]*(\d+)"
"""The same in NVTX."""


@dataclass
class Raw:
    """The device events of one rank, ns on the raw file's own clock."""

    rank: int | None
    device: int | None = None
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    launch: list[int] = field(default_factory=list)
    """When the host launched each event; NEVER: the trace does not tell."""
    marks: list[tuple[int, int, int]] = field(default_factory=list)
    """(number, start, end), in order of time."""
    width: int = 1
    """Marks that were joined to one, where gradients are accumulated."""
    world: int | None = None
    stream: list[str] = field(default_factory=list)

    def add(self, start: int, end: int, kind: int, launch: int = NEVER, stream: str = "") -> None:
        self.start.append(start)
        self.end.append(end)
        self.kind.append(kind)
        self.launch.append(launch)
        self.stream.append(stream)


@cache
def kind_of(name: str) -> int:
    if name.startswith("event_wait"):  # a queue of the device waits for another (MTIA)
        return WAIT
    if IS_COPY.search(name):
        return COPY
    return COMMUNICATION if COMMUNICATES.search(name) else COMPUTE


# ---------------------------------------------------------------------------------------------------------------------
# Raw files
# ---------------------------------------------------------------------------------------------------------------------


def ns(micros: Any) -> int:
    """Microseconds as written, exactly."""
    return micros * 1000 if isinstance(micros, int) else int(Decimal(micros) * 1000)


def kineto(data: Any) -> list[Raw]:
    """Traces of the PyTorch profiler, and of JAX and TensorFlow in the same form."""
    events = data.get("traceEvents", []) if isinstance(data, dict) else data
    events = [e for e in events if isinstance(e, dict)] if isinstance(events, list) else []
    info = data.get("distributedInfo", {}) if isinstance(data, dict) else {}
    whole = intervals(events)
    launches: dict[int, list[int]] = defaultdict(list)
    for e in whole:
        c = (e.get("args") or {}).get("correlation")
        if c and LAUNCH.fullmatch(str(e.get("cat", "")).lower()) and not ASKS.search(e["name"]):
            launches[int(c)].append(ns(e["ts"]))
    raw = Raw(info.get("rank"), world=info.get("world_size"), marks=marks_of(whole))
    updates = [e for e in whole if str(e["name"]).startswith("Optimizer.step#") and str(e.get("cat", "")).lower() in HOST]
    raw.marks, raw.width = by_update(raw.marks, [ns(e["ts"]) for e in updates])
    for e in whole:
        category, args = str(e.get("cat", "")).lower(), e.get("args") or {}
        known = DEVICE.get(category, -1) if category else task(e["name"], str(args.get("Task Type", "")))
        if known == -1:
            continue
        start, length = ns(e["ts"]), ns(e.get("dur", 0))
        before = [t for t in launches.get(int(args.get("correlation") or 0), ()) if t <= start + length]
        kind = kind_of(e["name"]) if known is None else known
        raw.add(start, start + length, kind, max(before, default=NEVER), f"{e.get('pid')} {e.get('tid')}")
        raw.device = args.get("device", raw.device)
    if not raw.marks and (shadows := marks_of(whole, ("gpu_user_annotation",))):
        raw.marks, raw.launch = shadows, raw.start  # the host was not recorded: work belongs to the shadow it begins in
    return [raw] if raw.start else xla(events, whole)


def intervals(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with a beginning and a length that are numbers; those that begin and end apart are joined."""
    found, open_ones = [], defaultdict[tuple[Any, Any], list[dict[str, Any]]](list)
    for e in events:
        if e.get("ph") == "B":
            open_ones[e.get("pid"), e.get("tid")].append(e)
        elif e.get("ph") == "E" and open_ones[e.get("pid"), e.get("tid")]:
            begun = open_ones[e.get("pid"), e.get("tid")].pop()
            found.append({**begun, "ph": "X", "dur": str(Decimal(e["ts"]) - Decimal(begun["ts"]))})
        elif e.get("ph") == "X" and _number(e.get("ts")) and _number(e.get("dur", 0)) and Decimal(e.get("dur", 0)) >= 0:
            found.append({"name": "", **e})
    return found


def _number(value: Any) -> bool:
    try:
        return value is not None and Decimal(value).is_finite()
    except (ArithmeticError, ValueError, TypeError):
        return False


def task(name: str, kind: str) -> int | None:
    """What a task of an Ascend device is, which has no category; -1 for none."""
    if name.startswith("hcom_"):
        return COMMUNICATION
    return COMPUTE if kind.startswith(("AI_", "MIX_", "KERNEL_")) else COPY if kind.startswith("MEMCPY") else -1


HOST = ("user_annotation", "operator", "cpu_op")


def marks_of(whole: list[dict[str, Any]], categories: tuple[str, ...] = HOST) -> list[tuple[int, int, int]]:
    """Marks of the best kind there is, of the thread that has most of them."""
    for mark in MARKS:
        found: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
        for e in whole:
            if str(e.get("cat", "")).lower() in categories and (m := mark.match(str(e["name"]))):
                number = int(m[1]) if m.groups() else -1
                found[e.get("tid")].append((ns(e["ts"]), ns(e["ts"]) + ns(e.get("dur", 0)), number))
        if found:
            best = sorted(max(found.values(), key=len))
            return [(number if number >= 0 else i, start, end) for i, (start, end, number) in enumerate(best)]
    return []


def by_update(marks: list[tuple[int, int, int]], updates: list[int]) -> tuple[list[tuple[int, int, int]], int]:
    """Marks joined up to those in which the optimiser steps, where it does in every so many (accumulated gradients)."""
    last = [i for i, (_, start, end) in enumerate(marks) if any(start <= at < end for at in updates)]
    widths = {b - a for a, b in pairwise(last)}
    if len(widths) != 1 or widths == {1}:
        return marks, 1
    width = widths.pop()
    return [(marks[i - width + 1][0], marks[i - width + 1][1], marks[i][2]) for i in last if i >= width - 1], width


def xla(events: list[dict[str, Any]], whole: list[dict[str, Any]]) -> list[Raw]:
    """Streams of processes called ``/device:…``: one rank each."""
    names = {(e.get("pid"), e.get("tid"), e["name"]): str(e["args"].get("name", "")) for e in events if e.get("ph") == "M"}
    planes = {pid: name for (pid, _, what), name in names.items() if what == "process_name" and name.startswith("/device:")}
    ranks: dict[Any, Raw] = {}
    launched = {e["args"]["correlation_id"]: ns(e["ts"]) for e in whole if e["pid"] not in planes and _correlation(e)}
    for e in whole:
        pid, stream = e.get("pid"), names.get((e.get("pid"), e.get("tid"), "thread_name"), "")
        if pid in planes and _is_stream(stream):
            one = ranks.setdefault(pid, Raw(None, int(planes[pid].rsplit(":", 1)[-1].split()[0])))
            launch = launched.get(_correlation(e), NEVER)
            one.add(ns(e["ts"]), ns(e["ts"]) + ns(e.get("dur", 0)), kind_of(e["name"]), launch, stream)
    numbered = [(e, (e.get("args") or {}).get("step_num")) for e in whole if e["pid"] not in planes]
    marks = sorted((int(n), ns(e["ts"]), ns(e["ts"]) + ns(e.get("dur", 0))) for e, n in numbered if n is not None)
    for one in ranks.values():
        one.marks = marks
    return [ranks[pid] for pid in sorted(ranks, key=lambda p: ranks[p].device or 0)]


def _correlation(e: dict[str, Any]) -> str | None:
    return (e.get("args") or {}).get("correlation_id")


def _is_stream(line: str) -> bool:
    return "Stream #" in line or line == "XLA Ops"


def nsight(path: Path) -> list[Raw]:
    """One rank a device of an Nsight Systems export."""
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        tables = {name for (name,) in db.execute("select name from sqlite_master where type='table'")}
        if "StringIds" not in tables:
            return []
        launches: dict[tuple[int, int], int] = {}
        if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables:
            for start, thread, c in db.execute("select start, globalTid, correlationId from CUPTI_ACTIVITY_KIND_RUNTIME"):
                launches[thread >> 24, c] = start
        ranks: dict[tuple[int, int], Raw] = {}
        for table, name in (("KERNEL", "demangledName"), ("GRAPH_TRACE", None), ("MEMCPY", None), ("MEMSET", None)):
            if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:
                continue
            what = "s.value" if name else "''"
            join = f"left join StringIds s on s.id = k.{name}" if name else ""
            columns = f"k.start, k.end, k.deviceId, k.globalPid, k.correlationId, k.streamId, {what}"
            query = f"select {columns} from CUPTI_ACTIVITY_KIND_{table} k {join}"
            for start, end, device, process, c, stream, text in db.execute(query):
                one = ranks.setdefault((device, process), Raw(None, device))
                kind = kind_of(text or "") if name else COMPUTE if table == "GRAPH_TRACE" else COPY
                one.add(start, end, kind, launches.get((process >> 24, c), NEVER), str(stream))
        for (_, process), one in ranks.items():
            one.marks = nvtx(db, process >> 24) if "NVTX_EVENTS" in tables else []
    return [ranks[k] for k in sorted(ranks)]


def nvtx(db: sqlite3.Connection, process: int) -> list[tuple[int, int, int]]:
    """Ranges of one process that are numbered steps."""
    query = """select n.start, n.end, coalesce(n.text, s.value) from NVTX_EVENTS n left join StringIds s on s.id = n.textId
               where n.end is not null and n.globalTid >> 24 = ? order by n.start"""
    found = [(re.fullmatch(STEP_RANGE, text or "", re.I), start, end) for start, end, text in db.execute(query, (process,))]
    return [(int(m[1]), start, end) for m, start, end in found if m]


def xplane(path: Path) -> list[Raw]:
    """One rank a device plane; needs jax."""
    from jax.profiler import ProfileData

    ranks = []
    for plane in ProfileData.from_file(str(path)).planes:
        if m := re.match(r"/device:\w+:(\d+)", plane.name):
            one = Raw(None, int(m[1]))
            for line in plane.lines:
                if _is_stream(line.name):
                    for e in line.events:
                        one.add(int(e.start_ns), int(e.start_ns + e.duration_ns), kind_of(e.name))
            if one.start:
                ranks.append(one)
    return ranks


def load(path: Path) -> list[Raw] | str:
    """The ranks of one file, or why it is passed over."""
    name = path.name.lower()
    if name.endswith((".sqlite", ".nsys.db")):
        return nsight(path)
    if name.endswith(".xplane.pb"):
        try:
            return xplane(path)
        except ImportError:
            return "jax is not installed"
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        with tarfile.open(path) as tar:
            texts = [tar.extractfile(m).read() for m in tar if m.isfile() and m.name.endswith(".json")]  # type: ignore[union-attr]
        return [raw for text in texts for raw in _json(text)]
    if name.endswith((".json", ".json.gz")):
        text = path.read_bytes()
        return _json(gzip.decompress(text) if name.endswith(".gz") else text)
    return "no trace"


def _json(text: bytes) -> list[Raw]:
    try:
        data = json.loads(text, parse_float=str)
    except ValueError:
        return []
    return kineto(data)


# ---------------------------------------------------------------------------------------------------------------------
# What the raw events say
# ---------------------------------------------------------------------------------------------------------------------

MASKS = {
    "busy": lambda x, c, p: x | c | p,
    "compute": lambda x, c, p: x,
    "communication": lambda x, c, p: c,
    "hidden": lambda x, c, p: c & (x | p),
    "exposed": lambda x, c, p: c & ~(x | p),
    "copy": lambda x, c, p: p,
    "exposed_copy": lambda x, c, p: p & ~(x | c),
    "idle": lambda x, c, p: ~(x | c | p),
}


def shares(raw: Raw, windows: list[tuple[int, int]], waits: int = COMPUTE) -> dict[str, float]:
    """Shares of the windows' length, by one sweep over all ends; waits of the device itself count as recorded."""
    origin = windows[0][0]
    start, end = np.array(raw.start, np.int64) - origin, np.array(raw.end, np.int64) - origin
    kind = np.where(np.array(raw.kind) == WAIT, waits, raw.kind)
    inside = np.array(windows, np.int64) - origin
    at = np.concatenate([start, end, inside[:, 0], inside[:, 1]])
    change = np.zeros((len(at), 5), np.int64)
    rows = np.arange(len(start))
    change[rows, kind] = 1
    change[len(start) + rows, kind] = -1
    change[2 * len(start) :, 4] = np.repeat([1, -1], len(inside))
    order = np.argsort(at, kind="stable")
    length = np.diff(at[order])
    running = np.cumsum(change[order], axis=0)[:-1] > 0
    length = length * running[:, 4]
    x, c, p = running[:, COMPUTE], running[:, COMMUNICATION], running[:, COPY]
    return {name: float(length[mask(x, c, p)].sum() / length.sum()) for name, mask in MASKS.items()}


def overlap(start: np.ndarray, end: np.ndarray, window: tuple[int, int]) -> np.ndarray:
    return np.clip(np.minimum(end, window[1]) - np.maximum(start, window[0]), 0, None)


class Marks:
    """What each mark launched: which events, their first beginning and their last end."""

    def __init__(self, raw: Raw) -> None:
        launch = np.array(raw.launch, np.int64)
        self.raw, self.start, self.end = raw, np.array(raw.start, np.int64), np.array(raw.end, np.int64)
        self.of = np.full(len(launch), -1)
        for i, (_, start, end) in enumerate(raw.marks):
            self.of[(launch >= start) & (launch < end)] = i
        streams, of = np.unique(np.array(raw.stream), return_inverse=True)
        served = [len(set(self.of[(of == k) & (self.of >= 0)])) for k in range(len(streams))]
        time = np.bincount(of, self.end - self.start, len(streams))
        busiest = max(range(len(streams)), key=lambda k: (served[k], time[k]))
        self.first, self.last = self.extent(np.ones(len(of), np.bool_))
        self.main_first, self.main_last = self.extent(of == busiest)

    def extent(self, among: np.ndarray) -> tuple[dict[int, int], dict[int, int]]:
        """(first beginning, last end) of what each mark launched, where it launched anything."""
        rows = {i: np.flatnonzero(among & (self.of == i)) for i in range(len(self.raw.marks))}
        rows = {i: mine for i, mine in rows.items() if len(mine)}
        return {i: int(self.start[r].min()) for i, r in rows.items()}, {i: int(self.end[r].max()) for i, r in rows.items()}

    def kept(self, steps: list[int], windows: list[tuple[int, int]]) -> list[int]:
        """The mark of each window: the one of its number, else the one that launched most of the device time in it."""
        numbers = {number: i for i, (number, _, _) in enumerate(self.raw.marks)}
        if len(numbers) == len(self.raw.marks) and set(steps) <= set(numbers):
            return [numbers[step] for step in steps]
        marks = []
        for window in windows:
            time = overlap(self.start, self.end, window)
            by = [int(time[self.of == i].sum()) for i in range(len(self.raw.marks))]
            marks.append(int(np.argmax(by)) if max(by, default=0) > 0 else -1)
        return marks

    def follows(self, i: int) -> bool:
        """Whether the mark before is the step before."""
        return i - 1 in self.first and self.raw.marks[i][0] - self.raw.marks[i - 1][0] == self.raw.width

    def periods(self, kept: list[int]) -> dict[str, float]:
        """Mean period of the kept steps by each definition that the trace allows."""
        kept = [i for i in kept if i in self.first]
        if not kept:
            return {}
        found = {}
        for name, first, last in (
            ("ends", self.first, self.last),
            ("ends on the main stream", self.main_first, self.main_last),
        ):
            if all(i in last and (i - 1 in last or not self.follows(i)) for i in kept):
                found[name] = float(np.mean([last[i] - (last[i - 1] if self.follows(i) else first[i]) for i in kept]))
        starts = [self.first[i + 1] - self.first[i] for i in kept if i + 1 in self.first and self.follows(i + 1)]
        if len(starts) == len(kept):
            found["starts"] = float(np.mean(starts))
        marks = self.raw.marks
        if all(self.last[i] <= marks[i + 1][1] for i in self.first if i + 1 < len(marks)):
            hosts = [(marks[i + 1][1] if i + 1 < len(marks) else marks[i][2]) - marks[i][1] for i in kept]
            found["host"] = float(np.mean(hosts))
        if len(self.raw.marks) == 1:
            found["mark to end"] = float(self.last[kept[0]] - marks[kept[0]][1])
        return found

    def held(self, kept: list[int], windows: list[tuple[int, int]]) -> float:
        """Share of the device time launched by the kept marks that lies inside the windows."""
        mine = np.isin(self.of, [i for i in kept if i >= 0])
        total = int((self.end - self.start)[mine].sum())
        inside = sum(int(overlap(self.start[mine], self.end[mine], w).sum()) for w in windows)
        return inside / total if total else 1.0


# ---------------------------------------------------------------------------------------------------------------------
# Against taut
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    trace: str
    rank: str
    windows: int = 0
    step_ms: float | None = None
    raw_ms: dict[str, float] = field(default_factory=dict)
    held: float | None = None
    off: dict[str, float] = field(default_factory=dict)
    """Taut's share less the raw one, in points."""
    misses: list[str] = field(default_factory=list)
    reported: dict[str, float] = field(default_factory=dict)
    """Taut's shares, percent."""


def check(trace: str, raw: Raw, rank: str, device: dict[str, Any]) -> Row:
    """One rank of one trace."""
    rows = sorted((w["start_ns"], w["end_ns"], w["step"]) for w in device["windows"] if str(w["rank"]) == rank)
    mine = [(start, end) for start, end, _ in rows]
    row = Row(trace, rank, len(mine))
    reported = device["ranks"].get(rank)
    if not mine or reported is None:
        row.misses.append("no windows" if reported else "rank is missing in device.ranks")
        return row
    if any(start > end for start, end in mine) or all(start == end for start, end in mine):
        row.misses.append("window that ends before it starts")
        return row
    if any(a[1] > b[0] for a, b in pairwise(mine)):
        row.misses.append("windows overlap")
    # Whether a wait of the device itself is busy time is a matter of taste: either is accepted.
    ways = [shares(raw, mine, waits) for waits in ((COMPUTE, WAIT) if WAIT in raw.kind else (COMPUTE,))]
    found = min(ways, key=lambda way: abs(way["busy"] - reported["busy_share"]))
    row.reported = {name: 100 * reported[f"{name}_share"] for name in MASKS}
    row.off = {name: 100 * (reported[f"{name}_share"] - share) for name, share in found.items()}
    row.misses += [
        f"{n} {100 * reported[f'{n}_share']:.1f} for {100 * found[n]:.1f} %" for n in found if abs(row.off[n]) > 100 * POINT
    ]
    row.step_ms = reported["step_ns"] / 1e6
    if raw.marks:
        marks = Marks(raw)
        kept = marks.kept([step for _, _, step in rows], mine)
        row.raw_ms = {k: v / 1e6 for k, v in marks.periods(kept).items()}
        if len(set(kept)) < len(kept):
            row.misses.append("several windows of one mark")
        if row.raw_ms and all(abs(row.step_ms - v) > STEP * abs(v) for v in row.raw_ms.values()):
            row.misses.append(
                f"step {row.step_ms:.3f} for " + ", ".join(f"{v:.3f} ({k})" for k, v in row.raw_ms.items()) + " ms"
            )
        row.held = marks.held(kept, mine)
        if row.held < HELD:
            row.misses.append(f"only {100 * row.held:.1f} % of what kept steps launched is held")
    return row


def taut(command: str, files: list[Path]) -> dict[str, Any] | str:
    """``device`` of the result, or why there is none; the two laws must hold."""
    words = [*command.split(), "analyze", *map(str, files), "--json", "--no-save"]
    done = subprocess.run(words, capture_output=True, text=True)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return f"exit {done.returncode}: {last[:160]}"
    if result["fidelity"] and result["fidelity"]["replay_error"] != 0:
        return f"replay error {result['fidelity']['replay_error']}"
    if result["ledger"] and not result["ledger"]["closes"]:
        return "the ledger does not close"
    return result.get("device") or "device: null"


def jobs(paths: Iterable[Path]) -> Iterator[tuple[str, list[Path], list[Raw] | str]]:
    """(name, files, ranks): files of one folder are one job where they are different ranks of one world at one time."""
    for path in paths:
        if path.is_file():
            yield path.name, [path], load(path)
            continue
        files = sorted(f for f in path.iterdir() if f.is_file())
        loaded = {f: load(f) for f in files}
        ranked = {
            f: raws for f, raws in loaded.items() if isinstance(raws, list) and len(raws) == 1 and raws[0].rank is not None
        }
        firsts = [raws[0] for raws in ranked.values()]
        if len(firsts) > 1 and _one_job(firsts):
            yield path.name, list(ranked), firsts
            loaded = {f: r for f, r in loaded.items() if f not in ranked}
        for f, raws in loaded.items():
            if raws != "no trace":
                yield f"{path.name}/{f.name}", [f], raws
        yield from jobs(sorted(f for f in path.iterdir() if f.is_dir() and f.name != "hostile"))


def _one_job(raws: list[Raw]) -> bool:
    different = len({r.rank for r in raws}) == len(raws) and len({r.world for r in raws}) == 1
    return different and max(min(r.start) for r in raws) < min(max(r.end) for r in raws)


def check_job(name: str, raws: list[Raw], device: dict[str, Any] | str) -> list[Row]:
    """One row a rank; a device that did next to nothing beside the others may be left out."""
    if isinstance(device, str):
        return [Row(name, "–", misses=[device])]
    ranks = sorted(device["ranks"], key=int)
    gpus = {device["ranks"][r]["gpu"]: r for r in ranks}
    by_gpu = len(gpus) == len(ranks) and None not in gpus and len({raw.device for raw in raws}) == len(raws)
    most = max(sum(raw.end) - sum(raw.start) for raw in raws)
    rows = []
    for i, raw in enumerate(raws):
        if raw.rank is not None:
            rank = str(raw.rank)
        elif len(raws) == len(ranks) == 1:
            rank = ranks[0]
        elif by_gpu:
            rank = gpus.get(raw.device, f"of device {raw.device}")
        else:
            rank = ranks[i] if i < len(ranks) else f"number {i}"
        if rank in ranks or sum(raw.end) - sum(raw.start) > 0.01 * most:
            rows.append(check(name, raw, rank, device))
    return rows


HEAD = ("trace", "rank", "windows", "step ms", "raw ms", "busy %", "compute %", "communication %", "copies %")


def show(row: Row, wide: bool) -> str:
    """One line of the table: taut's own figures, then how far shares are off, each or the farthest, in points."""

    def number(x: float | None, form: str) -> str:
        return "–" if x is None else format(x, form)

    farthest = max(map(abs, row.off.values()), default=None)
    off = [number(row.off.get(n), "+.2f") for n in MASKS] if wide else [number(farthest, ".2f")]
    numbers = [number(row.reported.get(n), ".1f") for n in ("busy", "compute", "communication", "copy")]
    times = [number(row.step_ms, ".3f"), number(row.raw_ms.get("ends"), ".3f")]
    cells = [row.trace, row.rank, str(row.windows), *times, *numbers]
    held = number(None if row.held is None else 100 * row.held, ".1f")
    return "| " + " | ".join([*cells, *off, held, "; ".join(row.misses) or "yes"]) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("../shared/data")])
    parser.add_argument("--taut", default=shutil.which("taut") or f"{sys.executable} -m taut", help="how to run taut")
    parser.add_argument("--wide", action="store_true", help="the difference of every share")
    asked = parser.parse_args()
    off = [f"{name.replace('_', ' ')} off by" for name in MASKS] if asked.wide else ["farthest share off by"]
    head = [*HEAD, *off, "held %", "agrees"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    missed = 0
    passed = []
    for name, files, raws in jobs(asked.paths):
        if isinstance(raws, str) or not raws:
            passed.append(f"{name}: {raws or 'no device events'}")
            continue
        for row in check_job(name, raws, taut(asked.taut, files)):
            missed += bool(row.misses)
            print(show(row, asked.wide), flush=True)
    print()
    for line in passed:
        print(f"passed over: {line}")
    print(f"{missed} rows with a miss")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
