"""Loss without a culprit: class, finding and growth on hiccup jobs, their variants, and healthy jobs.

python bench/instability.py --seed 70 --jobs 5
python bench/instability.py --seed 71 --jobs 300 --healthy
python bench/instability.py --seed 72 --jobs 100 --power

Every job is modelled: ranks compute 100 ms a step with a spread of 1 % and meet in an all-reduce of 5 ms. Hiccups are added
as each row says. Growth is compared with *another* run of the same law at twice and four times the ranks. ``--healthy`` counts
findings of any mode on jobs whose ranks vary as healthy ones do; ``--power`` how often the finding is made by the number of
hiccups, without a culprit and with a rank that has half of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from taut.core.array_types import Floats
from taut.core.tables import Kind, Member, Op, Table, Trace, Verb
from taut.run import analyze_trace

MS = 1_000_000
Draw = Callable[[np.random.Generator, int, int], Floats]
"""Ranks, steps → what hiccups add, ms: ranks × steps."""


def single(rate: float, size: float, lasting: int = 1) -> Draw:
    """Every rank hiccups alike: a share of its steps belongs to episodes of so many steps, each longer by ``size`` ms."""

    def draw(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
        begins = rng.random((ranks, steps + lasting)) < rate / lasting
        out = np.zeros((ranks, steps))
        for k in range(lasting):
            out = np.maximum(out, size * begins[:, lasting - k : lasting - k + steps])
        return out

    return draw


def tailed(rate: float, size: float, tail: Callable[[np.random.Generator, tuple[int, int]], Floats]) -> Draw:
    """Hiccups of unlike size."""
    return lambda rng, ranks, steps: single(rate, size)(rng, ranks, steps) * tail(rng, (ranks, steps))


def by_host(rate: float, size: float, width: int = 8) -> Draw:
    """All ranks of a host hiccup together."""
    return lambda rng, ranks, steps: np.repeat(single(rate, size)(rng, -(-ranks // width), steps), width, axis=0)[:ranks]


def periodic(every: int, size: float) -> Draw:
    """Every rank hiccups every so many steps, each in a phase of its own (garbage collection)."""

    def draw(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
        return size * ((np.arange(steps) + rng.integers(0, every, (ranks, 1))) % every == 0)

    return draw


def often(rate: float, size: float, times: float) -> Draw:
    """One rank hiccups so many times as often as the others."""

    def draw(rng: np.random.Generator, ranks: int, steps: int) -> Floats:
        out = single(rate, size)(rng, ranks, steps)
        out[ranks // 3] = single(min(rate * times, 1.0), size)(rng, 1, steps)[0]
        return out

    return draw


@dataclass(frozen=True)
class Law:
    """A law of jobs, and what is to be said of them."""

    ranks: int
    draw: Draw
    expect: str
    steps: int = 200
    noise: float = 0.01
    unequal: float = 0.0
    drift: float = 0.0
    common: float = 0.0
    host: int = 8
    finding: bool | None = None
    """Whether nobody's loss is found; None: where the class is structural."""


LAWS: dict[str, Law] = {
    **{f"150 ms in 0.3 %, {n} ranks": Law(n, single(0.003, 150), "structural") for n in (64, 128, 256, 512)},
    "0.6 %, 64 ranks": Law(64, single(0.006, 150), "structural"),
    "1 %, 32 ranks": Law(32, single(0.01, 150), "structural"),
    "2 %, 16 ranks": Law(16, single(0.02, 150), "structural"),
    "0.1 %, 256 ranks": Law(256, single(0.001, 150), "structural"),
    "400 ms in 0.1 %, 128 ranks": Law(128, single(0.001, 400), "structural"),
    "60 ms in 1 %, 128 ranks": Law(128, single(0.01, 60), "structural"),
    "lasting 4 steps, 1.2 %, 64 ranks": Law(64, single(0.012, 150, 4), "structural"),
    "lasting 8 steps, 1.6 %, 64 ranks": Law(64, single(0.016, 120, 8), "structural"),
    "exponential sizes, 0.5 %, 64 ranks": Law(64, tailed(0.005, 150, lambda r, s: r.exponential(1, s)), "structural"),
    "lognormal sizes, 0.5 %, 128 ranks": Law(128, tailed(0.005, 100, lambda r, s: r.lognormal(0, 0.8, s)), "structural"),
    "hosts of 8 together, 2 %, 128 ranks": Law(128, by_host(0.02, 150), "structural"),
    "hosts of 8 together, 1 %, 256 ranks": Law(256, by_host(0.01, 150), "structural"),
    "periodic, every 300 steps, 64 ranks": Law(64, periodic(300, 150), "structural"),
    "0.3 %, 64 ranks unequal by 3 %": Law(64, single(0.003, 150), "structural", unequal=0.03),
    "0.3 %, 64 ranks, spread of 3 %": Law(64, single(0.003, 150), "structural", noise=0.03),
    "0.3 %, 64 ranks, all drift by 20 %": Law(64, single(0.003, 150), "structural", drift=0.2),
    "0.3 %, 64 ranks, common demand of 10 %": Law(64, single(0.003, 150), "structural", common=0.1),
    "0.3 %, 64 ranks, 600 steps": Law(64, single(0.003, 150), "structural", steps=600),
    "one rank 30 times as often, 0.3 %, 64 ranks": Law(64, often(0.003, 150, 30), "component", finding=True),
    "one rank 100 times as often, 0.05 %, 64 ranks": Law(64, often(0.0005, 150, 100), "component"),
    "0.3 %, 64 ranks, 30 steps": Law(64, single(0.003, 150), "unknown", steps=30),
    "0.3 %, 8 ranks": Law(8, single(0.003, 150), "healthy"),
    "no hiccups, 64 ranks": Law(64, single(0.0, 150), "healthy"),
}


def work_ns(law: Law, ranks: int, rng: np.random.Generator) -> Floats:
    """Ranks × steps: what each rank computes, ns."""
    ordinary = 1 + law.noise * rng.normal(size=(ranks, law.steps)) + law.unequal * rng.normal(size=(ranks, 1))
    alike = 1 + law.drift * np.linspace(0, 1, law.steps) + law.common * rng.normal(size=law.steps).clip(-2, 2)
    return MS * np.maximum(100 * ordinary * alike + law.draw(rng, ranks, law.steps), 1)


def job(work: Floats, host: int) -> Trace:
    """Ranks that compute and meet, eight to a host."""
    ranks, steps = work.shape
    work = np.rint(work).astype(np.int64)
    opens = np.concatenate([[0], np.cumsum(work.max(axis=0) + 5 * MS)])
    begin = np.broadcast_to(opens[:-1], work.shape)
    columns = {
        "rank": np.tile(np.repeat(np.arange(ranks), steps), 2),
        "step": np.tile(np.arange(steps), 2 * ranks),
        "lane": np.zeros(2 * work.size),
        "kind": np.repeat([Kind.COMPUTE, Kind.COMMUNICATE], work.size),
        "name": np.repeat([0, 1], work.size),
        "verb": np.repeat([Verb.NONE, Verb.ALL_REDUCE], work.size),
        "group": np.repeat([-1, 0], work.size),
        "size": np.repeat([-1, 4096], work.size),
        "start_ns": np.concatenate([begin.ravel(), (begin + work).ravel()]),
        "end_ns": np.concatenate([(begin + work).ravel(), np.broadcast_to(opens[1:], work.shape).ravel()]),
    }
    ops = Table(Op, {name: np.asarray(values) for name, values in columns.items()})
    members = Table(Member, {"rank": np.arange(ranks), "host": np.array([f"host-{r // host}" for r in range(ranks)])})
    return Trace(ops, ["compute", "all-reduce"], ["lane"], ["all"], members, world_size=ranks)


def loss(work: Floats) -> float:
    """Share of the wall that waiting for the last costs, beyond what ranks are unequal by for good and late on average."""
    usual = np.median(work, axis=1, keepdims=True)
    usual = usual + np.median(work - usual, axis=0)
    wall = work.max(axis=0) + 5 * MS
    return float((work.max(axis=0) - usual.max(axis=0) - (work - usual).mean(axis=0)).sum() / wall.sum())


def healthy(seed: int, jobs: int) -> None:
    """Ranks that vary as healthy ones do: normal, skewed, in waves of demand, unequal for good, with memory."""
    told: dict[str, list[str]] = {}
    for n in range(jobs):
        rng = np.random.default_rng([seed, n])
        ranks, steps = int(rng.choice([4, 8, 16, 32, 64, 128])), int(rng.choice([30, 60, 120, 240]))
        spread = float(rng.choice([0.005, 0.01, 0.02, 0.03]))
        kind = ("normal", "skewed", "demand", "unequal", "memory")[n % 5]
        noise = rng.normal(size=(ranks, steps))
        if kind == "skewed":
            noise = rng.gamma(2, 1, (ranks, steps)) / 2**0.5
        if kind == "memory":
            for k in range(1, steps):
                noise[:, k] = 0.6 * noise[:, k - 1] + 0.8 * noise[:, k]
        work = 1 + spread * noise
        if kind == "demand":
            work *= 1 + 0.1 * np.sin(np.arange(steps) / 7)
        if kind == "unequal":
            work += 0.03 * rng.normal(size=(ranks, 1))
        result = analyze_trace(job(100 * MS * np.maximum(work, 0.1), 8)).result
        told.setdefault(kind, []).append(", ".join(f.mode for f in result.findings) or str(result.verdict.kind))
    for kind, words in told.items():
        counts = {word: words.count(word) for word in sorted(set(words))}
        print(f"{kind:8} {len(words)} jobs: {counts}")


def power(seed: int, jobs: int) -> None:
    """Share of jobs with the finding: 32 ranks, 200 steps, so many hiccups of 150 ms in all."""
    print("hiccups  nobody's: structural, unknown, other   half of them one rank's: structural, unknown, other")
    for hiccups in (4, 8, 12, 16, 24, 32, 48, 64):
        rows = []
        for carried in (0.0, 0.5):
            kinds = []
            for n in range(jobs):
                rng = np.random.default_rng([seed, hiccups, round(2 * carried), n])
                work = 100 * MS * (1 + 0.01 * rng.normal(size=(32, 200)))
                steps = rng.choice(200, hiccups, replace=False)
                who = np.where(rng.random(hiccups) < carried, 7, rng.integers(0, 32, hiccups))
                work[who, steps] += 150 * MS
                result = analyze_trace(job(work, 8)).result
                found = any(f.mode == "structural instability" for f in result.findings)
                kinds.append("structural" if found else str(result.verdict.kind))
            rows.append((kinds.count("structural"), kinds.count("unknown"), len(kinds)))
        words = [f"{s:4} {u:4} {n - s - u:4}" for s, u, n in rows]
        print(f"{hiccups:7}  {words[0]:38}  {words[1]}", flush=True)


def main() -> None:
    """Print one row for each law."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", type=int, default=70)
    asked.add_argument("--jobs", type=int, default=5)
    asked.add_argument("--only", default="")
    asked.add_argument("--healthy", action="store_true")
    asked.add_argument("--power", action="store_true")
    args = asked.parse_args()
    if args.healthy or args.power:
        (healthy if args.healthy else power)(args.seed, args.jobs)
        return
    print(f"{'law':44} class         finding  2x        4x        loss  predicted 2x, measured; 4x, measured")
    for row, (name, law) in enumerate(LAWS.items()):
        if args.only not in name:
            continue
        kinds, modes, held, shown = [], 0, {2: [0, 0], 4: [0, 0]}, ""
        for n in range(args.jobs):
            rng = np.random.default_rng([args.seed, row, n])
            result = analyze_trace(job(work_ns(law, law.ranks, rng), law.host)).result
            kinds.append(str(result.verdict.kind))
            found = [f for f in result.findings if f.mode == "structural instability"]
            modes += bool(found) == (law.expect == "structural" if law.finding is None else law.finding)
            for grown in (found[0].growth or [])[1:] if found else []:
                times = grown.ranks // law.ranks
                truth, e = loss(work_ns(law, grown.ranks, rng)), grown.loss_share
                held[times][0] += e.lo <= truth <= e.hi
                held[times][1] += 1
                shown += f" {e.value:.2f} ({e.lo:.2f}–{e.hi:.2f}) {truth:.2f};" if n == 0 else ""
        right = sum(kind == law.expect for kind in kinds)
        words = ", ".join(sorted(set(kinds)))
        print(f"{name:44} {right}/{len(kinds)} {words:10} {modes}/{len(kinds)}   "
              f"{held[2][0]}/{held[2][1]}  {held[4][0]}/{held[4][1]}  {shown}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
