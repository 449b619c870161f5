"""A job's history: it works, saves, fails, waits for nodes, restarts, until its work is done. Kernels over integers of µs.

Only nodes at work (or restoring) fail. The last save that was written in whole is what a restart begins with; work done
since is discarded. Every node-µs of the job's nodes and its spares is booked under one fate, so that they sum to nodes ×
wall. Draws are hashes of seed, history and number, as in ``grid.py``. One job over days: there is no queue in it, and
nobody to wait for, so that it shares no sweep with the others.
"""

from __future__ import annotations

from math import expm1, inf, log

from taut.core.array_types import Floats, Ints
from taut.core.jit import kernel
from taut.project.noise import at_log_odds
from taut.project.training.grid import mix

FATES = (
    "down", "spare", "hold/init", "checkpoint save", "restore", "detect+recover", "discarded", "productive", "slow compute",
)  # fmt: skip
DOWN, SPARE, HOLD, SAVE, RESTORE, RECOVER, DISCARDED, PRODUCTIVE, SLOW = range(len(FATES))
COUNTS = ("wall_us", "failures", "taken", "waited", "broken", "finished")
WALL, FAILURES, TAKEN, WAITED, BROKEN, FINISHED = range(len(COUNTS))
NEVER = 1 << 60
# Failures after which a history is given up.
MOST_FAILURES = 100_000


@kernel()
def chance(key: int, number: int) -> float:
    """A draw between 0 and 1, never either."""
    return float(mix(key ^ ((number * 0xC2B2AE35) & 0xFFFFFFFF)) + 0.5) / 4294967296.0


@kernel()
def took(work: int, slow: float, bend: Floats) -> int:
    """Time of so much work from a restart on: warm-up comes on top and fades, heat comes by and by, the slowest node stays.

    ``bend`` is how much slower a cold start is, the work it fades over, how much slower a hot machine is, the work it gets
    hot over.
    """
    # Integral of 1 + slow + warm-up·exp(-x/W) + heat·(1 - exp(-x/H)) over the work x.
    t = work * (1.0 + slow + bend[2])
    if bend[1] > 0:
        t += bend[0] * bend[1] * -expm1(-work / bend[1])
    if bend[3] > 0:
        t -= bend[2] * bend[3] * -expm1(-work / bend[3])
    return int(t + 0.5)


@kernel()
def reached(until: int, part: int, block: int, late: int, most: int, slow: float, bend: Floats) -> int:
    """How many saves had begun ``late`` or longer before a time; a part of work lies before each."""
    # Bisection: the time until a save grows with its number.
    low, high = 0, min(most, (until + block) // (part + block))
    while low < high:
        middle = (low + high + 1) // 2
        if took(middle * part, slow, bend) + (middle - 1) * block + late <= until:
            low = middle
        else:
            high = middle - 1
    return low


@kernel()
def slowness(worst: float, table: Floats) -> float:
    """How much slower than the mean a node is whose log chance is given."""
    # Log odds of the chance exp(worst): log p - log(1 - p).
    return max(at_log_odds(table, worst - log(-expm1(worst))) - 1.0, 0.0)


@kernel()
def redrawn(worst: float, share: float, nodes: int, a: float, b: float, c: float) -> float:
    """Log chance of the slowest node after a share of them was drawn anew, from three draws.

    The slowest is among them or not; if it is, the others that stayed were all quicker than it.
    """
    if share <= 0:
        return worst
    # The slowest was redrawn: of the others that stayed, all were faster than it, which lowers their log chance.
    if b < share:
        others = (1 - share) * (nodes - 1)
        worst = worst + log(c) / others if others > 0 else -inf
    return max(worst, log(a) / (share * nodes))


@kernel()
def earliest(when: Ints, entries: int) -> int:
    """The entry that comes back first."""
    first = 0
    for i in range(1, entries):
        if when[i] < when[first]:
            first = i
    return first


@kernel()
def let_pass(now: int, until: int, pool: Ints, when: Ints, many: Ints, book: Ints) -> int:
    """Book spares and broken nodes until a time; nodes repaired in it become spares. ``pool``: free, broken, entries."""
    # Repairs in order of time; each ends a stretch in which spares and broken nodes are constant.
    while pool[2] > 0:
        i = earliest(when, pool[2])
        if when[i] > until:
            break
        book[SPARE] += pool[0] * (when[i] - now)
        book[DOWN] += pool[1] * (when[i] - now)
        now = when[i]
        pool[0] += many[i]
        pool[1] -= many[i]
        pool[2] -= 1
        when[i], many[i] = when[pool[2]], many[pool[2]]
    book[SPARE] += pool[0] * (until - now)
    book[DOWN] += pool[1] * (until - now)
    return until


@kernel()
def attempt(run: int, rest: int, part: int, block: int, save: int, slow: float, bend: Floats, nodes: int, book: Ints) -> int:
    """Book the work of one attempt that may run so long; returns the work that is kept, all of ``rest`` where it was done.

    A save blocks for ``block`` and is written ``save`` after it began; with nothing left to hide under, the last one blocks
    in whole.
    """
    # A save follows every part but the last, which waits for its save in whole.
    saves = (rest + part - 1) // part
    last = took(rest, slow, bend) + (saves - 1) * block
    if run >= last + save:
        book[PRODUCTIVE] += nodes * rest
        book[SLOW] += nodes * (last - (saves - 1) * block - rest)
        book[SAVE] += nodes * ((saves - 1) * block + save)
        return rest
    kept = int(reached(run, part, block, save, saves - 1, slow, bend)) * part
    begun = reached(run, part, block, 0, saves - 1, slow, bend)
    blocked = 0
    if run > last:
        blocked = (saves - 1) * block + run - last
    elif begun > 0:
        blocked = (begun - 1) * block + min(block, run - took(begun * part, slow, bend) - (begun - 1) * block)
    spent = took(kept, slow, bend)
    book[PRODUCTIVE] += nodes * kept
    book[SLOW] += nodes * (spent - kept)
    book[SAVE] += nodes * blocked
    book[DISCARDED] += nodes * (run - spent - blocked)
    return kept


@kernel()
def job_histories(
    first: int,
    last: int,
    seed: int,
    nodes: int,
    spares: int,
    work: int,
    part: int,
    block: int,
    save: int,
    detect: int,
    reschedule: int,
    restore: int,
    limit: int,
    rate: float,
    upto: Floats,
    units: Ints,
    size: Ints,
    repair: Floats,
    bend: Floats,
    share: float,
    table: Floats,
    pool: Ints,
    when: Ints,
    many: Ints,
    book: Ints,
    count: Ints,
) -> int:
    """Histories first … last; a row of ``book`` (node-µs by fate) and of ``count`` for each. Returns the failures of all.

    Failures come at ``rate`` per µs; ``upto`` are the cumulative chances of their domains, each with its units, nodes in a
    unit and mean time of repair.
    """
    total = 0
    for one in range(first, last):
        key = mix(mix(seed & 0xFFFFFFFF) ^ ((one * 0x9E3779B9 + 0x7F4A7C15) & 0xFFFFFFFF))
        mine, n, now, done, reads, failures = book[one], 0, 0, 0, 0, 0
        pool[0], pool[1], pool[2] = spares, 0, 0
        # The slowest of n independent nodes has the log chance log(u) / n.
        worst = log(chance(key, 0)) / nodes
        while True:
            # Eight numbers of the stream for each attempt, used or not: attempts stay independent.
            n += 8
            left = NEVER
            if rate > 0:
                # Failures without memory: exponential time to the next.
                left = int(-log(chance(key, n)) / rate)
            begun = now
            if left >= reads:
                slow = slowness(worst, table)
                kept = attempt(left - reads, work - done, part, block, save, slow, bend, nodes, mine)
                done += kept
                if done == work:
                    saves = (kept + part - 1) // part
                    left = reads + took(kept, slow, bend) + (saves - 1) * block + save
            mine[RESTORE] += nodes * min(left, reads)
            now = let_pass(begun, begun + left, pool, when, many, mine)
            if done == work or now >= limit or failures >= MOST_FAILURES:
                break
            failures += 1
            domain, pick = 0, chance(key, n + 1)
            while domain < len(upto) - 1 and pick >= upto[domain]:
                domain += 1
            lost = 0
            if size[domain] > 0:
                unit = min(int(chance(key, n + 2) * units[domain]), units[domain] - 1)
                lost = min(size[domain], nodes - unit * size[domain])
                when[pool[2]] = now + int(-log(chance(key, n + 3)) * repair[domain])
                many[pool[2]] = lost
                pool[1] += lost
                pool[2] += 1
                count[one, BROKEN] = max(count[one, BROKEN], pool[1])
            mine[RECOVER] += (nodes - lost) * detect
            now = let_pass(now, now + detect, pool, when, many, mine)
            missing = lost - min(lost, pool[0])
            pool[0] -= lost - missing
            if missing > 0:
                count[one, WAITED] += 1
            while missing > 0:
                back = max(now, when[earliest(when, pool[2])])
                mine[HOLD] += (nodes - missing) * (back - now)
                now = let_pass(now, back, pool, when, many, mine)
                found = min(missing, pool[0])
                pool[0] -= found
                missing -= found
            count[one, TAKEN] += lost
            mine[RECOVER] += nodes * reschedule
            now = let_pass(now, now + reschedule, pool, when, many, mine)
            reads = restore
            # A restart redraws at least the nodes that broke.
            renewed = max(share, lost / nodes)
            worst = redrawn(worst, renewed, nodes, chance(key, n + 4), chance(key, n + 5), chance(key, n + 6))
        count[one, WALL], count[one, FAILURES] = now, failures
        if done == work:
            count[one, FINISHED] = 1
        total += failures
    return total
