"""What kubectl prints for people: ages become times where one is told, counts become attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import taut
from taut.control.stuck_jobs import stuck
from taut.core.errors import InputRefused
from taut.core.tables import Table
from taut.read.contents import JobLog
from taut.read.jobs import kubectl_text as kubectl

DAY = 1_767_225_600
LISTED = """$ kubectl get events
LAST SEEN   TYPE      REASON      OBJECT        MESSAGE
25m         Normal    Scheduled   pod/train-0   Successfully assigned ml/train-0 to gpu-1
24m         Normal    Started     pod/train-0   Started container train
20m         Warning   BackOff     pod/train-0   Back-off restarting failed container
5m10s       Normal    Started     pod/train-0   Started container train
"""
NEWER = """NAMESPACE   LAST SEEN                TYPE      REASON      OBJECT        MESSAGE
ml          25m                      Normal    Scheduled   Pod/train-0   Successfully assigned ml/train-0 to gpu-1
ml          3m30s (x9 over 25m)      Normal    Started     Pod/train-0   Started container train
ml          2s (x111 over 24m)       Warning   BackOff     Pod/train-0   Back-off restarting failed container
"""
WIDE = """LAST SEEN   TYPE      REASON    OBJECT        SUBOBJECT                 SOURCE           MESSAGE                     FIRST SEEN   COUNT   NAME
3m30s       Normal    Started   pod/train-0   spec.containers{train}    kubelet, gpu-1   Started container train     25m          9       train-0.17
2s          Warning   BackOff   pod/train-0   spec.containers{train}    kubelet, gpu-1   Back-off restarting         24m          111     train-0.18
"""  # noqa: E501
OLD = """LAST SEEN   FIRST SEEN   COUNT   NAME         KIND   SUBOBJECT                TYPE      REASON    SOURCE           MESSAGE
3m          25m          9       train-0.17   Pod    spec.containers{train}   Normal    Started   kubelet, gpu-1   Started container
1m          24m          111     train-0.18   Pod                             Warning   BackOff   kubelet, gpu-1   Back-off
"""  # noqa: E501
DESCRIBED = """Name:             train-0
Namespace:        ml
Node:             gpu-1/10.0.0.1
Start Time:       Thu, 01 Jan 2026 00:00:00 +0000
Status:           Running
Containers:
  train:
    Image:          registry/train:2
    State:          Waiting
      Reason:       CrashLoopBackOff
    Last State:     Terminated
      Reason:       Error
      Exit Code:    1
      Started:      Thu, 01 Jan 2026 00:21:30 +0000
      Finished:     Thu, 01 Jan 2026 00:21:40 +0000
    Ready:          False
    Restart Count:  8
    Limits:
      cpu:             4
      nvidia.com/gpu:  8
    Requests:
      nvidia.com/gpu:  8
Conditions:
  Type              Status
  Ready             False
Events:
  Type     Reason     Age                   From               Message
  ----     ------     ----                  ----               -------
  Normal   Scheduled  25m                   default-scheduler  Successfully assigned ml/train-0 to gpu-1
  Normal   Started    3m30s (x4 over 25m)   kubelet            Started container train
  Warning  BackOff    0s (x111 over 24m)    kubelet            Back-off restarting failed container
"""


def load(text: str) -> Table:
    assert kubectl.sniff(text.encode())
    log = kubectl.load(text.encode(), "events.txt")
    assert isinstance(log, JobLog)
    return log.attempts


def took(t: Table) -> list[Any]:
    """(length in s, outcome) of every attempt."""
    return [(round((b - a) / 1e9) if a >= 0 else None, o) for a, b, o in zip(t.start_ns, t.end_ns, t.outcome, strict=True)]


def test_a_list_of_events_tells_lengths() -> None:
    found = load(LISTED)
    assert took(found) == [(300, "failed"), (310, "running")]
    assert not found.dated.any()
    assert found.nodes.tolist() == ["gpu-1", "gpu-1"]
    assert took(load("\n".join(" ".join(line.split()) for line in LISTED.splitlines()[2:]))) == took(found)


@pytest.mark.parametrize("text", [NEWER, WIDE, OLD])
def test_counts_of_all_versions(text: str) -> None:
    found = load(text)
    assert len(found) == 9
    assert (found.failures.max(), found.held[-1]) == (111, 1)
    assert set(found.job.tolist()) <= {"ml/train", "train"}


def test_a_described_pod_tells_times_restarts_and_accelerators() -> None:
    found = load(DESCRIBED)
    assert len(found) == 9
    assert [(v / 1e9 - DAY) for v in (found.start_ns[0], found.start_ns[-1], found.last_step_ns[-1], found.end_ns[-1])] == [
        0, 1290, 1300, 1500,
    ]  # fmt: skip
    assert (set(found.accelerators.tolist()), set(found.unit.tolist())) == ({8}, {"accelerator"})
    assert (found.failures[-1], found.reason[-1]) == (111, "BackOff after Terminated: Error, exit code 1")


def test_several_described_pods_are_one_job() -> None:
    found = load(DESCRIBED + "\n\n" + DESCRIBED.replace("train-0", "train-1"))
    assert (len(found), set(found.accelerators.tolist())) == (9, {16})


def test_a_pod_that_waits_is_told(tmp_path: Path) -> None:
    text = (
        "LAST SEEN   TYPE      REASON             OBJECT      MESSAGE\n"
        "3s          Warning   FailedScheduling   pod/big-0   0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n"
    )
    (tmp_path / "e.txt").write_text(text)
    assert taut.analyze(tmp_path / "e.txt").result.verdict.text.startswith("big does not get to run: 1 × FailedScheduling (0/4")


def test_a_back_off_without_a_count_is_one() -> None:
    (one,) = stuck(load("\n".join(LISTED.splitlines()[:5])))
    assert one.text.startswith("train failed and waits to be started again: one start, 1 × BackOff (Back-off")


def test_ages_are_no_dates(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text(NEWER)
    result = taut.analyze(tmp_path / "e.txt").result
    assert result.verdict.text.startswith("ml/train fails again and again: 9 starts, 111 × BackOff (Back-off")
    assert result.attempts is not None
    assert {(row.start_ns, row.end_ns) for row in result.attempts.rows} == {(None, None)}
    assert result.attempts.rows[0].ran_ns == 60 * 10**9


def test_what_holds_no_pod_is_refused_by_its_name() -> None:
    for text, why in (
        ("LAST SEEN   TYPE   REASON   OBJECT   MESSAGE\n", "with no event in it"),
        ("NAME      READY   STATUS    RESTARTS   AGE\ntrain-0   0/1     Error     8          25m\n", "how they are now"),
        ("Name:       n1\nNamespace:  x\nPods Statuses:  1\nEvents:  <none>\n", "something that is no pod"),
    ):
        assert kubectl.sniff(text.encode())
        with pytest.raises(InputRefused, match=why):
            kubectl.load(text.encode(), "x.txt")


def unaligned(text: str) -> str:
    """The table without its padding, as mail and chat leave it."""
    head, *rest = text.splitlines()
    return "\n".join([head, *(" ".join(line.split()) for line in rest)])


@pytest.mark.parametrize("text", [WIDE, OLD])
def test_rows_that_do_not_keep_to_their_header(text: str) -> None:
    plain, found = load(text), load(unaligned(text))
    for name in ("job", "start_ns", "end_ns", "outcome", "reason", "failures", "nodes"):
        assert found.columns[name].tolist() == plain.columns[name].tolist()


CHOSEN = """TIME                   COUNT   REASON      KIND   NAME   MSG
2024-05-06T08:00:00Z   1       Scheduled   Pod    tr-0   Successfully assigned ml/tr-0 to gpu-1
2024-05-06T08:25:00Z   6       Started     Pod    tr-0   Started container main
2024-05-06T08:28:00Z   88      BackOff     Pod    tr-0   Back-off restarting failed container main
"""
OTHERS = """Ns   Why         Event                      When                   First
ml   Started     tr-0.17cc9f3a2b1c0d4e      2024-05-06T08:25:00Z   2024-05-06T08:00:00Z
ml   BackOff     tr-0.17cc9f3a2b1c0d4f      2024-05-06T08:28:00Z   <none>
"""


def test_columns_of_ones_own_choice() -> None:
    found = load(CHOSEN)
    assert (len(found), set(found.job.tolist()), found.nodes[0]) == (6, {"tr"}, "gpu-1")
    assert found.end_ns[-1] == 1_714_984_080 * 10**9
    assert set(load(OTHERS).job.tolist()) == {"ml/tr"}


def test_columns_without_a_time_are_refused_by_their_name() -> None:
    with pytest.raises(InputRefused, match=r"custom-columns.*without a column of their time"):
        load("REASON      NAME\nScheduled   tr-0\nStarted     tr-0\n")


@pytest.mark.parametrize(
    "text", ["No resources found in ml namespace.\n", 'Error from server (NotFound): namespaces "ml" not found\n']
)
def test_an_answer_without_events_is_refused_by_its_words(text: str) -> None:
    with pytest.raises(InputRefused, match=f"no event: .{text.split()[0]}"):
        load(text)
