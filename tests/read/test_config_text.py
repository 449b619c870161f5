"""Configuration that nobody would write."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.errors import InputRefused, TooLarge
from taut.read import rank_topology as topology
from taut.read import scenario_file as scenario
from taut.read.actions import loops_config
from taut.read.config_text import load_text, parsed


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 100_000 + " = 1",
        "a = {" + "a" + " . a" * 100_000 + " = 1}",
        "[" + "a." * 100_000 + "a]",
        '"a b"' + ".'c'" * 100_000 + " = 1",
        "a = " + "[" * 100_000,
        "a = " + "{a=" * 100_000,
        'b = """x"""\na' + ".a" * 100_000 + " = 1",
    ],
    ids=["key", "inline", "header", "quoted", "lists", "tables", "after a text"],
)
def test_deep_toml_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(TooLarge, match="deep; write it flatter"):
        parsed(text, "t.toml")


def test_dots_and_brackets_in_texts_comments_and_lists_are_no_depth() -> None:
    dots = "." * 100 + "[" * 100
    text = f'# {dots}\na = "{dots}"\nb = \'{dots}\'\nc = """\n{dots}"\n"""\nd = [{"0.5, " * 1000}]\ne = {{f.g = 1}}'
    found = parsed(text, "t")
    assert (found["a"], found["b"], found["c"]) == (dots, dots, f'{dots}"\n')
    assert len(found["d"]) == 1000


@pytest.mark.parametrize("text", ["a = " + "9" * 5000, "a = 1979-13-01", '"' * 100_000, "'" * 100_001, '"""\\' * 50_000])
def test_what_is_no_toml_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputRefused) as refused:
        parsed(text, "t")
    assert len(str(refused.value)) < 300


@given(st.text("ab.='\"[]{}#\n\\ ,", max_size=60))
def test_whatever_is_written_is_parsed_or_refused(text: str) -> None:
    with suppress(InputRefused):
        assert isinstance(parsed(text, "t"), dict)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="no such device here")
def test_a_device_is_read_up_to_the_cap() -> None:
    for load in (scenario.load, loops_config.load, topology.load):
        with pytest.raises(TooLarge, match="MiB"):
            load("/dev/zero")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a = 1\r\n",))
    writer.start()
    assert load_text(pipe, "") == "a = 1\n"
    writer.join()


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(InputRefused, match="no path"):
        load_text("a\0b", "")
