"""What a scenario costs: of a unit of work, and where the time that is paid for goes."""

from __future__ import annotations

from msgspec import UnsetType

from taut.render.brief.document import Bar, Bars, Block, Colour, Fact, Facts, Picture, Text
from taut.render.brief.written import percent, worth
from taut.render.text import safe
from taut.result.brief_types import BriefedScenario
from taut.result.types import Estimate, Forecast

UNITS = {"training": "a million tokens", "serving": "a million tokens", "agents": "a task", "loops": "a thousand requests"}
"""Workload → its unit of delivered work."""
LABELS: dict[str, tuple[str, Colour]] = {
    "compute": ("useful work", "useful"),
    "interconnect": ("moving data", "communication"),
    "synchronisation": ("waiting, queues and idle accelerators", "waiting"),
    "recovery": ("failures, retries and restarts", "restart"),
}
"""Groups of time in plain words."""


def modelled_cost(scenario: BriefedScenario) -> list[Block]:
    """Cost of a unit of work, and the shares of what is paid for."""
    result = scenario.result
    found = next((one for one in result.forecasts if one.ranks == result.ranks), None)
    if found is None:
        return []
    name = f"{safe(scenario.source.name)} at {result.ranks:,} ranks, modelled"
    return [Text(name, "note"), *_unit_cost(found, result.workload), *_groups(found)]


def _unit_cost(found: Forecast, workload: str) -> list[Block]:
    if found.cost_per_unit is None or not isinstance(found.currency, str):
        return []
    cost = found.cost_per_unit_interval
    cost = Estimate(value=found.cost_per_unit) if cost is None or isinstance(cost, UnsetType) else cost
    unit = UNITS.get(workload, "a unit of work")
    return [
        Facts([Fact(f"Cost of {unit}", worth(cost, found.currency), "Everything paid for, over the work that is delivered.")])
    ]


def _groups(found: Forecast) -> list[Block]:
    groups = found.groups if isinstance(found.groups, dict) else {}
    bars = [
        Bar(label, share, colour, percent(share))
        for key, (label, colour) in LABELS.items()
        if (share := groups.get(key)) is not None
    ]
    if not bars:
        return []
    alt = ", ".join(f"{bar.label} {bar.shown}" for bar in bars)
    return [Picture("Where the time that is paid for goes", f"{alt}.", Bars(bars, axis="share of the time that is paid for"))]
