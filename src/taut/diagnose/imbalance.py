"""Work imbalance: excess that follows the work, not the device that does it.

Two shapes, two null hypotheses. *Micro-batches*: of what varies between the micro-batches of a rank's step, no more than
half is the work: how long one takes forward says less than TOGETHER of how long it takes backward, beyond what it says of
the backward pass of its neighbours. Sequence lengths and tokens per expert lengthen both of its own passes, a slow device
all micro-batches alike, a slow while those next to each other (correlations centred in the rank's step and by place).
*Stages*: the ranks of a stage do no more than LONGER times the mean work of the stages. Both are tested over steps, which
may resemble their neighbours (``steady.py``), and reported only if evening out the work, the total kept, would recover
something.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, weighed
from taut.core.persistence import above_zero
from taut.core.tables import Kind
from taut.diagnose.finding import Evidence, Finding
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
HABIT = 5
"""Steps from which what a place in the step does in all of them (the first micro-batch is cold) is taken out."""
FORWARD, BACKWARD = ("forward", "fwd"), ("backward", "bwd")


def detect(evidence: Evidence) -> list[Finding] | None:
    """Unequal micro-batches, and stages that are too long."""
    found = [one for one in (micro_batches(evidence), stages(evidence)) if one is not None]
    return [finding for one in found for finding in one] if found else None


def micro_batches(e: Evidence) -> list[Finding] | None:
    """Micro-batches that are long forward and backward."""
    g = e.graph
    usable = _innocent(e) & (g.ops.part >= 0) & (g.ops.kind == Kind.COMPUTE)
    passes = [_named(g, words) & usable for words in (FORWARD, BACKWARD)]
    if not all(one.any() for one in passes):
        return None
    either = passes[0] | passes[1]
    cell, cells = numbered(g.rank_index, g.window, np.maximum(g.ops.part, 0))
    took = [weighed(cell[one], g.work_ns[one], cells) for one in passes]
    both = np.flatnonzero((took[0] > 0) & (took[1] > 0))
    rank_of, window_of, step_of, part_of = (np.zeros(cells, dtype=np.int64) for _ in range(4))
    step, steps = numbered(g.rank_index, g.window)
    rank_of[cell], window_of[cell], step_of[cell], part_of[cell] = g.rank_index, g.window, step, g.ops.part
    rank_of, window_of, step_of, part_of = (column[both] for column in (rank_of, window_of, step_of, part_of))
    place, places = numbered(rank_of, part_of) if len(both) else (both, 0)
    x, y = (_centred(np.log(np.maximum(one[both], 1.0)), step_of, steps) for one in took)
    if len(g.steps) >= HABIT:
        x, y = (_centred(one, place, places) for one in (x, y))
    free = len(both) - len(np.unique(step_of)) - 1
    if free < 10 or not x.any() or not y.any():
        return None
    next_to = np.flatnonzero((step_of[1:] == step_of[:-1]) & (part_of[1:] == part_of[:-1] + 1))
    here = np.concatenate([next_to, next_to + 1]) if len(next_to) else np.arange(len(both))
    r = _together(x, y, here, here, rank_of)
    pairs = (next_to, next_to + 1), (next_to + 1, next_to)
    near, beside = max(((_together(x, y, *pair, rank_of), pair) for pair in pairs), key=lambda one: one[0])
    # Centring makes neighbours of independent work look alike the other way; this is the share of the work without that.
    kept = 1 - len(np.unique(step_of)) / len(both)
    work = (r - near) * kept
    if len(g.steps) < HABIT:
        chance = NormalDist().cdf((np.arctanh(TOGETHER) - np.arctanh(min(work, 0.999))) * np.sqrt(free))
    else:
        same, other = (_by_window(x, y, *pair, window_of) for pair in ((here, here), beside))
        limit = TOGETHER * float(np.sqrt((x * x).mean() * (y * y).mean()))
        chance = above_zero((same - other) * kept - limit)[1]
    if work < TOGETHER or chance >= FALSE_ALARMS:
        return []
    rows = np.flatnonzero(either)
    cls, classes = numbered(g.roles[rows], g.ops.name[rows], g.window[rows])
    even = (weighed(cls, g.work_ns[rows], classes) / np.bincount(cls, minlength=classes))[cls]
    names = tuple(g.names[i] for i in np.unique(g.ops.name[rows]))[:3]
    lost = int(np.maximum(g.work_ns[rows] - even, 0).sum())
    return [
        Finding(
            MODE, (), (), (), names, (int(g.steps[0]), int(g.steps[-1])), lost, 0, 1 - chance,
            f"micro-batches that take longer forward take longer backward (correlation {r:.2f} inside a rank's step, "
            f"{near:.2f} with their neighbours; {len(both)} micro-batches): the work is unequal (sequence lengths, tokens), no "
            f"device is slow",
            changes=(Change(rows, "work", "set", np.rint(even).astype(np.int64), "micro-batches of equal work"),),
        )
    ]  # fmt: skip


def _together(x: Floats, y: Floats, one: Ints, other: Ints, rank: Ints) -> float:
    """Correlation of some x with some y inside ranks, the median over ranks."""
    xy, xx, yy = (weighed(rank[one], p) for p in (x[one] * y[other], x[one] ** 2, y[other] ** 2))
    known = xx * yy > 0
    return float(np.median(xy[known] / np.sqrt(xx * yy)[known])) if known.any() else 0.0


def _by_window(x: Floats, y: Floats, one: Ints, other: Ints, window: Ints) -> Floats:
    """Mean product of some x with some y in every window."""
    count = np.bincount(window[one], minlength=int(window.max()) + 1)
    return weighed(window[one], x[one] * y[other], len(count)) / np.maximum(count, 1)


def stages(e: Evidence) -> list[Finding] | None:
    """The stage that is too long, if one is."""
    g = e.graph
    stage = np.asarray(g.members.stage)
    known = np.unique(stage[stage >= 0])
    if len(known) < 2 or (stage < 0).any() or len(g.steps) < 3 or len(np.unique(stage[_ranks(e)])) < len(known):
        return None
    own = (g.ops.kind == Kind.COMPUTE) & _innocent(e)
    key = np.searchsorted(known, stage[g.rank_index]) * len(g.steps) + g.window
    total = weighed(key[own], g.work_ns[own], len(known) * len(g.steps)).reshape(len(known), -1)
    work = total / np.maximum(np.bincount(np.searchsorted(known, stage[_ranks(e)]), minlength=len(known)), 1)[:, None]
    mean = work.mean(axis=0)
    longest = int(np.argmax(np.median(work, axis=1)))
    over = work[longest] / np.maximum(mean, 1.0)
    above = np.log(np.maximum(over, 1e-9)) - np.log(LONGER)
    chance = len(known) * above_zero(above)[1]
    if not chance < FALSE_ALARMS:
        return []
    rows = np.flatnonzero(g.ops.kind == Kind.COMPUTE)
    even = g.work_ns[rows] * (mean / np.maximum(work, 1.0)).ravel()[key[rows]]
    mine = rows[stage[g.rank_index[rows]] == known[longest]]
    names = weighed(g.ops.name[mine], g.work_ns[mine])
    lost = float((work[longest] - mean).sum() * np.count_nonzero(stage == known[longest]))
    return [
        Finding(
            MODE, (), (), (int(known[longest]),), tuple(g.names[i] for i in np.argsort(-names)[:3] if names[i] > 0),
            (int(g.steps[0]), int(g.steps[-1])), int(max(lost, 0)), 0, 1 - chance,
            f"stage {int(known[longest])} computes {float(np.median(over)):.2f} times as long a step as the mean of the "
            f"{len(known)} stages, in nearly every step: layers, not devices; the saving is that of equal stages",
            changes=(Change(rows, "work", "set", np.rint(even).astype(np.int64), "stages of equal work"),),
        )
    ]  # fmt: skip


def _ranks(e: Evidence) -> Mask:
    """Mask of the ranks that are not late by themselves: a slow device makes its micro-batches and its stage long, too."""
    late = {rank for finding in e.late for rank in finding.ranks}
    return ~np.isin(e.graph.ranks, list(late))


def _innocent(e: Evidence) -> Mask:
    """Mask of their ops."""
    return _ranks(e)[e.graph.rank_index]


def _named(graph: Graph, words: tuple[str, ...]) -> Mask:
    """Mask of the ops whose class name has one of the words in it."""
    wanted = np.array([any(word in name.lower() for word in words) for name in graph.names], dtype=bool)
    return wanted[graph.ops.name]


def _centred(values: Floats, group: Ints, groups: int) -> Floats:
    """Values less the mean of their group."""
    count = np.maximum(np.bincount(group, minlength=groups), 1)
    return values - (weighed(group, values, groups) / count)[group]
