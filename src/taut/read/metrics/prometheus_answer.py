"""What the HTTP API of Prometheus answers: a matrix, samples by series.

The samples are almost all of an answer, and every one is ``[time,"value"]``, so those of many series are read at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from taut.core.array_types import Floats, Ints
from taut.core.errors import InputRefused
from taut.read.columns import float_or_nan
from taut.read.contents import Found
from taut.read.dates import number_ns
from taut.read.metrics.sample_lists import numbers
from taut.read.metrics.vocabulary import Plain

# Bytes of samples that are read at once.
SLAB = 32 << 20
# Bytes of samples for which a compiled kernel pays.
QUICK = 1 << 20
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
    found, words = [], Plain()
    for one, (time, value) in zip(answer, samples, strict=True):
        name = one.metric.get("__name__", "")
        if not name:
            raise InputRefused(label, "a result without a metric name", "query the metric itself, not an expression")
        labels = {words[key]: text for key, text in one.metric.items() if key != "__name__"}
        found.append(Found(name, labels, time, value))
    return found


def _slabs(lists: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """Some lists at a time."""
    at = np.cumsum([0, *map(len, lists)]) // SLAB
    edges = [0, *(np.flatnonzero(np.diff(at[:-1])) + 1).tolist(), len(lists)]
    return (lists[first:last] for first, last in pairwise(edges))


def _read(lists: Sequence[msgspec.Raw]) -> list[tuple[Ints, Floats]]:
    """Times in ns and values of each list."""
    found = numbers(b"".join(lists)) if sum(map(len, lists)) > QUICK else None
    if found is None:
        return [_slowly(one) for one in lists]
    seconds, value, end = found
    edges = [0, *end.tolist()]
    time = number_ns(seconds, 1e9)
    return [(time[first:last], value[first:last]) for first, last in pairwise(edges)]


def _slowly(samples: msgspec.Raw) -> tuple[Ints, Floats]:
    pairs = _SAMPLES.decode(samples)
    seconds = np.array([at for at, _ in pairs], dtype=np.float64)
    return number_ns(seconds, 1e9), np.array([float_or_nan(text) for _, text in pairs], dtype=np.float64)
