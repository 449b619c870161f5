"""What became slower during a run: a rank in its own work, or a group of ranks in its transfers, and since when.

The reference is the same rank, or the same rendezvous, outside the span: the first choice of the design, because it needs
no peers, and because peers are slow too when a whole gate is. What all ranks share in a step is taken out first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from statistics import NormalDist

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from taut.core.array_types import Floats, Indices, Ints, Mask, Numbers
from taut.core.change_points import (
    LEAST_OUTSIDE,
    LEAST_STEPS,
    OUTLIER,
    Span,
    clipped,
    concentrated,
    heaped,
    levels,
    noise,
    outliers,
    ramp,
)
from taut.core.group_kernels import group_sort
from taut.core.ids import numbered, weighed
from taut.core.tables import Kind, Verb
from taut.diagnose.class_medians import class_medians
from taut.graph import Graph
from taut.replay.exposed import copies
from taut.replay.wait_kernels import describe_cells
from taut.replay.whatif import link_ends

LATE = 0.5
"""Members that end at least this share of the latest member's lateness later than before are receivers of slow links."""
WORTH = 0.03
"""Class names that hold less of the ranks' own work than this are not searched one by one."""
GREW, MATTERS = 1.2, 0.1
"""Transfers that take this much longer have grown; groups with less than that share of a rank's transfers do not count."""
ALIKE = 0.25
"""Quantile over ranks that speaks for all of them: a few that became slow do not move it."""
MINOR = 0.25
"""Links that are late by less than this share of the latest are not named: the others delay them."""
ALSO = 5.0
"""Standard errors by which other groups must be slower in the same span to count as slow with the worst."""
HELD = 2.0
"""The same for transfers of a rank that is known to be slow, in its span: nothing is searched for."""
CHUNK = 0.3
"""The receiver of a slow link ends a round later than the others: at least this share of what a round got longer by."""
LEAST_HICCUPS = 5
MOST_STALLS = 16
"""Ranks that may be said to stop now and then: those with the longest stops are asked."""
SPIKE = 0.1
"""Transfers that take less than this share of a step longer are no spikes: a busy host delays as much."""
FALSE_ALARMS = 0.02
"""Chance that spikes of a run, if it has any, are said to be of one place though they fall anywhere."""


class Place(Struct, frozen=True):
    """One rank, or some directed links, slower in windows first … last."""

    first: int
    last: int
    score: float
    spikes: bool
    extra_ns: float
    """Mean per window, ns."""
    tests: int = 1
    """Spans and series among which it is the best."""
    rank: int = -1
    """Index of the rank; -1 for links."""
    links: tuple[tuple[int, int], ...] = ()
    name: int = -1
    """Index of the class name that takes longer on all ranks; -1 for one rank, and for links."""
    grows: bool = False
    """Whether it gets slower from step to step."""
    gates: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Mask over the gates whose transfers it holds up; empty where a rank holds up none by itself."""

    @property
    def total_ns(self) -> float:
        """Over its windows."""
        return self.extra_ns * (self.last - self.first + 1)

    @property
    def link_names(self) -> tuple[str, ...]:
        """Its links, as ``sender:receiver``."""
        return tuple(f"{sender}:{receiver}" for sender, receiver in self.links)

    def holds(self, window: Indices) -> Mask:
        """Which windows lie in its span."""
        return (window >= self.first) & (window <= self.last)

    @property
    def owners(self) -> set[int]:
        """Ranks that all the links share: whose network interface it may be."""
        return shared_ends(self.links)


def shared_ends(links: Iterable[tuple[int, int]]) -> set[int]:
    """Ranks that all of some links have in common."""
    ends = [set(pair) for pair in links]
    return set.intersection(*ends) if ends else set()


class Slowdowns:
    """The series of a graph (work of ranks, transfers of groups, per step), and what changed in them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.windows, self.count = len(graph.steps), len(graph.ranks)
        self.own = (graph.ops.kind != Kind.COMMUNICATE) | copies(graph)

    @cached_property
    def classes(self) -> tuple[Ints, int]:
        """The same op of the same rank at the same place in the step."""
        ops = self.graph.ops
        return numbered(ops.rank, ops.name, ops.size, self.graph.place)

    def outside(self, values: Ints, first: int, last: int, but: Mask | None = None) -> Floats:
        """Median of an op's class outside windows first … last or outside ``but`` (a mask of ops); NaN where there is none."""
        window = self.graph.window
        use = (window < first) | (window > last) if but is None else ~but
        return class_medians(values, *self.classes, use)[self.classes[0]]

    def table(self, values: Numbers, key: Ints, count: int, window: Ints) -> Floats:
        """Sums of values by key (below ``count``) and window."""
        return weighed(key * self.windows + window, values, count * self.windows).reshape(count, self.windows)

    @cached_property
    def _busy(self) -> Floats:
        """Own work and gaps of every rank in every window, less what the others did more than usual in that window."""
        g, own = self.graph, self.own
        busy = self.table((g.work_ns + g.gap_ns)[own], g.rank_index[own], self.count, g.window[own])
        return self._by_itself(busy)

    def _by_itself(self, took: Floats) -> Floats:
        """Ranks × windows, less what those that do the same work did more than usual; a service alone is its own measure."""
        role = np.zeros(self.count, dtype=np.int64)
        if self.graph.trace.waits_recorded:
            role[self.graph.rank_index] = self.graph.roles
        out = took.astype(np.float64)
        for one in np.unique(role):
            kin = role == one
            if kin.sum() > 1:
                out[kin] -= _shared(took[kin])
        return out

    @cached_property
    def _by_name(self) -> Floats:
        """Work of every rank in every class name that holds some share of it, likewise: name by name, all ranks.

        What slows one kind of work only would drown in the noise of all the others.
        """
        y = [self._by_itself(one) for one in self.by_class[1]]
        return np.concatenate(y) if y else np.zeros((0, self.windows))

    @cached_property
    def by_class(self) -> tuple[Ints, Floats]:
        """Class names that hold some share of the ranks' own work; name × rank × window: their work."""
        g, own = self.graph, self.own
        share = weighed(g.ops.name[own], g.work_ns[own], len(g.names))
        chosen = np.flatnonzero(share >= WORTH * max(share.sum(), 1.0))
        where = np.full(len(g.names), -1)
        where[chosen] = np.arange(len(chosen))
        rows = np.flatnonzero(own & (where[g.ops.name] >= 0))
        key = where[g.ops.name[rows]] * self.count + g.rank_index[rows]
        took = self.table(g.work_ns[rows].astype(np.float64), key, len(chosen) * self.count, g.window[rows])
        return chosen, took.reshape(len(chosen), self.count, self.windows)

    @cached_property
    def on_all_ranks(self) -> list[Place]:
        """Classes whose work takes longer since some step, to the end, on nearly all ranks: their lower quartile."""
        if self.count < 2 or self.windows < LEAST_STEPS:
            return []
        names, took = self.by_class
        # A lower quartile grows only if nearly all ranks do, the quickest too.
        alike = [np.quantile(one[one.any(axis=1)], ALIKE, axis=0, method="lower") for one in took]
        middle = np.array(alike).reshape(len(names), self.windows)
        return [
            Place(s.first, s.last, s.score, False, _extra(middle[s.series], s), s.tests, name=int(names[s.series]), grows=grows)
            for s, grows in _shaped(middle, np.arange(len(names)))
            if s.first >= LEAST_OUTSIDE and s.last == self.windows - 1
        ]

    @cached_property
    def ranks(self) -> list[Place]:
        """Ranks that take longer by themselves: all the time since some step, or now and then."""
        if self.count < 2 or self.windows < LEAST_STEPS:
            return []
        found: dict[int, list[Place]] = defaultdict(list)
        for y in self._busy, self._by_name:
            for s, grows in _shaped(y, np.arange(len(y)) // self.count):
                extra, rank = _extra(y[s.series], s), s.series % self.count
                found[rank].append(Place(s.first, s.last, s.score, False, extra, s.tests, rank, grows=grows))
        return [*map(_joined, found.values()), *self._stalls(set(found))]

    def _stalls(self, known: set[int]) -> list[Place]:
        """Ranks that stop now and then: more spikes than chance would give them; transfers they take part in are held up."""
        spikes = outliers(self._busy)
        out = []
        above = self._busy - np.median(self._busy, axis=1, keepdims=True)
        place, weight = np.nonzero(spikes)[0], above[spikes]
        # One spike is an accident: ranks with two or more are asked, those with the longest stops first.
        often = np.flatnonzero(np.bincount(place, minlength=self.count) >= 2)
        total = weighed(place, weight, self.count)
        for rank in often[np.argsort(-total[often], kind="stable")][:MOST_STALLS].tolist():
            chance = heaped(weight, place == rank, 1 / self.count, self.count)
            if rank in known or chance >= FALSE_ALARMS:
                continue
            mine = self.stopped(rank)
            at = np.concatenate([np.flatnonzero(spikes[rank]), self.gates[0][mine]])
            span = Span(rank, int(at.min()), int(at.max()), _score(chance))
            out.append(Place(span.first, span.last, span.score, True, _extra(self._busy[rank], span), rank=rank, gates=mine))
        return out

    @cached_property
    def gates(self) -> tuple[Ints, Floats, Floats]:
        """Per gate: window, shortest and longest transfer of its members."""
        g = self.graph
        inside = g.gate >= 0
        gate, work = g.gate[inside], g.work_ns[inside]
        window, low, high = np.zeros(len(g.gates), dtype=np.int64), np.full(len(g.gates), np.inf), np.zeros(len(g.gates))
        window[gate] = g.window[inside]
        np.minimum.at(low, gate, work)
        np.maximum.at(high, gate, work)
        return window, low, high

    @cached_property
    def _groups(self) -> tuple[Ints, int]:
        """Who meets at a gate: the process group, or the two ends of a hop, in its direction."""
        g = self.graph
        sender, receiver = (np.full(len(g.gates), -1, dtype=np.int64) for _ in range(2))
        hops = np.flatnonzero((g.gate >= 0) & np.isin(g.ops.verb, (Verb.SEND, Verb.RECV)))
        ends = link_ends(g)
        sender[g.gate[hops]], receiver[g.gate[hops]] = ends[0][hops], ends[1][hops]
        return numbered(np.where(sender >= 0, -1, g.gates.group), sender, receiver)

    def _gates_of(self, rank: int) -> Mask:
        """Mask over the gates that a rank takes part in."""
        g = self.graph
        mine = np.zeros(len(g.gates), dtype=bool)
        mine[g.gate[(g.gate >= 0) & (g.rank_index == rank)]] = True
        return mine

    def stopped(self, rank: int) -> Mask:
        """Mask over the gates of a rank whose transfers took far longer than usual: what it holds up if it stops."""
        mine = self._gates_of(rank)
        return mine & np.isin(np.arange(len(mine)), self._hiccups[0])

    def slows_all_transfers(self, rank: int, first: int, last: int) -> bool:
        """Whether all transfers that a rank takes part in take longer in a span: then it is slow, not one of its links."""
        window, _, high = self.gates
        group, count = self._groups
        mine = self._gates_of(rank)
        inside = (window >= first) & (window <= last)
        took = [weighed(group[mine & part], high[mine & part], count) for part in (inside, ~inside)]
        steps = last - first + 1
        during, before = took[0] / steps, took[1] / max(self.windows - steps, 1)
        # Groups with little traffic are noisy, and do not decide.
        matter = before >= MATTERS * before.sum()
        return bool((during[matter] >= GREW * before[matter]).all())

    def held_up(self, place: Place) -> Mask:
        """Mask over the gates of a slow rank whose transfers take longer while it is slow: groups that meet it, one by one."""
        out = place.gates if len(place.gates) else np.zeros(len(self.graph.gates), dtype=bool)
        inside = place.holds(np.arange(self.windows))
        if not len(out) or self.windows < LEAST_STEPS or inside.all():
            return out
        window, _, high = self.gates
        group, count = self._groups
        mine = self._gates_of(place.rank)
        total = self.table(high[mine], group[mine], count, window[mine])
        met = np.flatnonzero(total.any(axis=1))
        z = clipped(total[met])
        # Difference of means in standard errors; the span is given, so there is no search to correct for.
        more = (z[:, inside].mean(axis=1) - z[:, ~inside].mean(axis=1)) / np.sqrt(1 / inside.sum() + 1 / (~inside).sum())
        return out | (mine & np.isin(group, met[more > HELD]))

    @cached_property
    def links(self) -> list[Place]:
        """Links behind the groups whose transfers take longer; then those whose transfers now and then take far longer."""
        g = self.graph
        if not len(g.gates) or self.count < 2 or self.windows < LEAST_STEPS:
            return []
        total = self.transfers
        found = [s for s in levels(total) if (total[s.series] > 0).all()]
        out = []
        # Groups that are slow at the same time are explained together, the worst first.
        while found:
            worst = max(found, key=lambda s: _extra(total[s.series], s))
            together = [s for s in found if min(s.last, worst.last) - max(s.first, worst.first) > 0]
            place = self.links_behind([*together, *_also(total, worst, {s.series for s in found})], worst, total)
            out += [place] if place.links else []
            found = [s for s in found if s not in together]
        lossy = self._lossy
        if lossy is None:
            return out
        # Losses may be dense for a while: the longer story is the better one, if both tell of the same place.
        same = [p for p in out if p.owners & lossy.owners and p.total_ns < lossy.total_ns]
        return [p for p in out if p not in same] + [lossy] if same or not out else out

    @cached_property
    def transfers(self) -> Floats:
        """Longest transfers of every group, summed by window."""
        window, _, high = self.gates
        return self.table(high, *self._groups, window)

    def links_behind(self, together: list[Span], worst: Span, total: Floats) -> Place:
        """The links that slow groups have in common: of every group those into the members that end later than before."""
        group, _ = self._groups
        gates = np.isin(group, [span.series for span in together])
        slower = {span: _extra(total[span.series], span) for span in together}
        late: dict[tuple[int, int], float] = defaultdict(float)
        for span in sorted(together, key=lambda s: -slower[s]):
            for pair, extra in self._late_links(group == span.series, span, slower[span]).items():
                late[pair] += extra
        links = tuple(pair for pair, extra in late.items() if extra >= MINOR * max(late.values()))
        if len(links) > 1 and not shared_ends(links):
            # Two places at once, noise in a small group, or a delay that the ring passes on: where most lateness meets.
            ends = dict.fromkeys(end for pair in links for end in pair)
            owner = max(ends, key=lambda end: sum(late[pair] for pair in links if end in pair))
            links = tuple(pair for pair in links if owner in pair)
        return Place(worst.first, worst.last, worst.score, False, sum(slower.values()), worst.tests, links=links, gates=gates)

    def _late_links(self, gates: Mask, span: Span, slower: float) -> dict[tuple[int, int], float]:
        """Links into the members that end later than before, and by how much (ns); of two that end alike, both ways."""
        g = self.graph
        rows, sender, receiver = (column[gates[g.gate[self._ends[0]]]] for column in self._ends)
        if not len(rows):
            return {}  # a barrier, or a verb whose algorithm is not known
        late = g.work_ns[rows] - self.gates[1][g.gate[rows]]
        pair, pairs = numbered(sender, receiver)
        series = self.table(late, pair, pairs, g.window[rows])
        extra = np.array([_extra(row, span) for row in series])
        clear = extra > np.maximum(LATE * extra.max(), 3 * noise(series) / np.sqrt(span.last - span.first + 1))
        # A slow link delays each of the 2(n − 1) rounds of a ring by a chunk, and its receiver ends one round later.
        if pairs > 2 and extra.max() < CHUNK * slower / (2 * (pairs - 1)):
            return {}  # all end together: the ring is slower, none of its links more than the others
        chosen = clear if clear.any() else np.ones(pairs, dtype=bool)
        first = np.zeros(pairs, dtype=np.int64)
        first[pair] = np.arange(len(rows))
        extra = extra if pairs > 2 else np.full(pairs, slower)  # two meet: both end when either does
        return {(int(sender[i]), int(receiver[i])): float(x) for i, x in zip(first[chosen], extra[chosen], strict=True)}

    @cached_property
    def _hiccups(self) -> tuple[Ints, Ints]:
        """Gates whose transfer took far longer than their class does, and the index of the rank that ended last in each."""
        g = self.graph
        if not len(g.gates):
            return (np.zeros(0, dtype=np.int64),) * 2
        high = self.gates[2]
        cls, count = numbered(self._groups[0], g.gates.name, g.gates.size)
        below, spread = describe_cells(-high, *group_sort(cls, count))  # the spread of the quick ones: spikes do not widen it
        far = high > -below[cls] + np.maximum(OUTLIER * np.nan_to_num(spread)[cls], SPIKE * np.median(self._busy))
        rows = np.flatnonzero((g.gate >= 0) & far[g.gate])
        rows = rows[g.work_ns[rows] >= high[g.gate[rows]]]
        gates, first = np.unique(g.gate[rows], return_index=True)
        return gates, g.rank_index[rows[first]]

    @cached_property
    def _ends(self) -> tuple[Ints, Ints, Ints]:
        """Ops that show how long a transfer over a link into their rank took, with that link's ends."""
        g = self.graph
        sender, receiver = link_ends(g)
        rows = np.flatnonzero((g.gate >= 0) & (sender >= 0) & (g.ops.rank == receiver))
        return rows, sender[rows], receiver[rows]

    @cached_property
    def _lossy(self) -> Place | None:
        """Lost packets: transfers that now and then take far longer, on the links of one rank more often than by chance."""
        g = self.graph
        gates, last = self._hiccups
        rows, sender, receiver = self._ends
        if len(gates) < LEAST_HICCUPS or not len(rows):
            return None
        slot, where = np.searchsorted(gates, g.gate[rows]).clip(0, len(gates) - 1), g.rank_index[rows]
        ended_last = (gates[slot] == g.gate[rows]) & (last[slot] == where)
        links = np.stack([sender, receiver], axis=1)
        hit, every = links[ended_last], np.unique(links, axis=0)
        chance, owner = min((self._chance(hit, every, rank), rank) for rank in np.unique(hit).tolist())
        if chance >= FALSE_ALARMS:
            return None
        its = (hit == owner).any(axis=1)
        mine = np.zeros(len(g.gates), dtype=bool)
        mine[g.gate[rows[ended_last][its]]] = True
        window, _, high = self.gates
        at = window[mine]
        extra = float((high[mine] - np.median(high)).sum() / (at.max() - at.min() + 1))
        pairs = tuple(sorted({(int(a), int(b)) for a, b in hit[its]}))
        return Place(int(at.min()), int(at.max()), _score(chance), True, extra, links=pairs, gates=mine)

    def _chance(self, hit: Ints, every: Ints, rank: int) -> float:
        """Chance that links of one rank are hit that often, if every link is as likely to be."""
        on, share = (hit == rank).any(axis=1), (every == rank).any(axis=1)
        return concentrated(int(on.sum()), len(hit), float(share.mean()), self.count)


def _also(y: Floats, worst: Span, known: set[int]) -> list[Span]:
    """Other series that are higher in the very span of the worst: what is known need not be searched for."""
    at = np.arange(y.shape[1])
    inside = (at >= worst.first) & (at <= worst.last)
    more = y[:, inside].mean(axis=1) - y[:, ~inside].mean(axis=1)
    # Each series by its own noise: groups move different amounts of data.
    score = more / (noise(y, np.arange(len(y))) * np.sqrt(1 / inside.sum() + 1 / (~inside).sum()))
    grew = np.median(y[:, inside], axis=1) >= GREW * np.median(y[:, ~inside], axis=1)
    rows = np.flatnonzero((score > ALSO) & grew & (y > 0).all(axis=1))
    return [Span(int(i), worst.first, worst.last, float(score[i])) for i in rows if i not in known]


def _shaped(y: Floats, kin: Ints) -> Iterator[tuple[Span, bool]]:
    """Spans in which series are higher, and whether they grow there; those that grow begin where the growth does."""
    for s in levels(y, kin):
        begin = ramp(y[s.series], s)
        yield (s, False) if begin is None else (replace(s, first=begin), True)


def _joined(places: list[Place]) -> Place:
    """What a rank's series say of it: the largest says how much, the clearest in which shape."""
    largest, clearest = max(places, key=lambda p: p.total_ns), max(places, key=lambda p: p.score)
    return replace(largest, grows=True, first=clearest.first) if clearest.grows else replace(largest, grows=False)


def _score(chance: float) -> float:
    """A chance as standard errors of a normal variable."""
    return NormalDist().inv_cdf(1 - max(chance, 1e-16))


def _shared(busy: Floats) -> Floats:
    """What the others did more than usual in a step, per rank: the median over them."""
    own = busy - np.median(busy, axis=1, keepdims=True)
    deviation = np.sort(own, axis=0)
    n = len(busy)
    # Leaving one of n sorted values out moves the middle by at most one place.
    below, above = (np.where(own <= deviation[at], deviation[at + 1], deviation[at]) for at in ((n - 2) // 2, (n - 1) // 2))
    return np.asarray(0.5 * (below + above))


def _extra(series: Floats, span: Span) -> float:
    """Mean inside the span above the mean outside it."""
    inside = series[span.first : span.last + 1]
    return float(inside.mean() - (series.sum() - inside.sum()) / max(len(series) - len(inside), 1))
