"""All checks of a bill, in the order in which one leaves nothing to the next."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taut.core.array_types import Mask
from taut.ledger.bill.capacity import Capacity
from taut.ledger.bill.charge_rows import ChargeRows, no_charge
from taut.ledger.bill.defects import (
    cluster,
    commitment,
    count,
    duplicated,
    left_out,
    negative,
    no_time,
    outside,
    overlapping,
    price,
    unknown_cost,
)
from taut.ledger.bill.defects.found import Found, take_out
from taut.read.focus.focus_charged import Charged
from taut.read.focus.focus_reader import Charges
from taut.result.types import Defect

CURRENCY, NO_CHARGE = "another currency", "no charge"
KINDS = (
    CURRENCY, NO_CHARGE, "time zone", unknown_cost.KIND, left_out.KIND, duplicated.KIND, negative.KIND, negative.CREDIT,
    outside.KIND, cluster.KIND, no_time.KIND, no_time.BACKWARDS, count.KIND, price.KIND, price.UNIT_PRICE, overlapping.KIND,
    commitment.KIND, "missing period", "host not in the bill",
)  # fmt: skip
"""Words of all kinds; they stay the same."""


def of_rows(rows: ChargeRows) -> list[Found]:
    """What charges show by themselves; it is taken out of them."""
    found: list[Found] = []
    for one in (unknown_cost, left_out, duplicated, negative, outside, cluster, no_time):
        found += take_out(rows, one.find(rows))
    return found


def of_hosts(rows: ChargeRows, capacity: Capacity) -> tuple[list[Found], Capacity]:
    """What charges show against what hosts have; it is taken out of them."""
    counted, capacity = count.find(rows, capacity)
    found = take_out(rows, counted)
    found += take_out(rows, price.find(rows))
    found += take_out(rows, price.unusual(rows))
    found += take_out(rows, overlapping.find(rows, capacity))
    return [*found, *commitment.find(rows)], capacity


def of_currencies(charges: Charges, chosen: Mask) -> list[Defect]:
    """Charges in other currencies than the bill's: left out, each currency by itself."""
    v = Charged(charges.table, charges.version, [], {})
    texts, code = v.words("BillingCurrency")
    found = []
    nothing = ~chosen & no_charge(v)
    if nothing.any():
        money = _sum(v.table["EffectiveCost"], v.table["BilledCost"], nothing)
        because = "neither currency nor category nor period is named: a total, or what is left of a row; not in the bill"
        found.append(
            Defect(
                kind=NO_CHARGE,
                rows=int(nothing.sum()),
                places=list(v.places(nothing)),
                money=f"{money:f}",
                currency=None,
                because=because,
            )
        )
    for one in np.unique(code[~chosen & ~nothing]).tolist():
        some = ~chosen & ~nothing & (code == one)
        money = _sum(v.table["EffectiveCost"], v.table["BilledCost"], some)
        because = f"{int(some.sum()):,} charges over {money:f} {texts[one]} were left out: no currency is added to another"
        found.append(
            Defect(
                kind=CURRENCY,
                rows=int(some.sum()),
                places=list(v.places(some)),
                money=f"{money:f}",
                currency=texts[one],
                because=because,
            )
        )
    return found


def _sum(cost: pa.ChunkedArray, other: pa.ChunkedArray, some: Mask) -> Decimal:
    total = pc.sum(pc.coalesce(cost, other).filter(pa.array(some))).as_py() or Decimal(0)
    return Decimal(total).quantize(Decimal("0.01")) if total == round(total, 2) else Decimal(total).normalize()
