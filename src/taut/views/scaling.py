"""What more ranks bring: of a scenario its forecasts, of a run the run itself on more ranks."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from taut.core.errors import RunError, TautError
from taut.result.types import AnalysisResult, ProjectResult
from taut.result.view_types import Scaling
from taut.stored import Stored, damaged, decoded_result, read_stored

MOST_OPS = 250_000
"""Ops of a graph that is widened while somebody waits."""
NOT_TRACED = "traces: the run was made of logs alone, and has no graph to be widened"


def scaling(folder: str | Path, seed: int = 0) -> Scaling:
    """What a stored run says of other scales."""
    root = Path(folder)
    stored = read_stored(root)
    keys = msgspec.json.decode(stored.result, type=dict[str, msgspec.Raw])
    if "forecasts" in keys:
        return _of_scenario(root, stored)
    if "verdict" not in keys or "job" not in keys:
        raise RunError(f"{root}: says nothing of other scales; taut project and taut analyze do")
    return _of_run(root, decoded_result(root, stored.result), stored.graph is not None, seed)


def _of_scenario(root: Path, stored: Stored) -> Scaling:
    try:
        result = msgspec.json.decode(stored.result, type=ProjectResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(root, str(error)) from None
    return Scaling(project=result, envelope=None, needs=None, command=f"taut project {shlex.quote(result.scenario)}")


def _of_run(root: Path, result: AnalysisResult, traced: bool, seed: int) -> Scaling:
    command = f"taut project --from {shlex.quote(str(root))}"
    found, needs = (None, NOT_TRACED) if not traced else _widened(root, result, seed, command)
    return Scaling(project=found, envelope=result.envelope, needs=needs, command=command)


def _widened(root: Path, result: AnalysisResult, seed: int, command: str) -> tuple[ProjectResult | None, str | None]:
    """The run on more ranks, or what is in the way."""
    from taut.forecasts import project_run

    if result.job.ops > MOST_OPS:
        return None, f"patience: {result.job.ops:,} ops take minutes to be widened; ask the terminal: {command}"
    try:
        return project_run(root, seed=seed), None
    except TautError as error:  # some graphs cannot be widened: what is not known stays so
        return None, str(error)
