"""Tables as other libraries take them: Arrow as it is stored, data frames with words for codes."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pyarrow as pa
import pytest

from taut.core.errors import TautError
from taut.core.tables import Op, Table

NAMES = ["matmul", "<img src=x onerror=alert(1)>"]


@pytest.fixture
def ops() -> Table:
    return Table(Op, {"rank": [0, 1, 1], "kind": [0, 1, 3], "verb": [0, 1, 0], "name": [0, 1, -1], "start_ns": [5, 6, 7]})


def test_rows_move_to_another_order_and_leave_nothing_behind(ops: Table) -> None:
    moved = ops.reordered(np.array([2, 0, 1]))
    assert (moved.start_ns.tolist(), moved.seq.tolist()) == ([7, 5, 6], [-1, -1, -1])
    assert (len(moved), len(ops), ops.columns) == (3, 0, {})


def test_arrow_takes_a_table_as_it_is(ops: Table) -> None:
    assert pa.table(ops).equals(ops.to_arrow())
    assert pa.table(ops)["kind"].to_pylist() == [0, 1, 3]


def test_codes_are_words_where_the_table_knows_them(ops: Table) -> None:
    plain, named = ops.to_words(), ops.named({"name": NAMES}).to_words()
    assert plain["kind"].to_pylist() == ["compute", "communicate", "coordinate"]
    assert plain["verb"].to_pylist() == ["none", "all-reduce", "none"]
    assert plain["name"].to_pylist() == [0, 1, -1]
    assert named["name"].to_pylist() == [*NAMES, None]


def test_words_stay_with_the_rows_that_are_taken(ops: Table) -> None:
    some = ops.named({"name": NAMES}).take(np.array([1])).replace(rank=np.array([9]))
    assert some.to_words().to_pylist()[0]["name"] == NAMES[1]
    assert some.to_words().to_pylist()[0]["rank"] == 9


def test_a_notebook_shows_words_and_names_are_text(ops: Table) -> None:
    html = ops.named({"name": NAMES})._repr_html_()
    assert "Op: 3 rows" in html
    assert "all-reduce" in html
    assert "<img" not in html
    assert "&lt;img" in html


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_is_named_with_its_command(ops: Table, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(TautError, match=f"^{library} is not installed: pip install {library}$"):
        getattr(ops, f"to_{library}")()


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_data_frame_has_the_rows_and_the_words(ops: Table, library: str) -> None:
    pytest.importorskip(library)
    frame = getattr(ops.named({"name": NAMES}), f"to_{library}")()
    assert list(frame.columns) == list(ops.columns)
    assert list(frame["start_ns"]) == [5, 6, 7]
    assert [str(one) for one in frame["kind"]] == ["compute", "communicate", "coordinate"]
    assert list(frame["name"])[:2] == NAMES
    assert list(frame["name"].is_null() if library == "polars" else frame["name"].isna()) == [False, False, True]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_table_without_rows_is_a_frame_without_rows(library: str) -> None:
    pytest.importorskip(library)
    assert len(getattr(Table(Op, {}, 0), f"to_{library}")()) == 0


def test_narrow_columns_take_fewer_bytes_and_read_as_before() -> None:
    ops = Table(Op, {"seq": np.array([5, -1, 300]), "group": np.array([0, 1, 2])})
    narrow = ops.narrowed("seq", "group", "size")  # the last is one value repeated
    assert (ops.nbytes - narrow.nbytes, narrow.seq.dtype, narrow.group.dtype) == (3 * (6 + 3), np.int64, np.int32)
    for one in (narrow, narrow.replace(name=np.zeros(3)), narrow.named({}), pickle.loads(pickle.dumps(narrow))):
        assert (one.seq.tolist(), one.columns["seq"].tolist(), one.size.tolist()) == ([5, -1, 300], [5, -1, 300], [-1] * 3)
    assert narrow.to_arrow().equals(ops.to_arrow())
    assert narrow.replace(seq=np.array([1, 2, 1 << 40])).seq[-1] == 1 << 40
    assert [part.seq.tolist() for part in narrow.parts(2)] == [[5, -1], [300]]
    assert narrow.take(np.array([2, 0])).seq.tolist() == narrow.reordered(np.array([2, 0, 1])).seq[:2].tolist() == [300, 5]
