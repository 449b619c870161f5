"""Kernels carry the number of their threads as a shape."""

from __future__ import annotations

from typing import Any

import pytest

from taut.read.kineto import reader


@pytest.mark.parametrize(
    ("args", "size"),
    [
        ({"grid": [100, 2, 1], "block": [256, 1, 1]}, 51_200),
        ({"grid": [100, 2, 1]}, -1),
        ({"grid": "many", "block": [1]}, -1),
        ({"grid": [2**40, 2**40, 2], "block": [1, 1, 1]}, -1),
        ({}, -1),
    ],
)
def test_threads_of_a_kernel(tiny: Any, args: dict[str, Any], size: int) -> None:
    kernel = tiny.kernel("gemm", 1, 20, 5)
    kernel["args"] |= args
    trace = reader.load(tiny.as_bytes([tiny.launch(1, 10), kernel]), "t.json")
    assert [op["size"] for op in tiny.ops_of(trace) if op["name"] == "gemm"] == [size]
