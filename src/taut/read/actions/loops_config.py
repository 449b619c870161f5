"""Control loops as a configuration has them: a small TOML file, one ``[[loop]]`` each (docs/control-loops.md has the keys).

Strict: an unknown key, a wrong value, two loops of one name or a call to a loop that is not there is refused with its line.
"""

from __future__ import annotations

import re
from math import isfinite
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from taut.core.errors import InputRefused, TooLarge
from taut.read.config_text import load_text
from taut.read.config_text import parsed as parsed_toml

MOST_LOOPS, MOST_CALLS = 2000, 64

NotNegative = Annotated[float, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]
Word = Annotated[str, Meta(max_length=200)]


class Loop(Struct, forbid_unknown_fields=True, frozen=True):
    """One loop: what it watches and sets, how often, and how it calls others. What is not given is not known."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    layer: Word = ""
    """scheduler, orchestrator, runtime, model, policy, retry, fallback or autoscaler."""
    knob: Word = ""
    """What it sets …"""
    target: Word = ""
    """… and on what."""
    owner: Word = ""
    """Who answers for it; loops of one owner are taken to be coordinated."""
    period_s: Positive | None = None
    look_back_s: Positive | None = None
    delay_s: NotNegative | None = None
    """Time from a decision to its effect (the start of a replica)."""
    timeout_s: Positive | None = None
    """How long it waits for one attempt."""
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    back_off_s: NotNegative = 0.0
    """Pause before a retry."""
    budget_share: NotNegative | None = None
    """Retries that it may spend for a first attempt, averaged."""
    deadline_s: Positive | None = None
    """By when all of its attempts must be over."""
    calls: Annotated[tuple[Word, ...], Meta(max_length=MOST_CALLS)] = ()
    """Loops that each of its attempts goes through."""
    per_s: Positive | None = None
    """Requests that reach it, each counted once."""
    serves_per_s: Positive | None = None
    """What the system behind it can serve."""


class _File(Struct, forbid_unknown_fields=True, frozen=True):
    loop: tuple[Loop, ...] = ()


def load(path: str | Path) -> tuple[Loop, ...]:
    """The loops of a file."""
    text = load_text(path, "give the TOML file with the [[loop]] tables")
    return loops(text, str(path))


def loops(text: str, label: str) -> tuple[Loop, ...]:
    """The loops in a text."""
    table = parsed_toml(text, label)
    found = table.get("loop")
    if isinstance(found, list) and len(found) > MOST_LOOPS:
        raise TooLarge(label, f"{len(found)} loops", f"give at most {MOST_LOOPS}")
    try:
        parsed = msgspec.convert(table, _File).loop
    except msgspec.ValidationError as error:
        raise _refused(error, label, text) from None
    _check(parsed, label, text)
    return parsed


def _check(parsed: tuple[Loop, ...], label: str, text: str) -> None:
    names: set[str] = set()
    for k, loop in enumerate(parsed):
        where = _line(label, text, k)
        if loop.name in names:
            raise InputRefused(where, f"two loops are called {loop.name!r}", "name them apart")
        names.add(loop.name)
        for key, value in msgspec.structs.asdict(loop).items():
            if isinstance(value, float) and not isfinite(value):
                raise InputRefused(where, f"{key} of {loop.name!r} is {value}", "give a number")
    for k, loop in enumerate(parsed):
        for name in loop.calls:
            if name not in names:
                remedy = "add it, or leave it out of calls"
                raise InputRefused(_line(label, text, k), f"{loop.name!r} calls {name!r}, which is not there", remedy)


def _refused(error: msgspec.ValidationError, label: str, text: str) -> InputRefused:
    """What msgspec says, with the line of the loop and the way out."""
    why, _, where = str(error).partition(" - at `")
    number = re.search(r"loop\[(\d+)\]", where)
    place = _line(label, text, int(number[1])) if number else label
    if unknown := re.search(r"unknown field `(.*?)`", why):
        known = [field.name for field in msgspec.structs.fields(Loop)] if number else ["loop"]
        return InputRefused(place, f"no such key: {unknown[1][:80]}", f"known here: {', '.join(known)}")
    key = where.rstrip("`").rpartition(".")[2]
    return InputRefused(place, f"{key}: {why[:1].lower()}{why[1:]}", "correct the value")


def _line(label: str, text: str, number: int) -> str:
    """``file:line`` of the table of a loop."""
    lines = [k for k, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*loop\s*\]\]", line)]
    return f"{label}:{lines[number]}" if number < len(lines) else label
