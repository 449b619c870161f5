"""Which steps a log keeps, and what a rank-hour brought."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from build import MS, analyze, barriers
from taut.core.tables import Progress, Table
from taut.diagnose.kept_steps import executed, progress

HOUR = 3_600_000_000_000


def log(steps: list[int], **columns: Any) -> Table:
    return Table(Progress, {"step": steps, "loss": np.ones(len(steps)), **columns})


def test_going_back_discards_every_step_from_there_on() -> None:
    """Steps 3 and 4 are done again, 5 is not yet: all three were lost with the restart."""
    done = executed(log([1, 2, 3, 4, 5, 3, 4]))
    assert done is not None
    assert done.step[done.discarded].tolist() == [3, 4, 5]
    assert done.step[done.useful].tolist() == [1, 2, 3, 4]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=60))
def test_what_is_kept_is_what_a_replayed_history_would_hold(steps: list[int]) -> None:
    history: list[int] = []
    for step in steps:
        history = [s for s in history if s < step] + [step]
    done = executed(log(steps))
    assert done is not None
    assert done.step[~done.discarded].tolist() == history


def test_ranks_that_log_the_same_step_execute_it_once() -> None:
    both = executed(log([0, 1, 2, 1, 2] * 2, rank=[0] * 5 + [1] * 5, tokens=[10] * 10))
    assert both is not None
    assert both.step.tolist() == [0, 1, 2, 1, 2]
    assert both.discarded.tolist() == [False, True, True, False, False]
    assert both.tokens.tolist() == [20] * 5


def test_a_step_without_a_loss_or_an_update_brings_nothing_but_was_not_discarded() -> None:
    done = executed(log([0, 1, 2, 3], loss=[2, np.nan, 1, 1], kept=[-1, -1, 2, 0]))
    assert done is not None
    assert done.useful.tolist() == [True, False, False, False]
    assert done.discarded.tolist() == [False, False, False, True]


def test_ranks_that_never_log_a_loss_are_not_asked_for_one() -> None:
    """Only the last stage of a pipeline knows the loss."""
    done = executed(log([0, 1, 0, 1], rank=[0, 0, 1, 1], loss=[np.nan, np.nan, 2, 1]))
    assert done is not None
    assert done.kept == 1
    assert done.loss.tolist() == [2, 1]


def test_a_rank_hour_brings_kept_steps_only() -> None:
    steps = [*range(10), *range(5, 10)]
    end = np.arange(1, 16) * HOUR
    found = progress(log(steps, start_ns=end - HOUR, end_ns=end, tokens=[100] * 15), ranks=4, step_ns=1)
    assert found is not None
    assert (found["executed_steps"], found["kept_steps"], found["discarded_steps"]) == (15, 10, 5)
    assert found["rank_hours"] == 60
    assert found["kept_steps_per_rank_hour"]["value"] == pytest.approx(10 / 60)
    assert found["tokens_per_rank_hour"]["value"] == pytest.approx(1000 / 60)
    assert found["timed_by"] == "log"


def test_without_times_the_traced_steps_tell_the_hours() -> None:
    found = progress(log(list(range(20)), loss=np.linspace(3, 1, 20)), ranks=2, step_ns=HOUR)
    assert found is not None
    assert (found["rank_hours"], found["timed_by"]) == (40, "trace")
    assert found["loss_change_per_rank_hour"]["value"] == pytest.approx(-2 / 38, rel=0.02)
    assert found["loss_change_per_rank_hour"]["hi"] < 0


def test_the_report_says_how_often_steps_are_done_for_nothing() -> None:
    built = replace(barriers(np.full((6, 3), 10 * MS)), progress=log([0, 1, 2, 3, 2, 3, 4, 5]))
    result = analyze(built).result
    assert result["indices"]["replay_probability"]["value"] == 0.25
    assert result["progress"]["kept_steps"] == 6
    silent = analyze(barriers(np.full((6, 3), 10 * MS))).result
    assert silent["progress"] is None
    assert silent["indices"]["replay_probability"] is None
