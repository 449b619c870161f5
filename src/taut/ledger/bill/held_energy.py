"""Joules of what was held: the meters of its hosts, divided among those who held them, else the model of states.

What a host's accelerators drew in a moment goes to the rows that hold them then, in proportion to watts of their state ×
accelerators; accelerators that nobody holds take their part as idle ones. So rows and nobody add up to what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import weighed
from taut.core.prices import Prices
from taut.core.tables import Table
from taut.ledger.bill.categories import category_of
from taut.ledger.bill.fate_power import POWER, by_fate
from taut.ledger.bill.lent_watts import Lent
from taut.ledger.bill.meters import SOURCES, Meter, Metered, Source
from taut.ledger.bill.sources import STATES, Joules, best, filled
from taut.ledger.state_power import split_watts
from taut.read.metrics.rank_metrics import host_in
from taut.result.types import BillEnergy

INTRINSIC, EXTRINSIC = ("jitter wait", "structural wait"), ("fault wait",)
"""Waits that the job's structure makes, and waits for somebody at fault."""


def held_energy(
    held: Table,
    prices: Prices,
    meters: Sequence[Metered] = (),
    told: Mapping[str, Floats] | None = None,
    lent: Lent | None = None,
) -> Joules:
    """Joules of every row of Held by its best source.

    ``meters`` are of hosts, by name; ``told`` is what runs say of their cells already: source → joules of each row, NaN where
    a run does not tell; ``lent`` what their watts make of time that nobody measured.
    """
    watts, given = split_watts(prices)
    seconds = held.rank_ns.astype(np.float64) * 1e-9
    drawn = by_fate(held, {fate: watts[power] for fate, power in POWER.items()})
    measured = _by_host(held, drawn, watts["idle"], meters, prices)
    unknown = np.where(seconds > 0, np.nan if lent is None else lent.joules, 0.0)
    states = drawn * seconds if given else unknown
    for name, joules in (told or {}).items():
        known = np.isfinite(joules)
        if name == STATES:
            states = np.where(known, joules, states)
        for source in SOURCES:
            if source == name:
                before = measured.get(source, (np.zeros(len(held)), np.zeros(len(held))))
                measured[source] = np.where(known, joules, before[0]), np.where(known, seconds, before[1])
    found = best(seconds, measured, states, rest_by_states=True)
    if lent is not None and found.total is not None:
        return replace(found, total=lent.widened(found.total, ~found.measured))
    return found if given else filled(found, seconds, drawn * seconds)


def _by_host(
    held: Table, drawn: Floats, idle_w: float, meters: Sequence[Metered], prices: Prices
) -> dict[Source, tuple[Floats, Floats]]:
    """Joules and known accelerator seconds of every row, by source, from meters of its host (of its rank, if that has one)."""
    out: dict[Source, tuple[Floats, Floats]] = {}
    for host, rows, there in _groups(held, [one for one in meters if one.kind != "processors"]):
        for source in SOURCES:
            known = [one.meters[source] for one in there if source in one.meters]
            if len(rows) and known:
                whole = out.setdefault(source, (np.zeros(len(held)), np.zeros(len(held))))
                node = source.startswith("node")
                count = _accelerators(held, rows, prices, host) if node else float(len(known))
                beside_w = (prices.host_w or 0.0) * count if node else 0.0
                joules, seconds = _divided(held, rows, drawn[rows], idle_w, known, count, beside_w)
                # Of accelerators that were held at once and have no meter nothing is known.
                told = 1.0 if node else min(count / max(_at_once(held, rows), 1e-9), 1.0)
                whole[0][rows], whole[1][rows] = joules, seconds * told
    return out


def host_energy(held: Table, prices: Prices, meters: Sequence[Metered] = ()) -> Joules:
    """Joules of the hosts beside their accelerators, for every row by its share of them: RAPL, else ``power.host_w``.

    RAPL tells processors and memory, not fans, cards and losses. Where a node was measured whole and ``host_w`` is not
    given, the joules of its accelerators have it in them already: do not add this then.
    """
    seconds = held.rank_ns.astype(np.float64) * 1e-9
    each = np.ones(len(held))
    joules, known = np.zeros(len(held)), np.zeros(len(held))
    for host, rows, there in _groups(held, [one for one in meters if one.kind == "processors"]):
        some = [one.meters["counter"] for one in there]
        if len(rows) and some:
            count = _accelerators(held, rows, prices, host)
            joules[rows], known[rows] = _divided(held, rows, each[rows], 1.0, some, count, 0.0)
    given = seconds * (np.nan if prices.host_w is None else prices.host_w)
    return best(seconds, {"counter": (joules, known)}, np.where(seconds > 0, given, 0.0))


def _accelerators(held: Table, rows: Ints, prices: Prices, host: str) -> float:
    """Accelerators of a host: as given, else the most that were held at once."""
    given = prices.hosts.accelerators_of.get(host, prices.hosts.accelerators)
    return float(given) if given is not None else _at_once(held, rows)


def _at_once(held: Table, rows: Ints) -> float:
    """The most accelerators that some rows held at once."""
    cut = _cut(held.start_ns[rows], held.end_ns[rows])
    at_once = held.rank_ns[rows] / (held.end_ns[rows] - held.start_ns[rows])
    return float(weighed(cut.piece, at_once[cut.row], len(cut.edges) - 1).max())


def _groups(held: Table, meters: Sequence[Metered]) -> Iterator[tuple[str, Ints, list[Metered]]]:
    """Rows that share meters, with their host: those of a rank that has its own, else all of a host."""
    timed = np.flatnonzero((held.start_ns >= 0) & (held.end_ns > held.start_ns) & (held.rank_ns > 0))
    names, code = np.unique(held.host[timed].astype(np.str_), return_inverse=True)
    order = np.argsort(code, kind="stable")
    begin = np.searchsorted(code[order], np.arange(len(names) + 1))
    words = names.tolist()
    of_host: dict[str, list[Metered]] = {}
    for one in meters:
        of_host.setdefault(host_in(one.host, words) if one.host else "", []).append(one)
    for i, name in enumerate(words):
        there, mine = of_host.get(name, []) if name else [], timed[order[begin[i] : begin[i + 1]]]
        ranks = sorted({one.rank for one in there if one.rank >= 0})
        for rank in ranks:
            yield name, mine[held.rank[mine] == rank], [one for one in there if one.rank == rank]
        yield name, mine[~np.isin(held.rank[mine], ranks)], there


@dataclass(frozen=True)
class _Pieces:
    """Rows of one host cut where any of them begins or ends."""

    edges: Ints
    row: Ints
    """Of every part, its row …"""
    piece: Ints
    """… and its piece."""


def _cut(start_ns: Ints, end_ns: Ints) -> _Pieces:
    edges = np.unique(np.concatenate([start_ns, end_ns]))
    first, last = np.searchsorted(edges, start_ns), np.searchsorted(edges, end_ns)
    count = last - first
    row = np.repeat(np.arange(len(start_ns)), count)
    piece = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return _Pieces(edges, row, piece)


def _divided(
    held: Table, rows: Ints, drawn: Floats, idle_w: float, meters: Sequence[Meter], count: float, beside_w: float
) -> tuple[Floats, Floats]:
    """Joules and known accelerator seconds of some rows of one host with so many accelerators, from its meters together.

    ``beside_w`` is what of their power is not the accelerators'.
    """
    start, end = held.start_ns[rows], held.end_ns[rows]
    cut = _cut(start, end)
    pieces = len(cut.edges) - 1
    at_once = held.rank_ns[rows] / (end - start)
    power, known_s = _power(meters, cut.edges)
    weight = (drawn * at_once)[cut.row]
    free = np.maximum(count - weighed(cut.piece, at_once[cut.row], pieces), 0)
    whole = weighed(cut.piece, weight, pieces) + idle_w * free
    share = weight / np.where(whole > 0, whole, 1.0)[cut.piece]
    part_s = known_s[cut.piece]
    joules = np.maximum(power - beside_w, 0.0)[cut.piece] * part_s * share
    return weighed(cut.row, joules, len(rows)), weighed(cut.row, part_s * at_once[cut.row], len(rows))


def _power(meters: Sequence[Meter], edges: Ints) -> tuple[Floats, Floats]:
    """Mean power of all meters together between edges while they tell, and for how many seconds they do, on average."""
    joules, known = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
    for meter in meters:
        some = meter.between(edges[:-1], edges[1:])
        joules, known = joules + some[0], known + some[1]
    power = np.where(known > 0, joules / np.where(known > 0, known, 1.0), 0.0) * len(meters)
    return power, known / max(len(meters), 1)


def bill_energy(held: Table, found: Joules) -> BillEnergy:
    """What the bill says of energy: the sum with its interval, and the part that did nothing useful."""
    useful = by_fate(held, {fate: float(category_of("accelerator time", fate).kind == "useful") for fate in POWER}) > 0
    return BillEnergy(
        joules=found.total,
        source=found.source,
        sources=list(found.sources),
        stall_joules=_sum(found, ~useful),
        intrinsic_bloat_joules=_sum(found, np.isin(held.fate.astype(np.str_), INTRINSIC)),
        extrinsic_bloat_joules=_sum(found, np.isin(held.fate.astype(np.str_), EXTRINSIC)),
        network_joules=None,
        data_movement_share=None,
    )


def _sum(found: Joules, rows: Mask) -> float | None:
    """Joules of some rows; None where nothing is known of energy, or of one of them."""
    if not found.sources or not np.isfinite(found.joules[rows]).all():
        return None
    return float(found.joules[rows].sum())


def network_energy(prices: Prices, seconds: float, bytes_moved: float | None) -> float | None:
    """Joules of a network over some time: ports × W, plus bytes moved × pJ a bit; None where the prices tell neither."""
    network = prices.network
    if network is None:
        return None
    ports = None if network.ports is None or network.port_w is None else network.ports * network.port_w * seconds
    bits = None if network.pj_per_bit is None or bytes_moved is None else 8 * bytes_moved * network.pj_per_bit * 1e-12
    return None if ports is None and bits is None else (ports or 0.0) + (bits or 0.0)


def sci(kg_co2e: float | None, prices: Prices, accelerator_s: float, units: float) -> float | None:
    """Software carbon intensity: (energy × its carbon + a part of that of making) ÷ units of work, kg a unit.

    The part is that of the time held: embodied kg × held ÷ life.
    """
    made = prices.embodied
    if kg_co2e is None or made is None or units <= 0:
        return None
    return (kg_co2e + made.kg * accelerator_s / (made.years * 365 * 86_400)) / units
