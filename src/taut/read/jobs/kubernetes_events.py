"""Events of Kubernetes: ``kubectl get events -o json`` (a list, one object a line, or a watch).

Pods of one job are one job: by the owner that created them, else by their name without its random or numbered end. The job
starts when its first pod does; its attempt ends with the first pod that fails, is killed, evicted or preempted, and the
next begins with the next start. Events do not say when a container ends by itself, nor how many accelerators it held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from taut.core.array_types import Ints, Json, Mask
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import ControlLog
from taut.read.actions.kube_actions import DECIDING, Place, decisions
from taut.read.columns import Codes
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import JobLog, cut, table, times
from taut.read.limits import check_count

MOST_EVENTS = 10_000_000
ENDS = {
    "preempted": words.PREEMPTED, "preempting": words.PREEMPTED, "evicted": words.PREEMPTED, "evict": words.PREEMPTED,
    "taintmanagereviction": words.NODE_FAILED, "nodenotready": words.NODE_FAILED, "nodelost": words.NODE_FAILED,
    "nodeshutdown": words.NODE_FAILED, "terminated": words.FAILED,
    "oomkilling": words.OUT_OF_MEMORY, "oomkilled": words.OUT_OF_MEMORY, "systemoom": words.OUT_OF_MEMORY,
    "backoff": words.FAILED, "crashloopbackoff": words.FAILED, "podfailed": words.FAILED, "exitedwithcode": words.FAILED,
    "backofflimitexceeded": words.FAILED, "failed": words.FAILED, "jobfailed": words.FAILED, "pytorchjobfailed": words.FAILED,
    "deadlineexceeded": words.TIMED_OUT, "killing": words.CANCELLED, "suspended": words.CANCELLED,
    "pytorchjobrestarting": words.FAILED, "jobrestarting": words.FAILED, "restarting": words.FAILED,
    "completed": words.COMPLETED, "pytorchjobsucceeded": words.COMPLETED, "jobsucceeded": words.COMPLETED,
    "succeeded": words.COMPLETED,
}  # fmt: skip
"""Reasons that end an attempt, in lower case, and how."""
QUEUES = ("failedscheduling", "successfulcreate", "created job", "pytorchjobcreated", "scheduled", "suspended", "queued")
"""Reasons that show that a job waits."""
BEGINS = ("started", "pytorchjobrunning", "jobrunning")
VAGUE = (words.CANCELLED, words.FAILED)
"""Outcomes that a later event may correct."""
OF_ATTEMPTS = frozenset((*ENDS, *QUEUES, *BEGINS))
_CREATED = re.compile(r"[Cc]reated pod:? (\S{1,253})")
_RANDOM = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_ROLE = re.compile(
    r"-(?:master|worker|launcher|chief|ps|node|replica|head|trainer|leader)(?:-\d{1,6}){0,9}$|(?:-\d{1,6}){1,9}$"
)
_CODE = re.compile(r"exit(?:ed)?(?: with)?(?: code:?)? (\d{1,3})")


def sniff(head: bytes) -> bool:
    """JSON objects of kind Event, alone or in a list."""
    text = head.lstrip()
    return text[:1] == b"{" and (b'"involvedObject"' in text or b'"regarding"' in text) and b'"reason"' in text


class _Object(msgspec.Struct, gc=False):
    kind: Json = None
    name: Json = None
    namespace: Json = None


class _Source(msgspec.Struct, gc=False):
    host: Json = None
    component: Json = None


class _Series(msgspec.Struct, gc=False):
    count: Json = None
    lastObservedTime: Json = None


class Event(msgspec.Struct, gc=False):
    """An event of the core, or of the newer group that calls its object ``regarding`` and its message ``note``."""

    involvedObject: _Object | None = None
    regarding: _Object | None = None
    note: Json = None
    deprecatedFirstTimestamp: Json = None
    deprecatedLastTimestamp: Json = None
    deprecatedSource: _Source | None = None
    reason: Json = None
    message: Json = None
    firstTimestamp: Json = None
    lastTimestamp: Json = None
    eventTime: Json = None
    count: Json = None
    source: _Source | None = None
    series: _Series | None = None
    reportingComponent: Json = None
    reportingController: Json = None
    items: list[Event] = []
    object: Event | None = None


def load(data: bytes, label: str) -> JobLog | ControlLog:
    """The attempts of all jobs whose pods the events name, and who decided what; decisions alone if there are no jobs."""
    events = [event for event in map(_plain, _events(bytes(data), label)) if event.involvedObject is not None]
    seen = _sightings(events, label)
    if not len(seen.row):
        raise InputRefused(label, "no event is about a pod or a job", "save kubectl get events -o json of the job's namespace")
    jobs = [_Job(name) for name in seen.jobs]
    for at, row, job in seen.of(seen.of_attempts):
        jobs[job].read(at, events[row])
    deciding = ((at, events[row], job) for at, row, job in seen.of(seen.decides))
    decided = decisions(((at, one, _place(one) or ("", "", ""), seen.jobs[job]) for at, one, job in deciding), label)
    codes, first = np.unique(seen.job, return_index=True)
    rows = [row for job in codes[np.argsort(first)].tolist() for row in jobs[job].finished(int(seen.at[-1]))]
    if not rows and len(decided.actions):
        return decided
    if not rows:
        raise InputRefused(
            label, "no event is about a pod that started", "events are kept for an hour only: save them as they come"
        )
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    return JobLog(label, table(columns, label), controller="kubernetes", control=decided)


def _events(data: bytes, label: str) -> Iterator[Event]:
    try:
        for event in _decoded(data):
            yield from event.items or [event.object or event]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(
            label, f"not readable as events of Kubernetes ({str(error)[:120]})", "use kubectl get events -o json"
        ) from None


def _plain(event: Event) -> Event:
    """An event of the newer group in the words of the core."""
    if event.regarding is not None:
        event.involvedObject, event.message = event.regarding, event.note
        event.firstTimestamp = event.firstTimestamp or event.deprecatedFirstTimestamp
        event.lastTimestamp = event.lastTimestamp or event.deprecatedLastTimestamp
        event.source = event.source or event.deprecatedSource
    return event


def _decoded(data: bytes) -> list[Event]:
    """A list, objects of one line each, or objects printed over several lines one after the other."""
    decoder = msgspec.json.Decoder(Event)
    try:
        return [decoder.decode(data)]
    except msgspec.DecodeError:
        if b"\n{" not in data:
            raise
    many = re.split(rb"\n(?=\{)", data.strip())
    return [decoder.decode(part) for part in many]


class _Sightings(NamedTuple):
    """The events in order of time, at the first and again at the last time they were seen."""

    at: Ints
    row: Ints
    """Which event."""
    job: Ints
    """Index into ``jobs``, for each of ``row``."""
    jobs: list[str]
    of_attempts: Mask
    """Whether an event's reason begins, ends or queues something …"""
    decides: Mask
    """… and whether it is a decision."""

    def of(self, events: Mask) -> Iterator[tuple[int, int, int]]:
        """(time, event, job) of every sighting of some events."""
        some = events[self.row]
        return zip(self.at[some].tolist(), self.row[some].tolist(), self.job[some].tolist(), strict=True)


def _sightings(events: list[Event], label: str) -> _Sightings:
    check_count(len(events), MOST_EVENTS, "events", label, "save the events of one job")
    first = times([e.firstTimestamp or e.eventTime or e.lastTimestamp for e in events])[0]
    last = times([(e.series.lastObservedTime if e.series else None) or e.lastTimestamp or e.eventTime for e in events])[0]
    # Reasons and places recur: each is looked at once, and the events take the answer by its code.
    reasons, places, jobs = Codes(), Codes(), Codes()
    reason = reasons.of(e.reason if isinstance(e.reason, str) else None for e in events)
    place = places.of(map(_place, events))
    named = _mask(word is not None for word in reasons)[reason] & _mask(key is not None for key in places)[place]
    owners = _owners(events, _mask(key is not None and key[0] != "Pod" for key in places)[place])
    job = jobs.of(_job_name(key, owners) if key else "" for key in places)
    # The server joins equal events: one that recurred counts at its first and at its last time.
    begins, ends = named & (first >= 0), named & (last >= 0) & (last != first)
    rows = np.concatenate([np.flatnonzero(begins), np.flatnonzero(ends)])
    at = np.concatenate([first[begins], last[ends]])
    order = np.lexsort((rows, at))
    of_attempts, decides = (_mask(str(word).lower() in some for word in reasons)[reason] for some in (OF_ATTEMPTS, DECIDING))
    return _Sightings(at[order], rows[order], job[place[rows[order]]], list(jobs), of_attempts, decides)


def _mask(flags: Iterator[bool]) -> Mask:
    return np.fromiter(flags, dtype=np.bool_)


def _place(event: Event) -> Place | None:
    """What an event is about: kind, namespace and name; None if it has no name."""
    where = event.involvedObject
    return (cut(where.kind), cut(where.namespace), cut(where.name)) if where and isinstance(where.name, str) else None


def _owners(events: list[Event], others: Mask) -> dict[tuple[str, str], str]:
    """Pod → the job that created it, out of the events of others than pods."""
    owners: dict[tuple[str, str], str] = {}
    for row in np.flatnonzero(others).tolist():
        event, where = events[row], events[row].involvedObject
        found = _CREATED.search(event.message[:400]) if isinstance(event.message, str) else None
        if where is not None and found:
            owners[cut(where.namespace), found[1]] = str(where.name)
    return owners


def _job_name(place: Place, owners: dict[tuple[str, str], str]) -> str:
    kind, namespace, name = place
    if kind == "Pod":
        name = owners.get((namespace, name)) or _ROLE.sub("", _RANDOM.sub("", name)) or name
    return f"{namespace}/{name}" if namespace else name


class _Job:
    """One job as its events go by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, str | int]] = []
        self.start_ns = self.queued_ns = self.submit_ns = NULL
        """When the attempt that runs began; when the next one was queued, and when this one was."""
        self.pods: set[str] = set()
        self.nodes: set[str] = set()

    def read(self, at: int, event: Event) -> None:
        """One event."""
        reason = _reason(event).lower()
        if reason in BEGINS:
            self._start(at, event)
        elif reason in ENDS:
            self._end(at, ENDS[reason], event)
        elif reason in QUEUES and self.queued_ns < 0 and self.start_ns < 0:
            self.queued_ns = at

    def _start(self, at: int, event: Event) -> None:
        if self.start_ns < 0:
            self.start_ns, self.submit_ns, self.queued_ns = at, self.queued_ns, NULL
            self.pods, self.nodes = set(), set()
        where = event.involvedObject
        if where is not None and cut(where.kind) == "Pod":
            self.pods.add(cut(where.name))
        if event.source is not None and isinstance(event.source.host, str):
            self.nodes.add(event.source.host[:64])

    def _end(self, at: int, outcome: str, event: Event) -> None:
        if outcome == words.FAILED and isinstance(event.message, str):
            code = _CODE.search(event.message[:400])
            outcome = words.OUT_OF_MEMORY if "OOM" in event.message else outcome
            outcome = words.COMPLETED if code and code[1] == "0" else outcome
        text = f"{_reason(event)}: {event.message}" if isinstance(event.message, str) and event.message else _reason(event)
        if self.start_ns >= 0:
            self._close(at, outcome, cut(text))
        # What follows the end may know it better: a pod that is killed was preempted, or ran out of memory.
        elif self.rows and outcome not in VAGUE and self.rows[-1]["outcome"] in VAGUE:
            self.rows[-1].update(outcome=outcome, reason=cut(text))

    def _close(self, at: int, outcome: str, reason: str) -> None:
        self.rows.append(self._row(at, outcome, reason))
        self.start_ns = self.submit_ns = NULL

    def _row(self, end_ns: int, outcome: str, reason: str) -> dict[str, str | int]:
        pods = len(self.pods)
        return {
            "job": self.name,
            "submit_ns": self.submit_ns,
            "start_ns": self.start_ns,
            "end_ns": end_ns,
            "outcome": outcome,
            "accelerators": pods or NULL,
            "unit": "task" if pods else "",
            "nodes": cut(",".join(sorted(self.nodes))),
            "reason": reason,
        }

    def finished(self, last: int) -> list[dict[str, str | int]]:
        """The attempts; one that runs is followed to the last event."""
        if self.start_ns >= 0:
            self._close(last, words.RUNNING, "")
        if not self.rows and self.queued_ns >= 0:
            self.submit_ns = self.queued_ns
            return [self._row(NULL, words.PENDING, "")]
        return self.rows


def _reason(event: Event) -> str:
    return event.reason if isinstance(event.reason, str) else ""
