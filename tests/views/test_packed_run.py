"""All that a file shows of a run: the same bytes twice, within a budget, and what the views themselves answer."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

import taut
from build import analyze, job
from packed_reader import Unpacked
from taut.result.view_types import (
    BillView,
    Decisions,
    DelayWave,
    Overview,
    PackedAnswers,
    RunList,
    Structure,
    TimelineAxis,
)
from taut.stored import open_run
from taut.views.delay_wave import delay_wave
from taut.views.frames import Frames
from taut.views.overview import overview
from taut.views.packed_run import packed_run, unpacked, usual_delay_ns
from taut.views.replays import Replays
from taut.views.run_questions import answer, question
from taut.views.structure import structure

PRICES = taut.Prices(gpu_hour=Decimal("2.5"), currency="EUR")
SLOW = {r: f"fwd {5 + 4 * (r == 1)} | AR 1 | bwd 6 | AR 1" for r in range(4)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return analyze(job(SLOW, steps=20, noise=0.02)).save(tmp_path_factory.mktemp("packed") / "run")


@pytest.fixture(scope="module")
def packed(run: Path) -> dict[str, bytes]:
    return packed_run(run)


def test_the_same_bytes_twice_whenever_the_folder_was_written(run: Path, packed: dict[str, bytes]) -> None:
    os.utime(run / "run.json", ns=(1, 1))
    assert packed_run(run) == packed


def test_nothing_tells_of_the_machine_but_the_folder(run: Path, packed: dict[str, bytes]) -> None:
    runs = unpacked(packed, "runs", RunList)
    assert runs is not None
    assert [(one.id, one.made_ns, one.folder) for one in runs.runs] == [("file", 0, str(run))]
    told = unpacked(packed, "decisions", Decisions)
    assert told is not None
    assert (told.log, told.verified) == (None, None)
    assert told.commands["verify"].startswith(f"taut audit verify {run}")


def test_pages_are_those_of_the_app_and_where_the_time_went(run: Path, packed: dict[str, bytes]) -> None:
    seen, opened = unpacked(packed, "overview", Overview), open_run(run)
    assert seen is not None
    assert seen.run.views == ["overview", "timeline", "structure", "whatif", "bill", "decisions"]
    assert msgspec.structs.replace(seen, run=overview(opened).run) == overview(opened)
    assert unpacked(packed, "structure", Structure) == structure(opened)
    assert unpacked(packed, "scaling", Overview) is None


def test_answers_and_delays_are_those_of_the_views(run: Path, packed: dict[str, bytes]) -> None:
    opened, answers = open_run(run), unpacked(packed, "answers", PackedAnswers)
    assert answers is not None
    assert answers.answers["fix=rank=1"] == answer(Replays(opened), question(["rank=1"]))
    waves = unpacked(packed, "delays", list[DelayWave])
    assert waves is not None
    shape = structure(opened)
    assert (waves[0].rank, waves[0].step) == (shape.delayed_rank, shape.delayed_step)
    assert len({(one.rank, one.step, one.delay_ns) for one in waves}) == len(waves) > 3
    assert [delay_wave(opened, one.rank, one.step, one.delay_ns) for one in waves] == waves


def test_the_timeline_is_that_of_the_run(run: Path, packed: dict[str, bytes]) -> None:
    opened, timeline = open_run(run), Unpacked(packed["timeline"])
    frames = Frames(opened)
    assert unpacked(packed, "axis", TimelineAxis) == frames.axis.described(opened.result.findings)
    wall = frames.axis.wall_ns
    ops = timeline.ops(0, wall, 0, 4, frames.axis.steps())
    assert ops is not None
    assert ops.tolist() == list(range(len(frames.graph)))


def test_what_is_packed_stays_within_its_budget(tmp_path: Path) -> None:
    many = dict.fromkeys(range(16), "fwd 5 | AR 1 | bwd 6 | AR 1 | " * 8 + ". 1")
    folder = analyze(job(many, steps=30, noise=0.2)).save(tmp_path / "run")
    sizes = {budget: sum(map(len, packed_run(folder, budget).values())) for budget in (150_000, 4_000_000)}
    assert sizes[150_000] <= 150_000
    assert sizes[150_000] < sizes[4_000_000] <= 4_000_000


def test_a_bill_is_packed_alone(run: Path, tmp_path: Path) -> None:
    folder = taut.bill([run], prices=PRICES).save(tmp_path / "bill")
    found = packed_run(folder)
    assert {name.split(".")[0] for name in found} == {"runs", "bill"}
    bill = unpacked(found, "bill", BillView)
    assert bill is not None
    assert bill.result.currency == "EUR"


@pytest.mark.parametrize(
    ("step_ns", "delay_ns"), [(120e6, 40_000_000), (45e6, 20_000_000), (None, 10_000_000), (10.0, 100_000)]
)
def test_a_usual_delay_is_a_third_of_a_step_in_one_digit(step_ns: float | None, delay_ns: int) -> None:
    assert usual_delay_ns(step_ns) == delay_ns
