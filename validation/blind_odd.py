"""The cases of ``bill_blind.py`` without a bill (prices, energy, tariffs, promises), and bills that are healthy but odd."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from blind_files import Zone, write_bill, write_jobs, write_prices
from blind_month import BEGIN, DAY, END, HOUR, Attempt, Case, Charge, Month, Planted, Style, Truth, at, month, truth_of

Make = Callable[[Path, int], Case]
MISSING = "9223372036854775794"


def _held(known: Month, price: Callable[[str, int], Fraction], cuts: tuple[int, ...] = ()) -> Truth:
    """Accelerator hours in October at the price of host and time."""
    found = Truth()
    edges = [BEGIN, *cuts, END]
    for row in known.attempts:
        for name in row.hosts:
            for a, b in itertools.pairwise(edges):
                seconds = max(0, min(b, row.end) - max(a, row.start)) * row.gpus // len(row.hosts)
                found.book(Fraction(seconds, HOUR) * price(name, a), row.category, row.job, row.team, name)
    return found


def one_price(folder: Path, seed: int) -> Case:
    known = month(seed, Style())
    jobs = write_jobs(folder / "jobs.csv", known.attempts)
    truth = _held(known, lambda host, when: Fraction("1.234567"))
    total = sum(truth.category.values(), Fraction(0))
    args = [str(jobs), "--gpu-hour", "1.234567EUR", "--period", "2026-10"]
    return Case(args, truth=truth, drill=("team", "job", "host"), figures={"accrual.ledger": total})


RATES = """gpu_hour = "2.00"
[[rate]]
kind = "committed"
gpu_hour = "1.90"
hosts = "c8-*"
accelerators = 32
[[rate]]
kind = "spot"
gpu_hour = 0.95
hosts = "b4-0[45]"
until = 2026-10-15
"""


def rates(folder: Path, seed: int) -> Case:
    known = month(seed, Style())
    jobs = write_jobs(folder / "jobs.csv", known.attempts)
    prices = write_prices(folder / "prices.toml", known.hosts, Style(), RATES)

    def price(host: str, when: int) -> Fraction:
        if host.startswith("c8"):
            return Fraction("1.90")
        return Fraction("0.95") if host in ("b4-04", "b4-05") and when < at("2026-10-15") else Fraction(2)

    truth = _held(known, price, (at("2026-10-15"),))
    used = sum((money for host, money in truth.host.items() if host and host.startswith("c8")), Fraction(0))
    spare = 32 * 744 * Fraction("1.90") - used
    truth.book(spare, "over-provisioning", None, None, None)
    args = [str(jobs), "--prices", str(prices), "--period", "2026-10"]
    return Case(args, truth=truth, drill=("team", "job", "host"), figures={"lines[item=unused commitment].money": spare})


def owned(folder: Path, seed: int) -> Case:
    """An hour costs (43,800 ÷ 5 + 876) ÷ 8760 = 1.1; forty of a hundred minutes were done again."""
    (folder / "jobs.csv").write_text(
        "job,attempt,start,end,gpus,nodes,outcome,first_step,last_step,resumed_step,checkpoint_step\n"
        "a,1,2026-10-05T10:00:00Z,2026-10-05T11:40:00Z,8,c8-01,node failed,1,100,,60\n"
        "a,2,2026-10-05T12:00:00Z,2026-10-05T13:30:00Z,8,c8-01,completed,61,150,60,150\n"
    )
    (folder / "prices.toml").write_text(
        'currency = "EUR"\n[owned]\npurchase_price = "43800"\nyears = 5\nresidual_value = "0"\npeople_per_year = "876"\n'
    )
    figures: dict[str, Fraction | float] = {
        "categories[name=useful work].money": 8 * Fraction(150, 60) * Fraction("1.1"),
        "categories[name=re-runs and discarded work].money": 8 * Fraction(40, 60) * Fraction("1.1"),
    }
    return Case([str(folder / "jobs.csv"), "--prices", str(folder / "prices.toml")], figures=figures)


def _one_job(folder: Path, start: str, end: str, gpus: int, host: str) -> str:
    a, b = at(start), at(end)
    return str(write_jobs(folder / "jobs.csv", [Attempt("solo", 1, a, b, gpus, (host,), "vision", "completed", True)]))


def wrapped(folder: Path, seed: int) -> Case:
    """500 W a board; the counter begins again at 0 every 262,144 J, which its limit says."""
    jobs = _one_job(folder, "2026-10-05T10:00", "2026-10-05T12:00", 8, "c8-01")
    rows = ["time,component,metric,value,limit"]
    for minute in range(-1, 122):
        moment = Zone().text(at("2026-10-05T10:00") + minute * 60)
        rows += [
            f"{moment},c8-01 gpu {g},energy_j,{(200000 + g * 1111 + (minute + 1) * 30000) % 262144},262144" for g in range(8)
        ]
    (folder / "energy.csv").write_text("\n".join(rows) + "\n")
    figures: dict[str, Fraction | float] = {"energy.joules.value": 500 * 8 * 7200, "energy.sources.0.coverage": 1}
    return Case([jobs, str(folder / "energy.csv"), "--gpu-hour", "2EUR"], figures=figures, words=("counter",))


def no_reading(all_of_one: bool) -> Make:
    """DCGM's counter in mJ, with readings that say that there is none; maybe one board never says anything else."""

    def make(folder: Path, seed: int) -> Case:
        jobs = _one_job(folder, "2026-10-05T10:00", "2026-10-05T12:00", 8, "c8-01")
        lines = ["# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter"]
        for gpu in range(8):
            for minute in range(-1, 122):
                gone = minute % 13 == 5 or (all_of_one and gpu == 3)
                value = MISSING if gone else str(7_000_000 + (minute + 1) * 30_000_000)
                moment = (at("2026-10-05T10:00") + minute * 60) * 1000
                lines.append(f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="{gpu}",Hostname="c8-01"}} {value} {moment}')
        (folder / "dcgm.txt").write_text("\n".join(lines) + "\n")
        boards = 7 if all_of_one else 8
        figures: dict[str, Fraction | float] = {
            "energy.sources.0.coverage": boards / 8,
            "energy.sources.0.joules": 500 * boards * 7200,
        }
        return Case([jobs, str(folder / "dcgm.txt"), "--gpu-hour", "2EUR"], figures=figures)

    return make


CLOCKS = """currency = "EUR"
gpu_hour = "1.00"
[power]
load_w = 600
stall_w = 300
idle_w = 100
[electricity]
tariff = "tariff.csv"
zone = "Europe/Berlin"
in_rate = false
[carbon]
intensity = "carbon.csv"
[cooling]
pue = 1.25
"""


def clocks(day: str) -> Make:
    """A day on which clocks change: tariff by the clock on the wall, carbon with offsets; 4 × 600 W all day."""

    def make(folder: Path, seed: int) -> Case:
        zone = ZoneInfo("Europe/Berlin")
        start = datetime.fromisoformat(day).replace(tzinfo=zone).astimezone(UTC)
        end = (datetime.fromisoformat(day) + timedelta(days=1)).replace(tzinfo=zone).astimezone(UTC)
        hours = [start + timedelta(hours=n) for n in range(int((end - start).total_seconds()) // HOUR)]
        prices = [Fraction(10 + n * n, 1000) for n in range(len(hours))]
        grams = [100 + 17 * n for n in range(len(hours))]
        walls = [hour.astimezone(zone).replace(tzinfo=None, fold=0).isoformat() for hour in hours]
        offsets = [hour.astimezone(zone).isoformat() for hour in hours]
        tariff = [f"{wall},{float(price):.3f}" for wall, price in zip(walls, prices, strict=True)]
        carbon = [f"{moment},{g}" for moment, g in zip(offsets, grams, strict=True)]
        (folder / "tariff.csv").write_text("time,per_kwh\n" + "\n".join(tariff) + "\n")
        (folder / "carbon.csv").write_text("time,g_per_kwh\n" + "\n".join(carbon) + "\n")
        (folder / "prices.toml").write_text(CLOCKS)
        jobs = _one_job(folder, start.strftime("%Y-%m-%dT%H:%M"), end.strftime("%Y-%m-%dT%H:%M"), 4, "b4-01")
        kwh = Fraction(24, 10)
        paid, kg = kwh * sum(prices), kwh * Fraction(sum(grams), 1000)
        figures: dict[str, Fraction | float] = {
            "lines[item=electricity].money": paid,
            "lines[item=electricity].kg_co2e": kg,
            "lines[item=electricity].joules": kwh * len(hours) * 3_600_000,
            "lines[item=cooling].money": paid / 4,
            "lines[item=cooling].kg_co2e": kg / 4,
        }
        return Case([jobs, "--prices", str(folder / "prices.toml")], figures=figures)

    return make


PROMISES = """currency = "EUR"
gpu_hour = "2.00"
[[sla]]
jobs = "prod-*"
promise_hours = 2
penalty = "500"
penalty_per_hour = "40"
[triage]
hours = 10
per_hour = "95"
[delay]
per_day = "2400"
[budget]
amount = "10000"
per = "month"
"""


def promises(folder: Path, seed: int) -> Case:
    """Three jobs of four accelerators: one late by two hours, one in time, one of no promise; each queued for an hour."""
    head = "JobID|JobName|State|Submit|Start|End|AllocTRES|NodeList"
    rows = [f"{n}|{name}|COMPLETED|2026-10-0{n}T08:00:00|2026-10-0{n}T09:00:00|2026-10-0{n}T{end}:00|gres/gpu=4,node=1|b4-01"
            for n, name, end in ((2, "prod-a", "12:00"), (3, "prod-b", "10:00"), (4, "test-c", "12:00"))]  # fmt: skip
    (folder / "sacct.txt").write_text("\n".join([head, *rows]) + "\n")
    (folder / "prices.toml").write_text(PROMISES)
    figures: dict[str, Fraction | float] = {
        "lines[item=SLA penalty].money": 580,
        "lines[item=delay].money": 300,
        "lines[item=triage hours].money": 950,
        "categories[name=useful work].money": 4 * 7 * 2,
        "budget.budget": 10000,
    }
    return Case([str(folder / "sacct.txt"), "--prices", str(folder / "prices.toml"), "--period", "2026-10"], figures=figures)


# --- healthy, and odd


def _asked(folder: Path, known: Month, style: Style, *more: str) -> list[str]:
    jobs = write_jobs(folder / "jobs.csv", known.attempts)
    bill = write_bill(folder / "bill", known.charges, style)
    prices = write_prices(folder / "prices.toml", known.hosts, style)
    return [str(jobs), "--focus", str(bill), "--prices", str(prices), *more]


def odd(change: Callable[[Month], None], drill: tuple[str, ...] = ("team", "job", "host", "day"), **more: bool) -> Make:
    """A month that was changed, and in which nothing is wrong."""

    def make(folder: Path, seed: int) -> Case:
        known = month(seed, Style())
        change(known)
        found = truth_of(known.attempts, known.charges)
        return Case(_asked(folder, known, Style()), known.charges, found, drill=drill, open=more.get("open", False))

    return make


def free(known: Month) -> None:
    zero = Decimal(0)
    known.charges = [
        replace(row, billed=zero, effective=zero, price=zero) if row.host and row.host.gpus == 1 else row
        for row in known.charges
    ]


def zeros(known: Month) -> None:
    zero = Decimal(0)
    nothing = Charge("free tier", BEGIN, BEGIN + DAY, zero, zero, None, Decimal(5), "GB", zero, 0, "sku-free", "bucket-1",
                     service="Storage")  # fmt: skip
    moved = [replace(nothing, start=BEGIN + n * DAY, end=BEGIN + (n + 1) * DAY) for n in range(31)]
    some = [replace(row, billed=Decimal(0), effective=Decimal(0), quantity=Decimal(0)) for row in known.charges[:500:50]]
    known.charges += moved + moved[:3] + some


def one_job(known: Month) -> None:
    chosen = next(row.job for row in known.attempts if row.hosts == ("b4-02",) and row.start > BEGIN + DAY)
    known.attempts = [row for row in known.attempts if row.job == chosen]


def no_job(folder: Path, seed: int) -> Case:
    """Nobody held anything; a table without an attempt is refused with the words that it be left out."""
    known = month(seed, Style())
    known.attempts = []
    return Case(_asked(folder, known, Style())[1:], known.charges, truth_of([], known.charges))


def still_open(known: Month) -> None:
    until = at("2026-10-20")
    known.charges = [row for row in known.charges if row.end <= until]
    known.attempts = [row for row in known.attempts if row.end <= until]


def rich(known: Month) -> None:
    known.charges = [
        replace(row, billed=Decimal(-1000000), effective=Decimal(-1000000)) if row.what == "goodwill" else row
        for row in known.charges
    ]


def foreign(folder: Path, seed: int) -> Case:
    """The bill is of hosts that no log knows."""
    known = month(seed, Style())
    paid = sum((row.effective for row in known.charges if row.host), Decimal(0))
    other = [replace(row, hosts=tuple(f"zz-{name}" for name in row.hosts)) for row in known.attempts]
    args = _asked(folder, Month(known.hosts, other, known.charges), Style())[:3]
    return Case(args, known.charges, None, [Planted(("another cluster",), paid)], unmatched=paid, drill=())


def credit_above(folder: Path, seed: int) -> Case:
    known = month(seed, Style())
    known.charges = [
        replace(row, billed=-row.billed, effective=-row.effective) if row.what == "goodwill" else row for row in known.charges
    ]
    case = Case(_asked(folder, known, Style()), known.charges, any_defects=True, drill=())
    case.test = lambda found: None if found["rules"] or found["defects"] else "not named"
    return case


def no_cost(folder: Path, seed: int) -> Case:
    """Five rows do not say what they cost: that must be said, and is not 0."""
    known = month(seed, Style())
    args = _asked(folder, known, Style())
    lines = Path(args[2]).read_text().split("\n")
    place = lines[0].split(",").index("EffectiveCost")
    for n in range(100, 105):
        cells = lines[n].split(",")
        cells[place] = ""
        lines[n] = ",".join(cells)
    Path(args[2]).write_text("\n".join(lines))
    return Case(args, words=("EffectiveCost",))


def cases() -> list[tuple[str, Make]]:
    """All of them."""
    return [
        ("prices: one rate", one_price),
        ("prices: list, committed, spot", rates),
        ("prices: owned, work done again", owned),
        ("energy: counters that wrap", wrapped),
        ("energy: readings that are none", no_reading(False)),
        ("energy: a board that never says", no_reading(True)),
        ("tariff: clocks go back", clocks("2026-10-25")),
        ("tariff: clocks go forward", clocks("2026-03-29")),
        ("prices: promises, triage, delay, budget", promises),
        ("odd: free hosts", odd(free)),
        ("odd: rows of nothing", odd(zeros)),
        ("odd: one job", odd(one_job)),
        ("odd: no job", no_job),
        ("odd: still open", odd(still_open, open=True)),
        ("odd: a credit beyond the bill", odd(rich)),
        ("odd: hosts that no log knows", foreign),
        ("odd: a credit above 0", credit_above),
        ("odd: rows without a cost", no_cost),
    ]
