"""Cases of accidents, short faults and stops, simulated, given to `taut analyze`, and held against the simulation's truth.

    python validation/accident_cases.py --seed 1 [--only NAME …] [--keep FOLDER]

The simulator, the writers and the judge are those of `fault_cases.py`; nothing of taut is imported. A case has a fault, which
is what somebody could mend, and beside it things that happened and are nobody's: they are played in both runs of the case, so
the truth is what mending the fault alone saves. What one or two steps carry alone is an accident, three steps of one rank are
not. Wants are those of `fault_cases.py`; `within` also says in which steps the span of the first finding has to lie, `parts`
which findings there have to be, each with what mending it alone saves, and `calm` that the run has to be called healthy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fault_cases import (
    Case,
    Job,
    Judged,
    World,
    ddp,
    dumps,
    fsdp,
    hosts_of,
    judge,
    kineto,
    links,
    main,
    overlapped,
    pipeline,
    slow,
    slow_link,
    step_times,
    tensor_data,
)


@dataclass
class Ground(World):
    """A world that can also stop a rank inside an op (ms, by the op's class), or slow it in some classes only."""

    inside: Callable[[int, int, str], float] = lambda rank, step, name: 0.0
    factor: Callable[[int, int, str], float] = lambda rank, step, name: 1.0


def beside(*worlds: World) -> Ground:
    """All of these at once."""
    grounds = [w for w in worlds if isinstance(w, Ground)]
    return Ground(
        work=lambda r, s: float(np.prod([w.work(r, s) for w in worlds])),
        pause=lambda r, s: sum(w.pause(r, s) for w in worlds),
        link=lambda a, b, s: float(np.prod([w.link(a, b, s) for w in worlds])),
        stall=lambda a, b, s: sum(w.stall(a, b, s) for w in worlds),
        inside=lambda r, s, name: sum(w.inside(r, s, name) for w in grounds),
        factor=lambda r, s, name: float(np.prod([w.factor(r, s, name) for w in grounds])),
    )


class Held(Job):
    """A job whose ops may be stopped inside."""

    def work(
        self, rank: int, step: int, name: str, ms: float, *, first: bool = False, lane: str = "main", part: int = -1
    ) -> int:
        i = super().work(rank, step, name, ms, first=first, lane=lane, part=part)
        if isinstance(self.world, Ground):
            op = self.ops[i]
            op.ms = op.ms * self.world.factor(rank, step, name) + self.world.inside(rank, step, name)
        return i


# --- what happens ------------------------------------------------------------------------------------------------------


def stops(rank: int, at: Mapping[int, float] | Iterable[int], ms: float = 100.0, where: str = "") -> Ground:
    """Stops of a rank in some steps: before its step, or inside its op of a class."""
    lost = dict(at) if isinstance(at, Mapping) else dict.fromkeys(at, ms)
    if not where:
        return Ground(pause=lambda r, s: lost.get(s, 0.0) if r == rank else 0.0)
    return Ground(inside=lambda r, s, name: lost.get(s, 0.0) if (r, name) == (rank, where) else 0.0)


def level(rank: int, by: float, steps: Iterable[int], where: str = "") -> Ground:
    """A rank that is slower in some steps, in all its work or in classes that begin so."""
    some = set(steps)
    return Ground(factor=lambda r, s, name: 1 + by if r == rank and s in some and name.startswith(where) else 1.0)


def lossy(link: tuple[int, int], at: Mapping[int, float] | Iterable[int], ms: float = 90.0) -> Ground:
    lost = dict(at) if isinstance(at, Mapping) else dict.fromkeys(at, ms)
    return Ground(stall=lambda a, b, s: lost.get(s, 0.0) if (a, b) == link else 0.0)


def machine(at: Iterable[int], ms: float = 150.0) -> Ground:
    """All ranks stop at once."""
    some = set(at)
    return Ground(pause=lambda r, s: ms if s in some else 0.0)


def together(ranks: Iterable[int], at: Iterable[int], ms: float = 120.0, where: str = "") -> Ground:
    """Ranks that stop in the same steps, each for its own time, 0.8 to 1.2 of `ms`."""
    steps, some = list(at), list(ranks)
    long = [ms * (0.8 + 0.4 * k / max(len(some) - 1, 1)) for k in range(len(some))]
    return beside(*(stops(r, steps, each, where) for r, each in zip(some, long, strict=True)))


def wandering(ranks: int, steps: int, spread: float, seed: int) -> Ground:
    """Red noise of every rank's work: a step remembers nine tenths of the one before."""
    g = np.random.default_rng(seed)
    at = spread * g.standard_normal(ranks)
    walk = np.empty((ranks, steps))
    for s in range(steps):
        walk[:, s] = at
        at = 0.9 * at + spread * np.sqrt(1 - 0.81) * g.standard_normal(ranks)
    return Ground(work=lambda r, s: float(np.exp(walk[r, s])))


def anybody(ranks: int, steps: int, rate: float, seed: int, ms: tuple[float, float] = (100, 200)) -> Ground:
    """Stops of any rank at any time, of at least and at most so many ms."""
    g = np.random.default_rng(seed)
    lost = np.where(g.random((ranks, steps)) < rate, g.uniform(*ms, (ranks, steps)), 0.0)
    return Ground(pause=lambda r, s: float(lost[r, s]))


def with_checkpoints(j: Job, every: int) -> Job:
    """As ddp, and every so many steps all ranks write a checkpoint behind it and meet."""
    ranks = range(j.ranks)
    for s in range(j.steps):
        for name, ms in (("forward", 40), ("backward", 50)):
            for r in ranks:
                j.work(r, s, name, ms, first=name == "forward")
        j.meet(list(ranks), s, "all-reduce", 60)
        for r in ranks:
            j.work(r, s, "optimizer", 5)
        if s % every == every - 1:
            for r in ranks:
                j.work(r, s, "checkpoint", 12)
            j.meet(list(ranks), s, "barrier", 0.001, group="checkpoints", algorithm="star")
    return j.play()


# --- cases -------------------------------------------------------------------------------------------------------------


@dataclass
class Part:
    """One of the faults of a case, which has to have one finding of exactly its ranks in its steps."""

    ranks: frozenset[int]
    steps: tuple[int, int]
    rest: World | None = None
    """What is left when it alone is mended; without it the price is not held against the truth."""


@dataclass
class Accident(Case):
    within: tuple[int, int] | None = None
    """Where the span of the first finding with a place has to lie, give or take a step: one noisy step is not told."""
    parts: tuple[Part, ...] = ()
    calm: bool = False
    """The class has to be healthy."""


@dataclass
class Cases:
    seed: int
    made: dict[str, Accident] = field(default_factory=dict)

    def add(
        self,
        name: str,
        want: str,
        ranks: int,
        steps: int,
        fault: World | None = None,
        *,
        ground: World | None = None,
        shape: Callable[..., Job] = ddp,
        shaped: Mapping[str, Any] | None = None,
        per_host: int = 1,
        job: Mapping[str, Any] | None = None,
        who: Iterable[int] = (),
        **more: Any,
    ) -> None:
        number = self.seed * 1000 + len(self.made)
        under = ground or World()

        def make(world: World) -> Job:
            held = Held(ranks, steps, number, beside(world, under), **{"hosts": hosts_of(ranks, per_host), **(job or {})})
            return shape(held, **(shaped or {}))

        self.made[name] = Accident(want, make, fault or World(), ranks=frozenset(who), **more)


def short_faults(c: Cases) -> None:
    """Faults of a few consecutive steps, and accidents beside them."""
    for n in (3, 4, 5):
        c.add(f"severe-{n}-steps", "find", 8, 30, level(5, 1.0, range(14, 14 + n)), who=[5], within=(14, 13 + n))
    c.add("severe-3-last-steps", "maybe", 8, 30, level(5, 1.0, range(27, 30)), who=[5], within=(27, 29))
    c.add("severe-2-steps", "nobody", 8, 30, ground=level(5, 1.0, range(14, 16)), lenient=True)
    c.add("severe-4-of-120", "find", 8, 120, level(5, 1.5, range(60, 64)), who=[5], within=(60, 63), note="4 % of the wall")
    c.add(
        "8-steps-other-rank-accident-inside",
        "find",
        8,
        40,
        level(2, 0.4, range(20, 28)),
        ground=stops(6, [23], 400),
        who=[2],
        within=(20, 27),
    )
    c.add(
        "8-steps-own-accident-inside",
        "find",
        8,
        40,
        beside(level(2, 0.4, range(20, 28)), stops(2, [23], 400)),
        who=[2],
        within=(20, 27),
        free=True,
        note="the accident is in the span of the fault: whether it is part of it nobody can say",
    )
    c.add(
        "level-own-accidents-far-outside",
        "find",
        8,
        40,
        level(2, 0.4, range(20, 32)),
        ground=stops(2, [3, 8], 400),
        who=[2],
        within=(20, 31),
    )
    c.add(
        "level-own-accidents-far-after",
        "find",
        16,
        60,
        level(9, 0.5, range(4, 16)),
        ground=stops(9, [40, 55], 300, "backward0"),
        who=[9],
        within=(4, 15),
    )
    c.add(
        "level-all-along-own-accident",
        "find",
        16,
        30,
        slow([9], 0.4),
        ground=stops(3, [11], 1000),
        who=[9],
    )
    drift = Ground(work=lambda r, s: 1 + 0.02 * max(0, s - 10) if r == 4 else 1.0)
    c.add(
        "drift-two-accidents-of-others", "find", 8, 40, drift, ground=beside(stops(1, [18], 400), stops(6, [31], 400)), who=[4]
    )
    c.add(
        "drift-two-own-accidents",
        "find",
        8,
        40,
        beside(drift, stops(4, [20, 33], 400)),
        who=[4],
        free=True,
        note="the accidents are in the span",
    )
    c.add("drift-own-accidents-before", "find", 8, 40, drift, ground=stops(4, [2, 6], 300), who=[4], within=(7, 39))


def accidents(c: Cases) -> None:
    """What one or two steps carry."""
    c.add("giant-stall", "nobody", 8, 40, ground=stops(3, [17], 1100), lenient=True)
    c.add("giant-stall-in-work", "nobody", 8, 40, ground=stops(3, [17], 1100, "backward1"), lenient=True)
    c.add("giant-stall-kineto", "nobody", 8, 20, ground=stops(3, [11], 1100), write=kineto, lenient=True)
    c.add("two-giant-stalls-one-rank", "nobody", 8, 40, ground=stops(3, [9, 23], 1100), lenient=True)
    c.add("two-giant-stalls-in-a-row", "nobody", 8, 40, ground=stops(3, [22, 23], 1100), lenient=True)
    c.add("two-giant-stalls-two-ranks", "nobody", 8, 40, ground=beside(stops(3, [9], 1100), stops(6, [23], 1100)), lenient=True)
    c.add("giant-stall-of-a-link", "nobody", 8, 40, ground=lossy((3, 4), [17], 600), lenient=True)
    c.add("two-giant-stalls-of-a-link", "nobody", 8, 40, ground=lossy((3, 4), [17, 29], 600), lenient=True)
    c.add("giant-stall-of-a-host", "nobody", 16, 40, ground=beside(*(stops(r, [17], 1100) for r in range(4, 8))), lenient=True)
    c.add(
        "three-stalls-unequal",
        "find",
        16,
        30,
        stops(3, {6: 300.0, 15: 1000.0, 24: 120.0}),
        who=[3],
        note="the third largest three times is worth 7 %",
    )
    c.add(
        "five-stalls-heavy-tailed",
        "find",
        16,
        40,
        stops(3, {4: 60.0, 11: 400.0, 19: 50.0, 27: 500.0, 35: 45.0}),
        who=[3],
        note="two of them carry most, the rest is worth 5 %",
    )
    c.add(
        "two-giants-and-two-small",
        "maybe",
        16,
        40,
        stops(3, {4: 25.0, 11: 900.0, 27: 900.0, 35: 25.0}),
        who=[3],
        lenient=True,
        note="without its two accidents the rank is not worth listing",
    )
    c.add("few-steps-two-accidents", "nobody", 8, 8, ground=beside(stops(1, [2], 300), stops(6, [5], 300)), lenient=True)
    c.add(
        "two-accidents-half-traced",
        "nobody",
        16,
        30,
        ground=beside(stops(2, [9], 500), stops(12, [20], 500)),
        per_host=4,
        write=lambda j, f: kineto(j, f, only=set(range(8))),
        lenient=True,
    )


def now_and_then(c: Cases) -> None:
    """Stops that come again."""
    c.add("every-10th-of-30", "find", 16, 30, stops(2, range(5, 30, 10)), who=[2], note="3 hits on 16 ranks")
    c.add("every-10th-of-30-8-ranks", "maybe", 8, 30, stops(2, range(5, 30, 10)), who=[2], note="3 hits on 8 ranks: 1.6 %")
    c.add("every-10th-of-60", "find", 8, 60, stops(2, range(5, 60, 10)), who=[2])
    c.add(
        "every-10th-of-60-step-times", "find", 8, 60, stops(2, range(5, 60, 10)), who=[2], write=step_times, job={"gb_s": 1e4}
    )
    for every in (4, 8):
        c.add(
            f"checkpoint-stall-every-{every}",
            "find",
            8,
            32,
            stops(3, range(every - 1, 32, every), 120, "checkpoint"),
            shape=with_checkpoints,
            shaped={"every": every},
            who=[3],
        )
    parts = beside(stops(5, [3, 6, 9], 80, "forward"), stops(5, [14, 18, 21], 80, "backward1"), stops(5, [26, 29, 33], 80))
    c.add("stops-in-all-classes", "find", 8, 36, parts, who=[5])
    c.add(
        "stops-in-all-classes-fsdp",
        "find",
        8,
        36,
        beside(stops(5, [3, 6, 9], 80, "forward1"), stops(5, [14, 18, 21], 80, "backward0"), stops(5, [26, 29, 33], 80)),
        shape=fsdp,
        who=[5],
    )
    c.add(
        "level-in-backward-stops-elsewhere",
        "find",
        8,
        40,
        beside(level(5, 0.4, range(12, 40), "backward"), stops(5, [15, 21, 30, 36], 120, "forward")),
        who=[5],
    )
    c.add(
        "level-in-backward-stops-in-gaps",
        "find",
        8,
        40,
        beside(level(5, 0.4, range(12, 40), "backward"), stops(5, [15, 21, 30, 36], 120)),
        who=[5],
    )
    c.add(
        "slow-first-third-stops-last-third",
        "find",
        8,
        36,
        beside(level(1, 0.4, range(12)), stops(1, [25, 28, 31, 34])),
        who=[1],
    )
    c.add(
        "level-late-three-stops-early",
        "find",
        16,
        40,
        beside(level(2, 0.4, range(24, 40), "backward"), stops(2, [3, 8, 14], 150)),
        who=[2],
    )
    everyone = beside(*(stops(r, [4 + r, 13 + r, 22 + r], 120) for r in range(8)))
    c.add(
        "level-late-everybody-stops",
        "maybe",
        8,
        60,
        level(2, 0.4, range(34, 60), "backward"),
        ground=everyone,
        who=[2],
        within=(34, 59),
        free=True,
        also=lambda f: not f["ranks"] and not f["links"],
        note="every rank stops three times, all before the fault: the stops are nobody's, and may be the first finding",
    )
    c.add(
        "level-late-machine-pauses",
        "find",
        8,
        40,
        level(2, 0.4, range(24, 40), "backward"),
        ground=machine([3, 8, 13, 19]),
        who=[2],
        within=(24, 39),
    )
    c.add(
        "level-and-another-stops",
        "find",
        16,
        40,
        beside(level(3, 0.3, range(40)), stops(11, [5, 12, 20, 27, 33], 150)),
        who=[3, 11],
    )
    host = beside(*(stops(r, [5, 11, 18, 24, 31, 37], 120) for r in range(4, 8)))
    c.add("host-stops-together", "find", 16, 40, host, per_host=4, who=range(4, 8))
    c.add(
        "stops-half-traced-inside",
        "maybe",
        16,
        30,
        stops(4, range(2, 30, 4), 120),
        per_host=4,
        who=[4],
        write=lambda j, f: kineto(j, f, only=set(range(8))),
    )
    c.add(
        "stops-half-traced-outside",
        "unknown",
        16,
        30,
        stops(12, range(2, 30, 3), 150),
        per_host=4,
        write=lambda j, f: kineto(j, f, only=set(range(8))),
    )
    c.add(
        "stops-tp-dp",
        "find",
        16,
        40,
        stops(9, [4, 13, 19, 26, 34], 120, "layer2"),
        shape=tensor_data,
        shaped={"tp": 4},
        per_host=4,
        who=[9],
    )
    c.add("stops-overlapped", "find", 8, 30, stops(6, [4, 9, 15, 22, 27], 120, "backward1"), shape=overlapped, who=[6])
    c.add(
        "stops-pipeline",
        "find",
        16,
        30,
        stops(6, [4, 9, 15, 22, 27], 120),
        shape=pipeline,
        shaped={"pp": 4},
        per_host=4,
        who=[6],
    )


def on_links(c: Cases) -> None:
    """Links, lossy and slow.

    A chunk that is held up half-way round a ring holds up everybody by its end: the trace may not tell which link it was.
    """
    hits = [4, 9, 13, 18, 22, 27, 33, 38]
    c.add("lossy-3", "maybe", 8, 40, lossy((2, 3), hits[1::3]), links=links("2:3"))
    c.add("lossy-5", "maybe", 8, 40, lossy((2, 3), hits[:5]), links=links("2:3"))
    c.add("lossy-8", "maybe", 8, 40, lossy((2, 3), hits), links=links("2:3"))
    sizes = {4: 300.0, 9: 60.0, 13: 40.0, 22: 250.0, 27: 50.0, 33: 70.0}
    c.add("lossy-6-heavy-tailed", "maybe", 8, 40, lossy((2, 3), sizes), links=links("2:3"))
    c.add(
        "lossy-pipeline",
        "maybe",
        16,
        30,
        lossy((5, 6), [2, 6, 10, 15, 18, 22, 25, 28], 15),
        shape=pipeline,
        shaped={"pp": 4},
        per_host=4,
        links=links("5:6"),
        also=lambda f: bool(f["links"]) and set(f["links"]) <= {"5:6", "6:5"},
        note="all six hops of a step are hit",
    )
    c.add("link-machine-pauses", "find", 8, 24, slow_link([(3, 4)], 4), ground=machine([4, 9, 15, 20]), links=links("3:4"))
    c.add(
        "link-since-machine-pauses",
        "find",
        8,
        30,
        slow_link([(3, 4)], 4, since=14),
        ground=machine([3, 9, 20, 26]),
        links=links("3:4"),
        within=(14, 29),
    )
    c.add("link-and-rank-accident", "find", 8, 24, slow_link([(3, 4)], 4), ground=stops(6, [11], 800), links=links("3:4"))


def few_steps(c: Cases) -> None:
    """Six to nine steps."""
    c.add("6-steps-level", "find", 16, 6, slow([5], 0.4), per_host=4, who=[5])
    c.add("6-steps-level-other-accident", "find", 16, 6, slow([5], 0.4), ground=stops(11, [3], 300), per_host=4, who=[5])
    c.add("7-steps-level-since-3", "maybe", 16, 7, slow([5], 0.5, since=3), per_host=4, who=[5])
    c.add("8-steps-host", "find", 16, 8, slow(range(4, 8), 0.4), per_host=4, who=range(4, 8), host="node1")
    c.add("8-steps-link", "find", 8, 8, slow_link([(3, 4)], 4), links=links("3:4"))
    c.add("9-steps-three-stops", "maybe", 16, 9, stops(5, [1, 4, 7], 150), per_host=4, who=[5])
    c.add("9-steps-five-stops", "find", 16, 9, stops(5, [0, 2, 4, 6, 8], 100), per_host=4, who=[5])
    c.add("6-steps-dumps", "maybe", 8, 6, slow([3], 0.5), write=dumps, who=[3], free=True)


def healthy(c: Cases) -> None:
    """Rare stops of any rank."""
    for ranks, rate in ((4, 0.01), (8, 0.01), (64, 0.002)):
        for steps in (30, 120):
            ground = anybody(ranks, steps, rate, c.seed * 77 + ranks + steps)
            more = {"algorithm": "star", "mb": 20} if ranks == 64 else {}
            c.add(
                f"stops-of-anybody-{ranks}x{steps}",
                "nobody",
                ranks,
                steps,
                ground=ground,
                shaped=more,
                per_host=8,
                lenient=True,
            )
    c.add("machine-pauses", "nobody", 8, 40, ground=machine([4, 9, 15, 22, 31, 36]), lenient=True)
    tails = {"draw_work": lambda g: 1 + 0.08 * abs(float(g.standard_t(2.5)))}
    c.add("heavier-tails", "nobody", 8, 60, job=tails, lenient=True)


def second_round(c: Cases) -> None:
    """Added after the first run: what its failures made worth asking."""
    throughout = beside(*(stops(r, [4 + r, 26 + r, 48 + r], 120) for r in range(8)))
    c.add(
        "level-late-everybody-stops-throughout",
        "maybe",
        8,
        60,
        level(2, 0.4, range(34, 60), "backward"),
        ground=throughout,
        who=[2],
        within=(34, 59),
        free=True,
        also=lambda f: not f["ranks"] and not f["links"],
        note="every rank stops three times, the slow one before and in its fault",
    )
    far = stops(2, [3, 33], 400)
    c.add("4-steps-own-accidents-far", "find", 16, 40, level(2, 0.8, range(18, 22)), ground=far, who=[2], within=(18, 21))
    two = beside(level(2, 0.5, range(5, 13)), level(2, 0.5, range(26, 34)))
    c.add("two-levels-own-accident-between", "find", 16, 40, two, ground=stops(2, [19], 500), who=[2])
    c.add("dense-then-rare-stops", "find", 8, 40, stops(4, [6, 7, 8, 9, 10, 18, 25, 31, 37], 90, "forward"), who=[4])


def third_round(c: Cases) -> None:
    """Several things at once, written by somebody who had not read the method, and healthy runs to be called so."""
    several_hosts(c)
    several_levels(c)
    hosts_in_other_shapes(c)
    calm_runs(c)


def several_hosts(c: Cases) -> None:
    """Hosts that stop, beside others."""
    first, second = together(range(4, 8), [5, 12, 19, 26, 33]), together(range(8, 12), [8, 15, 22, 29, 36])
    one, two = frozenset(range(4, 8)), frozenset(range(8, 12))
    c.add(
        "two-hosts-stop-in-turn",
        "find",
        16,
        40,
        beside(first, second),
        per_host=4,
        who=one | two,
        parts=(Part(one, (5, 33), second), Part(two, (8, 36), first)),
    )
    star = {"algorithm": "star", "mb": 20}
    c.add(
        "host-of-8-of-64-stops-4-times",
        "find",
        64,
        20,
        together(range(16, 24), [3, 8, 12, 17]),
        shaped=star,
        per_host=8,
        who=range(16, 24),
        host="node2",
        parts=(Part(frozenset(range(16, 24)), (3, 17), World()),),
    )
    slow_one = level(13, 0.3, range(40))
    c.add(
        "host-stops-other-rank-slow",
        "find",
        16,
        40,
        beside(first, slow_one),
        per_host=4,
        who=[*one, 13],
        parts=(Part(one, (5, 33), slow_one), Part(frozenset({13}), (0, 39), first)),
    )
    c.add(
        "three-of-a-host-stop",
        "find",
        16,
        40,
        together(range(4, 7), [5, 12, 19, 26, 33]),
        per_host=4,
        who=range(4, 7),
        note="the fourth rank of the host does not stop",
    )
    c.add(
        "switch-stops-ranks-of-two-hosts",
        "maybe",
        16,
        40,
        together([2, 3, 9, 10], [4, 11, 20, 27, 35]),
        per_host=4,
        who=[2, 3, 9, 10],
        note="mending some of them saves nothing",
    )
    c.add(
        "half-stops-together",
        "maybe",
        8,
        40,
        together([0, 2, 5, 7], [4, 11, 20, 27, 35]),
        per_host=4,
        who=[0, 2, 5, 7],
        also=lambda f: not f["ranks"] and not f["links"],
    )
    c.add("10-steps-host-stops", "maybe", 16, 10, together(range(4, 8), [2, 5, 8], 150), per_host=4, who=range(4, 8))


def several_levels(c: Cases) -> None:
    """Ranks with levels and stops, and two ranks with levels."""
    three = beside(level(2, 0.4, range(5, 14)), level(2, 0.6, range(25, 34)), level(2, 0.4, range(45, 54)))
    c.add(
        "three-levels-accidents-between",
        "find",
        16,
        60,
        three,
        ground=beside(stops(2, [19], 500), stops(7, [39], 500)),
        who=[2],
    )
    own = beside(level(5, 0.4, range(10, 25)), stops(5, [14, 19, 31, 36, 42, 47], 120))
    c.add(
        "level-stops-inside-and-after",
        "find",
        8,
        50,
        own,
        who=[5],
        parts=(Part(frozenset({5}), (10, 24)), Part(frozenset({5}), (31, 47))),
        note="whose the two stops inside are nobody can say: only the sum is held",
    )
    after, before = stops(5, [25, 31, 36, 42], 120), level(5, 0.4, range(3, 18))
    c.add(
        "level-then-stops",
        "find",
        16,
        48,
        beside(before, after),
        who=[5],
        parts=(Part(frozenset({5}), (3, 17), after), Part(frozenset({5}), (25, 42), before)),
    )
    pair = beside(level(3, 0.4, range(8, 28)), level(11, 0.4, range(18, 38)))
    c.add("levels-of-two-ranks-overlap", "find", 16, 40, pair, per_host=4, who=[3, 11])
    short = beside(level(5, 0.5, range(5)), stops(5, [7, 9, 11], 150))
    c.add("12-steps-level-and-stops", "maybe", 16, 12, short, per_host=4, who=[5])


def hosts_in_other_shapes(c: Cases) -> None:
    """Hosts that stop in jobs of other shapes and in other files."""
    at, one, two = [4, 9, 15, 22, 27], range(4, 8), range(8, 12)
    c.add("host-stops-fsdp", "find", 16, 30, together(two, at, 120, "forward1"), shape=fsdp, per_host=4, who=two, host="node2")
    staged = {"shape": pipeline, "shaped": {"pp": 4}}
    c.add("host-stops-pipeline-replica", "find", 16, 30, together(one, at, 60), per_host=4, who=one, **staged)
    by_stage = {"hosts": {r: f"node{r % 4}" for r in range(16)}}
    c.add(
        "host-stops-pipeline-stage",
        "maybe",
        16,
        30,
        together(range(2, 16, 4), at),
        job=by_stage,
        who=range(2, 16, 4),
        also=lambda f: f["stages"] == [2],
        note="the host holds all ranks of the stage: their peers stop, too",
        **staged,
    )
    c.add(
        "host-stops-tp-dp",
        "find",
        16,
        30,
        together(two, at, 120, "layer2"),
        shape=tensor_data,
        shaped={"tp": 4},
        per_host=4,
        who=two,
        note="the host is a tensor-parallel group",
    )
    c.add("host-stops-kineto", "find", 8, 24, together([2, 3], at[:4]), per_host=2, who=[2, 3], write=kineto, host="node1")
    for where, who, want in (("inside", one, "maybe"), ("outside", range(12, 16), "unknown")):
        c.add(
            f"host-stops-half-traced-{where}",
            want,
            16,
            24,
            together(who, at[:4], 150),
            per_host=4,
            who=who,
            write=lambda j, f: kineto(j, f, only=set(range(8))),
        )


def calm_runs(c: Cases) -> None:
    """Healthy and noisy: nobody is accused, and the run is called healthy."""
    for percent in (1, 3, 5):
        c.add(f"calm-jitter-{percent}", "nobody", 8, 30, job={"noise": percent / 100}, calm=True)
    c.add("calm-red-noise", "nobody", 8, 60, ground=wandering(8, 60, 0.02, c.seed * 31), calm=True)
    begins = Ground(work=lambda r, s: 1.3 if s < 3 else 1.0)
    c.add("calm-slow-start", "nobody", 8, 40, ground=begins, calm=True, note="the first three steps, on all ranks")
    tails = {"draw_work": lambda g: 1 + 0.03 * abs(float(g.standard_t(3)))}
    c.add("calm-heavy-tails", "nobody", 16, 40, job=tails, per_host=4, calm=True)
    c.add("calm-4x200", "nobody", 4, 200, job={"noise": 0.03}, calm=True)
    c.add(
        "calm-two-accidents", "nobody", 16, 30, ground=beside(stops(3, [7], 300), stops(12, [21], 300)), per_host=4, calm=True
    )
    c.add("calm-8-steps", "nobody", 8, 8, job={"noise": 0.04}, calm=True)
    c.add("calm-10-steps-accident", "nobody", 16, 10, ground=stops(6, [4], 200), per_host=4, calm=True)


def cases(seed: int) -> dict[str, Accident]:
    """All of them; `seed` moves every random number."""
    c = Cases(seed)
    for some in (short_faults, accidents, now_and_then, on_links, few_steps, healthy, second_round, third_round):
        some(c)
    return c.made


# --- judging -----------------------------------------------------------------------------------------------------------


def judged_with_span(case: Accident, name: str, folder: Path, taut: list[str]) -> Judged:
    """The judge of `fault_cases.py`, and the span of the first finding."""
    judged = judge(case, name, folder, taut)
    said = (folder / "stdout.json").read_text()
    findings = json.loads(said)["findings"] if said.startswith("{") else []
    judged.answer += "".join(f" [{f['steps'][0]}–{f['steps'][1]}]" for f in findings[:3] if f["steps"])
    spans = [f["steps"] for f in findings if f["steps"] and (f["ranks"] or f["links"])]
    if case.within and spans and (spans[0][0] < case.within[0] - 1 or spans[0][1] > case.within[1] + 1):
        judged.right = False
        said = f"span {spans[0][0]}–{spans[0][1]}, truth {case.within[0]}–{case.within[1]}"
        judged.why = "; ".join(filter(None, [judged.why, said]))
    more = _parts(case, findings, folder) if findings else []
    kind = judged.answer.split(":")[0].split(" ")[0]
    more += [f"called {kind}"] if case.calm and kind != "healthy" else []
    judged.right = judged.right and not more
    judged.why = "; ".join(filter(None, [judged.why, *more]))
    return judged


def _parts(case: Accident, findings: list[dict[str, Any]], folder: Path) -> list[str]:
    """What is wrong about the findings of its faults, one by one."""
    wrong: list[str] = []
    wall = json.loads((folder / "stdout.json").read_text())["job"]["wall_ns"]
    for part in case.parts:
        who = ",".join(map(str, sorted(part.ranks)))
        mine = [f for f in findings if set(f["ranks"]) == part.ranks and not f["links"] and _meets(f["steps"], part.steps)]
        if not mine:
            wrong.append(f"no finding of ranks {who} in {part.steps[0]}–{part.steps[1]}")
        elif part.rest is not None:
            alone = 1 - case.make(part.rest).wall / case.make(case.world).wall
            said = sum(f["recoverable_wall_ns"] for f in mine) / wall
            if abs(said - alone) > max(0.1 * alone, 0.01):
                wrong.append(f"ranks {who} alone recover {100 * said:.1f} %, truth {100 * alone:.1f} %")
    if len({id(f) for f in findings if f["ranks"]}) < len(case.parts):
        wrong.append(f"{len(findings)} findings of {len(case.parts)} faults")
    return wrong


def _meets(span: list[int] | None, steps: tuple[int, int]) -> bool:
    return not span or (span[0] <= steps[1] and span[1] >= steps[0])


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", cases, judged_with_span))
