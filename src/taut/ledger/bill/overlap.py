"""Intervals of many hosts against each other: which overlap, what they cover together, and what they leave open."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Mask
from taut.core.ids import sums


class Spans(Struct, frozen=True):
    """Intervals, each of one host (a code); ns."""

    host: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.host)

    def take(self, index: Ints | Mask) -> Spans:
        """Some of them."""
        return Spans(self.host[index], self.start[index], self.end[index])

    @property
    def length(self) -> Ints:
        """How long each is, ns."""
        return self.end - self.start


def pairs(asked: Spans, among: Spans) -> tuple[Ints, Ints]:
    """Rows of both that share a host and some time, in order of the first.

    Those that are searched are taken by length, each class twice as long as the one before: a month's row among hourly ones
    then costs its own pairs only, and time and memory follow the number of pairs.
    """
    size = np.frexp(np.maximum(among.length, 1).astype(np.float64))[1]
    found = [_pairs_of(asked, among, np.flatnonzero(size == one)) for one in np.unique(size).tolist()]
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    left, right = np.concatenate([one[0] for one in found]), np.concatenate([one[1] for one in found])
    order = np.lexsort((right, left)) if len(found) > 1 else np.argsort(left, kind="stable")
    return left[order], right[order]


def covered_ns(spans: Spans, cover: Spans) -> Ints:
    """How much of each span lies in a cover whose own spans are apart."""
    left, right = pairs(spans, cover)
    return sums(left, shared_ns(spans.take(left), cover.take(right)), len(spans))


def _pairs_of(asked: Spans, among: Spans, rows: Ints) -> tuple[Ints, Ints]:
    """Pairs with some of those that are searched, of about equal length."""
    some = among.take(rows)
    order = np.lexsort((some.start, some.host))
    places = _Places(some.take(order))
    low = places.of(asked.host, asked.start - int(some.length.max()))
    high = places.of(asked.host, asked.end)
    count = np.maximum(high - low, 0)
    left = np.repeat(np.arange(len(asked)), count)
    right = rows[order[np.arange(len(left)) - np.repeat(np.cumsum(count) - count - low, count)]]
    met = (among.end[right] > asked.start[left]) & (among.start[right] < asked.end[left])
    return left[met], right[met]


class _Places:
    """Where intervals in order of host and start would be found."""

    def __init__(self, spans: Spans) -> None:
        self._times = np.unique(spans.start)
        self._keys = self._key(spans.host, spans.start)

    def of(self, host: Ints, time: Ints) -> Ints:
        """How many intervals lie before the first that belongs to a host and begins at a time or later."""
        return np.searchsorted(self._keys, self._key(host, time))

    def _key(self, host: Ints, time: Ints) -> Ints:
        # Hosts × ns would not fit 64 bits; hosts × distinct times do.
        key: Ints = host * (len(self._times) + 1) + np.searchsorted(self._times, time)
        return key


def shared_ns(one: Spans, other: Spans) -> Ints:
    """How long intervals overlap, row by row; 0 where they do not."""
    found: Ints = np.maximum(np.minimum(one.end, other.end) - np.maximum(one.start, other.start), 0)
    return found


def merged(spans: Spans) -> Spans:
    """What intervals cover together, host by host in order of time."""
    order = np.lexsort((spans.start, spans.host))
    some = spans.take(order)
    if not len(some):
        return some
    reach = reached(some)
    new = np.ones(len(some), dtype=np.bool_)
    new[1:] = (some.host[1:] != some.host[:-1]) | (some.start[1:] > reach[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(some)) - 1
    return Spans(some.host[first], some.start[first], reach[last])


def reached(ordered: Spans) -> Ints:
    """The latest end so far of the intervals of each host, which are in order of host."""
    times = np.unique(ordered.end)
    reach = np.maximum.accumulate(ordered.host * len(times) + np.searchsorted(times, ordered.end))
    return times[reach - ordered.host * len(times)]


def uncovered(hosts: Ints, cover: Spans, start: int, end: int) -> Spans:
    """What ``cover``, which is merged, leaves open of a period, on each of some hosts."""
    inside = cover.take((cover.end > start) & (cover.start < end) & np.isin(cover.host, hosts))
    # One interval of no length opens each host's period, so that what lies before its first cover is a gap like others.
    edge = np.full(len(hosts), start)
    rows = Spans(
        np.concatenate((hosts, inside.host)),
        np.concatenate((edge - 1, np.maximum(inside.start, start))),
        np.concatenate((edge, np.minimum(inside.end, end))),
    )
    rows = rows.take(np.lexsort((rows.start, rows.host)))
    stop = np.full(len(rows), end)
    follows = np.flatnonzero(rows.host[:-1] == rows.host[1:])
    stop[follows] = rows.start[follows + 1]
    gaps = Spans(rows.host, rows.end, stop)
    return gaps.take(gaps.length > 0)
