"""What a collector keeps: whole files of an hour, bounded, continued after a restart; a disk that fails is no end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from collecting import HELLO, event
from taut.core.errors import UsageError
from taut.result.types import LiveFinding
from taut.watch.event_rows import Room
from taut.watch.kept import Kept, closed_findings, finding_files
from taut.watch.window import Hello, Window
from taut.watch.wire import STEP

HOUR = 3_600_000_000_000
NOON = 1_767_268_800 * 1_000_000_000
"""2026-01-01, 12:00 UTC."""


class Wall:
    """A clock on the wall that is set by hand."""

    def __init__(self) -> None:
        self.ns = NOON

    def __call__(self) -> int:
        return self.ns


def finding(at_ns: int, name: str = "f1", state: str = "closed") -> LiveFinding:
    return LiveFinding(
        at_ns=at_ns, id=name, job="job", mode="straggler cascade", state=state, ranks=[1], hosts=["gpu-1"], links=[],  # type: ignore[arg-type]
        since_step=3, delay_steps=2, money_per_hour="1.50", currency="EUR", false_alarms_per_hour=0.1, cannot_see=[],
    )  # fmt: skip


def lines(folder: Path, what: str) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(folder.glob(f"{what}-*")) for line in path.read_text().splitlines()]


def test_closed_findings_since_a_time_the_newest_first(tmp_path: Path) -> None:
    kept = Kept(tmp_path, wall_ns=Wall())
    for name, at_ns in (("old", NOON - HOUR), ("a", NOON), ("b", NOON + 1), ("c", NOON + HOUR)):
        kept.add_finding(finding(at_ns, name))
    kept.add_finding(finding(NOON, "d", "open"))
    kept.close()
    found = closed_findings(finding_files(tmp_path, NOON + 1), NOON + 1)
    assert [one.id for one in found] == ["c", "b"]
    assert finding_files(tmp_path / "nowhere", 0) == []


@pytest.mark.parametrize("name", ["findings-2026-01-01T12.jsonl", "open.json", "live.json", "lock"])
def test_a_folder_with_files_of_others_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match=f"holds {name}, which no collector wrote"):
        Kept(tmp_path, wall_ns=Wall())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_name_that_is_no_hour_is_left_alone(tmp_path: Path) -> None:
    Kept(tmp_path, wall_ns=Wall()).close()
    (tmp_path / "findings-2026-99-99T99.jsonl").write_text("")
    Kept(tmp_path, wall_ns=Wall()).close()
    assert (tmp_path / "findings-2026-99-99T99.jsonl").exists()


def test_findings_by_the_hour(tmp_path: Path) -> None:
    kept = Kept(tmp_path, wall_ns=Wall())
    kept.add_finding(finding(NOON, "a"))
    kept.write()
    kept.add_finding(finding(NOON + 1, "b"))
    kept.add_finding(finding(NOON + HOUR, "c"))
    kept.close()
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == [
        "findings-2026-01-01T12.jsonl",
        "findings-2026-01-01T13.jsonl",
    ]
    assert [one["id"] for one in lines(tmp_path, "findings")] == ["a", "b", "c"]
    assert lines(tmp_path, "findings")[0] == json.loads(msgspec.json.encode(finding(NOON, "a")))


def test_a_line_of_steps(tmp_path: Path) -> None:
    window = Window("job", Room(1 << 22))
    member, _ = window.join(msgspec.convert(HELLO, Hello), 0)
    window.add(member, b"".join(event(STEP, number=k, begin=1000, end=1000 + 10 * (k + 1)) for k in range(9)), 0)
    window.fold(0)
    kept = Kept(tmp_path, wall_ns=Wall())
    kept.add_steps(window)
    kept.add_steps(window)
    kept.close()
    first, second = lines(tmp_path, "steps")
    expected = {"steps": 9, "last_step": 8, "p10_ns": 18, "median_ns": 50, "p90_ns": 82, "ranks": 1, "received": 9}
    assert first == {"kind": "steps", "at_ns": NOON, "job": "job", **expected}
    assert second == {"kind": "steps", "at_ns": NOON, "job": "job", "ranks": 1, "received": 9}


def test_a_restart_goes_on_and_says_the_gap(tmp_path: Path) -> None:
    wall, said = Wall(), list[str]()
    kept = Kept(tmp_path, wall_ns=wall)
    kept.add_finding(finding(NOON, "a"))
    kept.add_finding(finding(NOON, "still", "open"))
    kept.close()
    wall.ns += 600 * 10**9
    again = Kept(tmp_path, said.append, wall_ns=wall)
    assert said == [f"{tmp_path}: goes on after a gap of 10.0 min, since 2026-01-01 12:00:00 UTC; 1 findings were open then"]
    assert [one.id for one in again.open_before] == ["still"]
    again.add_finding(finding(wall.ns, "b"))
    again.close()
    assert [one["id"] for one in lines(tmp_path, "findings")] == ["a", "b"]
    assert lines(tmp_path, "steps") == [{"kind": "gap", "at_ns": wall.ns, "from_ns": NOON}]


def test_a_short_pause_is_no_gap(tmp_path: Path) -> None:
    wall, said = Wall(), list[str]()
    kept = Kept(tmp_path, wall_ns=wall)
    kept.add_finding(finding(NOON))
    kept.close()
    wall.ns += 5 * 10**9
    Kept(tmp_path, said.append, wall_ns=wall).close()
    assert said == []


def test_what_is_too_old_or_too_much_goes_and_nothing_else(tmp_path: Path) -> None:
    wall = Wall()
    kept = Kept(tmp_path, wall_ns=wall, most_age_s=5 * 3600)
    for hour in range(8):
        kept.add_finding(finding(NOON - hour * HOUR, f"h{hour}"))
    kept.close()
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "findings-old.jsonl").write_text("not ours either")
    kept = Kept(tmp_path, wall_ns=wall, most_age_s=5 * 3600)
    left = sorted(path.name for path in tmp_path.glob("findings-2*"))
    assert left == [f"findings-2026-01-01T{hour:02}.jsonl" for hour in range(7, 13)]
    size = (tmp_path / left[0]).stat().st_size
    kept.most_bytes = 3 * size + 10
    kept.prune()
    assert sorted(path.name for path in tmp_path.glob("findings-2*")) == left[-3:]
    assert (tmp_path / "notes.txt").exists()
    assert (tmp_path / "findings-old.jsonl").exists()
    kept.close()


def test_a_disk_that_fails_is_said_once_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.watch.kept.RETRY_S", 0.0)
    monkeypatch.setattr("taut.watch.kept.MOST_WAITING", 3)
    folder, said = tmp_path / "kept", list[str]()
    kept = Kept(folder, said.append, wall_ns=Wall())
    shutil.rmtree(folder)
    for number in range(5):
        kept.add_finding(finding(NOON, f"f{number}"))
        kept.write()
    assert said == [f"{folder}: cannot be written (No such file or directory); it goes on in memory"]
    folder.mkdir()
    kept.write()
    assert said[1:] == [f"{folder}: is written again; 2 lines were lost"]
    assert [one["id"] for one in lines(folder, "findings")] == ["f2", "f3", "f4"]
    kept.close()


def test_one_collector_to_a_folder(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    with pytest.raises(UsageError, match="another collector keeps its findings there"):
        Kept(tmp_path)
    kept.close()
    Kept(tmp_path).close()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="give another folder"):
        Kept(tmp_path / "file")


def test_files_that_somebody_damaged(tmp_path: Path) -> None:
    wall = Wall()
    Kept(tmp_path, wall_ns=wall).close()
    (tmp_path / "findings-2026-01-01T12.jsonl").write_bytes(b'{"at_ns":1}\nnonsense\n')
    (tmp_path / "open.json").write_text("[{]")
    kept = Kept(tmp_path, wall_ns=wall)
    assert kept.open_before == []
    kept.add_finding(finding(NOON, "a"))
    kept.close()
    assert (tmp_path / "findings-2026-01-01T12.jsonl").read_bytes().startswith(b'{"at_ns":1}\nnonsense\n{"at_ns":')
