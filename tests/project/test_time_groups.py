"""Time in four groups: shares sum to one, nothing is counted as zero that is not known, and one rule says what binds."""

from __future__ import annotations

import pytest

from taut.project.measured.widened_graph import TERMS as MEASURED
from taut.project.projection import turns
from taut.project.requests.agents.workload import TERMS as AGENTS
from taut.project.time_groups import bound_by, group_of, grouped, largest_term
from taut.result.types import Forecast, Quantiles

STEP = {
    "compute": 40.0, "transfer inside a stage": 10.0, "pipeline hops": 5.0, "pipeline bubble": 15.0,
    "data-parallel synchronisation": 20.0, "jitter": 10.0,
}  # fmt: skip


def test_every_term_of_a_training_step_has_its_group() -> None:
    groups = {name: group_of(name) for name in STEP}
    assert groups == {
        "compute": "compute",
        "transfer inside a stage": "interconnect",
        "pipeline hops": "interconnect",
        "data-parallel synchronisation": "interconnect",
        "pipeline bubble": "synchronisation",
        "jitter": "synchronisation",
    }


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (MEASURED, ["compute", "synchronisation", "compute", "interconnect", "synchronisation"]),
        (
            ["served", "served in vain", "starting", "idle", "trained", "trained in vain", "restarting", "checkpoints"],
            ["compute", "recovery", "synchronisation", "synchronisation", "compute", "recovery", "recovery", "recovery"],
        ),
        (list(AGENTS), ["compute", "synchronisation", "synchronisation", "recovery"]),
    ],
)
def test_terms_of_runs_loops_and_tasks_have_theirs(terms: list[str], expected: list[str]) -> None:
    assert [group_of(name) for name in terms] == expected


def test_shares_sum_to_one_and_recovery_comes_off_all_of_them() -> None:
    found = grouped(STEP, kept=0.8)
    assert found == pytest.approx({"compute": 0.32, "interconnect": 0.28, "synchronisation": 0.2, "recovery": 0.2})
    assert sum(share or 0 for share in found.values()) == pytest.approx(1)


def test_where_nothing_is_said_of_failures_recovery_is_not_known() -> None:
    found = grouped(STEP)
    assert found["recovery"] is None
    assert found["compute"] == pytest.approx(0.4)


def test_a_group_of_which_no_term_tells_is_not_known() -> None:
    found = grouped({"model calls": 60.0, "tools": 30.0, "attempts in vain": 10.0})
    assert found == pytest.approx({"compute": 0.6, "interconnect": None, "synchronisation": 0.3, "recovery": 0.1})


def test_hops_that_hide_under_computing_make_no_negative_share() -> None:
    found = grouped({"compute": 90.0, "pipeline hops": 15.0, "jitter": -5.0})
    assert found == pytest.approx({"compute": 0.9, "interconnect": 0.1, "synchronisation": 0.0, "recovery": None})


@pytest.mark.parametrize(
    ("kept", "terms", "bound", "largest"),
    [
        (0.9, {"compute": 60.0, "jitter": 40.0}, "compute", "compute"),
        (0.9, STEP, "interconnect", "data-parallel synchronisation"),
        (0.5, STEP, "recovery", "failures"),
    ],
)
def test_compute_binds_while_it_takes_half_of_the_time(kept: float, terms: dict[str, float], bound: str, largest: str) -> None:
    found = grouped(terms, kept)
    assert bound_by(found) == bound
    assert largest_term(terms, found) == largest


def at(ranks: int, bound: str) -> Forecast:
    return Forecast(
        ranks=ranks, step_ns=Quantiles(p10=1.0, p50=1.0, p90=1.0), mean_step_ns=None, tflops_per_device=None, mfu=None,
        effective_throughput_ratio=None, cost_per_unit=None, energy_per_unit_j=None, dominant=bound, in_range=True, bound=bound,
    )  # fmt: skip


def test_turns_are_between_neighbouring_scales_in_whatever_order_they_were_asked() -> None:
    found = turns([at(8192, "interconnect"), at(512, "compute"), at(65536, "recovery"), at(4096, "compute")])
    assert isinstance(found, list)
    assert [(one.last_ranks, one.before, one.ranks, one.after) for one in found] == [
        (4096, "compute", 8192, "interconnect"),
        (8192, "interconnect", 65536, "recovery"),
    ]
    assert turns([at(512, "compute"), at(4096, "compute")]) == []
