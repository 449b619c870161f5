"""What planners read: days and money for so many tokens, interruptions, power, and what each policy gives alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taut.cli import main
from taut.core.errors import UsageError
from taut.project.projection import Asked, project_table
from taut.project.workload import Sampling
from taut.read.scenario_file import load
from taut.render.forecast_screen import render_forecasts
from taut.render.terminal import Screen
from taut.result.types import Forecast, ProjectResult, TokenBudget

QUICK = Sampling(count=8)


def small(**tables: dict[str, Any]) -> dict[str, Any]:
    """A job of 32 ranks on four nodes, priced, with nodes that fail."""
    table, _ = load("gpt-175b")
    return {
        **table,
        "about": {},
        "model": {**table["model"], "layers": 8, "hidden": 2048, "heads": 16},
        "job": {"global_batch": 512, "dp": 8, "tp": 2, "pp": 2},
        "failure": {"node_per_1000_node_days": 20.0, "checkpoint_s": 60, "spares": 2, "repair_hours": 48},
        "device": {**table["device"], "price_per_hour": 2.0},
        "price": {"currency": "USD", "kwh": 0.1, "kg_co2e_per_kwh": 0.4, "pue": 1.5, "host_w": 300.0},
        **tables,
    }


def asked(table: dict[str, Any], *ranks: int, **more: Any) -> ProjectResult:
    return project_table(table, "small", asked=Asked(ranks=ranks, **more), how=QUICK)


def budget(found: Forecast) -> TokenBudget:
    assert isinstance(found.budget, TokenBudget)
    return found.budget


def test_days_and_money_for_tokens_follow_from_the_rate_and_the_price() -> None:
    (found,) = asked(small(), tokens=1e12).forecasts
    whole = budget(found)
    assert found.tokens_per_s
    assert found.cost_per_unit
    assert found.energy_per_unit_j
    assert whole.days.value == pytest.approx(1e12 / found.tokens_per_s / 86400)
    assert whole.accelerator_hours.value == pytest.approx(whole.days.value * 24 * (32 + 2 * 8), rel=1e-6)
    assert whole.cost is not None
    assert whole.cost.value == pytest.approx(whole.accelerator_hours.value * 2.0)
    assert whole.cost.value == pytest.approx(found.cost_per_unit * 1e6)
    assert whole.energy_mwh is not None
    assert whole.energy_mwh.value == pytest.approx(found.energy_per_unit_j * 1e6 / 3.6e9)
    assert whole.energy_cost is not None
    assert whole.energy_cost.value == pytest.approx(whole.energy_mwh.value * 1000 * 0.1)
    assert whole.t_co2e is not None
    assert whole.t_co2e.value == pytest.approx(whole.energy_mwh.value * 0.4)
    assert whole.interruptions == pytest.approx(whole.days.value * 4 * 20 / 1000)


def test_the_interval_of_days_is_that_of_the_rate() -> None:
    (found,) = asked(small(), tokens=1e12).forecasts
    days, rate = budget(found).days, found.tokens_per_s_interval
    assert not isinstance(rate, float)
    assert days.lo is not None
    assert days.hi is not None
    assert rate
    assert rate.lo
    assert rate.hi
    assert days.lo < days.value < days.hi
    assert days.lo == pytest.approx(days.value * rate.value / rate.hi)
    assert days.hi == pytest.approx(days.value * rate.value / rate.lo)


def test_what_has_no_price_is_null_and_named_never_zero() -> None:
    bare = small(price={}, failure={}, device={**small()["device"]})
    del bare["device"]["price_per_hour"]
    result = asked(bare, tokens=1e12)
    (found,) = result.forecasts
    whole = budget(found)
    assert (whole.cost, whole.energy_cost, whole.t_co2e, whole.interruptions) == (None, None, None, None)
    assert (found.interruptions_per_day, found.mtbf_h) == (None, None)
    assert isinstance(found.groups, dict)
    assert found.groups["recovery"] is None
    said = " ".join(render_forecasts(result, Screen(width=80)).split())
    assert "not known: cost (no price of an accelerator hour: --gpu-hour 2.50USD), interruptions" in said


def test_interruptions_are_those_of_llama_3() -> None:
    """419 in 54 days on 16,384 devices of 2,048 nodes: 7.76 a day, one in three hours."""
    table, text = load("large-training")
    table["about"] = {}
    (found,) = project_table(table, "large-training", text, Asked(ranks=[16384]), QUICK).forecasts
    assert found.interruptions_per_day == pytest.approx(7.76, abs=0.01)
    assert found.mtbf_h == pytest.approx(24 / 7.76, rel=1e-2)


def test_power_is_that_of_devices_hosts_network_and_cooling() -> None:
    (found,) = asked(small()).forecasts
    power = found.power_at_load
    assert power
    load_w = small()["device"].get("load_w", 400.0)
    assert power.devices_w == 32 * load_w
    assert power.hosts_w == 32 * 300
    assert power.network_w == pytest.approx(32 * 2 * small()["fabric"]["tiers"][1]["port_w"]), "both ends of a cable each"
    assert power.total_w == pytest.approx((power.devices_w + power.hosts_w + power.network_w) * 1.5)
    hosts = asked(small(price={**small()["price"], "host_w": 0.0})).forecasts[0]
    assert hosts.energy_per_unit_j is not None
    assert found.energy_per_unit_j is not None
    assert hosts.energy_per_unit_j < found.energy_per_unit_j


def test_the_share_of_a_host_is_named_as_a_default() -> None:
    default = small(price={"currency": "USD"})
    assert "price.host_w" in asked(default).defaults
    assert "350 W of host for each by default" in " ".join(render_forecasts(asked(default), Screen(width=80)).split())


def test_each_policy_is_shown_alone_and_all_together() -> None:
    result = asked(small(), 32, 64, policies=["overlap=0.9,local-steps=4"])
    assert isinstance(result.gains, list)
    assert [(one.name, one.together, one.ranks) for one in result.gains] == [
        ("overlap=0.9", False, 64),
        ("local-steps=4", False, 64),
        ("overlap=0.9,local-steps=4", True, 64),
    ]
    alone = asked(small(), 64, policies=["local-steps=4"]).policies[0]
    gain = result.gains[1]
    before, after = alone.forecast.without, alone.forecast.with_
    assert before.tokens_per_s
    assert after.tokens_per_s
    assert before.cost_per_unit
    assert after.cost_per_unit
    # Sketched on both sides, where the comparison draws eight steps.
    assert gain.rate_change == pytest.approx(after.tokens_per_s / before.tokens_per_s - 1, abs=0.01)
    assert gain.cost_per_unit_change == pytest.approx(after.cost_per_unit / before.cost_per_unit - 1, abs=0.01)
    assert gain.regime == alone.regime.with_
    assert gain.threshold == (alone.threshold.with_.ranks if alone.threshold.with_ else None)
    said = render_forecasts(result, Screen(width=80))
    assert any(line.startswith("all together") for line in said.splitlines())


def test_what_copies_of_late_work_take_is_in_their_cost() -> None:
    """Only drawn steps count copies: such a policy is drawn, not sketched."""
    result = asked(small(noise={"step_spread": 0.3}), policies=["speculative,local-steps=2"])
    assert isinstance(result.gains, list)
    copies = result.gains[0]
    alone = asked(small(noise={"step_spread": 0.3}), policies=["speculative"]).policies[0]
    before, after = alone.forecast.without, alone.forecast.with_
    assert after.extra_work_share
    assert before.cost_per_unit
    assert after.cost_per_unit
    assert copies.cost_per_unit_change == pytest.approx(after.cost_per_unit / before.cost_per_unit - 1)


def test_loops_are_tried_one_by_one_with_advice_only() -> None:
    table, text = load("retry-heavy")
    both = "retry-budget=0.2,deadline-propagation"
    plain = project_table(table, "x", text, Asked(policies=[both]), QUICK)
    assert isinstance(plain.gains, list)
    assert [one.name for one in plain.gains] == [both]


def test_without_policies_there_are_no_gains() -> None:
    assert "gains" not in asked(small())


def test_what_dominates_turns_with_the_scale_in_one_table_and_in_a_sentence() -> None:
    """Gathers of all parameters over a slow network: as replicas grow in number, they take more than computing does."""
    slow = {
        "name": "slow",
        "tiers": [
            {"name": "node", "devices": 8, "gb_per_s": 200.0},
            {"name": "network", "devices": 1 << 20, "gb_per_s": 0.5},
        ],
    }
    table = small(fabric=slow, failure={}, job={"global_batch": 32, "dp": 8, "sharding": "zero3"})
    result = asked(table, 8, 64, 512)
    bounds = {one.ranks: one.bound for one in result.forecasts}
    assert bounds[8] == "compute"
    assert bounds[512] == "interconnect"
    assert isinstance(result.turns, list)
    (turn,) = result.turns
    said = " ".join(render_forecasts(result, Screen(width=80)).split())
    assert f"Compute-bound up to {turn.last_ranks} ranks, interconnect-bound from {turn.ranks} ranks on." in said
    table_lines = [line for line in render_forecasts(result, Screen(width=80)).splitlines() if "interconnect" in line]
    assert any(line.startswith("512") for line in table_lines)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["project", *arguments])


@pytest.mark.parametrize(
    ("given", "tokens"), [("15T", 15e12), ("300B", 300e9), ("1.5e12", 1.5e12), ("2.5m", 2.5e6), ("1000", 1e3), ("7 B", 7e9)]
)
def test_tokens_are_given_as_people_say_them(given: str, tokens: float) -> None:
    done = run("gpt-175b", "--steps", "2", "--tokens", given, "--policy", "overlap", "--json", "-q")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["forecasts"][0]["budget"]["tokens"] == tokens


@pytest.mark.parametrize("given", ["15Q", "-3T", "nan", "0", "1e99", ""])
def test_what_is_no_number_of_tokens_is_refused_in_a_line(given: str) -> None:
    done = run("gpt-175b", "--tokens", given)
    assert done.exit_code == 2
    assert "give 15T, 300B or 1.5e12" in done.stderr


def test_only_training_has_tokens_to_train_on() -> None:
    table, text = load("latency-inference")
    with pytest.raises(UsageError, match="--tokens is the length of a training run; x is a scenario of serving"):
        project_table(table, "x", text, Asked(tokens=1e12), QUICK)


def test_prices_of_a_file_count_for_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('currency = "CHF"\ngpu_hour = "2.50"\n[electricity]\nper_kwh = "0.20"\n')
    done = run("gpt-175b", "--json", "-q", "--steps", "8", "--prices", str(tmp_path / "prices.toml"))
    assert done.exit_code == 0, done.output
    own = json.loads(done.stdout)["forecasts"][0]
    assert (own["currency"], own["cost_per_unit"] > 0, own["energy_cost_per_unit"] > 0) == ("CHF", True, True)
    (tmp_path / "prices.toml").write_text("gpu_hours = 3\n")
    refused = run("gpt-175b", "--prices", str(tmp_path / "prices.toml"))
    assert refused.exit_code == 4
    assert "did you mean gpu_hour?" in refused.stderr


def test_a_run_has_no_tokens_to_train_on() -> None:
    done = run("--from", "run", "--tokens", "15T")
    assert done.exit_code == 2
    assert "--gpu-hour, --prices and --tokens need a SCENARIO" in " ".join(done.stderr.split())
