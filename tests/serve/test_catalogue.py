"""Which runs are listed: those of the folders that were given, as they come and go, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from served_app import run_folder
from taut.core.folder import RUN
from taut.result.view_types import RunCard, RunList
from taut.serve import catalogue
from taut.serve.catalogue import Catalogue
from taut.serve.refusals import Refused
from taut.views.run_card import run_card

Listed = Callable[[Catalogue], RunList]


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "FRESH_S", 0.0)


def names(found: RunList) -> list[str]:
    return sorted(Path(one.folder).name for one in found.runs)


def test_runs_come_and_go_by_themselves(tmp_path: Path) -> None:
    served = Catalogue([tmp_path])
    empty = served.runs()
    assert (empty.runs, empty.refused) == ([], [])
    one = run_folder(tmp_path / "one")
    first = served.runs()
    assert names(first) == ["one"]
    assert served.runs().version == first.version != empty.version
    run_folder(tmp_path / "team" / "week" / "two", steps=5)
    assert names(served.runs()) == ["one", "two"]
    shutil.rmtree(one)
    last = served.runs()
    assert names(last) == ["two"]
    with pytest.raises(Refused, match="no such run"):
        served.place(first.runs[0].id)


def test_a_run_itself_may_be_given_and_is_listed_once(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "one")
    (tmp_path / "same").symlink_to(one)
    served = Catalogue([one, tmp_path, tmp_path / "same"])
    assert len(served.runs().runs) == 1
    assert served.runs().runs[0].folder == str(one)


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    read: list[str] = []

    def card(folder: Path) -> RunCard:
        read.append(folder.name)
        return run_card(folder)

    served = Catalogue([tmp_path], card)
    run_folder(tmp_path / "one")
    run_folder(tmp_path / "two")
    for _ in range(3):
        served.runs()
    assert read == ["one", "two"]
    run_folder(tmp_path / "one", steps=6)
    assert {one.steps for one in served.runs().runs} == {4, 6}
    assert read == ["one", "two", "one"]


@pytest.mark.parametrize("left", [None, b"PAR1"])
def test_a_run_whose_files_are_gone_or_cut_off_is_a_line_until_they_are_back(tmp_path: Path, left: bytes | None) -> None:
    one = run_folder(tmp_path / "one")
    run_folder(tmp_path / "two")
    data = (one / "ops.parquet").read_bytes()
    (one / "ops.parquet").unlink() if left is None else (one / "ops.parquet").write_bytes(left)
    served = Catalogue([tmp_path])
    found = served.runs()
    assert names(found) == ["two"]
    assert found.refused == [f"{one}: damaged run folder (ops.parquet is missing or has another size); make it again"]
    (one / "ops.parquet").write_bytes(data)
    assert (names(served.runs()), served.runs().refused) == (["one", "two"], [])


def test_links_that_lead_out_are_refused(tmp_path: Path) -> None:
    outside, inside = run_folder(tmp_path / "outside" / "secret"), tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    (inside / "up").symlink_to(tmp_path)
    (inside / "loop").symlink_to(inside)
    (inside / "broken").symlink_to(tmp_path / "nowhere")
    found = Catalogue([inside]).runs()
    assert found.runs == []
    assert [line.partition(": ")[2].split(" out of ")[0] for line in found.refused] == ["a link that leads"] * 2


def test_a_folder_that_becomes_a_link_is_gone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", run_folder(tmp_path / "outside")
    one = run_folder(inside / "one")
    served = Catalogue([inside])
    name = served.runs().runs[0].id
    shutil.rmtree(one)
    one.symlink_to(outside)
    with pytest.raises(Refused, match=r"not there any more|no such run"):
        served.place(name)


def test_a_run_json_that_is_a_link_is_no_run(tmp_path: Path) -> None:
    one, other = run_folder(tmp_path / "out" / "one"), tmp_path / "in" / "other"
    other.mkdir(parents=True)
    (other / RUN).symlink_to(one / RUN)
    assert Catalogue([tmp_path / "in"]).runs().runs == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"format": 4', b'"format": 3'),
        lambda data: data.replace(b'"wall_ns":', b'"wall":'),
        lambda data: data[:60] + b"\xff" * 40,
        lambda data: b'{"format": 4, "version": "1", "result": ' + b"[" * 100_000,
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    one = run_folder(tmp_path / "one") / RUN
    run_folder(tmp_path / "two")
    one.write_bytes(damage(one.read_bytes()))
    found = Catalogue([tmp_path]).runs()
    assert names(found) == ["two"]
    (line,) = found.refused
    assert str(one.parent) in line
    assert "\n" not in line


def test_half_written_and_hidden_folders_are_not_looked_at(tmp_path: Path) -> None:
    one = run_folder(tmp_path / "one")
    os.rename(one, tmp_path / ".taut-half")
    assert Catalogue([tmp_path]).runs().runs == []


def test_a_folder_with_very_much_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "MOST_FOLDERS", 5)
    for k in range(10):
        (tmp_path / f"folder{k}").mkdir()
    assert [line.partition(": ")[2][:9] for line in Catalogue([tmp_path]).runs().refused] == ["more than"]


def test_trends_are_of_the_same_job(tmp_path: Path) -> None:
    for k, steps in enumerate((4, 5, 6)):
        os.utime(run_folder(tmp_path / str(k), steps) / RUN, ns=(k, k))
    assert [len(one.trend_ns) for one in Catalogue([tmp_path]).runs().runs] == [3, 2, 1]
