"""Texts and old records go, and the log still proves what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit_logs import AT_NS, KEY, written
from taut.audit.log import open_log
from taut.audit.note import public_key
from taut.audit.record import VERB, Text, stamp
from taut.audit.retention import prune, redact
from taut.audit.verify import Anchors, verify
from taut.core.errors import UsageError

MINUTE_NS = 60_000_000_000


def test_a_redacted_text_is_nowhere_in_the_file_and_all_proofs_hold(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 8, signed=True)
    with open_log(path, "1", create=True) as log:
        proof, key = log.proof(3, KEY), public_key(log.origin(), KEY)
        assert b"of-somebody-2" in path.read_bytes()
        redact(log, 3, because="asked for by the person")
        assert log.entry(3).texts == {}
    assert b"of-somebody-2" not in path.read_bytes()
    assert b"of-somebody-3" in path.read_bytes()
    assert proof.holds()
    found = verify(path, Anchors(key=key))
    assert (found.ok, found.anchored, found.redacted, found.records) == (True, True, 1, 10)


def test_one_of_several_texts_is_redacted(tmp_path: Path) -> None:
    with open_log(tmp_path / "audit.db", "1", create=True) as log:
        log.append(
            VERB, {"do": Text("replace it"), "by": Text("somebody"), "inputs": [{"name": Text("a")}, {"name": Text("b")}]}
        )
        redact(log, 1, ["by", "inputs"])
        assert {place: kept.text for place, kept in log.entry(1).texts.items()} == {"/do": "replace it"}
        with pytest.raises(UsageError, match="has no such text; it has /do"):
            redact(log, 1, ["by"])
    assert verify(tmp_path / "audit.db").redacted == 3


def test_what_is_pruned_leaves_its_hash(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 40, signed=True)
    with open_log(path, "1", create=True) as log:
        proof, before = log.proof(7, KEY), path.stat().st_size
        done = prune(log, stamp(AT_NS + 30 * MINUTE_NS))
        assert done is not None
        assert log.entry(7).body is None
        assert log.entry(31).body is not None
        later = log.proof(7, KEY)
        assert prune(log, stamp(AT_NS + 30 * MINUTE_NS)) is None
    assert later.holds(proof.record)
    assert b"of-somebody-6" not in path.read_bytes()
    assert path.stat().st_size == before
    found = verify(path)
    assert (found.ok, found.pruned, found.records) == (True, 30, 42)


def test_a_clock_that_jumped_back_makes_no_record_old(tmp_path: Path) -> None:
    with open_log(tmp_path / "audit.db", "1", create=True) as log:
        for at_ns in (AT_NS, AT_NS + 9 * MINUTE_NS, 0, AT_NS + 10 * MINUTE_NS):
            log.append(VERB, {}, at_ns=at_ns)
        prune(log, stamp(AT_NS + 5 * MINUTE_NS))
        assert [entry.index for entry in log.entries() if entry.body is None] == [1]


def test_records_that_tell_what_was_taken_out_stay(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 3)
    with open_log(path, "1", create=True) as log:
        redact(log, 2)
        prune(log, "9999")
        assert [entry.record.kind for entry in log.entries() if entry.record is not None] == ["begin", "redaction", "prune"]
    found = verify(path)
    assert (found.ok, found.pruned) == (True, 3)
