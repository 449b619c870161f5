"""``--redact``: hosts and names out of a briefing, each replaced by the same stand-in everywhere.

Names are collected from the results (jobs, hosts, ranks with names, controllers and their targets, teams, resources, files)
and from scenarios of the user's own; every text of the briefing is then searched for them, the longest first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from msgspec import Struct
from msgspec.structs import fields, replace

from taut.core.array_types import Json
from taut.read.scenario_file import load
from taut.result.brief_types import BriefedScenario, Briefing, ControlStack
from taut.result.types import BillResult, BriefInput, ControlResult

LEAST_LENGTH = 2
"""A name of one letter is in every word."""
OURS = frozenset({"workload", "layer", "kind", "separation"})
"""Fields that hold words of ours, which somebody's controller may be called too."""

S = TypeVar("S", bound=Struct)


def redacted(briefing: Briefing) -> Briefing:
    """The briefing without its names."""
    stand_ins = _stand_ins(briefing)
    if not stand_ins:
        return briefing
    names = sorted(stand_ins, key=lambda name: (-len(name), name))
    pattern = re.compile("|".join(map(_searched, names)))

    return _struct(briefing, lambda text: pattern.sub(lambda found: stand_ins[found[0]], text))


def _searched(name: str) -> str:
    """A name as a word of its own, or a part of a dotted key; a number only where it stands for something, not in figures."""
    if name.isdecimal():
        alone, of = rf"^{name}$", rf"(?<=\bof ){name}(?=[:;]|$)"
        return rf"{alone}|{of}|(?:(?<=\bjob )|(?<=\bjobs )|(?<=\btask )){name}(?!\w)"
    return rf"(?<![\w-]){re.escape(name)}(?!\w)"


def _struct(value: S, change: Callable[[str], str]) -> S:
    """The same with every text changed, but for words that stand for a choice of ours."""
    kept = _choices(type(value)) | OURS
    found = {name: getattr(value, name) for name in value.__struct_fields__ if name not in kept}
    return replace(value, **{name: _walked(one, change) for name, one in found.items()})


def _walked(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, Struct):
        return _struct(value, change)
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {_walked(key, change): _walked(each, change) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_walked(each, change) for each in value)
    return value


@cache
def _choices(struct: type[Struct]) -> frozenset[str]:
    """Fields that hold one of a few words of ours."""
    return frozenset(one.name for one in fields(struct) if "Literal" in str(one.type) and "str" not in get_args(one.type))


def _stand_ins(briefing: Briefing) -> dict[str, str]:
    found: dict[str, str] = {}
    counts: dict[str, int] = {}
    for kind, name in _names(briefing):
        if name and len(name) >= LEAST_LENGTH and name not in found:
            counts[kind] = counts.get(kind, 0) + 1
            found[name] = f"{kind}-{counts[kind]}"
            if kind == "host":  # screens leave the domain out
                found.setdefault(name.split(".")[0], found[name])
    return found


def _names(briefing: Briefing) -> Iterator[tuple[str, str | None]]:
    """(kind, name) of everything that names somebody's machine, job or person."""
    for one in briefing.inputs:
        for word in _paths(one):
            yield "input", word
            yield "input", Path(word).name
    for run in briefing.runs:
        result = run.result
        yield "job", result.job.name
        yield from (("rank", name) for name in result.job.names.values())
        yield from (("host", row.host) for row in result.ranks or ())
        yield from (("host", host) for finding in result.findings for host in finding.hosts)
        yield from (("host", cause.cause.host) for cause in result.blame)
        yield from (("part", one.component) for one in result.components if not one.component.startswith("rank "))
        if result.control is not None:
            yield from _of_control(result.control, run.stack)
    for scenario in briefing.scenarios:
        yield from _of_scenario(scenario)
    for control in briefing.controls:
        yield "system", str(control.result.name or "")
        yield from _of_control(control.result, control.stack)
    for bill in briefing.bills:
        yield from _of_bill(bill.result)
    for decision in briefing.decisions:
        by = decision.record.details.get("by")
        yield "person", by if isinstance(by, str) else None


def _paths(one: BriefInput) -> list[str]:
    """Paths in the name of an input; what is none (a scenario that ships, a bill made here) names nobody."""
    return [word for word in one.name.split(" ") if "/" in word or Path(word).suffix or Path(word).exists()]


def _of_control(result: ControlResult, stack: ControlStack | None) -> Iterator[tuple[str, str | None]]:
    yield from (("controller", name) for name in result.controllers)
    yield from (("target", relation.target) for relation in result.relations)
    yield from (("target", name) for name in (stack.targets if stack else ()))
    for stuck in result.stuck if isinstance(result.stuck, list) else ():
        yield "target", stuck.job
        yield from (("host", name) for name in (stuck.nodes or "").split(","))


def _of_scenario(scenario: BriefedScenario) -> Iterator[tuple[str, str | None]]:
    """Names in a scenario of the user's own; one that ships names nobody."""
    if _paths(scenario.source):
        yield "scenario", scenario.result.scenario
        table, _ = load(scenario.source.name)
        yield from (("part", name) for name in _named(table))
        if scenario.control is not None:
            yield from _of_control(scenario.control, scenario.stack)


def _named(value: Json) -> Iterator[str]:
    """Every ``name`` in a table."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "name" and isinstance(each, str):
                yield each
            yield from _named(each)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each)


def _of_bill(result: BillResult) -> Iterator[tuple[str, str | None]]:
    for kind in ("host", "job", "team"):
        yield from ((kind, one.name) for one in result.by.get(kind, ()))
    yield from (("resource", one.resource) for one in result.unmatched)
    yield from (("invoice", one.id) for one in result.invoices)
