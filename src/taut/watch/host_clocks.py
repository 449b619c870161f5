"""Clocks of hosts against the collector's: one offset for all ranks of a boot, with the interval that holds it.

A message that was sent at s by a host's clock and received at r by ours tells that the offset (ours less the host's) is at most
r - s; the first message after a greeting, which was sent at g by ours, that it is at least g - s. The least upper end of the
last minutes is the estimate: what a message needs at least is alike for all hosts, and cancels between them. Gates tell
differences between hosts: nobody leaves one before everybody came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

import numpy as np

from taut.core.array_types import Ints

DRIFT_PPM = 10
"""Clocks that NTP steers stay this close to each other: a bound widens by it as it ages."""
BIN_NS = 30_000_000_000
BINS = 20
"""Upper ends are kept as the least of every half minute, for ten minutes."""
SPARE_CLOCKS = 64
"""Clocks that a job may have beside one for each rank: of hosts that a rank has left, whose rows are still of use."""
CLOCK_BYTES = 3_600
"""That a clock takes beside its name, with all its bounds (sys.getsizeof of all that is kept of one)."""
UNKNOWN = 1 << 62
Bound = tuple[int, int]
"""A bound, and when it was found (ns, by our clock)."""


class HostClock:
    """What is known of the clock of one boot of one host."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._most: deque[Bound] = deque(maxlen=BINS)
        self._least: Bound | None = None

    def heard(self, sent_ns: int, received_ns: int, greeted_ns: int | None = None) -> None:
        """A message told the host's time."""
        most = received_ns - sent_ns
        if self._most and received_ns // BIN_NS == self._most[-1][1] // BIN_NS:
            if most < self._most[-1][0]:
                self._most[-1] = most, received_ns
        else:
            self._most.append((most, received_ns))
        if greeted_ns is not None:
            least = greeted_ns - sent_ns
            if self._least is None or least > self._least[0] - _drift(greeted_ns - self._least[1]):
                self._least = least, greeted_ns

    def interval(self, now_ns: int) -> tuple[int, int]:
        """(least, most) of the offset, ns."""
        most = min((bound + _drift(now_ns - at) for bound, at in self._most), default=UNKNOWN)
        least = -UNKNOWN if self._least is None else self._least[0] - _drift(now_ns - self._least[1])
        return min(least, most), most


class HostClocks:
    """The clocks of a job's hosts, numbered."""

    def __init__(self) -> None:
        self.clocks: list[HostClock] = []
        self._number: dict[str, int] = {}
        self._apart: dict[int, tuple[int, int]] = {}
        """Clock → (least, most) of its offset less that of the reference, from gates."""
        self.reference = 0

    def is_known(self, name: str) -> bool:
        """Whether there is a clock of that name."""
        return name in self._number

    def number(self, name: str) -> int:
        """Number of the clock of that name."""
        found = self._number.setdefault(name, len(self.clocks))
        if found == len(self.clocks):
            self.clocks.append(HostClock(name))
        return found

    def instead(self, name: str, used: Container[int]) -> int:
        """Number of a new clock in the place of the oldest that is not used any more."""
        old, found = next((old, number) for old, number in self._number.items() if number not in used)
        del self._number[old]
        self._number[name] = found
        self.clocks[found] = HostClock(name)
        self._apart.pop(found, None)
        return found

    def gates_tell(self, reference: int, apart: dict[int, tuple[int, int]]) -> None:
        """What the gates of the last while bound: clock → (least, most) of its offset less that of the reference."""
        self.reference, self._apart = reference, apart

    def offsets(self, now_ns: int) -> Ints:
        """What to add to the times of each clock to have them by ours, ns."""
        out = np.array([0 if most == UNKNOWN else most for _, most in self.intervals(now_ns)], np.int64)
        for clock, (least, most) in self._apart.items():
            middle = (least + most) // 2
            apart = int(out[clock] - out[self.reference])
            out[clock] = out[self.reference] + (middle if least > most else min(max(apart, least), most))
        return out

    def intervals(self, now_ns: int) -> list[tuple[int, int]]:
        """(least, most) of each offset, ns; without what gates tell."""
        return [clock.interval(now_ns) for clock in self.clocks]


def _drift(age_ns: int) -> int:
    return abs(age_ns) * DRIFT_PPM // 1_000_000
