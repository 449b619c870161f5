"""Non-determinism: the same graph, run again, differs more than its own jitter explains.

Signature: runs with the same classes and the same order of gates on every rank, whose step times differ between runs by
more than steps differ within them. Null hypothesis: all repeats have one level; each has its own spread, tails and
redness (``core/differences.py``); FALSE_ALARMS for each set of repeats, Benjamini–Hochberg over the sets. Alternatives: a drift
over the runs (the trend tests of ``taut compare``), and a fault in one run, which shows as one rank that holds most of
what differs. A finding is listed when the slower runs lost at least LISTED_SHARE of the wall against the middle run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.core.differences import differ
from taut.core.reporting import LISTED_SHARE, spell
from taut.core.trend import corrected
from taut.diagnose.finding import Finding
from taut.diagnose.repeats import Repeat, structure_differences

MODE = "non-determinism"
MODES = (MODE,)
FALSE_ALARMS = 0.05
"""Chance that repeats which do not differ are said to."""
MOST = 0.5
"""Share of what differs that one rank must hold to be named alone."""


@dataclass(frozen=True)
class Spot:
    """A class on a rank whose work differs between repeats."""

    name: str
    rank: int
    between_ns: tuple[float, float, float]
    """Spread of its work a step between runs: value and interval."""
    p: float
    q: float


@dataclass(frozen=True)
class Timing:
    """What a set of repeats says."""

    runs: tuple[int, ...]
    step_ns: tuple[float, ...]
    """Median step time of each run, ns."""
    within: float
    """Spread of step time inside a run, as a share of it: the median over the runs."""
    between: tuple[float, float, float] | None
    """Spread of step time between runs, as a share of it: value and interval."""
    p: float | None
    """None where a run has too few steps."""
    spots: tuple[Spot, ...] = ()


def same_graph_sets(runs: Sequence[Repeat]) -> list[list[int]]:
    """Which runs are the same graph: same ranks, classes and order of gates."""
    out: list[list[int]] = []
    for i, run in enumerate(runs):
        alike = (s for s in out if not any(one.graph for one in structure_differences(runs[s[0]], run)))
        found = next(alike, None)
        out.append([i]) if found is None else found.append(i)
    return out


def timing(runs: Sequence[Repeat], chosen: Sequence[int]) -> Timing:
    """Test a set of repeats: the step time, and the work of every class on every rank."""
    repeats = [runs[i] for i in chosen]
    times = [r.step_ns[None, :].astype(np.float64) for r in repeats]
    middle = tuple(float(np.median(t)) for t in times)
    level = float(np.mean(middle))
    # Half of the distance of these quantiles is the standard deviation of a normal distribution.
    within = float(np.median([np.subtract(*np.quantile(t, (0.84, 0.16))) / 2 for t in times])) / level
    found = differ(times)
    if found is None:
        return Timing(tuple(chosen), middle, within, None, None)
    between = (float(found.between[0]) / level, float(found.lo[0]) / level, float(found.hi[0]) / level)
    return Timing(tuple(chosen), middle, within, between, float(found.p[0]), _spots(repeats))


def _spots(repeats: Sequence[Repeat]) -> tuple[Spot, ...]:
    """Where work differs, after correction over all classes and ranks; the largest spread first."""
    keys = [key for key in repeats[0].rows if all(key in r.rows for r in repeats)]
    found = differ([r.work_ns[[r.rows[key] for key in keys]] for r in repeats])
    if found is None or not keys:
        return ()
    q = np.array(corrected(found.p.tolist()), dtype=np.float64)
    order = np.argsort(-found.between, kind="stable")
    return tuple(
        Spot(
            keys[i][0],
            keys[i][1],
            (float(found.between[i]), float(found.lo[i]), float(found.hi[i])),
            float(found.p[i]),
            float(q[i]),
        )
        for i in order[q[order] <= FALSE_ALARMS].tolist()
    )


def timing_finding(runs: Sequence[Repeat], seen: Timing, q: float | None) -> Finding | None:
    """The finding, if the repeats differ beyond chance and it matters."""
    if seen.p is None or q is None or q > FALSE_ALARMS or seen.between is None:
        return None
    repeats, step = [runs[i] for i in seen.runs], np.array(seen.step_ns)
    # The lower of two middle runs: half of the runs are then as good as usual or better.
    usual = float(np.sort(step)[(len(step) - 1) // 2])
    lost = np.maximum(step - usual, 0) * [len(r.steps) for r in repeats]
    if lost.sum() < LISTED_SHARE * sum(float(r.step_ns.sum()) for r in repeats):
        return None
    rank = _rank_alone(seen.spots)
    where = "" if rank is None else f", most of it on rank {rank}"
    return Finding(
        mode=MODE,
        ranks=() if rank is None else (rank,),
        classes=tuple(dict.fromkeys(spot.name for spot in seen.spots))[:3],
        steps=(int(min(r.steps[0] for r in repeats)), int(max(r.steps[-1] for r in repeats))),
        lost_rank_ns=int(lost.sum()) * len(repeats[0].ranks),
        recoverable_wall_ns=int(lost.sum()),
        confidence=1 - seen.p,
        because=f"a step takes {spell(step.min())} to {spell(step.max())} in {len(repeats)} runs of one graph (same classes, "
        f"same order of gates): steps differ by {100 * seen.between[0]:.1f} % between runs and by {100 * seen.within:.1f} % "
        f"within them{where}",
        alternatives=() if rank is None else ("straggler cascade",),
    )


def _rank_alone(spots: Sequence[Spot]) -> int | None:
    """The rank that holds most of what differs; None where no rank does."""
    sums: dict[int, float] = defaultdict(float)
    for spot in spots:
        sums[spot.rank] += spot.between_ns[0]
    top = max(sums, key=lambda rank: (sums[rank], -rank), default=None)
    return top if top is not None and (len(sums) == 1 or sums[top] > MOST * sum(sums.values())) else None
