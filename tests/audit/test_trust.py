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
from taut.audit.database import SUPER_JOURNAL, connected
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
    done = taut_("audit", "why", "1", "--again", "--yes")
    assert (done.exit_code, NOT_MINE in done.stderr) == (1, True)
    assert taut_("audit", "adopt", "taut-runs").exit_code == 0
    assert taut_("analyze", "ops.csv", "-q").exit_code == 0  # which signs the whole log
    done = taut_("audit", "why", "1", "--again", "--yes")
    assert (done.exit_code, "carries no mark of your key" in done.stderr) == (2, True)


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
        (("lab", "matrix"), "is no command of this version"),
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
    assert (done.exit_code, "is not known to be written by taut; give --force to replace it" in done.stderr) == (2, True)
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
    (home / "signed" / f"{entry.stem}.txt").write_text(taut_("audit", "proof", as_user="stranger").stdout)
    entry.unlink()
    listed = json.loads(taut_("audit", "adopt", "--json", as_user="stranger").stdout)["logs"]
    assert [(one["log"], one["since"]) for one in listed] == [(known["origin"], "signed")]
    assert taut_("analyze", "ops.csv", "-q", "-o", "more", as_user="stranger").stderr == ""
    assert records() == 3


def test_a_copy_is_another_log_until_it_is_adopted(foreign: Path) -> None:
    me = {"as_user": "stranger"}
    shutil.copytree("taut-runs", "copy")
    log = Path("copy/audit.db").read_bytes()
    done = taut_("analyze", "ops.csv", "-q", "-o", "more", "--audit", "copy/audit.db", **me)
    assert f"is a copy of the log at {foreign}/taut-runs/audit.db, which you use" in done.stderr
    assert Path("copy/audit.db").read_bytes() == log
    assert taut_("audit", "adopt", "copy", **me).exit_code == 0
    assert taut_("analyze", "ops.csv", "-q", "-o", "more", "--audit", "copy/audit.db", **me).stderr == ""
    for place in ("copy", "taut-runs"):  # neither is accused of what happened to the other
        assert taut_("audit", "verify", place, **me).exit_code == 0
    assert "is a copy of the log at" in taut_("analyze", "ops.csv", "-q", "-o", "more", **me).stderr


def test_a_log_that_was_moved_is_the_same(foreign: Path) -> None:
    Path("taut-runs").rename("moved")
    assert taut_("analyze", "ops.csv", "-q", "-o", "more", "--audit", "moved/audit.db", as_user="stranger").stderr == ""
    assert taut_("audit", "verify", "moved", as_user="stranger").exit_code == 0


def test_another_history_under_the_name_of_ones_own_log_is_refused(foreign: Path) -> None:
    """The name of a log is public: a stranger may begin his own with the first record of it."""
    path = Path("taut-runs/audit.db")
    assert taut_("audit", "adopt", "taut-runs").exit_code == 0
    with_one = path.read_bytes()
    assert taut_("export", "--to", "schema", "-o", "mine.json").exit_code == 0
    path.write_bytes(with_one)
    assert taut_("export", "--to", "schema", "-o", "theirs.json", as_user="other").exit_code == 0
    assert taut_("audit", "adopt", "taut-runs", as_user="other").exit_code == 0
    assert taut_("export", "--to", "schema", "-o", "theirs.json", as_user="other").exit_code == 0
    log = path.read_bytes()
    assert "was set back or replaced" in taut_("analyze", "ops.csv", "-q", "-o", "more").stderr
    assert taut_("audit", "verify").exit_code == 5
    assert path.read_bytes() == log


def test_two_users_write_to_one_log_by_turns(foreign: Path) -> None:
    assert taut_("audit", "adopt", "taut-runs").exit_code == 0
    for turn in range(3):
        for user in ("me", "stranger"):
            assert taut_("analyze", "ops.csv", "-q", "-o", f"{user}{turn}", as_user=user).stderr == ""
    assert [taut_("audit", "verify", as_user=user).exit_code for user in ("me", "stranger")] == [0, 0]


@pytest.mark.parametrize("verb", [("log",), ("verify",), ("why", "1"), ("adopt", "taut-runs"), ("proof",)])
def test_sqlite_deletes_nothing_that_a_journal_names(foreign: Path, verb: tuple[str, ...]) -> None:
    precious = foreign / "precious.txt"
    precious.write_text("mine")
    named = str(precious).encode()
    record = (1 << 30).to_bytes(4) + named + len(named).to_bytes(4) + sum(named).to_bytes(4) + SUPER_JOURNAL
    head = (
        bytes.fromhex("d9d505f920a163d7")
        + (0).to_bytes(4)
        + bytes(8)
        + (4).to_bytes(4)
        + (512).to_bytes(4)
        + (4096).to_bytes(4)
    )
    Path("taut-runs/audit.db-journal").write_bytes(head.ljust(512, b"\0") + record)
    done = taut_("audit", *verb)
    assert (done.exit_code, precious.read_text()) == (5, "mine")
    assert "names another file" in done.stdout + done.stderr


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_what_lies_beside_a_log_is_no_link(foreign: Path, suffix: str) -> None:
    target = foreign / "precious.txt"
    target.write_text("mine")
    Path(f"taut-runs/audit.db{suffix}").symlink_to(target)
    done = taut_("audit", "log")
    assert (done.exit_code, "which no log of taut's has" in done.stderr, target.read_text()) == (5, True, "mine")


def test_a_log_with_a_name_of_another_form_is_damaged(foreign: Path) -> None:
    """What is signed begins with the name: one with line feeds in it would sign other records of other logs."""
    path = Path("evil.db")
    with pytest.MonkeyPatch.context() as there:
        there.setenv("XDG_CONFIG_HOME", str(foreign.parent / "evil"))
        there.setattr("taut.audit.log.ORIGIN", "taut/audit/00\n3\nAAAA\n")
        with open_log(path, "1", create=True) as log:
            log.append(VERB, {"x": 1})
    for words in (("adopt", path), ("proof", "--audit", path), ("log", "--audit", path), ("verify", path)):
        assert taut_("audit", *words).exit_code == 5


def test_a_record_that_was_moved_to_another_place_is_not_run(foreign: Path) -> None:
    with connected(Path("taut-runs/audit.db")) as connection:
        connection.execute("UPDATE records SET id = 7 WHERE id = 1")
        connection.execute("INSERT INTO records SELECT 1, leaf, body, texts FROM records WHERE id = 7")
        connection.execute("UPDATE head SET size = 8")
    done = taut_("audit", "why", "1", "--again", "--yes", as_user="stranger")
    assert (done.exit_code, "gives the same bytes" in done.stdout) == (5, False)


def test_a_file_that_somebody_writes_meanwhile_is_kept(foreign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile() -> bytes:
        Path("schema.json").write_text("mine")
        return b"{}"

    monkeypatch.setattr("taut.result.schema.stored_schema", meanwhile)
    done = taut_("export", "--to", "schema", "-o", "schema.json")
    assert (done.exit_code, "was written by somebody else meanwhile" in done.stderr) == (2, True)
    assert Path("schema.json").read_text() == "mine"


def test_a_file_whose_times_were_set_back_is_another(foreign: Path) -> None:
    path = Path("schema.json")
    assert taut_("export", "--to", "schema", "-o", path).exit_code == 0
    found, data = path.stat(), bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert taut_("export", "--to", "schema", "-o", path).exit_code == 2


def test_a_link_is_not_replaced(foreign: Path) -> None:
    Path("elsewhere").write_text("mine")
    for name, target in (("link", "elsewhere"), ("dangling", "nowhere")):
        Path(name).symlink_to(target)
        assert taut_("export", "--to", "schema", "-o", name).exit_code == 2
        assert Path(name).is_symlink()


def test_a_run_that_is_written_once_more_keeps_its_proof_and_its_modes(foreign: Path) -> None:
    me = {"as_user": "stranger"}
    assert taut_("analyze", "ops.csv", "-q", "-o", "run", **me).exit_code == 0
    proof = Path("run/proof.txt").read_bytes()
    Path("run/ops.parquet").chmod(0o600)
    assert CliRunner(env={"TAUT_AUDIT": "off"}).invoke(main, ["analyze", "ops.csv", "-q", "-o", "run"]).exit_code == 0
    assert (Path("run/proof.txt").read_bytes(), Path("run/ops.parquet").stat().st_mode & 0o777) == (proof, 0o600)
    assert taut_("audit", "verify", "run", **me).exit_code == 0


def test_a_log_that_is_gone_is_missed_when_a_new_one_begins(foreign: Path) -> None:
    Path("taut-runs/audit.db").unlink()
    done = taut_("analyze", "ops.csv", "-q", as_user="stranger")
    assert "a new audit log begins; the one that lay here, with 2 of your records, is gone" in done.stderr


def test_the_journal_of_another_writer_is_no_damage(foreign: Path) -> None:
    words = "from pathlib import Path\nfrom taut.audit.log import open_log\nfor k in range(40):\n"
    words += "    with open_log(Path('taut-runs/audit.db'), '1', create=True) as log:\n        log.append('verb', {'k': k})\n"
    env = {**os.environ, "XDG_CONFIG_HOME": str(foreign.parent / "stranger")}
    both = [subprocess.Popen([sys.executable, "-c", words], env=env, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[1] for one in both] == ["", ""]
    assert (records(), taut_("audit", "verify", as_user="stranger").exit_code) == (82, 0)
