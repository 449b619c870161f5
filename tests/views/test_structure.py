"""Two answers: parts as a dashboard shows them, and the operator graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from build import MS, analyze, barriers, job
from taut.core.tables import Trace
from taut.result.view_types import Structure
from taut.stored import open_run
from taut.views.structure import PARTS, busy_shares, structure

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1", 2: "fwd 5 | AR 1"}


def found(folder: Path, trace: Trace) -> Structure:
    return structure(open_run(analyze(trace).save(folder / "run")))


def test_a_rank_that_waits_is_busy_and_not_productive(tmp_path: Path) -> None:
    told = found(tmp_path, job(SLOW, steps=12))
    rows = {one.label: (one.busy_share, round(one.productive_share, 2)) for one in told.parts}
    assert rows == {"rank 0 (node)": (1.0, 0.5), "rank 1 (node)": (1.0, 0.5), "rank 2 (node)": (1.0, 0.5)}
    assert [one.name for one in told.view.nodes] == ["fwd", "all-reduce"]
    assert (told.delayed_rank, told.delayed_step) == (1, 6)
    assert told.ranks[2] == "rank 2 (node)"


def test_gaps_are_not_busy() -> None:
    graph = analyze(job({0: "fwd 5 | . 5 | bwd 5"}, steps=4)).graph
    assert busy_shares(graph) == pytest.approx([1.0 - 4 * 5 / (4 * 15)])


def test_ranks_of_a_host_are_one_part(tmp_path: Path) -> None:
    work = np.full((12, 8), 10.0 * MS)
    work[:, 5] *= 1.5
    trace = barriers(work, MS)
    members = trace.members.replace(host=np.array([f"gpu-{k // 4}.example" for k in range(8)], dtype=object))
    told = found(tmp_path, replace(trace, members=members))
    assert [one.label for one in told.parts] in (["gpu-0", "gpu-1"], ["gpu-1", "gpu-0"])
    assert {one.label: one.ranks for one in told.parts}["gpu-1"] == [4, 5, 6, 7]


def test_many_parts_are_together(tmp_path: Path) -> None:
    told = found(tmp_path, barriers(np.full((4, PARTS + 6), 10.0 * MS), MS))
    assert len(told.parts) == PARTS + 1
    assert (told.parts[-1].label, len(told.parts[-1].ranks)) == ("6 others", 6)
