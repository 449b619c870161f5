"""Events of Kubernetes: ``kubectl get events -o json`` or ``-o yaml`` (a list, one object a line, or a watch).

Pods of one job are one job: by the owner that created them, else by their name without its random or numbered end. The job
starts when its first pod does; its attempt ends with the first pod that fails, is killed, evicted or preempted, and the
next begins with the next start. Events do not say when a container ends by itself, nor how many accelerators it held.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.kube_actions import decisions, target
from taut.read.contents import ControlLog, JobLog
from taut.read.jobs.event_sightings import Sightings, place_of, sightings
from taut.read.jobs.job_words import cut, table
from taut.read.jobs.kube_event import Event
from taut.read.jobs.pod_attempts import attempts

# What the command prints begins with one of these keys, whatever it lists.
_OBJECT = re.compile(rb'\s*+\{\s*+"(?:kind|apiVersion|metadata|items)"\s*+:')
_KIND = re.compile(rb'"kind"\s*+:\s*+"(\w{1,60})"')
_EMPTY = re.compile(rb'"items"\s*+:\s*+(?:\[\s*+\]|null)')
_YAML = re.compile(rb"(?:^|\n)[ -]*+(?:involvedObject|regarding):[ \t]*+\r?\n")
_VERSION = re.compile(rb'"apiVersion"\s*+:\s*+"(?:v1|[\w.-]{1,60}\.k8s\.io/v\w{1,20}|(?:apps|batch|autoscaling)/v\w{1,20})"')
SAVE = "save kubectl get events -o json of the job's namespace"
JOINED, MESSAGE = 4, 90
"""Joined decisions that are named, and letters of their message."""


def sniff(head: bytes) -> bool:
    """Objects of kind Event, alone or in a list, as JSON or YAML; or other objects of Kubernetes, which are refused by name."""
    text = head.lstrip()
    if text[:1] not in (b"{", b"["):
        return _YAML.search(head) is not None and b"reason:" in head
    if (b'"involvedObject"' in text or b'"regarding"' in text) and b'"reason"' in text:
        return True
    return _OBJECT.match(text) is not None and _VERSION.search(text) is not None and _KIND.search(text) is not None


def load(data: bytes, label: str) -> JobLog | ControlLog:
    """The attempts of all jobs whose pods the events name, and who decided what; decisions alone if there are no jobs."""
    raw = bytes(data)
    events = [event for event in (one.plain() for one in _events(raw, label)) if event.involvedObject is not None]
    if not events:
        raise _other(raw, label)
    return log_of(events, label)


def log_of(
    events: Sequence[Event], label: str, partial: Sequence[str] = (), dated: bool = True, until_ns: int = NULL
) -> JobLog | ControlLog:
    """What events say until the last, or until a time; ``dated`` is False where their times are good for lengths only."""
    seen = sightings(events, label)
    if not len(seen.row):
        raise InputRefused(label, "no event is about a pod or a job", SAVE)
    rows, notes = attempts(events, seen, until_ns)
    deciding = ((at, events[row], job) for at, row, job, _ in seen.of(seen.decides))
    decided = decisions(((at, one, place_of(one) or ("", "", ""), seen.jobs[job]) for at, one, job in deciding), label)
    notes += _joined(events, seen)
    notes = [*partial, *(f"{label}: {line}" for line in notes)]
    if not rows and len(decided.actions):
        return msgspec.structs.replace(decided, partial=notes)
    if not rows:
        raise InputRefused(
            label, "no event is about a pod that started", "events are kept for an hour only: save them as they come"
        )
    columns = {key: [row[key] for row in rows] for key in rows[0]} | {"dated": [int(dated)] * len(rows)}
    return JobLog(label, table(columns, label), controller="kubernetes", control=decided, partial=notes)


def _joined(events: Sequence[Event], seen: Sightings) -> list[str]:
    """What was decided so often that the server joined it: how often, of each object the first and the last are dated."""
    often: dict[tuple[str, str], int] = {}
    for row in np.flatnonzero(seen.decides & (seen.occurred > 2)).tolist():
        place = place_of(events[row])
        if place is not None:  # a watch prints an event anew each time it comes
            key = target(*place), cut(f"{events[row].reason}: {events[row].text}")
            often[key] = max(often.get(key, 0), int(seen.occurred[row]))
    if not often:
        return []
    most = sorted(often, key=lambda key: (-often[key], key))
    told = "; ".join(f"{where} {often[where, text]:,} × {text[:MESSAGE]}" for where, text in most[:JOINED])
    more = f"; and {len(most) - JOINED:,} more" if len(most) > JOINED else ""
    unseen = sum(many - 2 for many in often.values())
    return [f"decisions that the server joined: {told}{more}: the times of {unseen:,} are not known, and these are left out"]


def _events(data: bytes, label: str) -> Iterator[Event]:
    try:
        for event in _decoded(data):
            yield from event.items or [event.object or event.event or event]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputRefused(
            label, f"not readable as events of Kubernetes ({str(error)[:120]})", "use kubectl get events -o json"
        ) from None


def _decoded(data: bytes) -> list[Event]:
    """A list (of Kubernetes, or of JSON), objects of one line each, or of several lines one after the other; JSON or YAML."""
    if data.lstrip()[:1] not in (b"{", b"["):
        from taut.read.jobs.kube_yaml import documents

        return [msgspec.convert(one, Event, strict=False) for one in documents(data.decode("utf-8", "replace"))]
    decoder = msgspec.json.Decoder(Event)
    try:
        if data.lstrip()[:1] == b"[":
            return msgspec.json.decode(data, type=list[Event])
        return [decoder.decode(data)]
    except msgspec.DecodeError:
        if b"\n{" not in data:
            raise
    many = re.split(rb"\n(?=\{)", data.strip())
    return [decoder.decode(part) for part in many]


def _other(data: bytes, label: str) -> InputRefused:
    """The refusal of what holds no event."""
    if _EMPTY.search(data[:4096]):
        why = "an empty list of Kubernetes: no event is in it"
        return InputRefused(
            label, why, "events are kept for an hour only, and in their namespace: save them as they come, with -A"
        )
    kinds = {kind.decode() for kind in _KIND.findall(data[: 1 << 20])} - {"List", "Event", "EventList"}
    if kinds:
        which = ", ".join(sorted(kinds)[:3])
        return InputRefused(label, f"objects of Kubernetes ({which}), not their events", SAVE)
    return InputRefused(label, "no event is about an object", SAVE)
