"""FOCUS files as they are written: columns of the version, cells, and what is not written."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path

import pytest

from focus_rows import FocusRow, render, usage
from taut.core.errors import UsageError
from taut.core.tables import Table
from taut.ledger.bill.allocated_parts import allocated_parts
from taut.ledger.bill.rows import Booked, Held
from taut.read.focus import focus_columns
from taut.read.focus.focus_reader import read_focus
from taut.render.focus_table import COLUMNS, OWN, VERSIONS, chosen, render_parts


def rows_of(charge: FocusRow, folder: Path, version: str = "1.4") -> list[dict[str, str]]:
    """A bill of one charge that nobody divides, written again."""
    with (folder / "bill.csv").open("wb") as out:
        render([charge], out)
    parts = allocated_parts(Table(Held, {}, 0), Table(Booked, {}, 0), read_focus(folder / "bill.csv").table)
    again = io.BytesIO()
    render_parts(parts.blocks(), parts.filled, again, version)
    return list(csv.DictReader(io.StringIO(again.getvalue().decode(), newline="")))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_column_is_one_of_its_version_in_order_and_own_ones_come_last(tmp_path: Path, version: str) -> None:
    names = list(rows_of(usage(), tmp_path, version)[0])
    theirs = [name for name in names if not name.startswith("x_")]
    assert theirs == sorted(theirs)
    assert all(name.startswith("x_taut_") for name in names[len(theirs) :])
    known = {column.name: column for column in focus_columns.columns_of(version)}
    assert set(theirs) <= set(known)
    assert {column.name for column in known.values() if column.mandatory} <= set(theirs)


def test_every_column_of_a_row_is_known_to_the_reader() -> None:
    assert {column.name for column in COLUMNS} <= set(focus_columns.KINDS)
    assert all(focus_columns.is_custom(column.name) for column in OWN)


def test_cells_are_written_as_the_specification_wants(tmp_path: Path) -> None:
    costs = {"billed_cost": Decimal("1.50E-7"), "effective_cost": Decimal("-100"), "list_cost": Decimal("0E-18")}
    (row,) = rows_of(usage(**costs), tmp_path)
    assert (row["BilledCost"], row["EffectiveCost"], row["ListCost"]) == ("0.00000015", "-100", "0")
    assert row["ChargePeriodStart"] == "2026-10-01T00:00:00Z"
    assert (row["ChargeClass"], row["HostProviderName"]) == ("", "A Cloud")


def test_names_are_data_also_for_a_spreadsheet(tmp_path: Path) -> None:
    (row,) = rows_of(usage(resource_name="=1+1", charge_description="@x", region_name='a "quoted", b\nc'), tmp_path)
    assert (row["ResourceName"], row["ChargeDescription"]) == ("'=1+1", "'@x")
    assert row["RegionName"] == 'a "quoted", b\nc'


def test_a_version_that_is_not_written_is_named() -> None:
    with pytest.raises(UsageError, match=r"FOCUS 1\.1 is not written; choose 1\.0, 1\.2, 1\.4"):
        chosen((), "1.1")
