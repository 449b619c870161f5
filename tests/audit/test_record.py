"""Records are canonical JSON (RFC 8785), by whichever way they are written."""

from __future__ import annotations

import json

import rfc8785
from hypothesis import given
from hypothesis import strategies as some

from taut.audit.record import EXACT, Detail, canonical, made

WORDS = some.text(alphabet=some.characters(exclude_categories=["Cs"]))
NUMBERS = some.integers(-EXACT, EXACT) | some.floats(allow_nan=False, allow_infinity=False)
VALUES = some.recursive(
    some.none() | some.booleans() | NUMBERS | WORDS,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(some.dictionaries(WORDS, VALUES, max_size=4))
def test_a_record_is_spelled_in_the_one_way_that_its_values_have(details: dict[str, Detail]) -> None:
    body, texts = made("verb", details, index=3, before="", version="1", at_ns=0)
    assert body == rfc8785.dumps(json.loads(body, parse_int=float))
    assert texts == {}


def test_keys_beyond_ascii_are_sorted_as_rfc_8785_sorts_them() -> None:
    assert canonical({"\ufb33": 1, "\U0001f600": 2}, fractions=False) == '{"\U0001f600":2,"\ufb33":1}'.encode()
