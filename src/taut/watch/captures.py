"""Captures on the collector's side: ranks that allow it are asked for a profile of the same steps, and tell what became of it.

Who may ask is who may write to the collector's folder: ``taut watch capture`` leaves a file there, the collector takes it, and
tells in another file how it stands. Ranks know the secret, and could ask over the network; a file they cannot write.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
import numpy as np
from msgspec import Meta

from taut.core.folder import read_file
from taut.core.whole_file import whole_file
from taut.watch.profile_on_request import MOST_MS, MOST_STEPS
from taut.watch.window import Member, Window, Word
from taut.watch.wire import REQUEST, WireError

ASKED = re.compile(r"capture-([0-9a-f]{16})\.ask")
MOST_ASKED = 4096
"""Bytes of a file that asks."""
LOOK_S = 0.5
AHEAD_S = 4.0
"""Ranks hear of a request within two seconds; so much later, and two steps, it begins."""
MOST_S = 120.0
"""A capture that takes longer ends with the ranks that have told."""
KEEP_S = 3600.0
LEAST_STEPS = 4
RECENT = 4096
"""Rows of steps from which their time is told."""


class Told(msgspec.Struct, frozen=True):
    """What a rank says of a request."""

    step: Annotated[int, Meta(ge=0, lt=1 << 32)]
    state: Literal["armed", "written", "refused"]
    text: Word = ""


class Asked(msgspec.Struct, frozen=True):
    """What a file in the collector's folder asks for."""

    job: Annotated[str, Meta(max_length=256)] = ""
    """Empty: the only one that is heard."""
    seconds: Annotated[float, Meta(gt=0, le=MOST_MS / 1e3)] = 2.0


class Capture(msgspec.Struct):
    """How a capture stands; written beside what asked for it."""

    state: Literal["asked", "done", "refused"] = "asked"
    text: str = ""
    job: str = ""
    step: int = -1
    steps: int = 0
    ranks: dict[int, str] = {}
    """Rank → asked, armed, written, or why there is none."""
    files: dict[int, str] = {}
    """Rank → where it wrote, by its own account."""


class House(Protocol):
    """What a collector does for captures."""

    windows: dict[str, Window]

    def request(self, job: str, rank: int, body: bytes) -> bool:
        """Send a request to a rank; whether it is connected."""
        ...


class Captures:
    """Takes requests from a folder, one at a time for each job, and follows them."""

    def __init__(self, folder: Path, house: House, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._house, self._say, self._clock = folder, house, say, clock
        self._open: dict[str, tuple[Path, Capture, float]] = {}
        """Of every job its capture: where it is told, and until when it is waited for."""
        self._looked_s = -math.inf

    def tick(self) -> None:
        """Take what is asked for; end what takes too long."""
        now = self._clock()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder):
                if ASKED.fullmatch(name):
                    self._take(self.folder / name)
        for job, (_, _, until_s) in list(self._open.items()):
            if now > until_s or job not in self._house.windows:
                self._end(job)

    def told(self, window: Window, member: Member, told: Told) -> None:
        """A rank says what became of a request."""
        found = self._open.get(window.job)
        if found is None or found[1].step != told.step or member.rank not in found[1].ranks:
            raise WireError("an answer to what nobody asked")
        path, capture, _ = found
        capture.ranks[member.rank] = told.state if told.state != "refused" else f"refused: {told.text}"
        if told.state == "written":
            capture.files[member.rank] = told.text
        if all(state not in ("asked", "armed") for state in capture.ranks.values()):
            self._end(window.job)
        else:
            _tell(path, capture)

    def _take(self, path: Path) -> None:
        target = path.with_suffix(".json")
        try:
            asked = msgspec.json.decode(read_file(path, MOST_ASKED), type=Asked)
        except (OSError, msgspec.DecodeError) as error:
            capture = Capture("refused", f"not a request: {error}"[:200])
        else:
            capture = self._begin(asked)
        path.unlink(missing_ok=True)
        _forget(self.folder)
        if capture.state == "asked":
            self._open[capture.job] = target, capture, self._clock() + MOST_S
            self._say(f"{capture.job}: a profile of step {capture.step} on is asked of {len(capture.ranks)} ranks")
        _tell(target, capture)

    def _begin(self, asked: Asked) -> Capture:
        """Ask the ranks of a job."""
        heard = [job for job, window in self._house.windows.items() if window.living()]
        if not asked.job and len(heard) != 1:
            return Capture("refused", f"{len(heard)} jobs are heard: name one with --job" if heard else "no job is heard")
        job = asked.job or heard[0]
        window = self._house.windows.get(job)
        if window is None:
            return Capture("refused", f"no job {job} is heard")
        if job in self._open:
            return Capture("refused", f"another capture of {job} goes on: wait for it")
        last, step_s = _steps(window)
        may = [one.rank for one in window.living() if one.hello.profiles]
        if not may:
            return Capture("refused", f"no rank of {job} allows profiles: start it with TAUT_WATCH_PROFILE=1")
        if last < 0 or step_s <= 0:
            return Capture("refused", f"no steps of {job} are seen: it needs an optimizer of torch, or taut.watch.step()")
        step = last + 2 + math.ceil(AHEAD_S / step_s)
        steps = min(max(math.ceil(asked.seconds / step_s), LEAST_STEPS), MOST_STEPS)
        body = REQUEST.pack(step, steps, min(int(2 * asked.seconds * 1e3), MOST_MS))
        reached = {rank: "asked" if self._house.request(job, rank, body) else "not connected" for rank in sorted(may)}
        not_allowed = {one.rank: "does not allow it" for one in window.living() if not one.hello.profiles}
        return Capture("asked", "", job, step, steps, {**reached, **not_allowed})

    def _end(self, job: str) -> None:
        path, capture, _ = self._open.pop(job)
        for rank, state in capture.ranks.items():
            if state in ("asked", "armed"):
                reached = "never came to that step" if state == "armed" else "never answered"
                capture.ranks[rank] = f"{reached} within {MOST_S:g} s"
        capture.state = "done"
        self._say(f"{job}: a profile of {len(capture.files)} of {len(capture.ranks)} ranks was written")
        _tell(path, capture)


def _steps(window: Window) -> tuple[int, float]:
    """The last step of any rank, and the usual time of a step, s."""
    rows = window.steps.last(RECENT)
    if not len(rows):
        return -1, 0.0
    return int(rows["number"].max()), float(np.median(rows["end_ns"] - rows["begin_ns"])) / 1e9


def _tell(path: Path, capture: Capture) -> None:
    with contextlib.suppress(OSError), whole_file(path) as out:  # a full disk: whoever asked gives up after a while
        out.write(msgspec.json.encode(capture))


def _forget(folder: Path) -> None:
    """Delete what nobody reads any more."""
    with contextlib.suppress(OSError):
        for path in folder.glob("capture-*.json"):
            if time.time() - path.stat().st_mtime > KEEP_S:
                path.unlink(missing_ok=True)


def ask_in(folder: Path, job: str, seconds: float) -> Path:
    """Ask the collector that keeps there; where it will tell how it stands."""
    path = folder / f"capture-{os.urandom(8).hex()}.ask"
    with whole_file(path) as out:
        out.write(msgspec.json.encode(Asked(job, seconds)))
    return path.with_suffix(".json")


def standing(path: Path) -> Capture | None:
    """How a capture stands; None as long as nobody has taken it."""
    try:
        return msgspec.json.decode(read_file(path, 1 << 22), type=Capture)
    except FileNotFoundError:
        return None


def withdraw(path: Path) -> bool:
    """Take a request back; whether it was still there."""
    asked = path.with_suffix(".ask")
    there = asked.exists()
    asked.unlink(missing_ok=True)
    return there


def written(capture: Capture, folder: Path, ranks: Iterable[int]) -> dict[int, Path]:
    """Profiles of ranks as they lie in the folder of traces here: no path that a rank tells is opened."""
    from taut.watch.profile_on_request import plain_name

    where = folder / plain_name(capture.job) / f"step-{capture.step}"
    return {rank: where / f"rank{rank}.json.gz" for rank in ranks if (where / f"rank{rank}.json.gz").is_file()}
