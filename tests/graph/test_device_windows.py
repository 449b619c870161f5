"""Windows of the kept steps on the devices: what lies inside, whose it is, and what the devices did there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from device_traces import Rank, host_ahead, read, skewed
from taut.core.tables import Kind
from taut.graph import Graph, link
from taut.graph.device_windows import OTHER_STEP
from taut.replay.timeline import replay
from taut.result.types import Device

US = 1000


def linked(folder: Path, *ranks: Rank) -> tuple[Graph, Device]:
    graph = link(read(folder, *ranks))
    timeline = replay(graph)
    assert (timeline.end_ns == graph.ops.end_ns).all()
    assert (timeline.arrival_ns == graph.ops.start_ns).all()
    assert graph.device is not None
    return graph, graph.device


def lengths(device: Device, rank: int = 0) -> list[int]:
    return [(one.end_ns - one.start_ns) // US for one in device.windows if one.rank == rank]


def test_a_host_that_runs_ahead_leaves_no_gap(tmp_path: Path) -> None:
    graph, device = linked(tmp_path, host_ahead())
    assert [one.step for one in device.windows] == [1, 2, 3]
    assert lengths(device) == [5000, 5000, 5000]
    assert device.windows[0].start_ns == 5020 * US
    assert replay(graph).wall_ns == 15000 * US
    assert device.ranks["0"].busy_share == 1.0
    assert device.ranks["0"].step_ns == 5000 * US


def test_the_host_s_last_call_does_not_prolong_the_window(tmp_path: Path) -> None:
    rank = host_ahead()
    rank.call("cudaDeviceSynchronize", 3900, 25000)
    graph, device = linked(tmp_path, rank)
    assert replay(graph).wall_ns == 15000 * US
    assert lengths(device) == [5000, 5000, 5000]


def test_idle_time_before_a_step_s_first_kernel_is_part_of_the_step(tmp_path: Path) -> None:
    rank = Rank()
    for s in range(4):
        rank.step(s, s * 1000, (s + 1) * 1000)
        rank.work(s * 1000 + 600, s * 1000 + 610, (s + 1) * 1000 - 10)
    graph, device = linked(tmp_path, rank)
    assert lengths(device) == [1000, 1000, 1000]
    assert device.ranks["0"].idle_share == pytest.approx(0.62)
    assert replay(graph).wall_ns == 3000 * US


def test_a_copy_that_begins_during_the_dropped_step_opens_the_window(tmp_path: Path) -> None:
    rank = host_ahead()
    rank.work(1100, 4000, 4900, "Memcpy HtoD (Pinned -> Device)", 9, bytes=1 << 20)
    graph, device = linked(tmp_path, rank)
    assert device.windows[0].start_ns == 4000 * US
    assert lengths(device) == [6020, 5000, 5000]
    # What the dropped step still runs there is seen as its own, and is no gap.
    other = graph.ops.name == graph.names.index(OTHER_STEP[Kind.COMPUTE])
    assert graph.ops.end_ns[other].max() == 1020 * US
    assert graph.gap_ns[graph.ops.kind == Kind.COMPUTE].sum() == 0


def test_work_launched_before_the_recording_belongs_to_no_step(tmp_path: Path) -> None:
    rank = Rank()
    rank.work(None, 10, 3000, "earlier")
    for s in range(4):
        rank.step(s, s * 1000, (s + 1) * 1000)
        rank.work(s * 1000 + 10, 3000 + s * 4000, 7000 + s * 4000)
    trace = read(tmp_path, rank)
    names = np.array(trace.names)[trace.ops.name]
    assert trace.ops.step[names == "earlier"].tolist() == [-1]
    _, device = linked(tmp_path, rank)
    assert lengths(device) == [4000, 4000, 4000]


def test_without_an_earlier_step_the_window_opens_with_the_first_work(tmp_path: Path) -> None:
    _, device = linked(tmp_path, host_ahead(1))
    assert [(one.start_ns, one.end_ns) for one in device.windows] == [(20 * US, 5020 * US)]


def test_ranks_that_begin_at_different_times_show_what_they_did_before(tmp_path: Path) -> None:
    graph, device = linked(tmp_path, *skewed(3))
    opens = [min(one.start_ns for one in device.windows if one.rank == r) for r in range(3)]
    assert opens == [(5020 - 100 + r * 700) * US for r in range(3)]
    other = graph.ops.name == graph.names.index(OTHER_STEP[Kind.COMMUNICATE])
    assert sorted(set(graph.ops.rank[other].tolist())) == [1, 2]
    assert int(graph.ops.start_ns[other].min()) == 0
    assert (graph.gate[other] < 0).all()


def test_shares_are_unions_of_intervals(tmp_path: Path) -> None:
    rank = Rank()
    rank.step(0, 0, 100)
    rank.work(1, 0, 400)
    rank.work(2, 300, 600, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8)
    rank.work(3, 350, 450, "gemm", 9)
    rank.work(4, 900, 1000)
    _, device = linked(tmp_path, rank)
    use = device.ranks["0"]
    assert (use.busy_share, use.compute_share, use.communication_share) == pytest.approx((0.7, 0.55, 0.3))
    assert (use.hidden_share, use.exposed_share, use.idle_share) == pytest.approx((0.15, 0.15, 0.3))
    assert use.copy_share == 0


def test_a_job_without_an_accelerator_has_no_device(tmp_path: Path) -> None:
    from build import job

    assert link(job({0: "fwd 5 | AR 2", 1: "fwd 5 | AR 2"}, steps=3)).device is None


def test_micro_steps_of_one_update_follow_each_other(tmp_path: Path) -> None:
    rank = host_ahead(9)
    for s in range(1, 9, 2):
        rank.annotation("Optimizer.step#SGD.step", s * 1000 + 800, s * 1000 + 850)
    _, device = linked(tmp_path, rank)
    assert [one.step for one in device.windows] == [2, 4, 6]
    assert lengths(device) == [10000, 10000, 10000]


def test_a_kernel_of_the_dropped_step_that_serves_all_steps_hides_no_end(tmp_path: Path) -> None:
    rank = host_ahead(6)
    rank.work(20, 30, 29900, "proxy", 9)
    _, device = linked(tmp_path, rank)
    assert lengths(device) == [5000] * 5
    assert device.ranks["0"].step_ns == 5000 * US


def test_a_number_shared_with_a_call_of_the_dropped_step_moves_no_end(tmp_path: Path) -> None:
    """Work behind that of a kept step on its own stream was not launched in the step before."""
    rank = host_ahead(6)
    late = [one for one in rank.events if one["cat"] == "kernel"][12]
    late["args"]["correlation"] = 1  # of the first launch of step 0
    _, device = linked(tmp_path, rank)
    assert device.ranks["0"].step_ns == 5000 * US
    assert device.ranks["0"].busy_share == 1.0
