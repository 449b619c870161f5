"""What is published or known of real traces, held against taut (the tables of validation/)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))

import device
import known
import stragglers

import taut

pytestmark = pytest.mark.shared


@pytest.mark.parametrize("check", known.CHECKS, ids=lambda c: c.__name__)
def test_what_is_known_of_a_trace_is_what_taut_says(shared: Path, check: Callable[[Path], Iterator[known.Row]]) -> None:
    wrong = [row for row in check(shared) if not row[3]]
    assert not wrong


@pytest.mark.parametrize("job", ["AR", "ST"])
def test_published_what_if_figures_are_reproduced(shared: Path, job: str) -> None:
    rows: list[Any] = stragglers.rows(shared / "bytedance-stragglers", job)
    wrong = [(quantity, theirs, ours) for quantity, theirs, ours, difference, limit in rows if abs(difference) > limit]
    assert not wrong


@pytest.mark.parametrize("folder", ["dlrm-8rank", "kineto-2of128", "kineto-single", "nsys", "wild"])
def test_what_accelerators_did_is_what_the_raw_files_say(shared: Path, folder: str) -> None:
    found = [(name, files, raws) for name, files, raws in device.jobs([shared / folder]) if raws and not isinstance(raws, str)]
    rows = [row for name, files, raws in found for row in device.check_job(name, raws, taut.analyze(files).result["device"])]
    assert rows
    assert not [(row.trace, row.rank, row.misses) for row in rows if row.misses]
