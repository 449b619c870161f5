"""Money, carbon and cooling by the hour: any split of time costs the same, clocks that change are no matter, gaps are named."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.prices import Hourly, Prices, PueCurve
from taut.ledger.bill.electricity import Site, site
from taut.ledger.bill.rows import UNIT
from taut.read.prices_file import load

HOUR = 3_600_000_000_000
KWH = 3.6e6
DAY = int(datetime(2026, 10, 25, tzinfo=UTC).timestamp()) * 10**9


def hours(*values: float | None, label: str = "tariff.csv") -> Hourly:
    told = [(i, value) for i, value in enumerate(values) if value is not None]
    starts = tuple(DAY + i * HOUR for i, _ in told)
    return Hourly(label, starts, tuple(one + HOUR for one in starts), tuple(value for _, value in told))


def paid(prices: Prices, first_h: float, last_h: float, kwh: float = 1.0) -> Site:
    at = [np.array([DAY + round(hour * HOUR)]) for hour in (first_h, last_h)]
    return site(prices, at[0], at[1], np.array([kwh * KWH]))


def test_each_hour_has_its_price() -> None:
    prices = Prices(tariff=hours(0.10, 0.30))
    assert [paid(prices, *span).units[0] / UNIT for span in ((0, 1), (1, 2), (0, 2), (0.5, 1.5))] == [0.1, 0.3, 0.2, 0.2]


def test_a_missing_hour_is_named_and_unknown_unless_a_constant_counts() -> None:
    gap = hours(0.10, None, 0.30)
    found = paid(Prices(tariff=gap), 0, 3)
    assert found.units.tolist() == [-1]
    assert found.notes == (
        "tariff.csv: nothing for 2026-10-25T01:00Z to 2026-10-25T02:00Z (1 h); unknown (electricity.per_kwh would tell)",
    )
    filled = paid(Prices(tariff=gap, kwh=Decimal("0.20")), 0, 3)
    assert filled.units.tolist() == [200_000_000]
    assert "taken as electricity.per_kwh says" in filled.notes[0]
    assert paid(Prices(tariff=gap), 2, 3).notes == ()


def test_without_a_tariff_joules_have_no_price() -> None:
    found = paid(Prices(), 0, 1)
    assert found.units.tolist() == [-1]
    assert np.isnan(found.kg[0])
    assert np.isnan(found.cooling_joules[0])
    assert found.notes == ()


def test_cooling_follows_the_temperature_outside_and_is_paid_by_the_hour() -> None:
    curve = PueCurve(((0.0, 1.1), (20.0, 1.3)), hours(-5.0, 10.0, 40.0, label="outside.csv"))
    prices = Prices(cooling=curve, tariff=hours(0.1, 0.2, 0.4), carbon=hours(0.3, 0.3, 0.6))
    each = [paid(prices, hour, hour + 1) for hour in range(3)]
    assert [one.cooling_joules[0] / KWH for one in each] == pytest.approx([0.1, 0.2, 0.3])
    whole = paid(prices, 0, 3, 3.0)
    assert whole.cooling_units[0] / UNIT == pytest.approx(0.1 * 0.1 + 0.2 * 0.2 + 0.3 * 0.4)
    assert whole.cooling_kg[0] == pytest.approx(0.1 * 0.3 + 0.2 * 0.3 + 0.3 * 0.6)
    assert whole.kg[0] == pytest.approx(1.2)


def test_where_nobody_knows_when_the_constant_counts() -> None:
    prices = Prices(tariff=hours(0.10), kwh=Decimal("0.25"))
    found = site(prices, np.array([-1]), np.array([-1]), np.array([KWH]))
    assert found.units.tolist() == [250_000_000]


@given(st.lists(st.integers(0, 30 * HOUR), max_size=8), st.lists(st.none() | st.floats(-0.1, 1), min_size=30, max_size=30))
def test_any_split_of_time_costs_the_same(cuts: list[int], values: list[float | None]) -> None:
    prices = Prices(tariff=hours(*values, 0.5), kwh=Decimal("0.3"), pue=1.2)
    edges = np.array([0, *sorted(cuts), 31 * HOUR]) + DAY
    length = np.diff(edges)
    parts = site(prices, edges[:-1], edges[1:], KWH * 31 * length / length.sum())
    whole = site(prices, edges[:1], edges[-1:], np.array([KWH * 31]))
    assert abs(int(parts.units.sum()) - int(whole.units[0])) <= len(length) + 1
    assert parts.cooling_joules.sum() == pytest.approx(whole.cooling_joules[0])


def test_the_day_on_which_clocks_change_has_25_hours(tmp_path: Path) -> None:
    clock = [0, 1, 2, 2, *range(3, 24)]
    rows = "".join(f"2026-10-25T{hour:02}:00,{0.1 + 0.01 * i:.2f}\n" for i, hour in enumerate(clock))
    (tmp_path / "tariff.csv").write_text("time,per_kwh\n" + rows + "2026-10-26T00:00,9\n")
    (tmp_path / "prices.toml").write_text('currency = "EUR"\n[electricity]\ntariff = "tariff.csv"\nzone = "Europe/Berlin"\n')
    prices = load(tmp_path / "prices.toml")
    midnight = DAY - 2 * HOUR  # in Berlin
    start = midnight + np.arange(25) * HOUR
    found = site(prices, start, start + HOUR, np.full(25, KWH))
    assert (found.units / UNIT).tolist() == pytest.approx([0.1 + 0.01 * i for i in range(25)])
    assert found.notes == ()
    next_day = site(prices, start[-1:], start[-1:] + 2 * HOUR, np.array([2 * KWH]))
    assert next_day.units[0] / UNIT == pytest.approx(0.34 + 9)
