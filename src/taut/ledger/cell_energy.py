"""Joules of the ledger's cells: what was measured beside the run, step by step, divided among the fates of the step.

Samples come ten times a second, or once; fates take milliseconds. So a step's measured joules go to its fates in proportion
to watts of their state × time: the sums are the measured ones, the division is a model's. Its watts are those that the job's
own accelerators drew in each state, where that can be told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints
from taut.core.ids import weighed
from taut.core.prices import Prices
from taut.diagnose.metric_steps import extent
from taut.graph import Graph
from taut.ledger.bill.meters import SOURCES, Meter, Metered, Source, metered
from taut.ledger.bill.sources import STATES as MODEL
from taut.ledger.bill.sources import Joules, best, filled
from taut.ledger.fitted_watts import STATES, Drawn, Fit, fit_watts, wider
from taut.ledger.state_power import split_watts
from taut.read.metrics.rank_metrics import host_in
from taut.result.types import Estimate, LedgerEnergy, StateWatts

OWN: tuple[Source, ...] = ("counter", "samples")
"""Sources that are the accelerator's own: a node's share tells nothing of a rank's states."""
WITHIN = 1.02
"""Time of the ledger in a window, of the window's own, up to which its joules are those of its states."""
_Of: TypeAlias = tuple[Metered, list[int]]


@dataclass(frozen=True)
class CellEnergy:
    """Joules of every cell, and who says so."""

    joules: Floats
    result: LedgerEnergy

    @property
    def known(self) -> bool:
        """Whether every cell has joules."""
        return self.result.joules is not None


def cell_energy(graph: Graph, place: Ints, rank_ns: Ints, waited_ns: Ints, state: Ints, prices: Prices) -> CellEnergy | None:
    """Joules of cells: the place of each in ranks × windows, its time, what of it was spent inside a gate, its class of power.

    Inside a gate a rank stalls, whatever it waits for. None where neither power was measured nor watts were given.
    """
    watts, given = split_watts(prices)
    took_s = rank_ns.astype(np.float64) * 1e-9
    places = len(graph.ranks) * len(graph.steps)
    seconds = weighed(place, took_s, places)
    meters = _meters(graph)
    found = _measured(graph, meters, seconds, prices.host_w or 0.0)
    if not found and not given:
        return None
    parts = _parts(took_s, waited_ns, state, bool(found))
    each = np.stack([weighed(place, part, places) for part in parts.T], axis=1)
    modelled = each @ _by_state(watts)
    pieces = best(seconds, found, modelled if given else np.where(seconds > 0, np.nan, 0.0))
    fit = _fitted(graph, meters, each, pieces, watts)
    used = watts if fit is None else watts | fit.watts
    weight = each @ _by_state(used)
    if not given:
        pieces = filled(pieces, seconds, weight)
    ratios = parts @ _by_state(used)
    # A place whose fates draw nothing by the model is divided by time.
    share = np.where(
        weight[place] > 0, ratios / np.where(weight > 0, weight, 1)[place], took_s / np.where(seconds > 0, seconds, 1)[place]
    )
    return CellEnergy(pieces.joules[place] * share, _result(pieces, given, used, fit))


def _parts(took_s: Floats, waited_ns: Ints, state: Ints, measured: bool) -> Floats:
    """Time of cells by state; a model without measurements goes by fate alone, as that of a bill does."""
    waited_s = waited_ns.astype(np.float64) * 1e-9 if measured else np.zeros(len(took_s))
    parts = np.zeros((len(took_s), len(STATES)))
    parts[np.arange(len(state)), state] = took_s - waited_s
    parts[:, STATES.index("stall")] += waited_s
    return parts


def _by_state(watts: Mapping[str, float]) -> Floats:
    return np.array([watts[one] for one in STATES], np.float64)


def _fitted(graph: Graph, meters: Sequence[_Of], each: Floats, pieces: Joules, watts: dict[str, float]) -> Fit | None:
    """Watts of the states by the accelerators' own sensors; None where these do not tell."""
    own = [meter for one, _ in meters for source, meter in one.meters.items() if source in OWN]
    if not own or pieces.source not in OWN or any(one.name not in OWN for one in pieces.sources if one.name != MODEL):
        return None
    shape = len(graph.ranks), len(graph.steps)
    start, end = _windows(graph)
    # Time of the ledger beyond a rank's own window was counted at the window's power: of its state it tells nothing.
    inside = each.reshape(*shape, -1).sum(axis=2) <= WITHIN * np.maximum(end - start, 0) * 1e-9
    apart_s = float(np.median([np.median(np.diff(meter.time_ns)) for meter in own])) / 1e9
    drawn = Drawn(
        each.reshape(*shape, len(STATES)), pieces.joules.reshape(shape), pieces.measured.reshape(shape) & inside, apart_s
    )
    found = fit_watts(drawn, watts)
    if found is None or pieces.source != "samples":
        return found
    # A sample may stand for the time before it, or around it: nobody tells.
    half_ns = int(apart_s * 5e8)
    moved = [_measured(graph, meters, each.sum(axis=1), 0.0, by)["samples"][0].reshape(shape) for by in (-half_ns, half_ns)]
    return wider(found, [fit_watts(replace(drawn, joules=one), watts) for one in moved])


def _result(pieces: Joules, given: bool, used: Mapping[str, float], fit: Fit | None) -> LedgerEnergy:
    return LedgerEnergy(
        joules=pieces.total,
        source=pieces.source,
        coverage=pieces.coverage,
        sources=list(pieces.sources),
        divided_by="measured" if fit is not None else "given" if given else "default",
        watts=_state_watts(used, fit),
    )


def _state_watts(used: Mapping[str, float], fit: Fit | None) -> StateWatts:
    """The watts that divide, with intervals where they were fitted."""
    ends = {} if fit is None else {state: fit.interval(state) for state in fit.watts}
    load, stall, idle = (
        Estimate(value=used[one], lo=ends[one][0], hi=ends[one][1]) if one in ends else Estimate(value=used[one])
        for one in STATES
    )
    return StateWatts(load=load, stall=stall, idle=idle, blocks=None if fit is None else fit.blocks)


def _meters(graph: Graph) -> list[_Of]:
    """Meters with the ranks (by their place) that they are of; none without metrics, or without times."""
    table = graph.trace.metrics
    if not len(table) or (graph.trace.relative and not len(graph.trace.marks)):
        return []
    return [(one, of) for one in metered(table) if (of := _ranks(graph, one))]


def _measured(
    graph: Graph, there: Sequence[_Of], seconds: Floats, host_w: float, moved_ns: int = 0
) -> dict[Source, tuple[Floats, Floats]]:
    """Joules and known seconds of every rank in every window, moved by some time, by source; empty without meters."""
    ranks, windows = len(graph.ranks), len(graph.steps)
    out: dict[Source, tuple[Floats, Floats]] = {}
    start, end = _windows(graph) if there else (graph.steps, graph.steps)
    took = seconds.reshape(ranks, windows)
    for one, of in there:
        beside_w = host_w if one.kind == "node" else 0.0
        for source, meter in one.meters.items():
            joules, known = out.setdefault(source, (np.zeros((ranks, windows)), np.zeros((ranks, windows))))
            for i in of:
                drawn, known[i] = _in_windows(meter, start[i] + moved_ns, end[i] + moved_ns, took[i])
                joules[i] = np.maximum(drawn / len(of) - beside_w * known[i], 0.0)
    return {source: (out[source][0].ravel(), out[source][1].ravel()) for source in SOURCES if source in out}


def _ranks(graph: Graph, one: Metered) -> list[int]:
    """Ranks (by their place) that a meter is of: its own, or all of its node, which share it evenly."""
    members = graph.members
    if one.kind == "node":
        host = host_in(one.host, {str(name) for name in members.host if name}) if one.host else ""
        return np.flatnonzero(members.host == host).tolist() if host else []
    return np.flatnonzero(members.rank == one.rank).tolist() if one.kind == "accelerator" and one.rank >= 0 else []


def _in_windows(meter: Meter, start_ns: Ints, end_ns: Ints, seconds: Floats) -> tuple[Floats, Floats]:
    """Joules and known seconds of the ledger's time in each window, at the power that the meter shows while it lasts."""
    there = start_ns <= end_ns
    first, last = np.where(there, start_ns, 0), np.where(there, end_ns, 0)
    joules, known = meter.between(first, last)
    length = np.maximum(last - first, 1) / 1e9
    return np.where(there, joules / length * seconds, 0.0), np.where(there, known / length * seconds, 0.0)


def _windows(graph: Graph) -> tuple[Ints, Ints]:
    """Begin and end of every window on every rank, in its own clock: up to the next window, where one follows at once."""
    start, end = extent(graph)
    follows = np.zeros(len(graph.steps), np.bool_)
    if not graph.trace.relative:
        follows[:-1] = graph.segment[1:] == graph.segment[:-1]
    later = np.concatenate([start[:, 1:], start[:, -1:]], axis=1)
    there = (start <= end) & (later >= start) & (later < np.iinfo(np.int64).max)
    return start, np.where(follows[None, :] & there, later, end)
