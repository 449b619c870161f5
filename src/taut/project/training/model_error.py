"""How far modelled step times lie from published ones, and the interval in which a measured step should lie.

Errors are logarithms of modelled over published step times, of rows that no number was fitted on, by class of job and by paper:
rows of one paper share its machine and its authors' choices, so papers count, not rows. With k papers of a class the next one
is expected at their centre ± t(k − 1) · √(within² + between² · (1 + 1/k)), where *within* is the spread of the rows of one
paper and *between* that of papers. Fewer than three papers tell no spread between them: then a prior stands in, and is
labelled as one.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from math import sqrt
from statistics import NormalDist

import numpy as np
from msgspec import Struct, convert

from taut.core.array_types import Floats
from taut.core.student import student_quantile
from taut.project.training.scenario import Scenario
from taut.result.types import Estimate, IntervalParts, ModelError

LEAST_PAPERS = 3
PRIOR_TIMES, PRIOR_FREEDOM = 2.0, 3
"""Where fewer papers tell, the spread between papers is a prior: so many times that of the class that most papers tell of, and
counts for so many degrees of freedom."""
FEW_EXPERTS = 16
"""More of them in a layer are small, and what they take is told by routing and launching more than by their products."""
LEVEL = 0.8
"""Of the interval."""
ENDS = (1 - LEVEL) / 2, (1 + LEVEL) / 2
CHANCES = (np.arange(99) + 0.5) / 99
"""Quantiles that stand for a distribution where two of them are put together."""
NONE = np.ones(1)
EXACT = ModelError(kind="none", papers=0, prior=False, centre=0.0, half_width=0.0)
"""Of what no published value says how far it is off."""


class Paper(Struct, frozen=True, rename={"kind": "class"}):
    """What rows of one publication said of one class of jobs."""

    kind: str
    name: str
    rows: int
    mean: float
    """Of log(modelled ÷ published)."""
    spread: float
    """Standard deviation of it; 0 of one row."""


@cache
def papers() -> tuple[Paper, ...]:
    """All that were compared, ``model_errors.toml``; made by ``validation/step_times.py --errors``."""
    text = resources.files(__package__).joinpath("model_errors.toml").read_text(encoding="utf-8")
    return convert(tomllib.loads(text)["papers"], tuple[Paper, ...])


def class_of(s: Scenario) -> str:
    """The class of jobs whose published step times tell how good the model is."""
    if s.model.experts:
        return f"mixture of {'few' if s.model.experts <= FEW_EXPERTS else 'many'} experts"
    if s.job.sharding in ("zero3", "hsdp"):
        return "sharded parameters"
    return "dense, eight bits" if s.job.precision == "fp8" else "dense, sixteen bits"


def model_error(kind: str, without: str = "") -> ModelError:
    """Centre and half-width of the log error of another paper of a class; ``without``: a paper that is left out."""
    some = [one for one in papers() if one.kind == kind and one.name != without]
    k = len(some)
    within = sqrt(sum(one.spread**2 for one in some) / max(k, 1))
    if k < LEAST_PAPERS:
        # What is known of the class is not thrown away: its centre counts as one observation beside the prior's own.
        centre = sum(one.mean for one in some) / (k + 1)
        # Two papers may show that the prior is too narrow here.
        apart = float(np.std([one.mean for one in some], ddof=1)) if k > 1 else 0.0
        between = max(PRIOR_TIMES * _best_known(without), apart)
        width = student_quantile(ENDS[0], PRIOR_FREEDOM) * sqrt(within**2 + between**2)
        return ModelError(kind=kind, papers=k, prior=True, centre=centre, half_width=width)
    means = np.array([one.mean for one in some])
    between = float(means.std(ddof=1))
    width = student_quantile(ENDS[0], k - 1) * sqrt(within**2 + between**2 * (1 + 1 / k))
    return ModelError(kind=kind, papers=k, prior=False, centre=float(means.mean()), half_width=width)


def _best_known(without: str) -> float:
    """Spread between papers of the class that most of them tell of."""
    means: dict[str, list[float]] = {}
    for one in papers():
        if one.name != without:
            means.setdefault(one.kind, []).append(one.mean)
    return float(np.std(max(means.values(), key=len), ddof=1))


class Factors(Struct, frozen=True):
    """What a measured value should lie between, as multiples of the forecast one, and why so far apart."""

    lo: float
    hi: float
    parts: IntervalParts

    def of(self, value: float) -> Estimate:
        """The interval about a value, which it holds in any case."""
        return Estimate(value=value, lo=value * min(self.lo, 1.0), hi=value * max(self.hi, 1.0), parts=self.parts)

    def inverse(self) -> Factors:
        """Of what is the less the more this is."""
        return Factors(1 / self.hi, 1 / self.lo, self.parts)


def factors(values: Floats, error: ModelError, parameters: Floats = NONE) -> Factors:
    """80 % of measured values, as multiples of the forecast one.

    ``values`` are drawn steps over their mean (or means, which stray less); ``parameters`` draws of a factor. All are taken as
    distributions of logarithms and put together; the model's error as a normal one of its own half-width.
    """
    given, drawn = (np.log(np.maximum(one, 1e-300)) for one in (parameters, values))
    total = error.half_width / float(NormalDist().inv_cdf(ENDS[1])) * normal_quantiles() - error.centre
    for one in (given, drawn):
        if np.ptp(one) > 0:  # quantiles of a sum are those of all pairs
            total = np.quantile(np.add.outer(total, np.quantile(one, CHANCES)).ravel(), CHANCES)
        else:
            total = total + one[0]
    lo, hi = np.exp(np.quantile(total, ENDS))
    widths = np.array([error.half_width, *(float(np.diff(np.quantile(one, ENDS))[0]) / 2 for one in (given, drawn))]) ** 2
    model, ranges, noise = (float(width) / max(float(widths.sum()), 1e-300) for width in widths)
    return Factors(float(lo), float(hi), IntervalParts(model=model, parameters=ranges, noise=noise))


@cache
def normal_quantiles() -> Floats:
    """Quantiles of the normal distribution at ``CHANCES``."""
    return np.array([NormalDist().inv_cdf(chance) for chance in CHANCES.tolist()])
