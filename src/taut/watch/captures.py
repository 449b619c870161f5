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
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from taut.core.folder import read_file
from taut.core.rank_words import listed
from taut.core.whole_file import whole_file
from taut.result.types import LiveFinding
from taut.watch.profile_on_request import BEFORE, MOST_MS, MOST_STEPS, WRITTEN, capture_name
from taut.watch.window import Member, Window, Word
from taut.watch.wire import REQUEST

ASKED, TOLD = re.compile(r"capture-([0-9a-f]{16})\.ask"), re.compile(r"capture-[0-9a-f]{16}\.json")
MOST_ASKED = 4096
"""Bytes of a file that asks."""
LOOK_S = 0.5
AHEAD_S = 4.0
"""Ranks hear of a request within two seconds; so much later, and two steps, it begins."""
PATIENCE_S, MOST_S = 60.0, 900.0
"""So long after its steps a capture ends with the ranks that have told, and whatever happens after the latter."""
KEEP_S = 3600.0
LEAST_STEPS = 4
WAITING = ("asked", "armed")
SLOWED_STEPS = 8
"""Steps after a capture that may still be slower: profiles are written."""
CAPTURED = "what a capture slowed"
"""How a note begins of a finding that may be a capture's own doing."""
UNASKED = NOT_ALLOWED, NOT_CONNECTED, SILENT = "does not allow it", "not connected", "never answered"
"""What is said of ranks that wrote nothing."""
RECENT = 4096
"""Rows of steps from which their time is told."""
RATE_S, RATE_STEPS = 10.0, 8
"""How often a rank makes a step is told from its steps of so long, and from so many at the least."""


class CaptureAnswer(msgspec.Struct, frozen=True):
    """What a rank says of a request."""

    step: Annotated[int, Meta(ge=0, lt=1 << 32)]
    state: Literal["armed", "written", "refused"]
    text: Word = ""


class Asked(msgspec.Struct, frozen=True):
    """What a file in the collector's folder asks for."""

    job: Annotated[str, Meta(max_length=256)] = ""
    """Empty: the only one that is heard."""
    seconds: Annotated[float, Meta(gt=0, le=MOST_MS / 1e3)] = 5.0


class Capture(msgspec.Struct):
    """How a capture stands; written beside what asked for it."""

    state: Literal["asked", "done", "refused"] = "asked"
    text: str = ""
    job: str = ""
    step: int = -1
    steps: int = 0
    ranks: dict[int, str] = {}
    """Rank → asked, armed, written, or why there is none."""
    wrote: str = ""
    """Where one of them wrote, by its own account."""


class House(Protocol):
    """What a collector does for captures."""

    windows: dict[str, Window]

    def request(self, job: str, rank: int, body: bytes) -> bool:
        """Send a request to a rank; whether it is connected."""
        ...


class Captures:
    """Takes requests from a folder, one at a time for each job, and follows them."""

    def __init__(
        self, folder: Path, house: House, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.folder, self._house, self._say, self._clock = folder, house, say, clock
        self._open: dict[str, tuple[Path, Capture, float]] = {}
        """Of every job its capture: where it is told, and until when it is waited for."""
        self._slowed: dict[str, tuple[int, int]] = {}
        """Of every job, the steps that its last capture may have slowed."""
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
        for job, (_, capture, until_s) in list(self._open.items()):
            window = self._house.windows.get(job)
            for rank in _unsettled(capture):
                if window is None or rank not in window.ranks or window.ranks[rank].ended:
                    capture.ranks[rank] = "ended before that step"
            if now > until_s or not _unsettled(capture):
                self._end(job)  # here and not when it is told: thousands of ranks tell at once

    def note_answer(self, window: Window, member: Member, answer: CaptureAnswer) -> None:
        """A rank says what became of a request."""
        found = self._open.get(window.job)
        if found is None or found[1].step != answer.step or found[1].ranks.get(member.rank) not in WAITING:
            return  # nobody asked, or it was waited for long enough
        capture = found[1]
        capture.ranks[member.rank] = answer.state if answer.state != "refused" else f"refused: {answer.text}"
        if answer.state == "written":
            capture.wrote = capture.wrote or f"rank {member.rank} wrote {answer.text}"

    def marked(self, finding: LiveFinding) -> LiveFinding:
        """The finding; one that began while a capture slowed the job says so."""
        first, last = self._slowed.get(finding.job, (0, -1))
        if finding.since_step is None or not first <= finding.since_step <= last:
            return finding
        return msgspec.structs.replace(finding, cannot_see=[*finding.cannot_see, f"{CAPTURED} from step {first} on"])

    def _take(self, path: Path) -> None:
        target, within_s = path.with_suffix(".json"), 0.0
        try:
            asked = msgspec.json.decode(read_file(path, MOST_ASKED), type=Asked)
        except (OSError, msgspec.DecodeError) as error:
            capture = Capture("refused", f"not a request: {error}"[:200])
        else:
            capture, within_s = self._begin(asked)
        path.unlink(missing_ok=True)
        _forget(self.folder)
        if capture.state == "asked":
            self._open[capture.job] = target, capture, self._clock() + within_s
            self._slowed[capture.job] = capture.step, 1 << 62
            ranks = listed([str(rank) for rank in capture.ranks])
            self._say(f"{capture.job}: a profile of step {capture.step} on is asked of rank {ranks}")
        _tell(target, capture)

    def _begin(self, asked: Asked) -> tuple[Capture, float]:
        """Ask the ranks of a job; and how long they are waited for, s."""
        heard = [job for job, window in self._house.windows.items() if window.living()]
        if not asked.job and len(heard) != 1:
            return _refused(f"{len(heard)} jobs are heard: name one with --job" if heard else "no job is heard")
        job = asked.job or heard[0]
        if job not in heard:
            return _refused(f"no job {job} is heard")
        if job in self._open:
            return _refused(f"another capture of {job} goes on: wait for it")
        window = self._house.windows[job]
        may = sorted(one.rank for one in window.living() if one.hello.profiles)
        if not may:
            return _refused(f"no rank of {job} allows profiles: start it with TAUT_WATCH_PROFILE=1")
        last, step_s = _steps(window)
        if step_s <= 0:
            return _refused(
                f"no steps of {job} are seen yet: wait for its first; without an optimizer of torch it needs taut.watch.step()"
            )
        step = last + 2 + math.ceil(AHEAD_S / step_s)
        if step >= 1 << 31:
            return _refused(f"steps of {job} are too many or too short: {last} was the last, of {step_s:.3g} s")
        steps = min(max(math.ceil(asked.seconds / step_s), LEAST_STEPS), MOST_STEPS)
        body = REQUEST.pack(step, steps, min(int(2 * asked.seconds * 1e3), MOST_MS))
        ranks = {one.rank: NOT_ALLOWED for one in window.living()}
        ranks |= {rank: "asked" if self._house.request(job, rank, body) else NOT_CONNECTED for rank in may}
        within_s = min(PATIENCE_S + (step + steps - last) * step_s, MOST_S)
        return Capture("asked", "", job, step, steps, dict(sorted(ranks.items()))), within_s

    def _end(self, job: str) -> None:
        path, capture, _ = self._open.pop(job)
        for rank in _unsettled(capture):
            capture.ranks[rank] = "never came to that step" if capture.ranks[rank] == "armed" else SILENT
        capture.state = "done"
        if job in self._house.windows:
            last = max(_steps(self._house.windows[job])[0], capture.step + capture.steps)
            self._slowed[job] = capture.step, last + SLOWED_STEPS
        count = sum(state == WRITTEN for state in capture.ranks.values())
        self._say(f"{job}: {count} of {len(capture.ranks)} profiles were written")
        _tell(path, capture)


def _unsettled(capture: Capture) -> list[int]:
    """Ranks of which it is not known yet what became of the request."""
    return [rank for rank, state in capture.ranks.items() if state in WAITING]


def _refused(why: str) -> tuple[Capture, float]:
    return Capture("refused", why), 0.0


def _steps(window: Window) -> tuple[int, float]:
    """The last step of any rank, and the time from step to step, s.

    Not the median of their times: a host that waits for its device in every tenth step makes nine steps in no time.
    """
    rows = window.steps.last(RECENT)
    if not len(rows):
        return -1, 0.0
    mine = rows[rows["rank"] == rows["rank"][-1]]
    count = max(int((mine["end_ns"] > mine["end_ns"][-1] - int(RATE_S * 1e9)).sum()), RATE_STEPS)
    some = mine[-count:]
    return int(rows["number"].max()), float(some["end_ns"].max() - some["begin_ns"].min()) / 1e9 / len(some)


def _tell(path: Path, capture: Capture) -> None:
    with contextlib.suppress(OSError), whole_file(path) as out:  # a full disk: whoever asked gives up after a while
        out.write(msgspec.json.encode(capture))


def _forget(folder: Path) -> None:
    """Delete what nobody reads any more."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if TOLD.fullmatch(path.name) and time.time() - path.stat().st_mtime > KEEP_S:
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


def written(capture: Capture, folder: Path) -> list[Path]:
    """Profiles and dumps of a capture as they lie in the folder of traces here: no path that a rank tells is opened.

    Of ranks that were never asked nothing is taken: it may be of an earlier attempt.
    """
    where = folder / capture_name(capture.job, capture.step)
    names = ("rank{}.json.gz", "fr_rank{}.json", f"{BEFORE}/fr_rank{{}}.json")
    asked = [rank for rank, state in capture.ranks.items() if state not in UNASKED]
    found = [path for rank in asked for name in names if (path := where / name.format(rank)).is_file()]
    everything = [path for path in where.rglob("*rank*.json*") if path.is_file()]
    return [where] if found and len(found) == len(everything) else found
