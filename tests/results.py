"""Results of which only some keys matter: the others are empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import NODEFAULT, inspect

from taut.result.types import Part

# An analysis of a small job: rank 2 of four is late.
CAUSE = {"rank": 2, "stage": None, "class": "matmul", "link": None, "group": None, "controller": None}
ROW = {
    "cause": CAUSE,
    "wait_rank_ns": 40_000_000,
    "share": 0.5,
    "recoverable_wall_ns": 9_000_000,
    "steps": [0, 3],
    "gates": None,
}
FINDING = {
    "id": "f-1", "mode": "straggler cascade", "ranks": [2], "links": [], "stages": [1], "classes": ["matmul"],
    "steps": [0, 3], "lost_rank_ns": 40_000_000, "recoverable_wall_ns": 9_000_000, "confidence": 0.97,
    "because": "it is slow",
}  # fmt: skip
NS = {"productive": 300_000_000, "fault wait": 59_900_000, "gap": 100_000, "unexplained": 0}
RESULT: dict[str, Any] = {
    "verdict": {"text": "Rank 2 holds the job up.", "class": "component", "bound": "compute"},
    "job": {"name": "toy", "ranks": 4, "world_size": 8, "steps": 4, "wall_ns": 90_000_000,
            "partial": ["rank 5 missing"]},
    "fidelity": {
        "replay_error": 0.0, "gapfree_error": -0.012, "explained_share": 0.93, "dropped_edges": 1,
        "clock": {"offset_ns": {"0": {"value": 0}, "1": {"value": 0}}, "drift_ppm": {}, "residual_ns": 0},
    },
    "blame": [ROW],
    "coupling": {"response": None},
    "findings": [FINDING],
    "gates": [],
    "ledger": {
        "total_rank_ns": 360_000_000, "currency": None, "closes": True, "hidden_wait_rank_ns": 5_000_000,
        "entries": [
            {"fate": fate, "rank_ns": ns, "joules": None, "money": None, "kg_co2e": None}
            for fate, ns in NS.items()
        ],
    },
}  # fmt: skip


def filled(kind: type[Any], given: Mapping[str, Any]) -> Any:
    """A struct with these keys; those that are not given are null, or empty lists and objects."""
    values = {}
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        if field.encode_name in given:
            values[field.name] = _value(field.type, given[field.encode_name])
        elif field.default is NODEFAULT:
            values[field.name] = _blank(field.type)
    return kind(**values)


def _value(kind: inspect.Type, given: Any) -> Any:
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for one in kinds:
        if isinstance(one, inspect.StructType) and isinstance(given, Mapping) and not isinstance(given, Part):
            return filled(one.cls, given)
        if isinstance(one, inspect.ListType) and isinstance(given, list):
            return [_value(one.item_type, each) for each in given]
        if isinstance(one, inspect.DictType) and isinstance(given, Mapping):
            return {key: _value(one.value_type, each) for key, each in given.items()}
    return given


def _blank(kind: inspect.Type) -> Any:
    return [] if isinstance(kind, inspect.ListType) else {} if isinstance(kind, inspect.DictType) else None
