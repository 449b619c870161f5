"""What accelerators did and the table of ranks, on the screen of `taut analyze`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from rich.cells import cell_len

from results import FINDING, RESULT, filled
from taut.render.analysis_screen import render
from taut.render.card import card
from taut.render.terminal import Screen
from taut.result.types import AnalysisResult

MEAN = {
    "host": None, "gpu": None, "step_ns": 10_000_000.0, "busy_share": 0.9, "compute_share": 0.6, "communication_share": 0.4,
    "hidden_share": 0.3, "exposed_share": 0.1, "copy_share": 0.25, "exposed_copy_share": 0.2, "idle_share": 0.1,
}  # fmt: skip
CLASSES = [
    {"name": "void at::native::gemm<(int)4>", "kind": "compute", "count": 1200, "rank_ns": 6_000_000, "share": 0.6,
     "median_ns": 5000.0},
    {"name": "nccl all-reduce", "kind": "communication", "count": 4, "rank_ns": 4_000_000, "share": 0.3, "median_ns": 1e6},
    {"name": "copy h2d", "kind": "copy", "count": 2, "rank_ns": 1_000_000, "share": 0.1, "median_ns": 5e5, "gb_per_s": 55.4},
]  # fmt: skip
COLLECTIVE = {
    "class": "nccl all-reduce", "verb": "all-reduce", "bytes": 25_000_000, "members": 8, "count": 4, "rank_ns": 4_000_000,
    "median_ns": 1e6, "gb_per_s": 100.0, "bus_gb_per_s": 175.0, "waiting_included": False,
}  # fmt: skip
DEVICE: dict[str, Any] = {
    "windows": [], "ranks": {}, "mean": MEAN, "classes": CLASSES, "collectives": [COLLECTIVE],
    "idle": [{"cause": "input: DataLoader", "rank_ns": 6, "share": 0.06}, {"cause": "launch", "rank_ns": 4, "share": 0.04}],
    "mfu": {"value": 0.41, "flops": 1, "tflops_per_s": 405.0, "peak_tflops": 989.0, "dtype": "bf16", "device": "NVIDIA H100",
            "lower_bound": False, "why": "dense peak"},
}  # fmt: skip


def rank(number: int, host: str | None = "gpu-17.cluster", gpu: int | None = 1, **more: Any) -> dict[str, Any]:
    label = f"rank {number} (gpu-17, GPU 1)" if host else f"rank {number}"
    shares = {"compute_share": 0.5, "communication_share": 0.1, "copy_share": 0.0, "wait_share": 0.3, "gap_share": 0.1}
    late = {"late_ns": 466_000.0, "caused_rank_ns": 10}
    return {"rank": number, "label": label, "host": host, "gpu": gpu, **shares, **late, **more}


def screen_of(device: dict[str, Any] | None = None, *, all_ranks: bool = False, width: int = 100, **keys: Any) -> str:
    result = copy.deepcopy(RESULT) | {"device": device and DEVICE | device} | keys
    return render(filled(AnalysisResult, result), Screen(width), all_ranks)


def test_the_device_has_its_shares_and_what_hides() -> None:
    shown = " ".join(screen_of({"idle": []}).split())
    assert "Device: busy 90.0 % of 10.0 ms a step, mean of 4 ranks · compute 60.0 %" in shown
    assert "communication 40.0 %, 75.0 % of it hidden, 10.0 % exposed · copies 25.0 %, 20.0 % exposed · idle 10.0 %" in shown


def test_idle_time_is_told_by_what_the_host_did() -> None:
    assert "Idle, its host meanwhile: input: DataLoader 6.0 % · launch 4.0 %" in screen_of({"classes": CLASSES})


def test_mfu_has_its_peak_and_is_left_out_where_it_is_unknown() -> None:
    assert "MFU 41.0 %: 405 of 989 TFLOP/s (bf16, NVIDIA H100)" in screen_of({"idle": []})
    bound = DEVICE["mfu"] | {"lower_bound": True}
    assert "MFU at least 41.0 %" in screen_of({"mfu": bound})
    assert "MFU" not in screen_of({"mfu": bound | {"value": None}})


def test_classes_have_short_names_and_copies_a_rate() -> None:
    lines = screen_of({"idle": []}).splitlines()
    (gemm,) = (line for line in lines if "gemm" in line)
    assert gemm.split() == ["gemm<4>", "1,200", "6.00", "ms", "60.0", "%", "5.00", "µs"]
    (copied,) = (line for line in lines if "h2d" in line)
    assert copied.split()[:3] == ["copy", "copy", "h2d"]
    assert copied.endswith("55.4")


def test_collectives_have_both_bandwidths_and_lower_bounds_say_so() -> None:
    (line,) = (line for line in screen_of({"classes": []}).splitlines() if "25.0 MB" in line)
    assert line.split()[-5:] == ["4", "4.00", "ms", "100", "175"]
    alone = COLLECTIVE | {"waiting_included": True, "bus_gb_per_s": None, "members": None}
    shown = screen_of({"collectives": [alone]})
    assert "≥ 100         –" in shown
    assert "≥: waiting for ranks that were not traced is part of the time" in shown


def test_the_card_of_a_notebook_has_the_shares_too() -> None:
    shown = card(filled(AnalysisResult, RESULT | {"device": DEVICE}))
    assert "device: busy 90.0 %, compute 60.0 %, exposed communication 10.0 %, exposed copies 20.0 %, idle 10.0 %" in shown
    assert "device:" not in card(filled(AnalysisResult, RESULT))


def test_without_an_accelerator_nothing_is_reported_of_it() -> None:
    assert "Device:" not in screen_of()


def test_a_window_without_steps_is_called_one() -> None:
    job = RESULT["job"] | {"steps": 1, "unit": "window"}
    shown = screen_of({"idle": []}, job=job)
    assert "4 of 8 ranks · 1 window · wall" in shown
    assert "busy 90.0 % of 10.0 ms, mean of 4 ranks" in shown
    assert "1 step" not in shown


def test_ranks_are_a_table_with_host_accelerator_shares_and_delay() -> None:
    shown = screen_of(ranks=[rank(137), rank(3, gpu=0)])
    assert "rank  host    GPU  compute    comm    wait     gap    late" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith(" 137"))
    assert line.split() == ["137", "gpu-17", "1", "50.0", "%", "10.0", "%", "30.0", "%", "10.0", "%", "466", "µs"]


def test_only_the_first_ranks_are_shown_unless_all_are_asked_for() -> None:
    some = [rank(r) for r in range(40)]
    shown = screen_of(ranks=some)
    assert " 35 more: --all-ranks" in shown
    assert len(screen_of(ranks=some, all_ranks=True).splitlines()) == len(shown.splitlines()) + 34


def test_columns_that_nobody_fills_are_left_out() -> None:
    shown = screen_of(ranks=[rank(r, None, None, late_ns=None) for r in range(2)])
    assert "rank    compute    comm    wait     gap" in shown
    assert "late" not in shown


def test_host_and_accelerator_stand_beside_the_rank_of_a_finding() -> None:
    shown = screen_of(ranks=[rank(2), rank(3)])
    assert "straggler cascade · rank 2 (gpu-17, GPU 1) · stage 1" in shown
    assert "rank 2 (gpu-17, GPU 1)  matmul" in shown


def test_a_long_list_of_ranks_stays_short() -> None:
    shown = screen_of(findings=[FINDING | {"ranks": list(range(64))}])
    assert "rank 0, 1, 2, 3 and 60 more · stage 1" in shown


def test_one_rank_is_named_in_the_line_of_the_job() -> None:
    job = RESULT["job"] | {"ranks": 1}
    shown = screen_of(ranks=[rank(137)], job=job)
    assert "toy · rank 137 (gpu-17, GPU 1) of 8 · 4 steps" in shown
    assert "Ranks" not in shown


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    classes = [CLASSES[0] | {"name": "void kernel<" + "x" * 300}]
    shown = screen_of({"classes": classes}, width=width, ranks=[rank(r, host="h" * 80) for r in range(3)])
    assert max(map(cell_len, shown.splitlines())) <= width


def test_names_of_a_trace_are_shown_not_obeyed() -> None:
    evil = "\x1b[2Jevil"
    shown = screen_of({"classes": [CLASSES[0] | {"name": evil}], "idle": [{"cause": evil, "rank_ns": 1, "share": 0.1}]},
                      ranks=[rank(0, host=evil), rank(1)])  # fmt: skip
    assert "\x1b" not in shown
