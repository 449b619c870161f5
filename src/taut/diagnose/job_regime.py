"""Reserve and regime: how much jitter may still grow before the next accelerator stops paying.

The job is replayed with its findings mended, work = reference + factor · excess, and with every full rendezvous twice
as wide; docs/indices.md derives what that says about one accelerator more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.interval import LEVEL, drawn
from taut.diagnose.finding import Finding
from taut.diagnose.more_ranks import Meetings, latest, meetings
from taut.graph import Graph
from taut.replay.blame import Blame
from taut.replay.mixtures import Grid, grid
from taut.replay.timeline import Batch, changed
from taut.result.types import Estimate, Regime

PAYS = 0.5
"""The next accelerator pays while it brings at least this share of what one without jitter would bring."""
STABLE = 2.0
"""Stable: jitter may surely grow this many times. Unstable: the next accelerator does not pay today (reserve below 1)."""
FACTORS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Jitter is scaled by these; a reserve beyond the last is said to be at least that."""
LEAST_STEPS = 4
"""Fewer steps tell no regime."""


def regime(batch: Batch, blame: Blame, findings: Sequence[Finding], pays: float = PAYS) -> Regime:
    """Class, reserve, and what the next accelerator brings today; None where no full rendezvous tells."""
    return regime_of(batch, mended(batch.graph, blame, findings), pays)


def regime_of(batch: Batch, mended_ns: tuple[Ints, Ints, Ints], pays: float = PAYS, blocks: Ints | None = None) -> Regime:
    """The regime for this reference, work and gap of every op; under a policy windows belong together in ``blocks``."""
    g = batch.graph
    count = len(g.steps) if blocks is None else int(blocks.max(initial=-1)) + 1
    met = meetings(g) if len(g.ranks) > 1 and count >= LEAST_STEPS else None
    if met is None:
        return Regime(kind=None, reserve=None, marginal_return=None, pays=pays)
    prepared = _jitter_grid(batch, mended_ns)
    del mended_ns  # of a large job not held while it is replayed
    walls, wider = _walls(prepared, met)
    if blocks is not None:
        walls, wider = _by_block(walls, blocks, count), _by_block(wider, blocks, count)
    return regime_of_walls(walls, wider, pays)


def regime_of_walls(walls: Floats, wider: Floats, pays: float = PAYS) -> Regime:
    """The regime of walls for every factor of jitter (steps × factors), as wide as the job is and with twice the ranks."""
    count = len(walls)
    steps = np.concatenate([np.arange(count)[None], drawn(count)])
    # The first row is the run as it is, the others its resamples: one interval for all that follows.
    back = _returns(walls[steps].sum(axis=1), wider[steps].sum(axis=1))
    reserve, today = _crossing(back, pays), back[:, FACTORS.index(1.0)]
    found = _estimate(reserve, FACTORS[-1])
    kind = "unstable" if reserve[0] < 1 else "stable" if (found.lo or 0.0) >= STABLE else "marginal"
    return Regime(kind=kind, reserve=found, marginal_return=_estimate(today), pays=pays)


def mended(graph: Graph, blame: Blame, findings: Sequence[Finding]) -> tuple[Ints, Ints, Ints]:
    """(reference, work, gap) of every op with the findings mended; a mended op's reference is at most what mending gives."""
    changes = [change for finding in findings for change in finding.changes]
    if not changes:
        return blame.usual_ns, graph.work_ns, graph.gap_ns
    work, gap, _, _ = changed(graph, changes)
    usual = blame.usual_ns
    for change in changes:
        if change.what == "work":
            usual[change.ops] = np.minimum(work[change.ops], usual[change.ops])
    return usual, work, gap


def _jitter_grid(batch: Batch, mended_ns: tuple[Ints, Ints, Ints]) -> Grid:
    """The reference of every op with the gap before it, and its work beyond the reference."""
    usual, work, gap = mended_ns
    return grid(batch, [gap, None], (part() for part in (lambda: usual, lambda: work - usual)))


def _walls(prepared: Grid, met: Meetings) -> tuple[Floats, Floats]:
    """Window lengths for every factor of jitter (windows × factors): as wide as it is, and with twice the ranks."""
    came, ops = prepared.arrivals(np.array([[1.0, 1.0], [0.0, 1.0]])), prepared.batch.short.ops
    at = np.searchsorted(ops, met.rows)
    late = latest(met, (came[:, 1] - came[:, 0])[at], (1.0, 2.0))
    later = np.zeros(len(ops))
    later[at] = np.maximum(late[:, 1] - late[:, 0], 0.0)
    # A gate with twice the members opens later by as much as the last of twice as many is later.
    wide = prepared.with_after(later)
    one, factors = np.ones(len(FACTORS)), np.array(FACTORS)
    both = wide.walls(np.concatenate([[one, factors, 0 * one], [one, factors, factors]], axis=1))
    return both[:, : len(FACTORS)], both[:, len(FACTORS) :]


def _by_block(windows: Floats, block: Ints, count: int) -> Floats:
    """Sums of windows by block; -1 is none."""
    out = np.zeros((count, windows.shape[1]))
    np.add.at(out, block[block >= 0], windows[block >= 0])
    return out


def _returns(wall: Floats, wider: Floats) -> Floats:
    """What one accelerator more brings, in accelerators without jitter: (T₀ ÷ T) · (1 − d ln T ÷ d ln ranks)."""
    wall, wider = np.maximum(wall, 1.0), np.maximum(wider, 1.0)
    return np.asarray(wall[:, :1] / wall * (1 - np.log2(wider / wall)))


def _crossing(back: Floats, pays: float) -> Floats:
    """The factor at which the return falls below what pays, linear between factors; the last factor if it does not."""
    factors, below = np.array(FACTORS), back < pays
    at = np.where(below.any(axis=1), below.argmax(axis=1), len(factors) - 1)
    before, row = np.maximum(at - 1, 0), np.arange(len(back))
    high, low = back[row, before], back[row, at]
    part = np.clip((high - pays) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    between = np.where(below.any(axis=1), factors[before] + part * (factors[at] - factors[before]), factors[-1])
    return np.asarray(between)


def _estimate(values: Floats, most: float | None = None) -> Estimate:
    """The first value with the interval of the others; open above where the value is at the end of what was tried."""
    value, (low, high) = float(values[0]), np.quantile(values[1:], LEVEL)
    top = None if most is not None and max(value, high) >= most else max(float(high), value)
    return Estimate(value=value, lo=min(float(low), value), hi=top)
