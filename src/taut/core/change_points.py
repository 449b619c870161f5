"""When something became slower: spans of steps in which a series stands above its own level outside them.

Null hypothesis: the steps of a series are exchangeable up to noise. Two alternatives are tested. *Level*: the mean over a
span exceeds the mean outside it; values are clipped at CLIP spreads first, so that a lone hiccup, however long, is no
level; corrected for all spans and all series. *Spikes*: outliers fall on one place more often than chance would put them
there, whatever their size: independent heavy tails do not.
"""

from __future__ import annotations

from math import ceil, log
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Mask, Numbers
from taut.core.concentration import concentrated
from taut.core.student import TINY, fisher_tail

FALSE_ALARMS = 0.01
"""Chance that a run without any change has a span found in any of its series, for each of the two tests."""
CLIP = 3.0
"""Spreads beyond which a single step says no more about the level."""
LEAST_RISE = 1.0
"""Spreads by which most of a span's steps must stand above most of the others: spikes are no level."""
HEAVY = 0.75
"""Share of their degrees of freedom by which variances are compared: noise has heavier tails than Gaussian; chosen on lognormal
noise of one rank, five times that of the others."""
LEAST_CLEAR = 2.0
"""Standard errors by which its mean must be higher all the same."""
UNHEARD_OF = 0.05
"""Share of their steps in which the kin of a series rise half as much as a span that is noisier than the rest, at most."""
APART, LEAST_APART = 6.0, 5
"""Spreads between the lower fifth of a span and the middle of the rest from which no noise explains it, and the steps such a
span must have; that hiccups come in fives is asked apart."""
OUTLIER = 4.0
"""Spreads above the median from which a step is a spike."""
ACCIDENTS = 0.01
"""Share of the steps in which any place is expected to have a hiccup, before other places are asked."""
REMOVED = 2.0
"""Levels taken out of a series before its autocorrelation is estimated."""
SEARCH_BIAS, SEARCH_LOSS = 3.0, 6.0
"""By how many nths, as they are and of itself, the autocorrelation of n steps is less once the best of all spans is taken out:
the slowest waves go with it. Chosen on AR(1) noise of 12 to 40 steps so that the size holds."""
CAUTION = 1.0
"""Standard errors by which a series without kin is taken to be redder than it looks."""
TOLD = 0.5
"""Standard errors by which one with kin is taken to be less red than it looks: its kin tell."""
LEAST_KIN = 3
"""Series of a kind that it takes to say how red that kind is."""
MOST_AUTOCORRELATED = 0.95
"""Autocorrelation beyond which a series says nothing of its level."""
UNSURE = 2.0
"""A spread taken from n steps is uncertain itself: the alarm is raised by this many nths, which keeps the size."""
GROWS = 5.0
"""Log likelihood ratio from which a series is said to grow instead of standing at a new level."""
LEAST_OUTSIDE, LEAST_INSIDE = 3, 3
"""Steps that must lie outside a span, to know the level before, and inside it."""
LEAST_STEPS = LEAST_OUTSIDE + LEAST_INSIDE
AT_ONCE, TRIED_CELLS = 1024, 1 << 16
"""Series searched at once, and values of ramps that are tried at once: both bound the memory."""
GRID = 128
"""Longer series are searched at this many places, and around the best of them."""


class Span(Struct, frozen=True):
    """One series was higher in windows first … last."""

    series: int
    first: int
    last: int
    score: float
    """In standard errors."""
    tests: int = 1
    """Spans and series among which it is the best."""


def noise(y: Numbers, kin: Ints | None = None) -> Floats:
    """Spread of each series from step to step: from differences, so that a level that jumps is not counted as noise.

    At least that of the median series among its kin (a number for each series; all are kin if there is none).
    """
    # Median absolute difference → spread of the steps: 1.4826 for a normal distribution, √2 because a difference has two.
    own: Floats = 1.4826 * np.median(np.abs(np.diff(y, axis=1)), axis=1) / np.sqrt(2)
    typical, middle = (_among_kin(values, kin) for values in (own, np.abs(np.median(y, axis=1))))
    return np.maximum(np.maximum(own, typical), 1e-3 * middle + 1.0)


def _among_kin(values: Floats, kin: Ints | None) -> Floats:
    """The median over the kin of each series."""
    if kin is None:
        return np.full(len(values), np.median(values))
    return np.array([np.median(values[kin == k]) for k in range(int(kin.max(initial=-1)) + 1)])[kin]


def levels(y: Numbers, kin: Ints | None = None, most: int = 1) -> list[Span]:
    """Spans of every series (row of ``y``), at most ``most`` of each, the costliest first; kin share one kind of noise.

    A series in which a span was found is searched again without it: a long span that is a little higher and a short one that
    is much higher are clear alike once values are clipped. The null is tested again only where it was rejected, so its size
    stays.
    """
    count, n = y.shape
    if n < LEAST_STEPS or count == 0:
        return []
    spread = noise(y, kin)
    z = _standardised(y, spread)
    found, rho, again = [], None, np.arange(count)
    for _ in range(most):
        spans, rho = _one_each(z, spread, again, kin, rho)
        found += spans
        if not spans:
            break
        again = np.array([span.series for span in spans], dtype=np.int64)
        for span in spans:
            z[span.series, span.first : span.last + 1] = np.median(np.delete(z[span.series], slice(span.first, span.last + 1)))
    if n > GRID:
        z = _standardised(y, spread)
        found = [_nearby(z[s.series], s, [o for o in found if o.series == s.series and o is not s]) for s in found]
    return sorted(found, key=lambda span: (span.series, -_cost(y[span.series], span)))


def _cost(series: Numbers, span: Span) -> float:
    """What a span costs above the median outside it, nothing clipped."""
    inside = slice(span.first, span.last + 1)
    return float((series[inside] - np.median(np.delete(series, inside))).sum())


def _one_each(z: Floats, spread: Floats, rows: Ints, kin: Ints | None, rho: Floats | None) -> tuple[list[Span], Floats | None]:
    """At most one span for each of some series, and how red all series are (given, once that is known)."""
    count, n = z.shape
    edges = np.unique(np.linspace(0, n, min(n, GRID) + 1).astype(np.int64))
    first, last = np.triu_indices(len(edges), 1)
    begin, end = edges[first], edges[last]
    inside = end - begin
    keep = (inside >= LEAST_INSIDE) & (n - inside >= LEAST_OUTSIDE)
    keep &= (begin >= LEAST_OUTSIDE) | (2 * inside <= n)  # what was there from the start, most of the time, is the level
    begin, end = begin[keep], end[keep]
    # Bonferroni over all spans of all series, raised because spreads of n steps are uncertain themselves.
    alarm = NormalDist().inv_cdf(1 - FALSE_ALARMS / (len(begin) * count)) * (1 + UNSURE / n)
    wide, narrow = np.clip(z[rows], -2 * CLIP, 2 * CLIP), np.clip(z[rows], -CLIP, CLIP)
    far, near = _best(wide, begin, end), _best(narrow, begin, end)
    alarmed = np.flatnonzero((near[2] > alarm) | (far[2] > alarm))
    if not len(alarmed):
        return [], rho
    if rho is None:  # in the first search, which is of all series
        rho = (
            _among_kin(_lag_one_after_search(_without_span(narrow, near[0], near[1])), kin)
            if _has_enough_kin(kin, count)
            else np.full(count, np.nan)
        )
    out = []
    for k in alarmed.tolist():
        i = int(rows[k])
        red = [float(rho[i])] * 2
        if np.isnan(rho[i]):
            red = [_redness_without_kin(z[i], int(best[0][k]), int(best[1][k])) for best in (far, near)]
        clear = _clear_span(z[i], i, int(far[0][k]), int(far[1][k]), float(far[2][k]), APART * _inflation_of_spread(red[0]))
        span = _unless_stops(z, kin, clear, len(begin) * count)
        if span is None:
            a, b = int(near[0][k]), int(near[1][k])
            clear_by = _clear_by(z[i], a, b, float(near[2][k]), red[1])
            if LEAST_CLEAR < clear_by <= alarm:
                clear_by = max(clear_by, _with_its_noise(z * spread[:, None], kin, i, a, b, clear_by, red[1]))
            raised = _raised_span(z[i], i, a, b, clear_by, alarm)
            span = _unless_stops(z, kin, raised, len(begin) * count)
        out += [_extended(z[i], span)] if span else []
    return out, rho


def _unless_stops(z: Floats, kin: Ints | None, span: Span | None, tests: int) -> Span | None:
    """A span that is the best of so many, unless it may be stops that fell together."""
    found = None if span is None else replace(span, tests=tests)
    return None if found is None or _of_stops(z, kin, found) else found


def _of_stops(z: Floats, kin: Ints | None, span: Span) -> bool:
    """Whether a span may be stops that fell together: clipped steps carry it, and by chance some span has as many of them.

    How often a step is half as high, and for how many steps in a row, is told by the others of the series or by its kin,
    whichever have more; levels of the series, and one of each of its kin, tell nothing of stops.
    """
    at, series = np.arange(z.shape[1]), np.arange(len(z))
    inside = (at >= span.first) & (at <= span.last)
    above = z[span.series] - np.median(z[span.series, ~inside])
    far, rise = above >= CLIP, np.clip(above[inside], 0, CLIP)
    if 2 * rise[far[inside]].sum() < rise.sum():
        return False
    as_high = max(CLIP, 0.5 * float(np.median(above[far & inside])))
    beside = (series != span.series) & (True if kin is None else kin == kin[span.series])
    others = [_without_levels(((above >= as_high) & ~inside)[None, :])[:, ~inside]]
    if np.count_nonzero(beside) + 1 >= LEAST_KIN:  # of two ranks each is told against the other: they mirror each other
        others.append(_without_levels(z[beside] >= as_high, 1))
    share, lasting = max(_how_often(hit) for hit in others)
    hits = ceil(np.count_nonzero(above[inside] >= as_high) / lasting)
    return concentrated(hits, max(round(len(rise) / lasting), hits), share, span.tests) >= FALSE_ALARMS


def _how_often(hit: Mask) -> tuple[float, float]:
    """The share of steps in which something happens, and how many times as long its runs (last axis) are as by chance."""
    count, cut = int(np.count_nonzero(hit)), hit[:, 1:] & ~hit[:, :-1]
    share = (count + 0.5) / (hit.size + 1)
    runs = int(np.count_nonzero(cut) + np.count_nonzero(hit[:, 0]))
    return share, max(1.0, count / max(runs, 1) * (1 - share))


def _without_levels(hit: Mask, most: int | None = None) -> Mask:
    """Of steps in which something happens (last axis) those not in runs of LEAST_APART or more, the longest so many of them."""
    out = hit.copy()
    for row in out:
        edges = np.flatnonzero(np.diff(row, prepend=False, append=False))
        begins, ends = edges[::2], edges[1::2]
        for run in np.argsort(begins - ends, kind="stable")[:most].tolist():
            if ends[run] - begins[run] >= LEAST_APART:
                row[begins[run] : ends[run]] = False
    return out


def _extended(z: Floats, span: Span) -> Span:
    """The span with the steps beside it that belong to it: on the mean they are nearer to its level than to the other.

    The clearest span is not the longest: it leaves out an end that is only a little lower.
    """
    a, b = span.first, span.last + 1
    outside = float(np.median(np.delete(z, slice(a, b))))
    middle = outside + 0.5 * (float(np.median(z[a:b])) - outside)
    after, before = (_steps_to_add(beside - middle) for beside in (z[b:], z[:a][::-1]))
    return replace(span, first=max(a - before, min(a, LEAST_OUTSIDE)), last=b + after - 1)


def _steps_to_add(above: Floats) -> int:
    """How many of the next values belong, as long as their sum has not been below zero: those with the largest sum."""
    # Running sums of distances above the middle: they grow as long as steps belong to the span on the mean.
    total = np.cumsum(np.clip(above, -CLIP, CLIP))
    below = np.flatnonzero(total < 0)
    total = total[: below[0]] if len(below) else total
    return int(np.argmax(total)) + 1 if len(total) and total.max() > 0 else 0


def _best(z: Floats, begin: Ints, end: Ints) -> tuple[Ints, Ints, Floats]:
    """Of every series the span with the largest difference of means, in standard errors: begin, end, score."""
    count, n = z.shape
    total = np.concatenate([np.zeros((count, 1)), np.cumsum(z, axis=1)], axis=1)
    inside = (end - begin).astype(np.float64)
    best, at = np.full(count, -np.inf), np.zeros(count, dtype=np.int64)
    for first in range(0, count, AT_ONCE):
        some = total[first : first + AT_ONCE]
        within = some[:, end] - some[:, begin]
        # Difference of means over its standard error, for steps of unit spread.
        score = (within / inside - (some[:, -1:] - within) / (n - inside)) * np.sqrt(inside * (n - inside) / n)
        at[first : first + AT_ONCE] = np.argmax(score, axis=1)
        best[first : first + AT_ONCE] = score.max(axis=1)
    return begin[at], end[at], best


def _nearby(z: Floats, span: Span, others: list[Span]) -> Span:
    """The span, or a clearer one that begins and ends between the places of the grid at which it was found; not in others."""
    n = len(z)
    reach = np.arange(-(n // GRID), n // GRID + 1)
    begin, end = (edges.ravel() for edges in np.meshgrid(span.first + reach, span.last + 1 + reach))
    keep = (begin >= min(span.first, LEAST_OUTSIDE)) & (end <= n) & (end - begin >= LEAST_INSIDE)
    keep &= n - (end - begin) >= LEAST_OUTSIDE
    for other in others:
        keep &= (begin > other.last) | (end <= other.first) | (other.first <= span.last) & (other.last >= span.first)
    a, b, _ = _best(np.clip(z, -2 * CLIP, 2 * CLIP)[None, :], begin[keep], end[keep])
    return replace(span, first=int(a[0]), last=int(b[0]) - 1)


def _clear_span(z: Floats, series: int, a: int, b: int, score: float, apart: float) -> Span | None:
    """A span whose steps nearly all lie far above most of the others (all but a fifth of these, where they are fewer).

    Unmistakable, however few they are. Most, not nearly all: a series may stand higher in other spans, too.
    """
    low, high = np.quantile(z[a:b], 0.2), np.quantile(np.delete(z, slice(a, b)), 0.5 if 2 * (b - a) <= len(z) else 0.8)
    return Span(series, a, b - 1, score) if b - a >= LEAST_APART and low - high >= apart else None


def _clear_by(z: Floats, a: int, b: int, score: float, rho: float) -> float:
    """By how many standard errors the mean of a span is higher, once the steps are known not to be independent."""
    shapes = _without_span(np.clip(z, -CLIP, CLIP)[None, :], np.array([a]), np.array([b])), _without_ramp(z, a, b)
    # A ramp read as a level leaves a rest that looks autocorrelated: whichever shape leaves less counts.
    return score / min(_inflation_of_mean(rest, rho) for rest in shapes)


def _with_its_noise(above: Floats, kin: Ints | None, i: int, a: int, b: int, clear_by: float, rho: float) -> float:
    """The same, in standard errors, of a span that is noisier than the rest as well: both together (Fisher's method).

    All series are given above their medians, in the same unit. Zero where the kin of one rise half as much now and then, or
    where there are too few: then its noise may be what they all have.
    """
    variance, free = [], []
    for part in above[i, a:b], np.delete(above[i], slice(a, b)):
        middle = float(np.median(part))
        reach = CLIP * 1.4826 * float(np.median(np.abs(part - middle)))
        rest = np.clip(part - middle, -reach, reach)
        red = max(rho, float(_raw_lag_one((rest - rest.mean())[None, :])[0]), 0.0)
        variance.append(max(float(rest.var(ddof=1)), TINY))
        # Bartlett: of AR(1) steps a variance has fewer degrees of freedom than there are steps.
        free.append(max(HEAVY * (len(part) - 1) * (1 - red**2) / (1 + red**2), 1.0))
    beside = np.flatnonzero((np.arange(len(above)) != i) & (True if kin is None else kin == kin[i]))
    if len(beside) + 1 < LEAST_KIN or variance[0] <= variance[1]:
        return 0.0
    rise = float(np.median(above[i, a:b]) - np.median(np.delete(above[i], slice(a, b))))
    if np.mean(above[beside] >= 0.5 * rise) > UNHEARD_OF:
        return 0.0
    calm = (1.4826 * float(np.median(np.abs(above[beside])))) ** 2  # a part that is chosen may be calmer than they ever are
    chance = NormalDist().cdf(-clear_by) * fisher_tail(variance[0] / max(variance[1], calm), free[0], free[1])
    return -NormalDist().inv_cdf(min(max(chance * (1 - log(max(chance, TINY))), TINY), 0.5))


def _raised_span(z: Floats, series: int, a: int, b: int, score: float, alarm: float) -> Span | None:
    """A span whose mean is higher by more than chance explains."""
    outside, within = np.delete(z, slice(a, b)), z[a:b]
    return Span(series, a, b - 1, score) if score > alarm and np.median(within) - np.median(outside) > LEAST_RISE else None


def _without_span(z: Floats, begin: Ints, end: Ints) -> Floats:
    """Every series less the mean inside its span, and less the mean outside it."""
    at = np.arange(z.shape[1])
    inside = (at >= begin[:, None]) & (at < end[:, None])
    within, rest = ((z * part).sum(axis=1) / np.maximum(part.sum(axis=1), 1) for part in (inside, ~inside))
    level: Floats = np.where(inside, within[:, None], rest[:, None])
    return z - level


def _without_ramp(z: Floats, a: int, b: int) -> Floats:
    """A series less the ramp, from wherever it begins to the end of the span, that fits it best."""
    at, away = np.arange(len(z)), z - z.mean()
    best: Floats = away
    begins = np.arange(min(LEAST_OUTSIDE, a), b - LEAST_INSIDE + 1)
    at_once = max(TRIED_CELLS // len(z), 1)
    for some in (begins[first : first + at_once, None] for first in range(0, len(begins), at_once)):
        shape = np.where(at < b, np.maximum(at - some + 1.0, 0.0), 0.0)
        shape -= shape.mean(axis=1, keepdims=True)
        rest = away - shape * ((shape * z).sum(axis=1) / (shape**2).sum(axis=1))[:, None]
        left = (rest**2).sum(axis=1)
        least = int(np.argmin(left))
        best = rest[least] if left[least] < (best**2).sum() else best
    return np.clip(best[None, :], -CLIP, CLIP)


def _has_enough_kin(kin: Ints | None, count: int) -> bool:
    """Whether series have kin enough to tell what noise they share."""
    return count / (1 if kin is None else int(kin.max()) + 1) >= LEAST_KIN


def _redness_without_kin(z: Floats, a: int, b: int) -> float:
    """How red one series may well be: it cannot tell its own redness, so a standard error is added."""
    shapes = _without_span(np.clip(z, -CLIP, CLIP)[None, :], np.array([a]), np.array([b])), _without_ramp(z, a, b)
    rho = min(float(_lag_one_after_search(rest)[0]) for rest in shapes)
    return rho + CAUTION * float(np.sqrt(max(1 - rho**2, 0.0) / len(z)))


def _inflation_of_mean(rest: Floats, rho: float) -> float:
    """By how much more the mean of such a series wanders than that of independent steps (AR(1), from lag 1).

    ``rho`` is what its kin have; of a single short series it is uncertain: beyond theirs it counts with caution.
    """
    # The variance of a mean of AR(1) noise is (1 + ρ)/(1 − ρ) times that of independent steps.
    own = float(_lag_one(rest)[0])
    own -= TOLD * float(np.sqrt(max(1 - own**2, 0.0) / rest.shape[1]))
    rho = min(max(rho, own, 0.0), MOST_AUTOCORRELATED)
    return max(float(np.std(rest)), _inflation_of_spread(rho)) * float(np.sqrt((1 + rho) / (1 - rho)))


def _lag_one(rest: Floats) -> Floats:
    """Autocorrelation of every series at lag 1; taking levels out makes a series look less red than it is: corrected."""
    rho = _raw_lag_one(rest)
    # The estimate is biased by −(1 + 4ρ)/n for every level that was taken out (Kendall).
    corrected: Floats = rho + (1 + 4 * rho) * REMOVED / rest.shape[1]
    return corrected


def _lag_one_after_search(rest: Floats) -> Floats:
    """The same of series less the best of their spans."""
    corrected: Floats = (_raw_lag_one(rest) + SEARCH_BIAS / rest.shape[1]) / max(1 - SEARCH_LOSS / rest.shape[1], 0.4)
    return corrected


def _raw_lag_one(rest: Floats) -> Floats:
    rho: Floats = (rest[:, 1:] * rest[:, :-1]).sum(axis=1) / np.maximum((rest**2).sum(axis=1), 1e-12)
    return rho


def _inflation_of_spread(rho: float) -> float:
    """Spread of red noise, against what its differences from step to step suggest."""
    return float(1 / np.sqrt(1 - min(max(rho, 0.0), MOST_AUTOCORRELATED)))


def ramp(series: Numbers, span: Span) -> int | None:
    """The window from which a series grows step by step, None if it rather stands at a new level.

    Both shapes have a begin and a size, and end with the span; the sum of distances from each, whatever the begin, tells
    which fits better (Laplace likelihoods, so that hiccups do not decide).
    """
    y, n = np.asarray(series, dtype=np.float64)[: span.last + 1], span.last + 1
    outside = np.delete(series, slice(span.first, n))
    at = np.arange(n)
    best = {"level": (np.inf, 0), "ramp": (np.inf, 0)}
    for begin in range(min(LEAST_OUTSIDE, span.first), n - LEAST_INSIDE + 1):
        rest = np.concatenate([y[:begin], np.asarray(series, dtype=np.float64)[n:]])
        base = float(np.median(rest if len(rest) >= LEAST_OUTSIDE else outside))
        before = np.abs(y[:begin] - base).sum()
        above, time = y[begin:] - base, at[begin:] - begin + 1.0
        slope = float(np.median(above / time))
        # The median of slopes decides whether it rises at all, least squares by how much.
        slope = float((above * time).sum() / (time**2).sum()) if slope > 0 else 0.0
        for shape, fitted in (("level", np.median(above)), ("ramp", slope * time)):
            best[shape] = min(best[shape], (float(before + np.abs(above - fitted).sum()), begin))
    return best["ramp"][1] if n * np.log(max(best["level"][0], 1e-9) / max(best["ramp"][0], 1e-9)) > GROWS else None


def outliers(y: Numbers) -> Mask:
    """Mask of the steps that stand far above the median of their series, the first of those that follow each other."""
    away = y - np.median(y, axis=1, keepdims=True)
    # Many lone spikes widen differences, two each, but not what half of the steps stay within; kindred series tell the least.
    spread = np.minimum(noise(y), np.maximum(1.4826 * np.median(np.abs(away), axis=1), np.median(noise(y, np.arange(len(y))))))
    z = away / np.maximum(spread, 1.0)[:, None]
    far = z > OUTLIER * _inflation_of_spread(float(np.median(_lag_one(np.clip(z, -CLIP, CLIP)))))
    far[:, 1:] &= ~far[:, :-1]
    return far


def clipped(y: Numbers) -> Floats:
    """Every series in its own spreads around its median, at most CLIP of them: a lone hiccup is no level."""
    return np.clip(_standardised(y, noise(y, np.arange(len(y)))), -CLIP, CLIP)


def _standardised(y: Numbers, spread: Floats) -> Floats:
    return np.asarray((y - np.median(y, axis=1, keepdims=True)) / spread[:, None])


def densest(hit: Mask) -> tuple[int, int]:
    """First and last of the steps in which something happens time and again: some before or after may be accidents.

    The span of the largest likelihood, with one rate inside, and that of accidents outside.
    """
    at = np.flatnonzero(hit)
    first, last = int(at[0]), int(at[-1])
    while True:
        size = last - first + 1
        rate = min(np.count_nonzero(hit[first : last + 1]) / size, 1 - 0.5 / size)
        if rate <= ACCIDENTS:
            return first, last
        gain = np.cumsum(np.where(hit, np.log(rate / ACCIDENTS), np.log((1 - rate) / (1 - ACCIDENTS))))
        before = np.append(0.0, gain[:-1])
        end = int(np.argmax(gain - np.minimum.accumulate(before)))
        begin = int(np.argmin(before[: end + 1]))
        if (begin, end) == (first, last):
            return first, last
        first, last = begin, end
