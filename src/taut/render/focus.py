"""Charges as FOCUS: CSV or Parquet in version 1.0, 1.2 or 1.4.

Columns of the version come in alphabetical order, taut's own (``x_taut_…``) behind them. A column that no row fills is left
out, unless the version wants it in every file; in 1.0 all are written, because its validator wants them. What a version has
no column for stays in taut's own: the ratio and the origin of an allocated part.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import BinaryIO

from msgspec import Struct

from taut.core.errors import UsageError
from taut.result.types import FocusRow

VERSIONS = ("1.0", "1.2", "1.4")
Cell = str | Decimal | datetime | None
# Texts that a spreadsheet takes for a formula get an apostrophe in front: names are data.
FORMULA = ("=", "+", "-", "@", "\t", "\r")
# The rules of 1.2 look at these also where no charge has an invoice, a commitment or details of its SKU.
NULL_IN_1_2 = ("CommitmentDiscountStatus", "InvoiceId", "SkuPriceDetails")
BLOCK = 10_000
PLACES = 18


class Column(Struct, frozen=True):
    """A column: its name, its cell in a row, the versions that have it, and whether it is written even if it is empty."""

    name: str
    cell: Callable[[FocusRow], Cell]
    since: str = "1.0"
    until: str = VERSIONS[-1]
    always: bool = False


def _field(field: str, since: str = "1.0", always: bool = False) -> Column:
    name = "".join(part.capitalize() for part in field.split("_"))
    return Column(name, attrgetter(field), since, always=always)


def _fields(names: str, since: str = "1.0", always: bool = False) -> list[Column]:
    return [_field(name, since, always) for name in names.split()]


def _details(row: FocusRow) -> str | None:
    """How an allocated part was measured; the ratio keeps all its decimals."""
    if row.allocated_method_id is None or row.allocated_ratio is None:
        return None
    unit = f', "UsageUnit": {json.dumps(row.allocated_usage_unit)}' if row.allocated_usage_unit is not None else ""
    quantity = f', "UsageQuantity": {number(row.allocated_usage_quantity)}' if unit and row.allocated_usage_quantity else ""
    return f'{{"Elements": [{{"AllocatedRatio": {number(row.allocated_ratio)}{unit}{quantity}}}]}}'


def _allocated_name(row: FocusRow) -> str | None:
    return row.allocated_resource_name if row.allocated_resource_name is not None else row.allocated_resource_id


COLUMNS: tuple[Column, ...] = tuple(
    sorted(
        [
            *_fields(
                "billed_cost effective_cost list_cost contracted_cost billing_currency billing_account_id billing_account_name "
                "billing_period_start billing_period_end charge_period_start charge_period_end charge_category charge_class "
                "charge_description invoice_issuer_name service_category service_name pricing_quantity pricing_unit",
                always=True,
            ),
            *_fields(
                "charge_frequency resource_id resource_name resource_type region_id region_name availability_zone "
                "sub_account_id sub_account_name sku_id sku_price_id pricing_category list_unit_price contracted_unit_price "
                "consumed_quantity consumed_unit commitment_discount_category commitment_discount_id "
                "commitment_discount_name commitment_discount_status commitment_discount_type tags"
            ),
            *_fields(
                "service_subcategory sku_meter sku_price_details commitment_discount_quantity commitment_discount_unit "
                "capacity_reservation_id capacity_reservation_status billing_account_type sub_account_type invoice_id "
                "pricing_currency pricing_currency_contracted_unit_price pricing_currency_effective_cost "
                "pricing_currency_list_unit_price", "1.2",
            ),
            *_fields(
                "invoice_detail_id allocated_method_id allocated_resource_id allocated_tags contract_applied "
                "commitment_program_eligibility_details", "1.4",
            ),
            Column("ProviderName", lambda row: row.service_provider_name, until="1.2", always=True),
            Column("PublisherName", lambda row: row.publisher_name or row.service_provider_name, until="1.2", always=True),
            Column("ServiceProviderName", lambda row: row.service_provider_name, "1.4", always=True),
            Column("HostProviderName", lambda row: row.host_provider_name or row.service_provider_name, "1.4", always=True),
            Column("AllocatedResourceName", _allocated_name, "1.4"),
            Column("AllocatedMethodDetails", _details, "1.4"),
        ],
        key=lambda column: column.name,
    )
)  # fmt: skip
OWN: tuple[Column, ...] = (
    *(Column(f"x_taut_{name}", attrgetter(f"x_taut_{name}")) for name in ("category", "cause", "fate", "item")),
    Column("x_taut_job", attrgetter("x_taut_job")),
    Column("x_taut_origin", attrgetter("x_taut_origin")),
    Column("x_taut_ratio", attrgetter("allocated_ratio")),
    Column("x_taut_team", attrgetter("x_taut_team")),
)


def render(rows: Sequence[FocusRow], out: BinaryIO, version: str = VERSIONS[-1], *, parquet: bool = False) -> None:
    """Write rows as a FOCUS file; nothing is written where the ratios of an origin do not add up to 1."""
    columns = columns_of(rows, version)
    check_ratios(rows)
    if parquet:
        _parquet(rows, columns, out)
        return
    for text in _csv(rows, columns):
        out.write(text.encode())


def check_ratios(rows: Iterable[FocusRow]) -> None:
    """Refuse ratios that do not add up to exactly 1 over the parts of an origin."""
    totals: dict[str, Fraction] = {}
    for row in rows:
        if row.x_taut_origin is not None and row.allocated_ratio is not None:
            totals[row.x_taut_origin] = totals.get(row.x_taut_origin, Fraction(0)) + Fraction(row.allocated_ratio)
    for origin, total in totals.items():
        if total != 1:
            raise ValueError(f"the allocated ratios of {origin} add up to {float(total)!r}, not 1")


def columns_of(rows: Sequence[FocusRow], version: str) -> list[Column]:
    """The columns that are written: those of the version that some row fills, and those that it wants in any case."""
    filled = (column for column in (*COLUMNS, *OWN) if any(column.cell(row) is not None for row in rows))
    return chosen({column.name for column in filled}, version)


def chosen(filled: Collection[str], version: str) -> list[Column]:
    """The columns that are written where these are not empty."""
    if version not in VERSIONS:
        raise UsageError(f"FOCUS {version} is not written; choose {', '.join(VERSIONS)}")
    mine = [column for column in COLUMNS if column.since <= version <= column.until]
    return [column for column in (*mine, *OWN) if column.name in filled or column.always or _wanted(column, filled, version)]


def _wanted(column: Column, filled: Collection[str], version: str) -> bool:
    """Whether an empty column is written too: all of 1.0, some of 1.2, and in 1.4 those that allocated parts must have."""
    if version == "1.0":
        return column not in OWN
    if version == "1.2":
        return column.name in NULL_IN_1_2
    return column.name in ("AllocatedResourceId", "AllocatedResourceName", "AllocatedTags") and "AllocatedMethodId" in filled


def _csv(rows: Sequence[FocusRow], columns: Sequence[Column]) -> Iterator[str]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.name for column in columns)
    for count, row in enumerate(rows, 1):
        writer.writerow([_text(column.cell(row)) for column in columns])
        if count % BLOCK == 0:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _text(cell: Cell) -> str:
    """A cell of a CSV; nothing is an empty cell."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(FORMULA) else cell
    return number(cell) if isinstance(cell, Decimal) else _moment(cell)


@lru_cache(maxsize=4096)
def _moment(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def number(value: Decimal | None) -> str:
    """A decimal without an exponent and without zeros at its end."""
    if value is None:
        return ""
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def _parquet(rows: Sequence[FocusRow], columns: Sequence[Column], out: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {
        column.name: _kind(next((cell for row in rows if (cell := column.cell(row)) is not None), "")) for column in columns
    }
    schema = pa.schema([pa.field(name, kind) for name, kind in kinds.items()])
    with pq.ParquetWriter(out, schema) as writer:
        for first in range(0, max(len(rows), 1), BLOCK):
            block = rows[first : first + BLOCK]
            writer.write_table(
                pa.table({column.name: pa.array([column.cell(row) for row in block], kinds[column.name]) for column in columns})
            )


def _kind(cell: Cell) -> object:
    import pyarrow as pa

    match cell:
        case Decimal():
            return pa.decimal128(38, PLACES)
        case datetime():
            return pa.timestamp("us", "UTC")
    return pa.string()
