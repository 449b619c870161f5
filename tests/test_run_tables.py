"""A run folder describes itself: codes are words, and findings, causes, steps and ranks are tables of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import taut
from build import barriers
from taut.core.coded_columns import unique
from taut.ledger.charge import FATES
from taut.run import analyze_trace


@pytest.fixture(scope="module")
def analysis() -> Any:
    work = np.random.default_rng(1).normal(1e7, 1e5, (12, 4)).astype(np.int64)
    work[6:, 2] *= 2
    return analyze_trace(barriers(work, 1_000_000))


@pytest.fixture(scope="module")
def folder(analysis: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(analysis.save(tmp_path_factory.mktemp("run") / "run"))


def column(folder: Path, table: str, name: str) -> list[Any]:
    return pq.read_table(folder / f"{table}.parquet")[name].to_pylist()


def test_codes_are_words(folder: Path) -> None:
    assert set(column(folder, "ops", "kind")) == {"compute", "communicate"}
    assert set(column(folder, "ops", "name")) == {"fwd", "all-reduce"}
    assert set(column(folder, "ops", "verb")) == {"none", "all-reduce"}
    assert set(column(folder, "ledger", "fate")) <= set(FATES)
    assert set(column(folder, "gates", "name")) == {"all-reduce"}


def test_findings_causes_steps_and_ranks_are_tables(folder: Path, analysis: Any) -> None:
    result = analysis.result
    assert column(folder, "findings", "id") == [f.id for f in result.findings]
    assert column(folder, "findings", "ranks") == [[2]]
    assert column(folder, "causes", "rank") == [b.cause.rank for b in result.blame]
    assert column(folder, "steps", "wall_ns") == [w.wall_ns for w in result.windows]
    ranks = pq.read_table(folder / "ranks.parquet")
    assert ranks["rank"].to_pylist() == [0, 1, 2, 3]
    spent = sum(sum(ranks[f"{fate.replace(' ', '_')}_ns"].to_pylist()) for fate in FATES)
    assert spent == result.ledger.total_rank_ns
    assert int(np.argmax(ranks["caused_rank_ns"].to_numpy())) == 2


def test_a_run_opened_again_has_the_same_graph(folder: Path, analysis: Any) -> None:
    again = taut.open_run(folder).graph
    for name in ("kind", "name", "verb", "group", "lane"):
        assert (getattr(again.ops, name) == getattr(analysis.graph.ops, name)).all()
        assert getattr(again.ops, name).dtype == getattr(analysis.graph.ops, name).dtype


def test_names_that_occur_twice_stay_apart() -> None:
    assert unique(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (3)", "a (2)", "a (4)"]
    assert unique([]) == []


def test_waits_in_the_folder_are_those_that_the_ledger_books(tmp_path: Path) -> None:
    """A fault that no finding mends is jitter in both, so a picture of the waits and the bill say the same."""
    work = np.random.default_rng(3).normal(1e7, 1e5, (40, 4)).astype(np.int64)
    work[11, 1] *= 3
    analysis = analyze_trace(barriers(work, 1_000_000))
    folder = Path(analysis.save(tmp_path / "run"))
    told = analysis.result.waits
    assert analysis.blame.totals["fault_ns"] > told.fault_rank_ns
    for part in ("fault", "jitter", "structural", "gap", "unexplained"):
        assert sum(column(folder, "waits", f"{part}_ns")) == getattr(told, f"{part}_rank_ns")
