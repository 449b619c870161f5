"""Energy on lines of its own: every joule once, money only where electricity is not inside the rate."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from actions import table
from taut.core.prices import Embodied, Network, Prices
from taut.core.tables import Table
from taut.ledger.bill.categories import category_of
from taut.ledger.bill.energy_entries import Energy, Measurements, energy_of
from taut.ledger.bill.moved_bytes import MovedBytes
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.rows import Held

HOUR = 3_600_000_000_000
DAY = 20_000 * DAY_NS
WATTS = Prices(load_w=1000, stall_w=500, idle_w=100, kg_co2e_per_kwh=0.5, kwh=Decimal("0.20"), pue=1.5)


def held(**about: Any) -> Table:
    row = {"job": "a", "host": "n1", "accelerators": 1, "start_ns": DAY, "end_ns": DAY + HOUR, "rank_ns": HOUR, **about}
    return table(Held, [{**row, "fate": "kept"}, {**row, "fate": "fault wait", "cause": "f-1"}])


def asked(prices: Prices, rows: Table | None = None, steps: float = 0) -> Energy:
    return energy_of(held() if rows is None else rows, prices, Measurements(), 3600.0, steps)


def lines(found: Energy) -> list[tuple[Any, ...]]:
    """Item, category, kWh, kg and money of each entry."""
    entries = found.entries
    keys = zip(entries.item, entries.fate, entries.joules, entries.kg_co2e, entries.money, entries.priced, strict=True)
    return [
        (item, category_of(item, fate).name, joules / 3.6e6, kg, money / 1e9 if priced else None)
        for item, fate, joules, kg, money, priced in keys
    ]


def test_electricity_and_cooling_of_lost_time_are_energy_wasted() -> None:
    assert lines(asked(WATTS)) == [
        ("electricity", "useful work", 1.0, 0.5, None), ("electricity", "energy wasted", 0.5, 0.25, None),
        ("cooling", "useful work", 0.5, 0.25, None), ("cooling", "energy wasted", 0.25, 0.125, None),
    ]  # fmt: skip


def test_money_only_beside_the_rate() -> None:
    apart = asked(replace(WATTS, electricity_in_rate=False))
    assert [money for *_, money in lines(apart)] == [0.2, 0.1, 0.1, 0.05]


def test_what_a_run_measured_counts_before_the_model() -> None:
    rows = held(joules=7.2e6, joules_by="counter")
    found = asked(WATTS, rows)
    assert [kwh for item, _, kwh, *_ in lines(found) if item == "electricity"] == [2.0, 2.0]
    assert found.told.source == "counter"
    assert set(found.entries.source[found.entries.item == "electricity"].tolist()) == {"measured"}


def test_the_network_has_a_share_of_all_energy_of_the_bill() -> None:
    prices = replace(WATTS, host_w=100.0, network=Network(ports=10, port_w=20.0, pj_per_bit=15.0))
    found = energy_of(held(), prices, Measurements(), 3600.0, 0, moved=MovedBytes(3e15))
    assert found.told.network_joules == pytest.approx(0.2 * 3.6e6 + 8 * 3e15 * 15e-12)
    assert found.told.moved_bytes == 3e15
    # 1.7 kWh of accelerators and hosts, half as much again for cooling, and the network.
    assert found.told.data_movement_share == pytest.approx(0.3 / (1.7 * 1.5 + 0.3))
    assert found.notes == []


def test_bytes_that_nobody_tells_are_said_to_be_missing() -> None:
    prices = replace(WATTS, network=Network(ports=10, port_w=20.0, pj_per_bit=15.0))
    found = energy_of(
        held(), prices, Measurements(), 3600.0, 0, moved=MovedBytes(None, "run: no collective and no message was traced")
    )
    assert (found.told.network_joules, found.told.moved_bytes) == (pytest.approx(0.2 * 3.6e6), None)
    assert found.notes == ["network energy: run: no collective and no message was traced: that of bytes is not in it"]


def test_hosts_and_the_network() -> None:
    found = lines(asked(replace(WATTS, pue=None, host_w=100.0, network=Network(ports=10, port_w=20.0))))
    assert [(item, round(kwh, 3)) for item, _, kwh, *_ in found] == [
        ("electricity", 1.0), ("electricity", 0.5), ("electricity", 0.1), ("electricity", 0.1), ("network energy", 0.2),
    ]  # fmt: skip


def test_nothing_is_made_up_without_power() -> None:
    found = asked(Prices())
    assert len(found.entries) == 0
    assert (found.told.joules, found.told.source, found.defaults) == (None, None, [])


@pytest.mark.parametrize(("steps", "unit", "kg"), [(10, "step", 0.2125), (0, "accelerator hour", 1.0625)])
def test_carbon_by_unit_of_work(steps: float, unit: str, kg: float) -> None:
    # 1.125 kg of running; of making, 8,760 kg over a year of 8,760 hours: 1 kg for each of two hours.
    found = asked(replace(WATTS, embodied=Embodied(kg=8760 / 2, years=1)), steps=steps).told
    assert (found.sci_unit, found.sci_kg_co2e) == (unit, pytest.approx(kg))


def test_measured_energy_that_is_divided_by_default_ratios_says_so() -> None:
    found = asked(Prices(), held(joules=7.2e6, joules_by="samples"))
    assert np.isclose(found.entries.joules.sum(), 14.4e6)
    assert found.defaults[0].startswith("measured energy is divided among fates by the ratios of ")
