"""Booked rows → every charge of a bill in parts, one for each job, fate and cause, as columns of FOCUS.

Parts go by the effective cost that the bill books on them, which goes by accelerator time. One ratio serves all amounts and
quantities of a charge: they are split at 18 decimals and add up to the charge exactly, and the ratios to exactly 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from taut.core.array_types import Ints, Mask, Texts
from taut.core.decimal_units import ONE, Wholes, decimals_of, units_of
from taut.core.exact_parts import ManyShares
from taut.core.ids import sums
from taut.core.tables import Table
from taut.ledger.bill.categories import category_of
from taut.ledger.bill.defects.left_out import NOT_BOOKED
from taut.ledger.bill.rows import UNIT

BLOCK = 1 << 16
"""Parts of one block, about; a charge is never in two."""
METHOD = "taut-accelerator-time"
"""Parts go by the accelerator time that each fate took of the charge (docs/focus.md)."""
SPLIT_COLUMNS = (
    "BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "PricingQuantity", "ConsumedQuantity",
    "CommitmentDiscountQuantity", "PricingCurrencyEffectiveCost",
)  # fmt: skip
COSTS = {"effective": "EffectiveCost", "billed": "BilledCost"}
WORDS = ("job", "team", "fate", "cause")
"""What parts of a charge are told apart by, beside their item."""
ORIGIN, RATIO, PAID_NS = "x_taut_origin", "x_taut_ratio", "paid_ns"


class Allocated(Struct, frozen=True):
    """All charges in parts."""

    charges: pa.Table
    charge: Ints
    """Of each part, the row of its charge; ascending, and every charge has at least one part."""
    key: Ints
    """Of each part, its row in ``keys``."""
    keys: pa.Table
    """Job, team, fate, cause, item and category; null for none."""
    weight: Ints
    rank_ns: Ints
    """Accelerator time that it pays for."""

    def __len__(self) -> int:
        return len(self.charge)

    @property
    def filled(self) -> frozenset[str]:
        """Columns of the blocks that are not empty."""
        theirs = [name for name in self.charges.column_names if self.charges[name].null_count < self.charges.num_rows]
        own = [f"x_taut_{name}" for name in self.keys.column_names if self.keys[name].null_count < self.keys.num_rows]
        allocated = ["AllocatedMethodId", "AllocatedMethodDetails"] if self._allocated().any() else []
        return frozenset([*theirs, *own, *allocated, RATIO, *(["AllocatedResourceId"] if "x_taut_job" in own else [])])

    def blocks(self) -> Iterator[pa.Table]:
        """The parts, some at a time, in the order of the charges; beside columns of FOCUS the accelerator time, ``paid_ns``."""
        first, allocated = self._first(), self._allocated()
        cuts = np.append(first, len(self))[np.searchsorted(first, np.arange(0, len(self), BLOCK))]
        for begin, end in zip(cuts, [*cuts[1:], len(self)], strict=True):
            if begin < end:
                yield self._block(slice(begin, end), allocated[begin:end])

    def _first(self) -> Ints:
        return np.flatnonzero(np.diff(self.charge, prepend=-1))

    def _allocated(self) -> Mask:
        """Parts of charges that were divided, or that a job has."""
        count = np.diff(self._first(), append=len(self))
        somebody: Mask = self.keys["job"].is_valid().to_numpy()
        return np.repeat(count > 1, count) | somebody[self.key]

    def _block(self, part: slice, allocated: Mask) -> pa.Table:
        charge = self.charge[part] - self.charge[part.start]
        first = np.flatnonzero(np.diff(charge, prepend=-1))
        shares = ManyShares(self.weight[part], first)
        some = self.charges.slice(int(self.charge[part.start]), len(first))
        keys = self.keys.take(pa.array(self.key[part])).combine_chunks()
        ratio = decimals_of(shares.of(np.full(len(first), ONE, dtype=object)), np.zeros(len(charge), dtype=np.bool_))
        return pa.table(
            {
                **_split(some, shares, charge),
                **{f"x_taut_{name}": keys[name] for name in keys.column_names},
                RATIO: ratio,
                "AllocatedMethodId": pa.array(np.full(len(charge), METHOD), pa.string(), mask=~allocated),
                "AllocatedResourceId": keys["job"],
                PAID_NS: pa.array(self.rank_ns[part], mask=~allocated),
            }
        )


def allocated_parts(held: Table, booked: Table, charges: pa.Table, unit: int = UNIT) -> Allocated:
    """All charges of a bill in parts, as its booked rows divide them; what is not booked is a part of its own.

    Parts carry what their charge has beyond units of money, so that booked rows of rounding, which have no charge, add nothing.
    """
    mine = booked.take(booked.charge >= 0)
    who, keys = _keys(held, mine)
    example, group = alike(joined(mine.charge, who))
    amounts = {name: sums(group, mine.columns[name], len(example)) for name in ("effective", "billed", "rank_ns")}
    charge, key = mine.charge[example], who[example]
    rest = {name: _rest(charges[column], charge, amounts[name], unit) for name, column in COSTS.items()}
    lacking = np.bincount(charge, minlength=charges.num_rows) == 0
    alone = np.flatnonzero((rest["effective"] != 0) | (rest["billed"] != 0) | lacking)
    charge, key = np.append(charge, alone), np.append(key, np.full(len(alone), keys.num_rows - 1))
    rest["rank_ns"] = np.zeros(len(lacking), dtype=np.int64)
    order = np.lexsort((key, charge))
    amounts = {name: np.append(some, rest[name][alone])[order] for name, some in amounts.items()}
    weight = _weights(charge[order], *amounts.values())
    return Allocated(_named(charges), charge[order], key[order], keys, weight, amounts["rank_ns"])


def _keys(held: Table, booked: Table) -> tuple[Ints, pa.Table]:
    """Of every booked row its key, and the keys; the last is that of what is not booked."""
    item, items = coded(booked.item)
    holder = np.zeros(len(held), dtype=np.int64)
    for word in WORDS:
        holder = joined(holder, coded(held.columns[word])[0])
    whose = np.append(holder, holder.max(initial=-1) + 1)[booked.held]  # -1 is nobody
    example, key = alike(joined(whose, item))
    row, item = booked.held[example], item[example]
    texts = {word: _texts(held.columns[word], row) for word in WORDS}
    words = {
        **texts,
        "item": pa.array(items, pa.string()).take(pa.array(item)),
        "category": _categories(item, items, texts["fate"]),
    }
    last = pa.table({name: pa.array([NOT_BOOKED if name in ("item", "category") else None], pa.string()) for name in words})
    return key, pa.concat_tables([pa.table(words), last]).combine_chunks()


def _texts(words: Texts, row: Ints) -> pa.Array:
    """The words of some rows; null for no row and for no word."""
    found = pa.array(words, pa.string()).take(pa.array(row, mask=row < 0))
    return pc.if_else(pc.equal(found, ""), pa.scalar(None, pa.string()), found)


def _categories(item: Ints, items: list[str], fates: pa.Array) -> pa.Array:
    told = fates.dictionary_encode()
    fate, words = told.indices.fill_null(-1).to_numpy().astype(np.int64), [*told.dictionary.to_pylist(), None]
    example, pair = alike(joined(item, fate + 1))
    names = [category_of(items[item[one]], words[fate[one]]).name for one in example]
    return pa.array(names, pa.string()).take(pa.array(pair))


def coded(words: Texts) -> tuple[Ints, list[str]]:
    """Words as codes, and what the codes mean."""
    found = pa.array(words, pa.string()).dictionary_encode()
    return found.indices.to_numpy().astype(np.int64), found.dictionary.to_pylist()


def joined(one: Ints, other: Ints) -> Ints:
    """Codes of the pairs of two codes, in their order."""
    return alike(one * (int(other.max(initial=0)) + 1) + other)[1]


def alike(codes: Ints) -> tuple[Ints, Ints]:
    """Of every code that is there the first place, and of every place the number of its code."""
    _, first, number = np.unique(codes, return_index=True, return_inverse=True)
    return first.astype(np.int64), number.astype(np.int64)


def _rest(costs: pa.ChunkedArray, charge: Ints, booked: Ints, unit: int) -> Ints:
    """Of every charge what is not booked, in units of money; less than one of them is none."""
    units, _ = units_of(costs.combine_chunks())
    left: Wholes = units - sums(charge, booked, len(units)).astype(object) * (ONE // unit)
    size: Ints = (abs(left) // (ONE // unit)).astype(np.int64)
    return np.where(left < 0, -size, size)


def _weights(charge: Ints, *amounts: Ints) -> Ints:
    """The first of some amounts that says how each charge is divided: all of one sign, and not all 0; else equal parts."""
    first = np.flatnonzero(np.diff(charge, prepend=-1))
    count = np.diff(first, append=len(charge))
    weight, todo = np.ones(len(charge), dtype=np.int64), np.ones(len(first), dtype=np.bool_)
    for amount in amounts if len(first) else ():
        low, high = np.minimum.reduceat(amount, first), np.maximum.reduceat(amount, first)
        good = todo & (((low >= 0) & (high > 0)) | ((high <= 0) & (low < 0)))
        weight = np.where(np.repeat(good, count), np.abs(amount), weight)
        todo &= ~good
    return weight


def _named(charges: pa.Table) -> pa.Table:
    """Charges with what each is called, its file and row, and without what an earlier export called its own."""
    kept = charges.select([name for name in charges.column_names if not name.startswith("x_taut_")]).unify_dictionaries()
    file = kept["file"].cast(pa.string())
    short = pc.replace_substring_regex(file, "^.*/", "")
    if len(short.unique()) == len(file.unique()):  # no two files of one name
        file = short
    origin = pc.binary_join_element_wise(file, kept["row"].cast(pa.string()), ":")
    if len(origin.unique()) < len(origin):  # one file twice
        origin = pc.binary_join_element_wise(origin, pa.array(np.arange(1, len(origin) + 1)).cast(pa.string()), "#")
    return kept.append_column(ORIGIN, origin).combine_chunks()


def _split(charges: pa.Table, shares: ManyShares, row: Ints) -> dict[str, pa.Array]:
    """The columns of some charges for their parts: amounts and quantities divided, everything else as it is."""
    columns: dict[str, pa.Array] = {}
    known: list[tuple[pa.Array, pa.Array]] = []
    for name in charges.column_names:
        column = charges[name].combine_chunks()
        if name not in SPLIT_COLUMNS or column.null_count == len(column):
            columns[name] = column.take(pa.array(row))
            continue
        # Costs are often the same: list, contracted, billed and effective.
        parts = next((parts for whole, parts in known if whole.equals(column)), None)
        if parts is None:
            units, missing = units_of(column)
            parts = decimals_of(shares.of(units), missing[row])
            known.append((column, parts))
        columns[name] = parts
    return columns
