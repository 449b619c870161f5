"""The JSON Schema of everything that ``--json`` prints, made from ``types.py``: its docstrings are the descriptions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from taut.result import types
from taut.result.key_meanings import COMMON

if TYPE_CHECKING:
    from taut.core.array_types import Json

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def stored_schema() -> bytes:
    """The schema as it ships with taut."""
    return resources.files("taut.result").joinpath("schema.json").read_bytes()


def schema() -> dict[str, object]:
    """One schema for each verb's result, all of them in ``$defs``."""
    _, definitions = msgspec.json.schema_components(list(types.RESULTS.values()), ref_template="#/$defs/{name}")
    own = meanings_of_fields()
    for name, struct in definitions.items():
        for key, about in struct["properties"].items():
            meaning = own[name].get(key) or _of_struct(about) or COMMON.get(key)
            if meaning:
                about["description"] = meaning
    verbs = {f"taut {verb} --json": {"$ref": f"#/$defs/{one.__name__}"} for verb, one in types.RESULTS.items()}
    return {
        "$schema": DIALECT,
        "title": f"What taut prints as JSON, version {types.SCHEMA} of its keys",
        "anyOf": list(verbs.values()),
        "properties": {"schema": {"const": types.SCHEMA}},
        "$defs": definitions,
        "verbs": verbs,
    }


def _of_struct(about: Mapping[str, Json]) -> str | None:
    """The first line about the struct that a key holds, or a list or union of it."""
    if isinstance(named := about.get("$ref"), str):
        return inspect.cleandoc(getattr(types, named.rpartition("/")[2]).__doc__).partition("\n")[0]
    inside = about.get("anyOf") or about.get("items") or about.get("additionalProperties") or ()
    some = [inside] if isinstance(inside, dict) else inside if isinstance(inside, list) else []
    return next((text for one in some if isinstance(one, dict) and (text := _of_struct(one))), None)


def meanings_of_fields() -> dict[str, dict[str, str]]:
    """Struct → key of its JSON → the docstring below the field."""
    tree = ast.parse(inspect.getsource(types))
    out: dict[str, dict[str, str]] = {}
    for found in tree.body:
        if isinstance(found, ast.ClassDef) and issubclass(getattr(types, found.name), types.Part):
            struct = getattr(types, found.name)
            keys = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
            out[found.name] = {keys[name]: text for name, text in _documented(found)}
    return out


def _documented(found: ast.ClassDef) -> list[tuple[str, str]]:
    """(field, docstring) of the fields that have one."""
    out = []
    for one, after in zip(found.body, found.body[1:], strict=False):
        match one, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                out.append((name, " ".join(text.split())))
    return out
