"""Size and power of findings against a baseline, as Markdown: ``python bench/baseline.py [--jobs 40] [--seed 1]``.

Two runs of one modelled job (``lab/modelled.py``): the same slots and sizes, other dice. Ranks are unequal for good (3 %),
each differs from run to run (``--ranks-vary``), and so does the job as a whole (``--runs-vary``). Size: share of healthy
pairs with any finding listed. Power: share in which the first finding names the right place, the fault being there from
the first step on, among jobs in which it costs at least 3 % of the wall clock. Every fault is tried at 10, 20 and 40 %:
of the work of a rank, of eight ranks of one host, of all ranks; of the bandwidth of an interface.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from taut.core.reporting import LISTED_SHARE
from taut.core.tables import Kind
from taut.diagnose.detectors import Evidence, Finding, diagnose
from taut.graph import Graph, link
from taut.graph.joined import difference, joined
from taut.lab.modelled import Burden, Dice, _burden, _played, _recorded, _rolled
from taut.lab.shapes import Job, build
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay

UNEQUAL = 0.03
"""Spread of the ranks of a job, the same in all its runs."""
KINDS = ("ddp", "fsdp", "tp-fsdp", "pipeline", "hsdp")
FAULTS = ("rank", "host", "job", "link")


def run(kind: str, ranks: int, seed: int, which: int, vary: tuple[float, float], steps: int) -> tuple[Job, Dice]:
    """One run of a job: what chance decides, unequal ranks and variation from run to run included."""
    job = build(kind, ranks, np.random.default_rng((seed, KINDS.index(kind), ranks)))
    for_good = 1 + UNEQUAL * np.random.default_rng((seed, 7)).standard_normal(ranks)
    job.rng = np.random.default_rng((seed, KINDS.index(kind), ranks, which))
    dice = _rolled(job, steps)
    own = np.array([slot.kind != Kind.COMMUNICATE for slot in job.slots])
    moved = (1 + vary[0] * job.rng.standard_normal(ranks)) * (1 + vary[1] * job.rng.standard_normal())
    dice.cost[:, own] *= for_good * moved
    dice.cost[:, ~own] *= 1 + 2 * vary[1] * job.rng.standard_normal()
    return job, dice


def graph(job: Job, dice: Dice, burden: Burden) -> Graph:
    """The run as the analysis sees it."""
    return link(_recorded(job, *_played(job, dice, burden), np.zeros(job.ranks, dtype=np.int64), "job"))


def faulted(job: Job, dice: Dice, fault: str, amount: float, rng: np.random.Generator) -> tuple[Burden, set[int]]:
    """What a fault adds, and the ranks that are to be named."""
    burden = _burden(job, dice, (), np.zeros(1, dtype=np.int64))
    compute = np.flatnonzero([slot.kind == Kind.COMPUTE for slot in job.slots])
    rank = int(rng.integers(job.ranks))
    some = {"rank": [rank], "host": list(range(rank // 8 * 8, rank // 8 * 8 + 8)), "job": list(range(job.ranks))}.get(fault, [])
    for one in some:
        burden.work[:, compute, one] += amount * dice.cost[:, compute, one]
    if fault == "link":
        for ring, sender in job.into.items():
            burden.slower[ring][:, (np.arange(job.ranks) == rank) | (sender == rank)] = 1 + amount
        some = [rank]
    return burden, set() if fault == "job" else set(some)


def findings(before: Graph, after: Graph) -> list[Finding]:
    """What ``taut analyze AFTER --baseline BEFORE`` finds."""
    why = difference(before, after)
    if why is not None:
        raise SystemExit(why)
    both, observed = joined(before, after), replay(after)
    gap_free = replay(after, gaps=False) if after.gap_ns.any() else observed
    return diagnose(Evidence(after, observed, blame(after, observed, gap_free, both), batch(after), both))


def right(found: list[Finding], fault: str, ranks: set[int]) -> bool:
    """Whether the first finding names the place, and no other."""
    if not found or found[0].reference != "baseline":
        return False
    first = found[0]
    if fault == "link":
        return bool(first.links) and all(ranks & {int(end) for end in pair.split(":")} for pair in first.links)
    return set(first.ranks) == ranks and not first.links


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--steps", type=int, default=13)
    parser.add_argument("--ranks-vary", type=float, default=0.01)
    parser.add_argument("--runs-vary", type=float, default=0.01)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    vary = args.ranks_vary, args.runs_vary
    healthy, hits = 0, {(fault, amount): 0 for fault in args.faults.split(",") if fault for amount in (0.1, 0.2, 0.4)}
    worth = dict.fromkeys(hits, 0)
    for k in range(args.jobs):
        kind, seed = KINDS[k % len(KINDS)], args.seed * 1000 + k
        job, dice = run(kind, args.ranks, seed, 0, vary, args.steps)
        before = graph(job, dice, _burden(job, dice, (), np.zeros(1, dtype=np.int64)))
        job, dice = run(kind, args.ranks, seed, 1, vary, args.steps)
        healthy_graph = graph(job, dice, _burden(job, dice, (), np.zeros(1, dtype=np.int64)))
        found = findings(before, healthy_graph)
        healthy += bool(found)
        if args.verbose and found:
            sys.stderr.write(f"healthy {kind} {seed}: {found[0].ranks} {found[0].links} {found[0].because}\n")
        for fault, amount in hits:
            burden, ranks = faulted(job, dice, fault, amount, np.random.default_rng((seed, FAULTS.index(fault))))
            now = graph(job, dice, burden)
            if 1 - replay(healthy_graph).wall_ns / replay(now).wall_ns < LISTED_SHARE:
                continue
            worth[fault, amount] += 1
            found = findings(before, now)
            hits[fault, amount] += right(found, fault, ranks)
            if args.verbose and not right(found, fault, ranks):
                first = f"{found[0].mode} {found[0].ranks} {found[0].links} {found[0].because}" if found else "nothing"
                sys.stderr.write(f"{fault} {amount} {kind} {seed}, {sorted(ranks)[:9]}: {first}\n")
    sys.stdout.write(
        f"{args.jobs} pairs, {args.ranks} ranks, {args.steps - 1} steps: {healthy} healthy pairs with a finding\n\n"
    )
    sys.stdout.write("| slower than the baseline | 10 % | 20 % | 40 % |\n|---|---:|---:|---:|\n")
    for fault in dict.fromkeys(fault for fault, _ in hits):
        cells = " | ".join(f"{hits[fault, amount]} of {worth[fault, amount]}" for amount in (0.1, 0.2, 0.4))
        sys.stdout.write(f"| {fault} | {cells} |\n")


if __name__ == "__main__":
    main()
