"""``trainer_state.json``: how far a training had come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from taut.core.errors import InputRefused
from taut.read.jobs import trainer_state
from taut.read.trace import read


def state(step: int, history: list[dict[str, Any]] | None = None) -> str:
    rows = [{"epoch": n / 100, "loss": float("nan"), "step": n} for n in range(10, step + 1, 10)]
    return json.dumps(
        {"best_metric": None, "global_step": step, "log_history": rows + (history or []), "max_steps": 100}, indent=2
    )


def test_a_checkpoint_and_the_end_of_one_training_are_one_attempt(tmp_path: Path) -> None:
    run = tmp_path / "run1"
    for folder, text in (("checkpoint-50", state(50)), (".", state(100, [{"step": 100, "train_runtime": 12.5}]))):
        (run / folder).mkdir(parents=True, exist_ok=True)
        (run / folder / "trainer_state.json").write_text(text)
    found = read([run])
    assert found.attempts.outcome.tolist() == ["completed"]
    assert (found.attempts.first_step[0], found.attempts.last_step[0], found.attempts.saved_step[0]) == (10, 100, 100)
    assert (found.attempts.end_ns[0] - found.attempts.start_ns[0], found.attempts.dated[0]) == (12_500_000_000, 0)


def test_what_came_after_a_checkpoint_is_not_known() -> None:
    log = trainer_state.load(state(50).encode(), "checkpoint-50/trainer_state.json")
    assert (log.attempts.outcome[0], log.attempts.end_ns[0]) == ("", -1)
    assert "saved at step 50 of 100" in log.partial[1]


def test_one_that_breaks_off_is_refused() -> None:
    text = state(50)[:200].encode()
    assert trainer_state.sniff(text)
    with pytest.raises(InputRefused, match="breaks off"):
        trainer_state.load(text, "trainer_state.json")
