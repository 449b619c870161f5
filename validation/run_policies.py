"""Policies on measured runs: against closed forms, the coverage of their intervals, and what they would save real jobs.

    python validation/run_policies.py [DATA] [--draws 200]

DATA holds the traces of ``../shared/data``; without it only the first two tables are printed. The step of the modelled jobs
has mean 1; *chance* is four standard errors. A case of the second table is many runs of one process: the interval should hold
what a very long run of it saves in 95 of 100.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import comb, sqrt
from pathlib import Path

import numpy as np

import taut
from taut.core.array_types import Floats
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.replay.bounded_policies import backup_workers, deal_by_speed, overlap, own_times
from taut.replay.exact_policies import Measured, Outcome, local_steps, measured, semi_synchronous

SIGMA, STEP_NS = 0.05, 10_000_000
LARGEST = {8: 1.4236, 64: 2.3437}
"""Expected largest of so many normal draws, in standard deviations."""
JOBS = (
    "lab-baseline8", "lab-slow-rank", "alibaba-pai-steps/job_1_norm.csv", "alibaba-pai-steps/job_2_norm.csv",
    "bytedance-stragglers/trace-ST.parquet", "bytedance-stragglers/trace-AR.parquet",
)  # fmt: skip


def barriers(work: Floats) -> Measured:
    """A job whose ranks compute ``work[step, rank]`` steps, then meet."""
    took = np.rint(STEP_NS * work).astype(np.int64)
    ranks = took.shape[1]
    opened = np.cumsum(took.max(axis=1))
    begin = np.broadcast_to(np.append(0, opened[:-1])[:, None], took.shape)
    ends = begin + took
    step, rank = (a.ravel() for a in np.indices(took.shape))
    columns = {
        "rank": [rank, rank], "step": [step, step], "start_ns": [begin.ravel(), ends.ravel()],
        "end_ns": [ends.ravel(), np.repeat(opened, ranks)],
        "kind": [np.full(took.size, Kind.COMPUTE), np.full(took.size, Kind.COMMUNICATE)],
        "verb": [np.full(took.size, Verb.NONE), np.full(took.size, Verb.ALL_REDUCE)],
        "name": [0 * step, 0 * step + 1], "group": [0 * step - 1, 0 * step], "lane": [0 * step, 0 * step],
    }  # fmt: skip
    ops = Table(Op, {name: np.concatenate(parts) for name, parts in columns.items()})
    members = Table(Member, {"rank": np.arange(ranks), "host": ["node"] * ranks})
    names = ["work", "all-reduce"]
    return measured(taut.link(Trace(ops=ops, names=names, lanes=["lane"], groups=["all"], members=members)))


def mean(found: Outcome) -> tuple[float, float]:
    """Mean step under the policy, and four standard errors of it (blocks overlap)."""
    each = found.with_ns / found.steps / STEP_NS
    return float(each.mean()), 4 * float(each.std()) / sqrt(max(found.blocks, 1.0))


def closed_forms() -> Iterator[tuple[str, float, float, float]]:
    """(case, closed form, ours, what the difference may be)."""
    for ranks, largest in LARGEST.items():
        job = barriers(1 + SIGMA * np.random.default_rng(ranks).standard_normal((1600, ranks)))
        for steps in (1, 4, 16):
            yield f"{ranks} ranks, Gaussian, every {steps}", 1 + SIGMA * largest / sqrt(steps), *mean(local_steps(job, steps))
    chance = 0.01
    for ranks, steps in ((8, 4), (64, 4), (64, 8)):
        job = barriers(1.0 + (np.random.default_rng(ranks).random((1600, ranks)) < chance))
        upto = np.cumsum([comb(steps, k) * chance**k * (1 - chance) ** (steps - k) for k in range(steps)])
        yield (
            f"{ranks} ranks, hiccups, every {steps}",
            1 + float((1 - upto**ranks).sum()) / steps,
            *mean(local_steps(job, steps)),
        )


def draw(kind: str, steps: int, ranks: int, rng: np.random.Generator) -> Floats:
    """Work of a process: normal, rare hiccups, or hiccups that last four steps."""
    small = 0.01 * rng.standard_normal((steps, ranks))
    if kind == "Gaussian":
        return 1 + 5 * small
    if kind == "hiccups":
        return 1 + small + 1.5 * (rng.random((steps, ranks)) < 0.01)
    begins = rng.random((steps + 3, ranks)) < 0.004
    return 1 + small + 1.5 * (begins[3:] | begins[2:-1] | begins[1:-2] | begins[:-3])


def coverage(draws: int) -> Iterator[tuple[str, float, float, float]]:
    """(case, share saved by long runs, share of intervals that hold it, median width)."""
    for kind in ("Gaussian", "hiccups", "lasting"):
        for steps, ranks, tau in ((50, 8, 4), (200, 64, 4), (200, 64, 8)):
            rng = np.random.default_rng(0)
            long = [local_steps(barriers(draw(kind, 3000, ranks, rng)), tau) for _ in range(3)]
            true = 1 - sum(o.with_ns.sum() for o in long) / sum(o.without_ns.sum() for o in long)
            found = [local_steps(barriers(draw(kind, steps, ranks, rng)), tau).saved for _ in range(draws)]
            ends = np.array([(e.lo, e.hi) for e in found if e is not None], dtype=np.float64)
            holds = (ends[:, 0] <= true) & (true <= ends[:, 1])
            width = float(np.median(np.ptp(ends, axis=1)))
            yield f"{kind}, {steps} steps of {ranks} ranks, every {tau}", true, float(holds.mean()), width


def said(found: Outcome) -> str:
    """A saving as people read it."""
    e = found.saved
    if e is None:
        return "–"
    ends = "" if e.lo is None or e.hi is None else f"{100 * e.lo:.1f} … {100 * e.hi:.1f} %"
    return ends if found.most_ns is not None else f"{100 * e.value:.1f} % ({ends})" if ends else f"{100 * e.value:.1f} %"


def real(data: Path) -> Iterator[list[str]]:
    """A row for each job."""
    for name in JOBS:
        job = measured(taut.link(taut.read(data / name)))
        cells = [local_steps(job, 4), semi_synchronous(job, 2), backup_workers(job, 1), overlap(job, 0.9), deal_by_speed(job)]
        yield [name.rpartition("/")[2].partition(".")[0], str(job.met.units), *map(said, cells), shuffled(job, 4)]


def shuffled(job: Measured, steps: int) -> str:
    """What local steps would seem to save of the same steps in another order, of jobs that transfer nothing."""
    if not job.consecutive or job.graph.work_ns[job.at >= 0].any():
        return "–"
    own, rng, out = own_times(job), np.random.default_rng(0), []
    count = len(own) // steps * steps
    for _ in range(20):
        some = own[rng.permutation(len(own))][:count]
        out.append(1 - some.reshape(-1, steps, own.shape[1]).sum(axis=1).max(axis=1).sum() / some.max(axis=1).sum())
    return f"{100 * float(np.mean(out)):.1f} %"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--draws", type=int, default=200)
    asked = parser.parse_args()
    print("| local steps | closed form | ours | difference | chance |\n|---|---:|---:|---:|---:|")
    for case, theirs, ours, chance in closed_forms():
        print(f"| {case} | {theirs:.4f} | {ours:.4f} | {100 * (ours / theirs - 1):+.2f} % | ± {100 * chance / theirs:.2f} % |")
    print("\n| process | saves | intervals that hold it | width |\n|---|---:|---:|---:|")
    for case, true, holds, width in coverage(asked.draws):
        print(f"| {case} | {100 * true:.1f} % | {100 * holds:.0f} % | {100 * width:.1f} % |")
    if asked.data:
        head = ("job", "replicas", "local-steps=4", "semi-synchronous=2", "backup-workers=1", "overlap", "deal-by-speed")
        print("\n| " + " | ".join((*head, "local-steps=4, shuffled")) + " |\n|---|" + "---:|" * 7)
        for row in real(asked.data):
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
