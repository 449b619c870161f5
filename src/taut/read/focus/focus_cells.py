"""Cells of a bill → decimals, times and JSON: money never passes through binary floats."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from taut.core.array_types import Ints, Mask
from taut.core.errors import InputRefused
from taut.read.dates import date_ns

PLACES = 18
"""Decimals that money is kept with."""
DIGITS = 38
# Nulls in numbers beyond those of texts.
NO_NUMBER = frozenset({"nan", "none", "n/a", "na", "null"})
_WIDE = Context(prec=100)
# The form that the specification wants: UTC, with T and Z.
_PROPER = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
# Of a written number; the length is capped because an exponent costs nothing to write.
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
CELL = 80
# A number of so many letters, if it has no exponent, fits. Beyond that: 21 digits, or an exponent that makes them.
SAFE = 20
_FAR = r"^\s*[+-]?(\d{21}|\d{11,}[^eE]*[eE]\+?\d|[^eE]*[eE]\+?0*[1-9]\d)"


class Place(Struct, frozen=True):
    """Where cells lie, for messages: their file, their column as the file calls it, and the row before the first of them."""

    label: str
    column: str
    before: int = 0

    def row(self, index: int) -> str:
        """The place of one cell."""
        return f"{self.label}, row {self.before + index + 1:,}"


class Rounded(Struct):
    """What was lost to the last decimal that is kept: cells and their sum, by column."""

    cells: dict[str, int] = field(default_factory=dict)
    amount: dict[str, Decimal] = field(default_factory=dict)

    def add(self, column: str, cells: int, amount: Decimal) -> None:
        """Book some cells."""
        if cells:
            self.cells[column] = self.cells.get(column, 0) + cells
            self.amount[column] = self.amount.get(column, Decimal(0)) + amount


def money_type() -> pa.DataType:
    """The type of every number of a bill."""
    return pa.decimal128(DIGITS, PLACES)


def decimals(cells: pa.Array, place: Place, lost: Rounded) -> pa.Array:
    """Numbers as decimals; refuses what is none, with its row. ``cells`` are texts, or numbers of a Parquet file."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_null(cells.type):
        return pa.nulls(len(cells), money_type())
    if pa.types.is_integer(cells.type) or _fits(cells.type):
        return cells.cast(money_type())
    if pa.types.is_decimal(cells.type) or pa.types.is_floating(cells.type):
        cells = _written(cells)
    if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
        why = f"column {place.column[:80]} holds {str(cells.type)[:40]}, not numbers"
        raise InputRefused(place.label, why, "write it as decimals")
    if _is_far(cells):
        return _one_by_one(cells, place, lost)
    try:
        return cells.cast(money_type())
    except pa.ArrowInvalid:
        pass
    try:  # more decimals than are kept: numbers that were binary floats once
        return _narrowed(cells.cast(pa.decimal256(76, 55)), place, lost)
    except pa.ArrowInvalid:
        return _one_by_one(cells, place, lost)


def _fits(kind: pa.DataType) -> bool:
    """Whether every decimal of a type is one that is kept."""
    return bool(pa.types.is_decimal(kind)) and 0 <= kind.scale <= PLACES and kind.precision - kind.scale <= DIGITS - PLACES


def _is_far(cells: pa.Array) -> bool:
    """Whether some number may have more digits before the point than are kept: Arrow does not refuse all of them, but wraps."""
    longest = pc.max(pc.binary_length(cells)).as_py() or 0
    if longest <= SAFE and not pc.any(pc.match_substring(cells, "e", ignore_case=True)).as_py():
        return False
    return bool(pc.any(pc.match_substring_regex(cells, _FAR)).as_py())


def _written(cells: pa.Array) -> pa.Array:
    """Numbers as texts: the shortest that mean a float, all digits of a decimal; what is not finite is nothing."""
    if pa.types.is_floating(cells.type):
        cells = pc.if_else(pc.is_finite(cells), cells, None)
    return cells.cast(pa.string())


def _narrowed(wide: pa.Array, place: Place, lost: Rounded) -> pa.Array:
    kept = pc.round(wide, PLACES, round_mode="half_to_even")
    moved = pc.not_equal(kept, wide)
    if pc.any(moved).as_py():
        off = pc.subtract(pc.sum(wide.filter(moved)), pc.sum(kept.filter(moved))).as_py()
        lost.add(place.column, pc.sum(moved).as_py(), off)
    return kept.cast(pa.decimal256(76, PLACES)).cast(money_type())


def _one_by_one(cells: pa.Array, place: Place, lost: Rounded) -> pa.Array:
    """The slow way, for cells with blanks around them, other words for nothing, or exponents far out."""
    coded = cells.dictionary_encode()
    found: list[Decimal | None] = []
    off: list[Decimal] = []
    for code, text in enumerate(coded.dictionary.to_pylist()):
        exact = _decimal(text)
        if exact is None and text.strip().lower() not in NO_NUMBER and text.strip():
            index = int(np.argmax(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False) == code))
            if text.strip().lower() == place.column.lower():
                raise InputRefused(place.row(index), "is a header again: files were put together", "take that row out")
            why = f"column {place.column[:80]} holds {text[:40]!r}, which is no number"
            raise InputRefused(place.row(index), why, "write numbers like -1234.5 or 1.5E-7, without currency and separators")
        kept = None if exact is None else _kept(exact)
        if exact is not None and kept is None:
            index = int(np.argmax(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False) == code))
            why = f"column {place.column[:80]} holds {text[:40]}, beyond 20 digits before the point"
            raise InputRefused(place.row(index), why, "check the number")
        found.append(kept)
        off.append(Decimal(0) if exact is None or kept is None else _WIDE.subtract(exact, kept))
    lengths = np.bincount(coded.indices.drop_null().to_numpy(zero_copy_only=False), minlength=len(found)).tolist()
    moved = [(count, one) for count, one in zip(lengths, off, strict=True) if one]
    lost.add(place.column, sum(count for count, _ in moved), sum((count * one for count, one in moved), Decimal(0)))
    return pa.array(found, money_type()).take(coded.indices)


def _decimal(text: str) -> Decimal | None:
    text = text.strip()
    return Decimal(text) if len(text) <= CELL and _NUMBER.fullmatch(text) else None


def _kept(exact: Decimal) -> Decimal | None:
    try:
        kept = exact.quantize(Decimal(1).scaleb(-PLACES), ROUND_HALF_EVEN, _WIDE)
    except InvalidOperation:
        return None
    return kept if abs(kept) < Decimal(10) ** (DIGITS - PLACES) else None


class Clock:
    """Times as they are written → µs since 1970; every text is understood once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int | None, bool]] = {}
        self.bare = 0
        """Distinct texts that name no zone: they are taken as UTC."""

    def times(self, cells: pa.Array) -> tuple[pa.Array, Mask]:
        """Times in UTC, and which cells are not written as the specification wants; null where a text is no time."""
        kind = pa.timestamp("us", "UTC")
        if pa.types.is_timestamp(cells.type) or pa.types.is_date(cells.type):
            self.bare += bool(len(cells)) and (pa.types.is_date(cells.type) or cells.type.tz is None)
            moments = cells.cast(pa.timestamp("us")) if pa.types.is_date(cells.type) else cells.cast(kind, safe=False)
            return moments.cast(kind), np.zeros(len(cells), dtype=np.bool_)
        if not pa.types.is_dictionary(cells.type):
            cells = cells.cast(pa.string()).dictionary_encode()
        known = [self._understood(text) for text in cells.dictionary.to_pylist()]
        us = pa.array([one for one, _ in known], pa.int64())
        code: Ints = cells.indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.int64)
        odd: Mask = np.array([*(not proper for _, proper in known), False], dtype=np.bool_)[code]
        return us.take(cells.indices).cast(kind), odd

    def _understood(self, text: str | None) -> tuple[int | None, bool]:
        if text is None:
            return None, True
        if text not in self._known:
            found = date_ns(re.sub(r" ?(UTC|GMT)$", "+00:00", text.strip())) if len(text) <= CELL else None
            self.bare += found is not None and found[1]
            self._known[text] = (None if found is None else found[0] // 1000, bool(_PROPER.fullmatch(text)))
        return self._known[text]


def as_json(cells: pa.Array) -> pa.Array:
    """Maps, lists and structs of a Parquet file as JSON texts; texts stay as they are."""
    if not pa.types.is_nested(cells.type):
        return cells
    return pa.array([None if one is None else _json(one) for one in cells.to_pylist()], pa.string()).dictionary_encode()


def _json(value: object) -> str:
    if isinstance(value, Sequence) and all(isinstance(one, tuple) and len(one) == 2 for one in value):
        value = dict(value)  # a map comes as pairs
    return json.dumps(value, default=str, ensure_ascii=False)
