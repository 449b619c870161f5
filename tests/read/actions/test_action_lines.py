"""Plain logs of controllers: a decision a line."""

from __future__ import annotations

import pytest

from action_rows import rows
from taut.core.errors import InputRefused
from taut.read.actions import action_lines

LOG = b"""2026-01-01T00:00:01.250Z rescuer StartTime=now 12
2026-01-01T02:00:02+02:00 rescuer StartTime=2026-01-01T09:00:00Z 12
[2026-01-01 00:00:03] ops/alice hold=1 12 reason=budget
2026-01-01T00:00:04Z my-hpa replicas=3 web
2026-01-01T00:00:05Z my-hpa replicas=5 web
2026-01-01T00:00:05.5Z INFO rescuer requeue 12
2026-01-01T00:00:06Z tuner lr=0.1->0.05 model trigger=plateau
"""


def test_what_every_line_decides() -> None:
    assert action_lines.sniff(LOG)
    log = action_lines.load(LOG, "x")
    assert rows(log.actions, "time_s", "controller", "target", "knob", "before", "after", "direction", "trigger") == [
        (1.25, "rescuer", "12", "allocation", "", "StartTime=now", 1, ""),
        (2.0, "rescuer", "12", "allocation", "", "StartTime=2026-01-01T09:00:00Z", -1, ""),
        (3.0, "ops/alice", "12", "allocation", "", "hold=1", -1, "budget"),
        (4.0, "my-hpa", "web", "replicas", "", "3", 0, ""),
        (5.0, "my-hpa", "web", "replicas", "3", "5", 1, ""),
        (5.5, "rescuer", "12", "allocation", "", "requeue", -1, ""),
        (6.0, "tuner", "model", "lr", "0.1", "0.05", -1, "plateau"),
    ]
    assert log.actions.layer.tolist() == ["", "", "", "autoscaler", "autoscaler", "", ""]
    assert log.zoneless


def test_torn_lines_are_counted() -> None:
    log = action_lines.load(LOG + b"2026-01-01T00:00:07Z my-hpa repl", "x")
    assert (len(log.actions), log.torn) == (7, 1)


@pytest.mark.parametrize(
    "text",
    [
        b"[2026-01-01T00:00:02.000] sched: Allocate JobId=12 NodeList=n1 #CPUs=6 Partition=low\n",
        b"2026-01-01 00:00:00 INFO step=1 loss=2.0\n",
        b"[2026-01-01 00:20:00] iteration 1/100 | loss 1\n",
        b"",
    ],
)
def test_other_logs_are_not_taken(text: bytes) -> None:
    assert not action_lines.sniff(text)


def test_refusal() -> None:
    with pytest.raises(InputRefused):
        action_lines.load(b"nothing here", "x")
