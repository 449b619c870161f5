"""Cards of run folders of every verb, from run.json alone."""

from __future__ import annotations

from pathlib import Path

import pytest

import taut
from build import analyze, job
from taut.core.errors import RunError
from taut.core.json_text import json_text
from taut.run import save_run
from taut.views.run_card import run_card, run_id, with_trends

SLOW = {0: "fwd 5 | AR 1", 1: "fwd 9 | AR 1"}


def saved(folder: Path, slow: dict[int, str] = SLOW) -> Path:
    return analyze(job(slow, steps=12)).save(folder)


def test_a_traced_run_tells_its_job_and_needs_no_table(tmp_path: Path) -> None:
    run = saved(tmp_path / "a")
    for table in run.glob("*.parquet"):
        table.unlink()
    card = run_card(run)
    assert (card.verb, card.ranks, card.steps, card.step_ns) == ("analyze", 2, 12, 10e6)
    assert card.views == ["overview", "timeline", "structure", "whatif", "scaling", "bill", "decisions"]
    assert card.recoverable_share == pytest.approx(0.4, abs=0.05)
    assert (card.lost_per_hour, card.currency, card.trend_ns) == (None, None, [])


def test_a_price_prices_what_the_findings_cost_an_hour(tmp_path: Path) -> None:
    from decimal import Decimal

    from taut.run import analyze_trace

    run = analyze_trace(job(SLOW, steps=12), prices=taut.Prices(Decimal("2.50"), "EUR")).save(tmp_path / "a")
    card = run_card(run)
    assert card.recoverable_share is not None
    assert card.currency == "EUR"
    assert float(card.lost_per_hour or 0) == pytest.approx(2 * 2.5 * card.recoverable_share, abs=0.01)


def test_logs_alone_have_an_overview_and_where_the_time_went(tmp_path: Path) -> None:
    log = tmp_path / "sacct.txt"
    log.write_text(
        "JobID|JobName|State|Submit|Start|End|AllocTRES|Restarts\n"
        "1|train|FAILED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:00:00|gres/gpu=8|0\n", encoding="utf-8",
    )  # fmt: skip
    card = run_card(taut.analyze(log).save(tmp_path / "a"))
    assert (card.verb, card.views, card.ranks) == ("analyze", ["overview", "bill"], None)


def test_other_verbs_have_their_own_page(tmp_path: Path, root: Path) -> None:
    controlled = taut.control(taut.read(root / "src" / "taut" / "demo" / "balancer.log"))
    control = save_run(tmp_path / "c", "control", lambda _: {"digest": "", "result": controlled, "graph": None})
    project = save_run(
        tmp_path / "p", "project", lambda _: {"digest": "", "result": taut.project("gpt-175b"), "graph": None}
    )  # fmt: skip
    bill = taut.bill([saved(tmp_path / "a")], prices=taut.Prices()).save(tmp_path / "b")
    cards = [run_card(one) for one in (control, project, bill)]
    assert [(card.verb, card.views) for card in cards] == [
        ("control", ["control"]), ("project", ["scaling"]), ("bill", ["bill"]),
    ]  # fmt: skip
    assert cards[0].verdict.startswith("Whether control is coherent is not known: balancer reversed nice")
    assert (cards[1].name, cards[1].ranks) == ("gpt-175b", 1536)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "no run of this version"), (json_text({"format": 3, "result": {}}), "its layout is 3"),
        (json_text({"format": 4, "result": []}), "no run of this version"),
        (json_text({"format": 4, "result": {"job": {}}}), "no run of this version"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_refused_in_a_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=why) as refused:
        run_card(tmp_path)
    assert "\n" not in str(refused.value)


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        run_card(tmp_path / "none")


def test_a_folder_has_one_id_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_id("a") == run_id(tmp_path / "a") == run_id("./b/../a") != run_id("b")


def test_trends_are_those_of_the_same_job_in_order(tmp_path: Path) -> None:
    import os

    runs = [saved(tmp_path / name, {0: f"fwd {ms} | AR 1", 1: f"fwd {ms} | AR 1"}) for name, ms in (("a", 5), ("b", 7))]
    for k, run in enumerate(runs):
        os.utime(run / "run.json", ns=(k * 10**9, k * 10**9))
    newest, oldest = with_trends([run_card(run) for run in runs])
    assert [newest.trend_ns, oldest.trend_ns] == [[6e6, 8e6], [6e6]]
