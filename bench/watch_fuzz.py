"""Strangers and changed messages against a collector: is each refused, does it go on, and does it grow?

python bench/watch_fuzz.py [--cases 10000] [--seed 0]

Every case is a connection that sends what a rank sends (hello, names, time, events, time), changed in one way: a bit, a message
twice, left out or out of turn, a byte too many or too few, a length that no message has, random bytes, another secret, or the
hello of another connection. A healthy rank sends all the while. Printed: cases, how many were refused (the others were not
complete), events that came through of what nobody sent (0), what the healthy rank lost (0), and memory as it went.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from collecting import ALLREDUCE, OPEN, Line, collecting, event, mutated  # noqa: E402
from taut.watch.collect import Limits  # noqa: E402
from taut.watch.wire import CLOCK, EVENTS, NAMES, encoded  # noqa: E402


def memory_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def attempt(port: int, chance: random.Random, case: int, old: bytes) -> bytes:
    """One connection; returns its hello."""
    line = Line(port)
    OPEN.clear()
    what = chance.randrange(10)
    secret = {} if what else {"secret": chance.randbytes(24)}
    begin = line.hello_bytes(**secret, job=f"job{case % 16}", rank=case % 5, process=str(case))
    clock = encoded({"monotonic_ns": 1000, "time_ns": 0, "sent": 0})
    names = encoded({"first": 0, "places": [ALLREDUCE]})
    bodies = ((NAMES, names), (CLOCK, clock), (EVENTS, event()), (EVENTS, event(number=1)), (CLOCK, clock))
    rest = [line.message(kind, body) for kind, body in bodies]
    whole = [old if what == 1 and old else begin, *rest]
    data = mutated(whole, chance) if what > 1 else b"".join(whole)
    try:
        part = 1 + chance.randrange(len(data))
        line.line.sendall(data[:part])
        line.line.sendall(data[part:])
        line.line.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # refused already
    ended = line.is_closed(10)
    line.close()
    if not ended:
        raise SystemExit(f"case {case} was not ended")
    return begin


def healthy(line: Line, done: threading.Event) -> None:
    sent = 0
    line.name()
    while not done.wait(0.05):
        line.clock(sent=sent)
        line.events(*(event(number=10 + sent + k) for k in range(10)))
        sent += 10
    line.clock(sent=sent)
    line.number_sent = sent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chance, old = random.Random(args.seed), b""
    with collecting(Limits(window_bytes=32 << 20)) as running:
        good = running.line(job="healthy")
        OPEN.clear()
        done = threading.Event()
        thread = threading.Thread(target=healthy, args=(good, done))
        thread.start()
        memory, began = list[float](), time.monotonic()
        for case in range(args.cases):
            old = attempt(running.port, chance, case, old)
            if case % 1000 == 999:
                memory.append(round(memory_mib(), 1))
        took = time.monotonic() - began
        done.set()
        thread.join()
        window = running.window("healthy")
        running.until(lambda: window.totals()["received"] == good.number_sent)
        time.sleep(0.5)
        collector = running.collector
        foreign = sum(
            int((one.gates.since(0)["number"] > 1).sum()) for job, one in collector.windows.items() if job != "healthy"
        )
        why = dict(collector._refused.most_common(12))
        left = [one for one in collector._sessions.values() if one.window is not window]
        print(json.dumps({"cases": args.cases, "took_s": round(took, 1), "refused": collector.counts["refused"],
                          "events_nobody_sent": foreign, "healthy_sent": good.number_sent, "healthy": window.totals(),
                          "memory_mib_each_1000": memory, "sessions_left": len(left), "flight_bytes": collector.flight_bytes,
                          "failed_looks": collector.counts["failed looks"], "why_last_minute": why}))  # fmt: skip
        running.works()
        good.close()


if __name__ == "__main__":
    main()
