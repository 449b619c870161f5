"""Results of which only some keys matter: the others are empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import NODEFAULT, inspect

from taut.result.types import Part


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
