"""Ray Serve's controller: replicas wanted, and the requests it saw as demand."""

from __future__ import annotations

from pathlib import Path

import pytest

from action_rows import rows, trace_of
from taut.core.errors import InputRefused
from taut.read.actions import ray_serve

LINE = (
    "INFO 2026-01-01 00:00:{at},500 controller 203 -- {way}scaling Deployment(name='A', app='a') from {a} to {b} replicas. "
    "Current ongoing requests: {demand}, current running replicas: {a}."
)


def line(at: str, way: str, a: int, b: int, demand: str) -> str:
    return LINE.format(at=at, way=way, a=a, b=b, demand=demand)


LOG = "\n".join(
    [line("01", "Up", 1, 6, "6.00"), line("09", "Down", 6, 2, "1.50"), "INFO 2026-01-01 00:00:10,000 controller: hi"]
)


def test_decisions_and_demand() -> None:
    assert ray_serve.sniff(LOG.encode())
    log = ray_serve.load(LOG.encode(), "serve.log")
    assert rows(log.actions, "time_s", "layer", "target", "knob", "before", "after", "direction", "trigger") == [
        (1.5, "autoscaler", "a/A", "replicas", "1", "6", 1, "ongoing requests"),
        (9.5, "autoscaler", "a/A", "replicas", "6", "2", -1, "ongoing requests"),
    ]
    assert {(s.component, s.metric): s.value.tolist() for s in log.demand} == {
        ("a/A", "ongoing_requests"): [6.0, 1.5],
        ("a/A", "running_replicas"): [1.0, 6.0],
    }


def test_a_log_that_was_delivered_twice_counts_once(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, serve__log=f"{LOG}\n{LOG}\n")
    assert len(trace.actions) == 2
    assert trace.counts["duplicate deliveries"] == 2
    assert "clock steps" not in trace.counts
    assert "2 duplicate deliveries of an action counted once" in trace.partial
    assert trace.metrics.value[trace.metrics.metric == "ongoing_requests"].tolist() == [6.0, 1.5]


def test_older_wordings() -> None:
    text = (
        "INFO 2026-01-01 00:00:01,000 controller -- Autoscaling replicas for deployment 'A' in application 'a' to 3. "
        "current_num_ongoing_requests: 4\n"
        "INFO 2026-01-01 00:00:02,000 controller -- Autoscaling replicas for deployment A in application a from 3 to 2. "
        "Current ongoing requests: 1.0\n"
    )
    log = ray_serve.load(text.encode(), "x")
    assert rows(log.actions, "target", "before", "after", "direction") == [("a/A", "", "3", 0), ("a/A", "3", "2", -1)]


def test_a_controller_that_never_scaled_is_refused() -> None:
    with pytest.raises(InputRefused):
        ray_serve.load(b"Upscaling Deployment(name=", "x")
