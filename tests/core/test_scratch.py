"""Long columns on disk: the same numbers, nothing left behind, and an answer without room."""

import gc
from pathlib import Path

import numpy as np
import pytest

from taut.core import scratch
from taut.core.scratch import columns_on_disk, kept, kept_together
from taut.core.tables import Op, Table

LONG = scratch.LEAST_BYTES // 8


def test_without_a_scratch_folder_nothing_moves() -> None:
    values = np.arange(LONG)
    assert kept(values) is values


def test_a_long_array_on_disk_has_the_same_numbers_and_can_be_written(tmp_path: Path) -> None:
    values = np.arange(2 * LONG).reshape(2, -1)[:, ::2]
    with columns_on_disk(tmp_path):
        found = kept(values)
    assert found is not values
    assert np.array_equal(found, values)
    found[0, 0] = 7
    assert found[0, 0] == 7
    assert values[0, 0] == 0


def test_short_arrays_repeated_numbers_and_objects_stay_in_memory(tmp_path: Path) -> None:
    some = [np.arange(LONG - 1), np.broadcast_to(np.int64(3), (LONG,)), np.array([None] * LONG, dtype=object)]
    with columns_on_disk(tmp_path):
        assert all(kept(one) is one for one in some)


def test_what_lies_on_disk_is_not_written_again(tmp_path: Path) -> None:
    with columns_on_disk(tmp_path):
        once = kept(np.arange(4 * LONG))
        assert kept(once) is once
        assert kept(once[LONG:]).base is once[LONG:].base


def test_a_table_lies_in_one_file_however_short_it_is(tmp_path: Path) -> None:
    table = Table(Op, {"rank": [3, 4], "start_ns": [1, 2], "end_ns": [5, 6]})
    with columns_on_disk(tmp_path):
        moved = table.on_disk()
    assert all(np.array_equal(moved.columns[name], column) for name, column in table.columns.items())
    assert moved.start_ns.base is not None
    assert moved.seq.strides == (0,)
    assert kept_together(table.columns) == table.columns  # nowhere to go


def test_files_have_no_name_and_are_gone_with_their_last_reader(tmp_path: Path) -> None:
    with columns_on_disk(tmp_path):
        values = kept(np.arange(LONG))
        part = values[5:10]
    assert not list(tmp_path.iterdir())
    before = _maps()
    del values
    gc.collect()
    assert _maps() == before
    assert part.tolist() == [5, 6, 7, 8, 9]
    del part
    gc.collect()
    assert _maps() == before - 1


def _maps() -> int:
    return Path("/proc/self/maps").read_text().count("taut-columns") + Path("/proc/self/maps").read_text().count("(deleted)")


def test_without_room_on_disk_columns_stay_in_memory(tmp_path: Path) -> None:
    values = np.arange(LONG)
    with columns_on_disk(tmp_path / "missing"):
        assert kept(values) is values
        assert kept_together({"one": values})["one"] is values


@pytest.mark.parametrize("asked", ["TMPDIR", ""])
def test_the_default_folder_is_that_of_temporary_files(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path)) if asked else monkeypatch.delenv("TMPDIR", raising=False)
    with columns_on_disk():
        assert scratch.is_on_disk()
        assert len(kept(np.arange(LONG))) == LONG
    assert not scratch.is_on_disk()


def test_an_array_to_be_filled_lies_on_disk_where_it_is_long(tmp_path: Path) -> None:
    with columns_on_disk(tmp_path):
        long, short = scratch.empty((2, LONG), np.int64), scratch.empty((3,), np.float64)
    long[:] = 5
    assert long.base is not None
    assert long.sum() == 10 * LONG
    assert short.base is None
