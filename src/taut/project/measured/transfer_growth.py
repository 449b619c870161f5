"""What a transfer takes with more members: latency times rounds plus bytes over bandwidth, both from the measured ones.

Collectives of different sizes tell latency and bandwidth apart. Where all have one size, every share between the two fits
equally well; then the share is drawn from what networks are known to be like, evenly in its log odds, and the interval of
the forecast carries it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.tables import Verb
from taut.project.fabric.collective_time import ALGORITHMS, rounds

# Bytes a round must differ by this factor between classes to tell latency from bandwidth.
UNLIKE = 4.0
# A message takes from … to …, whatever its size: through the kernel's TCP, between accelerators, or nobody knows how.
LATENCY_NS = {"gloo": (1e4, 1e6), "nccl": (1e3, 5e4), "": (1e3, 1e6)}
# A byte travels at this rate.
RATE_GB_PER_S = (0.1, 1000.0)
# Neither is less than this share of a transfer.
LEAST = 1e-3


@dataclass(frozen=True)
class Transfers:
    """Classes of collectives whose groups grow."""

    verb: tuple[str, ...]
    members: Ints
    size: Ints
    """Bytes; -1 where they were not recorded."""
    took_ns: Floats
    """Classes × windows: median transfer; of the whole run where a window has none."""
    weight: Floats
    """Per class: share of the time that all of them take."""
    backend: str

    @property
    def gloo(self) -> bool:
        """Whether these are gloo's: rings whatever the size."""
        return self.backend == "gloo"

    @property
    def sizes_differ(self) -> bool:
        """Whether their sizes tell latency from bandwidth."""
        a_round = self.bytes_per_round(self.members)[self.size > 0]
        a_round = a_round[a_round > 0]
        return len(a_round) > 1 and bool(a_round.max() >= UNLIKE * a_round.min())

    def bytes_per_round(self, members: Ints) -> Floats:
        """Bytes a member sends in a round of a ring."""
        messages, sent = self.rounds(members, "ring")
        return sent / np.maximum(messages, 1)

    def rounds(self, members: Ints, algorithm: str) -> tuple[Floats, Floats]:
        """(rounds, bytes a member sends) per class; a barrier sends nothing, in a tree; unknown sizes count as one."""
        pairs = [
            rounds(v, "halving-doubling", int(n), 0.0) if v == "barrier" else rounds(v, algorithm, int(n), max(float(s), 1.0))
            for v, n, s in zip(self.verb, members, self.size, strict=True)
        ]
        messages, sent = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        return messages, sent

    def grown(self, factor: float, windows: Ints, at: Floats, best: Mask) -> Floats:
        """How many times as long each class takes with ``factor`` times the members: draws × classes.

        A draw sees the windows ``windows[i]``, lies at ``at[i]`` of what is possible where sizes do not tell, and takes the
        quickest algorithm where ``best[i]``, else a ring.
        """
        if not len(self.verb):
            return np.ones((len(at), 0))
        here, then = self.rounds(self.members, "ring"), np.rint(self.members * factor)
        alpha, beta = self._fitted(windows, here) if self.sizes_differ else self._assumed(windows, at, here)
        ring = _time(alpha, beta, self.rounds(then, "ring"))
        fastest = np.minimum.reduce([_time(alpha, beta, self.rounds(then, a)) for a in ALGORITHMS])
        now = _time(alpha, beta, here)
        return np.where(now > 0, np.where(best[:, None], fastest, ring) / np.where(now > 0, now, 1.0), 1.0)

    def _fitted(self, windows: Ints, here: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """Latency and time of a byte, draws × 1: least squares of relative errors, neither below nothing."""
        known = np.flatnonzero(self.size > 0)
        took = np.maximum(np.median(self.took_ns[known][:, windows], axis=2).T, 1.0)
        r, b, w = here[0][known] / took, here[1][known] / took, self.weight[known]
        rr, rb, bb, r1, b1 = ((w * x).sum(axis=1) for x in (r * r, r * b, b * b, r, b))
        # Normal equations of two unknowns; a negative solution is replaced by the fit of the other alone.
        determinant = rr * bb - rb * rb
        alpha, beta = (r1 * bb - b1 * rb) / determinant, (b1 * rr - r1 * rb) / determinant
        alpha, beta = (
            np.where(beta < 0, r1 / rr, np.maximum(alpha, 0.0)),
            np.where(alpha < 0, b1 / bb, np.maximum(beta, 0.0)),
        )
        return alpha[:, None], beta[:, None]

    def _assumed(self, windows: Ints, at: Floats, here: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        """The same where one size cannot tell, draws × classes."""
        took = np.maximum(np.median(self.took_ns[:, windows], axis=2).T, 1.0)
        r, b = here
        fast, slow = LATENCY_NS.get(self.backend, LATENCY_NS[""])
        low, high = r * fast / took, r * slow / took
        sized = self.size > 0
        low = np.maximum(low, np.where(sized, 1 - b / RATE_GB_PER_S[0] / took, 0.0))
        high = np.minimum(high, np.where(sized, 1 - b / RATE_GB_PER_S[1] / took, 1.0))
        low, high = (np.clip(x, LEAST, 1 - LEAST) for x in (low, high))
        # Evenly in log odds between the bounds: no share is preferred.
        odds = np.log(low / (1 - low)) * (1 - at[:, None]) + np.log(high / (1 - high)) * at[:, None]
        share = 1 / (1 + np.exp(-odds))
        return share * took / np.maximum(r, 1.0), np.where(b > 0, (1 - share) * took / np.maximum(b, 1e-9), 0.0)


def _time(alpha: Floats, beta: Floats, of: tuple[Floats, Floats]) -> Floats:
    return alpha * of[0] + beta * of[1]


def verb_of(verb: int, backend: str) -> str:
    """The collective's word; gloo's reduce-scatter is an all-reduce."""
    return "all-reduce" if backend == "gloo" and verb == Verb.REDUCE_SCATTER else Verb(verb).word
