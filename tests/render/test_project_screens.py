"""Tables of ``taut project`` fit 80 columns, of every scenario that ships; requests and tasks are called what they are."""

from __future__ import annotations

import re
from functools import cache

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from taut.cli import main
from taut.project.projection import Asked, project_table
from taut.project.scenario_evidence import evidence
from taut.project.time_groups import group_of
from taut.project.token_budget import token_budget
from taut.project.workload import Sampling
from taut.read.scenario_file import listed, load
from taut.render.evidence_folder import page
from taut.render.forecast_screen import render_forecasts
from taut.render.terminal import Screen
from taut.result.types import Forecast, ProjectResult

NAMES = [one.name for one in listed()]
OTHERS = [name for name in NAMES if "job" not in load(name)[0]]
RANKS = (32, 64, 128, 1024, 8192, 16384, 98304, 131072)


@cache
def projected(name: str) -> ProjectResult:
    """A scenario with two of its policies, drawn as little as can be; loops are simulated for minutes instead of hours."""
    table, text = load(name)
    if "loops" in table:
        table["loops"] = {**table["loops"], "horizon_s": 300}
    policies = ",".join(table["about"].get("policies", ())[:2])
    return project_table(table, name, text, Asked(policies=[policies] if policies else []), Sampling(count=4))


def fits(said: str) -> str:
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    return said


def screen(result: ProjectResult) -> str:
    return fits(render_forecasts(result, Screen(width=80)))


@pytest.mark.parametrize("name", NAMES)
def test_the_screen_of_each_scenario_fits_with_a_row_for_each_policy(name: str) -> None:
    result = projected(name)
    said = screen(result)
    for gain in result.gains or () if len(result.gains or ()) > 1 else ():
        assert any(line.startswith("all together" if gain.together else gain.name) for line in said.splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_of_eight_scales_every_table_has_every_row(name: str) -> None:
    result = projected(name)
    own = result.forecasts[0]

    def at(ranks: int) -> Forecast:
        there = replace(own, ranks=ranks, in_range=False)
        return replace(there, budget=token_budget(there, 15e12)) if result.workload == "training" else there

    compared = [replace(one, ranks=ranks) for one in result.policies for ranks in RANKS]
    said = screen(replace(result, forecasts=[at(n) for n in RANKS], ranks=RANKS[-1], policies=compared))
    first = [line.split("  ")[0].removesuffix(" ?") for line in said.splitlines()]
    tables = [first.count(f"{ranks:,}") for ranks in RANKS]
    assert min(tables) >= 3
    assert len(set(tables)) == 1
    shares = [line for line in said.splitlines() if line.startswith("share of ")]
    assert sum(line.count(",") for line in shares) == sum(ranks >= 1000 for ranks in RANKS)


def test_only_the_work_itself_counts_as_compute() -> None:
    """A term that is new counts as compute unless one of its words says otherwise: name it so, or name it here."""
    entries = [entry for name in NAMES for entry in projected(name).forecasts if entry.groups]
    found = {term for entry in entries for term in entry.terms or () if group_of(term) == "compute"}
    assert found == {"compute", "model calls", "served", "trained"}


def test_the_envelope_fits() -> None:
    table, text = load("gpt-175b")
    asked = Asked(envelope=True, policies=())
    screen(project_table(table, "gpt-175b", text, asked, Sampling(count=4)))


def test_several_comparisons_fit_and_each_is_told_apart() -> None:
    table, text = load("gpt-175b")
    asked = Asked(policies=["overlap=0.9", "spares=16,local-steps=4", "spares=16,overlap=0.9"])
    said = screen(project_table(table, "gpt-175b", text, asked, Sampling(count=4)))
    assert "together: spares=16," in said
    assert said.count("together: ") == 2


@pytest.mark.parametrize("name", OTHERS)
def test_requests_and_tasks_are_never_called_steps_nor_accelerators_ranks(name: str) -> None:
    result = projected(name)
    found = page(evidence(name, load(name)[0], result, seed=0, steps=None)).partition("<details>")[0]
    for said in (screen(result).partition("by default: ")[0], found):
        # Keys and options keep their names.
        plain = re.sub(r"`[^`]*`|--\w+[ =]\S+", "", said)
        assert re.search(r"\b(ranks?|steps?)\b", plain) is None, re.search(r".*\b(ranks?|steps?)\b.*", plain)
    assert all("step" not in one.says for one in result.questions)


@pytest.mark.parametrize("name", ["latency-inference", "agent-chain"])
def test_a_scale_that_replicas_do_not_divide_is_said_of_accelerators(name: str) -> None:
    done = CliRunner().invoke(main, ["project", name, "--ranks", "33"])
    assert done.exit_code == 2
    assert "33 accelerators: a replica takes" in done.stderr
