"""``prices.toml`` → Prices: strict TOML (an unknown key is refused with its line), and the CSV files that lie beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime, tzinfo
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from taut.core.errors import InputRefused
from taut.core.prices import (
    Embodied,
    Fix,
    HostFacts,
    Hourly,
    Network,
    Owned,
    PeriodBudget,
    Prices,
    PueCurve,
    PueValue,
    Rate,
    Sla,
    Triage,
)
from taut.core.strict_toml import Contradiction, Count, NotNegative, Positive, Strict, parse, place
from taut.read import hourly_file
from taut.read.config_text import load_text, parsed
from taut.read.dates import date_ns
from taut.read.table_file import csv_rows

MOST_MONEY = Decimal(10) ** 15
"""No price is more."""


class Power(Strict, frozen=True, kw_only=True):
    """What one accelerator draws, for times in which nobody measured it."""

    load_w: NotNegative | None = None
    """While it computes."""
    stall_w: NotNegative | None = None
    """While it waits inside a kernel; as under load where it is left out."""
    idle_w: NotNegative | None = None
    """While nothing runs on it; as stalled where it is left out."""
    host_w: NotNegative | None = None
    """Its share of what the host draws beside its accelerators."""


class Electricity(Strict, frozen=True, kw_only=True):
    """What a kWh costs."""

    per_kwh: Decimal | None = None
    """Money for a kWh; beside a tariff, for hours that it leaves out."""
    tariff: str | None = None
    """CSV beside this file: time, per_kwh (or per_mwh)."""
    zone: str | None = None
    """Time zone of its dates where they name none (Europe/Berlin); UTC by default."""
    in_rate: bool | None = None
    """Whether ``gpu_hour`` contains electricity: then joules get no money of their own."""


class Carbon(Strict, frozen=True, kw_only=True):
    """What a kWh and an accelerator emit, kg of CO₂ equivalents."""

    kg_per_kwh: NotNegative | None = None
    """For a kWh; beside ``intensity``, for hours that it leaves out."""
    intensity: str | None = None
    """CSV beside this file: time, kg_per_kwh (or g_per_kwh)."""
    zone: str | None = None
    """Time zone of its dates where they name none; UTC by default."""
    embodied_kg: NotNegative | None = None
    """Of making one accelerator with its share of everything around it …"""
    embodied_years: Positive | None = None
    """… and the years over which that is spread."""


class Cooling(Strict, frozen=True, kw_only=True):
    """Energy of the site over energy of what computes (PUE)."""

    pue: PueValue | None = None
    """One number; beside a curve, for hours without a temperature."""
    curve: tuple[tuple[float, PueValue], ...] | None = None
    """[°C outside, PUE], ascending: straight lines between them, level beyond."""
    temperature: str | None = None
    """CSV beside this file: time, temperature_c."""
    zone: str | None = None
    """Time zone of its dates where they name none; UTC by default."""


class Delay(Strict, frozen=True, kw_only=True):
    """What waiting for a job costs."""

    per_day: Decimal | None = None
    """What a day of delay of one job is worth."""


class Tokens(Strict, frozen=True, kw_only=True):
    """What a provider charges for a million tokens."""

    read: Decimal | None = None
    """Money for a million tokens read."""
    written: Decimal | None = None
    """Money for a million tokens written."""
    currency: str | None = None
    """Where it is another than that of all other prices."""


class Hosts(Strict, frozen=True, kw_only=True):
    """What is known of hosts beside the logs."""

    accelerators: Count | None = None
    """Accelerators of every host …"""
    accelerators_of: dict[str, Count] = msgspec.field(default_factory=dict)
    """… and of those that have another number: host = number."""
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    """Resource id of the bill = host."""
    file: str | None = None
    """CSV beside this file: resource, host, and where they are known accelerators and model."""


class PricesFile(Strict, frozen=True, kw_only=True):
    """The file. Money is written as text or number, in ``currency``."""

    currency: str | None = None
    """Three letters (ISO 4217), of all money."""
    gpu_hour: Decimal | None = None
    """Money for an hour of one accelerator, where no ``[[rate]]`` says otherwise."""
    rate: tuple[Rate, ...] = ()
    owned: Owned | None = None
    power: Power = msgspec.field(default_factory=Power)
    electricity: Electricity = msgspec.field(default_factory=Electricity)
    carbon: Carbon = msgspec.field(default_factory=Carbon)
    cooling: Cooling = msgspec.field(default_factory=Cooling)
    network: Network | None = None
    sla: tuple[Sla, ...] = ()
    triage: Triage | None = None
    delay: Delay = msgspec.field(default_factory=Delay)
    budget: PeriodBudget | None = None
    fix: tuple[Fix, ...] = ()
    tokens: Tokens = msgspec.field(default_factory=Tokens)
    hosts: Hosts = msgspec.field(default_factory=Hosts)
    teams: dict[str, str] = msgspec.field(default_factory=dict)
    """Jobs, with the wildcards of file names = their team; the first that fits counts."""


def load(path: str | Path) -> Prices:
    """The prices of a file."""
    here = Path(path)
    text = load_text(here, "give the prices, a TOML file")
    table = parsed(text, str(path), parse_float=Decimal)
    found, _ = parse(PricesFile, _contradictions, _dated(table, str(path), text), str(path), text)
    return _prices(found, here, text)


def _dated(table: dict[str, Any], label: str, text: str) -> dict[str, Any]:
    """The table with ``from`` and ``until`` of rates as ns."""
    rates = table.get("rate")
    if not isinstance(rates, list):
        return table
    rows = [{**row, **_moments(row, label, text)} if isinstance(row, dict) else row for row in rates]
    return {**table, "rate": rows}


def _moments(row: Mapping[str, Any], label: str, text: str) -> dict[str, int]:
    out = {}
    for key in ("from", "until"):
        if key not in row:
            continue
        value = row[key]
        found = date_ns(value.isoformat() if isinstance(value, (date, datetime)) else str(value))
        if found is None or isinstance(value, (int, float, Decimal)):
            raise InputRefused(
                place(label, text, f"rate.{key}"), f"rate.{key}: {str(value)[:40]!r} is no date", "write 2026-10-01"
            )
        out[key] = found[0]
    return out


def _contradictions(p: PricesFile) -> Iterator[Contradiction]:
    """What cannot be, or would do nothing."""
    for key, value in _amounts(p, ""):
        yield not value.is_finite() or not 0 <= value <= MOST_MONEY, key, f"{value} is no price", "give an amount from 0 on"
    coded = p.currency is None or (len(p.currency) == 3 and p.currency.isascii() and p.currency.isupper())
    yield not coded, "currency", f"{p.currency!r} is no code of ISO 4217", "write EUR or USD"
    money = next((key for key, value in _amounts(p, "") if value), "")
    yield bool(money) and p.currency is None, money, "money without a currency", 'give currency = "EUR"'
    for rate in p.rate:
        bare = rate.gpu_hour is None and not (rate.kind == "owned" and p.owned is not None)
        yield bare, "rate.gpu_hour", "a rate without a price", "give gpu_hour, or [owned] for kind owned"
        backwards = None not in (rate.from_ns, rate.until_ns) and (rate.from_ns or 0) >= (rate.until_ns or 0)
        yield backwards, "rate.until", "not behind from", "swap them"
        odd = rate.accelerators is not None and rate.kind != "committed"
        yield odd, "rate.accelerators", f"does nothing for kind {rate.kind}", 'give kind = "committed"'
    yield from _site_contradictions(p)


def _site_contradictions(p: PricesFile) -> Iterator[Contradiction]:
    owned, c, e = p.owned, p.cooling, p.carbon
    yield (
        owned is not None and owned.residual_value > owned.purchase_price,
        "owned.residual_value",
        "above the price",
        "correct it",
    )
    curve = c.curve or ()
    yield c.curve is not None and len(curve) < 2, "cooling.curve", "needs two points or more", "give [[0, 1.1], [30, 1.4]]"
    yield any(later[0] <= one[0] for one, later in pairwise(curve)), "cooling.curve", "not ascending", "sort it by temperature"
    apart = (c.curve is None) != (c.temperature is None)
    yield apart, "cooling.curve" if c.curve else "cooling.temperature", "one without the other", "give curve and temperature"
    half = (e.embodied_kg is None) != (e.embodied_years is None)
    yield half, "carbon.embodied_kg", "needs the years over which it is spread", "give embodied_kg and embodied_years"
    for one in p.sla:
        empty = one.promise_hours is None and one.promise_availability is None
        yield empty, "sla.promise_hours", "a penalty without a promise", "give promise_hours or promise_availability"
    fallow = p.power.load_w is None and not (p.power.stall_w is None and p.power.idle_w is None)
    yield fallow, "power.load_w", "missing beside the other powers", "give load_w"


def _amounts(value: object, path: str) -> Iterator[tuple[str, Decimal]]:
    """All money under a value, with its key."""
    if isinstance(value, Decimal):
        yield path, value
    elif isinstance(value, Struct):
        for one in msgspec.structs.fields(value):
            yield from _amounts(getattr(value, one.name), f"{path}.{one.encode_name}".lstrip("."))
    elif isinstance(value, tuple):
        for each in value:
            yield from _amounts(each, path)


def _prices(p: PricesFile, path: Path, text: str) -> Prices:
    def series(table: str, key: str, file: str | None, zone: str | None, columns: Mapping[str, float]) -> Hourly | None:
        where = place(str(path), text, f"{table}.{key}")
        return None if file is None else hourly_file.load(_beside(path, file, where), columns, _zone(zone, where))

    e, c, k = p.electricity, p.carbon, p.cooling
    outside = series("cooling", "temperature", k.temperature, k.zone, hourly_file.TEMPERATURE)
    embodied = None if c.embodied_kg is None or c.embodied_years is None else Embodied(kg=c.embodied_kg, years=c.embodied_years)
    priced = Prices(
        p.gpu_hour,
        p.currency,
        p.power.load_w,
        p.power.stall_w,
        p.power.idle_w,
        c.kg_per_kwh,
        p.tokens.read,
        p.tokens.written,
        p.tokens.currency or (p.currency if p.tokens.read is not None else None),
        rates=p.rate,
        owned=p.owned,
        host_w=p.power.host_w,
        kwh=e.per_kwh,
        electricity_in_rate=e.in_rate,
        tariff=series("electricity", "tariff", e.tariff, e.zone, hourly_file.TARIFF),
        carbon=series("carbon", "intensity", c.intensity, c.zone, hourly_file.CARBON),
        embodied=embodied,
        pue=k.pue,
        cooling=None if outside is None or k.curve is None else PueCurve(k.curve, outside),
        network=p.network,
        sla=p.sla,
        triage=p.triage,
        delay_per_day=p.delay.per_day,
        budget=p.budget,
        fixes=p.fix,
        teams=tuple(p.teams.items()),
        origin=path.name,
    )
    return replace(priced, hosts=_hosts(p.hosts, path, text))


def _beside(path: Path, file: str, where: str) -> Path:
    """A file that lies beside the prices; names that lead elsewhere are refused."""
    if not file or Path(file).is_absolute() or ".." in Path(file).parts or "\0" in file:
        raise InputRefused(where, f"{file[:80]!r} does not lie beside the prices", "give the name of a file beside them")
    return path.parent / file


def _zone(name: str | None, where: str) -> tzinfo | None:
    if name is None:
        return None
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        why = f"no time zone {name[:40]!r} is known here"
        raise InputRefused(where, why, "write it like Europe/Berlin, or dates with their offset from UTC") from None


def _hosts(p: Hosts, path: Path, text: str) -> HostFacts:
    """Hosts as the table and its file have them; the table counts where both speak."""
    resources, numbers, models = dict[str, str](), dict[str, int](), dict[str, str]()
    file = None if p.file is None else _beside(path, p.file, place(str(path), text, "hosts.file"))
    rows = [] if file is None else csv_rows(load_text(file, "give the hosts of one cluster", 64 << 20), str(file))
    for line, row in rows:
        cells = {key: str(cell).strip() for key, cell in row.items()}
        if not cells.get("host"):
            raise InputRefused(f"{file}:{line}", "no host", "columns needed: resource, host")
        if cells.get("resource"):
            resources[cells["resource"]] = cells["host"]
        if count := cells.get("accelerators"):
            numbers[cells["host"]] = _count(count, f"{file}:{line}")
        if cells.get("model"):
            models[cells["host"]] = cells["model"]
    return HostFacts(resources | p.resources, p.accelerators, numbers | p.accelerators_of, models)


def _count(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= 10**6):
        raise InputRefused(where, f"{text[:40]!r} is no number of accelerators", "give a whole number")
    return int(text)
