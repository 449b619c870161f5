"""Columns of Arrow as arrays: as ``to_numpy`` gives them, and codes of words."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from taut.core.coded_columns import codes_of, values_of


@pytest.mark.parametrize(
    "column",
    [
        pa.chunked_array([pa.array([1, 2, 3], pa.int32())]),
        pa.chunked_array([pa.array([1.5, float("nan")]), pa.array([2.5])]),
        pa.chunked_array([pa.array([True, False, True, True]).slice(1), pa.array([False])]),
        pa.chunked_array([pa.array([9, 1, 2, 3], pa.int64()).slice(1, 2), pa.array([], pa.int64())]),
        pa.chunked_array([pa.array(["b", "a", "b"]), pa.array(["", "ä"]).slice(1)]),
        pa.chunked_array([], pa.int16()),
        pa.chunked_array([], pa.string()),
    ],
    ids=str,
)
def test_values_are_those_of_to_numpy(column: pa.ChunkedArray) -> None:
    found, expected = values_of(column), column.to_numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_codes_are_places_in_the_words_and_missing_ones_minus_one() -> None:
    chunks = [pa.array(["b", None, "a"]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]
    found = codes_of(pa.chunked_array(chunks), ["a", "b", "c"], "int8")
    assert (found.tolist(), found.dtype) == ([1, -1, 0, 0], np.dtype("int8"))


def test_a_word_that_is_none_of_the_column_is_refused() -> None:
    with pytest.raises(ValueError, match="'z' is no word of this column"):
        codes_of(pa.chunked_array([pa.array(["z"]).dictionary_encode()]), ["a"], "int32")
