"""Charges meet holdings: every unit of money of a bill ends on the accelerator time that it paid for, or is named.

A charge for accelerators is divided over what was held on its host meanwhile, by accelerator time; what nobody held is idle.
Everything else of a bill is an item of its own, or a defect that takes it out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.errors import InputRefused
from taut.core.exact_parts import ManyShares
from taut.core.prices import HostFacts, Prices
from taut.core.tables import Table, concat
from taut.ledger.bill.capacity import SOURCES, Capacity, capacity_of, mark_single
from taut.ledger.bill.charge_rows import ChargeRows, of_currency
from taut.ledger.bill.closing import invoices, rounding_rows, unmatched
from taut.ledger.bill.defects import missing, time_zone
from taut.ledger.bill.defects.all_kinds import of_currencies, of_hosts, of_rows
from taut.ledger.bill.defects.cluster import like_ours
from taut.ledger.bill.defects.found import Found
from taut.ledger.bill.divided_charges import HOUR_NS, book_rows
from taut.ledger.bill.holdings import Holdings, host_codes
from taut.ledger.bill.host_rates import cost_units, rates_at
from taut.ledger.bill.hosts import Hosts, Met, meet
from taut.ledger.bill.open_period import is_open, mark_open
from taut.ledger.bill.period import Period
from taut.ledger.bill.rows import UNIT, Booked, Uncharged
from taut.ledger.bill.uncharged import used_without_charge
from taut.read.focus.focus_charged import Charged
from taut.read.focus.focus_reader import Charges
from taut.result.types import Defect, Invoice, Unmatched


class Booking(Struct, frozen=True, kw_only=True):
    """A bill, or prices, on what was held. Money is whole units, ``unit`` of them in one of the currency."""

    booked: Table
    """Rows of ``Booked``: with ``removed`` they add up to ``effective`` and ``billed``, to the unit."""
    uncharged: Table
    """Rows of ``Uncharged``: what was used, and is not in the bill."""
    period: Period | None
    """First moment and that behind the last; None where neither bill nor logs have dates."""
    open: bool
    currency: str | None
    unit: int
    effective: int | None
    """Effective cost of all charges of the period; None without a bill."""
    billed: int | None
    removed: int
    """Of the effective cost, what defects take out of the ledger."""
    removed_billed: int
    invoices: list[Invoice]
    unmatched: list[Unmatched]
    defects: list[Defect]
    notes: list[str]
    charges: int = 0
    """Charges of the period."""


def book(
    held: Table, charges: Charges, prices: Prices | None = None, *, period: Period | None = None, currency: str | None = None
) -> Booking:
    """Every charge of a bill on what was held.

    The prices say which resource is which host, how many accelerators a host has where the bill does not, and what those cost
    that the bill does not name. Raises InputRefused for a bill in two currencies, unless ``currency`` names one: the other's
    charges are a defect.
    """
    chosen, wanted = of_currency(charges, currency)
    given = prices.currency if prices is not None and _has_money(prices) else None
    if given and chosen and given.upper() != chosen and charges.table.num_rows:
        why = f"prices in {given} beside a bill in {chosen}: no currency is added to another"
        raise InputRefused(prices.origin if prices else "the prices", why, f"give them in {chosen}, or leave the bill out")
    checked = _check(held, charges, prices, period, chosen, np.flatnonzero(wanted))
    rows, whole = checked.rows, checked.period
    booked = book_rows(rows, checked.holdings, checked.capacity.count)
    rounded, rounded_billed = rounding_rows(rows)
    still_open = is_open(rows, whole)
    lost = used_without_charge(rows, checked.holdings, checked.capacity, whole, _host_rates(prices, rows))
    uncharged = mark_open(lost, rows, still_open)
    effective, billed, removed, removed_billed = _totals(rows, checked.effective, checked.billed)
    return Booking(
        booked=concat(Booked, [booked, rounded]),
        charges=int(rows.in_period.sum()),
        uncharged=uncharged,
        period=whole if whole != (0, 0) else None,
        open=still_open,
        currency=chosen or None,
        unit=rows.unit,
        effective=effective + int(rounded.effective.sum()),
        billed=billed + int(rounded.billed.sum()),
        removed=removed,
        removed_billed=removed_billed,
        invoices=invoices(rows, booked, rounded_billed, checked.billed),
        unmatched=unmatched(rows, checked.known_hosts),
        defects=[
            *of_currencies(charges, wanted),
            *(one.defect(rows, chosen or None) for one in (*checked.found, *missing.find(uncharged))),
        ],
        notes=[*rows.notes, *_notes(rows, checked.capacity, checked.empty)],
    )


def _has_money(prices: Prices) -> bool:
    """Whether prices have any amount of money; watts, hosts and teams have none."""
    told = (prices.base_rate, prices.kwh, prices.tariff, prices.triage, prices.delay_per_day, prices.budget)
    return any(one is not None for one in told) or bool(prices.rates or prices.sla or prices.fixes)


class _Checked(Struct):
    """Charges without what defects take out, and what they are booked on."""

    rows: ChargeRows
    holdings: Holdings
    capacity: Capacity
    period: Period
    found: list[Found]
    effective: Ints
    """Cost of each charge before, and below what is billed."""
    billed: Ints
    known_hosts: int
    empty: list[str]
    """Hosts that nobody held."""


def _check(held: Table, charges: Charges, prices: Prices | None, period: Period | None, currency: str, index: Ints) -> _Checked:
    """The charges in ``index``, which are of one currency, on their hosts, tried for defects."""
    names, code = host_codes(held.host)
    facts = prices.hosts if prices else HostFacts()
    known = Hosts(names, facts.resources)
    met = meet(Charged(charges.table, charges.version, [], {}), known)
    rows = ChargeRows(charges, Met(met.host[index], met.names), index, currency)
    month = rows.own_period()
    whole = period or month or (0, 0)
    holdings = Holdings(held, code, whole)
    found, by_ns = time_zone.find(rows, holdings)
    if by_ns and rows.shift(by_ns) and whole == (month or whole):  # the month is a local one as well
        whole = whole[0] + by_ns, whole[1] + by_ns
        holdings = Holdings(held, code, whole)
    rows.cut(whole)
    before = rows.effective.copy(), rows.billed.copy()
    mark_single(rows, holdings.most_at_once(len(rows.hosts)))
    found += of_rows(rows)
    empty = [*known.added, *like_ours(rows)]
    more, capacity = of_hosts(rows, capacity_of(rows, holdings, known, facts))
    return _Checked(rows, holdings, capacity, whole, [*found, *more], *before, len(names), empty)


def _totals(rows: ChargeRows, *charged: Ints) -> tuple[int, int, int, int]:
    """Charged in the period, effective and billed, and what of it defects took out."""
    some = rows.in_period
    left = [int(money[some].sum()) for money in (rows.effective, rows.billed)]
    whole = [int(money[some].sum()) for money in charged]
    return whole[0], whole[1], whole[0] - left[0], whole[1] - left[1]


def book_at_prices(held: Table, prices: Prices | None, period: Period | None = None) -> Booking:
    """Every held row at its price, without a bill; rows whose price is not known are not booked.

    Sums over a host and a rate do not depend on how its time is cut into rows.
    """
    names, code = host_codes(held.host)
    start, end, rank_ns = _inside(held, period)
    rate, money = _rates(held, prices, start, end, rank_ns)
    order = np.flatnonzero((money >= 0) & (rank_ns > 0))
    order = order[np.lexsort((order, rate[order], code[order]))]
    steady = rate[order] >= 0
    money = money[order]
    money[steady] = _at_rate(rank_ns[order][steady], rate[order][steady], code[order][steady])
    display = np.array([*names, ""], dtype=object)
    booked = Table(
        Booked,
        {
            "held": order,
            "item": np.full(len(order), "accelerator time", dtype=object),
            "host": display[code[order]],
            "start_ns": start[order],
            "end_ns": end[order],
            "rank_ns": rank_ns[order],
            "effective": money,
            "billed": money,
        },
        len(order),
    )
    back = np.argsort(order, kind="stable")
    return Booking(
        booked=booked.take(back),
        uncharged=Table(Uncharged, {}, 0),
        period=period,
        open=False,
        currency=prices.currency if prices else None,
        unit=UNIT,
        effective=None,
        billed=None,
        removed=0,
        removed_billed=0,
        invoices=[],
        unmatched=[],
        defects=[],
        notes=[],
    )


def _inside(held: Table, period: Period | None) -> tuple[Ints, Ints, Ints]:
    """Begin, end and accelerator time of held rows inside a period; rows without times are taken whole."""
    if period is None:
        return held.start_ns, held.end_ns, held.rank_ns
    dated = held.start_ns >= 0
    low, high = np.maximum(held.start_ns, period[0]), np.minimum(held.end_ns, period[1])
    whole = ~dated | ((held.start_ns >= period[0]) & (held.end_ns <= period[1]))
    length = np.maximum(held.end_ns - held.start_ns, 1)
    each, rest = np.divmod(held.rank_ns, length)
    inside = np.maximum(high - low, 0)
    part = each * inside + np.rint(rest * (inside / length)).astype(np.int64)
    return np.where(dated, low, -1), np.where(dated, high, held.end_ns), np.where(whole, held.rank_ns, part)


def _at_rate(rank_ns: Ints, rate: Ints, host: Ints) -> Ints:
    """Money of rows that are in the order of their hosts and rates: the sum over both is rounded, and shared out."""
    if not len(rank_ns):
        return np.zeros(0, dtype=np.int64)
    new = np.append(True, (host[1:] != host[:-1]) | (rate[1:] != rate[:-1]))
    # Where no host is named all jobs share one: their time together may not fit 64 bits, and is taken in stretches that do.
    most = max(1, (1 << 62) // int(rank_ns.max()))
    new[:: min(most, len(new))] = True
    first = np.flatnonzero(new)
    total, hour = np.add.reduceat(rank_ns, first), int(HOUR_NS)
    pairs = zip(rate[first].tolist(), total.tolist(), strict=True)
    whole = np.array([(2 * r * t + hour) // (2 * hour) for r, t in pairs], dtype=np.int64)
    return ManyShares(rank_ns, first).of_units(whole)


def _rates(held: Table, prices: Prices | None, start: Ints, end: Ints, rank_ns: Ints) -> tuple[Ints, Ints]:
    """Rate of each row, -1 where it changes meanwhile, and its money, -1 where that is not known."""
    if prices is None:
        return np.full(len(held), -1), np.full(len(held), -1)
    money = cost_units(prices, held.host, start, end, rank_ns)
    first, last = rates_at(prices, held.host, start), rates_at(prices, held.host, np.where(start < 0, -1, end - 1))
    borders = [at for rate in prices.rates for at in (rate.from_ns, rate.until_ns) if at is not None]
    crossed = np.zeros(len(held), dtype=np.bool_)
    for border in borders:
        crossed |= (start < border) & (border < end)
    return np.where(crossed | (first.units != last.units), -1, first.units), money


def _host_rates(prices: Prices | None, rows: ChargeRows) -> Ints:
    """What the prices say of an accelerator hour of each host, in the units of the bill; -1 for nothing."""
    if prices is None or not rows.hosts:
        return np.full(len(rows.hosts), -1)
    units = rates_at(prices, np.array(rows.hosts, dtype=object), np.full(len(rows.hosts), -1)).units
    return np.where(units < 0, -1, units // (UNIT // rows.unit))


def _notes(rows: ChargeRows, capacity: Capacity, empty: Sequence[str]) -> list[str]:
    """What was decided on the way."""
    used = np.unique(rows.host[rows.accelerator()])
    guessed = [rows.hosts[code] for code in used.tolist() if SOURCES[capacity.source[code]] == SOURCES[3]]
    said = []
    if guessed:
        said.append(
            f"accelerators of {_some(guessed)}: {SOURCES[3]}, because neither the bill nor the prices say how many there are"
        )
    if empty:
        said.append(f"{_some(empty)}: in the bill, and held by nobody: idle")
    return said


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more hosts" if len(names) > 3 else "")
