"""Scenarios of control loops as projections: parsed strictly, scaled, forecast with intervals, changed by policies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from taut.cli import main
from taut.control.control_indices import NAMES
from taut.core.errors import InputRefused, UsageError
from taut.project.loops.scenario import (
    Autoscaler,
    Client,
    Demand,
    Gate,
    Loops,
    Machines,
    Plan,
    Pool,
    Scenario,
    Scheduler,
    Trainer,
)
from taut.project.loops.workload import TRUE, WORKLOAD, forecast, spread
from taut.project.workload import workload_of
from taut.read.scenario_file import load

SHIPPED = ("control-stack", "retry-heavy", "sla-adjacent")
TABLE = {"name": "small", "loops": {"horizon_s": 120}, "demand": {"per_s": 2}, "pool": {"service_s": 1, "replicas": 4}}


def small(**changed: Any) -> Scenario:
    parts: dict[str, Any] = {
        "loops": Loops(horizon_s=240, accelerators=16), "demand": Demand(per_s=2, deadline_s=10),
        "pool": Pool(service_s=1, replicas=4, least=2, most=8, start_s=10), "client": (Client("sdk", 5, 2),), **changed,
    }  # fmt: skip
    return Scenario("small", **parts)


def test_a_file_with_loops_is_a_workload_of_its_own() -> None:
    assert workload_of(TABLE, "file") is WORKLOAD
    scenario, defaults = WORKLOAD.parse(TABLE, "file", "")
    assert scenario.pool.replicas == 4
    assert "pool.start_s" in defaults


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pool": {"service_s": 1, "replica": 4}}, "no such key: pool.replica"),
        ({"pool": {"service_s": 0}}, "pool.service_s"),
        ({"pool": {"service_s": 1, "replicas": 4, "most": 2}}, "pool.replicas: not between least and most"),
        ({"demand": {"per_s": 1, "shape": "square"}}, "demand.peak_per_s: a square wave needs its peak"),
        ({"demand": {"per_s": 1, "shape": "steps"}}, "demand.steps_per_s: there are none"),
        ({"gate": {}}, "demand.deadline_s: admission looks at it"),
        ({"loops": {"horizon_s": 120, "accelerators": 3}}, "loops.accelerators: the scenario begins with 4"),
        ({"autoscaler": [{"name": "a", "period_s": 1e-9}]}, "autoscaler.period_s: too often to simulate"),
        ({"demand": {"per_s": 1, "spread": 11}}, "demand.spread"),
        ({"machines": {"count": 10**9}}, "machines.count"),
        ({"demand": {"per_s": 1e6}}, "loops.horizon_s: too many attempts to simulate"),
        ({"client": [{"name": "a", "timeout_s": 1}] * 2}, "name: two controllers have the same"),
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputRefused) as refused:
        WORKLOAD.parse({**TABLE, **changed}, "file", "")
    assert message in str(refused.value)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_are_forecast_with_and_without_their_policies(name: str) -> None:
    table, text = load(name)
    scenario, _ = WORKLOAD.parse(table, name, text)
    short = replace(scenario, loops=replace(scenario.loops, horizon_s=300))
    for policy in short.about.policies:
        word, _, value = policy.partition("=")
        short = WORKLOAD.policies[word].apply(short, float(value) if value else None)
    assert set(scenario.about.declared) <= {*TRUE, *NAMES}
    answer = forecast(short, count=100)
    msgspec.json.encode(answer.entry())
    found = answer.indices()
    assert list(found) == [*TRUE, *NAMES]
    for one in found.values():
        assert one is None or (one.lo or 0) <= one.value <= (one.hi or 1e18)
    entry = answer.entry()
    assert entry["ranks"] == WORKLOAD.ranks(scenario) == 32
    assert sum(entry["terms"].values()) == pytest.approx(1)


def test_a_forecast_is_decided_by_its_seed() -> None:
    first, again, other = (forecast(small(), seed=seed).entry() for seed in (1, 1, 9))
    assert first == again
    assert first != other


def test_more_accelerators_are_more_replicas_for_the_same_demand() -> None:
    steered = small(autoscaler=(Autoscaler("scaler"),))
    assert WORKLOAD.at(steered, 16) == steered
    assert (WORKLOAD.at(steered, 32).pool.replicas, WORKLOAD.at(steered, 32).pool.most) == (4, 16)
    assert WORKLOAD.at(small(), 32).pool.replicas == 16
    with pytest.raises(UsageError, match="needs at least 2"):
        WORKLOAD.at(small(), 1)


@pytest.mark.parametrize("name", WORKLOAD.policies)
def test_a_policy_changes_what_it_is_for_and_is_the_same_twice(name: str) -> None:
    s = small(
        loops=Loops(accelerators=10), client=(Client("gateway", 4, 1, tags=False), Client("sdk", 5, 2)), gate=Gate(),
        trainer=Trainer(4, restore_s=60),
        autoscaler=(Autoscaler("scaler", "latency"), Autoscaler("saver", "utilisation")), machines=Machines(),
        scheduler=(Scheduler("a", 1, 1),), plan=Plan(),
    )  # fmt: skip
    policy = WORKLOAD.policies[name]
    once = policy.apply(s, None)
    assert once != s
    assert policy.apply(once, None) == once
    assert policy.says


def test_intervals_hold_further_runs() -> None:
    assert spread([None, None]) is None
    assert spread([0.5]) == (0.5, None, None)
    value, low, high = spread([0.2, 0.4, 0.3, 0.3]) or (0, 0, 0)
    assert value == pytest.approx(0.3)
    assert 0 < (low or 0) < 0.1
    assert 0.5 < (high or 0) < 0.62


def test_a_system_that_answers_nothing_says_so() -> None:
    with pytest.raises(UsageError, match="no request was answered"):
        forecast(small(pool=Pool(service_s=1e6))).entry()


def test_advice_and_a_sweep_on_the_screen_and_in_the_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own file: two layers that retry each other's retries."""
    advise, advice = WORKLOAD.advice, list[Any]()

    def once(_: object, *args: Any) -> Any:
        """The same advice is shown in two places, and tried in the simulator once."""
        advice[:] = advice or [advise(*args)]
        return advice[0]

    monkeypatch.setattr(type(WORKLOAD), "advice", once)
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\n[loops]\nhorizon_s = 60\n'
        "[demand]\nper_s = 5\n[pool]\nservice_s = 0.2\nreplicas = 8\nerror_share = 0.6\n"
        '[[client]]\nname = "gateway"\ntimeout_s = 60\nretries = 3\n[[client]]\nname = "sdk"\ntimeout_s = 10\nretries = 2\n'
    )
    shown = CliRunner().invoke(main, ["project", str(file), "--advice"])
    assert shown.exit_code == 0, shown.output
    assert "Separations, tried in the simulator" in shown.stdout
    assert "amplification on sdk, in 3 of 3 runs: one-retry-layer removes it (4 tried)" in shown.stdout
    assert "More accelerators, the same demand" in shown.stdout
    plain = json.loads(CliRunner().invoke(main, ["project", str(file), "--json"]).stdout)
    assert "advice" not in plain
    assert CliRunner().invoke(main, ["project", str(file), "--evidence", str(tmp_path / "e"), "-q"]).exit_code == 0
    found = json.loads((tmp_path / "e" / "evidence.json").read_text())
    assert {"kind", "separation", "value", "sets", "effect"} <= set(found["advice"][0])
    assert [row["ranks"] for row in found["sweep"]] == [6, 7, 8, 10, 12]
    page = (tmp_path / "e" / "README.md").read_text()
    assert "| amplification on sdk | 3 of 3 | **one-retry-layer** | `client.gateway.retries` 3 → 0 |" in page


def test_scenarios_without_loops_have_nothing_to_separate() -> None:
    result = CliRunner().invoke(main, ["project", "latency-inference", "--advice", "--steps", "20"])
    assert result.exit_code == 2
    assert "--advice separates control loops" in result.stderr


@pytest.mark.parametrize("name", SHIPPED)
def test_losses_of_shipped_loops_have_money_and_joules(name: str) -> None:
    table, text = load(name)
    found = forecast(WORKLOAD.parse(table, name, text)[0], count=1)
    entry, horizon_s = found.entry(), found.scenario.loops.horizon_s
    assert entry.currency == "USD"
    assert entry.cost_per_unit
    assert entry.energy_per_unit_j
    assert entry.losses
    held = sum(run.paid_s - run.useful_s for run in found.runs) / len(found.runs) / horizon_s
    assert sum(one.accelerators for one in entry.losses) == pytest.approx(held)
    for one in entry.losses:
        watts = 550 if "in vain" in one.term else 150
        assert float(one.money_per_hour or "nan") == pytest.approx(3.0 * one.accelerators, abs=1e-6)
        assert one.joules_per_hour == pytest.approx(one.accelerators * (watts + 350) * 1.56 * 3600)


def test_losses_without_prices_are_null() -> None:
    losses = forecast(small(), count=1).entry().losses
    assert losses
    assert all(one.money_per_hour is None and one.joules_per_hour is None for one in losses)
