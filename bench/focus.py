"""How fast a FOCUS bill is read and checked, and written in parts: seconds of CPU and peak memory.

python bench/focus.py [--rows 1000000]           # CSV, compressed CSV and Parquet are read
python bench/focus.py --written [--rows 1000000] # a bill, every charge in four parts, is written as CSV and Parquet

The bill is of version 1.2: hourly charges of 4,096 accelerators' hosts and what lies around them, with 700 bytes a row.
"""

from __future__ import annotations

import argparse
import gzip
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow
import pyarrow.parquet as pq

from taut.read.focus.focus_columns import columns_of

BLOCK = 100_000
PARTS = 4


def block(first: int, rows: int, rng: np.random.Generator) -> pa.Table:
    """Some rows of the bill."""
    at = np.arange(first, first + rows)
    host, hour = at % 4096, (at // 4096) % 720
    quantity = rng.integers(1, 10_000_000, rows)
    cost = [f"{one // 10**4}.{one % 10**4:04}1234" for one in quantity.tolist()]
    start = [f"2026-10-{1 + one // 24:02}T{one % 24:02}:00:00Z" for one in hour.tolist()]
    end = [f"2026-10-{1 + (one + 1) // 24:02}T{(one + 1) % 24:02}:00:00Z" if one < 719 else "2026-10-31T00:00:00Z"
           for one in hour.tolist()]  # fmt: skip
    texts = {
        "BilledCost": cost, "EffectiveCost": cost, "ListCost": cost, "ContractedCost": cost, "ListUnitPrice": "1.000000",
        "ContractedUnitPrice": "1.000000", "PricingQuantity": cost, "ConsumedQuantity": cost,
        "BillingAccountId": "123456789012", "BillingAccountName": "Research and Development", "BillingCurrency": "USD",
        "BillingPeriodStart": "2026-10-01T00:00:00Z", "BillingPeriodEnd": "2026-11-01T00:00:00Z",
        "ChargePeriodStart": start, "ChargePeriodEnd": end, "ChargeCategory": "Usage", "ChargeFrequency": "Usage-Based",
        "ChargeDescription": "On demand, eight accelerators of the current generation, hour or part of an hour",
        "InvoiceId": "2026-10-0001", "InvoiceIssuerName": "A Cloud, Inc.", "ProviderName": "A Cloud",
        "PublisherName": "A Cloud", "PricingCategory": "Standard", "PricingUnit": "Hours", "ConsumedUnit": "Hours",
        "ServiceCategory": "Compute", "ServiceName": "Virtual machines", "ServiceSubcategory": "Virtual Machines",
        "ResourceId": [f"arn:cloud:compute:us-west-2:123456789012:instance/i-0{one:015x}" for one in host.tolist()],
        "ResourceName": [f"gpu-{one:04}" for one in host.tolist()], "ResourceType": "Instance", "RegionId": "us-west-2",
        "RegionName": "US West (Oregon)", "SkuId": "HX8E5N5ZVX7S", "SkuPriceId": "HX8E5N5ZVX7S.JRTCKXETXF.6YS6EN2CT7",
        "SubAccountId": "210987654321", "SubAccountName": "training", "SubAccountType": "Account",
        "Tags": [f'{{"team": "t{one % 50}", "cluster": "c{one % 4}", "job": "{at0 // 512}"}}'
                 for one, at0 in zip(host.tolist(), at.tolist(), strict=True)],
    }  # fmt: skip
    names = [column.name for column in columns_of("1.2")]
    return pa.table({
        name: pa.nulls(rows, pa.string()) if name not in texts else pa.array(texts[name] if isinstance(texts[name], list)
              else [texts[name]] * rows) for name in names
    })  # fmt: skip


def write(folder: Path, rows: int) -> list[Path]:
    """The same bill in three forms."""
    rng = np.random.default_rng(1)
    plain, packed, parquet = folder / "bill.csv", folder / "bill.csv.gz", folder / "bill.parquet"
    first = block(0, min(rows, BLOCK), rng)
    money = [i for i, name in enumerate(first.column_names) if "Cost" in name or "Quantity" in name or "UnitPrice" in name]
    schema = first.schema
    for i in money:
        schema = schema.set(i, pa.field(schema.field(i).name, pa.decimal128(38, 18)))
    with arrow.CSVWriter(str(plain), first.schema) as out, pq.ParquetWriter(parquet, schema) as other:
        for begin in range(0, rows, BLOCK):
            some = block(begin, min(BLOCK, rows - begin), rng)
            out.write_table(some)
            other.write_table(some.cast(schema))
    with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
        shutil.copyfileobj(source, target, 1 << 20)
    return [plain, packed, parquet]


def measure(path: str) -> None:
    """Read one file; print its row of the table."""
    from taut.read.focus.focus_reader import read_focus

    begin = time.process_time()
    charges = read_focus(path)
    took, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = os.path.getsize(path) / 1e6
    print(f"| {Path(path).name} | {charges.table.num_rows:,} | {size:,.0f} | {took:.1f} | {peak:.2f} | {len(charges.broken)} |")


def measure_written(path: str, rows: int, parquet: bool) -> None:
    """Divide the first charges of a bill in four parts each, and write them; print the row of the table."""
    import io

    from taut.core.tables import Table
    from taut.ledger.bill.allocated_parts import allocated_parts
    from taut.ledger.bill.rows import Booked, Held
    from taut.read.focus.focus_reader import read_focus
    from taut.render.focus_table import render_parts

    charges = read_focus(path).table.slice(0, rows // PARTS)
    jobs = 100_000
    fates = np.array(["productive", "fault wait", "jitter wait", "discarded"], dtype=object)
    held = Table(Held, {"job": np.repeat([f"job-{i}" for i in range(jobs)], PARTS), "fate": np.tile(fates, jobs)}, PARTS * jobs)
    charge = np.repeat(np.arange(charges.num_rows), PARTS)
    cost = np.array([int(one * 10**9) for one in charges["EffectiveCost"].to_pylist()])[charge]
    share = np.arange(len(charge)) % PARTS
    tenth = cost // 10
    money = np.where(share == 0, cost - 6 * tenth, share * tenth)
    booked = Table(Booked, {
        "held": charge // 8 % jobs * PARTS + share, "charge": charge, "item": np.full(len(charge), "accelerator time", object),
        "rank_ns": 1 + money, "effective": money, "billed": money,
    }, len(charge))  # fmt: skip
    begin = time.process_time()
    parts = allocated_parts(held, booked, charges)
    divided = time.process_time() - begin
    with open(f"{path}.out", "w+b") as out:
        render_parts(parts.blocks(), parts.filled, out, "1.4", parquet=parquet)
        size = out.seek(0, io.SEEK_END) / 1e6
    took, peak = time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    form = "Parquet" if parquet else "CSV"
    print(
        f"| {form} | {len(parts):,} | {size:,.0f} | {divided:.1f} | {took:.1f} | {took / len(parts) * 1e6:.1f} | {peak:.2f} |"
    )


def write_all(rows: int) -> None:
    """Print the table of writing, at a quarter, a half and all of the rows."""
    print(
        "| form | rows | MB | s of CPU to divide | in all | µs a row | GiB at most |\n|---|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        *_, path = write(Path(folder), -(-rows // PARTS))
        for some in (rows // 4, rows // 2, rows):
            for form in ([], ["--parquet"]):
                command = [sys.executable, __file__, "--file", str(path), "--written", "--rows", str(some), *form]
                subprocess.run(command, check=True)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--written", action="store_true")
    options.add_argument("--parquet", action="store_true")
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--file", default="")
    given = options.parse_args()
    if given.file and given.written:
        measure_written(given.file, given.rows, given.parquet)
        return
    if given.file:
        measure(given.file)
        return
    if given.written:
        write_all(given.rows)
        return
    print("| file | rows | MB | s of CPU | GiB at most | rules broken |\n|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), given.rows):
            subprocess.run([sys.executable, __file__, "--file", str(path)], check=True)


if __name__ == "__main__":
    main()
