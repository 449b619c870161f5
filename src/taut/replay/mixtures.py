"""Many replays of one graph at once, each with work and gaps mixed from the same few ingredients.

An ingredient is a number of ns for every op: its work at reference, its excess, its transfer, the gap before it. A
column mixes them: column k takes Σ share[i, k] · ingredient i. So jitter twice as large, gaps left out or transfers for
nothing are columns of one sweep. Chains of ops that nobody else looks at are added up first; that is exact, except that
a column may not make a whole chain shorter than nothing, where a replay would ask it of every op.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from taut.core.array_types import Codes, Floats, Indices, Ints, Mask, Numbers
from taut.core.jit import kernel, numpy_twin_of_kernel
from taut.replay.chain_kernels import add_folded
from taut.replay.timeline import Batch, window_times


class Grid(Struct, frozen=True):
    """Ingredients prepared for the short program of a batch: what counts before an op's gate, and what after it."""

    batch: Batch
    before: Floats
    """Ops of the program × ingredients, ns."""
    after: Floats

    def walls(self, share: Floats) -> Floats:
        """Window lengths, one column per column of ``share`` (ingredients × columns), ns."""
        done, _ = self._sweep(share, 0)
        return window_times(self.batch.graph, done)

    def arrivals(self, share: Floats) -> Floats:
        """When each op of the program arrives, ops × columns, ns."""
        return self._sweep(share, len(self.before))[1]

    def with_after(self, *work: Numbers) -> Grid:
        """The grid with more ingredients that count after the gate, each given per op of the program: no folded op has any."""
        more = np.stack(work, axis=1)
        return Grid(self.batch, np.hstack([self.before, np.zeros_like(more)]), np.hstack([self.after, more]))

    def _sweep(self, share: Floats, rows: int) -> tuple[Floats, Floats]:
        p = self.batch.short
        shares = np.ascontiguousarray(share, dtype=np.float64)
        return mix(*p.arrays, len(self.batch.graph.steps), self.before, self.after, shares, rows)


def grid(batch: Batch, before: Iterable[Numbers | None], after: Iterable[Numbers | None]) -> Grid:
    """Prepare ingredients, each given per op as ns before its gate (gap) and after it (work); None is nothing.

    The lags inside folded chains belong to the first ingredient. Of a generator one ingredient at a time is held.
    """
    p = batch.short
    columns: list[tuple[Floats, Floats]] = []
    for gap, work in zip(before, after, strict=True):
        column = np.zeros(len(p.ops)), np.zeros(len(p.ops))
        for side, values in zip(column, (gap, work), strict=True):
            if values is not None:
                side[:] = values[p.ops]
                # A folded op counts before the gate of the op that ends its chain, its work as well as its gap.
                add_folded(column[0], p.heir, p.folded, values)
        columns.append(column)
    if p.onward_ns.any():
        columns[0][0][:] += np.bincount(p.heir, weights=p.onward_ns, minlength=len(p.ops))
    return Grid(batch, *(np.stack(side, axis=1) for side in zip(*columns, strict=True)))


@numpy_twin_of_kernel
def mix_plain(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    op_register: Codes,
    slot_register: Codes,
    n_ops: int,
    n_slots: int,
    window: Indices,
    closes: Mask,
    windows: int,
    before: Floats,
    after: Floats,
    share: Floats,
    rows: int,
) -> tuple[Floats, Floats]:
    """``mix`` with numpy over the columns."""
    columns = share.shape[1]
    state, done = np.zeros((n_ops + 1, columns)), np.zeros((windows, columns))
    opens: dict[int, Floats] = {}
    came = np.zeros((rows, columns))
    gap, work = np.maximum(before @ share, 0.0), np.maximum(after @ share, 0.0)  # never negative, whatever the mixture
    pred_ptr, pred, lag, wait_lag, join, wait, op_register, window, closes = (
        a.tolist() for a in (pred_ptr, pred, lag, wait_lag, join, wait, op_register, window, closes)
    )
    for event in events.tolist():
        v = event if event >= 0 else ~event
        row = state[op_register[v]]
        if event >= 0:
            ready = np.zeros(columns)
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                np.maximum(ready, state[op_register[pred[i]]] + lag[i], out=ready)
            np.add(ready, gap[v], out=row)
            if v < rows:
                came[v] = row
            if join[v] >= 0:
                opens[join[v]] = np.maximum(opens[join[v]], row) if join[v] in opens else row.copy()
            if wait[v] >= 0:
                continue
        else:
            np.maximum(row, opens[wait[v]] + wait_lag[v], out=row)
        row += work[v]
        if closes[v]:
            np.maximum(done[window[v]], row, out=done[window[v]])
    return done, came


@kernel(plain=mix_plain, fastmath={"nnan", "ninf", "nsz"})
def mix(
    events: Indices,
    pred_ptr: Indices,
    pred: Indices,
    lag: Ints,
    join: Indices,
    wait: Indices,
    wait_lag: Ints,
    op_register: Codes,
    slot_register: Codes,
    n_ops: int,
    n_slots: int,
    window: Indices,
    closes: Mask,
    windows: int,
    before: Floats,
    after: Floats,
    share: Floats,
    rows: int,
) -> tuple[Floats, Floats]:
    """Replays side by side; (when each window's last op ended per column, arrivals of the first ``rows`` ops).

    Registers are those of ``sweep_many``: an op's register holds its arrival until it has ended.
    """
    columns, parts = share.shape[1], share.shape[0]
    state = np.zeros((n_ops + 1, columns), np.float64)
    opens = np.zeros((n_slots + 1, columns), np.float64)
    seen = np.zeros(len(slot_register), np.bool_)
    done = np.zeros((windows, columns), np.float64)
    came = np.zeros((rows, columns), np.float64)
    own = np.zeros(columns, np.float64)
    for event in events:
        v = event if event >= 0 else ~event
        r = op_register[v]
        # What the columns add here: Σ share[j, k] · ingredient j, most of which are nothing for most ops.
        own[:] = 0.0
        for j in range(parts):
            much = before[v, j] if event >= 0 else after[v, j]
            if much != 0.0:
                for k in range(columns):
                    own[k] += much * share[j, k]
        if event >= 0:
            for k in range(columns):
                state[r, k] = 0.0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                u = op_register[pred[i]]
                late = np.float64(lag[i])
                for k in range(columns):
                    state[r, k] = max(state[r, k], state[u, k] + late)
            for k in range(columns):
                state[r, k] += max(own[k], 0.0)  # a gap is never negative, whatever the mixture
            if v < rows:
                for k in range(columns):
                    came[v, k] = state[r, k]
            if join[v] >= 0:
                s = slot_register[join[v]]
                if seen[join[v]]:
                    for k in range(columns):
                        opens[s, k] = max(opens[s, k], state[r, k])
                else:
                    seen[join[v]] = True
                    for k in range(columns):
                        opens[s, k] = state[r, k]
            if wait[v] >= 0:
                continue
            own[:] = 0.0
            for j in range(parts):
                if after[v, j] != 0.0:
                    for k in range(columns):
                        own[k] += after[v, j] * share[j, k]
        else:
            s = slot_register[wait[v]]
            late = np.float64(wait_lag[v])
            for k in range(columns):
                state[r, k] = max(state[r, k], opens[s, k] + late)
        for k in range(columns):
            state[r, k] += max(own[k], 0.0)
        if closes[v]:
            w = window[v]
            for k in range(columns):
                done[w, k] = max(done[w, k], state[r, k])
    return done, came
