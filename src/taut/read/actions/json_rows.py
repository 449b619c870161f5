"""Rows of JSON as columns: lines or a list of objects of which some keys are known, and most columns hold few values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import numpy as np

from taut.core.errors import InputRefused
from taut.read.columns import Codes, compact, joined
from taut.read.json_fields import Keys, line_slabs, sampled

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.core.array_types import Ints
    from taut.read.columns import Values

PIECE_BYTES = 4 << 20
PIECE_LINES = 20_000
END_BYTES = 1 << 20
# Rows that show which columns hold few values: at most one in so many rows is new.
PROBE, FEW = 256, 8
LISTED = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"actions"\s*:\s*\[')
T = TypeVar("T")
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Torn:
    """Counts the lines that could not be read."""

    count = 0

    def __call__(self, row: pa.csv.InvalidRow) -> str:
        """Pass over a row with too few or too many cells; pyarrow calls this."""
        self.count += 1
        return "skip"


@dataclass(frozen=True)
class Coded:
    """A column of texts and whole numbers: what it holds, each once, and which of it every row has."""

    values: list[str | int | None]
    code: Ints

    def __len__(self) -> int:
        return len(self.code)


Cells: TypeAlias = "pa.Array | Coded | Values"
"""Arrow array of strings, or what JSON held: coded, as an array of numbers, or as a list."""
Columns: TypeAlias = dict[str, Cells]
"""Spelling → cells."""


@dataclass(frozen=True)
class Rows:
    """Objects of which some keys are wanted."""

    known: frozenset[str]
    coded: frozenset[str]
    """Keys of which many objects hold the same: texts or whole numbers."""

    def lines(self, data: bytes, torn: Torn) -> Iterator[Columns]:
        """The columns of one object a line, piece by piece."""
        sure, row = self._sure(data), None
        end = 3 if data[:3] == b"\xef\xbb\xbf" else 0
        while end < len(data):
            begin, end = end, data.find(b"\n", end + PIECE_BYTES) + 1 or len(data)
            if row is None:
                try:
                    yield self._columns(line_slabs(data, msgspec.json.Decoder(sure), begin, end), sure, self.coded)
                    continue
                except _DAMAGE:
                    row = self._any(data)
            yield self._columns([_one_by_one(bytes(data[begin:end]), msgspec.json.Decoder(row), torn)], row, ())

    def lists(self, data: bytes, label: str) -> Iterator[Columns]:
        """The columns of a list of objects, some rows at a time."""
        raw = bytes(data).removeprefix(b"\xef\xbb\xbf")
        row, coded = self._sure(raw), self.coded
        try:
            try:
                rows = _listed(raw, row)
            except _DAMAGE:
                row, coded = self._any(data), frozenset()
                rows = _listed(raw, row)
        except _DAMAGE as error:
            raise InputRefused(label, f"not a readable list of actions ({str(error)[:120]})", "write it again") from None
        for i in range(0, len(rows), PIECE_LINES):
            yield self._columns([rows[i : i + PIECE_LINES]], row, coded)

    def _sure(self, data: bytes) -> type[msgspec.Struct]:
        """A struct of the keys that samples of a file show; it refuses other keys, and where coded other values."""
        kinds = {name: (str | int | None if name in self.coded else Any, None) for name in sorted(self.known)}
        return Keys(sampled(data)).struct("Row", kinds, gc=False)

    def _any(self, data: bytes) -> type[msgspec.Struct]:
        """A struct of the spellings that a file uses; of a large one its two ends are looked at."""
        ends = bytes(data) if len(data) <= 2 * END_BYTES else bytes(data[:END_BYTES] + data[-END_BYTES:])
        used = sorted(name for name in self.known if b'"%s"' % name.encode() in ends)
        return msgspec.defstruct("Row", [(name, Any, None) for name in used], gc=False)

    def _columns(self, slabs: Iterable[Sequence[msgspec.Struct]], row: type[msgspec.Struct], coded: Iterable[str]) -> Columns:
        """Rows as columns of values; they become text where they have to."""
        known = [name for name in row.__struct_fields__ if name in self.known]
        codes = {name: Codes() for name in known if name in coded}
        out: dict[str, list[Values]] = {name: [] for name in known if name not in codes}
        code_parts: dict[str, list[Ints]] = {name: [np.empty(0, dtype=np.int64)] for name in codes}
        together: list[str] | None = None
        sets = Codes()
        parts: list[Ints] = []
        for rows in slabs:
            together = _alike(rows, codes) if together is None else together
            if together:
                parts.append(sets.of(map(attrgetter(*together), rows)))
            for name, codes_so_far in code_parts.items():
                if name not in together:
                    codes_so_far.append(codes[name].of(map(attrgetter(name), rows)))
            for name, values in out.items():
                values.append(compact(list(map(attrgetter(name), rows))))
        for place, name in enumerate(together or ()):
            code_parts[name] = [codes[name].of(one[place] for one in sets)[np.concatenate(parts)]]
        columns: Columns = {name: joined(values) for name, values in out.items()}
        return columns | {name: Coded(list(words), np.concatenate(code_parts[name])) for name, words in codes.items()}


def _alike(rows: Sequence[msgspec.Struct], names: Iterable[str]) -> list[str]:
    """Columns of few values, by the first rows: coded together, because sets of their values are few as well."""
    few = [name for name in names if len(set(map(attrgetter(name), rows[:PROBE]))) <= PROBE // FEW]
    return few if len(few) > 1 else []


def _one_by_one(piece: bytes, decoder: msgspec.json.Decoder[T], torn: Torn) -> list[T]:
    """The rows of some lines, those left out that cannot be read."""
    try:
        return decoder.decode_lines(piece)
    except _DAMAGE:
        rows = []
    for line in filter(bytes.strip, piece.split(b"\n")):
        try:
            rows.append(decoder.decode(line))
        except _DAMAGE:
            torn.count += 1
    return rows


def _listed(raw: bytes, row: type[msgspec.Struct]) -> list[msgspec.Struct]:
    rows: Any = GenericAlias(list, row)
    many: Any = msgspec.defstruct("Rows", [("actions", rows)])
    return list(msgspec.json.decode(raw, type=many).actions if LISTED.match(raw) else msgspec.json.decode(raw, type=rows))
