"""What the literature declares for systems such as the scenarios that ship, to be set beside what is computed.

Two sources: the table ``[about.declared]`` of a scenario file, and figures that were published for the very system that a
shipped scenario describes, below with their citation. Nothing here is used to compute anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from taut.project.workload import workload_of
from taut.read.scenario_file import load, names
from taut.result.types import Estimate


class Published(NamedTuple):
    """A figure as a publication gives it."""

    value: float
    source: str
    lo: float | None = None
    """Where only *more than* is published, the value itself."""


NOT_CITED = "the scenario file, [about.declared], which names no publication"
LLAMA = "Llama 3 (arXiv:2407.21783)"
PUBLISHED: Mapping[str, Mapping[str, Published]] = {
    "large-training": {
        "tflops_per_device": Published(400, f"{LLAMA}, table 4"),
        "mfu": Published(0.41, f"{LLAMA}, table 4"),
        "availability": Published(0.9, f"{LLAMA}, section 3.3.4: more than 90 % of the time", 0.9),
    },
    "gpt-175b": {"tflops_per_device": Published(141, "Narayanan et al. (SC21), table 2")},
}
"""Shipped scenario → key of its forecast, at its own scale → what was published."""


class Declared(NamedTuple):
    """Figures without and with such policies as the scenario names, and who declares them."""

    without: dict[str, Estimate]
    with_: dict[str, Estimate]
    by: dict[str, str]


def declared_of(named: str) -> Declared:
    """What is declared for a scenario: a TOML file, or the name of one that ships; empty where nothing is."""
    table, text = load(named)
    found = workload_of(table, named).parse(table, named, text)[0].about.declared
    shipped = PUBLISHED.get(named, {}) if named in names("") else {}
    return Declared(
        {key: Estimate(value=before) for key, (before, _) in found.items()}
        | {key: Estimate(value=one.value, lo=one.lo) for key, one in shipped.items()},
        {key: Estimate(value=after) for key, (_, after) in found.items()},
        dict.fromkeys(found, NOT_CITED) | {key: one.source for key, one in shipped.items()},
    )
