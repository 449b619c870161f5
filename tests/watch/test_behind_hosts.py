"""Jobs whose devices work behind their hosts: what hosts do not see is told as such, what devices hide costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from taut.core.array_types import Floats
from taut.result.types import LiveFinding
from taut.watch.live_findings import Live
from taut.watch.seen import BACKWARD, Events, Meeting, Seat, Seen, no_events

MS, RANKS, SINCE, STEPS, A_LOOK = 1_000_000, 4, 90, 150, 4


def table(number: int, rank: list[int], begin: Floats, end: Floats) -> list[tuple[int, int, int, int, int, int]]:
    return [(rank[i], 0, number, 0, int(begin[i] * MS), int(end[i] * MS)) for i in range(RANKS)]


def told(device_ms: float, host_ms: float) -> list[LiveFinding]:
    """Of a job of 150 ms a step, 100 of them on the device: rank 2's device, or rank 1's host, is slower since a step."""
    rng, at, seats = np.random.default_rng(3), 1e6, {rank: Seat("node", rank, "b", "calls") for rank in range(RANKS)}
    ranks, found = list(range(RANKS)), list[LiveFinding]()
    seen: list[Seen] = []
    live = Live(lambda now: seen[-1], minute_s=float("inf"), clock=lambda: 7)
    for first in range(0, STEPS, A_LOOK):
        gates, steps = [], []
        for step in range(first, first + A_LOOK):
            slow = step >= SINCE
            came = at + 50 + rng.normal(0, 0.5, RANKS) + np.where(np.arange(RANKS) == 1, slow * host_ms, 0.0)
            opens = max(at + 150 + rng.normal(0, 1.0) + slow * device_ms, came.max())
            left = opens + np.abs(rng.normal(0, 0.05, RANKS))
            gates += table(step, ranks, came, left)
            steps += table(step, ranks, np.full(RANKS, at), left + 0.1)
            at = left.max() + 0.1
        both = (Events(*np.array(rows, np.int64).T) for rows in (gates, steps))
        seen.append(Seen(next(both), no_events(), next(both), [Meeting(BACKWARD, "", ())], seats))
        found += live.look(int(at * MS))
    return found


def test_a_slow_device_that_no_host_sees_is_told_of_all_ranks() -> None:
    [one] = told(device_ms=60, host_ms=0)
    assert (one.mode, one.ranks, one.links) == ("straggler cascade", [], [])
    assert abs((one.since_step or 0) - SINCE) <= 2
    assert "no host is late" in one.text
    assert "taut watch capture" in one.text


@pytest.mark.parametrize("host_ms", [0, 60])
def test_a_host_that_is_late_behind_its_device_is_not_accused(host_ms: float) -> None:
    assert told(device_ms=0, host_ms=host_ms) == []


def test_a_host_that_holds_its_device_up_is_named_at_what_steps_became_longer_by() -> None:
    [one] = told(device_ms=0, host_ms=160)  # 60 ms more than the device hides
    assert one.ranks == [1]
    assert "costs 29 % of the time" in one.text or "costs 28 % of the time" in one.text
