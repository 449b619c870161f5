"""Runs are opened once for all who ask, kept as far as memory allows, and closed when their folder is another."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from serving import App, run_folder
from taut.core.errors import UsageError
from taut.serve import catalogue, opened
from taut.serve.opened import OpenRun
from taut.serve.refusals import Refused


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders that were opened, in order."""
    out: list[str] = []
    really = opened.open_run

    def counted(folder: Path) -> object:
        out.append(Path(folder).name)
        return really(folder)

    monkeypatch.setattr(opened, "open_run", counted)
    monkeypatch.setattr(catalogue, "FRESH_S", 0.0)
    return out


def app_over(folder: Path, runs: int, **about: int) -> tuple[App, dict[str, str]]:
    for k in range(runs):
        run_folder(folder / f"run{k}", steps=4 + k)
    app = App([folder], **about)
    cards = app.get("/api/runs").json()["runs"]
    return app, {Path(one["folder"]).name: one["id"] for one in cards}


def ops(of: OpenRun) -> int:
    return len(of.run.graph)


def test_twenty_clients_open_a_run_once(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 2)

    async def all_at_once() -> list[int]:
        return await asyncio.gather(*(app.runs.ask(ids[f"run{k % 2}"], ops) for k in range(40)))

    found = app.do(lambda _: all_at_once())
    assert (sorted(made), len(set(found))) == (["run0", "run1"], 2)
    app.close()


def test_the_longest_unused_go_first(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 3, most_bytes=1)
    for name in ("run0", "run1", "run2", "run2", "run0"):
        app.do(lambda _, name=name: app.runs.ask(ids[name], ops))
        assert app.runs.ids == [ids[name]]
    assert made == ["run0", "run1", "run2", "run0"]
    app.close()


def test_a_run_weighs_what_its_arrays_do(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 1)

    def weighed(of: OpenRun) -> tuple[int, int, int]:
        closed = of.weight
        graph = of.run.graph
        return closed, of.weight, graph.ops.start_ns.nbytes + graph.events.nbytes

    closed, weight, part = app.do(lambda _: app.runs.ask(ids["run0"], weighed))
    assert closed == 0
    assert weight > part > 0
    app.close()


def test_a_folder_written_anew_is_opened_anew(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 1)
    before = app.do(lambda _: app.runs.ask(ids["run0"], ops))
    run_folder(tmp_path / "run0", steps=8)
    assert app.do(lambda _: app.runs.ask(ids["run0"], ops)) > before
    shutil.rmtree(tmp_path / "run0")
    with pytest.raises(Refused, match=r"not there any more|no such run"):
        app.do(lambda _: app.runs.ask(ids["run0"], ops))
    assert app.runs.ids == []
    app.close()


def test_a_question_that_does_not_fit_closes_nothing(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 1)

    def wrong(of: OpenRun) -> int:
        raise UsageError(f"no rank 7 among {ops(of)}")

    for _ in range(2):
        with pytest.raises(UsageError):
            app.do(lambda _: app.runs.ask(ids["run0"], wrong))
    assert made == ["run0"]
    app.close()


def test_what_nobody_waits_for_any_more_is_not_computed(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 1)

    async def gone() -> bool:
        return True

    with pytest.raises(Refused, match="nobody waits"):
        app.do(lambda _: app.runs.ask(ids["run0"], ops, gone))
    assert made == []
    app.close()


def test_the_list_is_answered_while_runs_are_worked_on(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 1, workers=1)
    begun, end = threading.Event(), threading.Event()

    def long(of: OpenRun) -> bool:
        begun.set()
        return end.wait(30)

    async def meanwhile() -> tuple[int, bool]:
        asked = asyncio.ensure_future(app.runs.ask(ids["run0"], long))
        await asyncio.to_thread(begun.wait, 30)
        listed = len(await app.runs.list_sent())
        end.set()
        return listed, await asked

    listed, done = app.do(lambda _: meanwhile())
    assert listed > 0
    assert done
    app.close()


def test_a_long_question_holds_up_nobody_else(tmp_path: Path, made: list[str]) -> None:
    app, ids = app_over(tmp_path, 1, workers=2)
    begun, end = threading.Event(), threading.Event()

    def long(of: OpenRun) -> bool:
        begun.set()
        return end.wait(30)

    async def meanwhile() -> tuple[int, list[bool]]:
        asked = [asyncio.ensure_future(app.runs.ask(ids["run0"], long, apart=name, long=True)) for name in ("a", "b", "c")]
        await asyncio.to_thread(begun.wait, 30)
        found = await app.runs.ask(ids["run0"], ops)
        end.set()
        return found, await asyncio.gather(*asked)

    found, done = app.do(lambda _: meanwhile())
    assert found > 0
    assert done == [True] * 3
    assert made == ["run0"]
    app.close()
