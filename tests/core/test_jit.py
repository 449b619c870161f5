"""Kernels give the same numbers however they run: plain, compiled, or from code an earlier run left behind."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernel_calls import Args, copied, kernels, recorded_calls
from taut.core import jit, native
from taut.core.jit import Kernel

ROOMS = ("control", "core", "graph", "project.requests", "project", "read", "render", "replay", "views")
ULPS = 1
"""Units in the last place by which machine code may differ from Python."""
ROUNDED = {"fitted": 100}
"""More of them for sums of exponentials, a hundred iterations long: numpy and the C library round these differently."""


@pytest.fixture(scope="module")
def calls() -> dict[str, list[Args]]:
    return recorded_calls()


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that were never compiled are, however small their input; later tests find things as they were."""
    monkeypatch.setattr(jit, "LARGE", threading.Event())
    jit.expect(float("inf"))


@pytest.mark.usefixtures("compiling")
def test_threads_that_call_a_new_kernel_at_once_compile_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(native.SWITCH, "off")
    made = []

    def store(code: native.Code, compiled: Any) -> None:
        made.append(code.name)

    monkeypatch.setattr(native, "store", store)
    tripled = jit.kernel()(lambda values: 3 * values)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: tripled(np.arange(3)).tolist(), range(8)))
    assert found == [[0, 3, 6]] * 8
    assert len(made) == 1


@pytest.mark.usefixtures("compiling")
def test_code_that_another_process_leaves_meanwhile_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tripled = jit.kernel()(lambda values: 3 * values)
    left = iter([None, lambda values: values + values + values])
    monkeypatch.setattr(native, "load", lambda code: next(left))
    monkeypatch.setattr(tripled, "_jit", None)
    assert tripled(np.arange(3)).tolist() == [0, 3, 6]
    assert tripled(np.arange(2)).tolist() == [0, 3]


def room_of(name: str) -> str:
    return next(room for room in sorted(ROOMS, key=len, reverse=True) if name.startswith(f"taut.{room}."))


def test_small_jobs_call_every_kernel(calls: dict[str, list[Args]]) -> None:
    assert sorted(calls) == sorted(kernels())
    assert {room_of(name) for name in calls} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.usefixtures("compiling")
def test_plain_compiled_and_kept_code_agree(room: str, calls: dict[str, list[Args]]) -> None:
    """Arguments are compared too, because some kernels fill them."""
    every = kernels()
    for name in sorted(name for name in calls if room_of(name) == room):
        for args in calls[name]:
            agree(every[name], args)


def agree(kernel: Kernel, args: Args) -> None:
    kind, plain = native.signature(args), result(as_python(kernel), args)
    kept = None if kind is None else native.load(kernel.code(kind))
    if kept is None:  # the first time here: compiled now, and kept if it can be
        same(plain, result(kernel, args), f"{kernel.__name__} compiled")
        kept = None if kind is None else native.load(kernel.code(kind))
        assert kept is not None or kernel.__name__ in NEVER_KEPT, kernel.__name__
    if kept is not None:
        same(plain, result(kept, args), f"{kernel.__name__} kept")


NEVER_KEPT = {"shift": "returns nothing", "wanted": "returns a truth value"}
"""Kernels whose code is compiled into that of the kernels that call them, and not kept alone."""


def as_python(kernel: Kernel) -> Callable[..., Any]:
    """The kernel as small arrays are given to it."""
    return lambda *args: kernel.plain(*(one.tolist() if kernel.lists and np.ndim(one) == 1 else one for one in args))


def result(run: Callable[..., Any], args: Args) -> list[Any]:
    """What a kernel returns, and its arguments afterwards."""
    given = copied(args)
    out = run(*given)
    return [*(out if isinstance(out, tuple) else (out,)), *given]


def same(plain: list[Any], other: list[Any], label: str) -> None:
    """Whole numbers are equal, others are within some units in the last place."""
    ulps = ROUNDED.get(label.split()[0], ULPS)
    for a, b in zip(plain, other, strict=True):
        if a is not None and np.asarray(a).dtype.kind == "f":
            a, b = np.asarray(a), np.asarray(b)
            near = np.isfinite(a) & np.isfinite(b)
            assert (np.abs(a[near] - b[near]) <= ulps * np.spacing(np.abs(b[near]))).all(), label
            a, b = a[~near], b[~near]
        np.testing.assert_array_equal(a, b, err_msg=label)


PROGRAM = """
import sys
BEFORE
import numpy as np
from taut.core import jit
SETTING
from taut.core.group_kernels import turn
nth, rows = turn(np.array([1, 0, 1, 1]), 2)
print(nth.tolist(), rows.tolist(), "numba" in sys.modules)
"""


def run(folder: Path, before: str = "", setting: str = "jit.expect(1e6)") -> str:
    program = PROGRAM.replace("BEFORE", before).replace("SETTING", setting)
    env = {"PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def copy_package(folder: Path) -> None:
    ignored = shutil.ignore_patterns("*.kernel", "__pycache__", "demo")
    shutil.copytree(Path(native.__file__).parents[1], folder / "taut", ignore=ignored)


def test_the_second_run_needs_no_compiler_and_damaged_code_is_compiled_again(tmp_path: Path) -> None:
    copy_package(tmp_path)
    assert run(tmp_path) == "[0, 0, 1, 2] [1, 3] True"
    assert run(tmp_path) == "[0, 0, 1, 2] [1, 3] False"
    for stored in tmp_path.rglob("turn-*.kernel"):
        stored.write_bytes(b"\x05\x00\x00\x00nonsense")
    assert run(tmp_path) == "[0, 0, 1, 2] [1, 3] True"
    assert run(tmp_path) == "[0, 0, 1, 2] [1, 3] False"


def test_small_arrays_are_not_compiled_for_although_somebody_imported_numba(tmp_path: Path) -> None:
    copy_package(tmp_path)
    assert run(tmp_path, before="import numba", setting="") == "[0, 0, 1, 2] [1, 3] True"
    assert run(tmp_path, setting="") == "[0, 0, 1, 2] [1, 3] False"
    assert not list(tmp_path.rglob("*.kernel"))
