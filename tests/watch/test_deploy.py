"""The unit and the manifest that ship: they start the collector with options that it has, and Kubernetes takes them."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import pytest

from taut.cli.watch_verb import PLACEHOLDER, collect
from taut.read.jobs.kube_yaml import documents

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "watch"


def manifest() -> dict[str, Any]:
    found = documents((FOLDER / "taut-collector.yaml").read_text(encoding="utf-8"))
    return {one["kind"]: one for one in found}  # type: ignore[index, call-overload]


def options(command: list[str]) -> dict[str, Any]:
    assert command[:3] == ["taut", "watch", "collect"]
    return collect.make_context("collect", command[3:]).params


def test_the_unit_starts_the_collector() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.read(FOLDER / "taut-collector.service", encoding="utf-8")
    path, *words = unit["Service"]["ExecStart"].split()
    found = options([Path(path).name, *words])
    assert (found["host"], found["metrics_port"], found["price"]) == ("10.0.0.5", 9322, ("2.50", "EUR"))
    assert Path(found["keep"]).name == unit["Service"]["StateDirectory"]


def test_the_manifest_starts_the_collector_and_leads_to_it() -> None:
    found = manifest()
    assert sorted(found) == ["Deployment", "Secret", "Service"]
    pod = found["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    started = options(container["command"])
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"ranks": started["port"], "metrics": started["metrics_port"]}
    assert {one["targetPort"] for one in found["Service"]["spec"]["ports"]} == set(ports)
    assert found["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    secret = next(one for one in container["env"] if one["name"] == "TAUT_WATCH_SECRET")["valueFrom"]["secretKeyRef"]
    assert secret["name"] == found["Secret"]["metadata"]["name"]
    assert found["Secret"]["stringData"] == {secret["key"]: PLACEHOLDER}, "which the collector refuses"


def test_kubernetes_takes_the_manifest() -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="could not import 'kubernetes_validate'")
    for one in manifest().values():
        schemas.validate(one, schemas.latest_version(), strict=True)
