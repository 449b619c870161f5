"""The Grafana dashboard that ships is what its script writes, and Grafana's own types read it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "watch"


def test_it_is_what_its_script_writes_and_grafana_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="could not import 'grafana_foundation_sdk'")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    spec = importlib.util.spec_from_file_location("dashboard", FOLDER / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    shipped = (FOLDER / "taut-dashboard.json").read_text(encoding="utf-8")
    script.FILE = tmp_path / "again.json"
    script.main()
    assert script.FILE.read_text(encoding="utf-8") == shipped, "stale: run `python docs/watch/dashboard.py`"
    register_default_plugins()
    again = JSONEncoder(sort_keys=True, indent=1).encode(Dashboard.from_json(json.loads(shipped)))
    assert json.loads(again) == json.loads(shipped)


def test_every_panel_has_a_place_of_its_own() -> None:
    panels = json.loads((FOLDER / "taut-dashboard.json").read_text(encoding="utf-8"))["panels"]
    assert len({(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels}) == len(panels) == 15
    assert all(one["title"] and one["targets"] for one in panels)
