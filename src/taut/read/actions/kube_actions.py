"""Events of Kubernetes → decisions: who scaled, evicted, preempted, suspended or created something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from taut.read.actions.control_log import Change, Settings, layer_of, table
from taut.read.contents import ControlLog
from taut.read.jobs.job_words import cut

if TYPE_CHECKING:
    from taut.read.jobs.kube_event import Event

Place = tuple[str, str, str]
"""Kind, namespace and name of an object."""

_SIZE = re.compile(r"New size: (\d{1,9})(?:; reason: (.{0,160}))?")
_SET = re.compile(
    r"Scaled (?:up|down) replica set \S+ (?:to (\d{1,9}) from (\d{1,9})|from (\d{1,9}) to (\d{1,9})|to (\d{1,9}))"
)
_POOL = re.compile(r"\{?(?<![\w./-])([\w./-]{1,120}) (\d{1,7})->(\d{1,7})")
AGAINST = {
    "preempted": "preempted", "preempting": "preempted", "evicted": "evicted", "evict": "evicted", "evictedbyvpa": "evicted",
    "taintmanagereviction": "failed node", "suspended": "suspended", "deadlineexceeded": "time limit",
    "backofflimitexceeded": "out of restarts",
}  # fmt: skip
"""Reasons that take a job's allocation away, in lower case."""
FOR = {"resumed": "resumed", "admitted": "admitted"}
PODS = {"successfulcreate": 1, "successfuldelete": -1}
USUAL = {
    "preempted": "default-scheduler", "preempting": "default-scheduler", "successfulrescale": "horizontal-pod-autoscaler",
    "scalingreplicaset": "deployment-controller", "triggeredscaleup": "cluster-autoscaler",
    "taintmanagereviction": "taint-eviction-controller", "evictedbyvpa": "vpa-updater",
}  # fmt: skip
"""Who gives these reasons, where an event does not say."""


def target(kind: str, namespace: str, name: str) -> str:
    """An object in one way of writing: ``deployment/ns/name``."""
    return "/".join(part for part in (kind.lower(), namespace, name) if part)[:200]


def decisions(events: Iterable[tuple[int, Event, Place, str]], label: str) -> ControlLog:
    """Of (time, event, (kind, namespace, name), job) in order of time."""
    settings = Settings()
    rows = []
    for at, event, place, job in events:
        reason = str(event.reason).lower()
        change = _change(reason, event.message if isinstance(event.message, str) else "", place, job, settings)
        if change is not None:
            who = cut(_who(event)) or USUAL.get(reason, "") or (f"{place[0].lower()}-controller" if reason in PODS else "")
            layer = layer_of(who) or "orchestrator"
            rows.append({"time_ns": at, "layer": layer, "controller": who, **change})
    return ControlLog(label, table(rows, label))


def _who(event: Event) -> str:
    names = (event.source and event.source.component, event.reportingComponent, event.reportingController)
    return next((name for name in names if isinstance(name, str) and name), "")


def _change(reason: str, message: str, place: Place, job: str, settings: Settings) -> Change | None:
    message = message[:2000]
    if reason in AGAINST or reason in FOR:
        why, way = (AGAINST[reason], -1) if reason in AGAINST else (FOR[reason], 1)
        return {"target": job, "work": job, "knob": "allocation", "direction": way, "trigger": why}
    if reason in PODS:
        return {"target": target(*place), "knob": "pods", "direction": PODS[reason]}
    scaled = SCALED.get(reason)
    return scaled(message, place, settings) if scaled else None


def _rescaled(message: str, place: Place, settings: Settings) -> Change | None:
    found = _SIZE.search(message)
    if not found:
        return None
    change = settings.change(target(*place), "replicas", found[1])
    way = change["direction"] or (1 if "above target" in message else -1 if "below target" in message else 0)
    return {"target": target(*place), "knob": "replicas", **change, "direction": way, "trigger": cut(found[2])}


def _replica_set(message: str, place: Place, settings: Settings) -> Change | None:
    found = _SET.search(message)
    if not found:
        return None
    after, before = found[1] or found[4] or found[5], found[2] or found[3] or ""
    change = settings.change(target(*place), "replicas", after, before)
    return {"target": target(*place), "knob": "replicas", **change, "direction": 1 if "Scaled up" in message else -1}


def _scale_up(message: str, place: Place, settings: Settings) -> Change | None:
    found = _POOL.search(message)
    return (
        None
        if not found
        else {
            "target": f"nodes/{found[1]}"[:200],
            "knob": "nodes",
            "trigger": "pending pods",
            **settings.change(f"nodes/{found[1]}", "nodes", found[3], found[2]),
        }
    )


SCALED: dict[str, Callable[..., Change | None]] = {
    "successfulrescale": _rescaled, "scalingreplicaset": _replica_set, "triggeredscaleup": _scale_up,
}  # fmt: skip
DECIDING = frozenset({*AGAINST, *FOR, *PODS, *SCALED})
"""Reasons of events that are decisions, in lower case."""
