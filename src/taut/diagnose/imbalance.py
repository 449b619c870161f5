"""Work imbalance: excess that follows the work, not the device that does it.

Two shapes, two null hypotheses. *Micro-batches*: inside a rank's step, how long a micro-batch takes forward says nothing
of how long it takes backward; sequence lengths and tokens per expert lengthen both, a slow device all micro-batches
alike (correlation of the two, centred in the rank's step, median over ranks). *Stages*: the ranks of a stage do as much
work a step as those of the others, up to what the stages differ by from step to step. Either is reported only if evening
out the work, the total kept, would recover something.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.diagnose.finding import Evidence, Finding, student
from taut.graph import Graph
from taut.graph.ids import numbered
from taut.replay import Change
from taut.tables import Kind

MODE = "work imbalance"
MODES = (MODE,)
FALSE_ALARMS = 0.01
"""Chance that balanced work is called unbalanced, for each of the two shapes."""
TOGETHER = 0.5
"""Correlation of forward and backward from which most of what varies is the work."""
LONGER = 1.1
"""Times the mean over all stages that a stage must work for: less is rounding, layers do not divide."""
FORWARD, BACKWARD = ("forward", "fwd"), ("backward", "bwd")


def detect(evidence: Evidence) -> list[Finding] | None:
    """Unequal micro-batches, and stages that are too long."""
    found = [one for one in (_micro_batches(evidence), _stages(evidence)) if one is not None]
    return [finding for one in found for finding in one] if found else None


def _micro_batches(e: Evidence) -> list[Finding] | None:
    g = e.graph
    usable = _innocent(e) & (g.ops.part >= 0) & (g.ops.kind == Kind.COMPUTE)
    passes = [_named(g, words) & usable for words in (FORWARD, BACKWARD)]
    if not all(one.any() for one in passes):
        return None
    either = passes[0] | passes[1]
    cell, cells = numbered(g.rank_index, g.window, np.maximum(g.ops.part, 0))
    took = [np.bincount(cell[one], weights=g.work_ns[one], minlength=cells) for one in passes]
    both = (took[0] > 0) & (took[1] > 0)
    step_of, rank_of = np.zeros(cells, dtype=np.int64), np.zeros(cells, dtype=np.int64)
    step, steps = numbered(g.rank_index, g.window)
    step_of[cell], rank_of[cell] = step, g.rank_index
    x, y = (_centred(np.log(np.maximum(one[both], 1.0)), step_of[both], steps) for one in took)
    free = int(both.sum()) - len(np.unique(step_of[both])) - 1
    if free < 10 or not x.any() or not y.any():
        return None
    xy, xx, yy = (np.bincount(rank_of[both], weights=product) for product in (x * y, x * x, y * y))
    r = float(np.median((xy / np.sqrt(np.maximum(xx * yy, 1e-12)))[xx > 0]))
    chance = student(r * np.sqrt(free / max(1 - r * r, 1e-12)), free)
    if r < TOGETHER or chance >= FALSE_ALARMS:
        return []
    rows = np.flatnonzero(either)
    cls, classes = numbered(g.roles[rows], g.ops.name[rows], g.window[rows])
    even = (np.bincount(cls, weights=g.work_ns[rows], minlength=classes) / np.bincount(cls, minlength=classes))[cls]
    names = tuple(g.names[i] for i in np.unique(g.ops.name[rows]))[:3]
    lost = int(np.maximum(g.work_ns[rows] - even, 0).sum())
    return [
        Finding(
            MODE, (), (), (), names, (int(g.steps[0]), int(g.steps[-1])), lost, 0, 1 - chance,
            f"micro-batches that take longer forward take longer backward (correlation {r:.2f} inside a rank's step, "
            f"{int(both.sum())} micro-batches): the work is unequal (sequence lengths, tokens), no device is slow",
            changes=(Change(rows, "work", "set", np.rint(even).astype(np.int64), "micro-batches of equal work"),),
        )
    ]  # fmt: skip


def _stages(e: Evidence) -> list[Finding] | None:
    g = e.graph
    stage = np.asarray(g.members.stage)
    known = np.unique(stage[stage >= 0])
    if len(known) < 2 or (stage < 0).any() or len(g.steps) < 3 or len(np.unique(stage[_ranks(e)])) < len(known):
        return None
    own = (g.ops.kind == Kind.COMPUTE) & _innocent(e)
    key = np.searchsorted(known, stage[g.rank_index]) * len(g.steps) + g.window
    total = np.bincount(key[own], weights=g.work_ns[own], minlength=len(known) * len(g.steps)).reshape(len(known), -1)
    work = total / np.maximum(np.bincount(np.searchsorted(known, stage[_ranks(e)]), minlength=len(known)), 1)[:, None]
    mean = work.mean(axis=0)
    longest = int(np.argmax(np.median(work, axis=1)))
    over = work[longest] / np.maximum(mean, 1.0)
    above = np.log(np.maximum(over, 1e-9)) - np.log(LONGER)
    error = max(float(above.std(ddof=1)), 1e-9) / np.sqrt(len(above))
    chance = len(known) * student(float(above.mean()) / error, len(above) - 1)
    if not chance < FALSE_ALARMS:
        return []
    rows = np.flatnonzero(own)
    even = g.work_ns[rows] * (mean / np.maximum(work, 1.0)).ravel()[key[rows]]
    mine = rows[stage[g.rank_index[rows]] == known[longest]]
    names = np.bincount(g.ops.name[mine], weights=g.work_ns[mine])
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


def _ranks(e: Evidence) -> Any:
    """Mask of the ranks that are not late by themselves: a slow device makes its micro-batches and its stage long, too."""
    late = {rank for finding in e.late for rank in finding.ranks}
    return ~np.isin(e.graph.ranks, list(late))


def _innocent(e: Evidence) -> Any:
    """Mask of their ops."""
    return _ranks(e)[e.graph.rank_index]


def _named(graph: Graph, words: tuple[str, ...]) -> Any:
    """Mask of the ops whose class name has one of the words in it."""
    wanted = np.array([any(word in name.lower() for word in words) for name in graph.names], dtype=bool)
    return wanted[graph.ops.name]


def _centred(values: Any, group: Any, groups: int) -> Any:
    """Values less the mean of their group."""
    count = np.maximum(np.bincount(group, minlength=groups), 1)
    return values - (np.bincount(group, weights=values, minlength=groups) / count)[group]
