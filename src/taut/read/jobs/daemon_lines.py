"""Lines of a daemon with what stands before them: its own date in brackets, or what syslog, journald or a container added.

``[2026-01-01T10:00:00.000] text``, ``Jan  1 10:00:00 head slurmctld[7]: text``, ``2026-01-01T10:00:00+01:00 head slurmctld[7]:
text``, ``slurmctld | [2026-01-01T10:00:00] text``, and ``journalctl -o json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from taut.core.array_types import Json
from taut.read.jobs.log_lines import NO_YEAR, year_of

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# What follows is no line that a person reads.
LONGEST = 2000
_DATE = r"(?P<date>\d{4}-\d\d-\d\d)[T ](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?P<zone>Z|[+-]\d\d:?\d\d)?"
_MONTH = r"(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<hours>\d\d:\d\d:\d\d(?:\.\d{1,6})?)"
_OWN = re.compile(rf"\[(?:{_DATE}|{_MONTH})\] ?(?P<text>.*)")
_BEFORE = re.compile(rf"(?:<\d{{1,3}}>(?:1 )?)?(?:{_DATE}|{_MONTH}|(?P<unix>\d{{10}}\.\d{{1,9}})) +(?P<text>.*)")
_WHO = re.compile(r"(?:[\w.@:-]{1,255} {1,40})?slurm(?:ctld|d|stepd)(?:\[\d+\])?(?: \d+ - -| - - -)?: ?(?:slurm(?:ctld|d): )?")
_CONTAINER = re.compile(r"[\w./-]{1,80} {0,40}\| ")
NAMED = re.compile(
    rb"^(?:<\d{1,3}>(?:1 )?)?(?:\d{4}-\d\d-\d\d[T ][\d:.,]{8,18}(?:Z|[+-][\d:]{4,5})?|[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}"
    rb"|\d{10}\.\d{1,9}) +(?:[\w.-]{1,255} +)?slurm(?:ctld|d)(?:\[\d+\])?:? ",
    re.MULTILINE,
)
"""A line of Slurm's daemons behind the prefix of syslog or journald."""


class _Entry(msgspec.Struct):
    at: Json = msgspec.field(default=None, name="__REALTIME_TIMESTAMP")
    message: Json = msgspec.field(default=None, name="MESSAGE")


class DaemonLines:
    """The lines of one log: (date as ISO 8601 has it, text); ``yearless`` is known when they were read."""

    def __init__(self, data: bytes) -> None:
        self.text = data.decode("utf-8", "replace")
        known = year_of(data)
        self.year, self.month = known or NO_YEAR, 0
        self.guessed = known is None
        self.yearless = False
        """Dates named no year, and nothing else in the log does."""
        self.last = ""
        """The date of the last line."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for line in self.text.splitlines():
            line = line.lstrip()
            found = _journal(line) if line[:1] == "{" else self._split(line[:LONGEST])
            if found is not None:
                self.last = found[0]
                yield found

    def _split(self, line: str) -> tuple[str, str] | None:
        own = _OWN.match(line)
        if own:
            return self._stamp(own), own["text"]
        container = _CONTAINER.match(line)
        line = line[container.end() :] if container else line
        found = _OWN.match(line) or _BEFORE.match(line)
        if not found:
            return None
        who = _WHO.match(found["text"])
        text = found["text"][who.end() :] if who else found["text"]
        inner = _OWN.match(text)
        if inner is None:
            return self._stamp(found), text
        # What names a zone is better than the daemon's own date, which does not.
        return self._stamp(found if found["zone"] else inner), inner["text"]

    def _stamp(self, found: re.Match[str]) -> str:
        if found["date"]:
            zone = found["zone"] or ""
            zone = f"{zone[:3]}:{zone[3:]}" if len(zone) == 5 else zone
            return f"{found['date']}T{found['clock'].replace(',', '.')}{zone}"
        parts = found.groupdict()
        if parts.get("unix"):
            return _iso(float(parts["unix"]))
        month = MONTHS.index(found["month"]) + 1 if found["month"] in MONTHS else 1
        if month < self.month - 6:  # a new year began
            self.year += 1
        self.month, self.yearless = month, self.guessed
        return f"{self.year}-{month:02d}-{int(found['day']):02d}T{found['hours']}"


def _iso(seconds: float) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat(timespec="microseconds")


def _journal(line: str) -> tuple[str, str] | None:
    """An entry of ``journalctl -o json``."""
    try:
        entry = msgspec.json.decode(line, type=_Entry)
    except (msgspec.DecodeError, RecursionError):
        return None
    at, text = entry.at, entry.message
    if not (isinstance(at, str) and at.isdecimal() and len(at) < 18 and isinstance(text, str)):
        return None
    own = _OWN.match(text)
    return _iso(int(at) / 1e6), own["text"] if own else text.removeprefix("slurmctld: ")[:LONGEST]
