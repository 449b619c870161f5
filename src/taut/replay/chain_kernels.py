"""Kernels of replays that are asked for little: when windows end, and what chains of ops that are folded away carry."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Indices, Ints, Numbers
from taut.core.jit import kernel, numpy_twin_of_kernel


@kernel(lists=True)
def completions(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    slots: int,
    work: Ints,
    gap: Ints,
    window: Indices,
    windows: int,
    rank: Indices,
    ranks: int,
) -> tuple[Ints, Ints]:
    """When the last op of each window ends, and how long each rank waits: the recurrence of ``sweep``, which keeps more."""
    end = np.empty(len(work), np.int64)
    opens = np.full(slots + 1, -(1 << 62), np.int64)
    done, waits = np.zeros(windows, np.int64), np.zeros(ranks, np.int64)
    for event in events:
        if event >= 0:
            v = event
            t = 0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                t = max(t, end[pred[i]] + lag[i])
            t += gap[v]
            end[v] = t + work[v]
            if join[v] >= 0:
                opens[join[v]] = max(opens[join[v]], t)
        else:
            v = ~event
            longer = opens[wait[v]] + wait_lag[v] + work[v] - end[v]
            if longer > 0:
                end[v] += longer
                waits[rank[v]] += longer
        done[window[v]] = max(done[window[v]], end[v])
    return done, waits


ALONG, BLIND = 1, 2


@numpy_twin_of_kernel
def carried_plain(key: Indices, ops: Indices, heir: Indices, folded: Indices) -> int:
    """``carried`` by numpy."""
    mine = key[folded]
    return ALONG if np.array_equal(mine, key[ops[heir]]) else BLIND if (mine < 0).all() else 0


@kernel(plain=carried_plain)
def carried(key: Indices, ops: Indices, heir: Indices, folded: Indices) -> int:
    """ALONG if every folded op has the key of the op that it is folded into, else BLIND if none has a key, else 0."""
    along, blind = True, True
    for k in range(len(folded)):
        mine = key[folded[k]]
        along = along and mine == key[ops[heir[k]]]
        blind = blind and mine < 0
        if not along and not blind:
            return 0
    return ALONG if along else BLIND


@numpy_twin_of_kernel
def add_folded_plain(out: Floats, heir: Indices, folded: Indices, values: Numbers) -> int:
    """``add_folded`` by numpy."""
    out += np.bincount(heir, weights=values[folded], minlength=len(out))
    return len(folded)


@kernel(plain=add_folded_plain)
def add_folded(out: Floats, heir: Indices, folded: Indices, values: Numbers) -> int:
    """Add to each of some ops the values of those that are folded into it; returns how many these are."""
    passed = np.zeros(len(out), np.float64)
    for k in range(len(folded)):
        passed[heir[k]] += values[folded[k]]
    for k in range(len(out)):
        out[k] += passed[k]
    return len(folded)
