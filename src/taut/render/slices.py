"""Processes, threads, tracks and slices in the format of Perfetto, written as they come.

The messages are those of the ``perfetto`` package (extra ``export``); tracks are built one by one, events in bulk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from taut.core.errors import TautError
from taut.core.tables import NULL
from taut.render.packets import stamp, weave
from taut.render.text import safe
from taut.render.track_order import BEGIN, WORK, WORKED, beside, in_order

if TYPE_CHECKING:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor

    from taut.core.tables import Array

LONGEST_TEXT = 500
"""Characters of a text that are kept: names come from traces."""
CHUNK = 1 << 16
"""Events turned into bytes at a time."""
DESCRIPTIONS = 1
"""The sequence of packets that describe tracks; slices come in later ones."""
NAMES, NAMED = 1, 2
"""Perfetto's flags of the packet that numbers the names of a sequence, and of those that use the numbers."""


@dataclass(frozen=True)
class Slices:
    """Intervals on tracks, one row each. An argument that is NULL is left out."""

    track: Array
    start_ns: Array
    end_ns: Array
    name: Array
    """Index into ``names``."""
    names: Sequence[str]
    args: Mapping[str, Array]
    words: Mapping[str, tuple[Array, Sequence[str]]] = field(default_factory=dict)
    """Arguments that are text: an index for each row, and the texts."""
    opener: Array | None = None
    """The row that held this one up, NULL if none did …"""
    opening_ns: Array | None = None
    """… and until when: its work is drawn inside it from then on, and an arrow leads there from the opener."""

    @property
    def held_up(self) -> Array:
        """The rows that another one held up."""
        return np.zeros(0, dtype=np.int64) if self.opener is None else np.flatnonzero(self.opener != NULL)


class Writer:
    """Writes one trace to a binary stream."""

    def __init__(self, out: BinaryIO) -> None:
        try:
            from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        except ImportError:
            raise TautError("a Perfetto trace needs the package perfetto: pip install 'taut[export]'") from None
        self._pb: ModuleType = perfetto_trace_pb2
        self._out = out
        self._tracks = self._sequences = 0

    def process(self, name: str, labels: Sequence[str] = ()) -> int:
        """Describe a process; the number of its track."""
        track = self._describe(name)
        track.process.pid, track.process.process_name = track.uuid, _text(name)
        track.process.process_labels.extend(map(_text, labels))
        return self._described(track)

    def track(self, name: str, process: int) -> int:
        """Describe a track of a process (or of another track); its number."""
        track = self._describe(name)
        track.parent_uuid = process
        return self._described(track)

    def thread(self, name: str, process: int) -> int:
        """Describe a thread of a process; the number of its track."""
        track = self._describe(name)
        track.thread.pid, track.thread.tid, track.thread.thread_name = process, track.uuid, _text(name)
        return self._described(track)

    def serial(self, place: Array, start_ns: Array, end_ns: Array, describe: Callable[[int, int], int]) -> Array:
        """A track for each row, such that no two rows of a track overlap.

        ``describe(place, 0)`` describes the track of a place, ``describe(place, track)`` another one beside it.
        """
        level = beside(place, start_ns, end_ns)
        levels = int(level.max(initial=0)) + 1
        used, which = np.unique(place * levels + level, return_inverse=True)
        numbers: list[int] = []
        for where, above in map(divmod, used.tolist(), [levels] * len(used)):
            numbers.append(describe(where, numbers[-above] if above else 0))
        return np.array(numbers, dtype=np.int64)[which]

    def slices(self, slices: Slices) -> None:
        """Write slices as a sequence of packets in the order of time."""
        self._sequences += 1
        sequence = _Sequence(self._pb, self._sequences, slices)
        self._out.write(sequence.names())
        rows, events, at_ns = in_order(slices.track, slices.start_ns, slices.end_ns, slices.opening_ns, slices.opener)
        for begin in range(0, len(rows), CHUNK):
            some = slice(begin, begin + CHUNK)
            self._out.write(weave(sequence.packets(rows[some], events[some], at_ns[some]), len(rows[some])))

    def _describe(self, name: str) -> TrackDescriptor:
        self._tracks += 1
        return self._pb.TrackDescriptor(uuid=self._tracks, name=_text(name))

    def _described(self, track: TrackDescriptor) -> int:
        packet = self._pb.TracePacket(trusted_packet_sequence_id=DESCRIPTIONS, track_descriptor=track)
        self._out.write(self._pb.Trace(packet=[packet]).SerializeToString())
        return int(track.uuid)


class _Sequence:
    """The packets of some slices: names are numbered once, after that all is numbers."""

    def __init__(self, pb: ModuleType, number: int, slices: Slices) -> None:
        self.pb, self.number, self.slices = pb, number, slices
        self.texts: list[str] = []
        self.args: list[tuple[str, str, Array]] = []
        """Name, the field that holds the value, and the values."""
        for name, values in slices.args.items():
            real = values.dtype.kind == "f"
            self.args.append((name, "double_value" if real else "int_value", values.astype("f8" if real else "i8")))
        for name, (index, texts) in slices.words.items():
            number_of = np.where(index >= 0, index + len(self.texts) + 1, NULL)
            self.args.append((name, "string_value_iid", number_of.astype(np.int64)))
            self.texts += texts
        self.known = sum(((values != NULL).astype(np.int64) << k for k, (_, _, values) in enumerate(self.args)), start=0)
        opener = slices.held_up if slices.opener is None else slices.opener[slices.held_up]
        self.flows = _flow(slices.held_up[np.argsort(opener, kind="stable")])
        self.fan = np.bincount(opener, minlength=len(slices.track))
        self.first_flow = np.cumsum(self.fan) - self.fan

    def names(self) -> bytes:
        """The packet that numbers all names."""
        packet = self._packet(NAMES)
        interned = packet.interned_data
        for number, text in enumerate([*self.slices.names, "work"], 1):
            interned.event_names.add(iid=number, name=_text(text))
        for number, (name, _, _) in enumerate(self.args, 1):
            interned.debug_annotation_names.add(iid=number, name=name)
        for number, text in enumerate(self.texts, 1):
            interned.debug_annotation_string_values.add(iid=number, str=_text(text).encode())
        return self._bytes(packet)

    def packets(self, rows: Array, events: Array, at_ns: Array) -> Iterator[tuple[Array, Array]]:
        """The events of some rows as packets, shape by shape: their places in the given order, and their bytes."""
        slices, bits = self.slices, len(self.args)
        begins = (self.fan << bits | self.known)[rows]
        shapes, shape = np.unique(np.where(events == BEGIN, begins, -np.minimum(events, WORKED)), return_inverse=True)
        for k, code in enumerate(shapes.tolist()):
            places = np.flatnonzero(shape == k)
            mine = rows[places]
            columns = [at_ns[places], slices.track[mine]]
            if code >= 0:
                args = [i for i in range(bits) if code >> i & 1]
                flows = self.flows[self.first_flow[mine][:, None] + np.arange(code >> bits)]
                columns += [slices.name[mine].astype(np.int64) + 1, flows, *(self.args[i][2][mine] for i in args)]
                yield places, stamp(partial(self._begin, args), columns)
            elif code == -WORK:
                yield places, stamp(self._work, [*columns, _flow(mine)])
            else:
                yield places, stamp(self._end, columns)

    def _begin(self, args: Sequence[int], values: Sequence[Any]) -> bytes:
        packet = self._event("TYPE_SLICE_BEGIN", *values[:2])
        packet.track_event.name_iid = values[2]
        packet.track_event.flow_ids.extend(values[3])
        for i, value in zip(args, values[4:], strict=True):
            packet.track_event.debug_annotations.add(name_iid=i + 1, **{self.args[i][1]: value})
        return self._bytes(packet)

    def _work(self, values: Sequence[Any]) -> bytes:
        packet = self._event("TYPE_SLICE_BEGIN", *values[:2])
        packet.track_event.name_iid = len(self.slices.names) + 1
        packet.track_event.flow_ids.append(values[2])  # not as its end: a viewer drops an arrow that ends before it begins
        return self._bytes(packet)

    def _end(self, values: Sequence[Any]) -> bytes:
        return self._bytes(self._event("TYPE_SLICE_END", *values))

    def _event(self, kind: str, at_ns: int, track: int) -> TracePacket:
        packet = self._packet(NAMED)
        packet.timestamp, packet.track_event.type, packet.track_event.track_uuid = at_ns, kind, track
        return packet

    def _packet(self, flags: int) -> TracePacket:
        return self.pb.TracePacket(trusted_packet_sequence_id=DESCRIPTIONS + self.number, sequence_flags=flags)

    def _bytes(self, packet: TracePacket) -> bytes:
        whole: bytes = self.pb.Trace(packet=[packet]).SerializeToString()
        return whole


def _flow(row: Array) -> Array:
    """The number of the arrow that leads to a row."""
    return (row + 1).astype(np.uint64)


def _text(text: str) -> str:
    """A text that is data: capped, and nothing in it that a terminal or a page would obey."""
    return safe(text[:LONGEST_TEXT])
