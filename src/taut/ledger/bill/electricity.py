"""Joules → money by the tariff of the hour, cooling by the temperature of the hour, carbon by the grid of the hour.

A row draws evenly over its time. Tariff, PUE and carbon are steps in time; products of them are taken step by step, not as
products of means. Hours that a file leaves out take the constant that the prices give beside it, else they are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.prices import Hourly, Prices
from taut.core.tables import NULL
from taut.ledger.bill.rows import UNIT

JOULES_PER_KWH = 3.6e6
NAMED = 5
"""Stretches of missing hours that are named one by one."""


@dataclass(frozen=True)
class Site:
    """What the energy of rows costs and emits; NaN, or -1 of money, where it is unknown."""

    units: Ints
    """Money for what the rows drew, billionths."""
    kg: Floats
    cooling_joules: Floats
    cooling_units: Ints
    cooling_kg: Floats
    notes: tuple[str, ...]
    """Hours that a file leaves out, and what was taken for them."""


def site(prices: Prices, start_ns: Ints, end_ns: Ints, joules: Floats) -> Site:
    """Money, carbon and cooling for joules that were drawn between two moments (start -1: nobody knows when)."""
    edges = _edges(prices)
    price, carbon, pue = (_at(edges, *one) for one in _curves(prices))
    over = pue - 1

    def times(steps: Floats) -> Floats:
        return joules * _mean(edges, steps, start_ns, end_ns)

    return Site(
        units=_units(times(price)),
        kg=times(carbon) / JOULES_PER_KWH,
        cooling_joules=times(over),
        cooling_units=_units(times(over * price)),
        cooling_kg=times(over * carbon) / JOULES_PER_KWH,
        notes=tuple(_missing(prices, start_ns, end_ns, joules)),
    )


def _curves(prices: Prices) -> list[tuple[Hourly | None, float]]:
    """Tariff, carbon and PUE: the series, and what counts where it is silent (NaN for nothing)."""
    nan = float("nan")
    curve = prices.cooling
    pue = None
    if curve is not None:
        outside, at = curve.temperature, np.array(curve.points)
        values = np.interp(outside.value, at[:, 0], at[:, 1])
        pue = Hourly(outside.label, outside.start_ns, outside.end_ns, tuple(values.tolist()))
    return [
        (prices.tariff, nan if prices.kwh is None else float(prices.kwh)),
        (prices.carbon, nan if prices.kg_co2e_per_kwh is None else prices.kg_co2e_per_kwh),
        (pue, nan if prices.pue is None else prices.pue),
    ]


def _edges(prices: Prices) -> Ints:
    """All moments at which something changes."""
    moments = [one for series, _ in _curves(prices) if series is not None for one in series.edges[:2]]
    return np.unique(np.concatenate(moments)) if moments else np.zeros(1, np.int64)


def _at(edges: Ints, series: Hourly | None, otherwise: float) -> Floats:
    """The value before the first edge, between any two, and after the last; what counts otherwise where there is none."""
    out = np.full(len(edges) + 1, otherwise)
    if series is None:
        return out
    start, end, value = series.edges
    begins = edges  # a piece has the value that holds at its begin
    at = np.searchsorted(start, begins, side="right") - 1
    holds = (at >= 0) & (begins < end[at.clip(0)])
    out[1:] = np.where(holds, value[at.clip(0)], otherwise)
    return out


def _mean(edges: Ints, steps: Floats, start_ns: Ints, end_ns: Ints) -> Floats:
    """Mean of steps over time between two moments; NaN where part of it is unknown.

    Where nobody knows when, what counts before the first edge counts: a series tells nothing then.
    """
    timeless = start_ns < 0
    start = np.where(timeless, edges[0], start_ns)
    end = np.maximum(np.where(timeless, edges[0], end_ns), start)
    known, gone = np.where(np.isfinite(steps), steps, 0.0), np.isnan(steps)
    value = _integral(edges, known, end) - _integral(edges, known, start)
    blank = _unknown_ns(edges, gone, end) - _unknown_ns(edges, gone, start)
    piece = np.where(timeless, 0, np.searchsorted(edges, start, side="right"))
    mean = np.where(blank > 0, np.nan, value / np.maximum(end - start, 1) * 1e9)
    return np.where(end > start, mean, steps[piece])


def _integral(edges: Ints, steps: Floats, at_ns: Ints) -> Floats:
    """Steps × seconds from the first edge to some moments."""
    before = np.concatenate([[0.0], np.cumsum(steps[1:-1] * (np.diff(edges) / 1e9))])
    piece = np.searchsorted(edges, at_ns, side="right")
    nearest = np.maximum(piece - 1, 0)
    return np.asarray(before[nearest] + steps[piece] * ((at_ns - edges[nearest]) / 1e9))


def _unknown_ns(edges: Ints, gone: Mask, at_ns: Ints) -> Ints:
    """Unknown time from the first edge to some moments: whole numbers, because one ns decides."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(gone[1:-1] * np.diff(edges))])
    piece = np.searchsorted(edges, at_ns, side="right")
    nearest = np.maximum(piece - 1, 0)
    return np.asarray(before[nearest] + gone[piece] * (at_ns - edges[nearest]))


def _units(joules_priced: Floats) -> Ints:
    """Joules × money for a kWh as whole billionths; -1 where it is unknown."""
    units = np.rint(joules_priced / JOULES_PER_KWH * UNIT)
    good = np.isfinite(units)
    return np.where(good, np.where(good, units, 0).astype(np.int64), NULL)


def _missing(prices: Prices, start_ns: Ints, end_ns: Ints, joules: Floats) -> list[str]:
    """Hours with energy in them that a file leaves out."""
    used = (joules > 0) & (start_ns >= 0) & (end_ns > start_ns)
    if not used.any():
        return []
    out = []
    named = ("electricity.per_kwh", "carbon.kg_per_kwh", "cooling.pue")
    for (series, otherwise), key in zip(_curves(prices), named, strict=True):
        if series is not None:
            gaps = _gaps(series, start_ns[used], end_ns[used])
            taken = f"taken as {key} says" if np.isfinite(otherwise) else f"unknown ({key} would tell)"
            out += [f"{series.label}: nothing for {_listed(gaps)}; {taken}"] if gaps else []
    return out


def _gaps(series: Hourly, start_ns: Ints, end_ns: Ints) -> list[tuple[int, int]]:
    """Stretches in which a series is silent and rows lie."""
    first, last = int(start_ns.min()), int(end_ns.max())
    begins, ends = [first, *series.end_ns], [*series.start_ns, last]
    silent = [(max(a, first), min(b, last)) for a, b in zip(begins, ends, strict=True) if max(a, first) < min(b, last)]
    return [gap for gap in silent if bool(((start_ns < gap[1]) & (end_ns > gap[0])).any())]


def _listed(gaps: Sequence[tuple[int, int]]) -> str:
    words = [f"{_clock(a)} to {_clock(b)}" for a, b in gaps[:NAMED]]
    hours = sum(b - a for a, b in gaps) / 3.6e12
    more = f" and {len(gaps) - NAMED} more stretches" if len(gaps) > NAMED else ""
    return f"{', '.join(words)}{more} ({hours:.3g} h)"


def _clock(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%MZ")
