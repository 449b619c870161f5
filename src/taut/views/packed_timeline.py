"""A timeline in one piece of bytes, from which a script answers for frames without a server.

Layout, all numbers little-endian::

    u32                 bytes of the header
    header              JSON: ``result.view_types.PackedTimeline``
    sections            one zlib stream each, where the header says

Cells are codes of states, one byte each, line by line, 255 where nothing is. Column c of a level shows the time from
⌊c · wall / columns⌋ on, line l the rows from ⌊l · rows / lines⌋ on. A frame is answered by nearest neighbours:

* the level is the coarsest of which a column holds no more time than one of the frame, else the finest;
* cell (line, column) of the frame is that of the level at the middle of its time and at the middle one of its rows: column
  ⌊t · columns / wall⌋ at time t, line ⌊((r + 1) · lines − 1) / rows⌋ of row r.

Columns of ops hold the ops of some rows in some steps, block by block, those of a block by arrival. Where every row of a frame
has a block for each step that the frame overlaps, its ops are those of these blocks that overlap it, each once: an op that goes
on into the next step is in both blocks. ``wait_ns`` is opening − begin, ``work_ns`` end − opening. The two halves of a u64 are
lists of their own, because most upper ones are nought; a number is upper · 2³² + lower, exact in a script below 2⁵³ (104 days).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from taut.core.array_types import Bytes, Ints
from taut.result.types import Finding
from taut.result.view_types import (
    OpDetail,
    PackedBlock,
    PackedLevel,
    PackedSection,
    PackedTimeline,
    TimelineGates,
    TimelineStep,
)
from taut.views.frames import Frames
from taut.views.op_detail import OpDetails

FORMAT = 1
BUDGET = 1_500_000
"""Bytes of a packed timeline, unless told otherwise."""
CELLS, OPS, DETAILS = 0.6, 0.3, 0.1
"""Shares of the budget: of the finest level, of ops (and what levels leave), of their details."""
WHOLE_COLUMNS, WHOLE_LINES, LINES = 1_024, 256, 1_024
"""The level of the whole, and lines of finer ones at most."""
MOST_CELLS = 1 << 23
"""Of a level: what a browser unpacks at once."""
FINE = 16
"""Columns for each op of a row, at most: finer ones show nothing more."""
MOST_DETAILS, MOST_OF_DETAILS = 1_000, 0.25
"""Ops whose path is told (each takes a moment), and what share of the budget they may take where there is room."""
OP_BYTES = 9
"""Of an op, deflated, roughly."""
FINDINGS, ROWS = 5, 16
"""Findings whose steps are shown op by op, and rows of each step."""
DTYPES = {"u8": "<u1", "u16": "<u2", "u32": "<u4", "u64": "<u4"}
Cell = tuple[int, int]
"""A row, and the place of a step."""


def pack(frames: Frames, findings: Sequence[Finding] = (), budget_bytes: int = BUDGET) -> bytes:
    """The timeline in about so many bytes: cells of the whole run, and ops of the steps that people ask for first."""
    out = _Sections()
    levels = [out.level(cells) for cells in pyramid(frames, int(budget_bytes * CELLS))]
    left = budget_bytes - int(budget_bytes * DETAILS) - out.size
    blocks, ops = _blocks(frames, chosen_cells(frames, findings), max(left, int(budget_bytes * OPS)) // OP_BYTES)
    whole = frames.frame(0, frames.axis.wall_ns, 0, len(frames.graph.ranks), 1, 1)
    names, gate_names = _names(frames, ops, whole.gates)
    place = np.zeros(len(frames.graph.names), dtype=np.int64)
    place[names] = np.arange(len(names))
    placed, columns = out.text(blocks), _columns(frames, ops, place, out)
    room = max(int(budget_bytes * DETAILS), min(budget_bytes - out.size, int(budget_bytes * MOST_OF_DETAILS)))
    header = PackedTimeline(
        format=FORMAT,
        wall_ns=frames.axis.wall_ns,
        rows=len(frames.graph.ranks),
        levels=levels,
        blocks=placed,
        ops=columns,
        gates=out.text(msgspec.structs.replace(whole.gates, name=[int(place[one]) for one in gate_names])),
        left_out_gates=whole.left_out_gates,
        details=out.text(_details(frames, blocks, ops, room)),
        names=[frames.graph.names[int(one)] for one in names],
    )
    text = msgspec.json.encode(header)
    return struct.pack("<I", len(text)) + text + b"".join(out.parts)


def pyramid(frames: Frames, budget_bytes: int) -> list[Bytes]:
    """Cells of the whole run, the coarsest first: one or two finer levels, the finest as fine as fits once it is deflated."""
    rows, wall = len(frames.graph.ranks), frames.axis.wall_ns

    def cells(columns: int, lines: int) -> Bytes:
        return frames.cells(0, wall, 0, rows, columns, min(lines, rows))

    levels = [cells(min(WHOLE_COLUMNS, wall), WHOLE_LINES)]
    columns = levels[0].shape[1]
    most = min(wall, MOST_CELLS // min(LINES, rows), FINE * len(frames.graph) // rows)
    while 2 * columns <= most:
        finer = cells(2 * columns, LINES)
        if len(zlib.compress(finer.tobytes(), 6)) > budget_bytes:
            break
        columns = 2 * columns
        levels[1:] = [finer]
    ratio = columns // levels[0].shape[1]
    if ratio >= 16:
        between = 1 << ratio.bit_length() // 2
        levels.insert(1, cells(levels[0].shape[1] * between, LINES))
    return levels


def chosen_cells(frames: Frames, findings: Sequence[Finding]) -> list[Cell]:
    """Rows and steps that are worth their ops, the first the most: of findings, of the slowest and of a median step, of all."""
    steps = frames.axis.steps()
    took = np.array([one.end_ns - one.begin_ns for one in steps])
    shown: dict[Cell, None] = {}
    ranks: list[int] = []
    for finding in findings[:FINDINGS]:
        inside = [at for at, one in enumerate(steps) if finding.steps[0] <= one.step <= finding.steps[1]]
        mine = _rows_of(frames, finding)
        ranks += mine
        if inside:
            worst = max(inside, key=lambda at: took[at])
            shown |= dict.fromkeys((row, worst) for row in _spread(mine, len(frames.graph.ranks)))
    median = int(np.argsort(took, kind="stable")[len(took) // 2])
    for at in (int(took.argmax()), median):
        shown |= dict.fromkeys((row, at) for row in _spread(ranks, len(frames.graph.ranks)))
    every = ((row, at) for at in range(len(steps)) for row in range(len(frames.graph.ranks)))
    return list(shown | dict.fromkeys(every if len(frames.graph.ranks) * len(steps) <= len(frames.graph) else ()))


def _rows_of(frames: Frames, finding: Finding) -> list[int]:
    """Rows of the ranks that a finding names, or of the ends of its links."""
    ranks = finding.ranks or [int(rank) for link in finding.links for rank in link.split(":")]
    return [int(row) for row in np.flatnonzero(np.isin(frames.graph.ranks, ranks))]


def _spread(first: Iterable[int], rows: int) -> list[int]:
    """Some rows and, up to ROWS of them, others between all rows."""
    others = np.unique(np.linspace(0, rows - 1, min(ROWS, rows)).astype(np.int64)).tolist()
    return list(dict.fromkeys([*first, *others]))[: max(ROWS, 1)]


def _blocks(frames: Frames, cells: Sequence[Cell], most: int) -> tuple[list[PackedBlock], Ints]:
    """The ops of as many cells as fit, block by block in the order of rows and steps."""
    steps, found = frames.axis.steps(), dict[Cell, Ints]()
    for row, at in cells:
        ops = _ops_of(frames, row, steps[at], most)
        if ops is None:
            break
        most -= len(ops)
        found[row, at] = ops
    blocks, first = [], 0
    for (row, at), ops in sorted(found.items()):
        blocks.append(PackedBlock(row=row, step=at, first=first, count=len(ops)))
        first += len(ops)
    ordered = [ops for _, ops in sorted(found.items(), key=lambda one: one[0])]
    return blocks, np.concatenate([np.zeros(0, dtype=np.int64), *ordered])


def _ops_of(frames: Frames, row: int, step: TimelineStep, most: int) -> Ints | None:
    if step.end_ns <= step.begin_ns:
        return np.zeros(0, dtype=np.int64)
    return frames.ops_between(step.begin_ns, step.end_ns, row, 1, max(most, 0))


def _names(frames: Frames, ops: Ints, gates: TimelineGates) -> tuple[Ints, Ints]:
    """(Names that are used, as indices of the graph's; those of the gates, one each)."""
    members = frames.gates.members[frames.gates.first[np.array(gates.gate, dtype=np.int64)]]
    gate_names: Ints = frames.graph.ops.name[members].astype(np.int64)
    return np.unique(np.concatenate([frames.graph.ops.name[ops], gate_names])), gate_names


def _columns(frames: Frames, ops: Ints, place: Ints, out: _Sections) -> dict[str, PackedSection]:
    graph = frames.graph
    begin, end, work = frames.begins_ns(ops), frames.ends_ns(ops), graph.work_ns[ops]
    return {
        "op": out.numbers("u32", ops),
        "lane": out.numbers("u16", frames.axis.lane_places(ops)),
        "begin_ns": out.numbers("u64", begin),
        "wait_ns": out.numbers("u64", np.maximum(end - work - begin, 0)),
        "work_ns": out.numbers("u64", work),
        "state": out.numbers("u8", frames.state[ops]),
        "wait": out.numbers("u8", frames.wait[ops].view(np.uint8)),
        "name": out.numbers("u32", place[graph.ops.name[ops]]),
    }


def _details(frames: Frames, blocks: Sequence[PackedBlock], ops: Ints, budget_bytes: int) -> list[OpDetail]:
    """The longest wait of every block, the longest of all first, then the other waits, as far as they fit."""
    waited = frames.ends_ns(ops) - frames.graph.work_ns[ops] - frames.begins_ns(ops)
    longest = {one.first + int(waited[one.first : one.first + one.count].argmax()) for one in blocks if one.count}
    order = sorted(np.flatnonzero(waited > 0).tolist(), key=lambda at: (at not in longest, -int(waited[at]), int(ops[at])))
    found, asked, used, deflate = list[OpDetail](), OpDetails(frames), 0, zlib.compressobj(9)
    for op in list(dict.fromkeys(int(ops[at]) for at in order))[:MOST_DETAILS]:
        one = asked.by_number(op)
        used += len(deflate.compress(msgspec.json.encode(one)) + deflate.flush(zlib.Z_SYNC_FLUSH))
        if used > budget_bytes:
            break
        found.append(one)
    return found


class _Sections:
    """Deflated arrays behind each other."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def level(self, cells: Bytes) -> PackedLevel:
        """A level of cells."""
        return PackedLevel(columns=cells.shape[1], lines=cells.shape[0], cells=self.numbers("u8", cells.ravel()))

    def numbers(self, kind: str, values: NDArray[np.generic]) -> PackedSection:
        """Whole numbers."""
        if kind == "u64":
            wide = values.astype(np.int64)
            halves = np.concatenate([wide & 0xFFFFFFFF, wide >> 32])
            return self._add(kind, halves.astype(DTYPES[kind]).tobytes(), len(values))
        return self._add(kind, values.astype(DTYPES[kind]).tobytes(), len(values))

    def text(self, value: object) -> PackedSection:
        """Anything as JSON."""
        data = msgspec.json.encode(value)
        return self._add("json", data, len(data))

    def _add(self, kind: str, data: bytes, count: int) -> PackedSection:
        deflated = zlib.compress(data, 9)
        self.parts.append(deflated)
        self.size += len(deflated)
        return msgspec.convert(
            {"begin": self.size - len(deflated), "bytes": len(deflated), "kind": kind, "count": count}, PackedSection
        )
