"""What any door found, labelled as it was written → series in the words of this house.

A door hands over ``Found``: a metric's name, the labels (or columns) that say where it was taken, times and values. Here
labels become places, masks become flags, counters their rates, and a metric that is another's limit becomes that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from taut.core.errors import InputRefused, TooLarge, UsageError
from taut.core.tables import NULL
from taut.read.metrics.vocabulary import INDEX, LIMIT_OF, REASONS, blank, is_mask, named, place, plain, rate_of

MOST_SERIES = 200_000
"""More series than this in one file are a mistake, or worse."""
FAR = 4_000_000_000_000_000_000
"""Times beyond this many ns are no times."""
TEXT = 200
"""Names are cut here."""
WHERE: Mapping[str, tuple[str, ...]] = {
    "rank": ("rank", "global_rank", "worker"), "gpu": ("index", "gpu", "gpu_id"),
    "host": ("host", "hostname", "node", "nodename", "kubernetes_node", "instance"),
    "component": ("component", "device", "link", "interface"),
}  # fmt: skip
"""Columns and labels that say where a sample was taken; the first that is there counts."""
TELLERS = frozenset({
    "__name__", "job", "instance", "prometheus", "prometheus_replica", "replica", "endpoint", "service", "cluster",
    "image", "name", "metrics_path",
})  # fmt: skip
"""Labels that say who told of a sample, not where it was taken."""
USERS = frozenset({
    "pod", "namespace", "container", "exported_pod", "exported_namespace", "exported_container", "uid", "uuid",
    "modelname", "pci_bus_id", "dcgm_fi_driver_version", "driver_version", "hpc_job",
})  # fmt: skip
"""Labels that say what else is known of an accelerator, or who uses it."""
BUCKET = "le"
"""Label of a histogram's buckets: distributions are no samples of a component."""
_INDEX = re.compile(r"(?:(?:gpu|nvidia|cuda|card)\W?)?(\d{1,4})", re.IGNORECASE)
_MAP = re.compile(r"\s*([^\s,→>]+)\s*(?:,\s*([^\s,→>]+?)\s*)?(?:→|->)\s*rank\s*")


class Place(NamedTuple):
    """Where samples were taken: how that is called, and what is known of rank, host and accelerator."""

    component: str
    rank: int | None = None
    host: str = ""
    gpu: int | None = None


class Map(NamedTuple):
    """Which labels (or columns) say where a sample was taken, by their plain names."""

    where: Mapping[str, tuple[str, ...]] = WHERE
    host_label: str = ""
    """The label that a user mapped on hosts, as a server writes it."""


USUAL = Map()


def map_of(text: str) -> Map:
    """``Hostname,gpu→rank``: a host and the index of its accelerator; ``worker→rank``: the rank itself. ``->`` will do."""
    found = _MAP.fullmatch(text)
    if found is None:
        raise UsageError(f"--map {text!r}: write 'HOST,INDEX→rank' or 'LABEL→rank', for example 'Hostname,gpu→rank'")
    if not found[2]:
        return Map({**WHERE, "rank": (plain(found[1]),)})
    host, gpu = plain(found[1]), plain(found[2])
    return Map({**WHERE, "rank": (), "host": (host, *WHERE["host"]), "gpu": (gpu, *WHERE["gpu"])}, found[1])


@dataclass(frozen=True)
class Found:
    """Samples of one metric as a door found them: nothing renamed, nothing converted, in any order."""

    name: str
    labels: Mapping[str, str]
    time_ns: Any
    value: Any
    unit: str = ""
    limit: Any = None
    limit_source: str = ""
    counter: bool = False
    """Whether the source says that it only ever grows."""


@dataclass(frozen=True)
class Series:
    """The samples of one metric of one component, in order of time."""

    place: Place
    metric: str
    time_ns: Any
    value: Any
    limit: Any
    limit_source: str = ""

    @property
    def component(self) -> str:
        """What was measured."""
        return self.place.component


@dataclass(frozen=True)
class Metrics:
    """What one file or server holds."""

    label: str
    series: Sequence[Series]
    zoneless: bool = False
    """Times were written as dates without a zone."""
    notes: Sequence[str] = field(default=())
    """What was left out, one line each."""
    settings: Sequence[Found] = field(default=())
    """Series of what somebody sets (replicas, limits), as they were found: their changes are actions."""


def few(count: int, label: str) -> None:
    """Refuses more series than a job can have."""
    if count > MOST_SERIES:
        raise TooLarge(label, f"more than {MOST_SERIES:,} series", "write the metrics of one job")


def whole(time: Any, factor: Any) -> Any:
    """Times in some unit as whole ns, NULL where there is none; what float64 cannot hold of an epoch is rounded off."""
    with np.errstate(over="ignore", invalid="ignore"):
        micros = np.rint(np.asarray(time, dtype=np.float64) * (factor / 1e3))
    good = np.isfinite(micros) & (np.abs(micros) < FAR / 1e3)
    return np.where(good, np.where(good, micros, 0).astype(np.int64) * 1000, NULL)


def unit_by_size(time: Any) -> Any:
    """ns per unit of times that do not say theirs: seconds, ms, µs or ns, whichever makes it a time of these decades."""
    size = np.abs(time)
    return np.select([size < 1e11, size < 1e14, size < 1e17], [1e9, 1e6, 1e3], 1.0)


def place_of(labels: Mapping[str, str], where: Mapping[str, tuple[str, ...]], index: int | None = None) -> Place:
    """Where samples with these labels were taken, in one way of writing: ``rank 3``, ``node7 gpu 0``, a host, free text."""
    said = {key: _said(labels, names) for key, names in where.items()}
    rank, gpu = ("" if said[key].startswith("-") else said[key].removesuffix(".0") for key in ("rank", "gpu"))
    host = re.sub(r":\d+$", "", said["host"])
    if rank:
        return Place(labels.get("component") or f"rank {rank}", place(rank)[0], host)
    found = _INDEX.fullmatch(gpu)
    number = int(found[1]) if found else index
    if number is not None:
        return Place(f"{host} gpu {number}".strip(), None, host, number)
    component = said["component"] or gpu
    its_rank, its_host, its_gpu = place(component)
    if its_rank is not None:
        return Place(f"rank {its_rank}", its_rank)
    if its_gpu is not None:
        return Place(f"{its_host or host} gpu {its_gpu}".strip(), None, its_host or host, its_gpu)
    return Place(f"{host} {component}".strip() or "host", None, host)


def _said(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """What the first of these labels that is there says."""
    for name in names:
        if text := labels.get(name):
            return text.strip()[:TEXT]
    return ""


def gather(
    label: str, found: Sequence[Found], *, zoneless: bool = False, notes: Sequence[str] = (),
    mapped: Map = USUAL,
) -> Metrics:  # fmt: skip
    """The series of one source; refuses one that holds none."""
    few(len(found), label)
    index = {_device(f): int(f.value[0]) for f in found if plain(f.name) == INDEX and len(f.value) and 0 <= f.value[0] < 1e4}
    found = [one for one in found if BUCKET not in one.labels and plain(one.name) not in ("", INDEX)]
    groups: dict[tuple[Place, str, str], list[Found]] = {}
    for at, one in zip(_places(found, mapped, index), found, strict=True):
        groups.setdefault((at, one.name, one.unit), []).append(one)
    series = [s for (at, *_), same in groups.items() for one, told in _told_apart(at, same) for s in _series(at, one, told)]
    if not series:
        why = "no row holds a time, a metric and a number"
        raise InputRefused(label, why, "columns needed: time, component, metric, value")
    return Metrics(label, _limited(_named_once(series)), zoneless, notes)


def _places(found: Sequence[Found], mapped: Map, index: Mapping[tuple[str, str], int]) -> Iterator[Place]:
    """Where each was taken; if hosts name a component alike (two jobs have a rank 0), the host is added."""
    places = [place_of(one.labels, mapped.where, index.get(_device(one))) for one in found]
    hosts: dict[str, set[str]] = {}
    for at in places:
        hosts.setdefault(at.component, set()).add(at.host)
    for at in places:
        yield at._replace(component=f"{at.component} on {at.host}") if len(hosts[at.component]) > 1 and at.host else at


def _device(one: Found) -> tuple[str, str]:
    return one.labels.get("instance", ""), one.labels.get("uuid", "")


def _told_apart(at: Place, same: Sequence[Found]) -> Iterator[tuple[Found, str]]:
    """Series of one metric at one place, each with the labels that tell it from the others."""
    if len(same) == 1:
        yield same[0], ""
        return
    silent = TELLERS | {"component", *WHERE["rank"], *WHERE["gpu"], *WHERE["host"]}
    silent |= USERS if at.gpu is not None or at.rank is not None else set()
    keys = {key for one in same for key in one.labels} - silent
    telling = sorted(key for key in keys if len({one.labels.get(key, "") for one in same}) > 1)
    alike: dict[str, list[Found]] = {}
    for one in same:
        alike.setdefault(",".join(f"{key}={one.labels.get(key, '')[:TEXT]}" for key in telling), []).append(one)
    for told, ones in alike.items():
        yield _joined(ones), told


def _joined(ones: Sequence[Found]) -> Found:
    """One series of many that differ in who told them: the longest, and what others have from before and after it."""
    rest = sorted(ones, key=lambda one: -len(one.time_ns))
    first = rest[0]
    parts = [first]
    low, high = (first.time_ns.min(), first.time_ns.max()) if len(first.time_ns) else (0, 0)
    for one in rest[1:]:
        outside = np.ones(len(one.time_ns), np.bool_) if one.labels == first.labels else ~_within(one.time_ns, low, high)
        limit = None if one.limit is None else one.limit[outside]
        parts.append(replace(one, time_ns=one.time_ns[outside], value=one.value[outside], limit=limit))
        low, high = min(low, one.time_ns.min(initial=low)), max(high, one.time_ns.max(initial=high))
    return replace(
        first,
        time_ns=np.concatenate([part.time_ns for part in parts]),
        value=np.concatenate([part.value for part in parts]),
        limit=None if first.limit is None else np.concatenate([_limit(part) for part in parts]),
    )


def _within(time: Any, low: int, high: int) -> Any:
    return (time >= low) & (time <= high)


def _limit(one: Found) -> Any:
    return np.full(len(one.time_ns), np.nan) if one.limit is None else one.limit


def _series(at: Place, one: Found, told: str) -> Iterator[Series]:
    """One series in the words of this house; a mask becomes flags, a counter its rate."""
    time, value, limit = one.time_ns, one.value, _limit(one)
    good, none = np.isfinite(value) & (time != NULL), blank(one.name, value)
    if none is not None:
        good &= ~none
    if not good.all():
        time, value, limit = time[good], value[good], limit[good]
    if (time[1:] < time[:-1]).any():
        order = np.argsort(time, kind="stable")
        time, value, limit = time[order], value[order], limit[order]
    if not len(time):
        return
    limited = one.limit is not None and bool(np.isfinite(limit).any())
    source = (one.limit_source.strip() or "the file")[:TEXT] if limited else ""
    tail = f"{{{told}}}" if told else ""
    rate = rate_of(one.name, one.unit, one.counter)
    if rate is not None:
        name, factor = rate
        passed, grown = np.diff(time) / 1e9, np.diff(value)
        good = (passed > 0) & (grown >= 0)  # a counter that fell was reset
        if good.any():
            value = factor * grown[good] / passed[good]
            yield Series(at, name + tail, time[1:][good], value, factor * limit[1:][good], source)
    elif is_mask(one.name):
        mask = np.where(np.abs(value) < 2.0**62, value, 0).astype(np.int64)
        for flag, bits in REASONS.items():
            yield Series(at, flag + tail, time, ((mask & bits) != 0).astype(np.float64), limit * np.nan)
    else:
        name, factor = named(one.name, one.unit)
        yield Series(at, name + tail, time, factor * value, factor * limit if limited else limit, source)


def _named_once(series: Sequence[Series]) -> list[Series]:
    """The longest, where two metrics of a component have one name here: power is told as drawn, and as drawn just now."""
    best: dict[tuple[str, str], Series] = {}
    for one in series:
        key = one.component, one.metric
        if key not in best or len(one.time_ns) > len(best[key].time_ns):
            best[key] = one
    return list(best.values())


def _limited(series: Sequence[Series]) -> list[Series]:
    """Series that are limits of others turned into that."""
    limits = {}
    for one in series:
        name, brace, told = one.metric.partition("{")
        if name in LIMIT_OF:
            limits[one.component, LIMIT_OF[name] + brace + told] = one
    out = []
    for one in series:
        limit = limits.get((one.component, one.metric))
        if limit is not None and not np.isfinite(one.limit).any():
            value = np.full(len(one.time_ns), float(np.median(limit.value)))
            one = replace(one, limit=value, limit_source=f"{limit.metric} beside it")
        if one.metric.partition("{")[0] not in LIMIT_OF:
            out.append(one)
    return out
