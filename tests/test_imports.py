"""The one-way rule: data flows down the house and never back, and only some rooms touch the world outside."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "taut"

STAIRS = ("core", "read", "graph", "replay", "diagnose", "control", "ledger", "project", "result")
"""Data flows down: each room may import those before it."""
ASIDE = ("render", "audit")
TYPES = tuple(f"taut.result.{one}." for one in ("types", "brief_types", "evidence_types", "view_types"))
"""What ``--json`` prints, as types: every room may build parts of it."""
TOP = (
    "watch",
    "serve",
    "lab",
    "run",
    "stored",
    "stored_tables",
    "stored_bill",
    "forecasts",
    "bill_inputs",
    "billing",
    "views",
    "briefing",
    "compare",
    "export",
    "cli",
    "__init__",
    "__main__",
)
WORLDLY = (
    "read", "audit", "render", "watch", "serve", "lab", "run", "stored", "stored_tables", "stored_bill", "forecasts",
    "bill_inputs", "billing", "views", "briefing", "compare", "cli", "__main__",
)  # fmt: skip
WORLDLY_FILES = (
    "whole_file",
    "memory",
    "signals",
    "boundary",
    "folder",
    "native",
    "machine_calls",
    "placed_code",
    "scratch",
    "executors",
)
"""Files of ``core`` that serve those rooms; the rest of ``core`` is pure."""

MAY_IMPORT: dict[str, set[str]] = {
    **{room: set(STAIRS[:level]) for level, room in enumerate(STAIRS)},
    **{room: {"core"} for room in ASIDE},
    **{room: {*STAIRS, *ASIDE, *TOP} for room in TOP},
}

# fmt: off
OUTSIDE_MODULES = frozenset([
    "builtins", "ctypes", "fcntl", "getpass", "glob", "http", "io", "mmap", "multiprocessing", "os", "pathlib",
    "platform", "pyarrow.fs", "pyarrow.parquet", "random", "secrets", "shutil", "signal", "socket", "sqlite3", "ssl",
    "subprocess", "tempfile", "time", "urllib", "uuid", "webbrowser", "zoneinfo",
])
# fmt: on
OUTSIDE_CALLS = frozenset({"open", "print", "input", "__import__", "eval", "exec"})
SEEDED = frozenset({"default_rng", "Generator", "SeedSequence", "PCG64", "BitGenerator"})

FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def parsed(path: Path) -> list[ast.AST]:
    """Everything that a file is made of."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def imported(path: Path, nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, absolute module name) of everything a file imports, at whatever depth it does so."""
    package = ("taut", *path.relative_to(SOURCE).parts[:-1])
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *(node.module or "").split("."))).strip(".")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(SOURCE.parent)}:{line}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_rooms_import_only_what_lies_above_them(path: Path) -> None:
    room = room_of(path)
    assert room in MAY_IMPORT, f"{room} is a new room: give it its place in the one-way rule (docs/design.md) and here"
    wrong = []
    for line, module in imported(path, parsed(path)):
        parts = module.split(".")
        if parts[0] != "taut":
            continue
        if parts[1:3] == ["result", "types"] or parts[1:] == ["__version__"]:  # the words that all rooms speak
            continue
        target = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "__init__"
        if module.startswith(TYPES):
            continue
        if target != room and target not in MAY_IMPORT[room]:
            wrong.append(f"{where(path, line)} imports {module}")
    assert not wrong, f"{room} may import only {', '.join(sorted(MAY_IMPORT[room])) or 'nothing of taut'}: {wrong}"


PURE = [
    path
    for path in FILES
    if room_of(path) not in (*WORLDLY, "__init__") and not (room_of(path) == "core" and path.stem in WORLDLY_FILES)
]


def touches(node: ast.AST) -> str:
    """What of the world outside a node uses, or nothing."""
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in OUTSIDE_CALLS:
            return f"calls {name}()"
        case ast.Attribute(value=ast.Attribute(attr="random"), attr=name) if name not in SEEDED:
            return f"uses the global random state ({name})"
        case ast.Call(func=ast.Attribute(attr="default_rng"), args=[], keywords=[]):
            return "draws a seed: seeds are arguments"
    return ""


@pytest.mark.parametrize("path", PURE, ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_pure_rooms_touch_no_disk_clock_network_or_chance(path: Path) -> None:
    nodes = parsed(path)
    wrong = [
        f"{where(path, line)} imports {module}"
        for line, module in imported(path, nodes)
        if any(module == m or module.startswith(f"{m}.") for m in OUTSIDE_MODULES)
    ]
    wrong += [f"{where(path, node.lineno)} {what}" for node in nodes if (what := touches(node))]
    assert not wrong, f"only {', '.join(WORLDLY)} may touch disk, clock, network or chance: {wrong}"


@pytest.mark.parametrize("module", ["taut", "taut.cli"])
def test_import_is_light(module: str) -> None:
    heavy = ("numba", "pyarrow", "scipy")
    code = f"import sys, {module}; print(*(m for m in {heavy!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [], f"`import {module}` already imports {done.stdout.strip()}"


def test_a_small_analysis_loads_no_cluster_and_no_processes(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text("worker,step,step_time_s\n0,0,0.1\n0,1,0.1\n1,0,0.1\n1,1,0.2\n")
    heavy = ("dask", "distributed", "fsspec", "multiprocessing.pool", "concurrent.futures.process", "torch")
    code = f"import sys, taut; taut.analyze(sys.argv[1]); print(*(m for m in {heavy!r} if m in sys.modules))"
    command = [sys.executable, "-c", code, str(tmp_path / "steps.csv")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []


def test_control_loads_no_diagnosis() -> None:
    code = "import sys, taut.control.relations; print(*(m for m in sys.modules if m.startswith('taut.diagnose.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
