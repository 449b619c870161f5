"""Charges that are not their price times their quantity, beyond what rounding explains."""

from __future__ import annotations

import numpy as np

from taut.core.array_types import Floats, Ints, Mask
from taut.core.ids import numbered
from taut.ledger.bill.capacity import most_common
from taut.ledger.bill.charge_rows import ChargeRows
from taut.ledger.bill.defects.found import Found
from taut.ledger.bill.defects.left_out import tried_before
from taut.ledger.bill.money_units import amount
from taut.read.focus.focus_rules import CENTS, COMPUTED

KIND = "price times quantity"
UNIT_PRICE = "unit price"
OF_ROWS, USUAL, TIMES = 100, 0.99, 2.0
"""Of so many rows of a price id and more, all but a hundredth tell its unit price; others are odd from twice as much on."""
# Binary floats of price and quantity leave this much of a product unsure.
FLOAT = 1e-9
LEAST = 0.005
"""Some rows of a bill may be rounded to cents where others are not."""
WHOLE = ("BIF", "CLP", "DJF", "GNF", "HUF", "IDR", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "TWD", "UGX", "VND", "XAF", "XOF")
"""Currencies that are billed without decimals."""


def find(rows: ChargeRows) -> list[Found]:
    """Usage without a commitment that is billed at more than price × quantity; or at less, and contracted so."""
    v = rows.v
    price, quantity, billed = v.number("ContractedUnitPrice"), v.number("PricingQuantity"), v.number("BilledCost")
    product = price * quantity
    asked = v.is_("ChargeCategory", "Usage") & ~v.correction() & rows.kept & (rows.billed > 0) & rows.whole
    asked &= (
        ~tried_before(rows)
        & v.null("CommitmentDiscountId")
        & ~_in_other_money(rows)
        & (price > 0)
        & (np.abs(billed - product) > LEAST)
    )
    if not asked.any():  # the decimals of all columns take time to count
        return []
    bound, contracted = _bound(rows, price, quantity), v.number("ContractedCost")
    with np.errstate(invalid="ignore"):
        more = billed - product > bound
        less = (product - billed > bound) & ((np.abs(billed - contracted) <= bound) | np.isnan(contracted))
    some = np.flatnonzero(asked & (more | less))
    return [_found(rows, some)] if len(some) else []


def unusual(rows: ChargeRows) -> list[Found]:
    """Usage at list or contract whose unit price is another, by far, than that of nearly all rows of the same price id."""
    v = rows.v
    price = v.number("ContractedUnitPrice")
    asked = v.is_("ChargeCategory", "Usage") & ~v.correction() & rows.kept & (rows.billed > 0) & rows.whole & (price > 0)
    asked &= v.is_("PricingCategory", "Standard") & v.there("SkuPriceId") & v.null("CommitmentDiscountId")
    some = np.flatnonzero(asked & ~tried_before(rows) & ~_in_other_money(rows) & (v.number("PricingQuantity") > 0))
    if len(some) < OF_ROWS:
        return []
    group, count = numbered(*(v.words(name)[1][some] for name in ("SkuPriceId", "PricingUnit", "BillingAccountId", "RegionId")))
    usual = _usual(group, count, price[some])[group]
    odd = (usual > 0) & ((price[some] >= TIMES * usual) | (price[some] * TIMES <= usual))
    return [_at_usual(rows, some[odd], usual[odd])] if odd.any() else []


def _usual(group: Ints, count: int, price: Floats) -> Floats:
    """The unit price that nearly all rows of each group have; 0 where there is none."""
    values, code = np.unique(price, return_inverse=True)
    common = most_common(group, code, count)
    rows, same = np.bincount(group, minlength=count), np.bincount(group, code == common[group], minlength=count)
    return np.where((rows >= OF_ROWS) & (same >= USUAL * rows), values[common], 0.0)


def _at_usual(rows: ChargeRows, some: Ints, usual: Floats) -> Found:
    """What charges have beyond the usual unit price: of what is left of them, the part by which theirs is off."""
    price = rows.v.number("ContractedUnitPrice")[some]
    off = [np.rint(money[some] * (1 - usual / price)).astype(np.int64) for money in (rows.effective, rows.billed)]
    shown = ", ".join(f"{one:g}" for one in np.unique(price)[:3].tolist())
    because = f"charges of {rows.resources(some)} at {shown} a unit, where others of the same SkuPriceId are at {usual[0]:g}"
    return Found(UNIT_PRICE, some, because, off[0], off[1])


def _found(rows: ChargeRows, some: Ints) -> Found:
    expected = _units(rows, some)
    off = rows.billed[some] - expected
    off_effective = np.where(rows.effective[some] == rows.billed[some], off, 0)
    total = amount(int(off.sum()), rows.unit)
    because = f"billed at another amount than price × quantity, by {total} in all"
    return Found(KIND, some, because, off_effective, off, int(off.sum()))


def _units(rows: ChargeRows, some: Ints) -> Ints:
    """Price × quantity of some charges in units, exactly; cents where all that the provider bills are whole cents."""
    price, quantity = rows.table["ContractedUnitPrice"].take(some), rows.table["PricingQuantity"].take(some)
    step = rows.unit // 100 if not (rows.billed % max(rows.unit // 100, 1)).any() and rows.unit >= 100 else 1
    products = (one * other * rows.unit / step for one, other in zip(price.to_pylist(), quantity.to_pylist(), strict=True))
    return np.array([round(one) * step for one in products], dtype=np.int64)


def _bound(rows: ChargeRows, price: Floats, quantity: Floats) -> Floats:
    """What rounding of cost, price and quantity may come to."""
    cost = np.maximum(rows.v.half_unit("BilledCost", CENTS), 0.5 if rows.currency in WHOLE else LEAST)
    half = rows.v.half_unit("ContractedUnitPrice", COMPUTED), rows.v.half_unit("PricingQuantity", COMPUTED)
    return cost + half[0] * np.abs(quantity) + half[1] * np.abs(price) + FLOAT * np.abs(price * quantity)


def _in_other_money(rows: ChargeRows) -> Mask:
    """Charges whose prices are in another currency than their cost."""
    texts, code = rows.v.words("BillingCurrency")
    others, other = rows.v.words("PricingCurrency")
    same = {text: i for i, text in enumerate(texts)}
    place = np.array([same.get(text, -1) if text else -2 for text in others], dtype=np.int64)[other]
    found: Mask = (place != -2) & (place != code)
    return found
