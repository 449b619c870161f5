"""What a relation between controllers costs: money and energy of the rank time that the logs give it."""

from __future__ import annotations

from decimal import Decimal

from msgspec.structs import replace

from taut.core.prices import Prices, amount
from taut.result.types import RelationCost, RelationResult

HOUR_NS = 3_600_000_000_000
COMPUTES = ("amplification", "metastability", "redundant work")
"""Relations whose ranks compute what is thrown away; in the others they are held and wait for a controller."""


def joules(kind: str, rank_ns: int | None, prices: Prices) -> float | None:
    """Energy of the rank time of a relation; None where time or power is not known."""
    found = prices.watts
    if rank_ns is None or found is None:
        return None
    return rank_ns * 1e-9 * found["load" if kind in COMPUTES else "idle"]


def priced(one: RelationResult, prices: Prices) -> RelationResult:
    """A relation with the money and the joules of what it cost; unchanged where nothing is given to price it with."""
    if prices.gpu_hour is None and prices.watts is None:
        return one
    cost: RelationCost = one.cost
    money = None
    if cost.rank_ns is not None and prices.gpu_hour is not None:
        money = amount(Decimal(cost.rank_ns) * prices.gpu_hour / HOUR_NS)
    currency = None if money is None else prices.currency
    return replace(one, cost=replace(cost, money=money, currency=currency, joules=joules(one.kind, cost.rank_ns, prices)))
