"""What a person at a shell can rely on: streams, exit codes, one line for a failure, and the same bytes twice."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import taut.run
from device_traces import Rank, host_ahead
from op_tables import op_table
from results import FINDING, RESULT, filled
from taut.cli import SNIPPET, main
from taut.cli.analysis_hints import hints
from taut.result.types import AnalysisResult
from taut.stored import open_run

KEYS = {
    "verdict": {"text", "class", "bound", "nominal_share", "effective_share"},
    "job": {"name", "ranks", "world_size", "steps", "ops", "wall_ns", "partial"},
    "fidelity": {"replay_error", "gapfree_error", "explained_share", "dropped_edges", "clock"},
    "whatif": {"actual_wall_ns", "ideal_wall_ns", "slowdown", "by", "explained"},
    "waits": {
        f"{part}_rank_ns"
        for part in ("observed", "exposed", "fault", "jitter", "structural", "gap", "unexplained")
    },
    "coupling": {"reach_ranks", "reach_gates", "reach_hops", "amplification", "matrix", "response", "turnover"},
    "indices": {
        "effective_throughput_ratio", "energy_per_useful_step", "runtime_variance_index", "sync_delay_amplification",
        "replay_probability", "straggler_cascade_rate",
    },
    "regime": {"class", "reserve"},
    "ledger": {"total_rank_ns", "entries", "currency", "closes"},
}  # fmt: skip
SLOW = "slow\x1b[2J\x9b31m\u202eop"
"""A class name that would clear the screen, colour it and turn the line around."""


def taut_(*args: object, **options: Any) -> Result:
    """Run the command in this process; stdout and stderr apart."""
    return CliRunner(env={"COLUMNS": "100", **options.pop("env", {})}).invoke(
        main, [str(arg) for arg in args], prog_name="taut", **options
    )


def shell(*args: object, cwd: Path, **env: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "taut", *map(str, args)]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **env}, capture_output=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    """`taut demo --json`, once, and the run folder it wrote."""
    run = tmp_path_factory.mktemp("demo") / "run"
    return taut_("demo", "--json", "-o", run), run


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[bytes]:
    """`taut demo` in a process of its own, once."""
    return shell("demo", cwd=tmp_path_factory.mktemp("shown"))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "ops.csv"
    path.write_text(op_table(name=SLOW), encoding="utf-8")
    return path


@pytest.fixture
def one_rank(tmp_path: Path) -> Path:
    source = Path(taut.__path__[0]) / "demo" / "rank0.json.gz"
    path = tmp_path / "alone.json"
    path.write_bytes(gzip.decompress(source.read_bytes()))
    return path


def test_help_names_the_commands_and_how_to_complete_them() -> None:
    shown = taut_("--help")
    assert shown.exit_code == 0
    assert all(word in shown.stdout for word in ("analyze", "demo", "whatif", "_TAUT_COMPLETE=bash_source"))


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom taut.cli import main\ntry:\n    main(['analyze', '--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('numpy', 'pyarrow', 'numba', 'rich', 'scipy', 'taut.cli.bill_verb', 'taut.lab.commands')\n"
        "print(*(m for m in heavy if m in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_demo_names_the_slow_rank_and_what_nobody_causes(shown: subprocess.CompletedProcess[bytes]) -> None:
    assert shown.returncode == 0
    verdict = " ".join(shown.stdout.decode().split("\n\n")[0].split()).lower()
    assert "rank 3 (node3)" in verdict
    assert "structural instability" in verdict


def test_the_demo_has_everything_of_one_job(demo: tuple[Result, Path]) -> None:
    """Traces, metrics, a controller that acts in the traced window, and a restart."""
    result = json.loads(demo[0].stdout)
    assert (result["job"]["ranks"], result["job"]["world_size"]) == (8, 8)
    assert result["components"]
    assert "balancer" in result["control"]["controllers"]
    assert (result["attempts"]["jobs"], result["attempts"]["attempts"], result["attempts"]["traced_attempt"]) == (1, 2, 2)
    found = {finding["mode"]: finding for finding in result["findings"]}
    assert found["straggler cascade"]["ranks"] == [3]
    assert found["structural instability"]["ranks"] == []
    assert found["structural instability"]["origins"]["episodes"] >= 10
    folder = Path(taut.__path__[0]) / "demo"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000


def test_the_envelope_is_drawn_or_says_what_it_needs(tmp_path: Path) -> None:
    shown = taut_("demo", "--no-save", "--envelope")
    assert "Failure envelope" in shown.stdout
    assert "Risk: both" in shown.stdout, "an attempt that failed, and waiting without an error"
    (tmp_path / "ops.csv").write_text(op_table(ranks=2))
    shown = taut_("analyze", tmp_path / "ops.csv", "--no-save", "--envelope")
    assert "Failure envelope" not in shown.stdout
    assert "no envelope: that needs four steps, a collective of all, and three ranks of one role" in shown.stderr


def test_json_is_one_object_with_the_keys_of_the_contract(demo: tuple[Result, Path]) -> None:
    result = json.loads(demo[0].stdout)
    assert [f"{key}: {sorted(names - set(result[key]))}" for key, names in KEYS.items() if names - set(result[key])] == []
    assert {"cause", "wait_rank_ns", "share", "recoverable_wall_ns", "steps", "gates"} <= set(result["blame"][0])
    assert {"id", "mode", "ranks", "links", "because", "confidence"} <= set(result["findings"][0])
    assert [3] in [finding["ranks"] for finding in result["findings"]]
    assert result["ledger"]["closes"] is True


def test_money_is_null_without_a_price_and_a_hint_says_so(demo: tuple[Result, Path]) -> None:
    assert {entry["money"] for entry in json.loads(demo[0].stdout)["ledger"]["entries"]} == {None}
    assert "--gpu-hour" in demo[0].stderr.splitlines()[-3]


@pytest.mark.usefixtures("small_demo")
def test_a_price_gives_money_in_its_currency(tmp_path: Path) -> None:
    shown = taut_("demo", "--json", "-o", tmp_path / "run", "--gpu-hour", "2.50EUR", "--power", "700,400")
    ledger = json.loads(shown.stdout)["ledger"]
    assert ledger["currency"] == "EUR"
    assert all(entry["money"] is not None and entry["joules"] is not None for entry in ledger["entries"])
    assert "null" not in shown.stderr


def test_the_last_line_of_stderr_names_a_next_command_that_works(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    last = taut_("analyze", table, "-o", run).stderr.splitlines()[-1]
    assert last.startswith(f"next: taut whatif {run} --")
    assert taut_(*last.removeprefix("next: taut ").split()).exit_code == 0


@pytest.mark.parametrize(
    ("keys", "next_"),
    [
        ({}, "next: taut whatif run --fix rank=2"),
        ({"mode": "work imbalance", "ranks": []}, "next: taut whatif run --fix stage=1"),
        (
            {"mode": "fabric contention", "ranks": [], "stages": []},
            "next: taut export run --to perfetto, to look at it op by op",
        ),
        ({"recoverable_wall_ns": 2_000_000}, "next: taut export run --to perfetto, to look at it op by op"),
    ],
)
def test_a_fix_is_named_next_only_if_it_mends_the_finding_and_is_worth_it(keys: dict[str, Any], next_: str) -> None:
    """A class that is slow everywhere is as slow at its reference; 2 of 90 ms are below 3 %."""
    result = filled(AnalysisResult, RESULT | {"findings": [FINDING | keys], "blame": []})
    assert hints(result, Path("run"))[-1] == next_


def test_the_demo_ends_in_money_that_closes(demo: tuple[Result, Path]) -> None:
    cost, last = demo[0].stderr.splitlines()[-2:]
    assert cost.startswith(f"what it cost: taut bill {demo[1]} --prices ")
    assert last == f"next: taut export {demo[1]} --to html, one file to look at and to share"
    bill = json.loads(taut_(*cost.removeprefix("what it cost: taut ").split(), "--json").stdout)
    assert bill["accrual"]["closes"] is True
    assert [invoice["closes"] for invoice in bill["invoices"]] == [True]
    assert (bill["defects"], bill["unmatched"], bill["accrual"]["effective"]) == ([], [], "0.2031925")
    assert {line["item"] for line in bill["lines"] if line["money"]} >= {
        "idle accelerators",
        "unused commitment",
        "storage",
        "tax",
    }


@pytest.mark.usefixtures("small_demo")
def test_quiet_leaves_stderr_empty(tmp_path: Path) -> None:
    assert taut_("demo", "-q", "-o", tmp_path / "run").stderr == ""


@pytest.mark.usefixtures("small_demo")
def test_without_output_the_run_goes_to_taut_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert taut_("demo", "-q").exit_code == 0
    (run,) = (tmp_path / "taut-runs").iterdir()
    assert run.name.startswith("demo-")


def test_a_run_folder_holds_the_result_and_its_tables(demo: tuple[Result, Path]) -> None:
    names = {path.name for path in demo[1].iterdir()}
    assert {"run.json", "ops.parquet", "gates.parquet", "waits.parquet", "ledger.parquet"} <= names
    assert json.loads((demo[1] / "run.json").read_bytes())["result"] == json.loads(demo[0].stdout)


def test_the_same_input_gives_the_same_bytes(demo: tuple[Result, Path], tmp_path: Path) -> None:
    again = taut_("demo", "--json", "-o", tmp_path / "again")
    assert again.stdout == demo[0].stdout
    for path in demo[1].iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


def test_whatif_without_the_slow_rank_saves_time(demo: tuple[Result, Path]) -> None:
    slow = json.loads(taut_("whatif", demo[1], "--fix", "rank=3", "--json").stdout)
    other = json.loads(taut_("whatif", demo[1], "--fix", "rank=2", "--json").stdout)
    assert slow["saved_wall_ns"] > 0.05 * slow["actual_wall_ns"]
    assert 0 <= other["saved_wall_ns"] < 0.5 * slow["saved_wall_ns"]
    assert slow["actual_wall_ns"] - slow["changed_wall_ns"] == slow["saved_wall_ns"]
    assert slow["error"]["lo"] < 0 < slow["error"]["hi"]
    assert {change.partition(" ")[2].split()[0] for change in slow["changes"]} == {"3"}


def test_whatif_shows_before_and_after(demo: tuple[Result, Path]) -> None:
    lines = taut_("whatif", demo[1], "--fix", "rank=3").stdout.splitlines()
    assert lines[0].startswith("as it was")
    assert "saves" in lines[1]


def test_a_delay_costs_time(demo: tuple[Result, Path]) -> None:
    answer = json.loads(taut_("whatif", demo[1], "--delay", "rank=1,step=9,ms=500", "--json").stdout)
    assert 0.3e9 < -answer["saved_wall_ns"] <= 0.5e9


def test_a_delay_may_name_its_op(demo: tuple[Result, Path]) -> None:
    first = json.loads(taut_("whatif", demo[1], "--delay", "rank=1,step=9,ms=500", "--json").stdout)
    graph = open_run(demo[1]).graph
    op = int(((graph.ops.rank == 1) & (graph.steps[graph.window] == 9)).argmax())
    same = json.loads(taut_("whatif", demo[1], "--delay", f"rank=1,step=9,ms=500,op={op}", "--json").stdout)
    assert same["changed_wall_ns"] == first["changed_wall_ns"]
    assert same["changes"] == [f"rank 1 delayed by 500 ms in step 9 at op {op}"]


def test_scales_take_all_of_something(demo: tuple[Result, Path]) -> None:
    answer = json.loads(taut_("whatif", demo[1], "--scale", "work=0.5", "--scale", "gaps=0", "--json").stdout)
    assert answer["changes"] == ["compute work times 0.5", "gaps times 0"]
    assert 0.2 < answer["saved_share"] < 0.6
    slower = json.loads(taut_("whatif", demo[1], "--scale", "bandwidth=0.5", "--json").stdout)
    assert slower["saved_wall_ns"] < 0


def test_part_of_a_class_name_is_enough_if_it_is_the_only_one(demo: tuple[Result, Path]) -> None:
    answer = json.loads(taut_("whatif", demo[1], "--fix", "class=ALL-reduce", "--json").stdout)
    assert answer["changes"] == ["class gloo all-reduce at reference"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (["--fix", "rank=9"], "no such rank; it has 0, 1, 2, 3"),
        (["--fix", "class=aten::"], "which of aten::"),
        (["--fix", "class=nothing like it"], "no such class"),
        (["--fix", "colour=red"], "one of rank, stage, dp_rank, class, link, gate"),
        (["--fix", "rank"], "give KEY=VALUE"),
        (["--delay", "rank=1,ms=4"], "rank=3,step=10,ms=40"),
        (["--delay", "rank=1,step=999,ms=4"], "no op of that rank in that step"),
        *[(["--delay", f"rank=1,step=9,ms={ms}"], "give ms from 0 to") for ms in ("nan", "-40", "1e300", "inf", "1e999")],
        (["--delay", f"rank={'9' * 30},step=9,ms=4"], "no job has so many"),
        (["--delay", f"rank={'9' * 5000},step=9,ms=4"], "rank=3,step=10,ms=40"),
        (["--delay", "rank=1,rank=2,step=9,ms=4"], "rank=3,step=10,ms=40"),
        (["--fix", "rank=" + "x" * 100_000], "no such rank"),
        (["--delay", "rank=1,step=9,ms=4,op=x"], "rank=3,step=10,ms=40"),
        (["--delay", "rank=1,step=9,ms=4,op=1,op=2"], "rank=3,step=10,ms=40"),
        (["--delay", "rank=1,step=9,ms=4,op=999999"], "no such op; rows of ops.parquet go from 0 to"),
        (["--delay", "rank=1,step=9,ms=4,op=0"], "op 0 is of rank"),
        (["--scale", "colour=2"], "one of work, bandwidth, gaps"),
        (["--scale", "work"], "is no number"),
        *[(["--scale", f"work={factor}"], "give a factor from") for factor in ("0", "-1", "nan", "inf", "1e9")],
        (["--scale", "gaps=-1"], "or 0 for none"),
        (["--scale", "work=2", "--scale", "work=3"], "work is given twice"),
        ([], "give --fix, --scale, --delay, --policy or --advice"),
        (["--nonsense"], "No such option"),
    ],
)
def test_a_question_that_does_not_fit_is_one_line_and_exit_2(
    demo: tuple[Result, Path], question: list[str], message: str
) -> None:
    answer = taut_("whatif", demo[1], *question)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("taut: ")
    assert message in line


BAD_RATES = {
    "--gpu-hour": ["2.50", "nanEUR", "-1EUR", "1e999EUR", "9" * 400 + "EUR", "1" * 100_000, "\x1b[2JEUR", ""],
    "--token-price": ["3.00USD", "nan,1USD", "9" * 40 + ",1USD"],
    "--power": ["a", "nan", "-1", "1,2,3,4", "9" * 400, ""],
    "--carbon": ["nan", "inf", "-1", "1e300", ""],
    "--fail-on": ["5", "nan", "-0.1", "inf"],
    "--pays": ["0", "nan", "1.1", "-inf"],
}


def test_carbon_without_power_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ops.csv").write_text(op_table())
    answer = taut_("analyze", tmp_path / "ops.csv", "--no-save", "--carbon", "0.3")
    assert answer.exit_code == 0
    assert "energy is null: no power was measured beside the traces; --power 700,450,120 gives it" in answer.stderr
    assert "energy is null" not in taut_("analyze", tmp_path / "ops.csv", "--no-save").stderr


@pytest.mark.parametrize(("option", "value"), [(option, value) for option, values in BAD_RATES.items() for value in values])
def test_a_bad_rate_is_one_short_line_and_exit_2_and_writes_nothing(tmp_path: Path, option: str, value: str) -> None:
    answer = taut_("demo", "-o", tmp_path / "run", option, value)
    assert (answer.exit_code, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
    assert len(answer.stderr) < 1000
    assert answer.stderr.rstrip("\n").isprintable()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "question",
    [
        *[["gpt-175b", "--ranks", ranks] for ranks in ("nan", "-1", "0", "", "1" + "0" * 30, "1536," * 5000, "1,,2")],
        *[["gpt-175b", "--seed", seed] for seed in ("nan", "-1", "1" + "0" * 30)],
        *[["gpt-175b", "--steps", steps] for steps in ("nan", "1", "1" + "0" * 30)],
        ["gpt-175b", "--evidence", ""],
    ],
)
def test_a_projection_of_nonsense_is_one_short_line_and_exit_2(question: list[str]) -> None:
    answer = taut_("project", *question)
    assert (answer.exit_code, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
    assert len(answer.stderr) < 1000


def test_an_empty_output_is_no_place(demo: tuple[Result, Path]) -> None:
    for args in (("demo", "-o", ""), ("export", demo[1], "--to", "perfetto", "-o", "")):
        assert taut_(*args).exit_code == 2


@pytest.mark.usefixtures("small_demo")
def test_fail_on_exits_3_at_or_above_the_share(tmp_path: Path) -> None:
    reached, not_reached = (taut_("demo", "-o", tmp_path / "run", "--fail-on", share) for share in ("0.05", "0.99"))
    assert (reached.exit_code, not_reached.exit_code) == (3, 0)
    assert reached.stdout == not_reached.stdout != ""


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x00\x01", b'{"traceEvents": [', b"[" * 100_000])
def test_refused_input_is_one_line_and_exit_4(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    answer = taut_("analyze", tmp_path / "bad.json", "-o", tmp_path / "run")
    assert answer.exit_code == 4
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("taut: ")
    assert "bad.json" in line
    assert not (tmp_path / "run").exists()


def test_a_topology_gives_hops_and_says_whom_it_does_not_place(tmp_path: Path) -> None:
    """Demo ranks on two hosts of two racks, five of them nowhere; a file that is no topology is exit 4, nothing written."""
    hosts = [("a", "r1", [0, 1]), ("b", "r2", [2])]
    lines = [f"[[host]]\nname = '{name}'\nrack = '{rack}'\nranks = {ranks}\n" for name, rack, ranks in hosts]
    (tmp_path / "topology.toml").write_text("".join(lines), encoding="utf-8")
    shown = taut_("demo", "--json", "-o", tmp_path / "run", "--topology", tmp_path / "topology.toml")
    result = json.loads(shown.stdout)
    assert result["coupling"]["reach_hops"] == 3
    assert {row["hops"] for row in result["coupling"]["matrix"]} == {0, 3, None}
    assert "the topology does not place rank 3, 4, 5, 6, 7: hops to it are null" in result["job"]["partial"]
    refused = taut_("demo", "-o", tmp_path / "other", "--topology", SNIPPET)
    assert refused.exit_code == 4
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "other").exists()


def test_what_is_no_run_folder_is_exit_1(tmp_path: Path) -> None:
    answer = taut_("whatif", tmp_path, "--fix", "rank=1")
    assert (answer.exit_code, len(answer.stderr.splitlines())) == (1, 1)


def test_a_folder_with_other_things_in_it_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    assert taut_("demo", "-o", tmp_path).exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_interrupt_is_exit_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(taut.run, "analyze", interrupted)
    answer = taut_("demo")
    assert answer.exit_code == 130
    assert answer.stderr.split("\n")[-2] == "taut: interrupted"


def test_a_defect_is_one_line_that_says_how_to_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(taut.run, "analyze", broken)
    answer = taut_("demo")
    assert answer.exit_code == 1
    assert answer.stderr == "taut: RuntimeError: two\\nlines (TAUT_DEBUG=1 shows the traceback)\n"


def test_standard_input_is_read(tmp_path: Path) -> None:
    answer = taut_("analyze", "-", "--json", "-o", tmp_path / "run", input=op_table(name=SLOW))
    assert json.loads(answer.stdout)["job"]["ranks"] == 4


def test_names_from_a_trace_cannot_speak_to_the_terminal(table: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shown = taut_("analyze", table, "-o", run)
    asked = taut_("whatif", run, "--fix", f"class={SLOW}")
    wrong = taut_("whatif", run, "--fix", "class=nothing")
    as_json = taut_("analyze", table, "-o", run, "--json")
    assert "rank 3" in shown.stdout.splitlines()[0]
    for output in (shown.output, asked.output, wrong.output, as_json.output):
        assert not set(output) & {"\x1b", "\x9b", "\u202e"}
    assert "slow\\x1b[2J" in shown.stdout
    assert "slow\\x1b[2J" in wrong.stderr
    assert any(SLOW in name for name in json.loads(as_json.stdout)["whatif"]["by"]["class"])


def test_one_rank_alone_names_no_culprit_and_says_where_it_stands_how_to_record_all(one_rank: Path, tmp_path: Path) -> None:
    answer = taut_("analyze", one_rank, "-o", tmp_path / "run")
    snippet = SNIPPET.read_text(encoding="utf-8").splitlines()
    assert answer.exit_code == 0
    assert "One rank of 8" in answer.stdout
    assert "Findings" not in answer.stdout
    assert "how to record all ranks: taut analyze --help, at its end" in answer.stderr
    shown = taut_("analyze", "--help").stdout.splitlines()
    assert all(f"  {line}" in shown for line in snippet)
    assert answer.stderr.splitlines()[-1] == "next: taut analyze traces/"


def test_a_single_accelerator_that_talks_to_nobody_needs_no_other_ranks(tmp_path: Path) -> None:
    rank = host_ahead(rank=Rank(world=0))
    answer = taut_("analyze", rank.save(tmp_path), "--no-save")
    assert "One rank: 100 % compute, 0 % gaps on the host." in answer.stdout
    assert "tells no culprit" not in answer.stderr
    assert (
        answer.stderr.splitlines()[-1]
        == "next: the same with -o RUN, then taut export RUN --to perfetto, to look at it op by op"
    )


def test_all_ranks_are_shown_where_they_are_asked_for(tmp_path: Path) -> None:
    rows = [f"{rank},{step},fwd,{step * 2000},1000" for step in range(3) for rank in range(9)]
    (tmp_path / "ops.csv").write_text("\n".join(["rank,step,class,start_ns,duration_ns", *rows]), encoding="utf-8")
    few, every = (taut_("analyze", tmp_path / "ops.csv", "--no-save", *more).stdout for more in ([], ["--all-ranks"]))
    assert " 4 more: --all-ranks" in few
    assert "more: --all-ranks" not in every
    assert len(every.splitlines()) == len(few.splitlines()) + 3


def test_off_a_terminal_there_is_no_colour_no_animation_and_streams_are_apart(
    shown: subprocess.CompletedProcess[bytes],
) -> None:
    assert shown.returncode == 0
    assert b"\x1b" not in shown.stdout + shown.stderr
    assert b"next:" not in shown.stdout
    assert shown.stderr.splitlines()[-1].startswith(b"next: taut export taut-runs/demo-")


def test_a_terminal_without_utf8_gets_ascii(tmp_path: Path) -> None:
    done = shell("demo", cwd=tmp_path, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert (done.stdout + done.stderr).isascii()


def test_export_writes_a_trace_beside_the_tables_or_where_it_is_asked_to(demo: tuple[Result, Path], tmp_path: Path) -> None:
    pytest.importorskip("perfetto")
    run = shutil.copytree(demo[1], tmp_path / "run")
    beside, chosen = taut_("export", run, "--to", "perfetto"), tmp_path / "own.pftrace"
    assert (beside.exit_code, beside.stdout) == (0, "")
    assert beside.stderr == f"written: {run / 'perfetto.pftrace'}\n"
    assert taut_("export", run, "--to", "perfetto", "-o", chosen).exit_code == 0
    piped = taut_("export", run, "--to", "perfetto", "-o", "-")
    (run / "perfetto.pftrace").rename(tmp_path / "perfetto.pftrace")
    assert (tmp_path / "perfetto.pftrace").read_bytes() == chosen.read_bytes() == piped.stdout_bytes
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_export_writes_one_file_beside_the_tables_or_where_it_is_asked_to(table: Path, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("vl_convert")
    run = tmp_path / "run"
    assert taut_("analyze", table, "-q", "-o", run).exit_code == 0
    beside, chosen = taut_("export", run, "--to", "html"), tmp_path / "own.html"
    assert (beside.exit_code, beside.stdout) == (0, "")
    assert beside.stderr == f"written: {run / 'taut.html'}\n"
    assert taut_("export", run, "--to", "html", "-o", chosen).exit_code == 0
    piped = taut_("export", run, "--to", "html", "-o", "-")
    assert (run / "taut.html").read_bytes() == chosen.read_bytes() == piped.stdout_bytes
    assert "not a run folder" in taut_("export", tmp_path, "--to", "html").stderr


@pytest.mark.parametrize(
    ("question", "code"), [(["--to", "paper"], 2), ([], 2), (["--to", "perfetto", "-o", "no/such/folder"], 1)]
)
def test_an_export_that_cannot_be_is_one_line(demo: tuple[Result, Path], question: list[str], code: int) -> None:
    answer = taut_("export", demo[1], *question)
    assert (answer.exit_code, answer.stdout, len(answer.stderr.splitlines())) == (code, "", 1)


def test_export_without_its_package_says_what_to_install(
    demo: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    answer = taut_("export", demo[1], "--to", "perfetto", "-o", tmp_path / "trace")
    assert answer.exit_code == 1
    assert answer.stderr.rstrip().endswith("pip install 'taut[export]'")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m taut demo --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert done.stdout == b"{"
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


def test_a_hang_fails_whatever_it_recovers_and_says_where_to_look(shared: Path, tmp_path: Path) -> None:
    result = taut_("analyze", shared / "flight-recorder" / "lock_gil_1st", "-o", tmp_path / "run", "--fail-on", "0.05")
    assert result.exit_code == 3
    assert "Hang: ranks 9, 14 stopped" in result.stdout
    assert "next: stacks and logs of rank 9, 14" in result.stderr


def test_tokens_of_calls_for_nothing_are_priced(tmp_path: Path) -> None:
    """An agent that asks a model the same twice: the second answer is priced, exactly; without a price it is null."""
    values = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-1", "gen_ai.input.messages": "same"}
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    pairs += [{"key": f"gen_ai.usage.{way}_tokens", "value": {"intValue": "1000"}} for way in ("input", "output")]
    turn = {"traceId": "a", "spanId": "1", "name": "turn", "startTimeUnixNano": "1000", "endTimeUnixNano": "9000000"}
    calls = [
        {**turn, "spanId": span, "parentSpanId": "1", "name": "chat m-1", "kind": 3, "attributes": pairs,
         "startTimeUnixNano": str(begin), "endTimeUnixNano": str(begin + 2_000_000)}
        for span, begin in (("2", 1_000_000), ("3", 5_000_000))
    ]  # fmt: skip
    file = tmp_path / "agent.jsonl"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [turn, *calls]}]}]}))
    priced = taut_("analyze", file, "-o", tmp_path / "run", "--json", "-q", "--token-price", "3.00,15.00USD")
    found = json.loads(priced.stdout)["redundant"]
    assert (found["calls"], found["of_calls"], found["money"], found["currency"]) == (1, 2, "0.018000", "USD")
    shown = taut_("analyze", file, "-o", tmp_path / "run", "-q").stdout
    assert "Redundant: 1 of 2 calls" in shown
    assert "USD" not in shown
    assert taut_("analyze", file, "--token-price", "3.00USD").exit_code == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("analyze", "x", "--on", "here"), "--on here: give local, or the address of a Dask scheduler"),
        (("project", "gpt-175b", "--on", "dask://host"), "--on dask://host: give local"),
        (("project", "--from", "x", "--on", "local"), "--on forecasts the scales of a SCENARIO"),
        (("bill", "x", "--on", "8786"), "--on 8786: give local"),
        (("lab", "matrix", "--on", "local", "-o", "x"), "--on needs --modelled"),
    ],
)
def test_where_nothing_can_run_is_refused_in_one_line(words: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(main, list(words))
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert why in result.stderr
