"""What adds and removes nodes, as its own log tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from action_rows import rows, trace_of
from taut.core.errors import InputRefused
from taut.read.actions import node_autoscalers as autoscalers

PLAN = "Final scale-up plan: [{gpu-a 1->3 (max: 10)} {gpu-b 0->1 (max: 4)}]"
KLOG = f"""I0301 00:00:01.000000       1 static_autoscaler.go:229] Starting main loop
I0301 00:00:02.000000       1 orchestrator.go:310] {PLAN}
I0301 00:00:02.100000       1 executor.go:147] Scale-up: setting group gpu-a size to 3
I0301 00:00:02.200000       1 event_sink_logging_wrapper.go:48] Event(v1.ObjectReference{{Kind:"ConfigMap"}}): {PLAN}
I0301 00:10:00.000000       1 actuator.go:161] Scale-down: removing empty node "ip-10-0-0-7.ec2.internal"
I0301 00:11:00.000000       1 scale_down.go:1102] Scale-down: removing node n-8, utilization: {{0.1}}, pods to reschedule: a/b
I0301 00:20:00.000000       1 clusterstate.go:1000] Scale-up: setting group gpu-a size to 2
"""
DECIDED = [
    (2.0, "cluster-autoscaler", "nodes/gpu-a", "nodes", "1", "3", 1, "pending pods"),
    (2.0, "cluster-autoscaler", "nodes/gpu-b", "nodes", "0", "1", 1, "pending pods"),
    (600.0, "cluster-autoscaler", "node/ip-10-0-0-7.ec2.internal", "existence", "", "", -1, "empty"),
    (660.0, "cluster-autoscaler", "node/n-8", "existence", "", "", -1, "little used"),
    (1200.0, "cluster-autoscaler", "nodes/gpu-a", "nodes", "3", "2", -1, "pending pods"),
]
COLUMNS = ("time_s", "controller", "target", "knob", "before", "after", "direction", "trigger")


def decided(folder: Path, text: str) -> list[Any]:
    found = rows(trace_of(folder, autoscaler__log=text).actions, *COLUMNS)
    return [(round(at - found[0][0] + 2, 3), *rest) for at, *rest in found]


def test_the_cluster_autoscaler(tmp_path: Path) -> None:
    assert decided(tmp_path, KLOG) == DECIDED
    assert "dates without a year" in trace_of(tmp_path, autoscaler__log=KLOG).partial[0]


def test_times_in_front_of_the_lines_have_a_year(tmp_path: Path) -> None:
    text = "".join(f"2026-03-01T00:{line[9:18]}123456Z {line}\n" for line in KLOG.splitlines())
    trace = trace_of(tmp_path, autoscaler__log=text)
    assert rows(trace.actions, "target")[0] == ("nodes/gpu-a",)
    assert trace.partial == ()


def test_json_lines_of_the_cluster_autoscaler(tmp_path: Path) -> None:
    text = json.dumps({"ts": 1772323202000.5, "caller": "orchestrator/orchestrator.go:310", "msg": PLAN, "v": 1})
    assert [row[2] for row in decided(tmp_path, text)] == ["nodes/gpu-a", "nodes/gpu-b"]


def said(second: int, message: str, **more: Any) -> str:
    base = {"level": "INFO", "time": f"2026-01-01T00:00:{second:02}.000Z", "logger": "controller", "message": message}
    return json.dumps({**base, "commit": "901a5dc", **more})


def test_karpenter(tmp_path: Path) -> None:
    gone = [{"Node": {"name": "n2"}, "NodeClaim": {"name": "gpu-b2"}, "instance-type": "x"}]
    text = "\n".join([
        said(1, "found provisionable pod(s)", pods="ml/train-0"),
        said(2, "created nodeclaim", NodePool={"name": "gpu"}, NodeClaim={"name": "gpu-a1"}),
        "karpenter-6f4 " + said(3, "launched nodeclaim", NodeClaim={"name": "gpu-a1"}),
        said(9, "disrupting via consolidation delete, terminating 1 nodes (1 pods) n1.internal/m5.large/spot"),
        said(12, "deleted nodeclaim", nodeclaim="gpu-a1", node="n1.internal"),
        said(20, "disrupting node(s)", reason="underutilized", decision="delete", **{"disrupted-nodes": gone}),
        said(25, "deleted nodeclaim", NodeClaim={"name": "gpu-b2"}, Node={"name": "n2"}),
        said(30, "initiating delete from interruption message", messageKind="spot_interrupted", nodeclaim="gpu-c3"),
    ])  # fmt: skip
    assert rows(trace_of(tmp_path, k__log=text).actions, "time_s", "controller", "target", "direction", "trigger") == [
        (2.0, "karpenter", "nodes/gpu", 1, "pending pods"),
        (12.0, "karpenter", "nodes/gpu", -1, "consolidation delete"),
        (20.0, "karpenter", "nodes/gpu", -1, "underutilized"),
        (30.0, "karpenter", "nodes/gpu", -1, "spot interrupted"),
    ]


def test_logs_that_decide_nothing_are_refused_by_name() -> None:
    for text, who in (
        ("I0301 00:00:01.000000       1 static_autoscaler.go:229] Starting main loop\n", "cluster autoscaler"),
        (said(1, "discovered ssm parameter", controller="nodeclaim.lifecycle"), "Karpenter"),
    ):
        assert autoscalers.sniff(text.encode())
        with pytest.raises(InputRefused, match=f"{who} in which no node is added or removed"):
            autoscalers.load(text.encode(), "x")
