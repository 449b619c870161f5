"""Steps of a trace that marks none: from what recurs in it."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Indices, Ints, Mask
from taut.core.ids import numbered
from taut.core.tables import Trace, Verb

MOST_TRIED = 1024
"""Periods that are tried one after the other, which is quick for short ones."""


def recurring(trace: Trace) -> Ints:
    """Steps of each rank from a recurring sequence of collectives, else from ops that all occur equally often."""
    ops = trace.ops
    out = np.zeros(len(ops), dtype=np.int64)
    order = np.lexsort((ops.start_ns, ops.rank))
    for mine in np.split(order, np.flatnonzero(np.diff(ops.rank[order])) + 1):
        calls = mine[ops.verb[mine] != Verb.NONE]
        # Name and size in one number; sizes are below 2⁴⁰ bytes.
        token = ops.name[calls].astype(np.int64) * (1 << 40) + ops.size[calls] + 1
        period = _period(token)
        if period:
            # A step ends with the last collective of each period; the last step runs to the end.
            cuts = ops.end_ns[calls[period - 1 :: period]][: len(token) // period - 1]
        else:
            cuts = ops.start_ns[_once_a_step(ops.name[mine], mine)][1:]
        out[mine] = np.searchsorted(cuts, ops.start_ns[mine], side="right")
    return out


def _once_a_step(name: Indices, rows: Ints) -> Ints:
    """Rows of the first op among those whose class occurs as often as most classes do: once a step."""
    count = np.bincount(name)
    often = np.bincount(count[count >= 3]) if (count >= 3).any() else np.zeros(1)
    if often.max() < 3:
        return rows[:1]
    steps = int(np.argmax(often))
    first = np.flatnonzero(count[name] == steps)[0]
    same: Mask = name == name[first]
    return rows[same]


def _period(token: Ints) -> int:
    """Smallest period that repeats at least three times over the whole sequence, 0 if none."""
    n = len(token)
    for period in range(1, min(n // 3, MOST_TRIED) + 1):
        if (token[period:] == token[:-period]).all():
            return period
    return _long_period(numbered(token)[0].tolist()) if n // 3 > MOST_TRIED else 0


def _long_period(token: list[int]) -> int:
    """The same in one pass (Knuth, Morris and Pratt), whatever the period is."""
    border, same = [0] * len(token), 0
    for i in range(1, len(token)):
        while same and token[i] != token[same]:
            same = border[same - 1]
        same += token[i] == token[same]
        border[i] = same
    period = len(token) - same
    return period if 3 * period <= len(token) else 0
