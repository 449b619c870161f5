"""Cases of two slow links of a ring, and of what looks like them, simulated, and held against the simulation's truth.

    python validation/ring_cases.py --seed 1 [--only NAME …] [--keep FOLDER]

Of two links of a ring that are equally slow, mending one saves nothing: both have to be named, and nobody else. The simulator,
the writers, the wants and the judge are those of `fault_cases.py` and `accident_cases.py`; nothing of taut is imported. Beyond
these, names are exact: the first finding that names anybody names all that is at fault, or one part of it that can be told
alone (`alone`), and recovers what mending just that saves, within 10 % (or 1 % of the wall clock); all findings together name
all of it and recover what mending all saves. Where nobody is at fault, the class is not *component*. Ranks share one host
unless a case says otherwise. The exit status is 1 where a case is wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from accident_cases import Accident, Cases, Ground, anybody, beside, judged_with_span
from fault_cases import Job, Judged, World, ddp, fsdp, kineto, links, main, op_table, overlapped, slow, slow_link, tensor_data

Link = tuple[int, int]
LARGE = {"mb": 200}
"""Buckets that take long beside the work."""


# --- cases -------------------------------------------------------------------------------------------------------------


@dataclass
class Exact(Accident):
    """A case whose first finding has to name all that is at fault, or one part of it, and to price what it names."""

    alone: tuple[tuple[frozenset[str], World], ...] = ()
    """Parts that may be told by themselves: their links or ranks, and what is left when they alone are mended."""
    alike: tuple[frozenset[str], ...] = ()
    """Other names of all that is at fault."""


class Named(Cases):
    """Cases whose names are exact, of ranks that share one host unless it is said otherwise."""

    def case(
        self,
        name: str,
        want: str,
        ranks: int,
        steps: int,
        fault: World | None = None,
        *,
        per_host: int = 0,
        alone: Iterable[tuple[frozenset[str], World]] = (),
        alike: tuple[frozenset[str], ...] = (),
        **more: Any,
    ) -> None:
        self.add(name, want, ranks, steps, fault, per_host=per_host or ranks, **more)
        self.made[name] = Exact(**vars(self.made[name]), alone=tuple(alone), alike=alike)

    def two_links(self, name: str, ranks: int, steps: int, times: Mapping[Link, float], **more: Any) -> None:
        """Two links that are so many times as slow, each of which may be told alone if that is priced as it is."""
        first, second = ((one, slow_link([one], by)) for one, by in times.items())
        alone = ((between(first[0]), second[1]), (between(second[0]), first[1]))
        self.case(
            name,
            "find",
            ranks,
            steps,
            beside(first[1], second[1]),
            links=between(*times),
            alone=alone,
            **{"shaped": LARGE} | more,
        )


def between(*some: Link) -> frozenset[str]:
    return links(*(f"{a}:{b}" for a, b in some))


def with_habits(habits: np.ndarray, shape: Callable[..., Job] = ddp) -> Callable[..., Job]:
    """A shape in which every rank ends its collectives so many ms late."""

    def shaped(j: Job, **more: Any) -> Job:
        j.habit = habits
        return shape(j, **more)

    return shaped


def hosts_unknown(j: Job, folder: Path) -> None:
    """The op table without the column of hosts."""
    op_table(j, folder, drop=("host",))


def two_links(c: Named) -> None:
    """Two links of one ring: how far apart, how slow, in how many ranks and steps, in which shapes and files."""
    c.two_links("ddp8-opposite-3x", 8, 12, {(1, 2): 3, (5, 6): 3})
    c.two_links("ddp12-adjacent-2x", 12, 12, {(4, 5): 2, (5, 6): 2})
    c.two_links("ddp16-4x-3.8x", 16, 12, {(2, 3): 4, (9, 10): 3.8})
    c.two_links("ddp16-4x-2x", 16, 12, {(2, 3): 4, (9, 10): 2})
    c.two_links("ddp32-close-3x", 32, 8, {(3, 4): 3, (5, 6): 3})
    c.two_links("ddp64-opposite-4-steps-5x", 64, 4, {(10, 11): 5, (42, 43): 5})
    c.two_links("ddp128-3-steps-3x", 128, 3, {(10, 11): 3, (90, 91): 3})
    c.two_links("ddp8-2-steps-3x", 8, 2, {(1, 2): 3, (5, 6): 3})
    c.two_links("ddp16-3-steps-2x", 16, 3, {(1, 2): 2, (6, 7): 2})
    c.two_links("ddp8-one-link-between-2x", 8, 10, {(1, 2): 2, (3, 4): 2})
    c.two_links("ddp8-both-of-rank-0-3x", 8, 10, {(0, 1): 3, (7, 0): 3}, note="one interface, that of rank 0")
    c.two_links("ddp16-hosts-unknown-3x", 16, 10, {(2, 3): 3, (9, 10): 3}, write=hosts_unknown)
    c.two_links("fsdp16-5x", 16, 8, {(3, 4): 5, (12, 13): 5}, shape=fsdp, shaped={})
    c.two_links("overlapped8-5x", 8, 12, {(0, 1): 5, (3, 4): 5}, shape=overlapped)
    c.two_links("kineto8-3x", 8, 8, {(1, 2): 3, (5, 6): 3}, write=kineto)
    order = [0, 5, 2, 7, 4, 1, 6, 3]
    c.two_links("shuffled-order-3x", 8, 12, {(5, 2): 3, (1, 6): 3}, job={"order": order}, note=f"the ring goes {order}")
    c.two_links("whole-chunks-room-1-3x", 8, 12, {(1, 2): 3, (5, 6): 3}, job={"pieces": 1, "room": 1}, note="as Gloo's rings")
    c.two_links("deep-buffers-16-2x", 16, 12, {(1, 2): 2, (6, 7): 2}, job={"room": 8})
    c.two_links("loops4-16-2x", 16, 12, {(1, 2): 2, (8, 9): 2}, job={"loops": 4}, note="the buffer goes round four times")


def more_places(c: Named) -> None:
    """Two interfaces, two rings, three links, links of some steps, and slow links beside other things."""
    nics = ((2, 3), (3, 4), (10, 11), (11, 12))
    owners = frozenset({3, 11})
    c.case(
        "two-interfaces-3x",
        "find",
        16,
        10,
        slow_link(nics, 3),
        links=between(*nics),
        who=owners,
        also=lambda f: not f["links"] and set(f["ranks"]) == owners,
        alike=(between(*nics), frozenset(map(str, owners))),
        shaped=LARGE,
        note="all links of ranks 3 and 11: either the links or the ranks are the names",
    )
    tp: dict[str, Any] = {"shape": tensor_data, "shaped": {"tp": 2}}
    c.two_links("two-rings-5x", 16, 10, {(4, 6): 5, (9, 11): 5}, note="one link in each of two rings", **tp)
    three = ((1, 2), (6, 7), (11, 12))
    c.case("three-links-3x", "find", 16, 12, slow_link(three, 3), links=between(*three), shaped=LARGE)
    pair = ((1, 2), (5, 6))
    both, names = slow_link(pair, 3), between(*pair)
    early = Ground(link=lambda a, b, s: 4.0 if (a, b) in pair and s < 8 else 1.0)
    c.case("two-links-since-half", "find", 8, 16, slow_link(pair, 4, since=8), links=names, shaped=LARGE)
    c.case("two-links-first-half", "find", 8, 16, early, links=names, shaped=LARGE)
    third, fifth, one = slow([3], 0.4), slow([5], 0.4), slow_link([(1, 2)], 3)
    c.case(
        "two-links-and-slow-rank",
        "find",
        8,
        16,
        beside(both, third),
        links=names,
        who=[3],
        alone=((frozenset({"3"}), both), (names, third)),
        shaped=LARGE,
    )
    c.case(
        "one-link-and-slow-rank",
        "find",
        8,
        16,
        beside(one, fifth),
        links=between((1, 2)),
        who=[5],
        alone=((frozenset({"5"}), one), (between((1, 2)), fifth)),
        shaped=LARGE,
    )
    stops = anybody(8, 30, 0.2, c.seed * 101 + 7, (60, 100))
    c.case("two-links-everybody-stops", "find", 8, 30, slow_link(pair, 4), ground=stops, links=names, shaped=LARGE)


def slower_by_design(c: Named) -> None:
    """Links between hosts that are slower for good, and slow links among them."""
    design: dict[str, Any] = {"job": {"between_hosts": 3.0}, "shaped": LARGE}
    c.case("four-hosts-3x-healthy", "nobody", 16, 12, per_host=4, **design)
    c.case("two-hosts-3x-healthy", "nobody", 16, 12, per_host=8, **design)
    c.case("four-hosts-3x-unknown-healthy", "nobody", 16, 12, per_host=4, write=hosts_unknown, **design)
    inner = between((2, 3))
    c.case("two-hosts-3x-one-inside-6x", "find", 16, 12, slow_link([(2, 3)], 6), per_host=8, links=inner, **design)
    c.two_links("two-hosts-3x-two-inside-6x", 16, 12, {(2, 3): 6, (11, 12): 6}, per_host=8, **design)
    c.two_links("two-of-four-between-hosts-3x", 16, 12, {(3, 4): 3, (11, 12): 3}, per_host=4)
    outer = between((7, 8))
    c.case("one-of-two-between-hosts-4x", "find", 16, 12, slow_link([(7, 8)], 4), per_host=8, links=outer, shaped=LARGE)
    mixed = {(7, 8): 4, (3, 4): 8}
    c.two_links(
        "two-hosts-2x-one-between-one-inside", 16, 12, mixed, per_host=8, job={"between_hosts": 2.0}, note="both 8 times"
    )


def habits(c: Named) -> None:
    """Ranks that always end their collectives late, each by its own ms: healthy, and beside two links."""

    def drawn(ranks: int, most: float) -> np.ndarray:
        return np.random.default_rng(c.seed * 31 + 5).uniform(0, most, ranks)

    def sawtooth(ranks: int, teeth: int, by: float, spread: float = 0.1) -> np.ndarray:
        """Rising with the rank by `by`, or falling, anew after so many ranks, as the ends of a ring with slow links do."""
        place = np.arange(ranks) % teeth
        return np.asarray((by * place if by > 0 else -by * (teeth - 1 - place)) + drawn(ranks, spread))

    def nobody(name: str, ranks: int, steps: int, late: np.ndarray, shape: Callable[..., Job] = ddp, **more: Any) -> None:
        c.case(name, "nobody", ranks, steps, shape=with_habits(late, shape), **{"shaped": LARGE} | more)

    nobody("habits-3ms-healthy", 8, 12, drawn(8, 3))
    nobody("habits-3ms-2-steps-healthy", 12, 2, drawn(12, 3))
    nobody("sawtooth-up-healthy", 16, 12, sawtooth(16, 8, 0.5), per_host=8)
    nobody("sawtooth-down-hosts-unknown-healthy", 16, 12, sawtooth(16, 8, -0.9), per_host=8, write=hosts_unknown)
    nobody("sawtooth-down-9ms-healthy", 8, 12, sawtooth(8, 4, -3.0, 0.2), per_host=4)
    nobody("sawtooth-up-fsdp-healthy", 16, 8, sawtooth(16, 8, 0.8), fsdp, shaped={})
    c.two_links("habits-1ms-3x", 8, 12, {(1, 2): 3, (4, 5): 3}, shape=with_habits(drawn(8, 1)))
    c.two_links("habits-3ms-3x", 16, 12, {(1, 2): 3, (8, 9): 3}, shape=with_habits(drawn(16, 3)))


def cases(seed: int) -> dict[str, Accident]:
    """All of them; `seed` moves every random number."""
    c = Named(seed)
    for some in (two_links, more_places, slower_by_design, habits):
        some(c)
    return c.made


# --- judging -----------------------------------------------------------------------------------------------------------


def judged_by_name(case: Exact, name: str, folder: Path, taut: list[str]) -> Judged:
    """The judge of `accident_cases.py`, and what the first finding that names anybody names and recovers."""
    judged = judged_with_span(case, name, folder, taut)
    said = (folder / "stdout.json").read_text()
    more = _exactly(case, json.loads(said)) if said.startswith("{") else []
    judged.right = judged.right and not more
    judged.why = "; ".join(filter(None, [judged.why, *more]))
    return judged


def _exactly(case: Exact, result: dict[str, Any]) -> list[str]:
    if case.want == "nobody":
        return ["class component"] if result["verdict"]["class"] == "component" else []
    findings, whole = result["findings"], case.links | {str(r) for r in case.ranks}
    named = [(f, names) for f in findings if (names := frozenset(f["links"]) or frozenset(map(str, f["ranks"])))]
    if not named or (len(findings) == 1 and named[0][1] == whole):
        return []  # The judge has said all there is to say.
    first, names = named[0]
    left = {one: World() for one in (whole, *case.alike)} | dict(case.alone)
    if names not in left:
        return [f"the first names {', '.join(sorted(names))}"]
    truth = 1 - case.make(left[names]).wall / case.make(case.world).wall
    said = first["recoverable_wall_ns"] / result["job"]["wall_ns"]
    fits = abs(said - truth) <= max(0.1 * truth, 0.01)
    return [] if fits else [f"the first recovers {100 * said:.1f} %, truth {100 * truth:.1f} %"]


if __name__ == "__main__":
    sys.exit(main(__doc__ or "", cases, judged_by_name))
