"""Events of Kubernetes as decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from action_rows import rows, trace_of


def event(at: str, reason: str, kind: str, name: str, message: str = "", component: str = "") -> dict[str, Any]:
    time = f"2026-01-01T00:00:{at}Z"
    return {
        "kind": "Event", "involvedObject": {"kind": kind, "namespace": "ml", "name": name}, "reason": reason,
        "message": message, "firstTimestamp": time, "lastTimestamp": time, "source": {"component": component},
    }  # fmt: skip


def lines(*events: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, events))


SCALED = lines(
    event("01", "SuccessfulRescale", "HorizontalPodAutoscaler", "web", "New size: 4; reason: cpu utilization above target"),
    event("02", "ScalingReplicaSet", "Deployment", "web", "Scaled up replica set web-5d to 4 from 2", "deployment-controller"),
    event("03", "SuccessfulRescale", "HorizontalPodAutoscaler", "web", "New size: 2; reason: All metrics below target"),
    event("04", "ScalingReplicaSet", "Deployment", "web", "Scaled down replica set web-5d from 4 to 2"),
    event("05", "TriggeredScaleUp", "Pod", "web-1", "pod triggered scale-up: [{group-a 1->3 (max: 10)}]", "cluster-autoscaler"),
)


def test_who_scaled_what_where_there_are_no_jobs(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, events__json=SCALED)
    assert len(trace.attempts) == 0
    assert rows(trace.actions, "time_s", "controller", "target", "knob", "before", "after", "direction") == [
        (1.0, "horizontal-pod-autoscaler", "horizontalpodautoscaler/ml/web", "replicas", "", "4", 1),
        (2.0, "deployment-controller", "deployment/ml/web", "replicas", "2", "4", 1),
        (3.0, "horizontal-pod-autoscaler", "horizontalpodautoscaler/ml/web", "replicas", "4", "2", -1),
        (4.0, "deployment-controller", "deployment/ml/web", "replicas", "4", "2", -1),
        (5.0, "cluster-autoscaler", "nodes/group-a", "nodes", "1", "3", 1),
    ]


def test_a_job_that_is_preempted_and_started_again(tmp_path: Path) -> None:
    text = lines(
        event("01", "Started", "Pod", "train-worker-0"),
        event("05", "Preempted", "Pod", "train-worker-0", "Preempted by ml/urgent", "default-scheduler"),
        event("09", "Started", "Pod", "train-worker-0"),
    )
    actions = trace_of(tmp_path, events__json=text).actions
    assert rows(actions, "time_s", "controller", "target", "knob", "direction", "attempt") == [
        (1.0, "kubernetes", "ml/train", "allocation", 1, 0),
        (5.0, "default-scheduler", "ml/train", "allocation", -1, -1),
        (9.0, "kubernetes", "ml/train", "allocation", 1, 1),
    ]
