"""Accelerators that are charged while a job that failed has not begun again: downtime, and no spare capacity."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.tables import Table
from taut.ledger.bill.cost_over_time import IDLE, idle_between
from taut.ledger.bill.rows import UNIT
from taut.result.types import AttemptRow, BillLine, BillResult, BillShare

DOWN, SPARE = "downtime after failures", "over-provisioning"
FAILED = ("failed", "node failed", "timed out", "out of memory")
"""Outcomes of attempts that ended against their will."""


class Window(Struct, frozen=True):
    """From the end of an attempt that failed to the begin of the next one of its job."""

    job: str
    start_ns: int
    end_ns: int


def windows(rows: Sequence[AttemptRow]) -> list[Window]:
    """Of every job, when it was down after a failure."""
    found = []
    for before, after in pairwise(rows):
        failed, end, start = before.job == after.job and before.outcome in FAILED, before.end_ns, after.start_ns
        if failed and end is not None and start is not None and start > end:
            found.append(Window(before.job, end, start))
    return found


def down_money(held: Table, booked: Table, some: Sequence[Window], unit: int = UNIT) -> Decimal:
    """What idle accelerators of the hosts of a job are charged while it is down."""
    whole = Decimal(0)
    for one in some:
        hosts = np.unique(held.host[held.job == one.job].astype(str))
        mine = booked.take(np.isin(booked.host.astype(str), hosts))
        whole += idle_between(mine, one.start_ns, one.end_ns) / Decimal(unit)
    return whole


def with_downtime(result: BillResult, down: Decimal) -> BillResult:
    """The bill with this much of its idle accelerators in a category of their own, which is direct."""
    line = next((one for one in result.lines if one.item == IDLE and one.category == SPARE and one.money), None)
    spare = next((one for one in result.categories if one.name == SPARE and one.money), None)
    if line is None or spare is None or not 0 < down <= Decimal(line.money or 0):
        return result
    part = float(down / Decimal(line.money or 1))
    lines = [each for one in result.lines for each in (_parts(one, down, part) if one is line else [one])]
    kept = [each for one in result.categories for each in (_shares(one, down, part, line) if one is spare else [one])]
    return replace(result, lines=lines, categories=kept)


def _parts(line: BillLine, down: Decimal, part: float) -> list[BillLine]:
    time = None if line.rank_ns is None else round(part * line.rank_ns)
    billed = None if line.billed is None else round(Decimal(line.billed) * Decimal(part), 9)
    first = replace(line, category=DOWN, kind="direct", fate="down", money=str(down), rank_ns=time, billed=_text(billed))
    rest = replace(
        line,
        money=str(Decimal(line.money or 0) - down),
        rank_ns=None if time is None else (line.rank_ns or 0) - time,
        billed=None if billed is None else str(Decimal(line.billed or 0) - billed),
    )
    return [first, rest]


def _text(value: Decimal | None) -> str | None:
    return None if value is None else str(value)


def _shares(one: BillShare, down: Decimal, part: float, line: BillLine) -> list[BillShare]:
    money, time = Decimal(one.money or 0), None if line.rank_ns is None else round(part * line.rank_ns)
    share = None if one.share is None or not money else float(down / money) * one.share
    first = BillShare(name=DOWN, money=str(down), share=share, rank_ns=time, joules=None, kg_co2e=None, lost=str(down))
    rest = replace(
        one,
        money=str(money - down),
        share=None if one.share is None or share is None else one.share - share,
        rank_ns=None if one.rank_ns is None or time is None else one.rank_ns - time,
        lost=str(money - down),
    )
    return [first, rest]
