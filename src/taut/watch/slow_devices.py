"""Devices that take longer than those of the others, by what ranks told of sampled steps: what no host shows.

A device that became slower is told by where its time, less the middle one, steps up; one that is slow from the start by how far
it is above all others. A rank whose host comes later by the same is left to the analysis of hosts. A device that waits for its
host to give it work takes longer too, and says so (``observed_devices``): then its host is named, where no gate shows it.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints
from taut.core.ids import numbered
from taut.watch.named import CLEAR, LEAST_GATES, SAME, Named, rise
from taut.watch.observed_devices import DEVICE, MOST_SHARE
from taut.watch.seen import HOP, Seen
from taut.watch.sequential import MATTERS
from taut.watch.step_series import Turns, step_of

MOST_LOOKED = 8
"""Ranks that are looked at: those that rose most."""
NEARLY_ALL = 0.9
"""A sampled step tells if so many ranks told it."""
LEAST_RANKS, FAR, ALONE = 3, 2 * MATTERS, 6.0
"""A device is slow from the start if it is above the middle one of so many by this share of a step, and this many times the
spread of the others."""
HOSTS_PART = 0.5
"""A host that comes later by this part of what its device takes longer explains it."""


class DeviceRows(Struct, frozen=True):
    """What devices took in sampled steps, less the middle one."""

    ranks: Ints
    steps: Ints
    excess: Floats
    """Steps × ranks, s; NaN where one did not tell."""
    own: Floats
    """The same, without what may be the host's."""
    step_s: float


def slow_devices(seen: Seen, meets: dict[int, bool], *, whole: bool) -> list[Named]:
    """Ranks whose devices became slower; ``whole``: also those that were far slower than all others from the start."""
    rows = device_rows(seen)
    if rows is None or len(rows.steps) < 2 * LEAST_GATES:
        return []
    slower = _slower(rows, seen, meets)
    return slower or (_always_slow(rows, seen, meets) if whole else [])


def awaits_devices(seen: Seen, since_step: int) -> bool:
    """Whether ranks tell what their devices take, and too little of it yet since a step."""
    is_device = np.array([one.verb == DEVICE for one in seen.classes] or [False])
    told = seen.stages.take(is_device[seen.stages.klass]) if len(seen.stages) else seen.stages
    return len(told) > 0 and len(np.unique(told.number[told.number >= since_step])) <= LEAST_GATES


def device_rows(seen: Seen) -> DeviceRows | None:
    """What is told of devices; None where nothing is, or one rank alone is."""
    is_device = np.array([one.verb == DEVICE for one in seen.classes] or [False])
    ranks = np.unique(seen.steps.rank)
    if not len(seen.stages) or len(ranks) < 2:
        return None
    told = seen.stages.take(is_device[seen.stages.klass] & np.isin(seen.stages.rank, ranks))
    steps = np.unique(told.number)
    took = np.full((len(steps), len(ranks)), np.nan)
    cell = np.searchsorted(steps, told.number), np.searchsorted(ranks, told.rank)
    took[cell] = (told.end - told.begin) / 1e9
    own = took.copy()
    own[cell] *= 1 - told.flags / MOST_SHARE
    kept = np.isfinite(took).mean(axis=1) >= NEARLY_ALL
    if not kept.any():
        return None
    middle = np.nanmedian(took[kept], axis=1, keepdims=True)
    usual = float(np.median(seen.steps.end - seen.steps.begin)) / 1e9
    return DeviceRows(ranks, steps[kept], took[kept] - middle, own[kept] - middle, usual)


class _Slower(Struct, frozen=True):
    rank: int
    since_step: int
    grew_s: float
    own: bool
    """Whether it is the device itself, and not that its host gives it work later."""


def _slower(rows: DeviceRows, seen: Seen, meets: dict[int, bool]) -> list[Named]:
    third = max(len(rows.steps) // 3, 1)
    filled = np.where(np.isfinite(rows.excess), rows.excess, 0.0)
    rose = filled[-third:].mean(axis=0) - filled[:third].mean(axis=0)
    some = (_rose(rows, seen, meets, rank) for rank in np.argsort(-rose, kind="stable")[:MOST_LOOKED].tolist())
    found = [one for one in some if one is not None]
    if not found:
        return []
    worst = max(found, key=lambda one: one.grew_s)
    together = [
        one
        for one in found
        if one.own == worst.own and abs(one.since_step - worst.since_step) <= SAME and one.grew_s >= worst.grew_s / 2
    ]
    ranks = tuple(sorted(one.rank for one in together))
    who, waits = ("its host", "waits") if len(ranks) == 1 else ("their hosts", "wait")
    why = "no host is late" if worst.own else f"{waits} for {who} to give work"
    longer = f"{1e3 * worst.grew_s:.1f} ms of a step longer than the others' since step {worst.since_step}"
    because = f"{_whose(ranks)} {longer}, and {why}"
    share = min(worst.grew_s / rows.step_s, 0.9)
    return [Named("straggler cascade", ranks, (), worst.since_step, share, because, past=True, device=worst.own)]


def _rose(rows: DeviceRows, seen: Seen, meets: dict[int, bool], index: int) -> _Slower | None:
    """Whether, since when and by how much a rank's device takes longer."""
    known = np.isfinite(rows.excess[:, index])
    values, own, steps = rows.excess[known, index], rows.own[known, index], rows.steps[known]
    cut = rise(values)
    if cut is None:
        return None
    before, matters = float(values[:cut].mean()), MATTERS * rows.step_s
    grew, since, rank = float(values[cut:].mean()) - before, int(steps[cut]), int(rows.ranks[index])
    if grew < matters or values[cut:].mean() < matters / 2 or _host_grew(seen, meets, rank, since) >= HOSTS_PART * grew:
        return None
    grew_itself = float(own[cut:].mean()) - before
    is_own = grew_itself >= max(matters, HOSTS_PART * grew)
    return _Slower(rank, since, grew_itself if is_own else grew, is_own)


def _always_slow(rows: DeviceRows, seen: Seen, meets: dict[int, bool]) -> list[Named]:
    if len(rows.ranks) < LEAST_RANKS or any(one.verb == HOP for one in seen.classes):
        return []  # stages of a pipeline have unequal work
    usual = np.nanmedian(rows.own, axis=0)
    order = np.argsort(usual, kind="stable")
    worst, others = int(order[-1]), usual[order[:-1]]
    apart = 1.4826 * float(np.median(np.abs(others - np.median(others))))
    error = float(np.nanstd(rows.own[:, worst])) / np.sqrt(len(rows.steps))
    above = float(usual[worst] - others[-1])
    far = above >= FAR * rows.step_s and usual[worst] >= ALONE * apart and above >= CLEAR * error
    if not far or _host_late(seen, meets, int(rows.ranks[worst])) >= HOSTS_PART * usual[worst]:
        return []
    rank, first = int(rows.ranks[worst]), int(seen.steps.number.min())
    because = f"{_whose((rank,))} {1e3 * above:.1f} ms of a step longer than any other's, and its host is not late"
    share = min(above / rows.step_s, 0.9)
    return [Named("straggler cascade", (rank,), (), first, share, because, past=False, older=True, device=True)]


def _whose(ranks: tuple[int, ...]) -> str:
    return f"the device of rank {ranks[0]} takes" if len(ranks) == 1 else f"devices of {len(ranks)} ranks take up to"


def _lateness(seen: Seen, meets: dict[int, bool], rank: int) -> tuple[Ints, Floats]:
    """(steps, how much later than the middle member a rank came to their gates, s)."""
    ranks = np.unique(seen.steps.rank)
    meet = np.array([meets.get(k, False) for k in range(len(seen.classes))] or [False])
    gates = seen.gates.take(meet[seen.gates.klass]) if len(seen.gates) else seen.gates
    steps = np.unique(seen.steps.number)
    late = np.zeros(len(steps))
    if len(gates):
        gate, _ = numbered(gates.klass, gates.number)
        behind = (gates.begin - Turns(gates, gate).middle[gate]) / 1e9
        at = step_of(gates, seen.steps, ranks, int(seen.steps.begin.min()))
        mine = (gates.rank == rank) & (at <= steps[-1])
        np.add.at(late, np.minimum(np.searchsorted(steps, at[mine]), len(steps) - 1), behind[mine])
    return steps, late


def _host_grew(seen: Seen, meets: dict[int, bool], rank: int, since: int) -> float:
    """By how much later a rank's host comes to its gates since a step, s."""
    steps, late = _lateness(seen, meets, rank)
    before, after = late[steps < since], late[steps >= since]
    return float(np.median(after) - np.median(before)) if len(before) and len(after) else 0.0


def _host_late(seen: Seen, meets: dict[int, bool], rank: int) -> float:
    """How late a rank's host comes to its gates, s."""
    return float(np.median(_lateness(seen, meets, rank)[1]))
