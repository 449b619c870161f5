"""Flight recorders of a job that runs, read through the debug servers of its workers, at a rate that the job does not feel.

While a rank makes up its dump, its calls wait. How long that takes is seen from outside: the answer begins when the dump is
made. All ranks are asked at once, so that they are held up together, and asked again when the longest of their answers is less
than ``SHARE`` of the time since. Dumps that take longer than ``LONG_S`` are asked for their open calls alone, where the server
can do that (NCCL): that shows a hang, not who is late.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from taut.audit.trust import Stamp, check_only_registered, register_files, stamp
from taut.core.errors import InputRefused, RunError, TautError
from taut.core.rank_words import listed
from taut.core.whole_file import scratch_name
from taut.read.flight import reader
from taut.watch.torch_workers import ANSWER_S, PROFILE_BYTES, Answer, Worker, ask_all

SHARE = 0.002
"""Of the job's time, at most, that it is held up."""
EVERY_S, LEAST_S = 30.0, 2.0
LONG_S = 0.3
PROFILE_S = 60.0
"""For a profile to be written and sent, beyond its own time."""
NOW, BEFORE = PARTS = "now", "before"
"""Folders of the newest dumps and of those before them: whoever did not move in between stands still."""
NCCL, NCCL_OPEN = "/handler/dump_nccl_trace_json", "/handler/dump_nccl_trace_json?onlyactive=true"
PICKLED = "/handler/dump_nccl_trace_pickle?includestacktraces=false"
OTHERS = "/handler/fr_trace_json"
HANDLERS = (NCCL, PICKLED, OTHERS)
"""What shows the calls of a rank, the richest first: those of NCCL, older torch's of it, those of other backends."""


class Round(Struct, frozen=True):
    """What one reading of all workers gave."""

    at_s: float
    """By the monotonic clock."""
    read: list[int]
    """Ranks whose dump was read."""
    missing: dict[int, str]
    """Rank → why there is no dump of it."""
    held_s: float
    """The longest that a rank may have been held up."""
    open_only: bool = False
    """Whether only open calls were read."""


class Puller:
    """Reads the workers of one job again and again, into a folder that ``taut analyze`` reads."""

    def __init__(
        self,
        some: Sequence[Worker],
        folder: Path,
        *,
        every_s: float = EVERY_S,
        answer_s: float = ANSWER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.workers, self.folder, self.every_s, self.answer_s = list(some), folder, max(every_s, LEAST_S), answer_s
        self.last: Round | None = None
        self._clock = clock
        self._path: dict[Worker, str] = {}
        """What a worker was found to have."""
        self._not_before: dict[Worker, float] = {}
        self._long = self._written = False
        self._stamps: dict[str, Stamp | None] = {}
        """Of the files that it wrote last."""
        check_only_registered(folder, PARTS, self._stamps)

    @property
    def due_s(self) -> float:
        """When all may be asked again, by the monotonic clock."""
        return 0.0 if self.last is None else self.last.at_s + max(self.every_s, self.last.held_s / SHARE)

    def round(self) -> Round:
        """Ask all workers once, and write what they answer."""
        now = self._clock()
        resting = {one for one in self.workers if self._not_before.get(one, now) > now}
        got = self._asked([one for one in self.workers if one not in resting])
        why = {one.rank: "it took too long before, and is left alone for a while" for one in resting}
        why |= {one.rank: answer.failed for one, answer in got.items() if answer.failed}
        dumps = {one.rank: answer.body for one, answer in got.items() if not answer.failed}
        held_s = max((answer.took_s for answer in got.values() if answer.status), default=0.0)
        for one, answer in got.items():
            if not answer.status and answer.took_s:  # asked, and no whole answer: it may still be at it
                self._not_before[one] = now + answer.took_s / SHARE
        if dumps:  # of a job that is gone the last dumps stay
            self._write(dumps)
        self.last = Round(now, sorted(dumps), dict(sorted(why.items())), held_s, self._long)
        self._long = self._long or (held_s > LONG_S and any(path == NCCL for path in self._path.values()))
        return self.last

    def _asked(self, some: Sequence[Worker]) -> dict[Worker, Answer]:
        """A dump of each worker, or why there is none; whoever was not asked before is asked what it has."""
        known = {one: NCCL_OPEN if self._long and path == NCCL else path for one, path in self._path.items() if one in some}
        got = ask_all(known, seconds=self.answer_s)
        found = {one: _checked(answer) for one, answer in got.items()}
        for handler in HANDLERS:
            new = [one for one in some if one not in known and (one not in found or (found[one].failed and found[one].status))]
            for one, answer in ask_all(dict.fromkeys(new, handler), seconds=self.answer_s).items():
                found[one] = _checked(answer)
                if not found[one].failed:
                    self._path[one] = handler
        return found

    def _write(self, dumps: dict[int, bytes]) -> None:
        """The newest dumps, and of the same ranks those before them: who did not answer is in neither.

        Files that taut did not write here are neither moved nor deleted. New files are registered before they get their names,
        and moved files under both: whenever this is killed, the next reading knows them again.
        """
        check_only_registered(self.folder, PARTS, self._stamps)
        now, before = self.folder / NOW, self.folder / BEFORE
        for part in (now, before):
            part.mkdir(parents=True, exist_ok=True)
        names = {_name(rank): body for rank, body in dumps.items()}
        kept = [one for one in now.iterdir() if self._written and one.name in names]  # else of a rank or a job that is gone
        for old in [*before.iterdir(), *(one for one in now.iterdir() if one not in kept)]:
            old.unlink()
        new = {name: now / scratch_name(".part") for name in names}
        for name, path in new.items():
            path.write_bytes(names[name])
        self._stamps = {f"{BEFORE}/{one.name}": stamp(one) for one in kept} | {
            f"{NOW}/{name}": stamp(new[name]) for name in new
        }
        register_files(self.folder, self._stamps)
        for one in kept:
            one.rename(before / one.name)
        for name, path in new.items():
            path.rename(now / name)
        self._written = True


def profile(some: Sequence[Worker], folder: Path, seconds: float) -> dict[int, str]:
    """Have every worker profile itself for so long, all at once, into ``rank3.json`` and so on; rank → why there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    got = ask_all(
        dict.fromkeys(some, f"/handler/torch_profile?duration={seconds:g}"),
        seconds=seconds + PROFILE_S,
        most_bytes=PROFILE_BYTES,
        into=lambda worker: folder / f"rank{worker.rank}.json",
    )
    return {worker.rank: answer.failed for worker, answer in got.items() if answer.failed}


def nobody_read(done: Round) -> RunError:
    """What to do where no worker gave a dump."""
    why = "; ".join(missing_ranks(done.missing))
    return RunError(f"no debug server gave a dump ({why}): see that the job runs one in every rank, docs/watch.md#from-outside")


def missing_ranks(whys: Mapping[int, str]) -> list[str]:
    """Who is missing and why, those of one reason together."""
    found: dict[str, list[str]] = {}
    for rank, why in whys.items():
        found.setdefault(why, []).append(str(rank))
    return [f"rank {listed(ranks)} missing: {why}" for why, ranks in found.items()]


def describe(done: Round) -> str:
    """A round in a line: how many ranks were read, who is missing and why, and what it cost."""
    line = (
        f"{len(done.read)} of {len(done.read) + len(done.missing)} ranks read, held up for {done.held_s * 1e3:,.0f} ms at most"
    )
    if done.open_only:
        line += "; open calls only, because whole dumps take long: this shows a hang, not who is late"
    return "; ".join([line, *missing_ranks(done.missing)])


def verdict(folder: Path) -> str:
    """What the dumps of a folder tell, in a sentence."""
    from taut.run import analyze

    try:
        found = analyze([folder])
    except TautError as error:
        return f"no verdict: {error}"
    return found.verdict


def _checked(answer: Answer) -> Answer:
    """An answer that is a dump with calls in it; else why it is none."""
    if answer.failed:
        return answer
    try:
        dump = reader.load(answer.body, f"rank{answer.worker.rank}")
    except InputRefused as error:
        return Answer(
            answer.worker, status=answer.status, took_s=answer.took_s, failed=f"answers what is no dump: {error.why}"[:200]
        )
    if not len(dump.calls):
        return Answer(answer.worker, status=answer.status, took_s=answer.took_s, failed="its flight recorder is empty")
    return answer


def _name(rank: int) -> str:
    return f"fr_rank{rank}.json"
