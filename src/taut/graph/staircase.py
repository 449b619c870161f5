"""The order in which members of a ring collective end behind a slow link: a staircase, best of all places and shapes.

Every chunk of a ring crosses every link. Let a chunk take S over one link and less over the others. The receiver of that link
has its last chunk after all rounds, R·S; what it passes on in its last round nobody needs, so its downstream neighbour has its
own last chunk one round earlier, the next one two rounds earlier, and so on. From the other side buffers are limited: the
sender can be only so many chunks ahead of its receiver (one where receives are posted, as in gloo; a queue's worth in NCCL;
any number with deep buffers), its own sender as many ahead of it, and so on. So the member j links downstream of the receiver
ends min(j, ahead × (N − j)) stairs before it. Where only the sender itself is held up, because it ends when its last chunk is
taken, it ends a chunk or two before its receiver, and those upstream of it as with deep buffers. Of an interface both links
are slow: two receivers end last.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from taut.core.array_types import Floats, Indices
from taut.core.tables import Verb

RING = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
ENOUGH = 8
"""Members whose order of ending tells a staircase from habits."""
LIKE = 0.9
"""Correlation of the ends with a staircase: ranks of two hosts, one of which ends late, reach 0.87."""
CLOSES = (0.5, 1.5)
"""Rounds × stair ÷ transfer that closes a ring: from a link that costs nothing to one that costs all, and what noise adds."""
STEEPER = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 1e6)
"""How many times as high as those downstream the stairs upstream are: as many as a sender may be chunks ahead of its receiver
(one, a queue's two, any number), more where the chunk that is passed on piece by piece makes those downstream lower."""
FINER = 8
"""Times the steps between these are halved around the best."""
HELD = (1.0, 2.0, np.inf)
"""Stairs at most by which the sender ends before the receiver of a slow link."""
TRIED = 10
"""Staircases that are tried at every place, as far as they are unlike each other: one link or two; one, two or any ahead; the
sender alone held up, or not."""

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
    """Positions of those that end last: one behind a slow link, two behind a slow interface."""

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
    kinds = [(both, held) for both in (0, 1) for held in HELD]
    seen = np.fft.rfft(away)
    best = _best_placed(away, seen, kinds, [STEEPER] * len(kinds))
    step = 0.2
    for _ in range(FINER if len(away) >= ENOUGH else 0):  # four members are like one of many staircases, whatever they do
        step /= 2
        closer = _best_placed(away, seen, kinds, [(one.steeper * (1 - step), one.steeper * (1 + step)) for one in best])
        best = [max(pair, key=lambda found: found.like) for pair in zip(best, closer, strict=True)]
    found, (both, _) = max(zip(best, kinds, strict=True), key=lambda one: one[0].like)
    receivers = (found.place + np.arange(1 + both)) % len(away)
    return Staircase(found.like, found.height, np.roll(found.shape, found.place), receivers)


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
    """Of every kind (behind one link or two, and how far its sender is held), of staircases that are so many times as steep
    upstream, each at its best place, the best."""
    count, at = len(away), np.arange(len(away))
    rows = [(both, held, steep) for (both, held), some in zip(kinds, steeper, strict=True) for steep in some]
    both, held, steep = (np.array(column)[:, None] for column in zip(*rows, strict=True))
    stairs = -np.minimum(np.maximum(at - both, 0), steep * (count - at))
    stairs[:, -1:] = np.maximum(stairs[:, -1:], -held)
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
    return found if found is not None and found.like >= LIKE and CLOSES[0] <= found.height <= CLOSES[1] else None
