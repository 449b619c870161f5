"""Cost as it accumulates: it ends at what is booked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.tables import Table, concat
from taut.ledger.bill.categories import CATEGORIES
from taut.ledger.bill.cost_over_time import KINDS, OTHER, cost_over_time
from taut.ledger.bill.rows import UNIT, Booked, Held

HELD = Table(Held, {"fate": ["productive", "fault wait", "discarded"]})


def booked(rows: list[tuple[int, int, int, int]], item: str = "accelerator time") -> Table:
    """(held, start, length, units) …"""
    return Table(Booked, {
        "held": [row[0] for row in rows], "start_ns": [row[1] for row in rows], "end_ns": [row[1] + row[2] for row in rows],
        "effective": [row[3] for row in rows], "item": [item] * len(rows),
    }, len(rows))  # fmt: skip


ROWS = st.tuples(st.integers(-1, 2), st.integers(10**18, 10**18 + 10**13), st.integers(0, 10**13), st.integers(0, 10**14))


@given(st.lists(ROWS, min_size=1, max_size=8))
def test_cost_never_falls_and_ends_at_what_is_booked(rows: list[tuple[int, int, int, int]]) -> None:
    found = cost_over_time(HELD, booked(rows))
    assert found is not None
    total = sum(row[3] for row in rows) / UNIT
    for cost in found.money.values():
        assert cost[0] == pytest.approx(0, abs=1e-6 * max(total, 1))
        assert np.diff(cost).min() >= -1e-6 * max(total, 1)
    assert sum(cost[-1] for cost in found.money.values()) == pytest.approx(total, rel=1e-6, abs=1e-6)


def test_cost_goes_by_fate_and_else_by_item() -> None:
    hour = 3_600_000_000_000
    found = cost_over_time(HELD, booked([(0, 0, hour, 4 * UNIT), (1, 0, 2 * hour, 2 * UNIT), (2, hour, hour, UNIT)]), points=3)
    assert found is not None
    assert found.money == {"compute": [0, 4, 4], "waiting": [0, 1, 2], "restarts": [0, 0, 1]}
    idle = cost_over_time(HELD, booked([(-1, 0, hour, UNIT)], "idle accelerators"))
    other = cost_over_time(HELD, booked([(-1, 0, hour, UNIT)], "storage"))
    assert idle is not None
    assert other is not None
    assert (set(idle.money), set(other.money)) == ({"idle"}, {OTHER})


def one_charge(*rows: tuple[int, int, int, int]) -> Table:
    """Parts of one charge of four hours: (held, first hour, hours, money); -1 holds what nobody held."""
    hour = 3_600_000_000_000
    return Table(Booked, {
        "held": [row[0] for row in rows], "start_ns": [row[1] * hour for row in rows],
        "end_ns": [(row[1] + row[2]) * hour for row in rows], "effective": [row[3] * UNIT for row in rows],
        "charge": [7] * len(rows), "item": ["idle accelerators" if row[0] < 0 else "accelerator time" for row in rows],
    }, len(rows))  # fmt: skip


def test_idle_cost_accumulates_while_nobody_holds_the_host() -> None:
    found = cost_over_time(HELD, one_charge((0, 0, 1, 10), (1, 2, 1, 10), (-1, 0, 4, 20)), points=5)
    assert found is not None
    assert found.money["compute"] == [0, 10, 10, 10, 10]
    assert found.money["waiting"] == [0, 0, 0, 10, 10]
    assert found.money["idle"] == pytest.approx([0, 0, 10, 10, 20])


def test_rounding_of_short_parts_does_not_matter() -> None:
    """A thousand parts of a microsecond each, whose exact share would be 1.4 units."""
    parts = [(0, 1_000 * i, 1_000, 1 + i % 2) for i in range(1_000)]
    rows = booked(parts)
    both = concat(Booked, [rows, booked([(-1, 0, 2_000_000, 1_400)], "idle accelerators")])
    found = cost_over_time(HELD, both.replace(charge=np.zeros(len(both), dtype=np.int64)), points=3)
    assert found is not None
    assert found.money["idle"][1] * UNIT < 0.1 * 1_400


def test_a_host_that_was_on_for_a_part_of_its_charge_is_idle_evenly() -> None:
    """Ten of twenty were held in one hour: the host was on for two of the four, and nobody tells which is the other."""
    found = cost_over_time(HELD, one_charge((0, 1, 1, 10), (-1, 0, 4, 10)), points=5)
    assert found is not None
    assert found.money["idle"] == [0, 2.5, 5, 7.5, 10]


def test_what_has_no_time_is_told_apart() -> None:
    assert cost_over_time(HELD, booked([(0, -1, 0, UNIT)])) is None
    found = cost_over_time(HELD, booked([(0, -1, 0, UNIT), (0, 5, 10, UNIT)]))
    assert found is not None
    assert found.undated == 1


def test_every_kind_is_made_of_fates_that_a_bill_knows() -> None:
    known = {fate for category in CATEGORIES for fate in category.fates}
    assert {fate for fates in KINDS.values() for fate in fates} <= known


def test_cost_of_a_vast_bill_is_in_its_own_units() -> None:
    found = cost_over_time(HELD, booked([(0, 0, 3_600_000_000_000, 4000)]), points=2, unit=1000)
    assert found is not None
    assert found.money == {"compute": [0, 4]}
