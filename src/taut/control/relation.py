"""What a relation between controllers is, in the words of the contract."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from taut.core.array_types import Ints
from taut.core.reporting import FIRST_DATE_NS, dated
from taut.result.types import RelationCost, RelationResult


class Relation(Struct, frozen=True):
    """One relation that was tested, or counted."""

    kind: str
    controllers: tuple[str, ...]
    target: str
    knob: str
    count: int
    statistic: float | None
    """What the file of its kind says."""
    p: float | None
    """Chance of such a statistic under the null; None for exact accounting, and where there are too few to tell."""
    because: str
    rank_ns: int | None = None
    tokens: int | None = None
    q: float | None = None
    """The chance after correction for everything that was tested in the log."""

    def entry(self) -> RelationResult:
        """As ``--json`` prints it."""
        return RelationResult(
            kind=self.kind,
            controllers=[name for name in self.controllers if name],
            target=self.target or None,
            knob=self.knob or None,
            count=self.count,
            statistic=self.statistic,
            p=self.p,
            q=self.q,
            cost=RelationCost(rank_ns=self.rank_ns, tokens=self.tokens),
            because=self.because,
            zone=None,
            advice=None,
        )


def spell(ns: float) -> str:
    """A duration as people say it."""
    for unit, size in (("d", 86400e9), ("h", 3600e9), ("min", 60e9), ("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= (5 if unit in ("d", "h", "min") else 1) * size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.0f} ns"


def since(times_ns: Ints) -> str:
    """When something began and how long it went on: ``, since 2026-01-01 09:00:00 UTC, for 6 h``; empty without a date."""
    known = times_ns[times_ns >= FIRST_DATE_NS]
    if not len(known):
        return ""
    first, last = int(known.min()), int(known.max())
    lasting = f", for {spell(last - first)}" if last > first else ""
    return f", since {dated(first)}{lasting}"


def joined(names: Iterable[str], otherwise: str = "somebody") -> str:
    """Controllers as a sentence has them: ``a, b and c``; what to call them where the log names none."""
    known = [name for name in names if name]
    return " and ".join(filter(None, (", ".join(known[:-1]), *known[-1:]))) or otherwise


def thing(target: str, otherwise: str = "the system") -> str:
    """A target as a sentence has it: a bare number is a job."""
    return f"job {target}" if target.isdigit() else target or otherwise
