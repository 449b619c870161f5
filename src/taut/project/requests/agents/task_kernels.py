"""Tasks through a shared pool, event by event: kernels over arrays.

A task plans, then takes turns: tools in parallel (the last to answer counts) and a call of the model; a verifier accepts
the draft or has it done again; an answer ends it. Calls wait for a place in the pool in the order they came. A call that is
given up is tried again, and a pool that does not hear of it goes on working on the first: so retries load the pool. Heap,
queues, retries and noise are those of serving (``queue_kernels.py``); what a task does next is its own.
"""

from __future__ import annotations

from math import ceil

from taut.core.array_types import Floats, Ints
from taut.core.jit import kernel
from taut.project.requests import queue_kernels
from taut.project.requests.queue_kernels import (
    CANCELS,
    DEAD,
    DONE,
    FROM_NS,
    KV_NS,
    MARK,
    OWNER,
    QUEUED,
    RUNNING,
    SCORE_NS,
    STARTED,
    STATE,
    SUBMITTED,
    TIMEOUT_NS,
    TO_NS,
    UNTIL_NS,
    WAITING,
    append,
    draw_quantile,
    iteration_ns,
    line_up,
    next_event,
    noise_factor,
    push,
    retry_pause_ns,
    stall_left_ns,
    take_first,
)
from taut.project.training.job_history import chance

ENDED, TIMEOUT, GO, DEADLINE = range(4)
# An event is one number: kind + KINDS × (task + tasks × epoch), or kind + KINDS × call for the end of a call. A task's epoch
# counts what it has begun, so that events of what it has given up are known as such.
KINDS = 8
PLAN, TOOLS, ACT, VERIFY, ANSWER, END = range(6)
OUTCOMES = ("open", "right", "wrong", "not accepted", "retries", "tokens", "late")
OPEN, RIGHT, WRONG, REFUSED, RETRIES_OUT, TOKENS_OUT, LATE = range(len(OUTCOMES))
# fmt: off
SETTINGS = (
    *queue_kernels.SETTINGS,
    "turns", "redos", "failure", "deadline_ns", "propagates", "token_budget", "places", "replicas", "fallback_after",
    "fallback_share", "cached", "growth", "tools", "tool_failure", "tool_timeout_ns", "tool_attempts", "tool_cached",
    "tool_hedge_ns", "speculation", "tool_p50_ns", "right", "fallback_right", "passes_right", "passes_wrong",
)
(
    TURNS, REDOS, FAILURE, DEADLINE_NS, PROPAGATES, TOKEN_BUDGET, PLACES, REPLICAS, FALLBACK_AFTER, FALLBACK_SHARE, CACHED,
    GROWTH, TOOL_COUNT, TOOL_FAILURE, TOOL_TIMEOUT_NS, TOOL_ATTEMPTS, TOOL_CACHED, TOOL_HEDGE_NS, SPECULATION, TOOL_P50_NS,
    RIGHT_CHANCE, FALLBACK_RIGHT, PASSES_RIGHT, PASSES_WRONG,
) = range(len(queue_kernels.SETTINGS), len(SETTINGS))
COUNTS = ("busy_ns", "calls", "discarded", "tool_calls", "tools_discarded", "fan_outs", "decided", "max_over_ns",
          "mean_over_ns", "retried")
BUSY, CALLS_MADE, DISCARDED, TOOLS_MADE, TOOLS_DISCARDED, FAN_OUTS, DECIDED, MAX_OVER, MEAN_OVER, RETRIED = range(len(COUNTS))
# fmt: on
# Columns of the tasks: where it is, turns and redos done, failed attempts of the call, epoch, call at work, whether a smaller
# model had a part, whether it is right, outcome; calls and tool calls made.
PHASE, TURN, REDO, TRIES, EPOCH, CALL, SMALLER, IS_RIGHT, OUTCOME, CALLS, TOOL_CALLS = range(11)
# Columns of their sums: when it ended; tokens read and made; time in calls, in their queue, in tools, in attempts given up;
# length of the last call.
DONE_NS, READ, MADE, IN_CALL, IN_QUEUE, IN_TOOLS, IN_VAIN, LAST_CALL = range(8)
# Columns of the calls' times after those of items: tokens, and the share of the time that its model takes.
PROMPT, GENERATED, SHARE = range(2, 5)


@kernel(inline="always")
def call_tool(settings: Floats, table: Floats, key: int, draw: int) -> tuple[float, int, int, int]:
    """A tool call with its retries: (ns it takes, 1 if it answered, calls made, calls whose result nobody took)."""
    if settings[TOOL_CACHED] > 0 and chance(key, draw) < settings[TOOL_CACHED]:
        return 0.0, 1, 0, 0
    total, made, discarded = 0.0, 0, 0
    for i in range(int(settings[TOOL_ATTEMPTS])):
        took = draw_quantile(table, chance(key, draw + 4 * i + 1))
        made += 1
        if settings[TOOL_HEDGE_NS] >= 0 and took > settings[TOOL_HEDGE_NS]:
            made += 1
            discarded += 1
            took = min(took, settings[TOOL_HEDGE_NS] + draw_quantile(table, chance(key, draw + 4 * i + 2)))
        late = settings[TOOL_TIMEOUT_NS] > 0 and took > settings[TOOL_TIMEOUT_NS]
        total += settings[TOOL_TIMEOUT_NS] if late else took
        if not late and chance(key, draw + 4 * i + 3) >= settings[TOOL_FAILURE]:
            return float(total), 1, made, discarded
        discarded += 1
    return float(total + 1.0), 0, made, discarded  # a nanosecond more: a tool that fails at once has taken some time too


@kernel(inline="always")
def call_tools(
    settings: Floats, table: Floats, key: int, draw: int, spans: Floats, counts: Floats, inside: int
) -> tuple[float, int, int]:
    """All tools of a turn: (ns until the last has answered or given up, 1 if all answered, calls made)."""
    n = int(settings[TOOL_COUNT])
    longest, second, mean, answered, made, discarded = 0.0, 0.0, 0.0, 1, 0, 0
    for i in range(n):
        took, found, calls, lost = call_tool(settings, table, key, draw + i * (4 * int(settings[TOOL_ATTEMPTS]) + 4))
        answered, made, discarded = min(answered, found), made + calls, discarded + lost
        spans[i] = took
        if inside:
            mean += max(took - settings[TOOL_P50_NS], 0.0) / n
        if took > longest:
            longest, second = took, longest
        elif took > second:
            second = took
    if inside:
        counts[TOOLS_MADE] += made
        counts[TOOLS_DISCARDED] += discarded
        if n > 1:
            counts[MAX_OVER] += max(longest - settings[TOOL_P50_NS], 0.0)
            counts[MEAN_OVER] += mean
        if n > 2:
            # One tool decides a turn if, were it as quick as the next, most others would have waited half as long or less.
            counts[FAN_OUTS] += 1
            shorter = 0
            for i in range(n):
                wait = longest - spans[i]
                if wait > 0 and longest - second >= wait / 2:
                    shorter += 1
            if 2 * shorter > n - 1:
                counts[DECIDED] += 1
    return longest, answered, made


@kernel(inline="always")
def call_ns(settings: Floats, base: Floats, prompt: float, generated: float, running: int) -> float:
    """Time of a call that begins beside others that run: all prompts are read one after the other, tokens are made together."""
    batch = ceil((running + 1) / settings[REPLICAS])
    fresh = max(prompt * (1 - settings[CACHED]), 1.0)
    read = iteration_ns(base, int(fresh)) + settings[SCORE_NS] * fresh * (prompt - fresh / 2)
    token = iteration_ns(base, batch) + settings[KV_NS] * batch * (prompt + generated / 2)
    return float(batch * read + (generated - 1) * token)


@kernel(inline="always")
def phase_after(phase: int, turns: int, settings: Floats, sizes: Floats) -> int:
    """The phase after a call that went well, by the turns that are done; calls that generate nothing are left out."""
    if phase <= ACT:
        if turns < settings[TURNS]:
            return TOOLS
        if sizes[VERIFY, 1] > 0:
            return VERIFY
    if phase <= VERIFY and sizes[ANSWER, 1] > 0:
        return ANSWER
    return END


@kernel(inline="always")
def advance(task: int, now: float, settings: Floats, sizes: Floats, key: int, draw: int, tasks: Ints, sums: Floats) -> int:
    """Take a task on after a call that went well; returns the task, or -1 where it ended."""
    phase = tasks[task, PHASE]
    tasks[task, TRIES] = 0
    tasks[task, EPOCH] += 1
    if phase == ACT:
        tasks[task, TURN] += 1
    following = phase_after(phase, tasks[task, TURN], settings, sizes)
    if following > ACT and phase <= ACT:  # the draft is complete
        good = settings[FALLBACK_RIGHT] if tasks[task, SMALLER] > 0 else settings[RIGHT_CHANCE]
        tasks[task, IS_RIGHT] = 1 if chance(key, draw + 1) < good else 0
    if phase == VERIFY:
        passes = settings[PASSES_RIGHT] if tasks[task, IS_RIGHT] > 0 else settings[PASSES_WRONG]
        if chance(key, draw + 2) >= passes:
            if tasks[task, REDO] >= settings[REDOS]:
                tasks[task, OUTCOME], sums[task, DONE_NS] = REFUSED, now
                return -1
            tasks[task, REDO] += 1
            tasks[task, TURN] = 0
            following = TOOLS if settings[TURNS] > 0 else PLAN
    tasks[task, PHASE] = following
    return task


@kernel(inline="always")
def use_tools(
    task: int,
    now: float,
    inside: int,
    settings: Floats,
    table: Floats,
    key: int,
    draw: int,
    tasks: Ints,
    sums: Floats,
    spans: Floats,
    counts: Floats,
) -> float:
    """Call the tools of a task's turn; returns the ns after which it goes on (or is given up, where no redo is left)."""
    took, answered, made = call_tools(settings, table, key, draw + 8, spans, counts, inside)
    tasks[task, TOOL_CALLS] += made
    tasks[task, EPOCH] += 1
    if answered:
        tasks[task, PHASE] = ACT
        # Guessed rightly, they were called during the last call of the model.
        if settings[SPECULATION] > 0 and chance(key, draw) < settings[SPECULATION]:
            took = max(took - sums[task, LAST_CALL], 0.0)
        elif settings[SPECULATION] > 0:  # guessed wrongly: others were called for nothing
            tasks[task, TOOL_CALLS] += int(settings[TOOL_COUNT])
            counts[TOOLS_MADE] += settings[TOOL_COUNT] * inside
            counts[TOOLS_DISCARDED] += settings[TOOL_COUNT] * inside
    elif tasks[task, REDO] < settings[REDOS]:
        tasks[task, REDO] += 1
    else:
        tasks[task, OUTCOME], sums[task, DONE_NS] = RETRIES_OUT, now + took
    sums[task, IN_TOOLS] += took
    return float(took)


@kernel(inline="always")
def submit(
    task: int,
    n: int,
    now: float,
    settings: Floats,
    sizes: Floats,
    tasks: Ints,
    sums: Floats,
    calls: Ints,
    times: Floats,
    pool: Ints,
) -> int:
    """Put call ``n``, of a task's phase, into the queue of the pool; returns 1, or 0 where the task's tokens are used up."""
    phase = tasks[task, PHASE]
    prompt, generated = sizes[phase, 0] + settings[GROWTH] * tasks[task, TURN], sizes[phase, 1]
    if settings[TOKEN_BUDGET] > 0 and sums[task, READ] + sums[task, MADE] + prompt + generated > settings[TOKEN_BUDGET]:
        tasks[task, OUTCOME], sums[task, DONE_NS] = TOKENS_OUT, now
        return 0
    sums[task, READ] += prompt
    sums[task, MADE] += generated
    smaller = settings[FALLBACK_AFTER] > 0 and tasks[task, TRIES] >= settings[FALLBACK_AFTER]
    tasks[task, SMALLER] = 1 if smaller or tasks[task, SMALLER] > 0 else 0
    tasks[task, CALL] = n
    tasks[task, CALLS] += 1
    calls[n, OWNER], calls[n, MARK] = task, tasks[task, EPOCH]
    times[n, SUBMITTED], times[n, PROMPT], times[n, GENERATED] = now, prompt, generated
    times[n, SHARE] = settings[FALLBACK_SHARE] if smaller else 1.0
    append(n, 0, calls, pool)
    return 1


@kernel(error_model="numpy", _nrt=False)
def simulate(
    arrive: Floats,
    key: int,
    settings: Floats,
    sizes: Floats,
    base: Floats,
    noise: Floats,
    habit: Floats,
    tool: Floats,
    tasks: Ints,
    sums: Floats,
    calls: Ints,
    times: Floats,
    pool: Ints,
    when: Floats,
    what: Ints,
    line: Floats,
    marks: Ints,
    spans: Floats,
    counts: Floats,
) -> int:
    """Simulate all tasks; returns the calls made, or -1 where there was no room for more."""
    first, end = 0, 0
    total, size, n, r, draw, running, before = len(arrive), 0, 0, 0, 0, 0, 0.0
    # Draws of one event: eight, and those of all attempts of all tools. Every event has its own, used or not.
    stride = int(settings[TOOL_COUNT]) * (4 * int(settings[TOOL_ATTEMPTS]) + 4) + 8
    while r < total or size > 0 or first < end:
        now, event, size, first = next_event(arrive, r, when, what, size, line, marks, first, end)
        if now > settings[UNTIL_NS]:
            break
        # The pool's load is constant between two events; what of that time lies in the window counts.
        passed = min(now, settings[TO_NS]) - max(before, settings[FROM_NS])
        if passed > 0:
            counts[BUSY] += passed * min(running / settings[REPLICAS], 1.0)
        before = now
        inside = 1 if settings[FROM_NS] <= now < settings[TO_NS] else 0
        kind, task, epoch = event % KINDS, 0, 0
        if kind != ENDED:
            epoch = event // KINDS // total
            task = event // KINDS - epoch * total
        go, failed, given_up = -1, -1, -1  # a task that goes on, one whose call failed, a call whose result nobody takes
        if event < 0:
            go = r
            if settings[PROPAGATES] > 0:
                size = push(when, what, size, now + settings[DEADLINE_NS], DEADLINE + KINDS * r)
            r += 1
        elif kind == GO:
            if tasks[task, EPOCH] == epoch:
                go = task
        elif kind == DEADLINE:
            if tasks[task, OUTCOME] == OPEN:
                tasks[task, OUTCOME], sums[task, DONE_NS] = LATE, now
                tasks[task, EPOCH] += 1
                c = tasks[task, CALL]
                if c >= 0 and (calls[c, STATE] == RUNNING or calls[c, STATE] == WAITING):
                    given_up = c
        elif kind == TIMEOUT:
            c = tasks[task, CALL]
            if tasks[task, EPOCH] == epoch and c >= 0:
                if settings[CANCELS] > 0:
                    given_up = c
                failed = task
                sums[task, IN_VAIN] += now - times[c, SUBMITTED]
                tasks[task, CALL] = -1
        else:
            c = event // KINDS
            task = calls[c, OWNER]
            if calls[c, STATE] == RUNNING:
                running -= 1
                calls[c, STATE] = DONE
                counts[CALLS_MADE] += inside
                if tasks[task, CALL] == c and tasks[task, EPOCH] == calls[c, MARK]:
                    tasks[task, CALL] = -1
                    draw += stride
                    if chance(key, draw) < settings[FAILURE]:
                        failed = task
                        counts[DISCARDED] += inside
                        sums[task, IN_VAIN] += now - times[c, SUBMITTED]
                    else:
                        sums[task, IN_QUEUE] += times[c, STARTED] - times[c, SUBMITTED]
                        sums[task, LAST_CALL] = now - times[c, STARTED]
                        sums[task, IN_CALL] += sums[task, LAST_CALL]
                        go = advance(task, now, settings, sizes, key, draw, tasks, sums)
                else:
                    counts[DISCARDED] += inside
        if given_up >= 0:
            running -= 1 if calls[given_up, STATE] == RUNNING else 0
            calls[given_up, STATE] = DEAD
            counts[DISCARDED] += inside
            counts[CALLS_MADE] += inside
        if failed >= 0:
            tasks[failed, EPOCH] += 1
            pause = retry_pause_ns(settings, tasks[failed, TRIES], counts[RETRIED], n)
            tasks[failed, TRIES] += 1
            if pause >= 0:
                counts[RETRIED] += 1
                sums[failed, IN_VAIN] += pause
                size = push(when, what, size, now + pause, GO + KINDS * (failed + total * tasks[failed, EPOCH]))
            else:
                tasks[failed, OUTCOME], sums[failed, DONE_NS] = RETRIES_OUT, now
        if go >= 0 and tasks[go, OUTCOME] == OPEN:
            if tasks[go, PHASE] == END:
                tasks[go, OUTCOME] = RIGHT if tasks[go, IS_RIGHT] > 0 else WRONG
                sums[go, DONE_NS] = now
            elif tasks[go, PHASE] == TOOLS:
                draw += stride
                took = use_tools(go, now, inside, settings, tool, key, draw, tasks, sums, spans, counts)
                size = push(when, what, size, now + took, GO + KINDS * (go + total * tasks[go, EPOCH]))
            elif n >= len(calls):
                return -1
            elif submit(go, n, now, settings, sizes, tasks, sums, calls, times, pool):
                n += 1
                if settings[TIMEOUT_NS] > 0:
                    mark = TIMEOUT + KINDS * (go + total * tasks[go, EPOCH])
                    end = line_up(line, marks, first, end, now + settings[TIMEOUT_NS], mark)
        # Free places go to the calls that have waited longest; those given up meanwhile are passed over.
        while pool[0, QUEUED] > 0 and running < settings[PLACES]:
            c = take_first(0, calls, pool)
            if calls[c, STATE] == WAITING:
                draw += stride
                took = call_ns(settings, base, times[c, PROMPT], times[c, GENERATED], running)
                took *= noise_factor(times[c, SHARE], noise, key, draw)
                took *= habit[min(int(chance(key, draw + 2) * len(habit)), len(habit) - 1)]
                took += stall_left_ns(settings, now)
                calls[c, STATE], times[c, STARTED] = RUNNING, now
                running += 1
                size = push(when, what, size, now + took, ENDED + KINDS * c)
    return n
