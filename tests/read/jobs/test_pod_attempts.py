"""Events that the server joined: what their counts say, what a pod holds meanwhile, and what keeps it from running."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import taut
from taut.control.stuck_jobs import stuck
from taut.core.errors import InputRefused
from taut.core.tables import Table
from taut.read.contents import JobLog
from taut.read.jobs import kubernetes_events as kubernetes

DAY = 1_767_225_600


def event(
    first: str, last: str, count: int, reason: str, message: str = "", name: str = "train-0", **more: Any
) -> dict[str, Any]:
    return {
        "kind": "Event", "reason": reason, "message": message, "count": count,
        "involvedObject": {"kind": "Pod", "namespace": "ml", "name": name},
        "firstTimestamp": f"2026-01-01T00:{first}Z", "lastTimestamp": f"2026-01-01T00:{last}Z", **more,
    }  # fmt: skip


SCHEDULED = event("00:00", "00:00", 1, "Scheduled", "Successfully assigned ml/train-0 to gpu-1")
LOOP = [
    SCHEDULED,
    event("00:03", "21:30", 9, "Started", "Started container train"),
    event("00:30", "25:00", 111, "BackOff", "Back-off restarting failed container"),
]


def load(events: list[dict[str, Any]]) -> Table:
    data = json.dumps({"apiVersion": "v1", "items": events, "kind": "List"}).encode()
    assert kubernetes.sniff(data)
    log = kubernetes.load(data, "events.json")
    assert isinstance(log, JobLog)
    return log.attempts


def rows(t: Table) -> list[tuple[Any, ...]]:
    """(begin, last seen at work, end in s; outcome, held, failures) of every attempt."""
    clock = [[v / 1e9 - DAY if v >= 0 else None for v in t.columns[c].tolist()] for c in ("start_ns", "last_step_ns", "end_ns")]
    return list(zip(*clock, t.outcome.tolist(), t.held.tolist(), t.failures.tolist(), strict=True))


HIDDEN = (None, None, None, "failed", 1, -1)
LOOPED = [(0, None, 30, "failed", -1, -1), *[HIDDEN] * 7, (1290, None, 1500, "failed", 1, 111)]


def test_counts_are_attempts_and_the_pod_stays_on_its_node() -> None:
    found = load(LOOP)
    assert rows(found) == LOOPED
    assert set(found.nodes.tolist()) == {"gpu-1"}
    assert found.attempt.tolist() == list(range(1, 10))


def test_series_of_the_newer_group_count_as_well() -> None:
    newer = [
        {
            "regarding": one["involvedObject"], "note": one["message"], "reason": one["reason"],
            "eventTime": one["firstTimestamp"],
            "series": {"count": one["count"], "lastObservedTime": one["lastTimestamp"]} if one["count"] > 1 else None,
            "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None,
        }
        for one in LOOP
    ]  # fmt: skip
    assert rows(load(newer)) == LOOPED
    counted = [{**one, "series": None, "deprecatedCount": e["count"], "deprecatedLastTimestamp": e["lastTimestamp"]}
               for one, e in zip(newer, LOOP, strict=True)]  # fmt: skip
    assert rows(load(counted)) == LOOPED


def test_a_watch_prints_an_event_each_time_it_comes() -> None:
    again = [event("00:03", f"0{minute}:03", minute + 1, "Started", "Started container train") for minute in range(3)]
    backoff = [event("00:30", f"0{minute}:30", minute + 1, "BackOff") for minute in range(3)]
    data = "\n".join(json.dumps({"type": "MODIFIED", "object": one}) for one in [SCHEDULED, *again, *backoff]).encode()
    log = kubernetes.load(data, "watch.json")
    assert isinstance(log, JobLog)
    assert [row[:3] for row in rows(log.attempts)] == [(0, None, 30), (63, None, 90), (123, None, 150)]


def test_a_plain_list_and_the_lines_of_an_event_router() -> None:
    routed = "\n".join(json.dumps({"verb": "ADDED", "event": one}) for one in LOOP)
    for data in (json.dumps(LOOP, indent=2).encode(), routed.encode()):
        assert kubernetes.sniff(data)
        log = kubernetes.load(data, "events.json")
        assert isinstance(log, JobLog)
        assert rows(log.attempts) == LOOPED


def test_pods_of_a_gang_that_restart_together_are_not_counted_twice() -> None:
    other = [{**one, "involvedObject": {"kind": "Pod", "namespace": "ml", "name": "train-1"}} for one in LOOP]
    assert len(load([*LOOP, *other])) == 9


def test_what_never_started_is_counted_by_what_was_created() -> None:
    found = load([
        SCHEDULED, event("00:03", "01:30", 5, "Created", "Created container nginx"),
        event("00:03", "01:30", 5, "Failed", "Error: failed to start container"), event("00:30", "25:00", 111, "BackOff"),
    ])  # fmt: skip
    assert rows(found) == [(0, None, 3, "failed", -1, -1), *[HIDDEN] * 3, (90, 90, 1500, "failed", 1, 5)]
    assert found.reason[-1] == "Failed and 111 × BackOff: Error: failed to start container"


def test_containers_that_only_prepare_a_pod_are_no_attempts() -> None:
    inside = {"kind": "Pod", "namespace": "ml", "name": "train-0"}
    plugin = event("00:01", "00:01", 1, "Started", involvedObject={**inside, "fieldPath": "spec.initContainers{plugin}"})
    main = event("00:05", "00:05", 1, "Started", involvedObject={**inside, "fieldPath": "spec.containers{train}"})
    assert [row[0] for row in rows(load([plugin, main]))] == [5]
    assert [row[0] for row in rows(load([plugin]))] == [1]


def test_containers_without_names_may_be_different_ones() -> None:
    both = [
        event("00:03", "00:03", 1, "Started", "Container started"),
        event("00:05", "00:05", 1, "Started", "Container started"),
    ]
    assert [row[0] for row in rows(load([SCHEDULED, *both]))] == [0]


def test_a_probe_that_kills_a_container_leaves_the_pod_where_it_is() -> None:
    found = load([
        SCHEDULED, event("00:03", "00:03", 1, "Started"),
        event("05:00", "05:00", 1, "Killing", "Container train failed liveness probe, will be restarted"),
        event("05:10", "05:10", 1, "Started"),
    ])  # fmt: skip
    assert [(row[0], row[3], row[4]) for row in rows(found)] == [(0, "failed", -1), (310, "running", 1)]


def test_a_deleted_pod_held_its_place_until_then_and_the_next_one_holds_another() -> None:
    gone = event("10:00", "10:00", 1, "SuccessfulDelete", "Deleted pod: train-0", involvedObject={
        "kind": "ReplicaSet", "namespace": "ml", "name": "train"})  # fmt: skip
    found = load([
        SCHEDULED, event("00:03", "00:03", 1, "Started"), event("01:00", "01:00", 1, "BackOff"), gone,
        event("20:00", "20:00", 1, "Started", involvedObject={"kind": "Pod", "namespace": "ml", "name": "train-1"}),
    ])  # fmt: skip
    assert rows(found) == [(0, 60, 600, "failed", -1, 1), (1200, None, 1200, "running", 0, -1)]


def test_failures_that_keep_a_pod_from_running_are_counted_and_told(tmp_path: Path) -> None:
    mounts = event("00:10", "59:00", 490, "FailedMount", 'MountVolume.SetUp failed for volume "a"', source={"host": "n1"})
    assert rows(load([SCHEDULED, mounts])) == [(0, None, 3540, "pending", -1, 490)]
    (tmp_path / "events.json").write_text(json.dumps({"items": [SCHEDULED, mounts]}))
    told = (
        "ml/train does not get to run: 490 × FailedMount since 2026-01-01 00:00:00 UTC "
        '(MountVolume.SetUp failed for volume "a"); '
        "nothing ran, its place on gpu-1,n1 held for 59 min all the same; check the volume, its claim and its path on the node."
    )
    result = taut.analyze(tmp_path / "events.json").result
    assert result.verdict.text.startswith(told)
    assert {entry.fate: entry.rank_ns for entry in result.attempts.entries if entry.rank_ns} == {"hold/init": 3540 * 10**9}
    assert taut.control(taut.read(tmp_path / "events.json")).stuck[0].text == told


def test_a_container_that_was_just_started_again_may_fail_again() -> None:
    again = event("00:03", "26:00", 10, "Started", "Started container train")
    elsewhere = event("26:20", "26:20", 1, "Scheduled", "Successfully assigned ml/other-0 to gpu-2", "other-0")
    found = load([SCHEDULED, again, LOOP[2], elsewhere])
    assert rows(found)[9] == (1560, None, 1580, "running", 1, 111)
    (one,) = [one for one in stuck(found) if one.job == "ml/train"]
    assert (one.attempts, one.failures, one.held_ns) == (10, 111, 1580 * 10**9)
    assert one.text.startswith("ml/train failed again and again: 10 starts, 111 × BackOff since 2026-01-01 00:00:30 UTC")
    assert "; whether the last start lasts, the log does not tell; read" in one.text
    later = event("59:00", "59:00", 1, "Scheduled", "Successfully assigned ml/other-0 to gpu-2", "other-0")
    assert not [one for one in stuck(load([SCHEDULED, again, LOOP[2], later])) if one.job == "ml/train"], "it has run for long"


def test_failures_count_over_the_pods_that_follow_each_other() -> None:
    def pod(name: str, minute: int) -> list[dict[str, Any]]:
        made = event(f"{minute:02}:00", f"{minute:02}:00", 1, "SuccessfulCreate", f"Created pod: {name}", "train")
        return [
            {**made, "involvedObject": {"kind": "ReplicaSet", "namespace": "ml", "name": "train"}},
            event(f"{minute:02}:01", f"{minute:02}:01", 1, "Scheduled", f"Successfully assigned ml/{name} to gpu-1", name),
            event(f"{minute:02}:02", f"{minute:02}:30", 3, "Started", "Started container train", name),
            event(f"{minute:02}:10", f"{minute:02}:40", 5, "BackOff", "Back-off restarting failed container", name),
        ]

    gone = event("05:00", "05:00", 1, "SuccessfulDelete", "Deleted pod: train-bbbbb", "train")
    gone["involvedObject"] = {"kind": "ReplicaSet", "namespace": "ml", "name": "train"}
    (one,) = stuck(load([*pod("train-bbbbb", 0), gone, *pod("train-ccccc", 10)]))
    assert (one.attempts, one.failures, one.since_ns) == (6, 10, (DAY + 10) * 10**9)
    assert one.held_ns == (300 - 1 + 39) * 10**9


def test_joined_decisions_are_counted() -> None:
    scaled = event("00:00", "30:00", 4, "ScalingReplicaSet", "Scaled up replica set train-6d to 1")
    scaled["involvedObject"] = {"kind": "Deployment", "namespace": "ml", "name": "train"}
    log = kubernetes.load(json.dumps({"items": [*LOOP, scaled, scaled]}).encode(), "events.json")
    assert (
        "events.json: decisions that the server joined: deployment/ml/train 4 × ScalingReplicaSet: Scaled up replica set "
        "train-6d to 1: the times of 2 are not known, and these are left out"
    ) in log.partial


def test_what_ends_otherwise_is_not_stuck() -> None:
    found = load([SCHEDULED, event("00:03", "00:03", 1, "Started"), event("05:00", "05:00", 1, "OOMKilling", "out of memory")])
    assert (rows(found), found.reason.tolist()) == (
        [(0, None, 300, "out of memory", -1, -1)],
        ["OOMKilling: out of memory"],
    )


def test_an_image_that_cannot_be_pulled_is_no_attempt() -> None:
    pull = event("00:10", "30:00", 20, "BackOff", 'Back-off pulling image "x"', source={"host": "gpu-1"})
    assert rows(load([SCHEDULED, pull])) == [(0, None, 1800, "pending", -1, 20)]


def test_what_is_no_list_of_events_is_refused_by_its_name() -> None:
    empty = b'{"apiVersion": "v1", "items": [], "kind": "List", "metadata": {"resourceVersion": ""}}'
    pods = b'{"apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}], "kind": "List"}'
    for data, why in ((empty, "an empty list of Kubernetes"), (pods, r"objects of Kubernetes \(Pod\), not their events")):
        assert kubernetes.sniff(data)
        with pytest.raises(InputRefused, match=why):
            kubernetes.load(data, "x.json")


YAML = b"""apiVersion: v1
items:
- apiVersion: v1
  count: 1
  eventTime: null
  firstTimestamp: "2026-01-01T00:00:00Z"
  involvedObject:
    kind: Pod
    name: train-0
    namespace: ml
  kind: Event
  lastTimestamp: "2026-01-01T00:00:00Z"
  message: Successfully assigned ml/train-0 to gpu-1
  metadata:
    creationTimestamp: "2026-01-01T00:00:00Z"
    managedFields:
    - apiVersion: v1
      fieldsV1:
        f:count: {}
  reason: Scheduled
  source:
    component: default-scheduler
- count: 9
  firstTimestamp: "2026-01-01T00:00:03Z"
  involvedObject: {"kind": "Pod", "name": "train-0", "namespace": "ml"}
  lastTimestamp: "2026-01-01T00:21:30Z"
  message: |-
    Started
    container train
  reason: Started
- count: 111
  firstTimestamp: "2026-01-01T00:00:30Z"
  involvedObject:
    kind: Pod
    name: train-0
    namespace: ml
  lastTimestamp: "2026-01-01T00:25:00Z"
  message: 'Back-off restarting failed container: it said ''no'', and that is longer than
    one line'
  reason: BackOff
kind: List
metadata:
  resourceVersion: ""
"""


def test_events_as_yaml() -> None:
    assert kubernetes.sniff(YAML)
    log = kubernetes.load(YAML, "events.yaml")
    assert isinstance(log, JobLog)
    assert rows(log.attempts) == LOOPED
    assert log.attempts.reason[0] == (
        "BackOff: Back-off restarting failed container: it said 'no', and that is longer than one line"
    )


REAL = {
    "k8s_crashloop_count.json": {"ml/train": (9, 111)},
    "ts_message-pod-init-crashloop-backoff.json": {"init-demo": (5, 5), "init-demo2": (2, 2), "4m79m": (1, 490)},
    "sbctl_velero_events.json": {"velero/velero-6996dd565b": (9, 94)},
}


@pytest.mark.parametrize("name", REAL)
def test_real_events(shared: Path, name: str) -> None:
    attempts = taut.read(shared / "wild/logs" / name).attempts
    for job, (number, failures) in REAL[name].items():
        mine = attempts.take([one.endswith(job) for one in attempts.job.tolist()])
        assert (len(mine), mine.failures.max()) == (number, failures)


def test_real_pods_that_follow_each_other(shared: Path) -> None:
    trace = taut.read(shared / "wild/logs/sbctl_velero_events.json")
    (one,) = stuck(trace.attempts)
    assert (one.attempts, one.failures) == (9, 2 + 94 + 2)
    note = next(line for line in trace.partial if "decisions that the server joined" in line)
    assert "deployment/velero/velero 4 × ScalingReplicaSet: Scaled up" in note
    assert "deployment/velero/velero 3 × ScalingReplicaSet: Scaled down" in note


def made(minute: int, pod: str, reason: str = "SuccessfulCreate", message: str = "") -> dict[str, Any]:
    at = f"{minute:02d}:00"
    job = {"kind": "Job", "namespace": "ml", "name": "tr"}
    return event(at, at, 1, reason, message or f"Created pod: {pod}") | {"involvedObject": job}


def started(minute: int, pod: str) -> dict[str, Any]:
    return event(f"{minute:02d}:05", f"{minute:02d}:05", 1, "Started", "Started container main", pod)


IN_TURN = [one for k, pod in enumerate(("tr-aaaaa", "tr-bbbbb", "tr-ccccc")) for one in (made(9 * k, pod), started(9 * k, pod))]
LIMIT = made(25, "", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def test_pods_that_a_job_makes_one_after_the_other_are_attempts() -> None:
    found = load([*IN_TURN, LIMIT])
    assert [(row[0], row[2], row[3]) for row in rows(found)] == [
        (5, 540, "failed"), (545, 1080, "failed"), (1085, 1500, "failed")
    ]  # fmt: skip
    assert found.held.tolist() == [-1, 0, 0]


def test_why_a_pod_was_followed_is_not_known_without_the_limit() -> None:
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": [*IN_TURN, made(25, "", "Completed", "Job completed")]})
    log = kubernetes.load(data.encode(), "events.json")
    assert isinstance(log, JobLog)
    assert log.attempts.outcome.tolist() == ["", "", "completed"]
    assert any("2 pods were followed by another" in line for line in log.partial)


def test_pods_that_a_job_makes_at_once_are_one_attempt() -> None:
    gang = [made(0, f"tr-{k}-aaaaa") for k in range(4)] + [started(0, f"tr-{k}-aaaaa") for k in range(4)]
    assert len(load(gang)) == 1
    queue = [made(0, "tr-aaaaa"), made(0, "tr-bbbbb"), started(0, "tr-aaaaa"), started(0, "tr-bbbbb"), made(5, "tr-ccccc")]
    assert len(load([*queue, started(5, "tr-ccccc")])) == 1


def test_a_place_of_an_indexed_job_that_is_filled_again_is_a_restart() -> None:
    gang = [made(0, f"tr-{k}-aaaaa") for k in range(2)] + [started(0, f"tr-{k}-aaaaa") for k in range(2)]
    found = load([*gang, made(7, "tr-1-bbbbb"), started(7, "tr-1-bbbbb"), made(20, "tr-2-ccccc"), started(20, "tr-2-ccccc")])
    assert len(found) == 2
