"""Advice for a log: the plant of each relation, with what the log tells of it, tried in the simulator.

Only what a log tells is taken from it; the rest of a plant stays as it is and is named as a default. Plants keep their own
time: a second of a plant is ``unit_s`` seconds of the log, because the indices are ratios, and only ratios of times decide
them. Where a plant with the numbers of the log does not show the relation, nothing could be checked, and nothing is advised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as dataclass_replace
from math import ceil, inf
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.control.action_log import Log
from taut.control.amplification import per_work
from taut.control.metastability import estimated
from taut.control.relations import prepare
from taut.control.starvation import preemptions
from taut.control.timeout import DONE, constants
from taut.project.loops.advice import Stage, advise
from taut.project.loops.plants import PLANTED
from taut.project.loops.scenario import Autoscaler, Client, Demand, Loops, Pool, Scenario, Trainer, attempts_most

RUNS, MOST = 3, 8
"""Runs of every try, and relations that are tried for: it bounds the time."""
BUSIEST = 40.0
"""Requests a second of a plant: of a busier system a part is simulated, with as much of its servers."""
LEAST = 3
"""Gaps between decisions from which a usual one is told."""
CYCLE_S = 132.0
"""Two reversals of the planted oscillation, which follows from its delay; measured over an hour of it."""
MOST_RETRIES, MOST_REPLICAS, MOST_ATTEMPTS = 20, 1000, 100_000
"""Of a plant that is tried: retries of a layer, replicas, attempts of all works together."""
TAKES = 2.0
"""Assumed: what a launcher waits for takes so many times as long as it waits, where the log only tells that it is longer."""
IN_USE = 0.75
"""Share of the planted servers that is busy."""


@dataclass
class Plant:
    """A plant with the numbers of a log."""

    scenario: Scenario
    unit_s: float = 1.0
    from_log: dict[str, Any] = field(default_factory=dict)
    """What the log told, in its own time."""
    default: dict[str, Any] = field(default_factory=dict)
    """What it did not tell and the plant assumes, in the time of the log."""
    target: str = ""
    """What the relation is on in the plant, where several of its kind may show."""


def advise_log(
    trace: Any, relations: Sequence[Mapping[str, Any]], *, seed: int = 0, stage: Stage = lambda what: None
) -> tuple[list[dict[str, Any] | None], list[str]]:
    """For each relation what removes it in the simulator, or None; and why there is none."""
    log = prepare(trace)
    made: dict[tuple[str, str | None], dict[str, Any] | None] = {}
    notes: list[str] = []
    for one in relations:
        key = one["kind"], one["target"]
        if key not in made and len(made) == MOST:
            notes.append(f"separations are tried for the first {MOST} relations")
            break
        if key not in made:
            made[key], why = _advised(log, one, seed, stage)
            notes += [f"{_what(one)}: no advice could be checked: {why}"] if why else []
    return [made.get((one["kind"], one["target"])) for one in relations], notes


def _small(s: Scenario) -> bool:
    """Whether a run takes about a second."""
    numbers = (s.pool.service_s, s.demand.per_s, *(c.timeout_s for c in s.client), *(c.back_off_s for c in s.client))
    if not all(0 <= number < inf for number in numbers) or s.pool.replicas > MOST_REPLICAS:
        return False
    return s.demand.per_s * s.loops.horizon_s * attempts_most(s) <= MOST_ATTEMPTS


def _what(one: Mapping[str, Any]) -> str:
    return f"{one['kind']} on {one['target']}" if one["target"] else str(one["kind"])


def _advised(log: Log, one: Mapping[str, Any], seed: int, stage: Stage) -> tuple[dict[str, Any] | None, str]:
    fit = FITS.get(one["kind"])
    if fit is None:
        return None, "the simulator has no plant of this kind"
    plant = fit(log, one)
    if plant is None:
        return None, "the log does not tell what a plant of this kind needs"
    if not _small(plant.scenario):
        return None, "a plant with the numbers of the log is too large to be tried at once"
    found = advise(plant.scenario, only=(one["kind"], plant.target), seed=seed, runs=RUNS, stage=stage)
    if not found:
        return None, "the plant with the numbers of the log does not show it"
    row = found[0]
    row["sets"] = [
        {**key, **{side: _seconds(key["key"], key[side], plant.unit_s) for side in ("before", "after")}} for key in row["sets"]
    ]
    if row["value"] is not None and row["separation"] in IN_SECONDS:
        row["value"] *= plant.unit_s
    return {**row, "target": one["target"], "from_log": plant.from_log, "default": plant.default}, ""


IN_SECONDS = ("hold", "launcher-timeout", "checkpoint-interval")
"""Separations whose value is a time."""


def _seconds(key: str, value: Any, unit_s: float) -> Any:
    """A value of a plant in the time of the log."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not key.endswith("_s"):
        return value
    return value / unit_s if key.endswith("per_s") else value * unit_s


def _attempts(log: Log, target: str | None) -> Any:
    """Attempts at a target that say how long they took; at all of them where none is named."""
    rows = np.flatnonzero((log.attempt >= 0) & (log.busy_ns > 0))
    if not target:
        return rows
    number = log.words["target"].index(target) if target in log.words["target"] else -2
    return rows[log.target[rows] == number]


def _done(log: Log, rows: Any) -> Any:
    return log.matching("outcome", rf"^({'|'.join(DONE)})$")[rows]


def _per_s(log: Log, rows: Any) -> float:
    span = float(log.time_ns[rows[-1]] - log.time_ns[rows[0]]) / 1e9
    return float((log.attempt[rows] == 0).sum()) / max(span, 1e-9)


def _pause_s(log: Log, rows: Any) -> float:
    """From the end of an attempt to the next at the same work."""
    again = rows[(log.attempt[rows] > 0) & (log.parent[rows] >= 0)]
    before = log.parent[again]
    same = log.controller[before] == log.controller[again]
    gaps = (log.time_ns[again] - log.time_ns[before] - np.maximum(log.busy_ns[before], 0))[same] / 1e9
    return max(float(np.median(gaps)), 0.0) if len(gaps) else 0.0


def _name(log: Log, rows: Any, other: str) -> str:
    return log.word("controller", int(log.controller[rows[0]])) or other


def _metastability(log: Log, one: Mapping[str, Any]) -> Plant | None:
    rows = _attempts(log, one["target"])
    found = estimated(log, rows, np.random.default_rng(0)) if len(rows) else None
    if found is None or found.retries > MOST_RETRIES:
        return None
    plant = PLANTED["metastability"]
    unit = found.timeout_s / plant.client[0].timeout_s
    per_s, serves = float(found.per_s[0]) * unit, float(found.serves_per_s[0]) * unit
    part = max(per_s / BUSIEST, 1.0)
    replicas = max(round(found.beside / part), 1)
    pause, budget = _pause_s(log, rows), float(found.budget[0])
    name = _name(log, rows, "caller")
    client = Client(
        name, plant.client[0].timeout_s, found.retries, pause / unit, budget_share=min(budget, 1.0) if budget < inf else None
    )
    s = replace(plant, demand=Demand(per_s / part), pool=Pool(replicas * part / serves, replicas=replicas), client=(client,))
    stall = plant.stall[0].for_s * unit
    return Plant(
        s, unit,
        {"works_per_s": float(found.per_s[0]), "serves_per_s": float(found.serves_per_s[0]), "at_once": found.beside,
         "timeout_s": found.timeout_s, "retries": found.retries, "back_off_s": pause,
         **({"budget_share": budget} if budget < inf else {})},
        {"stall_s": stall, "arrivals": "Poisson", "service": "exponential", "cancels": False,
         **({"simulated_share": 1 / part} if part > 1 else {})},
    )  # fmt: skip


def _layers(log: Log, rows: Any) -> list[tuple[str, int]]:
    """Controllers that retried and their most retries, the outermost (that with the fewest attempts) first."""
    names = [(number, rows[log.controller[rows] == number]) for number in dict.fromkeys(log.controller[rows].tolist())]
    found = [
        (len(mine), log.word("controller", number) or f"layer {k}", int(log.attempt[mine].max()))
        for k, (number, mine) in enumerate(names)
    ]
    return [(name, retries) for _, name, retries in sorted(found)]


def _amplification(log: Log, one: Mapping[str, Any]) -> Plant | None:
    rows = np.flatnonzero((log.attempt >= 0) & ((log.work >= 0) | (log.parent >= 0)) & ~log.of_job)
    if one["p"] is not None or not len(rows) or not len(per_work(log, rows)[0]):
        return None
    asked = set(one["controllers"])
    layers = [layer for layer in _layers(log, rows) if layer[0] in asked] if asked else _layers(log, rows)
    if not layers or max(retries for _, retries in layers) > MOST_RETRIES:
        return None
    inner = rows[log.matching("controller", f"^{re.escape(layers[-1][0])}$")[rows]] if asked else rows
    failed = float((~_done(log, inner)).mean()) if (log.outcome[inner] >= 0).any() else None
    if len(layers) == 1 and _mostly_late(log, inner):
        # What fails because it is late fails less when less is tried: the errors of the other plant would not.
        late = _metastability(log, one)
        return late and dataclass_replace(late, target=late.scenario.pool.name)
    plant = PLANTED["amplification"]
    patience = [plant.client[-1].timeout_s * 6 ** (len(layers) - 1 - k) for k in range(len(layers))]
    clients = tuple(Client(name, wait, retries) for (name, retries), wait in zip(layers, patience, strict=True))
    pool = plant.pool if failed is None else replace(plant.pool, error_share=min(failed, 0.99))
    told_ = {"attempts": {name: retries + 1 for name, retries in layers}}
    return Plant(
        replace(plant, client=clients, pool=pool), 1.0, told_ if failed is None else {**told_, "failed_share": failed},
        {"works_per_s": plant.demand.per_s, "service_s": plant.pool.service_s, "replicas": plant.pool.replicas,
         **({"failed_share": plant.pool.error_share} if failed is None else {})},
        clients[1].name if len(clients) > 1 else pool.name,
    )  # fmt: skip


def _mostly_late(log: Log, rows: Any) -> bool:
    """Whether most of the attempts that failed ended at one constant duration."""
    took = log.busy_ns[rows][~_done(log, rows)] / 1e9
    limits = constants(took)
    return bool(limits) and float((took >= limits[0].at * (1 - 1e-3)).mean()) > 0.5


def _redundant(log: Log, one: Mapping[str, Any]) -> Plant | None:
    rows = _attempts(log, one["target"])
    rows = rows[~log.of_job[rows]]
    if not one["target"] or not len(rows) or not (log.outcome[rows] >= 0).any():
        return None
    retries = int(log.attempt[rows].max())
    failed = float((~_done(log, rows)).mean())
    if not 0 < retries <= MOST_RETRIES:
        return None
    plant = PLANTED["redundant work"]
    client = replace(plant.client[0], name=_name(log, rows, "caller"), retries=retries)
    s = replace(plant, pool=replace(plant.pool, error_share=min(failed, 0.99)), client=(client,))
    return Plant(
        s, 1.0, {"failed_share": failed, "retries": retries},
        {"works_per_s": plant.demand.per_s, "service_s": plant.pool.service_s, "replicas": plant.pool.replicas},
    )  # fmt: skip


def _mismatch(log: Log, one: Mapping[str, Any]) -> Plant | None:
    rows = _attempts(log, one["target"])
    first = rows[(log.attempt[rows] == 0) & (log.deadline_ns[rows] >= 0)]
    if not len(first):
        return _burned(log, one)
    took = log.busy_ns[rows] / 1e9
    done, retries = _done(log, rows), int(log.attempt[rows].max())
    if not done.any():
        return _burned(log, one)
    if not 0 < retries <= MOST_RETRIES:
        return None
    deadline = float(np.median(log.deadline_ns[first] - log.time_ns[first])) / 1e9
    if deadline <= 0:
        return None
    limits = constants(took[~done])
    limit, service, pause = limits[0].at if limits else float(took.max()), float(took[done].mean()), _pause_s(log, rows)
    plant = PLANTED["timeout mismatch"]
    unit = deadline / (plant.demand.deadline_s or 1.0)
    per_s = min(_per_s(log, rows) * unit, plant.demand.per_s)
    replicas = ceil(per_s * service / unit / IN_USE)
    s = replace(
        plant, demand=replace(plant.demand, per_s=per_s), pool=replace(plant.pool, service_s=service / unit, replicas=replicas),
        client=(Client(_name(log, rows, "caller"), limit / unit, retries, pause / unit),),
    )  # fmt: skip
    return Plant(
        s, unit, {"deadline_s": deadline, "timeout_s": limit, "retries": retries, "back_off_s": pause, "service_s": service},
        {"busy_share": IN_USE, "cancels": True},
    )  # fmt: skip


def _burned(log: Log, one: Mapping[str, Any]) -> Plant | None:
    """A launcher that gives up before what it launches is there."""
    table = log.trace.attempts
    mine = np.array([word == one["target"] for word in table.job.tolist()], dtype=bool) & (table.end_ns > table.start_ns)
    if mine.sum() < 2:
        return None
    given = np.flatnonzero((log.deadline_ns > log.time_ns) & np.isin(log.work, [log.words["work"].index(one["target"])])
                           if one["target"] in log.words["work"] else np.zeros(len(log), bool))  # fmt: skip
    limits = (log.deadline_ns - log.time_ns)[given] if len(given) else (table.end_ns - table.start_ns)[mine]
    limit = float(np.median(limits)) / 1e9
    trainer = Trainer(8, restore_s=60 * TAKES, spread=0.0, launcher_timeout_s=60, restarts=int(mine.sum()) - 1)
    s = Scenario("a launcher that gives up too early", Loops(horizon_s=3600), Demand(0.1), Pool(1, replicas=1), trainer=trainer)
    return Plant(s, limit / 60, {"timeout_s": limit, "restarts": int(mine.sum()) - 1}, {"restore_s": TAKES * limit})


def _pushed_ns(log: Log, name: str) -> Any:
    """When a work was pushed back."""
    rows, work = preemptions(log)
    named = [
        row for row in rows.tolist() if name in (log.word("work", int(log.work[row])), log.word("target", int(log.target[row])))
    ]
    if len(named) > LEAST:
        return log.time_ns[rows[work[rows] == work[named[0]]]]
    table = log.trace.attempts
    ended = [
        job == name and outcome == "preempted" for job, outcome in zip(table.job.tolist(), table.outcome.tolist(), strict=True)
    ]
    return np.sort(table.end_ns[np.array(ended, dtype=bool)])


def _starvation(log: Log, one: Mapping[str, Any]) -> Plant | None:
    gaps = np.diff(_pushed_ns(log, one["target"] or "")) / 1e9
    if len(gaps) < LEAST or not np.median(gaps) > 0:
        return None
    plant = PLANTED["starvation"]
    unit = float(np.median(gaps)) / plant.demand.period_s
    job = plant.trainer
    assert job is not None
    return Plant(
        plant, unit, {"preempted_every_s": float(np.median(gaps)), "preemptions": one["count"]},
        {"restore_s": job.restore_s * unit, "checkpoint_every_s": job.checkpoint_every_s * unit,
         "replica_start_s": plant.pool.start_s * unit, "demand": "a square wave of that period"},
    )  # fmt: skip


def _decisions(log: Log, one: Mapping[str, Any], name: str) -> Any:
    """Directed actions of a controller on the knob of a relation."""
    mask = log.direction != 0
    for column, word in (("controller", name), ("target", one["target"]), ("knob", one["knob"])):
        words = log.words[column]
        mask &= log.codes(column) == (words.index(word) if word in words else -1)
    return np.flatnonzero(mask)


def _conflict(log: Log, one: Mapping[str, Any]) -> Plant | None:
    if len(one["controllers"]) != 2:
        return None
    did, undid = (_decisions(log, one, name) for name in one["controllers"])
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
    plant = PLANTED["conflict"]
    quick, slow = plant.autoscaler
    unit = every / slow.period_s
    period = min(max(lag / unit, 1.0), slow.period_s)
    answers = replace(quick, name=one["controllers"][1], period_s=period, look_back_s=2 * period)
    s = replace(plant, autoscaler=(answers, replace(slow, name=one["controllers"][0])))
    return Plant(
        s, unit, {"decides_every_s": {one["controllers"][0]: every}, "undone_after_s": lag},
        {"signals": [quick.signal, slow.signal], "targets": [quick.target, slow.target],
         "replica_start_s": plant.pool.start_s * unit, "service_s": plant.pool.service_s * unit},
    )  # fmt: skip


def _oscillation(log: Log, one: Mapping[str, Any]) -> Plant | None:
    rows = _decisions(log, one, one["controllers"][0] if one["controllers"] else "")
    turns = int((np.diff(log.direction[rows]) != 0).sum()) if len(rows) else 0
    if turns < LEAST:
        return None
    span = float(log.time_ns[rows[-1]] - log.time_ns[rows[0]]) / 1e9
    cycle = 2 * span / turns
    unit = cycle / CYCLE_S
    every = float(np.quantile(np.diff(log.time_ns[rows]), 0.05)) / 1e9
    plant = PLANTED["oscillation"]
    own: Autoscaler = plant.autoscaler[0]
    own = replace(own, name=one["controllers"][0] if one["controllers"] else own.name)
    if 0 < every < cycle / 2:
        own = replace(own, period_s=max(every / unit, 1.0))
    return Plant(
        replace(plant, autoscaler=(own,)), unit,
        {"cycle_s": cycle, **({"decides_every_s": every} if 0 < every < cycle / 2 else {})},
        {"look_back_s": own.look_back_s * unit, "replica_start_s": plant.pool.start_s * unit, "signal": own.signal,
         **({} if 0 < every < cycle / 2 else {"decides_every_s": own.period_s * unit})},
    )  # fmt: skip


FITS: Mapping[str, Callable[[Log, Mapping[str, Any]], Plant | None]] = {
    "conflict": _conflict, "oscillation": _oscillation, "amplification": _amplification, "metastability": _metastability,
    "redundant work": _redundant, "starvation": _starvation, "timeout mismatch": _mismatch,
}  # fmt: skip
"""Kind of relation → its plant with the numbers of a log; None where the log does not tell them."""
