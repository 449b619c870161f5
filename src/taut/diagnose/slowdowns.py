"""What became slower during a run: a rank in its own work, or a group of ranks in its transfers, and since when.

The reference is the same rank, or the same rendezvous, outside the span: the first choice of the design, because it needs
no peers, and because peers are slow too when a whole gate is. What all ranks share in a step is taken out first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Indices, Ints, Mask
from taut.core.change_points import LEAST_OUTSIDE, LEAST_STEPS, OUTLIER, Span, densest, levels, noise, outliers, ramp
from taut.core.concentration import heaped
from taut.core.ids import weighed
from taut.core.scratch import kept
from taut.diagnose.accidents import one_by_accident
from taut.diagnose.slow_place import FALSE_ALARMS, LATE, RECURS, Place, extra_ns, score_of
from taut.diagnose.slow_transfers import SlowTransfers

WORTH = 0.03
"""Class names that hold less of the ranks' own work than this are not searched one by one."""
ALIKE = 0.25
"""Quantile over ranks that speaks for all of them: a few that became slow do not move it."""
LASTING = 10
"""Steps for which all ranks must have been slower, to the end of the run: demand that all share comes and goes."""
ROSE = 0.5
"""Nearly all ranks rise by at least this share of what their quantile rises by."""
MOST_SPANS = 4
"""Spans in which one series of a rank may be higher, each with a level of its own."""
MOST_STALLS = 16
"""Ranks that may be said to stop now and then: those with the longest stops are asked."""
MOST_BESIDE = 31
"""Other ranks that tell how far the steps of one stray: more would tell hardly more."""
BY_CHANCE = 0.05
"""Chance that a rank stops as often as it does from which these are the stops that any rank has."""
LONGER_STORY = 1.25
"""Stops of a rank that cost so many times what a level of it does, at the same time, are what it has."""


class Slowdowns(SlowTransfers):
    """The series of a graph (work of ranks, transfers of groups, per step), and what changed in them."""

    def slow_windows(self, place: Place) -> Mask:
        """Mask over the windows of a place, and of the other spans of its rank, where enough others are left to tell.

        Of a rank that stops now and then, also those in which it stopped before.
        """
        at = np.arange(self.windows)
        mine = place.holds(at)
        every = mine | self._late(place.rank) if place.spikes and place.rank >= 0 else mine.copy()
        for other in self.ranks if place.rank >= 0 else []:
            every |= other.holds(at) if other.rank == place.rank else False
        return every if np.count_nonzero(~every) >= LEAST_OUTSIDE else mine

    @cached_property
    def _took(self) -> Floats:
        """Own work and gaps of every rank in every window."""
        g, own = self.graph, self.own
        return self.table(kept((g.work_ns + g.gap_ns)[own]), g.rank_index[own], self.count, g.window[own])

    @cached_property
    def _busy(self) -> Floats:
        """The same, less what the others did more than usual in that window."""
        return self._by_itself(self._took)

    def _by_itself(self, took: Floats) -> Floats:
        """Ranks × windows, less what those that do the same work did more than usual; a service alone is its own measure.

        Where most of them changed, those that did not are what the others are measured by.
        """
        out = took.astype(np.float64)
        for kin in self._kin:
            steady = took[kin][self._steady[kin]]
            out[kin] -= np.median(_above_usual(steady), axis=0) if len(steady) else _shared(took[kin])
        return out

    @cached_property
    def _kin(self) -> list[Mask]:
        """Ranks that do the same work, and are not alone with it."""
        role = self.graph.role_of_rank if self.graph.trace.waits_recorded else np.zeros(self.count, dtype=np.int64)
        return [kin for kin in (role == one for one in np.unique(role)) if kin.sum() > 1]

    @cached_property
    def _steady(self) -> Mask:
        """Ranks that took what they always take while most others of their kin changed: they only seem slower or quicker.

        A quarter of the kin at least: of demand that all share few may have no part.
        """
        out = np.zeros(self.count, dtype=bool)
        for kin in self._kin:
            took = self._took[kin].astype(np.float64)
            seems, found = took - _shared(took), np.zeros(len(took), dtype=bool)
            for s in levels(seems) if len(took) > 2 else []:
                rise, inside = ROSE * extra_ns(seems[s.series], s), slice(s.first, s.last + 1)
                if extra_ns(took[s.series], s) < rise:
                    rose = took[:, inside].mean(axis=1) - np.delete(took, inside, axis=1).mean(axis=1)
                    found[s.series] = np.median(np.delete(rose, s.series)) < -rise
            out[kin] = found & (found.mean() >= ALIKE)
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
        if self.count < 2 or self.windows < LEAST_STEPS or self._steady.any():
            return []
        names, took = self.by_class
        # A lower quartile grows only if nearly all ranks do, the quickest too.
        alike = [np.quantile(one[one.any(axis=1)], ALIKE, axis=0, method="lower") for one in took]
        middle = np.array(alike).reshape(len(names), self.windows)
        return [
            Place(
                s.first, s.last, s.score, False, extra_ns(middle[s.series], s), s.tests, name=int(names[s.series]), grows=grows
            )
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
        joined = self._levels
        for stall in self._stalls({level.rank for level in joined}):
            mine = [p for p in joined if p.rank == stall.rank]
            beside = self._beside(stall, mine)
            same = [p for p in mine if _tells_more(stall, p) and beside.sum() >= RECURS and self._of_stops(p)]
            joined = [p for p in joined if p not in same]
            if same:
                joined.append(replace(stall, score=same[0].score, tests=same[0].tests))
            elif not mine:
                joined.append(stall)
            elif stall.score > score_of(FALSE_ALARMS) and (self._spikes[stall.rank] & beside).sum() >= RECURS:
                joined += self._apart_from(stall, beside, mine)
        return joined

    def _of_stops(self, level: Place) -> bool:
        """Whether most steps of a level are as high as stops of its rank: then it is stops that fell together."""
        late = self._late(level.rank)[level.holds(np.arange(self.windows))]
        return bool(2 * np.count_nonzero(late) >= len(late))

    @property
    def _levels(self) -> list[Place]:
        """Ranks that take longer all the time in some span, by all their work or by one class."""
        found: dict[int, list[Place]] = defaultdict(list)
        for y in self._busy, self._by_name:
            spans = list(_shaped(y, np.arange(len(y)) // self.count, MOST_SPANS))
            for s, grows in spans:
                rank = s.series % self.count
                # Neither stops nor other spans of the series are what it stands above.
                but = self._spikes[rank].copy()
                for other in (other for other, _ in spans if other.series == s.series and other is not s):
                    but[other.first : other.last + 1] = True
                extra = extra_ns(y[s.series], s, but)
                found[rank].append(Place(s.first, s.last, s.score, False, extra, s.tests, rank, grows=grows))
        return [_joined(places) for mine in found.values() for places in _overlapping(mine)]

    def _stalls(self, known: set[int]) -> list[Place]:
        """Ranks that stop now and then: more spikes than chance would give them; transfers they take part in are held up.

        Those that are known to be slow need no chance: three spikes tell since when and how often they stop. Ranks that stop
        in the same steps, as those of a host do, stop once.
        """
        spikes = self._spikes
        out = []
        above = np.where(spikes, self._busy - np.median(self._busy, axis=1, keepdims=True), 0.0)
        # One spike is an accident: ranks with two or more are asked, those with the longest stops first.
        often, total = np.flatnonzero(spikes.sum(axis=1) >= 2), above.sum(axis=1)
        asked = often[np.argsort(-total[often], kind="stable")][:MOST_STALLS]
        first = _stop_together(spikes, asked)
        once = np.zeros_like(above)
        np.maximum.at(once, first, above)
        place, weight = np.nonzero(once)[0], once[once > 0]
        for rank in asked.tolist():
            together = int(np.count_nonzero(first == first[rank]))
            # So many groups as large as this there are for stops to fall on.
            chance = heaped(weight, place == first[rank], together / self.count, -(-self.count // together))
            if chance >= FALSE_ALARMS and together == 1 and spikes[rank].sum() >= RECURS:
                chance = self._also_in_transfers(rank, above, chance)
            at = np.flatnonzero(spikes[rank])
            if chance >= FALSE_ALARMS and not (rank in known and len(at) >= RECURS):
                continue
            out.append(self._stall(rank, np.append(at, np.flatnonzero(self._late(rank)).max()), score_of(chance)))
        return out

    def _also_in_transfers(self, rank: int, stops: Floats, chance: float) -> float:
        """The chance that a rank stops so often, if what it receives far later than usual counts as well: the less of both.

        Whoever stops while it waits for others has no stop in its own work. What a rank has in a step counts once.
        """
        gates, held, _ = self._hiccups
        gates, held = gates[held >= 0], held[held >= 0]
        every = stops.copy()
        np.maximum.at(every, (self.graph.rank_index[held], self.gates[0][gates]), self.longer_ns[gates])
        where = np.nonzero(every)[0]
        return min(1.0, 2 * min(chance, heaped(every[every > 0], where == rank, 1 / self.count, self.count)))

    def _stall(self, rank: int, at: Indices, score: float, slow: Mask | None = None) -> Place:
        """A rank that stops in some windows, and what it holds up; where it is slow (a mask) it does not stop."""
        window = self.gates[0]
        # A transfer may still be held up in the next step; one long before, as while a job warms up, was not by this.
        held = self.stopped(rank) & (window >= at[0]) & ((window <= at.max() + 1) | self._as_long(rank))
        hit = self._late(rank) & (True if slow is None else ~slow)
        hit[np.concatenate([at, window[held]])] = True
        hit[: at[0]] = False
        span = Span(rank, *densest(hit), score)
        held &= (window >= span.first) & (window <= span.last)
        extra = extra_ns(self._busy[rank], span) + self.longer_ns[held].sum() / (span.last - span.first + 1)
        return Place(span.first, span.last, score, True, extra, rank=rank, gates=held)

    def stops_elsewhere(self, stall: Place, links: Place) -> bool:
        """Whether a rank that stops holds up most delays of some links, and stops in its own work in steps without one."""
        theirs = np.zeros(self.windows, dtype=bool)
        theirs[self.gates[0][links.gates]] = True
        alone = self._late(stall.rank) & stall.holds(np.arange(self.windows)) & ~theirs
        as_long = (stall.gates & self._as_long(stall.rank))[links.gates]
        return bool(alone.sum() >= RECURS and 2 * np.count_nonzero(as_long) >= len(as_long))

    def stops_inside(self, level: Place) -> Mask:
        """Mask over the gates of a slow rank that take about as much longer as it does in its other steps, where it does not.

        A level may be that of stops, and in some steps the rank stops while it receives.
        """
        if level.spikes or not len(self.longer_ns):
            return np.zeros(len(self.longer_ns), dtype=bool)
        at = np.arange(self.windows)
        own = self._busy[level.rank] - np.median(self._busy[level.rank][~level.holds(at)]) if not level.holds(at).all() else 0.0
        missing = level.holds(at) & (own < LATE * level.extra_ns)
        return self.stopped(level.rank) & self._about(level.extra_ns) & missing[self.gates[0]]

    def _as_long(self, rank: int) -> Mask:
        """Mask over the gates whose transfers took longer by about what stops of a rank take."""
        return self._about(float(np.median(self._above(rank)[self._spikes[rank]])))

    def _about(self, ns: float) -> Mask:
        """Mask over the gates whose transfers took longer by about so much."""
        out: Mask = (self.longer_ns >= LATE * ns) & (LATE * self.longer_ns <= ns)
        return out

    def _beside(self, stall: Place, levels: list[Place]) -> Mask:
        """Windows in which a rank stops beside its levels: their own steps, and two accidents, are no stops.

        In its own work, or in a transfer that takes as much longer.
        """
        out = self._late(stall.rank)
        out[self.gates[0][stall.gates & self._as_long(stall.rank)]] = True
        for level in levels:
            out &= ~level.holds(np.arange(self.windows))
        return out

    def _apart_from(self, stall: Place, beside: Mask, levels: list[Place]) -> list[Place]:
        """Stops before, between and after the levels of a rank, where they come three times."""
        out, at = [], np.flatnonzero(beside)
        for some in np.split(at, np.searchsorted(at, sorted(level.first for level in levels))):
            if len(some) >= RECURS:
                slow = np.logical_or.reduce([level.holds(np.arange(self.windows)) for level in levels])
                found = self._stall(stall.rank, some, stall.score, slow)
                span = Span(found.rank, found.first, found.last, found.score)
                out.append(replace(found, extra_ns=extra_ns(self._busy[stall.rank], span, slow)))
        return out

    @cached_property
    def _spikes(self) -> Mask:
        """Ranks × windows: where the work and gaps of a rank stand far above what it usually does."""
        return outliers(self._busy)

    def accidents(self, place: Place) -> Mask:
        """Ranks × windows: where ranks stop; of a rank that is slow none, unless chance makes any rank stop as often.

        One that grows stands above its middle in the end without any stop.
        """
        stops, rank = self._stops.copy(), place.rank
        stops[rank] = False
        if not place.spikes and not place.grows:
            mine, inside = self._busy[rank].copy(), place.holds(np.arange(self.windows))
            if not inside.all():
                mine[inside] -= np.median(mine[inside]) - np.median(mine[~inside])
            others = np.delete(self._busy, rank, axis=0)
            some = others[np.linspace(0, len(others) - 1, min(len(others), MOST_BESIDE)).astype(np.int64)]
            stops[rank] = _stops_of(np.vstack([mine, some]))[0]
            stops[rank] &= one_by_accident(stops, rank) >= BY_CHANCE
        return stops

    @cached_property
    def _stops(self) -> Mask:
        """Ranks × windows: steps in which the work and gaps of a rank stand far above what it usually does."""
        return _stops_of(self._busy)

    def longest_stop(self, stall: Place) -> float:
        """The longest of the stops that a rank has in its own work, where they are enough to tell; ns."""
        stops = self._above(stall.rank)[self._late(stall.rank) & stall.holds(np.arange(self.windows))]
        return float(stops.max()) if len(stops) >= RECURS else np.inf

    def _late(self, rank: int) -> Mask:
        """Windows in which a rank with spikes is held up: a stop may last for several, of which the first is its spike."""
        above = self._above(rank)
        out: Mask = above >= LATE * np.median(above[self._spikes[rank]])
        return out

    def _above(self, rank: int) -> Floats:
        """Per window: by how much the work and gaps of a rank are above what they usually are."""
        return np.asarray(self._busy[rank] - np.median(self._busy[rank]))


def _shaped(y: Floats, kin: Ints, most: int = 1) -> Iterator[tuple[Span, bool]]:
    """Spans in which series are higher, and whether they grow there; those that grow begin where the growth does."""
    spans = levels(y, kin, most)
    for s in spans:
        # Steps of another span are no part of a ramp into this one.
        alone = y[s.series].copy()
        for other in (other for other in spans if other.series == s.series and other is not s):
            alone[other.first : other.last + 1] = np.median(np.delete(y[s.series], slice(other.first, other.last + 1)))
        begin = ramp(alone, s)
        yield (s, False) if begin is None else (replace(s, first=begin), True)


def _on_most(took: Floats, span: Span, alike: Floats) -> bool:
    """Whether nearly all ranks rose, each against itself: if some of them slow down, a quantile over ranks moves up, too."""
    rose = [extra_ns(one, span) for one in took[took.any(axis=1)]]
    return bool(np.quantile(rose, ALIKE, method="lower") >= ROSE * extra_ns(alike, span))


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


def _stop_together(spikes: Mask, asked: Ints) -> Ints:
    """Per rank the first of those that stop in the same steps as it: in three at least, and in most; itself where none do.

    Not half of all ranks or more: then nobody can say that these stop and not the others.
    """
    out = np.arange(len(spikes))
    often = spikes[asked].sum(axis=1)
    common = spikes[asked].astype(np.int64) @ spikes[asked].T
    alike = (common >= RECURS) & (2 * common > np.maximum(often, often[:, None]))
    for i, rank in enumerate(asked.tolist()):
        mates = asked[alike[i] & (out[asked] == asked)]
        if out[rank] == rank and 1 < len(mates) < len(spikes) / 2:
            out[mates] = rank
    return out


def _tells_more(stall: Place, level: Place) -> bool:
    """Whether stops of a rank explain more than a level of it at the same time: they may fall into one class for a while."""
    overlap = min(stall.last, level.last) >= max(stall.first, level.first)
    return stall.rank == level.rank and overlap and stall.total_ns >= LONGER_STORY * level.total_ns


def _stops_of(busy: Floats) -> Mask:
    """Steps of every series as far above its median as an outlier: a stop that lasts has more of them than its first."""
    above, first = _above_usual(busy), outliers(busy)
    return np.asarray(above >= np.where(first, above, np.inf).min(axis=1, keepdims=True))


def _above_usual(busy: Floats) -> Floats:
    return np.asarray(busy - np.median(busy, axis=1, keepdims=True))


def _shared(busy: Floats) -> Floats:
    """What the others did more than usual in a step, per rank: the median over them.

    Where most of them stop, it is taken off as far as the rank stops as well: else it would seem to work less in that step.
    """
    own = _above_usual(busy)
    deviation = np.sort(own, axis=0)
    n = len(busy)
    # Leaving one of n sorted values out moves the middle by at most one place.
    below, above = (np.where(own <= deviation[at], deviation[at + 1], deviation[at]) for at in ((n - 2) // 2, (n - 1) // 2))
    others = 0.5 * (below + above)
    ordinary = OUTLIER * noise(others, np.arange(n))[:, None]
    return np.asarray(np.minimum(others, np.maximum(own, ordinary)))
