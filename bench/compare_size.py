"""How often the tests of `taut compare` err without a cause, and how often they find one: the tables of docs/compare.md.

    python bench/compare_size.py [--draws 2000]

Nominal size 5 %. Nulls: white noise, heavy tails (Student's t, 2 degrees of freedom), skewed (lognormal, σ = 1), red noise
(AR(1)). Power is against red noise of 0.5, effects in standard deviations of a value.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from taut.core.differences import differ, ratio, shifted
from taut.core.trend import corrected, trend

NOMINAL, WARM = 0.05, 50
NULLS = ("white", "heavy tails", "skewed", "red 0.3", "red 0.5", "red 0.7")


def draw(null: str, rng: Any, shape: tuple[int, int]) -> Any:
    """Series × values of one null; red noise has a standard deviation of 1."""
    if null == "white":
        return rng.standard_normal(shape)
    if null == "heavy tails":
        return rng.standard_t(2, shape)
    if null == "skewed":
        return rng.lognormal(0, 1, shape)
    rho = float(null.split()[1])
    noise = rng.standard_normal((shape[0], shape[1] + WARM))
    for i in range(1, noise.shape[1]):
        noise[:, i] += rho * noise[:, i - 1]
    return noise[:, WARM:] * np.sqrt(1 - rho**2)


def trends(null: str, draws: int, n: int, slope: float = 0.0) -> float:
    """Share of series of n runs in which a trend is found."""
    rows = draw(null, np.random.default_rng([1, n]), (draws, n)) + slope * np.arange(n)
    return float(np.mean([found.p <= NOMINAL for row in rows if (found := trend(row)) is not None]))


def differs(null: str, draws: int, runs: int, steps: int, between: float = 0.0) -> float:
    """Share of single series that are said to differ between runs whose levels have that standard deviation."""
    rng = np.random.default_rng([2, runs, steps])
    tables = [100 + draw(null, rng, (draws, steps)) + between * rng.standard_normal((draws, 1)) for _ in range(runs)]
    found = (differ([table[i : i + 1] for table in tables]) for i in range(draws))
    return float(np.mean([one.p[0] <= NOMINAL for one in found if one is not None]))


def changes(null: str, draws: int, steps: int, shift: float = 0.0, onset: float = 0.0, wider: float = 1.0) -> float:
    """Share of single series that are said to have changed, if the later run shifts from some part of it on, or varies more."""
    rng = np.random.default_rng([4, steps])
    before, after = (100 + scale * draw(null, rng, (draws, steps)) for scale in (1.0, wider))
    after[:, int(onset * steps) :] += shift
    found = (shifted(before[i : i + 1], after[i : i + 1]) for i in range(draws))
    return float(np.mean([p[0] <= NOMINAL for p in found if p is not None]))


def listed(null: str, draws: int, steps: int, series: int = 100) -> float:
    """Share of comparisons of that many unchanged series that list any of them."""
    found = 0
    for seed in range(draws):
        rng = np.random.default_rng([5, steps, seed])
        p = shifted(*(100 + draw(null, rng, (series, steps)) for _ in range(2)))
        found += min(q for q in corrected(p.tolist()) if q is not None) <= NOMINAL
    return found / draws


def spreads(null: str, draws: int, steps: int, grows: float = 1.0) -> float:
    """Share of restarts that are said to change the spread of steps, if it grows by that factor."""
    rng = np.random.default_rng([3, steps])
    sides = [draw(null, rng, (draws, steps)), grows * draw(null, rng, (draws, steps))]
    strays = [np.abs(side - np.median(side, axis=1, keepdims=True)) for side in sides]
    found = (ratio(before, after, trimmed=0.0) for before, after in zip(*strays, strict=True))
    return float(np.mean([one.p <= NOMINAL for one in found if one is not None]))


def table(title: str, heads: Iterable[str], columns: list[Callable[[str], float]], rows: Iterable[str]) -> None:
    heads = list(heads)
    print(f"\n{title}\n\n| | {' | '.join(heads)} |\n|---|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {row} | {' | '.join(f'{100 * column(row):.1f} %' for column in columns)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1500)
    draws = parser.parse_args().draws
    counts = (5, 7, 8, 10, 14, 20, 50)
    shapes = ((2, 9), (2, 30), (2, 100), (6, 9), (6, 30), (20, 9), (20, 30))
    sizes = (9, 16, 32)
    table("Trend, size", (f"{n} runs" for n in counts), [lambda null, n=n: trends(null, draws, n) for n in counts], NULLS)
    table(
        "Trend, power: a rise of so many standard deviations a run",
        (f"{n} runs" for n in counts),
        [lambda effect, n=n: trends("red 0.5", draws // 4, n, float(effect)) for n in counts],
        ("0.1", "0.25", "0.5", "1"),
    )
    table(
        "Work or step time between runs, size",
        (f"{runs} runs of {steps}" for runs, steps in shapes),
        [lambda null, r=runs, s=steps: differs(null, draws, r, s) for runs, steps in shapes],
        NULLS,
    )
    table(
        "Work or step time between runs, power: levels that differ by so many standard deviations of a step",
        (f"{runs} runs of {steps}" for runs, steps in shapes),
        [lambda effect, r=runs, s=steps: differs("red 0.5", draws // 4, r, s, float(effect)) for runs, steps in shapes],
        ("0.5", "1", "2", "4"),
    )
    lengths = (9, 16, 24, 30, 100)
    heads = [f"{n} steps" for n in lengths]
    table("Changed, size", heads, [lambda null, n=n: changes(null, draws, n) for n in lengths], NULLS)
    table(
        "Changed, anything listed where none of 100 series changed",
        heads,
        [lambda null, n=n: listed(null, draws // 3, n) for n in lengths],
        NULLS,
    )
    for title, onset in (("all the time", 0.0), ("from its middle on", 0.5)):
        table(
            f"Changed, power: the later run shifts {title} by so many standard deviations of a step",
            heads,
            [lambda shift, n=n, o=onset: changes("red 0.5", draws // 3, n, float(shift), o) for n in lengths],
            ("1", "2", "4", "8"),
        )
    table(
        "Changed, near miss: the level stays, the spread of steps grows by this factor",
        heads,
        [lambda factor, n=n: changes("red 0.5", draws // 3, n, wider=float(factor)) for n in lengths],
        ("2", "4"),
    )
    table("Restart, size", (f"{n} steps a side" for n in sizes), [lambda x, n=n: spreads(x, draws, n) for n in sizes], NULLS)
    table(
        "Restart, power: the spread of steps grows by this factor",
        (f"{n} steps a side" for n in sizes),
        [lambda factor, n=n: spreads("red 0.5", draws // 4, n, grows=float(factor)) for n in sizes],
        ("1.5", "2", "4"),
    )


if __name__ == "__main__":
    main()
