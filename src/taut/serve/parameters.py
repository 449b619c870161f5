"""Query strings → values within limits: a route lists what it takes, and everything else is refused in one line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import parse_qsl

from taut.core.errors import UsageError

if TYPE_CHECKING:
    from taut.core.array_types import Json

MOST_QUERY, MOST_PAIRS, MOST_TEXT = 8192, 640, 2000
"""Characters of a query string, its pairs, characters of one value."""
FAR = 2**62
"""No time, rank or step lies beyond."""
WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
REAL = re.compile(r"-?[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,2})?", re.ASCII)
Kind: TypeAlias = Literal["whole", "real", "text", "texts"]
Value: TypeAlias = int | float | str | list[str]


@dataclass(frozen=True)
class Parameter:
    """One thing that a route takes."""

    name: str
    kind: Kind
    meaning: str
    least: float = -FAR
    most: float = FAR
    """Of a number, or of how many texts."""
    required: bool = False
    default: int | float | None = None

    def schema(self) -> dict[str, Json]:
        """As OpenAPI tells it."""
        if self.kind == "texts":
            one: dict[str, Json] = {"type": "string", "minLength": 1, "maxLength": MOST_TEXT}
            return {"type": "array", "items": one, "maxItems": int(self.most)}
        if self.kind == "text":
            return {"type": "string", "minLength": 1, "maxLength": MOST_TEXT}
        least, most = (int(self.least), int(self.most)) if self.kind == "whole" else (self.least, self.most)
        about: dict[str, Json] = {"type": "integer" if self.kind == "whole" else "number", "minimum": least, "maximum": most}
        return about if self.default is None else {**about, "default": self.default}

    def value(self, given: Sequence[str]) -> Value:
        """What was given, within the limits."""
        if self.kind == "texts":
            if len(given) > self.most:
                raise UsageError(f"{self.name}: given {len(given)} times, at most {self.most:g}")
            return [self._text(one) for one in given]
        if len(given) > 1:
            raise UsageError(f"{self.name}: given twice")
        return self._text(given[0]) if self.kind == "text" else self._number(given[0])

    def _text(self, given: str) -> str:
        if not given or len(given) > MOST_TEXT:
            raise UsageError(f"{self.name}: give 1 to {MOST_TEXT} characters")
        return given

    def _number(self, given: str) -> int | float:
        if not (WHOLE if self.kind == "whole" else REAL).fullmatch(given):
            raise UsageError(f"{self.name}={given[:40]!r}: give a {'whole ' if self.kind == 'whole' else ''}number")
        found = int(given) if self.kind == "whole" else float(given)
        if not math.isfinite(found) or not self.least <= found <= self.most:
            raise UsageError(f"{self.name}={given[:40]}: give a number from {self.least:,.12g} to {self.most:,.12g}")
        return found


class Asked:
    """What was asked, by name."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def whole(self, name: str) -> int:
        """A whole number that the route requires, or that has a default."""
        found = self._values[name]
        assert isinstance(found, int)
        return found

    def real(self, name: str) -> float:
        """A number that the route requires, or that has a default."""
        found = self._values[name]
        assert isinstance(found, (int, float))
        return float(found)

    def texts(self, name: str) -> list[str]:
        """All texts of a name; none where it was not given."""
        found = self._values.get(name, [])
        assert isinstance(found, list)
        return found

    def wholes(self, *names: str) -> list[int | None]:
        """Whole numbers, None for those that were not given."""
        return [self.whole(name) if name in self else None for name in names]


def asked(takes: Sequence[Parameter], query: bytes) -> Asked:
    """The values of a query string."""
    given = _pairs(query)
    known = {one.name: one for one in takes}
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        raise UsageError(f"{strange[:40]!r}: this address takes {', '.join(known) or 'nothing'}")
    lacking = next((one.name for one in takes if one.required and one.name not in given), None)
    if lacking is not None:
        raise UsageError(f"{lacking} is missing: {known[lacking].meaning}")
    values: dict[str, Value] = {one.name: one.default for one in takes if one.default is not None}
    return Asked({**values, **{name: known[name].value(some) for name, some in given.items()}})


def _pairs(query: bytes) -> dict[str, list[str]]:
    if len(query) > MOST_QUERY:
        raise UsageError(f"a query of {len(query):,} characters: at most {MOST_QUERY:,}")
    out: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PAIRS)
    except ValueError:
        raise UsageError(f"the query cannot be read: give NAME=VALUE&…, percent-encoded, at most {MOST_PAIRS}") from None
    for name, value in pairs:
        out.setdefault(name, []).append(value)
    return out
