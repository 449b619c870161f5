"""The charges of one file as rules see them: masks of rows, and what the rows cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taut.core.array_types import Floats, Ints, Mask
from taut.read.focus.focus_cells import PLACES
from taut.read.focus.focus_columns import KINDS, meant

FIRST = 5
"""Rows that are named of those that break a rule."""
PROVIDERS = 32
"""With more of them in a file, all count as one where rounding is judged."""


class Charged:
    """The charges of one file, as rules see them: masks of rows."""

    def __init__(self, table: pa.Table, version: str, names: Sequence[str], odd: dict[str, Mask]) -> None:
        self.table, self.version, self.names, self.odd = table, version, list(names), odd
        self.present = set(meant(names))
        self._codes: dict[str, tuple[list[str | None], Ints]] = {}

    def words(self, column: str) -> tuple[list[str | None], Ints]:
        """The distinct texts of a column and a code per row; null is the last of the texts."""
        if column not in self._codes:
            cells = self.table[column].unify_dictionaries().combine_chunks()
            texts = [*cells.dictionary.to_pylist(), None]
            self._codes[column] = texts, cells.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
        return self._codes[column]

    def null(self, column: str) -> Mask:
        """Where a column holds nothing, or a text of blanks."""
        if KINDS.get(column) in ("number", "time"):
            found: Mask = self.table[column].is_null().to_numpy(zero_copy_only=False)
            return found
        return self.where(column, lambda text: text is None or not text.strip())

    def there(self, column: str) -> Mask:
        """Where a column holds something."""
        return ~self.null(column)

    def where(self, column: str, holds: Callable[[str | None], bool]) -> Mask:
        """Where the text of a column has a property."""
        texts, code = self.words(column)
        return np.array([holds(text) for text in texts], dtype=np.bool_)[code]

    def is_(self, column: str, *values: str) -> Mask:
        """Where a column holds one of some texts."""
        return self.where(column, lambda text: text in values)

    def beyond(self, column: str, allowed: Iterable[str]) -> Mask:
        """Where a column holds something that is not allowed."""
        allowed = frozenset(allowed)
        return self.where(column, lambda text: text is not None and bool(text.strip()) and text not in allowed)

    def bad_json(self, column: str, *, flat: bool = False) -> Mask:
        """Where a text is no JSON object; with ``flat``, or holds other objects or lists."""
        return self.where(column, lambda text: text is not None and not _is_object(text, flat))

    def number(self, column: str) -> Floats:
        """A column as floats, for comparing within rounding only; NaN where there is nothing."""
        found: Floats = self.table[column].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return found

    def time(self, column: str) -> Ints:
        """A column of times in µs, the least of integers where there is none."""
        found: Ints = self.table[column].cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy(zero_copy_only=False)
        return found

    def half_unit(self, column: str, least: int) -> Floats:
        """Half of the last decimal that a column carries, in each row: of all rows of its provider the most decimals.

        ``least``: decimals that it is taken to carry in any case, because ends of zeros are not told from rounding.
        """
        texts, code = self.words("ServiceProviderName")
        one_group = len(texts) > PROVIDERS
        rows = [None] if one_group else [pa.array(code == one) for one in range(len(texts))]
        cells = self.table[column]
        digits = [max(least, _decimals(cells if mine is None else cells.filter(mine))) for mine in rows]
        half = 0.5 * 10.0 ** -np.array(digits, dtype=np.float64)
        return half[np.zeros_like(code) if one_group else code]

    def correction(self) -> Mask:
        """Rows that correct an invoiced period."""
        return self.is_("ChargeClass", "Correction")

    @cached_property
    def priced(self) -> Mask:
        """Rows of usage or purchase that are no correction."""
        return self.is_("ChargeCategory", "Usage", "Purchase") & ~self.correction()

    def money(self, rows: Mask) -> dict[str, Decimal]:
        """Billed cost of some rows by currency; where no currency is named, under the empty text."""
        texts, code = self.words("BillingCurrency")
        return {
            texts[one] or "": pc.sum(self.table["BilledCost"].filter(pa.array(rows & (code == one)))).as_py() or Decimal(0)
            for one in np.unique(code[rows]).tolist()
        }

    def places(self, rows: Mask) -> tuple[str, ...]:
        """``file:row`` of the first rows."""
        texts, code = self.words("file")
        row = self.table["row"]
        return tuple(f"{texts[code[at]]}:{row[at].as_py()}" for at in np.flatnonzero(rows)[:FIRST].tolist())


def _decimals(cells: pa.ChunkedArray) -> int:
    """The most decimals that any cell carries."""
    low, high = 0, PLACES
    while low < high:
        middle = (low + high) // 2
        if pc.all(pc.equal(pc.round(cells, middle), cells)).as_py() is not False:
            high = middle
        else:
            low = middle + 1
    return low


def _is_object(text: str, flat: bool) -> bool:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(found, dict) and not (flat and any(isinstance(one, dict | list) for one in found.values()))
