"""A log that was changed is found out, and what comes before the change is kept."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from audit_logs import KEY, details, written
from taut.audit.adoption import adopt
from taut.audit.checkpoint import checkpoint_of
from taut.audit.database import connected
from taut.audit.log import open_log
from taut.audit.merkle import leaf_hash
from taut.audit.note import COSIGNATURE, Key, parted, public_key, signature_line
from taut.audit.record import VERB
from taut.audit.salvage import salvaged
from taut.audit.verify import Anchors, verify
from taut.core.errors import AuditError


def sql(path: Path, *commands: str) -> None:
    with connected(path) as connection:
        for command in commands:
            connection.execute(command)


def test_a_log_is_consistent_and_not_anchored_by_itself(tmp_path: Path) -> None:
    found = verify(written(tmp_path / "audit.db", 9, signed=True))
    assert (found.ok, found.anchored, found.anchor) == (True, False, None)
    assert (found.records, found.kept, found.first_bad) == (10, 10, None)


def test_a_key_anchors_what_it_signed(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 9, signed=True)
    with open_log(path, "1", create=True) as log:
        key = public_key(log.origin(), KEY)
        log.append(VERB, details(9))
    found = verify(path, Anchors(key=key))
    assert (found.ok, found.anchored, found.anchor, found.records, found.anchored_records) == (True, True, "key", 11, 10)


def test_another_key_anchors_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 3, signed=True)
    with open_log(path) as log:
        other = Key(log.origin(), 1, bytes(range(32)))
    found = verify(path, Anchors(key=other))
    assert (found.ok, found.anchored) == (False, False)
    assert "no checkpoint of it is signed by" in (found.says or "")


def test_a_checkpoint_that_somebody_kept_anchors(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 5, signed=True)
    with open_log(path, "1", create=True) as log:
        (kept,) = log.checkpoints()
        log.append(VERB, details(5))
    found = verify(path, Anchors(checkpoint=kept))
    assert (found.ok, found.anchor, found.anchored_records) == (True, "checkpoint", 6)


def test_a_log_that_was_written_anew_is_consistent_but_refused_by_a_kept_checkpoint(tmp_path: Path) -> None:
    with open_log(written(tmp_path / "audit.db", 5, signed=True)) as log:
        (kept,) = log.checkpoints()
    anew = written(tmp_path / "anew.db", 5, signed=True)
    assert verify(anew).ok
    found = verify(anew, Anchors(checkpoint=kept))
    assert not found.ok
    assert "of another log" in (found.says or "")


def test_a_log_that_was_set_back_is_refused_by_a_kept_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "audit.db", 5)
    before = path.read_bytes()
    with open_log(path, "1", create=True) as log:
        log.append(VERB, details(5))
        kept = log.sign(KEY)
    path.write_bytes(before)
    assert not verify(path, Anchors(checkpoint=kept)).ok
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "somebody-else"))
    assert verify(path).ok
    adopt(path)
    with open_log(path, "1", create=True) as log:
        log.append(VERB, details(6))
    found = verify(path, Anchors(checkpoint=kept))
    assert (found.ok, found.says) == (False, "the first 7 records are not those of the checkpoint")


def test_a_log_that_was_set_back_is_refused_by_who_signed_it(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 5)
    before = path.read_bytes()
    with open_log(path, "1", create=True) as log:
        log.append(VERB, details(5))
        log.sign(KEY)
    assert verify(path).ok
    path.write_bytes(before)
    found = verify(path)
    assert (found.ok, "set back" in (found.says or "")) == (False, True)


def cosigned(note: str, name: str, at_s: int) -> str:
    """A note with the line of one witness more, which saw it at a time (s since 1970)."""
    key, stamp = Key(name, COSIGNATURE, KEY.public_key().public_bytes_raw()), at_s.to_bytes(8)
    return f"{note}{signature_line(key, stamp + KEY.sign(key._signed(parted(note)[0], stamp)))}"


def test_a_witness_anchors(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 5, signed=True)
    with open_log(path) as log:
        (note,) = log.checkpoints()
    seen = cosigned(note, "witness.example/w", 1_700_000_000)
    witness = Key("witness.example/w", COSIGNATURE, KEY.public_key().public_bytes_raw())
    found = verify(path, Anchors(checkpoint=seen, witness=witness))
    assert (found.ok, found.anchor, found.anchored_records) == (True, "witness", 6)
    assert not verify(path, Anchors(checkpoint=note, witness=witness)).ok


def replaced(path: Path, index: int) -> None:
    """Another record in place of one, with the right hash."""
    with open_log(path) as log:
        body = log.raw()[index].body
    assert body is not None
    other = body.replace(b'"envelope":false', b'"envelope":true')
    sql(path, f"UPDATE records SET body = x'{other.hex()}', leaf = x'{leaf_hash(other).hex()}' WHERE id = {index}")


CHANGES: dict[str, tuple[Callable[[Path], None], int]] = {
    "a record changed": (lambda path: sql(path, "UPDATE records SET body = x'7b7d' WHERE id = 4"), 4),
    "a record replaced": (lambda path: replaced(path, 4), 4),
    "the last record replaced": (lambda path: replaced(path, 9), 9),
    "a record dropped": (lambda path: sql(path, "DELETE FROM records WHERE id = 4"), 4),
    "the last record dropped": (lambda path: sql(path, "DELETE FROM records WHERE id = 9"), 8),
    "the last two records dropped": (lambda path: sql(path, "DELETE FROM records WHERE id > 7"), 7),
    "two records exchanged": (
        lambda path: sql(path, *(f"UPDATE records SET id = {b} WHERE id = {a}" for a, b in ((4, 99), (5, 4), (99, 5)))),
        4,
    ),
    "a record taken out in silence": (lambda path: sql(path, "UPDATE records SET body = NULL, texts = NULL WHERE id = 4"), 4),
    "a text taken out in silence": (lambda path: sql(path, "UPDATE records SET texts = NULL WHERE id = 4"), 4),
    "a text of another record": (
        lambda path: sql(path, "UPDATE records SET texts = (SELECT texts FROM records WHERE id = 5) WHERE id = 4"),
        4,
    ),
    "a head set back": (lambda path: sql(path, "UPDATE head SET size = 8"), 9),
    "no head": (lambda path: sql(path, "DELETE FROM head"), 9),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_found_and_what_comes_before_is_kept(tmp_path: Path, change: str) -> None:
    path = written(tmp_path / "audit.db", 9)
    changed, first_bad = CHANGES[change]
    changed(path)
    found = verify(path)
    assert (found.ok, found.anchored, found.first_bad, found.kept) == (False, False, first_bad, first_bad)
    assert found.records == 10
    assert found.says


def test_a_signed_log_vouches_for_its_last_record_where_its_head_is_lost(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 9, signed=True)
    sql(path, "DELETE FROM head")
    found = verify(path)
    assert (found.ok, found.first_bad, found.kept, found.records) == (False, None, 10, 10)


def test_a_checkpoint_that_does_not_fit_is_found(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 4, signed=True)
    other = written(tmp_path / "other.db", 4, signed=True)
    with open_log(other) as log:
        (note,) = log.checkpoints()
    sql(path, f"UPDATE checkpoints SET note = x'{note.encode().hex()}'")
    assert "is of 5 other records" in (verify(path).says or "")
    assert checkpoint_of(note).size == 5


def test_nothing_is_appended_to_a_log_whose_end_is_damaged(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 9)
    sql(path, "DELETE FROM records WHERE id = 9")
    with pytest.raises(AuditError, match="damaged"), open_log(path, "1", create=True) as log:
        log.append(VERB, details(9))


def test_every_cut_within_the_last_three_records_is_found_and_whole_records_before_it_are_kept(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 12)
    with open_log(path) as log:
        rows = log.raw()
    data = path.read_bytes()
    begin = [data.find(row.body or b"") for row in rows]
    ends = [at + len(row.body or b"") + len(row.texts or b"") for at, row in zip(begin, rows, strict=True)]
    cut_file = tmp_path / "cut.db"
    for cut in range(min(begin[-3:]), len(data), 13):
        cut_file.write_bytes(data[:cut])
        found = verify(cut_file)
        whole = next((k for k, end in enumerate(ends) if end > cut), len(rows))
        # Nothing vouches for the record before the cut but one that follows it.
        assert not found.ok
        assert whole - 1 <= found.kept <= whole
        assert [row.id for row in salvaged(cut_file)][: found.kept] == list(range(found.kept))


def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 30, signed=True)
    data, sound = bytearray(path.read_bytes()), verify(path)
    with open_log(path) as log:
        rows = log.raw()
    flipped, rng = tmp_path / "flipped.db", random.Random(1)
    for bit in rng.sample(range(len(data) * 8), 150):
        data[bit >> 3] ^= 1 << (bit & 7)
        flipped.write_bytes(data)
        data[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = verify(flipped)
        except AuditError:
            continue
        if found.ok:
            with open_log(flipped) as log:
                assert (found.root, log.raw()) == (sound.root, rows)


def test_long_records_are_salvaged_too(tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    with open_log(path, "1", create=True) as log:
        for size in (10, 3000, 3700, 4000, 4100, 9000, 60000, 20):
            log.append(VERB, {"long": "x" * size})
        rows = log.raw()
    assert salvaged(path) == rows


def test_a_schema_that_is_no_text_is_damage_too(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 3)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE records", b"CREATE \xd4ABLE records"))
    found = verify(path)
    assert (found.ok, found.kept) == (False, 3)


def test_a_salt_has_one_spelling(tmp_path: Path) -> None:
    path = written(tmp_path / "audit.db", 9)
    with open_log(path) as log:
        texts, salt = log.raw()[4].texts, log.entry(4).texts["/inputs/0/name"].salt
    assert texts is not None
    other = texts.replace(salt.encode(), salt.upper().encode())  # the same bytes of salt, so the hash would still fit
    assert other != texts
    sql(path, f"UPDATE records SET texts = x'{other.hex()}' WHERE id = 4")
    found = verify(path)
    assert (found.ok, found.first_bad) == (False, 4)
