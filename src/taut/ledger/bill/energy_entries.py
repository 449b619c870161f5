"""Energy of what was held as entries: electricity of accelerators and hosts, cooling, the network; joules and carbon once each.

Joules stand on these entries alone, and money only where electricity is not inside the price of an accelerator hour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from taut.core.array_types import Floats, Ints, Mask, Texts
from taut.core.prices import Prices
from taut.core.tables import Table, concat
from taut.ledger.bill.electricity import Site, site
from taut.ledger.bill.entries import Entry, days_of
from taut.ledger.bill.held_energy import bill_energy, held_energy, host_energy, network_energy, sci
from taut.ledger.bill.lent_watts import Lender, Lent, lent
from taut.ledger.bill.meters import SOURCES, Metered
from taut.ledger.bill.moved_bytes import MovedBytes
from taut.ledger.bill.rows import UNIT
from taut.ledger.bill.sources import FILLED, Joules, between
from taut.ledger.state_power import SPLIT_W, split_watts
from taut.result.types import BillEnergy, EnergySource, LedgerEnergy

SHARED = ("fate", "cause", "job", "team", "host", "rank")
"""What entries of energy have from the time that it was drawn in."""


class Energy(Struct, frozen=True):
    """Entries of energy, what the bill says of it, and what was decided."""

    entries: Table
    told: BillEnergy
    notes: list[str]
    defaults: list[str]


class Measurements(Struct, frozen=True):
    """What was measured of the power of what is held."""

    meters: Sequence[Metered] = ()
    places: Texts | None = None
    """Of each row the host as the meters call it, where that is not as the row does."""
    lenders: Sequence[Lender] = ()
    """Runs whose watts count for time that nobody measured."""


def energy_of(
    held: Table,
    prices: Prices,
    measured: Measurements,
    period_s: float,
    steps: float,
    unit: int = UNIT,
    moved: MovedBytes | None = None,
) -> Energy:
    """Energy of all held time; ``period_s`` is how long the network was on, ``steps`` the work that carbon is shared over.

    ``moved`` are bytes that jobs moved, where moving them has a price in energy.
    """
    meters = measured.meters
    there = held if measured.places is None else held.replace(host=measured.places)
    borrowed = lent(held, measured.lenders, prices)
    found = held_energy(there, prices, meters, _measured_joules(held), borrowed)
    network = network_energy(prices, period_s, None if moved is None else moved.count)
    parts, notes = [], _told_of_bytes(moved)
    if meters and found.total is None and len(held):
        notes.append("energy: meters tell too little of what was held for a sum ([power] of the prices would fill the rest)")
    if np.isfinite(found.joules).any() and found.sources:
        drawn = [(found.joules, _how(found), _from(found, prices, borrowed))]
        beside = host_energy(there, prices, meters)
        # A node that was measured whole has its host in it already.
        if np.isfinite(beside.joules).any() and (prices.host_w is not None or all(one.kind != "node" for one in meters)):
            drawn.append((beside.joules, _how(beside), _of_hosts(beside, prices)))
        for joules, how, origin in drawn:
            entries, said = _of(held, joules, how, origin, prices, unit)
            parts.append(entries)
            notes += [line for line in said if line not in notes]
    if network is not None:
        parts.append(_network(network, prices))
    entries = concat(Entry, [one for one in parts if len(one)])
    told = _with_network(bill_energy(held, found), network, moved, entries)
    return Energy(entries, _with_sci(told, entries, held, prices, steps), notes, _defaults(found, prices))


def _told_of_bytes(moved: MovedBytes | None) -> list[str]:
    """Why the network's energy lacks that of bytes, or of some."""
    if moved is None or not moved.why:
        return []
    return [f"network energy: {moved.why}" + (": that of bytes is not in it" if moved.count is None else "")]


def _with_network(told: BillEnergy, joules: float | None, moved: MovedBytes | None, entries: Table) -> BillEnergy:
    """With what the network takes, and its share of all energy of the bill: accelerators, hosts, cooling and network."""
    if joules is None:
        return told
    whole = float(entries.joules[np.isfinite(entries.joules)].sum())
    share = joules / max(whole, 1e-300) if told.joules is not None else None
    count = None if moved is None else moved.count
    return replace(told, network_joules=joules, moved_bytes=count, data_movement_share=share)


def beside(told: BillEnergy, runs: Sequence[tuple[LedgerEnergy, float]]) -> BillEnergy:
    """With the sources of runs that have no dates: their meters cannot be held against other times again.

    Each run comes with its share of all held time. A source that knows of nearly all of it widens the interval.
    """
    known = {one.name for one in told.sources}
    joules: dict[str, float] = {}
    coverage: dict[str, float] = {}
    for energy, share in runs:
        for one in energy.sources:
            if one.name not in known and one.name in SOURCES:
                joules[one.name] = joules.get(one.name, 0.0) + one.joules
                coverage[one.name] = coverage.get(one.name, 0.0) + one.coverage * share
    more = [EnergySource(name=name, joules=sum_j, coverage=min(coverage[name], 1.0)) for name, sum_j in joules.items()]
    whole = [one.joules for one in more if one.coverage >= FILLED]
    if told.joules is None or not whole:
        return replace(told, sources=[*more, *told.sources])
    value, low, high = told.joules.value, told.joules.lo, told.joules.hi
    ends = [*whole, *(one for one in (low, high) if one is not None)]
    return replace(told, sources=[*more, *told.sources], joules=between(value, ends))


def _measured_joules(held: Table) -> Mapping[str, Floats]:
    """What runs measured of their own cells: source → joules of each row."""
    return {
        source: np.where(held.joules_by == source, held.joules, np.nan)
        for source in SOURCES
        if len(held) and (held.joules_by == source).any()
    }


def _how(found: Joules) -> Texts:
    return np.where(found.measured, "measured", "modelled").astype(object)


def _from(found: Joules, prices: Prices, borrowed: Lent | None) -> Texts:
    best = found.source or next((one.name for one in found.sources if one.name in SOURCES), "nobody")
    model = f"{prices.origin}: power by state" if borrowed is None else borrowed.origin
    return np.where(found.measured, f"power: {best}", model).astype(object)


def _of_hosts(found: Joules, prices: Prices) -> Texts:
    return np.where(found.measured, "power of hosts: counter", f"{prices.origin}: power.host_w").astype(object)


def _words(text: str, count: int) -> Texts:
    return np.full(count, text, dtype=object)


def _of(held: Table, joules: Floats, how: Texts, origin: Texts, prices: Prices, unit: int) -> tuple[Table, Sequence[str]]:
    """Electricity and cooling of rows whose joules are known."""
    known = np.isfinite(joules) & (joules > 0)
    rows, drawn = held.take(known), joules[known]
    place = site(prices, rows.start_ns, rows.end_ns, drawn)
    apart = prices.electricity_apart is True
    shared = {name: rows.columns[name] for name in SHARED} | {
        "day": days_of(rows.start_ns, rows.end_ns),
        "source": how[known],
        "origin": origin[known],
    }
    current = _entries("electricity", shared, drawn, place.kg, place.units, apart, unit)
    cooled = np.isfinite(place.cooling_joules) & (place.cooling_joules > 0)
    cooling = _cooling(shared, place, cooled, prices, apart, unit)
    return concat(Entry, [one for one in (current, cooling) if len(one)]), place.notes


def _cooling(shared: Mapping[str, Texts], place: Site, rows: Mask, prices: Prices, apart: bool, unit: int) -> Table:
    some = {name: column[rows] for name, column in shared.items()} | {
        "source": _words("modelled", int(rows.sum())),
        "origin": _words(f"{prices.origin}: cooling", int(rows.sum())),
    }
    return _entries("cooling", some, place.cooling_joules[rows], place.cooling_kg[rows], place.cooling_units[rows], apart, unit)


def _entries(item: str, shared: Mapping[str, Texts], joules: Floats, kg: Floats, units: Ints, apart: bool, unit: int) -> Table:
    priced = (units >= 0) & apart
    money = np.where(priced, units // (UNIT // unit), 0)
    return Table(
        Entry,
        {
            **shared,
            "item": _words(item, len(joules)),
            "joules": joules,
            "kg_co2e": kg,
            "money": money,
            "priced": priced.astype(np.int8),
        },
        len(joules),
    )


def _network(joules: float, prices: Prices) -> Table:
    return Table(
        Entry,
        {
            "item": _words("network energy", 1),
            "source": _words("modelled", 1),
            "origin": _words(f"{prices.origin}: network", 1),
            "joules": np.array([joules]),
            "kg_co2e": np.array([np.nan if prices.kg_co2e_per_kwh is None else joules / 3.6e6 * prices.kg_co2e_per_kwh]),
        },
        1,
    )


def _with_sci(told: BillEnergy, entries: Table, held: Table, prices: Prices, steps: float) -> BillEnergy:
    """With carbon per unit of work, as the specification of software carbon intensity has it: running and making."""
    kg = entries.kg_co2e[np.isfinite(entries.kg_co2e)] if len(entries) else np.zeros(0)
    seconds = float(held.rank_ns.sum(dtype=np.float64)) * 1e-9
    units, unit = (steps, "step") if steps > 0 else (seconds / 3600, "accelerator hour")
    found = sci(float(kg.sum()) if len(kg) else None, prices, seconds, units)
    return told if found is None else replace(told, sci_kg_co2e=found, sci_unit=unit)


def _defaults(found: Joules, prices: Prices) -> list[str]:
    """Watts that nobody gave."""
    if split_watts(prices)[1] or not found.sources:
        return []
    watts = "/".join(f"{SPLIT_W[name]:.0f}" for name in ("load", "stall", "idle"))
    return [f"measured energy is divided among fates by the ratios of {watts} W (load, stall, idle; docs/bill-prices.md)"]
