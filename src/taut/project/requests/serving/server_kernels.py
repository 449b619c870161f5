"""Requests through servers, event by event: kernels over arrays.

A request has parts, a part has attempts, an attempt has copies (the first and, hedged, another), and a copy is what a
server works on. Servers work in iterations: one takes in waiting copies, reads prompts (or chunks of them) or makes one
token of every running copy, and lasts for its work times a drawn factor. A copy starts when it has come and its server is
free, a request ends with its last part: Lindley's recursion, and a maximum.
"""

from __future__ import annotations

from taut.core.array_types import Floats, Ints
from taut.core.jit import kernel
from taut.project.requests import queue_kernels
from taut.project.requests.queue_kernels import (
    CANCELS,
    DEAD,
    DONE,
    FROM_NS,
    HEAD,
    KV_NS,
    MARK,
    OWNER,
    QUEUED,
    RUNNING,
    SCORE_NS,
    SENDING,
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

ITERATION, SENT, TIMEOUT, HEDGE, AGAIN = range(5)
# An event is one number: kind + KINDS × (attempt + MOST_ATTEMPTS × server, copy or part).
KINDS, MOST_ATTEMPTS = 8, 16
# fmt: off
SETTINGS = (
    *queue_kernels.SETTINGS,
    "max_batch", "prefill_tokens", "chunk_tokens", "kv_tokens", "hedge_ns", "queue_limit", "drop_ns", "send_ns", "hop_ns",
    "routing", "readers", "drift", "drift_left",
)
(
    MAX_BATCH, PREFILL, CHUNK, KV_TOKENS, HEDGE_NS, QUEUE_LIMIT, DROP_NS, SEND_NS, HOP_NS, ROUTING, READERS, DRIFT, DRIFT_LEFT,
) = range(len(queue_kernels.SETTINGS), len(SETTINGS))
COUNTS = ("busy_ns", "excess_ns", "delayed_ns", "copies", "turned_away", "loaded_ns")
BUSY, EXCESS, DELAYED, COPIES, TURNED_AWAY, LOADED_NS = range(len(COUNTS))
# fmt: on
# Ways to choose a server; by session is at random too, because who asks is drawn.
RANDOM, ROUND_ROBIN, SHORTEST = range(3)
# Columns of the requests' tokens; fresh are those of the prompt that no cache has.
PROMPT, FRESH, OUTPUT = range(3)
# Columns of the copies after those of items: server, prompt tokens to read, prompt tokens, tokens made, its twin, tokens that
# it is to make.
SERVER, LEFT, ASKED, MADE, OTHER, GOAL = range(4, 10)
# Columns of the copies' times after those of items: what noise added, most of it in one iteration, time between servers.
NOISE_NS, WORST_NS, SENT_NS = range(2, 5)
# Columns of the parts: attempt now, winning copy, newest copy, whether given up.
ATTEMPT, WINNER, NEWEST, FAILED = range(4)
# Columns of the servers after those of queues: copies running, tokens held, whether busy, what of its iteration reads prompts;
# of all running copies, prompt tokens to read, and tokens so far (of the prompt, and made).
LOADED, HELD, AT_WORK, READS, UNREAD, CONTEXT = range(3, 9)
SERVER_COLUMNS = CONTEXT + 1
NOTHING, SOME, ALL = range(3)
# Columns of the servers' pace: lasting factor, drift now, the iteration at work without noise and with it.
HABIT, DRIFTED, QUIET_NS, LASTS_NS = range(4)


@kernel()
def route(first: int, last: int, routing: int, pick: float, turn: int, avoid: int, servers: Ints) -> int:
    """A server of first … last - 1 for a copy, other than ``avoid`` where there is another."""
    n = last - first
    # The shortest queue is looked for from a random server on, so that equally short ones are taken equally often.
    found = first + turn % n if routing == ROUND_ROBIN else first + min(int(pick * n), n - 1)
    if routing == SHORTEST:
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


@kernel(inline="always")
def admit(
    s: int,
    now: float,
    settings: Floats,
    fan_out: int,
    arrive: Floats,
    tokens: Ints,
    copies: Ints,
    times: Floats,
    parts: Ints,
    servers: Ints,
    slots: Ints,
) -> int:
    """Let waiting copies into a server's batch, in order, as far as batch, memory and prompt tokens allow; returns its size."""
    writer = s >= settings[READERS] > 0
    budget, taken = settings[PREFILL], 0
    while servers[s, QUEUED] > 0 and servers[s, LOADED] < settings[MAX_BATCH]:
        c = servers[s, HEAD]
        r = copies[c, OWNER] // fan_out
        if copies[c, STATE] == WAITING:
            if settings[DROP_NS] > 0 and now - arrive[r] > settings[DROP_NS] and not writer:
                copies[c, STATE] = DEAD
                parts[copies[c, OWNER], FAILED] = 1
            else:
                # A copy is let in only if its whole answer fits; the first one of an iteration whatever it reads.
                need = tokens[r, PROMPT] + tokens[r, OUTPUT]
                full = servers[s, HELD] + need > settings[KV_TOKENS]
                if (full and servers[s, LOADED] > 0) or (taken > 0 and not writer and budget < tokens[r, FRESH]):
                    break
                budget -= tokens[r, FRESH]
                taken += 1
                copies[c, STATE] = RUNNING
                servers[s, HELD] += need
                servers[s, UNREAD] += copies[c, LEFT]
                servers[s, CONTEXT] += copies[c, ASKED] + copies[c, MADE]
                slots[s, servers[s, LOADED]] = c
                servers[s, LOADED] += 1
                if times[c, STARTED] < 0:
                    times[c, STARTED] = now
        take_first(s, copies, servers)
    return int(servers[s, LOADED])


@kernel(inline="always")
def begin_iteration(
    s: int,
    now: float,
    settings: Floats,
    base: Floats,
    tables: Floats,
    key: int,
    draw: int,
    copies: Ints,
    servers: Ints,
    slots: Ints,
    takes: Ints,
    pace: Floats,
) -> float:
    """Begin an iteration of a server over the copies in its batch; returns how long it lasts, ns."""
    reading, decoding, context = servers[s, UNREAD], servers[s, LOADED], float(servers[s, CONTEXT])
    # Without chunks, decoding stalls while prompts are read; with them, prompts get the tokens that decoding leaves.
    chunked = settings[CHUNK] > 0
    if reading > 0:
        decoding, context = 0, 0.0
        for i in range(servers[s, LOADED] if chunked else 0):
            c = slots[s, i]
            if copies[c, LEFT] == 0:
                decoding += 1
                context += copies[c, ASKED] + copies[c, MADE]
    tokens, scores = decoding, 0.0
    if reading > 0:
        room = reading
        if chunked:
            room = max(int(settings[CHUNK]) - decoding, 1)
        for i in range(servers[s, LOADED]):
            c = slots[s, i]
            take = min(copies[c, LEFT], room)
            takes[s, i] = take
            if take > 0:
                room -= take
                tokens += take
                scores += take * (copies[c, ASKED] - copies[c, LEFT] + 0.5 * take)
    servers[s, READS] = NOTHING if reading == 0 else SOME if chunked else ALL
    servers[s, AT_WORK] = 1
    quiet = iteration_ns(base, tokens) + settings[KV_NS] * context + settings[SCORE_NS] * scores
    factor = noise_factor(pace[s, HABIT], tables, key, draw)
    if settings[DRIFT] > 0:
        # Autoregressive, of variance one: what stays of the last iteration's drift, and a draw for the rest.
        stays = settings[DRIFT_LEFT]
        pace[s, DRIFTED] = stays * pace[s, DRIFTED] + (1 - stays * stays) ** 0.5 * draw_quantile(
            tables[2], chance(key, draw + 2)
        )
        factor *= max(1 + settings[DRIFT] * pace[s, DRIFTED], 0.0)
    pace[s, QUIET_NS] = quiet
    pace[s, LASTS_NS] = quiet * factor + stall_left_ns(settings, now)
    return float(pace[s, LASTS_NS])


@kernel(inline="always")
def end_iteration(
    s: int,
    now: float,
    settings: Floats,
    fan_out: int,
    tokens: Ints,
    copies: Ints,
    times: Floats,
    parts: Ints,
    answered: Floats,
    servers: Ints,
    slots: Ints,
    takes: Ints,
    pace: Floats,
    when: Floats,
    what: Ints,
    size: int,
) -> int:
    """End an iteration of a server: what its copies have made, and which of them leave; returns the heap's size."""
    kept = 0  # copies that stay move to the front of the batch
    noise, reads, sends = pace[s, LASTS_NS] - pace[s, QUIET_NS], servers[s, READS], s < settings[READERS]
    unread, context = servers[s, UNREAD], servers[s, CONTEXT]
    for i in range(servers[s, LOADED]):
        c = slots[s, i]
        times[c, NOISE_NS] += noise
        times[c, WORST_NS] = max(times[c, WORST_NS], noise)
        leaves, makes = copies[c, STATE] == DEAD, reads == NOTHING
        if not leaves and not makes and (takes[s, i] > 0 or (copies[c, LEFT] == 0 and reads == SOME)):
            copies[c, LEFT] -= takes[s, i]
            unread -= takes[s, i]
            makes = copies[c, LEFT] == 0
        if not leaves and makes:
            copies[c, MADE] += 1
            context += 1
            first, last = copies[c, MADE] == 1, copies[c, MADE] >= copies[c, GOAL]
            # Most tokens are neither: who waits for them need not be asked.
            if first or last:
                p, ours = copies[c, OWNER], wanted(c, copies, parts)
                if first and ours:
                    answered[p, 0], parts[p, WINNER] = now, c
                    cancel(copies[c, OTHER], copies)
                if last:
                    copies[c, STATE] = DONE if ours else DEAD
                    leaves = True
                    if ours:
                        answered[p, 1] = now
            if sends and not last:
                copies[c, STATE] = SENDING
                leaves = True
                times[c, SENT_NS] = settings[HOP_NS] + settings[SEND_NS] * tokens[copies[c, OWNER] // fan_out, PROMPT]
                size = push(when, what, size, now + times[c, SENT_NS], SENT + KINDS * MOST_ATTEMPTS * c)
        if leaves:
            servers[s, HELD] -= copies[c, ASKED] + copies[c, GOAL]
            unread -= copies[c, LEFT]
            context -= copies[c, ASKED] + copies[c, MADE]
        else:
            slots[s, kept] = c
            kept += 1
    servers[s, LOADED], servers[s, UNREAD], servers[s, CONTEXT] = kept, unread, context
    servers[s, AT_WORK] = 0
    return size


@kernel()
def cancel(c: int, copies: Ints) -> int:
    """Mark a copy, if there is one, as no longer wanted: its server drops it before or after the iteration at work."""
    if c >= 0 and copies[c, STATE] != DONE:
        copies[c, STATE] = DEAD
    return c


@kernel(inline="always")
def submit(
    p: int,
    now: float,
    hedge: int,
    turn: int,
    pick: float,
    settings: Floats,
    fan_out: int,
    tokens: Ints,
    n: int,
    copies: Ints,
    times: Floats,
    parts: Ints,
    servers: Ints,
) -> int:
    """Send a copy of a part to a server: its number ``n``, or -1 if it was turned away."""
    lead, last = parts[p, NEWEST], len(servers)
    if settings[READERS] > 0:
        last = int(settings[READERS])
    avoid = copies[lead, SERVER] if hedge == 1 and lead >= 0 else -1
    s = route(0, last, int(settings[ROUTING]), pick, turn, avoid, servers)
    if settings[QUEUE_LIMIT] > 0 and servers[s, QUEUED] >= settings[QUEUE_LIMIT]:
        return -1
    r = p // fan_out
    copies[n, OWNER], copies[n, MARK], copies[n, SERVER] = p, parts[p, ATTEMPT], s
    copies[n, LEFT], copies[n, ASKED], copies[n, MADE] = tokens[r, FRESH], tokens[r, PROMPT], 0
    copies[n, GOAL] = tokens[r, OUTPUT]
    if hedge == 1 and lead >= 0:
        copies[n, OTHER], copies[lead, OTHER] = lead, n
    times[n, SUBMITTED], times[n, STARTED] = now, -1.0
    parts[p, NEWEST] = n
    append(n, s, copies, servers)
    return n


@kernel()
def fail(
    p: int, now: float, settings: Floats, parts: Ints, retried: int, submitted: int, when: Floats, what: Ints, size: int
) -> tuple[int, int]:
    """End an attempt of a part without an answer, and plan the next if it may have one; returns (retries, heap's size)."""
    pause = retry_pause_ns(settings, parts[p, ATTEMPT], retried, submitted)
    parts[p, ATTEMPT] += 1
    if pause < 0:
        parts[p, FAILED] = 1
        return retried, size
    return retried + 1, push(when, what, size, now + pause, AGAIN + KINDS * MOST_ATTEMPTS * p)


@kernel()
def wanted(c: int, copies: Ints, parts: Ints) -> bool:
    """Whether anybody still waits for a copy."""
    p = copies[c, OWNER]
    return bool(
        copies[c, MARK] == parts[p, ATTEMPT] and parts[p, FAILED] == 0 and (parts[p, WINNER] < 0 or parts[p, WINNER] == c)
    )


@kernel(error_model="numpy", _nrt=False)
def simulate(
    arrive: Floats,
    tokens: Ints,
    fan_out: int,
    key: int,
    settings: Floats,
    base: Floats,
    tables: Floats,
    copies: Ints,
    times: Floats,
    parts: Ints,
    answered: Floats,
    servers: Ints,
    slots: Ints,
    takes: Ints,
    pace: Floats,
    when: Floats,
    what: Ints,
    line: Floats,
    marks: Ints,
    counts: Floats,
) -> int:
    """Simulate all requests; ``answered`` gets first token and end of every part (-1: never). Returns the copies made."""
    total, size, n, turn, draw, submitted, retried, r = len(arrive), 0, 0, 0, 0, 0, 0, 0
    line_first, line_end = 0, 0  # timeouts to come
    while r < total or size > 0 or line_first < line_end:
        now, event, size, line_first = next_event(arrive, r, when, what, size, line, marks, line_first, line_end)
        if now > settings[UNTIL_NS]:
            break
        # Events of an attempt that has ended meanwhile are known by its number, and have no effect.
        kind, attempt, one = event % KINDS, event // KINDS % MOST_ATTEMPTS, event // (KINDS * MOST_ATTEMPTS)
        first, end, hedge = 0, 0, 0  # parts to submit, and whether as second copies
        wake = -1  # a server that may begin an iteration
        if event < 0:
            first, end = r * fan_out, (r + 1) * fan_out
            r += 1
            submitted += fan_out
        elif kind == AGAIN:
            first, end = one, one + 1
        elif kind == HEDGE:
            if parts[one, ATTEMPT] == attempt and answered[one, 0] < 0 and parts[one, FAILED] == 0:
                first, end, hedge = one, one + 1, 1
        elif kind == TIMEOUT:
            if parts[one, ATTEMPT] == attempt and answered[one, 1] < 0 and parts[one, FAILED] == 0:
                c = parts[one, NEWEST]
                if settings[CANCELS] > 0 and c >= 0:
                    cancel(copies[c, OTHER], copies)
                    cancel(c, copies)
                answered[one, 0], parts[one, WINNER], parts[one, NEWEST] = -1.0, -1, -1
                retried, size = fail(one, now, settings, parts, retried, submitted, when, what, size)
        elif kind == SENT:
            if copies[one, STATE] == SENDING:
                wake = route(int(settings[READERS]), len(servers), SHORTEST, 0.0, 0, -1, servers)
                copies[one, SERVER] = wake
                append(one, wake, copies, servers)
        else:
            wake = one
            size = end_iteration(
                one,
                now,
                settings,
                fan_out,
                tokens,
                copies,
                times,
                parts,
                answered,
                servers,
                slots,
                takes,
                pace,
                when,
                what,
                size,
            )
        # One part after the other, each server woken before the next part is routed: routing sees what is at work now.
        while first < end or wake >= 0:
            if wake < 0:
                p = first
                first += 1
                draw += 4  # every copy and every iteration has four draws of its own, whether they are used or not
                turn += 1
                c = submit(p, now, hedge, turn, chance(key, draw), settings, fan_out, tokens, n, copies, times, parts, servers)
                if c >= 0:
                    n += 1
                    wake = copies[c, SERVER]
                    if hedge == 0:
                        mark = KINDS * (parts[p, ATTEMPT] + MOST_ATTEMPTS * p)
                        if settings[TIMEOUT_NS] > 0:
                            line_end = line_up(line, marks, line_first, line_end, now + settings[TIMEOUT_NS], TIMEOUT + mark)
                        if settings[HEDGE_NS] >= 0:
                            size = push(when, what, size, now + settings[HEDGE_NS], HEDGE + mark)
                elif hedge == 0:
                    counts[TURNED_AWAY] += 1
                    retried, size = fail(p, now, settings, parts, retried, submitted, when, what, size)
            if wake >= 0:
                s = wake
                wake = -1
                if servers[s, AT_WORK] == 0:
                    draw += 4
                    if admit(s, now, settings, fan_out, arrive, tokens, copies, times, parts, servers, slots) > 0:
                        lasts = begin_iteration(s, now, settings, base, tables, key, draw, copies, servers, slots, takes, pace)
                        size = push(when, what, size, now + lasts, ITERATION + KINDS * MOST_ATTEMPTS * s)
                        # Only the part of the iteration inside the window counts.
                        inside = min(now + lasts, settings[TO_NS]) - max(now, settings[FROM_NS])
                        if inside > 0:
                            counts[BUSY] += inside
                            counts[LOADED_NS] += inside * servers[s, LOADED]
                            excess = max(lasts - pace[s, QUIET_NS], 0.0)
                            counts[EXCESS] += excess
                            counts[DELAYED] += excess * (servers[s, LOADED] + servers[s, QUEUED])
    counts[COPIES] = n
    return n
