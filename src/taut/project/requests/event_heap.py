"""A heap of events for kernels: (time, what) with the earliest on top; equal times come out in the order of ``what``."""

from __future__ import annotations

from typing import Any

from taut.core.jit import kernel


@kernel()
def push(when: Any, what: Any, size: int, time: float, event: int) -> int:
    """Put an event in; returns the new size."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if when[up] < time or (when[up] == time and what[up] <= event):
            break
        when[i], what[i] = when[up], what[up]
        i = up
    when[i], what[i] = time, event
    return size + 1


@kernel()
def pop(when: Any, what: Any, size: int) -> int:
    """Take the earliest out; returns the new size."""
    size -= 1
    time, event = when[size], what[size]
    i = 0
    while True:
        down = 2 * i + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (when[right] < when[down] or (when[right] == when[down] and what[right] < what[down])):
            down = right
        if time < when[down] or (time == when[down] and event <= what[down]):
            break
        when[i], what[i] = when[down], what[down]
        i = down
    when[i], what[i] = time, event
    return size
