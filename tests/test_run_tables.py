"""A run folder describes itself: codes are words, and findings, causes, steps and ranks are tables of their own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import taut
from build import barriers
from taut.core.coded_columns import unique
from taut.core.errors import RunError
from taut.ledger.charge import FATES
from taut.run import analyze_trace
from taut.views.ideal import ideal
from taut.views.overview import step_times
from taut.views.replays import Replays


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
    assert analysis.blame.totals.fault_ns > told.fault_rank_ns
    for part in ("fault", "jitter", "structural", "gap", "unexplained"):
        assert sum(column(folder, "waits", f"{part}_ns")) == getattr(told, f"{part}_rank_ns")


def test_steps_tell_the_phase_of_each(folder: Path) -> None:
    assert column(folder, "steps", "phase") == [window.phase for window in taut.open_run(folder).result.windows]


def without_column(folder: Path, table: str, name: str) -> Path:
    """The folder as it would be had the column not been written."""
    path = folder / f"{table}.parquet"
    pq.write_table(pq.read_table(path).drop_columns([name]), path)
    return listed_anew(folder, path.name)


def listed_anew(folder: Path, name: str) -> Path:
    """The folder with a manifest that lists a file as it is now."""
    meta, data = json.loads((folder / "run.json").read_text()), (folder / name).read_bytes()
    meta["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "run.json").write_text(json.dumps(meta))
    return folder


def test_steps_keep_what_they_take_in_the_ideal_and_say_what_it_is(folder: Path) -> None:
    field = pq.read_schema(folder / "steps.parquet").field("ideal_ns")
    assert field.metadata[b"doc"].startswith(b"what the step takes with no op above its reference")
    run = taut.open_run(folder)
    assert run.ideal_step_ns is not None
    assert run.ideal_step_ns.tolist() == ideal(Replays(run)).window_ns.tolist()
    assert (run.ideal_step_ns <= np.array([w.wall_ns for w in run.result.windows])).all()


def test_a_folder_from_before_the_ideal_was_kept_tells_the_same(analysis: Any, folder: Path, tmp_path: Path) -> None:
    before = taut.open_run(without_column(Path(analysis.save(tmp_path / "run")), "steps", "ideal_ns"))
    assert before.ideal_step_ns is None
    assert step_times(before) == step_times(taut.open_run(folder))


def test_an_ideal_of_other_steps_is_refused(analysis: Any, tmp_path: Path) -> None:
    folder = Path(analysis.save(tmp_path / "run"))
    pq.write_table(pq.read_table(folder / "steps.parquet").slice(0, 3), folder / "steps.parquet")
    run = taut.open_run(listed_anew(folder, "steps.parquet"))
    with pytest.raises(RunError, match=r"damaged run folder \(steps.parquet: ideal_ns is not that of its steps\)"):
        step_times(run)


def test_a_run_opens_without_loading_pandas(folder: Path) -> None:
    code = "import sys, taut; taut.open_run(sys.argv[1]).waits; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
