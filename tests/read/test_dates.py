"""Many dates at once are what the standard library makes of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.read.dates import same_form_ns

MOMENTS = st.lists(st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1)), min_size=1, max_size=5)
SHAPES = st.sampled_from([("T", "seconds", ""), (" ", "seconds", ""), ("T", "milliseconds", "Z"), ("T", "microseconds", "Z")])


@given(MOMENTS, SHAPES)
def test_dates_of_one_shape(moments: list[datetime], shape: tuple[str, str, str]) -> None:
    sep, precision, zone = shape
    texts = [moment.isoformat(sep, precision) + zone for moment in moments]
    found = same_form_ns(texts)
    assert found is not None
    since = [datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC) for text in texts]
    assert found[0].tolist() == [one // timedelta(microseconds=1) * 1000 for one in since]
    assert found[1] == (not zone)


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-29T00:00:00", "2026-13-01T00:00:00", "2026-01-01T24:00:00", "2026-01-01T00:00:60", "0000-01-01T00:00:00",
        "2026/01/01 00:00:00", "2026-01-01T00:00:00.", "2026-01-01T00:00:00+02:00", "2026-01-01T00:00:0Z", "2026-01-01",
        "２026-01-01T00:00:00", "", "2026-01-01T00:00:00.123456789Z",
    ],
)  # fmt: skip
def test_other_shapes_and_no_dates_are_left_to_others(text: str) -> None:
    assert same_form_ns([text, text]) is None
    assert same_form_ns(["2026-01-01T00:00:00", text]) is None


@given(st.lists(st.text(min_size=19, max_size=27)))
def test_any_text_is_a_date_or_none(texts: list[str]) -> None:
    same_form_ns(texts)
