"""Sensors of energy as functions of time: what an accelerator drew between any two moments, and how much of that is known.

A counter is exact between two readings; samples of power are joined by straight lines. What lies between readings of a
counter that fell, between samples too far apart, or outside of them, is not known: it is never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import word_ids
from taut.core.tables import Table

BRIDGED = 3
"""Samples of power are joined over at most so many times their usual distance …"""
LEAST_BRIDGED_NS, MOST_BRIDGED_NS = 2_000_000_000, 900_000_000_000
"""… but over two seconds always, and over more than a quarter of an hour never."""
MOST_W = 20_000.0
"""No accelerator, and no share of a host, draws more: a counter that says so was set, not counted."""
COUNTER, SAMPLES = "energy_j", ("power_w", "power_average_w")
NODE_COUNTER, NODE_SAMPLES = "node_energy_j", ("node_power_w",)
HOST_COUNTERS = ("package_energy_j", "dram_energy_j")
Source = Literal["counter", "samples", "node counter", "node samples"]
SOURCES: tuple[Source, ...] = ("counter", "samples", "node counter", "node samples")
"""The best first: of the accelerator itself, then its share of a whole node (Redfish)."""


@dataclass(frozen=True)
class Meter:
    """Power over time: straight lines between moments, each of them known or not."""

    time_ns: Ints
    """Moments, ascending; n + 1 of them."""
    begin_w: Floats
    """Power at the begin of each of the n pieces …"""
    end_w: Floats
    """… and at its end."""
    known: Mask

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        """Joules and known seconds before each moment."""
        seconds = np.where(self.known, np.diff(self.time_ns) / 1e9, 0.0)
        joules = np.where(self.known, (self.begin_w + self.end_w) / 2, 0.0) * seconds
        return np.concatenate([[0.0], np.cumsum(joules)]), np.concatenate([[0.0], np.cumsum(seconds)])

    def _upto(self, at_ns: Ints) -> tuple[Floats, Floats]:
        """Joules and known seconds before some moments."""
        joules, seconds = self._sums
        at = np.clip(at_ns, self.time_ns[0], self.time_ns[-1])
        piece = np.clip(np.searchsorted(self.time_ns, at, side="right") - 1, 0, len(self.known) - 1)
        into = np.where(self.known[piece], (at - self.time_ns[piece]) / 1e9, 0.0)
        length = np.maximum(np.diff(self.time_ns), 1)[piece] / 1e9
        slope = np.where(self.known[piece], (self.end_w - self.begin_w)[piece] / length, 0.0)
        begin = np.where(self.known[piece], self.begin_w[piece], 0.0)
        return joules[piece] + begin * into + slope * into * into / 2, seconds[piece] + into

    def between(self, start_ns: Ints, end_ns: Ints) -> tuple[Floats, Floats]:
        """(joules, known seconds) from some moments to others: parts of a time add up to the whole."""
        before, after = self._upto(start_ns), self._upto(np.maximum(start_ns, end_ns))
        return after[0] - before[0], after[1] - before[1]


def counter_meter(time_ns: Ints, joules: Floats, range_j: float | None = None) -> Meter | None:
    """A counter: the same power between two readings. One that fell was reset, or wrapped where its range is known."""
    told = np.isfinite(joules) & (joules > 0) & (joules < 2.0**62)
    time_ns, joules = time_ns[told], joules[told]
    time_ns, first = np.unique(time_ns, return_index=True)
    if len(time_ns) < 2:
        return None
    grown, seconds = np.diff(joules[first]), np.diff(time_ns) / 1e9
    if range_j is not None and np.isfinite(range_j) and range_j > 0:
        grown = np.where(grown < 0, grown + range_j, grown)
    power = grown / seconds
    known = (grown >= 0) & (power <= MOST_W)
    power = np.where(known, power, np.nan)
    return Meter(time_ns, power, power, known)


def sample_meter(time_ns: Ints, power_w: Floats) -> Meter | None:
    """Samples of power: straight lines between them; the first and the last stand for half a distance more."""
    told = np.isfinite(power_w) & (power_w > 0) & (power_w <= MOST_W)
    time_ns, first = np.unique(time_ns[told], return_index=True)
    power_w = power_w[told][first]
    if len(time_ns) < 2:
        return None
    apart = np.diff(time_ns)
    usual = int(np.median(apart))
    most = min(max(BRIDGED * usual, LEAST_BRIDGED_NS), MOST_BRIDGED_NS)
    # Beyond a gap, too, a sample stands for half a usual distance: it is put down again there.
    half = max(min(usual, most) // 2, 1)
    wide = np.flatnonzero(apart > most)
    edges = np.concatenate([time_ns[:1] - half, time_ns, time_ns[wide] + half, time_ns[wide + 1] - half, time_ns[-1:] + half])
    values = np.concatenate([power_w[:1], power_w, power_w[wide], power_w[wide + 1], power_w[-1:]])
    order = np.argsort(edges, kind="stable")
    edges, values = edges[order], values[order]
    inside = np.zeros(len(edges) - 1, np.bool_)
    inside[np.searchsorted(edges, time_ns[wide] + half)] = True
    return Meter(edges, values[:-1], values[1:], ~inside)


@dataclass(frozen=True)
class Metered:
    """An accelerator, a whole node, or the processors and memory of a host, with the meters that it has."""

    component: str
    rank: int
    host: str
    """Empty where the metrics name none."""
    meters: Mapping[Source, Meter]
    kind: Literal["accelerator", "node", "processors"] = "accelerator"


def metered(metrics: Table, host_of: Mapping[int, str] | None = None) -> list[Metered]:
    """What of the metrics tells energy: accelerators, nodes and processors, each with its counter and its samples of power."""
    code, words = word_ids(metrics.metric)
    plain = [word.partition("{")[0] for word in words]
    wanted = {COUNTER, *SAMPLES, NODE_COUNTER, *NODE_SAMPLES, *HOST_COUNTERS}
    rows = np.flatnonzero(np.array([*(word in wanted for word in plain), False])[code])
    whose, names = word_ids(metrics.component[rows])
    order = np.argsort(whose, kind="stable")
    begin = np.searchsorted(whose[order], np.arange(len(names) + 1))
    out = []
    for i, component in enumerate(names):
        mine = rows[order[begin[i] : begin[i + 1]]]
        rank = int(metrics.rank[mine[0]])
        host = (host_of or {}).get(rank) or _host(component)
        out += [Metered(component, rank, host, some, kind) for kind, some in _kinds(metrics, mine) if some]
    return out


def _kinds(metrics: Table, mine: Ints) -> Iterator[tuple[Literal["accelerator", "node", "processors"], dict[Source, Meter]]]:
    """What the rows of one component measure."""
    yield "accelerator", _meters(metrics, mine, COUNTER, SAMPLES)
    node: dict[Source, Meter] = {}
    for source, meter in _meters(metrics, mine, NODE_COUNTER, NODE_SAMPLES).items():
        node["node counter" if source == "counter" else "node samples"] = meter
    yield "node", node
    # A host has several packages, told apart by labels: each is a meter of its own.
    for name in sorted({str(word) for word in metrics.metric[mine] if str(word).partition("{")[0] in HOST_COUNTERS}):
        yield "processors", _meters(metrics, mine, name, ())


def _host(component: str) -> str:
    """``node7 gpu 0`` → node7; a rank has its host from the traces."""
    name = component.partition(" gpu ")[0].strip()
    return "" if name.startswith(("rank ", "gpu ")) else name


def _meters(metrics: Table, mine: Ints, counter: str, samples: tuple[str, ...]) -> dict[Source, Meter]:
    out: dict[Source, Meter] = {}
    rows = mine[metrics.metric[mine] == counter]
    limits = metrics.limit[rows][np.isfinite(metrics.limit[rows])]
    found = counter_meter(metrics.time_ns[rows], metrics.value[rows], float(limits[0]) if len(limits) else None)
    if found is not None:
        out["counter"] = found
    # The average is what a counter's rate is called, too: beside the counter it would be the same again.
    for name in samples if found is None else samples[:1]:
        rows = mine[metrics.metric[mine] == name]
        sampled = sample_meter(metrics.time_ns[rows], metrics.value[rows]) if len(rows) else None
        if sampled is not None:
            out["samples"] = sampled
            break
    return out
