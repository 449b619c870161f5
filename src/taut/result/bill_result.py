"""What ``taut bill --json`` prints, put together: lines, closings, drill-downs, budget, what would come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
from msgspec import Struct

from taut.core.ids import total
from taut.core.prices import Prices
from taut.core.tables import Table
from taut.ledger.bill.booking import Booking
from taut.ledger.bill.cash_lines import NOT_BILLED
from taut.ledger.bill.lines import DRILLS, Coded, amount, categories, drill, lines, summed, units_of
from taut.ledger.bill.period import DAY_NS, Period, date_text, period_words
from taut.result.bill_verdict import Spent, bill_verdict, closing_words
from taut.result.types import Accrual, BillEnergy, BillPeriod, BillResult, BrokenRule, Budget, Recovery

DAYS = {"day": 1.0, "month": 30.4375, "year": 365.25}
"""Days of what a budget is for; a month that is a calendar month counts as one, whatever its days."""


class Parts(Struct, frozen=True, kw_only=True):
    """What a bill is put together from."""

    entries: Table
    booking: Booking
    period: Period | None
    prices: Prices
    energy: BillEnergy
    recoverable: list[Recovery]
    causes: Mapping[str, str]
    """Id of a finding → what and where it is."""
    missing: Sequence[str]
    defaults: Sequence[str]
    notes: Sequence[str]
    inputs: Sequence[str]
    rules: Sequence[BrokenRule]
    """Rules of FOCUS that the bill breaks."""
    unit: str
    """What accelerator time counts."""
    name: str
    """What the inputs are called where nothing has a date."""


def bill_result(parts: Parts) -> BillResult:
    """The result of ``taut bill``."""
    coded, booking = Coded(parts.entries), parts.booking
    currency = booking.currency or parts.prices.currency
    accrual = _accrual(parts)
    found, sums = lines(coded, booking.unit, billed=booking.effective is not None), categories(coded, booking.unit)
    priced = "the prices given" if parts.prices.origin != "options" else "the price given"
    closing = closing_words(accrual, booking.invoices, booking.defects, currency, booking.open, priced)
    when = period_words(parts.period) if parts.period else parts.name
    spent = Spent(sums, found, parts.causes, currency)
    verdict = bill_verdict(when, spent, closing, unit=parts.unit, charged=accrual.effective, wrong=bool(booking.defects))
    return BillResult(
        currency=currency,
        money_units=booking.unit,
        unit=parts.unit,
        period=_period(parts),
        verdict=verdict,
        accrual=accrual,
        invoices=booking.invoices,
        categories=sums,
        lines=found,
        by={one: drill(coded, one, booking.unit) for one in DRILLS},
        unmatched=booking.unmatched,
        defects=booking.defects,
        rules=list(parts.rules),
        energy=parts.energy,
        recoverable=parts.recoverable,
        budget=_budget(parts, accrual),
        causes=dict(parts.causes),
        missing=list(parts.missing),
        defaults=list(parts.defaults),
        notes=[*booking.notes, *parts.notes],
        inputs=list(parts.inputs),
    )


def _period(parts: Parts) -> BillPeriod:
    start, end = (None, None) if parts.period is None else map(date_text, parts.period)
    return BillPeriod(start=start, end=end, open=parts.booking.open)


def _accrual(parts: Parts) -> Accrual:
    """What was used against what the bill says it cost; what no provider bills is not compared with its bill."""
    booking, entries = parts.booking, parts.entries
    compared = entries if booking.effective is None else entries.take(~np.isin(entries.item, NOT_BILLED))
    ledger = summed(compared, np.zeros(len(compared), dtype=np.int64), 1).money[0] if len(compared) else None
    if booking.effective is None:
        return Accrual(ledger=amount(ledger, booking.unit), effective=None, residual=None, closes=None)
    residual = booking.effective - (ledger or 0)
    explained = booking.removed - total(booking.uncharged.effective)
    charged = booking.charges > 0 or not len(entries)
    yet = total(booking.uncharged.effective[booking.uncharged.why == "open"])
    return Accrual(
        ledger=amount(ledger or 0, booking.unit),
        effective=amount(booking.effective, booking.unit),
        residual=amount(residual, booking.unit),
        explained=amount(explained, booking.unit),
        not_charged_yet=amount(yet, booking.unit),
        closes=residual == 0 and charged and all(one.money is not None for one in booking.defects),
    )


def _budget(parts: Parts, accrual: Accrual) -> Budget | None:
    """Budget, actual and forecast; None without a budget."""
    given, period = parts.prices.budget, parts.period
    if given is None:
        return None
    actual = accrual.effective if accrual.effective is not None else accrual.ledger
    times = 1.0 if given.per == "period" or period is None else _times(given.per, period)
    whole = units_of(given.amount * Decimal(repr(times)), parts.booking.unit)
    ahead = _forecast(parts, actual)
    left = None if ahead is None else whole - ahead
    unit = parts.booking.unit
    return Budget(budget=amount(whole, unit), actual=actual, forecast=amount(ahead, unit), left=amount(left, unit))


def _times(per: str, period: Period) -> float:
    """How many of what a budget is for a period is."""
    if per == "month" and period_words(period)[:1].isalpha():
        return 1.0
    return (period[1] - period[0]) / DAY_NS / DAYS[per]


def _forecast(parts: Parts, actual: str | None) -> int | None:
    """The actual at the end of the period, if it goes on like this."""
    if actual is None:
        return None
    so_far, period = units_of(Decimal(actual), parts.booking.unit), parts.period
    days = parts.entries.day[parts.entries.day >= 0]
    if not parts.booking.open or period is None or not len(days):
        return so_far
    passed = min((int(days.max()) + 1) * DAY_NS, period[1]) - period[0]
    return so_far if passed <= 0 else round(so_far * (period[1] - period[0]) / passed)
