"""What a bill had cost by when: money of booked rows, spread evenly over their time, by what it was spent on."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Texts
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
IDLE_ITEMS = ("idle accelerators", "unused commitment")
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
    cost = _so_far(timed, kind, len(names), first, moments) / unit
    return CostOverTime(
        time_ns=[first + int(moment) for moment in moments], undated=undated,
        money={name: cost[:, code].tolist() for code, name in enumerate(names) if (kind == code).any()},
    )  # fmt: skip


def _kinds(fates: Texts, booked: Table) -> Ints:
    """The kind of every booked row, as its place in ``KINDS``: by its fate, else by its item."""
    of_fate = {fate: code for code, some in enumerate(KINDS.values()) for fate in some}
    codes = np.array([*(of_fate.get(str(fate), len(KINDS)) for fate in fates), len(KINDS)], dtype=np.int64)
    kinds: Ints = codes[booked.held]
    kinds[np.isin(booked.item.astype(str), IDLE_ITEMS)] = list(KINDS).index("idle")
    return kinds


def _so_far(booked: Table, kind: Ints, kinds: int, first: int, moments: Floats) -> Floats:
    """Of every moment and kind the cost so far, in units of money."""
    start, money = (booked.start_ns - first).astype(np.float64), booked.effective.astype(np.float64)
    length = np.maximum(booked.end_ns - booked.start_ns, 1)
    done = (np.clip((moment - start) / length, 0, 1) for moment in moments)
    return np.array([np.bincount(kind, weights=money * share, minlength=kinds) for share in done])
