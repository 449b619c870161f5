"""The heap of events."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.project.requests.queue_kernels import line_up, next_event, pop, push


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5)), max_size=60))
def test_events_come_out_in_order(events: list[tuple[int, int]]) -> None:
    when, what, size, out = np.zeros(64), np.zeros(64, np.int64), 0, []
    for k, (time, event) in enumerate(events):
        size = push(when, what, size, float(time), event)
        if k % 3 == 2:
            out.append((when[0], what[0]))
            assert out[-1] == min(zip(when[:size], what[:size], strict=True))
            size = pop(when, what, size)
    while size:
        out.append((when[0], what[0]))
        size = pop(when, what, size)
    assert sorted(out) == sorted(events)
    assert out[len(events) // 3 :] == sorted(out[len(events) // 3 :])


@given(
    st.lists(st.integers(0, 9), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=8),
)
def test_arrivals_come_after_events_of_heap_and_line(
    came: list[int], heaped: list[tuple[int, int]], waiting: list[tuple[int, int]]
) -> None:
    arrive = np.array(sorted(came), float)
    when, what, size = np.zeros(16), np.zeros(16, np.int64), 0
    line, marks, first, end = np.zeros(16), np.zeros(16, np.int64), 0, 0
    for time, event in heaped:
        size = push(when, what, size, float(time), event)
    for time, event in sorted(waiting, key=lambda one: one[0]):  # of one time they come in any order
        end = line_up(line, marks, first, end, float(time), event)
    out, arrived = [], 0
    while arrived < len(arrive) or size or first < end:
        now, event, size, first = next_event(arrive, arrived, when, what, size, line, marks, first, end)
        arrived += event < 0
        out.append((now, event))
    assert out == sorted([*heaped, *waiting, *((time, -1) for time in came)], key=lambda e: (e[0], e[1] < 0, e[1]))
