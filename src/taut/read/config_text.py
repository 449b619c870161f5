"""Text that people write and a user names (scenarios, loops, topologies): read up to a cap, TOML checked before it is parsed.

Python's TOML parser takes memory and time that grow with the square of a dotted key, so what is nested deeper than people
nest is refused from the text alone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taut.core.errors import InputRefused, TooLarge

# A configuration is written by hand.
MOST_BYTES = 1 << 20
# Brackets inside one another, and parts of a dotted key: those that ship have three.
DEPTH = 32
_TOKEN = re.compile(
    r'"""(?:[^"\\]++|\\.|"(?!""))*+(?:""")?'
    r"|'''(?:[^']++|'(?!''))*+(?:''')?"
    r'|"(?:[^"\\\n]++|\\.)*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
    r"|[^\s\w\"'#-]|\n",
    re.DOTALL,
)
"""Strings, comments, and signs that stand alone; an open string ends with the text, or with its line."""


def load_text(path: str | Path, remedy: str, most_bytes: int = MOST_BYTES, errors: str = "strict") -> str:
    """The text of a file, which may be a pipe or a device; refused if it is longer than such files are.

    ``errors`` says what becomes of bytes that are not UTF-8, as Python's ``open`` has it.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise InputRefused(path, f"cannot be read: {error.strerror}", "check the path") from None
    except ValueError:
        raise InputRefused(repr(str(path)), "no path", "check the path") from None
    if len(data) > most_bytes:
        raise TooLarge(path, f"more than {most_bytes >> 20} MiB", remedy)
    try:
        return data.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InputRefused(path, f"not UTF-8 text at byte {error.start:,}", remedy) from None


def parsed(
    text: str, label: str | Path, remedy: str = "correct that line", parse_float: Callable[[str], Any] = float
) -> dict[str, Any]:
    """The table that TOML holds; ``parse_float`` makes its numbers with a point."""
    _check_depth(text, label)
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except (ValueError, RecursionError) as error:  # of whole numbers that are too long, Python itself says so
        raise InputRefused(label, f"not TOML: {str(error)[:200]}", remedy) from None


def _check_depth(text: str, label: str | Path) -> None:
    """Refuse brackets and dotted keys that are deeper than people write."""
    depth = dots = 0
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign == ".":
            dots += 1
        elif sign in "[{":
            depth += 1
            dots = 0
        elif sign in "]}":
            depth = max(depth - 1, 0)
        elif sign in "=,\n":
            dots = 0
        if max(depth, dots) > DEPTH:
            line = text.count("\n", 0, token.start()) + 1
            raise TooLarge(f"{label}:{line}", f"nested more than {DEPTH} deep", "write it flatter")
