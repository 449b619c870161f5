"""The ledger of attempts: it closes whatever the logs say, and lost work is charged once, to the attempt that lost it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions import act, table
from taut.core.tables import Action, Attempt, Table
from taut.ledger import Prices
from taut.ledger.attempt_ledger import FATES, Attempts, charge_attempts
from taut.read.jobs.job_words import OUTCOMES, numbered
from taut.read.trace import read
from taut.result.jobs_result import block
from taut.result.types import DecidedCost

S = 1_000_000_000
TIMES = ("submit_ns", "start_ns", "end_ns", "first_step_ns", "last_step_ns", "saved_ns", "save_took_ns", "restore_took_ns")
TWO = [
    {"start_ns": 100, "end_ns": 300, "outcome": "failed", "accelerators": 8, "unit": "accelerator"},
    {"start_ns": 400, "end_ns": 900, "outcome": "completed", "accelerators": 8, "unit": "accelerator"},
]


def charged(*rows: dict[str, Any], **options: Any) -> Attempts:
    """The ledger of attempts that are given in seconds; every job is ``a`` unless given."""
    scaled = [{k: v * S if k in TIMES else v for k, v in {"job": "a", **row}.items()} for row in rows]
    names = {key for row in scaled for key in row}
    defaults = {f: "" if f in ("job", "name", "outcome", "unit", "nodes", "reason") else -1 for f in names}
    columns = {name: np.array([{**defaults, **row}[name] for row in scaled], dtype=object) for name in names}
    ledger = charge_attempts(numbered(Table(Attempt, columns, len(scaled))), **options)
    assert ledger is not None
    assert ledger.closes
    return ledger


def seconds(ledger: Attempts) -> dict[str, float]:
    return {fate: ns / S for fate, ns in ledger.by_fate.items() if ns}


def test_without_a_checkpoint_the_whole_attempt_is_an_upper_bound() -> None:
    ledger = charged(*TWO)
    assert seconds(ledger) == {"kept": 8 * 500, "discarded at most": 8 * 200, "down": 8 * 100}
    assert ledger.total_rank_ns == 8 * 800 * S
    assert ledger.held_rank_ns == 8 * 700 * S
    assert ledger.discarded_steps() is None


def test_work_after_the_checkpoint_is_discarded_and_its_re_execution_is_ordinary() -> None:
    first = {
        **TWO[0], "first_step": 1, "first_step_ns": 120, "last_step": 161, "last_step_ns": 280, "resumed_step": 0,
        "saved_step": 100, "saved_ns": 220, "save_took_ns": 1,
    }  # fmt: skip
    second = {
        **TWO[1],
        "resumed_step": 100,
        "first_step": 101,
        "first_step_ns": 420,
        "last_step": 500,
        "last_step_ns": 819,
        "restore_took_ns": 15,
    }
    ledger = charged(first, second)
    # 19 s to the first step (1 s a step), 19 s from the last step to the end, 61 s after the save; then 15 + 4 s to the first.
    assert seconds(ledger) == {
        "kept": 8 * (100 + 481), "discarded": 8 * 61, "checkpoint save": 8, "restore": 8 * 15, "hold/init": 8 * (19 + 4),
        "detect+recover": 8 * 19, "down": 8 * 100,
    }  # fmt: skip
    assert (ledger.executed.tolist(), ledger.discarded.tolist()) == ([161, 400], [61, 0])
    flags = ledger.discarded_steps()
    assert (len(flags), int(flags.sum())) == (561, 61)


def decision(t: float, controller: str, trigger: str, **more: Any) -> dict[str, Any]:
    return act(t, controller, -1, "a", "allocation", work="a", trigger=trigger, **more)


LATER = {**TWO[1], "resumed_step": 0, "first_step": 1, "first_step_ns": 420, "last_step": 100, "last_step_ns": 519}
"""The second attempt with steps of a second each: the first of them began 19 s after its start."""


def test_what_a_preemption_took_is_control_overhead_and_costs_only_what_was_held() -> None:
    """The scheduler took 8 accelerators away for 100 s, and the next attempt needed 19 s to be under way again."""
    actions = table(Action, [decision(300.4, "slurmctld", "preempted for job 7")])
    ledger = charged({**TWO[0], "outcome": "preempted"}, LATER, actions=actions, prices=Prices(Decimal("3.6"), "EUR"))
    assert seconds(ledger) == {"kept": 8 * 481, "discarded": 8 * 200, "control overhead": 8 * (100 + 19)}
    assert ledger.held_rank_ns == 8 * 700 * S
    (entry,) = [e for e in ledger.entries() if e["fate"] == "control overhead"]
    assert (entry["held"], entry["money"]) == (True, "0.152000"), "8 × 19 s at a thousandth a second"
    assert sum(Decimal(e["money"]) for e in ledger.entries()) == Decimal("5.6")
    found = block(ledger.recorded, ledger)
    assert found is not None
    cost = DecidedCost(discarded_rank_ns=1600 * S, control_overhead_rank_ns=952 * S)
    assert found.decided_by == {"slurmctld": cost}


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (decision(300, "slurmctld", "failed node n7"), "a fault"),
        (decision(300, "uid 1000", "cancelled"), "a person"),
        (decision(250, "slurmctld", "preempted"), "long before the end"),
        (act(300, "slurmctld", 1, "a", "allocation", work="a"), "not against the job"),
        (decision(300, "slurmctld", "preempted") | {"work": "b", "target": "b"}, "another job"),
    ],
)
def test_what_no_controller_decided_is_down(action: dict[str, Any], why: str) -> None:
    ledger = charged(TWO[0], LATER, actions=table(Action, [action]))
    assert ledger.by_fate["control overhead"] == 0, why
    assert ledger.by_fate["down"] == 8 * 100 * S
    assert ledger.by_fate["hold/init"] == 8 * 19 * S


def test_a_restart_because_a_timeout_ran_out_is_the_launchers() -> None:
    """Workers that are started again keep their accelerators: what lies between is paid for."""
    actions = table(Action, [act(400, "torchrun", 0, "a", "attempt", work="a", attempt=1, trigger="timeout of 5 s")])
    ledger = charged(TWO[0], {**LATER, "held": 1}, actions=actions)
    assert ledger.ended_by.tolist() == ["torchrun", None]
    assert seconds(ledger)["control overhead"] == 8 * (100 + 19)
    assert ledger.held_rank_ns == ledger.total_rank_ns
    other = charged(TWO[0], {**LATER, "held": 1}, actions=actions.replace(trigger=np.array(["failed"], dtype=object)))
    assert (other.by_fate["control overhead"], other.by_fate["detect+recover"]) == (0, 8 * 100 * S)


def test_a_restart_from_further_back_discards_earlier_attempts_too() -> None:
    one = {"accelerators": 1, "unit": "accelerator", "outcome": "failed"}
    ledger = charged(
        {
            **one,
            "start_ns": 0,
            "end_ns": 100,
            "resumed_step": 0,
            "first_step": 1,
            "first_step_ns": 1,
            "last_step": 100,
            "last_step_ns": 100,
        },
        {
            **one,
            "start_ns": 100,
            "end_ns": 200,
            "resumed_step": 80,
            "first_step": 81,
            "first_step_ns": 101,
            "last_step": 180,
            "last_step_ns": 200,
        },
        {**one, "start_ns": 200, "end_ns": 300, "resumed_step": 50, "outcome": "completed", "last_step": 150, "first_step": 51},
    )
    assert seconds(ledger) == {"kept": 50 + 100, "discarded": 50 + 100}
    assert ledger.discarded.tolist() == [50, 100, 0]


def test_an_attempt_that_does_not_say_where_it_resumed_is_a_guess_that_is_counted() -> None:
    ledger = charged({**TWO[0], "saved_step": 50, "saved_ns": 250}, TWO[1])
    assert seconds(ledger) == {"kept": 8 * (150 + 500), "discarded": 8 * 50, "down": 8 * 100}
    assert ledger.guessed == 1


def test_a_job_that_failed_for_good_is_unfinished_after_its_last_save() -> None:
    ledger = charged({**TWO[0], "saved_step": 50, "saved_ns": 250})
    assert seconds(ledger) == {"kept": 8 * 150, "unfinished": 8 * 50}


def test_accelerators_that_stayed_held_between_attempts_were_burned() -> None:
    assert seconds(charged(TWO[0], {**TWO[1], "held": 1})) == {"kept": 4000, "discarded at most": 1600, "detect+recover": 800}


def test_a_smaller_attempt_leaves_the_rest_unallocated() -> None:
    assert seconds(charged(TWO[0], {**TWO[1], "accelerators": 6})) == {
        "kept": 6 * 500, "discarded at most": 1600, "unallocated": 2 * 500, "down": 800,
    }  # fmt: skip


def test_queueing_is_a_delay_and_burns_nothing() -> None:
    ledger = charged({**TWO[0], "submit_ns": 10}, TWO[1])
    assert ledger.queue_ns == 90 * S
    assert ledger.total_rank_ns == 8 * 800 * S
    assert charged(*TWO).queue_ns is None


def test_jobs_that_do_not_tell_accelerators_are_left_out_where_others_do() -> None:
    ledger = charged(
        *TWO,
        {"job": "b", "start_ns": 0, "end_ns": 50},
        {"job": "c", "start_ns": 0, "end_ns": 5, "accelerators": 4, "unit": "cpu"},
    )
    assert (ledger.unit, ledger.left_out, len(ledger.spans)) == ("accelerator", 2, 1)
    alone = charged({"start_ns": 0, "end_ns": 50})
    assert (alone.unit, seconds(alone)) == ("", {"kept": 50})


def test_a_world_size_stands_for_accelerators_that_no_log_tells() -> None:
    ledger = charged({"start_ns": 0, "end_ns": 50}, world=16)
    assert (ledger.unit, ledger.total_rank_ns) == ("accelerator", 16 * 50 * S)


def test_nothing_that_ran_is_nothing_to_charge() -> None:
    assert charge_attempts(Table(Attempt, {"job": ["a"], "submit_ns": [5]})) is None
    assert charge_attempts(Table(Attempt, {}, 0)) is None


def test_money_closes_and_what_was_not_held_costs_nothing() -> None:
    entries = charged(*TWO, prices=Prices(Decimal("3.33"), "EUR")).entries()
    assert sum(Decimal(e["money"]) for e in entries) == (Decimal("3.33") * 5600 / 3600).quantize(Decimal("0.000001"))
    assert [e["money"] for e in entries if not e["held"]] == ["0.000000", "0.000000"]
    cpus = charged({**TWO[0], "unit": "cpu"}, prices=Prices(Decimal("3.33"), "EUR")).entries()
    assert {e["money"] for e in cpus} == {None}


NUMBER = st.integers(-1, 60) | st.integers(0, 2**62) | st.just(-1)
ROW = st.fixed_dictionaries(
    {
        "job": st.sampled_from("ab"),
        "outcome": st.sampled_from(["", *OUTCOMES]),
        "unit": st.sampled_from(["", "accelerator", "cpu"]),
        "accelerators": st.integers(-1, 9) | st.integers(0, 2**24),
        "held": st.integers(-1, 1),
        **dict.fromkeys((*TIMES, "first_step", "last_step", "resumed_step", "saved_step"), NUMBER),
    }
)


@settings(max_examples=300)
@given(st.lists(ROW, max_size=6), st.none() | st.integers(1, 4096), st.sets(st.integers(0, 5)))
def test_every_rank_nanosecond_has_one_fate(rows: list[dict[str, Any]], world: int | None, decided: set[int]) -> None:
    """Conservation law: whatever the logs say, fates are not negative and sum to accelerators × (first start → last end)."""
    columns = {key: np.array([row[key] for row in rows], dtype=object) for key in (rows[0] if rows else ())}
    decisions = [
        {"time_ns": row["end_ns"], "work": row["job"], "direction": -1, "controller": "x"}
        for k, row in enumerate(rows)
        if k in decided
    ]
    ledger = charge_attempts(numbered(Table(Attempt, columns, len(rows))), world=world, actions=table(Action, decisions))
    if ledger is None:
        return
    total = 0
    for job in range(len(ledger.names)):
        mine = ledger.job == job
        if mine.any():
            total += int(ledger.most[mine].max()) * int(ledger.end_ns[mine].max() - ledger.begin_ns[mine].min())
    assert list(ledger.by_fate) == list(FATES)
    assert all(ns >= 0 for column in ledger.cells.values() for ns in column.tolist())
    assert sum(ledger.by_fate.values()) == ledger.total_rank_ns == total
    assert all((ledger.cells[fate] >= free).all() for fate, free in ledger.not_held.items())
    assert (ledger.discarded <= np.maximum(ledger.executed, -1)).all()


def test_the_known_figures_of_philly(shared: Path) -> None:
    trace = read([shared / "philly-restarts" / "jobs.json"])
    ledger = charge_attempts(trace.attempts)
    assert ledger is not None
    assert len(ledger.spans) == 3034
    assert sum(b - a > 1 for a, b in ledger.spans) == 816
    assert round(ledger.held_rank_ns / 3.6e12 / 1000) == 772
    assert round(ledger.by_fate["discarded at most"] / ledger.held_rank_ns, 3) == pytest.approx(0.207)
    assert ledger.closes
