"""A log and a run folder of the version before are read, appended to and verified."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from audit_logs import KEY
from taut.audit import database, record
from taut.audit.log import open_log
from taut.audit.record import VERB, Detail, Text
from taut.audit.trail import verify_place
from taut.cli import main
from taut.core import folder
from taut.core.folder import PROOF, is_run_folder, save_folder, sealed

BEFORE = "0.0.1"


def answer(*args: object) -> Any:
    done = CliRunner().invoke(main, [*map(str, args), "--json"])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder and its log, every number of a layout one lower; the record lacks keys that came later."""
    with monkeypatch.context() as older:
        older.setattr(record, "FORMAT", record.FORMAT - 1)
        older.setattr(database, "LAYOUT", database.LAYOUT - 1)
        path = save_folder(
            tmp_path / "run", lambda _: {"format": folder.FORMAT - 1, "version": BEFORE, "digest": "00", "result": {}}
        )
        with open_log(tmp_path / "audit.db", BEFORE, create=True) as log:
            output: dict[str, Detail] = {"name": Text(str(path)), "files": dict(sealed(path))}
            proof = log.append(VERB, {"verb": "analyze", "outputs": [output]}, key=KEY).proof
    (path / PROOF).write_text(str(proof))
    monkeypatch.chdir(tmp_path)
    return path


def test_the_log_is_one_of_the_version_before(run: Path) -> None:
    with sqlite3.connect("audit.db") as file:
        assert file.execute("PRAGMA user_version").fetchone() == (database.LAYOUT - 1,)
        bodies = [json.loads(body) for (body,) in file.execute("SELECT body FROM records")]
    file.close()
    assert {body["format"] for body in bodies} == {record.FORMAT - 1}


def test_it_is_read(run: Path) -> None:
    assert is_run_folder(run)
    told = answer("audit", "log", "--audit", "audit.db")["records"][1]
    assert (told["version"], told["details"]["verb"]) == (BEFORE, "analyze")
    assert answer("audit", "why", run)["chain"][0]["record"]["index"] == 1


def test_it_is_appended_to_and_verified_with_its_run(run: Path) -> None:
    with open_log(Path("audit.db"), "2.0", create=True) as log:
        log.append(VERB, {"verb": "compare", "seed": "7"}, key=KEY)
    found = verify_place(run)
    assert (found.ok, found.records, found.says) == (True, 3, None)


def test_a_log_of_a_later_version_is_refused_and_left_as_it_is(run: Path) -> None:
    with sqlite3.connect("audit.db") as file:
        file.execute(f"PRAGMA user_version={database.LAYOUT + 1}")
    file.close()
    before = Path("audit.db").read_bytes()
    done = CliRunner().invoke(main, ["audit", "log", "--audit", "audit.db"])
    assert done.exit_code == 1
    assert "later version of taut" in done.stderr
    assert Path("audit.db").read_bytes() == before
