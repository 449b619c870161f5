"""A profile of a few steps of a rank, made when the collector asks for it and the job has allowed it.

A request is a step and a number of steps, nothing else: where the profile is written is the job's to say. It comes on the
connection that the rank has made, proved under a key of that connection and numbered; a stranger's, a changed one, one said
twice and one of another connection end the connection. A step that is over, or far away, is refused; so is a second profile
within ``PAUSE_S``, or beside a profiler of the job's own.

This file runs inside other people's jobs: the standard library and torch, and no fault of it reaches the job.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from taut.watch.wire import HEAD, PROFILE, PROOF_BYTES, REQUEST, Json, WireError, check, head_of

if TYPE_CHECKING:
    from torch.profiler import profile, record_function

    from taut.watch.observed import Observer

TRACES = "TAUT_WATCH_TRACES"
"""Environment variable: the folder that profiles are written to."""
MOST_STEPS, MOST_MS = 64, 10_000
"""Of one profile; whoever asks for more gets no more."""
MOST_AHEAD = 1_000_000
"""Steps until it begins."""
PAUSE_S = 60.0
"""Between two profiles of a process."""
MOST_PROFILES = 100
"""Of one process."""
WAIT_S = 20.0
"""So long after a request a rank that has not come to its step is dumped again: who did not move in between stands still."""
OVERDUE_S = 5.0
"""So long after its time a profile whose step does not end is ended all the same."""
FORGET_S = 1000.0
"""A request whose step was not come to for so long is forgotten."""
BEFORE = "before"
"""Folder of the dumps made when a request came."""
ARMED, WRITTEN, REFUSED = "armed", "written", "refused"
_MESSAGE = HEAD.size + PROOF_BYTES + REQUEST.size


class Requests:
    """The requests that come on one connection: whole, proved and in their order, or a WireError."""

    def __init__(self, key: bytes) -> None:
        self._key, self._number, self._rest = key, 0, b""

    def read(self, line: socket.socket) -> list[tuple[int, int, int]]:
        """(step, steps, milliseconds) of the requests that have come; never waits."""
        found = []
        while data := _come(line):
            self._rest += data
            while len(self._rest) >= _MESSAGE:
                found.append(self._one(self._rest[:_MESSAGE]))
                self._rest = self._rest[_MESSAGE:]
            if len(found) > MOST_PROFILES:
                raise WireError("more requests than anybody makes")
        return found

    def _one(self, data: bytes) -> tuple[int, int, int]:
        head, proof, body = data[: HEAD.size], data[HEAD.size : HEAD.size + PROOF_BYTES], data[HEAD.size + PROOF_BYTES :]
        length, kind, _ = head_of(head)
        if (length, kind) != (REQUEST.size, PROFILE):
            raise WireError("a message that no collector sends")
        check(self._key, self._number, head, proof, body)
        self._number += 1
        step, steps, most_ms = REQUEST.unpack(body)
        return step, steps, most_ms


def _come(line: socket.socket) -> bytes:
    """Bytes that have come, as many as a request has; none if there are none yet."""
    usual_s = line.gettimeout()
    line.settimeout(0)  # not select, which knows no more than 1,024 files of a process
    try:
        data = line.recv(_MESSAGE)
    except BlockingIOError:
        return b""
    finally:
        line.settimeout(usual_s)
    if not data:
        raise OSError("closed")
    return data


class _Running(NamedTuple):
    """A profile that is being made."""

    tool: profile
    mark: record_function
    step: int
    until_s: float


class Profiles:
    """The profiles of this process. What becomes of a request is in ``answers`` until the sender has told it."""

    def __init__(
        self, observer: Observer, rank: Callable[[], int], job: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.answers: list[Json] = []
        self._observer, self._rank, self._job, self._clock = observer, rank, job, clock
        self._asked: tuple[int, int, int] | None = None
        self._running: _Running | None = None
        self._last_s, self._made, self._dumps = -PAUSE_S, 0, 0
        self._lock = threading.RLock()
        """Held by the job's thread where a step of a profile ends, and by the sender's where it asks for one or ends it."""

    def ask(self, step: int, steps: int, most_ms: int) -> None:
        """Profile from the end of the step before ``step`` on, if that may be."""
        with self._lock:
            why = self._refusal(step, steps)
            if why:
                self._answer(step, REFUSED, why)
                return
            self._asked = step, min(steps, MOST_STEPS), min(most_ms, MOST_MS)
            self._last_s, self._made, self._dumps = self._clock(), self._made + 1, 1
            self._answer(step, ARMED)
        with suppress(Exception):
            self._clear(step)
        self._dump(step, BEFORE)
        self._observer.after_step = self._after_step

    def look(self) -> None:
        """Once a second, beside the job: whether it does not come to the step that was asked for, or to a step's end."""
        since_s = self._clock() - self._last_s
        with self._lock:
            asked, running = self._asked, self._running
            if running is not None and self._clock() > running.until_s + OVERDUE_S:  # an evaluation, a hang
                self._end(running)
            elif asked is not None and running is None and since_s > FORGET_S:
                self._asked = self._observer.after_step = None
        if asked is not None and running is None and since_s > WAIT_S and self._dumps == 1:
            self._dumps = 2
            self._dump(asked[0])

    def close(self) -> None:
        """Profile no more; a profile that is being made ends, and is lost."""
        with self._lock, suppress(Exception):
            running, self._running = self._running, None
            self._asked = self._observer.after_step = None
            if running is not None:
                running.tool.stop()

    def _refusal(self, step: int, steps: int) -> str:
        """Why a request is refused; empty where it is not."""
        now = self._observer.step
        if self._asked is not None or self._clock() - self._last_s < PAUSE_S:
            return f"another profile within {PAUSE_S:g} s"
        if self._made >= MOST_PROFILES:
            return f"more than {MOST_PROFILES} profiles of one process"
        if not steps or not now < step <= now + MOST_AHEAD:
            return f"it came when the rank was in step {now}"
        return ""

    def _answer(self, step: int, state: str, text: str = "") -> None:
        self.answers.append({"step": step, "state": state, "text": text[:200]})

    # -- in the job's own thread, at the end of its steps ---------------------------------------------------------------

    def _after_step(self, now: int) -> None:
        """The rank begins step ``now``: begin, go on with or end the profile."""
        with self._lock:
            asked, running = self._asked, self._running
            if asked is None:
                self._observer.after_step = None
                return
            step, steps, most_ms = asked
            try:
                if running is None:
                    if now >= step:
                        self._running = _begun(step, now, self._clock() + most_ms / 1e3)
                    return
                running.mark.__exit__(None, None, None)
                if now >= step + steps or self._clock() > running.until_s:
                    self._end(running)
                else:
                    self._running = running._replace(mark=_marked(now))
            except Exception as error:  # a profiler of the job's own, a torch without one
                self._asked = self._observer.after_step = None
                self._answer(step, REFUSED, f"{type(error).__name__}: {error}")
                if self._running is not None:
                    self.close()

    def _end(self, running: _Running) -> None:
        """Stop the profiler; write in a thread of its own."""
        self._running = self._asked = self._observer.after_step = None
        try:
            running.tool.stop()
        except Exception as error:
            self._answer(running.step, REFUSED, f"{type(error).__name__}: {error}")
            return
        threading.Thread(target=self._write, args=(running.step, running.tool), name="taut-watch-profile", daemon=True).start()

    # -- beside the job -----------------------------------------------------------------------------------------------------

    def _write(self, step: int, tool: profile) -> None:
        try:
            target = self._folder(step) / f"rank{self._rank()}.json.gz"
            with _scratch(target.parent) as plain, _scratch(target.parent) as small:
                tool.export_chrome_trace(str(plain))
                _squeeze(plain, small)
                os.replace(small, target)
            self._dump(step)
            self._answer(step, WRITTEN, str(target))
        except Exception as error:  # a full disk, a folder that nobody may write to
            self._answer(step, REFUSED, f"{type(error).__name__}: {error}")

    def _dump(self, step: int, within: str = "") -> None:
        """The flight recorder as it is now: it names the groups of collectives, and is all there is of a job that hangs."""
        with suppress(Exception):  # without it a profile is still worth something
            import torch.distributed as dist
            from torch._C import _distributed_c10d as recorders

            nccl = dist.is_initialized() and dist.get_backend() == "nccl"
            data = getattr(recorders, "_dump_nccl_trace_json" if nccl else "_dump_fr_trace_json")()
            folder = self._folder(step) / within
            folder.mkdir(exist_ok=True)
            with _scratch(folder) as made:
                made.write_bytes(data)
                os.replace(made, folder / f"fr_rank{self._rank()}.json")

    def _clear(self, step: int) -> None:
        """Remove what an earlier attempt of the job wrote of this rank and this step."""
        folder, rank = self._folder(step), self._rank()
        for name in (f"rank{rank}.json.gz", f"fr_rank{rank}.json", f"{BEFORE}/fr_rank{rank}.json"):
            (folder / name).unlink(missing_ok=True)

    def _folder(self, step: int) -> Path:
        """Where this profile is written, in a folder of the job's own choice."""
        folder = traces_folder() / capture_name(self._job, step)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A name for a file that is not complete yet; whatever is left of it goes."""
    path = folder / f".part-{os.urandom(8).hex()}"
    try:
        yield path
    finally:
        for left in (path, path.with_name(f"{path.name}.tmp")):  # Kineto writes to the latter, and leaves it
            left.unlink(missing_ok=True)


def _squeeze(plain: Path, small: Path) -> None:
    """Compress a trace; an OSError where it is not whole: the profiler does not tell that a disk was full."""
    if not plain.is_file() or not plain.stat().st_size:
        raise OSError("the profile could not be written")
    with plain.open("rb") as data:
        data.seek(-min(64, plain.stat().st_size), os.SEEK_END)
        if not data.read().rstrip().endswith(b"}"):
            raise OSError("the profile could not be written to its end")
        data.seek(0)
        with gzip.open(small, "wb", compresslevel=1) as out:
            shutil.copyfileobj(data, out, 1 << 20)


def _begun(step: int, now: int, until_s: float) -> _Running:
    """A profile of this process from now on."""
    import torch
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import profile

    if now > step:
        raise RuntimeError(f"the rank was already in step {now}")
    if torch._C._autograd._profiler_enabled():
        raise RuntimeError("the job profiles itself")
    # Of all threads: one that only this thread can end would go on through an evaluation of hours.
    tool = profile(record_shapes=True, experimental_config=_ExperimentalConfig(profile_all_threads=True))
    tool.start()
    return _Running(tool, _marked(now), step, until_s)


def _marked(step: int) -> record_function:
    """A step in the profile, by the number that all ranks give it."""
    from torch.profiler import record_function

    mark = record_function(f"ProfilerStep#{step}")
    mark.__enter__()  # type: ignore[no-untyped-call]
    return mark


def capture_name(job: str, step: int) -> str:
    """The folder of a capture: job and step, whatever the job is called."""
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', job).lstrip('.')[:100] or 'job'}-step-{step}"


def traces_folder() -> Path:
    """What ``TAUT_WATCH_TRACES`` names, else a folder of this user's among the temporary ones, which others cannot write to."""
    given = os.environ.get(TRACES, "")
    if given:
        return Path(given)
    folder = Path(tempfile.gettempdir()) / f"taut-watch-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise OSError(f"{folder} is not this user's alone; set {TRACES}")
    return folder
