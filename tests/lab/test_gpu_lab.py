"""The GPU arm of the lab, and what the analysis makes of runs that it recorded on an H200 (``tests/lab/gpu``).

The runs are trimmed to what the analysis reads (``trim.py``): two ranks of DDP that share the GPU by time slices, the second
one slow; four ranks that share it under MPS, the last one slow; two healthy ranks of FSDP2.
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from taut.core.errors import TautError, UsageError
from taut.lab import score_table
from taut.lab.case import KERNEL, OUTSIDE, Spec, draw
from taut.lab.matrix import Chosen, judge, plan
from taut.lab.run_case import Lab, missing
from taut.lab.score import Row, summarise
from taut.lab.truth import TRACES, load
from taut.run import analyze

RUNS = sorted((Path(__file__).parent / "gpu").iterdir())
ABSENT = missing("cuda")


@pytest.fixture(scope="module")
def rows() -> dict[str, Row]:
    return {run.name: judge(run) for run in RUNS}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_device_steps_agree_with_cuda_events(rows: dict[str, Row], run: Path) -> None:
    steps, truth = rows[run.name].device_steps, load(run)
    assert [s.rank for s in steps] == list(range(truth.ranks))
    assert {s.steps for s in steps} == {len(truth.faulted_ns)}, "every step but the first"
    assert max(s.error for s in steps) < 0.002
    assert max(s.worst_step for s in steps) < 0.05, "an event waits for its process's next time slice"


@pytest.mark.parametrize("name", ["ddp-slow", "ddp-slow-mps"])
def test_the_slow_rank_is_found_with_its_kernel(rows: dict[str, Row], name: str) -> None:
    assert (rows[name].verdict, rows[name].class_named, rows[name].extra) == ("right", True, 0), rows[name].found


def test_a_healthy_job_on_a_gpu_has_no_finding_and_the_ranks_meet(rows: dict[str, Row]) -> None:
    assert rows["fsdp-none"].verdict == "quiet"
    assert analyze([Path(__file__).parent / "gpu" / "fsdp-none" / TRACES]).result.job.gates > 0


def test_the_score_shows_every_rank_and_the_overhead(rows: dict[str, Row]) -> None:
    summary = summarise(list(rows.values()))
    assert (summary.device_error.n, summary.class_named.count, summary.class_named.of) == (3, 2, 2)
    assert summary.profiler_overhead.median is not None
    assert abs(summary.profiler_overhead.median) < 0.05
    console = Console(width=140, file=io.StringIO())
    score_table.show(list(rows.values()), console)
    text = console.file.getvalue()
    assert text.count("slow × ddp, 4 ranks, seed 5") == 4
    assert "Device step time against CUDA events of the same steps: median 0.04 %" in text
    assert "Slow kernels named with their rank: 2 of 2" in text


def test_without_windows_on_the_device_nothing_is_reported_of_them(tmp_path: Path, rows: dict[str, Row]) -> None:
    row = next(iter(rows.values()))
    assert score_table.device([Row(**{f: getattr(row, f) for f in Row.__struct_fields__ if f != "device_steps"})]).body == []
    score_table.write(list(rows.values()), tmp_path)
    assert "device_steps" not in (tmp_path / "matrix.csv").read_text()
    assert "CUDA events, ms" in (tmp_path / "matrix.md").read_text()


@pytest.mark.parametrize("fault", OUTSIDE)
def test_what_needs_a_network_of_its_own_is_refused_on_a_gpu(fault: str) -> None:
    with pytest.raises(UsageError, match="not with --device cuda"):
        Spec(job="ddp", fault=fault, device="cuda", folder="x").check()


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError, match="it has cpu, cuda"):
        Spec(job="ddp", fault="none", device="tpu", folder="x").check()


def test_a_gpu_gets_the_same_draw_and_the_class_of_its_kernel() -> None:
    on_cpu, on_gpu = (draw(Spec(job="ddp", fault="slow", seed=4, device=device, folder="x"))[0] for device in ("cpu", "cuda"))
    assert (on_cpu.classes, on_gpu.classes) == ((), (KERNEL,))
    assert (on_cpu.ranks, on_cpu.strength, on_cpu.first_step) == (on_gpu.ranks, on_gpu.strength, on_gpu.first_step)
    assert draw(Spec(job="ddp", fault="loader", seed=4, device="cuda", folder="x"))[0].classes == ()


def test_a_matrix_on_a_gpu_leaves_out_what_it_cannot_do(tmp_path: Path) -> None:
    specs = plan(1, tmp_path, Chosen(device="cuda"))
    for spec in specs:
        spec.check()
    assert {spec.device for spec in specs} == {"cuda"}
    assert not {spec.fault for spec in specs} & set(OUTSIDE)


def test_the_part_without_the_profiler_stands_beside_the_analysed_one() -> None:
    assert Spec(job="ddp", fault="slow", folder="x").parts == ("healthy-0", "faulted", "healthy-1")
    assert Spec(job="ddp", fault="slow", device="cuda", folder="x").parts == ("healthy-0", "faulted", "unprofiled", "healthy-1")
    assert Spec(job="ddp", fault="kill", device="cuda", folder="x").parts[-1] == "faulted"


@pytest.mark.skipif(ABSENT is None, reason="there is a GPU here")
def test_without_a_gpu_the_lab_says_so_in_one_line() -> None:
    with pytest.raises(TautError, match="torch"):
        Lab("cuda")


@pytest.mark.skipif(ABSENT is not None, reason=f"no lab on a GPU here: {ABSENT}")
def test_a_run_on_this_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Lab("cuda") as lab:
        lab.run(Spec(job="ddp", fault="slow", ranks=2, seed=1, steps=12, device="cuda", folder=str(folder)))
    row = judge(folder)
    assert (row.verdict, row.class_named) == ("right", True), row.found
    assert row.device_error is not None
    assert row.device_error < 0.01
