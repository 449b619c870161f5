"""Audit logs of Kubernetes (``audit.k8s.io``, one event a line): every request that changed something is a decision.

Who decided is the service account, the manager that the object's ``managedFields`` name for this moment, or the program
in the user agent, in this order. Values before a change are those that earlier answers or requests showed. Requests that
were refused, only read, or keep a component alive (leases, events, status) are no decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import Change, Settings, layer_of, moments, table
from taut.read.actions.kube_actions import target
from taut.read.contents import ControlLog
from taut.read.jobs.job_words import cut
from taut.read.json_fields import under

CHANGES = ("create", "update", "patch", "delete", "deletecollection")
ALIVE = frozenset(
    {
        "leases",
        "events",
        "endpoints",
        "endpointslices",
        "tokenreviews",
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "localsubjectaccessreviews",
        "certificatesigningrequests",
    }
)
"""Resources that are written all the time and decide nothing."""
ASIDE = frozenset({"status", "token", "exec", "log", "portforward", "proxy", "attach", "finalizers"})
"""Subresources that decide nothing."""
SCALES = ("replicas", "minReplicas", "maxReplicas", "parallelism", "suspend")
"""Fields of a spec that are knobs of their own."""
ACCOUNT = "system:serviceaccount:"
MOST_CONTAINERS = 64
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_HEAD = re.compile(rb'"apiVersion"\s*:\s*"audit\.k8s\.io/')
_ID = re.compile(rb'"auditID"\s*:')
_WHAT = re.compile(rb'"(?:requestURI|objectRef|stageTimestamp|requestReceivedTimestamp)"\s*:')


class _Ref(msgspec.Struct, gc=False):
    resource: Json = None
    namespace: Json = None
    name: Json = None
    subresource: Json = None


class _User(msgspec.Struct, gc=False):
    username: Json = None


class _Status(msgspec.Struct, gc=False):
    code: Json = None


class _Event(msgspec.Struct):
    """One event; what was asked for and answered is most of it, and decoded only where something was decided."""

    auditID: Json = None
    stage: Json = None
    verb: Json = None
    user: _User | None = None
    userAgent: Json = None
    objectRef: _Ref | None = None
    responseStatus: _Status | None = None
    requestObject: msgspec.Raw = msgspec.Raw(b"null")
    responseObject: msgspec.Raw = msgspec.Raw(b"null")
    requestReceivedTimestamp: Json = None
    stageTimestamp: Json = None
    items: list[_Event] = []
    request: Json = None
    response: Json = None

    def open(self) -> bool:
        """Decode what was asked for and answered; False if that cannot be read."""
        try:
            self.request, self.response = msgspec.json.decode(self.requestObject), msgspec.json.decode(self.responseObject)
        except _DAMAGE:
            return False
        return True


def sniff(head: bytes) -> bool:
    """JSON that names the API group of audit events, or has their keys: some collectors drop what comes before."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return False
    return _HEAD.search(head) is not None or (_ID.search(head) is not None and _WHAT.search(head) is not None)


def load(data: bytes, label: str) -> ControlLog:
    """The decisions of one log."""
    events, torn = _events(bytes(data))
    if not events:
        why = "no audit event can be read" if torn else "an audit log of Kubernetes without an event"
        raise InputRefused(label, why, "write one event a line (--audit-log-format=json)")
    events, repeated = _once(events)
    found = [event for event in events if _decides(event)]
    refused = sum(_code(event) >= 400 for event in found)
    done = [event for event in found if _code(event) < 400]
    found = [event for event in done if event.open()]
    torn += len(done) - len(found)
    time, _ = moments([_text(event.stageTimestamp) or _text(event.requestReceivedTimestamp) for event in found])
    settings = Settings()
    rows: list[Change] = []
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
            whole = msgspec.json.decode(data, type=list[_Event] | _Event)
            found, torn = (whole if isinstance(whole, list) else [whole]), 0
        except _DAMAGE:
            return [], torn
    return [event for one in found for event in (one.items or [one]) if event.verb or event.auditID], torn


def _once(events: list[_Event]) -> tuple[list[_Event], int]:
    """Each request once, at its last stage; and how many deliveries came again."""
    last: dict[str | int, _Event] = {}
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


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _who(event: _Event) -> str:
    name = _text(event.user.username) if event.user is not None else ""
    if name.startswith(ACCOUNT):
        return cut(name.rpartition(":")[2])
    agent = _text(event.userAgent).partition("/")[0].strip()
    manager = _manager(event)
    return cut(manager or agent or name)


def _manager(event: _Event) -> str:
    """The manager whose entry in ``managedFields`` was written with this request: that with the latest time."""
    fields = under(event.response, "metadata", "managedFields")
    entries = [entry for entry in fields if _text(under(entry, "time"))] if isinstance(fields, list) else []
    return _text(under(max(entries, key=lambda entry: _text(under(entry, "time"))), "manager")) if entries else ""


def _changes(event: _Event, settings: Settings) -> Iterator[Change]:
    """What a request changed, one knob each."""
    ref, verb = event.objectRef or _Ref(), str(event.verb)
    sub = _text(ref.subresource)
    name = (
        _text(ref.name) or _text(under(event.response, "metadata", "name")) or _text(under(event.request, "metadata", "name"))
    )
    at = target(_text(ref.resource).removesuffix("s"), _text(ref.namespace), name)
    if sub in ("binding", "eviction"):
        yield {"target": at, "knob": "allocation", "direction": 1 if sub == "binding" else -1, "trigger": sub}
    elif verb in ("delete", "deletecollection"):
        yield {"target": at, "knob": "existence", "direction": -1}
    elif verb == "create":
        for knob, value in _values(event.response or event.request):
            settings.observe(at, knob, value)
        yield {"target": at, "knob": "existence", "direction": 1}
    else:
        # A patch or an update: knobs that it sets to another value than before.
        values = list(_values(event.request))
        for knob, value in values:
            change = settings.change(at, knob, value)
            if change["before"] != change["after"]:
                yield {"target": at, "knob": knob, **change}
        for knob, value in _values(event.response):
            settings.observe(at, knob, value)
        if not values:
            knob = "labels" if _labels_only(event.request) else "object"
            yield {"target": at, "knob": "replicas" if sub == "scale" else knob}


def _labels_only(request: Json) -> bool:
    """Whether nothing but labels and annotations were asked for."""
    meta = under(request, "metadata")
    return isinstance(meta, dict) and under(request, "spec") is None and bool({"labels", "annotations"} & set(meta))


def _values(document: Json) -> Iterator[tuple[str, str]]:
    """The knobs that an object (or a patch) holds, and their values."""
    if isinstance(document, list):  # a JSON patch: operations, each on a path
        for step in document[:MOST_CONTAINERS]:
            path, value = _text(under(step, "path")), under(step, "value")
            name = path.rpartition("/")[2]
            if isinstance(value, (str, int, float)) and (name in SCALES or "/resources/" in path):
                yield (name if name in SCALES else ".".join(path.split("/")[-2:])), str(value)[:200]
        return
    spec = under(document, "spec")
    for name in SCALES:
        value = under(spec, name)
        if isinstance(value, (str, int, float)):
            yield name, str(value)[:200]
    containers = under(spec, "template", "spec", "containers") or under(spec, "containers")
    for one in containers[:MOST_CONTAINERS] if isinstance(containers, list) else ():
        for kind in ("limits", "requests"):
            amounts = under(one, "resources", kind)
            for resource, value in list(amounts.items())[:MOST_CONTAINERS] if isinstance(amounts, dict) else ():
                yield f"{kind}.{resource}"[:80], str(value)[:200]
