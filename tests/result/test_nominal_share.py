"""What a dashboard would show beside what was produced."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from build import MS, Do, analyze, barriers, job, play
from device_traces import Rank, read
from taut.core.device_words import NO_DEVICE
from taut.core.tables import Kind, Metric, Table, Trace
from taut.result.types import Verdict


def verdict(trace: Trace) -> Verdict:
    return analyze(trace).result.verdict


def test_a_rank_that_waits_at_a_gate_reads_as_utilised() -> None:
    found = verdict(job({0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}, 8))
    assert (found.nominal_share, found.nominal_is) == (1.0, "derived from ops")
    assert found.effective_share is not None
    assert found.effective_share <= 0.9


def test_time_between_ops_is_not_utilised() -> None:
    found = verdict(play([Do(0, "fwd", 3 * MS, step=step, idle=MS) for step in range(8)]))
    assert found.nominal_share == pytest.approx(0.75, abs=0.05)


def test_steps_with_a_time_origin_of_their_own_are_counted_apart() -> None:
    scripts = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}
    assert verdict(job(scripts, 8, relative=True)).nominal_share == 1.0


def test_samples_of_utilisation_come_before_what_ops_say() -> None:
    trace = barriers(np.full((12, 2), 100 * MS), 5 * MS)
    samples = Table(
        Metric,
        {
            "time_ns": np.arange(4) * 100 * MS,
            "component": np.array(["rank 0"] * 4, dtype=object),
            "rank": np.zeros(4, dtype=np.int32),
            "metric": np.array(["utilisation_share"] * 4, dtype=object),
            "value": np.array([1.0, 1.0, 1.0, 0.0]),
            "limit": np.full(4, np.nan),
            "limit_source": np.array([""] * 4, dtype=object),
        },
    )
    found = verdict(replace(trace, metrics=samples))
    assert (found.nominal_share, found.nominal_is) == (0.75, "measured")


def test_kernels_count_and_copies_do_not(tmp_path: Path) -> None:
    rank = Rank()
    for s in range(4):
        rank.step(s, s * 1000, (s + 1) * 1000)
        rank.work(s * 1000 + 10, s * 1000 + 100, s * 1000 + 300, "Memcpy HtoD (Pinned -> Device)")
        rank.work(s * 1000 + 100, s * 1000 + 500, (s + 1) * 1000)
    found = verdict(read(tmp_path, rank))
    assert found.nominal_is == "derived from kernels"
    assert found.nominal_share == pytest.approx(0.5)


def test_nothing_is_said_where_nothing_of_the_work_is_recorded() -> None:
    """Dumps of a flight recorder hold calls alone."""
    found = verdict(job({0: "AR 2", 1: "AR 2"}, 8))
    assert (found.nominal_share, found.effective_share) == (None, None)


def test_nothing_is_said_where_only_the_host_s_side_is_recorded() -> None:
    hosted = play([Do(0, "aten::mm", 5 * MS, step=step, kind=Kind.COMPUTE) for step in range(4)])
    found = verdict(replace(hosted, counts={NO_DEVICE: 7}))
    assert (found.nominal_share, found.nominal_is, found.effective_share) == (None, None, None)
