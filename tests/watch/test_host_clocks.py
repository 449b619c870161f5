"""Clocks of hosts: the interval holds the truth, and gates narrow the difference of two hosts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collecting import ALLREDUCE, HELLO, event
from taut.watch.event_rows import Room
from taut.watch.host_clocks import HostClock, HostClocks
from taut.watch.window import Clock, Hello, Names, Place, Window

MS, S = 1_000_000, 1_000_000_000
DELAYS = st.lists(st.tuples(st.integers(1, 50 * MS), st.integers(1, 50 * MS)), min_size=1, max_size=20)


@given(st.integers(-(10**15), 10**15), DELAYS)
def test_the_interval_holds_the_offset(offset: int, delays: list[tuple[int, int]]) -> None:
    """Every message takes some time to the rank (the greeting), and some time back."""
    clock = HostClock("boot")
    for second, (there, back) in enumerate(delays):
        greeted = 10**16 + second * S
        clock.heard(greeted + there - offset, greeted + there + back, greeted)
    least, most = clock.interval(10**16 + len(delays) * S)
    assert least <= offset <= most
    assert most - least <= min(there + back for there, back in delays) + 2 * len(delays) * 10_000 * 2


def test_a_bound_widens_as_it_ages() -> None:
    clock = HostClock("boot")
    clock.heard(0, 5 * MS, 5 * MS)
    assert clock.interval(5 * MS) == (5 * MS, 5 * MS)
    assert clock.interval(100 * S + 5 * MS) == (4 * MS, 6 * MS)


def test_gates_pull_an_estimate_into_their_bounds() -> None:
    clocks = HostClocks()
    assert (clocks.number("a"), clocks.number("b"), clocks.number("a")) == (0, 1, 0)
    clocks.clocks[0].heard(0, 1 * MS)
    clocks.clocks[1].heard(0, 9 * MS)
    assert clocks.offsets(9 * MS).tolist() == [1 * MS + 80, 9 * MS]
    clocks.gates_tell(0, {1: (-2 * MS, 2 * MS)})
    assert clocks.offsets(9 * MS).tolist() == [1 * MS + 80, 3 * MS + 80]


def test_a_window_fits_clocks_on_gates() -> None:
    """Host b's clock is 100 s ahead of a's, which is ours; its messages come 40 ms late. Either rank comes last at times."""
    window, ahead = Window("job", Room(1 << 24)), 100 * S
    for rank, late, off in ((0, 0, 0), (1, 40 * MS, ahead)):
        hello = Hello(**{**HELLO, "rank": rank, "boot": f"b{rank}", "process": f"p{rank}"})  # type: ignore[arg-type]
        member, _ = window.join(hello, 0)
        window.name(member, Names(0, [Place("allreduce", "0", -1, tuple(ALLREDUCE["ranks"]))]))  # type: ignore[arg-type]
        window.tell_time(member, Clock(10 * S + off, 0), 10 * S + late, None)
        for number in range(20):
            came = 10 * S + number * S + (30 * MS if rank else 0 if number % 2 else 31 * MS)
            opened = 10 * S + number * S + (30 * MS if number % 2 else 31 * MS)
            window.add(member, event(number=number, begin=came + off, end=opened + MS + off), 0)
    window.fold(0)
    error = [abs(int(one)) for one in window.clocks.offsets(10 * S + 40 * MS) - np.array([0, -ahead])]
    assert error == [400, 40 * MS]
    window.fit_clocks()
    error = [abs(int(one)) for one in window.clocks.offsets(10 * S + 40 * MS) - np.array([0, -ahead])]
    assert max(error) <= 2 * MS
