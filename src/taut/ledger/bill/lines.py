"""Entries → lines by item, fate, cause and source, the categories above them, and drill-downs over the same money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, rows_of_ids, sums, weighed, word_ids
from taut.core.tables import Table
from taut.ledger.bill.categories import CATEGORIES, category_of
from taut.ledger.bill.period import day_text
from taut.ledger.bill.rows import UNIT
from taut.result.types import BillLine, BillShare

DRILLS = ("cause", "rank", "host", "job", "team", "day")
"""What a bill can be broken down by."""
ORIGINS = 2
"""Sources that a line names; the others are counted."""


Source: TypeAlias = Literal["measured", "modelled", "given"]
SOURCES: dict[str, Source] = {"measured": "measured", "modelled": "modelled", "given": "given"}


class Sums(Struct, frozen=True):
    """What groups of entries come to; None where no entry of a group has it."""

    money: list[int | None]
    billed: list[int | None]
    rank_ns: list[int | None]
    joules: list[float | None]
    kg_co2e: list[float | None]


class Coded:
    """Entries with their words as numbers, and the category of each."""

    def __init__(self, entries: Table) -> None:
        self.entries = entries
        self.codes: dict[str, Ints] = {}
        self.words: dict[str, list[str]] = {}
        for name in ("item", "fate", "cause", "source", "origin", "job", "team", "host"):
            codes, words = word_ids(entries.columns[name])
            self.codes[name], self.words[name] = codes.astype(np.int64), words
        self.category = self._categories()
        kinds = np.array([one.kind == "useful" for one in CATEGORIES], dtype=np.bool_)
        self.lost = ~kinds[self.category]

    def word(self, name: str, code: int) -> str | None:
        """The word of a code; None for the empty one."""
        return self.words[name][code] if code >= 0 else None

    def _categories(self) -> Ints:
        pair, count = numbered(self.codes["item"], self.codes["fate"])
        row = rows_of_ids(pair, count)
        place = {one.name: i for i, one in enumerate(CATEGORIES)}
        items, fates = self.codes["item"][row].tolist(), self.codes["fate"][row].tolist()
        found = [category_of(self.word("item", i) or "", self.word("fate", f)) for i, f in zip(items, fates, strict=True)]
        return np.array([place[one.name] for one in found], dtype=np.int64)[pair]


def lines(coded: Coded, unit: int = UNIT, billed: bool = False) -> list[BillLine]:
    """One line for each item, fate, cause and source: useful work first, then by category, the largest first in each."""
    codes = coded.codes
    group, count = numbered(codes["item"], codes["fate"], codes["cause"], codes["source"])
    row = rows_of_ids(group, count)
    sums, origins = summed(coded.entries, group, count), _origins(coded, group, count)
    out = []
    for i, at in enumerate(row.tolist()):
        about = CATEGORIES[int(coded.category[at])]
        out.append(
            BillLine(
                category=about.name,
                kind=about.kind,
                item=coded.word("item", int(codes["item"][at])) or "",
                fate=coded.word("fate", int(codes["fate"][at])),
                cause=coded.word("cause", int(codes["cause"][at])),
                rank_ns=sums.rank_ns[i],
                money=amount(sums.money[i], unit),
                billed=amount(sums.billed[i], unit) if billed else None,
                joules=sums.joules[i],
                kg_co2e=sums.kg_co2e[i],
                source=SOURCES[coded.entries.source[at]],
                origin=origins[i],
            )
        )
    place = {one.name: i for i, one in enumerate(CATEGORIES)}
    size = [(sums.money[i] or 0, sums.rank_ns[i] or 0, sums.joules[i] or 0.0) for i in range(count)]
    order = sorted(range(count), key=lambda i: (place[out[i].category], *(-one for one in size[i])))
    return [out[i] for i in order]


def _origins(coded: Coded, group: Ints, count: int) -> list[str]:
    """What the entries of each group are from, in words."""
    pair, pairs = numbered(group, coded.codes["origin"])
    row = rows_of_ids(pair, pairs)
    found: list[list[str]] = [[] for _ in range(count)]
    for one, code in zip(group[row].tolist(), coded.codes["origin"][row].tolist(), strict=True):
        found[one].append(coded.word("origin", code) or "")
    return [_joined([word for word in words if word]) for words in found]


def _joined(words: Sequence[str]) -> str:
    more = f" and {len(words) - ORIGINS} more" if len(words) > ORIGINS else ""
    return ", ".join(words[:ORIGINS]) + more


def categories(coded: Coded, unit: int = UNIT) -> list[BillShare]:
    """The money of every category that has entries, in their order."""
    sums = summed(coded.entries, coded.category, len(CATEGORIES))
    whole = total_money(coded.entries)
    there = set(np.unique(coded.category).tolist())
    out = [
        _share(one.name, i, sums, sums.money[i] if one.kind != "useful" else 0, whole, unit) for i, one in enumerate(CATEGORIES)
    ]
    return [share for i, share in enumerate(out) if i in there]


def drill(coded: Coded, by: str, unit: int = UNIT) -> list[BillShare]:
    """All entries by one of ``DRILLS``, the largest first, days in order; what belongs to none has the name None."""
    codes, names = _named(coded, by)
    group, count = numbered(codes)
    row = rows_of_ids(group, count)
    sums, whole = summed(coded.entries, group, count), total_money(coded.entries)
    lost = exact_sums(group, np.where(coded.lost, coded.entries.money, 0), count)
    out = [_share(names.get(int(codes[at])), i, sums, lost[i], whole, unit) for i, at in enumerate(row.tolist())]
    if by == "day":
        return sorted(out, key=lambda one: (one.name is None, one.name or ""))
    size = {id(one): (sums.money[i] or 0, sums.rank_ns[i] or 0) for i, one in enumerate(out)}
    return sorted(out, key=lambda one: (*(-part for part in size[id(one)]), one.name or ""))


def _named(coded: Coded, by: str) -> tuple[Ints, Mapping[int, str]]:
    """The code of each entry in a drill-down, below 0 for none, and what codes are called."""
    entries = coded.entries
    if by == "day":
        return entries.day.astype(np.int64), {day: day_text(day) for day in np.unique(entries.day).tolist() if day >= 0}
    if by != "rank":
        return coded.codes[by], dict(enumerate(coded.words[by]))
    ranked = entries.rank >= 0
    pair, count = numbered(np.where(ranked, coded.codes["job"], -1), entries.rank)
    row = rows_of_ids(pair, count)
    several = len(np.unique(coded.codes["job"][ranked])) > 1
    names = {}
    for one, at in enumerate(row.tolist()):
        host, job = entries.host[at], f"{entries.job[at]}: " if several else ""
        names[one] = f"{job}rank {entries.rank[at]}" + (f" ({host})" if host else "")
    return np.where(ranked, pair, -1), names


def _share(name: str | None, i: int, sums: Sums, lost: int | None, whole: int | None, unit: int) -> BillShare:
    money = sums.money[i]
    return BillShare(
        name=name,
        money=amount(money, unit),
        share=None if money is None or not whole else money / whole,
        rank_ns=sums.rank_ns[i],
        joules=sums.joules[i],
        kg_co2e=sums.kg_co2e[i],
        lost=None if money is None else amount(lost, unit),
    )


def total_money(entries: Table) -> int | None:
    """The money of all entries; None where none has any."""
    return summed(entries, np.zeros(len(entries), dtype=np.int64), 1).money[0] if len(entries) else None


def summed(entries: Table, group: Ints, count: int) -> Sums:
    """What groups of entries come to."""
    priced, timed = entries.priced == 1, entries.rank_ns >= 0
    some, when = np.bincount(group, priced, count) > 0, np.bincount(group, timed, count) > 0
    money, billed = (exact_sums(group, np.where(priced, one, 0), count) for one in (entries.money, entries.billed))
    rank_ns = exact_sums(group, np.where(timed, entries.rank_ns, 0), count)
    return Sums(
        money=_where(money, some),
        billed=_where(billed, some),
        rank_ns=_where(rank_ns, when),
        joules=_floats(entries.joules, group, count),
        kg_co2e=_floats(entries.kg_co2e, group, count),
    )


def _where(values: list[int], known: Mask) -> list[int | None]:
    return [value if there else None for value, there in zip(values, known.tolist(), strict=True)]


def _floats(values: Floats, group: Ints, count: int) -> list[float | None]:
    known = ~np.isnan(values)
    there = np.bincount(group, known, count) > 0
    found = weighed(group, np.where(known, values, 0.0), count)
    return [value if one else None for value, one in zip(found.tolist(), there.tolist(), strict=True)]


def exact_sums(group: Ints, values: Ints, count: int) -> list[int]:
    """Exact sums of groups, also beyond 64 bits: halves are summed apart."""
    high, low = sums(group, values >> 32, count), sums(group, values & 0xFFFFFFFF, count)
    return [(a << 32) + b for a, b in zip(high.tolist(), low.tolist(), strict=True)]


def amount(units: int | None, unit: int = UNIT) -> str | None:
    """Money as a decimal text: cents at least, and no more decimals than it has."""
    if units is None:
        return None
    whole, rest = divmod(abs(units), unit)
    decimals = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0") if unit > 1 else ""
    return f"{'-' if units < 0 else ''}{whole}.{decimals:0<2}"


def units_of(money: Decimal, unit: int = UNIT) -> int:
    """A given amount in whole units."""
    return int((money * unit).to_integral_value())
