"""The checker of ``device`` itself: the cases are as they claim, right figures pass and wrong ones do not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))

import device
import device_cases

MARKED = [
    name for name in device_cases.CASES if name not in ("no_marks", "launches_lag_behind_marks", "two_devices_one_process")
]


def ideal(raws: list[device.Raw], cut: bool = False) -> dict[str, Any]:
    """What a right answer looks like: windows from end to end of the work of marks, shares by their unions."""
    windows, ranks = [], {}
    for raw in raws:
        marks = device.Marks(raw)
        orderly = sorted(marks.last.values()) == list(marks.last.values())
        first, last = (marks.first, marks.last) if orderly else (marks.main_first, marks.main_last)
        kept = [i for i in last if marks.follows(i)] or list(last)
        kept = kept[:-1] if cut else kept
        opens = {i: last[i - 1] if marks.follows(i) else first[i] for i in kept}
        step = sum(last[i] - opens[i] for i in kept) / len(kept)
        opens[kept[0]] = min(opens[kept[0]], marks.first[kept[0]])  # what ran ahead of its step is inside
        spans = [(opens[i], last[i]) for i in kept]
        spans[-1] = spans[-1][0], max(marks.last[i] for i in kept)
        windows += [
            {"rank": raw.rank, "step": raw.marks[i][0], "start_ns": a, "end_ns": b}
            for i, (a, b) in zip(kept, spans, strict=True)
        ]
        shares = {f"{name}_share": share for name, share in device.shares(raw, spans).items()}
        ranks[str(raw.rank)] = {"host": None, "gpu": None, "step_ns": step, **shares}
    return {"windows": windows, "ranks": ranks}


def written(name: str, folder: Path) -> tuple[device_cases.Truth, list[device_cases.Job], list[device.Raw]]:
    jobs, truth = device_cases.CASES[name]()
    loaded = [device.load(job.write(folder)) for job in jobs]
    return truth, jobs, [raw for raws in loaded if not isinstance(raws, str) for raw in raws]


@pytest.mark.parametrize("name", MARKED)
def test_a_case_is_what_its_truth_says(name: str, tmp_path: Path) -> None:
    truth, jobs, raws = written(name, tmp_path)
    assert device_cases.misses(truth, jobs, ideal(raws, name == "last_step_cut"), raws) == []
