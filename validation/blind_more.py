"""A second dozen of months for ``bill_blind.py``, written after its first runs and before taut had seen one of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from blind_cases import Broken, asked, count_of_sku, duplicated, made, missing, other_cluster, planted
from blind_files import write_bill
from blind_month import BEGIN, DAY, END, HOUR, Attempt, Case, Charge, Month, Planted, Style, at, charges_of, truth_of

Make = Callable[[Path, int], Case]


def changed(style: Style, change: Callable[[Month], None], drill: tuple[str, ...] = ("team", "job", "host", "day")) -> Make:
    """A month with something else about it, and nothing wrong."""

    def make(folder: Path, seed: int) -> Case:
        known = made(seed, style)
        change(known)
        return Case(asked(folder, known, style), known.charges, truth_of(known.attempts, known.charges), drill=drill)

    return make


def one_row_each(known: Month) -> None:
    """Accelerators of the reserved pool are charged one by one: eight equal rows an hour, told apart by nothing."""
    rows = []
    for row in known.charges:
        if row.host and row.host.gpus == 8:
            part = row.effective / 8
            price, bought = (row.price or Decimal(0)) / 8, (row.bought or Decimal(0)) / 8
            one = replace(row, effective=part, price=price, bought=bought, gpus=1, what="1 of 8 x H100", sku="sku-one")
            rows += [one] * 8
        else:
            rows.append(row)
    known.charges = rows


def replaced(known: Month) -> None:
    """The provider replaced an instance in mid-month: another id, the same name."""
    middle = at("2026-10-17T08:00")
    known.charges = [
        replace(row, resource="vm-new") if row.host and row.host.name == "b4-01" and row.start >= middle else row
        for row in known.charges
    ]


def corrected_host(known: Month) -> None:
    """Some of September's hours of one host come back, and some of October's, as corrections with its id."""
    row = next(row for row in known.charges if row.host and row.host.name == "b4-02")
    past = replace(row, start=row.start - 3 * DAY, end=row.end - 3 * DAY, billed=Decimal("-55.2"), effective=Decimal("-55.2"))
    known.charges.append(replace(past, host=None, quantity=Decimal(-6), correction=True, what="correction of September"))


def by_day_and_month(known: Month) -> None:
    """The pool is one row a month for each host; the others stay as they are."""
    rows = [row for row in known.charges if not (row.host and row.host.gpus == 8)]
    style = Style(grain=10**9)
    for host in known.hosts:
        if host.gpus == 8:
            rows += charges_of(random.Random(0), host, style)
    known.charges = rows


def half_month(folder: Path, seed: int) -> Case:
    """Rows by the day, asked for the days from the 10th up to the 20th."""
    style = Style("1.4", grain=DAY)
    known = made(seed, style)
    span = (at("2026-10-10"), at("2026-10-20"))
    rows = [row for row in known.charges if row.end > span[0] and row.start < span[1]]
    truth = truth_of(known.attempts, rows, span)
    args = asked(folder, known, style, "--period", "2026-10-10/2026-10-20")
    return Case(args, rows, truth, effective=sum(truth.category.values(), Fraction(0)))


def lower_names(folder: Path, seed: int) -> Case:
    """``billed_cost`` for ``BilledCost``, tabs for commas."""
    known = made(seed, Style())
    args = asked(folder, known, Style())
    text = Path(args[2]).read_text().split("\n")
    names = ["".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_") for name in text[0].split(",")]
    Path(args[2]).write_text("\n".join([",".join(names), *text[1:]]))
    return Case(args, known.charges, truth_of(known.attempts, known.charges))


def least_minute(known: Month) -> None:
    """Spot hosts are there by the job, and a job of less than a minute pays for one."""
    rows = [row for row in known.charges if not (row.host and row.host.pool == "spot")]
    known.attempts = [row for row in known.attempts if row.hosts[0] not in ("b4-04", "b4-05")]
    host = next(host for host in known.hosts if host.name == "b4-04")
    for n in range(40):
        start = BEGIN + DAY + n * 7 * HOUR
        length = 20 + 300 * n
        on = ((start, start + max(60, length)),)
        known.attempts.append(Attempt(f"spot{n}", 1, start, start + length, 4, ("b4-04",), "speech", "completed", True))
        rows += charges_of(random.Random(n), replace(host, on=on), Style())
    known.charges = rows


# --- defects


def too_few(known: Month) -> Broken:
    """A host of four is charged as one of two for a week, at half the price."""
    old = [r for r in known.charges if r.host and r.host.name == "b4-01" and at("2026-10-05") <= r.start < at("2026-10-12")]
    new = [replace(r, gpus=2, sku="sku-A100x2-list", what="2 x A100 list", billed=r.billed / 2, effective=r.effective / 2,
                   price=(r.price or Decimal(0)) / 2) for r in old]  # fmt: skip
    less = sum((row.effective for row in new), Decimal(0))
    gone = {id(row) for row in old}
    return [row for row in known.charges if id(row) not in gone] + new, [Planted(("accelerator count",), -less)], -less


def tax_twice(known: Month) -> Broken:
    """The tax stands in a second invoice once more."""
    again = [replace(row, invoice="INV-12") for row in known.charges if row.category == "Tax"]
    return known.charges + again, [Planted(("duplicated line",), again[0].effective)], again[0].effective


def half_hours(known: Month) -> Broken:
    """Five hours of a host come again, moved by half an hour."""
    rows = [
        r for r in known.charges if r.host and r.host.name == "a1-06" and at("2026-10-08") <= r.start < at("2026-10-08T05:00")
    ]
    new = [replace(row, start=row.start + 1800, end=row.end + 1800) for row in rows]
    paid = sum((row.effective for row in new), Decimal(0))
    return known.charges + new, [Planted(("overlapping periods",), paid)], paid


def rounded_up(known: Month) -> Broken:
    """Each row of one host is a cent too high: 744 times 0.01."""
    cent = Decimal("0.01")
    old = [row for row in known.charges if row.host and row.host.name == "a1-01"]
    new = [replace(row, billed=row.billed + cent, effective=row.effective + cent) for row in old]
    gone = {id(row) for row in old}
    rows = [row for row in known.charges if id(row) not in gone] + new
    return rows, [Planted(("price times quantity",), cent * len(old))], cent * len(old)


def two_months(folder: Path, seed: int) -> Case:
    """Two bills, of October and of the first week of November, and the logs of both: asked for nothing in particular."""
    known = made(seed, Style())
    week = (END, END + 7 * DAY)
    rows: list[Charge] = []
    for host in known.hosts:
        rows += charges_of(random.Random(seed), replace(host, on=(week,), pool="list"), Style())
    rows = [replace(row, billing=week, invoice="INV-20") for row in rows]
    args = asked(folder, known, Style())
    second = write_bill(folder / "november", rows, Style())
    both = known.charges + rows
    return Case([*args, "--focus", str(second)], both, truth_of(known.attempts, both))


def cases() -> list[tuple[str, Make]]:
    """All of them."""
    plain = Style()
    return [
        ("more: accelerators one by one", changed(plain, one_row_each)),
        ("more: an instance replaced", changed(plain, replaced)),
        ("more: corrections with a host", changed(plain, corrected_host, ("team", "job"))),
        ("more: a pool by the month", changed(plain, by_day_and_month)),
        ("more: ten days of rows by the day", half_month),
        ("more: names in lower case", lower_names),
        ("more: a least charge of a minute", changed(plain, least_minute)),
        ("more: two months", two_months),
        ("more defects: too few accelerators", planted(plain, too_few)),
        ("more defects: tax in two invoices", planted(plain, tax_twice)),
        ("more defects: half an hour moved", planted(Style("1.4", "parquet"), half_hours)),
        ("more defects: a cent on every row", planted(plain, rounded_up)),
        ("more defects: few, half hours, duplicates", planted(plain, too_few, half_hours, duplicated)),
        ("more defects: count, missing, another cluster", planted(Style("1.0"), count_of_sku, missing, other_cluster)),
    ]
