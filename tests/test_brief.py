"""``taut brief``: from run folders, scenarios and logs to one document, in plain words, the same bytes each time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import taut
from taut.cli import DEMO, main
from taut.result.types import BriefResult

PRICED = ["--prices", str(DEMO / "prices.toml"), "--focus", str(DEMO / "bill.csv")]


@pytest.fixture(scope="module")
def run(demo_analysis: taut.Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The incident that ships, analysed."""
    return demo_analysis.save(tmp_path_factory.mktemp("runs") / "incident")


@pytest.fixture(scope="module")
def made(run: Path) -> taut.Brief:
    return taut.brief([run], prices=DEMO / "prices.toml", focus=[DEMO / "bill.csv"])


@pytest.fixture(scope="module")
def told(made: taut.Brief) -> BriefResult:
    return made.result


def taut_brief(*words: object) -> Result:
    return CliRunner().invoke(main, ["brief", *map(str, words), "-q"])


def test_the_incident_names_its_cause_its_money_and_what_to_do(told: BriefResult) -> None:
    repair = next(cause for cause in told.causes if "node3" in cause.what)
    assert repair.share is not None
    assert 0.03 < repair.share.value < 0.15
    assert repair.money_per_month is not None
    assert repair.currency == "EUR"
    assert "node3" in repair.do
    assert any("nobody in particular" in cause.what for cause in told.causes)
    assert told.costs is not None
    assert told.costs.per_month > 1000


def test_every_question_is_answered_or_says_what_it_needs(told: BriefResult) -> None:
    assert len(told.questions) == 7
    for one in told.questions:
        assert one.command.startswith("taut ")
        assert (one.answer is None) == (one.needs is not None)
        assert one.says
        assert (one.taken_from is None) == (one.answer is None)


def test_same_bytes_each_time(run: Path, made: taut.Brief, tmp_path: Path) -> None:
    again = [tmp_path / f"any name{form}" for form in (".html", ".md", ".pdf")]
    result = taut_brief(run, *PRICED, *(word for path in again for word in ("-o", path)))
    assert result.exit_code == 0
    for path in again:
        assert path.read_bytes() == made.form(path.suffix)


def test_redacted_has_no_host_and_no_job_name(run: Path, tmp_path: Path) -> None:
    assert taut_brief(run, *PRICED, "--redact", "-o", tmp_path / "b.md", "-o", tmp_path / "b.html").exit_code == 0
    for name in ("b.md", "b.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert not re.search(r"node\d|incident", text)
        assert "host-1" in text


def test_without_a_price_money_is_not_priced_and_says_how(run: Path, tmp_path: Path) -> None:
    result = taut_brief(run, "--json", "-o", tmp_path / "b.md")
    told = json.loads(result.stdout)
    assert told["costs"] is None
    assert all(cause["money_per_month"] is None for cause in told["causes"])
    assert "--gpu-hour" in (tmp_path / "b.md").read_text(encoding="utf-8")


def test_a_scenario_has_a_threshold_and_demands_with_money(tmp_path: Path) -> None:
    told = taut.brief(["fixed-batch"]).result
    economic = told.questions[1]
    assert economic.answer is not None
    assert economic.command.startswith("taut project fixed-batch")
    assert told.demands
    assert all(demand.test and demand.reach for demand in told.demands)


def test_control_logs_are_read_together(tmp_path: Path) -> None:
    log = tmp_path / "actions.jsonl"
    rows = [
        {"time": f"2026-01-01T00:{k:02d}:{s:02d}Z", "controller": who, "layer": layer, "target": "job-1", "knob": "replicas",
         "before": a, "after": b}
        for k in range(30) for s, who, layer, a, b in ((0, "scaler", "autoscaler", 2, 4), (20, "saver", "policy", 4, 2))
    ]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = taut.brief([log]).result
    assert told.inputs[0].kind == "control log"
    assert told.questions[0].answer is not None
    assert "undo" in told.questions[0].says
    assert told.questions[3].needs is not None  # nothing was traced


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to brief on"),
        (["large-training", "large-training"], "given twice"),
        (["large-training", "-o", "brief.docx"], "HTML, PDF or Markdown"),
        (["large-training", "-o", "no/such/brief.pdf"], "there is no folder"),
        (["large-training", "--gpu-hour", "2EUR", "--prices", "p.toml"], "give one of them"),
        (["large-training", "--focus", "bill.csv"], "--focus closes runs to a bill"),
    ],
)
def test_what_cannot_be_briefed_is_refused_in_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = taut_brief(*words)
    assert result.exit_code in (2, 4)
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


def test_traces_are_refused_with_the_command_that_analyses_them(tmp_path: Path) -> None:
    result = taut_brief(next(DEMO.glob("rank*.json.gz")), "-o", tmp_path / "b.html")
    assert result.exit_code == 4
    assert "taut analyze" in result.stderr
