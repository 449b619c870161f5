"""What a bill had cost by when: money of booked rows, spread evenly over their time, by what it was spent on.

A charge for a host costs the same in every moment: what is idle of it accumulates while nobody holds its accelerators.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.tables import Table
from taut.ledger.bill.rows import UNIT
from taut.result.types import CostOverTime

KINDS: dict[str, tuple[str, ...]] = {
    "compute": ("productive", "kept", "recompute", "slow compute"),
    "communication": ("exposed transfer", "communication undivided", "exposed copy"),
    "waiting": ("fault wait", "jitter wait", "structural wait", "gap", "control overhead"),
    "restarts": (
        "discarded", "discarded at most", "unfinished", "restore", "detect+recover", "down", "hold/init", "checkpoint save",
    ),
    "idle": ("idle", "spare"),
}  # fmt: skip
"""What people ask about, and the fates that it holds."""
IDLE = "idle accelerators"
IDLE_ITEMS = (IDLE, "unused commitment")
SLACK = 1 + 1e-6
"""What parts that were held may cost more than their charge in a moment, by rounding."""
OTHER = "everything else"
POINTS = 121


def cost_over_time(held: Table, booked: Table, points: int = POINTS, unit: int = UNIT) -> CostOverTime | None:
    """Cost so far at some moments, by kind; None where no booked row has a time."""
    timed = booked.take((booked.start_ns >= 0) & (booked.end_ns >= booked.start_ns))
    undated = int(booked.effective.sum() - timed.effective.sum()) / unit
    if not len(timed):
        return None
    first, last = int(timed.start_ns.min()), int((np.maximum(timed.end_ns, timed.start_ns + 1)).max())
    moments = np.linspace(0.0, float(last - first), points)
    names, kind = (*KINDS, OTHER), _kinds(held.fate, timed)
    cost = _so_far(_when_idle(timed, kind), len(names), first, moments) / unit
    return CostOverTime(
        time_ns=[first + int(moment) for moment in moments],
        undated=undated,
        money={name: cost[:, code].tolist() for code, name in enumerate(names) if (kind == code).any()},
    )


def idle_between(booked: Table, start_ns: int, end_ns: int) -> int:
    """What idle accelerators cost from one moment to another, in units of money."""
    timed = booked.take((booked.start_ns >= 0) & (booked.end_ns >= booked.start_ns))
    if not len(timed):
        return 0
    idle = list(KINDS).index("idle")
    rows = _when_idle(timed, np.where(timed.item == IDLE, idle, len(KINDS)))
    first = int(timed.start_ns.min())
    cost = _so_far(rows, len(KINDS) + 1, first, np.array([start_ns - first, end_ns - first], dtype=np.float64))
    return max(round(float(cost[1, idle] - cost[0, idle])), 0)


def _kinds(fates: Texts, booked: Table) -> Ints:
    """The kind of every booked row, as its place in ``KINDS``: by its fate, else by its item."""
    of_fate = {fate: code for code, some in enumerate(KINDS.values()) for fate in some}
    codes = np.array([*(of_fate.get(str(fate), len(KINDS)) for fate in fates), len(KINDS)], dtype=np.int64)
    kinds: Ints = codes[booked.held]
    kinds[np.isin(booked.item.astype(str), IDLE_ITEMS)] = list(KINDS).index("idle")
    return kinds


class _Spread(Struct, frozen=True):
    """Money that accumulates evenly over some time."""

    kind: Ints
    start_ns: Ints
    end_ns: Ints
    money: Floats


def _when_idle(booked: Table, kind: Ints) -> _Spread:
    """Booked rows; idle parts of charges as the whole charge less the parts that were held, where these are no more than it
    at any time. Else the host was on for a part of the time only, and when is not known: evenly.
    """
    money = booked.effective.astype(np.float64)
    usual = _Spread(kind, booked.start_ns, booked.end_ns, money)
    place = np.full(int(booked.charge.max(initial=-1)) + 2, -1, dtype=np.int64)  # the last is that of no charge
    idle = np.flatnonzero((booked.item == IDLE) & (booked.charge >= 0) & (money > 0) & (booked.end_ns > booked.start_ns))
    place[booked.charge[idle]] = idle
    of = place[booked.charge]
    used = np.flatnonzero((booked.held >= 0) & (of >= 0) & (booked.end_ns > booked.start_ns))
    whole = money + np.bincount(of[used], money[used], minlength=len(money))
    used = used[_fits(usual, used, of[used], whole)[of[used]]]
    money = money.copy()
    money[of[used]] = whole[of[used]]
    return _Spread(
        np.concatenate([kind, kind[of[used]]]),
        np.concatenate([booked.start_ns, booked.start_ns[used]]),
        np.concatenate([booked.end_ns, booked.end_ns[used]]),
        np.concatenate([money, -booked.effective[used]]),
    )


def _fits(rows: _Spread, used: Ints, of: Ints, whole: Floats) -> Mask:
    """Idle rows whose charge costs at least as much in every moment as the parts of it that were held then."""
    length = np.maximum(rows.end_ns - rows.start_ns, 1)
    # Parts are rounded to whole units: of a short one that is much.
    rate = np.maximum(rows.money[used] - 1, 0) / length[used]
    time, change = np.concatenate([rows.start_ns[used], rows.end_ns[used]]), np.concatenate([rate, -rate])
    charge = np.concatenate([of, of])
    order = np.lexsort((change, time, charge))
    most = np.zeros(len(whole))
    np.maximum.at(most, charge[order], np.cumsum(change[order]))
    # Nobody costs less than nothing, and what begins before its charge does is none of it.
    inside = np.ones(len(whole), dtype=np.bool_)
    inside[of[(rows.start_ns[used] < rows.start_ns[of]) | (rows.end_ns[used] > rows.end_ns[of]) | (rows.money[used] < 0)]] = (
        False
    )
    found: Mask = inside & (most <= whole / length * SLACK)
    return found


def _so_far(rows: _Spread, kinds: int, first: int, moments: Floats) -> Floats:
    """Of every moment and kind the cost so far, in units of money."""
    start = (rows.start_ns - first).astype(np.float64)
    length = np.maximum(rows.end_ns - rows.start_ns, 1)
    done = (np.clip((moment - start) / length, 0, 1) for moment in moments)
    return np.array([np.bincount(rows.kind, weights=rows.money * share, minlength=kinds) for share in done])
