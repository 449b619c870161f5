"""What any reader of metrics found, labelled as it was written → series with taut's names and units.

A reader hands over ``Found``: a metric's name, the labels (or columns) that say where it was taken, times and values. Here
labels become places, masks become flags, counters their rates (those of energy stay, too), and a metric that is another's
limit becomes that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from taut.core.array_types import Floats
from taut.core.errors import InputRefused, UsageError
from taut.core.tables import NULL
from taut.read.contents import Found, Metrics, Place, Series
from taut.read.limits import check_count
from taut.read.metrics.vocabulary import INDEX, LIMIT_OF, REASONS, blank, energy_of, is_mask, named, place, plain, rate_of

# More series than this in one file are a mistake, or worse.
MOST_SERIES = 200_000
# Names are cut here.
TEXT = 200
WHERE: Mapping[str, tuple[str, ...]] = {
    "rank": ("rank", "global_rank", "worker"), "gpu": ("index", "gpu", "gpu_id"),
    "host": ("host", "hostname", "node", "nodename", "kubernetes_node", "instance"),
    "component": ("component", "device", "link", "interface"),
}  # fmt: skip
"""Columns and labels that say where a sample was taken; the first that is there counts."""
SOURCES = frozenset(
    {
        "__name__",
        "job",
        "instance",
        "prometheus",
        "prometheus_replica",
        "replica",
        "endpoint",
        "service",
        "cluster",
        "image",
        "name",
        "metrics_path",
    }
)
"""Labels that say who recorded a sample, not where it was taken."""
USERS = frozenset(
    {
        "pod",
        "namespace",
        "container",
        "exported_pod",
        "exported_namespace",
        "exported_container",
        "uid",
        "uuid",
        "modelname",
        "pci_bus_id",
        "dcgm_fi_driver_version",
        "driver_version",
        "hpc_job",
    }
)
"""Labels that say what else is known of an accelerator, or who uses it."""
BUCKET = "le"
"""Label of a histogram's buckets: distributions are no samples of a component."""
_INDEX = re.compile(r"(?:(?:gpu|nvidia|cuda|card)\W?)?(\d{1,4})", re.IGNORECASE)
_MAP = re.compile(r"\s*([^\s,→>]+)\s*(?:,\s*([^\s,→>]+?)\s*)?(?:→|->)\s*rank\s*")


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


def check_series(count: int, label: str) -> None:
    """Refuse more series than a job can have."""
    check_count(count, MOST_SERIES, "series", label, "write the metrics of one job")


def place_of(labels: Mapping[str, str], where: Mapping[str, tuple[str, ...]], index: int | None = None) -> Place:
    """Where samples with these labels were taken, in one way of writing: ``rank 3``, ``node7 gpu 0``, a host, free text."""
    found = {key: _first(labels, names) for key, names in where.items()}
    rank, gpu = ("" if found[key].startswith("-") else found[key].removesuffix(".0") for key in ("rank", "gpu"))
    host = re.sub(r":\d+$", "", found["host"])
    if rank:
        return Place(labels.get("component") or f"rank {rank}", place(rank)[0], host)
    match = _INDEX.fullmatch(gpu)
    number = int(match[1]) if match else index
    if number is not None:
        return Place(f"{host} gpu {number}".strip(), None, host, number)
    component = found["component"] or gpu
    its_rank, its_host, its_gpu = place(component)
    if its_rank is not None:
        return Place(f"rank {its_rank}", its_rank)
    if its_gpu is not None:
        return Place(f"{its_host or host} gpu {its_gpu}".strip(), None, its_host or host, its_gpu)
    return Place(f"{host} {component}".strip() or "host", None, host)


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The text of the first of these labels that is there."""
    for name in names:
        if text := labels.get(name):
            return text.strip()[:TEXT]
    return ""


def gather(
    label: str, found: Sequence[Found], *, zoneless: bool = False, notes: Sequence[str] = (), mapped: Map = USUAL
) -> Metrics:
    """The series of one source; refuses one that holds none."""
    check_series(len(found), label)
    index = {_device(f): int(f.value[0]) for f in found if plain(f.name) == INDEX and len(f.value) and 0 <= f.value[0] < 1e4}
    found = [one for one in found if BUCKET not in one.labels and plain(one.name) not in ("", INDEX)]
    groups: dict[tuple[Place, str, str], list[Found]] = {}
    for at, one in zip(_places(found, mapped, index), found, strict=True):
        groups.setdefault((at, one.name, one.unit), []).append(one)
    series = [
        s for (at, *_), same in groups.items() for one, labels in _distinguished(at, same) for s in _series(at, one, labels)
    ]
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


def _distinguished(at: Place, same: Sequence[Found]) -> Iterator[tuple[Found, str]]:
    """Series of one metric at one place, each with the labels in which it differs from the others."""
    if len(same) == 1:
        yield same[0], ""
        return
    ignored = SOURCES | {"component", *WHERE["rank"], *WHERE["gpu"], *WHERE["host"]}
    ignored |= USERS if at.gpu is not None or at.rank is not None else set()
    keys = {key for one in same for key in one.labels} - ignored
    different = sorted(key for key in keys if len({one.labels.get(key, "") for one in same}) > 1)
    alike: dict[str, list[Found]] = {}
    for one in same:
        alike.setdefault(",".join(f"{key}={one.labels.get(key, '')[:TEXT]}" for key in different), []).append(one)
    for labels, ones in alike.items():
        yield _joined(ones), labels


def _joined(ones: Sequence[Found]) -> Found:
    """One series of many that differ in who recorded them: the longest, and what others have from before and after it."""
    rest = sorted(ones, key=lambda one: -len(one.time_ns))
    first = rest[0]
    parts = [first]
    # Sources that scrape the same component overlap: inside the time that is covered, one of them is enough.
    low, high = (first.time_ns.min(), first.time_ns.max()) if len(first.time_ns) else (0, 0)
    for one in rest[1:]:
        outside = (one.time_ns < low) | (one.time_ns > high) | (one.labels == first.labels)
        limit = None if one.limit is None else one.limit[outside]
        parts.append(replace(one, time_ns=one.time_ns[outside], value=one.value[outside], limit=limit))
        low, high = min(low, one.time_ns.min(initial=low)), max(high, one.time_ns.max(initial=high))
    return replace(
        first,
        time_ns=np.concatenate([part.time_ns for part in parts]),
        value=np.concatenate([part.value for part in parts]),
        limit=None if first.limit is None else np.concatenate([_limit(part) for part in parts]),
    )


def _limit(one: Found) -> Floats:
    return np.full(len(one.time_ns), np.nan) if one.limit is None else one.limit


def _series(at: Place, one: Found, labels: str) -> Iterator[Series]:
    """One series with taut's name and unit; a mask becomes flags, a counter its rate, one of energy also stays."""
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
    tail = f"{{{labels}}}" if labels else ""
    rate, counted = rate_of(one.name, one.unit, one.counter), energy_of(one.name, one.unit)
    if counted is not None:
        name, factor = counted
        yield Series(at, name + tail, time, factor * value, factor * limit if limited else limit, source)
    if rate is not None:
        name, factor = rate
        # The rate between two samples, at the later one.
        passed, grown = np.diff(time) / 1e9, np.diff(value)
        good = (passed > 0) & (grown >= 0)  # a counter that fell was reset
        if good.any():
            value = factor * grown[good] / passed[good]
            yield Series(at, name + tail, time[1:][good], value, factor * limit[1:][good], source)
    elif is_mask(one.name):
        mask = np.where(np.abs(value) < 2.0**62, value, 0).astype(np.int64)
        for flag, bits in REASONS.items():
            yield Series(at, flag + tail, time, ((mask & bits) != 0).astype(np.float64), limit * np.nan)
    elif counted is None:
        name, factor = named(one.name, one.unit)
        yield Series(at, name + tail, time, factor * value, factor * limit if limited else limit, source)


def _named_once(series: Sequence[Series]) -> list[Series]:
    """The longest, where two metrics of a component have one name here: drivers have power as average and as of now."""
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
        name, brace, labels = one.metric.partition("{")
        if name in LIMIT_OF:
            limits[one.component, LIMIT_OF[name] + brace + labels] = one
    out = []
    for one in series:
        limit = limits.get((one.component, one.metric))
        if limit is not None and not np.isfinite(one.limit).any():
            value = np.full(len(one.time_ns), float(np.median(limit.value)))
            one = replace(one, limit=value, limit_source=f"{limit.metric} beside it")
        if one.metric.partition("{")[0] not in LIMIT_OF:
            out.append(one)
    return out
