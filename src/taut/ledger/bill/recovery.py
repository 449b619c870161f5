"""What would come back: the money of a repair or a policy per hour, day and month, with its interval, and its payback.

Shares of the wall are those that the analysis replayed; an hour costs what an hour of the job cost in this bill.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fnmatch import fnmatchcase

from msgspec import Struct

from taut.core.finding_place import place_of
from taut.core.prices import Fix, Prices, amount
from taut.ledger.bill.traced_time import STRUCTURE, Traced
from taut.replay.saving_interval import lab_error, replayed_saving
from taut.result.types import Estimate, Finding, Recovery

HOURS_A_DAY, DAYS_A_MONTH = 24, 30
NOBODY = "nobody in particular"


class Hourly(Struct, frozen=True):
    """A traced run, its wall, and what an hour of its job costs."""

    run: Traced
    wall_ns: int
    per_hour: Decimal | None
    """All accelerators of the job together; None without a price."""


def recoveries(runs: Sequence[Hourly], prices: Prices) -> list[Recovery]:
    """What every finding's repair, or policy, brings back; the most money first."""
    found = [_of(one, finding, prices) for one in runs for finding in one.run.findings]
    kept = [one for one in found if one is not None]
    return sorted(kept, key=lambda one: (-(one.per_hour.value if one.per_hour else 0.0), -one.saved_share.value))


def _of(run: Hourly, finding: Finding, prices: Prices) -> Recovery | None:
    share = finding.recoverable_wall_ns / max(run.wall_ns, 1)
    if share <= 0:
        return None
    kind = "policy" if finding.policy is not None else "repair"
    return recovered(
        finding.id, _remedy(finding), _interval(finding, share), run.per_hour, _fix(finding, prices), f'[[fix]] kind = "{kind}"'
    )


class Cost(Struct, frozen=True):
    """What it takes to have something, once and every month."""

    price: Decimal = Decimal(0)
    per_month: Decimal = Decimal(0)


def recovered(
    cause: str, remedy: str, saved: Estimate, per_hour: Decimal | None, cost: Fix | Cost | None, ask: str
) -> Recovery:
    """What a share of jobs that cost so much an hour comes to; ``ask`` says how the prices tell what saving it costs."""
    hour = None if per_hour is None else _scaled(saved, float(per_hour))
    day, month = (None if hour is None else _scaled(hour, times) for times in (HOURS_A_DAY, HOURS_A_DAY * DAYS_A_MONTH))
    payback = None if day is None or cost is None else _payback(day, cost)
    return Recovery(
        cause=cause,
        remedy=remedy,
        saved_share=saved,
        per_hour=hour,
        per_day=day,
        per_month=month,
        payback_days=payback,
        cost=None if cost is None else amount(cost.price),
        cost_per_month=None if cost is None else amount(cost.per_month),
        no_payback=None if payback is not None else _why(month, cost, ask),
    )


def _why(month: Estimate | None, cost: Fix | Cost | None, ask: str) -> str:
    """Why nothing is paid back."""
    if cost is None:
        return f"what it costs is not given ({ask})"
    if month is None:
        return "an hour of the job has no price (gpu_hour, [[rate]], [owned] or a bill)"
    return f"never: it saves {month.value:,.2f} a month, and costs {cost.per_month:,.2f}"


def _interval(finding: Finding, share: float) -> Estimate:
    """A saving with how far such predictions were off in the lab; of a policy, as wide as the loss that it recovers from."""
    loss = finding.loss_share
    if finding.mode == STRUCTURE and loss is not None and loss.value and loss.lo is not None and loss.hi is not None:
        return Estimate(value=share, lo=share * loss.lo / loss.value, hi=min(share * loss.hi / loss.value, 1.0))
    error = lab_error(finding)
    return (
        Estimate(value=share) if error is None else replayed_saving(finding.recoverable_share or Estimate(value=share), error)
    )


def _scaled(one: Estimate, by: float) -> Estimate:
    low, high = (None if end is None else end * by for end in (one.lo, one.hi))
    return Estimate(value=one.value * by, lo=low, hi=high)


def _remedy(finding: Finding) -> str:
    if finding.policy is not None:
        return f"policy {finding.policy.name}"
    return f"repair {place_of(finding) or NOBODY}"


def _fix(finding: Finding, prices: Prices) -> Fix | None:
    """What its repair, or policy, costs by the prices: the first that names it."""
    kind = "policy" if finding.policy is not None else "repair"
    names = [finding.id, finding.mode, *(f"rank {rank}" for rank in finding.ranks), *(host for host in finding.hosts if host)]
    names += [f"link {link}" for link in finding.links]
    names += [finding.policy.name, finding.policy.name.partition("=")[0]] if finding.policy is not None else []
    return fix_of(kind, names, prices)


def fix_of(kind: str, names: Sequence[str], prices: Prices) -> Fix | None:
    """The first of its kind that names something."""
    fits = (one for one in prices.fixes if one.kind == kind and any(fnmatchcase(name, one.name) for name in names))
    return next(fits, None)


def _payback(day: Estimate, cost: Fix | Cost) -> Estimate | None:
    """Days until what something costs is earned; None where it never is."""
    value, low, high = (None if gain is None else _days(cost, gain) for gain in (day.value, day.hi, day.lo))
    return None if value is None else Estimate(value=value, lo=low, hi=high)


def _days(cost: Fix | Cost, gain: float) -> float | None:
    net = gain - float(cost.per_month) / DAYS_A_MONTH
    return float(cost.price) / net if net > 0 else None
