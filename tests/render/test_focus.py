"""FOCUS files as they are written: columns of the version, cells, and what is not written."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal

import pyarrow.parquet as pq
import pytest

from focus_rows import usage
from taut.core.errors import UsageError
from taut.read.focus import focus_columns
from taut.render.focus import COLUMNS, OWN, VERSIONS, render
from taut.result.types import FocusRow


def rows_of(rows: list[FocusRow], version: str = "1.4") -> list[dict[str, str]]:
    out = io.BytesIO()
    render(rows, out, version)
    return list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_column_is_one_of_its_version_in_order_and_own_ones_come_last(version: str) -> None:
    names = list(rows_of([usage(x_taut_fate="idle")], version)[0])
    theirs = [name for name in names if not name.startswith("x_")]
    assert theirs == sorted(theirs)
    assert names[len(theirs) :] == ["x_taut_fate", "x_taut_origin"]
    known = {column.name: column for column in focus_columns.columns_of(version)}
    assert set(theirs) <= set(known)
    assert {column.name for column in known.values() if column.mandatory} <= set(theirs)


def test_every_column_of_a_row_is_known_to_the_reader() -> None:
    assert {column.name for column in COLUMNS} <= set(focus_columns.KINDS)
    assert all(focus_columns.is_custom(column.name) for column in OWN)


def test_cells_are_written_as_the_specification_wants() -> None:
    (row,) = rows_of([usage(billed_cost=Decimal("1.50E-7"), effective_cost=Decimal("-100"), list_cost=Decimal("0E-18"))])
    assert (row["BilledCost"], row["EffectiveCost"], row["ListCost"]) == ("0.00000015", "-100", "0")
    assert row["ChargePeriodStart"] == "2026-10-01T00:00:00Z"
    assert (row["ChargeClass"], row["HostProviderName"]) == ("", "A Cloud")


def test_the_ratio_of_a_part_keeps_all_its_decimals() -> None:
    third = Decimal("0.333333333333333333")
    parts = [usage(allocated_method_id="m", allocated_ratio=ratio, allocated_resource_id="j") for ratio in (third, 1 - third)]
    row, _ = rows_of(parts)
    assert json.loads(row["AllocatedMethodDetails"], parse_float=Decimal) == {"Elements": [{"AllocatedRatio": third}]}
    assert (row["AllocatedResourceName"], row["AllocatedTags"], row["x_taut_ratio"]) == ("j", "", str(third))
    assert "AllocatedMethodId" not in rows_of(parts, "1.2")[0]


def test_names_are_data_also_for_a_spreadsheet() -> None:
    (row,) = rows_of([usage(resource_name="=1+1", x_taut_job="-j", charge_description="@x", x_taut_cause='a "quoted", b\nc')])
    assert (row["ResourceName"], row["x_taut_job"], row["ChargeDescription"]) == ("'=1+1", "'-j", "'@x")
    assert row["x_taut_cause"] == 'a "quoted", b\nc'


def test_parquet_has_the_same_columns_and_types() -> None:
    out = io.BytesIO()
    render([usage(), usage(1)], out, parquet=True)
    table = pq.read_table(io.BytesIO(out.getvalue()))
    assert table.column_names == list(rows_of([usage()])[0])
    assert table["BilledCost"].to_pylist() == [Decimal("31.2188")] * 2
    assert table["ChargePeriodStart"][0].as_py() == usage().charge_period_start


def test_ratios_that_do_not_add_up_are_not_written() -> None:
    out = io.BytesIO()
    with pytest.raises(ValueError, match=r"the allocated ratios of bill\.csv:1 add up to 0\.9, not 1"):
        render([usage(allocated_method_id="m", allocated_ratio=Decimal("0.9"))], out)
    assert out.getvalue() == b""


def test_a_version_that_is_not_written_is_named() -> None:
    with pytest.raises(UsageError, match=r"FOCUS 1\.1 is not written; choose 1\.0, 1\.2, 1\.4"):
        render([], io.BytesIO(), "1.1")


def test_no_rows_are_a_header() -> None:
    out = io.BytesIO()
    render([], out)
    assert out.getvalue().startswith(b"BilledCost,BillingAccountId,")
    assert out.getvalue().count(b"\n") == 1
