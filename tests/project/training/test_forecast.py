"""Forecasts: terms that sum to a step, scales, refusals, and published jobs that must fit their devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from taut.cli import main
from taut.core.errors import InputRefused, UsageError
from taut.project.projection import project_table
from taut.project.reserve import reserve
from taut.project.threshold import threshold
from taut.project.training.forecast import MOST_RANKS, at, forecast
from taut.project.training.model_shape import parameters
from taut.project.training.rank_memory import memory_gb
from taut.project.training.scenario import Fabric, Failure, Scenario, Tier, parse
from taut.project.training.step_time import step_ns
from taut.project.training.workload import WORKLOAD
from taut.project.workload import Sampling
from taut.read.scenario_file import load


@pytest.fixture
def gpt() -> Scenario:
    table, text = load("gpt-175b")
    return parse(table, "gpt-175b", text)[0]


def test_a_model_has_as_many_parameters_as_its_name_says(gpt: Scenario) -> None:
    assert parameters(gpt.model) == pytest.approx(174.6e9, rel=0.005)
    assert 20 < memory_gb(gpt) < 80


def test_terms_sum_to_the_mean_step_and_noise_only_adds(gpt: Scenario) -> None:
    done = forecast(gpt, count=20)
    assert sum(done.terms.values()) == pytest.approx(done.step_ns.mean())
    assert done.terms["jitter"] > 0
    assert done.noiseless_ns == pytest.approx(step_ns(gpt))
    quiet = replace(gpt, noise=replace(gpt.noise, distribution="none", step_spread=0.0, ranks_spread=0.0))
    assert forecast(quiet, count=3).step_ns.mean() == pytest.approx(done.noiseless_ns)


def test_more_jitter_and_more_ranks_keep_less_throughput(gpt: Scenario) -> None:
    def kept(spread: float, ranks: int) -> float:
        noise = replace(gpt.noise, step_spread=spread)
        return float(forecast(at(replace(gpt, noise=noise), ranks), count=20).entry()["effective_throughput_ratio"])

    assert kept(0.0, 384) > kept(0.02, 384) > kept(0.05, 384)
    assert kept(0.03, 96) > kept(0.03, 1536) > kept(0.03, 6144)


def test_a_job_of_which_no_work_is_kept_is_refused(gpt: Scenario) -> None:
    scale_failures = replace(gpt.failure, device_per_1000_node_days=1e5, detect_s=1e7)
    with pytest.raises(InputRefused, match="failures come before any work is saved"):
        forecast(replace(gpt, failure=scale_failures), count=3).entry()


def test_strong_scaling_shares_the_batch_and_weak_scaling_does_not(gpt: Scenario) -> None:
    strong = replace(gpt, job=replace(gpt.job, scaling="strong"))
    assert at(gpt, 3072).job.global_batch == 3072
    assert at(strong, 3072).job.global_batch == 1536
    assert step_ns(at(strong, 3072)) < step_ns(at(strong, 1536))
    with pytest.raises(UsageError, match="a replica takes 96"):
        at(gpt, 1000)


def test_scales_beyond_the_cap_are_refused(gpt: Scenario) -> None:
    one = replace(gpt, job=replace(gpt.job, tp=1, pp=1, dp=8, global_batch=8, micro_batch=1))
    assert at(one, MOST_RANKS).job.dp == MOST_RANKS
    with pytest.raises(UsageError, match="at most 2,097,152"):
        at(one, MOST_RANKS + 1)


def torus(gpt: Scenario, **job: int) -> Scenario:
    """A job on a torus of 16 chips."""
    model = replace(gpt.model, layers=1, hidden=1024, heads=16, kv_heads=0, head_width=0, ffn=0)
    cut = replace(gpt.job, **{"tp": 1, "pp": 1, "dp": 16, "global_batch": 16, "micro_batch": 1, **job})
    tiers = Tier("chip", 1, 25.0), Tier("links", 16, 25.0)
    return replace(gpt, model=model, job=cut, fabric=Fabric("t", tiers, "torus", torus=(4, 4)), failure=Failure())


def test_a_torus_does_not_grow_with_the_job(gpt: Scenario) -> None:
    with pytest.raises(UsageError, match=r"32 ranks: fabric\.torus: a torus of 16 nodes for 32"):
        at(torus(gpt), 32)
    found = threshold(WORKLOAD, torus(gpt))
    assert found.tried == 16, "larger scales are left out of the search"
    assert reserve(WORKLOAD, torus(gpt)).kind is not None
    filled = reserve(WORKLOAD, torus(gpt, tp=16, dp=1))
    assert (filled.kind, filled.reserve) == (None, None), "one replica fills it: nothing is known of one more"


def test_the_collapse_of_sharded_state_is_a_regime_of_its_own(gpt: Scenario) -> None:
    """Gathers take as long on any number of devices: their throughput per device halves where a cut job's stays."""

    def share(ranks: int, **job: Any) -> float:
        s = replace(gpt, job=replace(gpt.job, dp=ranks // (job.get("tp", 1) * job.get("pp", 1)), **job))
        return 1 / (step_ns(s) * ranks)

    cut = {"tp": 8, "pp": 12, "micro_batch": 1}
    sharded = {"tp": 1, "pp": 1, "sharding": "zero3", "gather_striped": False, "overlap_share": 0.84}
    assert share(1536, **cut) > 0.9 * share(384, **cut)
    assert share(1536, micro_batch=1, **sharded) < 0.4 * share(384, micro_batch=4, **sharded)


def test_local_steps_pay_for_a_synchronisation_once(gpt: Scenario) -> None:
    quiet = replace(gpt, noise=replace(gpt.noise, distribution="none", step_spread=0.0, ranks_spread=0.0))
    local = replace(quiet, job=replace(quiet.job, steps_between_syncs=4))
    assert forecast(local, count=8).step_ns.mean() == pytest.approx(step_ns(local))


def test_rates_are_priced_and_what_has_none_is_null(gpt: Scenario) -> None:
    plain = forecast(gpt, count=5).entry()
    assert (
        plain["energy_cost_per_unit"] is plain["kg_co2e_per_unit"] is plain["late_share"] is plain["penalty_per_unit"] is None
    )
    price = replace(gpt.price, kwh=0.1, kg_co2e_per_kwh=0.4, step_deadline_ms=1.0, penalty=2.0)
    priced = forecast(replace(gpt, price=price), count=5).entry()
    assert priced["kg_co2e_per_unit"] == pytest.approx(4 * priced["energy_cost_per_unit"])
    assert priced["late_share"] == 1.0
    assert priced["penalty_per_unit"] == pytest.approx(2.0 / (1536 * 2048 / 1e6))


def test_noise_is_drawn_from_a_finished_run(demo_run: Path, tmp_path: Path) -> None:
    table, text = load("gpt-175b")
    path = tmp_path / "measured.toml"
    path.write_text(f'{text}\n[noise]\ndistribution = "measured"\nrun = "{demo_run}"\n')
    run = CliRunner().invoke(main, ["project", str(path), "--steps", "5", "--json"])
    assert run.exit_code == 0, run.stderr
    assert json.loads(run.stdout)["forecasts"][0]["terms"]["jitter"] > 0
    table["noise"] = {"distribution": "measured", "run": "elsewhere"}
    with pytest.raises(InputRefused, match=r"noise\.run: 0 ops with a reference"):
        project_table(table, "gpt-175b", text, how=Sampling(count=5))


def test_a_job_that_does_not_fit_its_devices_is_refused() -> None:
    table, text = load("gpt-175b")
    table["job"] = {**table["job"], "tp": 1, "pp": 1, "dp": 1536}
    with pytest.raises(InputRefused, match=r"a rank of 1,536 needs .* GB, A100 .* has 80 \(weights 350.4, .*\); raise job.tp"):
        project_table(table, "gpt-175b", text)


def test_the_command_prints_one_object_and_a_screen(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["project", "gpt-175b", "--ranks", "192,384", "--steps", "5", "--json"])
    assert run.exit_code == 0, run.stderr
    result = json.loads(run.stdout)
    assert [row["ranks"] for row in result["forecasts"]] == [192, 384]
    assert {"step_ns", "tflops_per_device", "mfu", "cost_per_unit", "energy_per_unit_j", "dominant", "in_range"} <= set(
        result["forecasts"][0]
    )
    assert "noise.spread" in result["defaults"]
    again = CliRunner().invoke(main, ["project", "gpt-175b", "--ranks", "192,384", "--steps", "5", "--json"])
    assert again.stdout == run.stdout
    screen = CliRunner().invoke(main, ["project", "gpt-175b", "--ranks", "384", "--steps", "5"])
    assert "384" in screen.stdout
    assert "data-parallel synchronisation" in screen.stdout


def test_a_finished_run_says_what_it_would_do_on_more_ranks(demo_run: Path) -> None:
    asked = ["project", "--from", str(demo_run), "--ranks", "8,64"]
    result = json.loads(CliRunner().invoke(main, [*asked, "--json"]).stdout)
    near, far = result["forecasts"]
    assert near["in_range"]
    assert not far["in_range"]
    assert far["mean_step_ns"]["hi"] - far["mean_step_ns"]["lo"] > near["mean_step_ns"]["hi"] - near["mean_step_ns"]["lo"]
    screen = CliRunner().invoke(main, asked)
    assert "a guess" in screen.stdout
    assert CliRunner().invoke(main, ["project"]).exit_code == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nothing-such", None, "no such scenario; give a TOML file, or one of: "),
        ("bad.toml", "name = ", "not TOML"),
        ("dev.toml", 'device = "h900"\n', "device: no 'h900' ships with taut"),
    ],
)
def test_scenarios_that_cannot_be_read_are_refused_in_one_line(
    tmp_path: Path, name: str, text: str | None, message: str
) -> None:
    path = name if text is None else str(tmp_path / name)
    if text is not None:
        Path(path).write_text(text)
    run = CliRunner().invoke(main, ["project", path])
    assert run.exit_code == 4
    assert message in run.stderr
    assert run.stderr.strip().count("\n") == 0
