"""Audit logs of Kubernetes (``audit.k8s.io``, one event a line): every request that changed something is a decision.

Who decided is the service account, the manager that the object's ``managedFields`` name for this moment, or the program
in the user agent, in this order. Values before a change are those that earlier answers or requests showed. Requests that
were refused, only read, or keep a component alive (leases, events, status) are no decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import ControlLog, Settings, layer_of, moments, table
from taut.read.actions.kube_actions import target
from taut.read.jobs.job_words import cut

CHANGES = ("create", "update", "patch", "delete", "deletecollection")
ALIVE = frozenset({
    "leases", "events", "endpoints", "endpointslices", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews",
    "selfsubjectrulesreviews", "localsubjectaccessreviews", "certificatesigningrequests",
})  # fmt: skip
"""Resources that are written all the time and decide nothing."""
ASIDE = frozenset({"status", "token", "exec", "log", "portforward", "proxy", "attach", "finalizers"})
"""Subresources that decide nothing."""
SCALES = ("replicas", "minReplicas", "maxReplicas", "parallelism", "suspend")
"""Fields of a spec that are knobs of their own."""
ACCOUNT = "system:serviceaccount:"
MOST_CONTAINERS = 64
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_HEAD = re.compile(rb'"apiVersion"\s*:\s*"audit\.k8s\.io/')


class _Ref(msgspec.Struct, gc=False):
    resource: Any = None
    namespace: Any = None
    name: Any = None
    subresource: Any = None


class _User(msgspec.Struct, gc=False):
    username: Any = None


class _Status(msgspec.Struct, gc=False):
    code: Any = None


class _Event(msgspec.Struct):
    """One event; what was asked for and answered is most of it, and decoded only where something was decided."""

    auditID: Any = None
    stage: Any = None
    verb: Any = None
    user: _User | None = None
    userAgent: Any = None
    objectRef: _Ref | None = None
    responseStatus: _Status | None = None
    requestObject: msgspec.Raw = msgspec.Raw(b"null")
    responseObject: msgspec.Raw = msgspec.Raw(b"null")
    requestReceivedTimestamp: Any = None
    stageTimestamp: Any = None
    items: list[_Event] = []
    asked: Any = None
    answered: Any = None

    def open(self) -> bool:
        """Decode what was asked for and answered; False if that cannot be read."""
        try:
            self.asked, self.answered = msgspec.json.decode(self.requestObject), msgspec.json.decode(self.responseObject)
        except _DAMAGE:
            return False
        return True


def sniff(head: bytes) -> bool:
    """JSON that names the API group of audit events."""
    return head.lstrip()[:1] == b"{" and _HEAD.search(head) is not None


def load(data: bytes, label: str) -> ControlLog:
    """The decisions of one log."""
    events, torn = _events(bytes(data))
    if not events:
        raise InputRefused(label, "no audit event can be read", "write one event a line (--audit-log-format=json)")
    events, repeated = _once(events)
    found = [event for event in events if _decides(event)]
    refused = sum(_code(event) >= 400 for event in found)
    done = [event for event in found if _code(event) < 400]
    found = [event for event in done if event.open()]
    torn += len(done) - len(found)
    time, _ = moments([_text(event.stageTimestamp) or _text(event.requestReceivedTimestamp) for event in found])
    settings = Settings()
    rows: list[dict[str, Any]] = []
    for at, event in zip(time.tolist(), found, strict=True):
        torn += at == NULL
        if at != NULL:
            who = _who(event)
            layer = layer_of(who) or "orchestrator"
            about = {"time_ns": at, "layer": layer, "controller": who}
            rows += [{**about, **change} for change in _changes(event, settings)]
    notes = [f"{label}: {refused:,} requests were refused and changed nothing"] if refused else []
    return ControlLog(label, table(rows, label), torn=torn, repeated=repeated, partial=notes)


def _events(data: bytes) -> tuple[list[_Event], int]:
    """The events of a list or of lines, and how many lines were torn."""
    decoder = msgspec.json.Decoder(_Event)
    data = data.removeprefix(b"\xef\xbb\xbf")
    found, torn = [], 0
    for line in filter(bytes.strip, data.split(b"\n")):
        try:
            event = decoder.decode(line)
            if not line.isascii():
                (bytes(event.requestObject) + bytes(event.responseObject)).decode()  # what is no text tears the line
            found.append(event)
        except _DAMAGE:
            torn += 1
    if not found and torn:
        try:
            found, torn = [decoder.decode(data)], 0
        except _DAMAGE:
            return [], torn
    return [event for one in found for event in (one.items or [one])], torn


def _once(events: list[_Event]) -> tuple[list[_Event], int]:
    """Each request once, at its last stage; and how many deliveries came again."""
    last: dict[Any, _Event] = {}
    seen: set[tuple[str, str]] = set()
    repeated = 0
    for i, event in enumerate(events):
        key, stage = _text(event.auditID) or i, _text(event.stage)
        if (str(key), stage) in seen:
            repeated += 1
        elif stage != "RequestReceived" or key not in last:
            last[key] = event
        seen.add((str(key), stage))
    return list(last.values()), repeated


def _decides(event: _Event) -> bool:
    ref = event.objectRef
    if event.verb not in CHANGES or ref is None or _text(event.stage) in ("RequestReceived", "Panic"):
        return False
    return bool(_text(ref.resource)) and ref.resource not in ALIVE and _text(ref.subresource) not in ASIDE


def _code(event: _Event) -> int:
    code = event.responseStatus.code if event.responseStatus is not None else 0
    return code if isinstance(code, int) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _in(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _who(event: _Event) -> str:
    name = _text(event.user.username) if event.user is not None else ""
    if name.startswith(ACCOUNT):
        return cut(name.rpartition(":")[2])
    agent = _text(event.userAgent).partition("/")[0].strip()
    manager = _manager(event)
    return cut(manager or agent or name)


def _manager(event: _Event) -> str:
    """The manager whose entry in ``managedFields`` was written with this request: that with the latest time."""
    fields = _in(event.answered, "metadata", "managedFields")
    entries = [e for e in fields if isinstance(e, dict) and _text(e.get("time"))] if isinstance(fields, list) else []
    return _text(max(entries, key=lambda e: e["time"]).get("manager")) if entries else ""


def _changes(event: _Event, settings: Settings) -> Iterator[dict[str, Any]]:
    """What a request changed, one knob each."""
    ref = event.objectRef
    assert ref is not None
    sub, verb = _text(ref.subresource), str(event.verb)
    at = target(ref.resource.removesuffix("s"), _text(ref.namespace), _text(ref.name) or _named(event))
    if sub in ("binding", "eviction"):
        yield {"target": at, "knob": "allocation", "direction": 1 if sub == "binding" else -1, "trigger": sub}
    elif verb in ("delete", "deletecollection"):
        yield {"target": at, "knob": "existence", "direction": -1}
    elif verb == "create":
        for knob, value in _values(event.answered or event.asked):
            settings.saw(at, knob, value)
        yield {"target": at, "knob": "existence", "direction": 1}
    else:
        yield from _set(event, at, settings)


def _set(event: _Event, at: str, settings: Settings) -> Iterator[dict[str, Any]]:
    """Knobs that a patch or an update sets to another value than before."""
    asked, seen = event.asked, False
    for knob, value in _values(asked):
        change = settings.change(at, knob, value)
        seen = True
        if change["before"] != change["after"]:
            yield {"target": at, "knob": knob, **change}
    for knob, value in _values(event.answered):
        settings.saw(at, knob, value)
    if not seen:
        sub = _text(event.objectRef.subresource) if event.objectRef is not None else ""
        yield {"target": at, "knob": "replicas" if sub == "scale" else "labels" if _labelled(asked) else "object"}


def _labelled(asked: Any) -> bool:
    """Whether nothing but labels and annotations were asked for."""
    meta = _in(asked, "metadata")
    return isinstance(meta, dict) and "spec" not in asked and bool({"labels", "annotations"} & set(meta))


def _named(event: _Event) -> str:
    return _text(_in(event.answered, "metadata", "name")) or _text(_in(event.asked, "metadata", "name"))


def _values(thing: Any) -> Iterator[tuple[str, str]]:
    """The knobs that an object (or a patch) holds, and their values."""
    if isinstance(thing, list):  # a JSON patch: operations, each on a path
        for step in thing[:MOST_CONTAINERS]:
            path, value = _text(_in(step, "path")), _in(step, "value")
            name = path.rpartition("/")[2]
            if isinstance(value, (str, int, float)) and (name in SCALES or "/resources/" in path):
                yield (name if name in SCALES else ".".join(path.split("/")[-2:])), str(value)[:200]
        return
    spec = _in(thing, "spec")
    for name in SCALES:
        value = _in(spec, name)
        if isinstance(value, (str, int, float)):
            yield name, str(value)[:200]
    containers = _in(spec, "template", "spec", "containers") or _in(spec, "containers")
    for one in containers[:MOST_CONTAINERS] if isinstance(containers, list) else ():
        for kind in ("limits", "requests"):
            amounts = _in(one, "resources", kind)
            for resource, value in list(amounts.items())[:MOST_CONTAINERS] if isinstance(amounts, dict) else ():
                yield f"{kind}.{resource}"[:80], str(value)[:200]
