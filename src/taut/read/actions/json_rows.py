"""Rows of JSON as columns: lines or a list of objects of which some keys are known, and most columns hold few values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, cast

import msgspec

from taut.core.errors import InputRefused
from taut.read.columns import Codes, compact, joined
from taut.read.json_fields import Keys, line_slabs, sampled

PIECE_BYTES = 4 << 20
PIECE_LINES = 20_000
END_BYTES = 1 << 20
PROBE, FEW = 256, 8
"""Rows that tell which columns hold few values: at most one in so many rows is new."""
LISTED = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"actions"\s*:\s*\[')
Columns = dict[str, Any]
"""Spelling → Arrow array of strings, or what JSON held: coded, as an array of numbers, or as a list."""
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Torn:
    """Lines that could not be read."""

    count = 0

    def __call__(self, row: Any) -> str:
        """What pyarrow asks of a row with too few or too many cells."""
        self.count += 1
        return "skip"


@dataclass(frozen=True)
class Coded:
    """A column of texts and whole numbers: what it holds, each once, and which of it every row has."""

    values: list[Any]
    code: Any

    def __len__(self) -> int:
        return len(self.code)


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
                    yield self._columns(line_slabs(data, msgspec.json.Decoder(sure), begin, end), sure)
                    continue
                except _DAMAGE:
                    row = self._any(data)
            yield self._columns([_one_by_one(bytes(data[begin:end]), msgspec.json.Decoder(row), torn)], row, frozenset())

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

    def _sure(self, data: bytes) -> Any:
        """A struct of the keys that samples of a file show, which refuses any other key, and any other value where coded."""
        kinds = {name: (str | int | None if name in self.coded else Any, None) for name in sorted(self.known)}
        return Keys(sampled(data)).struct("Row", kinds, gc=False)

    def _any(self, data: bytes) -> Any:
        """A struct of the spellings that a file uses; of a large one its two ends tell."""
        ends = bytes(data) if len(data) <= 2 * END_BYTES else bytes(data[:END_BYTES] + data[-END_BYTES:])
        used = sorted(name for name in self.known if b'"%s"' % name.encode() in ends)
        return msgspec.defstruct("Row", [(name, Any, None) for name in used], gc=False)

    def _columns(self, slabs: Iterable[Sequence[Any]], row: Any, coded: frozenset[str] | None = None) -> Columns:
        """Rows as columns of values; they become text where they have to."""
        known = [name for name in row.__struct_fields__ if name in self.known]
        codes = {name: Codes() for name in known if name in (self.coded if coded is None else coded)}
        out: dict[str, list[Any]] = {name: [] for name in known}
        together: list[str] | None = None
        sets, parts = Codes(), []
        for rows in slabs:
            together = _alike(rows, codes) if together is None else together
            if together:
                parts.append(sets.of(map(attrgetter(*together), rows)))
            for name in known:
                if name not in together:
                    told = map(attrgetter(name), rows)
                    out[name].append(codes[name].of(told) if name in codes else compact(list(told)))
        for k, name in enumerate(together or ()):
            values = [one[k] for one in cast(Iterable[tuple[Any, ...]], sets)]
            out[name] = [codes[name].of(values)[joined(parts)]]
        whole = {name: joined(values) for name, values in out.items()}
        return {**whole, **{name: Coded(list(words), whole[name]) for name, words in codes.items()}}


def _alike(rows: Sequence[Any], names: Iterable[str]) -> list[str]:
    """Columns of few values, by the first rows: coded together, because sets of their values are few as well."""
    few = [name for name in names if len(set(map(attrgetter(name), rows[:PROBE]))) <= PROBE // FEW]
    return few if len(few) > 1 else []


def _one_by_one(piece: bytes, decoder: msgspec.json.Decoder[Any], torn: Torn) -> list[Any]:
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


def _listed(raw: bytes, row: Any) -> list[Any]:
    many: Any = msgspec.defstruct("Rows", [("actions", list[row])])
    if LISTED.match(raw):
        return list(msgspec.json.decode(raw, type=many).actions)
    return list(msgspec.json.decode(raw, type=list[row]))
