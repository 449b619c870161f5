"""Prices that somebody gives, put into a scenario: an accelerator hour, or all that a file of prices has a key of it for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from taut.core.errors import UsageError
from taut.core.prices import Prices

# Keys of a scenario that are money, beside the price of an accelerator hour itself.
MONEY = {"kwh", "penalty", "value_per_unit", "port_price", "price", "token_price"}


def with_gpu_hour(table: Mapping[str, Any], amount: str, currency: str) -> dict[str, Any]:
    """The scenario's table with this price of an accelerator hour; refused where it has other prices in another currency."""
    return with_prices(table, Prices(Decimal(amount), currency), "--gpu-hour is")


def with_prices(table: Mapping[str, Any], prices: Prices, named: str = "--prices are") -> dict[str, Any]:
    """The scenario's table with what the prices give; refused where other money of it is in another currency.

    Of rates only that which counts for any host does, of a tariff or carbon by the hour the constant beside it.
    """
    price = table.get("price")
    price = dict(price) if isinstance(price, dict) else {}
    loops, device = "loops" in table, table.get("device")
    given = _without_none(_pool(prices) if loops else _site(prices))
    before, currency = price.get("currency"), prices.currency
    other = next((key for key in _money(_in_scenario(table)) if key not in {f"price.{one}" for one in given}), None)
    if other and before and currency and before != currency:
        raise UsageError(f"{named} in {currency}, {other} of the scenario in {before}: give both in one currency")
    hour = _number(prices.base_rate)
    if loops:
        return {**table, "price": {**price, **given, **_without_none({"per_hour": hour})}}
    if isinstance(device, dict):
        device = {**device, **_without_none({"price_per_hour": hour, "load_w": prices.load_w, "stall_w": prices.stall_w})}
    return {**table, "device": device, "price": {**price, **given}}


def _site(prices: Prices) -> dict[str, object]:
    """What the table ``price`` of a scenario and prices have in common, under the same names."""
    return {
        "currency": prices.currency, "kwh": _number(prices.kwh), "kg_co2e_per_kwh": prices.kg_co2e_per_kwh,
        "pue": prices.pue, "host_w": prices.host_w,
    }  # fmt: skip


def _pool(prices: Prices) -> dict[str, object]:
    """The same of a scenario of control loops."""
    return {
        "currency": prices.currency, "pue": prices.pue, "host_w": prices.host_w, "load_w": prices.load_w,
        "stall_w": prices.stall_w,
    }  # fmt: skip


def _in_scenario(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table without ports that name their own currency: beside another one they lose their price, nothing is added up."""
    fabric = table.get("fabric")
    own = isinstance(fabric, dict) and fabric.get("currency")
    return {key: one for key, one in table.items() if not (own and key == "fabric")}


def _without_none(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}


def _number(value: Decimal | None) -> float | None:
    """Money as a scenario has it."""
    return None if value is None else float(value)


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
