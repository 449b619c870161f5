"""Advice that was tried: for every relation the smallest separation that removes it in the simulator, and what it changes.

Separations are tried from the one that changes least to the one that changes most; one counts as removing a relation when
none of the runs shows it. What it does to the indices is then measured on the same runs, not promised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from taut.control import prepare
from taut.control import relations as relations_of
from taut.project.loop.policies import POLICIES
from taut.project.loop.run import Played, play
from taut.project.loop.spec import Scenario, Stall
from taut.project.loops import at, judged

RUNS = 3
LATE, WELL = (0.6, 0.9), 0.9
"""Part of a run in which a system should have come back, and the share of requests answered in time that says so."""
WATCHED = {"cross_layer_coherence": -1, "decision_conflict_rate": 1, "control_overhead_fraction": 1, "effective_capacity": -1}
"""What more capacity may make worse, and which way worse is."""
Row = Mapping[str, float | None]
Key = tuple[str, str, bool]
"""What a relation is known by: its kind, its target, and whether it was counted rather than tested."""
SEPARATIONS: Mapping[str, tuple[tuple[str, tuple[float | None, ...]], ...]] = {
    "conflict": (("hysteresis", (0.1, 0.2, 0.4)), ("one-owner", (None,))),
    "oscillation": (("hysteresis", (0.1, 0.2, 0.4)), ("aligned-periods", (0.5, 1.0, 2.0)), ("margin", (None,))),
    "amplification": (("retry-budget", (0.5, 0.2, 0.1)), ("one-retry-layer", (None,))),
    "feedback loop": (("hysteresis", (0.1, 0.2, 0.4)), ("aligned-periods", (1.0, 2.0))),
    "metastability": (("retry-budget", (0.5, 0.2, 0.1)), ("deadline-propagation", (None,))),
    "redundant work": (("deadline-propagation", (None,)), ("retry-budget", (0.2, 0.1, 0.02)), ("checkpoint-interval", (None,))),
    "starvation": (("hold", (30.0, 60.0, 120.0)), ("own-accelerators", (None,))),
    "timeout mismatch": (
        ("longer-timeout", (None,)), ("launcher-timeout", (None,)), ("deadline-propagation", (None,)),
        ("retry-budget", (0.1, 0.02)),
    ),
}  # fmt: skip
"""Kind of relation → what may remove it, from the smallest change to the largest, each with its values."""


def shown(s: Scenario, seeds: Sequence[int]) -> list[set[Key]]:
    """Of each run, the relations its log shows; metastable is what does not come back from its stalls, whatever it shows."""
    out = []
    for seed in seeds:
        run = play(s, seed)
        found = {(one.kind, one.target, one.p is None) for one in relations_of(prepare(run.trace), seed)}
        stays_down = {("metastability", s.pool.name, True)} if s.stall and not _recovered(run) else set()
        out.append({key for key in found if key[0] != "metastability"} | stays_down)
    return out


def _recovered(run: Played) -> bool:
    """Whether late in the run requests are answered as if nothing had been."""
    first, last = (share * run.scenario.loops.horizon_s for share in LATE)
    late = (run.born_s >= first) & (run.born_s < last)
    return bool(late.any() and run.in_time[late].mean() >= WELL)


def advise(s: Scenario, relations: Sequence[Mapping[str, Any]], *, seed: int = 0, runs: int = RUNS) -> list[dict[str, Any]]:
    """For each relation (as ``taut.control`` tells them) the smallest separation that removes it, and what it changes."""
    seeds = range(seed, seed + runs)
    if not s.stall and any(one["kind"] == "metastability" for one in relations):
        # Whether a system comes back is seen only where something has happened to it.
        s = replace(s, stall=(Stall(s.loops.horizon_s / 3, 8 * max((c.timeout_s for c in s.client), default=1.0)),))
    wanted = dict.fromkeys((one["kind"], one["target"] or "", one["p"] is None) for one in relations)
    before = _indices(s, seeds) if wanted else {}
    tried: dict[tuple[str, float | None], list[set[Key]]] = {}
    return [_advice(s, relation, seeds, before, tried) for relation in wanted]


def _advice(
    s: Scenario, relation: Key, seeds: Sequence[int], before: Mapping[str, float | None],
    tried: dict[tuple[str, float | None], list[set[Key]]],
) -> dict[str, Any]:  # fmt: skip
    kind, target, _ = relation
    out: dict[str, Any] = {"kind": kind, "target": target or None, "separation": None, "value": None, "tried": 0, "effect": {}}
    for name, value in ((name, value) for name, values in SEPARATIONS.get(kind, ()) for value in values):
        changed = POLICIES[name].apply(s, value)
        if changed == s:
            continue
        if (name, value) not in tried:
            tried[name, value] = shown(changed, seeds)
        out["tried"] += 1
        if any(relation in found for found in tried[name, value]):
            continue
        after = _indices(changed, seeds)
        effect = {key: {"before": before[key], "after": after[key]} for key in before if before[key] != after[key]}
        return {
            **out, "separation": name, "value": value, "says": POLICIES[name].says, "costs": POLICIES[name].costs,
            "effect": effect,
        }  # fmt: skip
    return out


def _indices(s: Scenario, seeds: Sequence[int]) -> dict[str, float | None]:
    rows = [judged(play(s, seed)) for seed in seeds]
    return {name: _mean([row[name] for row in rows]) for name in rows[0]}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def sweep(s: Scenario, ranks: Sequence[int], *, seed: int = 0, runs: int = RUNS) -> list[dict[str, Any]]:
    """The indices at each number of accelerators, demand as it is, and which of ``WATCHED`` more of them made worse.

    Runs of one seed meet the same demand, so what changed is told from the differences within seeds, by a t-test at 5 %.
    """
    rows: list[dict[str, Any]] = []
    before: list[Row] = []
    for n in sorted(ranks):
        found: list[Row] = [judged(play(at(s, n), k)) for k in range(seed, seed + runs)]
        worse = [name for name, sign in WATCHED.items() if before and _surely(before, found, name, sign)]
        rows.append({"ranks": n, "worse": worse, **{name: _mean([row[name] for row in found]) for name in found[0]}})
        before = found
    return rows


def _surely(before: Sequence[Row], after: Sequence[Row], name: str, sign: int) -> bool:
    pairs = [(one[name], two[name]) for one, two in zip(before, after, strict=True)]
    moved = np.array([sign * (two - one) for one, two in pairs if one is not None and two is not None])
    if len(moved) < 2:
        return False
    from scipy.special import stdtrit

    return bool(moved.mean() > stdtrit(len(moved) - 1, 0.95) * moved.std(ddof=1) / np.sqrt(len(moved)))
