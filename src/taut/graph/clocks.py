"""Clock offsets and drifts between ranks, from the ends of gates that everybody waits for.

Ranks of one host share a clock: no fitting. Otherwise the end times of full rendezvous coincide up to the offset, but only
where the network treats all members alike: behind a slow link the receivers end late, and aligning them would erase the link
and blame the innocent. What tells them apart: a clock is wrong by the same amount whatever the bytes, from the first step on,
or by an amount that grows evenly with time. So lateness that grows with bytes is believed only as far as the smallest gates
show it, and lateness that begins during the run is a link or a rank: the offset stays 0 and its interval says how far it
could be. Besides, nobody leaves a gate before everybody came: that bounds every clock, whatever the network does, and where
ends scatter more than the bounds are apart their middle is the better estimate. Where no gate holds all ranks, groups that
share a rank are fitted one after another, and then pairs that send each other something: the quickest hop there and the
quickest hop back differ by twice the offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace

from taut.core.array_types import Floats, Indices, Ints, Mask, Numbers, Texts
from taut.core.tables import Table, Verb
from taut.graph.arrays import Clock
from taut.graph.gate_matching import EVERYBODY
from taut.graph.staircase import ENOUGH, RING, closing_staircase

CONSTANT = 0.1
"""An offset may vary by this share of itself over the run; a link's lateness varies more."""
FLOOR_NS = 500_000
"""… or by this much: scheduling noise of an ordinary host."""
SURE = 4.0
"""Standard errors beyond which a change with bytes or time is one."""
WORTH_NS = 50_000
"""Offsets below this are not applied: the residual of the fit is of that size."""
NOTICEABLE_NS = WORTH_NS / 2
"""Changes below this are none, however regular the ends are."""
PRIOR_NS = 1_000_000
"""Half width of the prior: hosts that keep time by NTP agree to a millisecond."""
DRIFT_PPM = 20.0
"""A drift is given only if its standard error is below this."""
MOST_PPM = 200.0
"""No clock runs away faster than this; lateness that does is something else."""
LEAST_GATES, FEW_GATES, BLOCKS = 3, 8, 6
"""Gates without which there is no fit; gates that count as the smallest; blocks of the run whose levels must agree."""


class Fit(Struct, frozen=True):
    """Clocks against one rank's, one entry each: where they are, how fast they run away, and how well that is known."""

    offset: Floats
    slope: Floats
    """ns per ns."""
    drifting: Mask
    """True where the ends lie clearly closer together with the drift than without."""
    steady: Mask
    """False where the lateness began during the run, or is one of bytes: no clock."""
    noise: Floats
    error: Floats
    slope_error: Floats
    low: Floats
    high: Floats
    least: Floats | float = -np.inf
    """No clock is below this, nor above that: nobody leaves a gate before everybody came."""
    most: Floats | float = np.inf

    def chosen(self, other: Fit, mask: Mask) -> Fit:
        """This fit where the mask holds, else the other."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Fit(*(np.where(mask, mine, theirs) for mine, theirs in pairs))

    def apart(self) -> Mask:
        """Offsets that stand out of the scatter of single gates."""
        out: Mask = np.abs(self.offset) > np.maximum(np.maximum(WORTH_NS, self.noise), SURE * self.error)
        return out

    def believed(self) -> Mask:
        """Offsets that stand out so, and were there all the time."""
        return self.steady & self.apart()

    def proven(self) -> Mask:
        """Clocks of which recorded times show that they are off: else somebody left before everybody came."""
        return np.asarray((self.least > 0) | (self.most < 0))

    def placed(self, believed: Mask) -> tuple[Floats, Floats, Floats]:
        """(offsets, and where they may be): around the ends or between the bounds, whichever is narrower.

        Where the offset is not believed it is 0, and may be as far off as ends were apart.
        """
        half = 1.96 * self.error + np.median(self.noise) / 1.4826
        # Bounds that exclude each other say that the network, not the clock, is at work: then ends decide.
        bounded = (self.least <= self.most) & (self.most - self.least < 2 * half)
        with np.errstate(invalid="ignore"):
            offset = np.where(bounded, (self.least + self.most) / 2, self.offset)
        low = np.where(bounded, self.least, self.offset - half)
        high = np.where(bounded, self.most, self.offset + half)
        held = (self.least <= 0) & (self.most >= 0)
        apart = np.minimum(self.low, -half), np.maximum(self.high, half)
        low = np.where(believed, low, np.where(held, np.maximum(apart[0], self.least), apart[0]))
        high = np.where(believed, high, np.where(held, np.minimum(apart[1], self.most), apart[1]))
        return np.where(believed, offset, 0.0), low, high


def fit(ops: Table, gate: Indices, count: int, members: Table, *, drifts: bool = True) -> tuple[Table, int | None]:
    """(one row per rank, residual ns); the residual is None when no gate could be used."""
    ranks, host = members.rank, members.host
    n = len(ranks)
    offset, slope, slope_error, noise = np.zeros((4, n))
    if n < 2 or (host[0] != "" and all(h == host[0] for h in host)):
        return Table(Clock, {"rank": ranks, "offset_ns": np.zeros(n)}), 0
    lo, hi = np.full(n, -PRIOR_NS, dtype=np.float64), np.full(n, PRIOR_NS, dtype=np.float64)
    applied, drifting, drift_known, known = (np.arange(n) == place for place in (-1, -1, 0, 0))
    lo[0] = hi[0] = 0.0
    middle = _middle(ops)
    for at, rows in _legs(ops, gate, count, ranks, known, chain=all(h != "" for h in host)):
        here = int(np.argmax(known[at]))
        fitted = _round_trips if rows.ndim == 3 else _clocks
        base, leg, new = at[here], fitted(ops, rows, here, middle, drifts), ~known[at]
        apart = np.array([h == "" or h != host[base] for h in host[at]])
        believed = leg.believed() & apart
        to, (ahead, low, high) = at[new], leg.placed(believed)
        offset[to], lo[to], hi[to] = offset[base] + ahead[new], lo[base] + low[new], hi[base] + high[new]
        slope[to], slope_error[to] = slope[base] + leg.slope[new], np.hypot(slope_error[base], leg.slope_error[new])
        applied[to], drifting[to] = (applied[base] | believed)[new], (drifting[base] | (believed & leg.drifting))[new]
        drift_known[to], noise[to], known[to] = drift_known[base] & (leg.steady & apart)[new], leg.noise[new], True
        for other, like in _same_clock(host, known):
            for column in (offset, lo, hi, slope, slope_error, applied, drifting, drift_known, noise, known):
                column[other] = column[like]
    if not known[1:].any():
        return Table(Clock, {"rank": ranks, "lo_ns": lo, "hi_ns": hi}), None
    drift_known &= (slope_error < DRIFT_PPM * 1e-6) & (np.arange(n) > 0)
    columns = {
        "rank": ranks,
        "offset_ns": np.rint(offset),
        "lo_ns": np.rint(lo),
        "hi_ns": np.rint(hi),
        "applied": applied.astype(np.int8) + drifting,
        "drift_ppm": np.where(drift_known | drifting, 1e6 * slope, np.nan),
    }
    return Table(Clock, columns), int(np.median(noise[known]) / 1.4826)


def _same_clock(host: Texts, known: Mask) -> Iterator[tuple[int, int]]:
    """Ranks not yet known whose host is: (rank, a known rank of its host), as indices."""
    of_host = {host[i]: i for i in np.flatnonzero(known)[::-1].tolist() if host[i] != ""}
    for rank in np.flatnonzero(~known).tolist():
        if host[rank] in of_host:
            yield rank, of_host[host[rank]]


def aligned(ops: Table, clock: Table) -> tuple[Ints, Ints]:
    """Starts and ends on the first rank's clock."""
    if not clock.applied.any():
        return ops.start_ns, ops.end_ns
    at = np.searchsorted(clock.rank, ops.rank)
    shift = clock.offset_ns[at]
    if not (clock.applied > 1).any():
        return ops.start_ns - shift, ops.end_ns - shift
    rate, middle = np.where(clock.applied > 1, 1e-6 * clock.drift_ppm, 0.0)[at], _middle(ops)

    def shifted(time: Ints) -> Ints:
        return time - shift - np.rint(rate * (time - middle)).astype(np.int64)

    return shifted(ops.start_ns), shifted(ops.end_ns)


def _middle(ops: Table) -> int:
    """The middle of the run: where the offset is given, if it drifts."""
    return (int(ops.start_ns.min()) + int(ops.end_ns.max())) // 2


def _legs(ops: Table, gate: Indices, count: int, ranks: Indices, known: Mask, chain: bool) -> Iterator[tuple[Ints, Ints]]:
    """(ranks as indices, rows of ops as gates × ranks): all ranks if they meet, then groups that reach ranks not yet known.

    A chain of groups is followed only where the hosts are known to be several.
    """
    full = np.flatnonzero(np.isin(ops.verb, EVERYBODY) & (gate >= 0))
    full = full[np.lexsort((ops.rank[full], gate[full]))] if chain else full
    size = np.bincount(gate[full], minlength=count + 1)[gate[full]]
    world = full[size == len(ranks)]
    if len(world) >= LEAST_GATES * len(ranks):
        yield np.arange(len(ranks)), world[np.lexsort((ops.rank[world], gate[world]))].reshape(-1, len(ranks))
    legs = []
    for group in np.unique(ops.group[full]) if chain and not known.all() else ():
        mine = ops.group[full] == group
        at = np.unique(np.searchsorted(ranks, ops.rank[full[mine]]))
        rows = full[mine & (size == len(at))]
        if len(rows) >= LEAST_GATES * len(at):
            legs.append((at, rows.reshape(-1, len(at))))
    legs.sort(key=lambda leg: (-len(leg[0]), -len(leg[1])))
    legs += _hops(ops, gate, count, ranks) if chain and not known.all() else []
    while True:
        leg = next((leg for leg in legs if known[leg[0]].any() and not known[leg[0]].all()), None)
        if leg is None:
            return
        yield leg


def _hops(ops: Table, gate: Indices, count: int, ranks: Indices) -> list[tuple[Ints, Ints]]:
    """(two ranks as indices, rows of ops as steps × direction × (send, receive)): the quickest hop of every step each way."""
    send, receive = np.full((2, count), -1, dtype=np.int64)
    for slot, verb in ((send, Verb.SEND), (receive, Verb.RECV)):
        rows = np.flatnonzero((gate >= 0) & (ops.verb == verb))
        slot[gate[rows]] = rows
    both = (send >= 0) & (receive >= 0)
    send, receive = send[both], receive[both]
    took, step = ops.end_ns[receive] - ops.start_ns[send], ops.step[send]
    order = np.lexsort((took, step, ops.rank[receive], ops.rank[send]))
    key = np.stack([ops.rank[send], ops.rank[receive], step], axis=1)[order]
    first = np.concatenate([[True], (np.diff(key, axis=0) != 0).any(axis=1)]) if len(key) else np.zeros(0, dtype=bool)
    quickest = {tuple(k): (send[i], receive[i]) for k, i in zip(key[first].tolist(), order[first].tolist(), strict=True)}
    legs: dict[tuple[int, int], list[tuple[tuple[int, int], tuple[int, int]]]] = {}
    for (a, b, s), there in quickest.items():
        back = quickest.get((b, a, s))
        if a < b and back is not None:
            legs.setdefault((a, b), []).append((there, back))
    found = ((np.searchsorted(ranks, pair), np.array(rows)) for pair, rows in legs.items() if len(rows) >= LEAST_GATES)
    return sorted(found, key=lambda leg: -len(leg[1]))


def _round_trips(ops: Table, rows: Ints, base: int, middle: int, drifts: bool) -> Fit:
    """Clock of one of two ranks against the other's: half the difference between the ways there and back."""
    took = ops.end_ns[rows[:, :, 1]] - ops.start_ns[rows[:, :, 0]]
    half = (took[:, 0] - took[:, 1]) / 2 * (1 if base == 0 else -1)
    late = np.zeros((len(rows), 2))
    late[:, 1 - base] = half
    found = _level(late, (ops.end_ns[rows[:, 0, 1]] - middle).astype(np.float64), drifts)
    # The two ways need not take equally long: by as much as the quicker hops took, at most.
    unequal = np.where(np.arange(2) == base, 0.0, float(np.median(took.sum(axis=1))) / 4)
    return replace(found, error=np.hypot(found.error, unequal / SURE))


def _clocks(ops: Table, rows: Ints, base: int, middle: int, drifts: bool) -> Fit:
    """Clocks of a group against one of its members, from its gates.

    Behind a slow link members end one after the other, up to the whole transfer apart: what that can explain must be constant,
    of all members of a small ring, and must not be the staircase of a ring.
    """
    rows = rows[np.lexsort((ops.end_ns[rows[:, base]], ops.step[rows[:, base]]))]
    end = ops.end_ns[rows]
    late, time = end - end[:, [base]], (end[:, base] - middle).astype(np.float64)
    transfer, size = (end - ops.start_ns[rows]).min(axis=1), ops.size[rows].max(axis=1)
    if (size < 0).any():
        fast = transfer <= np.median(transfer)
        found = _level(late[fast], time[fast], drifts)
    else:
        found = _beyond_bytes(late, time, size, drifts)
    ring = _is_staircase(ops.verb[rows[:, 0]], late, transfer)
    strict = found.high - found.low <= np.maximum(FLOOR_NS, CONSTANT * np.abs(found.offset))
    away = np.where(found.drifting, found.slope, 0.0) * time[:, None]
    least = (ops.start_ns[rows] - end[:, [base]] - away).max(axis=0)
    most = (end - ops.start_ns[rows[:, [base]]] - away).min(axis=0)
    steady = found.steady & ~ring & (strict | (np.abs(found.offset) > np.median(transfer)))
    found = replace(found, steady=steady, least=least, most=most)
    if late.shape[1] < ENOUGH and np.isin(ops.verb[rows[:, 0]], RING).any() and (found.apart() & ~found.steady).any():
        # Who ends apart, but not by the same in all gates, speaks of a link: then the others may be as far apart by it.
        return replace(found, steady=found.steady & (found.proven() | ~found.apart()))
    return found


def _is_staircase(verb: Indices, late: Numbers, transfer: Ints) -> bool:
    """Whether members of a ring end like behind a slow link: enough of them that no set of clocks would happen to."""
    rings = np.isin(verb, RING)
    if late.shape[1] < ENOUGH or not rings.any():
        return False
    rounds = (late.shape[1] - 1) * np.where(verb[rings] == Verb.ALL_REDUCE, 2, 1)
    ends = np.median(late[rings] * (rounds / np.maximum(transfer[rings], 1))[:, None], axis=0)
    return any(closing_staircase(way) is not None for way in (ends, ends[::-1]))


def _beyond_bytes(late: Numbers, time: Floats, size: Ints, drifts: bool) -> Fit:
    """Levels from all gates or, where bytes matter, from the smallest, as far as bytes do not explain those too."""
    whole = _level(late, time, drifts)
    few = min(max(FEW_GATES, len(size) // 8), len(size))
    small, large = size <= np.sort(size)[few - 1], size >= np.sort(size)[-few]
    if (small & large).any():
        return whole
    (at_small, error_small), (at_large, error_large) = _median(late[small]), _median(late[large])
    growth = np.abs(at_large - at_small)  # a clock is off by the same amount whatever the bytes
    smallest = _level(late[small], time[small], drifts)
    # Bytes that explain the growth from small to large gates also explain some of the small ones' lateness.
    carried = growth * float(size[small].mean() / (size[large].mean() - size[small].mean()))
    flat = carried <= np.maximum(CONSTANT * np.abs(smallest.offset), NOTICEABLE_NS)
    smallest = replace(smallest, steady=smallest.steady & flat)
    return smallest.chosen(whole, growth > np.maximum(SURE * np.hypot(error_small, error_large), NOTICEABLE_NS))


def _median(values: Numbers) -> tuple[Floats, Floats]:
    """(median, standard error) of every column, from the values around it: ends of several modes have an uncertain one."""
    ordered, n = np.sort(values, axis=0), len(values)
    # The number of values below the true median is binomial with spread √n/2: so far around the middle lies the interval.
    reach = SURE * np.sqrt(n) / 2
    low, high = ordered[max(int((n - 1) / 2 - reach), 0)], ordered[min(int(np.ceil((n - 1) / 2 + reach)), n - 1)]
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2, (high - low) / (2 * SURE)


def _level(late: Numbers, time: Floats, drifts: bool) -> Fit:
    """The level of every column, its slope in time, and whether it was there all the time."""
    # The slope between the medians of the first and the last third is robust against single late gates.
    third = max(len(late) // 3, 1)
    slope, slope_error = np.zeros(late.shape[1]), np.full(late.shape[1], np.inf)
    run = float(time[-third:].mean() - time[:third].mean())
    if drifts and run > 0:
        (first, first_error), (last, last_error) = _median(late[:third]), _median(late[-third:])
        slope, slope_error = (last - first) / run, np.hypot(first_error, last_error) / run
    drifting = (np.abs(slope) > SURE * slope_error) & (np.abs(slope) * float(time[-1] - time[0]) > WORTH_NS)
    drifting &= np.abs(slope) < MOST_PPM * 1e-6
    flat = late - np.where(drifting, slope, 0.0) * time[:, None]
    offset, error = _median(flat)
    noise = 1.4826 * np.median(np.abs(flat - offset), axis=0)
    # Scatter from one gate to the next, so that a level that jumps is not counted as such.
    scatter = 1.4826 * np.median(np.abs(np.diff(flat, axis=0)), axis=0) / np.sqrt(2)
    allowed = np.maximum(np.maximum(CONSTANT * np.abs(offset), scatter), NOTICEABLE_NS)
    steady = np.ones(len(offset), dtype=bool)
    for block in np.array_split(flat, min(BLOCKS, max(len(late) // 3, 1))):
        level, unsure = _median(block)
        steady &= np.abs(level - offset) <= np.maximum(allowed, SURE * unsure)
    low, high = np.quantile(late, (0.05, 0.95), axis=0)
    return Fit(offset, slope, drifting, steady, noise, error, slope_error, low, high)
