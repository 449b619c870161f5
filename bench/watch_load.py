"""A collector under the load of many ranks: does it lose anything, and what does it take?

python bench/watch_load.py [--ranks 4096] [--per-second 10] [--seconds 60] [--watch-mib 128]

Starts `taut watch collect` as a process of its own; simulated ranks are connections of this one, which send what ranks send:
the time, a batch of gates and the end of a step once a second each, spread over the second. At the end every rank tells how
many events it sent; the collector keeps a line with what it received and what it did not. Prints
memory and processor time as the system counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from taut.watch.event_rows import RECEIVED
from taut.watch.wire import (
    BYE,
    CLOCK,
    EVENTS,
    GREETING,
    NAMES,
    NONCE_BYTES,
    STEP,
    encoded,
    hello_body,
    hello_proof,
    job_secret,
    packed,
    runs,
    session_key,
)

SECRET = b"a secret of the benchmark"
JOB_SECRET = job_secret(SECRET, "load")


class Rank(asyncio.Protocol):
    """A simulated rank."""

    def __init__(self, number: int, world: int) -> None:
        self.number, self.world, self.greeting, self.key, self.count = number, world, b"", b"", 0
        self.sent, self.line, self.stalled = 0, None, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.line = transport

    def pause_writing(self) -> None:
        self.stalled += 1

    def data_received(self, data: bytes) -> None:
        self.greeting += data
        if self.key or len(self.greeting) < len(GREETING) + NONCE_BYTES:
            return
        nonce = self.greeting[len(GREETING) :]
        host, gpu = divmod(self.number, 8)
        who = {"rank": self.number, "world": self.world, "host": f"host{host}", "gpu": gpu, "boot": f"boot{host}"}
        hello = hello_body({**who, "job": "load", "pid": self.number, "process": str(self.number)})
        self.line.write(len(hello).to_bytes(4, "little") + hello_proof(JOB_SECRET, nonce, hello) + hello)
        self.key = session_key(JOB_SECRET, nonce, hello)
        place = {"verb": "allreduce", "group": "0", "peer": -1, "ranks": runs(range(self.world))}
        self.send(NAMES, encoded({"first": 0, "places": [place]}))

    def send(self, kind: int, body: bytes) -> None:
        self.line.write(packed(self.key, self.count, kind, body))
        self.count += 1

    def tell(self, events: bytes, count: int) -> None:
        self.send(CLOCK, encoded({"monotonic_ns": time.monotonic_ns(), "time_ns": time.time_ns(), "dropped": 0, "faults": 0,
                                  "sent": self.sent}))  # fmt: skip
        if events:
            self.send(EVENTS, events)
            self.sent += count


def batches(ranks: int, per_second: int, second: int, rng: np.random.Generator) -> list[bytes]:
    """The events of all ranks of a second."""
    rows = np.zeros((ranks, per_second + 1), RECEIVED)
    gates, step, now = rows[:, :-1], rows[:, -1], time.monotonic_ns()
    gates["number"] = second * per_second + np.arange(per_second)
    gates["begin_ns"] = now + np.arange(per_second) * (1_000_000_000 // per_second) + rng.integers(0, 1_000_000, gates.shape)
    gates["end_ns"][:, 0] = gates["begin_ns"][:, 0] + 2_000_000
    step["kind"], step["number"], step["begin_ns"], step["end_ns"] = STEP, second, now, now + 1_000_000_000
    return [row.tobytes() for row in rows]


async def load(port: int, args: argparse.Namespace) -> dict[str, float]:
    loop, rng = asyncio.get_running_loop(), np.random.default_rng(0)
    all_ranks: list[Rank] = []
    began = time.monotonic()
    for first in range(0, args.ranks, 256):
        some = range(first, min(first + 256, args.ranks))
        made = await asyncio.gather(*(loop.create_connection(lambda n=n: Rank(n, args.ranks), "127.0.0.1", port) for n in some))
        all_ranks += [protocol for _, protocol in made]
    while not all(rank.key for rank in all_ranks):
        await asyncio.sleep(0.05)
    connected_s = time.monotonic() - began
    slices = 20
    begin = time.monotonic()
    behind = 0.0
    for second in range(args.seconds):
        bodies = batches(args.ranks, args.per_second, second, rng)
        for part in range(slices):
            for rank in all_ranks[part::slices]:
                rank.tell(bodies[rank.number], args.per_second + 1)
            due = begin + second + (part + 1) / slices
            behind = max(behind, time.monotonic() - due)
            await asyncio.sleep(max(due - time.monotonic(), 0))
    took_s = time.monotonic() - begin
    closed = sum(rank.line.is_closing() for rank in all_ranks)
    for rank in all_ranks:
        rank.tell(b"", 0)
        rank.send(BYE, b"")
    await asyncio.sleep(3)
    return {"connected_s": connected_s, "took_s": took_s, "behind_s": behind, "sent": sum(rank.sent for rank in all_ranks),
            "stalled": sum(rank.stalled for rank in all_ranks), "closed_early": closed}  # fmt: skip


def memory_mib(pid: int, what: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) / 1024
    return float("nan")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4096)
    parser.add_argument("--per-second", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--watch-mib", type=int, default=128)
    args = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, args.ranks + 256)), hard))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "taut", "watch", "collect", "--port", "0", "--keep", f"{folder}/kept",
                   "--memory", str(args.watch_mib)]  # fmt: skip
        env = {**os.environ, "TAUT_WATCH_SECRET": SECRET.decode(), "TAUT_AUDIT": "off"}
        collector = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        assert collector.stderr is not None
        port = int(collector.stderr.readline().split(",")[0].rpartition(":")[2])
        before = cpu_s(collector.pid)
        found = asyncio.run(load(port, args))
        found |= {"collector_cpu_s": cpu_s(collector.pid) - before, "rss_mib": memory_mib(collector.pid, "VmRSS"),
                  "peak_mib": memory_mib(collector.pid, "VmHWM")}  # fmt: skip
        collector.send_signal(signal.SIGTERM)  # a shell has its background jobs ignore SIGINT
        said = collector.communicate()[1]
        lines = [json.loads(line) for path in Path(folder, "kept").glob("steps-*") for line in path.read_text().splitlines()]
        print(json.dumps({"ranks": args.ranks, "per_second": args.per_second, "seconds": args.seconds, **found,
                          "kept": lines[-1] if lines else None, "exit": collector.returncode}))  # fmt: skip
        print(said, file=sys.stderr)


if __name__ == "__main__":
    main()
