"""Attempts and traced runs → one table of held time, in which every accelerator second stands once.

Where a run was traced inside an attempt, its cells take the place of that part of the attempt, and the rest of the
attempt's *kept* time is divided in the run's proportions: modelled, and said so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.ids import weighed, word_ids
from taut.core.tables import Table, concat
from taut.ledger.bill.cut_rows import cut_at
from taut.ledger.bill.rows import Held
from taut.ledger.bill.traced_time import Traced, stretches, traced_time

INSIDE = 0.9
"""Share of a traced time that lies inside an attempt, from which on it is taken as traced there: clocks and logs differ."""
HOUR_NS = 3_600_000_000_000
SLICES = 1_000
"""Kept time is divided hour by hour, or in so many slices where it is longer: prices and tariffs change by the hour."""


class Joined(Struct):
    """Held time of everything, and what was decided on the way."""

    held: Table
    jobs: list[str]
    """The job of each run."""
    notes: list[str]


def join(attempts: Table, runs: Sequence[Traced]) -> Joined:
    """One table out of the held time of attempts and the cells of runs."""
    found, notes, cells, jobs = attempts, list[str](), list[Table](), list[str]()
    for run in runs:
        rows = traced_time(run)
        met = _met(found, rows, run)
        jobs.append(met or run.job)
        if met is None:
            cells.append(rows)
            continue
        mine = found.job == met
        rows = rows.replace(job=np.full(len(rows), met, dtype=object), team=_team(found.take(mine), len(rows)))
        rest, said = _on_hosts(found.take(mine), run)
        rest, spares = _spare(rest, run)
        said += _hidden(rest, spares, rows)
        if run.dated and (rest.start_ns >= 0).all():
            rest = _without(rest, rows, run)
            cells.append(rows)
        else:
            said.append(f"{run.coverage}: when, its logs do not tell; the job's time is divided in its proportions")
        found = concat(Held, [found.take(~mine), _divided(rest, rows, run), spares])
        notes += said
    return Joined(concat(Held, [found, *cells]), jobs, notes)


def meets(attempts: Table, run: Traced) -> str | None:
    """The job of some held time inside whose attempts a run was traced; None for none."""
    return _met(attempts, traced_time(run), run)


def _team(held: Table, count: int) -> Texts:
    return np.full(count, held.team[0] if len(held) else "", dtype=object)


def _met(attempts: Table, rows: Table, run: Traced) -> str | None:
    """The job in whose attempts a run was traced: its own, else the one job that ran then and there."""
    jobs = set(attempts.job.tolist())
    if not run.dated:
        return run.job if run.job in jobs else None
    begin, end = stretches(rows)
    hosts = {host for host in rows.host.tolist() if host}
    overlap = np.minimum(attempts.end_ns, end[-1]) - np.maximum(attempts.start_ns, begin[0])
    then = (attempts.start_ns >= 0) & (overlap > 0)
    if run.job in jobs:
        own = attempts.job == run.job
        return run.job if (then & own).any() or (attempts.start_ns[own] < 0).all() else None
    there = then & np.isin(attempts.host, list(hosts))
    around = {
        job
        for job in set(attempts.job[there].tolist())
        if _covers(attempts.take(there & (attempts.job == job)), begin[0], end[-1], hosts)
    }
    return around.pop() if len(around) == 1 else None


def _covers(held: Table, begin: int, end: int, hosts: set[str]) -> bool:
    """Whether a job held all of some hosts for nearly all of a time."""
    spent = np.minimum(held.end_ns, end) - np.maximum(held.start_ns, begin)
    return hosts <= set(held.host.tolist()) and float(spent.sum()) >= INSIDE * (end - begin) * len(hosts)


def _without(held: Table, rows: Table, run: Traced) -> Table:
    """What a job held beside its traced ranks, and before and after they were traced."""
    begin, end = stretches(rows)
    cut = cut_at(held, np.unique(np.concatenate([begin, end])))
    at = np.searchsorted(begin, cut.start_ns, side="right") - 1
    traced = (at >= 0) & (cut.start_ns < end[np.maximum(at, 0)])
    taken = _traced_on(cut.host, run)
    left = np.where(traced, np.maximum(cut.accelerators - taken, 0), cut.accelerators).astype(np.int64)
    rest = cut.replace(accelerators=left, rank_ns=left * (cut.end_ns - cut.start_ns))
    return rest.take(left > 0)


def _traced_on(host: Texts, run: Traced) -> Ints:
    """How many ranks were traced on each of some hosts; all, where the host is not known."""
    names = [run.host_of.get(rank, "") for rank in run.ranks.tolist()]
    count = {name: names.count(name) for name in set(names)} | {"": len(names)}
    return np.array([count.get(name, 0) for name in host.tolist()], dtype=np.int64)


def _on_hosts(held: Table, run: Traced) -> tuple[Table, list[str]]:
    """A job whose logs name no hosts held those of its traced ranks, where these are all that it had."""
    names = [run.host_of.get(rank, "") for rank in run.ranks.tolist()]
    if not all(names) or not len(held) or (held.host != "").any() or not (held.accelerators == len(names)).all():
        return held, []
    hosts = list(dict.fromkeys(names))
    many = np.repeat(np.arange(len(held)), len(hosts))
    each = np.tile(np.array([names.count(host) for host in hosts], dtype=np.int64), len(held))
    out = held.take(many)
    rank_ns = np.where(out.start_ns >= 0, each * (out.end_ns - out.start_ns), out.rank_ns // len(names) * each)
    placed = out.replace(host=np.tile(np.array(hosts, dtype=object), len(held)), accelerators=each, rank_ns=rank_ns)
    return placed, [f"{held.job[0]}: its logs name no hosts; they are taken to be those of {run.name}"]


def _spare(held: Table, run: Traced) -> tuple[Table, Table]:
    """A job's kept time without, and that of, accelerators beyond its ranks; none where not all of these were traced."""
    nothing = held.take(np.zeros(len(held), dtype=np.bool_))
    if run.world_size is None or len(run.ranks) != run.world_size:
        return held, nothing
    beyond = held.accelerators - _traced_on(held.host, run)
    some = (held.fate == "kept") & (beyond > 0)
    if not some.any():
        return held, nothing
    left = np.where(some, held.accelerators - beyond, held.accelerators).astype(np.int64)
    spare = held.take(some)
    return _with(held, left).take(left > 0), _with(spare, beyond[some]).replace(
        fate=np.full(len(spare), "spare", dtype=object), cause=np.full(len(spare), "", dtype=object)
    )


def _with(held: Table, accelerators: Ints) -> Table:
    """The rows with another number of accelerators."""
    timed = held.start_ns >= 0
    share = held.rank_ns // np.maximum(held.accelerators, 1) * accelerators
    return held.replace(accelerators=accelerators, rank_ns=np.where(timed, accelerators * (held.end_ns - held.start_ns), share))


def _hidden(held: Table, spares: Table, rows: Table) -> list[str]:
    """What spares hide: they stand by while the ranks beside them lose time all the same."""
    if not len(spares):
        return []
    kept, spent = float(held.rank_ns[held.fate == "kept"].sum()), float(spares.rank_ns.sum())
    lost = 1 - float(rows.rank_ns[rows.fate == "productive"].sum()) / max(float(rows.rank_ns.sum()), 1.0)
    share, job = spent / max(kept + spent, 1.0), spares.job[0]
    return [f"{job}: spares take {100 * share:.0f} % of what it holds, while its ranks lose {100 * lost:.0f} % of their time"]


class _Shares(Struct, frozen=True):
    """Fates and causes of a run, and the share of each in the time of its ranks on every host."""

    fate: Texts
    cause: Texts
    upto: Floats
    """Row per host, the last for hosts that it does not name: running sums of shares, up to 1."""
    host: dict[str, int]


def _shares(rows: Table) -> _Shares:
    kind = np.array(
        [f"{fate}\0{cause}" for fate, cause in zip(rows.fate.tolist(), rows.cause.tolist(), strict=True)], dtype=object
    )
    code, words = word_ids(kind)
    place, hosts = word_ids(rows.host)
    each = weighed(np.where(place < 0, len(hosts), place) * len(words) + code, rows.rank_ns, (len(hosts) + 1) * len(words))
    each = each.reshape(len(hosts) + 1, len(words))
    each[-1] = each.sum(axis=0)
    upto = np.cumsum(each, axis=1)
    pairs = [word.split("\0") for word in words]
    fate, cause = (np.array([pair[i] for pair in pairs], dtype=object) for i in (0, 1))
    return _Shares(fate, cause, upto / np.maximum(upto[:, -1:], 1), {host: i for i, host in enumerate(hosts)})


def _divided(held: Table, rows: Table, run: Traced) -> Table:
    """Kept time of a job in the proportions of its traced time, slice by slice; everything else as it was."""
    kept = held.fate == "kept"
    if not kept.any() or not len(rows):
        return held
    shares = _shares(rows)
    some = _sliced(held.take(kept))
    length = np.where(some.start_ns >= 0, some.end_ns - some.start_ns, some.rank_ns)
    place = np.array([shares.host.get(host, len(shares.upto) - 1) for host in some.host.tolist()], dtype=np.int64)
    upto = np.rint(length[:, None] * shares.upto[place]).astype(np.int64)
    upto[:, -1] = length
    before = np.concatenate([np.zeros((len(some), 1), dtype=np.int64), upto[:, :-1]], axis=1)
    row, part = np.nonzero(upto > before)
    parts = _part(some.take(row), before[row, part], upto[row, part])
    parts = parts.replace(
        fate=shares.fate[part],
        cause=shares.cause[part],
        source=np.full(len(row), "modelled", dtype=object),
        origin=np.full(len(row), run.coverage, dtype=object),
    )
    return concat(Held, [held.take(~kept), parts])


def _part(held: Table, begin: Ints, end: Ints) -> Table:
    """A part of each row, from one length to another behind its begin; of rows without dates, of their accelerator time."""
    timed: Mask = held.start_ns >= 0
    start = np.where(timed, held.start_ns + begin, held.start_ns)
    stop = np.where(timed, held.start_ns + end, held.end_ns)
    rank_ns = np.where(timed, held.accelerators.astype(np.int64) * (end - begin), end - begin)
    return held.replace(start_ns=start, end_ns=stop, rank_ns=rank_ns)


def _sliced(held: Table) -> Table:
    """Rows cut at full hours, or less often where these would be very many."""
    timed = held.start_ns >= 0
    if not timed.any():
        return held
    first, last = int(held.start_ns[timed].min()), int(held.end_ns[timed].max())
    step = HOUR_NS * max(1, -(-(last - first) // (SLICES * HOUR_NS)))
    return cut_at(held, np.arange(first // step + 1, last // step + 1, dtype=np.int64) * step)
