"""What is declared for a scenario stands beside who declares it."""

from __future__ import annotations

from pathlib import Path

from taut.briefing.declared import NOT_CITED, PUBLISHED, declared_of
from taut.read.scenario_file import load, names, shipped_text


def test_figures_of_a_scenario_file_before_and_after() -> None:
    found = declared_of("retry-heavy")
    assert found.without["actual_attempt_multiplier"].value == 3.4
    assert found.with_["actual_attempt_multiplier"].value == 1.3
    assert found.by["actual_attempt_multiplier"] == NOT_CITED


def test_published_figures_have_a_citation_and_no_after() -> None:
    found = declared_of("large-training")
    assert found.without["tflops_per_device"].value == 400
    assert "arXiv:2407.21783" in found.by["tflops_per_device"]
    assert "tflops_per_device" not in found.with_
    assert set(PUBLISHED) <= set(names(""))


def test_nothing_is_declared_where_nothing_is_known(tmp_path: Path) -> None:
    assert declared_of("multi-tenant") == ({}, {}, {})
    mine = tmp_path / "gpt-175b.toml"  # a file of that name is not the published system
    mine.write_text(shipped_text("gpt-175b"), encoding="utf-8")
    assert declared_of(str(mine)).without == {}


def test_published_figures_are_of_the_scale_that_ships() -> None:
    jobs = {name: load(name)[0]["job"] for name in PUBLISHED}
    assert {name: job["tp"] * job["pp"] * job["dp"] for name, job in jobs.items()} == {
        "large-training": 16384,
        "gpt-175b": 1536,
    }
