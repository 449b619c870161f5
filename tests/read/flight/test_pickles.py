"""Pickles are read, never run."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.read.flight import pickles

numbers = st.none() | st.booleans() | st.integers(-(2**200), 2**200) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    numbers,
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(-(2**63), 2**63), inner) | st.tuples(inner, inner),
    max_leaves=40,
)


@given(values, st.integers(2, 5))
def test_plain_values_come_back(value: Any, protocol: int) -> None:
    assert pickles.plain(pickle.dumps(value, protocol), "p") == value


class Evil:
    """Runs a command when unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (pickle.dumps({"a": Evil()}, 2), "the opcode GLOBAL at byte"),
        (pickle.dumps({"a": Evil()}, 4), "the opcode STACK_GLOBAL at byte"),
        (b"\x80\x02]r\x00\x00\x00\x80.", "memo index 2,147,483,648 out of order"),
        (b"\x80\x02]q\x05.", "memo index 5 out of order"),
        (b"\x80\x02" + b"(" * 1000 + b".", "nested too deeply"),
        (b"\x80\x02]\x94h\x00a.", "values put into no container"),
        (b"\x80\x02K\x01K\x02s.", "does not read"),
        (b"\x80\x02}", "exhausted"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.", "does not read"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "does not read"),
        (b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".", "nested too deeply"),
        (b"\x80\x02N" + b"\x85" * 100 + b".", "nested too deeply"),
        (b"\x80\x04]\x94]\x94h\x00ah\x00h\x01a.", "values put into no container"),
        (b"\x80\x04N\x94\x85" + b"".join(b"\x94h%c\x86" % i for i in range(1, 41)) + b".", "references that stand for"),
        (b"\x80\x04X\x10\x27\0\0" + b"a" * 10_000 + b"\x94\x85(" + b"h\x00" * 5_000 + b"t\x86.", "references that stand for"),
        (b"\x80\x04}N\x85Ns.", "a key of type tuple"),
        (b"\x80\x04}G\x3f\xf0\0\0\0\0\0\0Ns.", "a key of type float"),
        (b"\x80\x04}\x8a\x0b" + b"\1" * 11 + b"Ns.", "a key of type int"),
    ],
    ids=[
        "global", "stack global", "far memo", "early memo", "deep", "itself", "empty", "short", "long text", "long number",
        "deep lists without marks", "deep tuples", "each other", "tuples of tuples", "one text many times", "tuple key",
        "float key", "long key",
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(InputRefused) as caught:
        pickles.plain(data, "dump_3")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_memory_stays_within_the_file(tmp_path: Any) -> None:
    data = b"\x80\x02]" + b"".join(b"q\x00h\x00h\x00\x86" for _ in range(20_000)) + b"."
    tracemalloc.start()
    with pytest.raises(InputRefused):
        pickles.plain(data, "p")
    assert tracemalloc.get_traced_memory()[1] < 40 * len(data)
    tracemalloc.stop()


@given(st.binary(max_size=200))
def test_noise_is_read_or_refused(noise: bytes) -> None:
    with suppress(InputRefused):
        pickles.plain(b"\x80\x02" + noise, "p")
