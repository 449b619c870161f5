"""The tables of docs/control-loops.md: shipped control scenarios with and without their policies, advice, and the sweep.

python bench/loops.py [--seeds 12] [scenarios] [advice] [sweep]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from taut.control.relations import control
from taut.project.loops.advice import advise, sweep
from taut.project.loops.planted_scenarios import PLANTED
from taut.project.loops.scenario import Scenario
from taut.project.loops.simulated_run import simulate
from taut.project.loops.workload import COUNT_PER_RUN, WORKLOAD, forecast
from taut.project.with_policies import apply_policies, policies_of
from taut.project.workload import Estimate
from taut.read.scenario_file import load

SHIPPED = ("control-stack", "retry-heavy", "sla-adjacent")
SWEPT = (22, 24, 26, 28, 32, 40, 48)
COLUMNS = (
    "cross_layer_coherence", "decision_conflict_rate", "control_overhead_fraction", "effective_capacity",
    "visible_success_rate",
)  # fmt: skip


def scenario(name: str) -> Scenario:
    table, text = load(name)
    found: Scenario = WORKLOAD.parse(table, name, text)[0]
    return found


def scenarios(seeds: int) -> Iterator[str]:
    for name in SHIPPED:
        s = scenario(name)
        both = s, apply_policies(s, policies_of(WORKLOAD, ",".join(s.about.policies)))
        before, after = (forecast(one, count=seeds * COUNT_PER_RUN).indices() for one in both)
        yield f"\n| {name} | as it is | with its policies | declared |\n|---|---:|---:|---:|"
        for key in before:
            if before[key] is not None or after[key] is not None:
                declared = s.about.declared.get(key)
                ends = "{} → {}".format(*declared) if declared else ""
                yield f"| {spell(key)} | {say(before[key])} | {say(after[key])} | {ends} |"


def advice(seeds: int) -> Iterator[str]:
    yield "\n| planted | smallest separation that removes it | tried | changes |\n|---|---|---:|---|"
    for kind, s in PLANTED.items():
        relations = [one for one in control(simulate(s, 0).trace)["relations"] if one["kind"] == kind][:1]
        for one in advise(s, relations, runs=min(seeds, 3)):
            value = "" if one["value"] is None else f"={one['value']:g}"
            yield f"| {kind} | {one['separation']}{value} | {one['tried']} | {most(one['effect'])} |"


def most(effect: Mapping[str, Mapping[str, Any]]) -> str:
    """The four indices that apply_policies most."""
    known = [(abs(e["change"]["value"]), key, e) for key, e in effect.items() if e["change"]]
    return "; ".join(
        f"{spell(key)} {e['before']:.2f} → {e['after']:.2f}" for _, key, e in sorted(known, key=lambda k: -k[0])[:4]
    )


def capacity(seeds: int) -> Iterator[str]:
    yield f"\n| accelerators | {' | '.join(map(spell, COLUMNS))} | worse than the row above |"
    yield f"|---:|{'---:|' * len(COLUMNS)}---|"
    for row in sweep(scenario("control-stack"), SWEPT, runs=seeds):
        numbers = " | ".join("–" if row.indices[key] is None else f"{row.indices[key]:.2f}" for key in COLUMNS)
        yield f"| {row['ranks']} | {numbers} | {', '.join(map(spell, row['worse']))} |"


def spell(key: str) -> str:
    return key.replace("_", " ")


def say(found: Estimate | None) -> str:
    return "–" if found is None else f"{found.value:.2f} ({found.lo:.2f}–{found.hi:.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("what", nargs="*", default=["scenarios", "advice", "sweep"])
    given = parser.parse_args()
    for word, table in (("scenarios", scenarios), ("advice", advice), ("sweep", capacity)):
        for line in table(given.seeds) if word in given.what else ():
            print(line, flush=True)
