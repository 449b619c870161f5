"""The queue engine that serving and agents share: a heap of events, queues, retries, stalls and noise, as kernels.

Items (copies of a request, calls of a model) wait in queues and are worked on. A simulation takes the next event, which is
an arrival or the top of the heap, changes its items and puts further events into the heap. Kernels with one caller are
compiled into it (``inline``): calls with a dozen arrays make simulations a tenth slower.
"""

from __future__ import annotations

from math import log

from taut.core.array_types import Floats, Ints
from taut.core.jit import kernel
from taut.project.noise import at_log_odds
from taut.project.training.job_history import chance

# fmt: off
# Numbers that every simulation takes, in the order of its array of settings; each adds its own behind them.
SETTINGS = (
    "timeout_ns", "attempts", "backoff_ns", "retry_budget", "cancels", "stall_from_ns", "stall_to_ns", "kv_ns", "score_ns",
    "until_ns", "from_ns", "to_ns",
)
(
    TIMEOUT_NS, ATTEMPTS, BACKOFF_NS, RETRY_BUDGET, CANCELS, STALL_FROM_NS, STALL_TO_NS, KV_NS, SCORE_NS,
    UNTIL_NS, FROM_NS, TO_NS,
) = range(len(SETTINGS))
# fmt: on
# First columns of the items: the part or task it is for, which attempt of it, its state, the item behind it in the queue.
OWNER, MARK, STATE, NEXT = range(4)
# First columns of the items' times.
SUBMITTED, STARTED = range(2)
# States of an item. Dead: cancelled, dropped, or done after it was given up; sending: on its way between two servers.
WAITING, RUNNING, DONE, DEAD, SENDING = range(1, 6)
# First columns of the queues.
HEAD, TAIL, QUEUED = range(3)
# A pause between two attempts is at most 2**6 times the first one.
MOST_DOUBLINGS = 6


@kernel()
def push(when: Floats, what: Ints, size: int, time: float, event: int) -> int:
    """Put an event into the heap; returns the new size. Equal times come out in the order of their events' numbers."""
    i = size
    while i > 0:  # the parents of a new event that come later move down
        up = (i - 1) >> 1
        if when[up] < time or (when[up] == time and what[up] <= event):
            break
        when[i], what[i] = when[up], what[up]
        i = up
    when[i], what[i] = time, event
    return size + 1


@kernel()
def pop(when: Floats, what: Ints, size: int) -> int:
    """Take the earliest event out of the heap; returns the new size."""
    size -= 1
    time, event, i, down = when[size], what[size], 0, 1
    # The gap at the top sinks to the end, always to the earlier of two events, and the last event rises from there to where
    # it belongs. Which is earlier is added, not branched on: nobody can guess it.
    while 0 < down < size:
        right = down + 1
        tie = (when[right] == when[down]) & (what[right] < what[down])
        down += int((when[right] < when[down]) | tie)
        when[i], what[i] = when[down], what[down]
        i, down = down, 2 * down + 1
    while i > 0:
        up = (i - 1) >> 1
        if when[up] < time or (when[up] == time and what[up] <= event):
            break
        when[i], what[i] = when[up], what[up]
        i = up
    when[i], what[i] = time, event
    return size


@kernel(inline="always")
def line_up(line: Floats, marks: Ints, first: int, end: int, time: float, event: int) -> int:
    """Put an event that comes as long after now as the others of a line at its end; returns the new end.

    Most timeouts come long after what they are for has ended, and would fill the heap.
    """
    i = end
    while i > first and line[i - 1] == time and marks[i - 1] > event:
        line[i], marks[i] = line[i - 1], marks[i - 1]
        i -= 1
    line[i], marks[i] = time, event
    return end + 1


@kernel(inline="always")
def next_event(
    arrive: Floats, arrived: int, when: Floats, what: Ints, size: int, line: Floats, marks: Ints, first: int, end: int
) -> tuple[float, int, int, int]:
    """(time, event, new size of the heap, new begin of the line); -1 as the event is the next arrival.

    Events come in the order of their times, then of their numbers; arrivals come after events of the same time.
    """
    if first < end and (size == 0 or line[first] < when[0] or (line[first] == when[0] and marks[first] < what[0])):
        if arrived >= len(arrive) or line[first] <= arrive[arrived]:
            return line[first], marks[first], size, first + 1
    elif size > 0 and (arrived >= len(arrive) or when[0] <= arrive[arrived]):
        now, event = when[0], what[0]
        return now, event, pop(when, what, size), first
    return arrive[arrived], -1, size, first


@kernel(inline="always")
def append(item: int, queue: int, items: Ints, queues: Ints) -> int:
    """Put an item at the end of a queue, a linked list through NEXT; returns how many wait there."""
    items[item, STATE], items[item, NEXT] = WAITING, -1
    if queues[queue, QUEUED] == 0:
        queues[queue, HEAD] = item
    else:
        items[queues[queue, TAIL], NEXT] = item
    queues[queue, TAIL] = item
    queues[queue, QUEUED] += 1
    return int(queues[queue, QUEUED])


@kernel(inline="always")
def take_first(queue: int, items: Ints, queues: Ints) -> int:
    """Take the first item out of a queue that has one."""
    item = queues[queue, HEAD]
    queues[queue, HEAD] = items[item, NEXT]
    queues[queue, QUEUED] -= 1
    return int(item)


@kernel(inline="always")
def retry_pause_ns(settings: Floats, attempt: int, retried: float, submitted: int) -> float:
    """Pause before another attempt after this one (counted from 0); -1 where attempts or the budget of retries are used up."""
    if attempt + 1 < settings[ATTEMPTS] and retried + 1 <= settings[RETRY_BUDGET] * submitted:
        return float(settings[BACKOFF_NS] * 2.0 ** min(attempt, MOST_DOUBLINGS))
    return -1.0


@kernel(inline="always")
def stall_left_ns(settings: Floats, now: float) -> float:
    """How long the stall goes on for what begins now; 0 outside it."""
    return float(max(settings[STALL_TO_NS] - now, 0.0)) if now >= settings[STALL_FROM_NS] else 0.0


@kernel(inline="always")
def draw_quantile(table: Floats, u: float) -> float:
    """A draw from a table of quantiles."""
    return at_log_odds(table, log(u / (1 - u)))


@kernel(inline="always")
def noise_factor(factor: float, tables: Floats, key: int, draw: int) -> float:
    """A factor times the noise of one piece of work: of its own (first table) and of its devices' step (second)."""
    factor *= draw_quantile(tables[0], chance(key, draw))
    if tables[1, 0] == tables[1, -1]:  # quantiles of what does not stray are all alike
        return float(factor * tables[1, 0])
    return float(factor * draw_quantile(tables[1], chance(key, draw + 1)))


@kernel(inline="always")
def iteration_ns(base: Floats, tokens: int) -> float:
    """Time of an iteration over a number of tokens: linear between powers of two, at which ``base`` has it."""
    k, top = 0, 1
    while 2 * top <= tokens and k < len(base) - 2:
        k += 1
        top *= 2
    return float(base[k] + (base[k + 1] - base[k]) * (tokens - top) / top)
