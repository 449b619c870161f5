"""Size of every test behind findings, from two steps on, as Markdown; power beside it.

    python bench/size.py [--jobs 40] [--seed 5000] [--steps 2 3 4 6 9 12 20 40] [--ranks 4 8 16] [--only rings] [--json FILE]

Size: the share of healthy jobs with an alarm of each test, whatever the alarm would cost, and with a finding listed, under
nulls that are not kind. *Nominal* is what the test promises. Power: faults that are there from the first step on, in as few
steps. Jobs are pooled: by steps, by nulls, by ranks. Intervals are Wilson's, 95 %. ``▲`` marks shares whose whole interval is
above 1.5 times nominal, ``△`` those that are above it and may be so by chance.

Families of jobs: *step times* (tables of ranks × steps, ``diagnosis.py``), *rings* (played piece by piece, ``rings.py``, their
flight recorder beside them), *baseline* (pairs of the former two), *modes* (one job that has everything else, ``modes.py``),
*modelled* (the jobs of the lab, ``lab/modelled.py``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from math import sqrt
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from typing import Any

import diagnosis
import modes
import numpy as np
import rings

from taut.core.jit import expect
from taut.core.tables import Call, Table, Trace
from taut.diagnose.detectors import Evidence, diagnose
from taut.diagnose.finding import Finding
from taut.diagnose.late_ranks import recurring
from taut.diagnose.straggler import all_along, local_links
from taut.diagnose.synchronisation import split_group
from taut.graph import link
from taut.graph.joined import joined
from taut.lab.modelled import JOBS, with_faults
from taut.replay.blame import blame
from taut.replay.timeline import batch, replay

Z = 1.96
LISTED = "any finding listed"
STEPS = (2, 3, 4, 6, 9, 12, 20, 40)
RECORDED = 4
"""The flight recorder holds so many times as many steps as the profiler traced."""
RANKS_VARY, RUNS_VARY, LINKS_VARY, UNEQUAL = 0.01, 0.01, 0.03, 0.03
"""Between two runs of one job: how ranks, the job and its links differ; and how ranks differ for good."""
Tests = dict[str, tuple[float, Callable[[Evidence], bool]]]


@dataclass(frozen=True)
class Cell:
    """Healthy jobs of one shape under one null."""

    family: str
    null: str
    ranks: int
    steps: int
    jobs: int
    seed: int

    def rng(self) -> np.random.Generator:
        """The dice of the cell."""
        return np.random.default_rng((self.seed, self.ranks, self.steps, sum(map(ord, self.family + self.null))))


def seen(trace: Trace) -> Evidence:
    """What detectors get of a trace."""
    graph = link(trace)
    observed = replay(graph)
    gap_free = replay(graph, gaps=False) if graph.gap_ns.any() else observed
    return Evidence(graph, observed, blame(graph, observed, gap_free), batch(graph))


def beside(before: Evidence, after: Evidence) -> Evidence:
    """What detectors get of a run beside its baseline."""
    both = joined(before.graph, after.graph)
    gap_free = replay(after.graph, gaps=False) if after.graph.gap_ns.any() else after.observed
    return Evidence(after.graph, after.observed, blame(after.graph, after.observed, gap_free, both), after.batch, both)


def _beyond(e: Evidence) -> bool:
    return e.apart is not None and bool(e.apart.beyond.any())


_LAST: list[tuple[Evidence, list[Finding]]] = []


def findings(e: Evidence) -> list[Finding]:
    """What is listed of a job; several tests ask for it."""
    if not _LAST or _LAST[0][0] is not e:
        _LAST[:] = [(e, diagnose(e))]
    return _LAST[0][1]


def _listed(e: Evidence) -> bool:
    return bool(findings(e))


STEP_TIMES: Tests = {
    "a rank's level": (0.02, lambda e: any(not p.spikes for p in e.slowdowns.ranks)),
    "a rank's spikes": (0.02, lambda e: any(p.spikes for p in e.slowdowns.ranks)),
    "all ranks' level": (0.01, lambda e: bool(e.slowdowns.on_all_ranks)),
    "among peers": (0.01, lambda e: bool(recurring(e, []))),
    "levels of sets": (0.014, _beyond),
    LISTED: (0.05, _listed),
}
RINGS: Tests = {
    "ring, slow all along": (0.01, lambda e: bool(all_along(e))),
    "link by its past": (0.01, lambda e: any(not p.spikes for p in local_links(e))),
    "lossy link": (0.02, lambda e: any(p.spikes for p in local_links(e))),
    "a finding with a link": (0.04, lambda e: any(f.links for f in findings(e))),
    LISTED: (0.05, _listed),
}
BASELINE: Tests = {
    "a rank": (0.01, lambda e: e.compared is not None and bool(e.compared.slow_ranks)),
    "all ranks": (0.01, lambda e: e.compared is not None and bool(e.compared.slow_classes)),
    "transfers": (0.01, lambda e: e.compared is not None and e.compared.slow_groups is not None),
    "a finding against the baseline": (0.03, lambda e: any(f.reference == "baseline" for f in findings(e))),
}
FAMILIES: dict[str, Tests] = {
    "step times": STEP_TIMES,
    "rings": RINGS | {"lossy link, with recorder": (0.02, lambda _: False)},
    "baseline": BASELINE,
    "modes": modes.TESTS | {name: (0.01, lambda _: False) for name in modes.APART},
    "modelled": {LISTED: (0.05, _listed)},
}
"""Nominal size of every test. A rank is searched in its whole work and in each class, hence twice 1 %."""


def clock_skew(trace: Trace, rng: np.random.Generator) -> Trace:
    """The same trace with clocks that are off by up to half a millisecond."""
    off = rng.integers(-500_000, 500_000, 1 + int(trace.ops.rank.max()))[trace.ops.rank]
    return replace(trace, ops=trace.ops.replace(start_ns=trace.ops.start_ns + off, end_ns=trace.ops.end_ns + off))


CLOCKS = "clocks 0.5 ms off"
TRAFFIC = {
    "transfers, white": lambda rng, shape: rng.standard_normal(shape),
    "transfers, red, ρ = 0.8": lambda rng, shape: modes.red(rng, shape, 0.8),
    "transfers, heavy tails (t, 3 degrees)": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "transfers, hiccups (1 % three times as long)": lambda rng, shape: (
        rng.standard_normal(shape) + 40 * (rng.random(shape) < 0.01)
    ),
}
"""How long all links take in a step, of spread 5 %: demand that all share."""
RING_NULLS = (*rings.habits(np.random.default_rng(0), 1, 4), CLOCKS)


def ring_jobs(cell: Cell, rng: np.random.Generator, more: int = 1) -> tuple[rings.Jobs, int]:
    """Healthy rings under a null, ``more`` times as many steps as are traced; and how many ranks share a host."""
    at = RING_NULLS.index(cell.null) if cell.null in RING_NULLS else cell.seed
    ends = rings.habits(rng, cell.jobs, cell.ranks).get(cell.null) or rings.Ends(0.0, 50 * rings.US)
    # Collectives of one size say less than those of several; some jobs have one host, some many.
    shares, hosts = rings.SIZES if at % 2 else (1.0,), 1 if at % 3 or cell.null == CLOCKS else cell.ranks
    network = list(rings.NETWORKS)[at % len(rings.NETWORKS)]
    jobs = rings.shaped(cell.ranks, network, cell.jobs, ends, steps=more * cell.steps + 1, shares=shares)
    return jobs, hosts


def with_recorder(jobs: rings.Jobs, start: Any, end: Any, hosts: int, steps: int) -> Trace:
    """A job of which only the first steps were traced, and the calls of all steps, as its flight recorder holds them."""
    trace = rings.recorded(jobs, start[:steps], end[:steps], hosts)
    made = start[:, 1::2]
    step, at, rank = (index.ravel() for index in np.indices(made.shape))
    size = np.rint(np.array(jobs.shares) * (1 << 24)).astype(np.int64)
    calls = {
        "rank": rank, "group": np.zeros(len(rank), dtype=np.int64), "name": np.ones(len(rank), dtype=np.int64),
        "seq": step * len(jobs.shares) + at, "verb": np.full(len(rank), jobs.verb), "size": size[at],
        "created_ns": made.ravel(), "done": np.ones(len(rank), dtype=np.int64),
    }  # fmt: skip
    return replace(trace, calls=Table(Call, calls))


def _tables(cell: Cell) -> Iterator[tuple[Evidence, Tests]]:
    rng = cell.rng()
    for _ in range(cell.jobs):
        yield diagnosis.evidence(diagnosis.NULLS[cell.null](rng, cell.ranks, cell.steps)), STEP_TIMES


def _rings(cell: Cell) -> Iterator[tuple[Evidence, Tests]]:
    rng = cell.rng()
    jobs, hosts = ring_jobs(cell, rng, RECORDED)
    for start, end in zip(*rings.played(jobs, rng), strict=True):
        trace = with_recorder(jobs, start, end, hosts, cell.steps + 1)
        trace = clock_skew(trace, rng) if cell.null == CLOCKS else trace
        yield seen(replace(trace, calls=Table(Call, {}))), RINGS
        if len(trace.calls):
            yield seen(trace), {"lossy link, with recorder": RINGS["lossy link"]}


def _pairs(cell: Cell) -> Iterator[tuple[Evidence, Tests]]:
    rng = cell.rng()
    if cell.null in TRAFFIC:
        yield from _ring_pairs(cell, rng)
        return
    for _ in range(cell.jobs):
        for_good, pair = UNEQUAL * rng.standard_normal((cell.ranks, 1)), []
        for _ in range(2):
            moved = for_good + RANKS_VARY * rng.standard_normal((cell.ranks, 1)) + RUNS_VARY * rng.standard_normal()
            noise = diagnosis.NULLS[cell.null](rng, cell.ranks, cell.steps)
            pair.append(diagnosis.evidence(noise + moved / diagnosis.NOISE))
        yield beside(*pair), BASELINE


def _ring_pairs(cell: Cell, rng: np.random.Generator) -> Iterator[tuple[Evidence, Tests]]:
    jobs, hosts = ring_jobs(cell, rng)
    runs = []
    for _ in range(2):
        start, end = rings.played(jobs, rng)
        step = TRAFFIC[cell.null](rng, start.shape[:2])[..., None, None]
        times = (1 + LINKS_VARY * rng.standard_normal((len(start), 1, 1, 1))) * np.maximum(1 + 0.05 * step, 0.2)
        runs.append([seen(rings.recorded(jobs, a, b, hosts)) for a, b in zip(*_longer(start, end, times), strict=True)])
    for before, after in zip(*runs, strict=True):
        yield beside(before, after), BASELINE


def _longer(start: Any, end: Any, times: Any) -> tuple[Any, Any]:
    """The same runs, all collectives so many times as long."""
    start, end = start.copy(), end.copy()
    # Ops of a step follow each other; what the collectives take more moves all that comes after them.
    took = (end - start)[:, :, 1::2]
    opened = start[:, :, 1::2].max(axis=-1, keepdims=True)
    more = np.rint((times - 1) * (end[:, :, 1::2] - opened)).astype(np.int64)
    late = more.max(axis=-1)
    shift = np.cumsum(late.reshape(len(late), -1), axis=1).reshape(late.shape)
    before = (shift - late)[..., None]
    assert (took >= 0).all()
    start[:, :, ::2] += before
    end[:, :, ::2] += before
    start[:, :, 1::2] += before
    end[:, :, 1::2] += before + more
    return start, end


def _modes(cell: Cell) -> Iterator[tuple[Evidence, Tests]]:
    rng, draw = cell.rng(), modes.NULLS[cell.null]
    jobs = modes.healthy(rng, cell.jobs, draw, cell.steps)
    modes.unequal(jobs, rng, modes.between_micro_batches(jobs))
    for e in modes.evidence(jobs):
        yield e, modes.TESTS
    for name, happens in modes.APART.items():
        jobs = modes.healthy(rng, cell.jobs, draw, cell.steps)
        happens(jobs, rng)
        for e in modes.evidence(jobs):
            yield e, {name: (0.01, lambda e: split_group(e.graph) is not None)}


def _modelled(cell: Cell) -> Iterator[tuple[Evidence, Tests]]:
    for k in range(cell.jobs):
        yield seen(with_faults(cell.null, cell.ranks, cell.seed + k, (), cell.steps + 1)[0]), {LISTED: (0.05, _listed)}


PLAYED = {"step times": _tables, "rings": _rings, "baseline": _pairs, "modes": _modes, "modelled": _modelled}
NULLS: dict[str, Iterable[str]] = {
    "step times": diagnosis.NULLS,
    "rings": RING_NULLS,
    "baseline": (*diagnosis.NULLS, *TRAFFIC),
    "modes": modes.NULLS,
    "modelled": JOBS,
}


def count(cell: Cell) -> Counts:
    """Alarms of every test in a cell."""
    expect(float("inf"))  # thousands of small jobs: kernels are compiled from the first on
    hits, asked = Counter[str](), Counter[str]()
    for e, tests in PLAYED[cell.family](cell):
        for name, (_, test) in tests.items():
            hits[name] += bool(test(e))
            asked[name] += 1
    return {name: (hits[name], asked[name]) for name in asked}


def interval(hits: int, of: int) -> tuple[float, float]:
    """Wilson's, 95 %."""
    p, z2 = hits / of, Z * Z / of
    middle, half = (p + z2 / 2) / (1 + z2), sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def share(hits: int, of: int, nominal: float = 1.0) -> str:
    """A share in per cent with its interval, marked where it is above 1.5 × nominal."""
    if not of:
        return "–"
    low, high = interval(hits, of)
    mark = " ▲" if low > 1.5 * nominal else " △" if hits / of > 1.5 * nominal else ""
    return f"{100 * hits / of:.1f} ({100 * low:.1f}–{100 * high:.1f}){mark}"


Counts = dict[str, tuple[int, int]]
"""Of every test: alarms, and jobs that were asked."""


def pooled(counts: Iterable[Counts], test: str) -> tuple[int, int]:
    """Alarms and jobs of a test over some cells."""
    some = [one[test] for one in counts if test in one]
    return sum(hits for hits, _ in some), sum(of for _, of in some)


def tables(counted: dict[Cell, Counts]) -> None:
    """Every test by steps, by nulls, by ranks."""
    for word, key in (("steps", attrgetter("steps")), ("", attrgetter("null")), ("ranks", attrgetter("ranks"))):
        for family in FAMILIES:
            some = {cell: counts for cell, counts in counted.items() if cell.family == family}
            columns = list(dict.fromkeys(map(key, some)))
            if not columns:
                continue
            by = [[counts for cell, counts in some.items() if key(cell) == column] for column in columns]
            heads = [f"{column} {word}".strip() for column in columns] + ["all"]
            print(f"| {family}, % of healthy jobs | nominal | " + " | ".join(heads) + " |")
            print("|---|" + "---:|" * (len(heads) + 1))
            for test, (nominal, _) in FAMILIES[family].items():
                cells = [share(*pooled(counts, test), nominal) for counts in (*by, list(some.values()))]
                print(f"| {test} | *{100 * nominal:.1f}* | " + " | ".join(cells) + " |")
            print(flush=True)


def sizes(cells: Sequence[Cell], pool: Any, path: Path | None) -> None:
    """Count all cells; print the tables, and write every cell down."""
    counted: dict[Cell, Counts] = {}
    for cell, counts in zip(cells, pool.map(count, cells), strict=True):
        counted[cell] = counts
        alarms = {test: hits for test, (hits, _) in counts.items() if hits}
        print(f"{len(counted)} of {len(cells)}: {cell} {alarms}", file=sys.stderr, flush=True)
        if path is not None:
            rows = [{**asdict(c), "test": t, "hits": h, "of": n} for c, some in counted.items() for t, (h, n) in some.items()]
            path.write_text(json.dumps(rows))
    tables(counted)


SPREAD = 0.05
"""Of a step, in the tables of power."""


def _rank_slower(rng: np.random.Generator, ranks: int, steps: int, by: float) -> tuple[Evidence, Callable[[Finding], bool]]:
    noise = SPREAD * rng.standard_normal((ranks, steps))
    noise[-1] = (1 + noise[-1]) * (1 + by) - 1
    return diagnosis.evidence(noise / diagnosis.NOISE), lambda f: f.ranks == (ranks - 1,)


def _since_middle(rng: np.random.Generator, ranks: int, steps: int, by: float) -> tuple[Evidence, Callable[[Finding], bool]]:
    noise = SPREAD * rng.standard_normal((ranks, steps))
    noise[-1, steps // 2 :] += by
    return diagnosis.evidence(noise / diagnosis.NOISE), lambda f: f.ranks == (ranks - 1,)


def _two_slower(rng: np.random.Generator, ranks: int, steps: int, by: float) -> tuple[Evidence, Callable[[Finding], bool]]:
    noise = SPREAD * rng.standard_normal((ranks, steps))
    few = max(ranks // 8, 2)
    noise[-few:] += by
    return diagnosis.evidence(noise / diagnosis.NOISE), lambda f: f.ranks == tuple(range(ranks - few, ranks))


def _than_baseline(rng: np.random.Generator, ranks: int, steps: int, by: float) -> tuple[Evidence, Callable[[Finding], bool]]:
    pair = [SPREAD * rng.standard_normal((ranks, steps)) for _ in range(2)]
    pair[1][-1] += by
    before, after = (diagnosis.evidence(noise / diagnosis.NOISE) for noise in pair)
    return beside(before, after), lambda f: f.ranks == (ranks - 1,) and f.reference == "baseline"


def _all_than_baseline(
    rng: np.random.Generator, ranks: int, steps: int, by: float
) -> tuple[Evidence, Callable[[Finding], bool]]:
    pair = [SPREAD * rng.standard_normal((ranks, steps)) for _ in range(2)]
    pair[1] += by
    before, after = (diagnosis.evidence(noise / diagnosis.NOISE) for noise in pair)
    return beside(before, after), lambda f: f.mode == "silent degradation" and f.reference == "baseline"


def _link_slower(rng: np.random.Generator, ranks: int, steps: int, by: float) -> tuple[Evidence, Callable[[Finding], bool]]:
    jobs = rings.shaped(ranks, list(rings.NETWORKS)[int(rng.integers(3))], 1, rings.Ends(0.0, 50 * rings.US), steps=steps + 1)
    jobs.ends.habit = 0.3 * rings.MS * rng.random((1, ranks))
    jobs.slower[0, 2] = 1 + by
    (trace,) = rings.traces(jobs, rng)
    return seen(trace), lambda f: f.links == ("1:2",)


POWERS = {
    "a rank, all along": (_rank_slower, (0.2, 0.4, 0.8)),
    "a rank, since the middle": (_since_middle, (0.2, 0.4, 0.8)),
    "an eighth of the ranks (two at least), all along": (_two_slower, (0.2, 0.4, 0.8)),
    "a rank, against a baseline": (_than_baseline, (0.2, 0.4, 0.8)),
    "all ranks, against a baseline": (_all_than_baseline, (0.1, 0.2, 0.4)),
    "a link, all along": (_link_slower, (0.5, 1.0, 3.0)),
}


def found(asked: tuple[str, float, int, int, int, int]) -> int:
    """In how many jobs the first finding is the fault."""
    expect(float("inf"))
    name, by, ranks, steps, jobs, seed = asked
    rng = np.random.default_rng((seed, ranks, steps, round(100 * by), sum(map(ord, name))))
    hits = 0
    for _ in range(jobs):
        e, right = POWERS[name][0](rng, ranks, steps, by)
        hits += any(right(f) for f in diagnose(e)[:1])
    return hits


def powers(given: argparse.Namespace, pool: Any) -> None:
    """Table of what is found, first, by steps."""
    names = [name for name in POWERS if given.only in (None, "power") or given.only in name]
    rows = [(name, by, ranks) for name in names for by in POWERS[name][1] for ranks in given.ranks]
    asked = [(*row, steps, given.jobs, given.seed) for row in rows for steps in given.steps]
    hits = pool.map(found, asked)
    print(f"| slower (spread of a step {100 * SPREAD:.0f} %), {given.jobs} jobs: first finding, % | by | ranks | ", end="")
    print(" | ".join(f"{steps} steps" for steps in given.steps) + " |\n|---|---:|---:|" + "---:|" * len(given.steps))
    for name, by, ranks in rows:
        cells = " | ".join(f"{100 * next(hits) / given.jobs:.0f}" for _ in given.steps)
        print(f"| {name} | +{100 * by:.0f} % | {ranks} | {cells} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=40, help="jobs for every null, number of ranks and number of steps")
    parser.add_argument("--seed", type=int, default=5000)
    parser.add_argument("--steps", type=int, nargs="+", default=list(STEPS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--only", choices=(*FAMILIES, "power"))
    parser.add_argument("--null", help="nulls whose name begins like this")
    parser.add_argument("--json", type=Path, help="where every cell is written")
    given = parser.parse_args()
    cells = [
        Cell(family, null, ranks, steps, given.jobs, given.seed)
        for family in FAMILIES if given.only in (None, family)
        for null in NULLS[family] if null.startswith(given.null or "")
        for ranks in {"modes": [modes.RANKS], "modelled": [16]}.get(family, given.ranks)
        for steps in given.steps
    ]  # fmt: skip
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        if cells:
            sizes(cells, pool, given.json)
        if given.only in (None, "power"):
            powers(given, pool)


if __name__ == "__main__":
    main()
