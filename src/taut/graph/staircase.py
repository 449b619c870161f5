"""The order in which members of a ring collective end behind a slow link: a staircase, best of all places and shapes.

Every chunk of a ring crosses every link. Let a chunk take S over one link and less over the others. The receiver of that link
has its last chunk after all rounds, R·S; what it passes on in its last round nobody needs, so its downstream neighbour has its
own last chunk one round earlier, the next one two rounds earlier, and so on. From the other side buffers are limited: the
sender can be only so many chunks ahead of its receiver (one where receives are posted, as in gloo; a queue's worth in NCCL;
any number with deep buffers), its own sender as many ahead of it, and so on. So the member j links downstream of the receiver
ends min(j, ahead × (N − j)) stairs before it. Of an interface both links are slow: two receivers end last.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Indices
from taut.core.tables import Verb

RING = (Verb.ALL_REDUCE, Verb.ALL_GATHER, Verb.REDUCE_SCATTER)
ENOUGH = 8
"""Members whose order of ending tells a staircase from habits."""
LIKE = 0.9
"""Correlation of the ends with a staircase: ranks of two hosts, one of which ends late, reach 0.87."""
CLOSES = (0.5, 1.5)
"""Rounds × stair ÷ transfer that closes a ring: from a link that costs nothing to one that costs all, and what noise adds."""
AHEAD = (1, 2, 1 << 20)
"""Chunks that a sender may be ahead of its receiver: posted receives, a queue, deep buffers."""
SHAPES = 2 * len(AHEAD)
"""Staircases that are tried at every place."""


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
    """The best staircase; None where all end together."""
    members = len(ends)
    away = ends - ends.mean()
    if members < 3 or not (away @ away) > 0:
        return None
    seen, best = np.fft.rfft(away), None
    for both in (False, True):
        for ahead in AHEAD:
            at = np.arange(members)
            stairs = -np.minimum(np.maximum(at - both, 0), ahead * (members - at)).astype(np.float64)
            shape = stairs - stairs.mean()
            fit = np.fft.irfft(seen * np.conj(np.fft.rfft(shape)), members)  # over all places at once
            place = int(np.argmax(fit))
            like = float(fit[place] / np.sqrt((away @ away) * (shape @ shape)))
            if best is None or like > best.like + 1e-9:
                receivers = (place + np.arange(1 + both)) % members
                best = Staircase(like, float(fit[place] / (shape @ shape)), np.roll(shape, place), receivers)
    return best


def closing_staircase(rounds_late: Floats) -> Staircase | None:
    """The best staircase, if the ends (in units of a mean round) are like it and its stairs close the ring."""
    found = staircase(rounds_late)
    return found if found is not None and found.like >= LIKE and CLOSES[0] <= found.height <= CLOSES[1] else None
