"""Configurations of control loops: read strictly, refused with the line."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.read.actions.loops_config import Loop, load, loops

TEXT = """
[[loop]]
name = "gateway"
layer = "retry"
timeout_s = 8
retries = 3
back_off_s = 1.0
calls = ["sdk"]

[[loop]]
name = "sdk"
layer = "retry"
target = "tools"
timeout_s = 5
retries = 2
"""


def test_loops_are_read_with_what_is_given(tmp_path: Path) -> None:
    path = tmp_path / "loops.toml"
    path.write_text(TEXT)
    assert load(path) == (
        Loop("gateway", "retry", timeout_s=8, retries=3, back_off_s=1, calls=("sdk",)),
        Loop("sdk", "retry", target="tools", timeout_s=5, retries=2),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT + "colour = 3\n", "config:10: no such key: colour; known here: name, layer"),
        (TEXT.replace("retries = 2", "retries = -2"), "config:10: retries: expected `int` >= 0"),
        (TEXT.replace('"sdk"\nlayer', '"gateway"\nlayer'), "config:10: two loops are called 'gateway'"),
        (TEXT.replace('calls = ["sdk"]', 'calls = ["db"]'), "config:2: 'gateway' calls 'db', which is not there"),
        (TEXT.replace("timeout_s = 8", "timeout_s = inf"), "config:2: timeout_s of 'gateway' is inf"),
        (TEXT.replace("timeout_s = 8", "timeout_s = nan"), "config:2: timeout_s"),
        (TEXT.replace("[[loop]]", "[[lop]]"), "config: no such key: lop; known here: loop"),
        (TEXT + "[", "config: not TOML"),
        ("loop = 3", "config: loop: expected `array`"),
        ("[[loop]]\n" * 2001, "config: 2001 loops; give at most 2000"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InputRefused) as refused:
        loops(text, "config")
    assert str(refused.value).startswith(message)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_text("#" * (1 << 21))
    for name, message in (("absent", "cannot be read"), ("bytes", "not UTF-8"), ("large", "more than 1 MiB")):
        with pytest.raises(InputRefused, match=message):
            load(tmp_path / name)


@given(st.text() | st.tuples(st.integers(0, len(TEXT)), st.text(max_size=5)).map(lambda x: TEXT[: x[0]] + x[1] + TEXT[x[0] :]))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    with suppress(InputRefused):
        assert isinstance(loops(text, "config"), tuple)
