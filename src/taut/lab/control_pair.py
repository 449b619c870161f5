"""A client that retries and a server that stalls once: two processes, one socket, and a log of every attempt.

Works arrive at random (Poisson), the one worker serves for random times (exponential, emulated by sleeping), in order of
arrival, and does not hear of a client that gave up. The stall is real: the server's process is stopped (SIGSTOP). Without
retries the queue drains; with three, what is queued is late before it is served, and the retries keep it so.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from taut.lab.control_truth import Truth

EXPERIMENT = "pair"
LOG = "attempts.jsonl"
RECOVERS, STAYS = "recovers", "stays down"
LAG_S = 0.05
"""A worker that wakes later than this has lost that time; less is made up for, or timers would make it slower than it is."""

PR_SET_PDEATHSIG = 1
"""From ``linux/prctl.h``."""

AMPLE = 200.0
"""Served a second: more than all retries of all works together."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run: rates a second, times in seconds from its start."""

    retries: int
    arrive: float = 30.0
    serve: float = 50.0
    timeout_s: float = 0.5
    stall_at_s: float = 8.0
    stall_s: float = 4.0
    length_s: float = 32.0

    @property
    def name(self) -> str:
        """Retries, and how much the server can serve."""
        return f"{self.retries} retries, {self.serve:g} served/s"


def plans(short: bool) -> list[Plan]:
    """Without retries, with three, and with three at a server that can serve them all; short ones are five times as fast.

    The ample server has no short one: it would serve for a millisecond, less than a socket and two event loops take.
    """
    if not short:
        return [Plan(retries=0), Plan(retries=3), Plan(retries=3, serve=AMPLE)]
    base, scale = Plan(retries=0), 5.0
    times = {name: getattr(base, name) / scale for name in ("timeout_s", "stall_at_s", "stall_s", "length_s")}
    return [Plan(retries=retries, arrive=base.arrive * scale, serve=base.serve * scale, **times) for retries in (0, 3)]


def missing() -> str | None:
    """Why it cannot run here."""
    return None if hasattr(signal, "SIGSTOP") else "this system cannot stop a process (SIGSTOP)"


def predict(plan: Plan) -> dict[str, float | str]:
    """Where the stall leaves it: at the highest stable load, if what is queued then waits longer than the timeout."""
    from taut.control.metastability import fixed_points

    points = [point for point in fixed_points(plan.arrive, plan.serve, plan.timeout_s, plan.retries) if point.stable]
    queued = plan.arrive * sum(max(0.0, plan.stall_s - k * plan.timeout_s) for k in range(plan.retries + 1))
    tipped = len(points) > 1 and queued / plan.serve > plan.timeout_s
    end = points[-1] if tipped else points[0]
    spare = plan.serve - plan.arrive * (plan.retries + 1)
    drained = max(0.0, queued - plan.serve * plan.timeout_s) / spare if spare > 0 else 0.0
    return {
        "outcome": STAYS if tipped else RECOVERS, "stable_loads": float(len(points)), "attempts_per_s": end.rate,
        "late_share": end.late, "goodput_per_s": plan.arrive * (1 - end.late ** (plan.retries + 1)),
        **({} if tipped or spare <= 0 else {"recovered_s_after_stall": drained}),
    }  # fmt: skip


def run(folder: Path, seed: int, short: bool) -> list[tuple[Path, Truth]]:
    """Run all cases side by side, after their predictions are written; returns where each left its log, and the truth."""
    from taut.lab.control_truth import Truth, save

    cases = []
    for plan in plans(short):
        place = folder / EXPERIMENT / f"retries-{plan.retries}-served-{plan.serve:g}"
        done = msgspec.to_builtins(plan)
        truth = Truth(
            experiment=EXPERIMENT, case=plan.name, seed=seed, done=done, predicted=predict(plan), relation="metastability"
        )
        save(truth, place)
        cases.append((plan, place, truth))
    logs = asyncio.run(_all([plan for plan, _, _ in cases], seed))
    out = []
    for (plan, place, truth), rows in zip(cases, logs, strict=True):
        (place / LOG).write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
        measured = measure(plan, rows)
        truth = msgspec.structs.replace(truth, measured=measured, present=measured["outcome"] == STAYS)
        save(truth, place)
        out.append((place / LOG, truth))
    return out


def measure(plan: Plan, rows: Sequence[dict[str, Any]]) -> dict[str, float | str]:
    """What the last quarter of the run looked like, and when the last attempt was late."""
    first = min(row["time_ns"] for row in rows)
    last = [row for row in rows if row["time_ns"] - first >= 0.75e9 * plan.length_s]
    seconds = plan.length_s / 4
    works, kept = (sum(row[key] == value for row in last) for key, value in (("attempt", 0), ("outcome", "kept")))
    late = [(row["time_ns"] - first) / 1e9 for row in rows if row["outcome"] != "kept"]
    outcome = RECOVERS if 2 * kept > works else STAYS
    return {
        "outcome": outcome, "works_per_s": works / seconds, "attempts_per_s": len(last) / seconds,
        "late_share": 1 - kept / max(len(last), 1), "goodput_per_s": kept / seconds,
        **({"recovered_s_after_stall": max([0.0, *late]) - plan.stall_at_s - plan.stall_s} if outcome == RECOVERS else {}),
    }  # fmt: skip


async def _all(many: Sequence[Plan], seed: int) -> list[list[dict[str, Any]]]:
    return await asyncio.gather(*(_one(plan, seed) for plan in many))


async def _one(plan: Plan, seed: int) -> list[dict[str, Any]]:
    async with _server_process(plan.serve, seed) as (process, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        client = Client(plan, writer)
        listening = asyncio.create_task(client.listen(reader))
        stalling = asyncio.create_task(_stall(plan, process.pid))
        try:
            await client.work(random.Random(seed))
            await stalling
        finally:
            for task in (stalling, listening):
                task.cancel()
            writer.close()
        return sorted(client.rows, key=lambda row: row["time_ns"])


@asynccontextmanager
async def _server_process(rate: float, seed: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A server process and its port; it is killed at the end, however that comes."""
    command = [sys.executable, "-m", "taut.lab.control_pair", str(rate), str(seed)]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield process, int(await asyncio.wait_for(process.stdout.readline(), 30.0))
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _stall(plan: Plan, pid: int) -> None:
    await asyncio.sleep(plan.stall_at_s)
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(plan.stall_s)
    finally:
        os.kill(pid, signal.SIGCONT)


class Client:
    """Sends works as they arrive, gives each attempt so long, tries again, and writes every attempt down."""

    def __init__(self, plan: Plan, writer: asyncio.StreamWriter) -> None:
        self.plan, self.writer = plan, writer
        self.rows: list[dict[str, Any]] = []
        self.sent: dict[int, asyncio.Future[None]] = {}
        self.number = 0
        self.began = time.monotonic()
        self.wall_ns = time.time_ns()

    async def listen(self, reader: asyncio.StreamReader) -> None:
        """Answers, one number a line; those that nobody waits for any more are lost."""
        while line := await reader.readline():
            waiting = self.sent.pop(int(line), None)
            if waiting is not None:
                waiting.set_result(None)

    async def work(self, rng: random.Random) -> None:
        """All works of the run, until the last attempt at them has ended."""
        tasks: list[asyncio.Task[None]] = []
        at = rng.expovariate(self.plan.arrive)
        while at < self.plan.length_s:
            await asyncio.sleep(max(0.0, at - self._now()))
            tasks.append(asyncio.create_task(self._tries(f"work-{len(tasks)}")))
            at += rng.expovariate(self.plan.arrive)
        await asyncio.gather(*tasks)

    async def _tries(self, work: str) -> None:
        deadline = self._now() + self.plan.timeout_s * (self.plan.retries + 1)
        for attempt in range(self.plan.retries + 1):
            began = self._now()
            if began > self.plan.length_s or await self._attempt(work, attempt, began, deadline):
                return

    async def _attempt(self, work: str, attempt: int, began: float, deadline: float) -> bool:
        self.number += 1
        number, answer = self.number, asyncio.get_running_loop().create_future()
        self.sent[number] = answer
        self.writer.write(b"%d\n" % number)
        await asyncio.wait([answer], timeout=self.plan.timeout_s)
        kept = answer.done()
        self.sent.pop(number, None)
        self.rows.append(
            {
                "time_ns": self._wall(began),
                "layer": "retry",
                "controller": "client",
                "target": "server",
                "knob": "attempt",
                "trigger": "timeout" if attempt else "arrival",
                "work": work,
                "attempt": attempt,
                "outcome": "kept" if kept else "failed",
                "busy_ns": round((self._now() - began) * 1e9),
                "deadline_ns": self._wall(deadline),
            }
        )
        return kept

    def _now(self) -> float:
        return time.monotonic() - self.began

    def _wall(self, at: float) -> int:
        return self.wall_ns + round(at * 1e9)


async def serve(rate: float, seed: int) -> None:
    """One worker behind a socket, until its standard input ends with whoever started it."""
    if sys.platform == "linux":
        # One that is stopped when its starter dies would never read that end: the kernel kills it.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    queue: asyncio.Queue[tuple[bytes, float, asyncio.StreamWriter]] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            queue.put_nowait((line, time.monotonic(), writer))

    async def toil(rng: random.Random) -> None:
        free = 0.0
        while True:
            line, arrived, writer = await queue.get()
            now, begins = time.monotonic(), max(free, arrived)
            free = (now if now - begins > LAG_S else begins) + rng.expovariate(rate)
            await asyncio.sleep(max(0.0, free - now))
            writer.write(line)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    worker = asyncio.create_task(toil(random.Random(seed + 1)))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    worker.cancel()
    os._exit(0)  # nobody is there to hear what is left


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]), int(sys.argv[2])))
