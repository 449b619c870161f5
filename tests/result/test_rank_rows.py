"""The table of ranks of a result: who stands first, what its time went to, and how late it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

import taut
from taut.result.types import AnalysisResult

MS = 1_000_000


def job(folder: Path, slow: dict[int, float], ranks: int = 4, steps: int = 12) -> AnalysisResult:
    """Ranks that compute 10 ms a step, some of them longer, and then meet in a barrier."""
    rows = ["rank,step,class,start_ns,duration_ns,host"]
    for step in range(steps):
        begin = step * 100 * MS
        last = max(slow.values(), default=10.0)
        for rank in range(ranks):
            took = slow.get(rank, 10.0)
            place = f"node-{rank}.example"
            rows.append(f"{rank},{step},fwd,{begin},{int(took * MS)},{place}")
            rows.append(f"{rank},{step},all-reduce,{begin + int(took * MS)},{int((last - took + 1) * MS)},{place}")
    path = folder / "ops.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return taut.analyze(path).result


def test_the_rank_of_the_finding_comes_first_and_the_shares_sum_to_one(tmp_path: Path) -> None:
    result = job(tmp_path, {2: 30.0})
    assert result.ranks is not None
    assert result.ranks[0].rank == 2
    assert result.ranks[0].label == "rank 2 (node-2)"
    assert result.ranks[0].late_ns == pytest.approx(20 * MS)
    assert all((row.late_ns or 0) <= 0 for row in result.ranks[1:])
    for row in result.ranks:
        assert row.compute_share + row.communication_share + row.copy_share + row.wait_share + row.gap_share == pytest.approx(1)
    assert result.ranks[0].wait_share == 0
    assert result.ranks[1].wait_share > 0.1


def test_a_finding_tells_host_and_accelerator_beside_its_ranks(tmp_path: Path) -> None:
    (finding,) = job(tmp_path, {2: 30.0}).findings
    assert (finding.ranks, finding.hosts, finding.gpus) == ([2], ["node-2.example"], [])
    assert "rank 2 (node-2) spends" in finding.because


def test_the_verdict_names_the_host(tmp_path: Path) -> None:
    assert "rank 2 (node-2) holds the job up" in job(tmp_path, {2: 30.0}).verdict.text


def test_without_gates_nobody_is_late(tmp_path: Path) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("rank,step,class,start_ns,duration_ns\n0,0,fwd,0,1000\n1,0,fwd,0,1000\n", encoding="utf-8")
    rows = taut.analyze(path).result.ranks
    assert rows is not None
    assert [(row.rank, row.late_ns, row.host, row.gpu) for row in rows] == [(0, None, None, None), (1, None, None, None)]
