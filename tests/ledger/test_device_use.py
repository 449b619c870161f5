"""What accelerators did: classes, idle time by what the host did, collectives by the convention of nccl-tests, MFU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from device_traces import Rank, host_ahead, read
from taut.graph import link
from taut.ledger.device_use import device_use
from taut.ledger.peak_flops import PEAKS, element_type, peaks_of
from taut.project.training.scenario import Device as Modelled
from taut.result.types import Device

US = 1000


def used(folder: Path, *ranks: Rank) -> Device:
    graph = link(read(folder, *ranks))
    assert graph.device is not None
    found = device_use(graph, graph.device)
    length = sum(one.end_ns - one.start_ns for one in found.windows)
    means = [one.idle_share for one in found.ranks.values()]
    if len(ranks) == 1:
        assert sum(one.rank_ns for one in found.idle) == round(means[0] * length), "the causes sum to the idle time"
    return found


def causes(found: Device) -> dict[str, int]:
    return {one.cause: one.rank_ns // US for one in found.idle}


def late_host(steps: int = 4) -> Rank:
    """A device that works 400 of 1000 µs, because its host launches one kernel a step, 200 µs after the step began."""
    one = Rank()
    for s in range(steps):
        one.step(s, 1000 * s, 1000 * (s + 1))
        one.work(1000 * s + 200, 1000 * s + 210, 1000 * s + 610)
    return one


def test_idle_time_before_a_launch_is_the_host_s(tmp_path: Path) -> None:
    assert causes(used(tmp_path, late_host())) == {
        "host between calls": 3 * 590,
        "launch": 3 * 2,
        "launched, not begun": 3 * 8,
    }


def test_idle_time_is_told_by_what_the_host_did_meanwhile(tmp_path: Path) -> None:
    rank = late_host()
    for s in range(4):
        rank._add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter", 1000 * s + 20, 100, 1, 1)
        rank.call("cudaDeviceSynchronize", 1000 * s + 300, 1000 * s + 700)
    # The call of the step before the first window was dropped with it.
    assert causes(used(tmp_path, rank)) == {
        "input: DataLoader": 3 * 100, "synchronisation": 2 * 90, "host between calls": 3 * 400 + 90, "launch": 3 * 2,
        "launched, not begun": 3 * 8,
    }  # fmt: skip


def test_idle_time_between_calls_is_told_by_the_innermost_range_with_a_name(tmp_path: Path) -> None:
    rank = late_host()
    for s in range(4):
        rank._add("user_annotation", "## forward ##", 1000 * s + 20, 180, 1, 1)
        rank._add("user_annotation", "embed 3", 1000 * s + 50, 40, 1, 1)
    found = causes(used(tmp_path, rank))
    assert (found["forward"], found["embed …"], found["host between calls"]) == (3 * 140, 3 * 40, 3 * 410)


def test_a_device_that_is_always_busy_has_no_idle_time(tmp_path: Path) -> None:
    assert used(tmp_path, host_ahead()).idle == []


def test_what_was_launched_in_time_is_not_the_host_s_fault(tmp_path: Path) -> None:
    """The host does something else while the next kernel waits in its stream."""
    rank = Rank()
    for s in range(4):
        rank.step(s, 1000 * s, 1000 * (s + 1))
        rank.work(1000 * s + 10, 1000 * s + 100, 1000 * s + 500, "a")
        rank.work(1000 * s + 20, 1000 * s + 700, 1000 * s + 1000, "b")
        rank.call("cudaDeviceSynchronize", 1000 * s + 30, 1000 * s + 900)
    assert causes(used(tmp_path, rank))["launched, not begun"] >= 3 * 200
    assert "synchronisation" not in causes(used(tmp_path, rank))


def test_classes_have_time_share_and_median_and_copies_their_rate(tmp_path: Path) -> None:
    rank = Rank()
    for s in range(3):
        rank.step(s, 1000 * s, 1000 * (s + 1))
        rank.work(1000 * s + 10, 1000 * s + 100, 1000 * s + 400, "gemm")
        rank.work(1000 * s + 20, 1000 * s + 400, 1000 * s + 500, "Memcpy HtoD (Pinned -> Device)", bytes=4_000_000)
    gemm, copy = used(tmp_path, rank).classes
    assert (gemm.name, gemm.kind, gemm.count, gemm.rank_ns, gemm.share, gemm.median_ns) == (
        "gemm",
        "compute",
        2,
        600 * US,
        0.75,
        300 * US,
    )
    assert (copy.name, copy.kind, copy.moved_bytes, copy.gb_per_s) == ("copy h2d", "copy", 8_000_000, 40.0)
    assert gemm.gb_per_s is None


def collective(verb: str, kernel: str, sent: int, received: int, late: int = 0) -> list[Rank]:
    """Two ranks that meet in every step; the second comes late, and then it takes 100 µs."""
    out = []
    for r in range(2):
        one = Rank(r, 2)
        for s in range(4):
            one.step(s, 1000 * s, 1000 * (s + 1))
            one.work(1000 * s + 10, 1000 * s + 20, 1000 * s + 120 + r * late, "gemm")
            tag: dict[str, Any] = {"Collective name": verb, "Process Group Name": "default", "Process Group Ranks": "[0, 1]"}
            tag |= {"In msg nelems": sent, "Out msg nelems": received, "dtype": "Float"}
            one.work(
                1000 * s + 15, 1000 * s + 120 + r * late, 1000 * s + 220 + late, f"ncclDevKernel_{kernel}_RING_LL", 8, **tag
            )
        out.append(one)
    return out


@pytest.mark.parametrize(
    ("verb", "kernel", "sent", "received", "factor"),
    [
        ("allreduce", "AllReduce_Sum_f32", 1_000_000, 1_000_000, 1.0),
        ("_allgather_base", "AllGather", 500_000, 1_000_000, 0.5),
        ("_reduce_scatter_base", "ReduceScatter_Sum_f32", 1_000_000, 500_000, 0.5),
        ("broadcast", "Broadcast", 1_000_000, 1_000_000, 1.0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests_without_waiting(
    tmp_path: Path, verb: str, kernel: str, sent: int, received: int, factor: float
) -> None:
    (row,) = used(tmp_path, *collective(verb, kernel, sent, received, late=300)).collectives
    assert (row.size_bytes, row.members, row.waiting_included) == (4_000_000, 2, False)
    assert row.gb_per_s == pytest.approx(40.0)
    assert row.bus_gb_per_s == pytest.approx(40.0 * factor)


def test_waiting_is_part_of_what_only_one_member_recorded(tmp_path: Path) -> None:
    """Its own bytes over its own time are then a lower bound."""
    (row,) = used(tmp_path, collective("allreduce", "AllReduce_Sum_f32", 1_000_000, 1_000_000, late=300)[0]).collectives
    assert row.waiting_included
    assert row.gb_per_s == pytest.approx(10.0)


def test_a_collective_without_bytes_has_no_rate(tmp_path: Path) -> None:
    ranks = collective("allreduce", "AllReduce_Sum_f32", 0, 0)
    for event in (event for one in ranks for event in one.events):
        event["args"].pop("In msg nelems", None)
        event["args"].pop("Out msg nelems", None)
    (row,) = used(tmp_path, *ranks).collectives
    assert (row.size_bytes, row.gb_per_s, row.bus_gb_per_s) == (None, None, None)


def products(shapes: object, device: str = "NVIDIA H100 80GB HBM3") -> Rank:
    """A product of 2 · 1000 · 1000 · 500 FLOPs in every step of 1 ms."""
    one = Rank()
    for s in range(4):
        one.step(s, 1000 * s, 1000 * (s + 1))
        args = {"Input Dims": shapes, "Input type": ["c10::BFloat16", "c10::BFloat16"]}
        one._add("cpu_op", "aten::mm", 1000 * s + 5, 20, 1, 1, args if shapes else {})
        one.work(1000 * s + 10, 1000 * s + 20, 1000 * s + 1020, "sm90_gemm")
    one.device = device
    return one


def test_mfu_is_flops_over_the_peak_of_the_device(tmp_path: Path) -> None:
    found = used(tmp_path, products([[1000, 1000], [1000, 500]])).mfu
    assert found is not None
    assert (found.flops, found.dtype, found.peak_tflops, found.lower_bound) == (3 * 10**9, "bf16", 989, False)
    assert found.tflops_per_s == pytest.approx(1.0)
    assert found.value == pytest.approx(1 / 989)


@pytest.mark.parametrize(
    ("shapes", "device", "why"),
    [
        (None, "NVIDIA H100", "without their shapes"),
        ([[1000, 1000], [1000, 500]], "Acme 9000", "the peak of Acme 9000 is not known"),
        ([[1000, 1000], [1000, 500]], "", "that the trace does not name"),
        ([[1000, 1000], [1000, 500]], "Tesla V100-SXM2-16GB", "for bf16 is not known"),
    ],
)
def test_mfu_is_null_with_its_reason_where_shapes_or_peak_are_unknown(
    tmp_path: Path, shapes: object, device: str, why: str
) -> None:
    found = used(tmp_path, products(shapes, device)).mfu
    assert found is not None
    assert found.value is None
    assert why in found.why


@pytest.mark.parametrize(
    ("device", "bf16"),
    [
        ("NVIDIA H100 80GB HBM3", 989), ("NVIDIA H100 PCIe", 756), ("NVIDIA A100-SXM4-80GB", 312), ("NVIDIA H200", 989),
        ("AMD Instinct MI300X", 1307.4), ("NVIDIA L4", 121), ("NVIDIA L40S", 362), ("NVIDIA GB200", 2500),
        ("NVIDIA B200", 2250),
        ("NVIDIA A10G", 70), ("NVIDIA GeForce RTX 2080 Ti", None), ("", None),
    ],
)  # fmt: skip
def test_peaks_are_found_by_the_name_of_the_device(device: str, bf16: float | None) -> None:
    assert (peaks_of(device) or {}).get("bf16") == bf16


def test_peaks_agree_with_those_of_the_shipped_devices(root: Path) -> None:
    import tomllib

    import msgspec

    files = sorted((root / "src" / "taut" / "scenarios" / "devices").glob("*.toml"))
    assert files
    for path in files:
        shipped = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Modelled)
        assert (peaks_of(shipped.name) or {}).get("bf16") == shipped.peak_tflops
    assert all(fp32 <= peaks.get("fp16", 0) for _, peaks in PEAKS if (fp32 := peaks["fp32"]))


def test_types_of_elements_in_the_words_of_torch() -> None:
    words = ["c10::BFloat16", "c10::Half", "float", "double", "c10::Float8_e4m3fn", "int", ""]
    assert [element_type(word) for word in words] == ["bf16", "fp16", "fp32", "fp64", "fp8", None, None]
