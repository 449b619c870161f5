"""Query strings: values within limits, or one line."""

from __future__ import annotations

import pytest

from taut.core.errors import UsageError
from taut.serve.parameters import MOST_QUERY, Parameter, asked

TAKES = (
    Parameter("rank", "whole", "a rank", 0, 100, required=True),
    Parameter("ms", "real", "milliseconds", 0, 1e9, default=1.5),
    Parameter("fix", "texts", "what to mend", 0, 3),
)


def test_values() -> None:
    found = asked(TAKES, b"rank=7&fix=rank%3D3&fix=class%3Dall-reduce%20x&ms=2e1")
    assert (found.whole("rank"), found.real("ms")) == (7, 20.0)
    assert found.texts("fix") == ["rank=3", "class=all-reduce x"]
    left_out = asked(TAKES, b"rank=0")
    assert (left_out.real("ms"), left_out.texts("fix"), left_out.wholes("rank", "op")) == (1.5, [], [0, None])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        (b"", "rank is missing: a rank"),
        (b"rank=101", "rank=101: give a number from 0 to 100"),
        (b"rank=-1", "rank=-1: give a number from 0 to 100"),
        (b"rank=1.5", "rank='1.5': give a whole number"),
        (b"rank=", "rank='': give a whole number"),
        (b"rank=0x10", "rank='0x10': give a whole number"),
        (b"rank=1_0", "rank='1_0': give a whole number"),
        (b"rank=%D9%A1", "rank='١': give a whole number"),
        (b"rank=1&rank=2", "rank: given twice"),
        (b"rank=1&ms=nan", "ms='nan': give a number"),
        (b"rank=1&ms=1e99", "ms=1e99: give a number from 0 to 1,000,000,000"),
        (b"rank=1&who=me", "'who': this address takes rank, ms, fix"),
        (b"rank=1&fix=a&fix=b&fix=c&fix=d", "fix: given 4 times, at most 3"),
        (b"rank=1&fix=", "fix: give 1 to 2000 characters"),
        (b"rank=1&fix=%FF", "the query cannot be read"),
        (b"rank=\xff", "the query cannot be read"),
        (b"rank=1&" + b"a&" * 700, "the query cannot be read"),
        (b"rank=1&fix=" + b"x" * MOST_QUERY, "a query of "),
    ],
)
def test_refusals(query: bytes, says: str) -> None:
    with pytest.raises(UsageError) as found:
        asked(TAKES, query)
    assert str(found.value).startswith(says)
    assert "\n" not in str(found.value)
