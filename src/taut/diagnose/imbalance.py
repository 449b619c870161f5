"""Work imbalance: excess that follows the work, not the device that does it.

Two shapes, two null hypotheses. *Micro-batches*: of what varies between the micro-batches of a rank's step, no more than
half is the work: how long one takes forward says less than TOGETHER of how long it takes backward, beyond what it says of
the backward pass of its neighbours. Sequence lengths and tokens per expert lengthen both of its own passes, a slow device
all micro-batches alike, a slow while those next to each other (correlations centred in the rank's step and by place).
*Stages*: the ranks of a stage do no more than LONGER times the mean work of the stages. Both are tested over steps, which
may resemble their neighbours (``core/persistence.py``), and reported only if evening out the work, the total kept, would
recover something.
"""

from __future__ import annotations

from functools import cached_property
from operator import itemgetter
from statistics import NormalDist

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, weighed
from taut.core.persistence import above_zero
from taut.core.tables import Kind
from taut.diagnose.finding import Evidence, Finding, top_classes
from taut.graph import Graph
from taut.replay.timeline import Change

MODE = "work imbalance"
MODES = (MODE,)
FALSE_ALARMS = 0.01
"""Chance that balanced work is called unbalanced, for each of the two shapes."""
TOGETHER = 0.5
"""Correlation of forward and backward, less that with the neighbours, from which most of what varies is the work."""
LONGER = 1.1
"""Times the mean over all stages that a stage must work for: less is rounding, layers do not divide."""
WITH_NEIGHBOURS = 5.0
"""Variance of the difference of two correlations, of an op with itself and with its neighbours, in that of one; chosen on work
that is red from op to op, in two to four steps."""
HABIT = 5
"""Steps from which what a place in the step does in all of them (the first micro-batch is cold) is taken out."""
FORWARD, BACKWARD = ("forward", "fwd"), ("backward", "bwd")


def detect(evidence: Evidence) -> list[Finding] | None:
    """Unequal micro-batches, and stages that are too long."""
    found = [one for one in (micro_batches(evidence), stages(evidence)) if one is not None]
    return [finding for one in found for finding in one] if found else None


class MicroBatches(Struct, frozen=True, dict=True):
    """Those of every rank and step that were seen both ways, with the centred logarithms of their work."""

    forward: Floats
    backward: Floats
    rank: Ints
    window: Ints
    step: Ints
    """Number of the rank's step."""
    part: Ints
    """Place in the step."""
    habit: bool
    """Whether what a place does in all steps is taken out."""

    @cached_property
    def kept(self) -> float:
        """Share of the correlation of independent work that centring leaves: it makes neighbours look unlike."""
        return 1 - len(np.unique(self.step)) / len(self.step)

    @cached_property
    def beside(self) -> Ints:
        """Micro-batches that the next of their step follows."""
        return np.flatnonzero((self.step[1:] == self.step[:-1]) & (self.part[1:] == self.part[:-1] + 1))

    @cached_property
    def here(self) -> tuple[Ints, Ints]:
        """Pairs of each with itself, of those that have a neighbour."""
        next_to = self.beside
        here = np.concatenate([next_to, next_to + 1]) if len(next_to) else np.arange(len(self.step))
        return here, here

    def correlation(self, pairs: tuple[Ints, Ints]) -> float:
        """Of the forward work of the first with the backward work of the second, inside ranks: the median over ranks."""
        x, y, rank = self.forward[pairs[0]], self.backward[pairs[1]], self.rank[pairs[0]]
        xy, xx, yy = (weighed(rank, product) for product in (x * y, x**2, y**2))
        known = xx * yy > 0
        return float(np.median(xy[known] / np.sqrt(xx * yy)[known])) if known.any() else 0.0

    @cached_property
    def apart(self) -> float:
        """Share of the micro-batches that tell something of their own: what ranks share, they tell once."""
        cell, cells = numbered(self.window, self.part)
        count = np.bincount(cell, minlength=cells)
        shared = [float((weighed(cell, x, cells) ** 2 / count).sum() / (x**2).sum()) for x in (self.forward, self.backward)]
        # The mean square of a mean over n is one nth of that of its parts if these are independent, and all of it if alike.
        return float(np.clip(1 / max(shared), 1 / count.max(), 1.0))

    def by_window(self, pairs: tuple[Ints, Ints]) -> Floats:
        """Mean product of the forward work of the first with the backward work of the second, in every window."""
        window, windows = self.window[pairs[0]], int(self.window.max()) + 1
        product = weighed(window, self.forward[pairs[0]] * self.backward[pairs[1]], windows)
        return product / np.maximum(np.bincount(window, minlength=windows), 1)

    def chance(self, work: float, beside: tuple[Ints, Ints]) -> float:
        """Chance of such a correlation if no more than TOGETHER of what varies is the work."""
        if not self.habit:
            free = (len(self.step) - len(np.unique(self.step))) * self.apart - 1
            # Neighbours say how much of it is a slow while, with an error of their own.
            error = np.sqrt(WITH_NEIGHBOURS / max(free, 1.0))
            return NormalDist().cdf((np.arctanh(TOGETHER) - np.arctanh(min(work, 0.999))) / error)
        limit = TOGETHER * float(np.sqrt((self.forward**2).mean() * (self.backward**2).mean()))
        return above_zero((self.by_window(self.here) - self.by_window(beside)) * self.kept - limit)[1]


def _micro_batches(g: Graph, passes: list[Mask]) -> MicroBatches | None:
    """The micro-batches of two passes (masks of ops); None where there are too few to tell."""
    cell, cells = numbered(g.rank_index, g.window, np.maximum(g.ops.part, 0))
    took = [weighed(cell[one], g.work_ns[one], cells) for one in passes]
    both = np.flatnonzero((took[0] > 0) & (took[1] > 0))
    op = np.zeros(cells, dtype=np.int64)
    op[cell] = np.arange(len(g))
    op = op[both]
    rank, part = (column[op].astype(np.int64) for column in (g.rank_index, g.ops.part))
    numbers, steps = numbered(g.rank_index, g.window)
    step = numbers[op]
    logs = [_centred(np.log(np.maximum(one[both], 1.0)), step, steps) for one in took]
    habit = len(g.steps) >= HABIT
    if habit and len(both):
        logs = [_centred(one, *numbered(rank, part)) for one in logs]
    if len(both) - len(np.unique(step)) < 11 or not all(one.any() for one in logs):
        return None
    return MicroBatches(logs[0], logs[1], rank, g.window[op].astype(np.int64), step, part, habit)


def micro_batches(e: Evidence) -> list[Finding] | None:
    """Micro-batches that are long forward and backward."""
    g = e.graph
    usable = _punctual_ops(e) & (g.ops.part >= 0) & (g.ops.kind == Kind.COMPUTE)
    passes = [_named(g, words) & usable for words in (FORWARD, BACKWARD)]
    found = _micro_batches(g, passes) if all(one.any() for one in passes) else None
    if found is None:
        return None
    first, second = found.beside, found.beside + 1
    r = found.correlation(found.here)
    near, beside = max(((found.correlation(pairs), pairs) for pairs in ((first, second), (second, first))), key=itemgetter(0))
    work = (r - near) * found.kept
    chance = found.chance(work, beside)
    if work < TOGETHER or chance >= FALSE_ALARMS:
        return []
    rows = np.flatnonzero(passes[0] | passes[1])
    cls, classes = numbered(g.roles[rows], g.ops.name[rows], g.window[rows])
    even = (weighed(cls, g.work_ns[rows], classes) / np.bincount(cls, minlength=classes))[cls]
    return [
        Finding(
            mode=MODE,
            reference="peers",
            classes=tuple(g.names[i] for i in np.unique(g.ops.name[rows]))[:3],
            steps=e.steps(0, -1),
            lost_rank_ns=int(np.maximum(g.work_ns[rows] - even, 0).sum()),
            confidence=1 - chance,
            because=f"micro-batches are unequal work (sequence lengths, tokens), no device is slow: those that take longer "
            f"forward take longer backward (correlation {r:.2f} inside a rank's step, {near:.2f} with their neighbours; "
            f"{len(found.step)} micro-batches)",
            changes=(Change(rows, "work", "set", np.rint(even).astype(np.int64), "micro-batches of equal work"),),
        )
    ]


def stages(e: Evidence) -> list[Finding] | None:
    """The stage that is too long, if one is."""
    g = e.graph
    stage = np.asarray(g.members.stage)
    known = np.unique(stage[stage >= 0])
    if len(known) < 2 or (stage < 0).any() or len(g.steps) < 3 or len(np.unique(stage[_punctual_ranks(e)])) < len(known):
        return None
    own = (g.ops.kind == Kind.COMPUTE) & _punctual_ops(e)
    key = np.searchsorted(known, stage[g.rank_index]) * len(g.steps) + g.window
    total = weighed(key[own], g.work_ns[own], len(known) * len(g.steps)).reshape(len(known), -1)
    work = total / np.maximum(np.bincount(np.searchsorted(known, stage[_punctual_ranks(e)]), minlength=len(known)), 1)[:, None]
    mean = work.mean(axis=0)
    longest = int(np.argmax(np.median(work, axis=1)))
    over = work[longest] / np.maximum(mean, 1.0)
    # Logarithms: twice and half as long are equally far from the mean.
    above = np.log(np.maximum(over, 1e-9)) - np.log(LONGER)
    chance = len(known) * above_zero(above)[1]
    if not chance < FALSE_ALARMS:
        return []
    rows = np.flatnonzero(g.ops.kind == Kind.COMPUTE)
    even = g.work_ns[rows] * (mean / np.maximum(work, 1.0)).ravel()[key[rows]]
    mine = rows[stage[g.rank_index[rows]] == known[longest]]
    lost = float((work[longest] - mean).sum() * np.count_nonzero(stage == known[longest]))
    return [
        Finding(
            mode=MODE,
            reference="peers",
            stages=(int(known[longest]),),
            classes=top_classes(g, mine, g.work_ns[mine]),
            steps=e.steps(0, -1),
            lost_rank_ns=int(max(lost, 0)),
            confidence=1 - chance,
            because=f"stage {int(known[longest])} computes {float(np.median(over)):.2f} times as long a step as the mean of "
            f"the {len(known)} stages, in nearly every step: it has too many layers, no device is slow; the saving is that of "
            f"equal stages",
            changes=(Change(rows, "work", "set", np.rint(even).astype(np.int64), "stages of equal work"),),
        )
    ]


def _punctual_ranks(e: Evidence) -> Mask:
    """Mask of the ranks that are not late by themselves: a slow device makes its micro-batches and its stage long, too."""
    late = {rank for finding in e.late_ranks for rank in finding.ranks}
    return ~np.isin(e.graph.ranks, list(late))


def _punctual_ops(e: Evidence) -> Mask:
    """Mask of the ops of these ranks."""
    return _punctual_ranks(e)[e.graph.rank_index]


def _named(graph: Graph, words: tuple[str, ...]) -> Mask:
    """Mask of the ops whose class name has one of the words in it."""
    wanted = np.array([any(word in name.lower() for word in words) for name in graph.names], dtype=bool)
    return wanted[graph.ops.name]


def _centred(values: Floats, group: Ints, groups: int) -> Floats:
    """Values less the mean of their group."""
    count = np.maximum(np.bincount(group, minlength=groups), 1)
    return values - (weighed(group, values, groups) / count)[group]
