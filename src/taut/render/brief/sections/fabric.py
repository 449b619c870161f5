"""The ceiling of the fabric: what transfers take, what other fabrics and growth cost, and what faster devices would need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taut.render.brief.document import Block, Cell, Column, Empty, Grid, Line, Lines, Picture, Section, Terms, Text
from taut.render.brief.sections.gathered import gathered
from taut.render.brief.written import cash, percent, plain
from taut.render.text import UNKNOWN, count, duration, size, three
from taut.result.brief_types import BriefedRun, BriefedScenario, Briefing
from taut.result.types import (
    DeviceCollective,
    Elasticity,
    FabricCost,
    Forecast,
    Growth,
    LedgerResult,
    NextGeneration,
    ProjectResult,
    Surroundings,
    Traffic,
)

OF_RUNS = (
    ("Exposed transfer", "communication that nothing else hides: the accelerator waits for bytes"),
    ("Bus bandwidth", "bytes a second, scaled by what the collective must move: comparable with the speed of a link"),
)
OF_SCENARIOS = (("Oversubscription", "how many times more the ports below a switch could send than the ports above it carry"),)
NEEDS = "a training scenario with its fabric, or traces of the accelerators"
MOST, LEAST = 8, 0.005
"""Collectives that are listed, and per cent that a better part must bring to be."""


def fabric(briefing: Briefing) -> Section:
    """What the fabric costs, and what it could not carry."""
    blocks, commands = gathered(
        [
            *((_of_run(one), one.source.command) for one in briefing.runs),
            *((_of_scenario(one), one.source.command) for one in briefing.scenarios),
        ]
    )
    if not blocks:
        says = "What the network takes, and what it could not carry, was not measured."
        blocks.append(Empty(says, NEEDS, "taut project SCENARIO --envelope"))
    else:
        around = any(isinstance(one.result.envelope, Surroundings) for one in briefing.scenarios)
        blocks.append(Terms([*(OF_RUNS if briefing.runs else ()), *(OF_SCENARIOS if around else ())]))
    return Section("fabric", "Ceiling of the fabric", blocks, commands)


def _of_run(run: BriefedRun) -> Iterator[Block]:
    name, mean = run.result.job.name, run.result.device.mean if run.result.device else None
    if mean is not None:
        yield Text(
            f"{name}: transfers that nothing hides take {percent(mean.exposed_share)} of the accelerators' time, "
            f"{percent(mean.hidden_share)} more lie under computing.",
            "lead",
        )
    elif run.result.ledger is not None:
        yield Text(f"{name}: {_of_ledger(run.result.ledger)}", "lead")
    if run.result.device and run.result.device.collectives:
        yield _collectives(name, run.result.device.collectives)
    elif run.result.whatif is not None:
        says = f"{name}: how fast its collectives were is not recorded."
        yield Empty(says, "traces of the accelerators (Kineto with CUDA activities, or Nsight Systems)", "taut analyze TRACES")


def _of_ledger(ledger: LedgerResult) -> str:
    spent = {one.fate: one.rank_ns for one in ledger.entries}
    whole = ledger.total_rank_ns or 1
    exposed, undivided = spent.get("exposed transfer", 0) / whole, spent.get("communication undivided", 0) / whole
    more = f", and {percent(undivided)} communication of which waiting could not be taken off" if undivided >= 0.005 else ""
    return f"transfers that nothing hides take {percent(exposed)} of the rank time{more}."


def _collectives(name: str, some: Sequence[DeviceCollective]) -> Grid:
    columns = [
        Column("Collective"), Column("Size", True), Column("Members", True), Column("Count", True), Column("Median", True),
        Column("Bus bandwidth, GB/s", True),
    ]  # fmt: skip
    rows: list[list[Cell | str]] = []
    for one in some[:MOST]:
        bound = "at least " if one.waiting_included else ""
        speed = UNKNOWN if one.bus_gb_per_s is None else f"{bound}{_speed(one.bus_gb_per_s)}"
        members = UNKNOWN if one.members is None else f"{one.members:,}"
        rows.append([one.op_class, size(one.size_bytes) or UNKNOWN, members, f"{one.count:,}", duration(one.median_ns), speed])
    note = f"{len(some) - MOST} more are left out. " if len(some) > MOST else ""
    return Grid(f"{name}: how fast collectives were", columns, rows, f"{note}At least: waiting for others may be in it.")


def _of_scenario(scenario: BriefedScenario) -> Iterator[Block]:
    found = scenario.result
    if not isinstance(found.envelope, Surroundings):
        return
    around, currency = found.envelope, _currency(found)
    if around.next_generation:
        yield Text(f"{found.scenario}: {_ceiling(found, around.next_generation)}", "lead")
        yield _generations(found, around.next_generation)
    if around.fabrics:
        yield _fabrics(around.fabrics, currency)
    if around.growth:
        yield _grown(around.growth, currency)
    if around.traffic:
        yield _traffic(around.traffic, _movement(found.forecasts))
    yield _worth([one for one in around.elasticities if "bandwidth of" in one.knob or "latency of" in one.knob])


def _currency(found: ProjectResult) -> str:
    return next((row.currency for row in found.forecasts if isinstance(row.currency, str)), "")


def _ceiling(found: ProjectResult, rows: Sequence[NextGeneration]) -> str:
    """What devices twice as fast would ask of the network, at the job's own scale."""
    own = [one for one in rows if one.ranks == found.ranks] or list(rows)
    one = min(own, key=lambda row: row.generation)
    more = (
        "no bandwidth keeps it so: latency alone takes more."
        if one.bandwidth_times is None
        else f"{three(one.bandwidth_times)} times the bandwidth would keep the share as it is."
    )
    return (
        f"transfers take {percent(one.exposed_today)} of a step on {count(one.ranks, 'rank')}. With devices {one.generation:g} "
        f"times as fast on today's network it would be {percent(one.exposed_on_todays_network)}; {more}"
    )


def _generations(found: ProjectResult, rows: Sequence[NextGeneration]) -> Picture:
    """Exposed share against ranks, today and with faster devices."""
    today = {one.ranks: one.exposed_today for one in rows}
    lines = [Line("today's devices", [float(n) for n in today], list(today.values()))]
    for generation in sorted({one.generation for one in rows}):
        some = [one for one in rows if one.generation == generation]
        x, y = [float(one.ranks) for one in some], [one.exposed_on_todays_network for one in some]
        lines.append(Line(f"devices {generation:g} × as fast", x, y, dashed=True))
    chart = Lines(lines, "ranks, logarithmic", "share of a step in transfers", log_x=True, shares=True)
    alt = "; ".join(
        f"{line.name}: {percent(line.y[0])} at {line.x[0]:,.0f} ranks, {percent(line.y[-1])} at {line.x[-1]:,.0f}"
        for line in lines
    )
    return Picture(f"{found.scenario}: share of a step in transfers, on today's network", alt, chart)


def _fabrics(rows: Sequence[FabricCost], currency: str) -> Grid | Text:
    """Other fabrics, or that none of them matters."""
    priced = any(one.network_price is not None for one in rows)
    if not priced and len({duration(one.step_ns) for one in rows}) == 1:
        return Text(
            f"None of {len(rows)} other fabrics (topology, oversubscription) changes the step, and ports have no price."
        )
    columns = [Column("Topology"), Column("Oversubscription", True), Column("Latency", True), Column("Step", True)]
    if priced:
        columns += [Column(_priced("Network", currency), True), Column(_priced("Cost of 1M tokens", currency), True)]
    best = min((one.cost_per_unit for one in rows if one.cost_per_unit is not None), default=None)
    cells = [_fabric(one, best, priced) for one in rows]
    return Grid(f"The job on {count(rows[0].ranks, 'rank')} on other fabrics", columns, cells, "Without jitter and failures.")


def _fabric(one: FabricCost, best: float | None, priced: bool) -> list[Cell | str]:
    cost = _money(one.cost_per_unit)
    cheapest = best is not None and one.cost_per_unit is not None and cost == _money(best)
    money: list[Cell | str] = [_whole(one.network_price), Cell(cost, "good") if cheapest else cost]
    first = [one.topology, f"{one.oversubscription:g}:1", f"{one.latency_times:g} ×", duration(one.step_ns)]
    return [*first, *(money if priced else [])]


def _grown(rows: Sequence[Growth], currency: str) -> Grid:
    priced = any(one.network_price is not None for one in rows)
    prices = [Column(_priced("Network", currency), True), Column("Added by this step", True)] if priced else []
    columns = [Column("ranks", True), Column("Tiers"), *prices, Column("Network power", True), Column("Throughput added", True)]
    cells: list[list[Cell | str]] = []
    for one in rows:
        tiers = " · ".join(f"{tier} (new)" if one is not rows[0] and tier in one.new_tiers else tier for tier in one.tiers)
        watts = UNKNOWN if one.network_w is None else f"{three(one.network_w / 1000)} kW"
        scaling = UNKNOWN if one.scaling is None else percent(one.scaling)
        guess = "" if one.in_range else " (extrapolated)"
        money = [_whole(one.network_price), _whole(one.added_price)] if priced else []
        cells.append([f"{one.ranks:,}{guess}", tiers, *money, watts, scaling])
    note = "Throughput added: over accelerators added, beside the row above. Without jitter and failures: the network alone."
    return Grid("The fabric grown to other scales", columns, cells, note)


def _traffic(rows: Sequence[Traffic], movement: float | None) -> Grid:
    columns = [Column("What moves"), Column("Over"), Column("Bytes a step", True), Column("Energy a step", True)]
    cells = [
        [
            one.kind,
            one.tier,
            _bytes(one.bytes_per_step),
            UNKNOWN if one.joules_per_step is None else _joules(one.joules_per_step),
        ]
        for one in rows
    ]
    note = "" if movement is None else f"Moving data takes {percent(movement)} of all energy of the job, ports included."
    return Grid("What a step moves", columns, cells, note)


def _movement(forecasts: Sequence[Forecast]) -> float | None:
    found = forecasts[-1].movement_share
    return found if isinstance(found, float) else None


def _worth(some: Sequence[Elasticity]) -> Grid:
    felt = [one for one in some if abs(one.rate.value) >= LEAST]
    columns = [Column("1 % better"), Column("Throughput", True), Column("Cost of 1M tokens", True)]
    rows = [[one.knob, plain(one.rate, "%"), plain(one.cost_per_unit, "%")] for one in felt]
    left = len(some) - len(felt)
    others = "1 other moves" if left == 1 else f"{left} others move"
    rest = f" {others} throughput by less than {LEAST:g} %." if left else ""
    note = f"More bandwidth or less latency, one at a time. Intervals hold 95 of 100 further simulations.{rest}"
    return Grid("What a better network is worth", columns, rows, note)


def _speed(value: float) -> str:
    return three(value) if value >= 0.1 else f"{value:.2g}"


def _priced(what: str, currency: str) -> str:
    return f"{what}, {currency}" if currency else what


def _money(value: float | None) -> str:
    return UNKNOWN if value is None else cash(value)


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _bytes(value: float) -> str:
    for least, unit in ((1e15, "PB"), (1e12, "TB")):
        if value >= least:
            return f"{three(value / least)} {unit}"
    return size(round(value))


def _joules(value: float) -> str:
    for least, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if value >= least:
            return f"{three(value / least)} {unit}"
    return f"{three(value)} J"
