"""How fast a bill meets holdings: seconds of CPU and peak memory of booking, defects checked, at a quarter, a half and all.

python bench/bill_speed.py [--jobs 100000] [--rows 1000000]

Of booking alone; bill_verb_speed.py runs the verb on files.

A month of hosts with eight accelerators, hourly charges of every host that was on, jobs one after another on one to sixteen
hosts, each cut into four fates; and some storage.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa

from taut.core.array_types import Ints
from taut.core.tables import Table
from taut.ledger.bill.booking import book
from taut.ledger.bill.rows import Held
from taut.read.focus.focus_columns import COLUMNS
from taut.read.focus.focus_reader import Charges, column_type

HOUR = 3_600 * 10**9
BEGIN = 1_790_812_800 * 10**9  # 2026-10-01
HOURS = 744
FATES = np.array(["hold/init", "kept", "discarded", "detect+recover"], dtype=object)


def held(jobs: int, hosts: int, rng: np.random.Generator) -> Table:
    """Jobs one after another on their hosts, in four fates each."""
    wide = np.minimum(2 ** rng.integers(0, 5, jobs), hosts)
    job = np.repeat(np.arange(jobs), wide)
    host = (
        np.repeat(rng.integers(0, hosts, jobs), wide) + np.arange(len(job)) - np.repeat(np.cumsum(wide) - wide, wide)
    ) % hosts
    length = HOURS * HOUR // (len(job) // hosts + 1)  # as long as fills the month
    order = np.argsort(host, kind="stable")
    turn = np.empty(len(job), dtype=np.int64)
    turn[order] = np.arange(len(job)) - np.searchsorted(host[order], host[order])
    start = BEGIN + turn * length
    cuts = np.array([0, 3, 80, 95, 98]) * (length // 100)
    begin, end = (start[:, None] + cuts[None, :-1]).ravel(), (start[:, None] + cuts[None, 1:]).ravel()
    kept = end <= BEGIN + HOURS * HOUR
    names = np.array([f"gpu-{i:04}" for i in range(hosts)], dtype=object)
    ids = np.array([f"job-{i}" for i in range(jobs)], dtype=object)
    some = {"start_ns": begin[kept], "end_ns": end[kept], "rank_ns": 8 * (end - begin)[kept]}
    texts = {"job": np.repeat(ids[job], 4), "host": np.repeat(names[host], 4), "fate": np.tile(FATES, len(job))}
    count = np.full(int(kept.sum()), 8)
    return Table(Held, {**{name: cells[kept] for name, cells in texts.items()}, **some, "accelerators": count})


def words(texts: list[str], code: Ints) -> pa.Array:
    """A coded column."""
    return pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), pa.array(texts, pa.string()))


def charges(rows: int, hosts: int, rng: np.random.Generator) -> Charges:
    """Hourly charges of all hosts in version 1.2, as the reader makes them."""
    at = np.arange(rows)
    host, hour = at % (hosts + 1), at // (hosts + 1)  # the last is storage
    cents = rng.integers(1500, 1700, rows)
    money = pa.array([f"{c // 100}.{c % 100:02}" for c in cents.tolist()])
    money = money.cast(pa.decimal128(38, 18))
    one = pa.array(["1"]).cast(pa.decimal128(38, 18)).take(pa.array(np.zeros(rows, dtype=np.int64)))
    start = (BEGIN + hour * HOUR) // 1000
    zero = np.zeros(rows, dtype=np.int64)
    found: dict[str, pa.Array] = {
        "BilledCost": money, "EffectiveCost": money, "ListCost": money, "ContractedCost": money, "ContractedUnitPrice": money,
        "PricingQuantity": one, "ConsumedQuantity": one, "ChargePeriodStart": pa.array(start),
        "ChargePeriodEnd": pa.array(start + HOUR // 1000), "BillingPeriodStart": pa.array(zero + BEGIN // 1000),
        "BillingPeriodEnd": pa.array(zero + (BEGIN + HOURS * HOUR) // 1000), "BillingCurrency": words(["EUR"], zero),
        "ResourceId": words([f"arn:cloud:instance/i-0{i:015x}" for i in range(hosts + 1)], host),
        "ResourceName": words([f"gpu-{i:04}" for i in range(hosts + 1)], host), "ChargeCategory": words(["Usage"], zero),
        "ServiceCategory": words(["Compute", "Storage"], (host == hosts).astype(np.int64)),
        "PricingUnit": words(["Hours"], zero), "ConsumedUnit": words(["Hours"], zero), "SkuId": words(["s1"], zero),
        "InvoiceId": words(["i1", "i2"], host % 2),
        "SkuPriceDetails": words(['{"GpuCount": 8}'], zero), "BillingAccountId": words(["a"], zero),
        "Tags": words([f'{{"team": "t{i % 50}", "job": "{i}"}}' for i in range(rows // 512 + 1)], at // 512),
    }  # fmt: skip
    columns = {c.name: found.get(c.name, pa.nulls(rows, column_type(c.name))) for c in COLUMNS}
    columns = {name: cells.cast(column_type(name)) for name, cells in columns.items()}
    table = pa.table({**columns, "row": pa.array(at + 1), "file": words(["bill.csv"], zero)})
    return Charges(table, "1.2", (), (), (), (), ())


def measure(jobs: int, rows: int) -> None:
    """Book once; print a row of the table."""
    rng = np.random.default_rng(1)
    hosts = rows // HOURS - 1
    rows = (hosts + 1) * HOURS
    month, bill = held(jobs, hosts, rng), charges(rows, hosts, rng)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    begin = time.process_time()
    found = book(month, bill)
    took, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    closes = found.booked.effective.sum() + found.removed == found.effective
    print(f"| {jobs:,} | {len(month):,} | {rows:,} | {len(found.booked):,} | {took:.1f} | {before:.2f} | {peak:.2f} | "
          f"{len(found.defects)} | {closes} |", flush=True)  # fmt: skip


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--once", action="store_true")
    given = options.parse_args()
    if given.once:
        measure(given.jobs, given.rows)
        return
    print("| jobs | held rows | charges | booked rows | s of CPU | GiB before | GiB at most | defects | closes |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---|", flush=True)
    for part in (4, 2, 1):
        size = ["--jobs", str(given.jobs // part), "--rows", str(given.rows // part)]
        subprocess.run([sys.executable, __file__, "--once", *size], check=True)


if __name__ == "__main__":
    main()
