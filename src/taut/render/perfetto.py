"""A run as a Perfetto trace: what happened, whom it waited for, what was found, and the ideal beside it.

Ranks are processes, lanes are threads, ops are slices. The work of an op that waited is a slice inside it, and an arrow
(a flow) leads there from the op that arrived last at the gate. Waits, their blame and the findings are tracks of each
rank; controllers are tracks of a process of their own, their actions slices, and on the ranks that they hit once more, up to
the next op there. A viewer draws arrows forward in time: where
the clocks let a member begin its work before the last one arrived, the arrow is turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np

from taut.core.tables import NULL, Kind, Table
from taut.render.slices import Slices, Writer
from taut.result.types import Finding

if TYPE_CHECKING:
    from taut.core.tables import Array

PARTS = ("fault", "jitter", "structural", "gap", "unexplained")
"""What a wait is made of, in the order it is drawn."""

ACTION_WORDS = ("layer", "trigger", "work", "outcome")


class Times(NamedTuple):
    """When each op began, was let through its gate and ended, and what it did in between; ns."""

    start_ns: Array
    opening_ns: Array
    end_ns: Array
    work_ns: Array
    gap_ns: Array
    wait_ns: Array


class Spans(NamedTuple):
    """Where findings, or actions, lie."""

    which: Array
    """Row of the findings, or of the actions."""
    rank: Array
    """Row of ``members``."""
    start_ns: Array
    end_ns: Array


@dataclass(frozen=True)
class Picture:
    """What is shown of a run. Times are ns on one axis."""

    ops: Table
    names: Sequence[str]
    lanes: Sequence[str]
    groups: Sequence[str]
    members: Table
    rank: Array
    """Row of ``members`` that each op belongs to."""
    gate: Array
    observed: Times
    ideal: Times
    waits: Table
    findings: Sequence[Finding]
    spans: Spans
    """Of the findings."""
    actions: Table
    """What controllers did meanwhile, for ``busy_ns`` from ``time_ns`` on."""
    hits: Spans
    """Of the actions on the ranks that they hit: each ends where the next op there begins."""


def render(picture: Picture, out: BinaryIO) -> None:
    """Write the trace to a binary stream."""
    writer = Writer(out)
    observed, ideal = [], []
    for row, rank in enumerate(picture.members.rank.tolist()):
        labels = _labels(picture.members, row)
        observed.append(writer.process(f"rank {rank}", labels))
        ideal.append(writer.process(f"rank {rank}, ideal", labels))
    opener = np.full(len(picture.ops), NULL, dtype=np.int64)
    opener[picture.waits.op] = picture.waits.opener
    writer.slices(_ops(writer, picture, picture.observed, observed, opener))
    writer.slices(_waits(writer, picture, observed))
    writer.slices(_blame(writer, picture, observed))
    writer.slices(_findings(writer, picture, observed))
    writer.slices(_ops(writer, picture, picture.ideal, ideal))
    if len(picture.actions):
        writer.slices(_control(writer, picture.actions))
        writer.slices(_hits(writer, picture, observed))


def _labels(members: Table, row: int) -> list[str]:
    """What is known of a rank besides its number."""
    roles = [
        f"{word} {number}" for word, number in (("stage", members.stage[row]), ("dp rank", members.dp_rank[row])) if number >= 0
    ]
    gpu = f"GPU {members.gpu[row]}" if members.gpu[row] >= 0 else ""
    return [*roles, *(text for text in (members.host[row], gpu, members.device[row]) if text)]


def _ops(writer: Writer, picture: Picture, times: Times, processes: Sequence[int], opener: Array | None = None) -> Slices:
    """Every op on a thread of its rank."""
    ops, lanes = picture.ops, len(picture.lanes)
    start_ns, end_ns = times.start_ns, times.end_ns

    def describe(place: int, beside: int) -> int:
        rank, lane = divmod(place, lanes)
        name = picture.lanes[lane]
        return writer.track(name, beside) if beside else writer.thread(name, processes[rank])

    return Slices(
        track=writer.serial(picture.rank * lanes + ops.lane, start_ns, end_ns, describe),
        start_ns=start_ns,
        end_ns=end_ns,
        name=ops.name,
        names=picture.names,
        args={
            "step": ops.step,
            "part": ops.part,
            "gate": picture.gate,
            "seq": ops.seq,
            "bytes": ops.size,
            "work_ns": times.work_ns,
            "gap_ns": times.gap_ns,
            "wait_ns": times.wait_ns,
        },
        words={"kind": (ops.kind, [kind.name.lower() for kind in Kind]), "group": (ops.group, picture.groups)},
        opener=opener,
        opening_ns=times.opening_ns,
    )


def _waits(writer: Writer, picture: Picture, processes: Sequence[int]) -> Slices:
    """Every wait at a gate, with whom it was for and what it is made of."""
    waits, op = picture.waits, picture.waits.op
    start_ns, end_ns = picture.observed.start_ns[op], picture.observed.opening_ns[op]
    return Slices(
        track=_own(writer, "waits", processes, picture.rank[op], start_ns, end_ns),
        start_ns=start_ns,
        end_ns=end_ns,
        name=picture.rank[waits.opener],
        names=[f"waits for rank {rank}" for rank in picture.members.rank.tolist()],
        args={
            "step": picture.ops.step[op],
            "gate": picture.gate[op],
            "wait_ns": waits.wait_ns,
            **{f"{part}_ns": waits.columns[f"{part}_ns"] for part in PARTS},
        },
        words={"class": (picture.ops.name[op], picture.names)},
    )


def _blame(writer: Writer, picture: Picture, processes: Sequence[int]) -> Slices:
    """The parts of every wait, one after the other."""
    waits = picture.waits
    parts = np.stack([waits.columns[f"{part}_ns"] for part in PARTS], axis=1)
    row, part = np.nonzero(parts > 0)
    op, length = waits.op[row], parts[row, part]
    end_ns = picture.observed.start_ns[op] + np.cumsum(np.maximum(parts, 0), axis=1)[row, part]
    return Slices(
        track=_own(writer, "blame", processes, picture.rank[op], end_ns - length, end_ns),
        start_ns=end_ns - length,
        end_ns=end_ns,
        name=part,
        names=PARTS,
        args={"step": picture.ops.step[op], "gate": picture.gate[op], "waits_for_rank": picture.ops.rank[waits.opener[row]]},
        words={"class": (picture.ops.name[op], picture.names)},
    )


def _findings(writer: Writer, picture: Picture, processes: Sequence[int]) -> Slices:
    """Every finding over the steps it names, on each of its ranks."""
    findings, spans = picture.findings, picture.spans
    which, start_ns, end_ns = spans.which, spans.start_ns, spans.end_ns

    def each(key: str, dtype: str) -> Array:
        return np.array([getattr(f, key) for f in findings], dtype=dtype)[which]

    return Slices(
        track=_own(writer, "findings", processes, spans.rank, start_ns, end_ns),
        start_ns=start_ns,
        end_ns=end_ns,
        name=which,
        names=[f.mode for f in findings],
        args={
            "lost_rank_ns": each("lost_rank_ns", "i8"),
            "recoverable_wall_ns": each("recoverable_wall_ns", "i8"),
            "confidence": each("confidence", "f8"),
        },
        words={"id": (which, [f.id for f in findings]), "because": (which, [f.because for f in findings])},
    )


def _action_labels(actions: Table) -> list[str]:
    """Each action in a few words."""
    return [
        f"{knob} of {target}" + (f": {before or '?'} → {after}" if after else "")
        for knob, target, before, after in zip(actions.knob, actions.target, actions.before, actions.after, strict=True)
    ]


def _hits(writer: Writer, picture: Picture, processes: Sequence[int]) -> Slices:
    """Every action on the ranks that it hits, until their next op begins."""
    hits, actions = picture.hits, picture.actions
    who, by = np.unique(actions.controller.astype(str), return_inverse=True)
    names, name = np.unique(np.array(_action_labels(actions), dtype=str), return_inverse=True)
    return Slices(
        track=_own(writer, "actions", processes, hits.rank, hits.start_ns, hits.end_ns),
        start_ns=hits.start_ns,
        end_ns=hits.end_ns,
        name=name[hits.which],
        names=names.tolist(),
        args={},
        words={"controller": (by[hits.which], who.tolist())},
    )


def _control(writer: Writer, actions: Table) -> Slices:
    """Every action on the track of its controller."""
    process = writer.process("control")
    who, place = np.unique(actions.controller.astype(str), return_inverse=True)
    words = {key: np.unique(actions.columns[key].astype(str), return_inverse=True) for key in ACTION_WORDS}
    names, name = np.unique(np.array(_action_labels(actions), dtype=str), return_inverse=True)
    start_ns, end_ns = actions.time_ns, actions.time_ns + actions.busy_ns
    return Slices(
        track=writer.serial(
            place, start_ns, end_ns, lambda at, beside: writer.track(str(who[at]) or "unknown", beside or process)
        ),
        start_ns=start_ns,
        end_ns=end_ns,
        name=name,
        names=names.tolist(),
        args={"attempt": actions.attempt},
        words={
            "direction": (np.choose(actions.direction + 1, (1, NULL, 0)), ("up", "down")),
            **{key: (np.where(texts[code] == "", NULL, code), texts.tolist()) for key, (texts, code) in words.items()},
        },
    )


def _own(writer: Writer, name: str, processes: Sequence[int], rank: Array, start_ns: Array, end_ns: Array) -> Array:
    """Tracks of that name for the ranks that have something on them."""
    return writer.serial(rank, start_ns, end_ns, lambda place, _: writer.track(name, processes[place]))
