"""Whatever the description allows, and much that it does not: no question makes the app fail, and answers are as described."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from serving import BEARER, App, listening, run_folder
from taut.serve.routes import ROUTES

NAMES = [route.path for route in ROUTES if route.path.startswith("/api/")]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[App, str]]:
    folder = tmp_path_factory.mktemp("served")
    run_folder(folder / "taut-runs" / "job-1")
    app = App([folder / "taut-runs"], log=Path(folder / "audit.db"))
    with listening(app) as (host, port):
        yield app, f"http://{host}:{port}"
    app.close()


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", NAMES)
def test_no_question_makes_the_app_fail(served: tuple[App, str], path: str, mode: str) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    app, address = served
    app.said.clear()
    name = app.ids()[0]
    told = app.get("/api/openapi.json").json()
    operation = next(
        found.ok() for found in schemathesis.openapi.from_dict(told).get_all_operations() if found.ok().path == path
    )

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(schemathesis.GenerationMode(mode), path_parameters={"run": name} if "{run}" in path else None))
    def ask(case: Any) -> None:
        response = case.call(base_url=address, headers={**BEARER, "origin": address})
        case.validate_response(response, checks=checks)

    ask()
    assert app.said == []
