"""A cluster of three kinds of hosts for a month: who held it, what it was charged, and where the money went.

Shares no code with taut. Times are whole seconds since 1970, money is ``Decimal``, shares are ``Fraction``.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

HOUR = 3600
DAY = 86400
ENDS = ["node failed", "preempted", "failed", "requeued"]


def at(text: str) -> int:
    """Seconds of an ISO date in UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


Result = dict[str, Any]
BEGIN, END = at("2026-10-01"), at("2026-11-01")


@dataclass(frozen=True)
class Host:
    """A host, what it has, what an hour of it costs, and when it was there."""

    name: str
    gpus: int
    model: str
    pool: str
    hour: Decimal
    on: tuple[tuple[int, int], ...]

    @property
    def resource(self) -> str:
        return f"vm-{int.from_bytes(self.name.encode(), 'big') % 10**12:012d}"


@dataclass(frozen=True)
class Attempt:
    """Accelerators of some hosts, held for a time."""

    job: str
    number: int
    start: int
    end: int
    gpus: int
    hosts: tuple[str, ...]
    team: str
    outcome: str
    last: bool

    @property
    def category(self) -> str:
        kept = self.last and self.outcome == "completed"
        return "useful work" if kept else "re-runs and discarded work"


@dataclass(frozen=True)
class Charge:
    """A row of the bill, with what is true of it."""

    what: str
    start: int
    end: int
    billed: Decimal
    effective: Decimal
    host: Host | None = None
    quantity: Decimal = Decimal(1)
    unit: str = "Hours"
    price: Decimal | None = None
    gpus: int = 0
    sku: str = ""
    resource: str | None = None
    category: str = "Usage"
    correction: bool = False
    pricing: str = "Standard"
    status: str | None = None
    commitment: str | None = None
    bought: Decimal | None = None
    service: str = "Compute"
    team: str | None = None
    account: str = "sub-1"
    currency: str | None = None
    invoice: str = "INV-10"
    billing: tuple[int, int] = (BEGIN, END)


@dataclass(frozen=True)
class Style:
    """How a provider writes."""

    version: str = "1.2"
    form: str = "csv"
    unit: str = "Hours"
    currency: str = "EUR"
    decimals: int = 10
    grain: int = HOUR
    zone: str = "UTC"
    named_by: str = "name"
    begin: int = BEGIN
    end: int = END


@dataclass
class Month:
    """A cluster's month."""

    hosts: list[Host]
    attempts: list[Attempt]
    charges: list[Charge] = field(default_factory=list)


def cluster(scale: Decimal = Decimal(1), begin: int = BEGIN, end: int = END) -> list[Host]:
    """Six hosts of one accelerator, five of four (two of them spot), four of eight that are reserved; some come and go."""
    whole = ((begin, end),)
    spot = (
        ((begin, begin + 6 * DAY + 5 * HOUR + 1234), (begin + 9 * DAY + 777, end)),
        ((begin + 2 * DAY + 3 * HOUR, begin + 25 * DAY + 11 * HOUR + 59),),
    )
    late = ((begin + 11 * DAY + 13 * HOUR + 37 * 60 + 20, end),)
    small = [Host(f"a1-{n:02d}", 1, "L40S", "list", Decimal("1.85") * scale, whole) for n in range(1, 7)]
    middle = [Host(f"b4-{n:02d}", 4, "A100", "list", Decimal("9.20") * scale, whole) for n in range(1, 4)]
    cheap = [Host(f"b4-{n:02d}", 4, "A100", "spot", Decimal("3.40") * scale, on) for n, on in zip((4, 5), spot, strict=True)]
    pool = [Host(f"c8-{n:02d}", 8, "H100", "reserved", Decimal("14.40") * scale, whole) for n in range(1, 4)]
    return [*small, *middle, *cheap, *pool, Host("c8-04", 8, "H100", "reserved", Decimal("14.40") * scale, late)]


def schedule(rng: random.Random, hosts: list[Host], overhang: int = 6 * HOUR) -> list[Attempt]:
    """Jobs on whole hosts, on two hosts at once, and on halves of a host; some start again, some cross both ends."""
    found: list[Attempt] = []
    pair = [host for host in hosts if host.name in ("c8-01", "c8-02")]
    groups = [pair] if pair else []
    groups += [[host] for host in hosts if host not in pair]
    for group in groups:
        for start, end in group[0].on:
            found += _stretch(rng, group, start, end, overhang, len(found))
    return found


def _stretch(rng: random.Random, group: list[Host], start: int, end: int, over: int, seen: int) -> list[Attempt]:
    whole = end - start > 30 * DAY  # others were not there before they came, or after they left
    now = start - rng.randrange(over) if whole else start
    stop = end + rng.randrange(over) if whole else end
    found: list[Attempt] = []
    while now < stop - 600:
        draw = rng.random()
        job = f"{group[0].name.replace('-', '')}{seen + len(found):04d}"
        if draw < 0.15:
            now += rng.randrange(600, 9 * HOUR)
        elif draw < 0.4 and len(group) == 1 and group[0].gpus > 1:
            half = [_job(rng, job + side, group, group[0].gpus // 2, now, stop) for side in "xy"]
            found += half[0] + half[1]
            now = max(row.end for row in found[-len(half[0]) - len(half[1]) :])
        else:
            rows = _job(rng, job, group, sum(host.gpus for host in group), now, stop)
            found += rows
            now = rows[-1].end
    return found


def _job(rng: random.Random, job: str, group: list[Host], gpus: int, now: int, stop: int) -> list[Attempt]:
    team = rng.choice(["vision", "speech"])
    spans: list[tuple[int, int]] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if now < stop - 120:
            spans.append((now, min(stop, now + 300 + int(rng.expovariate(1 / (7 * HOUR))))))
            now = spans[-1][1] + rng.choice([0, 45, 1800])
    final = rng.choices(["completed", "failed", "cancelled"], [17, 2, 1])[0]
    ends = [rng.choice(ENDS) for _ in spans[:-1]] + [final]
    names = tuple(host.name for host in group)
    return [
        Attempt(job, n + 1, a, b, gpus, names, team, outcome, n + 1 == len(spans))
        for n, ((a, b), outcome) in enumerate(zip(spans, ends, strict=True))
    ]


def rounded(value: Decimal | Fraction, decimals: int) -> Decimal:
    """To so many decimals, half to even."""
    scale = 10**decimals
    return Decimal(round(Fraction(value) * scale)).scaleb(-decimals)


def charges_of(rng: random.Random, host: Host, style: Style) -> list[Charge]:
    """The host's rows, one for each hour or day (of its provider's clock) that it was on."""
    rows = []
    daily: dict[int, Decimal] = defaultdict(lambda: Decimal(1) + Decimal(rng.randrange(-(10**6), 10**6)) / Decimal(10**7))
    for first, last in host.on:
        now = first
        while now < last:
            then = min(last, (now // style.grain + 1) * style.grain)
            rows.append(_charge(host, style, now, then, daily[now // DAY] if host.pool == "spot" else Decimal(1)))
            now = then
    return rows


def _charge(host: Host, style: Style, now: int, then: int, factor: Decimal) -> Charge:
    units = {"Hours": Fraction(1, HOUR), "Seconds": Fraction(1), "GPU-Hours": Fraction(host.gpus, HOUR)}[style.unit]
    quantity = rounded((then - now) * units, 10)
    per_unit = rounded(Fraction(host.hour * factor) / (units * HOUR), 10)
    effective = rounded(Fraction(per_unit) * Fraction(quantity), style.decimals)
    shared = host.pool == "reserved"
    return Charge(
        f"{host.gpus} x {host.model} {host.pool}", now, then, Decimal(0) if shared else effective, effective, host, quantity,
        style.unit, per_unit if not shared else per_unit * 2, host.gpus, f"sku-{host.model}-{host.pool}", host.resource,
        pricing={"list": "Standard", "spot": "Dynamic", "reserved": "Committed"}[host.pool],
        status="Used" if shared else None, commitment="plan-h100" if shared else None,
        bought=quantity if shared else None,
    )  # fmt: skip


def unused(host: Host, style: Style) -> list[Charge]:
    """What was reserved for a host before it was there, by the day."""
    rows = []
    now = style.begin
    while now < host.on[0][0]:
        then = min(host.on[0][0], now + DAY)
        row = _charge(host, style, now, then, Decimal(1))
        rows.append(Charge(**{**row.__dict__, "host": None, "resource": "plan-h100", "status": "Unused", "what": "unused"}))
        now = then
    return rows


def around(style: Style, scale: Decimal, reserved: Decimal, hours: Decimal) -> list[Charge]:
    """The plan's purchase, storage, network, a login host, a tax, a credit, a refund and a correction of September."""

    def money(text: str) -> Decimal:
        return rounded(Decimal(text) * scale, style.decimals)

    a, b = style.begin, style.end
    days = [(a + n * DAY, a + (n + 1) * DAY) for n in range((b - a) // DAY)]
    disk = money("12.3456789012")
    rows = [
        Charge(
            "disks", x, y, disk, disk, None, Decimal(1), "Days", disk, 0, "sku-disk", "disk-7", service="Storage", team="vision"
        )
        for x, y in days
    ]
    net = money("317.1122334455")
    login = money("0.21")
    back, credit, tax, one = money("-41.5"), money("-250"), money("1234.5678901234"), Decimal(1)
    plan = Charge("one year, by the month", a, b, reserved, Decimal(0), None, Decimal(1), "Months", reserved, 0, "sku-plan",
                  "plan-h100", "Purchase", commitment="plan-h100", bought=hours, pricing="Standard")  # fmt: skip
    before = (a - 5 * DAY, a - 4 * DAY)
    return [
        *rows,
        plan,
        Charge("egress", a, b, net, net, None, Decimal(1), "GB", net, 0, "sku-net", "vpc-1", service="Networking"),
        *[Charge("login host", x, y, login * 24, login * 24, None, Decimal(24), "Hours", login, 0, "sku-login", "vm-login",
                 invoice="INV-11") for x, y in days],
        Charge("refund of September", *before, back, back, None, Decimal(1), "Hours", None, 0, "sku-A100-list",
               correction=True),
        Charge("goodwill", a, b, credit, credit, None, one, "", None, 0, "", None, "Credit", service="Other"),
        Charge("value added tax", a, b, tax, tax, None, one, "", None, 0, "", None, "Tax", service="Other", invoice="INV-11"),
    ]  # fmt: skip


def month(seed: int, style: Style, scale: Decimal = Decimal(1)) -> Month:
    """Everything together."""
    rng = random.Random(seed)
    hosts = cluster(scale, style.begin, style.end)
    made = Month(hosts, schedule(rng, hosts))
    for host in hosts:
        made.charges += charges_of(rng, host, style)
    made.charges += unused(hosts[-1], style)
    plan = [row for row in made.charges if row.commitment]
    paid = sum((row.effective for row in plan), Decimal(0))
    made.charges += around(style, scale, paid, sum((row.bought or Decimal(0) for row in plan), Decimal(0)))
    return made


@dataclass
class Truth:
    """Where the money of a bill went."""

    category: dict[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    team: dict[str | None, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    job: dict[str | None, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    host: dict[str | None, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    day: dict[str | None, Fraction] = field(default_factory=lambda: defaultdict(Fraction))

    def book(self, money: Fraction, category: str, job: str | None, team: str | None, host: str | None) -> None:
        self.category[category] += money
        self.team[team] += money
        self.job[job] += money
        self.host[host] += money


def truth_of(attempts: list[Attempt], charges: list[Charge], period: tuple[int, int] | None = None) -> Truth:
    """Each charge to those who held its host, by accelerators and seconds; what nobody held is idle."""
    by_day: dict[tuple[str, int], list[Attempt]] = defaultdict(list)
    for row in attempts:
        for name in row.hosts:
            for day in range(row.start // DAY, row.end // DAY + 1):
                by_day[name, day].append(row)
    found = Truth()
    for charge in charges:
        cut, share = _cut(charge, period)
        money = Fraction(charge.effective) * share
        _days(found, cut, money)
        if charge.host is None:
            team = charge.team if charge.status is None else None
            found.book(money, _service(charge), None, team, None)
            continue
        left = money
        days = range(cut[0] // DAY, cut[1] // DAY + 1)
        for row in dict.fromkeys(row for day in days for row in by_day.get((charge.host.name, day), [])):
            held = max(0, min(cut[1], row.end) - max(cut[0], row.start))
            if held:
                part = money * Fraction(row.gpus, len(row.hosts) * charge.host.gpus) * Fraction(held, cut[1] - cut[0])
                found.book(part, row.category, row.job, row.team, charge.host.name)
                left -= part
        found.book(left, "over-provisioning", None, None, charge.host.name)
    return found


def _cut(charge: Charge, period: tuple[int, int] | None) -> tuple[tuple[int, int], Fraction]:
    if period is None or charge.correction:
        return (charge.start, charge.end), Fraction(1)
    a, b = max(charge.start, period[0]), min(charge.end, period[1])
    return (a, b), Fraction(max(0, b - a), charge.end - charge.start)


def _days(found: Truth, cut: tuple[int, int], money: Fraction) -> None:
    now = cut[0]
    while now < cut[1]:
        then = min(cut[1], (now // DAY + 1) * DAY)
        found.day[datetime.fromtimestamp(now, UTC).date().isoformat()] += money * Fraction(then - now, cut[1] - cut[0])
        now = then


def _service(charge: Charge) -> str:
    if charge.status == "Unused":
        return "over-provisioning"
    return "corrections and credits" if charge.correction or charge.category == "Credit" else "services"


@dataclass(frozen=True)
class Planted:
    """A defect: one of these kinds, and its amount."""

    kinds: tuple[str, ...]
    money: Fraction | Decimal
    currency: str | None = None


@dataclass
class Case:
    """What is asked, and what is right."""

    args: list[str]
    charges: list[Charge] | None = None
    truth: Truth | None = None
    planted: list[Planted] = field(default_factory=list)
    out: Fraction | Decimal = Fraction(0)
    effective: Fraction | None = None
    exit: int = 0
    drill: tuple[str, ...] = ("team", "job", "host", "day")
    unmatched: Fraction | Decimal = Fraction(0)
    open: bool = False
    figures: dict[str, Fraction | float] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    any_defects: bool = False
    may_refuse: bool = False
    test: Callable[[Result], str | None] | None = None
