"""What the HTTP API of Prometheus answers: a matrix, samples by series.

The samples are almost all of an answer, and every one is ``[time,"value"]``, so those of many series are read at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from taut.errors import InputRefused
from taut.read.metric_series import Found, whole
from taut.read.metric_words import plain

SLAB = 32 << 20
"""Bytes of samples that are read at once."""
_NUMBER, _SPACE = b"0123456789.eE+-NaIinf", b" \n\r\t"
_NOTHING = msgspec.Raw(b"[]")


class _Found(msgspec.Struct, gc=False):
    metric: dict[str, str]
    values: msgspec.Raw = _NOTHING


class _Data(msgspec.Struct):
    result: list[_Found] = []


class _Answer(msgspec.Struct):
    data: _Data
    status: str = ""


_SAMPLES = msgspec.json.Decoder(list[tuple[float, str]])


def matrix(data: bytes, label: str) -> list[Found]:
    """The samples of an answer."""
    try:
        answer = msgspec.json.decode(bytes(data), type=_Answer).data.result
        samples = [pair for slab in _slabs([one.values for one in answer]) for pair in _read(slab)]
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        remedy = "save what /api/v1/query?query=METRIC[10m] answers"
        raise InputRefused(label, f"not a matrix of Prometheus ({str(error)[:120]})", remedy) from None
    found = []
    for one, (time, value) in zip(answer, samples, strict=True):
        name = one.metric.get("__name__", "")
        if not name:
            raise InputRefused(label, "a result without a metric name", "query the metric itself, not an expression")
        labels = {plain(key): text for key, text in one.metric.items() if key != "__name__"}
        found.append(Found(name, labels, time, value))
    return found


def _slabs(lists: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """Some lists at a time."""
    at = np.cumsum([0, *map(len, lists)]) // SLAB
    edges = [0, *(np.flatnonzero(np.diff(at[:-1])) + 1).tolist(), len(lists)]
    return (lists[first:last] for first, last in pairwise(edges))


def _read(lists: Sequence[msgspec.Raw]) -> list[tuple[Any, Any]]:
    """Times in ns and values of each list."""
    length = [bytes(one).count(b'"') // 2 for one in lists]
    some = [one for one, size in zip(lists, length, strict=True) if size]
    empty = all(bytes(one).translate(None, _SPACE) == b"[]" for one, size in zip(lists, length, strict=True) if not size)
    numbers = _plain(some, [size for size in length if size]) if empty else None
    if numbers is None:
        return [_slowly(one) for one in lists]
    edges = np.cumsum(length)[:-1]
    return list(zip(np.split(whole(numbers[::2], 1e9), edges), np.split(numbers[1::2], edges), strict=True))


def _plain(lists: Sequence[msgspec.Raw], length: Sequence[int]) -> Any:
    """The numbers in lists of this many samples, times and values in turn; None if anything else is in them."""
    import pyarrow as pa

    text = b",".join(lists)
    frame = text.translate(None, _NUMBER)
    if 2 * frame.count(b'""') != frame.count(b'"'):
        return None  # space inside of texts
    if frame.translate(None, _SPACE) != b",".join([b"[" + (b'[,""],' * size)[:-1] + b"]" for size in length]):
        return None
    bare = text.translate(None, b'[]"' + _SPACE)
    if len(bare) > 2**31 - 1:
        return None
    commas = np.flatnonzero(np.frombuffer(bare, dtype=np.uint8) == ord(",")).astype(np.int32)
    edges = np.zeros(2 * (len(commas) + 1) + 1, dtype=np.int32)
    edges[1:-2:2], edges[2:-1:2], edges[-2:] = commas, commas + 1, len(bare)
    cells = pa.BinaryArray.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(bare)])
    try:
        return cells.take(pa.array(np.arange(0, len(edges) - 1, 2))).cast(pa.string()).cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None


def _slowly(samples: msgspec.Raw) -> tuple[Any, Any]:
    pairs = _SAMPLES.decode(samples)
    return whole([at for at, _ in pairs], 1e9), np.array([_float(text) for _, text in pairs], dtype=np.float64)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
