"""Held rows as intervals of hosts, cut to a period: how much accelerator time of each lies between any two moments."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from taut.core.array_types import Floats, Ints, Texts
from taut.core.tables import Table
from taut.ledger.bill.hosts import NONE, short
from taut.ledger.bill.overlap import Spans, merged

if TYPE_CHECKING:
    from taut.ledger.bill.period import Period

LASTING = 0.01
"""Share of a host's busy time for which so many accelerators must be held together to count as had."""


def host_codes(hosts: Texts) -> tuple[list[str], Ints]:
    """Hosts as logs call them, and a code per row, -1 where none is named; one name in two spellings is one host.

    A name with a domain is that without it where logs use both.
    """
    coded = pa.array(hosts, pa.string()).dictionary_encode()
    texts = [text.strip() for text in coded.dictionary.to_pylist()]
    lower = {text.lower() for text in texts}
    kept = [short(text) if short(text) in lower else text.lower() for text in texts]
    place: dict[str, int] = {}
    names: list[str] = []
    for text, key in zip(texts, kept, strict=True):
        if key and key not in place:
            place[key] = len(names)
            names.append(text)
    told = np.array([place.get(key, NONE) for key in kept], dtype=np.int64)
    return names, told[coded.indices.to_numpy(zero_copy_only=False)] if len(told) else np.zeros(0, dtype=np.int64)


class Holdings:
    """Held rows on known hosts, inside a period; rows without times are spread evenly over it."""

    def __init__(self, held: Table, host: Ints, period: Period) -> None:
        timeless = held.start_ns < 0
        start = np.where(timeless, period[0], held.start_ns)
        end = np.maximum(np.where(timeless, period[1], held.end_ns), start + 1)
        low, high = np.maximum(start, period[0]), np.minimum(end, period[1])
        keep = (host != NONE) & (high > low) & (held.rank_ns > 0)
        self.index = np.flatnonzero(keep)
        self.spans = Spans(host[keep], low[keep], high[keep])
        self._start, self._length = start[keep], (end - start)[keep]
        self._each, self._rest = np.divmod(held.rank_ns[keep], self._length)

    def __len__(self) -> int:
        return len(self.index)

    def _until(self, row: Ints, time: Ints) -> Ints:
        """Accelerator time of held rows before a moment; exact where all of a row's accelerators are held throughout."""
        since, rest = time - self._start[row], self._rest[row]
        more = np.rint(rest * (since / self._length[row])).astype(np.int64) if rest.any() else rest
        found: Ints = self._each[row] * since + more
        return found

    def rank_ns(self, row: Ints, start: Ints, end: Ints) -> Ints:
        """Accelerator time of held rows from one moment to another, inside the row; 0 where they are in no order."""
        some = end > start
        return np.where(some, self._until(row, np.where(some, end, start)) - self._until(row, start), 0)

    @property
    def at_once(self) -> Floats:
        """Accelerators that each row holds at any moment."""
        found: Floats = self._each + self._rest / self._length
        return found

    @cached_property
    def busy(self) -> Spans:
        """When anything was held on each host."""
        return merged(self.spans)

    def largest(self, hosts: int) -> Ints:
        """The most accelerators that one row holds on each host."""
        most = np.zeros(hosts)
        np.maximum.at(most, self.spans.host, self.at_once)
        return np.ceil(most - 1e-3).astype(np.int64)

    def most_at_once(self, hosts: int) -> Ints:
        """The most accelerators that were held at once on each host, for at least a hundredth of its busy time.

        Jobs that follow each other often overlap by seconds in logs.
        """
        host = np.concatenate((self.spans.host, self.spans.host))
        time = np.concatenate((self.spans.start, self.spans.end))
        step = np.concatenate((self.at_once, -self.at_once))
        order = np.lexsort((step, time, host))  # ends before begins
        # All that a host gains it loses again: what earlier hosts leave in the sum is rounding alone.
        host, time, level = host[order], time[order], np.ceil(np.cumsum(step[order]) - 1e-3).astype(np.int64)
        lasts = np.append(np.diff(time), 0)
        some = np.flatnonzero((level > 0) & (lasts > 0))
        return _lasting(host[some], level[some], lasts[some], hosts)


def _lasting(host: Ints, level: Ints, lasts: Ints, hosts: int) -> Ints:
    """The highest level of each host that, with those above it, lasts a share of all its time."""
    order = np.lexsort((-level, host))
    host, level, lasts = host[order], level[order], lasts[order]
    first = np.searchsorted(host, np.arange(hosts))
    reached = np.cumsum(lasts)
    before = np.where(first > 0, reached[np.maximum(first - 1, 0)], 0) if len(host) else np.zeros(hosts, np.int64)
    busy = np.bincount(host, lasts, minlength=hosts)
    enough = (reached - before[host]) >= LASTING * busy[host]
    out = np.zeros(hosts, dtype=np.int64)
    np.maximum.at(out, host[enough], level[enough])
    return out
