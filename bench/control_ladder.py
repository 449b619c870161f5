"""The control ladder, as Markdown: what ``taut.control`` still says of the same logs with less in them.

python bench/control_ladder.py [--seeds 10] [LOG …]

Simulated logs have a known truth (``taut.project.loops.planted_scenarios``); real ones, if some are given, are held against
themselves.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from taut.control.relations import control
from taut.core.tables import Action, Attempt, Metric, Table, Trace
from taut.project.loops.planted_scenarios import CALM, PLANTED
from taut.project.loops.scenario import Scenario
from taut.project.loops.simulated_run import simulate
from taut.project.loops.workload import WORKLOAD
from taut.read.scenario_file import load
from taut.read.trace import read

Found = dict[str, Any]
TRUTH = {
    "conflict": ({"scaler", "saver"}, {"pool"}), "oscillation": ({"scaler"}, {"pool"}),
    "amplification": ({"gateway", "sdk"}, {"sdk", "pool"}), "metastability": ({"caller"}, {"pool"}),
    "redundant work": ({"sdk"}, {"pool"}), "starvation": ({"priority"}, {"train", "trainer"}),
    "timeout mismatch": ({"sdk"}, {"pool"}),
}  # fmt: skip
"""Kind → who is behind it in its plant, and what it is about (a job goes by its name or by its place)."""
SHIPPED = ("control-stack", "retry-heavy", "sla-adjacent")
KEPT = ("time_ns", "target", "work", "knob", "attempt", "deadline_ns", "busy_ns", "accelerators", "tokens_in", "tokens_out")
"""What a log of outcomes says of an attempt, beside how it ended."""


def as_it_is(trace: Trace) -> Trace:
    return trace


def nameless(trace: Trace) -> Trace:
    """Who decided is gone."""
    return replace(trace, actions=trace.actions.replace(controller=np.full(len(trace.actions), "", object)))


def outcomes(trace: Trace) -> Trace:
    """Attempts with their end states, times and deadlines. No decision, no cause, no link but the work; no metrics."""
    table = trace.actions
    listed = np.isin(table.work.astype(str), np.unique(trace.attempts.job.astype(str)))
    rows = np.flatnonzero((table.attempt >= 0) & ~listed)
    columns = {name: table.columns[name][rows] for name in KEPT}
    columns["outcome"] = ended(table)[rows]
    return replace(trace, actions=Table(Action, columns, len(rows)), metrics=Table(Metric, {}, 0))


def ended(table: Table) -> Any:
    """How each attempt ended: accounting writes down what the next attempt reacted to (preempted, timeout)."""
    out = table.outcome.copy()
    replaced = np.flatnonzero((table.parent >= 0) & (table.trigger.astype(str) != ""))
    out[table.parent[replaced]] = table.trigger[replaced]
    return out


def calls(trace: Trace) -> Trace:
    """Outcomes without the work: every call stands alone, as in an access log."""
    table = outcomes(trace).actions
    alone = {name: table.columns[name] for name in ("time_ns", "target", "knob", "outcome", "busy_ns", "accelerators")}
    actions = Table(Action, {**alone, "attempt": np.zeros(len(table), np.int32)}, len(table))
    return replace(outcomes(trace), actions=actions)


def symptoms(trace: Trace) -> Trace:
    """Metrics alone."""
    return replace(trace, actions=Table(Action, {}, 0), attempts=Table(Attempt, {}, 0))


def gauge(trace: Trace) -> Trace:
    """Metrics alone, each change of a gauge of replicas taken for a decision of nobody; ``taut.control`` does not do that."""
    table = trace.metrics
    rows: list[int] = []
    ways: list[int] = []
    for component in np.unique(table.component.astype(str)):
        mine = np.flatnonzero((table.component == component) & (table.metric == "replicas"))
        change = np.sign(np.diff(table.value[mine])).astype(int)
        rows += mine[1:][change != 0].tolist()
        ways += change[change != 0].tolist()
    n = len(rows)
    columns = {"time_ns": table.time_ns[rows], "target": table.component[rows], "knob": np.full(n, "replicas", object),
               "direction": np.array(ways, np.int8), "after": table.value[rows].astype(str).astype(object)}  # fmt: skip
    return replace(symptoms(trace), actions=Table(Action, columns if n else {}, n))


RUNGS: dict[str, Callable[[Trace], Trace]] = {
    "as it is": as_it_is, "no names": nameless, "outcomes": outcomes, "calls": calls, "symptoms": symptoms, "gauge": gauge,
}  # fmt: skip


@dataclass(frozen=True)
class Climbed:
    """One log at every rung."""

    planted: str
    found: dict[str, Found]

    def kinds(self, rung: str) -> set[str]:
        return {one["kind"] for one in self.found[rung]["relations"]}

    def false(self, rung: str) -> set[str]:
        """Kinds that the whole log does not have; of a calm one, every kind."""
        return self.kinds(rung) - {self.planted} - (self.kinds("as it is") if self.planted else set())

    def right(self, rung: str) -> tuple[bool, bool]:
        """Whether a relation of the planted kind names exactly who is behind it, and what it is about."""
        who, what = TRUTH[self.planted]
        mine = [one for one in self.found[rung]["relations"] if one["kind"] == self.planted]
        return any(set(one["controllers"]) == who for one in mine), any(one["target"] in what for one in mine)

    def off(self, rung: str) -> float:
        """How far the statistic of the planted relation is from that of the whole log, as a share of it."""
        here, full = (
            next(one["statistic"] for one in self.found[name]["relations"] if one["kind"] == self.planted)
            for name in (rung, "as it is")
        )
        return float(abs(here - full) / abs(full))


def climb(trace: Trace, planted: str = "") -> Climbed:
    return Climbed(planted, {name: control(strip(trace)) for name, strip in RUNGS.items()})


def relations(logs: list[Climbed]) -> Iterator[str]:
    yield f"\n| planted | {' | '.join(RUNGS)} |\n|---|{'---|' * len(RUNGS)}"
    for kind in [*PLANTED, ""]:
        mine = [log for log in logs if log.planted == kind]
        yield f"| {kind or 'nothing (calm)'} | {' | '.join(cell(mine, rung) for rung in RUNGS)} |"


def cell(logs: list[Climbed], rung: str) -> str:
    """Share found; of those who and what are right, and by how much the statistic is off (median); kinds that are false."""
    false = [log.false(rung) for log in logs]
    words = sorted(set().union(*false))
    wrong = f"false {percent(sum(map(bool, false)), len(logs))}" + (f": {', '.join(words)}" if words else "")
    if not logs[0].planted:
        return wrong
    hits = [log for log in logs if log.planted in log.kinds(rung)]
    who, what = (sum(log.right(rung)[k] for log in hits) for k in (0, 1))
    both = [log.off(rung) for log in hits if log.planted in log.kinds("as it is")]
    named = f"; who {who}, what {what} of {len(hits)}; off {100 * float(np.median(both)):.0f} %" if both else ""
    return f"{percent(len(hits), len(logs))}{named}" + (f"; {wrong}" if words else "")


def indices(logs: list[Climbed]) -> Iterator[str]:
    """How often an index is known, and how far it is off where the whole log has it, at the mean and at most."""
    yield f"\n| index | {' | '.join(RUNGS)} |\n|---|{'---|' * len(RUNGS)}"
    for name in logs[0].found["as it is"]["indices"]:
        yield f"| `{name}` | {' | '.join(off(logs, name, rung) for rung in RUNGS)} |"


def off(logs: list[Climbed], name: str, rung: str) -> str:
    both = [(value(log.found["as it is"], name), value(log.found[rung], name)) for log in logs]
    known = sum(here is not None for _, here in both)
    apart = [abs(here - full) for full, here in both if full is not None and here is not None]
    if rung == "as it is" or not known:
        return f"{known}" if known else "–"
    invented = sum(full is None and here is not None for full, here in both)
    return f"{known}; {np.mean(apart) if apart else 0:.3f}, {max(apart, default=0):.3f}" + (
        f"; {invented} invented" if invented else ""
    )


def value(found: Found, name: str) -> float | None:
    known = found["indices"][name]
    return None if known is None or known["value"] is None else float(known["value"])


def shipped(seeds: int) -> Iterator[str]:
    """Scenarios without one planted truth: what is kept of the kinds that the whole logs have, and what is false."""
    yield f"\n| scenario | {' | '.join(RUNGS)} |\n|---|{'---|' * len(RUNGS)}"
    for name in SHIPPED:
        table, text = load(name)
        scenario: Scenario = WORKLOAD.parse(table, name, text)[0]
        logs = [climb(simulate(scenario, seed).trace, name) for seed in range(seeds)]
        yield f"| {name} | {' | '.join(kept(logs, rung) for rung in RUNGS)} |"


def kept(logs: list[Climbed], rung: str) -> str:
    full = [log.kinds("as it is") for log in logs]
    lost = sorted(set().union(*(all_ - log.kinds(rung) for all_, log in zip(full, logs, strict=True))))
    false = sorted(set().union(*(log.false(rung) for log in logs)))
    here = sum(len(all_ & log.kinds(rung)) for all_, log in zip(full, logs, strict=True))
    words = [f"{here} of {sum(map(len, full))}"]
    words += [f"without {', '.join(lost)}"] if lost and here else []
    words += [f"false in {sum(bool(log.false(rung)) for log in logs)} of {len(logs)} logs: {', '.join(false)}"] if false else []
    return "; ".join(words)


def real(paths: list[str]) -> Iterator[str]:
    """Job logs always tell which job an attempt is of: the rungs of single calls and of gauges are none of theirs."""
    rungs = [name for name in RUNGS if name not in ("calls", "gauge")]
    yield f"\n| log | {' | '.join(rungs)} |\n|---|{'---|' * len(rungs)}"
    for path in paths:
        found = climb(read([path])).found
        yield f"| {path.rsplit('/', 1)[-1]} | {' | '.join(summary(found[rung]) for rung in rungs)} |"


def summary(found: Found) -> str:
    """Relations with who and what, and the number of indices."""
    parts = [
        f"{one['kind']} ({' × '.join(one['controllers']) or '?'} on {one['target'] or 'all'})" for one in found["relations"]
    ]
    return f"{'; '.join(parts) or 'none'}; {sum(v is not None for v in found['indices'].values())} indices"


def percent(hits: int, of: int) -> str:
    """A share with its interval (Wilson, 95 %)."""
    p, z2 = hits / of, 1.96**2 / of
    middle, half = (p + z2 / 2) / (1 + z2), sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    return f"{100 * p:.0f} % ({100 * max(middle - half, 0):.0f}–{100 * min(middle + half, 1):.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("logs", nargs="*")
    given = parser.parse_args()
    if given.seeds:
        scenarios = {**PLANTED, "": CALM}
        logs = [climb(simulate(s, seed).trace, kind) for kind, s in scenarios.items() for seed in range(given.seeds)]
        for line in (*relations(logs), *indices(logs), *shipped(given.seeds)):
            print(line, flush=True)
    for line in real(given.logs) if given.logs else ():
        print(line, flush=True)


if __name__ == "__main__":
    main()
