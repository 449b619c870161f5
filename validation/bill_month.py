"""A made month against `taut bill`: 500 jobs on 64 hosts, a FOCUS bill, and ten planted defects, truth to the cent.

    python validation/bill_month.py [--seed 1] [--defect NAME|all|each] [--version 1.2] [--parquet] [--keep FOLDER]

The month (`month_jobs.py`) and its bill (`month_bill.py`, `month_defects.py`) are made without taut, and so is the truth:
every charge of a host is divided over the attempts that held its accelerators, by accelerator time, what nobody held is
idle. Then the command line is asked, and its JSON held against the truth. Without a defect nothing may be found.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal, getcontext
from pathlib import Path
from typing import Any

from month_bill import Charge, mapping, write_csv, write_parquet
from month_defects import DEFECTS, LOCAL, Files, Planted, planted
from month_jobs import ACCELERATORS, BEGIN, TEAMS, Attempt, Cluster, happened, sacct

getcontext().prec = 50
CENT = Decimal("0.01")
Sums = dict[str, Decimal]
CATEGORIES = {
    "kept": "useful work", "unfinished": "re-runs and discarded work", "discarded at most": "re-runs and discarded work",
    "idle": "over-provisioning", "unused commitment": "over-provisioning", "correction": "corrections and credits",
    "credit": "corrections and credits",
}  # fmt: skip
"""Everything else is a service."""


def sums() -> Sums:
    return defaultdict(Decimal)


@dataclass
class Truth:
    """Money of the month, by everything that is asked."""

    item: Sums = field(default_factory=sums)
    category: Sums = field(default_factory=sums)
    fate: Sums = field(default_factory=sums)
    team: Sums = field(default_factory=sums)
    host: Sums = field(default_factory=sums)
    job: Sums = field(default_factory=sums)
    cause: Sums = field(default_factory=sums)
    invoice: Sums = field(default_factory=sums)
    effective: Decimal = Decimal(0)

    def book(self, fate: str, item: str, money: Decimal, by: Attempt | None = None) -> None:
        self.item[item] += money
        self.category[CATEGORIES.get(fate or item, "services")] += money
        if by is not None:
            self.fate[fate] += money
            self.team[by.team] += money
            self.job[by.job] += money
            if fate == "discarded at most":
                self.cause[by.state] += money


def truth(cluster: Cluster, charges: list[Charge]) -> Truth:
    """Divide every charge."""
    out = Truth()
    on: dict[str, list[Attempt]] = defaultdict(list)
    for one in cluster.attempts:
        for host in one.hosts:
            on[host].append(one)
    for charge in charges:
        out.effective += charge.effective
        out.invoice[str(charge.row["InvoiceId"])] += charge.billed
        if charge.item != "host":
            out.book("", charge.item, charge.effective)
            out.host["gpu-005"] += charge.effective if charge.item == "correction" else 0  # the one that is corrected
            continue
        out.host[charge.host] += charge.effective
        left, capacity = charge.effective, ACCELERATORS * (charge.end - charge.start)
        for one in on[charge.host]:
            held = (min(one.end, charge.end) - max(one.start, charge.start)) * one.per_host
            if held > 0:
                part = charge.effective * held / capacity
                left -= part
                out.book(one.fate, "accelerator time", part, one)
        out.book("idle", "idle accelerators", left)
    return out


def prices(cluster: Cluster, to: Path) -> None:
    """What only a person can tell: which resource is which host, how many accelerators hosts have, whose jobs are whose."""
    lines = ['currency = "EUR"', "[hosts]", f"accelerators = {ACCELERATORS}", "[hosts.resources]"]
    lines += [f'"{resource}" = "{host}"' for resource, host in mapping(cluster).items()]
    lines += ["[teams]", *(f'"{team}-*" = "{team}"' for team in TEAMS)]
    to.write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass
class Table:
    """What was expected, what was found."""

    rows: list[tuple[str, str, str, str, bool]] = field(default_factory=list)

    def money(self, what: str, expected: Decimal, found: Any, within: Decimal = CENT / 2) -> None:
        said = None if found is None else Decimal(str(found))
        fine = said is not None and abs(said - expected) <= within
        gap = "" if said is None else f"{said - expected:+,.4f}"
        self.rows.append((what, f"{expected:,.4f}", "null" if said is None else f"{said:,.4f}", gap, fine))

    def says(self, what: str, expected: object, found: object, fine: bool | None = None) -> None:
        self.rows.append((what, str(expected), str(found), "", expected == found if fine is None else fine))

    def show(self) -> bool:
        wide = [max(len(row[k]) for row in self.rows) for k in range(4)]
        for what, expected, found, gap, fine in self.rows:
            mark = "" if fine else "  <-- wrong"
            print(f"  {what:{wide[0]}}  {expected:>{wide[1]}}  {found:>{wide[2]}}  {gap:>{wide[3]}}{mark}".rstrip())
        wrong = sum(not row[4] for row in self.rows)
        print(f"  {len(self.rows) - wrong} of {len(self.rows)} right", flush=True)
        return not wrong


def ask(taut: list[str], folder: Path, *more: str) -> tuple[int, dict[str, Any], str, float]:
    command = [*taut, "bill", str(folder / "sacct.txt"), "--prices", str(folder / "prices.toml"), "--focus",
               str(folder / "bill"), *more, "--json", "-q"]  # fmt: skip
    begin = time.monotonic()
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    took = time.monotonic() - begin
    return told.returncode, json.loads(told.stdout) if told.returncode == 0 else {}, told.stderr.strip(), took


def write(folder: Path, cluster: Cluster, files: Files, version: str, parquet: bool) -> None:
    (folder / "bill").mkdir(parents=True, exist_ok=True)
    for old in (folder / "bill").iterdir():
        old.unlink()
    sacct(cluster, folder / "sacct.txt")
    prices(cluster, folder / "prices.toml")
    for name, charges in files.items():
        if parquet:
            write_parquet(charges, folder / "bill" / f"{name}.parquet", version)
        else:
            write_csv(charges, folder / "bill" / f"{name}.csv", version)


def drilled(said: dict[str, Any], by: str) -> Sums:
    return {str(row["name"]): Decimal(row["money"] or 0) for row in said["by"].get(by, [])}


def worst(table: Table, what: str, expected: Sums, found: Sums) -> None:
    """All names of a drill-down in one line: the largest difference among them."""
    names = sorted(expected, key=lambda name: -abs(found.get(name, Decimal(0)) - expected[name]))
    off = sum(abs(found.get(name, Decimal(0)) - expected[name]) > CENT / 2 for name in names)
    head = f"{what}: worst of {len(names)} ({names[0]})" + (f", {off} off" if off else "")
    table.money(head, expected[names[0]], found.get(names[0]))


def clean(said: dict[str, Any], true: Truth, table: Table) -> None:
    """The month without defects, closed and divided."""
    accrual = said["accrual"]
    table.money("effective cost", true.effective, accrual["effective"])
    table.money("ledger", true.effective, accrual["ledger"])
    table.money("residual", Decimal(0), accrual["residual"])
    table.says("closes", True, accrual["closes"])
    table.says("open", False, said["period"]["open"])
    table.says("defects", "none", ", ".join(f"{d['kind']} {d['money']}" for d in said["defects"]) or "none")
    unmatched = sum((Decimal(one["money"]) for one in said["unmatched"]), Decimal(0))
    table.money("unmatched", Decimal(0), unmatched, true.effective / 1000)
    of_line: dict[str, Sums] = {"item": sums(), "category": sums(), "fate": sums()}
    for line in said["lines"]:
        for key in of_line:
            if key != "fate" or line["item"] == "accelerator time":
                of_line[key][str(line[key])] += Decimal(line["money"] or 0)
    for key in ("category", "item", "fate"):
        for name, money in getattr(true, key).items():
            table.money(f"{key} {name}", money, of_line[key].get(name))
    for key in ("team", "host", "job"):
        worst(table, key, getattr(true, key), drilled(said, key))
    for key in ("cause", "host", "job", "team", "day"):
        table.money(f"sum by {key}", true.effective, sum(drilled(said, key).values(), Decimal(0)))
    for state, money in true.cause.items():
        near = min(drilled(said, "cause").values(), key=lambda one: abs(one - money), default=None)
        table.money(f"cause of what was discarded: {state}", money, near)
    for one in said["invoices"]:
        table.money(f"invoice {one['id']} billed", true.invoice.get(str(one["id"]), Decimal(0)), one["billed"])
        table.money(f"invoice {one['id']} allocated", true.invoice.get(str(one["id"]), Decimal(0)), one["allocated"])
    table.says("invoices", len(true.invoice), len(said["invoices"]))


def defective(said: dict[str, Any], plants: list[Planted], table: Table) -> None:
    """Every planted defect by its amount; nothing that was not planted."""
    left = list(said["defects"])
    for plant in plants:
        mine = [one for one in left if re.search(plant.kind, one["kind"], re.IGNORECASE)]
        if plant.name == "other cluster" and not mine:
            money = sum((Decimal(one["money"]) for one in said["unmatched"]), Decimal(0))
            table.money("other cluster (listed as unmatched)", plant.money or Decimal(0), money)
            continue
        best = min(mine, key=lambda one: abs(Decimal(one["money"]) - (plant.money or 0)), default=None)
        if best is None:
            table.says(plant.name, f"{plant.money}", "not found", False)
            continue
        left.remove(best)
        if plant.name == "two currencies":
            table.says(f"{plant.name} ({best['kind']})", f"{plant.money} USD", f"{best['money']} {best['currency']}")
            table.says(f"{plant.name}: rows", plant.rows, best["rows"])
        elif plant.money is None:
            told = re.search(r"\b2(\.0)? ?h|two hours|\+0?2:?00|7200 s", best["because"]) is not None
            table.says(f"{plant.name} ({best['kind']})", "2 h", best["because"][:90], told)
        else:
            table.money(f"{plant.name} ({best['kind']})", plant.money, best["money"])
            table.says(f"{plant.name}: rows", plant.rows, best["rows"])
    table.says("not planted", "none", "; ".join(f"{one['kind']} {one['money']}" for one in left) or "none")


def effective(charges: list[Charge], said: dict[str, Any]) -> Decimal:
    """Of all charges; those that lie outside the period may be in it or not, as long as it is exact."""
    inside = [one for one in charges if one.item != "host" or int(str(one.row["ChargePeriodEnd"])) > BEGIN]
    sums = {sum((one.effective for one in some), Decimal(0)) for some in (charges, inside)}
    return min(sums, key=lambda one: abs(one - Decimal(said["accrual"]["effective"] or 0)))


def month(given: argparse.Namespace, folder: Path, names: list[str]) -> bool:
    """One month with these defects."""
    cluster = happened(given.seed)
    files, plants = planted(cluster, names, given.seed)
    write(folder, cluster, files, given.version, given.parquet)
    every = [one for charges in files.values() for one in charges]
    table = Table()
    print(f"\n{', '.join(names) or 'clean'}: seed {given.seed}, FOCUS {given.version}"
          f"{' Parquet' if given.parquet else ''}, {len(every):,} charges")  # fmt: skip
    more = []
    if "two-currencies" in names:
        code, _, told, _ = ask(given.taut.split(), folder)
        table.says("two currencies refused", "exit 4, EUR and USD", f"exit {code}: {told[-110:]}",
                   code == 4 and "EUR" in told and "USD" in told)  # fmt: skip
        more = ["--currency", "EUR"]
    code, said, told, took = ask(given.taut.split(), folder, *more)
    table.says("exit", 0, code)
    if code:
        table.says("answer", "JSON", told[-300:])
    elif names:
        defective(said, plants, table)
        own = [one for one in every if one.item != "foreign"]
        table.money("effective cost", effective(own, said), said["accrual"]["effective"])
        print(f"  residual {said['accrual']['residual']}, closes {said['accrual']['closes']}")
    else:
        clean(said, truth(cluster, every), table)
    print(f"  {took:.1f} s")
    return table.show()


def main() -> None:
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--defect", default="", choices=("", *DEFECTS, "all", "each"))
    options.add_argument("--version", default="1.2", choices=("1.0", "1.2", "1.4"))
    options.add_argument("--parquet", action="store_true")
    options.add_argument("--keep", type=Path)
    options.add_argument("--taut", default=f"{sys.executable} -m taut")
    given = options.parse_args()
    runs = {"all": [list(DEFECTS)], "each": [[], *([name] for name in DEFECTS), [n for n in DEFECTS if n != LOCAL],
            list(DEFECTS)]}.get(given.defect, [[given.defect] if given.defect else []])  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        fine = [month(given, given.keep or Path(temporary), names) for names in runs]
    print(f"\n{sum(fine)} of {len(fine)} months right")
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
