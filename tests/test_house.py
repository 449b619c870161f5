"""The house rules that can be counted: how tangled a function is, how many parameters it has, which file names recur.

``bench/house.py`` counts, and says in figures what is held here; docs/house.md has these.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]

KEYWORDS = {
    "run.py: analyze": "taut.analyze, whose options are keywords",
    "run.py: analyze_trace": "the same with a trace that is already read",
    "billing.py: bill": "taut.bill, whose options are keywords",
    "forecasts.py: project": "taut.project, whose options are keywords",
}
"""Functions that may have more parameters than others, and why."""

FORMATS = ("chakra", "flight", "kineto", "metrics", "nsys", "otf2", "otlp", "xplane")
KINDS = ("loops", "requests/agents", "requests/serving", "training")


def _house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "bench" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOUSE = _house()


@cache
def _functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions with their places."""
    trees = HOUSE.trees_of(ROOT).items()
    return [(f"{file.as_posix()}: {one.name}", one) for file, tree in trees for one in HOUSE.functions_of(tree)]


def _over(count: Callable[..., int], most: int) -> dict[str, int]:
    """Functions that are no kernels, and of which more is counted than allowed."""
    return {
        place: found for place, function in _functions() if (found := count(function)) > most and not HOUSE.is_kernel(function)
    }


def _check(over: dict[str, int], allowed: dict[str, str], remedy: str) -> None:
    new = {place: found for place, found in over.items() if place not in allowed}
    assert not new, f"{remedy}: {new}"
    assert not allowed.keys() - over.keys(), f"no longer over the limit, take off the list: {allowed.keys() - over.keys()}"


def test_functions_are_not_tangled() -> None:
    over = _over(HOUSE.complexity, HOUSE.COMPLEX)
    assert not over, f"complexity over {HOUSE.COMPLEX}: split along an idea, and name the parts: {over}"


def test_functions_have_few_parameters() -> None:
    over = _over(HOUSE.parameters, HOUSE.PARAMETERS)
    _check(over, KEYWORDS, f"more than {HOUSE.PARAMETERS} parameters: give what belongs together a noun (a small struct)")


def _is_table(statement: ast.stmt | None) -> bool:
    """Whether a statement writes a table of data: a literal that is named, returned or given out."""
    value = getattr(statement, "value", None)
    value = value.value if isinstance(value, (ast.Yield, ast.YieldFrom)) else value
    return isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.Set))


def _ends_at(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement around a line."""
    around = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and one.lineno <= line <= (one.end_lineno or 0)]
    return max(around, key=lambda one: (one.lineno, -(one.end_lineno or 0)), default=None)


def test_the_formatter_is_kept_off_tables_of_data_only() -> None:
    others = []
    for file, tree in HOUSE.trees_of(ROOT).items():
        lines = (ROOT / "src" / "taut" / file).read_text(encoding="utf-8").splitlines()
        skips = [number for number, text in enumerate(lines, 1) if text.endswith("# fmt: skip")]
        others += [f"{file}:{number}" for number in skips if not _is_table(_ends_at(tree, number))]
    assert not others, f"let the formatter lay these out: {others}"
