"""What a repair or a policy would bring back, in money, and when it is paid back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bill_runs import LATE, NOBODY, TWO_STEPS, run
from results import filled
from taut.core.interval import Z
from taut.core.prices import Fix, Prices
from taut.ledger.bill.recovery import Hourly, recoveries
from taut.replay.saving_interval import NINE_OF_TEN
from taut.result.types import Finding, Recovery

WALL = 90_000_000
LOW, HIGH = (end ** (Z / NINE_OF_TEN) for end in (0.84, 1.6))
"""Real savings over predicted ones in nine of ten lab runs, stretched to the 95 % of all intervals."""


def asked(finding: Finding, prices: Prices | None = None, per_hour: Decimal | None = Decimal(100)) -> Recovery:
    (found,) = recoveries([Hourly(run(TWO_STEPS, (finding,)), WALL, per_hour)], prices or Prices())
    return found


def test_a_repair_by_the_hour_day_and_month_with_the_interval_of_the_lab() -> None:
    found = asked(LATE)
    assert (found.cause, found.remedy) == ("f-late", "repair rank 1")
    assert found.saved_share.value == pytest.approx(0.1)
    assert found.per_hour is not None
    assert (found.per_hour.value, found.per_hour.lo, found.per_hour.hi) == pytest.approx((10, 10 * LOW, 10 * HIGH))
    assert found.per_day is not None
    assert found.per_month is not None
    assert (found.per_day.value, found.per_month.value) == pytest.approx((240, 7200))
    assert found.payback_days is None


def test_without_a_price_only_the_share_is_known() -> None:
    found = asked(LATE, per_hour=None)
    assert (found.per_hour, found.per_day, found.per_month) == (None, None, None)


def test_a_policy_has_the_interval_of_the_loss_it_recovers_from() -> None:
    about: dict[str, Any] = {
        "loss_share": {"value": 0.2, "lo": 0.1, "hi": 0.3},
        "policy": {"name": "local-steps=4", "saved_wall_ns": 1},
    }
    found = asked(filled(Finding, {**_json(NOBODY), **about}))
    assert found.remedy == "policy local-steps=4"
    assert (found.saved_share.lo, found.saved_share.hi) == pytest.approx((0.05, 0.15))


@pytest.mark.parametrize("name", ["f-late", "straggler *", "rank 1", "*"])
def test_payback_of_a_repair_that_has_a_price(name: str) -> None:
    found = asked(LATE, Prices(fixes=(Fix(kind="repair", name=name, price=Decimal(1200), per_month=Decimal(3600)),)))
    assert found.payback_days is not None
    # 240 a day, less 120 a day that it costs itself; and the lab's interval of 240 a day.
    assert (found.payback_days.value, found.payback_days.lo, found.payback_days.hi) == pytest.approx(
        (10, 1200 / (240 * HIGH - 120), 1200 / (240 * LOW - 120))
    )


def test_what_never_pays_has_no_payback() -> None:
    assert asked(LATE, Prices(fixes=(Fix(kind="repair", price=Decimal(1), per_month=Decimal(10**6)),))).payback_days is None
    assert asked(LATE, Prices(fixes=(Fix(kind="policy", price=Decimal(1)),))).payback_days is None


def _json(finding: Finding) -> dict[str, Any]:
    return {key: finding[key] for key in finding}
