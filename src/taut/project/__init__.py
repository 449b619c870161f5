"""Scenario → modelled job → forecast: the same max-plus system as a measured graph's, without its edges in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taut.errors import InputRefused
from taut.project import work
from taut.project.forecast import SEED, STEPS, at, forecast
from taut.project.scenario import Scenario, parse, place
from taut.project.workload import workload_of

__all__ = ["Scenario", "parse", "project"]

FEWEST = 100
"""Measured strays below which nothing is drawn from them."""


def project(
    table: Mapping[str, Any], label: str, text: str = "", *, ranks: Sequence[int] = (), count: int = STEPS, seed: int = SEED,
    cores: int = 1, measured: Callable[[str], Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """What ``taut project`` prints: a scenario's forecast at each of these scales, or at its own.

    ``measured`` gives the strays of a run folder (``noise.strays``), for scenarios whose noise was measured.
    """
    kind = workload_of(table, label)
    scenario, defaults = kind.parse(table, label, text)
    if not isinstance(scenario, Scenario):
        answers = [
            kind.forecast(kind.at(scenario, n), count=count, seed=seed, cores=cores) for n in ranks or [kind.ranks(scenario)]
        ]
        return _result(scenario.name, defaults, [answer.entry() for answer in answers])
    strays = None
    if scenario.noise.distribution == "measured":
        strays = measured(scenario.noise.run) if measured is not None else ()
        if len(strays) < FEWEST:
            why = f"noise.run: {len(strays)} ops with a reference are too few to draw from"
            raise InputRefused(place(label, text, "noise.run"), why, "name a run of several ranks and steps")
    rows = []
    for n in ranks or [scenario.job.world]:
        here = at(scenario, n)
        _fits(here, label, text)
        rows.append(forecast(here, count=count, seed=seed, cores=cores, measured=strays).entry())
    return _result(scenario.name, defaults, rows)


def _result(name: str, defaults: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"scenario": name, "defaults": defaults, "forecasts": rows, "threshold": None, "policies": []}


def _fits(s: Scenario, label: str, text: str) -> None:
    """Refuse a job that its devices cannot hold."""
    needs = work.memory_gb(s)
    if needs > s.device.memory_gb:
        why = f"a rank of {s.job.world:,} needs {needs:,.0f} GB, {s.device.name} has {s.device.memory_gb:g}"
        remedy = "raise job.tp or job.pp, set job.sharding or job.recompute, or lower job.micro_batch"
        raise InputRefused(place(label, text, "device.memory_gb"), why, remedy)
