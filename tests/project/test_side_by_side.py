"""Two scenarios side by side: the same figures, the second over the first, nothing converted and nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import taut
from taut.cli import main
from taut.core.errors import UsageError
from taut.read.scenario_file import load
from taut.render.terminal import Screen
from taut.render.two_scenarios_screen import render_two
from taut.result.types import FigureRatio, TwoScenarios


@pytest.fixture(scope="module")
def vendors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One job on two vendors' devices and fabrics, each with its price."""
    folder = tmp_path_factory.mktemp("vendors")
    text = load("gpt-175b")[1].replace("layers = 96", "layers = 24").replace("pp = 12", "pp = 3").replace("dp = 16", "dp = 4")
    text = text.replace("global_batch = 1536", "global_batch = 96")
    one, other = folder / "one.toml", folder / "other.toml"
    one.write_text(_priced(text.replace('"gpt-175b"', '"one"'), "a100-80g", 2.0, "USD"))
    other.write_text(_priced(text.replace('"gpt-175b"', '"other"').replace("dgx-a100-hdr", "h100-ndr"), "h100-80g", 3.0, "USD"))
    return one, other


def _priced(text: str, device: str, price: float, currency: str) -> str:
    given = f'\n[device]\nbase = "{device}"\nprice_per_hour = {price}\n\n[price]\ncurrency = "{currency}"\n'
    return text.replace('device = "a100-80g"\n', "") + given


@pytest.fixture(scope="module")
def two(vendors: tuple[Path, Path]) -> TwoScenarios:
    return taut.project(*vendors, ranks=[96, 192], steps=4, tokens=1e12)


def figures(result: TwoScenarios, at: int) -> dict[str, FigureRatio]:
    return {one.figure: one for one in result.ratios[at].figures}


def test_each_is_what_it_is_alone(two: TwoScenarios, vendors: tuple[Path, Path]) -> None:
    alone = taut.project(vendors[1], ranks=[96, 192], steps=4, tokens=1e12, policies=())
    assert two.scenarios[1] == alone
    assert [pair.ranks for pair in two.ratios] == [(96, 96), (192, 192)]


def test_ratios_are_the_second_over_the_first(two: TwoScenarios) -> None:
    one, other = (result.forecasts[1] for result in two.scenarios)
    found = figures(two, 1)
    assert found["tokens_per_s"].values == (one.tokens_per_s, other.tokens_per_s)
    assert one.tokens_per_s
    assert other.tokens_per_s
    assert found["tokens_per_s"].ratio == pytest.approx(other.tokens_per_s / one.tokens_per_s)
    assert one.cost_per_unit
    assert other.cost_per_unit
    assert found["cost_per_unit"].ratio == pytest.approx(other.cost_per_unit / one.cost_per_unit)
    assert found["bound"].ratio is None
    assert found["days"].ratio == pytest.approx(1 / found["tokens_per_s"].ratio)
    assert two.thresholds.figure == "threshold"


def test_the_screen_has_a_table_for_each_scale_and_fits(two: TwoScenarios) -> None:
    said = render_two(two, Screen(width=80))
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    rows = [line.split() for line in said.splitlines()]
    assert [row for row in rows if row[:1] == ["figure"]] == [["figure", "one", "other", "ratio"]] * 2
    assert sum(row[:1] == ["step"] for row in rows) == 2
    assert [row[0] for row in rows if row[:1] in (["96"], ["192"])] == ["96", "192"]  # one table over both scales
    assert "other delivers" in said.splitlines()[0]


def test_two_currencies_are_shown_and_not_converted(vendors: tuple[Path, Path], tmp_path: Path) -> None:
    euros = tmp_path / "euros.toml"
    euros.write_text(vendors[1].read_text().replace('"USD"', '"EUR"').replace('name = "other"', 'name = "euros"'))
    found = taut.project(vendors[0], euros, steps=2)
    cost = figures(found, 0)["cost_per_unit"]
    assert None not in cost.values
    assert cost.ratio is None
    assert figures(found, 0)["tokens_per_s"].ratio is not None
    said = " ".join(render_two(found, Screen(width=80)).split())
    assert "costs are in EUR and USD: not converted" in said
    assert "currency USD EUR" in said


def test_without_scales_each_stands_at_its_own(vendors: tuple[Path, Path], tmp_path: Path) -> None:
    larger = tmp_path / "larger.toml"
    larger.write_text(vendors[0].read_text().replace("dp = 4", "dp = 8").replace("global_batch = 96", "global_batch = 192"))
    found = taut.project(vendors[0], larger, steps=2)
    assert [pair.ranks for pair in found.ratios] == [(96, 192)]
    assert "first on 96 ranks, second on 192 ranks" in " ".join(render_two(found, Screen(width=80)).split())


def test_a_scale_that_one_does_not_hold_is_left_out_of_it_alone(vendors: tuple[Path, Path], tmp_path: Path) -> None:
    text = (
        vendors[1]
        .read_text()
        .replace("price_per_hour", "memory_gb = 6\nprice_per_hour")
        .replace("[job]", '[job]\nsharding = "zero3"')
    )
    small = tmp_path / "small.toml"
    small.write_text(text.replace('name = "other"', 'name = "small"'))
    found = taut.project(vendors[0], small, ranks=[24, 768], steps=2)
    sides = [[one.ranks for one in result.forecasts] for result in found.scenarios]
    assert sides[0] == [24, 768]
    assert sides[1] == [768]
    assert [pair.ranks for pair in found.ratios] == [(24, None), (768, 768)]
    assert max(map(len, render_two(found, Screen(width=80)).splitlines())) <= 80


def test_policies_are_asked_of_both(vendors: tuple[Path, Path]) -> None:
    found = taut.project(*vendors, steps=2, policies=["overlap=0.9,local-steps=4"])
    assert [len(one.policies) for one in found.scenarios] == [1, 1]
    said = render_two(found, Screen(width=80))
    assert max(map(len, said.splitlines())) <= 80
    rows = [line.split() for line in said.splitlines() if line.startswith(("overlap=0.9 ", "local-steps=4 "))]
    assert len(rows) >= 2
    assert all(sum("%" in cell for cell in row) >= 2 for row in rows)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["project", *arguments])


def test_the_command_prints_the_typed_result(vendors: tuple[Path, Path]) -> None:
    done = run(*map(str, vendors), "--steps", "2", "--json", "-q")
    found = json.loads(done.stdout)
    assert [one["scenario"] for one in found["scenarios"]] == ["one", "other"]
    assert found["ratios"][0]["figures"][0]["figure"] == "tokens_per_s"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gpt-175b", "gpt-175b", "gpt-175b"), "3 scenarios: two are set side by side"),
        (("gpt-175b", "gpt-175b", "--from", "run"), "give a SCENARIO, or --from RUN"),
        (("gpt-175b", "gpt-175b", "--envelope"), "are of one SCENARIO"),
        (("gpt-175b", "gpt-175b", "--evidence", "x"), "are of one SCENARIO"),
    ],
)
def test_what_does_not_go_together_is_one_line(arguments: tuple[str, ...], says: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_two_kinds_are_not_set_side_by_side() -> None:
    with pytest.raises(UsageError, match="latency-inference is a scenario of serving, agent-chain of agents"):
        taut.project("latency-inference", "agent-chain")


def test_the_verb_takes_the_same_questions_of_two_as_of_one() -> None:
    with pytest.raises(UsageError, match="are of one SCENARIO"):
        taut.project("gpt-175b", "gpt-175b", envelope=True)
