"""What another fabric and a spare host bring back at most, and when they are paid back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from bill_runs import cells, run
from taut.core.prices import Fix, HostFacts, Network, Prices
from taut.core.tables import Table
from taut.ledger.bill.bought_remedies import of_fabric, of_spare
from taut.ledger.bill.entries import Entry
from taut.ledger.bill.recovery import Hourly
from taut.ledger.bill.rows import Held

HOUR = 3_600_000_000_000
MOVED = run(cells((0, 1, "productive", 8), (0, 1, "exposed transfer", 2), (1, 1, "productive", 10)))
DAY = (0, 24 * HOUR)


def fabric(prices: Prices, per_hour: Decimal | None = Decimal(100)) -> Any:
    (found,) = of_fabric([Hourly(MOVED, 10, per_hour)], prices)
    return found


def test_a_fabric_saves_the_exposed_transfer_at_most_and_costs_its_ports() -> None:
    found = fabric(Prices(network=Network(ports=24, port_price=Decimal(100))))
    assert (found.saved_share.value, found.saved_share.lo, found.saved_share.hi) == (0.1, 0.0, 0.1)
    assert found.per_day.value == pytest.approx(240)
    assert found.cost == "2400.000000"
    # One that helps nobody is never paid back: the interval is open to that side.
    assert (found.payback_days.value, found.payback_days.lo, found.payback_days.hi) == (
        pytest.approx(10),
        pytest.approx(10),
        None,
    )


def test_what_is_missing_is_named() -> None:
    assert (
        fabric(Prices()).no_payback == 'what it costs is not given ([[fix]] kind = "fabric", or [network] ports and port_price)'
    )
    unpriced = fabric(Prices(network=Network(ports=24, port_price=Decimal(100))), None)
    assert (unpriced.per_day, unpriced.payback_days) == (None, None)
    assert unpriced.no_payback.startswith("an hour of the job has no price")


def test_a_fabric_that_is_named_has_its_own_price() -> None:
    prices = Prices(
        network=Network(ports=24, port_price=Decimal(100)), fixes=(Fix(kind="fabric", name="a", price=Decimal(24)),)
    )
    assert fabric(prices).payback_days.value == pytest.approx(0.1)


def test_a_run_that_moves_nothing_has_no_fabric() -> None:
    assert of_fabric([Hourly(run(cells((0, 1, "productive", 8))), 10, Decimal(1))], Prices()) == []


def entries(*rows: tuple[str, str, int], priced: int = 1) -> Table:
    """(fate, cause, accelerator hours) at 2.00 an hour."""
    fate, cause, hours = ([row[i] for row in rows] for i in range(3))
    return Table(Entry, {
        "item": np.full(len(rows), "accelerator time", dtype=object), "fate": np.array(fate, dtype=object),
        "cause": np.array(cause, dtype=object), "rank_ns": np.array(hours) * HOUR, "money": np.array(hours) * 2 * 10**9,
        "priced": np.full(len(rows), priced, dtype=np.int8),
    }, len(rows))  # fmt: skip


NODES = Table(Held, {"host": np.array(["n1", ""], dtype=object), "accelerators": np.array([8, 64])}, 2)
MONTH = entries(("kept", "", 80), ("detect+recover", "node failed", 5), ("discarded", "node failed", 10),
                ("discarded", "preempted by slurmctld", 5))  # fmt: skip


def test_a_spare_saves_the_recovery_and_at_most_the_work_that_is_done_again() -> None:
    (found,) = of_spare(MONTH, NODES, Prices(), DAY, 10**9)
    assert (found.saved_share.value, found.saved_share.lo, found.saved_share.hi) == pytest.approx((0.15, 0.05, 0.15))
    assert (found.per_day.value, found.per_day.lo) == pytest.approx((30, 10))
    assert found.cost_per_month == "11520.000000"  # eight accelerators that are held and do nothing
    assert found.no_payback == "never: it saves 900.00 a month, and costs 11,520.00"


def test_a_spare_that_has_a_price_is_paid_back() -> None:
    (found,) = of_spare(MONTH, NODES, Prices(fixes=(Fix(kind="spare", price=Decimal(60)),)), DAY, 10**9)
    assert (found.payback_days.value, found.payback_days.hi) == pytest.approx((2, 6))


def test_a_spare_needs_hosts_that_fail_and_prices() -> None:
    assert of_spare(entries(("kept", "", 80)), NODES, Prices(), DAY, 10**9) == []
    (unpriced,) = of_spare(entries(("detect+recover", "node failed", 5), priced=0), NODES, Prices(), DAY, 10**9)
    assert (unpriced.per_hour, unpriced.cost) == (None, None)
    (undated,) = of_spare(MONTH, NODES, Prices(hosts=HostFacts(accelerators=4)), None, 10**9)
    assert (undated.per_hour, undated.cost_per_month) == (None, "5760.000000")
