"""The first page of a run: fates that sum to one, the map of lateness, ideal steps, what it rests on."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import taut
from build import MS, analyze, barriers, job
from results import RESULT, filled
from taut.result.rank_rows import lateness, lateness_by_step
from taut.result.types import AnalysisResult
from taut.stored import Run, open_run
from taut.views.overview import COLUMNS, fates, lateness_map, overview, overview_of, trust
from taut.views.rank_blocks import ROWS
from taut.views.run_card import HOUR_NS

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1", 2: "fwd 5 | AR 1"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(analyze(job(SLOW, steps=12)).save(tmp_path_factory.mktemp("views") / "a"))


def test_the_first_page_names_the_slow_rank_and_the_command(run: Run) -> None:
    found = overview(run)
    assert found.headlines[0].title == "Rank 1 (node) is slow: fwd +4.0 ms a step"
    assert found.commands["whatif"] == f"taut whatif {run.folder} --fix rank=1"
    assert sum(one.share for one in found.fates) == pytest.approx(1)
    assert {one.fate: one.group for one in found.fates} == {
        "productive": "useful", "slow compute": "slow", "exposed transfer": "communication", "fault wait": "waiting",
    }  # fmt: skip
    assert found.waits is not None
    assert [found.waits.labels[one] for one in found.waits.cause] == ["rank 1 (node)"] * 2


def test_lateness_is_that_of_the_table_of_ranks(run: Run) -> None:
    found = overview(run)
    assert found.lateness is not None
    assert found.lateness.labels == ["rank 0 (node)", "rank 1 (node)", "rank 2 (node)"]
    assert found.lateness.late_ns[1] == [4.0 * MS] * 12
    told = {row.rank: row.late_ns for row in found.ranks}
    assert [np.median(row) for row in found.lateness.late_ns] == [told[rank] for rank in found.lateness.ranks]


def test_the_ideal_is_the_run_with_the_slow_rank_mended(run: Run) -> None:
    found = overview(run).step_times
    assert found is not None
    assert sum(found.observed_ns) == run.result.job.wall_ns
    assert found.ideal_ns == [6 * MS] * 12


def test_a_large_map_is_in_blocks_that_take_the_largest() -> None:
    steps, ranks = 2 * COLUMNS + 3, 2 * ROWS + 5
    work = np.full((steps, ranks), 10.0 * MS)
    work[100, 77] = 30.0 * MS
    graph = analyze(barriers(work, MS)).graph
    found = lateness_map(graph)
    assert found is not None
    assert len(found.labels) <= ROWS
    assert len(found.steps) <= COLUMNS
    row, column = 77 // 3, 100 // 3
    assert found.late_ns[row][column] == 20.0 * MS
    assert (found.ranks[row], found.labels[row], found.steps[column]) == (77, "ranks 75–77", 99)
    assert np.nanmax(lateness_by_step(graph)) == 20.0 * MS
    assert lateness(graph)[77] == 0


def test_without_gates_there_is_no_map() -> None:
    assert lateness_map(analyze(job({0: "fwd 5", 1: "fwd 5"}, steps=4)).graph) is None


def test_logs_alone_have_an_overview(tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text(
        "JobID|JobName|State|Submit|Start|End|AllocTRES|Restarts\n"
        "1|train|FAILED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:00:00|gres/gpu=8|0\n", encoding="utf-8",
    )  # fmt: skip
    found = overview_of(taut.analyze(log).save(tmp_path / "a"))
    assert (found.lateness, found.step_times, found.waits, found.ranks) == (None, None, None, [])
    assert len(found.headlines) == 1
    assert found.headlines[0].severity == "unknown"
    assert sum(one.share for one in found.fates) == pytest.approx(1)
    assert "other" not in {one.group for one in found.fates}


def test_restarted_jobs_stand_in_place_of_ranks(tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text(
        "JobID|JobName|State|Submit|Start|End|AllocTRES|Restarts\n"
        "1|train|NODE_FAIL|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|gres/gpu=8|0\n"
        "1|train|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:30:00|2026-01-01T04:30:00|gres/gpu=8|1\n", encoding="utf-8",
    )  # fmt: skip
    found = overview_of(taut.analyze(log).save(tmp_path / "a"))
    assert [(one.name, one.attempts, one.discarded_rank_ns) for one in found.jobs] == [("train", 2, 8 * HOUR_NS)]
    assert {one.fate: (one.group, one.rank_ns) for one in found.fates} == {
        "kept": ("useful", 24 * HOUR_NS), "discarded at most": ("discarded", 8 * HOUR_NS), "down": ("idle", 4 * HOUR_NS),
    }  # fmt: skip


def test_copies_and_what_nobody_saw_have_their_own_names() -> None:
    entries = [{"fate": "exposed copy", "rank_ns": 6}, {"fate": "unobserved", "rank_ns": 4}]
    told = fates(filled(AnalysisResult, RESULT | {"ledger": {"total_rank_ns": 10, "entries": entries}}))
    assert [(one.group, one.share) for one in told] == [("copy", 0.6), ("other", 0.4)]


def test_trust_says_what_is_missing() -> None:
    job = RESULT["job"] | {"unit": "step"}
    said = {one.text: one.good for one in trust(filled(AnalysisResult, RESULT | {"job": job}))}
    assert said == {
        "4/8 ranks": False, "4 steps: few to tell a spread": False, "clocks ok": True, "93 % of starts explained": True,
        "1 edge dropped: the traces break them": False, "rank 5 missing": None,
    }  # fmt: skip


def test_job_logs_tell_the_currency_of_their_money_and_what_is_unfinished_is_not_discarded(tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text(
        "JobID|JobName|State|Submit|Start|End|AllocTRES|Restarts\n"
        "1|train|FAILED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:00:00|gres/gpu=8|0\n", encoding="utf-8",
    )  # fmt: skip
    found = overview_of(taut.analyze(log, prices=taut.Prices(Decimal(2), "EUR")).save(tmp_path / "run"))
    assert found.currency == "EUR"
    assert [(one.fate, one.group) for one in found.fates] == [("unfinished", "unfinished")]
