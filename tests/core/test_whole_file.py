"""Files that appear when they are complete, and follow no link that somebody has planted."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from taut.core.whole_file import whole_file


def test_a_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with whole_file(target) as out:
        out.write(b"new")
        out.flush()
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [target]


def write_and_raise(target: Path, error: type[BaseException]) -> None:
    with whole_file(target) as out:
        out.write(b"new")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_what_was(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"old")
    with pytest.raises(error):
        write_and_raise(target, error)
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("planted", ["file", ".file.part", ".file.new"])
def test_links_are_not_followed(tmp_path: Path, planted: str) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / planted).symlink_to("precious")
    with whole_file(tmp_path / "file") as out:
        out.write(b"new")
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"new"


def test_the_umask_decides_who_may_read(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_the_longest_name_is_written(tmp_path: Path) -> None:
    with whole_file(tmp_path / ("x" * 255)) as out:
        out.write(b"new")


def test_a_device_is_written_to_and_stays_one() -> None:
    with whole_file("/dev/null") as out:
        out.write(b"new")
    assert not Path("/dev/null").is_file()
