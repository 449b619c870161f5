"""What a job's own log says of its steps: which were kept, and what a rank-hour brought.

A step is useful only if it was kept. Going back to an earlier step number (a restart from a checkpoint) discards every
step from there on that was executed before, whether it has been executed again yet or not. A step without a finite loss,
or whose update was skipped, was not discarded, but brought nothing either.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered, occurrence, weighed
from taut.core.interval import DRAWS, LEVEL, estimate, share
from taut.core.tables import Table
from taut.result.types import Estimate, LossEnds, Progress

HOUR_NS = 3_600_000_000_000
"""An hour in ns."""
END = 10
"""The first and the last 1/END of the kept steps tell where the loss began and where it ended."""
SKIPPED = 2
"""``Progress.kept`` of a step whose update was skipped."""


class Executed(Struct, frozen=True):
    """The executed steps of a job, over all ranks, in order."""

    step: Ints
    discarded: Mask
    useful: Mask
    """Kept, with a finite loss and an update."""
    loss: Floats
    """Mean over the ranks that log one; NaN where none does."""
    tokens: Floats
    """Sum over ranks; NaN where not recorded."""

    @property
    def kept(self) -> float:
        """Share of executed steps that were useful."""
        return float(self.useful.mean())


def executed(log: Table) -> Executed | None:
    """The executed steps of a log: the same try at the same step on all ranks is one."""
    if len(log) == 0:
        return None
    log = log.take(np.argsort(log.rank, kind="stable"))
    rank, ranks = numbered(log.rank)
    attempt, tries = numbered(log.step, occurrence(log.rank, log.step))
    lost, place = np.zeros(len(log), dtype=bool), np.zeros(len(log), dtype=np.int64)
    begins = np.searchsorted(rank, np.arange(ranks + 1))
    for a, b in pairwise(begins.tolist()):
        # A step is lost if the same or an earlier one is executed after it.
        later = np.minimum.accumulate(log.step[a:b][::-1])[::-1]
        lost[a : b - 1] = later[1:] <= log.step[a : b - 1]
        place[a:b] = np.arange(b - a)
    has_loss = np.isfinite(log.loss)
    logs_loss = weighed(rank, has_loss) > 0
    # A missing loss counts against a step only on ranks that log losses, or where nobody does.
    idle = (log.kept == SKIPPED) | (~has_loss & (logs_loss[rank] | ~has_loss.any()))
    first = np.full(tries, len(log), dtype=np.int64)
    np.minimum.at(first, attempt, place)
    order = np.lexsort((np.arange(tries), first))

    def any_rank(flags: Mask) -> Mask:
        return (weighed(attempt, flags, tries) > 0)[order]

    def total(values: Floats | Ints, known: Mask) -> tuple[Floats, Floats]:
        sums = weighed(attempt, np.where(known, values, 0), tries)
        count = weighed(attempt, known, tries)
        return np.where(count > 0, sums, np.nan)[order], np.maximum(count, 1)[order]

    step = np.zeros(tries, dtype=np.int64)
    step[attempt] = log.step
    discarded = any_rank(lost | (log.kept == 0))
    loss, counted = total(log.loss, has_loss)
    return Executed(step[order], discarded, ~discarded & ~any_rank(idle), loss / counted, total(log.tokens, log.tokens >= 0)[0])


def progress(log: Table, ranks: int, step_ns: float) -> Progress | None:
    """What the log says, for the report; None without one.

    Hours come from the log's own times, else from the mean length of the traced steps.
    """
    done = executed(log)
    if done is None:
        return None
    count, timed = len(done.step), _span_ns(log)
    hours = ranks * (timed if timed is not None else count * step_ns) / HOUR_NS
    kept = np.flatnonzero(done.useful & np.isfinite(done.loss))
    tenth = max(1, len(kept) // END)
    first, last = (float(np.median(done.loss[part])) if len(part) else None for part in (kept[:tenth], kept[-tenth:]))
    return Progress(
        executed_steps=count,
        kept_steps=int(done.useful.sum()),
        discarded_steps=int(done.discarded.sum()),
        rank_hours=hours if hours > 0 else None,
        timed_by="log" if timed is not None else "trace",
        kept_steps_per_rank_hour=_scaled(share(done.useful), count, hours),
        tokens_per_rank_hour=_tokens(done, hours),
        loss=LossEnds(first=first, last=last),
        loss_change_per_rank_hour=_change(done.loss[kept], tenth, hours),
    )


def _span_ns(log: Table) -> float | None:
    """How long the log runs, over its ranks; None if it has no times. Without starts one step more is counted in."""
    if (log.end_ns < 0).any():
        return None
    started = (log.start_ns >= 0).all()
    spans = []
    for rank in np.unique(log.rank):
        mine = log.rank == rank
        begin, end, rows = log.start_ns[mine] if started else log.end_ns[mine], log.end_ns[mine], int(mine.sum())
        spans.append(float(end.max() - begin.min()) * (1.0 if started else rows / max(rows - 1, 1)))
    return float(np.median(spans)) if max(spans) > 0 else None


def _scaled(found: Estimate | None, count: int, hours: float) -> Estimate | None:
    if found is None or hours <= 0:
        return None
    low, high = (None if end is None else end * count / hours for end in (found.lo, found.hi))
    return Estimate(value=found.value * count / hours, lo=low, hi=high)


def _tokens(done: Executed, hours: float) -> Estimate | None:
    if hours <= 0 or not np.isfinite(done.tokens).any():
        return None
    useful = np.where(done.useful, np.nan_to_num(done.tokens), 0.0)
    return _scaled(estimate(lambda s: useful[s].mean(axis=-1), len(useful)), len(useful), hours)


def _change(loss: Floats, tenth: int, hours: float) -> Estimate | None:
    """Change of the loss an hour of one rank brings, from the first to the last tenth of the kept steps; falling is below 0.

    The two middles lie a tenth less than the run apart.
    """
    if hours <= 0 or len(loss) < 2 * tenth or len(loss) < 2:
        return None
    rng, apart = np.random.default_rng(0), hours * (len(loss) - tenth) / len(loss)
    ends = loss[:tenth], loss[-tenth:]
    value = float(np.median(ends[1]) - np.median(ends[0])) / apart
    again = [np.median(e[rng.integers(0, tenth, size=(DRAWS, tenth))], axis=1) for e in ends]
    low, high = np.quantile((again[1] - again[0]) / apart, LEVEL)
    return Estimate(value=value, lo=min(float(low), value), hi=max(float(high), value))
