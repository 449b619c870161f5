"""Jobs that run: what collectors keep below the folders that are served, and nothing of other folders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from served_app import App, run_folder
from taut.result.types import SCHEMA, LiveFinding, LiveState, WatchedJob
from taut.result.view_types import LiveFolder, LiveView, RunCard
from taut.serve import catalogue, live_folders
from taut.views.live import live_folder

FOUND = LiveFinding(
    at_ns=0, id="w-1", job="job-1", mode="straggler cascade", state="open", ranks=[1], hosts=["node0"], links=[], since_step=90,
    delay_steps=10, money_per_hour=None, false_alarms_per_hour=0.02, cannot_see=[], text="rank 1 is slow",
)  # fmt: skip
JOB = WatchedJob(
    job="job-1", verdict="rank 1 is slow", kind="component", findings=[FOUND], world=2, heard=2, lost=0, ended=0, ranks=[],
    last_step=99, step_ns=1, steps_ns=[], regime=None, reserve=None, received=5, not_received={},
)  # fmt: skip


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "FRESH_S", 0.0)
    monkeypatch.setattr(live_folders, "FRESH_S", 0.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[App, Path]]:
    (tmp_path / "taut-runs").mkdir()
    app = App([tmp_path / "taut-runs"])
    yield app, tmp_path / "taut-runs"
    app.close()


def write(folder: Path, *jobs: WatchedJob, age_s: float = 0.0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    at_ns = time.time_ns() - round(age_s * 1e9)
    state = LiveState(schema=SCHEMA, at_ns=at_ns, since_ns=at_ns, jobs=list(jobs), counts={"ranks": 2})
    (folder / "live.json").write_bytes(msgspec.json.encode(state))


def close(folder: Path, at_ns: int, count: int) -> None:
    hour = time.strftime("%Y-%m-%dT%H", time.gmtime(at_ns // 10**9))
    lines = [msgspec.json.encode(replace(FOUND, state="closed", at_ns=at_ns + i, id=f"w-{i}")) for i in range(count)]
    (folder / f"findings-{hour}.jsonl").write_bytes(b"\n".join([*lines, b"{", b'"\xff"', b""]))


def view(app: App) -> list[LiveFolder]:
    answer = app.get("/api/live")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=LiveView).folders


def test_a_collector_that_begins_appears_by_itself(served: tuple[App, Path]) -> None:
    app, root = served
    assert view(app) == []
    before = app.get("/api/runs").json()
    write(root / "watch", JOB)
    after = app.get("/api/runs").json()
    assert (before["live"], after["live"]) == (False, True)
    assert before["version"] != after["version"]
    (folder,) = view(app)
    assert (folder.folder, folder.old, folder.counts) == (str(root / "watch"), False, {"ranks": 2})
    assert [one.watched for one in folder.jobs] == [JOB]


def test_what_was_written_long_ago_is_not_what_is_seen_now(served: tuple[App, Path]) -> None:
    app, root = served
    write(root / "watch", JOB, age_s=60)
    (folder,) = view(app)
    assert folder.old
    assert folder.at_ns is not None
    assert time.time_ns() - folder.at_ns >= 60 * 10**9


@pytest.mark.parametrize("text", [b"", b"{", b'{"schema": 1}', b"\xff", b"[" * 100_000])
def test_what_cannot_be_read_is_not_known(served: tuple[App, Path], text: bytes) -> None:
    app, root = served
    (root / "watch").mkdir()
    (root / "watch" / "live.json").write_bytes(text)
    (folder,) = view(app)
    assert (folder.at_ns, folder.old, folder.jobs) == (None, True, [])
    assert app.said == []


def test_jobs_with_findings_come_first_and_have_their_runs_beside_them(served: tuple[App, Path]) -> None:
    app, root = served
    name = app.get("/api/runs").json()["runs"]
    assert name == []
    run_folder(root / "captured")
    (card,) = app.get("/api/runs").json()["runs"]
    calm = replace(JOB, job="a", findings=[])
    write(root / "watch", calm, replace(JOB, job=card["name"]))
    (folder,) = view(app)
    assert [(one.watched.job, [run.id for run in one.runs]) for one in folder.jobs] == [(card["name"], [card["id"]]), ("a", [])]


def test_captures_are_runs_of_their_job(served: tuple[App, Path]) -> None:
    app, root = served
    run_folder(root / "captured")
    card = msgspec.convert(app.get("/api/runs").json()["runs"][0], RunCard)
    captures = [replace(card, name=f"{name}-step-476") for name in (JOB.job, f"{JOB.job}2")]
    state = LiveState(schema=SCHEMA, at_ns=1, since_ns=0, jobs=[JOB], counts={})
    assert live_folder(root, state, [], captures, 1).jobs[0].runs == captures[:1]


def test_findings_that_closed_in_the_last_day_the_newest_first(served: tuple[App, Path]) -> None:
    app, root = served
    write(root / "watch", JOB)
    now, day = time.time_ns(), 86_400 * 10**9
    close(root / "watch", now - 2 * day, 1)
    close(root / "watch", now - day // 2, 2)
    close(root / "watch", now - day // 4, 1)
    (folder,) = view(app)
    assert [one.id for one in folder.closed] == ["w-0", "w-1", "w-0"]
    assert not folder.more_closed
    close(root / "watch", now - 10**9, 150)
    (folder,) = view(app)
    assert (len(folder.closed), folder.closed[0].id, folder.more_closed) == (100, "w-149", True)


def test_links_lead_to_no_folder_outside(served: tuple[App, Path], tmp_path: Path) -> None:
    app, root = served
    write(tmp_path / "outside", JOB)
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "watch").mkdir()
    (root / "watch" / "live.json").symlink_to(tmp_path / "outside" / "live.json")
    assert view(app) == []
    (root / "watch" / "live.json").unlink()
    write(root / "watch", JOB)
    (root / "watch" / "findings-2999-01-01T00.jsonl").symlink_to(tmp_path / "outside" / "live.json")
    assert view(app)[0].closed == []
