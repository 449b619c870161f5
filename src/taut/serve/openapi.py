"""The API described as OpenAPI 3.1, from the routes and from the structs that they answer with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from taut import __version__
from taut.result.view_types import Refusal
from taut.serve.refusals import JSON

if TYPE_CHECKING:
    from taut.core.array_types import Json
    from taut.serve.routes import Route

REF = "#/components/schemas/{name}"
REFUSALS = {"400": "the question does not fit", "401": "no token", "403": "not from here", "404": "not there"}
OF_RUNS = {"409": "the run cannot answer it", "503": "not enough memory"}
POSTED = {"413": "too long a body", "415": "no JSON"}
ID: dict[str, Json] = {"type": "string", "pattern": "^[0-9a-f]{12}$"}


def openapi(routes: Sequence[Route]) -> dict[str, Json]:
    """The description of the routes that answer JSON, and of the trace."""
    of_api = [route for route in routes if route.path.startswith("/api/")]
    types = [one for route in of_api for one in (route.answers, route.body) if one is not None]
    _, schemas = msgspec.json.schema_components([*dict.fromkeys(types), Refusal], ref_template=REF)
    paths: dict[str, Json] = {}
    for route in of_api:
        paths[route.path] = {route.method.lower(): _operation(route)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "taut serve", "version": __version__, "description": "Finished runs, read only but for decisions."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Json]:
    told: dict[str, Json] = {
        "operationId": f"{route.method.lower()}_{route.path.rpartition('/')[2].partition('.')[0]}",
        "summary": route.meaning,
        "parameters": _parameters(route),
        "responses": _responses(route),
    }
    if route.body is not None:
        told["requestBody"] = {"required": True, "content": {JSON: {"schema": _ref(route.body)}}}
    return told


def _parameters(route: Route) -> list[Json]:
    inside: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": ID} for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    asked: list[Json] = [
        {"name": one.name, "in": "query", "required": one.required, "description": one.meaning, "schema": one.schema()}
        for one in route.takes
    ]
    return inside + asked


def _responses(route: Route) -> dict[str, Json]:
    kind = JSON
    schema: dict[str, Json] = {"type": "object"} if route.answers is None else _ref(route.answers)
    if route.path.endswith("/perfetto"):
        kind, schema = "application/octet-stream", {"type": "string", "format": "binary"}
    out: dict[str, Json] = {"200": {"description": route.meaning, "content": {kind: {"schema": schema}}}}
    refusals = {**REFUSALS, "405": "another method", **(OF_RUNS if "{run}" in route.path else {})}
    for status, meaning in {**refusals, **(POSTED if route.body is not None else {})}.items():
        out[status] = {"description": meaning, "content": {JSON: {"schema": _ref(Refusal)}}}
    return out


def _ref(struct: type) -> dict[str, Json]:
    return {"$ref": REF.format(name=struct.__name__)}
