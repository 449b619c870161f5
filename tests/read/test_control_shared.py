"""Real control logs: of a preemption against a rescuer, an autoscaler, a launcher, thousands of jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from taut.core.tables import Table
from taut.read.trace import read


def of(actions: Table, **is_: object) -> Table:
    mask = np.ones(len(actions), dtype=np.bool_)
    for column, value in is_.items():
        mask &= actions.columns[column] == value
    return actions.take(mask)


def test_eight_cycles_of_preemption_and_rescue(shared: Path) -> None:
    control = shared / "control"
    trace = read([control / "slurmctld-preempt-rescue.log", control / "rescuer.log"])
    job = of(trace.actions, target="12", knob="allocation")
    preempted, rescued = of(job, controller="slurmctld", direction=-1), of(job, controller="rescuer", direction=1)
    assert (len(preempted), len(rescued)) == (8, 8)
    assert (rescued.time_ns > preempted.time_ns).all()
    cycle_s = np.diff(rescued.time_ns) / 1e9
    assert cycle_s.min() > 5.9
    assert cycle_s.max() < 6.2
    assert trace.counts["told by two logs"] == 8


def test_every_line_of_the_autoscaler_counts_once(shared: Path) -> None:
    trace = read([shared / "control" / "ray_serve_controller.log"])
    assert len(trace.actions) == trace.counts["duplicate deliveries"] == 21
    seen = trace.actions.take(trace.actions.time_ns <= trace.actions.time_ns[0] + 116_000_000_000)
    assert int((np.diff(seen.direction) != 0).sum()) == 12, "reversals in the 120 s of known load"
    assert len(of(trace.metrics, metric="ongoing_requests")) == 21


@pytest.mark.parametrize(("name", "restarts"), [("c10d-timeout", 3), ("standalone-timeout", 3), ("ok", 0)])
def test_restarts_of_a_launcher(shared: Path, name: str, restarts: int) -> None:
    trace = read([shared / "control" / f"torchrun-{name}.err"])
    assert int((trace.actions.attempt > 0).sum()) == restarts
    if restarts:
        assert trace.attempts.restarts_left.tolist() == [3, 2, 1, 0]
        assert set((trace.actions.deadline_ns - trace.actions.time_ns).tolist()) == {5_000_000_000}
        assert set(trace.actions.outcome) == {"failed"}


def test_starts_of_thousands_of_jobs(shared: Path) -> None:
    trace = read([shared / "philly-restarts" / "jobs.json"])
    starts = trace.actions.take(trace.actions.attempt >= 0)
    assert len(starts) == len(trace.attempts)
    assert len(set(starts.work[starts.attempt > 0])) == 816
    assert (starts.busy_ns * starts.accelerators.astype(np.int64)).sum() / 3.6e12 == pytest.approx(772_361, rel=1e-3)


def test_accounting_in_three_forms_tells_the_same_starts(shared: Path) -> None:
    logs = [read([shared / "slurm" / name]).actions for name in ("sacct.json", "sacct_X.txt", "slurmctld.log")]
    starts = [sorted(zip(t.work[t.attempt >= 0], t.attempt[t.attempt >= 0], strict=True)) for t in logs]
    assert starts[0] == starts[1] == starts[2]
