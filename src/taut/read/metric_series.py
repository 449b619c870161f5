"""Cells of a file → series of metrics: times in ns, numbers in the units of this house, components in one way of writing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from taut.errors import InputRefused
from taut.read.metric_words import FLAG, KNOWN, LIMIT_OF, REASONS, named, place, plain, rate_of
from taut.tables import NULL

FAR = 4_000_000_000_000_000_000
"""Times beyond this many ns are no times."""
TEXT = 200
"""Names are cut here."""
TIME = ("time", "timestamp", "ts", "time_ns", "time_us", "time_ms", "time_s", "timestamp_ns", "timestamp_ms")
"""Columns that hold the time."""
WHERE = {
    "rank": ("rank", "global_rank", "worker"), "gpu": ("index", "gpu", "gpu_id"),
    "host": ("host", "hostname", "node", "instance"), "component": ("component", "device", "link", "interface"),
}  # fmt: skip
"""Columns and labels that say where a sample was taken."""
_NUMBER = re.compile(r"\s*(0x[0-9a-fA-F]{1,16}|[-+]?[0-9.]+(?:[eE][-+]?\d+)?)\s*([^\d\s].{0,19})?\s*")


@dataclass(frozen=True)
class Series:
    """The samples of one metric of one component, in order of time."""

    component: str
    metric: str
    time_ns: Any
    value: Any
    limit: Any
    limit_source: str = ""


@dataclass(frozen=True)
class Metrics:
    """What one file holds."""

    label: str
    series: Sequence[Series]
    zoneless: bool = False
    """Times were written as dates without a zone."""


def components(columns: Mapping[str, Sequence[str]], rows: int) -> Iterator[str]:
    """What each row is about, in one way of writing: ``rank 3``, ``node7 gpu 0``, a host, or what the file says."""
    blank = [""] * rows
    found = {key: next((columns[n] for n in names if n in columns), blank) for key, names in WHERE.items()}
    for rank, gpu, host, component in zip(found["rank"], found["gpu"], found["host"], found["component"], strict=True):
        yield _component(*(text.strip()[:TEXT] for text in (rank, gpu, host, component)))


def _component(rank: str, gpu: str, host: str, component: str) -> str:
    if rank:
        return f"rank {rank}"
    host = re.sub(r":\d+$", "", host)
    if gpu:
        return f"{host} gpu {gpu.lower().removeprefix('gpu')}".strip()
    number, _, index = place(component)
    if number is not None:
        return f"rank {number}"
    if index is not None:
        return f"{place(component)[1] or host} gpu {index}".strip()
    return f"{host} {component}".strip() or "host"


def times(columns: Mapping[str, Sequence[str]], label: str) -> tuple[Any, bool]:
    """Times in ns, NULL where there is none; and whether they were dates without a zone."""
    name = next((n for n in TIME if n in columns), "")
    if not name:
        raise InputRefused(label, "no column holds the time", "name it time, timestamp or time_ns")
    texts = columns[name]
    number = _floats(texts)
    if not np.isfinite(number).any() and texts:
        return _dates(texts)
    if name.endswith("_ns"):
        # Nanoseconds of an epoch do not fit a float.
        return np.array([int(t) if t.strip().isdigit() and len(t) < 20 else NULL for t in texts], dtype=np.int64), False
    unit = {"_us": 1e3, "_ms": 1e6, "_s": 1e9}.get(name[name.rfind("_") :]) if "_" in name else None
    size = np.nanmax(np.abs(number), initial=0.0)
    factor = unit or (1e9 if size < 1e11 else 1e6 if size < 1e14 else 1e3 if size < 1e17 else 1.0)
    return whole(np.rint(number * factor)), False


def whole(time: Any) -> Any:
    """Times as whole ns, NULL where there is none."""
    good = np.isfinite(time) & (np.abs(time) < FAR)
    return np.where(good, np.where(good, time, 0).astype(np.int64), NULL)


def _dates(texts: Sequence[str]) -> tuple[Any, bool]:
    known: dict[str, int] = {}
    zoneless = False
    for text in set(texts):
        try:
            at = datetime.fromisoformat(text.strip().replace("/", "-"))
        except ValueError:
            continue
        zoneless |= at.tzinfo is None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
        known[text] = (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000
    return np.array([known.get(text, NULL) for text in texts], dtype=np.int64), zoneless


def _floats(texts: Iterable[str]) -> Any:
    """Plain numbers, NaN for everything else."""
    return np.array([_plain_number(t) for t in texts], dtype=np.float64)


def _plain_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def numbers(texts: Sequence[str]) -> tuple[Any, str]:
    """Numbers in cells such as ``512.3 W``, ``0x4`` or ``[N/A]`` (NaN), and the unit most of them carry."""
    value = _floats(texts)
    unit = ""
    for i in np.flatnonzero(np.isnan(value)).tolist():
        found = _NUMBER.fullmatch(texts[i][:TEXT])
        if found:
            value[i] = int(found[1], 16) if found[1].startswith("0x") else _plain_number(found[1])
            unit = unit or (found[2] or "").strip()
    return value, unit


def series_of(component: str, metric: str, unit: str, time: Any, value: Any, limit: Any, source: str) -> Iterator[Series]:
    """A series in the words of this house; a mask becomes flags, a counter its rate."""
    good = np.isfinite(value) & (time != NULL)
    time, value, limit = time[good], value[good], limit[good]
    order = np.argsort(time, kind="stable")
    time, value, limit = time[order], value[order], limit[order]
    if not len(time) or not metric.strip():
        return
    source = (source.strip() or "the file")[:TEXT] if np.isfinite(limit).any() else ""
    rate = rate_of(metric, unit)
    if rate is not None:
        name, factor = rate
        passed, grown = np.diff(time) / 1e9, np.diff(value)
        good = (passed > 0) & (grown >= 0)  # a counter that fell was reset
        if good.any():
            value = factor * grown[good] / passed[good]
            yield Series(component, name, time[1:][good], value, factor * limit[1:][good], source)
        return
    name, factor = named(metric, unit)
    if KNOWN.get(plain(metric), ("", ""))[1] == FLAG:
        mask = value.astype(np.int64)
        for flag, bits in REASONS.items():
            yield Series(component, flag, time, ((mask & bits) != 0).astype(np.float64), limit * np.nan)
        return
    yield Series(component, name, time, factor * value, factor * limit, source)


def metrics_of(label: str, series: list[Series], zoneless: bool) -> Metrics:
    """The series of a file, those that are limits of others turned into that."""
    if not series:
        raise InputRefused(
            label, "no row holds a time, a metric and a number", "columns needed: time, component, metric, value"
        )
    limits = {(s.component, LIMIT_OF[s.metric]): s for s in series if s.metric in LIMIT_OF}
    out = []
    for one in series:
        limit = limits.get((one.component, one.metric))
        if limit is not None and not np.isfinite(one.limit).any():
            value = np.full(len(one.time_ns), float(np.median(limit.value)))
            one = replace(one, limit=value, limit_source=f"{limit.metric} in the file")
        if one.metric not in LIMIT_OF:
            out.append(one)
    return Metrics(label, out, zoneless)
