"""Money and energy of what a relation cost."""

from __future__ import annotations

from decimal import Decimal

import pytest

from taut.control.relation import Relation
from taut.control.relation_price import priced
from taut.core.prices import Prices

HOUR = 3_600_000_000_000


def relation(kind: str, rank_ns: int | None) -> Relation:
    return Relation(kind, ("a", "b"), "pool", "replicas", 3, None, None, "because", rank_ns=rank_ns)


@pytest.mark.parametrize(("kind", "watts"), [("redundant work", 500.0), ("amplification", 500.0), ("conflict", 100.0)])
def test_rank_time_has_a_price_and_an_energy(kind: str, watts: float) -> None:
    cost = priced(relation(kind, 2 * HOUR).entry(), Prices(Decimal("2.50"), "EUR", load_w=500.0, idle_w=100.0)).cost
    assert (cost.money, cost.currency) == ("5.000000", "EUR")
    assert cost.joules == pytest.approx(2 * 3600 * watts), "work that is thrown away is computed, the rest is waited for"


def test_what_is_not_known_stays_null() -> None:
    unmeasured = priced(relation("conflict", None).entry(), Prices(Decimal(1), "EUR", load_w=500.0)).cost
    assert unmeasured.money is unmeasured.currency is unmeasured.joules is None
    powerless = priced(relation("conflict", HOUR).entry(), Prices(Decimal(1), "EUR")).cost
    assert (powerless.money, powerless.joules) == ("1.000000", None)
    assert priced(relation("conflict", HOUR).entry(), Prices()) == relation("conflict", HOUR).entry(), "nothing was given"
