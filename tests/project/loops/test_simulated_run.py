"""The simulator of control loops: exact small cases, and laws that every run keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from taut.project.loops.scenario import (  # fmt: skip
    Autoscaler,
    Client,
    Demand,
    Gate,
    Loops,
    Machines,
    Pool,
    Scenario,
    Scheduler,
    Stall,
    Trainer,
)
from taut.project.loops.simulated_run import simulate


def pair(retries: int, stall: tuple[Stall, ...] = (Stall(10, 4),)) -> Scenario:
    """A server of 50 a second asked 30 a second, with a time-out of half a second."""
    return Scenario(
        "pair", Loops(horizon_s=60), Demand(per_s=30), Pool(service_s=0.02), (Client("caller", 0.5, retries),), stall=stall
    )


def everything(**changed: object) -> Scenario:
    parts: dict[str, object] = {
        "demand": Demand(per_s=4, shape="square", peak_per_s=10, deadline_s=8), "client": (Client("sdk", 8, 2),),
        "pool": Pool(service_s=1, replicas=6, least=2, most=16, start_s=20), "gate": Gate(), "trainer": Trainer(4),
        "autoscaler": (Autoscaler("scaler"), Autoscaler("saver", "utilisation", 0.8, only="down")),
        "scheduler": (Scheduler("a", 1, 0.1), Scheduler("b", 1, 0.1)), **changed,
    }  # fmt: skip
    return Scenario("everything", Loops(horizon_s=300), **parts)


def test_without_trouble_every_request_is_tried_once_and_kept() -> None:
    run = simulate(Scenario("calm", Loops(horizon_s=100), Demand(per_s=1, spread=0), Pool(service_s=0.5, spread=0)))
    assert run.arrived == 99
    assert run.tries.tolist() == [1] * 99
    assert np.allclose(run.took_s, 0.5)
    assert run.terms_s["served"] == pytest.approx(99 * 0.5)
    assert sum(run.terms_s.values()) == pytest.approx(100)


def test_one_server_waits_as_queueing_theory_says() -> None:
    """M/M/1 at half load: a request takes 1 ÷ (μ − λ) on average."""
    s = Scenario("queue", Loops(horizon_s=2000), Demand(per_s=5), Pool(service_s=0.1))
    took = np.concatenate([simulate(s, seed).took_s for seed in range(4)])
    assert took.mean() == pytest.approx(1 / (10 - 5), rel=0.05)


def test_layers_of_retries_multiply() -> None:
    """Three retries over a client that makes two of its own: twelve attempts at what never answers."""
    clients = (Client("service", 20, 3), Client("sdk", 0.5, 2))
    run = simulate(Scenario("layers", Loops(horizon_s=60), Demand(per_s=0.5), Pool(service_s=1e6, spread=0), clients))
    assert set(run.tries.tolist()) == {12}


def test_a_budget_bounds_what_retries_add() -> None:
    run = simulate(Scenario(
        "budget", Loops(horizon_s=200), Demand(per_s=10), Pool(service_s=1e6), (Client("sdk", 0.5, 3, budget_share=0.1),)
    ))  # fmt: skip
    assert run.tries.sum() <= 1.1 * run.arrived + 10


def test_who_is_told_the_deadline_begins_nothing_too_late() -> None:
    """Twice as much is asked as can be served: only with the deadline does the pool serve what is still wanted."""
    overloaded = Scenario("told", Loops(horizon_s=100), Demand(per_s=20), Pool(service_s=0.1, spread=0))
    vain = [
        simulate(replace(overloaded, client=(Client("sdk", 2, 2, passes_deadline=passes),))).terms_s["served in vain"]
        for passes in (False, True)
    ]
    assert vain[0] > 85
    assert vain[1] == 0


def test_schedulers_that_own_their_machines_never_refuse_each_other() -> None:
    shared = simulate(everything())
    owned = simulate(everything(machines=Machines(owned=True)))
    assert shared.conflicts > 20
    assert owned.conflicts == 0


def test_a_launcher_that_waits_less_than_a_restore_burns_its_launches() -> None:
    def job(timeout_s: float) -> Scenario:
        trainer = Trainer(4, restore_s=8, spread=0, launcher_timeout_s=timeout_s, restarts=3)
        return Scenario("job", Loops(horizon_s=300), Demand(per_s=1), Pool(service_s=0.5), trainer=trainer)

    burned, trains = simulate(job(5)), simulate(job(20))
    assert burned.terms_s["trained"] == 0
    assert trains.terms_s["trained"] > 4 * 250
    launches = burned.trace.actions
    assert set(launches.outcome[(launches.knob == "attempt") & (launches.target == "trainer")]) == {"failed"}


@given(seed=st.integers(0, 1000), retries=st.integers(0, 3), start_s=st.floats(0, 60), hysteresis=st.floats(0, 0.5))
@settings(max_examples=10, deadline=None)
def test_accounts_close_and_logs_are_in_order(seed: int, retries: int, start_s: float, hysteresis: float) -> None:
    s = everything(
        client=(Client("sdk", 8, retries),), pool=Pool(service_s=1, replicas=6, least=2, most=16, start_s=start_s),
        autoscaler=(Autoscaler("scaler", hysteresis=hysteresis),),
    )  # fmt: skip
    run = simulate(s, seed)
    assert all(value >= 0 for value in run.terms_s.values())
    assert run.paid_s <= s.accelerators * s.loops.horizon_s * (1 + 1e-9)
    assert run.good <= run.settled <= run.arrived
    actions = run.trace.actions
    assert (np.diff(actions.time_ns) >= 0).all()
    assert (actions.parent < np.arange(len(actions))).all()


def test_what_an_inner_layer_still_tries_for_a_caller_who_hung_up_is_not_served() -> None:
    layers = (Client("gateway", 1, 0), Client("sdk", 1, 1))
    run = simulate(Scenario("gone", Loops(horizon_s=60), Demand(per_s=1), Pool(service_s=10, spread=0, cancels=True), layers))
    assert run.good == 0
    assert run.terms_s["served in vain"] <= run.arrived


SECONDS = st.floats(0.01, 100)


@given(
    demand=st.builds(
        Demand, per_s=st.floats(0.01, 5), shape=st.sampled_from(("constant", "square")), peak_per_s=st.floats(0.01, 5),
        period_s=SECONDS, growth_per_hour=st.floats(-1e3, 1e3), spread=st.floats(0, 10), deadline_s=SECONDS,
    ),
    pool=st.builds(
        Pool, service_s=st.floats(0.001, 1e3), spread=st.floats(0, 10), replicas=st.integers(1, 9), least=st.just(1),
        most=st.integers(9, 20), start_s=st.floats(0, 1e3), queue=st.integers(0, 3), cancels=st.booleans(),
        error_share=st.floats(0, 1), accelerators=st.integers(1, 3),
    ),
    client=st.lists(
        st.builds(
            Client, name=st.just("layer"), timeout_s=SECONDS, retries=st.integers(0, 2), back_off_s=st.floats(0, 10),
            budget_share=st.none() | st.floats(0, 1), passes_deadline=st.booleans(), tags=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    trainer=st.none() | st.builds(
        Trainer, accelerators=st.integers(1, 9), step_s=SECONDS, checkpoint_every_s=SECONDS, restore_s=SECONDS,
        launcher_timeout_s=SECONDS, restarts=st.integers(0, 2), pause_s=st.just(0.0), retry_s=st.just(0.0),
        mtbf_s=st.none() | SECONDS,
    ),
    signal=st.sampled_from(("concurrency", "utilisation", "latency")),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_any_scenario_plays_to_its_end(
    demand: Demand, pool: Pool, client: tuple[Client, ...], trainer: Trainer | None, signal: Any
) -> None:
    scaler = Autoscaler("scaler", signal, period_s=3, look_back_s=3)
    run = simulate(Scenario("any", Loops(horizon_s=60), demand, pool, client, (scaler,), Gate(), trainer))
    assert all(value >= -1e-6 for value in run.terms_s.values())
    assert run.good <= run.settled <= run.arrived


def test_a_run_is_decided_by_its_seed() -> None:
    first, again, other = (simulate(everything(), seed) for seed in (3, 3, 4))
    for name, column in first.trace.actions.columns.items():
        assert (column == again.trace.actions.columns[name]).all()
    assert np.array_equal(first.trace.metrics.value, again.trace.metrics.value)
    assert len(first.trace.actions) != len(other.trace.actions)


def test_demand_stays_as_it_is_whatever_is_changed() -> None:
    """Policies are compared on the same arrivals."""
    calm, wild = (simulate(everything(client=(Client("sdk", 8, n),), gate=None)) for n in (0, 3))
    assert calm.arrived == wild.arrived
