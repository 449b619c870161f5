"""Evidence: what follows from two sets of indices, and the folder that holds it."""

from __future__ import annotations

import json
from hashlib import sha256
from math import exp
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.project.scenario_evidence import SIGMA, damping, risk
from taut.read.scenario_file import names

ABOUT = ("pattern", "computes", "decision", "policies", "sources")


def run(*args: str) -> str:
    done = CliRunner().invoke(main, ["project", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("effective_throughput_ratio", 0.75, 0.25), ("energy_per_useful_step", 1.25, 0.25), ("replay_probability", 0.25, 0.25),
     ("sync_delay_amplification", 0.5, 0.0), ("straggler_cascade_rate", None, None)],
)  # fmt: skip
def test_risk_is_the_distance_from_losing_nothing(name: str, value: float | None, expected: float | None) -> None:
    assert risk(name, value) == expected


def test_damping_quotient_and_mode_magnitude() -> None:
    kappa, xi = damping(0.5, 0.5 * exp(-0.5))
    assert kappa == pytest.approx(exp(-0.5))
    assert xi == pytest.approx(1 / SIGMA)
    assert damping(0.2, 0.2) == (1.0, 0.0)
    assert damping(0.2, 0.3) == (pytest.approx(1.5), None), "a risk that grew has no mode"
    assert damping(0.0, 0.3) == (None, None)
    assert damping(None, 0.3) == (None, None)


def test_evidence_is_whole_and_the_same_when_made_again(tmp_path: Path) -> None:
    made = []
    for folder in ("one", "two"):
        run("multi-tenant", "--steps", "20", "--evidence", str(tmp_path / folder), "-q")
        made.append({file.name: file.read_bytes() for file in (tmp_path / folder).iterdir()})
    assert made[0] == made[1]
    assert set(made[0]) == {"README.md", "evidence.json", "scenario.toml", "digests.txt"}
    for line in made[0]["digests.txt"].decode().splitlines():
        digest, name = line.split()
        assert sha256(made[0][name]).hexdigest() == digest
    found = json.loads(made[0]["evidence.json"])
    assert found["compared"]["regime"].keys() == {"without", "with"}
    assert len(found["compared"]["indices"]) == 6
    assert len(found["questions"]) == 6
    page = made[0]["README.md"].decode()
    assert "taut project multi-tenant --steps 20 --evidence DIR" in page
    assert "convention" in page


def test_every_shipped_scenario_says_what_it_is_for() -> None:
    from taut.read.scenario_file import load

    for name in names(""):
        about = load(name)[0].get("about", {})
        assert all(about.get(key) for key in ABOUT), name


def test_policies_are_compared_one_by_one_or_together() -> None:
    both = json.loads(run("gpt-175b", "--steps", "10", "--policy", "overlap", "--policy", "overlap,spares=16", "--json", "-q"))
    assert [one["name"] for one in both["policies"]] == ["overlap", "overlap,spares=16"]
    for one in both["policies"]:
        before, after = (one["indices"][side]["effective_throughput_ratio"]["value"] for side in ("without", "with"))
        assert one["indices"]["ratio"]["effective_throughput_ratio"] == pytest.approx(after / before)
        assert one["regime"].keys() == {"without", "with"}


def test_an_unknown_policy_is_refused_with_those_there_are() -> None:
    done = CliRunner().invoke(main, ["project", "gpt-175b", "--policy", "magic"])
    assert done.exit_code == 2
    assert "magic" in done.stderr
    assert "local-steps" in done.stderr


def test_scenarios_are_listed() -> None:
    done = CliRunner().invoke(main, ["project", "--list", "--json"], catch_exceptions=False)
    listed = json.loads(done.stdout)["scenarios"]
    assert {"large-training", "multi-tenant"} <= {one["name"] for one in listed}
    assert all(one["pattern"] and one["decision"] for one in listed)
