"""Measure the source of one or more checkouts: size, functions, types, names, comments, what a verb loads and runs.

    python bench/house.py CHECKOUT [CHECKOUT ...] [--verbs] [--room FOLDER]

Prints one column per checkout. ``--verbs`` also runs three verbs in each and counts the modules of taut that they load and
the functions of taut that they call (needs an environment in which the checkout's dependencies are installed).
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

PARAMETERS, COMPLEX = 7, 20
BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.With, ast.Assert, ast.IfExp, ast.comprehension, ast.match_case)
COUNTER = """
import atexit, sys
called = set()
def profile(frame, event, arg):
    if event == "call" and "/taut/" in frame.f_code.co_filename:
        called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
atexit.register(lambda: print(sum(m.split(".")[0] == "taut" for m in sys.modules), len(called), file=open(sys.argv[-1], "w")))
from taut.cli import main
sys.setprofile(profile)
main(sys.argv[1:-1])
"""
LOG = "time,controller,target,knob,before,after\n" + "".join(
    f"{10 * i},{('a', 'b')[i % 2]},pool,replicas,{4 + i % 2},{5 - i % 2}\n" for i in range(40)
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_kernel(function: Function) -> bool:
    """Whether a function is compiled: kernels are exempt from the rules for functions."""
    return any("kernel" in ast.dump(one) or "njit" in ast.dump(one) for one in function.decorator_list)


def complexity(function: Function) -> int:
    """Cyclomatic complexity: one more than the branches in it."""
    total = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
    return total


def parameters(function: Function) -> int:
    """How many parameters it has, ``self`` and ``cls`` not counted."""
    listed = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in listed)


def comments(text: str) -> int:
    """Lines that hold a comment for people."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    texts = [token.string for token in tokens if token.type == tokenize.COMMENT]
    return sum(not one.startswith(("# type:", "# fmt:", "# noqa")) for one in texts)


def code_lines(text: str) -> int:
    """Lines of code: without blank lines, comments and documentation strings."""
    nothing = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    begins = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in nothing and not (begins and token.type == tokenize.STRING):
            lines.update(range(token.start[0], token.end[0] + 1))
        begins = token.type in nothing
    return len(lines)


def trees_of(root: Path, room: str = "") -> dict[Path, ast.Module]:
    """The files of a checkout, or of one room of it, by their place in the package."""
    source = root / "src" / "taut"
    files = sorted((source / room).rglob("*.py"))
    return {file.relative_to(source): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def functions_of(tree: ast.Module) -> list[Function]:
    """All functions of a file, at whatever depth."""
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def recurring(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Names that several files have, with these files."""
    named: dict[str, list[Path]] = {}
    for file in files:
        if file.stem != "__init__":
            named.setdefault(file.stem, []).append(file)
    return {name: some for name, some in named.items() if len(some) > 1}


def is_cast(node: ast.AST) -> bool:
    """Whether a type is claimed: ``cast`` of typing, not a method of that name, which converts values."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast"


def measure(root: Path, room: str = "") -> Iterator[tuple[str, str]]:
    """Name and value of every figure of the source, or of one room of it."""
    trees = trees_of(root, room)
    files, texts = list(trees), [(root / "src" / "taut" / file).read_text(encoding="utf-8") for file in trees]
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [function for tree in trees.values() for function in functions_of(tree)]
    plain = [function for function in functions if not is_kernel(function)]
    lengths = [(function.end_lineno or 0) - function.lineno + 1 for function in functions]
    lines = sum(map(code_lines, texts))
    again = recurring(files).values()
    anys = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)
    yield "files", str(len(files))
    yield "most files in one folder", str(max(Counter(file.parent for file in files).values()))
    yield "lines of code", f"{lines:,}"
    yield "AST statements", f"{sum(isinstance(node, ast.stmt) for node in nodes):,}"
    yield "functions", f"{len(functions):,}"
    yield (
        "function length, median / p90 / longest",
        (f"{statistics.median(lengths):.0f} / {statistics.quantiles(lengths, n=10)[-1]:.0f} / {max(lengths)}"),
    )
    yield "`Any` per 1,000 lines", f"{1000 * anys / lines:.1f}"
    yield (
        "`object` per 1,000 lines",
        (f"{1000 * sum(isinstance(node, ast.Name) and node.id == 'object' for node in nodes) / lines:.1f}"),
    )
    yield "casts and ignores", str(sum(map(is_cast, nodes)) + sum(text.count("type: ignore") for text in texts))
    yield f"functions over {PARAMETERS} parameters", str(sum(parameters(function) > PARAMETERS for function in plain))
    yield f"complexity over {COMPLEX} outside kernels", str(sum(complexity(function) > COMPLEX for function in plain))
    yield "recurring file names / files that have one", f"{len(again)} / {sum(map(len, again))}"
    yield "lines with a comment, %", f"{100 * sum(map(comments, texts)) / lines:.2f}"


def verbs(root: Path) -> Iterator[tuple[str, str]]:
    """Modules loaded and functions called by three verbs."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "log.csv").write_text(LOG)
        for name, args in (
            ("analyze (demo)", ["demo", "-q", "-o", "run"]),
            ("project gpt-175b", ["project", "gpt-175b", "-q"]),
            ("control LOG", ["control", "log.csv", "-q"]),
        ):
            env = {**os.environ, "PYTHONPATH": str(root / "src")}
            subprocess.run(
                [sys.executable, "-c", COUNTER, *args, "count"], cwd=place, env=env, stdout=subprocess.DEVNULL, check=True
            )
            loaded, called = (Path(place) / "count").read_text().split()
            yield f"{name}: modules / functions", f"{loaded} / {called}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--verbs", action="store_true")
    parser.add_argument("--room", default="", help="measure only this folder of src/taut, such as read or project/training")
    asked = parser.parse_args()
    roots = [root.resolve() for root in asked.checkouts]
    columns = [dict([*measure(root, asked.room), *(verbs(root) if asked.verbs else ())]) for root in roots]
    print("| figure | " + " | ".join(root.name for root in roots) + " |")
    print("|---|" + "---:|" * len(roots))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(column.get(name, "") for column in columns) + " |")


if __name__ == "__main__":
    main()
