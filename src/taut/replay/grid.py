"""Many replays of one graph at once, each with work and gaps mixed from the same few ingredients.

An ingredient is a number of ns for every op: its work at reference, its excess, its transfer, the gap before it. A
column mixes them: column k takes Σ share[i, k] · ingredient i. So jitter twice as large, gaps left out or transfers for
nothing are columns of one sweep. Chains of ops that nobody else looks at are added up first; that is exact, except that
a column may not make a whole chain shorter than nothing, where a replay would ask it of every op.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.jit import kernel
from taut.replay.timeline import Batch, window_times


@dataclass(frozen=True)
class Grid:
    """Ingredients prepared for the short program of a batch: what counts before an op's gate, and what after it."""

    batch: Batch
    before: Any
    """Ops of the program × ingredients, ns."""
    after: Any

    def walls(self, share: Any) -> Any:
        """Window lengths, one column per column of ``share`` (ingredients × columns), ns."""
        done, _ = self._sweep(share, 0)
        return window_times(self.batch.graph, done)

    def arrivals(self, share: Any) -> Any:
        """When each op of the program arrives, ops × columns, ns."""
        return self._sweep(share, len(self.before))[1]

    def _sweep(self, share: Any, rows: int) -> Any:
        p = self.batch.short
        return mix(
            p.events, p.pred_ptr, p.pred, p.lag_ns, p.join, p.wait, p.wait_lag_ns, p.op_register, p.slot_register,
            p.n_ops, p.n_slots, self.before, self.after, np.ascontiguousarray(share, dtype=np.float64), p.window,
            len(self.batch.graph.steps), p.closes, rows,
        )  # fmt: skip


def grid(batch: Batch, before: Sequence[Any], after: Sequence[Any]) -> Grid:
    """Prepare ingredients, each given per op as ns before its gate (gap) and after it (work); None is nothing.

    The lags inside folded chains belong to the first ingredient.
    """
    p = batch.short
    rows = np.zeros((2, len(p.ops), len(before)))
    heirs = np.searchsorted(p.ops, p.owner[p.folded])
    for i, (gap, work) in enumerate(zip(before, after, strict=True)):
        if gap is not None:
            rows[0, :, i] = gap[p.ops]
        if work is not None:
            rows[1, :, i] = work[p.ops]
        if len(heirs):
            passed = sum((x[p.folded] for x in (gap, work) if x is not None), p.onward_ns if i == 0 else 0.0)
            rows[0, :, i] += np.bincount(heirs, weights=np.broadcast_to(passed, len(heirs)), minlength=len(p.ops))
    return Grid(batch, rows[0], rows[1])


@kernel(fastmath={"nnan", "ninf", "nsz"})
def mix(
    events: Any, pred_ptr: Any, pred: Any, lag: Any, join: Any, wait: Any, wait_lag: Any, op_register: Any,
    slot_register: Any, n_ops: int, n_slots: int, before: Any, after: Any, share: Any, window: Any, windows: int,
    closes: Any, rows: int,
) -> tuple[Any, Any]:  # fmt: skip
    """Replays side by side; (when each window's last op ended per column, arrivals of the first ``rows`` ops)."""
    columns = share.shape[1]
    state = np.zeros((n_ops + 1, columns), np.float64)
    opens = np.full((n_slots + 1, columns), -1e300, np.float64)
    seen = np.zeros(len(slot_register), np.bool_)
    done = np.zeros((windows, columns), np.float64)
    came = np.zeros((rows, columns), np.float64)
    own = np.zeros(columns, np.float64)
    for event in events:
        v = event if event >= 0 else ~event
        row = state[op_register[v]]
        if event >= 0:
            own[:] = 0.0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                own[:] = np.maximum(own, state[op_register[pred[i]]] + lag[i])
            row[:] = own
            own[:] = 0.0
            for j in range(before.shape[1]):
                if before[v, j] != 0.0:
                    own += before[v, j] * share[j]
            row += np.maximum(own, 0.0)
            if v < rows:
                came[v] = row
            if join[v] >= 0:
                gate = opens[slot_register[join[v]]]
                if seen[join[v]]:
                    gate[:] = np.maximum(gate, row)
                else:
                    seen[join[v]] = True
                    gate[:] = row
            if wait[v] >= 0:
                continue
        else:
            row[:] = np.maximum(row, opens[slot_register[wait[v]]] + wait_lag[v])
        own[:] = 0.0
        for j in range(after.shape[1]):
            if after[v, j] != 0.0:
                own += after[v, j] * share[j]
        row += np.maximum(own, 0.0)
        if closes[v]:
            done[window[v]] = np.maximum(done[window[v]], row)
    return done, came
