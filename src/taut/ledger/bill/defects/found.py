"""What a check of a bill hands on: the charges concerned, what is taken out of the ledger, and why."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Ints
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.hosts import NONE
from taut.ledger.bill.money_units import amount
from taut.result.types import Defect

MOST = 20
"""Defects of one kind that are listed one by one; more are put together."""


class Found(Struct, frozen=True):
    """A defect before it is printed."""

    kind: str
    rows: Ints
    """Charges concerned, rows of ``ChargeRows``."""
    because: str
    effective: Ints
    """What is taken out of the effective cost of each of them."""
    billed: Ints
    money: int | None = None
    """What it moves in units, where that is not what is taken out."""
    gone: bool = False
    """Whether the charges are taken out wholly: nothing else is wrong with them then."""
    unknown: bool = False
    """Whether nobody can tell what it moves."""

    def worth(self) -> int:
        """What it moves, in units; above 0: charged too much. Of what has no effective cost (a purchase), what is billed."""
        return (int(self.effective.sum()) or int(self.billed.sum())) if self.money is None else self.money

    def _of_what(self) -> str:
        only = self.money is None and not int(self.effective.sum()) and int(self.billed.sum())
        return ": billed, their effective cost is 0" if only else ""

    def defect(self, rows: ChargeRows, currency: str | None) -> Defect:
        """As it is printed."""
        return Defect(
            kind=self.kind,
            rows=len(self.rows),
            places=rows.places(self.rows),
            currency=currency,
            money=None if self.unknown else amount(self.worth(), rows.unit),
            because=self.because + self._of_what(),
        )


def whole(kind: str, rows: ChargeRows, some: Ints, because: str) -> Found:
    """A defect that takes charges out wholly."""
    return Found(kind, some, because, rows.effective[some], rows.billed[some], gone=True)


def take_out(rows: ChargeRows, found: list[Found]) -> list[Found]:
    """Take what defects take out of the charges. A bill of which no charge meets a host has no use to be held against: there
    they are only named."""
    if not (rows.host != NONE).any():
        return [reported_only(one.kind, one.rows, one.because, one.worth()) for one in found]
    for one in found:
        rows.effective[one.rows] -= one.effective
        rows.billed[one.rows] -= one.billed
        if one.gone:
            rows.kept[one.rows] = False
    return found


def reported_only(kind: str, some: Ints, because: str, money: int) -> Found:
    """A defect that takes nothing out."""
    nothing = np.zeros(len(some), dtype=np.int64)
    return Found(kind, some, because, nothing, nothing, money)


def by_code(code: Ints) -> list[tuple[int, Ints]]:
    """Each code that occurs, and where."""
    order = np.argsort(code, kind="stable")
    codes, first = np.unique(code[order], return_index=True)
    return list(zip(codes.tolist(), np.split(order, first[1:]), strict=True)) if len(codes) else []


def listed(found: list[Found]) -> list[Found]:
    """The largest of one kind one by one, all others of it as one."""
    if len(found) <= MOST:
        return found
    order = sorted(found, key=lambda one: -abs(one.worth()))
    rest = order[MOST - 1 :]
    together = replace(
        rest[0],
        rows=np.concatenate([one.rows for one in rest]),
        effective=np.concatenate([one.effective for one in rest]),
        billed=np.concatenate([one.billed for one in rest]),
        money=sum(one.worth() for one in rest),
        because=f"{len(rest):,} more of this kind",
    )
    return [*order[: MOST - 1], together]
