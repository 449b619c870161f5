"""Steps of a trace that marks none: the unit of work that recurs over all of it.

Layers recur inside a step, and steps inside a trace. A unit is a step if it holds every class of ops that the trace holds:
what is embedded, sampled or optimised once a step lies outside of any layer. So a class of ops is taken as the beginning of
units, and the units between its ops are asked which classes they have; of all classes that could begin a unit the one with
the most and shortest units is taken that misses nothing. A trace of one step has classes before its first and after its last
layer that are nowhere else, and stays one window; so does one in which nothing recurs three times.

Everything is judged by classes, not by exact sequences: streams overtake each other, a step may have a few ops more, prefill
has other ops than decode, and the first and last step may be cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from taut.core.array_types import Ints, Mask
from taut.core.device_words import on_device
from taut.core.ids import least, numbered
from taut.core.tables import Table, Trace, Verb

LEAST_UNITS, LEAST_CLASSES, LEAST_KERNELS = 3, 2, 3
"""Units that make a loop, and classes that make a unit; of a device, which records everything, more."""
USUAL = 0.8
"""A class belongs to the unit if it is in this share of the units, and units are alike if this share of them is."""
ALIKE, COMPLETE = 0.25, 0.95
"""Units differ by at most this much of the median one; a last one that is shorter than this and than all others is cut."""
STRAY, RARE, MISSING, MORE = 0.05, 0.1, 0.3, 0.05
"""Share of the classes that may lie before or after all units only; that may be in few units; that may be missing in most
units; and that may be missing in shorter units if longer ones have them."""
FEW = 0.3
"""A class in less than this share of the units is rare: what happens once in a step is so among its layers."""
OTHER = 0.7
"""A unit with less than this share of the usual classes does another kind of work: prefill among decodes."""
LEAST_READ = 8
"""Units between which the host reads a result, from which what comes only before the second of them is a beginning."""
BEYOND = 0.1
"""Share of the ops that may lie before the first unit or behind the last, besides a cut one."""
MOST_TRIED, TRIED_EACH, MOST_ROWS = 96, 4, 30_000_000
ASKED = 8
"""Ranks that are asked for their units; the others are cut in the same way."""


READ = "copy d2h"


class Cut(NamedTuple):
    """Where units part: before or behind every op of one class."""

    code: int
    behind: bool


class Unit(NamedTuple):
    """What could be the units of one rank."""

    cut: Cut
    cuts: int
    lost: int
    """Ops in units that are cut."""
    spread: int
    """Ops of the longest unit, less those of the shortest."""


def recurring(trace: Trace) -> Ints:
    """The step of each op by the unit that recurs, -1 in units that are cut; 0 for all where nothing does."""
    ops = trace.ops
    none = np.zeros(len(ops), dtype=np.int64)
    device = on_device(trace.lanes)[ops.lane] if len(trace.lanes) else np.zeros(len(ops), dtype=np.bool_)
    work = np.flatnonzero(device) if device.any() else np.arange(len(ops))
    work = work[np.lexsort((ops.start_ns[work], _issued(ops, work), ops.rank[work]))]
    ranks = np.split(work, np.flatnonzero(np.diff(ops.rank[work])) + 1)
    code, classes = _classes(ops, work)
    reads = np.zeros(classes, dtype=np.bool_)
    reads[code] = np.array([name == READ for name in trace.names], dtype=np.bool_)[ops.name[work]]
    least = LEAST_KERNELS if device.any() else LEAST_CLASSES
    tokens = np.split(code, np.cumsum([len(mine) for mine in ranks])[:-1])
    asked = [_units(tokens[k], reads, least) for k in np.unique(np.linspace(0, len(ranks) - 1, ASKED).astype(int)).tolist()]
    cut = _common(asked)
    if cut is None:
        return none
    step = np.full(len(ops), -1, dtype=np.int64)
    for mine, token in zip(ranks, tokens, strict=True):
        step[mine] = _turns(token, cut)[0]
    if len(work) < len(ops):
        _place_host(ops, step, work)
    return step if (step >= 0).any() else none


def _issued(ops: Table, work: Ints) -> Ints:
    """When each op was launched, if that is known of all: streams overtake each other, launches do not."""
    launch = ops.launch[work]
    return ops.start_ns[launch] if len(work) and (launch >= 0).all() else ops.start_ns[work]


def _classes(ops: Table, work: Ints) -> tuple[Ints, int]:
    """Codes of the classes: names, and sizes of communication where they recur."""
    size = np.where(ops.verb[work] != Verb.NONE, ops.size[work], -1)
    exact, _ = numbered(ops.name[work], size)
    often = np.bincount(exact)[exact] >= LEAST_UNITS
    return numbered(ops.name[work], np.where(often, size, -1))


def _common(asked: list[list[Unit]]) -> Cut | None:
    """The cut that all ranks that were asked allow."""
    others = [{unit.cut for unit in units} for units in asked[1:]]
    return next((unit.cut for unit in asked[0] if all(unit.cut in cuts for cuts in others)), None) if asked else None


def _units(token: Ints, reads: Mask, least: int) -> list[Unit]:
    """What could be the units of one rank, the best first; ``reads`` are the classes with which the host reads results."""
    count = np.bincount(token, minlength=len(reads))
    there = int((count > 0).sum())
    order = np.argsort(token, kind="stable")
    first = np.cumsum(count) - count
    found = dict[int, int]()
    for code in _candidates(token, count):
        at = order[first[code] : first[code] + count[code]]
        if _regular(at, len(token)):
            stray, rare, missing = _lacking(token, order, at, reads)
            if stray <= int(STRAY * there) and rare <= RARE * there and missing <= min(MISSING * there, there - least):
                found[code] = missing
    if not found or _two_halves(order, first, count, len(token)):
        return []
    enough = min(found.values()) + int(MORE * there)
    cuts = [Cut(code, behind) for code, missing in found.items() if missing <= enough for behind in (False, True)]
    units = [Unit(cut, int(count[cut.code]), *_turns(token, cut)[1:]) for cut in cuts]
    most = max(unit.cuts for unit in units)
    # A few cuts more are no smaller units, but chance beside the loop: there the units that are most alike are the steps.
    return sorted(units, key=lambda unit: (unit.cuts < USUAL * most, unit.lost + unit.spread, -unit.cuts, unit.cut))


def _candidates(token: Ints, count: Ints) -> list[int]:
    """Classes that may begin units: a few of each count, those that come first or last; the counts that most classes have."""
    seen, at = np.unique(token, return_index=True)
    seen = seen[np.argsort(at)]
    seen = seen[count[seen] >= LEAST_UNITS]
    often, inverse, classes = np.unique(count[seen], return_inverse=True, return_counts=True)
    tried = min(MOST_TRIED, max(8, MOST_ROWS // max(len(token), 1))) // TRIED_EACH
    chosen = np.argsort(-classes, kind="stable")[:tried]
    return [
        int(one) for which in sorted(chosen.tolist(), key=lambda k: often[k]) for one in seen[inverse == which][:TRIED_EACH]
    ]


def _regular(at: Ints, length: int) -> bool:
    """Whether the units are about equally long and cover the trace."""
    size = np.diff(at)
    usual = float(np.median(size))
    beyond = (1 + ALIKE) * usual + BEYOND * length + 2
    alike = np.abs(size - usual) <= ALIKE * usual + 2
    return bool(alike.mean() >= USUAL and at[0] <= beyond and length - at[-1] <= beyond)


def _lacking(token: Ints, order: Ints, at: Ints, reads: Mask) -> tuple[int, int, int]:
    """How many classes are in no complete unit, in few of them, and not in most of them."""
    if len(at) > LEAST_READ and reads.any() and np.add.reduceat(reads[token], at[1:])[:-1].all():
        # No layer ends with the host reading a result: these are tokens, and what comes before them prepares the first.
        opening = np.bincount(token[at[1] :], minlength=len(reads)) == 0
        later = ~opening[token]
        place = np.cumsum(later) - 1
        token, at = token[later], place[at[later[at]]]
        order = np.argsort(token, kind="stable")
    begun = np.zeros(len(token), dtype=np.int64)
    begun[at] = 1
    turn, kind = np.cumsum(begun)[order], token[order]
    new = (turn >= 1) & (turn < len(at))
    new[1:] &= (turn[1:] != turn[:-1]) | (kind[1:] != kind[:-1])
    there, classes = len(np.unique(kind)), int(kind[-1]) + 1
    turn, kind = turn[new], kind[new]
    units = np.bincount(kind, minlength=classes)
    usual = units >= USUAL * (len(at) - 1)
    # Classes of units that do as much work of another kind are not missing in the others.
    size = np.diff(at)
    other = np.bincount(turn[usual[kind]], minlength=len(at)) < OTHER * usual.sum()
    other[1:] &= np.abs(size - np.median(size)) <= ALIKE * np.median(size)
    own = np.bincount(kind[~other[turn]], minlength=classes) > 0
    rare = own & (units < FEW * (len(at) - 1))
    return there - int((units > 0).sum()), int(rare.sum()), there - int((usual | ((units > 0) & ~own)).sum())


def _two_halves(order: Ints, first: Ints, count: Ints, length: int) -> bool:
    """Whether classes that come twice, half of the trace apart, show two steps: then what recurs more often is a part."""
    twice = np.flatnonzero(count == 2)
    if len(twice) < 2:
        return False
    apart = order[first[twice] + 1] - order[first[twice]]
    return int((np.abs(apart - length / 2) <= BEYOND * length / 2).sum()) >= 2


def _turns(token: Ints, cut: Cut) -> tuple[Ints, int, int]:
    """The unit of each op of one rank, -1 in cut ones; how many ops those have, and how much the other units differ.

    What lies before the first cut or behind the last is a unit if it is as long as one, else it is left out.
    """
    at = np.flatnonzero(token == cut.code) + cut.behind
    if len(at) > 1 and (np.diff(at) == at[1] - at[0]).all() and len(token) == len(at) * (at[1] - at[0]):
        at = at - at[0]  # whole units, all alike, from the first op to the last
    ends = np.unique(np.concatenate([[0], at, [len(token)]]))
    size = np.diff(ends)
    inner = size[1:-1] if len(size) > 2 else size
    usual = float(np.median(inner))
    turn = np.repeat(np.arange(len(size)), size)
    if len(at) < LEAST_UNITS - 1:
        return np.zeros(len(token), dtype=np.int64), 0, 0
    least, most = min(COMPLETE * usual, int(inner.min())), max((1 + ALIKE) * usual, int(inner.max()))
    lost = 0
    for edge in (len(size) - 1, 0):
        if not least <= size[edge] <= most:
            turn[turn == edge], lost = -1, lost + int(size[edge])
    kept = turn >= 0
    turn[kept] -= turn[kept].min()
    length = np.bincount(turn[kept])
    return turn, lost, int(length.max() - length.min())


def _place_host(ops: Table, step: Ints, work: Ints) -> None:
    """Calls belong to the step of what they launched, other host ops to the step during which they began."""
    launch = ops.launch[work]
    launched = launch >= 0
    step[launch[launched]] = step[work[launched]]
    rest: Mask = np.ones(len(ops), dtype=np.bool_)
    rest[work] = False
    rest[launch[launched]] = False
    began = np.where(launched, ops.start_ns[launch], ops.start_ns[work])
    for rank in np.unique(ops.rank[rest]).tolist():
        mine = np.flatnonzero(rest & (ops.rank == rank))
        own = np.flatnonzero((ops.rank[work] == rank) & (step[work] >= 0))
        if not len(own):
            continue
        steps, where = np.unique(step[work[own]], return_inverse=True)
        since = least(where, len(steps), began[own])
        at = np.searchsorted(np.maximum.accumulate(since), ops.start_ns[mine], side="right") - 1
        step[mine] = np.where(at >= 0, steps[at], -1)
