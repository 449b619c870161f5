"""The ledger of attempts: where the time of a job went that was not traced, or of many jobs; integers that sum exactly.

Per job the whole is its accelerators × (first start → last end); queueing before the first start burns nothing and is told
apart, as a delay. An attempt is cut, in this order, into the time before its first step (hold/init, restore), the time
from its last sign of progress to its end (detect+recover), its saves, and the rest. Of the rest, what a later attempt did
again is *discarded*: from the step that it resumed from to the end. The re-execution is ordinary, or it would count twice.
Where no checkpoint is known, all of an attempt that was not the last may be lost: *discarded at most*, an upper bound.
Where a controller ended an attempt (``ended_by.py``), the time until the next is under way is *control overhead*.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from msgspec import Struct

from taut.core.array_types import Ints, Mask, Texts
from taut.core.ids import greatest
from taut.core.prices import Prices
from taut.core.tables import NULL, Table
from taut.ledger.charge import spread
from taut.result.types import AttemptEntry

FATES = (
    "kept", "unfinished", "discarded", "discarded at most", "checkpoint save", "restore", "hold/init", "detect+recover",
    "control overhead", "unallocated", "down",
)  # fmt: skip
"""kept: work that counted, or whose fate is still open; unfinished: work of a last attempt that did not complete, after its
last checkpoint; control overhead: from where a controller ended an attempt to where the next was under way; unallocated: fewer
accelerators than the job's largest attempt had; down: no attempt ran, and nobody had decided so."""
NOT_HELD = ("unallocated", "down")
"""Fates in which the job held no accelerator."""
UNITS = ("accelerator", "task", "cpu", "node", "")
"""What is counted, the best first; without any, each attempt counts as one."""
WENT_WELL = ("completed", "running", "pending", "")


class Attempts(Struct, frozen=True, dict=True):
    """The attempts that ran, in order of job and start, each with its time cut into fates."""

    recorded: Table
    """The attempts of the jobs that are counted, as the logs have them."""
    rows: Ints
    """Of each attempt that ran, its row in ``recorded``."""
    job: Ints
    """Of each attempt that ran, the index of its job, as in ``names``."""
    names: list[str]
    begin_ns: Ints
    end_ns: Ints
    last: Mask
    """True for the last attempt of a job."""
    held: Ints
    """What each attempt held, and the most that its job ever held."""
    most: Ints
    fates: dict[str, Ints]
    """Wall time of every attempt by fate, ns; what lay before it is not among them."""
    gap_ns: Ints
    gap_held: Mask
    executed: Ints
    discarded: Ints
    """Steps executed and discarded, NULL where not known."""
    guessed: int
    """Attempts whose logs do not say from which step they resumed; they are taken to have done so from the last save."""
    unit: str
    left_out: int
    """Jobs whose logs do not count what the others are counted in."""
    cpu_jobs: int
    """Jobs that are known to have held no accelerator, where others held some."""
    queue_ns: int | None
    """Delay between submission and first start, over all jobs that tell both; None if none does."""
    cpu_queue_ns: int | None
    """Of it, that of jobs which held no accelerator."""
    prices: Prices
    ended_by: Texts
    """The controller that ended each attempt; None where nobody decided it, or no log of decisions is there."""

    @cached_property
    def restarted(self) -> Mask:
        """Attempts that were made because a controller had ended the one before."""
        decided = np.array([who is not None for who in self.ended_by.tolist()], dtype=bool)
        return np.concatenate([[False], (self.job[1:] == self.job[:-1]) & decided[:-1]])

    @cached_property
    def cells(self) -> dict[str, Texts]:
        """Rank time of every attempt by fate, exact integers."""
        held, gap = self.held.astype(object), self.most.astype(object) * self.gap_ns  # Python's integers: no overflow
        out: dict[str, Texts] = {fate: np.multiply(held, ns) for fate, ns in self.fates.items()}
        out["detect+recover"] = out["detect+recover"] + np.where(self.gap_held & ~self.restarted, gap, 0)
        out["control overhead"] = np.where(self.restarted, out["restore"] + out["hold/init"] + gap, 0)
        for fate in ("restore", "hold/init"):
            out[fate] = np.where(self.restarted, 0, out[fate])
        return out | {fate: self.not_held[fate] for fate in NOT_HELD}

    @cached_property
    def not_held(self) -> dict[str, Texts]:
        """Of these, what the job did not hold: it costs nothing."""
        most = self.most.astype(object)
        gap = np.where(self.gap_held, 0, most * self.gap_ns)
        return {
            "unallocated": (most - self.held) * (self.end_ns - self.begin_ns),
            "down": np.where(self.restarted, 0, gap),
            "control overhead": np.where(self.restarted, gap, 0),
        }

    @cached_property
    def by_fate(self) -> dict[str, int]:
        """Rank-ns per fate, every fate listed."""
        return {fate: int(sum(self.cells[fate].tolist())) for fate in FATES}

    @cached_property
    def total_rank_ns(self) -> int:
        """Accelerators × (first start → last end), over all jobs."""
        return sum(int(self.most[a]) * int(self.end_ns[b - 1] - self.begin_ns[a]) for a, b in self.spans)

    @property
    def held_rank_ns(self) -> int:
        """What was burned: the whole without the time in which nothing was held."""
        return self.total_rank_ns - sum(sum(ns.tolist()) for ns in self.not_held.values())

    @property
    def closes(self) -> bool:
        """True when the fates sum to accelerators × time exactly."""
        return sum(self.by_fate.values()) == self.total_rank_ns

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """First attempt of every job, and the one after its last."""
        begins = np.flatnonzero(np.concatenate([[True], self.job[1:] != self.job[:-1]])) if len(self.job) else self.job
        return list(zip(begins.tolist(), np.append(begins[1:], len(self.job)).tolist(), strict=True))

    def entries(self) -> list[AttemptEntry]:
        """One line per fate, in rank-ns and money; what was not held costs nothing."""
        priced = self.prices.gpu_hour if self.unit == "accelerator" else None
        paid = [ns - (sum(self.not_held[fate].tolist()) if fate in self.not_held else 0) for fate, ns in self.by_fate.items()]
        money = spread(priced, paid)
        return [
            AttemptEntry(
                fate=fate, rank_ns=ns, held=held > 0 or (ns == 0 and fate not in NOT_HELD), held_rank_ns=held, money=cost
            )
            for (fate, ns), held, cost in zip(self.by_fate.items(), paid, money, strict=True)
        ]

    def discarded_steps(self) -> Mask | None:
        """Of every executed step whether it was discarded, attempt after attempt; None where a job's steps are not known."""
        known = (self.executed >= 0) & (self.discarded >= 0)
        count = int(self.executed[known].sum())
        if not known.any() or count == 0:
            return None
        # Every n-th flag of an attempt: the share stays, and blocks stay in order.
        thin = max(1, -(-count // MOST_FLAGS))
        flags = [
            np.arange(0, n, thin) >= n - d
            for n, d in zip(self.executed[known].tolist(), self.discarded[known].tolist(), strict=True)
        ]
        return np.concatenate(flags)


MOST_FLAGS = 20_000
"""More steps than this are thinned out before their share is estimated."""


def charge_attempts(
    attempts: Table, prices: Prices | None = None, world: int | None = None, actions: Table | None = None
) -> Attempts | None:
    """Give every rank-nanosecond from first start to last end its fate; None without an attempt that ran.

    ``world`` stands for accelerators that no log of a single job tells; ``actions`` tell who ended an attempt.
    """
    ran = (attempts.start_ns >= 0) & (attempts.end_ns >= attempts.start_ns)
    if not ran.any():
        return None
    names = list(dict.fromkeys(attempts.job.tolist()))
    code = {name: i for i, name in enumerate(names)}
    every = np.array([code[name] for name in attempts.job.tolist()], dtype=np.int64)
    held, unit, counted = _held(attempts, every, len(names), ran, world)
    bare = np.zeros(len(names), dtype=np.bool_)
    bare[every[ran & (attempts.unit == "accelerator") & (attempts.accelerators == 0)]] = unit == "accelerator"
    bare &= ~counted
    waited = _queued(attempts, every, ran)
    rows = np.flatnonzero(ran & counted[every])
    rows = rows[np.lexsort((rows, attempts.start_ns[rows], every[rows]))]
    job, held = every[rows], held[rows]
    t = attempts.take(rows)
    begin, end, before = _serial(job, t.start_ns, t.end_ns)
    most = np.maximum(greatest(job, len(names), held), 0)
    held = np.where(held > 0, held, most[job])
    last = np.concatenate([job[1:] != job[:-1], [True]])
    resumed, guessed = _resumed(t, job)
    back = _rolled_back_to(resumed, job)
    fates, executed, discarded = _cut(t, begin, end, last, resumed, back)
    decided = np.full(len(attempts), None, dtype=object) if actions is None else _ended_by(attempts, actions)
    kept = counted[every]
    return Attempts(
        recorded=attempts.take(kept),
        rows=(np.cumsum(kept) - 1)[rows],
        job=job,
        names=names,
        begin_ns=begin,
        end_ns=end,
        last=last,
        held=held,
        most=most[job],
        fates=fates,
        gap_ns=np.where(before >= 0, begin - before, 0),
        gap_held=t.held == 1,
        executed=executed,
        discarded=discarded,
        guessed=guessed,
        unit=unit,
        left_out=len(np.unique(every[ran])) - len(np.unique(job)) - int(bare.sum()),
        cpu_jobs=int(bare.sum()),
        queue_ns=sum(waited.values()) if waited else None,
        cpu_queue_ns=_sum_or_none([ns for one, ns in waited.items() if bare[one]]),
        prices=prices or Prices(),
        ended_by=decided[rows],
    )


def _queued(t: Table, job: Ints, ran: Mask) -> dict[int, int]:
    """Job → how long it waited before its first start, where both are told."""
    rows = np.flatnonzero(ran)
    rows = rows[np.lexsort((rows, t.start_ns[rows], job[rows]))]
    first = rows[np.diff(job[rows], prepend=-1) != 0]
    known = first[(t.submit_ns[first] >= 0) & (t.start_ns[first] >= t.submit_ns[first])]
    return dict(zip(job[known].tolist(), (t.start_ns[known] - t.submit_ns[known]).tolist(), strict=True))


def _sum_or_none(values: list[int]) -> int | None:
    return sum(values) if values else None


def _held(t: Table, job: Ints, jobs: int, ran: Mask, world: int | None) -> tuple[Ints, str, Mask]:
    """What each attempt held in the best unit that the jobs tell, that unit, and which jobs tell it."""
    count = t.accelerators.astype(np.int64)
    recorded = {str(unit) for unit in t.unit[ran & (count > 0)].tolist()}
    if "accelerator" not in recorded and world and jobs == 1:
        return np.full(len(t), world, dtype=np.int64), "accelerator", np.ones(1, dtype=bool)
    unit = next(unit for unit in UNITS if unit in recorded or unit == "")
    if not unit:
        return np.ones(len(t), dtype=np.int64), "", np.ones(jobs, dtype=bool)
    same = (t.unit == unit) & (count > 0)
    tells = np.zeros(jobs, dtype=bool)
    tells[job[same & ran]] = True
    return np.where(same, count, 0), unit, tells


def _serial(job: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Starts and ends that do not overlap within a job, and the end of what came before (NULL for the first)."""
    begin, stop, before = start.astype(np.int64), end.astype(np.int64), np.full(len(job), NULL, dtype=np.int64)
    for i in range(1, len(job)):
        if job[i] == job[i - 1]:
            before[i] = stop[i - 1]
            begin[i] = max(begin[i], stop[i - 1])
            stop[i] = max(stop[i], begin[i])
    return begin, stop, before


def _resumed(t: Table, job: Ints) -> tuple[Ints, int]:
    """Step that each attempt resumed from: recorded, else the last save before it, else its first step; NULL if not known."""
    out, guessed, saved = t.resumed_step.astype(np.int64), 0, NULL
    for i in range(len(job)):
        first = i == 0 or job[i] != job[i - 1]
        saved = NULL if first else saved
        if out[i] < 0 and not first:
            step = int(t.first_step[i])
            if saved >= 0 and (step < 0 or saved <= step):
                out[i], guessed = saved, guessed + 1
            elif step >= 0:
                out[i], guessed = max(step - 1, 0), guessed + 1
        if t.saved_step[i] >= 0:
            saved = int(t.saved_step[i])
    return out, guessed


def _rolled_back_to(resumed: Ints, job: Ints) -> Ints:
    """The earliest step that a later attempt of the job went back to; NULL if not known."""
    out, lowest = np.full(len(job), NULL, dtype=np.int64), NULL
    for i in range(len(job) - 2, -1, -1):
        if job[i] != job[i + 1]:
            lowest = NULL
            continue
        if resumed[i + 1] >= 0:
            lowest = int(resumed[i + 1]) if lowest < 0 else min(lowest, int(resumed[i + 1]))
        # An attempt of which nothing is known hides how far it went back, but it did no work that counts beyond that.
        out[i] = lowest
    return out


def _ended_by(attempts: Table, actions: Table) -> Texts:
    from taut.ledger.ended_by import ended_by  # most traces have no job logs beside them

    return ended_by(attempts, actions)


def _cut(t: Table, begin: Ints, end: Ints, last: Mask, resumed: Ints, back: Ints) -> tuple[dict[str, Ints], Ints, Ints]:
    """Every attempt's time by fate, and the steps it executed and lost."""
    span, outcome = end - begin, t.outcome
    well = np.isin(outcome, WENT_WELL)
    stepped = t.first_step_ns >= 0
    steps = np.maximum(t.last_step - t.first_step, 0)
    step_ns = np.where(
        (steps > 0) & stepped & (t.last_step_ns >= t.first_step_ns),
        (t.last_step_ns - t.first_step_ns) // np.maximum(steps, 1),
        0,
    )
    base = np.where(resumed >= 0, np.minimum(resumed, np.maximum(t.first_step, 0)), np.maximum(t.first_step - 1, 0))
    ahead = np.maximum(t.first_step - base, 1)
    # In floating point, because a hostile log may name any step; what comes out is clipped to the attempt.
    # The first step in the log ended then: it began as many steps earlier as it lies ahead of the checkpoint.
    ready = np.where(stepped, t.first_step_ns - np.minimum(ahead.astype(np.float64) * step_ns, 9e18), begin)
    initial = np.where(stepped, np.clip(ready - begin, 0, span), 0).astype(np.int64)
    initial = np.where(outcome == "pending", span, initial)  # it has its place, and does not get to run
    restore = np.minimum(np.maximum(t.restore_took_ns, 0), np.where(stepped, initial, span))
    initial = np.maximum(initial, restore)
    # An attempt fell if another followed though it did not complete, or if its outcome says so.
    fell = (~last & ~(outcome == "completed")) | ~well
    # After the last step one more may have been under way: only what is longer is detection.
    detect = np.where(fell & (t.last_step_ns >= 0), np.clip(end - t.last_step_ns - step_ns, 0, span - initial), 0)
    save = np.minimum(np.maximum(t.save_took_ns, 0), span - initial - detect)
    active = span - initial - detect - save
    lost_from, known = _lost_from(t, begin + initial, end - detect, step_ns, base, back)
    lost = np.where(fell, np.clip(end - detect - lost_from, 0, active), 0)
    unfinished = last & fell
    lost = np.where(unfinished, np.where(t.saved_ns >= 0, np.clip(end - detect - t.saved_ns, 0, active), active), lost)
    lost = np.where(~last & fell & ~known, active, lost)
    fates = {
        "kept": active - lost,
        "unfinished": np.where(unfinished, lost, 0),
        "discarded": np.where(~last & known, lost, 0),
        "discarded at most": np.where(~last & ~known, lost, 0),
        "checkpoint save": save,
        "restore": restore,
        "hold/init": initial - restore,
        "detect+recover": detect,
    }
    executed = np.where(t.last_step >= 0, np.maximum(t.last_step - base, 0), NULL)
    again = np.where(last | ~fell, 0, np.where(back >= 0, np.clip(t.last_step - np.maximum(back, base), 0, None), NULL))
    return fates, executed, np.where(executed >= 0, np.minimum(again, executed), NULL)


def _lost_from(t: Table, begin: Ints, end: Ints, step_ns: Ints, base: Ints, back: Ints) -> tuple[Ints, Mask]:
    """When the work began that a later attempt did again, and whether that is known."""
    timed = (t.first_step_ns >= 0) & (step_ns > 0)
    # From the best source to the worst: went back to its start, time of the save, pace of the steps, share of the steps.
    by_step = t.first_step_ns + np.clip((back - t.first_step).astype(np.float64) * step_ns, -9e18, 9e18)
    share = np.clip((t.last_step - back) / np.maximum(t.last_step - base, 1), 0, 1)
    choices = [
        (back >= 0) & (t.last_step >= 0) & (back <= base),
        (back >= 0) & (t.saved_step == back) & (t.saved_ns >= 0),
        (back >= 0) & timed,
        (back >= 0) & (t.last_step >= 0) & (t.last_step > base),
        (back >= 0) & (t.saved_step < 0) & (back == 0),
    ]
    at = [begin, t.saved_ns, by_step, end - share * (end - begin), begin]
    found = np.clip(np.select(choices, at, default=begin), begin, np.maximum(end, begin))
    return found.astype(np.int64), np.logical_or.reduce(choices)
