"""The order in which members of a ring collective end behind a slow link: a staircase, best of all places and shapes.

Every chunk of a ring crosses every link. Let a chunk take S over one link and less over the others. The receiver of that link
has its last chunk after all rounds, R·S; what it passes on in its last round nobody needs, so its downstream neighbour has its
own last chunk one round earlier, the next one two rounds earlier, and so on. From the other side buffers are limited: the
sender can be only so many chunks ahead of its receiver (one where receives are posted, as in gloo; a queue's worth in NCCL;
any number with deep buffers), its own sender as many ahead of it, and so on. So the member j links downstream of the receiver
ends min(j, ahead × (N − j)) stairs before it. Where only the sender itself is held up, because it ends when its last chunk is
taken, it ends a chunk or two before its receiver, and those upstream of it as with deep buffers. Of an interface both links
are slow: two receivers end last. Two links apart from each other, slow alike, make two staircases, each as long as it is to the
other.
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
CLOSES = (0.5, 1.5)
"""Rounds × stair ÷ transfer that closes a ring: from a link that costs nothing to one that costs all, and what noise adds."""
STEEPER = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 1e6)
"""How many times as high as those downstream the stairs upstream are: as many as a sender may be chunks ahead of its receiver
(one, a queue's two, any number), more where the chunk that is passed on piece by piece makes those downstream lower."""
FINER = 8
"""Times the steps between these are halved around the best."""
HELD = (1.0, 2.0, np.inf)
"""Stairs at most by which the sender ends before the receiver of a slow link."""
TRIED, TRIED_APART = 10, 5
"""Staircases that are tried at every place, as far as they are unlike each other: one link or an interface; one, two or any
ahead; the sender alone held up, or not. And of two links at every distance."""
ONE_PLACE = 0.8
"""Share of all false alarms that is left to one place where two are looked for as well: two are rare, their staircases many."""
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
        return self.clear and CLOSES[0] <= self.height <= CLOSES[1]

    @property
    def clear(self) -> bool:
        """Whether ends are like it."""
        return self.like >= (LIKE_TWO if self.apart else LIKE)

    def heights(self, ends: Floats) -> Floats:
        """Of a stair in every row of ends."""
        out: Floats = (ends - ends.mean(axis=-1, keepdims=True)) @ self.shape / (self.shape @ self.shape)
        return out


def staircase(ends: Floats) -> Staircase | None:
    """The best staircase; None where all end together.

    Of every kind: a coarse search over how steep it is upstream, and then a finer one; all kinds are searched side by side.
    """
    away = ends - ends.mean()
    if len(ends) < 3 or not (away @ away) > 0:
        return None
    kinds = [(second, held) for second in (0, 1) for held in HELD]
    if not ENOUGH <= len(ends) <= MOST_APART:
        return _best_of(away, kinds, TRIED)
    one = _best_of(away, kinds, TRIED / ONE_PLACE)
    apart = range(2, len(ends) // 2 + 1)
    tried = TRIED_APART * len(apart) / (1 - ONE_PLACE)
    two = _best_of(away, [(second, held) for second in apart for held in HELD], tried, apart=True)
    return two if two.chance < one.chance else one


def _best_of(away: Floats, kinds: list[tuple[int, float]], tried: float, apart: bool = False) -> Staircase:
    """The best staircase of some kinds: how far downstream of the first slow link a second one is, and how far its sender is
    held."""
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
    found, (second, _) = max(zip(best, kinds, strict=True), key=lambda one: one[0].like)
    receivers = (found.place + np.array([0, second][: 2 if second else 1])) % len(away)
    return Staircase(found.like, found.height, np.roll(found.shape, found.place), receivers, tried, apart)


class _Placed(Struct, frozen=True):
    """A staircase at its best place in the ring: its shape begins there."""

    like: float
    height: float
    shape: Floats
    place: int
    steeper: float


def _best_placed(
    away: Floats, seen: Spectrum, kinds: Sequence[tuple[int, float]], steeper: Sequence[Sequence[float]]
) -> list[_Placed]:
    """Of every kind (how far downstream a second slow link is, and how far a sender is held), of staircases that are so many
    times as steep upstream, each at its best place, the best."""
    count, at = len(away), np.arange(len(away))
    rows = [(second, held, steep) for (second, held), some in zip(kinds, steeper, strict=True) for steep in some]
    second, held, steep = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    # Links downstream of the nearest slow one, and to the next.
    after = np.where(at < second, at, at - second)
    ahead = np.where(at < second, second, count) - at
    stairs = -np.minimum(after, steep * ahead)
    stairs = np.where(ahead == 1, np.maximum(stairs, -held), stairs)
    shapes = stairs - stairs.mean(axis=1, keepdims=True)
    fits = np.fft.irfft(seen * np.conj(np.fft.rfft(shapes)), count)  # over all places at once
    power = float(away @ away)
    found = []
    for shape, fit, place, row in zip(shapes, fits, fits.argmax(axis=1).tolist(), rows, strict=True):
        own = float(shape @ shape)
        found.append(_Placed(float(fit[place]) / np.sqrt(power * own), float(fit[place]) / own, shape, place, row[2]))
    each = iter(found)
    return [max(islice(each, len(some)), key=lambda one: one.like) for some in steeper]


def closing_staircase(rounds_late: Floats) -> Staircase | None:
    """The best staircase, if the ends (in units of a mean round) are like it and its stairs close the ring."""
    found = staircase(rounds_late)
    return found if found is not None and found.closes else None
