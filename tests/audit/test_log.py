"""What is appended is there, in order, and says what was recorded."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
import rfc8785

from audit_logs import AT_NS, KEY, details, written
from taut.audit.database import connected
from taut.audit.log import open_log
from taut.audit.record import VERB, Text, revealed, stamp, unmarked
from taut.audit.verify import verify
from taut.core.errors import AuditError, DamagedLog, UsageError


def test_a_record_says_what_was_recorded_and_hides_its_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 2)
    with open_log(path) as log:
        entry = log.entry(2)
    assert entry.record is not None
    assert (entry.record.kind, entry.record.index, entry.record.version) == ("verb", 2, "1.2.3")
    assert entry.record.at == "2023-11-14T22:14:20.000000Z"
    assert entry.body is not None
    assert b"somebody" not in entry.body
    assert revealed(entry.record.details, entry.texts) == {
        "verb": "analyze",
        "inputs": [{"name": "traces/of-somebody-1", "sha256": f"{1:064x}"}],
        "options": {"envelope": False},
    }


def test_a_record_is_canonical_json(tmp_path: Path) -> None:
    with open_log(tmp_path / "audit.db", "1", create=True) as log:
        body = log.append(
            VERB, {"z": 1.0, "a": Decimal("2.50"), "n": 1 << 60, "é": True, "nan": float("nan")}, at_ns=AT_NS
        ).body
    plain, mark = unmarked(body)
    assert plain.startswith(b'{"at":"2023-11-14T22:13:20.000000Z","before":"')
    assert body.startswith(b'{"at":"2023-11-14T22:13:20.000000Z"' + mark + b',"before":"')
    assert rfc8785.dumps(json.loads(body)) == body
    assert '"details":{"a":"2.50","n":"1152921504606846976","nan":"nan","z":1,"é":true},"format":1,"index":1'.encode() in body
    assert json.loads(body)["kind"] == "verb"


def test_a_text_of_bytes_that_are_no_characters_is_recorded(tmp_path: Path) -> None:
    with open_log(tmp_path / "audit.db", "1", create=True) as log:
        log.append(VERB, {"name": Text("caf\udce9")})
        assert log.entry(1).texts["/name"].text == "caf?"
    assert verify(tmp_path / "audit.db").ok


def test_two_logs_have_different_names_and_salts(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a.db", 1), written(tmp_path / "b.db", 1)
    assert verify(first).log != verify(second).log
    with open_log(first) as one, open_log(second) as other:
        assert one.entry(1).texts["/inputs/0/name"].hash != other.entry(1).texts["/inputs/0/name"].hash


def test_the_clock_may_jump(tmp_path: Path) -> None:
    with open_log(tmp_path / "audit.db", "1", create=True) as log:
        for at_ns in (AT_NS, 0, -(10**21), 10**21, AT_NS):
            log.append(VERB, {}, at_ns=at_ns)
        times = [entry.record.at[:4] for entry in log.entries() if entry.record is not None]
    assert times == ["2023", "2023", "1970", "0001", "9999", "2023"]
    assert verify(tmp_path / "audit.db").ok


def test_a_stamp_is_a_time_of_the_calendar() -> None:
    assert stamp(1) == "1970-01-01T00:00:00.000000Z"


def test_a_proof_is_carried_with_a_signed_record(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    with open_log(path, "1", create=True) as log:
        for k in range(20):
            proof = log.append(VERB, details(k), key=KEY).proof
            assert proof is not None
            assert proof.holds()
            assert (proof.index, proof.checkpoint.size) == (k + 1, k + 2)
        later = log.proof(3, KEY)
    assert later.holds()
    assert (later.index, later.checkpoint.size) == (3, 21)


def test_a_record_that_is_not_there_is_named(tmp_path: Path) -> None:
    with open_log(written(tmp_path / "audit.db", 1)) as log, pytest.raises(UsageError, match="has no record 7"):
        log.entry(7)


def test_no_log_and_an_empty_one_are_told_apart_from_damage(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="there is no audit log"), open_log(tmp_path / "audit.db"):
        pass
    (tmp_path / "audit.db").touch()
    with pytest.raises(AuditError, match="holds no record yet"), open_log(tmp_path / "audit.db") as log:
        log.entries()


def test_a_database_of_others_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(AuditError, match="no audit log of taut's"), open_log(path, "1", create=True) as log:
        log.append(VERB, {})
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but longer than the header of one, which is a hundred bytes long" * 3)
    with pytest.raises(DamagedLog, match="move it away"), open_log(path, "1", create=True) as log:
        log.append(VERB, {})


def test_a_log_of_a_later_version_is_refused_and_named(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 1)
    with connected(path) as connection:
        connection.execute("PRAGMA user_version=99")
    with pytest.raises(AuditError, match="later version of taut"), open_log(path, "1", create=True) as log:
        log.append(VERB, {})


def test_a_writer_that_holds_the_log_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "audit.db", 1)
    monkeypatch.setattr("taut.audit.database.PATIENCE_S", 0.05)
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AuditError, match="another process"), open_log(path, "1", create=True) as log:
            log.append(VERB, {})


WRITER = """
import sys
from pathlib import Path
from taut.audit.log import open_log
for k in range(int(sys.argv[2])):
    with open_log(Path(sys.argv[1]), "1", create=True) as log:
        print(log.append("verb", {"k": k}).index, flush=True)
"""


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "audit.db"), "15"]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [int(line) for writer in writers for line in writer.communicate(timeout=60)[0].split()]
    assert sorted(told) == list(range(1, 31))
    found = verify(tmp_path / "audit.db")
    assert (found.ok, found.records) == (True, 31)


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (24_000, 24_000))


def test_a_disk_without_room_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    writer = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)" + WRITER
    done = subprocess.run(
        [sys.executable, "-c", writer, str(path), "300"],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        timeout=60,
        check=False,
    )
    told = [int(line) for line in done.stdout.split()]
    assert done.returncode == 1
    assert "AuditError" in done.stderr.splitlines()[-1]
    assert "cannot be used" in done.stderr.splitlines()[-1]
    found = verify(path)
    assert (found.ok, found.records) == (True, told[-1] + 1)


def test_a_folder_that_cannot_be_written_is_one_line() -> None:
    path = Path("/proc/self/audit.db")  # not even root makes files there
    with pytest.raises(AuditError, match="cannot be opened"), open_log(path, "1", create=True) as log:
        log.append(VERB, {})


def test_a_file_in_the_way_of_the_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taut-runs").touch()
    with (
        pytest.raises(AuditError, match="its folder cannot be made"),
        open_log(tmp_path / "taut-runs" / "audit.db", create=True),
    ):
        pass


def test_two_open_logs_of_one_file_go_on_from_each_other(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 1)
    with open_log(path, "1") as one, open_log(path, "1") as other:
        numbers = [log.append(VERB, details(k)).index for k in range(3) for log in (one, one, other)]
    assert numbers == list(range(2, 11))
    assert verify(path).ok
