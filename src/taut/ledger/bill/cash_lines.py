"""What costs money and is in no charge for accelerators: broken promises, delay, hours of people. All given with the prices."""

from __future__ import annotations

from decimal import Decimal
from fnmatch import fnmatchcase

import numpy as np

from taut.core.array_types import Texts
from taut.core.ids import total
from taut.core.prices import Prices, Sla
from taut.core.tables import Table, concat
from taut.ledger.bill.entries import Entry
from taut.ledger.bill.host_rates import rates_at, unused_commitment_units
from taut.ledger.bill.period import DAY_NS, Period
from taut.ledger.bill.rows import UNIT

HOUR_NS = Decimal(3_600_000_000_000)
BROKEN = ("discarded", "discarded at most", "restore", "detect+recover", "unfinished")
"""Fates that are lost to failures."""
NOT_BILLED = ("SLA penalty", "delay", "triage hours", "electricity", "cooling", "network energy")
"""Items that no provider of accelerators charges: not part of what is compared with its bill."""


def cash_entries(prices: Prices, attempts: Table, held: Table, period: Period | None, unit: int) -> Table:
    """Entries of promises, delays and triage. Jobs count in the period in which they end."""
    rows = [*_triage(prices), *_delays(prices, attempts, period), *_penalties(prices, attempts, held, period)]
    if not rows:
        return Table(Entry, {}, 0)
    teams = dict(zip(held.job.tolist(), held.team.tolist(), strict=True))

    def texts(values: list[str]) -> Texts:
        return np.array(values, dtype=object)

    return concat(
        Entry,
        [
            Table(
                Entry,
                {
                    "item": texts([item for item, *_ in rows]),
                    "cause": texts([cause for _, cause, *_ in rows]),
                    "origin": texts([origin for _, _, origin, *_ in rows]),
                    "job": texts([job for *_, job, _, _ in rows]),
                    "team": texts([teams.get(job, "") for *_, job, _, _ in rows]),
                    "day": np.array([day for *_, day, _ in rows]),
                    "money": np.array([int((money * unit).to_integral_value()) for *_, money in rows], dtype=np.int64),
                    "priced": np.ones(len(rows), dtype=np.int8),
                },
                len(rows),
            )
        ],
    )


Row = tuple[str, str, str, str, int, Decimal]
"""Item, cause, from, job, day, money."""


def _triage(prices: Prices) -> list[Row]:
    triage = prices.triage
    if triage is None or triage.hours is None or triage.per_hour is None:
        return []
    money = Decimal(str(triage.hours)) * triage.per_hour
    return [("triage hours", "", f"{prices.origin}: triage, {triage.hours:g} h", "", -1, money)]


def _delays(prices: Prices, attempts: Table, period: Period | None) -> list[Row]:
    """What waiting before the first start is worth, job by job."""
    if prices.delay_per_day is None:
        return []
    out: list[Row] = []
    for job, (submit, start, _) in _spans(attempts).items():
        if submit >= 0 and start > submit and _counts(start, period):
            money = prices.delay_per_day * (start - submit) / DAY_NS
            out.append(
                ("delay", "queued before its first start", f"{prices.origin}: delay.per_day", job, start // DAY_NS, money)
            )
    return out


def _penalties(prices: Prices, attempts: Table, held: Table, period: Period | None) -> list[Row]:
    out: list[Row] = []
    if not prices.sla:
        return out
    lost, whole = _lost(held)
    called = dict(zip(attempts.job.tolist(), attempts.name.tolist(), strict=True))
    for job, (submit, start, end) in _spans(attempts).items():
        sla = next((one for one in prices.sla if fnmatchcase(job, one.jobs) or fnmatchcase(called[job], one.jobs)), None)
        if sla is None or not _counts(end - 1, period):  # one that ends with the period is of it
            continue
        since = submit if submit >= 0 else start
        hours = Decimal(end - since) / HOUR_NS if since >= 0 else None
        money, why = _penalty(sla, hours, lost.get(job, 0), whole.get(job, 0))
        if money:
            out.append(("SLA penalty", why, f"{prices.origin}: sla {sla.jobs}", job, end // DAY_NS, money))
    return out


def _penalty(sla: Sla, hours: Decimal | None, lost: int, whole: int) -> tuple[Decimal, str]:
    """What a job's broken promise costs, and which it is."""
    late = Decimal(0) if sla.promise_hours is None or hours is None else hours - Decimal(str(sla.promise_hours))
    least = sla.promise_availability
    allowed = None if least is None else (1 - Decimal(str(least))) * whole
    gone = Decimal(0) if allowed is None or not whole else (lost - allowed) / HOUR_NS
    beyond, why = (late, "ended later than promised") if late > 0 else (gone, "lost more to failures than promised")
    if beyond <= 0:
        return Decimal(0), ""
    return (sla.penalty or Decimal(0)) + (sla.penalty_per_hour or Decimal(0)) * beyond, why


def _lost(held: Table) -> tuple[dict[str, int], dict[str, int]]:
    """Job → accelerator time lost to failures, and all of it, ns."""
    lost: dict[str, int] = {}
    whole: dict[str, int] = {}
    broken = np.isin(held.fate, BROKEN)
    for job, ns, bad in zip(held.job.tolist(), held.rank_ns.tolist(), broken.tolist(), strict=True):
        whole[job] = whole.get(job, 0) + ns
        lost[job] = lost.get(job, 0) + (ns if bad else 0)
    return lost, whole


def commitment_entries(prices: Prices, held: Table, period: Period, unit: int) -> Table:
    """What is committed by the prices and was not used in a period; with a bill, that says so itself."""
    if all(rate.kind != "committed" or rate.accelerators is None for rate in prices.rates):
        return Table(Entry, {}, 0)
    served = rates_at(prices, held.host, held.start_ns).rate
    units = unused_commitment_units(prices, lambda row: total(held.rank_ns[served == row]), *period)
    return Table(
        Entry,
        {
            "item": np.array(["unused commitment"], dtype=object),
            "money": np.array([units // (UNIT // unit)]),
            "origin": np.array([f"{prices.origin}: committed rates"], dtype=object),
            "priced": np.ones(1, dtype=np.int8),
        },
        1,
    )


def _spans(attempts: Table) -> dict[str, tuple[int, int, int]]:
    """Job → first submission (-1: not told), first start, last end; of jobs that ran and whose times are dates."""
    out: dict[str, tuple[int, int, int]] = {}
    ran = (attempts.start_ns >= 0) & (attempts.end_ns >= attempts.start_ns) & (attempts.dated == 1)
    keys = (attempts.columns[name][ran].tolist() for name in ("job", "submit_ns", "start_ns", "end_ns"))
    for job, submit, start, end in zip(*keys, strict=True):
        before = out.get(job)
        if before is None:
            out[job] = (submit, start, end)
        else:
            earliest = min(one for one in (before[0], submit) if one >= 0) if max(before[0], submit) >= 0 else -1
            out[job] = (earliest, min(before[1], start), max(before[2], end))
    return out


def _counts(ns: int, period: Period | None) -> bool:
    return period is None or period[0] <= ns < period[1]
