"""Answers for a file: findings first, a whole grid of scales, and never more bytes than there is room for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from build import analyze, job
from taut.result.view_types import PackedAnswers
from taut.stored import open_run
from taut.views.packed_answers import packed_answers
from taut.views.replays import Replays
from taut.views.run_questions import answer, question

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1", 2: "fwd 5 | AR 1"}


def replays(folder: Path) -> Replays:
    return Replays(open_run(analyze(job(SLOW, steps=12)).save(folder / "run")))


def test_a_file_answers_findings_choices_and_the_grid(tmp_path: Path) -> None:
    run = replays(tmp_path)
    found = packed_answers(run)
    assert list(found.answers)[:2] == ["", "fix=rank=1"]
    assert {f"fix={one.fix}" for one in found.questions.choices["rank"]} <= found.answers.keys()
    assert {"work=0.9&bandwidth=2", "work=0.8", "bandwidth=4", "gaps=0", "policy=local-steps=2"} <= found.answers.keys()
    assert found.answers["work=0.9&bandwidth=2"] == answer(run, question(scales={"work": "0.9", "bandwidth": "2"}))
    assert len([key for key in found.answers if key.startswith(("work", "bandwidth"))]) == 24


def test_it_never_takes_more_room_than_it_has(tmp_path: Path) -> None:
    run = replays(tmp_path)
    whole = packed_answers(run)
    room = len(msgspec.json.encode(whole.questions)) + 3000
    found = packed_answers(run, room)
    assert len(msgspec.json.encode(PackedAnswers(**{**_fields(found), "work": [], "bandwidth": []}))) <= room + 100
    assert 0 < len(found.answers) < len(whole.answers)
    assert found.left_out > whole.left_out
    assert list(found.answers)[:2] == ["", "fix=rank=1"]


def _fields(one: PackedAnswers) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
