"""The cases of ``bill_blind.py``: months that close, months with defects. ``blind_odd.py`` has prices alone and odd ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import blind_odd
import blind_small
from blind_files import Zone, write_bill, write_jobs, write_prices, write_sacct
from blind_month import (
    BEGIN,
    DAY,
    END,
    HOUR,
    Attempt,
    Case,
    Charge,
    Host,
    Month,
    Planted,
    Style,
    at,
    charges_of,
    month,
    truth_of,
)

Make = Callable[[Path, int], Case]
TOKYO = Style("1.2", "csv", "Hours", "JPY", 0, zone="Asia/Tokyo", begin=BEGIN - 9 * HOUR, end=END - 9 * HOUR)
BERLIN = Style("1.2", "csv", zone="Europe/Berlin", begin=BEGIN - 2 * HOUR, end=END - HOUR)


def made(seed: int, style: Style) -> Month:
    """A month in the style, its rows under the style's billing period."""
    found = month(seed, style, Decimal(160) if style.currency == "JPY" else Decimal(1))
    found.charges = [replace(row, billing=(style.begin, style.end)) for row in found.charges]
    return found


def asked(
    folder: Path, known: Month, style: Style, *more: str, rows: list[Charge] | None = None, rates: bool = False
) -> list[str]:
    """Files of the month and the command's arguments."""
    jobs = write_jobs(folder / "jobs.csv", known.attempts)
    bill = write_bill(folder / "bill", known.charges if rows is None else rows, style)
    prices = write_prices(folder / "prices.toml", known.hosts, style, rates=rates)
    return [str(jobs), "--focus", str(bill), "--prices", str(prices), *more]


def clean(style: Style, prices: bool = True) -> Make:
    """A month in which nothing is wrong."""

    def make(folder: Path, seed: int) -> Case:
        known = made(seed, style)
        args = asked(folder, known, style)
        return Case(args if prices else args[:3], known.charges, truth_of(known.attempts, known.charges))

    return make


def of_sacct(folder: Path, seed: int) -> Case:
    style = Style()
    known = made(seed, style)
    log = write_sacct(folder / "sacct.txt", known.attempts)
    args = asked(folder, known, style)
    return Case([str(log), *args[1:]], known.charges, truth_of(known.attempts, known.charges), drill=("team", "host", "day"))


def of_folder(folder: Path, seed: int) -> Case:
    known = made(seed, Style("1.4"))
    args = asked(folder, known, Style("1.4"))
    parts = folder / "bills"
    parts.mkdir(exist_ok=True)
    for n in range(31):
        rows = [row for row in known.charges if max(0, (row.start - BEGIN) // DAY) == n]
        write_bill(parts / f"day{n:02d}", rows, Style("1.4", "parquet" if n % 2 else "csv"))
    args[2] = str(parts)
    return Case(args, known.charges, truth_of(known.attempts, known.charges))


def one_day(folder: Path, seed: int) -> Case:
    known = made(seed, Style())
    day = (at("2026-10-05"), at("2026-10-06"))
    rows = [row for row in known.charges if row.end > day[0] and row.start < day[1]]
    truth = truth_of(known.attempts, rows, day)
    paid = sum(truth.category.values(), Fraction(0))
    args = asked(folder, known, Style(), "--period", "2026-10-05")
    return Case(args, rows, truth, effective=paid)


def two_rows(folder: Path, seed: int) -> Case:
    """Cores and accelerators of one host in rows of their own."""
    known = made(seed, Style())
    rows = []
    for row in known.charges:
        rows.append(row)
        if row.host and row.host.name.startswith("b4"):
            cost = Decimal("0.5") * row.quantity
            rows.append(
                replace(
                    row, what="cores and memory", billed=cost, effective=cost, price=Decimal("0.5"), gpus=0, sku="sku-cores"
                )
            )
    return Case(asked(folder, known, Style(), rows=rows), rows, truth_of(known.attempts, rows))


# --- defects: each takes the charges and gives what is written, what is planted, and what the bill then has beyond its lines

Broken = tuple[list[Charge], list[Planted], Fraction | Decimal]
Defect = Callable[[Month], Broken]


def _of(known: Month, host: str, first: str, days: int = 1) -> list[Charge]:
    start = at(first)
    return [row for row in known.charges if row.host and row.host.name == host and start <= row.start < start + days * DAY]


def _sum(rows: list[Charge]) -> Decimal:
    return sum((row.effective for row in rows), Decimal(0))


def _instead(known: Month, old: list[Charge], new: list[Charge]) -> list[Charge]:
    gone = {id(row) for row in old}
    return [row for row in known.charges if id(row) not in gone] + new


def duplicated(known: Month) -> Broken:
    again = known.charges[17:5000:173] + [row for row in known.charges if row.what == "disks"][3:5]
    return known.charges + again, [Planted(("duplicated line",), _sum(again))], _sum(again)


def negative(known: Month) -> Broken:
    row = _of(known, "a1-04", "2026-10-09")[5]
    bad = replace(row, effective=Decimal("-1.85"), billed=Decimal("-1.85"), quantity=Decimal(-1), what="1 x L40S list")
    more = replace(bad, start=row.start + 7200, end=row.end + 7200)
    return [*known.charges, bad, more], [Planted(("negative charge",), Decimal("-3.70"))], Decimal("-3.70")


def overlapping(known: Month) -> Broken:
    row = _of(known, "a1-02", "2026-10-13")[10]
    paid = row.effective * 3
    bad = replace(row, end=row.start + 3 * HOUR, quantity=row.quantity * 3, billed=paid, effective=paid)
    return [*known.charges, bad], [Planted(("overlapping periods",), paid)], paid


def missing(known: Month) -> Broken:
    held = {n: _held(known.attempts, "b4-02", BEGIN + n * DAY, BEGIN + (n + 1) * DAY) for n in range(2, 28)}
    first = max(held, key=lambda n: held[n])
    gone = [row for row in known.charges if row.host and row.host.name == "b4-02" and (row.start - BEGIN) // DAY == first]
    return _instead(known, gone, []), [Planted(("missing period",), -_sum(gone))], -_sum(gone)


def _held(attempts: list[Attempt], host: str, start: int, end: int) -> int:
    """Accelerator seconds of a host in a time."""
    rows = [row for row in attempts if host in row.hosts]
    return sum(row.gpus // len(row.hosts) * max(0, min(end, row.end) - max(start, row.start)) for row in rows)


def other_cluster(known: Month) -> Broken:
    rows, price = [], Decimal(30)
    for n in range(3):
        host = Host(f"x8-{n}", 8, "H100", "list", Decimal(30), ())
        for hour in range(240):
            start = BEGIN + 5 * DAY + hour * HOUR
            rows.append(Charge("8 x H100 list", start, start + HOUR, price, price, host, Decimal(1), "Hours", price, 8,
                               "sku-H100-list", host.resource, account="sub-9"))  # fmt: skip
    return known.charges + rows, [Planted(("another cluster",), _sum(rows))], _sum(rows)


def count_of_sku(known: Month) -> Broken:
    old = [row for row in known.charges if row.host and row.host.name == "b4-03"]
    new = [replace(r, gpus=8, sku="sku-A100x8-list", what="8 x A100 list", billed=r.billed * 2, effective=r.effective * 2,
                   price=(r.price or Decimal(0)) * 2) for r in old]  # fmt: skip
    return _instead(known, old, new), [Planted(("accelerator count",), _sum(old))], _sum(old)


def count_of_hours(known: Month) -> Broken:
    old = _of(known, "b4-03", "2026-10-20", 2)
    new = [replace(row, quantity=row.quantity * 2, billed=row.billed * 2, effective=row.effective * 2) for row in old]
    return _instead(known, old, new), [Planted(("accelerator count",), _sum(old))], _sum(old)


def outside(known: Month) -> Broken:
    old = _of(known, "b4-01", "2026-10-06")[:6]
    new = [replace(row, start=row.start - 12 * DAY, end=row.end - 12 * DAY) for row in old]
    return known.charges + new, [Planted(("outside the billing period",), _sum(new))], _sum(new)


def wrong_product(known: Month) -> Broken:
    old = _of(known, "b4-01", "2026-10-21")[7:9]
    extra = [Decimal("7.77"), Decimal("0.33")]
    new = [replace(row, billed=row.billed + x, effective=row.effective + x) for row, x in zip(old, extra, strict=True)]
    return _instead(known, old, new), [Planted(("price times quantity",), sum(extra, Decimal(0)))], sum(extra, Decimal(0))


def exceeded(known: Month) -> Broken:
    plan = [row for row in known.charges if row.what.startswith("one year")]
    spare = [row for row in known.charges if row.status == "Unused"]
    late = [row for row in known.charges if row.host and row.host.name == "c8-04"]
    less = (plan[0].bought or Decimal(0)) - sum((row.bought or Decimal(0) for row in late + spare), Decimal(0))
    rows = _instead(known, plan + spare, [replace(plan[0], bought=less)])
    return rows, [Planted(("commitment exceeded",), _sum(late))], Decimal(0)


def tenfold(known: Month) -> Broken:
    old = _of(known, "b4-02", "2026-10-15")[9:12]
    new = [
        replace(row, price=(row.price or Decimal(0)) * 10, billed=row.billed * 10, effective=row.effective * 10) for row in old
    ]
    extra = _sum(old) * 9
    return _instead(known, old, new), [Planted(("unit price", "price", "price times quantity", "price change"), extra)], extra


def seconds_as_hours(known: Month) -> Broken:
    old = _of(known, "a1-05", "2026-10-16")[3:4]
    new = [replace(row, quantity=row.quantity * 3600, billed=row.billed * 3600, effective=row.effective * 3600) for row in old]
    kinds = ("overlapping periods", "accelerator count", "price times quantity")
    return _instead(known, old, new), [Planted(kinds, _sum(old) * 3599)], _sum(old) * 3599


def issued_again(known: Month) -> Broken:
    new = [replace(row, invoice="INV-10R") for row in _of(known, "b4-01", "2026-10-03", 2)]
    return known.charges + new, [Planted(("duplicated line", "overlapping periods"), _sum(new))], _sum(new)


def plan_bought_twice(known: Month) -> Broken:
    plan = [row for row in known.charges if row.what.startswith("one year")]
    return known.charges + plan, [Planted(("duplicated line",), plan[0].billed)], Decimal(0)


def credit_twice(known: Month) -> Broken:
    again = [row for row in known.charges if row.what == "goodwill"]
    return known.charges + again, [Planted(("duplicated line",), _sum(again))], _sum(again)


def planted(style: Style, *defects: Defect, args: tuple[str, ...] = ()) -> Make:
    """A month with defects; where the money goes is as without them."""

    def make(folder: Path, seed: int) -> Case:
        known = made(seed, style)
        rows, found, out = known.charges, list[Planted](), Fraction(0)
        for defect in defects:
            before = list(known.charges)
            new, more, beyond = defect(replace_charges(known, rows))
            rows, found, out = new, found + more, out + Fraction(beyond)
            if defect is exceeded:
                before = new
            known.charges = before
        return Case(asked(folder, known, style, *args, rows=rows), rows, truth_of(known.attempts, known.charges), found, out)

    return make


def replace_charges(known: Month, rows: list[Charge]) -> Month:
    """The same month with other rows, so that defects add up."""
    return Month(known.hosts, known.attempts, list(rows))


def delivered_twice(folder: Path, seed: int) -> Case:
    known = made(seed, Style())
    args = asked(folder, known, Style())
    again = write_bill(folder / "again", known.charges, Style(form="parquet"))
    rows = known.charges + known.charges
    paid = _sum(known.charges)
    truth = truth_of(known.attempts, known.charges)
    return Case([*args, "--focus", str(again)], rows, truth, [Planted(("duplicated line",), paid)], paid)


def two_currencies(chosen: bool) -> Make:
    def make(folder: Path, seed: int) -> Case:
        known = made(seed, Style())
        cost = Decimal("99.99")
        foreign = Charge("support", BEGIN, END, cost, cost, None, Decimal(1), "Months", cost, 0,
                         "sku-help", None, currency="USD", service="Other")  # fmt: skip
        rows = [*known.charges, foreign]
        if not chosen:
            return Case(asked(folder, known, Style(), rows=rows), exit=4, words=("EUR", "USD", "--currency"))
        args = asked(folder, known, Style(), "--currency", "EUR", rows=rows)
        wrong = [Planted(("another currency",), Decimal("99.99"), "USD")]
        return Case(args, known.charges, truth_of(known.attempts, known.charges), wrong)

    return make


def not_billed(folder: Path, seed: int) -> Case:
    known = made(seed, Style())
    rows = [row for row in known.charges if not row.host or row.host.name != "a1-03"]
    paid = Fraction(_held(known.attempts, "a1-03", BEGIN, END), HOUR) * Fraction("1.85")
    truth = truth_of(known.attempts, known.charges)
    idle = Fraction(_sum([row for row in known.charges if row.host and row.host.name == "a1-03"])) - paid
    truth.book(-idle, "over-provisioning", None, None, "a1-03")
    args = asked(folder, known, Style(), rows=rows, rates=True)
    return Case(args, rows, truth, [Planted(("host not in the bill",), -paid)], -paid, drill=("team", "job", "host"))


def _elastic(known: Month, seed: int) -> None:
    """The hosts of one and four accelerators are there only while somebody holds them."""
    rows = [row for row in known.charges if not row.host or row.host.gpus == 8]
    for host in known.hosts:
        on: list[tuple[int, int]] = []
        for row in sorted((row for row in known.attempts if host.name in row.hosts), key=lambda row: row.start):
            a, b = max(row.start, TOKYO.begin), min(row.end, TOKYO.end)
            if on and a <= on[-1][1]:
                on[-1] = (on[-1][0], max(b, on[-1][1]))
            elif a < b:
                on.append((a, b))
        if host.gpus < 8:
            rows += charges_of(random.Random(seed), replace(host, on=tuple(on)), TOKYO)
    known.charges = [replace(row, billing=(TOKYO.begin, TOKYO.end)) for row in rows]


def local_as_utc(elastic: bool, pretend: bool = True) -> Make:
    """Charges by the clock of Tokyo, written as if it were UTC."""

    def make(folder: Path, seed: int) -> Case:
        known = made(seed, TOKYO)
        if elastic:
            _elastic(known, seed)
        args = asked(folder, known, TOKYO)
        write_bill(folder / "bill", known.charges, TOKYO, Zone("Asia/Tokyo", pretend))
        wrong = [Planted(("time zone",), Decimal(0))] if pretend else []
        return Case(args, known.charges, truth_of(known.attempts, known.charges), wrong)

    return make


def cases() -> list[tuple[str, Make]]:
    """All of them."""
    return [
        ("clean, 1.0, CSV, hours", clean(Style("1.0"))),
        ("clean, 1.2, CSV, seconds, hosts by tag, no prices", clean(Style("1.2", unit="Seconds", named_by="tag"), False)),
        ("clean, 1.4, Parquet, hosts by id, no prices", clean(Style("1.4", "parquet", named_by="id"), False)),
        ("clean, 1.2, JPY, Tokyo with its offset", clean(TOKYO)),
        ("clean, 1.2, Berlin with its offsets", clean(BERLIN)),
        ("clean, 1.2, CSV.GZ, hours of accelerators, hosts by map", clean(Style("1.2", "csv.gz", "GPU-Hours", named_by="map"))),
        ("clean, 1.4, CSV, by the day", clean(Style("1.4", grain=DAY))),
        ("clean, 1.2, cents", clean(Style(decimals=2))),
        ("clean, sacct", of_sacct),
        ("clean, 1.4, a folder of 31 files", of_folder),
        ("clean, one day of it", one_day),
        ("clean, cores in rows of their own", two_rows),
        ("defect: duplicated lines", planted(Style(), duplicated)),
        ("defect: credit twice", planted(Style("1.4"), credit_twice)),
        ("defect: plan bought twice", planted(Style(), plan_bought_twice)),
        ("defect: delivered twice, CSV and Parquet", delivered_twice),
        ("defect: invoice issued again", planted(Style(), issued_again)),
        ("defect: negative rows", planted(Style("1.0"), negative)),
        ("defect: two currencies, refused", two_currencies(False)),
        ("defect: two currencies, one chosen", two_currencies(True)),
        ("defect: overlapping periods", planted(Style(), overlapping)),
        ("defect: missing day", planted(Style("1.4", "parquet"), missing)),
        ("defect: host not in the bill", not_billed),
        ("clean, hosts that are there while held", local_as_utc(True, False)),
        ("defect: Tokyo as if it were UTC", local_as_utc(False)),
        ("defect: Tokyo as if it were UTC, hosts that are there while held", local_as_utc(True)),
        ("defect: another cluster", planted(Style(), other_cluster)),
        ("defect: accelerators of the SKU", planted(Style(), count_of_sku)),
        ("defect: accelerators in hours", planted(Style(unit="GPU-Hours"), count_of_hours)),
        ("defect: outside the billing period", planted(Style(), outside)),
        ("defect: price times quantity", planted(Style(), wrong_product)),
        ("defect: commitment exceeded", planted(Style("1.4"), exceeded)),
        ("defect: price of ten times", planted(Style(), tenfold)),
        ("defect: seconds taken as hours", planted(Style(), seconds_as_hours)),
        ("defects: duplicates, negative, missing", planted(Style(), duplicated, negative, missing)),
        (
            "defects: count, overlap, another cluster",
            planted(Style("1.4", "parquet"), count_of_sku, overlapping, other_cluster),
        ),
        ("defects: JPY, duplicates, outside", planted(TOKYO, duplicated, outside)),
        ("defects: seconds, product, credit twice", planted(Style(unit="Seconds"), wrong_product, credit_twice)),
        *blind_odd.cases(),
        *blind_small.cases(),
    ]
