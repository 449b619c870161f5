"""What became slower during a run: a rank in its own work, or a group of ranks in its transfers, and since when.

The reference is the same rank, or the same rendezvous, outside the span: the first choice of the design, because it needs
no peers, and because peers are slow too when a whole gate is. What all ranks share in a step is taken out first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from statistics import NormalDist

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask, Numbers
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
from taut.core.ids import coded, numbered, weighed
from taut.core.scratch import kept
from taut.core.tables import Kind, Verb
from taut.diagnose.class_medians import class_medians
from taut.diagnose.recorded_hiccups import recorded_hiccups
from taut.graph import Graph
from taut.graph.staircase import LIKE, staircase
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
LASTING = 10
"""Steps for which all ranks must have been slower, to the end of the run: demand that all share comes and goes."""
ROSE = 0.5
"""Nearly all ranks rise by at least this share of what their quantile rises by."""
MINOR = 0.25
"""Links that are late by less than this share of the latest are not named: the others delay them."""
ALSO = 5.0
"""Standard errors by which other groups must be slower in the same span to count as slow with the worst."""
HELD = 2.0
"""The same for transfers of a rank that is known to be slow, in its span: nothing is searched for."""
CHUNK = 0.3
"""Behind a slow link members end a round apart, half of them at least: by this share of what a round got longer by."""
LEAST_HICCUPS = 5
MOST_SPANS = 4
"""Spans in which one series of a rank may be higher, each with a level of its own."""
MOST_STALLS = 16
"""Ranks that may be said to stop now and then: those with the longest stops are asked."""
SPIKE = 0.05
"""Transfers that take less than this share of a step longer, or less than twice as long as usual, are no spikes: a busy host
delays as much."""
FEW_LINKS = 0.25
"""Ranks whose links are more than this share of all are not asked whether spikes fall on them: they would by chance."""
RECURS = 3
"""Steps from which something recurs, where there are enough to tell: one or two are accidents."""
LONGER_STORY = 1.25
"""Stops of a rank that cost so many times what a level of it does, at the same time, are what it has."""
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
    def classes(self) -> tuple[Codes, int]:
        """The same op of the same rank at the same place in the step."""
        ops = self.graph.ops
        return coded(ops.rank, ops.name, ops.size, self.graph.place)

    def let_go(self) -> None:
        """Let go of the class of every op, which is found again when asked."""
        self.__dict__.pop("classes", None)

    def outside(self, values: Ints, ops: Ints, first: int, last: int, but: Mask | None = None) -> Floats:
        """For each of ``ops``: median of its class outside windows first … last or outside ``but`` (a mask of ops).

        NaN where there is none.
        """
        cls, count = self.classes
        asked = np.zeros(count, dtype=bool)
        asked[cls[ops]] = True
        kin = np.flatnonzero(asked[cls])
        window = self.graph.window[kin]
        use = (window < first) | (window > last) if but is None else ~but[kin]
        return class_medians(values[kin], cls[kin], count, use)[cls[ops]]

    def table(self, values: Numbers, key: Indices, count: int, window: Indices) -> Floats:
        """Sums of values by key (below ``count``) and window."""
        cell = kept(key.astype(np.int64, copy=False) * self.windows + window)
        return weighed(cell, values, count * self.windows).reshape(count, self.windows)

    @cached_property
    def _busy(self) -> Floats:
        """Own work and gaps of every rank in every window, less what the others did more than usual in that window."""
        g, own = self.graph, self.own
        busy = self.table(kept((g.work_ns + g.gap_ns)[own]), g.rank_index[own], self.count, g.window[own])
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
            if s.first >= LEAST_OUTSIDE
            and s.last == self.windows - 1
            and s.last - s.first + 1 >= LASTING
            and _on_most(took[s.series], s, middle[s.series])
        ]

    @cached_property
    def ranks(self) -> list[Place]:
        """Ranks that take longer by themselves: all the time since some step, or now and then."""
        if self.count < 2 or self.windows < LEAST_STEPS:
            return []
        found: dict[int, list[Place]] = defaultdict(list)
        for y in self._busy, self._by_name:
            spans = list(_shaped(y, np.arange(len(y)) // self.count, MOST_SPANS))
            for s, grows in spans:
                others = [other for other, _ in spans if other.series == s.series and other is not s]
                extra, rank = _extra(y[s.series], s, others), s.series % self.count
                found[rank].append(Place(s.first, s.last, s.score, False, extra, s.tests, rank, grows=grows))
        joined = [_joined(places) for mine in found.values() for places in _overlapping(mine)]
        for stall in self._stalls(set(found)):
            same = [p for p in joined if _tells_more(stall, p) and self._stops_outside(p)]
            joined = [p for p in joined if p not in same]
            if same:
                joined.append(replace(stall, score=same[0].score, tests=same[0].tests))
            elif stall.rank not in found:
                joined.append(stall)
        return joined

    def _stalls(self, known: set[int]) -> list[Place]:
        """Ranks that stop now and then: more spikes than chance would give them; transfers they take part in are held up.

        Those that are known to be slow need no chance: three spikes tell since when and how often they stop.
        """
        spikes = self._spikes
        out = []
        above = self._busy - np.median(self._busy, axis=1, keepdims=True)
        place, weight = np.nonzero(spikes)[0], above[spikes]
        # One spike is an accident: ranks with two or more are asked, those with the longest stops first.
        often = np.flatnonzero(np.bincount(place, minlength=self.count) >= 2)
        total = weighed(place, weight, self.count)
        for rank in often[np.argsort(-total[often], kind="stable")][:MOST_STALLS].tolist():
            chance = heaped(weight, place == rank, 1 / self.count, self.count)
            at = np.flatnonzero(spikes[rank])
            if chance >= FALSE_ALARMS and not (rank in known and len(at) >= RECURS):
                continue
            at = np.append(at, np.flatnonzero(self._late(rank)).max())
            # A transfer may still be held up in the next step; one long before, as while a job warms up, was not by this.
            held = self.stopped(rank) & (self.gates[0] >= at[0]) & (self.gates[0] <= at.max() + 1)
            at = np.concatenate([at, self.gates[0][held]])
            span = Span(rank, int(at.min()), int(at.max()), _score(chance))
            out.append(Place(span.first, span.last, span.score, True, _extra(self._busy[rank], span), rank=rank, gates=held))
        return out

    @cached_property
    def _spikes(self) -> Mask:
        """Ranks × windows: where the work and gaps of a rank stand far above what it usually does."""
        return outliers(self._busy)

    def _late(self, rank: int) -> Mask:
        """Windows in which a rank with spikes is held up: a stop may last for several, of which the first is its spike."""
        above = self._busy[rank] - np.median(self._busy[rank])
        out: Mask = above >= LATE * np.median(above[self._spikes[rank]])
        return out

    def _stops_outside(self, level: Place) -> bool:
        """Whether a rank stops in three steps beside a level of it: the level's own steps, and two accidents, are no stops."""
        return bool((self._late(level.rank) & ~level.holds(np.arange(self.windows))).sum() >= RECURS)

    @cached_property
    def gates(self) -> tuple[Ints, Floats, Floats]:
        """Per gate: window, shortest and longest transfer of its members."""
        g = self.graph
        inside = g.gate >= 0
        gate, work = g.gate[inside], g.work_ns[inside].astype(np.float64)
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
        # A slow link delays each of the 2(n − 1) rounds of a ring by a chunk, and its receiver ends last of a staircase.
        if pairs > 2 and extra.max() < CHUNK * (pairs // 2) * slower / (2 * (pairs - 1)):
            return {}  # all end together: the ring is slower, none of its links more than the others
        first = np.zeros(pairs, dtype=np.int64)
        first[pair] = np.arange(len(rows))
        chosen = clear if clear.any() else np.ones(pairs, dtype=bool)
        if pairs > 2 and clear.any():
            chosen = _last_of_staircase(sender[first], receiver[first], extra, clear)
        extra = extra if pairs > 2 else np.full(pairs, slower)  # two meet: both end when either does
        return {(int(sender[i]), int(receiver[i])): float(x) for i, x in zip(first[chosen], extra[chosen], strict=True)}

    @cached_property
    def _step_ns(self) -> float:
        """Median length of a window."""
        g = self.graph
        most = np.iinfo(np.int64)  # whole numbers as the times are: numpy is slow where it must convert each of them
        begin, end = np.full(self.windows, most.max), np.full(self.windows, most.min)
        np.minimum.at(begin, g.window, g.ops.start_ns)
        np.maximum.at(end, g.window, g.ops.end_ns)
        held = end > begin
        return float(np.median((end[held] - begin[held]).astype(np.float64))) if held.any() else 0.0

    @cached_property
    def _hiccups(self) -> tuple[Ints, Ints]:
        """Gates whose transfer took far longer than their class does, and the op of the receiver that was held up first.

        A delay on a link reaches those downstream of it, as far as rounds are left: of the members that end late the one
        furthest upstream is the receiver. Where all end late there is no place (-1).
        """
        g = self.graph
        if not len(g.gates):
            return (np.zeros(0, dtype=np.int64),) * 2
        high = self.gates[2]
        cls, count = numbered(self._groups[0], g.gates.name, g.gates.size)
        below, spread = describe_cells(-high, *group_sort(cls, count))  # the spread of the quick ones: spikes do not widen it
        usual = -below[cls]
        far = high > usual + np.maximum.reduce([OUTLIER * np.nan_to_num(spread)[cls], usual, np.full(len(cls), self._least_ns)])
        gates, held = np.flatnonzero(far), np.full(len(far), -1)
        rows, sender, receiver = (column[far[g.gate[self._ends[0]]]] for column in self._ends)
        gate = g.gate[rows]
        late = g.work_ns[rows] >= usual[gate] + LATE * (high - usual)[gate]
        at, before = (gate * self.count + np.searchsorted(g.ranks, end) for end in (receiver, sender))
        first = late & (~np.isin(before, at[late]) | np.isin(g.ops.verb[rows], (Verb.SEND, Verb.RECV)))
        alone = first & (np.bincount(gate[first], minlength=len(far))[gate] == 1)
        alone |= self._in_pair[gate]  # two that meet end together, and are the place themselves
        held[gate[alone]] = rows[alone]
        return gates, held[gates]

    @cached_property
    def _in_pair(self) -> Mask:
        """Mask over the gates of two members, each of which sends to the other: which of the two links is slow is not told."""
        out: Mask = np.bincount(self.graph.gate[self._ends[0]], minlength=len(self.graph.gates)) == 2
        return out

    def without_hiccups(self) -> Ints:
        """Work of every op if no transfer took far longer than its class does, ns."""
        g, (gates, _) = self.graph, self._hiccups
        far = np.append(np.isin(np.arange(len(g.gates)), gates), False)[g.gate]
        ops, work = np.flatnonzero(far), g.work_ns.copy()
        usual = self.outside(work, ops, 0, -1, far)
        shorter = usual < work[ops]
        work[ops[shorter]] = usual[shorter].astype(np.int64)
        return work

    @property
    def _least_ns(self) -> float:
        return SPIKE * self._step_ns

    @cached_property
    def _ends(self) -> tuple[Ints, Codes, Codes]:
        """Ops that show how long a transfer over a link into their rank took, with that link's ends."""
        g = self.graph
        sender, receiver = link_ends(g)
        rows = np.flatnonzero((g.gate >= 0) & (sender >= 0) & (g.ops.rank == receiver))
        return rows, sender[rows], receiver[rows]

    @cached_property
    def _lossy(self) -> Place | None:
        """Lost packets: transfers that now and then take far longer, over one link more often than by chance.

        Null: every transfer is as likely to be held up, on each of its links, in the trace and in the steps that only the
        flight recorder holds. An interface is asked only where its links are few of all: of four ranks in a ring every one
        has half of the links.
        """
        g = self.graph
        gates, held = self._hiccups
        rows, sender, receiver = self._ends
        pair = self._in_pair[g.gate[rows]]
        sender, receiver = (
            np.where(pair, np.minimum(sender, receiver), sender),
            np.where(pair, np.maximum(sender, receiver), receiver),
        )
        link, count = numbered(sender, receiver)
        ends = np.zeros((count, 2), dtype=np.int64)
        ends[link] = np.stack([sender, receiver], axis=1)
        both_ways = np.zeros(count, dtype=bool)
        both_ways[link] = pair
        hit, more = link[np.searchsorted(rows, held[held >= 0])], self._recorded(ends)
        if not len(hit) or len(gates) + len(more) < LEAST_HICCUPS:
            return None
        share = weighed(link, 1 / np.bincount(g.gate[rows], minlength=len(g.gates))[g.gate[rows]], count)
        share /= share.sum()
        events = np.concatenate([hit, more])
        its_ranks = np.unique(ends[hit])[:, None]
        # What comes in at a rank, what goes out of it, and both: several rings cross an interface, in either direction.
        into, out_of, either = ends[:, 1] == its_ranks, ends[:, 0] == its_ranks, (ends == its_ranks[..., None]).any(axis=2)
        of_ranks = np.concatenate([into, out_of, either])
        # Pairs pass no delay on to others, so that half of them may be asked about as well.
        few = (of_ranks @ share <= FEW_LINKS + 1e-9) | both_ways.all()
        wide = of_ranks[(of_ranks.sum(axis=1) > 1) & few]
        places = [np.arange(count) == one for one in np.unique(hit).tolist()] + list(wide)
        tests = count + (3 * self.count if len(wide) else 0)
        chances = [concentrated(int(mine[events].sum()), len(events), float(share[mine].sum()), tests) for mine in places]
        if min(chances) >= FALSE_ALARMS:
            return None
        gates = gates[held >= 0]
        its = places[int(np.argmin(chances))][hit]
        mine = np.zeros(len(g.gates), dtype=bool)
        mine[gates[its]] = True
        window, _, high = self.gates
        at = window[mine]
        extra = float((high[mine] - np.median(high)).sum() / (at.max() - at.min() + 1))
        found = np.unique(hit[its])
        pairs = (*((int(a), int(b)) for a, b in ends[found]), *((int(b), int(a)) for a, b in ends[found[both_ways[found]]]))
        return Place(int(at.min()), int(at.max()), _score(min(chances)), True, extra, links=pairs, gates=mine)

    def _recorded(self, ends: Ints) -> Ints:
        """Links (rows of ``ends``) behind the delays that only the flight recorder saw."""
        if not len(self.graph.trace.calls) or not len(self.graph.gates):
            return np.zeros(0, dtype=np.int64)
        seen = recorded_hiccups(self.graph, max(self._least_ns, float(np.median(self.gates[2]))))
        number = {(int(a), int(b)): i for i, (a, b) in enumerate(ends)}
        return np.array([number[a, b] for a, b in seen.tolist() if (a, b) in number], dtype=np.int64)


def _last_of_staircase(sender: Indices, receiver: Indices, extra: Floats, late: Mask) -> Mask:
    """Links of a ring into those that end last: behind a slow link all others end later than before, too, by fewer rounds.

    In each direction in which a group's collectives send; the late ones, where ends do not grow like a staircase.
    """
    ranks, out = np.unique(receiver), late.copy()
    up = receiver == np.roll(ranks, -1)[np.searchsorted(ranks, sender)]
    for mine, way in ((up, 1), (~up, -1)):
        order = np.flatnonzero(mine)[np.argsort(receiver[mine], kind="stable")][::way]
        found = staircase(extra[order]) if len(order) == len(ranks) and late[mine].any() else None
        if found is not None and found.like >= LIKE:
            out[order] = False
            out[order[found.receivers]] = True
    return out


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


def _shaped(y: Floats, kin: Ints, most: int = 1) -> Iterator[tuple[Span, bool]]:
    """Spans in which series are higher, and whether they grow there; those that grow begin where the growth does."""
    spans = levels(y, kin, most)
    several = Counter(s.series for s in spans)
    for s in spans:
        # Steps of another span are no part of a ramp into this one.
        begin = ramp(y[s.series], s) if several[s.series] == 1 else None
        yield (s, False) if begin is None else (replace(s, first=begin), True)


def _on_most(took: Floats, span: Span, alike: Floats) -> bool:
    """Whether nearly all ranks rose, each against itself: if some of them slow down, a quantile over ranks moves up, too."""
    rose = [_extra(one, span) for one in took[took.any(axis=1)]]
    return bool(np.quantile(rose, ALIKE, method="lower") >= ROSE * _extra(alike, span))


def _overlapping(places: list[Place]) -> list[list[Place]]:
    """Places of one rank that have steps in common, together; the costliest first."""
    out: list[list[Place]] = []
    for place in sorted(places, key=lambda p: -p.total_ns):
        met = [some for some in out if any(min(p.last, place.last) >= max(p.first, place.first) for p in some)]
        out = [some for some in out if some not in met] + [[*(p for some in met for p in some), place]]
    return sorted(out, key=lambda some: -max(p.total_ns for p in some))


def _joined(places: list[Place]) -> Place:
    """What a rank's series say of it: the largest says how much, the clearest in which shape."""
    largest, clearest = max(places, key=lambda p: p.total_ns), max(places, key=lambda p: p.score)
    return replace(largest, grows=True, first=clearest.first) if clearest.grows else replace(largest, grows=False)


def _tells_more(stall: Place, level: Place) -> bool:
    """Whether stops of a rank explain more than a level of it at the same time: they may fall into one class for a while."""
    overlap = min(stall.last, level.last) >= max(stall.first, level.first)
    return stall.rank == level.rank and overlap and stall.total_ns >= LONGER_STORY * level.total_ns


def _score(chance: float) -> float:
    """A chance as standard errors of a normal variable; none where it is as likely as not."""
    return NormalDist().inv_cdf(1 - min(max(chance, 1e-16), 0.5))


def _shared(busy: Floats) -> Floats:
    """What the others did more than usual in a step, per rank: the median over them."""
    own = busy - np.median(busy, axis=1, keepdims=True)
    deviation = np.sort(own, axis=0)
    n = len(busy)
    # Leaving one of n sorted values out moves the middle by at most one place.
    below, above = (np.where(own <= deviation[at], deviation[at + 1], deviation[at]) for at in ((n - 2) // 2, (n - 1) // 2))
    return np.asarray(0.5 * (below + above))


def _extra(series: Floats, span: Span, others: Sequence[Span] = ()) -> float:
    """Mean inside the span above the mean outside it, and outside other spans of the series."""
    outside = np.ones(len(series), dtype=bool)
    for one in (span, *others):
        outside[one.first : one.last + 1] = False
    inside = series[span.first : span.last + 1]
    return float(inside.mean() - series[outside].sum() / max(np.count_nonzero(outside), 1))
