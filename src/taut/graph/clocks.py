"""Clock offsets between ranks, from the ends of gates that everybody waits for.

Ranks of one host share a clock: no fitting. Otherwise the end times of full rendezvous coincide up to the offset, but
only where the network treats all members alike: behind a slow link the receivers end late, and aligning them would
erase the link and blame the innocent. An offset is therefore applied only if it is the same in every fast gate; when
lateness varies from gate to gate it is a link or a rank, the offset stays 0 and its interval says how far it could be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.graph.gates import EVERYBODY
from taut.graph.model import Clock
from taut.tables import Table

CONSTANT = 0.1
"""An offset may vary by this share of itself from gate to gate; a link's lateness varies more."""
FLOOR_NS = 500_000
"""… or by this much: scheduling noise of an ordinary host."""
WORTH_NS = 50_000
"""Offsets below this are not applied: the residual of the fit is of that size."""
PRIOR_NS = 1_000_000
"""Half width of the prior: hosts that keep time by NTP agree to a millisecond."""


def fit(ops: Table, gate: Any, count: int, members: Table) -> tuple[Table, int | None]:
    """(one row per rank, residual ns); the residual is None when no gate could be used."""
    ranks = members.rank
    n = len(ranks)
    zero = np.zeros(n, dtype=np.int64)
    unknown = Table(Clock, {"rank": ranks, "offset_ns": zero, "lo_ns": zero - PRIOR_NS, "hi_ns": zero + PRIOR_NS})
    host = members.host
    if n < 2 or (host[0] != "" and all(h == host[0] for h in host)):
        return Table(Clock, {"rank": ranks, "offset_ns": zero}), 0
    late, size = _lateness(ops, gate, count, ranks)
    if len(late) < 3:
        return unknown, None
    fast = late[size <= np.median(size)]
    offset = np.median(fast, axis=0)
    low, high = np.quantile(fast, (0.1, 0.9), axis=0)
    noise = 1.4826 * np.median(np.abs(fast - offset), axis=0)
    constant = high - low <= np.maximum(FLOOR_NS, CONSTANT * np.abs(offset))
    applied = constant & (np.abs(offset) > np.maximum(WORTH_NS, 3 * noise / np.sqrt(len(fast)))) & ~_same_host(host)
    half = 1.96 * noise / np.sqrt(len(fast)) + np.median(noise)
    lo = np.where(applied, offset - half, np.minimum(np.quantile(late, 0.05, axis=0), -half))
    hi = np.where(applied, offset + half, np.maximum(np.quantile(late, 0.95, axis=0), half))
    columns = {"offset_ns": np.where(applied, offset, 0.0), "lo_ns": lo, "hi_ns": hi}
    rounded = {key: np.rint(v).astype(np.int64) for key, v in columns.items()}
    residual = int(np.median(np.abs(fast - offset)))
    return Table(Clock, {"rank": ranks, "applied": applied.astype(np.int8), **rounded}), residual


def _same_host(host: Any) -> Any:
    """Ranks on the first rank's host: their clock is its clock."""
    return np.array([h != "" and h == host[0] for h in host])


def _lateness(ops: Table, gate: Any, count: int, ranks: Any) -> tuple[Any, Any]:
    """End of every rank minus end of the first rank, and the shortest transfer, per gate that holds all ranks."""
    full = np.isin(ops.verb, EVERYBODY) & (gate >= 0)
    per_gate = np.bincount(gate[full], minlength=count + 1)
    use = full & (per_gate[np.maximum(gate, 0)] == len(ranks))
    if not use.any():
        return np.zeros((0, len(ranks))), np.zeros(0)
    rows = np.flatnonzero(use)
    rows = rows[np.lexsort((ops.rank[rows], gate[rows]))]
    end = ops.end_ns[rows].reshape(-1, len(ranks))
    start = ops.start_ns[rows].reshape(-1, len(ranks))
    late = end - end[:, :1]
    return late, (end - start).min(axis=1)
