"""Two jobs of one host and the bill of their two hours."""

from __future__ import annotations

from focus_bills import usage

SACCT = """JobID|Account|State|Submit|Start|End|AllocTRES|NodeList
1|vision|NODE_FAIL|2026-10-05T09:00:00|2026-10-05T10:00:00|2026-10-05T10:30:00|gres/gpu=8|node1
1|vision|COMPLETED|2026-10-05T10:30:00|2026-10-05T10:30:00|2026-10-05T11:00:00|gres/gpu=8|node1
2|speech|COMPLETED|2026-10-05T11:00:00|2026-10-05T11:00:00|2026-10-05T12:00:00|gres/gpu=4|node1
"""
HOURS = [
    usage("1.2", ChargePeriodStart=f"2026-10-05T{hour}:00:00Z", ChargePeriodEnd=f"2026-10-05T{hour + 1}:00:00Z",
          ConsumedQuantity="1", PricingQuantity="1", ListUnitPrice="20.00", ContractedUnitPrice="20.00")
    for hour in (10, 11)
]  # fmt: skip
