"""Strict TOML: a file's table as a frozen struct; an unknown key, a wrong value or a contradiction is refused with its line.

Every key is a field of the struct and carries its unit; a missing one takes the default and is listed as such.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from taut.core.errors import InputRefused

# Nothing that a scenario counts is more; products of a few of them stay finite.
MOST_COUNT = 10**12
Count = Annotated[int, Meta(ge=1, le=MOST_COUNT)]
Some = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
# Nothing that a scenario tells is more, in any unit; infinity is no number.
MOST = 1e30
Positive = Annotated[float, Meta(gt=0, le=MOST)]
NotNegative = Annotated[float, Meta(ge=0, le=MOST)]
Share = Annotated[float, Meta(ge=0, le=1)]
# How many times as much, or as long.
Times = Annotated[float, Meta(ge=1, le=1e6)]
# A time that something takes in the life of a job: at most four months.
Seconds = Annotated[float, Meta(ge=0, le=1e7)]
# Failures in 1000 days of a unit; at the most of them a unit fails every quarter of an hour.
FailureRate = Annotated[float, Meta(ge=0, le=1e5)]

# (whether it holds, the key to look at, why, the way out).
Contradiction = tuple[bool, str, str, str]


class Strict(Struct, forbid_unknown_fields=True, frozen=True):
    """A table of the file: unknown keys are refused."""

    words_only: ClassVar[bool] = False
    """Whether nothing in it changes a number: what is left out is then no default worth a word."""


S = TypeVar("S", bound=Strict)


def parse(
    kind: type[S], contradictions: Callable[[S], Iterable[Contradiction]], table: Mapping[str, Any], label: str, text: str = ""
) -> tuple[S, list[str]]:
    """The struct in a TOML table, and the keys that were not given and took their defaults."""
    try:
        found = msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _refused(kind, error, label, text) from None
    for wrong, key, why, remedy in contradictions(found):
        if wrong:
            raise InputRefused(place(label, text, key), f"{key}: {why}", remedy)
    return found, list(_defaults(kind, table))


def _inner(kind: object) -> type[Struct] | None:
    """The struct that a field holds, or a row of: ``tuple[Tier, ...]`` → Tier."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind
    return next((found for arg in get_args(kind) if (found := _inner(arg))), None)


def _defaults(kind: type[Struct], given: Mapping[str, Any], path: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        value = given.get(field.encode_name)
        inner = _inner(field.type)
        if inner is not None and issubclass(inner, Strict) and inner.words_only:
            continue
        if inner and isinstance(value, (list, tuple)):
            for i, row in enumerate(value):
                yield from _defaults(inner, row, f"{path}{field.name}[{i}].")
        elif inner is field.type and inner is not None:
            yield from _defaults(inner, value or {}, f"{path}{field.name}.")
        elif value is None and not field.required:
            yield path + field.name


def _refused(whole: type[Struct], error: msgspec.ValidationError, label: str, text: str) -> InputRefused:
    """What msgspec says, with the line and the way out."""
    message, _, where = str(error).partition(" - at `")
    path = where.rstrip("`").removeprefix("$").lstrip(".")
    unknown = re.search(r"unknown field `(\w+)`", message)
    missing = re.search(r"missing required field `(\w+)`", message)
    key = ".".join(filter(None, (path, (unknown or missing or [None, ""])[1])))
    if unknown:
        return InputRefused(place(label, text, key), f"no such key: {key}", _meant(unknown[1], _known(whole, path)))
    if missing:
        return InputRefused(place(label, text, path), f"{key} is missing", "give it, with the unit its name carries")
    return InputRefused(place(label, text, key), f"{key}: {message[:1].lower()}{message[1:]}", "correct the value")


def _meant(key: str, known: Sequence[str]) -> str:
    """The key that somebody may have meant, and all that there are."""
    alike = get_close_matches(key, known, 1)
    return f"{f'did you mean {alike[0]}? ' if alike else ''}known here: {', '.join(known)}"


def _known(kind: type[Struct], path: str) -> list[str]:
    """The keys of the table at a path."""
    for part in filter(None, re.sub(r"\[.*?\]", "", path).split(".")):
        kind = _inner(next(f.type for f in msgspec.structs.fields(kind) if f.encode_name == part)) or kind
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def place(label: str, text: str, key: str) -> str:
    """``file:line`` of a key; the file alone where the line is not known."""
    *tables, name = re.sub(r"\[.*?\]|\[\.\.\.\]", "", key).split(".")
    table, inside, header = ".".join(tables), not tables, 0
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*\[\[?\s*([\w.]+)\s*\]\]?", line)
        if found:
            inside = found[1] in (table, key)
            header = number if inside else header
        elif inside and re.match(rf"\s*{re.escape(name)}\s*=", line):
            return f"{label}:{number}"
    return f"{label}:{header}" if header else label
