"""Events of Kubernetes: ``kubectl get events -o json`` (a list, one object a line, or a watch).

Pods of one job are one job: by the owner that created them, else by their name without its random or numbered end. The job
starts when its first pod does; its attempt ends with the first pod that fails, is killed, evicted or preempted, and the
next begins with the next start. Events do not tell when a container ends by itself, nor how many accelerators it held.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from taut.core.errors import InputRefused, TooLarge
from taut.core.tables import NULL
from taut.read.actions.control_log import ControlLog
from taut.read.actions.kube_actions import DECIDING, decisions
from taut.read.columns import Codes, Mask
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import JobLog, blank, cut, table, times

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
"""Reasons that show a job that waits."""
BEGINS = ("started", "pytorchjobrunning", "jobrunning")
TELLING = frozenset((*ENDS, *QUEUES, *BEGINS))
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
    kind: Any = None
    name: Any = None
    namespace: Any = None


class _Source(msgspec.Struct, gc=False):
    host: Any = None
    component: Any = None


class _Series(msgspec.Struct, gc=False):
    count: Any = None
    lastObservedTime: Any = None


class _Event(msgspec.Struct, gc=False):
    """An event of the core, or of the newer group that calls its object ``regarding`` and its message ``note``."""

    involvedObject: _Object | None = None
    regarding: _Object | None = None
    note: Any = None
    deprecatedFirstTimestamp: Any = None
    deprecatedLastTimestamp: Any = None
    deprecatedSource: _Source | None = None
    reason: Any = None
    message: Any = None
    firstTimestamp: Any = None
    lastTimestamp: Any = None
    eventTime: Any = None
    count: Any = None
    source: _Source | None = None
    series: _Series | None = None
    reportingComponent: Any = None
    reportingController: Any = None
    items: list[_Event] = []
    object: _Event | None = None


def load(data: bytes, label: str) -> JobLog | ControlLog:
    """The attempts of all jobs whose pods the events name, and who decided what; decisions alone if there are no jobs."""
    events = [event for event in map(_plain, _events(bytes(data), label)) if event.involvedObject is not None]
    told = _told(events)
    if not len(told.row):
        raise InputRefused(label, "no event tells of a pod or a job", "save kubectl get events -o json of the job's namespace")
    jobs = [_Job(name) for name in told.jobs]
    some = np.flatnonzero(told.tells[told.row])
    for at, row, job in zip(told.at[some].tolist(), told.row[some].tolist(), told.job[some].tolist(), strict=True):
        jobs[job].tell(at, events[row])
    those = np.flatnonzero(told.decides[told.row])
    rows = zip(told.at[those].tolist(), told.row[those].tolist(), told.job[those].tolist(), strict=True)
    decided = decisions(
        ((at, events[row], _place(events[row]) or ("", "", ""), told.jobs[job]) for at, row, job in rows), label
    )
    columns = blank(_KEYS)
    last = int(told.at[-1])
    for job in _as_seen(told.job):
        for row in jobs[job].finished(last):
            for key in _KEYS:
                columns[key].append(row[key])
    if not columns["job"] and len(decided.actions):
        return decided
    if not columns["job"]:
        raise InputRefused(
            label, "no event tells of a pod that started", "events are kept for an hour only: save them as they come"
        )
    return JobLog(label, table(columns, label), controller="kubernetes", control=decided)


def _events(data: bytes, label: str) -> Iterator[_Event]:
    try:
        for event in _decoded(data):
            yield from event.items or [event.object or event]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(
            label, f"not readable as events of Kubernetes ({str(error)[:120]})", "use kubectl get events -o json"
        ) from None


def _plain(event: _Event) -> _Event:
    """An event of the newer group in the words of the core."""
    if event.regarding is not None:
        event.involvedObject, event.message = event.regarding, event.note
        event.firstTimestamp = event.firstTimestamp or event.deprecatedFirstTimestamp
        event.lastTimestamp = event.lastTimestamp or event.deprecatedLastTimestamp
        event.source = event.source or event.deprecatedSource
    return event


def _decoded(data: bytes) -> list[_Event]:
    """A list, objects of one line each, or objects printed over several lines one after the other."""
    decoder = msgspec.json.Decoder(_Event)
    try:
        return [decoder.decode(data)]
    except msgspec.DecodeError:
        if b"\n{" not in data:
            raise
    many = re.split(rb"\n(?=\{)", data.strip())
    return [decoder.decode(part) for part in many]


Place = tuple[str, str, str]


class _Told(NamedTuple):
    """The events in order of time, at the first and again at the last time they were seen."""

    at: Any
    row: Any
    """Which event."""
    job: Any
    """Index into ``jobs``, for each of ``row``."""
    jobs: list[str]
    tells: Any
    """Whether an event's reason begins, ends or queues something …"""
    decides: Any
    """… and whether it is a decision."""


def _told(events: list[_Event]) -> _Told:
    if len(events) > MOST_EVENTS:
        raise TooLarge("events", f"more than {MOST_EVENTS:,}", "save the events of one job")
    first = times([e.firstTimestamp or e.eventTime or e.lastTimestamp for e in events])[0]
    last = times([(e.series.lastObservedTime if e.series else None) or e.lastTimestamp or e.eventTime for e in events])[0]
    reasons, places, jobs = Codes(), Codes(), Codes()
    reason = reasons.of(e.reason if isinstance(e.reason, str) else None for e in events)
    place = places.of(map(_place, events))
    about = [key if isinstance(key, tuple) else None for key in places]
    told = _which(word is not None for word in reasons)[reason] & _which(key is not None for key in about)[place]
    known, decided = (_which(str(word).lower() in some for word in reasons) for some in (TELLING, DECIDING))
    owners = _owners(events, _which(key is not None and key[0] != "Pod" for key in about)[place])
    job = jobs.of(_job(key, owners) if key else "" for key in about)
    rows = np.concatenate([np.flatnonzero(told & (first >= 0)), np.flatnonzero(told & (last >= 0) & (last != first))])
    at = np.concatenate([first[told & (first >= 0)], last[told & (last >= 0) & (last != first)]])
    order = np.lexsort((rows, at))
    rows = rows[order]
    return _Told(at[order], rows, job[place[rows]], list(map(str, jobs)), known[reason], decided[reason])


def _which(flags: Iterable[bool]) -> Mask:
    return np.fromiter(flags, dtype=np.bool_)


def _place(event: _Event) -> Place | None:
    """What an event is about: kind, namespace and name; None if it has no name."""
    where = event.involvedObject
    return (cut(where.kind), cut(where.namespace), cut(where.name)) if where and isinstance(where.name, str) else None


def _as_seen(codes: Any) -> list[int]:
    """Codes in the order in which they come first."""
    found, first = np.unique(codes, return_index=True)
    return list(found[np.argsort(first)].tolist())


def _owners(events: list[_Event], others: Any) -> dict[tuple[str, str], str]:
    """Pod → the job that created it, out of the events of others than pods."""
    owners = {}
    for row in np.flatnonzero(others).tolist():
        event, where = events[row], events[row].involvedObject
        found = _CREATED.search(event.message[:400]) if isinstance(event.message, str) else None
        if where is not None and found:
            owners[cut(where.namespace), found[1]] = where.name
    return owners


def _job(place: Place, owners: dict[tuple[str, str], str]) -> str:
    kind, namespace, name = place
    if kind == "Pod":
        name = owners.get((namespace, name)) or _ROLE.sub("", _RANDOM.sub("", name)) or name
    return f"{namespace}/{name}" if namespace else name


_KEYS = ("job", "submit_ns", "start_ns", "end_ns", "outcome", "accelerators", "unit", "nodes", "reason")


class _Job:
    """One job as its events go by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[dict[str, Any]] = []
        self.open: dict[str, Any] | None = None
        self.queued_ns = NULL
        self.pods: set[str] = set()
        self.nodes: set[str] = set()

    def tell(self, at: int, event: _Event) -> None:
        """One event."""
        reason = event.reason.lower()
        if reason in BEGINS:
            self._start(at, event)
        elif reason in ENDS:
            self._end(at, ENDS[reason], event)
        elif reason in QUEUES and self.queued_ns < 0 and self.open is None:
            self.queued_ns = at

    def _start(self, at: int, event: _Event) -> None:
        if self.open is None:
            self.open = {"job": self.name, "submit_ns": self.queued_ns, "start_ns": at}
            self.queued_ns, self.pods, self.nodes = NULL, set(), set()
        where = event.involvedObject
        if where is not None and cut(where.kind) == "Pod":
            self.pods.add(cut(where.name))
        if event.source is not None and isinstance(event.source.host, str):
            self.nodes.add(event.source.host[:64])

    def _end(self, at: int, outcome: str, event: _Event) -> None:
        if outcome == words.FAILED and isinstance(event.message, str):
            code = _CODE.search(event.message[:400])
            outcome = words.OUT_OF_MEMORY if "OOM" in event.message else outcome
            outcome = words.COMPLETED if code and code[1] == "0" else outcome
        if self.open is None:
            self._better(outcome, event)
            return
        self.rows.append({**self.open, **self._held(), "end_ns": at, "outcome": outcome, "reason": _why(event)})
        self.open = None

    def _better(self, outcome: str, event: _Event) -> None:
        """What follows the end may know it better: a pod that is killed was preempted, or ran out of memory."""
        if (
            self.rows
            and outcome not in (words.CANCELLED, words.FAILED)
            and self.rows[-1]["outcome"] in (words.CANCELLED, words.FAILED)
        ):
            self.rows[-1].update(outcome=outcome, reason=_why(event))

    def _held(self) -> dict[str, Any]:
        pods = len(self.pods)
        nodes = ",".join(sorted(self.nodes))
        return {"accelerators": pods or NULL, "unit": "task" if pods else "", "nodes": cut(nodes)}

    def finished(self, last: int) -> list[dict[str, Any]]:
        """The attempts; one that runs is followed to the last event."""
        if self.open is not None:
            self.rows.append({**self.open, **self._held(), "end_ns": last, "outcome": words.RUNNING, "reason": ""})
            self.open = None
        if not self.rows and self.queued_ns >= 0:
            waiting = {"start_ns": NULL, "end_ns": NULL, "accelerators": NULL, "unit": "", "nodes": "", "reason": ""}
            return [{"job": self.name, "submit_ns": self.queued_ns, "outcome": words.PENDING, **waiting}]
        return self.rows


def _why(event: _Event) -> str:
    return cut(f"{event.reason}: {event.message}" if isinstance(event.message, str) and event.message else event.reason)
