"""Events of Kubernetes → the attempts of the jobs whose pods they are about.

The server joins equal events: one that came 9 times has its first time, its last time and a count. The starts between are
attempts of which nothing but their number is known. A pod holds its node, and its accelerators, from when it is bound until
it is deleted, evicted or lost: while its container waits to be restarted, and while its volumes cannot be mounted.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np

from taut.core.tables import NULL
from taut.read.jobs import job_words as words
from taut.read.jobs.event_sightings import Sightings
from taut.read.jobs.event_words import BEGINS, BLOCKS, ENDS, LOOPS, ON_NODE, RELEASES, UNBOUND, VAGUE
from taut.read.jobs.job_words import cut
from taut.read.jobs.kube_event import Event, Object

# Starts of one container that are known by their number only; more are a mistake, or worse.
MOST_HIDDEN = 100_000
# A Job waits at least so long before it makes a pod in the place of one that failed.
BACK_OFF_NS = 10 * words.SECOND
FOLLOWED = "its Job made another pod"
_MADE = re.compile(r"[Cc]reated pod:? (\S{1,253})")
_INDEX = re.compile(r"(\d{1,9})-[a-z0-9]{5}")
_DELETED = re.compile(r"[Dd]eleted pod:? (\S{1,253})")
_ASSIGNED = re.compile(r"assigned \S{1,600} to (\S{1,253})")
_CONTAINER = re.compile(r"(?:Created|Started) container:? (\S{1,253})")
_INSIDE = re.compile(r"spec\.(initContainers|ephemeralContainers|containers)\{([^}]{1,253})\}")
_CODE = re.compile(r"exit(?:ed)?(?: with)?(?: code:?)? (\d{1,3})")
_RESTARTED = re.compile(r"will be restarted|failed (?:liveness|startup) probe")
_PULL = re.compile(r"pull|ErrImage|InvalidImageName|CreateContainerConfigError|CreateContainerError", re.IGNORECASE)
NOWHERE = Object()
UNNAMED = "containers"
"""A container that is not told apart from the others of its pod."""
Row = dict[str, "str | int"]
Container = tuple[str, str]
"""Pod, and the container in it."""


def attempts(events: Sequence[Event], seen: Sightings, until_ns: int = NULL) -> tuple[list[Row], list[str]]:
    """The attempts of all jobs in the order in which these were first seen, and what is known by its number only.

    What still runs is followed to the last event, or until a later time.
    """
    jobs = [_Job(name) for name in seen.jobs]
    used = np.flatnonzero(seen.of_attempts)
    words_of = (seen.words[code] for code in seen.reason[used].tolist())
    counts = seen.occurred[used].tolist()
    told = {row: _Told(events[row], *said) for row, *said in zip(used.tolist(), words_of, counts, strict=True)}
    begins = _begins(told)
    for at, row, job, again in seen.of(seen.of_attempts):
        jobs[job].read(at, told[row], begins.get(row, ""), (int(seen.first[row]), int(seen.occurred[row])) if again else None)
    codes, first = np.unique(seen.job, return_index=True)
    order = codes[np.argsort(first)].tolist()
    last = max(int(seen.at[-1]) if len(seen.at) else NULL, until_ns)
    rows = [row for job in order for row in jobs[job].finished(last)]
    hidden = sum(jobs[job].hidden for job in order)
    followed = sum(row["reason"] == FOLLOWED and not row["outcome"] for row in rows)
    notes = [
        (hidden, f"{hidden:,} starts were joined by the server: only their number is known, not when they began and ended"),
        (followed, f"{followed:,} pods were followed by another of their Job: whether they failed, or several were asked for "
                   "one after the other, its events do not tell"),
    ]  # fmt: skip
    return rows, [note for count, note in notes if count]


class _Told:
    """What an event says, each part worked out once."""

    __slots__ = ("field", "host", "job", "namespace", "occurred", "of_pod", "pod", "reason", "text", "word")

    def __init__(self, event: Event, word: str, occurred: int) -> None:
        where = event.involvedObject or NOWHERE
        self.reason, self.word, self.occurred = str(event.reason), word, occurred
        self.text = event.message if isinstance(event.message, str) else ""
        self.host = event.host
        self.of_pod = where.kind == "Pod"
        self.job = str(where.name) if where.kind == "Job" else ""
        """The Job of the batch group that it is about; empty if it is about something else."""
        self.namespace = where.namespace if isinstance(where.namespace, str) else ""
        # With its unique id where that is told: a pod that is made anew has the same name.
        self.pod = f"{self.namespace}/{where.name}/{where.uid or ''}"
        self.field = where.fieldPath if isinstance(where.fieldPath, str) else ""


def _begins(told: dict[int, _Told]) -> dict[int, str]:
    """Events that start the containers of a job → the container; each is told once, by the reason that came more often.

    Containers that only prepare a pod count where no other one of it was started.
    """
    found: dict[int, tuple[Container, str]] = {}
    total: Counter[tuple[Container, str]] = Counter()
    for row, event in told.items():
        if event.word in ("created", "started"):
            inside = _INSIDE.search(event.field) if event.field else None
            named = None if inside else _CONTAINER.search(event.text[:400])
            name = f"{inside[1]} {inside[2]}" if inside else f"containers {named[1]}" if named else UNNAMED
            found[row] = (event.pod, name), event.word
            total[found[row]] += event.occurred
    main = {pod for (pod, name), _ in total if name.startswith("containers")}
    return {
        row: container[1]
        for row, (container, reason) in found.items()
        if (container[1].startswith("containers") or container[0] not in main)
        and (total[container, "created"] > total[container, "started"]) == (reason == "created")
    }


class _Job:
    """One job as its events go by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.last: Row | None = None
        """The last attempt that ended at a known time."""
        self.began: list[int] = []
        """When attempts were seen to begin."""
        self.hidden = 0
        self.start_ns = self.submit_ns = self.queued_ns = self.until_ns = NULL
        """When the attempt that runs began and was queued; when the next one was queued; until when the last was held."""
        self.held = NULL
        self.reports: dict[str, int] = {}
        """How often a container that is started again and again was reported, by the word of the report."""
        self.released = False
        self.made: dict[str, int] = {}
        """Pods that the Job made for the attempt that runs, and when."""
        self.pods: set[str] = set()
        self.nodes: set[str] = set()
        self.running: set[Container] = set()
        self.bound: dict[str, int] = {}
        """Pods that are on a node, and since when."""
        self.blocked: dict[tuple[str, str], tuple[int, int, str]] = {}
        """What keeps pods from running, by pod and reason: how often, the last time, and what it says."""

    def read(self, at: int, event: _Told, container: str, again: tuple[int, int] | None) -> None:
        """One event; the container that it starts, and where it came again since when and how often in all."""
        reason = event.word
        if event.of_pod:
            self._bind(at, event)
        elif event.job and reason == "successfulcreate":
            self._follow(at, event)
        if reason in BEGINS:
            if container or not event.of_pod:
                self._start(at, event, container, again)
        elif event.of_pod and (reason in BLOCKS or (reason in LOOPS and _PULL.search(event.text[:400]))):
            self._block(at, event)
        elif reason in ENDS:
            self._end(at, ENDS[reason], event)
        elif reason in BLOCKS and reason == "failedcreate":
            self._block(at, event)
        elif self.queued_ns < 0 and self.start_ns < 0 and reason not in BLOCKS:
            self.queued_ns = at

    def _bind(self, at: int, event: _Told) -> None:
        """A pod is seen to be on a node."""
        assigned = _ASSIGNED.search(event.text[:900]) if event.word == "scheduled" else None
        host = assigned[1] if assigned else event.host
        if event.word in ON_NODE or (host and event.word not in RELEASES and event.word not in UNBOUND):
            pod = event.pod
            if assigned:  # a pod of this name that was bound before is another one
                self._release(at, pod)
            self.bound.setdefault(pod, at)
            if host:
                self.nodes.add(host[:64])

    def _release(self, at: int, pod: str) -> None:
        """A pod gives its node back."""
        if pod in self.bound:
            del self.bound[pod]
            self.released = True
            self.blocked = {key: found for key, found in self.blocked.items() if key[0] != pod}
            self.until_ns = max(self.until_ns, at) if self.start_ns < 0 else self.until_ns

    def _follow(self, at: int, event: _Told) -> None:
        """A Job makes a pod; if one ran in its place, that one is over: nothing else tells the end of a pod that failed."""
        found = _MADE.search(event.text[:400])
        if found is None:
            return
        place, before = _place(found[1], event.job), [name for name in self.made if self.start_ns >= 0]
        replaced = [name for name in before if _place(name, event.job) == place] if place else before
        if replaced and (place or len(self.pods) == 1) and at - max(self.made.values()) >= BACK_OFF_NS:
            self._close(at, "", FOLLOWED)
            for pod in [pod for pod in self.bound if pod.split("/")[1] in replaced]:
                self._release(at, pod)
            self.made = {name: made for name, made in self.made.items() if name not in replaced}
        self.made[found[1]] = at

    def _start(self, at: int, event: _Told, container: str, again: tuple[int, int] | None) -> None:
        pod = event.pod
        if self.start_ns >= 0 and (pod, container) in self.running and (again or container != UNNAMED):
            self._close(at, "", "its container was started again")
        if again is not None:
            self._hide(again, at)
        if self.start_ns < 0:
            self._open(at, pod)
        self.running.add((pod, container))
        if event.of_pod:
            self.bound.setdefault(pod, at)
            self.pods.add(pod)
        if event.host:
            self.nodes.add(event.host[:64])

    def _open(self, at: int, pod: str) -> None:
        """An attempt begins: in a pod that kept its place since the one before, else when its pods were bound."""
        ended = int(self.last["end_ns"]) if self.last else NULL
        stayed = self.last is not None and self.bound.get(pod, at) <= ended
        if stayed:
            self.start_ns, self.held = at, 1
        else:
            self._settle()
            self.start_ns = min([at, *(since for since in self.bound.values() if since > ended)])
            self.held, self.reports = (0 if self.released and self.last else NULL), {}
            self.nodes = set() if self.last and not self.bound else self.nodes
        self.submit_ns = self.queued_ns if self.queued_ns <= self.start_ns else NULL
        self.began.append(at)
        self.queued_ns, self.released = NULL, False
        self.pods, self.running, self.blocked = set(), set(), {}

    def _hide(self, again: tuple[int, int], at: int) -> None:
        """Add the attempts between an event's first time and its last that no other event has shown."""
        first, count = again
        missing = count - 1 - len(self.began) + bisect_left(self.began, first)
        outcome = str(self.last["outcome"]) if self.last else ""
        for _ in range(min(missing, MOST_HIDDEN)):
            self.rows.append(self._row(NULL, outcome, "") | {"submit_ns": NULL, "start_ns": NULL, "held": 1})
            self.began.append(at)
            self.hidden += 1

    def _block(self, at: int, event: _Told) -> None:
        if self.start_ns < 0:
            self.queued_ns = at if self.queued_ns < 0 else self.queued_ns
            key = event.pod, event.word
            times_before = self.blocked.get(key, (0, at, ""))[0]
            if event.occurred >= times_before:
                self.blocked[key] = event.occurred, at, _reason_and_message(event)

    def _end(self, at: int, outcome: str, event: _Told) -> None:
        reason, message = event.word, event.text[:400]
        if reason == "backofflimitexceeded":  # only what failed counts against this limit
            for row in self.rows:
                row["outcome"] = words.FAILED if row["reason"] == FOLLOWED else row["outcome"]
        restarted = reason == "killing" and _RESTARTED.search(message) is not None
        deleted = _DELETED.search(message)
        pod = f"{event.namespace}/{deleted[1]}/" if deleted else event.pod
        if not deleted or self.start_ns < 0 or any(one.startswith(pod) for one in self.pods):
            self._conclude(at, _outcome(words.FAILED if restarted else outcome, message), _reason_and_message(event))
        if reason in LOOPS:
            self.reports[event.reason] = max(self.reports.get(event.reason, 0), event.occurred)
            self.until_ns = at if pod in self.bound and self.start_ns < 0 else self.until_ns
        elif reason in RELEASES and not restarted:
            whole = not event.of_pod and not deleted
            for one in [one for one in self.bound if whole or one.startswith(pod)]:
                self._release(at, one)

    def _conclude(self, at: int, outcome: str, reason: str) -> None:
        """An attempt ends, or one that has ended is told how."""
        if self.start_ns >= 0:
            self._close(at, outcome, reason)
        elif self.last:
            # What follows the end may know it better: a pod that is killed was preempted, or ran out of memory.
            before = self.last["outcome"]
            if before == "" or (before in VAGUE and outcome not in VAGUE):
                self.last.update(outcome=outcome, reason=reason)

    def _close(self, at: int, outcome: str, reason: str) -> None:
        self.last = self._row(at, outcome, reason)
        self.rows.append(self.last)
        self.start_ns = self.submit_ns = NULL
        self.until_ns = at

    def _settle(self) -> None:
        """The last attempt is over for good: its place was held until its pod went, or was last seen."""
        if self.last and self.last["outcome"] not in (words.RUNNING, words.COMPLETED):
            self._count_reports(self.last)
            if self.until_ns > int(self.last["end_ns"]):
                self.last.update(last_step_ns=self.last["end_ns"], end_ns=self.until_ns)

    def _count_reports(self, row: Row) -> None:
        """How often the end of an attempt was reported: under its own word, and beside it under another."""
        word, colon, message = str(row["reason"]).partition(": ")
        own = self.reports.get(word, NULL)
        other = max(((many, name) for name, many in self.reports.items() if name != word), default=(0, ""))
        if row["outcome"] not in (words.FAILED, words.OUT_OF_MEMORY):  # ended, or not yet, by something else
            row["failures"] = max(own, other[0] or NULL)
            return
        if own < 0 and other[0]:
            row.update(failures=other[0], reason=cut(f"{other[1]} after {word}{colon}{message}"))
        elif 0 <= own < other[0]:
            row.update(failures=own, reason=cut(f"{word} and {other[0]:,} × {other[1]}{colon}{message}"))
        else:
            row["failures"] = own

    def _row(self, end_ns: int, outcome: str, reason: str) -> Row:
        pods = len(self.pods)
        return {
            "job": self.name,
            "submit_ns": self.submit_ns,
            "start_ns": self.start_ns,
            "end_ns": end_ns,
            "last_step_ns": NULL,
            "outcome": outcome,
            "accelerators": pods or NULL,
            "unit": "task" if pods else "",
            "nodes": cut(",".join(sorted(self.nodes)), words.LIST),
            "held": self.held,
            "failures": NULL,
            "reason": reason,
        }

    def finished(self, last: int) -> list[Row]:
        """The attempts; one that runs is followed to the last event, and one that waits is the last."""
        if self.start_ns >= 0:
            self._close(last, words.RUNNING, "")
            if self.held == 1 and self.last:  # how often its container failed before
                self._count_reports(self.last)
        self._settle()
        if self.blocked or (not self.rows and self.queued_ns >= 0):
            self.rows.append(self._waiting())
        return self.rows

    def _waiting(self) -> Row:
        """The attempt that does not get to run, and what keeps it from that."""
        ended = int(self.last["end_ns"]) if self.last else NULL
        since = [then for then in self.bound.values() if then > ended]
        many, at, told = max(self.blocked.values(), default=(NULL, NULL, ""))
        self.pods = set(self.bound) if since else set()
        self.submit_ns, self.start_ns = self.queued_ns, min(since, default=NULL)
        if self.start_ns >= 0 and self.submit_ns > self.start_ns:
            self.submit_ns = NULL
        row = self._row(at if 0 <= self.start_ns <= at else NULL, words.PENDING, told)
        return row | {"failures": many, "held": NULL}


def _place(pod: str, job: str) -> str:
    """Which of the places of an indexed Job a pod has; empty if the Job has none."""
    found = _INDEX.fullmatch(pod.removeprefix(f"{job}-"))
    return found[1] if found else ""


def _outcome(outcome: str, message: str) -> str:
    """How an attempt ended, where the message about a failure knows it better."""
    if outcome != words.FAILED or not message:
        return outcome
    code = _CODE.search(message)
    if code and code[1] == "0":
        return words.COMPLETED
    return words.OUT_OF_MEMORY if "OOM" in message else outcome


def _reason_and_message(event: _Told) -> str:
    """A reason and its message."""
    return cut(f"{event.reason}: {event.text}" if event.text else event.reason)
