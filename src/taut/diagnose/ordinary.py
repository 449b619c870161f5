"""What the ops of a rank would take if nothing were wrong with it, ordinary variation included.

A rank all of whose ops took the middle of what is usual would have lost its jitter and its stops as well. These are nobody's,
and no repair takes them away. So an op takes what ops of its class take at the same quantile, in the rank's other steps or on
other ranks, and never longer than it did. Where all ops of a class take longer than is usual, it is their level that is
mended: none strays further from the middle than it did, because what strayed there may have been an accident, and in steps
in which a rank stopped no more often than chance makes any rank stop, all of it stays.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Mask, Numbers
from taut.core.ids import coded
from taut.diagnose.slow_place import Series
from taut.graph import Graph

LOW = 0.1
"""Share of the ops of a class that take no longer than is usual, from which it has no level of its own."""
MOST_RANKS = 16
"""Other ranks that are asked what is usual: more would tell hardly more."""


def in_other_steps(series: Series, values: Ints, ops: Ints, slow: Mask, accidents: Mask) -> Floats:
    """For each op of a rank what it would take as outside some windows (a mask); NaN where its class has nothing there.

    Where a rank has an accident (mask, ranks × windows) an op strays as far as it did, and tells nothing of others.
    """
    cls, count = series.classes
    asked = np.zeros(count, dtype=bool)
    asked[cls[ops]] = True
    there = np.flatnonzero(asked[cls])
    rank, at = series.graph.rank_index, series.graph.window
    there = there[~slow[at[there]] & ~accidents[rank[there], at[there]]]
    return _as_usual(values[ops], cls[ops], values[there], cls[there], count, accidents[rank[ops], at[ops]])


def on_other_ranks(graph: Graph, values: Ints, ops: Ints, but: Collection[int], accidents: Mask | None = None) -> Floats:
    """The same as on other ranks of the role in the same windows, some ranks (indices) left out; NaN where there is none.

    Where accidents are not given, they are among what is usual.
    """
    if not len(ops):
        return np.zeros(0)
    mine, role = int(graph.rank_index[ops[0]]), graph.role_of_rank
    others = np.setdiff1d(np.flatnonzero(role == role[mine]), [mine, *but])
    if len(others) > MOST_RANKS:
        others = others[np.linspace(0, len(others) - 1, MOST_RANKS).astype(np.int64)]
    asked, window = np.zeros(len(role), dtype=bool), graph.window[ops]
    asked[others] = True
    there = np.flatnonzero(asked[graph.rank_index])
    there = there[(graph.window[there] >= window.min()) & (graph.window[there] <= window.max())]
    strays = np.zeros(len(ops), dtype=bool)
    if accidents is not None:
        strays, there = accidents[mine, window], there[~accidents[graph.rank_index[there], graph.window[there]]]
    rows = np.concatenate([ops, there])
    cls, count = coded(graph.ops.name[rows], graph.shape[rows], graph.place[rows], graph.ops.kind[rows])
    return _as_usual(values[ops], cls[: len(ops)], values[there], cls[len(ops) :], count, strays)


def _as_usual(values: Numbers, cls: Indices, usual: Numbers, its_cls: Indices, count: int, accidents: Mask) -> Floats:
    """For each value what is usual in its class at the same quantile; NaN where nothing tells. Accidents (a mask) stay."""
    own, there = _Sorted(values[~accidents], cls[~accidents], count), _Sorted(usual, its_cls, count)
    took, of = own.values, cls[~accidents][own.order]
    share = (np.arange(len(of)) - own.begin[of] + 0.5) / np.maximum(own.rows[of], 1)
    usually, middle = there.quantiles(of, share), there.medians[of]
    strays = took - own.medians[of]
    within = middle + np.where(strays > 0, np.clip(usually - middle, 0, strays), np.clip(usually - middle, strays, 0))
    low = np.bincount(of, took <= middle, minlength=count) >= LOW * own.rows
    mended = np.minimum(np.where(low[of], usually, within), took)
    out = np.empty(len(values))
    out[np.flatnonzero(~accidents)[own.order]] = mended
    # What strayed by accident was longer by what the class is longer on the mean; nothing is known of one without other ops.
    longer = np.bincount(of, took - mended, minlength=count) / np.maximum(own.rows, 1)
    out[accidents] = values[accidents] - longer[cls[accidents]]
    return out


class _Sorted:
    """Values of each class in ascending order."""

    def __init__(self, values: Numbers, cls: Indices, count: int) -> None:
        self.order = np.lexsort((values, cls))
        self.values: Floats = np.asarray(values, dtype=np.float64)[self.order]
        self.rows: Ints = np.bincount(cls, minlength=count)
        self.begin: Ints = np.cumsum(self.rows) - self.rows
        self.medians = self.quantiles(np.arange(count), np.full(count, 0.5))

    def quantiles(self, cls: Indices, share: Floats) -> Floats:
        """A quantile of the class of each row; NaN where it has no value."""
        most = np.maximum(self.rows[cls] - 1, 0)
        at = np.clip(share * self.rows[cls] - 0.5, 0, most)
        low = at.astype(np.int64)
        held = np.append(self.values, np.nan)
        first = np.where(self.rows[cls] > 0, self.begin[cls] + low, len(self.values))
        second = np.where(self.rows[cls] > 0, self.begin[cls] + np.minimum(low + 1, most), len(self.values))
        return np.asarray(held[first] + (at - low) * (held[second] - held[first]))
