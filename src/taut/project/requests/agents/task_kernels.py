"""Tasks through a shared pool, event by event: kernels over arrays.

A task plans, then takes turns: tools in parallel (the last to answer counts) and a call of the model; a verifier accepts
the draft or has it done again; an answer ends it. Calls wait for a place in the pool in the order they came. What is given
up is tried again, and what the pool does not hear of it works on all the same: that is the feedback.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from taut.core.jit import kernel
from taut.project.requests.event_heap import pop, push
from taut.project.requests.serving.server_kernels import base_ns, look
from taut.project.training.job_history import chance

ENDED, TIMEOUT, GO, DEADLINE = range(4)
KINDS = 8
PLAN, TOOLS, ACT, VERIFY, ANSWER, END = range(6)
WAITING, RUNNING, OVER, DEAD = range(1, 5)
OUTCOMES = ("open", "right", "wrong", "not accepted", "retries", "tokens", "late")
OPEN, RIGHT, WRONG, REFUSED, RETRIES_OUT, TOKENS_OUT, LATE = range(len(OUTCOMES))
# fmt: off
KNOBS = (
    "turns", "redos", "failure", "timeout_ns", "attempts", "backoff_ns", "retry_budget", "cancels", "deadline_ns", "propagates",
    "token_budget", "places", "replicas", "fallback_after", "fallback_share", "cached", "growth", "stall_from", "stall_to",
    "tools", "tool_failure", "tool_timeout_ns", "tool_attempts", "tool_cached", "tool_hedge_ns", "speculation", "tool_p50_ns",
    "right", "fallback_right", "passes_right", "passes_wrong", "kv_ns", "score_ns", "until_ns", "from_ns", "to_ns",
)
(
    TURNS, REDOS, FAILURE, TIMEOUT_NS, ATTEMPTS, BACKOFF, BUDGET, CANCELS, DEADLINE_NS, PROPAGATES, TOKEN_BUDGET, PLACES,
    REPLICAS, FALLBACK_AFTER, FALLBACK_SHARE, CACHED, GROWTH, STALL_FROM, STALL_TO, TOOL_COUNT, TOOL_FAILURE, TOOL_TIMEOUT,
    TOOL_ATTEMPTS, TOOL_CACHED, TOOL_HEDGE, SPECULATION, TOOL_P50, RIGHT_CHANCE, FALLBACK_RIGHT, PASSES_RIGHT, PASSES_WRONG,
    KV, SCORE, UNTIL, FROM, TO,
) = range(len(KNOBS))
# Columns of the tasks: where it is, turns and redos done, attempts of the call, epoch, call at work, whether a smaller model
# had a part, whether right, outcome; calls and tool calls made.
PHASE, TURN, REDO, TRIES, EPOCH, CALL, SMALLER, IS_RIGHT, OUTCOME, CALLS, TOOL_CALLS = range(11)
# When it ended; tokens read and made; time in calls, in their queue, in tools, in attempts given up; length of the last call.
DONE_NS, READ, MADE, IN_CALL, IN_QUEUE, IN_TOOLS, IN_VAIN, LAST_CALL = range(8)
# Columns of the calls.
TASK, STATE, NEXT, MARK = range(4)
SUBMITTED, STARTED, PROMPT, GENERATED, SHARE = range(5)
COUNTS = ("busy_ns", "calls_ns", "calls", "thrown", "tool_calls", "tools_thrown", "fan_outs", "decided", "max_over_ns",
          "mean_over_ns", "retried")
BUSY, CALLS_NS, CALLS_MADE, THROWN, TOOLS_MADE, TOOLS_THROWN, FAN_OUTS, DECIDED, MAX_OVER, MEAN_OVER, RETRIED = range(11)
# fmt: on


@kernel()
def one_tool(knobs: Any, table: Any, reach: float, key: int, draw: int, seen: Any) -> float:
    """A tool call with its retries: ns until it answers; negative if it never did. ``seen``: calls made, thrown away."""
    if chance(key, draw) < knobs[TOOL_CACHED]:
        return 0.0
    total, tries = 0.0, int(knobs[TOOL_ATTEMPTS])
    limit = knobs[TOOL_TIMEOUT]
    for i in range(tries):
        took = look(table, chance(key, draw + 4 * i + 1), reach)
        seen[0] += 1
        if knobs[TOOL_HEDGE] >= 0 and took > knobs[TOOL_HEDGE]:
            seen[0] += 1
            seen[1] += 1
            took = min(took, knobs[TOOL_HEDGE] + look(table, chance(key, draw + 4 * i + 2), reach))
        late = limit > 0 and took > limit
        total += min(took, limit) if late else took
        if not late and chance(key, draw + 4 * i + 3) >= knobs[TOOL_FAILURE]:
            return float(total)
        seen[1] += 1
    return float(-total - 1.0)


@kernel()
def fan(knobs: Any, table: Any, reach: float, key: int, draw: int, times: Any, counts: Any, inside: bool, seen: Any) -> float:
    """All tools of a turn: ns until the last answered; negative if one never did."""
    n = int(knobs[TOOL_COUNT])
    seen[0], seen[1] = 0, 0
    longest, second, failed, mean = 0.0, 0.0, False, 0.0
    for i in range(n):
        took = one_tool(knobs, table, reach, key, draw + i * (4 * int(knobs[TOOL_ATTEMPTS]) + 4), seen)
        failed = failed or took < 0
        took = -took if took < 0 else took
        times[i] = took
        mean += max(took - knobs[TOOL_P50], 0.0) / n
        if took > longest:
            longest, second = took, longest
        elif took > second:
            second = took
    if inside:
        counts[TOOLS_MADE] += seen[0]
        counts[TOOLS_THROWN] += seen[1]
        if n > 1:
            counts[MAX_OVER] += max(longest - knobs[TOOL_P50], 0.0)
            counts[MEAN_OVER] += mean
        if n > 2:
            counts[FAN_OUTS] += 1
            shorter = 0
            for i in range(n):
                wait = longest - times[i]
                if wait > 0 and longest - second >= wait / 2:
                    shorter += 1
            if 2 * shorter > n - 1:
                counts[DECIDED] += 1
    return -longest - 1.0 if failed else longest


@kernel()
def call_ns(knobs: Any, base: Any, prompt: float, generated: float, running: int) -> float:
    """A call that begins beside so many others: everybody's prompts are read one after the other, tokens are made together."""
    batch = ceil((running + 1) / knobs[REPLICAS])
    fresh = max(prompt * (1 - knobs[CACHED]), 1.0)
    read = base_ns(base, int(fresh)) + knobs[SCORE] * fresh * (prompt - fresh / 2)
    token = base_ns(base, batch) + knobs[KV] * batch * (prompt + generated / 2)
    return float(batch * read + (generated - 1) * token)


@kernel()
def follows(phase: int, turn: int, knobs: Any, sizes: Any) -> int:
    """The phase after one that went well; ``turn`` counts those that are done."""
    if phase <= ACT and phase != TOOLS:
        if turn < knobs[TURNS]:
            return TOOLS
        phase = ACT
    if phase == TOOLS:
        return ACT
    if phase == ACT and sizes[VERIFY, 1] > 0:
        return VERIFY
    if phase <= VERIFY and sizes[ANSWER, 1] > 0:
        return ANSWER
    return END


@kernel(error_model="numpy")
def play(
    arrive: Any, key: int, knobs: Any, sizes: Any, base: Any, noise: Any, habit: Any, tool: Any, reach: float, tasks: Any,
    sums: Any, calls: Any, times: Any, when: Any, what: Any, spans: Any, seen: Any, counts: Any,
) -> int:  # fmt: skip
    """Play all tasks; returns the calls made, or -1 where there was no room for more."""
    total, size, n, r, now, draw = len(arrive), 0, 0, 0, 0.0, 0
    head, tail, queued, running, before, made = -1, -1, 0, 0, 0.0, 0
    stride = int(knobs[TOOL_COUNT]) * (4 * int(knobs[TOOL_ATTEMPTS]) + 4) + 8
    while r < total or size > 0:
        event = -1
        if size > 0 and (r >= total or when[0] <= arrive[r]):
            now, event = when[0], what[0]
            size = pop(when, what, size)
        else:
            now = arrive[r]
        if now > knobs[UNTIL]:
            break
        passed = min(now, knobs[TO]) - max(before, knobs[FROM])
        if passed > 0:
            counts[BUSY] += passed * min(running / knobs[REPLICAS], 1.0)
            counts[CALLS_NS] += passed * running
        before = now
        inside = knobs[FROM] <= now < knobs[TO]
        kind, task, mark = event % KINDS, event // KINDS % total, event // KINDS // total
        go, failed, lost, kept = -1, -1, 0, 0
        if event < 0:
            go = r
            if knobs[PROPAGATES] > 0:
                size = push(when, what, size, now + knobs[DEADLINE_NS], DEADLINE + KINDS * r)
            r += 1
        elif kind == GO:
            if tasks[task, EPOCH] == mark:
                go = task
        elif kind == DEADLINE:
            if tasks[task, OUTCOME] == OPEN:
                tasks[task, OUTCOME], sums[task, DONE_NS] = LATE, now
                c = tasks[task, CALL]
                tasks[task, EPOCH] += 1
                if c >= 0 and calls[c, STATE] == RUNNING:
                    running -= 1
                if c >= 0 and (calls[c, STATE] == RUNNING or calls[c, STATE] == WAITING):
                    calls[c, STATE] = DEAD
                    lost += 1
        elif kind == TIMEOUT:
            c = tasks[task, CALL]
            if tasks[task, EPOCH] == mark and c >= 0:
                if knobs[CANCELS] > 0:
                    if calls[c, STATE] == RUNNING:
                        running -= 1
                    calls[c, STATE] = DEAD
                    lost += 1
                failed = task
                sums[task, IN_VAIN] += now - times[c, SUBMITTED]
                tasks[task, CALL] = -1
        else:
            c = task + total * mark
            task = calls[c, TASK]
            if calls[c, STATE] == RUNNING:
                running -= 1
                calls[c, STATE] = OVER
                if tasks[task, CALL] == c and tasks[task, EPOCH] == calls[c, MARK]:
                    tasks[task, CALL] = -1
                    draw += stride
                    if chance(key, draw) < knobs[FAILURE]:
                        failed = task
                        lost += 1
                        sums[task, IN_VAIN] += now - times[c, SUBMITTED]
                    else:
                        phase = tasks[task, PHASE]
                        sums[task, IN_QUEUE] += times[c, STARTED] - times[c, SUBMITTED]
                        sums[task, IN_CALL] += now - times[c, STARTED]
                        sums[task, LAST_CALL] = now - times[c, STARTED]
                        kept = 1
                        tasks[task, TRIES] = 0
                        tasks[task, EPOCH] += 1
                        if phase == ACT:
                            tasks[task, TURN] += 1
                        again = False
                        following = follows(phase, tasks[task, TURN], knobs, sizes)
                        if following > ACT and phase <= ACT:
                            good = knobs[FALLBACK_RIGHT] if tasks[task, SMALLER] > 0 else knobs[RIGHT_CHANCE]
                            tasks[task, IS_RIGHT] = 1 if chance(key, draw + 1) < good else 0
                        if phase == VERIFY:
                            passes = knobs[PASSES_RIGHT] if tasks[task, IS_RIGHT] > 0 else knobs[PASSES_WRONG]
                            again = chance(key, draw + 2) >= passes
                        if again:
                            if tasks[task, REDO] < knobs[REDOS]:
                                tasks[task, REDO] += 1
                                tasks[task, TURN] = 0
                                tasks[task, PHASE] = TOOLS if knobs[TURNS] > 0 else PLAN
                                go = task
                            else:
                                tasks[task, OUTCOME], sums[task, DONE_NS] = REFUSED, now
                        else:
                            tasks[task, PHASE] = following
                            go = task
                else:
                    lost += 1
        if inside:
            counts[THROWN] += lost
            counts[CALLS_MADE] += lost + kept
        if failed >= 0:
            task = failed
            tasks[task, EPOCH] += 1
            tasks[task, TRIES] += 1
            if tasks[task, TRIES] < knobs[ATTEMPTS] and counts[RETRIED] + 1 <= knobs[BUDGET] * made:
                counts[RETRIED] += 1
                pause = knobs[BACKOFF] * 2.0 ** min(tasks[task, TRIES] - 1, 6)
                sums[task, IN_VAIN] += pause
                size = push(when, what, size, now + pause, GO + KINDS * (task + total * tasks[task, EPOCH]))
            else:
                tasks[task, OUTCOME], sums[task, DONE_NS] = RETRIES_OUT, now
        while go >= 0:
            task, go = go, -1
            phase = tasks[task, PHASE]
            if tasks[task, OUTCOME] != OPEN:
                break
            if phase == END:
                tasks[task, OUTCOME] = RIGHT if tasks[task, IS_RIGHT] > 0 else WRONG
                sums[task, DONE_NS] = now
            elif phase == TOOLS:
                draw += stride
                took = fan(knobs, tool, reach, key, draw + 8, spans, counts, inside, seen)
                tasks[task, TOOL_CALLS] += seen[0]
                tasks[task, EPOCH] += 1
                if took < 0:
                    took = -took - 1.0
                    if tasks[task, REDO] < knobs[REDOS]:
                        tasks[task, REDO] += 1
                    else:
                        tasks[task, OUTCOME], sums[task, DONE_NS] = RETRIES_OUT, now + took
                else:
                    tasks[task, PHASE] = ACT
                    if chance(key, draw) < knobs[SPECULATION]:
                        took = max(took - sums[task, LAST_CALL], 0.0)
                    elif knobs[SPECULATION] > 0:  # others were called for nothing
                        tasks[task, TOOL_CALLS] += int(knobs[TOOL_COUNT])
                        counts[TOOLS_MADE] += knobs[TOOL_COUNT] if inside else 0
                        counts[TOOLS_THROWN] += knobs[TOOL_COUNT] if inside else 0
                sums[task, IN_TOOLS] += took
                size = push(when, what, size, now + took, GO + KINDS * (task + total * tasks[task, EPOCH]))
            else:
                prompt = sizes[phase, 0] + knobs[GROWTH] * tasks[task, TURN]
                if (
                    knobs[TOKEN_BUDGET] > 0
                    and sums[task, READ] + sums[task, MADE] + prompt + sizes[phase, 1] > knobs[TOKEN_BUDGET]
                ):
                    tasks[task, OUTCOME], sums[task, DONE_NS] = TOKENS_OUT, now
                    break
                if n >= len(calls):
                    return -1
                sums[task, READ] += prompt
                sums[task, MADE] += sizes[phase, 1]
                smaller = knobs[FALLBACK_AFTER] > 0 and tasks[task, TRIES] >= knobs[FALLBACK_AFTER]
                tasks[task, SMALLER] = 1 if smaller or tasks[task, SMALLER] > 0 else 0
                tasks[task, CALL], tasks[task, CALLS] = n, tasks[task, CALLS] + 1
                calls[n, TASK], calls[n, STATE], calls[n, NEXT], calls[n, MARK] = task, WAITING, -1, tasks[task, EPOCH]
                times[n, SUBMITTED], times[n, PROMPT], times[n, GENERATED] = now, prompt, sizes[phase, 1]
                times[n, SHARE] = knobs[FALLBACK_SHARE] if smaller else 1.0
                made += 1
                if queued == 0:
                    head = n
                else:
                    calls[tail, NEXT] = n
                tail = n
                queued += 1
                if knobs[TIMEOUT_NS] > 0:
                    size = push(
                        when, what, size, now + knobs[TIMEOUT_NS], TIMEOUT + KINDS * (task + total * tasks[task, EPOCH])
                    )
                n += 1
        while queued > 0 and running < knobs[PLACES]:
            c = head
            head = calls[c, NEXT]
            queued -= 1
            if calls[c, STATE] == WAITING:
                draw += stride
                took = call_ns(knobs, base, times[c, PROMPT], times[c, GENERATED], running)
                took *= (
                    times[c, SHARE] * look(noise[0], chance(key, draw), reach) * look(noise[1], chance(key, draw + 1), reach)
                )
                took *= habit[min(int(chance(key, draw + 2) * len(habit)), len(habit) - 1)]
                if knobs[STALL_FROM] <= now < knobs[STALL_TO]:
                    took += knobs[STALL_TO] - now
                calls[c, STATE], times[c, STARTED] = RUNNING, now
                running += 1
                size = push(when, what, size, now + took, ENDED + KINDS * c)
    return n
