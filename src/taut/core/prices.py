"""Prices: what accelerator time, energy, carbon, waiting and repairs cost, as options, a scenario or ``prices.toml`` give it.

Every field is optional: what is None stays unpriced, and ``missing`` names it. Money is Decimal, in one currency.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from taut.core.array_types import Floats, Ints
from taut.core.strict_toml import Count, NotNegative, Positive, Share, Some, Strict

HOURS_PER_YEAR = 8760
"""Hours over which what is paid by the year is spread: 365 days."""
MONEY_UNIT = Decimal("0.000001")
"""The smallest amount that is shown, in units of the currency."""

RateKind = Literal["list", "committed", "spot", "owned"]


class Rate(Strict, frozen=True, kw_only=True):
    """What an hour of an accelerator costs on some hosts, for some time. The first rate of the file that fits counts."""

    kind: RateKind = "list"
    """How it is bought: at list price, committed, spot, or owned (then ``gpu_hour`` comes from ``owned`` unless given)."""
    gpu_hour: Decimal | None = None
    """Money for an hour of one accelerator."""
    hosts: str = "*"
    """Hosts that it counts for, with the wildcards of file names."""
    model: str = "*"
    """Models of accelerators, the same way; hosts have theirs from ``hosts.file``."""
    from_ns: int | None = msgspec.field(name="from", default=None)
    """First moment: a date, with a time or without; UTC unless it names a zone."""
    until_ns: int | None = msgspec.field(name="until", default=None)
    """Moment behind the last."""
    accelerators: Count | None = None
    """Of kind ``committed``: accelerators that are paid for whether they are used or not."""


class Owned(Strict, frozen=True, kw_only=True):
    """Accelerators that were bought: their hour is what is written off, plus space and people. Energy is not in it."""

    purchase_price: Decimal
    """Of one accelerator with its share of host, network and racks."""
    years: Positive
    """Years until it is written off …"""
    residual_value: Decimal = Decimal(0)
    """… and what it is worth then."""
    space_per_year: Decimal = Decimal(0)
    """Room, racks and cooling plant for one accelerator, a year."""
    people_per_year: Decimal = Decimal(0)
    """People who run it, for one accelerator, a year."""

    @property
    def gpu_hour(self) -> Decimal:
        """(purchase − residual) ÷ years, plus space and people, over the hours of a year."""
        written_off = (self.purchase_price - self.residual_value) / Decimal(str(self.years))
        return (written_off + self.space_per_year + self.people_per_year) / HOURS_PER_YEAR


class Network(Strict, frozen=True, kw_only=True):
    """What the network draws, of itself and for every bit, and what another one would cost."""

    ports: Some | None = None
    """Ports that are powered: both ends of every cable …"""
    port_w: NotNegative | None = None
    """… and the power of each, with its share of adapter and switch."""
    pj_per_bit: NotNegative | None = None
    """Energy of moving a bit, beyond what ports and accelerators draw anyway, pJ."""
    port_price: Decimal | None = None
    """What a port costs, with its share of cable, adapter and switch: then another fabric has a price."""


class Sla(Strict, frozen=True, kw_only=True):
    """One promise to those whose jobs run, and what breaking it costs."""

    jobs: str = "*"
    """Jobs that it was made for, with the wildcards of file names."""
    promise_hours: Positive | None = None
    """Promise: a job ends so many hours after it was submitted."""
    promise_availability: Share | None = None
    """Promise: this share of the time that a job holds accelerators is not lost to failures."""
    penalty: Decimal | None = None
    """Money for each job whose promise is broken …"""
    penalty_per_hour: Decimal | None = None
    """… and for every hour beyond the promise."""


class Triage(Strict, frozen=True, kw_only=True):
    """Hours that people spend on finding what is wrong."""

    hours: NotNegative | None = None
    """In the period of the bill."""
    per_hour: Decimal | None = None
    """What an hour of theirs costs."""


class PeriodBudget(Strict, frozen=True, kw_only=True):
    """What may be spent."""

    amount: Decimal
    per: Literal["day", "month", "year", "period"] = "month"
    """Time that it is for; ``period``: the bill's, however long."""


class Fix(Strict, frozen=True, kw_only=True):
    """What mending something costs: then the bill says when that is earned back."""

    kind: Literal["repair", "policy", "fabric", "spare"]
    """What is done."""
    name: str = "*"
    """What it mends, with the wildcards of file names: id or mode of a finding, its rank (``rank 3``) or host, the policy."""
    price: Decimal = Decimal(0)
    """Once."""
    per_month: Decimal = Decimal(0)
    """And every month of 30 days."""


class Embodied(Strict, frozen=True, kw_only=True):
    """Carbon of making an accelerator with its share of everything around it."""

    kg: NotNegative
    years: Positive
    """Years over which it is spread."""


class Hourly(Struct, frozen=True, dict=True):
    """A value by time: each holds from its begin up to its end; between an end and the next begin nothing is known."""

    label: str
    """The file that tells it."""
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    value: tuple[float, ...]

    @cached_property
    def edges(self) -> tuple[Ints, Ints, Floats]:
        """Begins, ends and values as arrays."""
        return np.array(self.start_ns, np.int64), np.array(self.end_ns, np.int64), np.array(self.value, np.float64)


PueValue = Annotated[float, Meta(ge=1, le=100)]


class PueCurve(Struct, frozen=True):
    """PUE by the temperature outside: straight lines between its points, level beyond them."""

    points: tuple[tuple[float, float], ...]
    """(°C, PUE), ascending."""
    temperature: Hourly


class HostFacts(Struct, frozen=True):
    """What is known of hosts beside the logs."""

    resources: dict[str, str] = msgspec.field(default_factory=dict)
    """Resource id of a bill → host."""
    accelerators: int | None = None
    """Accelerators of every host …"""
    accelerators_of: dict[str, int] = msgspec.field(default_factory=dict)
    """… and of those that have another number."""
    model_of: dict[str, str] = msgspec.field(default_factory=dict)
    """Host → model of its accelerators."""


@dataclass(frozen=True)
class Prices:
    """Rates given by the user; what is None stays unpriced."""

    gpu_hour: Decimal | None = None
    """Money for an hour of one accelerator, where no rate says otherwise."""
    currency: str | None = None
    load_w: float | None = None
    stall_w: float | None = None
    idle_w: float | None = None
    kg_co2e_per_kwh: float | None = None
    tokens_in: Decimal | None = None
    """Price of a million tokens read."""
    tokens_out: Decimal | None = None
    """Price of a million tokens written."""
    token_currency: str | None = None
    rates: tuple[Rate, ...] = ()
    owned: Owned | None = None
    host_w: float | None = None
    """Power of a host without its accelerators, for each of them."""
    kwh: Decimal | None = None
    """Money for a kWh, where the tariff is silent."""
    tariff: Hourly | None = None
    """Money for a kWh by the hour."""
    electricity_in_rate: bool | None = None
    """Whether what an accelerator hour costs contains its electricity; None: nobody told."""
    carbon: Hourly | None = None
    """kg of CO₂ equivalents for a kWh by the hour; ``kg_co2e_per_kwh`` where it is silent."""
    embodied: Embodied | None = None
    pue: float | None = None
    """Energy of the site over energy of what computes, where no temperature is known."""
    cooling: PueCurve | None = None
    network: Network | None = None
    sla: tuple[Sla, ...] = ()
    triage: Triage | None = None
    delay_per_day: Decimal | None = None
    """What a day of delay of one job is worth."""
    budget: PeriodBudget | None = None
    fixes: tuple[Fix, ...] = ()
    hosts: HostFacts = field(default_factory=HostFacts)
    teams: tuple[tuple[str, str], ...] = ()
    """(jobs, with the wildcards of file names; their team): the first that fits counts."""
    origin: str = "options"
    """Who gave them: a file, or options."""
    notes: tuple[str, ...] = ()
    """What was decided on reading them."""

    def tokens(self, read: int | None, written: int | None) -> str | None:
        """Money for some tokens, six decimals; None without a price or without a count."""
        if self.tokens_in is None or self.tokens_out is None or (read is None and written is None):
            return None
        return amount((self.tokens_in * (read or 0) + self.tokens_out * (written or 0)) / 1_000_000)

    @property
    def watts(self) -> dict[str, float] | None:
        """Power of a rank by the class of power of its fate; None where no power is given."""
        if self.load_w is None:
            return None
        stall = self.load_w if self.stall_w is None else self.stall_w
        return {"load": self.load_w, "stall": stall, "idle": stall if self.idle_w is None else self.idle_w}

    @property
    def base_rate(self) -> Decimal | None:
        """An accelerator hour where no rate says otherwise: as given, else as owned ones cost."""
        return self.gpu_hour if self.gpu_hour is not None else self.owned.gpu_hour if self.owned is not None else None

    @property
    def electricity_apart(self) -> bool | None:
        """Whether electricity is paid beside the accelerator hour; None where nobody told. Of owned ones it always is."""
        if self.electricity_in_rate is not None:
            return not self.electricity_in_rate
        bought = self.gpu_hour is not None or any(rate.kind != "owned" for rate in self.rates)
        return True if self.owned is not None and not bought else None

    def missing(self) -> list[str]:
        """What was not given, and what that leaves unknown, one line each."""
        priced = self.base_rate is not None or bool(self.rates)
        lines = {
            "gpu_hour: accelerator time without a charge has no price (gpu_hour, [[rate]] or [owned])": not priced,
            "power: energy is known only where it was measured ([power] load_w, stall_w, idle_w)": self.load_w is None,
            "electricity: joules have no price ([electricity] per_kwh or tariff)": self.kwh is None and self.tariff is None,
            "electricity.in_rate: whether gpu_hour contains electricity is not told, so it is taken as inside":
                self.electricity_apart is None and (self.kwh is not None or self.tariff is not None),
            "carbon: joules have no kg CO2e ([carbon] kg_per_kwh or intensity)":
                self.kg_co2e_per_kwh is None and self.carbon is None,
            "carbon.embodied_kg: no carbon of making, so no SCI": self.embodied is None,
            "cooling: energy of cooling is not in it ([cooling] pue, or curve and temperature)":
                self.pue is None and self.cooling is None,
            "network: energy of ports and of bytes moved is not in it ([network] ports, port_w, pj_per_bit)":
                self.network is None,
            "sla: broken promises cost nothing here ([[sla]] promise_hours or promise_availability, penalty)": not self.sla,
            "triage: hours of people are not in it ([triage] hours, per_hour)": self.triage is None,
            "delay.per_day: waiting in a queue has no price": self.delay_per_day is None,
            "budget: nothing to compare with ([budget] amount)": self.budget is None,
            "fix: no payback, as no repair has a price ([[fix]])": not self.fixes,
        }  # fmt: skip
        return [line for line, absent in lines.items() if absent]


def amount(value: Decimal) -> str:
    """Money as it is shown: six decimals."""
    return str(value.quantize(MONEY_UNIT, rounding=ROUND_HALF_EVEN))
