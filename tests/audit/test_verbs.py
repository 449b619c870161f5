"""What a person at a shell sees of the audit trail: verbs leave records unasked, and ``taut audit`` shows and proves them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from taut.audit.log import open_log
from taut.audit.record import OUTCOME, Detail, Text
from taut.cli import main
from taut.core.folder import changed_files, manifest_of, sealed


def taut_(*args: object, **env: str) -> Result:
    runner = CliRunner(env={"COLUMNS": "120", "TAUT_AUDIT": "on", **env})
    return runner.invoke(main, [str(arg) for arg in args], prog_name="taut")


def ops(slow_ms: float, every: int = 1) -> str:
    """Four ranks, eight steps: computes of 10 ms and a collective of 1 ms; the last rank is slower by ``slow_ms``, or only
    in every so many steps."""
    lines = ["rank,step,class,start_ms,duration_ms"]
    start = 0.0
    for step in range(8):
        late_ms = slow_ms * (step % every == every - 1)
        took_ms = 11.1 + late_ms
        for rank in range(4):
            work = 10 + 0.01 * ((rank * 7 + step * 3) % 5) + late_ms * (rank == 3)
            lines.append(f"{rank},{step},compute,{start:.3f},{work:.3f}")
            lines.append(f"{rank},{step},all-reduce,{start + work:.3f},{took_ms - work:.3f}")
        start += took_ms
    return "\n".join(lines) + "\n"


def answer(*args: object) -> Any:
    done = taut_(*args, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a small job was analysed, once for all tests: they copy it."""
    folder = tmp_path_factory.mktemp("analysed")
    (folder / "ops.csv").write_text(ops(30))
    (folder / "mended.csv").write_text(ops(0.5))
    here = Path.cwd()
    os.chdir(folder)
    try:
        assert taut_("analyze", "ops.csv", "-q", XDG_CONFIG_HOME=str(folder / "configuration")).exit_code == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def run(analysed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in ./taut-runs, and its log beside it."""
    shutil.copytree(analysed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert taut_("audit", "adopt", "taut-runs").exit_code == 0  # a copy is another log
    (found,) = Path("taut-runs").glob("ops-*")
    return found


def test_a_verb_is_recorded_without_being_asked(run: Path) -> None:
    told = answer("audit", "log")
    assert [record["kind"] for record in told["records"]] == ["begin", "verb"]
    details = told["records"][1]["details"]
    assert (details["verb"], details["code"], details["outputs"][0]["name"]) == ("analyze", 0, str(run))
    assert set(details["outputs"][0]["files"]) == {path.name for path in run.iterdir()} - {"proof.txt"}
    digest = hashlib.sha256(Path("ops.csv").read_bytes()).hexdigest()
    assert details["read"] == [{"name": "ops.csv", "sha256": digest}]
    assert details["inputs"] == [{"name": "ops.csv", "sha256": digest, "what": "file"}]


def test_a_run_carries_its_proof_and_the_manifest_names_it_without_a_hash(run: Path) -> None:
    manifest = manifest_of(run)
    assert manifest is not None
    assert "proof.txt" not in manifest.files
    assert manifest.unhashed == ["proof.txt"]
    assert changed_files(run) == []
    assert (run / "proof.txt").read_text().startswith("c2sp.org/tlog-proof@v1\n")


def test_a_run_with_its_proof_is_replaced_as_before(run: Path) -> None:
    first = (run / "proof.txt").read_bytes()
    assert taut_("analyze", "ops.csv", "-q", "-o", run).exit_code == 0
    assert (run / "proof.txt").read_bytes() != first
    assert answer("audit", "verify", run)["ok"]


def test_a_run_and_its_log_verify_and_are_anchored_by_the_key(run: Path) -> None:
    key = taut_("audit", "proof", "--key").stdout.strip()
    told = answer("audit", "verify", run, "--key", key)
    assert {**told, "root": "", "log": ""} == {
        "ok": True, "anchored": True, "anchor": "key", "records": 2, "root": "", "first_bad": None, "kept": 2,
        "anchored_records": 2, "log": "", "redacted": 0, "pruned": 0, "run": str(run), "alone": None,
        "says": None,
    }  # fmt: skip


def test_a_changed_file_of_a_run_is_found(run: Path) -> None:
    data = bytearray((run / "ledger.parquet").read_bytes())
    data[100] ^= 1
    (run / "ledger.parquet").write_bytes(data)
    done = taut_("audit", "verify", run)
    assert done.exit_code == 5
    assert "ledger.parquet is not the file that its manifest lists" in " ".join(done.stdout.split())


def test_what_is_no_run_is_not_answered_by_the_log_beside_it(run: Path) -> None:
    (run / "run.json").unlink()
    for place, why in ((run, "is no run folder (no run.json)"), ("taut-runs/another", "is not there")):
        done = taut_("audit", "verify", place)
        assert (done.exit_code, f"{place}: {why}" in done.stderr) == (1, True)


def test_a_result_changed_together_with_its_manifest_is_found(run: Path) -> None:
    told = json.loads((run / "run.json").read_bytes())
    told["result"]["verdict"]["text"] = "All is well."
    (run / "run.json").write_text(json.dumps(told))
    done = taut_("audit", "verify", run)
    assert done.exit_code == 5
    assert "is not the run that record 1 tells of" in " ".join(done.stdout.split())


def test_a_run_without_its_proof_is_not_vouched_for_until_it_is_written_again(run: Path) -> None:
    (run / "proof.txt").unlink()
    assert taut_("audit", "verify", run).exit_code == 5
    assert taut_("audit", "proof", run).exit_code == 0
    assert taut_("audit", "verify", run).exit_code == 0


def test_a_file_that_is_added_later_changes_nothing(run: Path) -> None:
    pytest.importorskip("perfetto")
    assert taut_("export", run, "--to", "perfetto").exit_code == 0
    assert answer("audit", "verify", run)["records"] == 3


def test_a_damaged_log_is_exit_5_and_stops_no_verb(run: Path) -> None:
    log = run.parent / "audit.db"
    data = log.read_bytes()
    log.write_bytes(data[:-5000])
    assert taut_("audit", "verify").exit_code == 5
    done = taut_("compare", run, run)
    assert done.exit_code == 2
    done = taut_("export", "--to", "schema", "-o", "schema.json")
    assert done.exit_code == 0
    line = done.stderr.splitlines()[-1]
    assert line.startswith("taut: not recorded: taut-runs/audit.db: the audit log is damaged")


def test_what_cannot_be_recorded_is_one_line_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    schema = tmp_path / "schema.json"
    done = taut_("--audit", tmp_path / "file" / "audit.db", "export", "--to", "schema", "-o", schema)
    assert done.exit_code == 0
    assert schema.stat().st_size
    _, line = done.stderr.splitlines()
    assert line.startswith("taut: not recorded: ")
    assert "TAUT_AUDIT=off" in line


@pytest.mark.parametrize("place", ["before", "behind"])
def test_the_log_may_lie_elsewhere(tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where, verb = ["--audit", "elsewhere.db"], ["export", "--to", "schema", "-o", "schema.json"]
    assert taut_(*(where + verb if place == "before" else verb + where)).exit_code == 0
    assert answer("audit", "log", "--audit", "elsewhere.db")["size"] == 2
    assert not Path("taut-runs").exists()


def test_records_are_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert taut_("export", "--to", "schema", "-o", "schema.json", TAUT_AUDIT="off").exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.name != "configuration"] == ["schema.json"]


@pytest.mark.parametrize("verb", [["project", "--list"], ["project", "--show", "gpt-175b"], ["export", "--to", "schema"]])
def test_a_verb_that_reads_and_writes_nothing_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert taut_(*verb).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_refused_question_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert taut_("analyze", "nothing-here").exit_code == 4
    assert list(tmp_path.iterdir()) == []


def finding_of(run: Path) -> str:
    return str(json.loads((run / "run.json").read_bytes())["result"]["findings"][0]["id"])


def decided(run: Path, *more: str) -> str:
    words = ["--finding", finding_of(run), "--do", "replace the card", "--because", "third time", "--by", "somebody", *more]
    done = taut_("audit", "decide", run, *words)
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def test_from_finding_to_decision_to_outcome(run: Path) -> None:
    decision = decided(run, "--expect", "60 % ± 15")
    assert taut_("analyze", "mended.csv", "-q", "-o", "later").exit_code == 0
    told = answer("audit", "outcome", decision, "later")
    assert (told["says"], told["expected_from"]) == ("kept", "given")
    assert told["expected_saving"]["value"] == pytest.approx(0.6)
    assert told["measured_saving"]["value"] == pytest.approx(1 - 11.6 / 41.1, abs=0.01)
    chain = answer("audit", "why", told["record"])["chain"]
    kinds = [(link["depth"], link["record"]["kind"]) for link in chain]
    assert kinds == [(0, "outcome"), (1, "decision"), (2, "verb"), (1, "verb")]
    assert len(chain[2]["record"]["details"]["read"][0]["sha256"]) == 64
    shown = taut_("audit", "why", told["record"]).stdout
    assert "replace the card (by somebody)" in shown
    assert "60.0 % (45.0 % to 75.0 %)" in shown


def test_without_an_expectation_the_finding_gives_one_and_is_named(run: Path) -> None:
    details = answer("audit", "why", decided(run))["chain"][0]["record"]["details"]
    assert details["expected_from"] == "finding"
    assert 0 < details["expected"]["value"] < 1
    assert details["expected"]["lo"] < details["expected"]["value"] < details["expected"]["hi"]


def test_a_finding_that_is_not_there_is_named(run: Path) -> None:
    done = taut_("audit", "decide", run, "--finding", "f-no", "--do", "x", "--by", "y")
    assert done.exit_code == 2
    assert "--finding f-no" in done.stderr


@pytest.mark.parametrize("text", ["much", "28 ± much", "1e9", ""])
def test_an_expectation_that_is_none_is_refused(run: Path, text: str) -> None:
    done = taut_("audit", "decide", run, "--finding", "f", "--do", "x", "--by", "y", "--expect", text)
    assert (done.exit_code, "28 % ± 5" in done.stderr) == (2, True)


def analysed_as(folder: str, slow_ms: float) -> str:
    """A run of the same job, slower by so much."""
    Path(f"{folder}.csv").write_text(ops(slow_ms))
    assert taut_("analyze", f"{folder}.csv", "-q", "-o", folder).exit_code == 0
    return folder


def test_a_job_that_is_as_slow_as_before_missed_what_was_expected(run: Path) -> None:
    decision = decided(run, "--expect", "60 % ± 15")
    assert answer("audit", "outcome", decision, analysed_as("later", 30.5))["says"] == "missed"


def test_several_runs_tell_how_much_runs_differ(run: Path) -> None:
    decision = decided(run)
    one = answer("audit", "outcome", decision, analysed_as("first", 0.5))
    several = ["first", analysed_as("second", 0.6), analysed_as("third", 0.4)]
    told = answer("audit", "outcome", decision, *several, "--before", analysed_as("earlier", 29.5))
    assert (one["run_spread_from"], one["run_spread"]) == ("assumed", pytest.approx(0.02))
    assert (told["run_spread_from"], told["runs_before"], told["runs_after"]) == ("runs", 2, 3)
    assert told["run_spread"] < 0.02
    assert (
        told["measured_saving"]["hi"] - told["measured_saving"]["lo"]
        < one["measured_saving"]["hi"] - one["measured_saving"]["lo"]
    )
    assert "2 runs before, 3 after" in taut_("audit", "outcome", decision, *several, "--before", "earlier").stdout
    rests = [link["record"]["index"] for link in answer("audit", "why", told["record"])["chain"]]
    assert len(rests) == 7  # the outcome, its decision, and five runs


def test_a_decision_rests_on_its_run_also_when_the_same_run_is_written_again(run: Path) -> None:
    decision = decided(run)
    assert taut_("analyze", "ops.csv", "-q", "-o", "again").exit_code == 0
    assert [link["record"]["index"] for link in answer("audit", "why", decision)["chain"]] == [2, 1]
    assert answer("audit", "why", "again")["chain"][0]["record"]["index"] == 3


def test_an_outcome_of_an_older_version_is_read(run: Path) -> None:
    decision, later = decided(run), analysed_as("later", 0.5)
    saved: dict[str, Detail] = {"value": 0.7, "lo": 0.6, "hi": 0.8}
    digest = sealed(Path(later))["run.json"]
    with open_log(run.parent / "audit.db", "0.0.9") as log:
        log.append(
            OUTCOME, {"decision": int(decision), "run": digest, "run_name": Text(later), "says": "kept", "measured": saved}
        )
    assert [link["record"]["index"] for link in answer("audit", "why", 4)["chain"]] == [4, 2, 1, 3]
    assert "measured: 70.0 % (60.0 % to 80.0 %)" in taut_("audit", "why", 4).stdout


def test_a_run_counts_once(run: Path) -> None:
    decision, later = decided(run), analysed_as("later", 0.5)
    for words in ([later, later], [run], [later, "--before", run]):
        done = taut_("audit", "outcome", decision, *words)
        assert (done.exit_code, "is the same run as" in done.stderr) == (2, True)


def test_a_run_that_was_moved_or_replaced_is_asked_for(run: Path) -> None:
    decision, later = decided(run), analysed_as("later", 0.5)
    shutil.move(run, "moved")
    done = taut_("audit", "outcome", decision, later)
    assert (done.exit_code, f"its run was {run}, and is not there any more" in done.stderr) == (2, True)
    shutil.copytree(later, run)
    done = taut_("audit", "outcome", decision, later)
    assert (done.exit_code, "is another run now; give the run with --before RUN" in done.stderr) == (2, True)
    assert answer("audit", "outcome", decision, later, "--before", "moved")["says"] == "kept"


def test_what_is_left_in_every_fourth_step_counts_as_well(run: Path) -> None:
    decision = decided(run)
    Path("often.csv").write_text(ops(30, every=4))
    assert taut_("analyze", "often.csv", "-q", "-o", "often").exit_code == 0
    told = answer("audit", "outcome", decision, "often")
    assert told["measured_saving"]["value"] == pytest.approx(1 - (11.1 + 30 / 4) / 41.1, abs=0.01)


def test_a_run_of_another_job_is_no_outcome(run: Path) -> None:
    decision = decided(run)
    Path("other.csv").write_text("\n".join(line for line in ops(0.5).splitlines() if not line.startswith("3,")) + "\n")
    assert taut_("analyze", "other.csv", "-q", "-o", "other").exit_code == 0
    done = taut_("audit", "outcome", decision, "other")
    assert (done.exit_code, "cannot be compared" in done.stderr) == (2, True)


def test_an_outcome_of_what_is_no_decision_is_refused(run: Path) -> None:
    done = taut_("audit", "outcome", "1", run)
    assert (done.exit_code, "record 1 is no decision" in done.stderr) == (2, True)


def test_a_name_is_redacted_and_the_log_still_verifies(run: Path) -> None:
    decision = decided(run)
    assert taut_("audit", "redact", decision, "--text", "by").exit_code == 0
    assert b"somebody" not in (run.parent / "audit.db").read_bytes()
    shown = taut_("audit", "log").stdout
    assert "replace the card (by [taken out])" in shown
    assert answer("audit", "verify")["redacted"] == 1


def test_old_records_are_pruned_and_their_runs_still_verify(run: Path) -> None:
    assert taut_("audit", "prune", "--before", "2200-01-01").exit_code == 0
    told = answer("audit", "verify", run)
    assert (told["ok"], told["pruned"]) == (True, 1)


def test_of_a_pruned_record_the_run_still_tells_by_its_proof(run: Path) -> None:
    assert taut_("audit", "prune", "--before", "2200-01-01").exit_code == 0
    (link,) = answer("audit", "why", run)["chain"]
    assert (link["record"]["index"], link["record"]["details"]["verb"]) == (1, "analyze")
    assert taut_("audit", "proof", run).exit_code == 0  # the log has the record no more: it stays in the proof
    assert answer("audit", "verify", run)["ok"]
    assert answer("audit", "why", run)["chain"][0]["record"]["kind"] == "verb"


def test_a_checkpoint_kept_elsewhere_anchors(run: Path, tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text(taut_("audit", "proof").stdout)
    assert answer("audit", "verify", "--checkpoint", tmp_path / "kept.txt")["anchor"] == "checkpoint"
    done = taut_("audit", "verify", "--checkpoint", run / "proof.txt")
    assert (done.exit_code, "not a checkpoint" in done.stdout or "not a signed note" in done.stdout) == (5, True)


def test_a_log_that_was_set_back_is_not_signed_again(run: Path) -> None:
    log = run.parent / "audit.db"
    before = log.read_bytes()
    decided(run)
    assert taut_("audit", "proof").exit_code == 0
    log.write_bytes(before)
    done = taut_("audit", "proof")
    assert (done.exit_code, "was set back or replaced" in done.stderr) == (1, True)
    done = taut_("analyze", "ops.csv", "-q", "-o", "run")
    assert (done.exit_code, "not recorded: taut-runs/audit.db: was set back" in done.stderr) == (0, True)
    assert answer("audit", "log")["size"] == 2
    assert taut_("audit", "verify").exit_code == 5
    assert taut_("audit", "adopt", "taut-runs").exit_code == 0  # to go on from here is a decision
    assert taut_("analyze", "ops.csv", "-q", "-o", "run").stderr == ""
    assert answer("audit", "verify")["records"] == 3


def test_a_key_that_others_may_read_signs_nothing(run: Path) -> None:
    key = Path("configuration/taut/audit.pem")
    assert key.stat().st_mode & 0o777 == 0o600
    key.chmod(0o644)
    done = taut_("audit", "proof")
    assert (done.exit_code, "chmod 600" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("form", "code", "told"),
    [(lambda pem: pem.replace(b"\n", b"\r\n"), 0, ""), (lambda pem: pem[30:], 1, "holds no Ed25519 key")],
    ids=["of another system", "cut"],
)
def test_a_key_is_read_in_every_form_or_refused(run: Path, form: Callable[[bytes], bytes], code: int, told: str) -> None:
    key = Path("configuration/taut/audit.pem")
    key.write_bytes(form(key.read_bytes()))
    done = taut_("audit", "proof")
    assert (done.exit_code, told in done.stderr) == (code, True)


def recorded_but_warned(*more: str, **env: str) -> str:
    """The one line that a verb says when its answer stands and its record does not."""
    done = taut_("export", "--to", "schema", "-o", "schema.json", *more, **env)
    assert (done.exit_code, Path("schema.json").stat().st_size > 0) == (0, True)
    _, line = done.stderr.splitlines()
    return line


def test_a_log_of_a_later_version_stops_no_verb(run: Path) -> None:
    with sqlite3.connect(run.parent / "audit.db") as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    assert "was written by a later version of taut (layout 99, here 1); update taut" in recorded_but_warned()


def test_a_log_that_another_process_holds_stops_no_verb(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.audit.database.PATIENCE_S", 0.05)
    other = sqlite3.connect(run.parent / "audit.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert "another process has been writing to it for too long; try again" in recorded_but_warned()
    other.close()
    assert answer("audit", "verify", run)["records"] == 2


@pytest.mark.parametrize("home", [None, "", "relative", "/proc/nobody"])
def test_without_a_configuration_a_run_is_saved_and_not_recorded(
    run: Path, monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    done = taut_("analyze", "ops.csv", "-q", "-o", "again")
    assert done.exit_code == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("taut: not recorded: ")
    assert "set HOME or XDG_CONFIG_HOME" in line
    assert not Path("again/proof.txt").exists()
    assert answer("audit", "log")["size"] == 2


@pytest.fixture
def taken_away(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """The run in a folder where its log is not, and the key that was published."""
    key = taut_("audit", "proof", "--key").stdout.strip()
    (tmp_path / "far").mkdir()
    shutil.copytree(run, tmp_path / "far" / "run")
    monkeypatch.chdir(tmp_path / "far")
    return Path("run"), key


@pytest.mark.parametrize("place", ["run", "run/proof.txt"])
def test_a_run_or_a_proof_far_from_its_log_is_held_by_the_key_alone(taken_away: tuple[Path, str], place: str) -> None:
    _, key = taken_away
    told = answer("audit", "verify", place, "--key", key)
    assert (told["ok"], told["anchor"], told["alone"], told["records"], told["anchored_records"]) == (True, "key", 1, 2, 1)
    assert "its log is not here" in taut_("audit", "verify", place, "--key", key).stdout
    done = taut_("audit", "verify", place)
    assert (done.exit_code, "--key" in done.stderr) == (1, True)


def test_a_changed_run_far_from_its_log_is_found(taken_away: tuple[Path, str]) -> None:
    run, key = taken_away
    data = bytearray((run / "ledger.parquet").read_bytes())
    data[100] ^= 1
    (run / "ledger.parquet").write_bytes(data)
    assert taut_("audit", "verify", run, "--key", key).exit_code == 5


def test_a_proof_that_another_key_signed_is_not_held(taken_away: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    run, key = taken_away
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("another").absolute()))
    assert taut_("export", "--to", "schema", "-o", "schema.json").exit_code == 0
    other = taut_("audit", "proof", "--key").stdout.strip()
    done = taut_("audit", "verify", run, "--key", other)
    assert (done.exit_code, "is not signed by" in " ".join(done.stdout.split())) == (5, True)
    # Beside it lies a log that is not its own: that is said, and the key still holds it.
    assert "its proof is of another log" in " ".join(taut_("audit", "verify", run).stdout.split())
    assert taut_("audit", "verify", run).exit_code == 5
    assert answer("audit", "verify", run, "--key", key)["alone"] == 1
