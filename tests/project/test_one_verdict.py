"""One scale, one verdict: what is said of a scale does not depend on what else was asked, and no table contradicts another."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from taut.cli import main
from taut.core.errors import UsageError
from taut.core.prices import Prices
from taut.project.gpu_hour import with_gpu_hour, with_prices
from taut.project.projection import Asked, project_table
from taut.project.workload import Sampling
from taut.read.scenario_file import load
from taut.render.forecast_screen import _rows, render_forecasts
from taut.render.terminal import Screen
from taut.result.types import FabricCost, ProjectResult

QUICK = Sampling(count=8)
RANKS = [32, 64, 128, 256, 512, 1024, 2048, 4096]


def small(**tables: dict[str, Any]) -> dict[str, Any]:
    """Replicas of two stages of two ranks that stray, and nodes that fail."""
    table, _ = load("gpt-175b")
    return {
        **table,
        "about": {},
        "model": {**table["model"], "layers": 8, "hidden": 2048, "heads": 16},
        "job": {"global_batch": 512, "dp": 8, "tp": 2, "pp": 2},
        "noise": {"step_spread": 0.1, "ranks_spread": 0.05},
        "failure": {"node_per_1000_node_days": 20.0, "checkpoint_s": 60, "spares": 8, "repair_hours": 48},
        "device": {**table["device"], "price_per_hour": 2.0},
        "price": {"currency": "USD"},
        **tables,
    }


def asked(table: dict[str, Any], *ranks: int, **more: Any) -> ProjectResult:
    return project_table(table, "small", asked=Asked(ranks=ranks, **more), how=QUICK)


def screen(result: ProjectResult) -> str:
    return render_forecasts(result, Screen(width=80))


@pytest.fixture(scope="module")
def eight() -> ProjectResult:
    return asked(small(), *RANKS, policies=["overlap=0.9,local-steps=4"])


def test_the_order_of_scales_changes_nothing_that_is_said() -> None:
    up, down = asked(small(), 32, 4096), asked(small(), 4096, 32)
    assert screen(up) == screen(down)
    assert up.regime == down.regime
    assert up.ranks == down.ranks == 4096
    assert "on 4,096 ranks" in screen(up).splitlines()[0]
    assert [one.ranks for one in down.forecasts] == [4096, 32]


def test_each_scale_has_the_verdict_it_has_alone(eight: ProjectResult) -> None:
    alone = asked(small(), 128).forecasts[0]
    among = next(one for one in eight.forecasts if one.ranks == 128)
    assert among == alone
    assert len({one.regime.kind for one in eight.forecasts if one.regime}) > 1
    assert eight.regime == eight.forecasts[-1].regime
    assert eight.indices == eight.forecasts[-1].indices


def test_a_scale_beyond_the_threshold_is_unstable_and_one_well_below_is_not(eight: ProjectResult) -> None:
    far = eight.threshold
    assert far is not None
    assert far.lo is not None
    assert far.hi is not None
    for one in eight.forecasts:
        assert one.regime is not None
        if one.ranks > far.hi:
            assert one.regime.kind == "unstable"
        if one.ranks < far.lo:
            assert one.regime.kind != "unstable"


@pytest.mark.parametrize("name", ["latency-inference", "agent-chain", "retry-heavy"])
def test_every_forecast_carries_regime_indices_and_tokens(name: str) -> None:
    table, text = load(name)
    table["about"] = {}
    result = project_table(table, name, text, how=Sampling(count=200))
    for entry in msgspec.json.decode(msgspec.json.encode(result))["forecasts"]:
        assert entry["regime"]["class"]
        assert "effective_throughput_ratio" in entry["indices"]
        assert "tokens_per_s" in entry
    said = screen(result)
    assert "a step" not in said
    assert "ranks take" not in said
    assert ("a task" if name == "agent-chain" else "a request") in said.splitlines()[0]
    assert max(map(len, said.splitlines())) <= 80
    if name != "retry-heavy":  # of given demand: one more may not pay though those there are do
        assert "on average" in " ".join(said.split()[:60])


def test_the_search_goes_to_twice_the_largest_scale_and_says_where_it_ended() -> None:
    flat = {"name": "flat", "tiers": [{"name": "flat", "devices": 1 << 20, "gb_per_s": 1e6}]}
    calm = small(
        noise={"distribution": "none", "step_spread": 0.0, "ranks_spread": 0.0},
        failure={},
        fabric=flat,
        job={"global_batch": 16, "dp": 16},
    )
    result = asked(calm, 32, 65536)
    assert result.threshold is not None
    assert result.threshold.ranks is None
    assert result.threshold.tried >= 2 * 65536
    assert f"No limit found up to {result.threshold.tried:,} ranks" in screen(result)


@pytest.mark.parametrize("policy", ["asynchronous", "local-steps=64", "backup-workers", "deal-by-speed", "ring", "overlap=1"])
def test_no_share_is_more_than_all_and_what_saves_money_lowers_no_ratio(policy: str) -> None:
    unequal = small(noise={"step_spread": 0.3, "ranks_spread": 0.2, "slow_share": 0.1, "slow_factor": 1.5})
    (one,) = asked(unequal, policies=[policy]).policies
    before, after = one.forecast.without, one.forecast.with_
    for side in (before, after):
        found = side.indices["effective_throughput_ratio"]
        assert found is not None
        assert found.value == pytest.approx(side.effective_throughput_ratio)
        assert 0 < found.value <= 1
        assert found.hi is None or found.hi <= 1
    assert before.cost_per_unit is not None
    assert after.cost_per_unit is not None
    assert before.effective_throughput_ratio is not None
    assert after.effective_throughput_ratio is not None
    if after.cost_per_unit < before.cost_per_unit:
        assert after.effective_throughput_ratio >= before.effective_throughput_ratio


def test_the_point_of_the_map_is_what_the_header_says() -> None:
    result = asked(small(), 32, 128, envelope=True)
    assert result.envelope
    for one in result.forecasts:
        for cell in result.envelope.regimes:
            if (cell.ranks, cell.heterogeneity, cell.intensity) == (one.ranks, 1.0, 1.0):
                assert one.regime is not None
                assert cell.kind == one.regime.kind
    assert [row.ranks for row in result.envelope.growth] == [32, 128]
    assert max(map(len, screen(result).splitlines())) <= 80


def test_of_eight_scales_none_is_dropped_and_every_line_fits(eight: ProjectResult) -> None:
    said = screen(eight)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    for ranks in RANKS:
        # Times, deliveries, where a step goes, and the policies.
        assert sum(f"{ranks:,}" in line.split() for line in said.splitlines()) >= 4
    assert [one.ranks for one in eight.policies] == RANKS


def test_a_wide_table_repeats_what_tells_its_rows_apart() -> None:
    def row(topology: str, times: float) -> FabricCost:
        return FabricCost(
            topology=topology, oversubscription=times, latency_times=1.0, ranks=4096, step_ns=1.5e9, units_per_s=12.345678,
            device_cost_per_unit=3.21, network_price=123456789.0, network_w=1234567.0, network_cost_per_unit=0.123,
            cost_per_unit=3.333,
        )  # fmt: skip

    console = Console(width=60, record=True, file=StringIO())
    for part in _rows("fabrics", [row("fat-tree", 1.0), row("fat-tree", 2.0), row("rail-only", 1.0)], Screen(width=60)):
        console.print(part)
    said = console.export_text()
    titles = [line for line in said.splitlines() if "oversubscription" in line]
    assert len(titles) > 1
    assert all("topology" in line for line in titles)
    assert said.count("rail-only") == len(titles)
    assert "123,456,789" in said


def test_the_price_of_an_accelerator_hour_is_the_one_given() -> None:
    result = asked(with_gpu_hour(small(), "4.00", "USD"))
    before = asked(small())
    assert result.forecasts[0].cost_per_unit == pytest.approx(2 * (before.forecasts[0].cost_per_unit or 0))
    assert "USD for 1M tokens" in " ".join(screen(result).split())
    assert asked(with_gpu_hour(small(), "4.00", "EUR")).forecasts[0].currency == "EUR"
    with pytest.raises(UsageError, match=r"in EUR, price\.kwh of the scenario in USD"):
        with_gpu_hour(small(price={"currency": "USD", "kwh": 0.1}), "4.00", "EUR")


def test_a_file_of_prices_and_a_scenario_have_the_same_words() -> None:
    prices = Prices(Decimal("4.00"), "USD", 600.0, 200.0, kwh=Decimal("0.20"), pue=1.1, host_w=100.0, kg_co2e_per_kwh=0.3)
    table = with_prices(small(price={"currency": "EUR", "kwh": 0.1}), prices)
    assert table["price"] == {"currency": "USD", "kwh": 0.2, "pue": 1.1, "host_w": 100.0, "kg_co2e_per_kwh": 0.3}
    assert (table["device"]["price_per_hour"], table["device"]["load_w"], table["device"]["stall_w"]) == (4.0, 600.0, 200.0)
    assert asked(table).forecasts[0].currency == "USD"
    with pytest.raises(UsageError, match=r"--prices are in USD, price\.penalty of the scenario in EUR"):
        with_prices(small(price={"currency": "EUR", "penalty": 3.0}), prices)


def test_the_toml_of_a_shipped_scenario_is_shown_as_it_is() -> None:
    shown = CliRunner().invoke(main, ["project", "--show", "gpt-175b"], catch_exceptions=False)
    assert shown.stdout == load("gpt-175b")[1]
    assert CliRunner().invoke(main, ["project", "--show", "magic"]).exit_code == 4
    assert CliRunner().invoke(main, ["project", "gpt-175b", "--list"]).exit_code == 2
    assert CliRunner().invoke(main, ["scenarios"]).exit_code == 2


def test_a_scale_at_which_nothing_is_kept_does_not_refuse_the_others() -> None:
    failing = {"software_per_1000_node_days": 300.0, "checkpoint_s": 60, "checkpoint_every_s": 36000, "spares": 0}
    result = asked(small(failure=failing), 32, 32768)
    assert [one.ranks for one in result.forecasts] == [32]
    assert any(line.startswith("left out: ") and "32,768" in line for line in result.assumed or ())


def test_long_sequences_do_not_reach_more_than_the_peak() -> None:
    """Fused attention leaves out the masked half of the scores, and so does what the peak is held against."""
    model = {"layers": 8, "hidden": 2048, "heads": 16, "sequence": 1 << 17, "flash_attention": True}
    quiet = {"distribution": "none", "step_spread": 0.0, "ranks_spread": 0.0}
    result = asked(small(model=model, noise=quiet, job={"global_batch": 8, "dp": 8, "recompute": "full"}), 8)
    assert result.forecasts[0].mfu is not None
    assert result.forecasts[0].mfu < 1
