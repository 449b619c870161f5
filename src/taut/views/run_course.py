"""A run as it went: what the rank time of each step went to, and what it had cost by then."""

from __future__ import annotations

from decimal import Decimal

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.ids import distinct, numbered, weighed
from taut.core.tables import Table
from taut.ledger.charge import FATES
from taut.result.brief_types import Course
from taut.result.types import AnalysisResult
from taut.stored import Run

BUCKETS = 200
"""Rows at most: of more steps, neighbours are together."""
OTHER = "other"
KINDS: dict[str, tuple[str, ...]] = {
    "compute": ("productive",),
    "slow compute": ("slow compute",),
    "communication": ("exposed transfer", "communication undivided", "exposed copy"),
    "waiting": ("fault wait", "jitter wait", "structural wait"),
    "gaps": ("gap",),
}
"""What people ask about, and the fates that it holds; all others are ``other``."""
HOUR_NS = 3_600_000_000_000


def course_of(run: Run, cells: Table, rate: tuple[Decimal | float, str] | None = None) -> Course | None:
    """The course of a run with these cells; ``rate`` is money for an hour of one rank and its currency, else as analysed."""
    return by_steps(cells, len(run.graph.ranks), rate or ledger_rate(run.result))


def by_steps(cells: Table, ranks: int, rate: tuple[Decimal | float, str] | None = None) -> Course | None:
    """The course by the ledger; ``rate`` is money for an hour of one rank, and its currency. None without cells."""
    if not len(cells) or not ranks:
        return None
    steps, at = distinct(cells.step), numbered(cells.step)[0]
    bucket = np.arange(len(steps)) // -(-len(steps) // BUCKETS)
    held = _held(cells, bucket[at], int(bucket[-1]) + 1)
    used = [*KINDS, OTHER]
    whole = np.maximum(held.sum(axis=1), 1)
    return Course(
        step=[int(one) for one in steps[np.searchsorted(bucket, np.arange(len(held)))]],
        end_s=[float(one) for one in np.cumsum(held.sum(axis=1)) / ranks / 1e9],
        shares={kind: [float(one) for one in held[:, k] / whole] for k, kind in enumerate(used) if held[:, k].any()},
        money=None if rate is None else _money(held, used, rate[0]),
        currency=None if rate is None else rate[1],
    )


def _held(cells: Table, bucket: Ints, buckets: int) -> Floats:
    """Rank-ns by bucket and kind."""
    of_fate = {fate: k for k, some in enumerate(KINDS.values()) for fate in some}
    kind = np.array([of_fate.get(fate, len(KINDS)) for fate in FATES], dtype=np.int64)[cells.fate]
    width = len(KINDS) + 1
    return weighed(bucket * width + kind, cells.rank_ns.astype(np.float64), buckets * width).reshape(buckets, width)


def _money(held: Floats, kinds: list[str], per_hour: Decimal | float) -> dict[str, list[float]]:
    """Cost so far of every kind."""
    so_far = np.cumsum(held, axis=0) * (float(per_hour) / HOUR_NS)
    return {kind: [float(one) for one in so_far[:, k]] for k, kind in enumerate(kinds) if held[:, k].any()}


def ledger_rate(result: AnalysisResult) -> tuple[Decimal, str] | None:
    """Money for an hour of one rank, and its currency, as a run was priced; None where it was not."""
    ledger = result.ledger
    if ledger is None or ledger.currency is None or not ledger.total_rank_ns:
        return None
    amounts = [Decimal(entry.money) for entry in ledger.entries if entry.money is not None]
    return (sum(amounts, Decimal(0)) * HOUR_NS / ledger.total_rank_ns, ledger.currency) if amounts else None
