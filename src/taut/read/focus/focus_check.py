"""What a bill breaks of the rules of its version: of columns, of rows, and what focus-validator 1.0.0 alone asks for."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
from msgspec import Struct, field

from taut.read.focus.focus_charged import FIRST, Charged
from taut.read.focus.focus_columns import columns_of, is_custom, meant
from taut.read.focus.focus_rules import RULES

BASE = "CostAndUsage"


class Broken(Struct, frozen=True):
    """A rule, and what breaks it."""

    rule: str
    what: str
    column: str
    rows: int
    """0 where a column is at fault, not rows."""
    first: tuple[str, ...] = ()
    """``file:row`` of the first of them."""
    money: dict[str, Decimal] = field(default_factory=dict)
    """Billed cost of the rows, by currency."""
    validator: str = ""
    """What focus-validator 1.0.0 calls the rule."""


class Found(Struct, frozen=True):
    """What is wrong with a file, by the specification, and by focus-validator 1.0.0 alone."""

    broken: list[Broken]
    disputed: list[Broken]


# What focus-validator 1.0.0 asks of a file of 1.0 beyond its specification: names that no version has.
ASKED_FOR = {
    "InvoiceIssuer": "InvoiceIssuerName", "Provider": "ProviderName", "Publisher": "PublisherName", "ResourceID": "ResourceId",
}  # fmt: skip


def check(charged: Charged) -> Found:
    """What a file breaks of the rules of its version: columns first, then rows in the order of the rules."""
    broken = [*_columns(charged), *_rows(charged)]
    named = {one.validator for one in broken}
    disputed = [one for one in _disputed(charged) if one.validator not in named] if charged.version == "1.0" else []
    return Found(broken, disputed)


def _columns(charged: Charged) -> list[Broken]:
    found = []
    spelled = meant(charged.names)
    for column in columns_of(charged.version):
        if column.mandatory and column.name not in charged.present:
            what = f"the file has no column {column.name}, which every file of {charged.version} must have"
            found.append(Broken(f"{BASE}-{column.name}-M", what, column.name, 0, validator=f"{column.name}_Required"))
    for column_name, name in spelled.items():
        if name != column_name:
            found.append(Broken("ColumnHandling-A-001-M", f"column {column_name} is called {name[:80]!r}", column_name, 0))
    for name in charged.names:
        if name not in spelled.values() and not is_custom(name):
            what = f"column {name[:80]!r} is none of the specification, and its name does not begin with x_"
            found.append(Broken("ColumnHandling-A-010-M", what, name[:80], 0))
    return found


def _rows(charged: Charged) -> list[Broken]:
    found = []
    for rule in RULES:
        needed = {rule.column, *rule.needs}
        if not rule.since <= charged.version <= rule.until or not needed <= charged.present:
            continue
        rows = rule.broken(charged)
        if rows.any():
            found.append(
                Broken(
                    rule.rule,
                    rule.what,
                    rule.column,
                    int(rows.sum()),
                    charged.places(rows),
                    charged.money(rows),
                    rule.validator,
                )
            )
    return found


def _disputed(charged: Charged) -> list[Broken]:
    """What focus-validator 1.0.0 finds in any file that follows the specification of 1.0."""
    found = [
        Broken(
            f"{asked}_Required",
            f"focus-validator 1.0.0 asks for {asked}; the specification calls it {name}",
            name,
            0,
            validator=f"{asked}_Required",
        )
        for asked, name in ASKED_FOR.items()
        if asked not in charged.names
    ]
    if "ChargeType" not in charged.names:
        what = "focus-validator 1.0.0 checks SkuPriceId by ChargeType, which 1.0 calls ChargeCategory"
        found.append(Broken("SkuPriceId_Nullable", what, "SkuPriceId", 0, validator="SkuPriceId_Nullable"))
    return found


def merged(files: Sequence[Sequence[Broken]]) -> tuple[Broken, ...]:
    """The same rule of several files once, with all its rows."""
    found: dict[tuple[str, str], Broken] = {}
    for one in (one for file in files for one in file):
        before = found.get((one.rule, one.what))
        if before is None:
            found[one.rule, one.what] = one
            continue
        currencies = {*before.money, *one.money}
        money = {c: before.money.get(c, Decimal(0)) + one.money.get(c, Decimal(0)) for c in sorted(currencies)}
        first = (*before.first, *one.first)[:FIRST]
        found[one.rule, one.what] = msgspec.structs.replace(before, rows=before.rows + one.rows, first=first, money=money)
    return tuple(found.values())
