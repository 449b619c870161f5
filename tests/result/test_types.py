"""The result is one set of types: every key has a meaning, the schema that ships is theirs, results fit it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import taut
from build import barriers
from taut.diagnose import instability, nondeterminism
from taut.diagnose.detectors import DETECTORS
from taut.ledger.charge import FATES
from taut.result import types
from taut.result.analysis_verdict import BOUNDS, NO_BOUND
from taut.result.schema import schema, stored_schema
from taut.run import analyze_trace

# fmt: off
CONTRACT = {
    "AnalysisResult": "schema verdict job fidelity whatif blame waits coupling findings indices regime ledger",
    "Verdict": "text class bound components",
    "Job": "name ranks world_size steps ops wall_ns partial",
    "Fidelity": "replay_error gapfree_error explained_share dropped_edges clock",
    "Clock": "offset_ns drift_ppm residual_ns",
    "WhatIf": "actual_wall_ns ideal_wall_ns slowdown by explained",
    "Explained": "worst_ranks last_stage",
    "Blame": "cause wait_rank_ns share recoverable_wall_ns steps gates",
    "Cause": "rank stage class link group controller",
    "Waits": "observed_rank_ns exposed_rank_ns fault_rank_ns jitter_rank_ns structural_rank_ns gap_rank_ns unexplained_rank_ns",
    "Coupling": "reach_ranks reach_gates reach_hops amplification",
    "Finding": "id mode ranks links stages classes steps lost_rank_ns recoverable_wall_ns confidence because money",
    "Money": "window per_hour per_day currency",
    "Indices": "effective_throughput_ratio energy_per_useful_step runtime_variance_index sync_delay_amplification "
               "replay_probability straggler_cascade_rate",
    "Regime": "class reserve",
    "LedgerResult": "total_rank_ns entries currency closes",
    "LedgerEntry": "fate rank_ns joules money kg_co2e",
    "Device": "windows ranks",
    "DeviceWindow": "rank step start_ns end_ns",
    "DeviceRank": "host gpu step_ns busy_share compute_share communication_share hidden_share exposed_share copy_share "
                  "exposed_copy_share idle_share",
    "WhatIfResult": "actual_wall_ns changed_wall_ns saved_wall_ns saved_share error",
    "CompareResult": "runs trends changed non_determinism",
    "Trend": "quantity slope p q",
    "ChangedWork": "class rank before_ns after_ns p q",
    "ControlResult": "actions controllers relations indices regime",
    "RelationResult": "kind controllers target knob count statistic p q cost because",
    "RelationCost": "rank_ns tokens",
    "ProjectResult": "scenario defaults forecasts threshold policies",
    "Forecast": "ranks mean_step_ns step_ns tflops_per_device mfu effective_throughput_ratio cost_per_unit energy_per_unit_j "
                "dominant in_range",
    "Threshold": "ranks lo hi rule",
    "PolicyComparison": "name indices regime",
    "Regimes": "without with",
}
# fmt: on


def structs() -> list[type[types.Part]]:
    found = [one for one in vars(types).values() if isinstance(one, type) and issubclass(one, types.Part)]
    return [one for one in found if one is not types.Part]


@pytest.mark.parametrize("name", CONTRACT)
def test_the_keys_of_the_contract_are_there(name: str) -> None:
    assert set(CONTRACT[name].split()) <= set(getattr(types, name).__struct_encode_fields__)


def test_every_key_and_every_object_has_a_meaning() -> None:
    definitions: Any = schema()["$defs"]
    assert {one.__name__ for one in structs()} >= set(definitions)
    assert [name for name, one in definitions.items() if not one.get("description")] == []
    assert [f"{name}.{key}" for name, one in definitions.items() for key, about in one["properties"].items()
            if not about.get("description")] == []  # fmt: skip


def test_the_schema_that_ships_is_that_of_the_types() -> None:
    assert json.loads(stored_schema()) == msgspec.to_builtins(schema()), "run `python docs/generate.py`"


def test_export_prints_the_schema_without_a_run() -> None:
    done = subprocess.run([sys.executable, "-m", "taut", "export", "--to", "schema"], capture_output=True, check=True)
    assert done.stdout == stored_schema()


@pytest.fixture(scope="module")
def analysis() -> Any:
    work = np.random.default_rng(1).normal(1e7, 1e5, (12, 4)).astype(np.int64)
    work[6:, 2] *= 2
    return analyze_trace(barriers(work, 1_000_000))


def test_a_result_reads_like_its_json(analysis: Any) -> None:
    result = analysis.result
    again = json.loads(analysis.to_json())
    assert again["schema"] == types.SCHEMA == result["schema"]
    assert again["verdict"]["text"] == result["verdict"]["text"] == result.verdict.text
    assert again == json.loads(json.dumps(msgspec.to_builtins(result)))
    assert "verdict" in result
    assert set(result.keys()) == set(again)
    with pytest.raises(KeyError):
        result["no such key"]


def test_what_was_printed_is_opened_as_the_same_type(analysis: Any, tmp_path: Path) -> None:
    folder = analysis.save(tmp_path / "run")
    assert taut.open_run(folder).result == analysis.result


def test_every_fate_says_what_a_job_is_bound_by_or_nothing_of_it() -> None:
    grouped = [*NO_BOUND, *(fate for some in BOUNDS.values() for fate in some)]
    assert sorted(grouped) == sorted(FATES), "put a new fate into BOUNDS or NO_BOUND of result/analysis_verdict.py"


def test_the_contract_names_every_mode(root: Path) -> None:
    text = (root / "docs" / "contract.md").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("- `mode` is one of"))
    modes = {mode for detector in DETECTORS for mode in detector.MODES} | {instability.MODE, nondeterminism.MODE}
    assert set(re.findall(r"`([^`]+)`", line.partition(". ")[0])) - {"mode"} == modes
