"""Lines of a log written inside a job → its attempts: ``torchrun`` and ``training_log`` know what a line means.

In a log of several attempts (a launcher that restarts workers, a requeued job that appends to its file) one ends where the
next shows: after a failure, with a checkpoint that is loaded again, or with a step that comes again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from taut.core.tables import NULL
from taut.read.jobs.job_words import COMPLETED, FAILED, SECOND, cut

_ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_AMERICAN = re.compile(r"(\d\d)/(\d\d)/(\d{4}),? (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_AHEAD = re.compile(
    r"(?:\beta|\buntil|\bexpires?|\bdeadline|\bestimated\w*|finish(?:es)? (?:at|by))[\w\s|:=]{0,20}$", re.IGNORECASE
)
_GLOG = re.compile(r"(?:^|[\s\[|])[IWEF](\d\d?)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{3,9})")
_MONTHS = {
    name: i for i, name in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}
_SYSLOG = re.compile(
    rf"(?:^|[\s>])({'|'.join(_MONTHS)}) {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:\.(\d{{1,9}}))?"
    r"(?: (?:[A-Z]{3,4} )?(20\d\d)\b)?",
    re.IGNORECASE,
)
_HMS = re.compile(r"\d:\d\d:\d\d")
_DAY = re.compile(r"^\s*\[(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?[ \]]")
_EPOCH_TIME = re.compile(r"(?:\s*\[?|current time: )(1\d{9})\.(\d{2,9})\]?[ :]")
_YEAR = re.compile(rb"20\d\d[-/]\d\d[-/]\d\d[T _]\d\d:\d\d")
_RARER_YEAR = re.compile(
    rb"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d (?:[A-Z]{3,4} )?(20\d\d)\b|(?<!\d)\d\d/\d\d/(20\d\d),? \d\d:\d\d:"
)
# Bytes in which a year is looked for that is written in a rarer way.
YEAR_BYTES = 1 << 20
# Stands for a year that is not known; it has a 29 February.
NO_YEAR = 1972
# A date that lies further back than this, when nothing has happened yet, is not the start.
PREAMBLE_NS = 2 * 86_400 * SECOND
# A line's time stands among its first characters.
PREFIX = 160


def year_of(data: bytes) -> int | None:
    """The first year in a log."""
    found = _YEAR.search(data)
    if found:
        return int(found[0][:4])
    rarer = _RARER_YEAR.search(data, 0, YEAR_BYTES)
    return int(rarer[1] or rarer[2]) if rarer else None


def time_of(line: str, year: int) -> tuple[int, bool]:
    """When a line was written, ns, NULL if it does not say; and whether it names a time zone."""
    head = line[:PREFIX]
    if ":" not in head or not _HMS.search(head):
        found = _EPOCH_TIME.match(head[at:]) if (at := max(head.find("current time: "), 0)) or "." in head[:20] else None
        return (int(found[1]) * SECOND + int(found[2].ljust(9, "0")), True) if found else (NULL, False)
    found = _ISO.search(head)
    if found and found.start() > 3 and _AHEAD.search(head, 0, found.start()):
        return NULL, False
    if found:
        return _ns((int(found[1]), int(found[2]), int(found[3])), found.groups()[3:6], found[7], found[8]), found[8] is not None
    found = _GLOG.search(head)
    if found:
        return _ns((year, int(found[1]), int(found[2])), found.groups()[2:5], found[6], None), False
    found = _AMERICAN.search(head)
    if found:
        return _ns((int(found[3]), int(found[1]), int(found[2])), found.groups()[3:6], found[7], None), False
    return _rarer_time(head, year)


def _rarer_time(head: str, year: int) -> tuple[int, bool]:
    """The time of syslog, of ``date``, or of a log that leaves the year out."""
    found = _SYSLOG.search(head)
    if found:
        day = (int(found[7] or year), _MONTHS[found[1].lower()], int(found[2]))
        return _ns(day, found.groups()[2:5], found[6], None), False
    found = _DAY.match(head)
    if found:
        return _ns((year, int(found[1]), int(found[2])), found.groups()[2:5], found[6], None), False
    return NULL, False


def _ns(day: tuple[int, int, int], clock: Sequence[str], fraction: str | None, zone: str | None) -> int:
    hour, minute, second = map(int, clock)
    try:
        since = datetime(*day, hour, minute, second, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except ValueError:
        return NULL
    seconds = since.days * 86_400 + since.seconds
    if zone and zone != "Z":
        away = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds -= away if zone[0] == "+" else -away
    return seconds * SECOND + int((fraction or "0").ljust(9, "0")) if 0 < seconds < 2**33 else NULL


@dataclass
class Try:
    """One attempt while its lines go by; the names are those of the table."""

    start_ns: int = NULL
    end_ns: int = NULL
    outcome: str = ""
    reason: str = ""
    first_step: int = NULL
    first_step_ns: int = NULL
    last_step: int = NULL
    last_step_ns: int = NULL
    resumed_step: int = NULL
    saved_step: int = NULL
    saved_ns: int = NULL
    save_took_ns: int = NULL
    restore_took_ns: int = NULL
    held: int = NULL
    restarts_left: int = NULL
    limit_ns: int = NULL
    over: bool = field(default=False, repr=False)
    total: int = NULL
    """Steps that the job is to make."""
    last_of_all: bool = False
    """Whether the last step it logged is the last that the job is to make."""


OWN = ("over", "total", "last_of_all")
"""What is known of an attempt and is no column."""
TIMES = ("start_ns", "end_ns", "first_step_ns", "last_step_ns", "saved_ns")


@dataclass
class Progress:
    """The attempts as far as the lines so far show them.

    Where lines have no dates, time goes by what they say of the length of steps. It counts from the beginning of the log until
    a line has a date, which then dates all that lies before it; without any date the attempts have lengths only.
    """

    tries: list[Try] = field(default_factory=lambda: [Try()])
    now_ns: int = NULL
    """The time of the last line that has one, or what steps since then add to it."""
    dated: bool = False
    """Whether a line had a date: before that, times count from the beginning of the log."""
    undated_start: bool = False
    """Whether the first date came after steps that had none."""
    counted_ns: int = NULL
    """What a clock in the log showed last that counts from the beginning of an attempt, or of an epoch."""
    ticked: bool = False
    """Whether time went by the length of steps since the last date."""
    active_ns: int = NULL
    """The last sign of life: a step, a checkpoint, an error."""
    after_ns: int = NULL
    """The first time of a line since then: a restart begins no earlier."""
    error: str = ""
    why: str = ""
    """What the error makes of the attempt, if it is the last word."""
    saving_ns: int = NULL
    saving_step: int = NULL
    """A checkpoint whose completion was not logged: a step after it, or an attempt that loads it, says that it was."""
    unsure: tuple[Try, int, int] | None = None
    """Such a checkpoint of the attempt before."""
    loading_ns: int = NULL
    allowed_ns: int = NULL
    """How long a collective was allowed to take that ran out of time since the attempt before."""
    useful: int = 0
    """Lines that say something about attempts."""
    most_restarts: int = NULL
    tasks: int = NULL
    unit: str = "task"
    name: str = ""
    """What the job is called, and what its tasks are."""
    gave_up: bool = False
    """Whether the launcher has no restarts left."""

    @property
    def current(self) -> Try:
        """The attempt that the lines are about."""
        return self.tries[-1]

    def pass_time(self, at: int) -> None:
        """A line has this time, NULL if none."""
        if at < 0:
            return
        if not self.dated and self.now_ns >= 0:
            self._date(at - self.now_ns)
        elif self.ticked and at < self.now_ns:
            one = self.current
            for name in TIMES:
                setattr(one, name, min(getattr(one, name), at))
        self.dated, self.ticked = True, False
        if self.useful == 0 and at - self.current.start_ns > PREAMBLE_NS:
            self.current.start_ns = NULL  # the date before was that of a driver or of a file
        self._pass(at)

    def _date(self, shift: int) -> None:
        """Times that counted from the beginning of the log become dates."""
        self.undated_start = True
        for one in (*self.tries, self):
            for name in TIMES if isinstance(one, Try) else ("active_ns", "after_ns", "saving_ns", "loading_ns"):
                if getattr(one, name) >= 0:
                    setattr(one, name, getattr(one, name) + shift)
        if self.unsure is not None and self.unsure[2] >= 0:
            self.unsure = (*self.unsure[:2], self.unsure[2] + shift)

    def tick(self, ns: int) -> None:
        """Steps took this long together, by a line without a date."""
        if self.now_ns < 0:
            self._pass(0)
        self.ticked = True
        self.now_ns = min(self.now_ns + max(ns, 0), 2**62)

    def count(self, ns: int) -> None:
        """A clock that counts from the beginning of an attempt, or of an epoch, shows this."""
        if ns < self.counted_ns < ns + 2 * SECOND:
            return  # another clock, in whole seconds
        if self.counted_ns < 0 and self.now_ns >= 0:
            # It may have begun long before this first look at it, but not before the attempt.
            self.tick(self.current.start_ns + ns - self.now_ns if self.dated else ns)
        else:
            self.tick(ns - self.counted_ns if ns >= self.counted_ns >= 0 else ns)
        self.counted_ns = ns

    def _pass(self, at: int) -> None:
        self.now_ns = at
        if self.after_ns < 0:
            self.after_ns = at
        if self.current.start_ns < 0:
            self.current.start_ns = at

    def sign_of_life(self) -> Try:
        """The attempt that does something now: the one that runs, or the next one if that is over."""
        if self.current.over:
            self.restart(self.after_ns)
        self.useful += 1
        self.active_ns, self.after_ns = self.now_ns, NULL
        return self.current

    def restart(self, at: int, held: int = NULL) -> Try:
        """A new attempt begins; the one before ended with its last sign of life, unless that is known better."""
        before = self.current
        if not before.over:
            ended = self.active_ns if self.active_ns >= 0 else self.now_ns
            well = before.outcome or (COMPLETED if before.last_of_all else "")
            self.close(self.why or (FAILED if self.error else well), self.error, ended)
        begun = max(at, before.end_ns) if at >= 0 else before.end_ns
        self.tries.append(Try(start_ns=begun, held=held))
        self.unsure = (before, self.saving_step, self.saving_ns) if self.saving_step >= 0 else None
        self.saving_ns = self.saving_step = self.loading_ns = NULL
        return self.current

    def close(self, outcome: str, reason: str, at: int) -> None:
        """The attempt is over."""
        done = self.current
        done.over, done.outcome, done.reason, done.end_ns = True, outcome, cut(reason), max(at, done.start_ns)
        done.limit_ns = self.allowed_ns
        self.error, self.why, self.after_ns, self.allowed_ns = "", "", NULL, NULL

    def step(self, number: int, total: int = NULL) -> None:
        """A step was logged, maybe of how many; one that was logged before means that the job went back."""
        # Equal numbers are allowed: many logs print a step twice.
        if not self.current.over and 0 <= number < self.current.last_step:
            self.restart(self.after_ns)
        one = self.sign_of_life()
        self.error = self.why = ""
        self._complete()
        if one.first_step < 0:
            one.first_step, one.first_step_ns = number, self.now_ns
        one.last_step, one.last_step_ns = number, self.now_ns
        one.total, one.last_of_all = max(total, one.total), 0 < total <= number + (one.first_step == 0)

    def save(self, step: int, took: int, done: bool) -> None:
        """A checkpoint is being saved, or is complete."""
        one = self.sign_of_life()
        if not done:
            self._complete()
            self.saving_ns, self.saving_step = self.now_ns, step
            return
        if took < 0 and self.now_ns > self.saving_ns >= 0:
            took = self.now_ns - self.saving_ns
        number = step if step >= 0 else one.last_step
        if took >= 0 and (self.saving_ns >= 0 or number != one.saved_step):
            one.save_took_ns = max(one.save_took_ns, 0) + took
        self.saving_ns = self.saving_step = NULL
        if number >= 0:
            one.saved_step, one.saved_ns = number, self.now_ns

    def _complete(self) -> None:
        if self.saving_step >= 0:
            self.current.saved_step, self.current.saved_ns = self.saving_step, self.saving_ns
            self.saving_step = NULL

    def load(self, step: int, took: int, done: bool) -> None:
        """A checkpoint is being loaded, or was; a numbered one after steps means a new attempt."""
        one = self.current
        again = one.last_step >= 0 or one.saved_step >= 0 or one.over or (0 <= one.resumed_step != step >= 0)
        if (self.error and not one.over) or (step >= 0 and again):
            one = self.restart(self.after_ns)
        elif step < 0 and again:
            return  # some other model
        if step >= 0:
            one = self.sign_of_life()
            one.resumed_step = step
            if self.unsure is not None and self.unsure[1] == step:
                before = self.unsure[0]
                before.saved_step, before.saved_ns = self.unsure[1:]
        if not done:
            self.loading_ns = self.now_ns
        else:
            if took < 0 and self.now_ns > self.loading_ns >= 0:
                took = self.now_ns - self.loading_ns
            one.restore_took_ns = max(one.restore_took_ns, took)
            self.loading_ns = NULL

    def fail(self, why: str, text: str) -> None:
        """An error was logged; whether it was the end shows in what follows."""
        self.active_ns, self.after_ns = self.now_ns, NULL
        if not self.error:
            self.error, self.why = cut(text), why

    def finish(self, at: int) -> None:
        """The log ends."""
        last = self.current
        if last.last_of_all and not last.over and not self.error:
            last.outcome = last.outcome or COMPLETED
        if last.outcome and not last.over:
            self._complete()
        if not last.over and (last.outcome or self.error):
            self.close(last.outcome or self.why or FAILED, last.reason or self.error, at)
        elif not last.over and self.useful:
            last.end_ns = max(at, last.start_ns)
        for number, one in enumerate(self.tries):
            if self.gave_up:
                one.restarts_left = len(self.tries) - 1 - number
            elif self.most_restarts >= 0 and one.restarts_left < 0:
                one.restarts_left = max(self.most_restarts - number, 0)

    def runs(self) -> list[int]:
        """Of every attempt, which run it belongs to: after one that completed, another that begins anew is no restart."""
        out, run = [0], 0
        for before, one in zip(self.tries, self.tries[1:], strict=False):
            went_on = one.resumed_step > 0 or one.first_step > before.last_step >= 0
            run += before.outcome == COMPLETED and not went_on
            out.append(run)
        return out

    def columns(self, job: str) -> dict[str, list[Any]]:
        """The attempts, by column."""
        names = [name for name in Try.__dataclass_fields__ if name not in OWN]
        found = {name: [getattr(one, name) for one in self.tries] for name in names}
        count, runs = len(self.tries), self.runs()
        jobs = [job if runs[-1] == 0 else f"{job} run {run + 1}" for run in runs]
        return {
            "job": jobs,
            "name": [self.name] * count,
            "accelerators": [max(self.tasks, NULL)] * count,
            "unit": [self.unit if self.tasks > 0 else ""] * count,
            "dated": [int(self.dated)] * count,
            **found,
        }
