"""Booked rows as parts of charges: ratios add up to 1, amounts to the charge, whatever is booked."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_rows import FocusRow, month, render, usage
from taut.core.tables import Table
from taut.ledger.bill.allocated_parts import Allocated, allocated_parts
from taut.ledger.bill.rows import UNIT, Booked, Held
from taut.read.focus.focus_reader import read_focus
from taut.render.focus_table import render_parts

HELD = Table(Held, {
    "job": ["j1", "j1", "j2", "j2"], "team": ["vision", "vision", "", ""],
    "fate": ["productive", "fault wait", "productive", "discarded"], "cause": ["", "f1", "", "node failure"],
    "host": ["node0"] * 4,
})  # fmt: skip
COSTS = ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "PricingQuantity", "ConsumedQuantity")
Row = dict[str, str]


def bill_of(charges: list[FocusRow], folder: Path) -> pa.Table:
    with (folder / "bill.csv").open("wb") as out:
        render(charges, out, "1.4")
    return read_focus(folder / "bill.csv").table


def booked(rows: list[tuple[int, int, str, int, int, int]]) -> Table:
    """(held, charge, item, rank_ns, effective, billed) …"""
    names = ("held", "charge", "item", "rank_ns", "effective", "billed")
    return Table(Booked, {name: [row[i] for row in rows] for i, name in enumerate(names)}, len(rows))


def written(parts: Allocated, version: str = "1.4") -> list[Row]:
    out = io.BytesIO()
    render_parts(parts.blocks(), parts.filled, out, version)
    return list(csv.DictReader(io.StringIO(out.getvalue().decode(), newline="")))


def by_origin(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["x_taut_origin"]].append(row)
    return found


@pytest.fixture(scope="module")
def charges(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    return bill_of(month(), tmp_path_factory.mktemp("bill"))


SOME = st.integers(-(10**12), 10**12)
ROWS = st.tuples(
    st.integers(-1, 3),
    st.integers(-1, 7),
    st.sampled_from(["accelerator time", "storage", "tax"]),
    st.integers(0, 10**15),
    SOME,
    SOME,
)


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(ROWS, max_size=12))
def test_ratios_add_up_to_one_and_amounts_to_the_charge_for_any_booking(
    charges: pa.Table, rows: list[tuple[int, int, str, int, int, int]]
) -> None:
    plain = [(held if item == "accelerator time" else -1, charge, item if held >= 0 else "other service", *rest)
             for held, charge, item, *rest in rows]  # fmt: skip
    found = by_origin(written(allocated_parts(HELD, booked(plain), charges)))
    origins = {f"bill.csv:{row['row']}": row for row in charges.select(["file", "row", *COSTS]).to_pylist()}
    assert set(found) == set(origins)
    for origin, parts in found.items():
        assert sum(Fraction(part["x_taut_ratio"]) for part in parts) == 1
        for column in COSTS:
            cells = [part.get(column) for part in parts if part.get(column)]
            assert sum(Fraction(cell or 0) for cell in cells) == Fraction(origins[origin][column] or 0)
            assert len(cells) == (0 if origins[origin][column] is None else len(parts))


def test_parts_are_what_the_bill_books_by_job_fate_and_cause(tmp_path: Path) -> None:
    table = bill_of([usage(billed_cost=Decimal(0), effective_cost=Decimal(10))], tmp_path)
    rows = [(0, 0, 6, 5), (1, 0, 1, 1), (0, 0, 2, 2), (-1, 0, 2, 2)]
    items = ["accelerator time"] * 3 + ["idle accelerators"]
    parts = allocated_parts(
        HELD,
        booked([(held, charge, item, ns, cost * UNIT, 0) for (held, charge, ns, cost), item in zip(rows, items, strict=True)]),
        table,
    )
    shown = [
        {name: row[f"x_taut_{name}"] for name in ("job", "team", "fate", "cause", "item", "category", "ratio")}
        | {"cost": row["EffectiveCost"]}
        for row in written(parts)
    ]
    held = {"job": "j1", "team": "vision", "item": "accelerator time"}
    assert sorted(shown, key=lambda row: row["ratio"]) == [
        {**held, "fate": "fault wait", "cause": "f1", "category": "lower effective utilisation", "ratio": "0.1", "cost": "1"},
        {"job": "", "team": "", "fate": "", "cause": "", "item": "idle accelerators", "category": "over-provisioning",
         "ratio": "0.2", "cost": "2"},
        {**held, "fate": "productive", "cause": "", "category": "useful work", "ratio": "0.7", "cost": "7"},
    ]  # fmt: skip


def test_what_is_not_booked_is_a_part_of_its_own(tmp_path: Path) -> None:
    table = bill_of([usage(), usage(1)], tmp_path)
    half = 15_609_400_000
    rows = written(allocated_parts(HELD, booked([(0, 0, "accelerator time", 9, half, half)]), table))
    assert [(row["x_taut_item"], row["x_taut_ratio"], row["AllocatedResourceId"]) for row in rows] == [
        ("accelerator time", "0.5", "j1"), ("not booked", "0.5", ""), ("not booked", "1", ""),
    ]  # fmt: skip
    assert [bool(row["AllocatedMethodId"]) for row in rows] == [True, True, False]


def test_a_vast_bill_is_booked_in_coarser_units(tmp_path: Path) -> None:
    cost = Decimal("9000000000")
    table = bill_of([usage(effective_cost=cost, billed_cost=cost)], tmp_path)
    third = 3 * 10**15
    rows = [(0, 0, "accelerator time", 1, third, third), (2, 0, "accelerator time", 1, 2 * third, 2 * third)]
    found = written(allocated_parts(HELD, booked(rows), table, 1_000_000))
    assert [(row["x_taut_item"], row["EffectiveCost"]) for row in found] == [
        ("accelerator time", "3000000000"), ("accelerator time", "6000000000"),
    ]  # fmt: skip


def test_less_than_a_billionth_stays_with_the_charge(tmp_path: Path) -> None:
    cost = Decimal("1.000000000400000001")
    table = bill_of([usage(effective_cost=cost, billed_cost=cost)], tmp_path)
    rows = written(allocated_parts(HELD, booked([(0, 0, "accelerator time", 1, UNIT // 2, UNIT // 2),
                                                 (1, 0, "accelerator time", 1, UNIT // 2, UNIT // 2)]), table))  # fmt: skip
    assert [row["EffectiveCost"] for row in rows] == ["0.500000000200000001", "0.5000000002"]


def test_what_no_charge_pays_for_is_not_written(charges: pa.Table) -> None:
    parts = allocated_parts(HELD, booked([(0, -1, "accelerator time", 1, 7 * UNIT, 0)]), charges)
    assert {row["x_taut_item"] for row in written(parts)} == {"not booked"}


def test_two_files_of_one_name_have_charges_of_their_own(charges: pa.Table) -> None:
    twice = pa.concat_tables([charges, charges])
    assert len(by_origin(written(allocated_parts(HELD, booked([]), twice)))) == 16


@pytest.mark.parametrize("version", ["1.0", "1.2", "1.4"])
def test_charges_that_nobody_divides_are_written_as_they_were(charges: pa.Table, tmp_path: Path, version: str) -> None:
    parts = allocated_parts(HELD, booked([]), charges)
    once, again = io.BytesIO(), io.BytesIO()
    render(month(), once, version)
    render_parts(parts.blocks(), parts.filled, again, version)
    first, second = (list(csv.DictReader(io.StringIO(one.getvalue().decode()))) for one in (once, again))
    own = ("x_taut_item", "x_taut_category", "x_taut_ratio", "x_taut_origin")
    assert [{key: cell for key, cell in row.items() if key not in own} for row in second] == [
        {key: cell for key, cell in row.items() if key not in own} for row in first
    ]


def test_blocks_hold_whole_charges_and_parquet_has_the_same_cells(charges: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(held, charge, "accelerator time", 1 + held, 10**9 + held, 0) for charge in range(8) for held in range(4)]
    parts = allocated_parts(HELD, booked(rows), charges)
    whole = written(parts)
    monkeypatch.setattr("taut.ledger.bill.allocated_parts.BLOCK", 3)
    blocks = list(parts.blocks())
    assert len(blocks) > 3
    assert [row["x_taut_origin"] for row in written(parts)] == [row["x_taut_origin"] for row in whole]
    out = io.BytesIO()
    render_parts(blocks, parts.filled, out, "1.4", parquet=True)
    table = pq.read_table(io.BytesIO(out.getvalue()))
    assert table.column_names == list(whole[0])
    assert table["EffectiveCost"].to_pylist() == [Decimal(row["EffectiveCost"]) for row in whole]
    assert table["AllocatedMethodDetails"].to_pylist() == [row["AllocatedMethodDetails"] or None for row in whole]


def test_ratios_that_do_not_add_up_are_not_written(charges: pa.Table) -> None:
    parts = allocated_parts(HELD, booked([]), charges)
    (block,) = parts.blocks()
    half = pa.array([Decimal("0.5")] * block.num_rows, pa.decimal128(38, 18))
    wrong = block.set_column(block.column_names.index("x_taut_ratio"), "x_taut_ratio", half)
    with pytest.raises(ValueError, match=r"the allocated ratios of bill\.csv:1 add up to 0\.5, not 1"):
        render_parts([wrong], parts.filled, io.BytesIO(), "1.4")
