"""Money as whole units: columns of a bill, their sums, and amounts as text."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taut.core.array_types import Ints
from taut.core.errors import InputRefused
from taut.ledger.bill.rows import UNIT

# Sums of money stay below this, so that no sum of parts leaves 64 bits.
MOST = 1 << 62
UNITS = (UNIT, 1_000_000, 1_000, 1)


def unit_for(costs: list[pa.ChunkedArray]) -> int:
    """Units of money in one of the currency: billionths, or fewer where the sum of so large a bill would not fit 64 bits."""
    largest = max((pc.sum(pc.abs(cost)).as_py() or Decimal(0) for cost in costs), default=Decimal(0))
    found = next((unit for unit in UNITS if largest * unit < MOST), None)
    if found is None:
        raise InputRefused("the bill", f"costs add up to {largest:.3E}, more than can be kept exactly", "give fewer periods")
    return found


def units(cost: pa.ChunkedArray, unit: int) -> Ints:
    """A column of money in whole units, rounded to even; null is 0."""
    places = len(str(unit)) - 1
    filled = pc.fill_null(cost, pa.scalar(Decimal(0), cost.type))
    kept = pc.round(filled, places, round_mode="half_to_even").cast(pa.decimal128(38, places))
    if not len(kept):
        return np.zeros(0, dtype=np.int64)
    whole = kept.combine_chunks() if isinstance(kept, pa.ChunkedArray) else kept
    words = np.frombuffer(whole.buffers()[1], dtype=np.int64).reshape(-1, 2)
    return words[whole.offset : whole.offset + len(whole), 0].copy()


def money_sums(cost: pa.ChunkedArray, group: Ints, count: int, unit: int) -> Ints:
    """Exact sums of a column of money over groups of rows, each rounded to whole units; null counts as nothing."""
    found = pa.table({"group": group, "cost": cost}).group_by("group").aggregate([("cost", "sum")])
    out = np.zeros(count, dtype=np.int64)
    for one, amount in zip(found["group"].to_pylist(), found["cost_sum"].to_pylist(), strict=True):
        out[one] = round((amount or Decimal(0)) * unit)
    return out


def amount(money: int, unit: int) -> str:
    """Whole units as a decimal text with at least cents."""
    text = f"{abs(money) // unit}.{abs(money) % unit:0{len(str(unit)) - 1}d}" if unit > 1 else f"{abs(money)}.00"
    kept = text.rstrip("0")
    whole, _, rest = kept.partition(".")
    return ("-" if money < 0 else "") + f"{whole}.{rest:0<2}"
