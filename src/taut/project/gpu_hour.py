"""The price of an accelerator hour that somebody gives, put into a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from taut.core.errors import UsageError

# Keys of a scenario that are money, beside the price of an accelerator hour itself.
MONEY = {"kwh", "penalty", "value_per_unit", "port_price", "price", "token_price"}


def with_gpu_hour(table: Mapping[str, Any], amount: str, currency: str) -> dict[str, Any]:
    """The scenario's table with this price of an accelerator hour; refused where it has other prices in another currency."""
    price = table.get("price")
    price = dict(price) if isinstance(price, dict) else {}
    before = price.get("currency")
    fabric = table.get("fabric")
    # Ports that name their currency lose their price beside another one; nothing is added up.
    own = isinstance(fabric, dict) and fabric.get("currency")
    other = next(_money({key: one for key, one in table.items() if not (own and key == "fabric")}), None)
    if other and before and before != currency:
        raise UsageError(f"--gpu-hour is in {currency}, {other} of the scenario in {before}: give both in one currency")
    if "loops" in table:
        return {**table, "price": {**price, "currency": currency, "per_hour": float(amount)}}
    device = table.get("device")
    if isinstance(device, dict):
        device = {**device, "price_per_hour": float(amount)}
    return {**table, "device": device, "price": {**price, "currency": currency}}


def _money(value: object, place: str = "") -> Iterator[str]:
    """Keys under a value that are money."""
    if isinstance(value, dict):
        for key, one in value.items():
            where = f"{place}.{key}" if place else key
            if key in MONEY and isinstance(one, (int, float)) and one:
                yield where
            yield from _money(one, where)
    elif isinstance(value, list):
        for one in value:
            yield from _money(one, place)
