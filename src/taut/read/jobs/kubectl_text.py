"""What ``kubectl`` prints for people: ``get events`` (also ``-A``, ``-o wide``, ``kubectl events``) and ``describe pod``.

Events have ages instead of times, but in columns of one's own (``kube_columns``). A described pod names the time when it
started, from which the others follow; a list of events alone has none, and its times are good for lengths only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import numpy as np
from msgspec.structs import replace

from taut.core.errors import InputRefused
from taut.read.contents import ControlLog, JobLog
from taut.read.jobs import kube_columns
from taut.read.jobs.job_words import SECOND, count_or_null
from taut.read.jobs.kube_event import Event, Object, Source
from taut.read.jobs.kubernetes_events import log_of
from taut.read.jobs.log_lines import NO_YEAR

AGE = r"(?:<unknown>|<invalid>|(?:\d{1,6}[ywdhms]){1,4}(?: ago)?)"
SEEN = rf"(?P<age>{AGE})(?:\s\(x(?P<times>\d{{1,9}})\sover\s(?P<over>{AGE})\))?"
_EVENT = re.compile(
    rf"(?:(?P<namespace>[a-z0-9][\w.-]{{0,62}})\s++)?{SEEN}\s++(?P<type>Normal|Warning)\s++(?P<reason>\S{{1,128}})\s++"
    r"(?P<object>[\w.-]{1,60}/\S{1,253})\s++(?P<message>.*)$"
)
_HEADER = re.compile(rb"(?:^|\n)[ \t]*+(?:NAMESPACE\s++)?LAST SEEN\s++(?:FIRST SEEN|TYPE)\b")
_OTHER = re.compile(
    rb"(?:^|\n)[ \t]*+(?:NAMESPACE\s++)?NAME\s++(?:READY\s++STATUS\s++RESTARTS|STATUS\s++ROLES|COMPLETIONS|DESIRED)\s"
)
_NOTHING = re.compile(
    rb"(?:^|\n)(No (?:resources|events) found\b[^\n]{0,300}|Error from server \(\w{1,40}\)[^\n]{0,300}"
    rb"|Unable to connect to the server[^\n]{0,300}|The connection to the server [^\n]{0,200} was refused[^\n]{0,100})"
)
"""What it answers instead of a list."""
_FROM = r"(?P<from>[a-z][\w./-]{0,100}(?:, ?[\w.-]{1,253})?)"
_WIDE_ROW = re.compile(
    rf"(?:(?P<namespace>[a-z0-9][\w.-]{{0,62}})\s++)?(?P<age>{AGE})\s++(?:Normal|Warning)\s++(?P<reason>\S{{1,128}})\s++"
    rf"(?P<object>[\w.-]{{1,60}}/\S{{1,253}})\s++(?P<inside>spec\.\S{{1,253}}\s++)?{_FROM}\s++(?P<message>.*?)\s++"
    rf"(?P<over>{AGE})\s++(?P<times>\d{{1,9}})\s++\S{{1,300}}$"
)
_OLD_ROW = re.compile(
    rf"(?:(?P<namespace>[a-z0-9][\w.-]{{0,62}})\s++)?(?P<age>{AGE})\s++(?P<over>{AGE})\s++(?P<times>\d{{1,9}})\s++"
    rf"(?P<name>\S{{1,253}})\s++(?P<kind>[A-Z]\w{{1,60}})\s++(?P<inside>spec\.\S{{1,253}}\s++)?(?:Normal|Warning)\s++"
    rf"(?P<reason>\S{{1,128}})\s++{_FROM}\s++(?P<message>.*)$"
)
"""Rows that are not aligned with their header: a watch that goes on, or blanks that were lost."""
_DESCRIBED = re.compile(
    rf"\s++(?P<type>Normal|Warning)\s++(?P<reason>\S{{1,128}})\s++{SEEN}\s++"
    r"(?P<from>[\w./-]{1,100}(?:, [\w.-]{1,253})?)\s++(?P<message>.*)$"
)
_DESCRIBED_OLD = re.compile(
    rf"\s++(?P<over>{AGE})\s++(?P<age>{AGE})\s++(?P<times>\d{{1,9}})\s++"
    r"(?P<from>\{?[\w.-]{1,100}[ ,]{0,2}[\w.-]{0,253}\}?)\s++"
    r"(?:spec\.\S{1,253}\s++)?(?P<type>Normal|Warning)\s++(?P<reason>\S{1,128})\s++(?P<message>.*)$"
)
_NAME = re.compile(r"Name:\s++(\S{1,253})$")
_SETTING = re.compile(r"(\s*+)([A-Z][\w .()/-]{0,60}|[\w.-]{1,60}/[\w.-]{1,60}):\s*+(.*)$")
_CONTAINERS = re.compile(r"(Init Containers|Containers|Ephemeral Containers):$")
_GPU = re.compile(
    r"(?:nvidia|amd|gpu\.intel|habana|google|aws|huawei)\S{0,40}/(?:gpu|tpu|gaudi|neuron\w*|ascend\w*|i915|xe|Ascend\w*)$"
)
_SOURCE = re.compile(r"\{?([\w./-]{1,100})(?:[ ,]{1,2}([\w.-]{1,253}))?\}?$")
_SECONDS = {"y": 31_536_000, "w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
# Ages are counted back from here where no time is told.
NOW = datetime(NO_YEAR, 12, 31, tzinfo=UTC)
OLDEST_S = 50 * 31_536_000
KINDS = {"po": "Pod", "pod": "Pod", "job": "Job", "deployment": "Deployment", "replicaset": "ReplicaSet", "node": "Node",
         "statefulset": "StatefulSet", "horizontalpodautoscaler": "HorizontalPodAutoscaler"}  # fmt: skip
AGES = "it has ages instead of times: good for lengths only"


def sniff(head: bytes) -> bool:
    """The header of a list of events or its lines, or the first keys of a described object."""
    if b"\x00" in head or head[:1] in (b"{", b"["):
        return False
    if _HEADER.search(head) or _OTHER.search(head) or _NOTHING.match(head.lstrip()):
        return True
    if re.search(rb"(?:^|\n)Name:\s", head) and re.search(rb"\nNamespace:\s", head):
        return re.search(rb"\n(?:Events|Containers|Restart Count|Pods Statuses):", head) is not None
    lines = [line for line in head[:8192].decode("utf-8", "replace").splitlines()[:20] if line.strip()]
    return (bool(lines) and all(_EVENT.match(line) for line in lines[:-1] or lines)) or kube_columns.sniff(head)


def load(data: bytes, label: str) -> JobLog | ControlLog:
    """The attempts that a list of events, or described pods, tell of."""
    text = bytes(data).decode("utf-8", "replace")
    lines = text.replace("\t", "    ").splitlines()
    if any(_NAME.match(line) for line in lines):
        return _described(lines, label)
    events = list(_listed(lines))
    if not events and (chosen := kube_columns.events(lines, label)):
        return log_of(chosen, label)
    if not events and (said := _NOTHING.match(bytes(data).lstrip())):
        why = f"kubectl's answer, and no event: {said[1].decode('utf-8', 'replace').strip()[:160]!r}"
        raise InputRefused(label, why, "events are kept for an hour, in their namespace: save them as they come, with -A")
    if not events and _OTHER.search(bytes(data)):
        why = "a list of objects of Kubernetes, which tells how they are now and not what happened"
        raise InputRefused(label, why, "save kubectl get events -A -o json, or kubectl describe pod")
    if not events:
        why = "a list of events of kubectl, with no event in it"
        raise InputRefused(label, why, "events are kept for an hour, in their namespace: save them as they come, with -A")
    return log_of(events, label, [f"{label}: {AGES}"], dated=False, until_ns=int(NOW.timestamp()) * SECOND)


def _age(text: str | None) -> timedelta | None:
    """How long ago; None if that is not told."""
    parts = re.findall(r"(\d{1,6})([ywdhms])", text or "")
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in parts)
    return timedelta(seconds=seconds) if parts and seconds < OLDEST_S else None


def _event(found: dict[str, str | None], now: datetime, about: Object) -> Event:
    """An event out of its named parts."""
    last, over = _age(found.get("age")), _age(found.get("over"))
    first = over if over is not None else last
    who = _SOURCE.match(found.get("from") or "")
    return Event(
        involvedObject=about,
        reason=found.get("reason"),
        message=(found.get("message") or "").strip(),
        count=count_or_null(found.get("times") or "1"),
        firstTimestamp=_iso(now - first) if first is not None else None,
        lastTimestamp=_iso(now - last) if last is not None else None,
        source=Source(component=who[1], host=who[2]) if who else None,
    )


def _iso(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _listed(lines: list[str]) -> Iterator[Event]:
    """The events of a list; one that has more columns is cut where its header says."""
    columns: list[tuple[str, int]] = []
    for line in lines:
        if re.match(r"\s*(?:NAMESPACE\s+)?LAST SEEN\s+(?:FIRST SEEN|TYPE)\b", line):
            names = [(found[0], found.start()) for found in re.finditer(r"\S+(?: \S+)*", line)]
            columns = names if any(name == "FIRST SEEN" for name, _ in names) else []
        elif columns:
            cells = _aligned(line, columns) or _unaligned(line)
            if cells.get("REASON"):
                yield _wide(cells)
        elif found := _EVENT.match(line.strip()):
            kind, _, name = found["object"].partition("/")
            about = Object(kind=KINDS.get(kind.lower(), kind), name=name, namespace=found["namespace"])
            yield _event(found.groupdict(), NOW, about)


def _aligned(line: str, columns: list[tuple[str, int]]) -> dict[str, str]:
    """The cells where the header says; none if the row does not keep to it."""
    ends = [start for _, start in columns[1:]] + [len(line)]
    if any(line[start - 1 : start].strip() for _, start in columns if start):
        return {}
    cells = {name: line[start:end].strip() for (name, start), end in zip(columns, ends, strict=True)}
    kept = re.fullmatch(AGE, cells["LAST SEEN"]) and re.fullmatch(AGE, cells["FIRST SEEN"])
    return cells if kept and cells.get("TYPE") in ("Normal", "Warning") else {}


def _unaligned(line: str) -> dict[str, str]:
    """The same of a row that does not keep to its header, by what its words are."""
    found = _WIDE_ROW.match(line.strip()) or _OLD_ROW.match(line.strip())
    if found is None:
        return {}
    parts = {name: text or "" for name, text in found.groupdict().items()}
    named = {"LAST SEEN": "age", "FIRST SEEN": "over", "COUNT": "times", "NAMESPACE": "namespace", "SUBOBJECT": "inside",
             "SOURCE": "from", "OBJECT": "object", "NAME": "name", "KIND": "kind", "REASON": "reason",
             "MESSAGE": "message"}  # fmt: skip
    return {column: parts.get(name, "").strip() for column, name in named.items()}


def _wide(cells: dict[str, str]) -> Event:
    """An event of ``-o wide``, or of an older version that names object and kind apart."""
    kind, _, name = cells.get("OBJECT", "").partition("/")
    kind, name = (kind, name) if name else (cells.get("KIND", ""), cells.get("NAME", "").rpartition(".")[0])
    parts: dict[str, str | None] = {
        "age": cells.get("LAST SEEN"), "over": cells.get("FIRST SEEN"), "times": cells.get("COUNT"),
        "reason": cells["REASON"], "message": cells.get("MESSAGE"), "from": cells.get("SOURCE"),
    }  # fmt: skip
    inside = cells.get("SUBOBJECT") or None
    about = Object(KINDS.get(kind.lower(), kind), name, cells.get("NAMESPACE") or None, fieldPath=inside)
    return _event(parts, NOW, about)


@dataclass
class _Container:
    """What is told of one container."""

    prepares: bool
    restarts: int = 0
    gpus: int = 0
    started: datetime | None = None
    """When it was started last, and the end of that or of the one before."""
    finished: datetime | None = None
    ended: str = ""
    running: datetime | None = None


@dataclass
class _Pod:
    """What is told of one pod."""

    name: str
    namespace: str = ""
    node: str = ""
    start: datetime | None = None
    containers: list[_Container] = field(default_factory=list)
    events: list[dict[str, str | None]] = field(default_factory=list)

    def now(self) -> datetime | None:
        """When it was described: ages against times that both are told of one thing; else after all that it tells."""
        for event in self.events:
            first = _age(event.get("over")) or _age(event.get("age"))
            if self.start is not None and event["reason"] == "Scheduled" and first is not None:
                return self.start + first
        told = [self.start, *(at for one in self.containers for at in (one.started, one.finished, one.running))]
        known = [at for at in told if at is not None]
        if not known:
            return None
        youngest = min((age for event in self.events if (age := _age(event.get("age"))) is not None), default=timedelta(0))
        return max(known) + youngest

    def about(self) -> Object:
        """The pod as events name it."""
        return Object(kind="Pod", name=self.name, namespace=self.namespace or None)


def _described(lines: list[str], label: str) -> JobLog | ControlLog:
    pods = list(_pods(lines))
    nows = [pod.now() for pod in pods]
    if not any(pod.containers for pod in pods):
        raise InputRefused(label, "kubectl describe of something that is no pod", "use kubectl describe pod, or get events")
    dated = all(now is not None for now in nows)
    events = [event for pod, now in zip(pods, nows, strict=True) for event in _pod_events(pod, now or NOW)]
    if not events:
        raise InputRefused(label, "a described pod that never started, without events", "describe it within the hour")
    log = log_of(events, label, () if dated else [f"{label}: {AGES}"], dated=dated)
    return _counted(log, pods) if isinstance(log, JobLog) else log


def _pods(lines: list[str]) -> Iterator[_Pod]:
    """The pods of a file, one after the other."""
    pod: _Pod | None = None
    part, state = "", ""
    for line in lines:
        if named := _NAME.match(line):
            if pod is not None:
                yield pod
            pod, part = _Pod(named[1]), ""
        elif pod is not None:
            part, state = _read_line(pod, line, part, state)
    if pod is not None:
        yield pod


def _read_line(pod: _Pod, line: str, part: str, state: str) -> tuple[str, str]:
    """A line about a pod, in a part of its description and a state of a container: those in which the next line stands."""
    if heading := _CONTAINERS.match(line):
        return heading[1], state
    if line.startswith("Events:"):
        return "Events", state
    if part == "Events":
        found = _DESCRIBED.match(line) or _DESCRIBED_OLD.match(line)
        if found:
            pod.events.append(found.groupdict())
    elif line[:1].strip():
        _read_pod(pod, line)
        return "", state
    elif part and re.match(r"  [\w.-]+:$", line):
        pod.containers.append(_Container(part != "Containers"))
    elif part and pod.containers and (setting := _SETTING.match(line)):
        state = setting[2] if setting[2] in ("State", "Last State", "Limits", "Requests") else state
        _read_container(pod.containers[-1], setting[2], setting[3].strip(), state)
    return part, state


def _read_pod(pod: _Pod, line: str) -> None:
    key, _, value = line.partition(":")
    value = value.strip()
    if key == "Namespace":
        pod.namespace = value
    elif key == "Node" and value not in ("<none>", ""):
        pod.node = value.partition("/")[0]
    elif key == "Start Time":
        pod.start = _date(value)


def _read_container(one: _Container, key: str, value: str, state: str) -> None:
    if key == "Restart Count":
        one.restarts = max(count_or_null(value), 0)
    elif key == "Started":
        at = _date(value)
        one.running = at if state == "State" else one.running
        one.started = max(filter(None, (one.started, at)), default=None)
    elif key == "Finished":
        one.finished = max(filter(None, (one.finished, _date(value))), default=None)
    elif key == "Reason" and value not in ("CrashLoopBackOff", "ContainerCreating", "PodInitializing"):
        one.ended = value
    elif key == "Exit Code":
        one.ended = f"{one.ended}, exit code {value}".lstrip(", ")
    elif state == "Limits" and _GPU.match(key):
        one.gpus = max(count_or_null(value), 0)


def _date(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _pod_events(pod: _Pod, now: datetime) -> Iterator[Event]:
    """The events of a pod, and those that its containers' states stand for."""
    about = pod.about()
    if pod.start is not None and pod.node and not any(event["reason"] == "Scheduled" for event in pod.events):
        at = _iso(pod.start.astimezone(UTC))
        yield Event(about, reason="Scheduled", message=f"Successfully assigned {pod.name} to {pod.node}", firstTimestamp=at)
    found = [_event(event, now.astimezone(UTC), about) for event in pod.events]
    main = [one for one in pod.containers if not one.prepares] or pod.containers
    most = max(main, key=lambda one: one.restarts, default=_Container(False))
    starts = max((event.occurred for event in found if event.word == "started"), default=0)
    if most.restarts + 1 > starts and most.started is not None:
        found = [event for event in found if event.word not in ("started", "created")]
        first = min(filter(None, (pod.start, most.started)))
        last = _iso(most.started.astimezone(UTC))
        found.append(
            Event(
                about,
                reason="Started",
                message="Started container",
                count=most.restarts + 1,
                firstTimestamp=_iso(first.astimezone(UTC)) if most.restarts else last,
                lastTimestamp=last,
                source=Source(host=pod.node or None),
            )
        )
    yield from found
    if most.finished is not None and most.running is None:
        reason = (
            "OOMKilled" if "OOMKilled" in most.ended else "Completed" if most.ended.endswith("exit code 0") else "Terminated"
        )
        yield Event(about, reason=reason, message=most.ended, firstTimestamp=_iso(most.finished.astimezone(UTC)))


def _counted(log: JobLog, pods: list[_Pod]) -> JobLog:
    """The log with the accelerators that its pods ask for."""
    gpus = sum(one.gpus for pod in pods for one in pod.containers if not one.prepares)
    jobs = set(log.attempts.job.tolist())
    if not gpus or len(jobs) != 1:
        return log
    t = log.attempts
    known = t.accelerators > 0
    counted = np.where(known, gpus, t.accelerators)
    unit = np.where(known, "accelerator", t.unit).astype(object)
    return replace(log, attempts=t.replace(accelerators=counted, unit=unit))
