"""The matrix: which jobs get which faults for a seed, run and scored one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from taut.diagnose.detectors import DETECTORS
from taut.lab.case import JOBS, OUTSIDE, STEPS, Spec
from taut.lab.modelled import modelled
from taut.lab.score import Row, attempt
from taut.lab.truth import MODES, TRACES, load
from taut.run import analyze, analyze_trace

BUILT = frozenset(mode for detector in DETECTORS for mode in detector.MODES)
"""Failure modes that a detector exists for: the others are scored *not yet*."""
REPEATS = 3
"""Jobs that every fault is tried on by default; a fault whose mode is not built yet is tried on one."""
QUIET = {"none": 17, "skew": 4}
"""Healthy runs by default."""
RARE = ("loss",)
"""Faults that show now and then only: their runs are twice as long."""
MODEL_FAULTS = ("slow", "stall", "link", "link-one-way", "moving", "loader", "checkpoint", "two", "drift", "set")
MODEL_SIZES = ((64, 4), (128, 2), (256, 1), (1024, 1))
"""Ranks of modelled jobs, and how often each fault is tried on each job at that size (1,024 ranks: on one job)."""
MODEL_QUIET = ((64, 44), (128, 12), (256, 6))
"""Healthy modelled jobs of every kind, by size."""


def plan(
    seed: int, folder: Path, jobs: Sequence[str] = (), faults: Sequence[str] = (), ranks: int = 4, device: str = "cpu"
) -> list[Spec]:
    """The real runs of a matrix, healthy and faulted mixed; jobs rotate so that over seeds every fault meets every job."""
    specs = []
    for i in range(max(QUIET.values())):
        for place, fault in enumerate(MODES):
            able = [job for job in (jobs or JOBS) if fault != "out-of-step" or job == "hsdp"]
            if device != "cpu" and fault in OUTSIDE:
                continue
            count = QUIET.get(fault, REPEATS if MODES[fault] in BUILT else 1)
            if (faults and fault not in faults) or i >= (min(count, len(able)) if jobs else count) or not able:
                continue
            job = able[(place + seed + i) % len(able)]
            number, steps = 1000 * seed + i, STEPS * (2 if fault in RARE else 1)
            name = str(folder / f"{fault}-{job}-{number}")
            specs.append(Spec(job=job, fault=fault, ranks=ranks, seed=number, steps=steps, device=device, folder=name))
    return specs


def judge(folder: Path) -> Row:
    """What ``taut analyze`` makes of a lab run, against its truth."""
    return attempt(load(folder), lambda: analyze([folder / TRACES]).result, BUILT)


def model_plan(seed: int, jobs: Sequence[str] = (), faults: Sequence[str] = ()) -> Iterator[tuple[str, str, int, int]]:
    """(job, fault, ranks, seed) of a modelled matrix."""
    chosen = tuple(jobs or JOBS)
    number = 1_000_000 * seed
    for ranks, count in MODEL_SIZES:
        for place, fault in enumerate(MODEL_FAULTS):
            for job in chosen if ranks < 1024 else (chosen[place % len(chosen)],):
                for _ in range(count):
                    number += 1
                    if not faults or fault in faults:
                        yield job, fault, ranks, number
    for ranks, count in MODEL_QUIET:
        for job in chosen:
            for i in range(count):
                number += 1
                fault = "skew" if i % 6 == 5 else "none"
                if not faults or fault in faults:
                    yield job, fault, ranks, number


def judge_model(runs: Sequence[tuple[str, str, int, int]]) -> Iterator[Row]:
    """Generate, analyse and score modelled jobs, one on every core, in the order asked."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(_judged, runs, chunksize=4)


def _judged(run: tuple[str, str, int, int]) -> Row:
    trace, truth = modelled(*run)
    return attempt(truth, lambda: analyze_trace(trace).result, BUILT)


__all__ = ["BUILT", "judge", "judge_model", "model_plan", "plan"]
