"""A live collector under valid messages with hostile numbers: does it stay small, and does /metrics answer all the while?

A case is what some ranks of one job send, as JSON: their hellos, names, times, answers and events, every message proved by
the secret of the job. The collector is a process of its own, one for the whole run; its peak of memory and the slowest answer
of its metrics are told at the end. A case after which they are over their limits is a finding.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import mmap
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import deque
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fuzzing.judge import FOLDER, BrokenLaw, Case
from fuzzing.seeds import ROOT, Seed
from taut.watch.wire import (
    BYE,
    CLOCK,
    EVENT,
    EVENTS,
    GREETING,
    MOST_BYTES,
    NAMES,
    NONCE_BYTES,
    PROFILED,
    encoded,
    hello_body,
    hello_proof,
    job_secret,
    packed,
    session_key,
)

MOST_RESIDENT, MOST_ANSWER_S = 512 * 10**6, 1.0
SECRET = b"a secret of the fuzzer, as long as any"
OPEN, WAITS_S = 300, 0.005
"""Connections that stay open, the newest; and for how long a case waits to be refused."""
FILE = "sent.json"
TOLD = re.compile("a fault of|could not be looked at|^refused: ")
"""Counters that the collector reports."""
KINDS = {"names": NAMES, "clock": CLOCK, "events": EVENTS, "many": EVENTS, "bye": BYE, "profiled": PROFILED}
MOST_EVENTS = MOST_BYTES // EVENT.size
SHARED = struct.Struct("<dq")
"""In shared memory: the slowest answer so far, s; answers."""
NUMBERS = (0, 1, 2, 3, 7, 63, 64, 255, 256, 4095, 4096, 16_383, 16_384, 65_535, 65_536, (1 << 17) - 1, 1 << 17, 1 << 20,
           (1 << 30) - 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)  # fmt: skip
TIMES = (*NUMBERS, 1 << 40, 1 << 52, (1 << 58) - 1, 1 << 58, (1 << 62) - 1, (1 << 63) - 1, -1)
VERBS = ("allreduce", "allgather", "send", "recv", "hop", "backward", "load", "optimizer", "save", "device", "counted",
         "queued", "barrier", "")  # fmt: skip


class Live:
    """The collector's process, and the thread that asks for its metrics."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="taut-fuzz-live-")
        command = [sys.executable, "-m", "taut", "watch", "collect", "--port", "0", "--metrics-port", "0", "--keep", folder,
                   "--gpu-hour", "2.50EUR"]  # fmt: skip
        env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode(), "TAUT_AUDIT": "off", "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, preexec_fn=_dies_with_parent)
        assert self.process.stderr is not None
        said = [self.process.stderr.readline() for _ in range(2)]
        self.metrics, self.port = said[0].split()[-1], int(said[1].split(",")[0].rpartition(":")[2])
        self.lines = deque[str](maxlen=8)
        self.text = ""
        self.shared = mmap.mmap(-1, SHARED.size)
        for work in (self._read, self._ask):
            threading.Thread(target=work, daemon=True).start()
        atexit.register(self.end, os.getpid())

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(line for line in self.process.stderr if TOLD.search(line))

    def _ask(self) -> None:
        while True:
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self.text = urllib.request.urlopen(self.metrics, timeout=60).read().decode()
            slowest, count = SHARED.unpack(self.shared[:])
            self.shared[:] = SHARED.pack(max(slowest, time.monotonic() - began), count + 1)
            time.sleep(0.1)

    def peak(self) -> int:
        """Bytes that were resident at most; 0 where the process has ended."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) << 10
        return 0

    def figures(self) -> str:
        slowest, count = SHARED.unpack(self.shared[:])
        return (
            f"peak {self.peak() / 1e6:.0f} MB resident, slowest of {count} answers of /metrics {slowest:.2f} s; {self._heard()}"
        )

    def _heard(self) -> str:
        """Counts of what the collector received."""
        told = dict(re.findall(r"^taut_collector_(\w+)_total (\d+)", self.text, re.M))
        names = (
            "connections",
            "refused_connections",
            "restarted_ranks",
            "messages",
            "received_bytes",
            "failed_looks",
            "faults",
        )
        return ", ".join(f"{int(float(told.get(name, 0))):,} {name.replace('_', ' ')}" for name in names)

    def end(self, parent: int) -> None:
        """Tell the figures, and end it; workers that were forked leave it alone."""
        if os.getpid() == parent:
            print(f"wire: {self.figures()}", file=sys.stderr)
            for line in self.lines:
                print(f"wire: said {line.strip()}", file=sys.stderr)
            self.process.kill()
            self.process.wait()

    def check(self) -> None:
        """Refuse to go on where it is dead, too large or too slow."""
        slowest, _ = SHARED.unpack(self.shared[:])
        peak = self.peak()
        if not peak:
            raise BrokenLaw("the collector has ended")
        if peak > MOST_RESIDENT:
            raise BrokenLaw(f"resident memory over {MOST_RESIDENT / 1e6:.0f} MB: {self.figures()}")
        if slowest > MOST_ANSWER_S:
            raise BrokenLaw(f"metrics answered after more than {MOST_ANSWER_S:g} s: {self.figures()}")


def _dies_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@cache
def live() -> Live:
    """The collector of this run, started once, before workers are forked."""
    return Live()


# -- what is sent ---------------------------------------------------------------------------------------------------------


def seeds() -> list[Seed]:
    """Two ranks that say what ranks say."""
    live()
    job = plain(Random(0), 2)
    return [Seed({FILE: json.dumps(job).encode()}, (FILE,))]


def plain(rng: Random, ranks: int) -> dict[str, Any]:
    """A job of so many ranks with steps, gates and stages, as it might be."""
    steps, world, late = rng.randint(1, 60), ranks, rng.randrange(ranks)
    about = []
    for rank in range(ranks):
        host = rank // 8
        hello = {"rank": rank, "world": world, "host": f"host{host}", "gpu": rank % 8, "pid": rank, "process": f"p{rank}",
                 "boot": f"boot{host}", "sees": rng.choice(("hooks", "calls"))}  # fmt: skip
        places = [{"verb": verb, "group": "0", "peer": -1, "ranks": [0, world - 1, 1]} for verb in ("allreduce", "backward")]
        places.append({"verb": "load"})
        events = []
        for step in range(steps):
            begin = (step - steps) * 400_000_000
            came = begin + 200_000_000 + (rank * 7919 + step * 104_729) % 5_000_000 + (60_000_000 if rank == late else 0)
            opened = begin + 300_000_000
            events += [[0, 0, 0, step, came, opened], [0, 0, 1, step, came, opened], [1, 0, 2, step, begin, begin + 9_000_000],
                       [2, 0, 0, step, begin, begin + 400_000_000]]  # fmt: skip
        names = ["names", {"first": 0, "places": places}]
        about.append({"hello": hello, "sent": [names, ["clock", {}], ["events", events, 1]]})
    return {"job": f"job{rng.randrange(70)}", "ranks": about}  # a few more than are taken


def mutated(rng: Random, seed: Seed, number: int) -> Case:
    """A job with hostile numbers."""
    job = plain(rng, rng.choice((1, 1, 1, 2, 2, 4, 8, 8, 32)))
    for _ in range(rng.choice((1, 2, 4, 16))):
        one = rng.choice(job["ranks"])
        rng.choice(CHANGES)(rng, one)
    return Case({FILE: json.dumps(job).encode()}, number=number)


def _hello(rng: Random, one: dict[str, Any]) -> None:
    which = rng.choice(("rank", "world", "host", "gpu", "pid", "process", "boot", "sees", "profiles"))
    value: Any = rng.choice(NUMBERS)
    if which in ("host", "process", "boot", "sees"):
        value = rng.choice((f"{rng.randrange(1 << 30)}", "\U0001f600" * rng.randrange(257), "x" * 256, "é" * 200, ""))
    one["hello"][which] = value if which != "profiles" else True
    if which == "world" and rng.random() < 0.5:
        one["hello"]["rank"] = max(value - 1, 0)


def _names(rng: Random, one: dict[str, Any]) -> None:
    """Many groups, large ones, of many runs, with long names."""
    world = max(one["hello"]["world"], 1)
    count = rng.choice((1, 3, 40, 400))
    places, size = list[dict[str, Any]](), 0
    for _ in range(count):
        some = []
        for _ in range(rng.choice((0, 1, 1, 2, 50))):
            first, apart = rng.randrange(world), rng.choice((1, 1, 2, -1, 8))
            last = first + apart * max(0, ((world - 1 - first) if apart > 0 else first) // abs(apart))
            some += [first, last, apart] if rng.random() < 0.9 else [rng.choice(NUMBERS) for _ in range(3)]
        word = rng.choice(("", "g", "\U0001f600" * 256, "y" * 256))[: rng.randrange(257)]
        peer = rng.choice((-1, -1, rng.randrange(world), rng.choice(NUMBERS)))
        group = f"{rng.randrange(1 << 20)}{word}"[:256]
        places.append({"verb": rng.choice(VERBS), "group": group, "peer": peer, "ranks": some})
        size += len(json.dumps(places[-1]))
        if size > 200_000:
            break
    first = rng.choice((0, 0, 3, rng.choice(NUMBERS), 65_536 - count))
    one["sent"].insert(rng.randrange(len(one["sent"]) + 1), ["names", {"first": first, "places": places}])
    one["sent"].append(["events", [[rng.randrange(4), 0, first + k, k, -(10**6), 0] for k in range(count)], 1])


def _some_events(rng: Random, one: dict[str, Any]) -> None:
    """Hostile numbers in events."""
    rows = next((body for kind, body, *_ in one["sent"] if kind == "events"), [])
    for row in rng.sample(rows, min(len(rows), rng.choice((1, 3, 20)))):
        at = rng.randrange(6)
        row[at] = rng.choice(TIMES if at > 3 else NUMBERS) % (1 << (8, 8, 16, 32, 64, 64)[at] - (at > 3))


def _all_events(rng: Random, one: dict[str, Any]) -> None:
    """All steps, times or places moved by a hostile number, or spread by it."""
    at, by, times = rng.randrange(2, 6), rng.choice(TIMES), rng.choice((0, 1, 1, 2, 1000))
    for entry in one["sent"]:
        for row in entry[1] if entry[0] == "events" else ():
            row[at] = row[at] * times + by


def _many_events(rng: Random, one: dict[str, Any]) -> None:
    """A message full of events, some of them one after the other."""
    kind, place, step, apart = rng.randrange(4), rng.randrange(4), rng.choice(NUMBERS), rng.choice((0, 1, 1, 7, 1 << 20))
    begin, lasts = rng.choice((-(10**9), -(10**6), *TIMES)), rng.choice((0, 1, 1000, 10**6, 10**9, 1 << 51))
    count, every = rng.choice((100, 1000, 9000)), rng.choice((0, 1, 1000, 10**6))
    row = [kind, rng.randrange(256), place, step, begin, begin + lasts]
    one["sent"] += [["many", [row, apart, every, count], int(begin < 0)]] * rng.choice((1, 1, 4))


def _clock(rng: Random, one: dict[str, Any]) -> None:
    names = ("monotonic_ns", "time_ns", "dropped", "faults", "sent")
    one["sent"].append(["clock", {rng.choice(names): rng.choice(TIMES) for _ in range(rng.randint(1, 3))}])


def _others(rng: Random, one: dict[str, Any]) -> None:
    kind = rng.choice(("bye", "profiled", "clock"))
    body = {"step": rng.choice(NUMBERS), "state": rng.choice(("armed", "written", "refused")), "text": "t" * rng.randrange(300)}
    one["sent"] += [[kind, body if kind == "profiled" else {}]] * rng.choice((1, 1, 50, 1000))


def _again(rng: Random, one: dict[str, Any]) -> None:
    """The same rank as other processes, one after the other."""
    one["times"] = rng.choice((2, 5, 40))


CHANGES = (_hello, _hello, _names, _names, _some_events, _some_events, _all_events, _many_events, _clock, _others, _again)

# -- how it is sent -------------------------------------------------------------------------------------------------------

_open: deque[socket.socket] = deque()


def judge(root: Path, case: Case) -> str:
    """Send a case; whether all of its ranks were heard to the end."""
    found = live()
    try:
        job = json.loads((root / FOLDER / FILE).read_bytes())
        sent = [(one, turn) for one in job["ranks"] for turn in range(one.get("times", 1))]
        lines = [_connected(found.port, job["job"], one, turn) for one, turn in sent]
        time.sleep(WAITS_S)
        refused = [line is None or _is_ended(line) for line in lines]
    except (KeyError, TypeError, AttributeError, ValueError):  # made smaller until it is no case any more
        refused = [True]
    found.check()
    return "refused" if any(refused) else "accepted"


def _body(kind: str, what: Any, based: int = 0) -> bytes:
    """The body of a message; times of events may count from now."""
    now = time.monotonic_ns()
    if kind == "events":
        return _events(what, now * based)[:MOST_EVENTS].tobytes()
    if kind == "many":
        return _many(*what, now * based)[:MOST_EVENTS].tobytes()
    if kind == "clock":
        what = {"monotonic_ns": now, "time_ns": time.time_ns(), "sent": 0, **what}
    return b"" if kind == "bye" else encoded(what)[:MOST_BYTES]


def _is_ended(line: socket.socket) -> bool:
    """Whether the collector has ended a connection; the newest stay open."""
    _open.append(line)
    if len(_open) > OPEN:
        _open.popleft().close()
    try:
        line.setblocking(False)
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _connected(port: int, job: str, one: dict[str, Any], turn: int) -> socket.socket | None:
    """A connection of a rank that has sent what it sends; None where it was refused before that."""
    secret = job_secret(SECRET, job)
    line = socket.create_connection(("127.0.0.1", port), timeout=10)
    try:
        nonce = line.recv(len(GREETING) + NONCE_BYTES)[len(GREETING) :]
        about = {**one["hello"], "job": job}
        if turn:
            about |= {"process": f"{about['process']}{turn}"[-256:], "boot": f"{about['boot']}{turn}"[-256:]}
        body = hello_body(about)
        line.sendall(len(body).to_bytes(4, "little") + hello_proof(secret, nonce, body) + body)
        key = session_key(secret, nonce, body)
        bodies = one.setdefault("bodies", [_body(*said) for said in one["sent"]])  # the same of each of its processes
        parts = [
            packed(key, turn, KINDS[said[0]], data) for turn, (said, data) in enumerate(zip(one["sent"], bodies, strict=True))
        ]
        line.settimeout(0.2)  # who sends too much is not read for a while
        line.sendall(b"".join(parts))
        return line
    except TimeoutError:
        return line
    except OSError:
        line.close()
        return None


def _events(rows: list[list[int]], now: int) -> np.ndarray:
    """Events as they are sent; numbers that no field holds lose their upper bits."""
    from taut.watch.event_rows import RECEIVED

    out = np.zeros(len(rows), RECEIVED)
    for at, name in enumerate(("kind", "flags", "place", "number", "begin_ns", "end_ns")):
        added = now if at > 3 else 0
        out[name] = np.array([row[at] + added & (1 << 64) - 1 for row in rows], np.uint64).astype(out.dtype[name])
    return out


def _many(row: list[int], apart: int, every: int, count: int, now: int) -> np.ndarray:
    """So many of one event, each of a number so far behind the one before, and so much later."""
    out = np.repeat(_events([row], now), count)
    turn = np.arange(count, dtype=np.uint64)
    out["number"] += (turn * np.uint64(apart)).astype(np.uint32)
    out["begin_ns"] += (turn * np.uint64(every)).astype(np.int64)
    out["end_ns"] += (turn * np.uint64(every)).astype(np.int64)
    return out
