"""Logs of what adds and removes nodes: the cluster autoscaler (klog text, or JSON lines of it) and Karpenter (JSON lines).

Of a scale-up the plan is the decision, and sizes that are set afterwards repeat it. Karpenter's node claims are named after
their pool; a claim that is deleted was decided on by the disruption that named it, where one did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from taut.core.array_types import Json
from taut.core.errors import InputRefused
from taut.core.tables import NULL
from taut.read.actions.control_log import Change, Settings, moments, table
from taut.read.contents import ControlLog
from taut.read.jobs.job_words import cut, times
from taut.read.jobs.log_lines import NO_YEAR, time_of, year_of
from taut.read.json_fields import under

AUTOSCALER, KARPENTER = "cluster-autoscaler", "karpenter"
LONGEST = 20_000
_KLOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{3,9}\s++\d{1,9} (\w{1,60}\.go):\d{1,6}\] (.*)$")
_SOURCES = re.compile(
    rb"\b(?:scale_up|scale_down|static_autoscaler|orchestrator|clusterstate|actuator|executor|eligibility|legacy|"
    rb"pre_filtering_processor|filter_out_schedulable|planner|cluster_autoscaler|auto_scaling_groups|event_sink_logging_wrapper)"
    rb"\.go:\d"
)
_HEAD = re.compile(rb"(?m)^.{0,200}?[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{3,9}\s")
_KARPENTER = re.compile(rb'"logger"\s*:\s*"(?:controller|karpenter|webhook)|\tcontroller[.\w]{0,60}\t')
_NODES = re.compile(rb"[Nn]ode[Cc]laim|[Kk]arpenter|provisioner|[Mm]achine\b|nodepool|provisionable|[Ll]aunched")
_PLAN = re.compile(r"\{([^\s{}]{1,200}) (\d{1,7})->(\d{1,7})")
_SET = re.compile(r"[Ss]cale-up: (?:setting group (\S{1,200}) size to (\d{1,7})|group (\S{1,200}) size set to (\d{1,7}))")
_LESS = re.compile(r"Decreasing size of (\S{1,200}), expected=(\d{1,7}) current=(\d{1,7})")
_REMOVED = re.compile(r'Scale-down: removing (?:(empty) )?node "?([\w.:/-]{1,253}?)"?(?:,|\s|$)')
_DISRUPTS = re.compile(r"(?:disrupting|deprovisioning) via (\w{1,40})(?:[ /](\w{1,40}))?")
_HOSTS = re.compile(r"[\w.-]{1,253}+(?=/[\w.-]{1,60}/)")
_ADDED = ("created nodeclaim", "created machine", "created node", "launched nodeclaim", "launched machine", "launched instance",
          "launched node", "launched new instance")  # fmt: skip
_GONE = ("deleted nodeclaim", "deleted machine", "deleted node", "terminated node")


_SAYS = re.compile(
    rb"""(?i)(?:"(?:message|msg)"\s*:\s*"|\t)(?:%s|disrupting|deprovisioning|[^"\t]{0,40}interruption message)"""
    % "|".join((*_ADDED, *_GONE)).encode()
)


def sniff(head: bytes) -> bool:
    """Lines of klog from the autoscaler's files, or JSON lines of Karpenter's controllers."""
    if b"\x00" in head:
        return False
    if _SOURCES.search(head):
        return _HEAD.search(head) is not None or b'"caller"' in head
    return _KARPENTER.search(head) is not None and _NODES.search(head) is not None


def load(data: bytes, label: str) -> ControlLog:
    """The decisions of one log."""
    raw = bytes(data)
    karpenter = not _SOURCES.search(raw[: 1 << 16])
    rows: list[Change] = []
    if karpenter:
        lines, torn, zoneless = _karpenter_lines(raw)
        pools = _Pools()
        for line in lines:
            pools.read(line)
        rows = pools.rows
        yearless = False
    else:
        found, torn, yearless, zoneless = _klog_lines(raw)
        settings = Settings()
        rows = [
            {"time_ns": at, "layer": "autoscaler", "controller": AUTOSCALER, **change}
            for at, text in found
            for change in _scaled(text, settings)
        ]
    if not rows:
        who = "Karpenter" if karpenter else "the cluster autoscaler"
        raise InputRefused(label, f"a log of {who} in which no node is added or removed", "give it a longer time")
    notes = [f"{label}: dates without a year, good for lengths only"] if yearless else []
    return ControlLog(label, table(rows, label), torn=torn, zoneless=zoneless and not yearless, partial=notes)


def _klog_lines(raw: bytes) -> tuple[list[tuple[int, str]], int, bool, bool]:
    """(time, message) of the lines that tell one; how many were torn; whether the year, or the zone, is not told."""
    year = year_of(raw)
    found, torn, bare = [], 0, False
    for line in raw.decode("utf-8", "replace").splitlines():
        if "ObjectReference" in line or ("cale" not in line and "ecreasing" not in line):
            continue  # events repeat what the line before says
        line = line[:LONGEST]
        if line.lstrip().startswith("{"):
            at, text = _structured(line)
        else:
            match = _KLOG.search(line)
            at, zoned = time_of(line, year or NO_YEAR)
            text = match[2] if match else ""
            bare |= not zoned
        if text and at != NULL:
            found.append((at, text))
        torn += bool(text) and at == NULL
    return found, torn, bare and year is None, bare


def _structured(line: str) -> tuple[int, str]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return NULL, ""
    at, text = under(entry, "ts"), under(entry, "msg")
    return int(times([at])[0][0]), text if isinstance(text, str) else ""


def _scaled(text: str, settings: Settings) -> Iterator[Change]:
    """What a message of the autoscaler decides."""
    if "scale-up plan" in text:
        for group, before, after in _PLAN.findall(text):
            yield _sized(settings, group, after, before, "pending pods")
    elif found := _SET.search(text):
        change = _sized(settings, found[1] or found[3], found[2] or found[4], "", "pending pods")
        if change["before"] != change["after"]:
            yield change
    elif found := _LESS.search(text):
        yield _sized(settings, found[1], found[3], found[2], "nodes that did not come")
    elif found := _REMOVED.search(text):
        why = "empty" if found[1] else "little used"
        yield {"target": cut(f"node/{found[2]}"), "knob": "existence", "direction": -1, "trigger": why}


def _sized(settings: Settings, group: str, after: str, before: str, why: str) -> Change:
    where = cut(f"nodes/{group}")
    return {"target": where, "knob": "nodes", "trigger": why, **settings.change(where, "nodes", after, before)}


class _Entry(msgspec.Struct, gc=False):
    """A line of Karpenter, or a node that one names."""

    message: Json = None
    msg: Json = None
    time: Json = None
    ts: Json = None
    nodeclaim: Json = None
    NodeClaim: Json = None
    machine: Json = None
    Machine: Json = None
    node: Json = None
    Node: Json = None
    nodepool: Json = None
    NodePool: Json = None
    provisioner: Json = None
    Provisioner: Json = None
    provisioner_name: Json = msgspec.field(default=None, name="provisioner-name")
    reason: Json = None
    messageKind: Json = None
    action: Json = None
    disrupted: list[_Entry] | None = msgspec.field(default=None, name="disrupted-nodes")

    @property
    def claim(self) -> str:
        """The claim of a node."""
        return _name(self.nodeclaim or self.NodeClaim or self.machine or self.Machine)

    @property
    def host(self) -> str:
        """The node itself."""
        return _name(self.node or self.Node)

    @property
    def pool(self) -> str:
        """The pool that it belongs to."""
        return _name(self.nodepool or self.NodePool or self.provisioner or self.Provisioner or self.provisioner_name)


def _name(value: Json) -> str:
    """A name, as a text or in an object."""
    name = value.get("name") if isinstance(value, dict) else value
    return name if isinstance(name, str) else ""


class _Line(NamedTuple):
    """What a line of Karpenter says."""

    at: int
    message: str
    more: _Entry


def _karpenter_lines(raw: bytes) -> tuple[list[_Line], int, bool]:
    """The lines that say something of nodes; how many of these were torn; whether times name no zone."""
    decoder = msgspec.json.Decoder(_Entry)
    texts: list[str] = []
    messages: list[str] = []
    entries: list[_Entry] = []
    torn = 0
    for line in raw.split(b"\n"):
        place = line.find(b'"message"')
        place = place if place >= 0 else line.find(b'"msg"')
        if not (_SAYS.match(line, place) if place >= 0 else _SAYS.search(line)):
            continue
        begin = line.find(b"{")
        try:
            if begin == 0:
                entry = decoder.decode(line)
                message, at = _name(entry.message or entry.msg), str(entry.time or entry.ts)
            elif begin < 0 or b"\t" in line[:begin]:  # older versions have tabs between the parts
                parts = line.split(b"\t")
                entry = decoder.decode(parts[4]) if len(parts) > 4 and parts[4][:1] == b"{" else _Entry()
                message, at = parts[3].decode("utf-8", "replace"), parts[0].decode("utf-8", "replace").strip()
            else:
                entry = decoder.decode(line[begin:])
                message, at = _name(entry.message or entry.msg), str(entry.time or entry.ts)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError):
            torn += 1
            continue
        texts.append(at)
        messages.append(message)
        entries.append(entry)
    if not texts:
        return [], torn, False
    times_ns, bare = moments(texts)
    lines = [_Line(*one) for one in zip(times_ns.tolist(), messages, entries, strict=True) if one[0] != NULL]
    return lines, torn + len(messages) - len(lines), bare


class _Pools:
    """Karpenter's lines as they go by."""

    def __init__(self) -> None:
        self.rows: list[Change] = []
        self.pool_of: dict[str, str] = {}
        self.why: dict[str, str] = {}
        """Node or claim → why it is taken away."""
        self.added: set[str] = set()
        self.gone: set[str] = set()

    def read(self, line: _Line) -> None:
        """Add what a line decides."""
        message, more = line.message.lower(), line.more
        if message.startswith(_ADDED):
            claim = more.claim or more.host
            self.pool_of[claim] = more.pool or self._pool(claim)
            if claim not in self.added or not claim:
                self.added.add(claim)
                self._add(line.at, self.pool_of[claim], 1, "pending pods")
        elif disrupts := _DISRUPTS.match(message):
            why = " ".join(filter(None, disrupts.groups()))
            self.why.update(dict.fromkeys(_HOSTS.findall(line.message), why))
        elif message.startswith("disrupting node"):
            for one in more.disrupted or ():
                self._remove(line.at, one, _name(more.reason) or "disruption")
        elif "interruption message" in message:
            kind = _name(more.messageKind or more.action) or "interruption"
            self._remove(line.at, more, kind.replace("_", " "))
        elif message.startswith(_GONE):
            self._remove(line.at, more, "")

    def _remove(self, at: int, more: _Entry, why: str) -> None:
        claim, node = more.claim, more.host
        why = why or self.why.get(claim, "") or self.why.get(node, "")
        if (claim or node) and not {claim, node} & self.gone:
            self.gone |= {claim, node} - {""}
            self._add(at, self.pool_of.get(claim) or self._pool(claim), -1, why)

    @staticmethod
    def _pool(claim: str) -> str:
        return claim.rpartition("-")[0] or "?"

    def _add(self, at: int, pool: str, way: int, why: str) -> None:
        self.rows.append(
            {
                "time_ns": at,
                "layer": "autoscaler",
                "controller": KARPENTER,
                "target": f"nodes/{pool}"[:200],
                "knob": "nodes",
                "direction": way,
                "trigger": why[:200],
            }
        )
