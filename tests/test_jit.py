"""Kernels give the same numbers however they run: plain, compiled, or from code an earlier run left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from taut import native
from taut.graph import kernels as graph_kernels
from taut.replay import split

RNG = np.random.default_rng(0)
GROUP = RNG.integers(0, 7, 200)
START = RNG.integers(0, 50, 200)
CASES = {
    "turn": (graph_kernels.turn, (GROUP, 7)),
    "group_sort": (graph_kernels.group_sort, (GROUP, 7)),
    "order_groups": (graph_kernels.order_groups, (GROUP, 7, START, START + 3)),
    "fastest_other": (split.fastest_other, (GROUP - 1, 6, START)),
    "describe_cells": (split.describe_cells, (START, *graph_kernels.group_sort(GROUP, 7))),
}


@pytest.mark.parametrize("name", CASES)
def test_plain_and_compiled_agree(name: str) -> None:
    kernel, args = CASES[name]
    for plain, compiled in zip(_tuple(kernel.plain(*args)), _tuple(kernel.compiled(*args)), strict=True):
        np.testing.assert_array_equal(plain, compiled)


def _tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


PROGRAM = """
import sys
import numpy as np
import taut.jit
taut.jit.SMALL = 0
from taut.graph.kernels import turn
nth, rows = turn(np.array([1, 0, 1, 1]), 2)
print(nth.tolist(), rows.tolist(), "numba" in sys.modules)
"""


def _run(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_second_run_needs_no_compiler_and_damaged_code_is_compiled_again(tmp_path: Path) -> None:
    source = Path(native.__file__).parent
    shutil.copytree(source, tmp_path / "taut", ignore=shutil.ignore_patterns("*.kernel", "__pycache__", "demo"))
    assert _run(tmp_path) == "[0, 0, 1, 2] [1, 3] True"
    assert _run(tmp_path) == "[0, 0, 1, 2] [1, 3] False"
    for stored in tmp_path.rglob("turn-*.kernel"):
        stored.write_bytes(b"\x05\x00\x00\x00nonsense")
    assert _run(tmp_path) == "[0, 0, 1, 2] [1, 3] True"


def test_arguments_no_kernel_takes_have_no_signature() -> None:
    assert native.signature((np.zeros(3), np.zeros(2, np.int32), 4, 0.5)) == "d1,i1,x,d"
    assert native.signature((np.zeros((4, 4))[:, 1],)) is None
    assert native.signature(("text",)) is None
