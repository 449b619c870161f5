"""Size and power of the relations of control, as Markdown: ``python bench/control_size.py [--logs 200]``.

Each null is a log in which nothing is wrong; a relation listed in it (5 %, corrected for what that relation tested) is
false. Power: the same with an effect of a stated size.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from taut.control import amplification, conflict, feedback, oscillation, starvation, timeout
from taut.control.relations import RELATIONS, prepare
from taut.core.tables import Action, Attempt, Member, Metric, Op, Table, Trace, fields_of
from taut.core.trend import corrected

Rng = np.random.Generator
Rows = list[dict[str, Any]]
SPAN_S = 3600.0
SECOND = 1_000_000_000


def trace(rows: Rows, demand: Any = None, took_s: Any = None) -> Trace:
    """A trace of actions, with a series of demand (one sample a second) and attempts of jobs."""
    columns: dict[str, Any] = {}
    for name in {key for row in rows for key in row}:
        default = fields_of(Action)[name].default
        columns[name] = np.array([row.get(name, default) for row in rows], dtype=object if isinstance(default, str) else None)
    more: dict[str, Any] = {}
    if demand is not None:
        at = np.arange(len(demand)) * SECOND
        more["metrics"] = Table(Metric, {"time_ns": at, "metric": np.full(len(at), "demand", object), "value": demand,
                                         "component": np.full(len(at), "all", object)})  # fmt: skip
    if took_s is not None:
        n = len(took_s)
        begin = np.arange(n) * 10**6 * SECOND
        end = begin + (took_s * 1e9).astype(np.int64)  # and each was started again
        jobs = {"job": np.repeat(np.array([f"j{k}" for k in range(n)], object), 2), "attempt": np.tile([1, 2], n),
                "start_ns": np.stack([begin, end], 1).ravel(), "end_ns": np.stack([end, end + SECOND], 1).ravel(),
                "outcome": np.tile(np.array(["failed", "completed"], object), n)}  # fmt: skip
        more["attempts"] = Table(Attempt, jobs)
    return Trace(ops=Table(Op, {}, 0), names=[], lanes=[], groups=[], members=Table(Member, {}, 0),
                 actions=Table(Action, columns, len(rows)), **more)  # fmt: skip


def acts(who: str, at_s: Any, way: Any, target: str = "pool", knob: str = "replicas", layer: str = "autoscaler") -> Rows:
    return [
        {"time_ns": int(t * 1e9), "controller": who, "target": target, "knob": knob, "layer": layer, "direction": int(d)}
        for t, d in zip(at_s, way, strict=True)
    ]


def poisson(rng: Rng, rate: Any) -> Any:
    """Times of events, at most a few a second, for one rate a second."""
    count = rng.poisson(rate, len(rate) if np.ndim(rate) else int(SPAN_S))
    return np.sort(np.repeat(np.arange(len(count)), count) + rng.random(int(count.sum())))


def follows(rng: Rng, who: str, demand: Any, every_s: float, noise: float, target: str, knob: str) -> Rows:
    """A controller that looks now and then and sets its knob to the demand it sees, noisily; acts where that differs."""
    at = np.cumsum(rng.uniform(0.8, 1.2, int(SPAN_S / every_s)) * every_s)
    at = at[at < SPAN_S - 1]
    want = np.round(demand[at.astype(int)] + noise * rng.standard_normal(len(at)))
    step = np.diff(want, prepend=want[0])
    keep = step != 0
    rows = acts(who, at[keep], np.sign(step[keep]), target, knob)
    return [{**row, "after": str(int(value))} for row, value in zip(rows, want[keep], strict=True)]


def square(rng: Rng) -> Any:
    period = int(rng.integers(60, 240))
    phase = int(rng.integers(period))
    return 2 + 6.0 * ((np.arange(int(SPAN_S)) + phase) % period < period // 2)


def red(rng: Rng, memory: float = 0.98) -> Any:
    out = rng.standard_normal(int(SPAN_S) + 500)
    for k in range(1, len(out)):
        out[k] += memory * out[k - 1]
    return 5 + 2 * out[500:] * sqrt(1 - memory**2)


def healthy(rng: Rng) -> Rows:
    """Retries of one layer, preemptions without a favourite."""
    rows: Rows = []
    call = {"controller": "client", "target": "call", "knob": "attempt", "layer": "retry", "outcome": "failed"}
    back = {"controller": "engine", "knob": "preemption", "layer": "scheduler", "direction": -1}
    for k in range(200):
        for attempt in range(1 + min(3, int(rng.geometric(0.8)) - 1)):
            when = {"time_ns": int(rng.random() * SPAN_S * 1e9), "busy_ns": int(rng.lognormal(17, 1))}
            rows.append({**call, **when, "attempt": attempt, "work": f"w{k}"})
    for k in range(1000):
        for _ in range(int(rng.geometric(0.7)) - 1):
            rows.append({**back, "time_ns": int(rng.random() * SPAN_S * 1e9), "target": f"r{k}", "work": f"r{k}"})
    return rows


def driven(rng: Rng, demand: Any) -> Rows:
    """Three controllers that follow one demand, two of them on the same knob, and retries at a rate that does."""
    rows = follows(rng, "hpa", demand, 7, 0.5, "pool", "replicas")
    rows += follows(rng, "operator", demand, 11, 0.5, "pool", "replicas")
    rows += follows(rng, "batcher", demand, 5, 0.5, "pool", "batch")
    return rows + loose(poisson(rng, 0.1 * np.maximum(demand, 0.1)))


def loose(at_s: Any) -> Rows:
    return acts("sdk", at_s, np.zeros(len(at_s)), "api", "attempt", "retry")


def independent(rng: Rng) -> Rows:
    rows: Rows = []
    for who, target, knob in (("hpa", "pool", "replicas"), ("operator", "pool", "replicas"), ("batcher", "pool", "batch")):
        at = poisson(rng, np.full(int(SPAN_S), 0.05))
        rows += acts(who, at, rng.choice([-1, 1], len(at)), target, knob)
    return rows + loose(poisson(rng, np.full(int(SPAN_S), 0.3)))


def smooth(rng: Rng) -> Any:
    return np.maximum(1.0, np.round(rng.lognormal(6, 1.5, 500)))


def null_independent(rng: Rng) -> Trace:
    return trace(independent(rng) + healthy(rng), np.full(int(SPAN_S), 5.0), smooth(rng))


def null_square(rng: Rng) -> Trace:
    demand = square(rng)
    return trace(driven(rng, demand) + healthy(rng), demand, smooth(rng))


def null_hidden_square(rng: Rng) -> Trace:
    return trace(driven(rng, square(rng)) + healthy(rng), None, smooth(rng))


def null_red(rng: Rng) -> Trace:
    """The knobs are red noise by themselves; demand is white."""
    rows: Rows = []
    for who, knob in (("hpa", "replicas"), ("operator", "replicas"), ("batcher", "batch")):
        rows += follows(rng, who, red(rng), 5, 0.3, "pool", knob)
    rows += loose(poisson(rng, 0.06 * np.maximum(red(rng), 0.1)))
    return trace(rows + healthy(rng), 5 + rng.standard_normal(int(SPAN_S)), smooth(rng))


def null_shared(rng: Rng) -> Trace:
    demand = red(rng)
    return trace(driven(rng, demand) + healthy(rng), demand, smooth(rng))


def null_hidden_shared(rng: Rng) -> Trace:
    return trace(driven(rng, red(rng)) + healthy(rng), None, smooth(rng))


NULLS: dict[str, Callable[[Rng], Trace]] = {
    "independent streams (Poisson)": null_independent,
    "square-wave demand": null_square,
    "square-wave demand, not recorded": null_hidden_square,
    "red noise (AR(1), 0.98 a second)": null_red,
    "shared red demand": null_shared,
    "shared red demand, not recorded": null_hidden_shared,
}


def undoing(share: float) -> Callable[[Rng], Trace]:
    def make(rng: Rng) -> Trace:
        at = poisson(rng, np.full(int(SPAN_S), 0.03))
        way = rng.choice([-1, 1], len(at))
        answered = rng.random(len(at)) < share
        back, more = at[answered] + rng.exponential(2.0, int(answered.sum())), poisson(rng, np.full(int(SPAN_S), 0.02))
        ways = np.concatenate([-way[answered], rng.choice([-1, 1], len(more))])
        when = np.concatenate([back, more])
        order = np.argsort(when)
        return trace(acts("hpa", at, way) + acts("operator", when[order], ways[order]))

    return make


def swinging(size: float) -> Callable[[Rng], Trace]:
    def make(rng: Rng) -> Trace:
        demand = red(rng)
        swing = size * np.sin(2 * np.pi * np.arange(int(SPAN_S)) / rng.uniform(60, 90))
        return trace(follows(rng, "hpa", demand + swing, 5, 0.5, "pool", "replicas"), demand)

    return make


def exciting(ratio: float) -> Callable[[Rng], Trace]:
    def make(rng: Rng) -> Trace:
        at = poisson(rng, 0.04 * square(rng))
        born, every = at, [at]
        while len(born):
            born = np.repeat(born, rng.poisson(ratio, len(born)))
            born = born + rng.exponential(1.0, len(born))
            every.append(born[born < SPAN_S])
        return trace(loose(np.sort(np.concatenate(every))))

    return make


def looping(gain: float) -> Callable[[Rng], Trace]:
    def make(rng: Rng) -> Trace:
        demand = red(rng)
        steps = int(SPAN_S / 6)
        a, b = np.zeros(steps), np.zeros(steps)
        for k in range(1, steps):
            a[k] = gain * b[k - 1] + rng.standard_normal() + 0.2 * (demand[6 * k] - 5)
            b[k] = -gain * a[k - 1] + rng.standard_normal() + 0.2 * (demand[6 * k] - 5)
        rows: Rows = []
        for who, knob, one in (("hpa", "replicas", a), ("batcher", "batch", b)):
            count = np.round(2 * one).astype(int)
            at = np.repeat(np.arange(steps) * 6.0, np.abs(count)) + rng.uniform(0, 6, int(np.abs(count).sum()))
            order = np.argsort(at)
            rows += acts(who, at[order], np.repeat(np.sign(count), np.abs(count))[order], "pool", knob)
        return trace(rows, demand)

    return make


def starving(times: int) -> Callable[[Rng], Trace]:
    def make(rng: Rng) -> Trace:
        rows = healthy(rng)
        one = {
            "controller": "engine",
            "target": "rx",
            "work": "rx",
            "knob": "preemption",
            "layer": "scheduler",
            "direction": -1,
        }
        return trace(rows + [{**one, "time_ns": int(rng.random() * SPAN_S * 1e9)} for _ in range(times)])

    return make


def limited(share: float) -> Callable[[Rng], Trace]:
    def make(rng: Rng) -> Trace:
        took = smooth(rng)
        at = float(rng.choice([300.0, 600.0, 900.0, 1800.0]))
        some = rng.random(len(took)) < share
        took[some] = at + np.round(rng.exponential(0.001 * at, int(some.sum())))
        return trace([], None, took)

    return make


EFFECTS: tuple[tuple[Any, str, Callable[[Rng], Trace]], ...] = (
    *((conflict, f"{share:.0%} of 108 actions undone after 2 s on the mean", undoing(share)) for share in (0.1, 0.2, 0.4)),
    *((oscillation, f"swing of {size} replicas, period 60–90 s, an hour", swinging(size)) for size in (1.0, 2.0, 3.0)),
    *((amplification, f"branching ratio {n} behind a square wave, unlinked", exciting(n)) for n in (0.1, 0.2, 0.4)),
    *((feedback, f"edges of ±{gain}, 600 spans", looping(gain)) for gain in (0.1, 0.2, 0.4)),
    *((starvation, f"one work preempted {n} times, 1000 others 0.43 times on the mean", starving(n)) for n in (6, 9, 12)),
    *((timeout, f"{share:.0%} of 500 attempts end at an unknown limit", limited(share)) for share in (0.02, 0.03, 0.05)),
)  # fmt: skip


def listed(kind: Any, made: Trace, seed: int) -> bool:
    """Whether the relation is listed, with what it tested itself corrected for."""
    found = kind.relate(prepare(made), np.random.default_rng(seed))
    q = corrected([one.p for one in found])
    return any(value is None or value <= 0.05 for value in q)


def percent(hits: int, of: int) -> str:
    """A share with its interval (Wilson, 95 %)."""
    p, z2 = hits / of, 1.96**2 / of
    middle, half = (p + z2 / 2) / (1 + z2), sqrt(z2 * p * (1 - p) + z2 * z2 / 4) / (1 + z2)
    return f"{100 * p:.1f} ({100 * max(middle - half, 0):.1f}–{100 * (middle + half):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="one relation, by the name of its file")
    given = parser.parse_args()
    kinds = [kind for kind in RELATIONS if given.only in kind.__name__]
    print("| falsely listed, % of logs | " + " | ".join(kind.KIND for kind in kinds) + " |")
    print("|---|" + "---:|" * len(kinds))
    for k, (name, make) in enumerate(NULLS.items()):
        hits = np.zeros(len(kinds), dtype=int)
        for log in range(given.logs):
            made = make(np.random.default_rng([given.seed, k, log]))
            hits += [listed(kind, made, log) for kind in kinds]
        print(f"| {name} | " + " | ".join(percent(int(n), given.logs) for n in hits) + " |", flush=True)
    print("\n| relation | effect | found, % of logs |\n|---|---|---:|")
    for k, (kind, name, make) in enumerate(EFFECTS):
        if kind in kinds:
            found = sum(listed(kind, make(np.random.default_rng([given.seed, 99, k, log])), log) for log in range(given.logs))
            print(f"| {kind.KIND} | {name} | {percent(found, given.logs)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
