"""What a collector keeps on disk: closed findings and a line a minute of every job, in files of an hour, within limits.

Files are written whole, so that a reader never sees half a line, and only files of these names are ever deleted. A disk that is
full is said once, and tried again; lines wait in memory meanwhile, the newest of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from taut.core.errors import UsageError
from taut.core.folder import read_file
from taut.core.whole_file import is_scratch, whole_file
from taut.result.types import LiveFinding, LiveState
from taut.watch.window import Window

NAME = re.compile(r"(findings|steps)-\d{4}-\d\d-\d\dT\d\d\.jsonl")
OPEN, LIVE, LOCK = "open.json", "live.json", "lock"
MOST_BYTES, MOST_AGE_S = 256 << 20, 30 * 86_400.0
MOST_FILE = 16 << 20
"""Of an hour: what does not fit is counted."""
MOST_WAITING = 10_000
"""Lines that wait for a disk."""
MOST_TIMED = 1 << 18
"""Steps of a minute from which their times are told, the newest: of 8,192 ranks 32 each."""
RETRY_S = 30.0
PRUNE_S = 600.0
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a text that is no answer of ours raises."""
ALIVE_S, GAP_S = 2.0, 10.0
"""How often the time of the lock tells that the collector lives; a longer pause is a gap."""


class StepsLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What happened in a job in a minute; or, of a gap, that nobody listened."""

    kind: Literal["steps", "gap"]
    at_ns: int
    """Its end, ns since 1970, UTC."""
    from_ns: int = 0
    """Of a gap, its begin."""
    job: str = ""
    ranks: int = 0
    """That are heard."""
    steps: int = 0
    """Of all ranks."""
    last_step: int | None = None
    p10_ns: int | None = None
    median_ns: int | None = None
    p90_ns: int | None = None
    """Of the time of a step of a rank."""
    received: int = 0
    """Events of the job so far; and those that were not received, by why."""
    lost: dict[str, int] = {}


class Kept:
    """A folder of a collector."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], None] = lambda line: None,
        *,
        most_bytes: int = MOST_BYTES,
        most_age_s: float = MOST_AGE_S,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder, self._say, self._wall_ns = folder, say, wall_ns
        self.most_bytes, self.most_age_s = most_bytes, most_age_s
        self.unwritten = 0
        """Lines that were lost: more came than wait, or fit into an hour."""
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._hour: dict[str, bytearray] = {}
        self._open: dict[str, LiveFinding] = {}
        self._cursor: dict[str, int] = {}
        self._open_changed, self._full = False, False
        self._retry_s, self._prune_s, self._alive_s = 0.0, 0.0, 0.0
        self.open_before: list[LiveFinding] = []
        """Findings that were open when an earlier collector ended."""
        self._lock = self._locked()
        self._continue()

    # -- what is to be kept -------------------------------------------------------------------------------------------------

    def add_finding(self, finding: LiveFinding) -> None:
        """A finding was told: closed ones are kept, open ones until they close."""
        self._open_changed = True
        if finding.state == "open":
            self._open[finding.id] = finding
            return
        self._open.pop(finding.id, None)
        self._add("findings", finding.at_ns, finding)

    def add_steps(self, window: Window) -> None:
        """A line about the last minute of a job."""
        steps = window.steps.end - self._cursor.get(window.job, 0)
        rows = window.steps.last(min(steps, MOST_TIMED))
        self._cursor[window.job] = window.steps.end
        took, totals = rows["end_ns"] - rows["begin_ns"], window.totals()
        some = [None] * 3 if not len(rows) else [int(one) for one in np.quantile(took, (0.1, 0.5, 0.9))]
        line = StepsLine(
            kind="steps",
            at_ns=self._wall_ns(),
            job=window.job,
            ranks=len(window.living()),
            steps=steps,
            last_step=int(rows["number"].max()) if len(rows) else None,
            p10_ns=some[0],
            median_ns=some[1],
            p90_ns=some[2],
            received=totals.pop("received"),
            lost={name: count for name, count in totals.items() if count},
        )
        self._add("steps", line.at_ns, line)

    def _add(self, what: str, at_ns: int, line: object) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self.unwritten += 1
        self._waiting.append((_file(what, at_ns), msgspec.json.encode(line) + b"\n"))

    # -- the disk -----------------------------------------------------------------------------------------------------------

    def write(self, state: LiveState | None = None) -> None:
        """Write what waits, and what is seen now; what goes wrong is said once, and tried again later."""
        now = time.monotonic()
        if state is not None and now >= self._retry_s:
            with contextlib.suppress(OSError), whole_file(self.folder / LIVE) as out:
                out.write(msgspec.json.encode(state))
        if now >= self._alive_s:
            self._alive_s = now + ALIVE_S
            self._live()
        if now < self._retry_s or not (self._waiting or self._open_changed):
            return
        try:
            self._write()
            if now >= self._prune_s:
                self._prune_s = now + PRUNE_S
                self.prune()
        except OSError as error:
            self._retry_s = now + RETRY_S
            if not self._full:
                self._full = True
                self._say(f"{self.folder}: cannot be written ({error.strerror}); it goes on in memory")
            return
        if self._full:
            self._full = False
            self._say(f"{self.folder}: is written again; {self.unwritten:,} lines were lost")

    def _write(self) -> None:
        changed, done = dict[str, bytearray](), len(self._waiting)
        for name, line in list(self._waiting)[:done]:
            data = changed.setdefault(name, bytearray(self._lines(name)))
            if len(data) + len(line) <= MOST_FILE:
                data += line
            else:
                self.unwritten += 1
        for name, data in changed.items():
            with whole_file(self.folder / name) as out:
                out.write(data)
        self._hour = changed or self._hour
        if self._open_changed:
            with whole_file(self.folder / OPEN) as out:
                out.write(msgspec.json.encode(list(self._open.values())))
            self._open_changed = False
        for _ in range(done):
            self._waiting.popleft()

    def _lines(self, name: str) -> bytes:
        """What a file holds so far."""
        if name in self._hour:
            return bytes(self._hour[name])
        try:
            return read_file(self.folder / name, MOST_FILE)
        except FileNotFoundError:
            return b""

    def prune(self) -> None:
        """Delete the oldest files that are too old or too much."""
        now, used = self._wall_ns() * 1e-9, 0
        for path in reversed(self._files()):
            with contextlib.suppress(OSError):
                found = path.stat()
                used += found.st_size
                if used > self.most_bytes or now - _begins_s(path.name) > self.most_age_s:
                    path.unlink()

    def _files(self) -> list[Path]:
        """Files of hours, the oldest first."""
        names = [name for name in os.listdir(self.folder) if NAME.fullmatch(name)]
        return [self.folder / name for name in sorted(names, key=lambda name: (name.partition("-")[2], name))]

    # -- start and end --------------------------------------------------------------------------------------------------------

    def _locked(self) -> int | None:
        """The folder, made if need be, and held alone; None where there are no locks."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_own()
            self._lived_ns = _modified_ns(self.folder / LOCK)
            lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise UsageError(f"--keep {self.folder}: cannot be written ({error.strerror}); give another folder") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(f"--keep {self.folder}: another collector keeps its findings there; give another folder") from None
        except OSError:
            pass
        return lock

    def _check_own(self) -> None:
        """Refuse a folder with files of our names that no collector wrote: it would replace, and in time delete them."""
        lock = self.folder / LOCK
        if os.path.lexists(lock) and not lock.is_symlink() and not lock.stat().st_size:
            return
        foreign = sorted(name for name in os.listdir(self.folder) if name in (LOCK, OPEN, LIVE) or NAME.fullmatch(name))
        if foreign:
            raise UsageError(f"--keep {self.folder}: holds {foreign[0]}, which no collector wrote; give another folder")

    def _continue(self) -> None:
        """Go on where an earlier collector ended, and say for how long nobody listened."""
        for name in filter(is_scratch, os.listdir(self.folder)):
            (self.folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError, msgspec.DecodeError):
            self.open_before = msgspec.json.decode(read_file(self.folder / OPEN, MOST_FILE), type=list[LiveFinding])
        self.prune()
        last = self._lived_ns
        now = self._wall_ns()
        if last is None or now - last < GAP_S * 1e9:
            return
        self._add("steps", now, StepsLine(kind="gap", at_ns=now, from_ns=last))
        since = datetime.fromtimestamp(last * 1e-9, UTC).strftime("%Y-%m-%d %H:%M:%S")
        still = f"; {len(self.open_before)} findings were open then" if self.open_before else ""
        self._say(f"{self.folder}: goes on after a gap of {(now - last) / 60e9:,.1f} min, since {since} UTC{still}")

    def _live(self) -> None:
        """Tell whoever comes next until when this collector lived."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.utime(self._lock, ns=(self._wall_ns(), self._wall_ns()))

    def close(self) -> None:
        """Write what waits, and let others have the folder."""
        self._retry_s = self._alive_s = 0.0
        self.write()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def live_state(folder: Path) -> LiveState | None:
    """What the collector that keeps its findings in a folder saw last; None where nothing can be read."""
    try:
        return msgspec.json.decode(read_file(folder / LIVE, MOST_FILE), type=LiveState)
    except (OSError, *UNREADABLE):
        return None


def finding_files(folder: Path, since_ns: int) -> list[Path]:
    """The files of closed findings that may hold some told since a time, the newest first; none where there is no folder."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith("findings-") and NAME.fullmatch(name)]
    except OSError:
        return []
    return [folder / name for name in sorted(names, reverse=True) if name >= _file("findings", since_ns)]


def closed_findings(files: Iterable[Path], since_ns: int) -> Iterator[LiveFinding]:
    """Findings that were closed since a time, the newest first; lines that cannot be read are left out."""
    for path in files:
        try:
            lines = read_file(path, MOST_FILE).splitlines()
        except OSError:
            continue
        for line in reversed(lines):
            with contextlib.suppress(*UNREADABLE):
                found = msgspec.json.decode(line, type=LiveFinding)
                if found.at_ns >= since_ns:
                    yield found


def _file(what: str, at_ns: int) -> str:
    return f"{what}-{datetime.fromtimestamp(at_ns // 1_000_000_000, UTC):%Y-%m-%dT%H}.jsonl"


def _begins_s(name: str) -> float:
    """When the hour of a file begins, s since 1970; never where no day has that name: the file is not ours."""
    try:
        return datetime.strptime(name.partition("-")[2], "%Y-%m-%dT%H.jsonl").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return float("inf")


def _modified_ns(path: Path) -> int | None:
    """When a file was last written; None where there is none."""
    try:
        return path.lstat().st_mtime_ns
    except OSError:
        return None
