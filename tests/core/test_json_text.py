"""JSON that is shown holds nothing that is not seen, and says the same as before."""

from __future__ import annotations

import json
import sys
import unicodedata

import msgspec
import pytest

from taut.core.json_text import UNSEEN, json_text
from taut.render.text import safe


def test_everything_that_unicode_calls_control_format_or_separator_is_unseen() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    found = [c for c in every if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs")]
    assert [hex(ord(c)) for c in found if not UNSEEN.match(c)] == ["0xa"]


@pytest.mark.parametrize(
    "name", ["a\x9b31m", "\u202eop", "\u2066x", "z\u200bz", "\U000e0041", "\u2028", "\ufeff", "\x7f", "\ufe0f"]
)
def test_unseen_characters_are_escapes_that_decode_to_themselves(name: str) -> None:
    text = json_text({name: [name]})
    assert not UNSEEN.search(text.replace("\n", ""))
    assert json.loads(text) == msgspec.json.decode(text) == {name: [name]}
    assert not UNSEEN.search(safe(name))


def test_a_tag_character_is_a_pair_of_escapes() -> None:
    assert json_text("\U000e0041") == '"\\udb40\\udc41"'


def test_a_name_that_is_not_utf8_is_written_out() -> None:
    text = json_text({"rank\udcff": ("x\ud800", 1.5, None)})
    assert msgspec.json.decode(text) == {"rank\\udcff": ["x\\ud800", 1.5, None]}


def test_plain_results_stay_as_they_were() -> None:
    result = {"a": [1, 2.5, None, "µs → ä"], "b": {}}
    assert json_text(result) == msgspec.json.format(msgspec.json.encode(result), indent=1).decode()
