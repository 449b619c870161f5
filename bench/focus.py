"""How fast a FOCUS bill is read and checked: seconds of CPU and peak memory, CSV, compressed CSV and Parquet.

python bench/focus.py [--rows 1000000]

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


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--file", default="")
    given = options.parse_args()
    if given.file:
        measure(given.file)
        return
    print("| file | rows | MB | s of CPU | GiB at most | rules broken |\n|---|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for path in write(Path(folder), given.rows):
            subprocess.run([sys.executable, __file__, "--file", str(path)], check=True)


if __name__ == "__main__":
    main()
