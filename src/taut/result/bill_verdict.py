"""The bill in a sentence: what it came to, what was useful, where the rest went, and whether it closes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal

from msgspec import Struct
from msgspec.structs import replace

from taut.result.types import Accrual, BillLine, BillShare, Defect, Invoice

LEAST = 0.01
"""A category below this share is not told."""
TOLD = 3
WORDS = {
    "lower effective utilisation": "waits and gaps",
    "over-provisioning": "idle accelerators and spares",
    "unmatched": "charges that meet no host",
    "not known": "not observed",
    "operational complexity": "triage",
    "SLA and deadlines": "broken promises and delay",
}
"""Categories as a sentence names them, where that is another word."""


class Spent(Struct, frozen=True):
    """What the lines of a bill add up to."""

    categories: Sequence[BillShare]
    lines: Sequence[BillLine]
    causes: Mapping[str, str]
    """Id of a finding → what and where it is."""
    currency: str | None


def bill_verdict(
    when: str, spent: Spent, closing: str, *, unit: str = "accelerator", charged: str | None = None, wrong: bool = False
) -> str:
    """The answer in a sentence or two; ``charged`` is what a bill came to, ``wrong`` whether it has defects."""
    categories, currency = spent.categories, spent.currency
    whole = [one.money for one in categories if one.money is not None]
    if not categories:
        return f"{when}: nobody held anything, and nothing was charged" + (f"; {closing}." if wrong else ".")
    if not whole:
        beside = f"; {closing}" if charged is not None else ""
        parts = _parts(replace(spent, currency=None))
        return f"{when}: {_time(categories)} of {unit} time, without a price. {parts}{beside}."
    total = money_words(sum(map(Decimal, whole), Decimal(0)), currency)
    paid = None if charged is None else money_words(Decimal(charged), currency)
    beside = f" by its lines, {paid} charged" if paid is not None and paid != total else ""
    return f"{when} cost {total}{beside}: {_parts(spent)}; {closing}."


def _time(categories: Sequence[BillShare]) -> str:
    hours = sum(one.rank_ns or 0 for one in categories) / 3.6e12
    return f"{hours:,.0f} h" if hours >= 10 else f"{hours:.2g} h"


def _parts(spent: Spent) -> str:
    """Useful work, then the largest of what is not, each with its share."""
    categories = spent.categories
    shares = {one.name or "": _share(one, categories) for one in categories}
    useful = shares.pop("useful work", 0.0)
    large = sorted((item for item in shares.items() if item[1] >= LEAST), key=lambda item: -item[1])[:TOLD]
    if useful > 1 or min(shares.values(), default=0.0) < -1:  # credits leave little of the sum: shares of it tell nothing
        return ", ".join(
            f"{money_words(Decimal(one.money or 0), spent.currency)} {WORDS.get(one.name or '', one.name)}"
            for one in categories
        )
    words = [f"{100 * useful:.0f} % useful work"]
    for i, (name, share) in enumerate(large):
        example = _largest(name, spent) if i == 0 else ""
        words.append(f"{100 * share:.0f} % {WORDS.get(name, name)}{example}")
    return ", ".join(words)


def _share(one: BillShare, categories: Sequence[BillShare]) -> float:
    """Of the money; of accelerator time where nothing has a price, or all of it costs nothing."""
    if any(other.money is not None and Decimal(other.money) for other in categories):
        return one.share or 0.0
    return (one.rank_ns or 0) / max(sum(other.rank_ns or 0 for other in categories), 1)


def _largest(category: str, spent: Spent) -> str:
    """The cause to which most of a category goes, in brackets, with all its lines there."""
    money, rank_ns = defaultdict[str, Decimal](Decimal), defaultdict[str, int](int)
    for one in spent.lines:
        if one.category == category and one.cause:
            money[one.cause] += Decimal(one.money or 0)
            rank_ns[one.cause] += one.rank_ns or 0
    best = max(money, key=lambda cause: (money[cause], rank_ns[cause]), default=None)
    if best is None:
        return ""
    priced = any(one.money is not None for one in spent.lines if one.category == category and one.cause == best)
    cost = f", {money_words(money[best], spent.currency)}" if priced else ""
    return f" (the largest: {spent.causes.get(best, best)}{cost})"


def closing_words(
    accrual: Accrual,
    invoices: Sequence[Invoice],
    defects: Sequence[Defect],
    currency: str | None,
    still_open: bool,
    priced: str,
) -> str:
    """Whether the bill closes, and what is left if it does not."""
    if accrual.effective is None:
        return f"at {priced}, without a bill to close to"
    wrong = f", {count(len(defects), 'named defect')}" if defects else ""
    opened = ", and the period is still open" if still_open else ""
    dark = sum(one.rows for one in defects if one.money is None)
    if dark:
        return f"the bill cannot close, because what {count(dark, 'charge')} cost is not known{wrong}{opened}"
    if not invoices and not accrual.closes and not Decimal(accrual.residual or 0):
        return "the bill charges nothing, so that there is nothing to close to"
    if accrual.closes and all(one.closes for one in invoices):
        return f"the bill closes{wrong}{opened}"
    if not Decimal(accrual.residual or 0):
        return f"{_short_invoices(invoices, wrong)}{opened}"
    yet = Decimal(accrual.not_charged_yet or 0)
    if yet:
        opened = f"; the period is still open, {money_words(yet, currency)} is used and not charged yet"
    return f"{_residual_words(accrual, defects, currency, wrong)}{opened}"


def _short_invoices(invoices: Sequence[Invoice], wrong: str) -> str:
    """What is said where the sum closes and single invoices do not; ``wrong`` counts the defects."""
    short = [one for one in invoices if not one.closes]
    if wrong and all(one.explained == one.residual for one in short):
        return f"the bill closes but for {wrong[2:]} in {len(short)} of {count(len(invoices), 'invoice')}"
    return f"{len(short)} of {len(invoices)} invoices do not close{wrong}"


def _residual_words(accrual: Accrual, defects: Sequence[Defect], currency: str | None, wrong: str) -> str:
    """What is said of a difference between what is charged and what was used; ``wrong`` counts the defects."""
    other = Decimal(accrual.residual or 0) + Decimal(accrual.not_charged_yet or 0)
    left = _left(other, defects, currency)
    if accrual.explained == accrual.residual and (defects or not other):
        return f"the bill closes{f' but for {wrong[2:]}' if wrong else ''}{left}"
    return f"the bill does not close{left.replace(', ', ': ', 1)}{wrong}"


def _left(rest: Decimal, defects: Sequence[Defect], currency: str | None) -> str:
    """What is charged too much, and what too little: both, where defects of both kinds make up the difference."""
    if not rest:
        return ""
    amounts = [Decimal(one.money or 0) for one in defects if one.currency == currency]
    above, below = (sum((one for one in amounts if (one > 0) == more), Decimal(0)) for more in (True, False))
    if above and below and above + below == rest:
        return f", {money_words(above, currency)} charged too much and {money_words(-below, currency)} too little"
    return f", {money_words(abs(rest), currency)} {'charged too much' if rest > 0 else 'charged too little'}"


def count(number: int, noun: str) -> str:
    """``1 defect``, ``4 defects``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def money_words(amount: Decimal, currency: str | None) -> str:
    """Money in a sentence: whole from a hundred on."""
    digits = 0 if abs(amount) >= 100 else 2 if abs(amount) >= 1 or not amount else min(1 - amount.adjusted(), 6)
    return f"{amount:,.{digits}f} {currency or ''}".rstrip()
