"""Serving: queues, fan-out, hedges and retries against their closed forms; scenarios, scales and policies."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode
from msgspec.structs import replace

from taut.core.errors import InputRefused, UsageError
from taut.project.projection import Asked, project_table
from taut.project.requests.iteration_time import pace
from taut.project.requests.serving.request_draws import draw, modulation
from taut.project.requests.serving.scenario import ServingScenario
from taut.project.requests.serving.servers import ServingOutcome, simulate
from taut.project.requests.serving.workload import WORKLOAD, forecast, forecast_of
from taut.project.workload import INDICES, Sampling
from taut.result.types import Forecast

DEVICE = {"name": "some", "peak_tflops": 1000.0, "memory_gb": 80.0, "memory_gb_per_s": 3000.0}
FABRIC = {"name": "one", "tiers": [{"name": "node", "devices": 8, "gb_per_s": 450.0}]}
SMALL = {"layers": 1, "hidden": 1024, "heads": 8, "sequence": 4096, "vocab": 1000}
LARGE = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "kv_heads": 8,
    "ffn": 14336,
    "gated": True,
    "sequence": 8192,
    "vocab": 32000,
}
QUIET = {"distribution": "none", "step_spread": 0.0, "ranks_spread": 0.0}
EXPONENTIAL = {"distribution": "exponential", "spread": 1.0, "step_spread": 0.0, "ranks_spread": 0.0}


def table(**tables: Any) -> dict[str, Any]:
    """A server that answers one prompt after the other with one token, unless given otherwise."""
    serving = {"replicas": 1, "max_batch": 1, "routing": "random", **tables.pop("serving", {})}
    arrivals = {"per_s": 1.0, "prompt_tokens": 512, "generated_tokens": 1, **tables.pop("arrivals", {})}
    basis = {"model": SMALL, "device": DEVICE, "fabric": FABRIC, "noise": QUIET}
    return {**basis, "serving": serving, "arrivals": arrivals, **tables}


def scenario(**tables: Any) -> ServingScenario:
    return ServingScenario.parse(table(**tables), "test")[0]


def loaded(busy: float, **tables: Any) -> tuple[ServingScenario, float]:
    """A scenario whose servers are busy for this share of the time, and what a request takes, ns."""
    s = scenario(**tables)
    took = float(pace(s).prefill_ns(512.0))
    return replace(s, arrivals=replace(s.arrivals, per_s=busy / took * 1e9 * s.servers)), took


def rate(s: ServingScenario) -> float:
    return WORKLOAD.rate(s, Sampling(seed=1))


def waited(p: ServingOutcome) -> float:
    return float(p.spent_ns["queue"].mean())


def chat(**tables: Any) -> ServingScenario:
    """A model of 8 B parameters, one device a replica, with a conversation's lengths."""
    serving = {"replicas": 8, "max_batch": 64, "routing": "shortest", **tables.pop("serving", {})}
    arrivals = {
        "per_s": 24.0, "prompt_tokens": 1000, "prompt_spread": 0.8, "generated_tokens": 150, "generated_spread": 0.7,
        **tables.pop("arrivals", {}),
    }  # fmt: skip
    promise = {"ttft_ms": 500.0, "tpot_ms": 50.0}
    noise = {"distribution": "lognormal", "spread": 0.1}
    given = {"model": LARGE, "promise": promise, "noise": noise, **tables}
    return scenario(serving=serving, arrivals=arrivals, **given)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_exponential_work_waits_as_in_m_m_1(busy: float) -> None:
    s, took = loaded(busy, noise=EXPONENTIAL)
    p = simulate(s, 200_000, 3)
    assert waited(p) == pytest.approx(busy / (1 - busy) * took, rel=0.06)
    assert p.busy == pytest.approx(busy, rel=0.02)
    late = np.quantile(p.took_ns, 0.99)
    assert late == pytest.approx(log(100) * took / (1 - busy), rel=0.08)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_even_work_waits_half_as_long_as_in_m_d_1(busy: float) -> None:
    s, took = loaded(busy)
    assert waited(simulate(s, 200_000, 4)) == pytest.approx(busy / (2 * (1 - busy)) * took, rel=0.06)


def test_even_arrivals_of_even_work_do_not_wait() -> None:
    s, took = loaded(0.9)
    p = simulate(replace(s, arrivals=replace(s.arrivals, stray=0.0)), 2000, 1)
    assert waited(p) == 0
    assert p.took_ns == pytest.approx(np.full(len(p.took_ns), took))


@pytest.mark.parametrize("parts", [2, 8, 32])
def test_the_slowest_of_exponential_parts_takes_a_harmonic_number(parts: int) -> None:
    s, took = loaded(0.0005, noise=EXPONENTIAL, serving={"replicas": 2 * parts, "fan_out": parts, "routing": "shortest"})
    p = simulate(s, 20_000, 2)
    harmonic = sum(1 / k for k in range(1, parts + 1))
    assert p.took_ns.mean() == pytest.approx(harmonic * took, rel=0.02)
    found = forecast_of(s, p, p, -1.0).indices()["sync_delay_amplification"]
    # Delays count from the work without noise on: E max(X−1, 0) of one is 1/e.
    assert found is not None
    assert found.value > 0.8 * (harmonic - 1) * np.e


def test_a_hundred_leaves_are_late_in_63_of_100_requests() -> None:
    """One leaf takes a second in 1 of 100 cases; of a hundred, one does in 1 − 0.99^100 of the requests."""
    s = scenario(leaves={"count": 100, "p50_ms": 10.0, "p99_ms": 1000.0}, arrivals={"per_s": 0.01})
    p = simulate(s, 20_000, 5)
    assert (p.spent_ns["leaves"] > 1e9).mean() == pytest.approx(1 - 0.99**100, abs=0.01)
    hedged = simulate(replace(s, leaves=replace(s.leaves, hedge_ms=50.0)), 20_000, 5)
    assert (hedged.spent_ns["leaves"] > 1e9).mean() < 0.1


def test_two_exponential_clones_take_half_as_long() -> None:
    s, took = loaded(0.0005, noise=EXPONENTIAL, serving={"replicas": 4, "hedge_quantile": 0.0, "routing": "shortest"})
    f = forecast(s, 20_000, 0)
    assert f.outcome.took_ns.mean() == pytest.approx(took / 2, rel=0.02)
    assert f.entry()["copies_per_request"] == pytest.approx(2, rel=0.01)
    found = f.indices()["replay_probability"]
    assert found is not None
    assert found.value == pytest.approx(0.5, abs=0.01)


def test_a_hedge_at_a_quantile_asks_the_rest_twice() -> None:
    s, took = loaded(0.0005, noise=EXPONENTIAL, serving={"replicas": 4, "hedge_quantile": 0.9, "routing": "shortest"})
    f = forecast(s, 40_000, 0)
    delay = took * log(10)
    assert f.entry()["hedge_ms"] == pytest.approx(delay * 1e-6, rel=0.05)
    assert f.entry()["copies_per_request"] == pytest.approx(1.1, abs=0.01)
    assert np.quantile(f.outcome.took_ns, 0.999) == pytest.approx((took * log(1000) + delay) / 2, rel=0.05)


def test_retries_multiply_the_load_as_their_fixed_point_says() -> None:
    """M/M/1 whose clients give up after T while the server works on: attempts are (1 − p^(R+1)) ÷ (1 − p) of the requests."""
    s, took = loaded(0.4, noise=EXPONENTIAL)
    patience, retries = 3.0, 1
    given = {"timeout_ms": patience * took / 1e6, "retries": retries, "cancels": False, "backoff_ms": 50 * took / 1e6}
    p = simulate(replace(s, serving=replace(s.serving, **given)), 100_000, 6)
    load = 0.4
    for _ in range(200):
        lost = exp(-(1 - load) * patience)
        load = 0.4 * (1 - lost ** (retries + 1)) / (1 - lost)
    assert p.counts["copies"] / 100_000 == pytest.approx(load / 0.4, rel=0.03)


def test_a_retry_storm_feeds_on_itself_and_a_budget_ends_it() -> None:
    """Above what servers can do with retries, below without them: nothing is answered in time; with a budget most is."""
    s, took = loaded(0.8, noise=EXPONENTIAL)
    storm = {"timeout_ms": 10 * took / 1e6, "retries": 3, "cancels": False}
    lost = simulate(replace(s, serving=replace(s.serving, **storm)), 50_000, 7)
    held = simulate(replace(s, serving=replace(s.serving, **storm, retry_budget=0.05)), 50_000, 7)
    assert lost.attained < 0.2
    assert held.attained > 0.5


@pytest.mark.parametrize(("retries", "recovers"), [(0, True), (3, False)])
def test_a_stall_passes_without_retries_and_stays_with_three(retries: int, recovers: bool) -> None:
    """Half a second of patience, 30 of 50 requests a second, a stall of 4 s: with three retries nothing is answered again."""
    s, took = loaded(0.6, noise=EXPONENTIAL)
    given = {"timeout_ms": 25 * took / 1e6, "retries": retries, "cancels": False, "stall_s": 200 * took / 1e9}
    p = simulate(replace(s, serving=replace(s.serving, **given)), 20_000, 6)
    late = p.came_ns > 0.7 * p.window_ns[1]
    assert (np.isfinite(p.took_ns[late]).mean() > 0.9) == recovers


def test_the_index_of_dispersion_is_met() -> None:
    s = scenario(arrivals={"per_s": 20.0, "process": "modulated", "dispersion": 25.0, "burst_s": 30.0})
    swing, mean_s = modulation(s.arrivals, 20.0)
    assert 20.0 * swing**2 * mean_s == pytest.approx(24)
    came = draw(s, 600_000, 1.0, 1).came_ns * 1e-9
    found = np.bincount((came / 600).astype(int))[:-1]
    assert len(came) / came[-1] == pytest.approx(20, rel=0.05)
    assert found.var() / found.mean() == pytest.approx(25, rel=0.45)
    part = draw(s, 100_000, 0.25, 1).came_ns * 1e-9
    assert len(part) / part[-1] == pytest.approx(5, rel=0.1)


def test_scaled_jitter_spreads_arrivals_as_much_farther() -> None:
    s = scenario(arrivals={"per_s": 10.0})
    came = [draw(WORKLOAD.scale_jitter(s, k), 50_000, 1.0, 1).came_ns for k in (1, 2)]
    spread = [np.diff(np.searchsorted(one, np.arange(0, 4e12, 1e11))).var() for one in came]
    assert spread[1] / spread[0] == pytest.approx(4, rel=0.05)
    quiet = WORKLOAD.scale_jitter(s, 0.0)
    assert np.ptp(np.diff(draw(quiet, 1000, 1.0, 1).came_ns)) < 1e-3
    assert quiet.noise.distribution == "none"


def test_recorded_requests_keep_their_lengths_and_take_the_rate_asked_for() -> None:
    recorded = {"process": "recorded", "time_s": [0.0, 1.0, 5.0], "prompts": [10, 20, 30], "generated": [1, 2, 3]}
    s = scenario(arrivals={"per_s": 0.0, **recorded})
    assert s.per_s == pytest.approx(3 / 5)
    drawn = draw(s, 300, 1.0, 1)
    assert sorted(np.unique(drawn.prompt)) == [10, 20, 30]
    assert (drawn.output * 10 == drawn.prompt).all()
    faster = draw(scenario(arrivals={**recorded, "per_s": 6.0}), 300, 1.0, 1)
    assert faster.came_ns[-1] == pytest.approx(drawn.came_ns[-1] / 10)


def test_prompts_are_bound_by_products_and_decoding_by_memory() -> None:
    p = pace(chat())
    weights = 2 * 8e9 / (3000.0 * 0.75)
    assert weights < p.iteration_ns(1) < 1.4 * weights
    assert p.iteration_ns(32) < 1.2 * p.iteration_ns(1), "a batch reads the weights once"
    flops = 2 * 7e9 * 8192
    assert flops / 1e6 < p.iteration_ns(8192) < 2.2 * flops / 1e6


def test_tensor_parallel_replicas_are_quicker_but_meet() -> None:
    one, eight = chat(), chat(serving={"tp": 8})
    ratio = pace(one).iteration_ns(1) / pace(eight).iteration_ns(1)
    assert 2 < ratio < 8


def test_chunks_take_the_stalls_out_of_decoding() -> None:
    s = chat(arrivals={"per_s": 40.0, "prompt_tokens": 3000})
    stalls, chunks = (simulate(WORKLOAD.policies["chunked-prefill"].apply(s, 256) if chunk else s, 6000, 1) for chunk in (0, 1))
    worst = [np.quantile(((p.took_ns - p.first_ns) / np.maximum(p.output - 1, 1)), 0.99) for p in (stalls, chunks)]
    assert worst[1] < 0.8 * worst[0]


def test_split_replicas_decode_without_stalls_and_pay_the_fabric() -> None:
    s = chat(arrivals={"per_s": 40.0, "prompt_tokens": 3000})
    both, split = simulate(s, 6000, 1), simulate(WORKLOAD.policies["disaggregate"].apply(s, 0.5), 6000, 1)
    each = [np.nanquantile(((p.took_ns - p.first_ns) / np.maximum(p.output - 1, 1)), 0.5) for p in (both, split)]
    assert each[1] < each[0]
    assert np.nanmean(split.spent_ns["transfer of keys and values"]) > 0


def test_terms_sum_to_the_latency_and_promises_are_counted() -> None:
    f = WORKLOAD.forecast(chat(), Sampling())
    entry = f.entry()
    assert sum(entry["terms"].values()) == pytest.approx(1)
    assert decode(encode(entry), type=Forecast) == entry
    assert entry["goodput_per_s"] == pytest.approx(entry["requests_per_s"] * entry["sla_attainment"])
    assert entry["step_ns"]["p10"] < entry["step_ns"]["p50"] < entry["step_ns"]["p90"]
    assert set(f.indices()) == set(INDICES)


def test_more_requests_than_servers_can_answer_are_not_called_delivered() -> None:
    s = chat(arrivals={"per_s": 2000.0}, promise={})
    entry = WORKLOAD.forecast(s, Sampling()).entry()
    assert entry["saturated"]
    assert entry["goodput_per_s"] < 1000
    assert entry["effective_throughput_ratio"] > 0.8, "nothing was promised, and without jitter it does no more"


def test_scales_share_or_multiply_the_load() -> None:
    s = chat()
    assert WORKLOAD.at(s, 16).per_s == 2 * s.per_s
    fixed = replace(s, serving=replace(s.serving, load="fixed"))
    assert WORKLOAD.at(fixed, 16).per_s == s.per_s
    assert rate(WORKLOAD.at(s, 1024)) == pytest.approx(128 * rate(s), rel=0.05), "simulated servers stand for all"
    with pytest.raises(UsageError):
        WORKLOAD.at(chat(serving={"tp": 4}), 6)


def test_jitter_costs_promises() -> None:
    s = chat(arrivals={"per_s": 60.0}, promise={"ttft_ms": 100.0})
    assert rate(WORKLOAD.scale_jitter(s, 0.0)) > rate(WORKLOAD.scale_jitter(s, 3.0))


@pytest.mark.parametrize("name", sorted(WORKLOAD.policies))
def test_every_policy_changes_the_scenario_and_can_be_simulated(name: str) -> None:
    s = chat(
        leaves={"count": 10}, serving={"timeout_ms": 3000.0, "retries": 2, "cancels": False, "routing": "random"},
        arrivals={"per_s": 60.0},
    )  # fmt: skip
    changed = WORKLOAD.policies[name].apply(s, None)
    assert changed != s
    assert 0 <= rate(changed) <= changed.per_s


def test_a_policy_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="hedge=2"):
        WORKLOAD.policies["hedge"].apply(chat(), 2.0)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"serving": {"replica": 3}}, "no such key: serving.replica"),
        ({"serving": {"retries": 2}}, "nothing makes an attempt fail"),
        ({"serving": {"tp": 3}}, "does not divide"),
        ({"model": {**SMALL, "heads": 2048}}, "2048 heads do not divide hidden 1024"),
        ({"serving": {"fan_out": 9}}, "9 parts"),
        ({"arrivals": {"per_s": 0.0}}, "no requests"),
        ({"arrivals": {"process": "recorded"}}, "need a file"),
        ({"noise": {"distribution": "measured", "run": "x"}}, "no noise from runs"),
        ({"model": {**LARGE, "layers": 400}}, "room for 0 tokens"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], where: str) -> None:
    with pytest.raises(InputRefused, match=where):
        scenario(**change)


def test_the_same_seed_gives_the_same_forecast_through_the_front_door() -> None:
    given = table(serving={"replicas": 2}, noise=EXPONENTIAL)
    once, again = (project_table(given, "test", asked=Asked(ranks=[2, 4])) for _ in range(2))
    assert once == again
    assert [entry["ranks"] for entry in once["forecasts"]] == [2, 4]


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {
            "replicas": st.integers(2, 12),
            "max_batch": st.sampled_from([1, 2, 16]),
            "prefill_tokens": st.sampled_from([64, 4096]),
            "fan_out": st.integers(1, 2),
            "routing": st.sampled_from(["random", "round-robin", "shortest", "session"]),
            "timeout_ms": st.sampled_from([0.0, 2.0, 50.0]),
            "backoff_ms": st.sampled_from([0.0, 1.0]),
            "retry_budget": st.sampled_from([None, 0.1]),
            "cancels": st.booleans(),
            "hedge_quantile": st.sampled_from([None, 0.0, 0.5, 0.99]),
            "queue_limit": st.sampled_from([1, 50]),
            "retries": st.integers(0, 7),
            "drop_late": st.booleans(),
        }
    ),
    st.sampled_from([{}, {"chunk_tokens": 8}, {"chunk_tokens": 600}, {"prefill_share": 0.4}]),
    st.floats(1, 10_000),
    st.integers(0, 1000),
)
def test_whatever_is_asked_requests_are_accounted_for(
    serving: dict[str, Any], reading: dict[str, Any], per_s: float, seed: int
) -> None:
    lengths = {"prompt_tokens": 300, "prompt_spread": 1.0, "generated_tokens": 8, "generated_spread": 1.0}
    s = scenario(
        serving={**serving, **reading}, arrivals={"per_s": per_s, **lengths}, promise={"ttft_ms": 5.0}, noise={"spread": 0.3}
    )
    hedge_ns = -1.0 if serving["hedge_quantile"] is None else 1e6 * serving["hedge_quantile"]
    p = simulate(s, 300, seed, hedge_ns)
    there = np.isfinite(p.took_ns)
    assert (p.first_ns[there] <= p.took_ns[there]).all()
    assert (p.took_ns[there] > 0).all()
    assert p.copies_per_request <= 2 * 8
    assert 0 <= p.discarded <= 1
    assert 0 <= p.busy <= 1
    f = forecast_of(s, p, p, hedge_ns)
    assert decode(encode(f.entry()), type=Forecast) == f.entry()
    if there.any():
        assert sum(f.terms.values()) == pytest.approx(p.took_ns[there].mean())
    if not serving["timeout_ms"] and p.counts["turned_away"] == 0 and not serving["drop_late"]:
        assert there.mean() == 1 or p.saturated


def test_a_share_of_what_was_recorded_keeps_its_rate_however_small() -> None:
    recorded = {"process": "recorded", "time_s": [0.0, 1.0, 5.0], "prompts": [10, 20, 30], "generated": [1, 2, 3], "per_s": 5e6}
    drawn = draw(scenario(arrivals=recorded), 20_000, 1e-8, 1)
    assert drawn.came_ns[-1] == pytest.approx(20_000 / 0.05 * 1e9, rel=0.05)
    assert np.bincount(drawn.output)[1:] == pytest.approx([6667] * 3, rel=0.1)
    steps = np.diff(drawn.came_ns) * 1e-9
    assert (np.abs(steps - np.round(steps * 2) / 2) < 1e-3).all(), "the clock runs as it did: whole and half seconds"
