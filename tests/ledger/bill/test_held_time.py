"""Held time: every accelerator second of attempts and traced runs stands in exactly one row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions import table
from bill_runs import LATE, NOBODY, NOON, TWO_STEPS, S, cells, run
from results import FINDING, filled
from taut.core.errors import InputRefused
from taut.core.tables import Action, Attempt, Table
from taut.ledger.attempt_ledger import Attempts, charge_attempts
from taut.ledger.bill.attempt_time import attempt_time
from taut.ledger.bill.cut_rows import cut_at, cut_at_days, inside
from taut.ledger.bill.held_time import join
from taut.ledger.bill.period import DAY_NS
from taut.ledger.bill.rows import Held
from taut.ledger.bill.traced_time import traced_time
from taut.read.jobs.job_words import numbered
from taut.result.types import Finding

TIMES = ("submit_ns", "start_ns", "end_ns", "first_step_ns", "last_step_ns", "saved_ns")
BASE = {"job": "a", "unit": "accelerator", "accelerators": 8, "nodes": "n[1-2]", "team": "vision"}


def charged(*rows: dict[str, Any], actions: Table | None = None) -> Attempts:
    """The ledger of attempts whose times are seconds after a noon."""
    scaled = [{k: NOON + v * S if k in TIMES else v for k, v in {**BASE, **row}.items()} for row in rows]
    found = charge_attempts(numbered(table(Attempt, scaled)), actions=actions)
    assert found is not None
    return found


def seconds(held: Table, *by: str) -> dict[Any, float]:
    """Accelerator seconds by some columns."""
    out: dict[Any, float] = {}
    for row in zip(*(held.columns[name].tolist() for name in (*by, "rank_ns")), strict=True):
        key = row[0] if len(by) == 1 else row[:-1]
        out[key] = out.get(key, 0) + row[-1] / S
    return out


def test_an_attempt_is_laid_out_in_time_over_its_hosts() -> None:
    rows = (
        {"start_ns": 0, "end_ns": 300, "outcome": "failed", "reason": "exit code 1", "first_step": 1, "first_step_ns": 20,
         "last_step": 161, "last_step_ns": 180, "saved_step": 100, "saved_ns": 120, "resumed_step": 0},
        {"start_ns": 400, "end_ns": 900, "outcome": "completed", "resumed_step": 100, "restore_took_ns": 15 * S,
         "first_step": 101, "first_step_ns": 420, "last_step": 500, "last_step_ns": 819},
    )  # fmt: skip
    held = attempt_time(charged(*rows), "log").held
    mine = held.take(held.host == "n1")
    order = np.argsort(mine.start_ns)
    found = [
        (fate, (begin - NOON) // S, (end - NOON) // S, cause)
        for fate, begin, end, cause in zip(
            mine.fate[order], mine.start_ns[order], mine.end_ns[order], mine.cause[order], strict=True
        )
    ]
    end = "failed: exit code 1"
    assert found == [
        ("hold/init", 0, 19, ""), ("kept", 19, 120, ""), ("discarded", 120, 181, end), ("detect+recover", 181, 300, end),
        ("hold/init", 400, 404, end), ("restore", 404, 419, end), ("kept", 419, 900, ""),
    ]  # fmt: skip
    assert seconds(held, "host") == {"n1": 4 * 800, "n2": 4 * 800}
    assert set(held.team.tolist()) == {"vision"}


def test_it_sums_to_what_the_attempts_held_also_between_them() -> None:
    decided = {"time_ns": NOON + 300 * S, "controller": "slurmctld", "target": "a", "work": "a", "direction": -1,
               "trigger": "priority", "attempt": -1}  # fmt: skip
    ledger = charged(
        {"start_ns": 0, "end_ns": 300, "outcome": "preempted"}, {"start_ns": 400, "end_ns": 900, "held": 1},
        actions=table(Action, [decided]),
    )  # fmt: skip
    held = attempt_time(ledger, "log").held
    assert int(held.rank_ns.sum()) == ledger.held_rank_ns
    assert seconds(held, "fate", "cause") == {
        ("discarded at most", "preempted by slurmctld"): 2400, ("control overhead", "preempted by slurmctld"): 800,
        ("kept", ""): 4000,
    }  # fmt: skip
    assert set(held.source[held.fate == "discarded at most"].tolist()) == {"modelled"}


def test_accelerators_that_do_not_divide_and_hosts_without_any() -> None:
    held = attempt_time(charged({"start_ns": 0, "end_ns": 10, "accelerators": 3}), "log").held
    assert seconds(held, "host") == {"n1": 20, "n2": 10}
    held = attempt_time(charged({"start_ns": 0, "end_ns": 10, "accelerators": 1, "nodes": "x,y"}), "log").held
    assert seconds(held, "host") == {"x": 10}


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [("", {""}), ("a, b", {"a", "b"}), ("a/0*4+b/0*4", {"a", "b"}), ("gpu[01-02]", {"gpu01", "gpu02"}), ("gpu[01", {""})],
)
def test_lists_of_hosts(nodes: str, hosts: set[str]) -> None:
    placed = attempt_time(charged({"start_ns": 0, "end_ns": 10, "nodes": nodes}), "log")
    assert set(placed.held.host.tolist()) == hosts
    assert int(placed.held.rank_ns.sum()) == 80 * S
    assert len(placed.notes) == (nodes == "gpu[01")


def test_times_without_a_date_are_lengths() -> None:
    held = attempt_time(charged({"start_ns": 0, "end_ns": 200_000, "dated": 0, "nodes": ""}), "log").held
    assert set(held.start_ns.tolist()) == {-1}
    assert int(held.rank_ns.sum()) == 8 * 200_000 * S


def test_more_accelerators_than_one_host_has_are_refused() -> None:
    with pytest.raises(InputRefused, match="accelerators on one host"):
        attempt_time(charged({"start_ns": 0, "end_ns": 10, "accelerators": 1 << 20, "nodes": "a"}), "log")


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5 * DAY_NS), st.integers(1, 3 * DAY_NS), st.integers(1, 16)), min_size=1, max_size=8),
       st.lists(st.integers(0, 9 * DAY_NS), max_size=6, unique=True))  # fmt: skip
def test_cutting_loses_nothing(rows: list[tuple[int, int, int]], borders: list[int]) -> None:
    start, length, accelerators = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    columns = {"start_ns": start, "end_ns": start + length, "accelerators": accelerators, "rank_ns": accelerators * length}
    held = Table(Held, columns, len(rows))
    cut = cut_at_days(cut_at(held, np.array(sorted(borders), dtype=np.int64)))
    assert int(cut.rank_ns.sum()) == int(held.rank_ns.sum())
    assert (cut.start_ns // DAY_NS == (cut.end_ns - 1) // DAY_NS).all()
    middle = 3 * DAY_NS
    parts = [inside(held, span) for span in ((0, middle), (middle, 9 * DAY_NS))]
    assert sum(int(part.rank_ns.sum()) for part in parts) == int(held.rank_ns.sum())


def test_cells_of_a_run_follow_each_other_and_are_traced_to_what_mends_them() -> None:
    held = traced_time(run(TWO_STEPS, (LATE, NOBODY)))
    first = held.take(held.rank == 0)
    assert [(begin - NOON) // S for begin in first.start_ns.tolist()] == [10, 16, 20, 26]
    assert seconds(held, "fate", "cause") == {
        ("productive", ""): 28, ("fault wait", "f-late"): 4, ("slow compute", "f-late"): 4, ("jitter wait", "f-nobody"): 4,
    }  # fmt: skip


def test_of_two_findings_the_one_that_was_waited_for_is_the_cause() -> None:
    other = filled(Finding, {**FINDING, "id": "f-other", "ranks": [0], "steps": [1, 1]})
    asked = run(TWO_STEPS, (other, LATE), opened_by={(0, 1): {1: 5, 0: 1}})
    held = traced_time(asked)
    assert set(held.cause[held.fate == "fault wait"].tolist()) == {"f-late"}


def test_transfers_over_a_slow_link_are_traced_to_it_as_far_as_its_repair_recovers_them() -> None:
    rows = cells((0, 1, "productive", 4), (0, 1, "exposed transfer", 6), (1, 1, "productive", 4), (1, 1, "exposed transfer", 6))
    link = filled(
        Finding, {**FINDING, "id": "f-link", "ranks": [], "links": ["1:0"], "steps": [1, 1], "recoverable_wall_ns": 5 * S}
    )
    held = traced_time(run(rows, (link,)))
    assert seconds(held, "fate", "cause", "source") == {
        ("productive", "", "measured"): 8, ("exposed transfer", "", "measured"): 2,
        ("exposed transfer", "f-link", "modelled"): 10,
    }  # fmt: skip


def attempt(**about: Any) -> Table:
    row = {"start_ns": 0, "end_ns": 110, "outcome": "completed", "accelerators": 2, **about}
    return attempt_time(charged(row), "log").held


def test_a_traced_run_takes_the_place_of_its_part_of_the_attempt_and_the_rest_goes_by_its_proportions() -> None:
    joined = join(attempt(), [run(TWO_STEPS, (LATE, NOBODY))])
    assert int(joined.held.rank_ns.sum()) == 220 * S
    assert seconds(joined.held, "source") == {"measured": 40, "modelled": 180}
    by_fate = seconds(joined.held.take(joined.held.host == "n1"), "fate")
    assert by_fate == pytest.approx({"productive": 66, "fault wait": 22, "jitter wait": 22})
    assert set(joined.held.origin[joined.held.source == "modelled"].tolist()) == {"run run: 2 steps"}


def test_a_job_of_the_logs_is_met_by_time_and_hosts() -> None:
    joined = join(attempt(job="77"), [run(TWO_STEPS)])
    assert set(joined.held.job.tolist()) == {"77"}
    assert int(joined.held.rank_ns.sum()) == 220 * S


def test_a_run_at_another_time_stands_beside_the_job() -> None:
    elsewhere = run(TWO_STEPS, origin_ns=np.array([NOON + 1_000 * S]))
    assert int(join(attempt(job="77"), [elsewhere]).held.rank_ns.sum()) == (220 + 40) * S


def test_a_run_without_dates_gives_proportions_only() -> None:
    joined = join(attempt(), [run(TWO_STEPS, relative=True)])
    assert seconds(joined.held, "source") == {"modelled": 220}
    assert "when, its logs do not tell" in joined.notes[0]


def test_logs_without_hosts_take_those_of_the_run() -> None:
    joined = join(attempt(nodes=""), [run(TWO_STEPS)])
    assert seconds(joined.held, "host") == {"n1": 110, "n2": 110}


def test_accelerators_beyond_the_ranks_are_spares_and_what_they_hide_is_said() -> None:
    joined = join(attempt(nodes="n[1-3]", accelerators=3), [run(TWO_STEPS)])
    assert seconds(joined.held.take(joined.held.fate == "spare"), "host") == {"n3": 110}
    assert int(joined.held.rank_ns.sum()) == 330 * S
    assert joined.notes == ["a: spares take 33 % of what it holds, while its ranks lose 30 % of their time"]
