"""FLOPs of operators from their shapes, by step and type."""

from __future__ import annotations

from typing import Any

import pytest

from taut.read.kineto import reader as kineto
from taut.read.kineto.matrix_work import is_product_kernel

BF16 = "c10::BFloat16"
CONV = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
BACK = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]


def op(tiny: Any, name: str, dims: object, concrete: object = (), ts: float = 9, dtype: str = BF16) -> Any:
    event = tiny.event("cpu_op", name, ts, 5)
    event["args"] = {"Input Dims": dims, "Input type": [dtype] * 3, "Concrete Inputs": list(concrete)}  # type: ignore[call-overload]
    return event


def work(tiny: Any, *events: Any) -> Any:
    launched = [tiny.kernel("sm90_gemm", 5, 20, 10), tiny.launch(5, 10)]
    return kineto.load(tiny.as_bytes([*events, *launched]), "t.json").matrix_work


@pytest.mark.parametrize(
    ("name", "dims", "concrete", "flops"),
    [
        ("aten::mm", [[4, 8], [8, 16]], [], 2 * 4 * 8 * 16),
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], [], 2 * 4 * 8 * 16),
        ("aten::bmm", [[3, 4, 8], [3, 8, 16]], [], 3 * 2 * 4 * 8 * 16),
        ("aten::baddbmm", [[3, 4, 16], [3, 4, 8], [3, 8, 16]], [], 3 * 2 * 4 * 8 * 16),
        # 14 → 7 with a kernel of 3, a stride of 2 and a padding of 1.
        ("aten::convolution", [[2, 8, 14, 14], [16, 8, 3, 3], [16]], CONV, 2 * 2 * 16 * 7 * 7 * 8 * 9),
        ("aten::convolution_backward", [[2, 16, 7, 7], [2, 8, 14, 14], [16, 8, 3, 3]], BACK, 2 * 2 * 2 * 16 * 7 * 7 * 8 * 9),
        (
            "aten::_scaled_dot_product_flash_attention", [[2, 4, 32, 8]] * 3, ["", "", "", "0.", "False", "False"],
            4 * 2 * 4 * 32 * 32 * 8,
        ),
        (
            "aten::_scaled_dot_product_flash_attention", [[2, 4, 32, 8]] * 3, ["", "", "", "0.", "True", "False"],
            2 * 2 * 4 * 32 * 32 * 8,
        ),
    ],
)  # fmt: skip
def test_shapes_tell_the_flops(tiny: Any, name: str, dims: object, concrete: object, flops: int) -> None:
    found = work(tiny, op(tiny, name, dims, concrete))
    assert found.flops.sum() == flops
    assert (found.ops.sum(), found.unsized.sum(), found.counted_ns.sum(), found.uncounted_ns.sum()) == (1, 0, 10_000, 0)
    assert BF16 in found.dtype


@pytest.mark.parametrize(
    "dims", [None, [], [[4, 8]], [["4", 8], [8, 16]], [[4, -8], [8, 16]], [[2**39, 2**39], [2**39, 2**39]], "[[4, 8], [8, 16]]"]
)
def test_operators_without_usable_shapes_are_counted_as_such(tiny: Any, dims: object) -> None:
    found = work(tiny, op(tiny, "aten::mm", dims))
    assert (found.flops.sum(), found.ops.sum(), found.unsized.sum()) == (0, 1, 1)


def test_an_operator_that_launched_nothing_does_not_count(tiny: Any) -> None:
    assert work(tiny, op(tiny, "aten::mm", [[4, 8], [8, 16]], ts=100)).ops.sum() == 0


def test_products_of_kernels_outside_operators_are_told_by_their_time(tiny: Any) -> None:
    other = [
        tiny.kernel("fmha_kernel", 6, 40, 30),
        tiny.launch(6, 35),
        tiny.kernel("fbgemm_permute", 7, 80, 9),
        tiny.launch(7, 36),
    ]
    found = work(tiny, op(tiny, "aten::mm", [[4, 8], [8, 16]]), *other)
    assert (found.counted_ns.sum(), found.uncounted_ns.sum()) == (10_000, 30_000)


def test_a_wrapper_does_not_count_twice(tiny: Any) -> None:
    shapes = [[4, 8], [8, 16]]
    assert work(tiny, op(tiny, "aten::matmul", shapes, ts=8), op(tiny, "aten::mm", shapes)).flops.sum() == 1024


def test_flops_belong_to_the_step_that_launched_them(tiny: Any) -> None:
    steps = [tiny.event("user_annotation", f"ProfilerStep#{s}", 100 * s, 90) for s in (0, 1)]
    later = [op(tiny, "aten::mm", [[2, 2], [2, 2]], ts=110), tiny.kernel("gemm", 6, 300, 10), tiny.launch(6, 111)]
    found = work(tiny, *steps, op(tiny, "aten::mm", [[4, 8], [8, 16]]), *later)
    by_step = {step: found.flops[found.step == step].sum() for step in (0, 1)}
    assert by_step == {0: 1024, 1: 16}


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("nvjet_sm90_tst_256x128", True), ("Cijk_Alik_Bljk_BBS_BH", True), ("void flash_fwd_kernel<Traits>", True),
        ("volta_sgemm_128x32_nt", True), ("void fbgemm_gpu::permute_2D", False), ("vectorized_elementwise_kernel", False),
    ],
)  # fmt: skip
def test_kernels_that_are_called_like_products(name: str, product: bool) -> None:
    assert is_product_kernel(name) == product
