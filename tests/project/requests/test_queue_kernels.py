"""The heap of events."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.project.requests.queue_kernels import pop, push


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
