"""Events that begin and end apart (``ph`` B and E), joined: other writers of the format leave lengths out."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from taut.read.kineto.json_events import Batch, Event, Place

BEGIN, END = "B", "E"


def joined(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches with every end joined to the latest beginning on its thread that is still open."""
    open_on: dict[tuple[Place, Place], list[Event]] = {}
    for header, events, odd in batches:
        found = [event for event in events if event.ph not in (BEGIN, END)]
        for event in events:
            mine = open_on.setdefault((event.pid, event.tid), []) if event.ph in (BEGIN, END) else []
            if event.ph == BEGIN:
                mine.append(event)
            elif event.ph == END and mine:
                begun = mine.pop()
                if begun.ts is not None and event.ts is not None:
                    found.append(replace(begun, ph="X", dur=event.ts - begun.ts))
        yield header, found, odd
