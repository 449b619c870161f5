"""Allocated charges as FOCUS, from columns: CSV or Parquet in version 1.0, 1.2 or 1.4.

Columns of the version come in alphabetical order, taut's own (``x_taut_…``) behind them. A column that no row fills is left
out, unless the version wants it in every file; in 1.0 all are written, because its validator wants them. What a version has
no column for stays in taut's own: the ratio and the origin of an allocated part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from taut.core.decimal_units import ONE, texts_of, units_of
from taut.core.errors import UsageError

UNIT = "Nanoseconds"
ELSE = {
    **dict.fromkeys(("ProviderName", "PublisherName", "HostProviderName"), "ServiceProviderName"),
    "AllocatedResourceName": "AllocatedResourceId",
}
"""Column → the one whose cell stands for an empty cell of it."""
NUMBERS = ("Cost", "Quantity", "UnitPrice", "_ratio")
TIMES = ("PeriodStart", "PeriodEnd")
VERSIONS = ("1.0", "1.2", "1.4")
# The rules of 1.2 look at these also where no charge has an invoice, a commitment or details of its SKU.
NULL_IN_1_2 = ("CommitmentDiscountStatus", "InvoiceId", "SkuPriceDetails")


class Column(Struct, frozen=True):
    """A column: its name, the versions that have it, and whether it is written even if it is empty."""

    name: str
    since: str = "1.0"
    until: str = VERSIONS[-1]
    always: bool = False


def _fields(names: str, since: str = "1.0", always: bool = False) -> list[Column]:
    return [Column("".join(part.capitalize() for part in name.split("_")), since, always=always) for name in names.split()]


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
                "pricing_currency_list_unit_price",
                "1.2",
            ),
            *_fields(
                "invoice_detail_id allocated_method_id allocated_resource_id allocated_tags contract_applied "
                "commitment_program_eligibility_details",
                "1.4",
            ),
            *(Column(name, until="1.2", always=True) for name in ("ProviderName", "PublisherName")),
            *(Column(name, "1.4", always=True) for name in ("ServiceProviderName", "HostProviderName")),
            *(Column(name, "1.4") for name in ("AllocatedResourceName", "AllocatedMethodDetails")),
        ],
        key=lambda column: column.name,
    )
)
OWN: tuple[Column, ...] = tuple(
    Column(f"x_taut_{name}") for name in ("category", "cause", "fate", "item", "job", "origin", "ratio", "team")
)


def render_parts(
    blocks: Iterable[pa.Table], filled: Collection[str], out: BinaryIO, version: str, *, parquet: bool = False
) -> None:
    """Write blocks of parts; an origin lies in one of them, and its ratios add up to 1, or ValueError says which do not."""
    names = _names(filled, version)
    if parquet:
        _parquet(blocks, names, out)
        return
    out.write(",".join(names).encode() + b"\n")
    for block in blocks:
        _check_ratios(block)
        out.write(_csv(block, names))


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


def _names(filled: Collection[str], version: str) -> list[str]:
    """The columns that are written; those of whoever wrote the bill (``x_…``) stand before taut's own."""
    derived = {name for name, other in ELSE.items() if other in filled}
    names = [column.name for column in chosen({*filled, *derived}, version)]
    theirs = sorted(name for name in filled if name.lower().startswith("x_") and not name.startswith("x_taut_"))
    own = next((i for i, name in enumerate(names) if name.startswith("x_taut_")), len(names))
    return [*names[:own], *theirs, *names[own:]]


def _check_ratios(block: pa.Table) -> None:
    ratio, _ = units_of(block["x_taut_ratio"].combine_chunks())
    coded = block["x_taut_origin"].combine_chunks().dictionary_encode()
    total = np.zeros(len(coded.dictionary), dtype=object)
    np.add.at(total, coded.indices.to_numpy(), ratio)
    wrong = np.flatnonzero(total != ONE)
    if len(wrong):
        origin = coded.dictionary[int(wrong[0])].as_py()
        raise ValueError(f"the allocated ratios of {origin} add up to {total[wrong[0]] / ONE!r}, not 1")


def _column(block: pa.Table, name: str) -> pa.Array:
    """One column of what is written; null where the block has none."""
    if name == "AllocatedMethodDetails":
        return _details(block)
    if name in ELSE:
        other = _plain(_column(block, ELSE[name]))
        return pc.coalesce(_plain(block[name].combine_chunks()), other) if name in block.column_names else other
    return block[name].combine_chunks() if name in block.column_names else pa.nulls(block.num_rows, _kind(name))


def _kind(name: str) -> pa.DataType:
    if name.endswith(NUMBERS):
        return pa.decimal128(38, 18)
    return pa.timestamp("us", "UTC") if name.endswith(TIMES) else pa.string()


def _details(block: pa.Table) -> pa.Array:
    """How allocated parts were measured; the ratio keeps all its decimals."""
    paid = block["paid_ns"].combine_chunks()
    used = pc.binary_join_element_wise(f', "UsageUnit": "{UNIT}", "UsageQuantity": ', paid.cast(pa.string()), "")
    used = pc.if_else(pc.greater(paid, 0), used, f', "UsageUnit": "{UNIT}"')
    ratio = texts_of(block["x_taut_ratio"].combine_chunks())
    return pc.binary_join_element_wise('{"Elements": [{"AllocatedRatio": ', ratio, used, "}]}", "")


def _plain(cells: pa.Array) -> pa.Array:
    return cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells


def _csv(block: pa.Table, names: Sequence[str]) -> pa.Buffer:
    """The lines of a block: the memory of one array of texts is what is written."""
    cells = [_cells(_column(block, name)).cast(pa.large_string()) for name in names]
    comma, nothing, end = (pa.scalar(text, pa.large_string()) for text in (",", "", "\n"))
    lines = pc.binary_join_element_wise(*cells, comma, null_handling="replace", null_replacement="")
    whole = pc.binary_join_element_wise(lines, nothing, end)
    ends = np.frombuffer(whole.buffers()[1], dtype=np.int64)[whole.offset : whole.offset + len(whole) + 1]
    return whole.buffers()[2].slice(int(ends[0]), int(ends[-1] - ends[0]))


def _cells(cells: pa.Array) -> pa.Array:
    """Cells of a CSV as text. What comes again is written once and repeated."""
    if pa.types.is_decimal(cells.type):
        return texts_of(cells)
    coded = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
    words = coded.dictionary
    if pa.types.is_timestamp(words.type):
        words = pc.strftime(words.cast(pa.timestamp("s", "UTC"), safe=False), "%Y-%m-%dT%H:%M:%SZ")
    else:
        words = _quoted(words)
    return words.take(coded.indices)


def _quoted(words: pa.Array) -> pa.Array:
    """Texts as cells: no spreadsheet takes one for a formula, no reader two for one."""
    formula = pc.match_substring_regex(words, r"^[=+\-@\t\r]")
    words = pc.if_else(formula, pc.binary_join_element_wise("'", words, ""), words)
    doubled = pc.binary_join_element_wise('"', pc.replace_substring(words, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(words, '[",\r\n]'), doubled, words)


def _parquet(blocks: Iterable[pa.Table], names: Sequence[str], out: BinaryIO) -> None:
    schema = pa.schema([pa.field(name, _kind(name)) for name in names])
    with pq.ParquetWriter(out, schema) as writer:
        for block in blocks:
            _check_ratios(block)
            cells = {name: _plain(_column(block, name)) for name in names}
            writer.write_table(pa.table({name: one.cast(_kind(name)) for name, one in cells.items()}, schema=schema))
