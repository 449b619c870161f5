"""A packed timeline read again, as a script would read it: what the packed pages are checked with."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from taut.core.array_types import Bytes, Ints
from taut.result.view_types import PackedBlock, PackedSection, PackedTimeline, TimelineStep
from taut.views.packed_timeline import DTYPES


class Unpacked:
    """A packed timeline read again, as a script reads it."""

    def __init__(self, data: bytes) -> None:
        length = struct.unpack_from("<I", data)[0]
        self.header = msgspec.json.decode(data[4 : 4 + length], type=PackedTimeline)
        self._sections = data[4 + length :]

    @cached_property
    def blocks(self) -> list[PackedBlock]:
        """Where the ops are."""
        return msgspec.json.decode(self.text(self.header.blocks), type=list[PackedBlock])

    def text(self, section: PackedSection) -> bytes:
        """The bytes of a section."""
        return zlib.decompress(self._sections[section.begin : section.begin + section.bytes])

    def numbers(self, section: PackedSection) -> Ints:
        """The numbers of a section."""
        values = np.frombuffer(self.text(section), dtype=DTYPES[section.kind]).astype(np.int64)
        return values if section.kind != "u64" else values[: section.count] + (values[section.count :] << 32)

    def cells(self, begin_ns: int, end_ns: int, first_row: int, rows: int, columns: int, lines: int) -> Bytes:
        """Lines × columns codes of a frame, by nearest neighbours."""
        wall, lines = self.header.wall_ns, min(lines, rows)
        fine = [one for one in self.header.levels if wall * columns <= (end_ns - begin_ns) * one.columns]
        level = fine[0] if fine else self.header.levels[-1]
        middles = [(2 * begin_ns * columns + (2 * c + 1) * (end_ns - begin_ns)) // (2 * columns) for c in range(columns)]
        column = [middle * level.columns // wall for middle in middles]
        of_line = [first_row + (line * rows // lines + (line + 1) * rows // lines - 1) // 2 for line in range(lines)]
        line = [((row + 1) * level.lines - 1) // self.header.rows for row in of_line]
        whole = self.numbers(level.cells).astype(np.uint8).reshape(level.lines, level.columns)
        return whole[np.ix_(line, column)]

    def ops(self, begin_ns: int, end_ns: int, first_row: int, rows: int, steps: Sequence[TimelineStep]) -> Ints | None:
        """Numbers of the ops of a frame, ascending; None where some row has no block for a step that the frame overlaps."""
        shown = [at for at, one in enumerate(steps) if one.begin_ns < end_ns and one.end_ns > begin_ns]
        blocks = {(one.row, one.step): one for one in self.blocks}
        if any((row, at) not in blocks for row in range(first_row, first_row + rows) for at in shown):
            return None
        op, begin, wait, work = (self.numbers(self.header.ops[key]) for key in ("op", "begin_ns", "wait_ns", "work_ns"))
        end, found = begin + wait + work, set[int]()
        for row in range(first_row, first_row + rows):
            for at in shown:
                mine = slice(blocks[row, at].first, blocks[row, at].first + blocks[row, at].count)
                inside = (begin[mine] < end_ns) & ((end[mine] > begin_ns) | (begin[mine] >= begin_ns))
                found.update(op[mine][inside].tolist())
        return np.array(sorted(found), dtype=np.int64)
