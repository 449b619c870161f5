"""Mutations of bytes, of lines of text, and of values: every other mutator is built from these."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes], bytes]
INTEGERS = [
    0, 1, -1, 2, 7, 127, 128, 255, 256, 1000, 32767, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1, 2**62,
    2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**31), -(2**63), -(2**63) - 1, 10**9, 10**12, 10**15, 10**18, 4 * 10**18, 10**19,
    10**30, 10**400,
]  # fmt: skip
FLOATS = [
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e-9,
    1e-300,
    5e-324,
    1e9,
    1e15,
    1e18,
    9.3e18,
    1e19,
    1e300,
    -1e300,
    math.nan,
    math.inf,
    -math.inf,
]
TEXTS = [
    "", " ", "0", "-1", "+1", "7.0", "0.5", " 7 ", "1e3", "1e300", "1e999", "-0", "nan", "NaN", "inf", "-Infinity",
    "null", "None",
    "true", "False", "0x10", "1_000", "1,000", "９", "²", "١", "x", "rank", "all-reduce", "send", "é", "\x00", "\x1b[2J",
    "\u202e", "\ud800",
    "\U000e0041", "\ufeff", "\n", "\t", '"', "'", "\\", "{", "}", "[", "]", "[1, 2]", "{}", ",", ";", "|", ":", "=", "->",
    "%", "/", "../../x",
    "2026-01-01T00:00:00Z", "2026-01-01 00:00:00", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00", "2026-02-31T25:61:61",
    "1969-12-31T23:59:59",
    "2026-01-01T00:00:00+99:99", "Unknown", "1-02:03:04", "UNLIMITED", "9" * 40, "9" * 5000, "a" * 300, "n[0-99999999]",
    "n[1-2,4]", "gres/gpu=8",
]  # fmt: skip
TOKENS = [text.encode("utf-8", "surrogatepass") for text in TEXTS] + [
    b"\xff", b"\xc0\x80", b"\x80", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\r\n", b"\n\n",
    b"[" * 200, b"{\"a\":" * 50,
    b'":', b'","', b"\\u0000", b"\\ud800", b"1e400", b"-", b"/*", b"#", b"PAR1", b"\x1f\x8b", b"\x80\x02", b"ustar",
    b"SQLite format 3\x00",
]  # fmt: skip
LONG = 48 << 10
"""Bytes of a piece that is repeated: what is quadratic in it takes seconds."""
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
WORD = re.compile(rb"[A-Za-z_][\w.\-]*")


def times(rng: Random, most: int = 6) -> int:
    """How often to mutate: once in half of the cases, seldom more than a few times."""
    count = 1
    while count < most and rng.random() < 0.5:
        count += 1
    return count


def scalar(rng: Random, old: Any = None) -> Any:
    """A value that readers may not expect; near the old one in a third of the cases."""
    if isinstance(old, (int, float)) and not isinstance(old, bool) and rng.random() < 0.35:
        return near(rng, old)
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(INTEGERS)
    if kind < 0.55:
        return rng.choice(FLOATS)
    if kind < 0.9:
        return rng.choice(TEXTS)
    return rng.choice([None, True, False])


def near(rng: Random, old: float) -> Any:
    """A number like the old one: a neighbour, a multiple, its negative, its text."""
    return rng.choice(
        [old + 1, old - 1, -old, old * 2, old * 1000, old * 0.5, old + 0.5, str(old), old * 10**9 if abs(old) < 1e200 else 0]
    )


def number_text(rng: Random, old: bytes) -> bytes:
    """A number as text: extreme, or like the old one."""
    try:
        value = float(old)
    except ValueError:
        value = 0.0
    return str(scalar(rng, value)).encode("utf-8", "surrogatepass")


def raw(rng: Random, data: bytes) -> bytes:
    """Bytes flipped, cut, copied, spliced, or replaced by tokens; seldom a piece of them so often that time adds up."""
    if data and rng.random() < 0.01:
        at = rng.randrange(len(data))
        piece = rng.choice([data[at : at + rng.choice([1, 4, 40])], *TOKENS])[:64] or b" "
        return data[:at] + piece * (LONG // len(piece)) + data[at:]
    out = bytearray(data)
    for _ in range(times(rng)):
        size = len(out)
        at = rng.randrange(size) if size else 0
        length = min(rng.choice([1, 1, 2, 4, 8, 16, 64, 256]), size - at)
        kind = rng.randrange(9)
        if not size or kind == 0:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at] = rng.randrange(256)
        elif kind == 3:
            del out[at : at + length]
        elif kind == 4:
            out[at:at] = out[at : at + length] * rng.choice([1, 1, 2, 8])
        elif kind == 5:
            out[at : at + length] = rng.choice(TOKENS)
        elif kind == 6:
            source = rng.randrange(size)
            out[at : at + length] = out[source : source + length]
        elif kind == 7 and rng.random() < 0.4:
            del out[at:]
        else:
            out[at : at + length] = rng.randbytes(length)
    return bytes(out)


def lines(rng: Random, data: bytes) -> bytes:
    """Lines swapped, cut, doubled or dropped; numbers and words in them changed."""
    rows = data.split(b"\n")
    for _ in range(times(rng)):
        at = rng.randrange(len(rows))
        kind = rng.randrange(9)
        if kind == 0 and len(rows) > 1:
            del rows[at]
        elif kind == 1:
            rows.insert(rng.randrange(len(rows) + 1), rows[at])
        elif kind == 2:
            other = rng.randrange(len(rows))
            rows[at], rows[other] = rows[other], rows[at]
        elif kind == 3:
            rows[at] = rows[at][: rng.randrange(len(rows[at]) + 1)]
        elif kind == 4:
            rows[at] = raw(rng, rows[at])
        elif kind == 5:
            rows[at] = swapped(rng, rows[at], WORD, lambda r, old: r.choice(TOKENS))
        else:
            rows[at] = swapped(rng, rows[at], NUMBER, number_text)
    return b"\n".join(rows)


def swapped(rng: Random, row: bytes, what: re.Pattern[bytes], by: Callable[[Random, bytes], bytes]) -> bytes:
    """The row with one match of a pattern replaced."""
    found = list(what.finditer(row))
    if not found:
        return row + rng.choice(TOKENS)
    one = rng.choice(found)
    return row[: one.start()] + by(rng, one[0]) + row[one.end() :]


def mixed(*mutators: Mutator, bare: float = 0.25) -> Mutator:
    """One of the mutators, or, in a share of the cases, bytes as they are."""

    def mutate(rng: Random, data: bytes) -> bytes:
        return (raw if rng.random() < bare else rng.choice(mutators))(rng, data)

    return mutate


def pick(rng: Random, values: Sequence[Any]) -> Any:
    """One of them; None if there are none."""
    return rng.choice(values) if values else None
