"""Numbers, shapes and repairs of decoded JSON whose fields may hold anything."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

import msgspec
import numpy as np

from taut.core.array_types import Ints, Json

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_NAN = re.compile(rb"(?<=[:\[,])(\s*)-?(?:NaN|nan|Infinity|inf|Inf)(?=\s*[,}\]])")


def integer(value: object, default: int = -1) -> int:
    """A whole number out of a number or a string of digits, if it fits 64 bits."""
    if value is None:
        return default
    if type(value) is int:  # what nearly all fields hold
        return value if -(2**63) < value < 2**63 else default
    if isinstance(value, str) and value[:20].strip().removeprefix("-").isdecimal():
        value = int(value[:20])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    return int(value) if abs(value) < 2**63 else default


def integers(values: Sequence[object]) -> Ints:
    """What ``integer`` gives for each value; lists of plain integers are converted at once."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            found = np.array(values, dtype=np.int64)
            return np.where(found > -(2**63), found, -1)
    return np.array(list(map(integer, values)), dtype=np.int64)


def elements(dims: object, depth: int = 8) -> int:
    """Elements of a shape, or of a list of shapes together; -1 if there is none, or it is nested deeper than shapes are."""
    if not isinstance(dims, list) or not dims or not depth:
        return -1
    if type(dims[0]) is int:
        product = 1
        for extent in dims:
            product = product * extent if type(extent) is int else -1
            if not 0 <= product < 2**62:
                return -1
        return product
    inner = [n for one in dims if (n := elements(one, depth - 1)) >= 0]
    return min(sum(inner), 2**62) if inner else -1


def decoded(raw: bytes | str | msgspec.Raw) -> Json:
    """The value of JSON; None if it is not valid."""
    try:
        value: Json = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value


def without_nan(data: bytes | bytearray) -> bytes | None:
    """The same JSON with NaN and infinities as null (Python and old Kineto write them), or None if it has none."""
    repaired, n = _NAN.subn(rb"\1null", data)
    return repaired if n else None
