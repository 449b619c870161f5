"""The run folder of a bill opened again, for what starts from one: its tables, checked like everything that is read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from taut.core.boundary import refusing_unexpected
from taut.core.errors import RunError
from taut.core.folder import read_listed, read_steadily
from taut.core.tables import Table
from taut.ledger.bill.categories import ITEMS
from taut.ledger.bill.money_units import UNITS
from taut.ledger.bill.rows import Booked, Held
from taut.read.focus.focus_columns import KINDS
from taut.read.focus.focus_reader import column_type
from taut.result.types import BillResult
from taut.stored import Stored, read_columns, read_stored, schema_of


@dataclass(frozen=True)
class StoredBill:
    """A bill as it was saved."""

    folder: Path
    result: BillResult
    held: Table
    booked: Table
    charges: pa.Table | None
    """None where prices stood for a bill."""


def refusing_bill(folder: str | Path) -> AbstractContextManager[None]:
    """A block that works with a bill: what nobody foresaw there is a refusal of its folder."""
    return refusing_unexpected(lambda why: _damaged(Path(folder), why))


def open_bill(folder: str | Path) -> StoredBill:
    """Open the run folder of a bill; says in one line what is wrong with it if anything is."""
    root = Path(folder)
    with refusing_unexpected(lambda why: _damaged(root, why)):
        return read_steadily(root, lambda: _opened(root, read_stored(root)))


def _opened(root: Path, stored: Stored) -> StoredBill:
    if "booked.parquet" not in stored.files:
        raise RunError(f"{root}: not a bill; make one with: taut bill {root} --gpu-hour 2.50EUR -o BILL")
    try:
        result = msgspec.json.decode(stored.result, type=BillResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _damaged(root, str(error)) from None
    if result.money_units not in UNITS:
        raise _damaged(root, f"money_units is {result.money_units}, not one of {', '.join(map(str, UNITS))}")
    held, booked = (
        Table(row, read_columns(root, stored.files, name, schema_of(row))) for row, name in ((Held, "held"), (Booked, "booked"))
    )
    charges = _charges(root, stored) if "charges.parquet" in stored.files else None
    for name, rows in (("held", len(held)), ("charge", 0 if charges is None else charges.num_rows)):
        if len(booked) and not -1 <= int(booked.columns[name].min()) <= int(booked.columns[name].max()) < rows:
            raise _damaged(root, f"a booked row has a {name} that is not there")
    unknown = set(booked.item.tolist()) - set(ITEMS)
    if unknown:
        raise _damaged(root, f"{min(unknown)!r} is no item of a bill")
    return StoredBill(root, result, held, booked, charges)


def _charges(root: Path, stored: Stored) -> pa.Table:
    """The charges, under the types that the reader of bills gives them."""
    name = "charges.parquet"
    data = read_listed(root, name, stored.files.get(name))
    try:
        table = pq.read_table(pa.BufferReader(data))
        table.validate(full=True)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(root, str(error)) from None
    lacking = next((column for column in (*KINDS, "row", "file") if column not in table.column_names), None)
    if lacking is not None:
        raise _damaged(root, f"{name}: column {lacking} is missing")
    wrong = next((column for column in KINDS if table.schema.field(column).type != column_type(column)), None)
    if wrong is not None:
        raise _damaged(root, f"{name}: column {wrong} is {table.schema.field(wrong).type}, not {column_type(wrong)}")
    return table


def _damaged(root: Path, why: str) -> RunError:
    return RunError(f"{root}: damaged run folder ({' '.join(why.split())[:100]}); make the bill again: taut bill")
