"""What accelerator time costs where there is no bill: the rate of a host at a time, and money for many rows at once.

The first ``[[rate]]`` that fits host, model, time and kind counts; without one, ``gpu_hour``, and without that what an owned
accelerator costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase

import numpy as np

from taut.core.array_types import Ints, Mask, Texts
from taut.core.prices import Prices, Rate
from taut.core.tables import NULL
from taut.ledger.bill.rows import UNIT

__all__ = ["Prices", "Rated", "cost_units", "rate_units", "rates_at", "team_of", "unused_commitment_units"]

HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True)
class Rated:
    """What an accelerator hour costs, row by row."""

    units: Ints
    """Billionths of the currency for an hour of one accelerator; -1 where no price is known."""
    rate: Ints
    """Row of ``Prices.rates``; -1 where ``gpu_hour`` or the price of owned ones counts, or nothing."""


def rate_units(value: Decimal | None) -> int:
    """Money in billionths, rounded half to even; -1 for none."""
    return NULL if value is None else int((value * UNIT).to_integral_value())


def rates_at(prices: Prices, host: Texts, time_ns: Ints, kind: str | None = None) -> Rated:
    """The rate of each of many hosts and times (-1: unknown, then only rates without from and until fit)."""
    units, row = np.full(len(host), rate_units(_base(prices, kind))), np.full(len(host), NULL)
    names, code = np.unique(host.astype(np.str_), return_inverse=True)
    for i in reversed(range(len(prices.rates))):  # the first counts, so it is put in last
        rate = prices.rates[i]
        if kind in (None, rate.kind):
            fits = np.array([_on(prices, rate, name) for name in names.tolist()], np.bool_)[code] & _during(rate, time_ns)
            units[fits], row[fits] = rate_units(_price(prices, rate)), i
    return Rated(units, row)


def cost_units(prices: Prices, host: Texts, start_ns: Ints, end_ns: Ints, rank_ns: Ints, kind: str | None = None) -> Ints:
    """Money for accelerator time, billionths, row by row; -1 where none is known for all of it.

    A row over which rates change is cut there: its accelerator time is taken as spread evenly.
    """
    out, begun = np.zeros(len(host), np.int64), np.zeros(len(host), np.int64)
    unknown = np.zeros(len(host), np.bool_)
    for rows, upto, time_ns in _pieces(prices, start_ns, end_ns, rank_ns):
        rated = rates_at(prices, host[rows], time_ns, kind)
        part = upto - begun[rows]
        unknown[rows] |= (rated.units < 0) & (part > 0)
        out[rows] += _money(rated.units, part)
        begun[rows] = upto
    return np.where(unknown, NULL, out)


def _pieces(prices: Prices, start_ns: Ints, end_ns: Ints, rank_ns: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(rows, accelerator time of each up to the end of the piece, a time in it) between changes of rates."""
    borders = sorted({at for rate in prices.rates for at in (rate.from_ns, rate.until_ns) if at is not None})
    for border in borders:
        rows = np.flatnonzero((start_ns >= 0) & (start_ns < border) & (border < end_ns))
        passed, whole = border - start_ns[rows], end_ns[rows] - start_ns[rows]
        if len(rows):
            yield rows, _scaled(rank_ns[rows], passed, whole), np.full(len(rows), border - 1)
    last = np.where(start_ns < 0, NULL, np.maximum(end_ns - 1, start_ns))
    yield np.arange(len(start_ns)), rank_ns, last


def _scaled(value: Ints, part: Ints, whole: Ints) -> Ints:
    """value × part ÷ whole, rounded down; whole numbers of any size, because products go beyond 64 bits."""
    exact = value.astype(np.object_) * part.astype(np.object_) // whole.astype(np.object_)
    return np.asarray(exact, np.int64)


def _money(units: Ints, rank_ns: Ints) -> Ints:
    """Rate × time, rounded to whole billionths; 0 where the rate is not known."""
    exact = np.maximum(units, 0).astype(np.object_) * rank_ns.astype(np.object_)
    return np.asarray((2 * exact + HOUR_NS) // (2 * HOUR_NS), np.int64)


def _base(prices: Prices, kind: str | None) -> Decimal | None:
    """What counts where no rate fits."""
    if kind is None:
        return prices.base_rate
    return prices.owned.gpu_hour if kind == "owned" and prices.owned is not None else None


def _price(prices: Prices, rate: Rate) -> Decimal | None:
    if rate.gpu_hour is not None:
        return rate.gpu_hour
    return prices.owned.gpu_hour if prices.owned is not None else None


def _on(prices: Prices, rate: Rate, host: str) -> bool:
    return fnmatchcase(host, rate.hosts) and fnmatchcase(prices.hosts.model_of.get(host, ""), rate.model)


def _during(rate: Rate, time_ns: Ints) -> Mask:
    told = (time_ns >= 0) | ((rate.from_ns is None) & (rate.until_ns is None))
    after = True if rate.from_ns is None else time_ns >= rate.from_ns
    before = True if rate.until_ns is None else time_ns < rate.until_ns
    return np.asarray(told & after & before, np.bool_)


def unused_commitment_units(prices: Prices, used_rank_ns: Callable[[int], int], start_ns: int, end_ns: int) -> int:
    """Money for accelerators that are committed and that nobody held in a period, billionths.

    ``used_rank_ns`` says how much accelerator time the rate with this row of ``Prices.rates`` served.
    """
    total = 0
    for i, rate in enumerate(prices.rates):
        if rate.kind == "committed" and rate.accelerators is not None:
            first, last = max(start_ns, rate.from_ns or start_ns), min(end_ns, rate.until_ns or end_ns)
            left = rate.accelerators * max(last - first, 0) - used_rank_ns(i)
            total += (2 * rate_units(rate.gpu_hour) * max(left, 0) + HOUR_NS) // (2 * HOUR_NS)
    return total


def team_of(prices: Prices, job: str, name: str = "") -> str:
    """The team of a job by the prices, which name it by its id or its name; empty if they name none."""
    return next((team for jobs, team in prices.teams if fnmatchcase(job, jobs) or fnmatchcase(name, jobs)), "")
