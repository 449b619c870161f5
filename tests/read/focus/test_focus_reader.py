"""FOCUS bills as they come: versions, forms of numbers and times, several files, and what is refused."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from focus_bills import bill, text, usage
from taut.core.errors import InputRefused, NotATrace
from taut.read.focus import focus_reader
from taut.read.focus.focus_columns import COLUMNS, VERSIONS, version_of
from taut.read.focus.focus_reader import read_focus


@pytest.mark.parametrize("version", VERSIONS)
def test_a_bill_of_each_version_has_the_same_columns_and_breaks_nothing(version: str, tmp_path: Path) -> None:
    charges = read_focus(bill(tmp_path, [usage(version), usage(version, ResourceId="i-2")]))
    assert charges.version == version
    assert charges.broken == ()
    assert charges.notes == ()
    assert charges.table.column_names == [*(column.name for column in COLUMNS), "row", "file"]
    assert charges.table["ServiceProviderName"].to_pylist() == ["A Cloud", "A Cloud"]
    assert charges.table["row"].to_pylist() == [1, 2]
    assert pc.sum(charges.table["BilledCost"]).as_py() == Decimal(40)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("0.00000080000", "0.0000008"), ("1.5E-7", "0.00000015"), ("-2e+3", "-2000"), ("", None), ("NULL", None),
        ("null", None), (" 4.5 ", "4.5"), ("nan", None), ("0.1234567890123456785", "0.123456789012345678"), ("1e-30", "0"),
    ],
)  # fmt: skip
def test_a_cost_is_a_decimal_however_it_is_written(cell: str, expected: str | None, tmp_path: Path) -> None:
    found = read_focus(bill(tmp_path, [usage(EffectiveCost=cell), usage()])).table["EffectiveCost"]
    assert found.type == pa.decimal128(38, 18)
    assert found[0].as_py() == (None if expected is None else Decimal(expected))
    assert found[1].as_py() == Decimal(20)


def test_what_rounding_loses_is_said_with_its_amount(tmp_path: Path) -> None:
    charges = read_focus(bill(tmp_path, [usage(BilledCost="0.1234567890123456784"), usage(BilledCost="1")]))
    assert charges.notes == ("BilledCost: 1 cells have more than 18 decimals and were rounded, +4.00E-19 in all",)


@pytest.mark.parametrize(
    "cell",
    ["2026-10-05 10:00:00", "2026-10-05T10:00:00Z", "2026-10-05T12:00:00+02:00", "2026-10-05 10:00:00 UTC", "2026-10-05T10:00"],
)
def test_a_time_is_in_utc_however_it_is_written(cell: str, tmp_path: Path) -> None:
    charges = read_focus(bill(tmp_path, [usage(ChargePeriodStart=cell)]))
    assert charges.table["ChargePeriodStart"].to_pylist() == [datetime(2026, 10, 5, 10, tzinfo=UTC)]
    bare = cell in ("2026-10-05 10:00:00", "2026-10-05T10:00")
    assert charges.notes == (("times that name no zone are taken as UTC",) if bare else ())


def test_what_is_no_time_is_null_and_named(tmp_path: Path) -> None:
    charges = read_focus(bill(tmp_path, [usage(ChargePeriodStart="soon"), usage(ChargePeriodStart="2026-10-05")]))
    assert charges.table["ChargePeriodStart"].to_pylist() == [None, datetime(2026, 10, 5, tzinfo=UTC)]
    assert [(one.rule, one.rows) for one in charges.broken] == [
        ("ChargePeriodStart-C-003-M", 1), ("ChargePeriodStart-C-002-M", 2),
    ]  # fmt: skip


def test_a_missing_column_is_null_and_named(tmp_path: Path) -> None:
    charges = read_focus(bill(tmp_path, [usage()], without=["EffectiveCost", "SubAccountId"]))
    assert charges.missing == ("EffectiveCost", "AvailabilityZone", "SubAccountId")
    assert charges.table["EffectiveCost"].null_count == 1
    assert [one.rule for one in charges.broken] == ["CostAndUsage-EffectiveCost-M"]


def test_columns_of_the_exporter_are_kept_and_names_may_be_spelled_otherwise(tmp_path: Path) -> None:
    row = {"billed_cost" if name == "BilledCost" else name: cell for name, cell in usage(x_Discount="0.1", Extra="1").items()}
    charges = read_focus(bill(tmp_path, [row]))
    assert charges.table["BilledCost"].to_pylist() == [Decimal(20)]
    assert charges.table["x_Discount"].to_pylist() == ["0.1"]
    assert "Extra" not in charges.table.column_names
    assert [one.rule for one in charges.broken] == ["ColumnHandling-A-001-M", "ColumnHandling-A-010-M"]


def test_names_of_before_1_0_are_understood(tmp_path: Path) -> None:
    renamed = {"InvoiceIssuerName": "InvoiceIssuer", "ConsumedQuantity": "UsageQuantity", "RegionId": "Region"}
    charges = read_focus(bill(tmp_path, [{renamed.get(name, name): cell for name, cell in usage().items()}]))
    assert charges.table["InvoiceIssuerName"].to_pylist() == ["A Cloud, Inc."]
    assert charges.table["ConsumedQuantity"].to_pylist() == [Decimal(10)]
    assert {one.what for one in charges.broken} == {f"column {new} is called {old!r}" for new, old in renamed.items()}


def test_a_bill_of_few_columns_is_read_and_one_of_invoices_is_not(tmp_path: Path) -> None:
    few = ("BilledCost", "BillingCurrency", "ChargePeriodStart", "ServiceName", "ResourceId")
    charges = read_focus(bill(tmp_path, [{name: usage()[name] for name in few}]))
    assert charges.table["ResourceId"].to_pylist() == ["i-1"]
    assert len([one for one in charges.broken if one.rows == 0]) == 17
    no_charges = [name for name in usage("1.4") if name.startswith("ChargePeriod")]
    with pytest.raises(NotATrace, match="it lacks ChargePeriodStart; export"):
        read_focus(bill(tmp_path, [usage("1.4")], without=no_charges))


def test_own_columns_may_have_another_prefix_and_an_invoice_of_before_1_2_is_found(tmp_path: Path) -> None:
    charges = read_focus(bill(tmp_path, [usage(x_InvoiceId="inv-7", oci_Compartment="c")]))
    assert charges.table["InvoiceId"].to_pylist() == ["inv-7"]
    assert charges.table["oci_Compartment"].to_pylist() == ["c"]
    assert [one.column for one in charges.broken] == ["oci_Compartment"]


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    rows = [usage("1.2"), usage("1.2", BilledCost="1.5E-7", ChargePeriodStart="2026-10-05T10:30:00Z")]
    plain = read_focus(bill(tmp_path, rows)).table
    columns = {name: plain[name] for name in plain.column_names if name not in ("row", "file") and plain[name].null_count == 0}
    columns["Tags"] = pa.array([[("team", "vision")]] * 2, pa.map_(pa.string(), pa.string()))
    columns["BilledCost"] = pa.array([20.0, 1.5e-7])
    columns["ChargePeriodEnd"] = plain["ChargePeriodEnd"].cast(pa.timestamp("ns", "Europe/Berlin"))
    pq.write_table(pa.table(columns), tmp_path / "bill.parquet")
    charges = read_focus(tmp_path / "bill.parquet")
    for name in columns:
        assert charges.table[name].to_pylist() == plain[name].to_pylist(), name
    assert "binary floats" in charges.notes[0]


def test_a_folder_of_files_is_one_bill_and_its_metadata_name_the_version(tmp_path: Path) -> None:
    bill(tmp_path, [usage("1.2", BilledCost="1")], "2.csv")
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(text([usage("1.2", BilledCost="2")]).encode()))
    (tmp_path / "schema.json").write_text(json.dumps({"FocusVersion": "1.1", "SchemaId": "x"}), encoding="utf-8")
    (tmp_path / "readme.txt").write_text("about this bill\n", encoding="utf-8")
    charges = read_focus(tmp_path)
    assert charges.table["BilledCost"].to_pylist() == [Decimal(2), Decimal(1)]
    assert charges.table["row"].to_pylist() == [1, 1]
    assert [Path(file.name).name for file in charges.files] == ["1.csv.gz", "2.csv"]
    assert charges.version == "1.1"
    assert any("has columns of 1.2" in note for note in charges.notes)
    assert any("left out: readme.txt" in note for note in charges.notes)


def test_files_may_have_different_columns(tmp_path: Path) -> None:
    bill(tmp_path, [usage(x_a="1")], "1.csv")
    bill(tmp_path, [usage("1.2", x_b="2")], "2.csv")
    charges = read_focus([tmp_path / "1.csv", tmp_path / "2.csv"])
    assert charges.table.select(["x_a", "x_b", "InvoiceId"]).to_pylist() == [
        {"x_a": "1", "x_b": None, "InvoiceId": None}, {"x_a": None, "x_b": "2", "InvoiceId": "inv-1"},
    ]  # fmt: skip
    assert charges.version == "1.2"
    assert "different versions of FOCUS" in charges.notes[0]


def test_columns_of_odd_types_in_parquet_are_texts_or_refused(tmp_path: Path) -> None:
    row = {name: pa.array([cell]) for name, cell in usage().items()}
    odd = {"x_flag": pa.array([True]), "x_list": pa.array([[1, 2]]), "SubAccountId": pa.array([77])}
    pq.write_table(pa.table(row | odd), tmp_path / "a.parquet")
    table = read_focus(tmp_path / "a.parquet").table
    assert [table[name].to_pylist() for name in odd] == [["true"], ["[1, 2]"], ["77"]]
    pq.write_table(pa.table(row | {"ListCost": pa.array([True])}), tmp_path / "b.parquet")
    with pytest.raises(InputRefused, match="column ListCost holds bool, not numbers"):
        read_focus(tmp_path / "b.parquet")


def test_a_bill_of_many_blocks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        usage(ResourceId=f"i-{i}", BilledCost=f"{i}.25", ChargePeriodStart=f"2026-10-05 0{i % 9}:00:00") for i in range(200)
    ]
    path = bill(tmp_path, [*rows, usage(EffectiveCost="")])
    whole = read_focus(path)
    monkeypatch.setattr(focus_reader, "BLOCK_BYTES", 4000)
    parts = read_focus(path)
    assert parts.table.to_pydict() == whole.table.to_pydict()
    assert parts.broken == whole.broken
    assert [one.rule for one in parts.broken] == ["EffectiveCost-C-003-M", "ChargePeriodStart-C-002-M"]
    assert parts.table["row"].to_pylist() == list(range(1, 202))
    with pytest.raises(InputRefused, match=r"row 201: column ListCost holds 'x'"):
        read_focus(bill(tmp_path, [*rows, usage(ListCost="x")]))


def test_a_header_without_rows_is_an_empty_bill(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(text([usage()]).splitlines()[0] + "\n", encoding="utf-8")
    charges = read_focus(path)
    assert (charges.table.num_rows, charges.broken) == (0, ())


def test_cells_may_hold_line_breaks_and_the_file_windows_ends(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text([usage(Tags='{"a":\n "b"}'), usage()]).replace("\n", "\r\n").encode())
    assert read_focus(path).table["row"].to_pylist() == [1, 2]


def test_no_focus_file_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("job,start\n1,2\n", encoding="utf-8")
    with pytest.raises(
        NotATrace,
        match=r"other\.csv: not a FOCUS file: it lacks BilledCost and EffectiveCost and ChargePeriodStart; export the bill",
    ):
        read_focus(path)


def test_a_cost_that_is_no_number_is_refused_with_its_row(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match=r"bill\.csv, row 2: column BilledCost holds '\$ 5', which is no number"):
        read_focus(bill(tmp_path, [usage(), usage(BilledCost="$ 5")]))


@pytest.mark.parametrize(
    "cell", ["1E+30", "1e21", "123456789012345678901234567890", "12345678901234567e9", "100000000000000000000"]
)
def test_a_cost_beyond_what_is_kept_is_refused(cell: str, tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match=r"row 1: column ListCost holds .*, beyond 20 digits"):
        read_focus(bill(tmp_path, [usage(ListCost=cell)]))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv.gz"
    path.write_bytes(gzip.compress(text([usage()] * 200).encode())[:-20])
    with pytest.raises(InputRefused, match="the gzip stream breaks off"):
        read_focus(path)


def test_a_row_with_too_few_cells_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(text([usage()]) + "1,2\n", encoding="utf-8")
    with pytest.raises(InputRefused, match="not a readable CSV"):
        read_focus(path)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(text([usage()]).replace("ListUnitPrice", "ListCost", 1), encoding="utf-8")
    with pytest.raises(InputRefused, match="two columns are called 'ListCost'"):
        read_focus(path)


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.parquet"
    path.write_bytes(b"PAR1" + b"\0" * 100)
    with pytest.raises(InputRefused, match="not a readable Parquet file"):
        read_focus(path)


def test_a_bill_is_known_by_its_first_line() -> None:
    assert focus_reader.sniff(text([usage()]).encode())
    assert focus_reader.sniff(text([usage()]).replace(",", ";").encode())
    assert not focus_reader.sniff(b"rank,step,name,start,duration\n0,1,a,2,3\n")
    assert not focus_reader.sniff(b'{"BilledCost": 1}')


def test_the_version_is_told_by_the_columns() -> None:
    names = [column.name for column in COLUMNS if column.since <= "1.3"]
    assert version_of(names) == "1.3"
    assert version_of([name for name in names if name not in ("ProviderName", "PublisherName")]) == "1.4"
