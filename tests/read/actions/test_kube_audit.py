"""Audit logs of Kubernetes: who set which knob to what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from action_rows import rows
from taut.core.errors import InputRefused
from taut.read.actions import kube_audit
from taut.read.contents import ControlLog

HPA = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


def event(number: int, user: str, verb: str, resource: str, name: str, body: Any = None, **more: Any) -> dict[str, Any]:
    sub, code, stage = more.get("sub"), more.get("code", 200), more.get("stage", "ResponseComplete")
    return {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "auditID": f"id-{number}", "stage": stage,
        "verb": verb, "user": {"username": user}, "userAgent": more.get("agent", "kubectl/v1.29 (linux/amd64) kubernetes/abc"),
        "objectRef": {"resource": resource, "namespace": "ml", "name": name, **({"subresource": sub} if sub else {})},
        "responseStatus": {"code": code}, "requestObject": body, "responseObject": more.get("answer", body),
        "requestReceivedTimestamp": f"2026-01-01T00:00:{number:02d}.000000Z",
        "stageTimestamp": f"2026-01-01T00:00:{number:02d}.250000Z",
    }  # fmt: skip


def load(*events: dict[str, Any], tail: str = "") -> ControlLog:
    data = ("\n".join(map(json.dumps, events)) + tail).encode()
    assert kube_audit.sniff(data)
    return kube_audit.load(data, "audit.log")


def scale(number: int, user: str, replicas: int, **more: Any) -> dict[str, Any]:
    return event(number, user, "update", "deployments", "web", {"spec": {"replicas": replicas}}, sub="scale", **more)


ASKED = ("time_s", "layer", "controller", "target", "knob", "before", "after", "direction")


def test_replicas_through_scale_know_what_was_before() -> None:
    managed = {"spec": {"replicas": 2}, "metadata": {"managedFields": [
        {"manager": "kubectl-edit", "time": "2025-01-01T00:00:00Z"}, {"manager": "argocd", "time": "2026-01-01T00:00:02Z"},
    ]}}  # fmt: skip
    patch = event(2, "alice", "patch", "deployments", "web", {"spec": {"replicas": 2}}, answer=managed)
    log = load(scale(1, HPA, 6), patch, scale(3, HPA, 6))
    assert rows(log.actions, *ASKED) == [
        (1.25, "autoscaler", "horizontal-pod-autoscaler", "deployment/ml/web", "replicas", "", "6", 0),
        (2.25, "orchestrator", "argocd", "deployment/ml/web", "replicas", "6", "2", -1),
        (3.25, "autoscaler", "horizontal-pod-autoscaler", "deployment/ml/web", "replicas", "2", "6", 1),
    ]


def test_limits_labels_deletions_bindings_and_evictions() -> None:
    limits = {"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"memory": "2Gi"}}}]}}}}
    log = load(
        event(1, "alice", "patch", "deployments", "web", limits),
        event(2, "alice", "patch", "deployments", "web", {"metadata": {"labels": {"a": "b"}}}, answer={}),
        event(3, "system:kube-scheduler", "create", "pods", "p", {}, sub="binding", agent="kube-scheduler/v1.29"),
        event(4, "system:serviceaccount:x:vpa-updater", "create", "pods", "p", {}, sub="eviction"),
        event(5, "alice", "delete", "pods", "p", None),
        event(6, "alice", "patch", "deployments", "web", [{"op": "replace", "path": "/spec/replicas", "value": 3}]),
    )
    assert rows(log.actions, "controller", "target", "knob", "after", "direction") == [
        ("kubectl", "deployment/ml/web", "limits.memory", "2Gi", 0),
        ("kubectl", "deployment/ml/web", "labels", "", 0),
        ("kube-scheduler", "pod/ml/p", "allocation", "", 1),
        ("vpa-updater", "pod/ml/p", "allocation", "", -1),
        ("kubectl", "pod/ml/p", "existence", "", -1),
        ("kubectl", "deployment/ml/web", "replicas", "3", 0),
    ]


def test_a_created_object_tells_the_value_that_a_change_begins_from() -> None:
    log = load(event(1, "alice", "create", "deployments", "web", {"spec": {"replicas": 3}}), scale(2, HPA, 5))
    assert rows(log.actions, "knob", "before", "after", "direction") == [("existence", "", "", 1), ("replicas", "3", "5", 1)]


def test_what_is_read_refused_or_keeps_alive_is_no_decision() -> None:
    log = load(
        event(1, "alice", "get", "pods", "p"),
        event(2, "alice", "update", "leases", "l", {}),
        event(3, "alice", "update", "pods", "p", {}, sub="status"),
        scale(4, HPA, 6, code=409),
        scale(5, HPA, 6),
        scale(6, HPA, 6),
    )
    assert rows(log.actions, "time_s") == [(5.25,)], "and one that sets what was set changes nothing"
    assert list(log.partial) == ["audit.log: 1 requests were refused and changed nothing"]


def test_stages_are_one_request_and_deliveries_that_come_again_are_counted() -> None:
    log = load(scale(1, HPA, 6, stage="RequestReceived"), scale(1, HPA, 6), scale(1, HPA, 6), tail='\n{"kind": "Ev')
    assert (len(log.actions), log.repeated, log.torn) == (1, 1, 1)


def test_a_list_over_many_lines() -> None:
    data = json.dumps({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": [scale(1, HPA, 6)]}, indent=1)
    assert len(kube_audit.load(data.encode(), "x").actions) == 1


def test_refusal() -> None:
    with pytest.raises(InputRefused):
        kube_audit.load(b'{"apiVersion": "audit.k8s.io/v1"', "x")


def test_events_without_their_group_are_told_by_their_keys() -> None:
    event = {"auditID": "1", "stage": "ResponseComplete", "verb": "delete", "requestURI": "/x", "user": {"username": "eve"},
             "objectRef": {"resource": "pods", "namespace": "ml", "name": "a"},
             "stageTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    for text in (json.dumps(event), json.dumps([event], indent=1)):
        assert kube_audit.sniff(text.encode())
        assert kube_audit.load(text.encode(), "a").actions.target.tolist() == ["pod/ml/a"]


def test_an_empty_list_is_refused_by_its_name() -> None:
    text = b'{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": []}'
    assert kube_audit.sniff(text)
    with pytest.raises(InputRefused, match="an audit log of Kubernetes without an event"):
        kube_audit.load(text, "a")
