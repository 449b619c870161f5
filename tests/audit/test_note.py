"""Notes, checkpoints and proofs as text: what was signed is accepted, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit_logs import KEY, written
from taut.audit.checkpoint import Checkpoint, Proof, checkpoint_of, proof_of
from taut.audit.log import open_log
from taut.audit.merkle import inclusion, leaf_hash, root_of
from taut.audit.note import BadNote, is_signed_by, key_of, public_key, signed
from taut.core.errors import UsageError

NAME = "example.com/log"
VERIFIES = public_key(NAME, KEY)
LEAVES = [leaf_hash(bytes([k])) for k in range(21)]
NOTE = signed(str(Checkpoint(NAME, 21, root_of(LEAVES))), NAME, KEY)
PROOF = str(Proof(13, tuple(inclusion(LEAVES, 13)), NOTE, bytes([13])))


def accepted(text: str) -> bool:
    """Whether a stranger who trusts the key believes that record 13 is byte 13."""
    try:
        proof = proof_of(text)
        return proof.index == 13 and proof.holds(bytes([13])) and is_signed_by(proof.note, VERIFIES)
    except BadNote:
        return False


def test_what_was_signed_is_accepted() -> None:
    assert accepted(PROOF)
    assert str(proof_of(PROOF)) == PROOF
    assert checkpoint_of(NOTE) == Checkpoint(NAME, 21, root_of(LEAVES))


@given(st.integers(0, len(PROOF.encode()) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_unless_it_says_nothing(at: int, by: int) -> None:
    data = bytearray(PROOF.encode())
    data[at] ^= by
    text = data.decode("utf-8", "replace")
    extra = PROOF.index("extra "), PROOF.index("\nindex")
    # What is carried along is not believed: the record is the verifier's own.
    assert not accepted(text) or extra[0] <= at < extra[1]


@given(st.integers(0, len(PROOF) - 1))
def test_a_proof_that_is_cut_is_refused(at: int) -> None:
    assert not accepted(PROOF[:at])


def test_a_signature_of_a_known_key_that_is_wrong_spoils_the_note() -> None:
    wrong = signed(str(Checkpoint(NAME, 22, root_of(LEAVES))), NAME, KEY).rpartition("\n\n")[2]
    assert is_signed_by(NOTE, VERIFIES)
    assert not is_signed_by(NOTE + wrong, VERIFIES)


def test_lines_of_unknown_keys_do_not_count() -> None:
    other = signed(str(Checkpoint(NAME, 21, root_of(LEAVES))), "other", KEY).rpartition("\n\n")[2]
    assert is_signed_by(NOTE + other, VERIFIES)
    assert not is_signed_by(NOTE, public_key("other", KEY))


def test_a_key_is_one_line_of_text() -> None:
    assert key_of(str(VERIFIES)) == VERIFIES
    assert str(VERIFIES).startswith("example.com/log+")


@pytest.mark.parametrize(
    "text", ["", "example.com/log", str(VERIFIES)[:-4], str(VERIFIES).replace("+", "+0", 1), "a b+00+AQ=="]
)
def test_what_is_no_key_is_named(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no key|its id should be"):
        key_of(text)


@pytest.mark.parametrize("size", ["-1", "01", "", "x", "1" * 30])
def test_a_size_has_one_spelling(size: str) -> None:
    lines = str(Checkpoint(NAME, 21, root_of(LEAVES))).split("\n")
    with pytest.raises(BadNote):
        checkpoint_of(signed("\n".join([lines[0], size, *lines[2:]]), NAME, KEY))


def test_the_proof_of_a_record_is_its_text(tmp_path: Path) -> None:
    with open_log(written(tmp_path / "audit.db", 6)) as log:
        proof = log.proof(4, KEY)
        body, key = log.entry(4).body, public_key(log.origin(), KEY)
    again = proof_of(str(proof))
    assert again.record == body
    assert again.holds()
    assert is_signed_by(again.note, key)
