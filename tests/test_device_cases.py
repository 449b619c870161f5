"""The checker of ``device`` itself: the cases are as they claim, right figures pass and wrong ones do not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))

import device
import device_cases

import taut

CUT = ("last_step_cut", "device_behind_at_the_end")
"""Cases whose last step is not recorded whole."""
UNMARKED = ("no_marks", "layers_without_marks", "decodes_without_marks", "ascend", "no_correlations")
"""Cases in which no marks, or no launches, tell what a step is."""
MARKED = [
    name for name in device_cases.CASES if name not in (*UNMARKED, "launches_lag_behind_marks", "two_devices_one_process")
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


@pytest.mark.parametrize("name", MARKED)
def test_a_case_is_what_its_truth_says(name: str, tmp_path: Path) -> None:
    truth, _, raws = device_cases.written(name, tmp_path)
    assert device_cases.misses(truth, ideal(raws, name in CUT), raws) == []


@pytest.fixture
def right(tmp_path: Path) -> tuple[device.Raw, dict[str, Any]]:
    """A case with copies hidden under compute, and its right answer."""
    _, _, raws = device_cases.written("prefetch_in_the_step_before", tmp_path)
    return raws[0], ideal(raws)


def miss(raw: device.Raw, reported: dict[str, Any]) -> str:
    return "; ".join(device.check("trace", raw, "0", reported).misses)


@pytest.mark.parametrize("share", ["busy", "compute", "communication", "hidden", "exposed", "copy", "exposed_copy", "idle"])
def test_a_share_that_is_off_by_more_than_a_point_is_a_miss(right: tuple[device.Raw, dict[str, Any]], share: str) -> None:
    raw, reported = right
    assert miss(raw, reported) == ""
    reported["ranks"]["0"][f"{share}_share"] += 0.011
    assert miss(raw, reported).startswith(f"{share} ")


def test_a_step_that_is_off_by_more_than_a_hundredth_is_a_miss(right: tuple[device.Raw, dict[str, Any]]) -> None:
    raw, reported = right
    reported["ranks"]["0"]["step_ns"] *= 1.011
    assert miss(raw, reported).startswith("step 10.1")


def test_windows_of_the_host_do_not_hold_what_their_steps_launched(right: tuple[device.Raw, dict[str, Any]]) -> None:
    raw, reported = right
    for window, (_, start, end) in zip(reported["windows"], raw.marks[1:], strict=True):
        window.update(start_ns=start, end_ns=end)
    assert "of what kept steps launched is held" in miss(raw, reported)


def test_windows_that_overlap_are_a_miss(right: tuple[device.Raw, dict[str, Any]]) -> None:
    raw, reported = right
    reported["windows"][1]["start_ns"] -= 1
    assert miss(raw, reported) == "windows overlap"


def test_a_trace_with_device_events_and_no_device_is_a_miss(right: tuple[device.Raw, dict[str, Any]]) -> None:
    raw, _ = right
    assert device.check_job("trace", [raw], "device: null")[0].misses == ["device: null"]


def test_an_export_of_nsight_systems_says_the_same(tmp_path: Path) -> None:
    (job,), _ = device_cases.CASES["offload"]()
    one, two = device.load(job.write(tmp_path)), device.load(job.write(tmp_path, "nsight"))
    assert not isinstance(one, str)
    assert not isinstance(two, str)
    assert sorted(zip(one[0].start, one[0].end, one[0].kind, one[0].launch, strict=True)) == sorted(
        zip(two[0].start, two[0].end, two[0].kind, two[0].launch, strict=True)
    )
    assert one[0].marks == two[0].marks


TRIED = [(form, name) for form, out in device_cases.LEFT_OUT.items() for name in device_cases.CASES if name not in out]


@pytest.mark.parametrize(("form", "name"), TRIED)
def test_a_hard_trace_is_read_right(form: str, name: str, tmp_path: Path) -> None:
    truth, files, raws = device_cases.written(name, tmp_path, form)
    result = taut.analyze(files).result
    assert result["fidelity"]["replay_error"] == 0
    assert result["ledger"]["closes"]
    assert device_cases.misses(truth, result["device"], raws) == []
