"""A measured run asked what a scenario file is asked: forecasts, indices and regime as measured, threshold, questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil, exp, log, log2

from msgspec.structs import replace

from taut.project.marginal_gain import PAYS
from taut.project.measured.scaled_run import Forecast, Measured
from taut.project.projected_answers import questions
from taut.result import types
from taut.result.types import Estimate, MeasuredJob, ProjectResult, Regime, Threshold

# How often the measured ranks are doubled in search of the threshold.
DOUBLINGS = 10


def from_run(
    m: Measured,
    indices: Mapping[str, Estimate | None],
    regime: Regime | None,
    ranks: Sequence[int],
    *,
    same_hosts: bool = False,
    seed: int = 0,
) -> ProjectResult:
    """What ``taut project --from RUN`` prints; ``indices`` and ``regime`` are those of the run's analysis."""
    made = m.forecasts(ranks, same_hosts=same_hosts, seed=seed)
    found = threshold(m, same_hosts=same_hosts, seed=seed, largest=max(ranks))
    forecasts = [_entry(one, m, found, indices, regime) for one in made]
    at = forecasts.index(max(forecasts, key=lambda one: one.ranks))
    return ProjectResult(
        scenario=m.graph.trace.name,
        workload="measured",
        defaults=[],
        forecasts=forecasts,
        ranks=max(ranks),
        indices=forecasts[at].indices,
        regime=forecasts[at].regime,
        threshold=found,
        policies=[],
        questions=questions(forecasts, at, found),
        measured=MeasuredJob(ranks=m.ranks, steps=len(m.graph.steps)),
        assumed=m.assumed(same_hosts),
    )


def _entry(
    made: Forecast, m: Measured, far: Threshold, indices: Mapping[str, Estimate | None], regime: Regime | None
) -> types.Forecast:
    """A forecast with what is said of its scale: at that of the run what was measured, elsewhere what a projection tells.

    How much jitter may grow is not known there: only that nothing is left of it beyond the threshold.
    """
    entry = made.entry()
    if made.ranks == m.ranks:
        return replace(entry, indices=dict(indices), regime=regime)
    ratio = entry.effective_throughput_ratio
    known = {"effective_throughput_ratio": ratio if isinstance(ratio, Estimate) else None}
    beyond = far.hi is not None and made.ranks > far.hi
    beyond_it = Regime(kind="unstable", reserve=None, pays=PAYS, rule=far.rule) if beyond else None
    return replace(entry, indices={**dict.fromkeys(indices), **known}, regime=beyond_it)


def threshold(m: Measured, *, same_hosts: bool = False, seed: int = 0, largest: int = 0) -> Threshold:
    """Where one more accelerator stops paying: the forecast doubled until it does; the interval is that of its mean steps.

    Scales are tried to twice the ``largest`` that anybody asked for, at least.
    """
    more = max(DOUBLINGS, ceil(log2(2 * largest / m.ranks))) if largest else DOUBLINGS
    scales = [m.ranks << k for k in range(more + 1)]
    made = m.forecasts(scales, same_hosts=same_hosts, seed=seed)
    value, late, early = (crossing(made, which) for which in range(3))
    return Threshold(
        ranks=value,
        lo=early,
        hi=late,
        rule=f"one more accelerator adds less than {100 * PAYS:g} % of the throughput of one that never waits",
        tried=scales[-1],
        in_range=value is not None and next(f.in_range for f in made if f.ranks >= value),
    )


def crossing(made: Sequence[Forecast], which: int) -> int | None:
    """Ranks at which the marginal return falls below PAYS, taking the mean step (0) or an end of its interval (1, 2).

    Between a scale and its double the return is that of the ranks added; in between it goes with the logarithm of the scale.
    """
    last: tuple[float, float] | None = None
    for one, other in pairwise(made):
        rates = [f.ranks / f.mean_ns[which] for f in (one, other)]
        pays = (rates[1] - rates[0]) / (other.ranks - one.ranks) * made[0].ideal_ns
        at = log(one.ranks * 2**0.5)
        if pays < PAYS:
            if last is None:
                return one.ranks
            share = (last[1] - PAYS) / (last[1] - pays)
            return round(exp(last[0] + share * (at - last[0])))
        last = at, pays
    return None
