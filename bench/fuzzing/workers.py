"""Processes that run cases, and the one that watches them.

Workers are forked from a process that has everything loaded, and run many cases each. Every case is announced in shared
memory before it runs; the watcher kills a worker that is too long at one, and knows which case a dead worker died of.
"""

from __future__ import annotations

import collections
import mmap
import os
import pickle
import resource
import select
import shutil
import signal
import struct
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.judge import Case, Finding, judged
from fuzzing.targets import TARGETS, Target

FREE_BYTES, PER_BYTE = 200 << 20, 100
"""Memory a case may take: this much, and this much more for each byte of its input."""
ADDRESS_SPACE = 6 << 30
"""What a worker may map at most, so that a bomb ends as MemoryError and not the machine."""
WARM = 30
"""Cases of each target that are run before workers that compile are forked: most kernels are compiled then, by one process."""
AGAIN = 3
"""How many times longer a case may take that is tried again because it took too long."""
BROKEN = 99
"""Exit status of a worker in which the fuzzer itself failed."""
CLOCK = struct.Struct("<dqq")
"""In shared memory: when the case began, index of the target, number of the case."""


Job = tuple[str, int]
"""A target, and the number of a case."""


@dataclass
class Found:
    """A finding with what is needed to see it again."""

    target: str
    seed: int
    number: int
    finding: Finding
    case: Case


@dataclass
class Tally:
    """What became of the cases of one target."""

    cases: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    sites: collections.Counter[tuple[str, str, str]] = field(default_factory=collections.Counter)
    """(kind, site, seen) → how often."""
    busy_s: float = 0.0


def scratch_folder() -> Path:
    """A folder in memory where there is one."""
    shm = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="taut-fuzz-", dir=shm if os.access(shm, os.W_OK) else None))


def work(target: Target, seed: int, number: int, root: Path) -> tuple[str, Finding | None, Case]:
    """Run one case here, with its memory measured."""
    case = target.case(seed, number)
    before = _reset_peak()
    outcome, finding = judged(target.judge, case, root)
    grown = _peak() - before
    size = sum(map(len, case.files.values()))
    if finding is None and grown > FREE_BYTES + PER_BYTE * size:
        finding = Finding("memory", f"{target.name}: more than {FREE_BYTES >> 20} MB", f"{grown >> 20} MB for {size} bytes")
    return outcome, finding, case


def _reset_peak() -> int:
    """Forget the peak of memory so far, and tell what is held now."""
    try:
        with open("/proc/self/clear_refs", "w") as stream:
            stream.write("5")
        return _status("VmRSS:")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _peak() -> int:
    try:
        return _status("VmHWM:")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _status(word: str) -> int:
    with open("/proc/self/status") as stream:
        for line in stream:
            if line.startswith(word):
                return int(line.split()[1]) << 10
    raise OSError(word)


class Worker:
    """A forked process with a queue of cases of its own."""

    def __init__(self, jobs: list[Job], seed: int, patience: int = 1) -> None:
        self.jobs, self.seed, self.patience = jobs, seed, patience
        self.clock = mmap.mmap(-1, CLOCK.size)
        self.root = scratch_folder()
        self.done = 0
        self.alive = True
        self._buffer = b""
        self.read, write = os.pipe()
        self.clock[:] = CLOCK.pack(time.monotonic(), -1, 0)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.read)
            try:
                self._run(write)
            except BaseException:
                traceback.print_exc()
                os._exit(BROKEN)
            os._exit(0)
        os.close(write)

    def _run(self, write: int) -> None:
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = ADDRESS_SPACE if most == resource.RLIM_INFINITY else min(most, ADDRESS_SPACE)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        names = list(TARGETS)
        for name, number in self.jobs:
            begin = time.monotonic()
            self.clock[:] = CLOCK.pack(begin, names.index(name), number)
            outcome, finding, case = work(TARGETS[name], self.seed, number, self.root)
            found = Found(name, self.seed, number, finding, case) if finding else None
            self.clock[:] = CLOCK.pack(time.monotonic(), -1, number)
            _send(write, (name, number, outcome, time.monotonic() - begin, found))
        os.close(write)

    def messages(self) -> list[Any]:
        """The outcomes it has sent since; marks it as done when it closed its end."""
        chunk = os.read(self.read, 1 << 20)
        if not chunk:
            self.alive = False
            return []
        self._buffer += chunk
        out = []
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "little")
            if len(self._buffer) < 4 + size:
                break
            out.append(pickle.loads(self._buffer[4 : 4 + size]))
            self._buffer = self._buffer[4 + size :]
        self.done += len(out)
        return out

    def current(self) -> tuple[float, str, int] | None:
        """(since when, target, number) of the case at hand."""
        begin, target, number = CLOCK.unpack(self.clock[:])
        return (begin, list(TARGETS)[target], number) if target >= 0 else None

    def close(self) -> int:
        """Wait for its end; its status."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self.read)
        shutil.rmtree(self.root, ignore_errors=True)
        return status


def _send(write: int, message: Any) -> None:
    data = pickle.dumps(message)
    data = len(data).to_bytes(4, "little") + data
    while data:
        data = data[os.write(write, data) :]


Outcome = tuple[str, int, str, float, Found | None]


def run(plan: list[Job], seed: int, jobs: int, until: float) -> Iterator[Outcome]:
    """All cases of a plan, over some workers: the outcome of each, as it arrives."""
    queues = [plan[k::jobs] for k in range(jobs)]
    workers = [Worker(queue, seed) for queue in queues if queue]
    try:
        while workers:
            for worker in _ready(workers):
                yield from worker.messages()
            for worker in list(workers):
                if time.monotonic() > until:
                    os.kill(worker.pid, signal.SIGKILL)
                    worker.close()
                    workers.remove(worker)
                    continue
                yield from _checked(worker, workers)
    except KeyboardInterrupt:
        return  # what is known so far is reported
    finally:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.close()


def _ready(workers: list[Worker]) -> list[Worker]:
    readable, _, _ = select.select([w.read for w in workers if w.alive], [], [], 0.5)
    return [w for w in workers if w.read in readable]


def _checked(worker: Worker, workers: list[Worker]) -> Iterator[Outcome]:
    """Replaces a worker that hangs or has died, and tells of which case."""
    at = worker.current()
    hung = at is not None and time.monotonic() - at[0] > TARGETS[at[1]].limit_s * worker.patience
    if hung:
        os.kill(worker.pid, signal.SIGKILL)
    elif worker.alive:
        return
    while worker.alive:
        yield from worker.messages()
    at = worker.current() if not hung else at
    code = os.waitstatus_to_exitcode(worker.close())
    workers.remove(worker)
    if code == BROKEN:
        raise RuntimeError(f"the fuzzer failed at {at}")
    rest, again = worker.jobs[worker.done :], hung and worker.patience == 1
    if at is not None and not again:
        yield _ended(worker, at, hung, code)
        rest = rest[1:]
    if rest:
        # A kernel that is compiled for the first time may take seconds: a case that hangs is tried once more, alone.
        workers.append(Worker(rest[:1], worker.seed, AGAIN) if again else Worker(rest, worker.seed))
        if again and rest[1:]:
            workers.append(Worker(rest[1:], worker.seed))


def _ended(worker: Worker, at: tuple[float, str, int], hung: bool, code: int) -> Outcome:
    """The outcome of a case at which a worker was killed or died."""
    _, name, number = at
    late = (TARGETS[name].slow, f"{name}: more than {TARGETS[name].limit_s:g} s")
    kind, place = late if hung else ("crash", f"{name}: status {code}")
    return (
        name,
        number,
        "failed",
        0.0,
        Found(name, worker.seed, number, Finding(kind, place), TARGETS[name].case(worker.seed, number)),
    )


def plan(names: list[str], cases: int) -> list[Job]:
    """So many cases over the targets by their weight, interleaved."""
    total = sum(TARGETS[name].weight for name in names)
    counts = {name: max(1, round(cases * TARGETS[name].weight / total)) for name in names}
    rows = [((k + 0.5) / count, name, k) for name, count in counts.items() for k in range(count)]
    return [(name, number) for _, name, number in sorted(rows)]


def warm(names: list[str], cases: int = 0) -> list[str]:
    """Run the seeds as they are, and some cases, so that modules and kernels are loaded before workers are forked.

    Returns a line for each seed that is not accepted: its mutations would not reach far.
    """
    root, lines = scratch_folder(), []
    try:
        for target in (TARGETS[name] for name in names):
            for k, case in enumerate(target.whole()):
                outcome, finding = judged(target.judge, case, root)
                if outcome != "accepted" or finding:
                    lines.append(
                        f"{target.name}: seed {k} is {outcome}" + (f": {finding.kind} {finding.site}" if finding else "")
                    )
            for number in range(cases):
                work(target, -1, number, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return lines
