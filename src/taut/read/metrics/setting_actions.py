"""Series of settings → actions: a metric that somebody sets (replicas, limits) changes only because somebody changed it.

Sampled, so a change is known to the sample after it, and one that was undone in between is not seen. What is observed
and not set (replicas that are ready, usage) is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from taut.core.array_types import Floats, Texts
from taut.core.tables import Action, Table, concat
from taut.read.actions.control_log import layer_of
from taut.read.contents import ControlLog, Found
from taut.read.jobs.job_words import TEXT

KNOBS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?:^|_)(?:max|min)_replicas$"), ""),
    (re.compile(r"(?:^|_)replicas$"), "replicas"),
    (re.compile(r"power[_.](?:mgmt_|management_)?(?:limit|cap)(?:_w|_watts)?$", re.IGNORECASE), "power limit"),
    (re.compile(r"resource_limits(?:_\w+)?$|spec_(?:memory_limit_bytes|cpu_quota|cpu_shares)$"), "limit"),
)
"""Names of metrics that are settings, and the knob; without one it is what the name ends with."""
OBSERVED = re.compile(r"status(?!_desired)|ready|available|running|current|updated|healthy")
"""Names of metrics that show what came of a setting."""
KINDS = ("deployment", "statefulset", "replicaset", "horizontalpodautoscaler", "scaledobject", "daemonset", "job_name", "pod")
SOURCES = frozenset({"__name__", "job", "instance", "endpoint", "prometheus", "service", "uid", "controller", "manager"})
MOST_SERIES = 100_000


def knob_of(name: str) -> str:
    """The knob that a metric of this name is; empty if it is none."""
    found = next(((pattern, knob) for pattern, knob in KNOBS if pattern.search(name)), None)
    if found is None or OBSERVED.search(name):
        return ""
    return found[1] or "_".join(name.split("_")[-2:])


def settings(found: Sequence[Found]) -> list[Found]:
    """The series that are settings and do change."""
    return [
        one
        for one in found
        if "replica" in one.name or "limit" in one.name.lower() or "quota" in one.name
        if knob_of(one.name) and len(one.value) > 1 and (one.value != one.value[0]).any()
    ][:MOST_SERIES]


def log(label: str, found: Sequence[Found]) -> ControlLog:
    """Every change of a setting as an action."""
    actions = concat(Action, list(_tables(found)))
    return ControlLog(label, actions.take(np.argsort(actions.time_ns, kind="stable")))


def _tables(found: Sequence[Found]) -> Iterator[Table]:
    for one in found:
        good = np.isfinite(one.value) & (one.time_ns >= 0)
        order = np.argsort(one.time_ns[good], kind="stable")
        time, value = one.time_ns[good][order], one.value[good][order]
        at = np.flatnonzero(np.diff(value) != 0) + 1
        if not len(at):
            continue
        who, target, knob = _who(one.labels), _target(one.name, one.labels), knob_of(one.name)
        resource = one.labels.get("resource", "")
        texts = {"layer": layer_of(who), "controller": who, "target": target, "knob": f"{knob} {resource}".strip()}
        yield Table(
            Action,
            {
                "time_ns": time[at],
                "before": _plain(value[at - 1]),
                "after": _plain(value[at]),
                "direction": np.sign(value[at] - value[at - 1]).astype(np.int8),
                **{key: np.full(len(at), text[:TEXT], dtype=np.object_) for key, text in texts.items()},
            },
            len(at),
        )


def _plain(values: Floats) -> Texts:
    return np.array([f"{value:.12g}" for value in values.tolist()], dtype=np.object_)


def _who(labels: Mapping[str, str]) -> str:
    """The controller, where a label says it."""
    name = labels.get("controller") or labels.get("manager") or ""
    return name or ("horizontal-pod-autoscaler" if labels.get("horizontalpodautoscaler") else "")


def _target(name: str, labels: Mapping[str, str]) -> str:
    """What is set: an object of Kubernetes, else what the labels say."""
    for kind in KINDS:
        if labels.get(kind):
            parts = (kind.removesuffix("_name"), labels.get("namespace", ""), labels[kind], labels.get("container", ""))
            return "/".join(part for part in parts if part)
    texts = [f"{key}={text}" for key, text in sorted(labels.items()) if key not in SOURCES and text]
    return ",".join(texts) or labels.get("instance", "") or name
