"""What a month costs, and what an hour of one accelerator does: from a bill, from the price given, or from a model."""

from __future__ import annotations

from datetime import datetime

from taut.briefing.answers import own, units_per_s
from taut.briefing.inputs import Opened
from taut.core.prices import Prices
from taut.result.brief_types import BriefedBill
from taut.result.types import BillPeriod, BillResult, BriefCosts

DAYS_A_MONTH = 30
HOURS_A_MONTH = 24 * DAYS_A_MONTH
USEFUL = "useful work"


def costs(found: Opened, prices: Prices | None = None) -> BriefCosts | None:
    """What a month costs; None without a price."""
    for bill in found.bills:
        cost = _of_bill(bill, found, prices)
        if cost is not None:
            return cost
    for scenario in found.scenarios:
        forecast = own(scenario)
        rate = units_per_s(forecast)
        if forecast.cost_per_unit is not None and rate and forecast.currency:
            month = forecast.cost_per_unit * rate * 3600 * HOURS_A_MONTH
            useful = forecast.groups["compute"] if forecast.groups else None
            return BriefCosts(
                per_month=month,
                useful_per_month=None if useful is None else month * useful,
                currency=forecast.currency,
                basis=f"{scenario.source.name} at {forecast.ranks:,} accelerators, modelled",
                accelerators=forecast.ranks,
                per_accelerator_hour=month / HOURS_A_MONTH / forecast.ranks,
            )
    return None


def _of_bill(bill: BriefedBill, found: Opened, prices: Prices | None) -> BriefCosts | None:
    result = bill.result
    hour, ranks = _job_hour(result), found.runs[0][2].job.ranks if len(found.runs) == 1 else None
    useful = next((one.share for one in result.categories if one.name == USEFUL), None)
    if hour is not None and result.currency and found.runs:
        month, shares = hour * HOURS_A_MONTH, [one[2].verdict.effective_share for one in found.runs]
        own_share = shares[0] if len(shares) == 1 else useful
        one_hour = hour / ranks if ranks else None
        return BriefCosts(
            per_month=month,
            useful_per_month=None if own_share is None else month * own_share,
            currency=result.currency,
            basis=_basis(result, prices, one_hour, len(found.runs)),
            accelerators=ranks,
            per_accelerator_hour=one_hour,
        )
    if result.accrual.ledger is None or result.currency is None:
        return None
    days = days_of(result.period)
    month = float(result.accrual.ledger) * (DAYS_A_MONTH / days if days else 1)
    told = f"the bill of {str(result.period.start)[:10]} to {str(result.period.end)[:10]}" if days else "the bill as it stands"
    return BriefCosts(
        per_month=month, useful_per_month=None if useful is None else month * useful, currency=result.currency, basis=told
    )


def _basis(result: BillResult, prices: Prices | None, one_hour: float | None, runs: int) -> str:
    """Where the price of an hour comes from; a list price that is another one is named beside it."""
    whose = "the accelerators of the traced job" if runs == 1 else "the accelerators of one of the traced runs"
    if result.accrual.effective is None:
        return f"{whose} at the price given"
    told = f"{whose} at what they cost in the bill"
    listed = None if prices is None or prices.base_rate is None else float(prices.base_rate)
    if one_hour is None or listed is None or abs(listed / one_hour - 1) < 0.01:
        return told
    return f"{told} (list price {listed:,.2f} {result.currency} an hour)"


def days_of(period: BillPeriod) -> float | None:
    """Length of a period; None where logs tell lengths only."""
    if period.start is None or period.end is None:
        return None
    first, last = (datetime.fromisoformat(end) for end in (period.start, period.end))
    return (last - first).total_seconds() / 86_400 or None


def _job_hour(result: BillResult) -> float | None:
    """What an hour of the traced job costs: what is recoverable in an hour over its share."""
    of_findings = (one for one in result.recoverable if one.cause in result.causes and one.saved_share.value > 0)
    one = next((one for one in of_findings if one.per_hour is not None), None)
    return None if one is None or one.per_hour is None else one.per_hour.value / one.saved_share.value
