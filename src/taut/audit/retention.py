"""What may go: texts that must not stay (redaction), and records whose time is over (retention). Proofs are not changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from taut.audit.log import Appended, Entry, Log
from taut.audit.record import BEGIN, PRUNE, REDACTION, Detail, Text
from taut.core.errors import UsageError

ALWAYS = (BEGIN, REDACTION, PRUNE)
"""Kinds that stay: they say which log it is, and what was taken out."""


def redact(log: Log, index: int, places: Sequence[str] = (), because: str = "") -> Appended:
    """Take texts out of a record, all or those at some places; that they are gone is recorded, what they said is not."""
    chosen = _chosen(log.entry(index), places)
    details: dict[str, Detail] = {"record": index, "places": sorted(chosen)}
    if because:
        details["because"] = Text(because)

    def remove(_: int) -> None:  # what is left is read again here: somebody else may have taken out more
        left = {place: kept for place, kept in log.entry(index).texts.items() if place not in chosen}
        log.take_out(index, False, left)

    return log.append(REDACTION, details, also=remove)


def _chosen(entry: Entry, places: Sequence[str]) -> set[str]:
    """The places that are meant: by their whole name or by the keys with which it begins."""
    begins = [f"/{each.strip('/')}/" for each in places] or ["/"]
    chosen = {place for place in entry.texts if any(f"{place}/".startswith(begin) for begin in begins)}
    if not chosen:
        have = ", ".join(sorted(entry.texts)) or "none: they were taken out before, or it never had any"
        raise UsageError(f"record {entry.index} has no such text; it has {have}")
    return chosen


def prune(log: Log, before: str) -> Appended | None:
    """Take out the records from before a time (as records tell it), but for their hashes; None where there are none.

    A clock that jumped back makes records look old. So a record counts as no older than any before it: too much stays.
    """
    chosen = [entry.index for entry in _older(log.entries(), before)]
    if not chosen:
        return None

    def remove(_: int) -> None:
        for index in chosen:
            log.take_out(index, True, None)

    return log.append(PRUNE, {"before": before, "records": [list(span) for span in _spans(chosen)]}, also=remove)


def _older(entries: Iterable[Entry], before: str) -> Iterable[Entry]:
    latest = ""
    for entry in entries:
        if entry.record is None or entry.record.kind == BEGIN:
            continue
        latest = max(latest, entry.record.at)
        if latest >= before:
            return
        if entry.record.kind not in ALWAYS:
            yield entry


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of every unbroken row of numbers."""
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans
