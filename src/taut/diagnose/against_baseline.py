"""What is slower than in a baseline, a healthy run of the same job: ranks, links, classes on all ranks, whole groups.

Null hypothesis: both runs are draws of one job. Steps vary within a run (trimmed means, whose errors grow with the
redness of the steps, ``core/differences.py``), ranks vary from run to run, and so does the job as a whole. How ranks vary
between runs is told by the ranks themselves: each moved against what all moved (the centre of the shortest half of them,
the lower one where two are as short, so that half of the ranks may be slow; more where the others clearly stayed), and the
spread of that half, at least BETWEEN_RUNS, more where few ranks tell, is the spread between runs. How a job as a whole
varies from run to run two runs cannot tell: a spread of WHOLE_RUNS of its work and LINK_RUNS of its transfers is assumed,
and stated. Student's distribution with the degrees of freedom there are, corrected over all series (over ranks by Benjamini
and Hochberg, because several may be slow at once), FALSE_ALARMS for each of the three tests. Size and power:
``bench/size.py``, ``bench/baseline.py``, docs/diagnosis.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace as struct_replace

from taut.core.array_types import Floats, Ints, Mask
from taut.core.change_points import Span
from taut.core.differences import CLEAR, levels
from taut.core.rank_words import rank_labels
from taut.core.reporting import spell
from taut.core.trend import corrected
from taut.diagnose.as_before import caused_by_rank
from taut.diagnose.finding import Evidence, Finding, Grew, confidence, recovered, top_classes
from taut.diagnose.slow_place import Place
from taut.diagnose.slow_sets import SHRUNK
from taut.diagnose.slowdowns import Slowdowns
from taut.graph.joined import Joined
from taut.replay.reference import BETWEEN_RUNS, baseline_medians
from taut.replay.timeline import Change

FALSE_ALARMS = 0.01
"""Chance that two healthy runs have a rank called slower; a class on all ranks; a group of transfers: for each of the three."""
FALSE_MEMBERS = 0.05
"""Once a rank is slower for sure, at most this share of the ranks that are named with it is not."""
WHOLE_RUNS = 0.02
"""Spread of a healthy job's work from run to run, common to all its ranks, as a share of it: assumed."""
LINK_RUNS = 0.05
"""Spread of the transfers of a group from run to run, likewise."""
LEAST_STEPS = 2
"""Steps of either run below which it has no spread."""
AROUND, WITHOUT_TAILS = 2.5, 1.05
"""Spreads around the shortest half of the ranks in which others still belong to them, and by how much a normal
distribution's spread is more than what is left of it."""
LEAST_ALONE = 8
"""Steps from which the jitter of the baseline alone is known well enough to judge the run by it."""
ALMOST = 1.5
"""Halves of the ranks that are at most this many times as wide as the shortest are as good: the lowest of them is taken."""
FEW = 8
"""From few ranks the spread between runs is hardly known: at least BETWEEN_RUNS × (1 + FEW / ranks) is taken."""
KNOWN = 2.0
"""Standard errors by which a class must have grown to be named, once the job as a whole has."""
STAYED = 4.0
"""Spreads below the others, and at most this many spreads of runs from the baseline: a rank that did not become slower."""
COVERED = 2 * 0.6745
"""Width of the middle half of a normal distribution, in spreads."""
PAST = 0.5
"""Share of what a rank lost against the baseline that its own past must explain, to be its reference."""
ALONE = 0.5
"""A rank that alone saves this share of what all slow ranks save together is a finding of its own; else they are one."""
NEEDED = 0.02
"""Ranks whose mending adds less than this share of what a set saves are left out of it."""
MOST_PRUNED = 64
"""Ranks of a set that are tried one by one."""


class Slower(Struct, frozen=True):
    """One series of the run that stands above the baseline's."""

    rank: int
    """Index; -1 for all ranks."""
    name: int
    """Class name; -1 for all own work and gaps."""
    before_ns: float
    after_ns: float
    score: float
    """In standard errors."""
    chance: float
    """Corrected."""


class Compared:
    """A run beside its baseline."""

    def __init__(self, e: Evidence, both: Joined) -> None:
        self.e, self.both, self.graph = e, both, both.graph
        self.slowdowns = Slowdowns(both.graph)
        self.first, self.last = both.windows, len(both.graph.steps) - 1
        self.enough = min(both.windows, self.last + 1 - both.windows) >= LEAST_STEPS

    @cached_property
    def _series(self) -> tuple[list[int], Floats]:
        """Class names (-1: all own work and gaps) and their work by rank and window."""
        g, s = self.graph, self.slowdowns
        busy = s.table((g.work_ns + g.gap_ns)[s.own], g.rank_index[s.own], s.count, g.window[s.own])
        names, took = s.by_class
        return [-1, *names.tolist()], np.concatenate([busy[None], took])

    @cached_property
    def _levels(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Series × rank: level before, and how far it moved since with squared error and degrees of freedom, as shares.

        What also changes inside the run makes its steps look red and wide, which would hide it: what moved by CLEAR spreads
        of its steps is judged by the steps of the baseline alone.
        """
        took = self._series[1]
        shape = took.shape[:2]
        flat = took.reshape(-1, took.shape[2])
        a, b = levels([flat[:, : self.first], flat[:, self.first :]])
        level = np.maximum(a.mean, 1.0)
        clear = (b.mean - a.mean > CLEAR * np.maximum(a.spread, b.spread)) & (a.steps >= LEAST_ALONE)
        later = np.where(clear, a.error * a.steps / b.steps, b.error)
        error = a.error + later
        freedom = error**2 / np.maximum(a.error**2 / a.freedom + later**2 / np.where(clear, a.freedom, b.freedom), 1e-300)
        moved, share = (b.mean - a.mean) / level, error / level**2
        return a.mean.reshape(shape), moved.reshape(shape), share.reshape(shape), freedom.reshape(shape)

    @cached_property
    def _common(self) -> tuple[Floats, Floats, Floats]:
        """Per series: how far all ranks moved, the spread of those that moved alike, and how many these are."""
        level, moved, error, _ = self._levels
        found = [
            _centre(row[has], err[has]) if has.any() else (0.0, 0.0, 1)
            for row, err, has in zip(moved, error, level > 0, strict=True)
        ]
        centre, spread, count = np.array(found, dtype=np.float64).reshape(-1, 3).T
        return centre, spread, np.maximum(count, 1.0)

    @property
    def _assumed(self) -> float:
        """The spread of ranks between runs that is assumed at least."""
        return BETWEEN_RUNS * (1 + FEW / len(self.graph.ranks))

    @cached_property
    def slow_ranks(self) -> list[Slower]:
        """Series of single ranks that moved further than ranks do from run to run, each rank's clearest."""
        from scipy.special import stdtr

        if not self.enough or len(self.graph.ranks) < 2:
            return []
        level, moved, error, freedom = self._levels
        centre, spread, count = (column[:, None] for column in self._common)
        # What all moved by is known from those that moved alike, and so is how they differ, if they differ enough.
        assumed = self._assumed
        between = np.maximum(spread, assumed) ** 2 * (1 + 1 / count)
        tells = np.where(spread > assumed, np.maximum(count - 1, 1), 1e6)
        total = error + between
        score = (moved - centre) / np.sqrt(total)
        worth = total**2 / np.maximum(error**2 / freedom + between**2 / tells, 1e-300)
        # All own work has half of the chance to err, its classes share the other half; then over the ranks.
        share = np.full(len(level), 2.0 * max(len(level) - 1, 1))
        share[0] = 2.0
        chance = np.where(level > 0, np.minimum(share[:, None] * stdtr(worth, -score), 1.0), 1.0)
        q = np.array(corrected(chance.min(axis=0).tolist()), dtype=np.float64)
        if q.min() >= FALSE_ALARMS:
            return []
        out = []
        for rank in np.flatnonzero(q < FALSE_MEMBERS).tolist():
            # The clearest series says that the rank is slower, the class that moved by most time says where.
            at = int(np.argmin(chance[:, rank]))
            some = np.flatnonzero(chance[:, rank] <= max(FALSE_ALARMS, chance[at, rank]))
            named = some[some > 0] if (some > 0).any() else some
            k = int(named[np.argmax((moved * level)[named, rank])])
            before = float(level[k, rank])
            after = before * (1 + float(moved[k, rank]))
            out.append(Slower(rank, self._series[0][k], before, after, float(score[at, rank]), float(q[rank])))
        return out

    @cached_property
    def slow_classes(self) -> list[Slower]:
        """Class names whose work takes longer on all ranks alike."""
        from scipy.special import stdtr

        if not self.enough:
            return []
        level, moved, error, freedom = self._levels
        found, tests = [], 2.0 * max(len(level) - 1, 1)
        for k, name in enumerate(self._series[0]):
            has = level[k] > 0
            if not has.any():
                continue
            centre, spread, count = (float(column[k]) for column in self._common)
            # The lower quartile moves only if nearly all ranks do; a normal distribution's centre is so much above it.
            low = float(np.quantile(moved[k][has], 0.25)) + COVERED / 2 * max(spread, self._assumed)
            all_alike = min(low, centre)
            runs = WHOLE_RUNS**2 + max(spread, self._assumed) ** 2 / count
            # Steps that all ranks share are as red, and as wide, as those of one rank.
            own = float(np.median(error[k][has]))
            score = all_alike / float(np.sqrt(runs + own))
            worth = (runs + own) ** 2 / max(own**2 / float(np.median(freedom[k][has])), 1e-300)
            chance = float(min(1.0, (2.0 if name < 0 else tests) * stdtr(worth, -score)))
            before = float(np.median(level[k][has]))
            found.append(Slower(-1, name, before, before * (1 + all_alike), score, chance))
        alarm = min((one.chance for one in found), default=1.0)
        if alarm >= FALSE_ALARMS:
            return []
        # Once the job is known to be slower, which classes are is an estimate and no search.
        return [struct_replace(one, chance=alarm) for one in found if one.name >= 0 and one.score > KNOWN]

    @cached_property
    def _transfers(self) -> tuple[list[Span], Floats, Floats]:
        """Groups whose transfers take longer, the totals by group and window, and how far each moved."""
        from scipy.special import ndtri, stdtr

        s = self.slowdowns
        if not self.enough or not len(self.graph.gates) or s.count < 2:
            return [], np.zeros((0, 0)), np.zeros(0)
        total = s.transfers
        a, b = levels([total[:, : self.first], total[:, self.first :]])
        known = (total[:, : self.first] > 0).any(axis=1) & (a.mean > 0)
        level = np.where(known, a.mean, 1.0)
        moved = np.where(known, (b.mean - a.mean) / level, 0.0)
        error = (a.error + b.error) / level**2
        freedom = np.minimum(a.freedom, b.freedom)
        spread = max(LINK_RUNS, core(moved[known])[1] if known.sum() > 2 else 0.0) ** 2
        # Satterthwaite: what is assumed of runs has no error of its own.
        worth = (spread + error) ** 2 / np.maximum(error**2 / freedom, 1e-300)
        chance = len(total) * stdtr(worth, -moved / np.sqrt(spread + error))
        slow = np.flatnonzero(known & (chance < FALSE_ALARMS)).tolist()
        spans = [Span(i, self.first, self.last, float(-ndtri(max(chance[i] / len(total), 1e-300))), len(total)) for i in slow]
        return spans, total, moved

    @cached_property
    def slow_groups(self) -> Place | None:
        """Groups whose transfers take longer, with the links behind them; without links where all their members end alike."""
        spans, total, _ = self._transfers
        if not spans:
            return None
        worst = max(spans, key=lambda s: s.score)
        return self.slowdowns.links_behind(spans, worst, total)

    def now(self, mask: Mask) -> Ints:
        """Ops of the run out of a mask over both."""
        return np.flatnonzero(mask[self.both.ops :])

    def place(self, found: Slower) -> Place:
        """A slow rank as a place in the steps of the run; its extra time is that of all its own work and gaps."""
        level, moved, *_ = self._levels
        extra = max(found.after_ns - found.before_ns, float(level[0, found.rank] * moved[0, found.rank]))
        return Place(self.first, self.last, found.score, False, extra, rank=found.rank)

    @cached_property
    def gap_ns(self) -> Floats:
        """Gap before every op of the run as in the baseline."""
        return baseline_medians(self.both, self.graph.gap_ns)[0]


def _centre(moved: Floats, error: Floats) -> tuple[float, float, int]:
    """How far ranks moved that moved with the run as a whole, their spread, and how many they are.

    That is half of them and those around it, unless they clearly moved and others clearly stayed: then these tell.
    """
    centre, spread, count = core(moved)
    reach = STAYED * np.sqrt(max(spread, BETWEEN_RUNS) ** 2 + error)
    stayed = (moved < centre - reach) & (np.abs(moved) < STAYED * WHOLE_RUNS)
    if centre > STAYED * WHOLE_RUNS and stayed.any():
        return float(moved[stayed].mean()), spread, int(stayed.sum())
    return centre, spread, count


def core(values: Floats) -> tuple[float, float, int]:
    """(mean, spread, number) of the values around the shortest half of them; of halves about as short, around the lowest."""
    ordered = np.sort(values)
    half = (len(ordered) + 1) // 2
    width = ordered[half - 1 :] - ordered[: len(ordered) - half + 1]
    at = int(np.flatnonzero(width <= ALMOST * width.min() + BETWEEN_RUNS)[0])
    middle = float(ordered[at : at + half].mean())
    kept = ordered[np.abs(ordered - middle) <= AROUND * max(float(width[at]) / COVERED, BETWEEN_RUNS)]
    spread = float(kept.std(ddof=1)) * WITHOUT_TAILS if len(kept) > 1 else 0.0
    # Those around a half that happens to be short are few: the half itself tells a spread as well, once corrected for that.
    spread = max(spread, float(width[at]) / COVERED / (1 - SHRUNK / np.sqrt(len(ordered)))) if len(ordered) > 1 else spread
    return float(kept.mean()), spread, len(kept)


def compared(e: Evidence) -> Compared | None:
    """The run beside its baseline; None without one."""
    return None if e.both is None else Compared(e, e.both)


def slow_ranks(e: Evidence, known: Mapping[int, float]) -> list[Finding]:
    """Findings about ranks that are slower than in the baseline, unless their own past explains most of it.

    ``known``: what ranks lost against their own past over the run, ns.

    Equal culprits save nothing one by one: where no rank alone saves half of what all save together, they are one finding.
    """
    c = e.compared
    if c is None:
        return []
    steps = len(e.graph.steps)
    found = [one for one in c.slow_ranks if known.get(one.rank, 0.0) < PAST * steps * (one.after_ns - one.before_ns)]
    if not found:
        return []
    changes = {one.rank: _rank_change(c, one) for one in found}
    if len(found) == 1:
        return [_rank_finding(c, found, changes)]
    together = int(recovered(e, [change for some in changes.values() for change in some]).sum())
    single = {one.rank: int(recovered(e, changes[one.rank]).sum()) for one in found[:MOST_PRUNED]}
    if together <= 0 or max(single.values()) >= ALONE * together:
        return [_rank_finding(c, [one], changes) for one in found]
    return [_rank_finding(c, _needed(e, found, changes, together), changes)]


def _needed(e: Evidence, found: list[Slower], changes: dict[int, tuple[Change, ...]], together: int) -> list[Slower]:
    """Ranks without which the set would save less; those that moved least are tried first."""
    kept = list(found)
    for one in sorted(found, key=lambda one: one.after_ns - one.before_ns)[:MOST_PRUNED]:
        rest = [other for other in kept if other is not one]
        saved = int(recovered(e, [change for other in rest for change in changes[other.rank]]).sum())
        if rest and saved >= (1 - NEEDED) * together:
            kept, together = rest, saved
    return kept


def _rank_change(c: Compared, one: Slower) -> tuple[Change, ...]:
    """A rank's own work and gaps as in the baseline, and the transfers that it holds up."""
    e, graph = c.e, c.e.graph
    mine = (graph.rank_index == one.rank) & e.slowdowns.own
    reason = f"rank {int(graph.ranks[one.rank])} as in the baseline"
    work = _known(np.flatnonzero(mine), e.blame.peers.value_ns)
    gaps = _known(np.flatnonzero(graph.rank_index == one.rank), c.gap_ns)
    out = [Change(work, "work", "set", np.rint(e.blame.peers.value_ns[work]).astype(np.int64), reason),
           Change(gaps, "gap", "set", np.rint(c.gap_ns[gaps]).astype(np.int64), reason)]  # fmt: skip
    links = c.slow_groups
    if links is not None and links.links and caused_by_rank(c.slowdowns, c.place(one), links):
        out.append(_transfers_before(c, links, reason))
    return tuple(out)


def _known(ops: Ints, values: Floats) -> Ints:
    return ops[~np.isnan(values[ops])]


def _transfers_before(c: Compared, place: Place, reason: str) -> Change:
    """The transfers of slow groups as in the baseline."""
    g = c.graph
    rows = _known(c.now((g.gate >= 0) & np.append(place.gates, False)[g.gate]), c.e.blame.peers.value_ns)
    return Change(rows, "work", "set", np.rint(c.e.blame.peers.value_ns[rows]).astype(np.int64), reason)


def _rank_finding(c: Compared, found: Sequence[Slower], changes: dict[int, tuple[Change, ...]]) -> Finding:
    from taut.diagnose.late_ranks import mode_of

    e, graph = c.e, c.e.graph
    index = sorted(one.rank for one in found)
    ranks = tuple(int(graph.ranks[i]) for i in index)
    worst = max(found, key=lambda one: one.after_ns - one.before_ns)
    ops = np.concatenate([changes[i][0].ops for i in index])
    excess = np.concatenate([np.asarray(graph.work_ns[changes[i][0].ops] - changes[i][0].value) for i in index])
    opener = e.blame.waits.opener
    opened = np.isin(graph.rank_index[opener], index)
    classes = top_classes(graph, ops, np.maximum(excess, 0))
    of = graph.names[worst.name] if 0 <= worst.name < len(graph.names) else "its own work and gaps"
    whose = "each of " + rank_labels(ranks, graph.members) if len(ranks) > 1 else rank_labels(ranks, graph.members)
    most, them = ("up to ", "them") if len(ranks) > 1 else ("", "it")
    stages = sorted({int(graph.members.stage[i]) for i in index} - {-1})
    return Finding(
        mode=mode_of(graph, ops, excess),
        ranks=ranks,
        stages=tuple(stages),
        classes=(of, *(name for name in classes if name != of))[:3] if worst.name >= 0 else classes,
        steps=e.steps(0, len(graph.steps) - 1),
        lost_rank_ns=int(e.exposed.waiting[e.blame.waits.op[opened]].sum()),
        confidence=1 - min(one.chance for one in found),
        because=f"{whose} takes {most}{spell(worst.after_ns)} a step in {of}, {spell(worst.before_ns)} in the baseline "
        f"({worst.score:.1f} standard errors, spread between runs included); the others wait for {them}",
        changes=tuple(change for i in index for change in changes[i]),
        reference="baseline",
        grew=Grew(of, worst.before_ns, worst.after_ns),
    )


def slow_links(e: Evidence) -> list[Finding]:
    """At most one finding: links over which transfers take longer than in the baseline."""
    from taut.diagnose.straggler import elsewhere_too, shared_end

    c = e.compared
    place = None if c is None else c.slow_groups
    if c is None or place is None or not place.links or _by_rank(c, place):
        return []
    if elsewhere_too(c.graph, c.slowdowns, place):
        return []
    change = _transfers_before(c, place, f"link {', '.join(place.link_names)} as in the baseline")
    owners = tuple(place.owners) if len(place.links) > 1 and len(place.owners) == 1 else ()
    where = f" ({shared_end(owners[0], e.graph)})" if owners else ""
    before, after = _of_groups(c, place)
    return [
        replace(
            _transfer_finding(c, change, place),
            mode="straggler cascade", ranks=owners, links=place.link_names,
            because=f"transfers over link {', '.join(place.link_names)} take {spell(after)} a step, added up, "
            f"{spell(before)} in the baseline ({place.score:.1f} standard errors, spread between runs included){where}; "
            f"every transfer of their groups waits for them",
        )
    ]  # fmt: skip


def _by_rank(c: Compared, place: Place) -> bool:
    """Whether a rank that is slow itself explains slow transfers."""
    return any(caused_by_rank(c.slowdowns, c.place(one), place) for one in c.slow_ranks)


def _of_groups(c: Compared, place: Place) -> tuple[float, float]:
    """Longest transfers of the slow groups, summed by step: median before and after."""
    window, _, high = c.slowdowns.gates
    took = np.bincount(window[place.gates], weights=high[place.gates], minlength=c.last + 1)
    return float(np.median(took[: c.first])), float(np.median(took[c.first :]))


def _transfer_finding(c: Compared, change: Change, place: Place) -> Finding:
    e = c.e
    work = e.graph.work_ns[change.ops]
    more = np.asarray(work - change.value)
    classes = top_classes(e.graph, change.ops, np.maximum(more, 0))
    return Finding(
        mode="silent degradation",
        classes=classes,
        steps=e.steps(0, len(e.graph.steps) - 1),
        lost_rank_ns=int((e.exposed.working[change.ops] * np.clip(more / np.maximum(work, 1), 0, 1)).sum()),
        confidence=confidence(place.score, place.tests),
        because="",
        changes=(change,),
        reference="baseline",
        grew=Grew(classes[0] if classes else "transfers", *_of_groups(c, place)),
    )


def slow_everywhere(e: Evidence) -> list[Finding]:
    """At most two findings: classes of work that take longer on all ranks, and transfers that do while no link ends later."""
    c = e.compared
    if c is None:
        return []
    out = [] if not c.slow_classes else [_all_ranks(c, c.slow_classes)]
    place = c.slow_groups
    from taut.diagnose.straggler import elsewhere_too

    if place is not None and not _by_rank(c, place) and (not place.links or elsewhere_too(c.graph, c.slowdowns, place)):
        change = _transfers_before(c, place, "transfers as in the baseline")
        before, after = _of_groups(c, place)
        finding = _transfer_finding(c, change, place)
        name = finding.classes[0] if finding.classes else "transfers"
        because = (
            f"{name} takes {spell(after)} a step, {spell(before)} in the baseline ({place.score:.1f} standard errors, runs "
            f"taken to differ by {100 * LINK_RUNS:.0f} %); no member ends later than the others, so no link is named"
        )
        out.append(replace(finding, because=because))
    return out


def _all_ranks(c: Compared, found: list[Slower]) -> Finding:
    """Classes that take longer on all ranks: each as much shorter as it was in the baseline."""
    e, graph = c.e, c.e.graph
    found = sorted(found, key=lambda one: one.before_ns - one.after_ns)
    found = [one for one in found if one.name < len(graph.names)]
    factor = np.ones(len(graph.names))
    for one in found:
        factor[one.name] = one.before_ns / max(one.after_ns, 1.0)
    rows = np.flatnonzero(e.slowdowns.own & (factor[graph.ops.name] < 1))
    kept = np.rint(graph.work_ns[rows] * factor[graph.ops.name[rows]]).astype(np.int64)
    names, worst = tuple(graph.names[one.name] for one in found), found[0]
    before, after = (sum(getattr(one, key) for one in found) for key in ("before_ns", "after_ns"))
    return Finding(
        mode="silent degradation",
        classes=names[:3],
        steps=e.steps(0, len(graph.steps) - 1),
        lost_rank_ns=int((graph.work_ns[rows] - kept).sum()),
        confidence=1 - min(one.chance for one in found),
        because=f"the whole job is slower, no rank more than the others: {names[0]} takes {spell(worst.after_ns)} a step on "
        f"each rank, {spell(worst.before_ns)} in the baseline (all classes that grew: {spell(before)} → {spell(after)}; "
        f"{worst.score:.1f} standard errors, runs taken to differ by {100 * WHOLE_RUNS:.0f} %)",
        changes=(Change(rows, "work", "set", kept, f"{names[0]} as in the baseline"),),
        reference="baseline",
        grew=Grew(names[0], worst.before_ns, worst.after_ns),
    )


__all__ = ["compared", "slow_everywhere", "slow_links", "slow_ranks"]
