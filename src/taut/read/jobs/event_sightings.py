"""When which event of Kubernetes was seen, how often, and which job it is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.read.actions.kube_actions import DECIDING, Place
from taut.read.columns import Codes
from taut.read.jobs.event_words import OF_ATTEMPTS
from taut.read.jobs.job_words import cut, times
from taut.read.jobs.kube_event import Event
from taut.read.limits import check_count

MOST_EVENTS = 10_000_000
_CREATED = re.compile(r"[Cc]reated pod:? (\S{1,253})")
_RANDOM = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_ROLE = re.compile(
    r"-(?:master|worker|launcher|chief|ps|node|replica|head|trainer|leader)(?:-\d{1,6}){0,9}$|(?:-\d{1,6}){1,9}$"
)


class Sightings(NamedTuple):
    """The events in order of time, at the first and again at the last time they were seen."""

    at: Ints
    row: Ints
    """Which event."""
    again: Mask
    """Whether it is the last time of an event that came several times."""
    job: Ints
    """Index into ``jobs``, for each of ``row``."""
    jobs: list[str]
    first: Ints
    occurred: Ints
    """Of every event: when it was first seen, and how often it came."""
    reason: Ints
    words: list[str]
    """Of every event the reason: an index into the words, in lower case."""
    of_attempts: Mask
    """Whether an event's reason begins, ends or queues something …"""
    decides: Mask
    """… and whether it is a decision."""

    def of(self, events: Mask) -> Iterator[tuple[int, int, int, bool]]:
        """(time, event, job, whether again) of every sighting of some events."""
        some = events[self.row]
        columns = (column[some].tolist() for column in (self.at, self.row, self.job, self.again))
        return zip(*columns, strict=True)


def sightings(events: Sequence[Event], label: str) -> Sightings:
    """When which event was seen, and which job it is about."""
    check_count(len(events), MOST_EVENTS, "events", label, "save the events of one job")
    first, last, count = _seen(events)
    # Reasons and places recur: each is looked at once, and the events take the answer by its code.
    reasons, places, jobs = Codes(), Codes(), Codes()
    reason = reasons.of(e.reason if isinstance(e.reason, str) else None for e in events)
    place = places.of(map(_raw_place, events))
    named = _mask(word is not None for word in reasons)[reason] & _mask(key is not None for key in places)[place]
    owners = _owners(events, _mask(key is not None and key[0] != "Pod" for key in places)[place])
    job = jobs.of(_job_name((cut(key[0]), cut(key[1]), cut(key[2])), owners) if key else "" for key in places)
    begins, ends = named & (first >= 0), named & (last >= 0) & ((last != first) | (count > 1))
    if (count > 1).any():  # a watch prints an event anew each time it comes: its first time is one
        same = Codes().of(zip(first.tolist(), place.tolist(), reason.tolist(), (e.text for e in events), strict=True))
        begins &= np.isin(np.arange(len(same)), np.unique(same, return_index=True)[1])
    rows = np.concatenate([np.flatnonzero(begins), np.flatnonzero(ends)])
    at = np.concatenate([first[begins], last[ends]])
    again = np.arange(len(rows)) >= begins.sum()
    # Times are whole seconds: in one second a pod is bound first, and what failed had begun.
    turn = _turns(reasons)[reason[rows]] + 3 * again
    order = np.lexsort((rows, turn, at))
    of_attempts, decides = (_mask(str(word).lower() in some for word in reasons)[reason] for some in (OF_ATTEMPTS, DECIDING))
    return Sightings(
        at=at[order],
        row=rows[order],
        again=again[order],
        job=job[place[rows[order]]],
        jobs=list(jobs),
        first=first,
        occurred=count,
        reason=reason,
        words=[str(word).lower() for word in reasons],
        of_attempts=of_attempts,
        decides=decides,
    )


def _seen(events: Sequence[Event]) -> tuple[Ints, Ints, Ints]:
    """When every event was first and last seen, and how often it came."""
    first = times([e.firstTimestamp or e.eventTime or e.lastTimestamp or e.created for e in events])[0]
    last = times([(e.series.lastObservedTime if e.series else None) or e.lastTimestamp or e.eventTime for e in events])[0]
    counts = [1 if e.count == 1 and e.series is None else e.occurred for e in events]
    return first, last, np.array(counts, dtype=np.int64)


def _turns(reasons: Codes) -> Ints:
    turns = {"scheduled": 0, "successfulcreate": 0, "failed": 2}
    return np.array([turns.get(str(word).lower(), 1) for word in reasons], dtype=np.int64)


def _mask(flags: Iterator[bool]) -> Mask:
    return np.fromiter(flags, dtype=np.bool_)


def place_of(event: Event) -> Place | None:
    """What an event is about: kind, namespace and name; None if it has no name."""
    raw = _raw_place(event)
    return (cut(raw[0]), cut(raw[1]), cut(raw[2])) if raw else None


def _raw_place(event: Event) -> Place | None:
    """The same as it is written; what is no text becomes one."""
    where = event.involvedObject
    if where is None or not isinstance(where.name, str):
        return None
    kind, namespace = where.kind, where.namespace
    return (
        kind if isinstance(kind, str) else cut(kind),
        namespace if isinstance(namespace, str) else cut(namespace),
        where.name,
    )


def _owners(events: Sequence[Event], others: Mask) -> dict[tuple[str, str], str]:
    """Pod → the job that created it, out of the events of others than pods."""
    owners: dict[tuple[str, str], str] = {}
    for row in np.flatnonzero(others).tolist():
        event, where = events[row], events[row].involvedObject
        found = _CREATED.search(event.text[:400])
        if where is not None and found:
            owners[cut(where.namespace), found[1]] = str(where.name)
    return owners


def _job_name(place: Place, owners: dict[tuple[str, str], str]) -> str:
    kind, namespace, name = place
    if kind == "Pod":
        name = owners.get((namespace, name)) or _ROLE.sub("", _RANDOM.sub("", name)) or name
    return f"{namespace}/{name}" if namespace else name
