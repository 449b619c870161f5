"""What the pages of scaling, controllers, bills and decisions are drawn from, out of run folders of every verb."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from actions import act, table
from build import analyze, job
from taut.cli import main
from taut.core.errors import RunError, UsageError
from taut.core.tables import Action
from taut.result.view_types import NewDecision
from taut.views.bill_view import bill_view
from taut.views.control_view import actions, control_view
from taut.views.decision_loop import decide, decided, decisions
from taut.views.overview import overview_of, with_decided
from taut.views.scaling import scaling

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}
LOG = "".join(
    f'{{"time": "2026-01-01T00:{k:02d}:00Z", "controller": "{who}", "target": "pool", "knob": "replicas", '
    f'"before": {3 + k % 2}, "after": {4 - k % 2}}}\n'
    for k, who in enumerate(["scaler", "balancer"] * 10)
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of traces, a bill of it, and one of a control log."""
    folder = tmp_path_factory.mktemp("runs")
    analyze(job(SLOW, steps=6)).save(folder / "traced")
    (folder / "actions.jsonl").write_text(LOG)
    for arguments in (
        ["bill", str(folder / "traced"), "--gpu-hour", "2.50EUR", "-o", str(folder / "bill")],
        ["control", str(folder / "actions.jsonl"), "-o", str(folder / "control")],
    ):
        done = CliRunner().invoke(main, arguments)
        assert done.exit_code == 0, done.output
    return folder


def test_a_run_on_more_ranks(runs: Path) -> None:
    found = scaling(runs / "traced")
    assert found.project is not None
    assert [one.ranks for one in found.project.forecasts] == [2, 4, 8]
    assert (found.needs, found.command) == (None, f"taut project --from {runs / 'traced'}")


def test_what_cannot_be_scaled(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="says nothing of other scales"):
        scaling(runs / "bill")
    monkeypatch.setattr("taut.views.scaling.MOST_OPS", 3)
    found = scaling(runs / "traced")
    assert found.project is None
    assert found.needs is not None
    assert found.needs.endswith(found.command)


def test_controllers_of_a_log(runs: Path) -> None:
    found = control_view(runs / "control")
    assert {one.controller for one in found.actions} == {"scaler", "balancer"}
    assert [one.time_ns for one in found.actions] == sorted(one.time_ns for one in found.actions)
    assert (found.step_times, found.step_begin_ns) == (None, [])
    assert len(found.zones) == len(found.result.relations)
    with pytest.raises(RunError, match="nobody decides anything"):
        control_view(runs / "traced")


def test_very_many_actions_are_spread_evenly() -> None:
    many = table(Action, [act(k, "scaler", 1 if k % 2 else -1) for k in np.random.default_rng(1).permutation(500)])
    found = actions(many, 50)
    assert len(found) == 50
    assert (found[0].time_ns, found[-1].time_ns) == (int(many.time_ns.min()), int(many.time_ns.max()))
    assert {one.direction for one in found} == {1, -1}
    assert {one.rank for one in found} == {None}


def test_a_bill(runs: Path) -> None:
    found = bill_view(runs / "bill")
    assert found.result.currency == "EUR"
    with pytest.raises(RunError, match="not a bill"):
        bill_view(runs / "traced")


def test_from_a_finding_to_a_decision(runs: Path, tmp_path: Path) -> None:
    log = tmp_path / "audit.db"
    before = decisions(runs / "traced", log)
    assert (before.decisions, before.log, before.verified) == ([], None, None)
    (first, *others) = before.open
    assert first.id is not None
    decide(runs / "traced", NewDecision(finding=first.id, do=" drain it ", by="on-call"), log)
    after = decisions(runs / "traced", log)
    assert [one.id for one in after.open] == [one.id for one in others]
    (row,) = after.decisions
    assert (row.record.details["do"], row.record.details["by"], row.outcome) == ("drain it", "on-call", None)
    assert row.expected is not None
    assert row.expected.value == pytest.approx(first.recoverable_share)
    assert (after.log, after.verified) == (str(log), None)
    assert after.verified_is.startswith("This run was never recorded")
    shown = with_decided(overview_of(runs / "traced"), decided(runs / "traced", log))
    assert [one.decided for one in shown.headlines] == [row.record.index, *(None for _ in others)]
    assert after.commands["verify"] == f"taut audit verify {runs / 'traced'} --audit {log}"


@pytest.mark.parametrize(
    ("finding", "do", "by", "says"),
    [
        ("no-such", "x", "y", "--finding no-such"),
        ("f", " ", "y", "do: give"),
        ("f", "x", "", "by: give"),
        ("f", "x" * 2001, "y", "do: give"),
    ],
)
def test_no_decisions(runs: Path, tmp_path: Path, finding: str, do: str, by: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        decide(runs / "traced", NewDecision(finding=finding, do=do, by=by), tmp_path / "audit.db")
    assert not (tmp_path / "audit.db").exists()
