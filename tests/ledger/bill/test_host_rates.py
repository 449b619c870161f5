"""Rates by host, kind and time, and money for many rows: the same as one by one, however they are cut."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taut.core.prices import HostFacts, Owned, Prices, Rate
from taut.ledger.bill.host_rates import HOUR_NS, cost_units, rates_at, team_of, unused_commitment_units
from taut.ledger.bill.rows import UNIT

RATES = (
    Rate(
        kind="committed", gpu_hour=Decimal("1.90"), hosts="gpu-1*", from_ns=10 * HOUR_NS, until_ns=20 * HOUR_NS, accelerators=4
    ),
    Rate(kind="spot", gpu_hour=Decimal("0.95"), hosts="spot-*"),
    Rate(kind="owned", hosts="own-*"),
    Rate(kind="list", gpu_hour=Decimal(4), model="H200*"),
)
OWNED = Owned(purchase_price=Decimal(35040), years=4)
PRICES = Prices(Decimal("2.50"), "EUR", rates=RATES, owned=OWNED, hosts=HostFacts(model_of={"big": "H200-141"}))


def rate_at(prices: Prices, host: str, time_ns: int, kind: str | None = None) -> Decimal | None:
    """Money for an accelerator hour on one host at one time."""
    (units,) = rates_at(prices, np.array([host], np.object_), np.array([time_ns]), kind).units.tolist()
    return None if units < 0 else Decimal(units) / UNIT


def test_the_first_rate_that_fits_counts_then_gpu_hour() -> None:
    asked = [("gpu-1", 12), ("gpu-1", 20), ("gpu-2", 12), ("spot-a", 1), ("own-3", 1), ("big", 1)]
    found = [rate_at(PRICES, host, hour * HOUR_NS) for host, hour in asked]
    assert found == [Decimal("1.90"), Decimal("2.50"), Decimal("2.50"), Decimal("0.95"), Decimal(1), Decimal(4)]


def test_a_kind_that_has_no_rate_has_no_price() -> None:
    assert rate_at(PRICES, "gpu-2", 0, "spot") is None
    assert rate_at(PRICES, "gpu-2", 0, "owned") == 1
    assert rate_at(Prices(), "gpu-2", 0) is None


def test_without_times_only_rates_without_dates_fit() -> None:
    assert rate_at(PRICES, "gpu-1", -1) == Decimal("2.50")
    assert rate_at(PRICES, "spot-1", -1) == Decimal("0.95")


def test_many_rows_at_once_are_as_one_by_one() -> None:
    hosts = np.array(["gpu-1", "spot-a", "own-3", "x"], np.object_)
    found = rates_at(PRICES, hosts, np.full(4, 12 * HOUR_NS))
    assert found.units.tolist() == [1_900_000_000, 950_000_000, UNIT, 2_500_000_000]
    assert found.rate.tolist() == [0, 1, 2, -1]


def test_a_row_over_which_the_rate_changes_is_cut_there() -> None:
    hosts, ns = np.array(["gpu-1"], np.object_), lambda hour: np.array([hour * HOUR_NS])
    money = cost_units(PRICES, hosts, ns(8), ns(12), 8 * ns(4))
    assert money.tolist() == [8 * (2 * 2_500_000_000 + 2 * 1_900_000_000)]
    half = Prices(rates=(RATES[0],))
    assert cost_units(half, hosts, ns(8), ns(12), ns(4)).tolist() == [-1]


@given(st.lists(st.integers(0, 30 * HOUR_NS), min_size=1, max_size=8), st.integers(1, 8))
def test_any_cut_of_a_holding_costs_the_same_to_the_unit_of_each_part(cuts: list[int], accelerators: int) -> None:
    edges = np.array([0, *sorted(cuts), 30 * HOUR_NS])
    start, end = edges[:-1], edges[1:]
    host = np.full(len(start), "gpu-1", np.object_)
    parts = cost_units(PRICES, host, start, end, accelerators * (end - start))
    whole = cost_units(PRICES, host[:1], edges[:1], edges[-1:], accelerators * edges[-1:])
    assert abs(int(parts.sum()) - int(whole[0])) <= len(start) + 2


def test_what_was_committed_and_not_used_has_its_price() -> None:
    assert unused_commitment_units(PRICES, lambda _: 30 * HOUR_NS, 0, 100 * HOUR_NS) == 19 * UNIT
    assert unused_commitment_units(PRICES, lambda _: 50 * HOUR_NS, 0, 100 * HOUR_NS) == 0


def test_the_first_team_that_fits_counts() -> None:
    prices = Prices(teams=(("llm-*", "language"), ("*", "others")))
    assert [team_of(prices, job) for job in ("llm-7", "vision")] == ["language", "others"]
    assert team_of(Prices(), "llm-7") == ""
