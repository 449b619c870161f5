"""Events of Kubernetes: pods of one job are one job, and its attempts end with the first pod that does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.read.jobs import kubernetes_events as kubernetes

DAY = 1_767_225_600


def event(at: str, reason: str, name: str, message: str = "", kind: str = "Pod", **more: Any) -> dict[str, Any]:
    time = f"2026-01-01T00:{at}Z"
    return {
        "kind": "Event", "involvedObject": {"kind": kind, "namespace": "ml", "name": name}, "reason": reason,
        "message": message,
        "firstTimestamp": time, "lastTimestamp": time, "source": {"host": "n1"}, **more,
    }  # fmt: skip


GANG = [
    event("00:00", "FailedScheduling", "llama-worker-0", "0/4 nodes are available"),
    event("02:00", "Started", "llama-master-0", "Started container pytorch"),
    event("02:05", "Started", "llama-worker-0", "Started container pytorch"),
    event("10:00", "Killing", "llama-worker-0", "Stopping container pytorch"),
    event("10:01", "Preempted", "llama-worker-0", "Preempted by ml/urgent on node n1"),
    event("15:00", "Started", "llama-master-0"),
    event("15:01", "Started", "llama-worker-0"),
    event("20:00", "OOMKilling", "llama-worker-0", "Memory cgroup out of memory"),
    event("21:00", "Started", "llama-worker-0"),
    event("40:00", "Completed", "llama", "Job completed", kind="Job"),
]


def attempts(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    data = json.dumps({"apiVersion": "v1", "items": events, "kind": "List"}).encode()
    return rows(data)


def rows(data: bytes) -> list[tuple[Any, ...]]:
    assert kubernetes.sniff(data)
    t = kubernetes.load(data, "events.json").attempts
    minutes = [
        [round((v / 1e9 - DAY) / 60, 2) if v >= 0 else None for v in t.columns[c].tolist()]
        for c in ("submit_ns", "start_ns", "end_ns")
    ]
    return list(zip(t.job.tolist(), *minutes, t.outcome.tolist(), t.accelerators.tolist(), strict=True))


EXPECTED = [
    ("ml/llama", 0.0, 2.0, 10.0, "preempted", 2),
    ("ml/llama", None, 15.0, 20.0, "out of memory", 2),
    ("ml/llama", None, 21.0, 40.0, "completed", 1),
]


def test_a_gang_of_pods_is_one_job() -> None:
    assert attempts(GANG) == EXPECTED


def test_one_object_a_line_or_over_many_or_as_a_watch() -> None:
    assert rows("\n".join(map(json.dumps, GANG)).encode()) == EXPECTED
    assert rows("\n".join(json.dumps(e, indent=4) for e in GANG).encode()) == EXPECTED
    assert rows("\n".join(json.dumps({"type": "ADDED", "object": e}) for e in GANG).encode()) == EXPECTED


def test_the_newer_group_of_events_calls_things_otherwise() -> None:
    names = {
        "involvedObject": "regarding",
        "message": "note",
        "firstTimestamp": "eventTime",
        "lastTimestamp": "deprecatedLastTimestamp",
    }
    assert attempts([{names.get(key, key): value for key, value in e.items()} for e in GANG]) == EXPECTED


def test_pods_with_random_names_belong_to_the_job_that_created_them() -> None:
    events = [
        event("00:00", "SuccessfulCreate", "train", "Created pod: train-x7k2p", kind="Job"),
        event("01:00", "Started", "train-x7k2p"),
        event("05:00", "BackOff", "train-x7k2p", "Back-off restarting failed container"),
        event("05:10", "SuccessfulCreate", "train", "Created pod: train-b4d9q", kind="Job"),
        event("06:00", "Started", "train-b4d9q"),
        event("09:00", "TaintManagerEviction", "train-b4d9q", "Marking for deletion Pod ml/train-b4d9q"),
    ]
    assert attempts(events) == [
        ("ml/train", 0.0, 1.0, 5.0, "failed", 1),
        ("ml/train", 5.17, 6.0, 9.0, "node failed", 1),
    ]


def test_an_event_seen_again_counts_at_its_first_and_last_time() -> None:
    again = event("01:00", "Started", "train-0", count=2, lastTimestamp="2026-01-01T00:06:00Z")
    assert attempts([again, event("05:00", "BackOff", "train-0")]) == [
        ("ml/train", None, 1.0, 5.0, "failed", 1),
        ("ml/train", None, 6.0, 6.0, "running", 1),
    ]


def test_a_job_that_only_waits() -> None:
    assert attempts([event("00:00", "FailedScheduling", "train-0")]) == [("ml/train", 0.0, None, None, "pending", -1)]


@pytest.mark.parametrize(
    "text", ['{"items": [{"involvedObject": {"name": "x"}, "reason": 5}]}', '{"involvedObject": 3, "reason": "x"}', '{"a": 1']
)
def test_refusals(text: str) -> None:
    with pytest.raises(InputRefused):
        kubernetes.load(text.encode(), "e")
