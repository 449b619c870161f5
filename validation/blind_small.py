"""Small bills, added to ``bill_blind.py`` after its first runs, for what was found beside them: two hours of one host.

Whoever wrote them had seen the answers. They count apart from the cases that were written blind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from blind_files import write_bill, write_jobs
from blind_month import HOUR, Attempt, Case, Charge, Host, Result, Style, at

Make = Callable[[Path, int], Case]
Test = Callable[[Result], str | None]
TEN = at("2026-10-05T10:00")
NODE = Host("node1", 8, "H100", "list", Decimal(20), ())
JOB = Attempt("a", 1, TEN, TEN + 2 * HOUR, 8, ("node1",), "vision", "completed", True)


def hour(n: int, cost: str = "20") -> Charge:
    """One hour of the host."""
    paid, start = Decimal(cost), TEN + n * HOUR
    return Charge("8 x H100", start, start + HOUR, paid, paid, NODE, Decimal(1), "Hours", Decimal(20), 8, "gpu8", "node1")


def small(rows: list[Charge], test: Test, job: Attempt = JOB, edit: Callable[[str], str] = str, refuse: bool = False) -> Make:
    """A bill of two hours; ``edit`` changes its text."""

    def make(folder: Path, seed: int) -> Case:
        jobs = write_jobs(folder / "jobs.csv", [job])
        bill = write_bill(folder / "bill", rows, Style())
        bill.write_text(edit(bill.read_text()))
        return Case([str(jobs), "--focus", str(bill)], test=test, may_refuse=refuse)

    return make


def _share(found: Result, name: str) -> Fraction:
    rows = [row["money"] or "0" for row in found["categories"] if row["name"] == name]
    return sum((Fraction(money) for money in rows), Fraction(0))


def booked(name: str, money: int) -> Test:
    """So much is booked under a category."""

    def test(found: Result) -> str | None:
        told = _share(found, name)
        return None if abs(told - money) < Fraction(1, 100) else f"{name}: {float(told)}, truly {money}"

    return test


def named(money: int) -> Test:
    """Some defect has the amount."""

    def test(found: Result) -> str | None:
        told = [(row["kind"], row["money"]) for row in found["defects"]]
        return None if any(abs(Fraction(row[1])) == money for row in told) else f"no defect of {money}: {told}"

    return test


def ledger(money: int) -> Test:
    """All lines together."""

    def test(found: Result) -> str | None:
        told = found["accrual"]["ledger"]
        return None if Fraction(told) == money else f"ledger {told}, truly {money}: {found['verdict']}"

    return test


def not_closed(found: Result) -> str | None:
    """What is not known does not close."""
    return "it says that it closes" if found["accrual"]["closes"] else None


def _blank(column: str) -> Callable[[str], str]:
    """The first row without a cost."""

    def edit(text: str) -> str:
        head, first, *rest = text.split("\n")
        cells = first.split(",")
        for name in column.split():
            cells[head.split(",").index(name)] = ""
        return "\n".join([head, ",".join(cells), *rest])

    return edit


def _total(text: str) -> str:
    head = text.split("\n")[0].split(",")
    return text + ",".join("40" if name in ("BilledCost", "EffectiveCost") else "" for name in head) + "\n"


def running(folder: Path, seed: int) -> Case:
    """A job that has not ended holds its host as long as charges go."""
    log = "JobID|Account|State|Submit|Start|End|AllocTRES|NodeList\n"
    for n, state, start, end in ((1, "COMPLETED", "10", "2026-10-05T11:00:00"), (2, "RUNNING", "11", "Unknown")):
        log += f"{n}|v|{state}|2026-10-05T09:00:00|2026-10-05T{start}:00:00|{end}|gres/gpu=8,node=1|node1\n"
    (folder / "sacct.txt").write_text(log)
    bill = write_bill(folder / "bill", [hour(0), hour(1)], Style())
    return Case([str(folder / "sacct.txt"), "--focus", str(bill)], test=booked("useful work", 40))


def dollars(folder: Path, seed: int) -> Case:
    """Prices in another currency than the bill."""
    case = small([hour(0), hour(1)], booked("operational complexity", 0), refuse=True)(folder, seed)
    (folder / "prices.toml").write_text('currency = "USD"\n[triage]\nhours = 10\nper_hour = "95"\n')
    return replace(case, args=[*case.args, "--prices", str(folder / "prices.toml")])


def later(folder: Path, seed: int) -> Case:
    """Held beyond the last charge of an open period, and an hour twice: not charged yet is not charged too little."""

    def test(found: Result) -> str | None:
        return None if "too little" not in found["verdict"] and len(found["defects"]) == 1 else found["verdict"]

    return small([hour(0), hour(1), hour(0)], test, replace(JOB, end=TEN + 8 * HOUR))(folder, seed)


def cases() -> list[tuple[str, Make]]:
    """All of them."""
    both = [hour(0), hour(1)]
    back = replace(hour(0, "40"), start=TEN + 2 * HOUR, end=TEN, quantity=Decimal(2))
    good = Charge(
        "goodwill", TEN, TEN + HOUR, Decimal(7), Decimal(7), None, Decimal(1), "", None, category="Credit", service="Other"
    )
    fixed = replace(hour(0, "-20"), correction=True, quantity=Decimal(-1))
    return [
        ("small: a job that still runs", running),
        ("small: prices in USD, bill in EUR", dollars),
        ("small: a total line", small(both, booked("services", 0), edit=_total, refuse=True)),
        ("small: neither cost is known", small(both, not_closed, edit=_blank("BilledCost EffectiveCost"))),
        ("small: no accelerators", small(both, booked("useful work", 0), replace(JOB, gpus=0))),
        ("small: an hour of no length", small([*both, replace(hour(0), end=TEN)], named(20))),
        ("small: backwards", small([back], booked("over-provisioning", 0))),
        ("small: a credit above 0", small([*both, good], lambda r: None if r["rules"] or r["defects"] else "not named")),
        ("small: a duplicate, corrected", small([*both, hour(0), fixed], ledger(40))),
        ("small: nothing but a header", small(both, not_closed, edit=lambda text: text.split("\n")[0] + "\n")),
        ("small: held beyond the last charge", later),
    ]
