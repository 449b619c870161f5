"""What a new user meets first: messages, prices, names, notebooks."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import taut
from taut.cli import DEMO, main
from taut.core.errors import NotATrace, RunError
from taut.render.terminal import Screen
from taut.render.text import middle


def stderr_of(*args: str) -> str:
    return CliRunner().invoke(main, list(args)).stderr


def test_analyze_takes_a_string_a_path_or_several(demo_analysis: taut.Analysis) -> None:
    files = sorted(Path(DEMO).glob("rank*.json.gz"))
    assert taut.analyze(str(DEMO)).digest == demo_analysis.digest
    assert len(taut.read(files[0]).ops) < len(taut.read(files).ops)


def test_an_analysis_shows_itself_as_a_card_and_in_one_line(demo_analysis: taut.Analysis) -> None:
    assert repr(demo_analysis) == f"<Analysis demo: {demo_analysis.verdict}>"
    html = demo_analysis._repr_html_()
    assert "straggler cascade" in html
    assert len(html) < 3000


def test_names_from_a_trace_cannot_write_html(demo_analysis: taut.Analysis) -> None:
    from msgspec.structs import replace

    from taut.render.card import card

    named = replace(demo_analysis.result.job, name="<script>alert(1)</script>")
    hostile = replace(demo_analysis.result, job=named)
    assert "<script>" not in card(hostile)


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize(("price", "currency"), [("2.50EUR", "EUR"), ("$2.50", "USD"), ("€ 2", "EUR"), ("3 chf", "CHF")])
def test_prices_are_written_in_several_ways(price: str, currency: str) -> None:
    shown = CliRunner().invoke(main, ["demo", "--no-save", "-q", "--json", "--gpu-hour", price])
    assert f'"currency": "{currency}"' in shown.stdout


def test_what_is_no_currency_is_refused() -> None:
    assert "no currency of ISO 4217" in stderr_of("demo", "--gpu-hour", "2.50ZZZ")


def test_choices_are_listed_in_one_line() -> None:
    (line,) = stderr_of("export", "run").splitlines()
    assert line.startswith("taut: Missing option '--to'. Choose from: html, perfetto, focus, schema (see:")


def test_a_folder_of_traces_is_told_how_to_become_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=f"taut analyze {tmp_path} -o RUN"):
        taut.open_run(tmp_path)


def test_an_unknown_table_is_told_what_columns_are_known(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("worker,step,loops\n0,1,2\n")
    with pytest.raises(
        NotATrace, match=r"a table of worker, step, loops.*step times have worker .or rank., step and one of batch_time"
    ):
        taut.read(tmp_path / "t.csv")


def test_empty_standard_input_is_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(NotATrace, match="standard input: it was empty"):
        taut.read("-")


def test_ids_are_cut_in_the_middle() -> None:
    assert middle("application_1506638472019_32991", 16) == "appli…2019_32991"
    assert middle("short", 16) == "short"


def test_colours_are_forced_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Screen.of(io.StringIO()).color
    monkeypatch.setenv("FORCE_COLOR", "0")
    assert not Screen.of(io.StringIO()).color
