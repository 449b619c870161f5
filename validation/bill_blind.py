"""``taut bill`` against a month that somebody made who had read its documents and none of its code.

    python validation/bill_blind.py [--seed N] [--only TEXT] [--keep FOLDER]

Another shape than ``bill_month.py``: hosts of one, four and eight accelerators, a reserved pool, spot, hosts that come and go,
halves of hosts, three versions of FOCUS, two currencies, three zones. Every case prints right or wrong, and what differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import blind_more
from blind_cases import cases
from blind_month import Case, Planted, Result

CENT = Fraction(1, 100)


def ask(case: Case) -> tuple[int, Result, str]:
    """Run the command as a user would."""
    command = [sys.executable, "-m", "taut", "bill", *case.args, "--json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "TAUT_AUDIT": "off"})
    try:
        found: Result = json.loads(done.stdout)
    except json.JSONDecodeError:
        found = {}
    return done.returncode, found, done.stderr.strip()


def money(value: object) -> Fraction:
    """A decimal string, exactly; nothing is nothing."""
    return Fraction(Decimal(str(value))) if value is not None else Fraction(0)


def complaints(case: Case) -> list[str]:
    """All that is not as it should be."""
    code, found, said = ask(case)
    if case.may_refuse and code == 4:
        return []
    if code != case.exit:
        return [f"exit {code}, not {case.exit}: {said.splitlines()[-1][:300] if said else ''}"]
    text = json.dumps(found, ensure_ascii=False) + said
    wrong = [f"does not say {word!r}" for word in case.words if word not in text]
    if not found:
        return wrong
    wrong += list(_figures(found, case))
    told = case.test(found) if case.test else None
    wrong += [told] if told else []
    if case.charges is not None:
        wrong += [*_sums(found, case), *_closing(found, case), *_defects(found, case)]
    if case.truth:
        wrong += _shares("category", found["categories"], case.truth.category)
        for name in case.drill:
            wrong += _shares(name, found["by"].get(name, []), getattr(case.truth, name))
    return wrong


def _sums(found: Result, case: Case) -> Iterable[str]:
    accrual = found["accrual"]
    if accrual["effective"] is None:
        yield "effective is null"
        return
    paid = (
        sum((Fraction(row.effective) for row in case.charges or []), Fraction(0)) if case.effective is None else case.effective
    )
    if abs(money(accrual["effective"]) - paid) > Fraction(1, 10**9 if case.effective is None else 10**6):
        yield f"effective {accrual['effective']}, truly {float(paid):.10f}"
    ledger = money(accrual["ledger"])
    if money(accrual["effective"]) - ledger != money(accrual["residual"]):
        yield "effective less ledger is not the residual"
    for name, rows in [("lines", found["lines"]), ("categories", found["categories"]), *found["by"].items()]:
        if rows and sum((money(row["money"]) for row in rows), Fraction(0)) != ledger:
            yield f"{name} add up to {float(sum(money(row['money']) for row in rows)):.9f}, the ledger is {float(ledger):.9f}"


def _closing(found: Result, case: Case) -> Iterable[str]:
    residual = money(found["accrual"]["residual"])
    if abs(residual - Fraction(case.out)) > CENT:
        yield f"residual {float(residual):.6f}, truly {float(case.out):.6f}"
    if found["accrual"]["closes"] != (residual == 0):
        yield f"closes is {found['accrual']['closes']} with a residual of {float(residual):.9f}"
    if residual != money(found["accrual"]["explained"]):
        yield f"explained is {found['accrual']['explained']} of {float(residual):.9f}"
    apart = sum((money(row["money"]) for row in found["unmatched"]), Fraction(0)) - Fraction(case.unmatched)
    if abs(apart) > max(CENT, abs(money(found["accrual"]["effective"])) / 1000):
        yield f"unmatched {float(apart):+.2f}: {[row['resource'] for row in found['unmatched']][:4]}"
    if found["period"]["open"] != case.open:
        yield f"open is {found['period']['open']}"
    yield from _invoices(found, case)


def _invoices(found: Result, case: Case) -> Iterable[str]:
    if case.effective is not None or any(row.currency for row in case.charges or []):
        return
    billed: dict[str | None, Fraction] = defaultdict(Fraction)
    for row in case.charges or []:
        billed[row.invoice] += Fraction(row.billed)
    whole = sum(billed.values(), Fraction(0))
    told = {row["id"]: money(row["billed"]) for row in found["invoices"]}
    expected = {None: whole} if set(told) == {None} else dict(billed)
    for key in {*told, *expected}:
        if abs(told.get(key, Fraction(0)) - expected.get(key, Fraction(0))) > Fraction(1, 10**9):
            yield f"invoice {key}: billed {float(told.get(key, 0)):.6f}, truly {float(expected.get(key, 0)):.6f}"
    for row in found["invoices"]:
        if not case.planted and not row["closes"]:
            yield f"invoice {row['id']} does not close: {row['residual']}"


def _defects(found: Result, case: Case) -> Iterable[str]:
    if case.any_defects:
        return
    left = list(found["defects"])
    for planted in case.planted:
        same = [row for row in left if _is(row, planted)]
        if not same:
            near = [f"{row['kind']} {row['money']} ({row['rows']} rows)" for row in left][:6]
            yield f"not found: {planted.kinds[0]} of {float(planted.money):.4f}; there are {near}"
        for row in same[:1]:
            left.remove(row)
    for row in left[:4]:
        yield f"false: {row['kind']} {row['money']} ({row['rows']} rows, {row['places'][:1]}): {row['because'][:160]}"


def _is(row: Result, planted: Planted) -> bool:
    same = row["kind"] in planted.kinds and planted.currency in (None, row["currency"])
    return same and abs(money(row["money"]) - Fraction(planted.money)) <= CENT


def _shares(name: str, rows: list[Result], truth: dict[Any, Fraction]) -> list[str]:
    told = {row["name"]: money(row["money"]) for row in rows}
    days = [str(key) for key in truth if name == "day" and key]
    keys = [key for key in {*told, *truth} if name != "day" or (key and key in days and key >= "2026-10-01")]
    off = [(told.get(key, Fraction(0)) - truth.get(key, Fraction(0)), key) for key in keys]
    off = sorted((pair for pair in off if abs(pair[0]) > CENT), key=lambda pair: -abs(pair[0]))
    if not off:
        return []
    worst = ", ".join(f"{key} {float(told.get(key, 0)):.4f} truly {float(truth.get(key, 0)):.4f}" for _, key in off[:3])
    return [f"{name}: {len(off)} of {len(keys)} differ: {worst}"]


def _figures(found: Result, case: Case) -> Iterable[str]:
    for path, true in case.figures.items():
        told = _at(found, path)
        if told is None or abs(float(told) - float(true)) > max(0.005 if "money" in path else 0.0, abs(float(true)) * 1e-6):
            yield f"{path} is {told if told is None else float(told)}, truly {float(true)}"


def _at(found: Result, path: str) -> Fraction | float | None:
    """``lines[item=electricity].money``: a sum over rows; ``energy.joules.value``: a value."""
    if "[" not in path:
        value: Any = found
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else (value or {}).get(key)
        return None if value is None else money(value)
    table, rest = path.split("[")
    test, key = rest.split("].")
    column, wanted = test.split("=")
    values = [row[key] for row in found[table] if str(row[column]) == wanted]
    return sum((money(value) for value in values), Fraction(0)) if any(value is not None for value in values) else None


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    right, began = 0, time.monotonic()
    chosen = [(name, make) for name, make in [*cases(), *blind_more.cases()] if asked.only in name]
    with tempfile.TemporaryDirectory() as scratch:
        for name, make in chosen:
            folder = (asked.keep or Path(scratch)) / name.replace(" ", "-").replace(",", "").replace(":", "")
            folder.mkdir(parents=True, exist_ok=True)
            wrong = complaints(make(folder, asked.seed))
            right += not wrong
            print(f"{'wrong' if wrong else 'right'}  {name}", flush=True)
            for line in wrong:
                print(f"         {line}")
    print(f"{right} of {len(chosen)} right, seed {asked.seed}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
