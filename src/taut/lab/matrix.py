"""The matrix: which jobs get which faults for a seed, run and scored one after the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec.structs import replace

from taut.core.executors import LOCAL, results_in_order
from taut.diagnose import instability
from taut.diagnose.detectors import DETECTORS
from taut.lab.case import FATAL, HOST, JOBS, NETWORK, OUTSIDE, PLAIN_JOB, STEPS, Spec
from taut.lab.modelled import modelled
from taut.lab.score import Row, attempt, beside_baseline, beside_policy
from taut.lab.truth import BASELINE, HEALTHY, MODES, ON_ALL, TRACES, load
from taut.result.types import AnalysisResult, Estimate
from taut.run import analyze, analyze_trace

BUILT = frozenset({instability.MODE, *(mode for detector in DETECTORS for mode in detector.MODES)})
"""Failure modes that a detector exists for: the others are scored *not yet*."""
REPEATS = (4, 4, 8)
"""Ranks of the jobs that every fault is tried on; a fault whose mode is not built yet is tried on one."""
PLACED = (("slow", "2", 8), ("slow", HOST, 8), ("slow", HOST, 4))
"""Faults in several places that begin in mid-run, their places, and ranks of the job."""
START = (
    ("slow", "1", 4), ("link", "1", 8), ("slow", "2", 8), ("quota", "1", 8), ("latency", "1", 4), ("slow", HOST, 8),
    ("stall", "1", 4), ("link-one-way", "1", 8), ("stall", HOST, 8), ("slow", "1", 16), ("loss", "1", 8), ("slow", "2", 16),
    ("quota", "1", 4), ("link", "1", 4), ("quota", HOST, 8), ("stall", "1", 8), ("latency", "1", 8), ("slow", HOST, 16),
    ("slow", "1", 8), ("link", "1", 16), ("slow", "2", 8), ("link-one-way", "1", 4), ("slow", HOST, 8), ("loss", "1", 4),
    ("quota", "1", 8),
)  # fmt: skip
"""Faults that are there from the start, their places, and ranks of the job."""
RINGS = ("ddp", "fsdp", "hsdp", "tp-fsdp")
"""Jobs whose ranks have peers. A stage of the lab's pipeline is one rank: without a past nobody can say that it is slow."""
LARGE = {"link-one-way": RINGS[:2], "link": RINGS[:3], "latency": RINGS[:3], "loss": RINGS[:3]}
"""Of a link in a ring of two both ends look alike: jobs in which it would be in no other, or may be, are left out."""
QUIET = {"none": 18, "skew": 6, "contention": 16}
"""Healthy runs by default."""
ALIKE = (
    ("hiccups", PLAIN_JOB, (16, 32, 64)), ("hiccups", "ddp", (8, 8)), ("hiccups", PLAIN_JOB, (16, 32, 64)),
    ("both", "ddp", (8,)), ("unequal", PLAIN_JOB, (16, 64)), ("hiccups", "ddp", (16,)), ("none", PLAIN_JOB, (16, 32, 64)),
    ("long-hiccups", PLAIN_JOB, (32,)), ("both", PLAIN_JOB, (32,)), ("drift-all", PLAIN_JOB, (32,)), ("unequal", "ddp", (8,)),
    ("drift-all", "ddp", (8,)),
)  # fmt: skip
"""Jobs without a culprit: what all ranks have alike, the job, and sizes of one law; ``both`` has a culprit as well."""
ALIKE_STEPS = {PLAIN_JOB: 240, "ddp": 120}
"""Their steps: so many that hiccups are counted by tens; torch jobs of 16 ranks do half of them."""
ONLY = ("past", "start", "healthy", "structural")
MANY, FEWER_STEPS = 16, 20
"""Jobs of so many ranks do fewer steps, because each takes longer; a slow rank is only tried on the lightest of them (ddp).

The others keep two cores so busy that 33 ms more on one rank do not show in the step.
"""
MODEL_FAULTS = ("slow", "stall", "link", "link-one-way", "moving", "loader", "checkpoint", "two", "drift", "set")
MODEL_SIZES = ((64, 4), (128, 2), (256, 1), (1024, 1))
"""Ranks of modelled jobs, and how often each fault is tried on each job at that size (1,024 ranks: on one job)."""
MODEL_QUIET = ((64, 44), (128, 12), (256, 6))
"""Healthy modelled jobs of every kind, by size."""


@dataclass(frozen=True)
class Chosen:
    """What of a matrix is to be run; empty and None choose all, and the ranks that are arranged."""

    jobs: Sequence[str] = ()
    faults: Sequence[str] = ()
    ranks: int | None = None
    device: str = "cpu"
    only: Sequence[str] = ()


ALL = Chosen()


def plan(seed: int, folder: Path, chosen: Chosen = ALL) -> list[Spec]:
    """The real runs of a matrix, healthy and faulted mixed; jobs rotate so that over seeds every fault meets every job."""
    kinds = {"past": _past, "start": _start, "healthy": _healthy, "structural": _structural}
    asked = [kinds[kind](seed, chosen) for kind in chosen.only or ONLY]
    found = [[spec for spec in specs if _wanted(spec, chosen)] for specs in asked]
    mixed = sorted(((i + 0.5) / len(some), kind, spec) for kind, some in enumerate(found) for i, spec in enumerate(some))
    specs = {_name(spec, chosen): spec for _, _, spec in mixed}
    return [replace(spec, folder=str(folder / name)) for name, spec in specs.items()]


def _wanted(spec: Spec, chosen: Chosen) -> bool:
    return (not chosen.faults or spec.fault in chosen.faults) and not (
        spec.device != "cpu" and (spec.fault in OUTSIDE or spec.places == HOST or spec.again)
    )


def _name(spec: Spec, chosen: Chosen) -> str:
    """Folder of a run; where jobs are chosen, each has one of a kind."""
    many = {"1": ""}.get(spec.places, f"-places-{spec.places}")
    number = "" if chosen.jobs else f"-{spec.seed % 1000}"
    return f"{'start-' if spec.from_start else ''}{spec.fault}{many}-{spec.job}-{spec.ranks}-{spec.seed // 1000}{number}"


def _spec(chosen: Chosen, able: Sequence[str], turn: int, spec: Spec) -> Iterator[Spec]:
    """The run with one of the jobs that can have it, if any."""
    jobs = [job for job in (chosen.jobs or JOBS) if job in able]
    if jobs:
        ranks = chosen.ranks or spec.ranks
        steps = FEWER_STEPS if ranks >= MANY else STEPS
        yield replace(spec, job=jobs[turn % len(jobs)], ranks=ranks, steps=steps, device=chosen.device)


def _past(seed: int, chosen: Chosen) -> Iterator[Spec]:
    """Faults that begin in mid-run."""
    faults = [fault for fault in MODES if fault not in (*HEALTHY, *ON_ALL, "set")]
    for i, ranks in enumerate(REPEATS):
        for place, fault in enumerate(faults):
            if MODES[fault] in BUILT or i == 0:
                able = ("hsdp",) if fault == "out-of-step" else JOBS
                one = Spec(job="", fault=fault, ranks=ranks, seed=1000 * seed + i, folder="")
                yield from _spec(chosen, able, place + seed + i, one)
    for i, (fault, places, ranks) in enumerate(PLACED):
        one = Spec(job="", fault=fault, places=places, ranks=ranks, seed=1000 * seed + i, folder="")
        yield from _spec(chosen, JOBS, seed + i, one)


def _start(seed: int, chosen: Chosen) -> Iterator[Spec]:
    """Faults that are there from the start."""
    for i, (fault, places, ranks) in enumerate(START):
        one = Spec(job="", fault=fault, places=places, ranks=ranks, from_start=True, seed=1000 * seed + 100 + i, folder="")
        few = 2 if fault in NETWORK else 1
        able = RINGS[:few] if ranks >= MANY else RINGS[:2] if fault in NETWORK and ranks == 4 else LARGE.get(fault, RINGS)
        yield from _spec(chosen, able, seed + i, one)


def _healthy(seed: int, chosen: Chosen) -> Iterator[Spec]:
    """Jobs that nothing is done to, or nothing that is anybody's fault; a fifth of them has hosts of several ranks."""
    numbers = [(fault, i) for fault, count in QUIET.items() for i in range(count)]
    for turn, (fault, i) in enumerate(sorted(numbers, key=lambda one: one[1])):
        ranks = 16 if turn % 10 == 9 else 8 if turn % 3 == 1 else 4
        places = HOST if turn % 5 == 3 and chosen.device == "cpu" else "1"
        one = Spec(job="", fault=fault, places=places, ranks=ranks, seed=1000 * seed + 200 + i, folder="")
        yield from _spec(chosen, JOBS, turn + seed, one)


def _structural(seed: int, chosen: Chosen) -> Iterator[Spec]:
    """Jobs that no rank is to blame for, each run twice; those of one law have seeds that differ in the last digit."""
    for number, (fault, job, sizes) in enumerate(ALIKE):
        for i, size in enumerate(sizes if not chosen.jobs or job in chosen.jobs else ()):
            ranks, steps = chosen.ranks or size, ALIKE_STEPS[job]
            steps = steps // 2 if job != PLAIN_JOB and ranks >= MANY else steps
            at = 1000 * seed + 300 + 10 * number + i
            yield Spec(job=job, fault=fault, ranks=ranks, steps=steps, seed=at, device=chosen.device, folder="")


def judge(folder: Path) -> Row:
    """What ``taut analyze`` makes of a lab run, against its truth; alone and, if there is one, with a healthy run before."""
    truth = load(folder)
    if truth.policy:
        with TemporaryDirectory() as scratch:
            run = Path(scratch) / "run"
            row = attempt(truth, lambda: _saved(folder, run), BUILT)
            return beside_policy(row, _predicted(run, truth.policy))
    row = attempt(truth, lambda: analyze([folder / TRACES]).result, BUILT)
    if truth.fault in FATAL or not any((folder / BASELINE).glob("rank*.json.gz")):
        return row
    with TemporaryDirectory() as scratch:
        again = attempt(truth, lambda: _with_baseline(folder, Path(scratch) / "run"), BUILT)
    return beside_baseline(row, again)


def _saved(folder: Path, run: Path) -> AnalysisResult:
    analysis = analyze([folder / TRACES])
    analysis.save(run)
    return analysis.result


def _predicted(run: Path, policy: str) -> Estimate | None:
    """What ``taut whatif RUN --policy`` says that a policy saves; None where it does not say."""
    command = [sys.executable, "-m", "taut", "whatif", str(run), "--policy", policy, "--json", "-q"]
    said = subprocess.run(command, capture_output=True, check=False) if run.exists() else None
    if said is None or said.returncode:
        return None
    return msgspec.json.decode(said.stdout, type=Answered).policies[0].saved_share


class Answered(msgspec.Struct):
    """Of the answer of ``whatif``, what is scored."""

    class Policy(msgspec.Struct):
        """One policy's saving."""

        saved_share: Estimate

    policies: list[Policy]


def _with_baseline(folder: Path, run: Path) -> AnalysisResult:
    analyze([folder / BASELINE]).save(run)
    return analyze([folder / TRACES], baseline=run).result


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


def judge_model(runs: Sequence[tuple[str, str, int, int]], on: str | Executor = LOCAL) -> Iterator[Row]:
    """Generate, analyse and score modelled jobs side by side, in the order asked; ``on`` says where."""
    return results_in_order(on, _judged, runs)


def _judged(run: tuple[str, str, int, int]) -> Row:
    trace, truth = modelled(*run)
    return attempt(truth, lambda: analyze_trace(trace).result, BUILT)


__all__ = ["BUILT", "ONLY", "Chosen", "judge", "judge_model", "model_plan", "plan"]
