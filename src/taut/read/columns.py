"""Small vectorised helpers that readers share: dictionary codes, containment, serial lanes."""

from __future__ import annotations

import gc
import heapq
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.core.array_types import Floats, Numbers
from taut.core.array_types import Ints as Ints  # readers of traces take them from here
from taut.core.array_types import Mask as Mask
from taut.core.tables import NULL

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from taut.core.array_types import Json

    Values: TypeAlias = NDArray[np.number] | list[Json]
    """What JSON held of one key: an array if all are numbers of one kind."""

# Neighbours may overlap by this much: old traces hold microseconds, and float64 keeps 0.25 µs of an epoch time.
ROUNDING_NS = 1_000


class Codes(dict[Any, int]):
    """A dictionary that gives every new key the next code."""

    def __missing__(self, key: Hashable) -> int:
        code = self[key] = len(self)
        return code

    def of(self, values: Iterable[Any]) -> Ints:
        """The codes of many values."""
        return np.fromiter(map(self.__getitem__, values), dtype=np.int64)


class Flags:
    """Whether each key of a growing dictionary passes a test, which is run once per key."""

    def __init__(self, codes: Codes, test: Callable[[str], object]) -> None:
        self._codes, self._test = codes, test
        self._flags = np.zeros(0, dtype=np.bool_)

    def __call__(self, codes: Ints) -> Mask:
        """One boolean per code."""
        known, size = len(self._flags), len(self._codes)
        if known < size:
            new = map(bool, map(self._test, islice(self._codes, known, None)))
            self._flags = np.append(self._flags, np.fromiter(new, dtype=np.bool_, count=size - known))
        return self._flags[codes]


def grouped(code: Ints) -> Ints:
    """The rows in the order of small codes, those of one code in their own order: radix sorts of 16 bits, not comparisons."""
    # numpy sorts stably by radix only keys of 16 bits, so larger codes take one pass for each 16 bits, lowest first.
    order = np.argsort(code.astype(np.uint16), kind="stable")
    for bits in range(16, int(code.max(initial=0)).bit_length(), 16):
        order = order[np.argsort((code[order] >> bits).astype(np.uint16), kind="stable")]
    return order


def whole_numbers(lists: Sequence[bytes]) -> tuple[Ints, Ints] | None:
    """The numbers in many lists of JSON, and how many are in each; None unless each has some, of digits, quoted or not."""
    text = b",".join(lists)
    if b'"' in text and 2 * text.translate(None, b"0123456789").count(b'""') != text.count(b'"'):
        return None  # a string that holds more than digits
    text = text.translate(None, b' \n\t\r"')
    if text.translate(None, b"0123456789[],"):
        return None
    letters = np.frombuffer(text, dtype=np.uint8)
    begins, commas = np.flatnonzero(letters == ord("[")), np.flatnonzero(letters == ord(","))
    if len(begins) != len(lists):
        return None
    # The lists are joined by commas, so there are as many commas before a list as numbers.
    length = np.diff(np.searchsorted(commas, begins), append=len(commas) + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older versions of numpy only warn of what is no number
            found = np.fromstring(text.translate(None, b"[]"), dtype=np.int64, sep=",")
    except (ValueError, DeprecationWarning):
        return None
    return (found, length) if len(found) == length.sum() and found.max(initial=0) < 2**63 - 1 else None


def compact(values: list[Json]) -> Values:
    """Values as an array if all are numbers of one kind, else as they are."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.array(values, dtype=np.float64)
    if kinds == {int}:
        with suppress(OverflowError):
            return np.array(values, dtype=np.int64)
    return values


def joined(parts: Sequence[Values]) -> Values:
    """Compact parts as one array if all are of one kind, else as one list."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if parts and len(arrays) == len(parts) and len({part.dtype for part in arrays}) == 1:
        return np.concatenate(arrays)
    return list(chain.from_iterable(part if isinstance(part, list) else part.tolist() for part in parts))


def float_or_nan(value: Json) -> float:
    """A number, or a text of one; NaN for anything else."""
    try:
        return float("nan") if isinstance(value, bool) or not isinstance(value, (int, float, str)) else float(value)
    except (ValueError, OverflowError):
        return float("nan")


def whole_or_null(values: Floats, most: float) -> Ints:
    """Numbers from 0 to ``most`` without their fractions; NULL for others and where there is none (NaN)."""
    good = (values >= 0) & (values <= most)
    return np.where(good, np.where(good, values, 0).astype(np.int64), NULL)


@contextmanager
def paused_gc() -> Iterator[None]:
    """No cyclic collection while millions of acyclic objects are made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def medians(ids: Ints, values: Numbers, count: int) -> Floats:
    """Median of the values of each id; 0 where there is none."""
    order = np.lexsort((values, ids))
    begin = np.searchsorted(ids[order], np.arange(count + 1))
    size, most = np.diff(begin), max(len(order) - 1, 0)
    low, high = (values[order][np.minimum(begin[:-1] + np.maximum(n, 0) // 2, most)] for n in (size - 1, size))
    return np.where(size > 0, (low + high) / 2, 0)


NEVER = np.iinfo(np.int64).min


def grouped_max(group: Ints, value: Ints) -> Ints:
    """The largest value before each row inside its group, NEVER for the first; rows are sorted by group."""
    if not len(value):
        return value
    # Ranks instead of values keep the lifted numbers small whatever the times are.
    ordered, rank = np.unique(value, return_inverse=True)
    lift = group.astype(np.int64) * (len(ordered) + 1)
    before = np.concatenate([[0], np.maximum.accumulate(lift + rank + 1)[:-1]]) - lift
    return np.where(before > 0, ordered[np.maximum(before, 1) - 1], NEVER)


def containing(group: Ints, start: Ints, end: Ints, in_group: Ints, at: Ints) -> Ints:
    """For each query (in_group, at): the index of the innermost interval of that group around it, or -1."""
    n, queries = len(start), len(at)
    found = np.full(queries, -1, dtype=np.int64)
    if not n or not queries:
        return found
    intervals = np.lexsort((-end, start, group))
    group, start, end = group[intervals], start[intervals], end[intervals]
    first, last = _last_begun(group, start, in_group, at)
    left = np.flatnonzero(last >= first)
    # Walking back passes siblings that ended earlier; deeper nesting than this does not occur around a launch.
    for _ in range(8):
        fits = end[last[left]] >= at[left]
        found[left[fits]] = intervals[last[left[fits]]]
        last[left] -= 1
        left = left[~fits & (last[left] >= first[left])]
    return found


def _last_begun(group: Ints, start: Ints, in_group: Ints, at: Ints) -> tuple[Ints, Ints]:
    """For each query (in_group, at) its group's first interval, and the last that began by then; that is before it if none did.

    Intervals are in order of group and start.
    """
    first, last = np.zeros(len(at), dtype=np.int64), np.full(len(at), -1, dtype=np.int64)
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    order = np.argsort(in_group, kind="stable")
    low, high = (np.searchsorted(in_group[order], group[begins], side).tolist() for side in ("left", "right"))
    for begin, stop, a, b in zip(begins.tolist(), np.append(begins[1:], len(group)).tolist(), low, high, strict=True):
        rows = order[a:b]
        first[rows] = begin
        last[rows] = begin + np.searchsorted(start[begin:stop], at[rows], "right") - 1
    return first, last


def serialise(lane: Ints, start: Ints, end: Ints, lanes: Codes) -> tuple[Ints, Ints, dict[str, int]]:
    """Lanes and ends such that the ops of a lane never overlap, and how many rows that touched.

    Overlaps within rounding are trimmed; what really overlaps moves to a spill lane ``name/1``, ``name/2`` …
    """
    order = np.lexsort((end, start, lane))
    lane, end = lane.copy(), end.copy()
    sorted_lane, sorted_start, sorted_end = lane[order], start[order], end[order]
    # Of two neighbours in a lane, by how much the first reaches into the second.
    over = np.zeros(len(order), dtype=np.int64)
    over[:-1] = np.where(sorted_lane[1:] == sorted_lane[:-1], sorted_end[:-1] - sorted_start[1:], 0)
    rounding = (over > 0) & (over <= ROUNDING_NS) & (sorted_end - sorted_start > over)
    sorted_end[rounding] -= over[rounding]
    end[order] = sorted_end
    clash = sorted_start < grouped_max(sorted_lane, sorted_end)
    moved = _spill(lane, start, end, order, np.unique(sorted_lane[clash]), lanes)
    counts = {"trimmed: overlap within rounding": int(rounding.sum()), "overlapping in a lane": moved}
    return lane, end, {reason: n for reason, n in counts.items() if n}


def _spill(lane: Ints, start: Ints, end: Ints, order: Ints, crowded: Ints, lanes: Codes) -> int:
    names = list(lanes)
    moved = 0
    sorted_lane = lane[order]
    for code in crowded.tolist():
        rows = order[np.searchsorted(sorted_lane, code, "left") : np.searchsorted(sorted_lane, code, "right")]
        track = _tracks(start[rows], end[rows])
        spilled = np.flatnonzero(track)
        lane[rows[spilled]] = lanes.of(f"{names[code]}/{track[i]}" for i in spilled.tolist())
        moved += len(spilled)
    return moved


def _tracks(start: Ints, end: Ints) -> Ints:
    """The lowest free track for each interval, in order of start."""
    # What begins when all before it have ended finds every track free; only intervals that touch others are walked through.
    begins = np.flatnonzero(np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1]))
    size = np.diff(np.append(begins, len(start)))
    rows = np.flatnonzero(np.repeat(size > 1, size))
    track = np.zeros(len(start), dtype=np.int64)
    track[rows] = _walked(start[rows].tolist(), end[rows].tolist())
    return track


def _walked(start: list[int], end: list[int]) -> list[int]:
    """The same, one interval after the other."""
    busy: list[tuple[int, int]] = []
    free: list[int] = []
    tracks: list[int] = []
    used = 0
    for begin, finish in zip(start, end, strict=True):
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            track = heapq.heappop(free)
        else:
            track, used = used, used + 1
        heapq.heappush(busy, (finish, track))
        tracks.append(track)
    return tracks
