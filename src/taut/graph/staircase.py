"""The order in which members of a ring collective end behind a slow link: a staircase, best of all places and shapes.

Every chunk of a ring crosses every link. Let a chunk take S over one link and less over the others. The receiver of that link
has its last chunk after all rounds, R·S; what it passes on in its last round nobody needs, so its downstream neighbour has its
own last chunk one round earlier, the next one two rounds earlier, and so on. From the other side buffers are limited: the
sender can be only so many chunks ahead of its receiver (one where receives are posted, as in gloo; a queue's worth in NCCL;
any number with deep buffers), its own sender as many ahead of it, and so on. So the member j links downstream of the receiver
ends min(j, ahead × (N − j)) stairs before it. Where only the sender itself is held up, because it ends when its last chunk is
taken, it ends a chunk or two before its receiver, and those upstream of it as with deep buffers. Of an interface both links
are slow: two receivers end last. Two links apart from each other, slow alike, make two staircases, each as long as it is to the
other. If the second is a little quicker it ends as many rounds earlier as it gains over all of them, and is soon as one that
waits for the first: two are seen only if they are slow nearly alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from math import sqrt

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from taut.core.array_types import Floats, Indices
from taut.core.student import student_tail
from taut.core.tables import Verb

RING = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
ENOUGH = 8
"""Members whose order of ending tells a staircase from habits."""
LIKE, LIKE_TWO = 0.9, 0.95
"""Correlation of the ends with a staircase: ranks of two hosts, one of which ends late, reach 0.87; and with two of them."""
CLOSES, SLOWER = (0.5, 1.5), 0.6
"""Rounds × stair ÷ transfer that closes a ring: from a link that costs nothing to one that costs all, and what noise adds. From
ENOUGH members on, from a link that is a quarter slower than the others: half of the ranks that end late may look like less."""
STEEPER = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 1e6)
"""How many times as high as those downstream the stairs upstream are: as many as a sender may be chunks ahead of its receiver
(one, a queue's two, any number), more where the chunk that is passed on piece by piece makes those downstream lower."""
FINER = 8
"""Times the steps between these are halved around the best."""
HELD = (1.0, 2.0, np.inf)
"""Stairs at most by which the sender ends before the receiver of a slow link."""
MANY = 12
"""Members of which the ends also tell a second link that is a little quicker than the first."""
LOWER = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0)
"""Stairs by which its receiver then ends before that of the first."""
TRIED, TRIED_ALIKE, TRIED_APART = 10, 5, 15
"""Staircases that are tried at every place, as far as they are unlike each other: one link or an interface; one, two or any
ahead; the sender alone held up, or not. And of two links at every distance, if they are alike, or if one may be quicker."""
ONE_PLACE = 0.8
"""Share of all false alarms that is left to one place where two are looked for as well: two are rare, their staircases many."""
LIKELIER = 1000
"""How many times likelier it is that two slow links are those of an interface than that they are apart."""
MOST_APART = 128
"""Members up to which two links apart are looked for."""

Spectrum = NDArray[np.complex128]


class Staircase(Struct, frozen=True):
    """A staircase fitted to the ends of a ring, whose members stand in the direction in which chunks go."""

    like: float
    """Correlation of the ends with it."""
    height: float
    """Of a stair, in the unit of the ends."""
    shape: Floats
    """Of unit height, with mean zero."""
    receivers: Indices
    """Positions of those that end last: one behind a slow link, two behind a slow interface or two slow links."""
    tried: float
    """Staircases at each place among which it is the best, weighted."""
    apart: bool = False
    """Whether it is behind two links apart from each other."""

    @property
    def chance(self) -> float:
        """Of ends so like one of those that were tried at a place, if they were in any order."""
        free = len(self.shape) - 2
        return self.tried * student_tail(self.like * sqrt(free / max(1 - self.like**2, 1e-12)), free)

    @property
    def closes(self) -> bool:
        """Whether ends, in units of a mean round, are like it, and its stairs close the ring."""
        least = SLOWER if len(self.shape) >= ENOUGH else CLOSES[0]
        return self.clear and least <= self.height <= CLOSES[1]

    @property
    def clear(self) -> bool:
        """Whether ends are like it."""
        return self.like >= (LIKE_TWO if self.apart else LIKE)

    def heights(self, ends: Floats) -> Floats:
        """Of a stair in every row of ends."""
        out: Floats = (ends - ends.mean(axis=-1, keepdims=True)) @ self.shape / (self.shape @ self.shape)
        return out


def staircase(ends: Floats, two: bool = True, quicker: bool = False) -> Staircase | None:
    """The best staircase; None where all end together.

    Of every kind: a coarse search over how steep it is upstream, and then a finer one; all kinds are searched side by side.
    Of two links apart only if asked for, and of one that is quicker than the other, of few members, if asked for that as well.
    """
    away = ends - ends.mean()
    if len(ends) < 3 or not (away @ away) > 0:
        return None
    kinds = [_Kind(second, held) for second in (0, 1) for held in HELD]
    if not (two and ENOUGH <= len(ends) <= MOST_APART):
        return _best_of(away, kinds, TRIED)
    one = _best_of(away, kinds, TRIED / ONE_PLACE)
    apart, tried = _apart(len(ends), quicker or len(ends) >= MANY)
    # A second receiver just upstream of the first is the other end of an interface.
    far, near = ([kind for kind in apart if (kind.second == len(ends) - 1) == meet] for meet in (False, True))
    found = _best_of(away, far, tried / (1 - ONE_PLACE), apart=True)
    interface = _best_of(away, near, tried / (1 - ONE_PLACE), apart=True) if near else found
    found = interface if interface.chance < LIKELIER * found.chance else found
    return found if found.chance < one.chance else one


def _apart(members: int, quicker: bool) -> tuple[list[_Kind], float]:
    """Kinds of two links apart in a ring of so many members, and how many of them are unlike each other at every place."""
    alike = range(2, members // 2 + 1)
    kinds = [_Kind(second, held) for second in alike for held in HELD]
    if not quicker:
        return kinds, TRIED_ALIKE * len(alike)
    # Of few members the sender of a slow link, which ends a little before its receiver, may look like a receiver of its own.
    last = members if members >= MANY else members - 1
    others = [(second, lower) for second in range(2, last) for lower in LOWER if lower < second]
    return [*kinds, *(_Kind(second, held, lower) for second, lower in others for held in HELD)], TRIED_APART * (members - 2)


class _Kind(Struct, frozen=True):
    """A kind of staircase."""

    second: int
    """How far downstream of the first slow link a second one is; 0: none."""
    held: float
    """Stairs at most by which a sender ends before its receiver."""
    lower: float = 0.0
    """Stairs by which the second ends before the first."""


def _best_of(away: Floats, kinds: list[_Kind], tried: float, apart: bool = False) -> Staircase:
    """The best staircase of some kinds."""
    seen = np.fft.rfft(away)
    best = _best_placed(away, seen, kinds, [STEEPER] * len(kinds))
    if apart:  # of many kinds the best is refined
        chosen = max(range(len(kinds)), key=lambda k: best[k].like)
        kinds, best = [kinds[chosen]], [best[chosen]]
    step = 0.2
    for _ in range(FINER if len(away) >= ENOUGH else 0):  # four members are like one of many staircases, whatever they do
        step /= 2
        closer = _best_placed(away, seen, kinds, [(one.steeper * (1 - step), one.steeper * (1 + step)) for one in best])
        best = [max(pair, key=lambda found: found.like) for pair in zip(best, closer, strict=True)]
    found, kind = max(zip(best, kinds, strict=True), key=lambda one: one[0].like)
    receivers = (found.place + np.array([0, kind.second][: 2 if kind.second else 1])) % len(away)
    apart &= kind.second < len(away) - 1  # else the links into and out of one member
    return Staircase(found.like, found.height, np.roll(found.shape, found.place), receivers, tried, apart)


class _Placed(Struct, frozen=True):
    """A staircase at its best place in the ring: its shape begins there."""

    like: float
    height: float
    shape: Floats
    place: int
    steeper: float


def _best_placed(away: Floats, seen: Spectrum, kinds: Sequence[_Kind], steeper: Sequence[Sequence[float]]) -> list[_Placed]:
    """Of every kind, of staircases that are so many times as steep upstream, each at its best place, the best."""
    count, at = len(away), np.arange(len(away))
    rows = [(kind.second, kind.held, kind.lower, steep) for kind, some in zip(kinds, steeper, strict=True) for steep in some]
    second, held, lower, steep = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    before = at < second  # downstream of the first and upstream of the second
    after, ahead = np.where(before, at, at - second), np.where(before, second, count) - at
    stairs = -np.minimum(after + np.where(before, 0, lower), steep * ahead + np.where(before, lower, 0))
    stairs = np.where(ahead == 1, np.maximum(stairs, -held - np.where(before, lower, 0)), stairs)
    shapes = stairs - stairs.mean(axis=1, keepdims=True)
    fits = np.fft.irfft(seen * np.conj(np.fft.rfft(shapes)), count)  # over all places at once
    power = float(away @ away)
    found = []
    for shape, fit, place, row in zip(shapes, fits, fits.argmax(axis=1).tolist(), rows, strict=True):
        own = float(shape @ shape)
        found.append(_Placed(float(fit[place]) / np.sqrt(power * own), float(fit[place]) / own, shape, place, row[3]))
    each = iter(found)
    return [max(islice(each, len(some)), key=lambda one: one.like) for some in steeper]


def closing_staircase(rounds_late: Floats) -> Staircase | None:
    """The best staircase, if the ends (in units of a mean round) are like it and its stairs close the ring."""
    # Two staircases that close the ring are at least so high.
    found = staircase(rounds_late, two=bool(np.ptp(rounds_late) >= CLOSES[0] * len(rounds_late) / 8))
    return found if found is not None and found.closes else None
