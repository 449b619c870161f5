"""What is wrong with a job and where, in numbers and as a sentence for people."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats
from taut.core.rank_words import listed

LEAST_GATES = 4
"""Recorded ends before and after, from which a transfer is called longer."""
CLEAR = 4.0
"""Standard errors by which transfers, or the end of one member, must differ."""
SAME = 8
"""Steps within which two findings began together."""
NAMED_MODES = ("straggler cascade", "silent degradation", "input stall", "checkpoint stall", "partial synchronisation loss")
"""Modes with a place, which may be told as soon as they are found; others after several looks."""


class Named(Struct, frozen=True):
    """What is wrong, and where."""

    mode: str
    ranks: tuple[int, ...]
    links: tuple[str, ...]
    since_step: int
    share: float
    """Share of the wall that mending it gives back while it lasts."""
    because: str
    past: bool
    """Whether it was not there before, as the window itself shows."""
    older: bool = False
    """Whether it was there in the window's first steps already: it may have begun before."""
    device: bool = False
    """Whether it is the devices of its ranks, and not their hosts."""

    @property
    def place(self) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
        """The same as long as it is the same thing at the same place."""
        return self.mode, self.ranks, self.links

    @property
    def ends(self) -> set[int]:
        """Ranks at the ends of its links."""
        return {int(end) for link in self.links for end in link.split(":")}


def rise(series: Floats) -> int | None:
    """Where a series steps up most clearly; None if nowhere."""
    best, at = CLEAR, None
    for cut in range(LEAST_GATES, len(series) - LEAST_GATES + 1):
        low, high = series[:cut], series[cut:]
        error = np.sqrt(low.var(ddof=1) / len(low) + high.var(ddof=1) / len(high)) + 1e-6
        score = (high.mean() - low.mean()) / error
        if score > best:
            best, at = float(score), cut
    return at


def sentence(named: Named, hosts: list[str | None]) -> str:
    """For people: who, where, what to do."""
    at = sorted({host for host in hosts if host})
    place = f" on {listed(at)}" if at and len(at) <= 8 else ""
    todo = {
        "input stall": "look at its input: disk, network file system, workers of the loader",
        "checkpoint stall": "look at where it saves",
        "structural instability": "nobody is to blame: see taut whatif --advice for policies",
    }.get(named.mode, "test the link" if named.links else "let no new job start there, and test it")
    if not named.ranks and not named.links and named.mode == "silent degradation":
        todo = "if batches did not become longer, look at what all ranks share: storage, network, power, cooling"
    if named.mode == "straggler cascade" and not named.ranks and not named.links:
        todo = "profile it, taut watch capture shows its devices"
    if named.device:
        todo = "let no new job start there, and test that device"
    return f"{named.because}; it costs {100 * named.share:.0f} % of the time{place}: {todo}"


def same_place(named: Named, known: Named) -> bool:
    """Whether what is named is known already: nobody's, begun together; some of its ranks; its links, or links of its rank."""
    if not named.ranks and not named.links:
        return abs(named.since_step - known.since_step) <= SAME
    if named.links:
        ends = [set(link.split(":")) for link in named.links]
        of_rank = not known.links and any(all(str(rank) in end for end in ends) for rank in known.ranks)
        return named.links == known.links or of_rank
    return set(named.ranks) <= set(known.ranks) and not known.links
