"""``--redact``: hosts and names out of a briefing, each replaced by the same stand-in everywhere.

Names are collected from the results (jobs, hosts, ranks with names, controllers and their targets, teams, resources, files);
every text of the briefing is then searched for them, the longest first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar, get_args

from msgspec import Struct
from msgspec.structs import fields, replace

from taut.result.brief_types import Briefing
from taut.result.types import BillResult, ControlResult

LEAST_LENGTH = 2
"""A name of one letter is in every word."""

S = TypeVar("S", bound=Struct)


def redacted(briefing: Briefing) -> Briefing:
    """The briefing without its names."""
    stand_ins = _stand_ins(briefing)
    if not stand_ins:
        return briefing
    names = sorted(stand_ins, key=lambda name: (-len(name), name))
    pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w])" for name in names))

    return _struct(briefing, lambda text: pattern.sub(lambda found: stand_ins[found[0]], text))


def _struct(value: S, change: Callable[[str], str]) -> S:
    """The same with every text changed, but for words that stand for a choice of ours."""
    kept = _choices(type(value))
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
        # What is no path (a scenario that ships, a bill made here) names nobody.
        for word in one.name.split(" "):
            if "/" in word or Path(word).suffix or Path(word).exists():
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
            yield from _of_control(result.control)
    for control in briefing.controls:
        yield "system", str(control.result.name or "")
        yield from _of_control(control.result)
    for bill in briefing.bills:
        yield from _of_bill(bill.result)
    for decision in briefing.decisions:
        by = decision.record.details.get("by")
        yield "person", by if isinstance(by, str) else None


def _of_control(result: ControlResult) -> Iterator[tuple[str, str | None]]:
    yield from (("controller", name) for name in result.controllers)
    yield from (("target", relation.target) for relation in result.relations)


def _of_bill(result: BillResult) -> Iterator[tuple[str, str | None]]:
    for kind in ("host", "job", "team"):
        yield from ((kind, one.name) for one in result.by.get(kind, ()))
    yield from (("resource", one.resource) for one in result.unmatched)
    yield from (("invoice", one.id) for one in result.invoices)
