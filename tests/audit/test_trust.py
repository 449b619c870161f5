"""Whose logs are signed, whose commands are repeated, whose files are replaced: this user's, and nobody else's."""

from __future__ import annotations

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from taut import __version__
from taut.audit.log import open_log
from taut.audit.record import VERB, Text
from taut.cli import main

OPS = "rank,step,class,start_ms,duration_ms\n" + "".join(
    f"{r},{s},compute,{s * 20},{10 + r}\n" for s in range(3) for r in range(2)
)
NOT_MINE = "this user neither began nor adopted this audit log"


def taut_(*args: object, as_user: str = "me", given: bytes | None = None) -> Result:
    """A command of one of two users, who differ in their configuration."""
    home = Path(os.environ["XDG_CONFIG_HOME"]).parent / as_user
    runner = CliRunner(env={"TAUT_AUDIT": "on", "COLUMNS": "120", "XDG_CONFIG_HOME": str(home)})
    return runner.invoke(main, [str(arg) for arg in args], prog_name="taut", input=given)


def records() -> int:
    with open_log(Path("taut-runs/audit.db")) as log:
        return log.head().size


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with traces, a run and a log that a stranger made; the current folder."""
    folder = tmp_path / "of-a-stranger"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("ops.csv").write_text(OPS)
    assert taut_("analyze", "ops.csv", "--json", "-q", as_user="stranger").exit_code == 0
    return folder


def test_in_a_strangers_folder_a_run_is_saved_and_nothing_recorded(foreign: Path) -> None:
    log = Path("taut-runs/audit.db").read_bytes()
    done = taut_("analyze", "ops.csv", "-q", "-o", "mine")
    assert done.exit_code == 0
    assert done.stderr == (
        f"taut: not recorded: taut-runs/audit.db: {NOT_MINE}; to use it: taut audit adopt taut-runs/audit.db "
        "(TAUT_AUDIT=off records nothing)\n"
    )
    assert (Path("mine/run.json").exists(), Path("mine/proof.txt").exists()) == (True, False)
    assert Path("taut-runs/audit.db").read_bytes() == log


def test_a_log_is_used_once_it_was_adopted_and_no_longer_once_it_was_removed(foreign: Path) -> None:
    adopted = taut_("audit", "adopt", "taut-runs", "--json")
    (log,) = json.loads(adopted.stdout)["logs"]
    assert (log["since"], log["records"], [one["own"] for one in log["signers"]]) == ("adopted", 2, [False])
    assert taut_("analyze", "ops.csv", "-q", "-o", "mine").stderr == ""
    assert records() == 3
    assert taut_("audit", "verify", "mine").exit_code == 0
    listed = json.loads(taut_("audit", "adopt", "--json").stdout)["logs"]
    assert [(one["log"], one["path"]) for one in listed] == [(log["log"], str(foreign / "taut-runs/audit.db"))]
    signers = json.loads(taut_("audit", "adopt", "taut-runs", "--json").stdout)["logs"][0]["signers"]
    assert [(one["own"], one["records"]) for one in signers] == [(True, 3), (False, 2)]
    assert taut_("audit", "adopt", "--remove", "taut-runs").exit_code == 0
    assert NOT_MINE in taut_("analyze", "ops.csv", "-q", "-o", "mine").stderr
    assert "you use no audit log yet" in taut_("audit", "adopt").stdout


def test_a_log_that_is_gone_can_be_removed_by_where_it_was(foreign: Path) -> None:
    assert taut_("audit", "adopt", "taut-runs/audit.db").exit_code == 0
    shutil.rmtree("taut-runs")
    assert taut_("audit", "adopt", "--remove", "taut-runs/audit.db").exit_code == 0
    assert json.loads(taut_("audit", "adopt", "--json").stdout)["logs"] == []


def test_a_log_that_does_not_verify_is_not_adopted(foreign: Path) -> None:
    path = Path("taut-runs/audit.db")
    path.write_bytes(path.read_bytes().replace(b'"kind":"verb"', b'"kind":"Verb"'))
    done = taut_("audit", "adopt", "taut-runs")
    assert (done.exit_code, "is not adopted, because it does not verify" in done.stderr) == (5, True)


@pytest.mark.parametrize(
    "words", [("proof",), ("proof", "1"), ("proof", "--key"), ("redact", "1"), ("prune", "--before", "2030-01-01")]
)
def test_nothing_of_a_stranger_is_signed_or_changed(foreign: Path, words: tuple[str, ...]) -> None:
    log = Path("taut-runs/audit.db").read_bytes()
    done = taut_("audit", *words)
    assert (done.exit_code, NOT_MINE in done.stderr) == (1, True)
    assert Path("taut-runs/audit.db").read_bytes() == log


def test_a_command_of_a_stranger_is_not_run(foreign: Path) -> None:
    assert taut_("audit", "why", "1", "--again", "--yes", as_user="stranger").exit_code == 0
    for _ in range(2):  # also not when the log was adopted, and is signed by its new keeper
        done = taut_("audit", "why", "1", "--again", "--yes")
        assert (done.exit_code, "does not carry the mark of your key" in done.stderr) == (2, True)
        assert taut_("audit", "adopt", "taut-runs").exit_code == 0
        assert taut_("analyze", "ops.csv", "-q").exit_code == 0


def forged(*words: str, **told: object) -> Result:
    """``--again`` of a record that this user's key marked, whatever it says."""
    log = Path("own/audit.db")
    details = {"verb": words[0], "arguments": [Text(word) for word in words], "code": 0, "printed": "0" * 64} | told
    os.environ["XDG_CONFIG_HOME"] = str(Path(os.environ["XDG_CONFIG_HOME"]).parent / "me")
    with open_log(log, __version__, create=True) as opened:
        index = opened.append(VERB, details).index  # type: ignore[arg-type]
    return taut_("audit", "why", index, "--again", "--yes", "--audit", log)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("serve", "."), "only analyze, bill, brief, compare, control, demo, export, project, whatif are, which only compute"),
        (("watch", "pull", "host:1"), "only analyze"),
        (("lab", "matrix"), "only analyze"),
        (("audit", "redact", "1"), "only analyze"),
        (("analyze", "x", "--on", "dask://host:8786"), "inputs at addresses cannot be repeated"),
        (("compare", "s3://bucket/run", "other"), "inputs at addresses cannot be repeated"),
        (("analyze", "x", "--metrics=http://host:9090"), "inputs at addresses cannot be repeated"),
        (("analyze", "x", "-o", "/tmp/elsewhere"), "writes to /tmp/elsewhere, which its record does not list"),
        (("analyze", "x", "-o", "../../elsewhere"), "which its record does not list"),
        (("--no-such-option", "analyze", "x"), "is no command of this version of taut"),
    ],
)
def test_what_does_more_than_compute_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", os.environ["XDG_CONFIG_HOME"])
    monkeypatch.setattr("taut.cli.again.ran", lambda *_: pytest.fail("it was run"))
    done = forged(*words)
    assert (done.exit_code, why in done.stderr) == (2, True), done.stderr


def test_a_command_is_shown_and_asked_for_on_a_terminal(foreign: Path) -> None:
    env = {**os.environ, "TAUT_AUDIT": "on", "XDG_CONFIG_HOME": str(foreign.parent / "stranger")}
    for answer, code in ((b"n\n", 1), (b"y\n", 0)):
        outer, inner = pty.openpty()
        os.write(outer, answer)
        words = [sys.executable, "-m", "taut", "audit", "why", "1", "--again"]
        done = subprocess.run(words, stdin=inner, stdout=subprocess.PIPE, stderr=inner, env=env, check=False)
        os.set_blocking(outer, False)
        said = os.read(outer, 1 << 16).decode()
        assert (done.returncode, b"gives the same bytes" in done.stdout) == (code, not code), said
        assert "record 1: taut analyze ops.csv --json -q" in said
        os.close(inner), os.close(outer)


def test_without_a_terminal_it_is_not_run_unless_agreed_to(foreign: Path) -> None:
    done = taut_("audit", "why", "1", "--again", as_user="stranger")
    assert (done.exit_code, "without a terminal give --yes" in done.stderr) == (2, True)


def test_a_command_that_is_run_again_sees_no_secret(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def ran(words: list[str], here: Path, env: dict[str, str], given: bytes) -> subprocess.CompletedProcess[bytes]:
        seen.append(env)
        return subprocess.CompletedProcess(words, 0, b"", b"")

    monkeypatch.setattr("taut.cli.again.ran", ran)
    monkeypatch.setenv("TAUT_WATCH_SECRET", "of the collector")
    taut_("audit", "why", "1", "--again", "--yes", as_user="stranger")
    assert [name for name in seen[0] if name.startswith("TAUT_")] == ["TAUT_AUDIT"]


@pytest.mark.parametrize("words", [("export", "--to", "schema", "-o", "FILE"), ("export", "RUN", "--to", "html", "-o", "FILE")])
def test_files_of_others_are_replaced_only_by_force(foreign: Path, words: tuple[str, ...]) -> None:
    if "html" in words:
        pytest.importorskip("altair")
    assert taut_("analyze", "ops.csv", "-q", "-o", "mine").exit_code == 0
    words = tuple({"FILE": "report", "RUN": "mine"}.get(word, word) for word in words)
    path = Path("report")
    path.write_text("mine")
    done = taut_(*words)
    assert (done.exit_code, "was not written by taut; give --force to replace it" in done.stderr) == (2, True)
    assert path.read_text() == "mine"
    assert taut_(*words, "--force").exit_code == 0
    made = path.read_bytes()
    assert taut_(*words).exit_code == 0  # what taut wrote, it replaces
    assert path.read_bytes() == made
    with path.open("a") as out:
        out.write("a note")
    done = taut_(*words)
    assert (done.exit_code, "was changed since taut wrote it" in done.stderr) == (2, True)


def test_a_file_that_is_replaced_stays_as_private_as_it_was(foreign: Path) -> None:
    path = Path("schema.json")
    path.touch(0o600)
    assert taut_("export", "--to", "schema", "-o", path, "--force").exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_of_an_earlier_version_is_still_ones_own(foreign: Path) -> None:
    """Before logs were known by name, only the last checkpoint that was signed was kept."""
    home = foreign.parent / "stranger" / "taut"
    (entry,) = (home / "logs").iterdir()
    known = json.loads(entry.read_text())
    (home / "signed").mkdir()
    (home / "signed" / f"{entry.stem}.txt").write_text(known["checkpoint"])
    entry.unlink()
    listed = json.loads(taut_("audit", "adopt", "--json", as_user="stranger").stdout)["logs"]
    assert [(one["log"], one["since"]) for one in listed] == [(known["origin"], "signed")]
    assert taut_("analyze", "ops.csv", "-q", "-o", "more", as_user="stranger").stderr == ""
    assert records() == 3
