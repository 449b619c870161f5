"""Advice that was tried: for every relation the smallest separation that removes it in the simulator, and what it changes.

Separations are tried from the one that changes least to the one that changes most; one counts as removing a relation when
none of the runs shows it. What it does to the indices is then measured on the same runs, not promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from taut.control.relations import prepare
from taut.control.relations import relations as relations_of
from taut.core.array_types import Floats, Json
from taut.core.errors import UsageError
from taut.core.trend import corrected
from taut.project.loops.policies import POLICIES
from taut.project.loops.scenario import Scenario, Stall
from taut.project.loops.simulated_run import SimulatedRun, simulate
from taut.project.loops.workload import at, run_indices
from taut.result.types import Advice, Brought, ChangedKey, Effect, Estimate, RelationResult, Swept

RUNS = 3
LATE, WELL = (0.6, 0.9), 0.9
"""Part of a run in which a system should have come back, and the share of requests answered in time that says so."""
WATCHED = {"cross_layer_coherence": -1, "decision_conflict_rate": 1, "control_overhead_fraction": 1, "effective_capacity": -1}
"""What more capacity may make worse, and which way worse is."""
SWEPT, SWEPT_RUNS = (0.7, 0.8, 0.9, 1.0, 1.25, 1.5), 8
"""Accelerators that a sweep tries, as shares of the scenario's own, and runs of each."""
FALSE = 0.05
"""False ones among what a sweep calls worse."""
Row = Mapping[str, float | None]
Key = tuple[str, str, bool]
"""What a relation is known by: its kind, its target, and whether it was counted rather than tested."""
Stage = Callable[[str], None]
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


class Runs:
    """The runs of one scenario, simulated when they are first asked for."""

    def __init__(self, s: Scenario, seeds: Sequence[int]) -> None:
        self.scenario, self.seeds = s, seeds
        self._runs: dict[int, SimulatedRun] = {}
        self._shown: dict[int, set[Key]] = {}

    def run(self, seed: int) -> SimulatedRun:
        """One run."""
        if seed not in self._runs:
            self._runs[seed] = simulate(self.scenario, seed)
        return self._runs[seed]

    def shown(self) -> Iterator[set[Key]]:
        """Of each run the relations that its log shows; metastable is what does not come back from its stalls."""
        for seed in self.seeds:
            if seed not in self._shown:
                run = self.run(seed)
                found = {(one.kind, one.target, one.p is None) for one in relations_of(prepare(run.trace), seed)}
                self._shown[seed] = {key for key in found if key[0] != "metastability"}
                if run.scenario.stall and not _recovered(run):
                    self._shown[seed].add(("metastability", run.scenario.pool.name, True))
            yield self._shown[seed]

    def indices(self) -> list[Row]:
        """The indices of each run."""
        return [run_indices(self.run(seed)) for seed in self.seeds]


def _recovered(run: SimulatedRun) -> bool:
    """Whether late in the run requests are answered as if nothing had been."""
    first, last = (share * run.scenario.loops.horizon_s for share in LATE)
    late = (run.born_s >= first) & (run.born_s < last)
    return bool(late.any() and run.in_time[late].mean() >= WELL)


def advise(
    s: Scenario,
    relations: Sequence[RelationResult] | None = None,
    *,
    only: tuple[str, str] | None = None,
    seed: int = 0,
    runs: int = RUNS,
    stage: Stage = lambda what: None,
) -> list[Advice]:
    """For each relation (as ``taut.control`` tells them; all that the runs show) the smallest separation that removes it.

    ``only``: the relation of this kind, on this target if one is named, that most runs show, if any does.

    A relation that none of the runs shows as they are gets none: nothing could be checked.
    """
    if not s.stall and any(one.kind == "metastability" for one in relations or ()):
        # Whether a system comes back is seen only where something has happened to it.
        s = replace(s, stall=(Stall(s.loops.horizon_s / 3, 8 * max((c.timeout_s for c in s.client), default=1.0)),))
    own = Runs(s, range(seed, seed + runs))
    stage("simulating the system as it is")
    wanted: dict[tuple[str, str], set[Key]] = {}
    for key in _keys(own, relations):
        wanted.setdefault(key[:2], set()).add(key)
    shows = {what: sum(bool(some & found) for found in own.shown()) for what, some in wanted.items()}
    order = list(wanted) if relations is not None else sorted(wanted, key=lambda what: -shows[what])
    if only:
        order = [what for what in order if what[0] == only[0] and only[1] in ("", what[1])][:1]
    tried: dict[tuple[str, float | None], Runs] = {}
    return [_advice(own, wanted[what], shows[what], tried, stage) for what in order]


def _keys(own: Runs, relations: Sequence[RelationResult] | None) -> list[Key]:
    if relations is None:
        return [key for found in own.shown() for key in sorted(found)]
    return [(one.kind, one.target or "", one.p is None) for one in relations]


def _advice(own: Runs, relation: set[Key], shows: int, tried: dict[tuple[str, float | None], Runs], stage: Stage) -> Advice:
    kind, target, _ = next(iter(relation))
    out = Advice(
        kind=kind,
        target=target or None,
        runs=len(own.seeds),
        shows=shows,
        tried=0,
        separation=None,
        value=None,
        says=None,
        costs=None,
        sets=[],
        brings=[],
        effect={},
    )
    for name, value in ((name, value) for name, values in SEPARATIONS.get(kind, ()) for value in values):
        changed = POLICIES[name].apply(own.scenario, value)
        if not shows or changed == own.scenario:
            continue
        stage(f"{kind}: trying {name}" + ("" if value is None else f" {value:g}"))
        other = tried.setdefault((name, value), Runs(changed, own.seeds))  # several relations may try the same
        out = replace(out, tried=out.tried + 1)
        if not any(relation & found for found in other.shown()):
            return replace(
                out,
                separation=name,
                value=value,
                says=POLICIES[name].says,
                costs=POLICIES[name].costs or None,
                sets=changed_keys(own.scenario, changed),
                brings=_brings(own, other),
                effect=_effect(own.indices(), other.indices()),
            )
    return out


def _brings(own: Runs, other: Runs) -> list[Brought]:
    """Relations that only the runs with a separation show; one of its own kind, where what was counted is now tested."""
    new = set().union(*other.shown()) - set().union(*own.shown())
    return [Brought(kind=kind, target=target or None) for kind, target in sorted({key[:2] for key in new})]


def changed_keys(before: Scenario, after: Scenario) -> list[ChangedKey]:
    """The keys of a scenario that a separation sets, with their values before and after."""
    one, other = (dict(_flat(msgspec.to_builtins(s))) for s in (before, after))
    # A part that is taken out is one change, not one for each of its keys.
    gone = [key.removesuffix(".name") for key in one if key.endswith(".name") and key not in other]
    keys = [key for key in dict.fromkeys([*one, *other]) if not any(key.startswith(f"{part}.") for part in gone)]
    changed = [ChangedKey(key=k, before=one.get(k), after=other.get(k)) for k in keys if one.get(k) != other.get(k)]
    return changed + [ChangedKey(key=part, before=True, after=False) for part in gone]


def _flat(value: Json, where: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of tables and lists of tables by key; an entry that has a name is told by it."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(one, f"{where}.{key}" if where else key)
    elif isinstance(value, (list, tuple)) and any(isinstance(one, Mapping) for one in value):
        for k, one in enumerate(value):
            yield from _flat(one, f"{where}.{one.get('name', k) if isinstance(one, Mapping) else k}")
    else:
        yield where, value


def _effect(before: Sequence[Row], after: Sequence[Row]) -> dict[str, Effect]:
    """Indices that change: means over the runs, and the mean change within seeds with its interval (95 %, t)."""
    means = {name: (_mean(before, name), _mean(after, name)) for name in before[0]}
    return {
        name: Effect(before=one, after=other, change=_interval(_changes(before, after, name)))
        for name, (one, other) in means.items()
        if one != other
    }


def _changes(before: Sequence[Row], after: Sequence[Row], name: str) -> Floats:
    """What changed within each seed in which both are known."""
    pairs = [(one[name], two[name]) for one, two in zip(before, after, strict=True)]
    return np.array([two - one for one, two in pairs if one is not None and two is not None])


def _interval(changes: Floats) -> Estimate | None:
    """The mean change and its 95 % interval (Student's t)."""
    from scipy.special import stdtrit

    if len(changes) < 2:
        return Estimate(value=float(changes.mean())) if len(changes) else None
    middle = float(changes.mean())
    half = float(stdtrit(len(changes) - 1, 0.975) * changes.std(ddof=1) / np.sqrt(len(changes)))
    return Estimate(value=middle, lo=middle - half, hi=middle + half)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    known = [value for row in rows if (value := row[name]) is not None]
    return sum(known) / len(known) if known else None


def sweep(
    s: Scenario, ranks: Sequence[int] | None = None, *, seed: int = 0, runs: int = SWEPT_RUNS, stage: Stage = lambda what: None
) -> list[Swept]:
    """The indices at each number of accelerators, demand as it is, and which of ``WATCHED`` more of them made worse.

    Runs of one seed meet the same demand, so what changed is judged from the differences within seeds, by a t-test; what is
    called worse is corrected for all that was asked (Benjamini–Hochberg, 5 %). Without ``ranks``, ``SWEPT`` times its own.
    """
    found: list[tuple[int, list[Row]]] = []
    for n in sorted(_sizes(s) if ranks is None else ranks):
        stage(f"sweeping capacity: {n} accelerators")
        found.append((n, Runs(at(s, n), range(seed, seed + runs)).indices()))
    tests = {
        (k, name): _worse(found[k - 1][1], found[k][1], name, sign)
        for k in range(1, len(found))
        for name, sign in WATCHED.items()
    }
    surely = {key for key, q in zip(tests, corrected(list(tests.values())), strict=True) if q is not None and q <= FALSE}
    return [
        Swept(
            ranks=n,
            worse=[name for name in WATCHED if (k, name) in surely],
            indices={name: _mean(rows, name) for name in rows[0]},
        )
        for k, (n, rows) in enumerate(found)
    ]


def _sizes(s: Scenario) -> list[int]:
    """Numbers of accelerators around its own that the scenario can be dealt on."""
    out = []
    for n in dict.fromkeys(max(round(share * s.accelerators), 1) for share in SWEPT):
        try:
            at(s, n)
        except UsageError:
            continue
        out.append(n)
    return out


def _worse(before: Sequence[Row], after: Sequence[Row], name: str, sign: int) -> float | None:
    """Chance of such a change for the worse where nothing changed; None where too few runs know it."""
    from scipy.special import stdtr

    changes = sign * _changes(before, after, name)
    if len(changes) < 2:
        return None
    error = changes.std(ddof=1) / np.sqrt(len(changes))
    return float(stdtr(len(changes) - 1, -changes.mean() / error)) if error > 0 else float(changes.mean() <= 0)
