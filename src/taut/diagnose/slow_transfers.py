"""Transfers that became slower: which links are behind it, and since when; those that now and then take far longer.

The reference is the same rendezvous outside the span. What a link holds up shows on all members of a ring: who ends later
than before tells which link it is.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask
from taut.core.change_points import LEAST_STEPS, OUTLIER, Span, clipped, levels, noise
from taut.core.concentration import concentrated, concentrated_in
from taut.core.group_kernels import group_sort
from taut.core.ids import numbered, weighed
from taut.core.tables import Verb
from taut.diagnose.recorded_hiccups import recorded_hiccups
from taut.diagnose.slow_place import FALSE_ALARMS, LATE, Place, Series, extra_ns, score_of, shared_ends
from taut.graph.staircase import staircase
from taut.replay.cell_medians import medians_and_spreads
from taut.replay.whatif import link_ends

GREW, MATTERS = 1.2, 0.1
"""Transfers that take this much longer have grown; groups with less than that share of a rank's transfers do not count."""
MINOR = 0.25
"""Links that are late by less than this share of the latest are not named: the others delay them."""
ALSO = 5.0
"""Standard errors by which other groups must be slower in the same span to count as slow with the worst."""
HELD = 2.0
"""The same for transfers of a rank that is known to be slow, in its span: nothing is searched for."""
CHUNK = 0.3
"""Behind a slow link members end a round apart, half of them at least: by this share of what a round got longer by."""
LEAST_HICCUPS = 5
SPIKE = 0.05
"""Transfers that take less than this share of a step longer, or less than twice as long as usual, are no spikes: a busy host
delays as much."""
MOST = 0.5
"""A place of this share of the delays that tell one is taken to be behind those that tell none, of the same groups."""
FEW_LINKS = 0.25
"""Ranks whose links are more than this share of all are not asked whether spikes fall on them: they would by chance."""


class SlowTransfers(Series):
    """Transfers of the groups of a graph per step, and what changed in them."""

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
        return self._gates_of(rank) & self._far[1]

    @cached_property
    def longer_ns(self) -> Floats:
        """Per gate: by how much its transfer took longer than those of its class do, ns."""
        return np.maximum(self.gates[2] - self._far[0], 0.0)

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
            worst = max(found, key=lambda s: extra_ns(total[s.series], s) * (s.last - s.first + 1))
            together = [s for s in found if min(s.last, worst.last) - max(s.first, worst.first) > 0]
            place = self.links_behind([*together, *_also(total, worst, {s.series for s in found})], worst, total)
            out += [place] if place.links else []
            found = [s for s in found if s not in together]
        lossy = self._lossy
        if lossy is None:
            return out
        # Losses may be dense for a while: the longer story is the better one, if both tell of the same place.
        same = [p for p in out if p.owners & lossy.owners and p.total_ns < lossy.total_ns]
        rest = [p for p in out if p not in same]
        gates, held, _ = self._hiccups
        # Beside other places it must explain most delays: some fall on every link of a busy machine.
        explains = lossy.gates[gates[held >= 0]].mean() >= MOST and all(p.total_ns < lossy.total_ns for p in rest)
        return [*rest, lossy] if same or not rest or explains else out

    @cached_property
    def transfers(self) -> Floats:
        """Longest transfers of every group, summed by window."""
        window, _, high = self.gates
        return self.table(high, *self._groups, window)

    def links_behind(self, together: list[Span], worst: Span, total: Floats) -> Place:
        """The links that slow groups have in common: of every group those into the members that end later than before."""
        group, _ = self._groups
        gates = np.isin(group, [span.series for span in together])
        slower = {span: extra_ns(total[span.series], span) for span in together}
        late: dict[tuple[int, int], float] = defaultdict(float)
        apart = False
        for span in sorted(together, key=lambda s: -slower[s]):
            found, two = self._late_links(group == span.series, span, slower[span])
            apart |= two
            for pair, extra in found.items():
                late[pair] += extra
        links = tuple(pair for pair, extra in late.items() if extra >= MINOR * max(late.values()))
        if len(links) > 1 and not shared_ends(links) and not (apart and len(together) == 1):
            # Two places at once, noise in a small group, or a delay that the ring passes on: where most lateness meets.
            ends = dict.fromkeys(end for pair in links for end in pair)
            owner = max(ends, key=lambda end: sum(late[pair] for pair in links if end in pair))
            links = tuple(pair for pair in links if owner in pair)
        return Place(worst.first, worst.last, worst.score, False, sum(slower.values()), worst.tests, links=links, gates=gates)

    def _late_links(self, gates: Mask, span: Span, slower: float) -> tuple[dict[tuple[int, int], float], bool]:
        """Links into the members that end later than before, and by how much (ns), and whether they are two of one ring.

        Of two members that end alike, both ways.
        """
        g = self.graph
        rows, sender, receiver = (column[gates[g.gate[self._ends[0]]]] for column in self._ends)
        if not len(rows):
            return {}, False  # a barrier, or a verb whose algorithm is not known
        late = g.work_ns[rows] - self.gates[1][g.gate[rows]]
        pair, pairs = numbered(sender, receiver)
        series = self.table(late, pair, pairs, g.window[rows])
        extra = np.array([extra_ns(row, span) for row in series])
        clear = extra > np.maximum(LATE * extra.max(), 3 * noise(series) / np.sqrt(span.last - span.first + 1))
        # A slow link delays each of the 2(n − 1) rounds of a ring by a chunk, and its receiver ends last of a staircase.
        if pairs > 2 and extra.max() < CHUNK * (pairs // 2) * slower / (2 * (pairs - 1)):
            return {}, False  # all end together: the ring is slower, none of its links more than the others
        first = np.zeros(pairs, dtype=np.int64)
        first[pair] = np.arange(len(rows))
        chosen, two = clear if clear.any() else np.ones(pairs, dtype=bool), False
        if pairs > 2 and clear.any():
            chosen, two = _last_of_staircase(sender[first], receiver[first], extra, clear)
        extra = extra if pairs > 2 else np.full(pairs, slower)  # two meet: both end when either does
        return {(int(sender[i]), int(receiver[i])): float(x) for i, x in zip(first[chosen], extra[chosen], strict=True)}, two

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
    def _far(self) -> tuple[Floats, Mask]:
        """Per gate: how long transfers of its class take, ns, and whether its own took far longer."""
        g, high = self.graph, self.gates[2]
        cls, count = numbered(self._groups[0], g.gates.name, g.gates.size)
        below, spread = medians_and_spreads(-high, *group_sort(cls, count))  # of the quick ones: spikes do not widen it
        usual = -below[cls]
        least = np.maximum.reduce([OUTLIER * np.nan_to_num(spread)[cls], usual, np.full(len(cls), self._least_ns)])
        return usual, high > usual + least

    @cached_property
    def _hiccups(self) -> tuple[Ints, Ints, Ints]:
        """Gates whose transfer took far longer than their class does, and the ops of the two that were held up first.

        A delay on a link reaches those downstream of it, as far as rounds are left: of the members that end late the one
        furthest upstream is the receiver, or the sender, if it has to wait until all is received; then the next is late as
        well (-1 where it is not). Where all end late there is no place (-1).
        """
        g = self.graph
        if not len(g.gates):
            return (np.zeros(0, dtype=np.int64),) * 3
        high, (usual, far) = self.gates[2], self._far
        gates, held, second = np.flatnonzero(far), np.full(len(far), -1), np.full(len(far), -1)
        rows, sender, receiver = (column[far[g.gate[self._ends[0]]]] for column in self._ends)
        gate = g.gate[rows]
        late = g.work_ns[rows] >= usual[gate] + LATE * (high - usual)[gate]
        at, before = (gate * self.count + np.searchsorted(g.ranks, end) for end in (receiver, sender))
        first = late & (~np.isin(before, at[late]) | np.isin(g.ops.verb[rows], (Verb.SEND, Verb.RECV)))
        alone = first & (np.bincount(gate[first], minlength=len(far))[gate] == 1)
        alone |= self._in_pair[gate]  # two that meet end together, and are the place themselves
        held[gate[alone]] = rows[alone]
        after = _row_of(at, before)
        both = alone & (after >= 0) & late[after] & ~self._in_pair[gate]
        second[gate[both]] = rows[after[both]]
        return gates, held[gates], second[gates]

    @cached_property
    def _in_pair(self) -> Mask:
        """Mask over the gates of two members, each of which sends to the other: which of the two links is slow is not told."""
        out: Mask = np.bincount(self.graph.gate[self._ends[0]], minlength=len(self.graph.gates)) == 2
        return out

    def without_hiccups(self) -> Ints:
        """Work of every op if no transfer took far longer than its class does, ns."""
        g, (gates, _, _) = self.graph, self._hiccups
        far = np.append(np.isin(np.arange(len(g.gates)), gates), False)[g.gate]
        ops, work = np.flatnonzero(far), g.work_ns.copy()
        usual = self.outside_of(work, ops, far)
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
        gates, held, second = (column[self._hiccups[1] >= 0] for column in self._hiccups)
        rows, sender, receiver = self._ends
        pair = self._in_pair[g.gate[rows]]
        after = _row_of(*(g.gate[rows] * self.count + np.searchsorted(g.ranks, end) for end in (receiver, sender)))
        sender, receiver = (
            np.where(pair, np.minimum(sender, receiver), sender),
            np.where(pair, np.maximum(sender, receiver), receiver),
        )
        link, count = numbered(sender, receiver)
        ends = np.zeros((count, 2), dtype=np.int64)
        ends[link] = np.stack([sender, receiver], axis=1)
        both_ways = np.zeros(count, dtype=bool)
        both_ways[link] = pair
        # The link into the first that was late, and the one from it to the second; the same twice where that was not late.
        hit = link[np.searchsorted(rows, np.stack([held, np.where(second >= 0, second, held)], axis=1))]
        events = np.concatenate([hit, self._recorded(ends)])
        if not len(hit) or len(self._hiccups[0]) + len(events) - len(hit) < LEAST_HICCUPS:
            return None
        nearby = np.stack([link, np.where(after >= 0, link[after], link)], axis=1)
        weight = 1 / np.bincount(g.gate[rows], minlength=len(g.gates))[g.gate[rows]]
        places, tests = self._suspects(ends, hit, weighed(link, weight / weight.sum(), count), self._pass_nothing_on(rows))
        # What delays most is asked about by itself, too: small delays, as of a busy machine, say little of it.
        large = np.append(_large(self.longer_ns[gates]), np.ones(len(events) - len(hit), dtype=bool))
        looks = [events] if large.all() else [events, events[large]]
        tests *= 2 * len(looks)
        chances = [min(_chance(place, some, nearby, weight / weight.sum(), tests) for some in looks) for place in places]
        if min(chances)[0] >= FALSE_ALARMS:
            return None
        chance, direct = min(chances)
        place = places[chances.index((chance, direct))]
        named = place[hit[:, :1]] if direct else place[hit]
        its = np.asarray(named.any(axis=1))
        if not its.any():
            return None  # only the recorder saw it: what it costs in the traced steps is nothing
        mine = np.zeros(len(g.gates), dtype=bool)
        mine[gates[its]] = True
        if MOST * len(its) <= np.count_nonzero(its):
            mine[self._unplaced(g.gate[rows[place[link]]], gates[its])] = True
        window, _, high = self.gates
        at = window[mine]
        extra = float((high[mine] - np.median(high)).sum() / (at.max() - at.min() + 1))
        found = np.unique(hit[:, : named.shape[1]][named])
        pairs = (*((int(a), int(b)) for a, b in ends[found]), *((int(b), int(a)) for a, b in ends[found[both_ways[found]]]))
        return Place(int(at.min()), int(at.max()), score_of(chance), True, extra, links=pairs, gates=mine)

    def _unplaced(self, crossed: Ints, placed: Ints) -> Ints:
        """Gates where all ended late, in groups that cross some links (gates of theirs), since the first whose place is known.

        Some long before, as while a job warms up, were not by this.
        """
        gates, held, _ = self._hiccups
        group, window = self._groups[0], self.gates[0]
        nowhere = gates[held < 0]
        alike = np.isin(group[nowhere], np.unique(group[crossed])) & (window[nowhere] >= window[placed].min() - 1)
        return np.asarray(nowhere[alike])

    def _pass_nothing_on(self, rows: Ints) -> bool:
        """Whether all transfers are between two, so that a delay on one link reaches nobody else."""
        hop = np.isin(self.graph.ops.verb[rows], (Verb.SEND, Verb.RECV))
        return bool((hop | self._in_pair[self.graph.gate[rows]]).all())

    def _suspects(self, ends: Ints, hit: Ints, share: Floats, alone: bool) -> tuple[list[Mask], int]:
        """Places (masks over links) to which delays may be due, and how many there are of their kinds."""
        its_ranks = np.unique(ends[hit[:, 0]])[:, None]
        # What comes in at a rank, what goes out of it, and both: several rings cross an interface, in either direction.
        into, out_of, either = ends[:, 1] == its_ranks, ends[:, 0] == its_ranks, (ends == its_ranks[..., None]).any(axis=2)
        of_ranks = np.concatenate([into, out_of, either])
        # Pairs and hops pass no delay on to others, so that half of them may be asked about as well.
        few = (of_ranks @ share <= FEW_LINKS + 1e-9) | alone
        wide = of_ranks[(of_ranks.sum(axis=1) > 1) & few]
        single = [np.arange(len(ends)) == one for one in np.unique(hit).tolist()]
        return [*single, *wide], len(ends) + (3 * self.count if len(wide) else 0)

    def _recorded(self, ends: Ints) -> Ints:
        """Links (rows of ``ends``) that may be behind the delays that only the flight recorder saw: two for each."""
        if not len(self.graph.trace.calls) or not len(self.graph.gates):
            return np.zeros((0, 2), dtype=np.int64)
        seen = recorded_hiccups(self.graph, max(self._least_ns, float(np.median(self.gates[2]))))
        number = {(int(a), int(b)): i for i, (a, b) in enumerate(ends)}
        found = [(number[a, b], number[b, c]) for a, b, c in seen.tolist() if (a, b) in number and (b, c) in number]
        return np.array(found, dtype=np.int64).reshape(-1, 2)


def _large(late_ns: Floats) -> Mask:
    """Delays at least half as long as those that make up half of all the time that is lost."""
    longest = np.sort(late_ns)[::-1]
    half = longest[np.searchsorted(np.cumsum(longest), 0.5 * longest.sum())] if len(longest) else 0.0
    out: Mask = late_ns >= 0.5 * half
    return out


def _row_of(wanted: Ints, known: Ints) -> Ints:
    """For each of the wanted numbers: where it stands among those that are known, -1 where it does not."""
    order = np.argsort(known, kind="stable")
    at = np.minimum(np.searchsorted(known[order], wanted), max(len(known) - 1, 0))
    return np.where(known[order[at]] == wanted, order[at], -1) if len(known) else np.full(len(wanted), -1)


def _chance(place: Mask, events: Ints, nearby: Ints, weight: Floats, tests: int) -> tuple[float, bool]:
    """Chance that so many events fall on a place, and whether on the first of their two links alone.

    Null: a delay begins at any link of its ring, as often as its gates have it.
    """
    first, either = place[events[:, 0]], place[events].any(axis=1)
    shares = float(weight @ place[nearby[:, 0]]), float(weight @ place[nearby].any(axis=1))
    two = int(np.count_nonzero(events[:, 0] != events[:, 1]))
    direct = concentrated(int(first.sum()), len(events), shares[0], tests)
    both = concentrated_in(int(either.sum()), [(len(events) - two, shares[0]), (two, shares[1])], tests)
    return (direct, True) if direct <= both else (both, False)


def _last_of_staircase(sender: Indices, receiver: Indices, extra: Floats, late: Mask) -> tuple[Mask, bool]:
    """Links of a ring into those that end last, and whether these are two links apart.

    Behind a slow link all others end later than before, too, by fewer rounds.

    In each direction in which a group's collectives send; the late ones, where ends do not grow like a staircase.
    """
    ranks, out, two = np.unique(receiver), late.copy(), False
    up = receiver == np.roll(ranks, -1)[np.searchsorted(ranks, sender)]
    for mine, way in ((up, 1), (~up, -1)):
        order = np.flatnonzero(mine)[np.argsort(receiver[mine], kind="stable")][::way]
        found = staircase(extra[order], quicker=True) if len(order) == len(ranks) and late[mine].any() else None
        if found is not None and found.clear:
            out[order] = False
            out[order[found.receivers]] = True
            two |= found.apart
    return out, two


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
