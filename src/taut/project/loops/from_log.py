"""Advice for a log: the planted scenario of each relation, fitted to the log, tried in the simulator.

Only what a log tells is taken from it; the rest of a planted scenario stays as it is and is named as a default. Scenarios
keep their own time: a second of one is ``unit_s`` seconds of the log, because the indices are ratios, and only ratios of
times decide them. Where a scenario with the numbers of the log does not show the relation, nothing could be checked, and
nothing is advised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from math import ceil, inf

import numpy as np
from msgspec.structs import replace

from taut.control.action_log import Log
from taut.control.amplification import linked_attempts, per_work
from taut.control.metastability import estimated
from taut.control.relations import prepare
from taut.control.starvation import preemptions
from taut.control.timeout import constants, done
from taut.core.array_types import Ints
from taut.core.tables import Trace
from taut.project.loops.advice import Stage, advise
from taut.project.loops.planted_scenarios import PLANTED
from taut.project.loops.scenario import Autoscaler, Client, Demand, Loops, Pool, Scenario, Trainer, attempts_most
from taut.result.types import Advice, RelationResult, Setting

RUNS, MOST = 3, 8
"""Runs of every try, and relations that are tried for: it bounds the time."""
BUSIEST = 40.0
"""Requests a second that are simulated: of a busier system a part is simulated, with as much of its servers."""
LEAST = 3
"""Gaps between decisions from which a usual one is estimated."""
CYCLE_S = 132.0
"""Two reversals of the planted oscillation, which follows from its delay; measured over an hour of it."""
MOST_RETRIES, MOST_REPLICAS, MOST_ATTEMPTS = 20, 1000, 100_000
"""Of a scenario that is tried: retries of a layer, replicas, attempts of all requests together."""
TAKES = 2.0
"""Assumed: what a launcher waits for takes so many times as long as it waits, where the log only tells that it is longer."""
IN_USE = 0.75
"""Share of the planted servers that is busy."""


Values = dict[str, Setting | dict[str, float]]


@dataclass(frozen=True)
class FittedScenario:
    """A planted scenario with the numbers of a log."""

    scenario: Scenario
    unit_s: float
    from_log: Values
    """What the log tells, in its own time."""
    default: Values
    """What it does not tell and the scenario assumes, in the time of the log."""
    target: str = ""
    """What the relation is on in the scenario, where several of its kind may show."""


def advise_log(
    trace: Trace, relations: Sequence[RelationResult], *, seed: int = 0, stage: Stage = lambda what: None
) -> tuple[list[Advice | None], list[str]]:
    """For each relation what removes it in the simulator, or None; and why there is none."""
    log = prepare(trace)
    made: dict[tuple[str, str | None], Advice | None] = {}
    notes: list[str] = []
    for one in relations:
        key = one.kind, one.target
        if key not in made and len(made) == MOST:
            notes.append(f"separations are tried for the first {MOST} relations")
            break
        if key not in made:
            made[key], why = _advised(log, one, seed, stage)
            what = f"{one.kind} on {one.target}" if one.target else one.kind
            notes += [f"{what}: no advice could be checked: {why}"] if why else []
    return [made.get((one.kind, one.target)) for one in relations], notes


def _small(s: Scenario) -> bool:
    """Whether a run takes about a second."""
    numbers = (s.pool.service_s, s.demand.per_s, *(c.timeout_s for c in s.client), *(c.back_off_s for c in s.client))
    if not all(0 <= number < inf for number in numbers) or s.pool.replicas > MOST_REPLICAS:
        return False
    return s.demand.per_s * s.loops.horizon_s * attempts_most(s) <= MOST_ATTEMPTS


def _advised(log: Log, one: RelationResult, seed: int, stage: Stage) -> tuple[Advice | None, str]:
    fit = FITS.get(one.kind)
    if fit is None:
        return None, "the simulator has no scenario of this kind"
    fitted = fit(log, one)
    if fitted is None:
        return None, "the log does not hold the numbers that a simulation of it needs"
    if not _small(fitted.scenario):
        return None, "a simulation with the numbers of the log is too large to be tried at once"
    found = advise(fitted.scenario, only=(one.kind, fitted.target), seed=seed, runs=RUNS, stage=stage)
    if not found:
        return None, "a simulation with the numbers of the log does not show it"
    (row,), unit_s = found, fitted.unit_s
    value = row.value * unit_s if row.value is not None and row.separation in IN_SECONDS else row.value
    sets = [
        replace(key, before=_seconds(key.key, key.before, unit_s), after=_seconds(key.key, key.after, unit_s))
        for key in row.sets
    ]
    return replace(row, sets=sets, value=value, target=one.target, from_log=fitted.from_log, default=fitted.default), ""


IN_SECONDS = ("hold", "launcher-timeout", "checkpoint-interval")
"""Separations whose value is a time."""


def _seconds(key: str, value: Setting, unit_s: float) -> Setting:
    """A value of a scenario in the time of the log."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not key.endswith("_s"):
        return value
    return value / unit_s if key.endswith("per_s") else value * unit_s


def _attempts(log: Log, target: str | None) -> Ints:
    """Attempts at a target that say how long they took; at all of them where none is named."""
    timed = (log.attempt >= 0) & (log.busy_ns > 0)
    return np.flatnonzero(timed & (log.target == log.code("target", target)) if target else timed)


def _per_s(log: Log, rows: Ints) -> float:
    span = float(log.time_ns[rows[-1]] - log.time_ns[rows[0]]) / 1e9
    return float((log.attempt[rows] == 0).sum()) / max(span, 1e-9)


def _pause_s(log: Log, rows: Ints) -> float:
    """From the end of an attempt to the next at the same work."""
    again = rows[(log.attempt[rows] > 0) & (log.parent[rows] >= 0)]
    before = log.parent[again]
    same = log.controller[before] == log.controller[again]
    gaps = (log.time_ns[again] - log.time_ns[before] - np.maximum(log.busy_ns[before], 0))[same] / 1e9
    return max(float(np.median(gaps)), 0.0) if len(gaps) else 0.0


def _metastability(log: Log, one: RelationResult) -> FittedScenario | None:
    rows = _attempts(log, one.target)
    found = estimated(log, rows, np.random.default_rng(0)) if len(rows) else None
    if found is None or found.retries > MOST_RETRIES:
        return None
    planted = PLANTED["metastability"]
    unit = found.timeout_s / planted.client[0].timeout_s
    per_s, serves = float(found.per_s[0]) * unit, float(found.serves_per_s[0]) * unit
    # Of a busy system a part with as much of its servers behaves alike, and takes a second to simulate.
    part = max(per_s / BUSIEST, 1.0)
    replicas = max(round(found.beside / part), 1)
    pause, budget = _pause_s(log, rows), float(found.budget[0])
    name = log.name("controller", rows[0]) or "caller"
    client = Client(
        name, planted.client[0].timeout_s, found.retries, pause / unit, budget_share=min(budget, 1.0) if budget < inf else None
    )
    s = replace(planted, demand=Demand(per_s / part), pool=Pool(replicas * part / serves, replicas=replicas), client=(client,))
    stall = planted.stall[0].for_s * unit
    return FittedScenario(
        s,
        unit,
        {
            "works_per_s": float(found.per_s[0]),
            "serves_per_s": float(found.serves_per_s[0]),
            "at_once": found.beside,
            "timeout_s": found.timeout_s,
            "retries": found.retries,
            "back_off_s": pause,
            **({"budget_share": budget} if budget < inf else {}),
        },
        {
            "stall_s": stall,
            "arrivals": "Poisson",
            "service": "exponential",
            "cancels": False,
            **({"simulated_share": 1 / part} if part > 1 else {}),
        },
    )


def _layers(log: Log, rows: Ints) -> list[tuple[str, int]]:
    """Controllers that retried and their most retries, the outermost (that with the fewest attempts) first."""
    names = [(number, rows[log.controller[rows] == number]) for number in dict.fromkeys(log.controller[rows].tolist())]
    found = [
        (len(mine), log.word("controller", number) or f"layer {k}", int(log.attempt[mine].max()))
        for k, (number, mine) in enumerate(names)
    ]
    return [(name, retries) for _, name, retries in sorted(found)]


def _amplification(log: Log, one: RelationResult) -> FittedScenario | None:
    rows = np.flatnonzero(linked_attempts(log))
    if one.p is not None or not len(rows) or not len(per_work(log, rows)[0]):
        return None
    layers = [layer for layer in _layers(log, rows) if not one.controllers or layer[0] in one.controllers]
    if not layers or max(retries for _, retries in layers) > MOST_RETRIES:
        return None
    inner = rows[log.matching("controller", f"^{re.escape(layers[-1][0])}$")[rows]] if one.controllers else rows
    if len(layers) == 1 and _mostly_late(log, inner):
        # What fails because it is late fails less when less is tried: the errors of the other scenario would not.
        late = _metastability(log, one)
        return late and with_fields(late, target=late.scenario.pool.name)
    planted = PLANTED["amplification"]
    # Each layer waits six times as long as the one below it, so that the inner ones can use their attempts.
    patience = [planted.client[-1].timeout_s * 6 ** (len(layers) - 1 - k) for k in range(len(layers))]
    clients = tuple(Client(name, wait, retries) for (name, retries), wait in zip(layers, patience, strict=True))
    pool = planted.pool
    known: Values = {"attempts": {name: retries + 1 for name, retries in layers}}
    default: Values = {"works_per_s": planted.demand.per_s, "service_s": pool.service_s, "replicas": pool.replicas}
    if (log.outcome[inner] >= 0).any():
        known["failed_share"] = failed = float((~done(log)[inner]).mean())
        pool = replace(pool, error_share=min(failed, 0.99))
    else:
        default["failed_share"] = pool.error_share
    target = clients[1].name if len(clients) > 1 else pool.name
    return FittedScenario(replace(planted, client=clients, pool=pool), 1.0, known, default, target)


def _mostly_late(log: Log, rows: Ints) -> bool:
    """Whether most of the attempts that failed ended at one constant duration."""
    took = log.busy_ns[rows][~done(log)[rows]] / 1e9
    limits = constants(took)
    return bool(limits) and float((took >= limits[0].at * (1 - 1e-3)).mean()) > 0.5


def _redundant(log: Log, one: RelationResult) -> FittedScenario | None:
    rows = _attempts(log, one.target)
    rows = rows[~log.of_job[rows]]
    if not one.target or not len(rows) or not (log.outcome[rows] >= 0).any():
        return None
    retries = int(log.attempt[rows].max())
    failed = float((~done(log)[rows]).mean())
    if not 0 < retries <= MOST_RETRIES:
        return None
    planted = PLANTED["redundant work"]
    client = replace(planted.client[0], name=log.name("controller", rows[0]) or "caller", retries=retries)
    s = replace(planted, pool=replace(planted.pool, error_share=min(failed, 0.99)), client=(client,))
    return FittedScenario(
        s,
        1.0,
        {"failed_share": failed, "retries": retries},
        {"works_per_s": planted.demand.per_s, "service_s": planted.pool.service_s, "replicas": planted.pool.replicas},
    )


def _mismatch(log: Log, one: RelationResult) -> FittedScenario | None:
    rows = _attempts(log, one.target)
    first = rows[(log.attempt[rows] == 0) & (log.deadline_ns[rows] >= 0)]
    if not len(first):
        return _launcher_timeout(log, one)
    took = log.busy_ns[rows] / 1e9
    ended_well, retries = done(log)[rows], int(log.attempt[rows].max())
    if not ended_well.any():
        return _launcher_timeout(log, one)
    if not 0 < retries <= MOST_RETRIES:
        return None
    deadline = float(np.median(log.deadline_ns[first] - log.time_ns[first])) / 1e9
    if deadline <= 0:
        return None
    limits = constants(took[~ended_well])
    limit, service, pause = limits[0].at if limits else float(took.max()), float(took[ended_well].mean()), _pause_s(log, rows)
    planted = PLANTED["timeout mismatch"]
    unit = deadline / (planted.demand.deadline_s or 1.0)
    per_s = min(_per_s(log, rows) * unit, planted.demand.per_s)
    replicas = ceil(per_s * service / unit / IN_USE)
    s = replace(
        planted,
        demand=replace(planted.demand, per_s=per_s),
        pool=replace(planted.pool, service_s=service / unit, replicas=replicas),
        client=(Client(log.name("controller", rows[0]) or "caller", limit / unit, retries, pause / unit),),
    )
    return FittedScenario(
        s,
        unit,
        {"deadline_s": deadline, "timeout_s": limit, "retries": retries, "back_off_s": pause, "service_s": service},
        {"busy_share": IN_USE, "cancels": True},
    )


def _launcher_timeout(log: Log, one: RelationResult) -> FittedScenario | None:
    """A launcher that gives up before what it launches is there."""
    table = log.trace.attempts
    mine = (table.job == one.target) & (table.end_ns > table.start_ns)
    if mine.sum() < 2:
        return None
    given = np.flatnonzero((log.deadline_ns > log.time_ns) & (log.work == log.code("work", one.target)))
    limits = (log.deadline_ns - log.time_ns)[given] if len(given) else (table.end_ns - table.start_ns)[mine]
    limit = float(np.median(limits)) / 1e9
    trainer = Trainer(8, restore_s=60 * TAKES, spread=0.0, launcher_timeout_s=60, restarts=int(mine.sum()) - 1)
    s = Scenario("a launcher that gives up too early", Loops(horizon_s=3600), Demand(0.1), Pool(1, replicas=1), trainer=trainer)
    return FittedScenario(s, limit / 60, {"timeout_s": limit, "restarts": int(mine.sum()) - 1}, {"restore_s": TAKES * limit})


def _preempted_ns(log: Log, name: str) -> Ints:
    """When a job was preempted."""
    rows, work = preemptions(log)
    named = rows[(log.work[rows] == log.code("work", name)) | (log.target[rows] == log.code("target", name))]
    if len(named) > LEAST:
        return log.time_ns[np.intersect1d(rows, np.flatnonzero(work == work[named[0]]))]
    table = log.trace.attempts
    ended: Ints = np.sort(table.end_ns[(table.job == name) & (table.outcome == "preempted")])
    return ended


def _starvation(log: Log, one: RelationResult) -> FittedScenario | None:
    gaps = np.diff(_preempted_ns(log, one.target or "")) / 1e9
    if len(gaps) < LEAST or not np.median(gaps) > 0:
        return None
    planted = PLANTED["starvation"]
    unit = float(np.median(gaps)) / planted.demand.period_s
    job = planted.trainer
    assert job is not None
    return FittedScenario(
        planted,
        unit,
        {"preempted_every_s": float(np.median(gaps)), "preemptions": one.count},
        {
            "restore_s": job.restore_s * unit,
            "checkpoint_every_s": job.checkpoint_every_s * unit,
            "replica_start_s": planted.pool.start_s * unit,
            "demand": "a square wave of that period",
        },
    )


def _decisions(log: Log, one: RelationResult, name: str) -> Ints:
    """Directed actions of a controller on the knob of a relation."""
    mask = log.direction != 0
    for column, word in (("controller", name), ("target", one.target), ("knob", one.knob)):
        mask &= log.codes(column) == log.code(column, word)
    return np.flatnonzero(mask)


def _conflict(log: Log, one: RelationResult) -> FittedScenario | None:
    if len(one.controllers) != 2:
        return None
    did, undid = (_decisions(log, one, name) for name in one.controllers)
    if len(did) <= LEAST or not len(undid):
        return None
    if not np.isfinite(log.level[np.concatenate([did, undid])]).all():
        return None  # a knob without numbers has no target to steer to
    way = 1 if (log.direction[did] > 0).mean() > 0.5 else -1
    mine, back = log.time_ns[did[log.direction[did] == way]], log.time_ns[undid[log.direction[undid] == -way]]
    after = np.searchsorted(back, mine)
    lags, gaps = (back[after[after < len(back)]] - mine[after < len(back)]) / 1e9, np.diff(mine) / 1e9
    if not len(lags) or len(gaps) < LEAST or not np.median(gaps) > 0:
        return None
    lag, every = float(np.median(lags)), float(np.median(gaps))
    planted = PLANTED["conflict"]
    quick, slow = planted.autoscaler
    unit = every / slow.period_s
    period = min(max(lag / unit, 1.0), slow.period_s)
    answers = replace(quick, name=one.controllers[1], period_s=period, look_back_s=2 * period)
    s = replace(planted, autoscaler=(answers, replace(slow, name=one.controllers[0])))
    return FittedScenario(
        s,
        unit,
        {"decides_every_s": {one.controllers[0]: every}, "undone_after_s": lag},
        {
            "signals": [quick.signal, slow.signal],
            "targets": [quick.target, slow.target],
            "replica_start_s": planted.pool.start_s * unit,
            "service_s": planted.pool.service_s * unit,
        },
    )


def _oscillation(log: Log, one: RelationResult) -> FittedScenario | None:
    rows = _decisions(log, one, one.controllers[0] if one.controllers else "")
    turns = int((np.diff(log.direction[rows]) != 0).sum()) if len(rows) else 0
    if turns < LEAST:
        return None
    span = float(log.time_ns[rows[-1]] - log.time_ns[rows[0]]) / 1e9
    cycle = 2 * span / turns
    unit = cycle / CYCLE_S  # the planted cycle follows from its delay, so that time is scaled to fit the one in the log
    every = float(np.quantile(np.diff(log.time_ns[rows]), 0.05)) / 1e9
    planted = PLANTED["oscillation"]
    own: Autoscaler = planted.autoscaler[0]
    own = replace(own, name=one.controllers[0] if one.controllers else own.name)
    if 0 < every < cycle / 2:
        own = replace(own, period_s=max(every / unit, 1.0))
    return FittedScenario(
        replace(planted, autoscaler=(own,)),
        unit,
        {"cycle_s": cycle, **({"decides_every_s": every} if 0 < every < cycle / 2 else {})},
        {
            "look_back_s": own.look_back_s * unit,
            "replica_start_s": planted.pool.start_s * unit,
            "signal": own.signal,
            **({} if 0 < every < cycle / 2 else {"decides_every_s": own.period_s * unit}),
        },
    )


FITS: Mapping[str, Callable[[Log, RelationResult], FittedScenario | None]] = {
    "conflict": _conflict, "oscillation": _oscillation, "amplification": _amplification, "metastability": _metastability,
    "redundant work": _redundant, "starvation": _starvation, "timeout mismatch": _mismatch,
}  # fmt: skip
"""Kind of relation → its planted scenario with the numbers of a log; None where the log does not tell them."""
