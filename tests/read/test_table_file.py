"""Tables in files: names and sizes first, then only the columns that are asked for."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from taut.core.errors import InputRefused, TooLarge
from taut.read.table_file import open_table


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def repeated(value: Any, rows: int) -> pa.DictionaryArray:
    """One value in many rows, which a file holds once."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


@pytest.mark.parametrize("data", [b"a,b,c\n1,2,x\n", parquet({"a": [1], "b": [2], "c": ["x"]})], ids=["csv", "parquet"])
def test_only_the_columns_that_are_asked_for(data: bytes) -> None:
    table = open_table(data, "t")
    assert table.names == ["a", "b", "c"]
    assert table.read(["c", "a"]).column_names == ["c", "a"]


@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfa,b\n1,2\n", b"\n\na,b\n1,2\n", b'"a", b \r\n1,2\r\n', b"a,b,,\n1,2,,\n", b"a,b,b\xff\n1,2,\xff\n"]
)
def test_headers_as_people_write_them(data: bytes) -> None:
    assert open_table(data, "t").read(["a"]).to_pydict() == {"a": [1]}


def test_a_csv_without_rows_has_columns_all_the_same() -> None:
    assert open_table(b"a,b\n", "t").read(["a"]).num_rows == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"a,b,a\n1,2,3\n", "two columns are called 'a'"),
        (b"a,b,A\n1,2,3\n", "two columns are called 'a'"),
        (b"a,b" + b"," * 1_000_000 + b"\n1,2\n", "more than 10,000 columns"),
        (b"a" * 2_000_000, "a first line of more than 1 MiB"),
        (b"a,b\n\xff,1\n", "column a is not UTF-8"),
        (b'a,"b\nc"\n1,2\n', "a header of several lines"),
        (b"a,\0\n1,2\n", "a NUL byte in the header"),
        (b"a,b\n1\n", "not a readable CSV"),
        (b"a,b\n1," + b"x" * 3_000_000 + b"\n", "not a readable CSV"),
        (parquet({"a": [[1, 2]]}), "column a holds list"),
        (parquet({"a": [{"b": 1}]}), "column a holds struct"),
        (parquet({"a": pa.array([b"\xff"])}), "column a holds binary, not text"),
        (parquet({"a": repeated("x" * 2_000_000, 3)}), "column a holds a text of 2,000,000 bytes"),
        (parquet({"a": [1]})[:-20], "not a readable Parquet file"),
    ],
)
def test_refused_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(InputRefused, match=why) as refused:
        open_table(data, "t").read(["a"])
    assert str(refused.value).startswith("t: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "column",
    [repeated(7, 5_000_000), repeated("x" * 900_000, 3_000_000), pa.array(["x" * 1_000_000] * 30)],
    ids=["numbers", "texts", "pages"],
)
def test_what_inflates_like_no_table_is_refused_before_it_does(column: Any) -> None:
    data = parquet({"a": column, "b": column}, compression="zstd", store_schema=False, use_dictionary=len(column) > 1000)
    assert len(data) < 200_000
    with pytest.raises(TooLarge, match="inflates to more than"):
        open_table(data, "t").read(["a"])


def test_many_columns_of_the_same_cells_are_an_ordinary_table() -> None:
    """A month of hourly charges of 60 hosts, as pyarrow writes it: nearly every column says the same in each row."""
    rows, names = 43_500, [f"c{i}" for i in range(60)]
    data = parquet({name: repeated("EUR", rows) for name in names})
    assert len(data) * 200 < rows * len(names) * 8
    assert open_table(data, "t").read(names).num_rows == rows


def test_texts_that_repeat_the_one_before_are_counted_as_long_as_they_may_be() -> None:
    texts = ["a" * 100_000 + str(i) for i in range(500)]
    data = parquet({"a": texts}, compression="zstd", use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    with pytest.raises(TooLarge, match="inflates to more than"):
        open_table(data, "t").read(["a"])


def test_a_column_that_nobody_asks_for_may_be_anything() -> None:
    rows = 3_000_000
    bomb = parquet({"a": repeated(1, 2), "b": repeated("x" * 100, 2)}, store_schema=False)
    assert open_table(bomb, "t").read(["a"])["a"].to_pylist() == [1, 1]
    junk = parquet({"a": pa.array([1.0] * 3)} | {"b": [[1] * rows, None, None]}, compression="zstd")
    assert open_table(junk, "t").read(["a"]).num_rows == 3


def test_a_long_footer_is_not_read() -> None:
    footer = b"\0" * (2 << 20)
    with pytest.raises(TooLarge, match="a footer of 2,097,152 bytes"):
        open_table(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1", "t").names  # noqa: B018


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_damaged_parquet_is_read_or_refused(version: str, compression: str) -> None:
    """Every byte of a small file set to another value: Arrow alone ends the process at some of these."""
    data = parquet(
        {"a": [1, 2, None], "b": ["x", "y", "x"]}, data_page_version=version, compression=compression, write_page_index=True
    )
    for at in range(4, len(data) - 8):
        damaged = bytearray(data)
        damaged[at] ^= 0x15
        with suppress(InputRefused):
            open_table(bytes(damaged), "t").read(["a", "b"])
