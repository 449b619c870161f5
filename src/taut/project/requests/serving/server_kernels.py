"""Requests through servers, event by event: kernels over arrays.

A request has parts, a part has attempts, an attempt has copies (the first and, hedged, another), and a copy is what a
server works on. Servers work in iterations: one takes in waiting copies, reads prompts (or chunks of them) or makes one
token of every running copy, and lasts for its work times a drawn factor. A copy starts when it has come and its server is
free, a request ends with its last part: Lindley's recursion, and a maximum.
"""

from __future__ import annotations

from math import log
from typing import Any

from taut.core.jit import kernel
from taut.project.requests.event_heap import pop, push
from taut.project.training.job_history import chance

ITERATION, SENT, TIMEOUT, HEDGE, AGAIN = range(5)
KINDS, ATTEMPTS = 8, 16
"""An event is its kind, an attempt and a server, copy or part in one number."""
WAITING, RUNNING, SENDING, DONE, DEAD = range(1, 6)
"""States of a copy; dead: cancelled, dropped, or done for nothing."""
# fmt: off
KNOBS = (
    "max_batch", "prefill_tokens", "chunk_tokens", "kv_tokens", "timeout_ns", "retries", "backoff_ns", "retry_budget",
    "cancels", "hedge_ns", "queue_limit", "drop_ns", "send_ns", "hop_ns", "kv_ns", "score_ns", "routing", "readers", "drift",
    "drift_left", "stall_from", "stall_to", "until_ns", "from_ns", "to_ns",
)
(
    MAX_BATCH, PREFILL, CHUNK, KV_TOKENS, TIMEOUT_NS, RETRIES, BACKOFF, BUDGET, CANCELS, HEDGE_NS, QUEUE_LIMIT, DROP, SEND, HOP,
    KV, SCORE, ROUTING, READERS, DRIFT, DRIFT_LEFT, STALL_FROM, STALL_TO, UNTIL, FROM, TO,
) = range(len(KNOBS))
COUNTS = ("busy_ns", "iterations", "excess_ns", "delayed_ns", "generated", "copies", "retries", "turned_away", "loaded_ns")
BUSY, ITERATIONS, EXCESS, DELAYED, GENERATED, COPIES, RETRIED, AWAY, LOADED_NS = range(len(COUNTS))
# Columns of the copies: integers and times.
PART, ATTEMPT, STATE, SERVER, LEFT, CONTEXT, MADE, NEXT, OTHER = range(9)
SUBMITTED, ADMITTED, STRAYED, WORST, SENT_NS = range(5)
# Columns of the parts: attempt now, winning copy, newest copy, whether given up.
NOW_AT, WINNER, NEWEST, FAILED = range(4)
# Columns of the servers: first and last in its queue, waiting, running, tokens held, whether busy, whether it reads now.
HEAD, TAIL, QUEUED, LOADED, HELD, AT_WORK, READS = range(7)
# fmt: on


@kernel()
def look(table: Any, u: float, reach: float) -> float:
    """A draw from a table of quantiles at even log odds."""
    points = len(table)
    at = (log(u / (1 - u)) + reach) * ((points - 1) / (2 * reach))
    at = min(max(at, 0.0), points - 1.0)
    k = min(int(at), points - 2)
    return float(table[k] + (at - k) * (table[k + 1] - table[k]))


@kernel()
def base_ns(base: Any, tokens: int) -> float:
    """Time of an iteration over so many tokens: linear between powers of two."""
    k, top = 0, 1
    while 2 * top <= tokens and k < len(base) - 2:
        k += 1
        top *= 2
    return float(base[k] + (base[k + 1] - base[k]) * (tokens - top) / top)


@kernel()
def route(first: int, last: int, routing: int, pick: float, turn: int, avoid: int, servers: Any) -> int:
    """A server of first … last for a copy: at random (also by session), in turn, or the one with the least to do."""
    n = last - first
    found = first + turn % n if routing == 1 else first + min(int(pick * n), n - 1)
    if routing == 2:
        start = found
        for i in range(n):
            s = first + (start - first + i) % n
            if s != avoid and (
                found == avoid or servers[s, QUEUED] + servers[s, LOADED] < servers[found, QUEUED] + servers[found, LOADED]
            ):
                found = s
    elif found == avoid and n > 1:
        found = first + (found - first + 1) % n
    return found


@kernel()
def enqueue(c: int, s: int, copies: Any, servers: Any) -> int:
    """Put a copy at the end of a server's queue; returns how many wait there."""
    copies[c, STATE], copies[c, SERVER], copies[c, NEXT] = WAITING, s, -1
    if servers[s, QUEUED] == 0:
        servers[s, HEAD] = c
    else:
        copies[servers[s, TAIL], NEXT] = c
    servers[s, TAIL] = c
    servers[s, QUEUED] += 1
    return int(servers[s, QUEUED])


@kernel()
def begin(
    s: int, now: float, knobs: Any, base: Any, tables: Any, reach: float, habit: Any, drift: Any, key: int, draw: int,
    fan: int, arrive: Any, prompt: Any, fresh: Any, output: Any, copies: Any, times: Any, parts: Any, servers: Any, slots: Any,
    takes: Any, last: Any,
) -> float:  # fmt: skip
    """Begin an iteration of a server: what it takes, ns; -1 if there is nothing to do. ``last`` gets it without noise."""
    reader, most = s < knobs[READERS], int(knobs[MAX_BATCH])
    writer = knobs[READERS] > 0 and not reader
    budget, taken = knobs[PREFILL], 0
    while servers[s, QUEUED] > 0 and servers[s, LOADED] < most:
        c = servers[s, HEAD]
        r = copies[c, PART] // fan
        if copies[c, STATE] == WAITING:
            late = knobs[DROP] > 0 and now - arrive[r] > knobs[DROP] and not writer
            if late:
                copies[c, STATE] = DEAD
                parts[copies[c, PART], FAILED] = 1
            else:
                need = prompt[r] + output[r]
                full = servers[s, HELD] + need > knobs[KV_TOKENS]
                if (full and servers[s, LOADED] > 0) or (taken > 0 and not writer and budget < fresh[r]):
                    break
                budget -= fresh[r]
                taken += 1
                copies[c, STATE] = RUNNING
                servers[s, HELD] += need
                slots[s, servers[s, LOADED]] = c
                servers[s, LOADED] += 1
                if times[c, ADMITTED] < 0:
                    times[c, ADMITTED] = now
        servers[s, HEAD] = copies[c, NEXT]
        servers[s, QUEUED] -= 1
    if servers[s, LOADED] == 0:
        servers[s, AT_WORK] = 0
        return -1.0
    reading, decoding, context = 0, 0, 0.0
    for i in range(servers[s, LOADED]):
        c = slots[s, i]
        if copies[c, LEFT] > 0:
            reading += copies[c, LEFT]
        else:
            decoding += 1
            context += copies[c, CONTEXT]
    chunked = knobs[CHUNK] > 0
    if reading > 0 and not chunked:
        decoding, context = 0, 0.0
    room = reading
    if chunked:
        room = max(int(knobs[CHUNK]) - decoding, 1)
    tokens, scores = decoding, 0.0
    for i in range(servers[s, LOADED]):
        c = slots[s, i]
        take = min(copies[c, LEFT], room)
        takes[s, i] = take
        if take > 0:
            room -= take
            tokens += take
            scores += take * (copies[c, CONTEXT] - copies[c, LEFT] + 0.5 * take)
    servers[s, READS] = 1 if reading > 0 and not chunked else 0
    servers[s, AT_WORK] = 1
    still = base_ns(base, tokens) + knobs[KV] * context + knobs[SCORE] * scores
    factor = habit[s] * look(tables[0], chance(key, draw), reach) * look(tables[1], chance(key, draw + 1), reach)
    if knobs[DRIFT] > 0:
        stays = knobs[DRIFT_LEFT]
        drift[s] = stays * drift[s] + (1 - stays * stays) ** 0.5 * look(tables[2], chance(key, draw + 2), reach)
        factor *= max(1 + knobs[DRIFT] * drift[s], 0.0)
    last[s] = still
    stalled = max(knobs[STALL_TO] - now, 0.0) if now >= knobs[STALL_FROM] else 0.0
    return float(still * factor + stalled)


@kernel()
def lose(c: int, copies: Any) -> int:
    """A copy is no longer wanted: it waits no more, or its server drops it after this iteration."""
    if c >= 0 and copies[c, STATE] != DONE:
        copies[c, STATE] = DEAD
    return c


@kernel()
def submit(
    p: int, now: float, hedge: int, turn: int, pick: float, knobs: Any, fan: int, fresh: Any, prompt: Any, n: int, copies: Any,
    times: Any, parts: Any, servers: Any,
) -> int:  # fmt: skip
    """Send a copy of a part to a server: its number, or -1 if it was turned away."""
    lead, last = parts[p, NEWEST], len(servers)
    if knobs[READERS] > 0:
        last = int(knobs[READERS])
    avoid = copies[lead, SERVER] if hedge == 1 and lead >= 0 else -1
    s = route(0, last, int(knobs[ROUTING]), pick, turn, avoid, servers)
    if knobs[QUEUE_LIMIT] > 0 and servers[s, QUEUED] >= knobs[QUEUE_LIMIT]:
        return -1
    r = p // fan
    copies[n, PART], copies[n, ATTEMPT], copies[n, LEFT], copies[n, CONTEXT] = p, parts[p, NOW_AT], fresh[r], prompt[r]
    copies[n, MADE], copies[n, OTHER] = 0, -1
    if hedge == 1 and lead >= 0:
        copies[n, OTHER], copies[lead, OTHER] = lead, n
    times[n, SUBMITTED], times[n, ADMITTED] = now, -1.0
    parts[p, NEWEST] = n
    enqueue(n, s, copies, servers)
    return n


@kernel()
def wanted(c: int, copies: Any, parts: Any) -> bool:
    """Whether anybody still waits for a copy."""
    p = copies[c, PART]
    return bool(
        copies[c, ATTEMPT] == parts[p, NOW_AT] and parts[p, FAILED] == 0 and (parts[p, WINNER] < 0 or parts[p, WINNER] == c)
    )


@kernel(error_model="numpy")
def play(
    arrive: Any, prompt: Any, fresh: Any, output: Any, fan: int, key: int, knobs: Any, base: Any, tables: Any, reach: float,
    habit: Any, drift: Any, copies: Any, times: Any, parts: Any, answered: Any, servers: Any, slots: Any, takes: Any, last: Any,
    took: Any, when: Any, what: Any, counts: Any,
) -> int:  # fmt: skip
    """Play all requests; ``answered`` gets first token and end of every part (-1: never). Returns the copies made."""
    total, size, n, turn, draw, submitted, tried = len(arrive), 0, 0, 0, 0, 0, 0
    r, now = 0, 0.0
    while r < total or size > 0:
        event = -1
        if size > 0 and (r >= total or when[0] <= arrive[r]):
            now, event = when[0], what[0]
            size = pop(when, what, size)
        else:
            now = arrive[r]
        if now > knobs[UNTIL]:
            break
        kind, attempt, one = event % KINDS, event // KINDS % ATTEMPTS, event // (KINDS * ATTEMPTS)
        first, end, hedge = 0, 0, 0
        wake = -1
        if event < 0:
            first, end = r * fan, (r + 1) * fan
            r += 1
            submitted += fan
        elif kind == AGAIN:
            first, end = one, one + 1
        elif kind == HEDGE:
            if parts[one, NOW_AT] == attempt and answered[one, 0] < 0 and parts[one, FAILED] == 0:
                first, end, hedge = one, one + 1, 1
        elif kind == TIMEOUT:
            if parts[one, NOW_AT] == attempt and answered[one, 1] < 0 and parts[one, FAILED] == 0:
                c = parts[one, NEWEST]
                if knobs[CANCELS] > 0 and c >= 0:
                    lose(copies[c, OTHER], copies)
                    lose(c, copies)
                answered[one, 0], parts[one, WINNER], parts[one, NEWEST] = -1.0, -1, -1
                parts[one, NOW_AT] += 1
                if attempt < knobs[RETRIES] and tried + 1 <= knobs[BUDGET] * submitted:
                    tried += 1
                    pause = knobs[BACKOFF] * 2.0**attempt
                    size = push(when, what, size, now + pause, AGAIN + KINDS * ATTEMPTS * one)
                else:
                    parts[one, FAILED] = 1
        elif kind == SENT:
            if copies[one, STATE] == SENDING:
                s = route(int(knobs[READERS]), len(servers), 2, 0.0, 0, -1, servers)
                enqueue(one, s, copies, servers)
                wake = s
        else:
            s = one
            kept = 0
            stray = took[s] - last[s]
            for i in range(servers[s, LOADED]):
                c = slots[s, i]
                p = copies[c, PART]
                q = p // fan
                moved = takes[s, i] > 0 or (copies[c, LEFT] == 0 and servers[s, READS] == 0)
                times[c, STRAYED] += stray
                times[c, WORST] = max(times[c, WORST], stray)
                gone = copies[c, STATE] == DEAD
                if not gone and moved:
                    if takes[s, i] > 0:
                        copies[c, LEFT] -= takes[s, i]
                    if copies[c, LEFT] == 0:
                        copies[c, MADE] += 1
                        copies[c, CONTEXT] += 1
                        ours = wanted(c, copies, parts)
                        if copies[c, MADE] == 1 and ours:
                            answered[p, 0], parts[p, WINNER] = now, c
                            lose(copies[c, OTHER], copies)
                        if copies[c, MADE] >= output[q]:
                            copies[c, STATE] = DONE if ours else DEAD
                            gone = True
                            if ours:
                                answered[p, 1] = now
                                if knobs[FROM] <= now < knobs[TO]:
                                    counts[GENERATED] += output[q]
                        elif s < knobs[READERS]:
                            gone = True
                            copies[c, STATE] = SENDING
                            servers[s, HELD] -= prompt[q] + output[q]
                            later = knobs[HOP] + knobs[SEND] * prompt[q]
                            times[c, SENT_NS] = later
                            size = push(when, what, size, now + later, SENT + KINDS * ATTEMPTS * c)
                if gone:
                    if copies[c, STATE] != SENDING:
                        servers[s, HELD] -= prompt[q] + output[q]
                else:
                    slots[s, kept] = c
                    kept += 1
            servers[s, LOADED] = kept
            servers[s, AT_WORK] = 0
            wake = s
        while first < end or wake >= 0:
            if wake < 0:
                p = first
                first += 1
                draw += 4
                turn += 1
                c = submit(p, now, hedge, turn, chance(key, draw), knobs, fan, fresh, prompt, n, copies, times, parts, servers)
                if c >= 0:
                    n += 1
                    wake = copies[c, SERVER]
                    if hedge == 0:
                        mark = KINDS * (parts[p, NOW_AT] + ATTEMPTS * p)
                        if knobs[TIMEOUT_NS] > 0:
                            size = push(when, what, size, now + knobs[TIMEOUT_NS], TIMEOUT + mark)
                        if knobs[HEDGE_NS] >= 0:
                            size = push(when, what, size, now + knobs[HEDGE_NS], HEDGE + mark)
                elif hedge == 0:
                    counts[AWAY] += 1
                    attempt = parts[p, NOW_AT]
                    parts[p, NOW_AT] += 1
                    if attempt < knobs[RETRIES] and tried + 1 <= knobs[BUDGET] * submitted:
                        tried += 1
                        size = push(when, what, size, now + knobs[BACKOFF] * 2.0**attempt, AGAIN + KINDS * ATTEMPTS * p)
                    else:
                        parts[p, FAILED] = 1
            if wake >= 0:
                s = wake
                wake = -1
                if servers[s, AT_WORK] == 0:
                    draw += 4
                    lasts = begin(
                        s, now, knobs, base, tables, reach, habit, drift, key, draw, fan, arrive, prompt, fresh, output, copies,
                        times, parts, servers, slots, takes, last,
                    )  # fmt: skip
                    if lasts >= 0:
                        took[s] = lasts
                        size = push(when, what, size, now + lasts, ITERATION + KINDS * ATTEMPTS * s)
                        inside = min(now + lasts, knobs[TO]) - max(now, knobs[FROM])
                        if inside > 0:
                            counts[BUSY] += inside
                            counts[LOADED_NS] += inside * servers[s, LOADED]
                            counts[ITERATIONS] += 1
                            over = max(lasts - last[s], 0.0)
                            counts[EXCESS] += over
                            counts[DELAYED] += over * (servers[s, LOADED] + servers[s, QUEUED])
    counts[COPIES], counts[RETRIED] = n, tried
    return n
