"""Every recipe of docs/adding.md, followed to the letter on a copy of the package, which then works and passes the linter."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import taut

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "adding.md").read_text(encoding="utf-8")
RECIPES = {
    title: re.findall(r"^```\w+ (new|edit|check)(?:=(\S+))?\n(.*?)^```", text, re.M | re.S)
    for title, text in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}
FOLLOWED = [title for title, blocks in RECIPES.items() if any(kind == "check" for kind, *_ in blocks)]


def edited(text: str, block: str) -> str:
    """The text with the change of a block; the lines that are not new say where, and occur there alone."""
    lines = block.splitlines()
    old = "\n".join(line[1:] for line in lines if not line.startswith("+"))
    new = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(old) == 1, f"docs/adding.md quotes {old!r}, which is there {text.count(old)} times: update its block"
    return text.replace(old, new)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with its bytecode, and with the kernels that are compiled by now: what a recipe changes is compiled anew."""
    copy = tmp_path_factory.mktemp("package") / "taut"
    shutil.copytree(Path(taut.__file__).parent, copy, ignore=shutil.ignore_patterns("*.kernel-part"))
    compileall.compile_dir(copy, quiet=1)
    return copy


def linted(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Ruff with the project's rules on files of a copy."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--quiet", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("title", FOLLOWED)
def test_a_recipe_works_on_a_copy(title: str, package: Path, tmp_path: Path) -> None:
    shutil.copytree(package, tmp_path / "src" / "taut")
    # As the page says: imports are sorted by ruff, all else is as it should be.
    changed = sorted({name for kind, name, _ in RECIPES[title] if kind != "check"})
    for kind, name, text in RECIPES[title]:
        path = tmp_path / name
        if kind == "new":
            assert not path.exists()
            path.write_text(text, encoding="utf-8")
        elif kind == "edit":
            path.write_text(edited(path.read_text(encoding="utf-8"), text), encoding="utf-8")
        else:
            env = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
            done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, env=env, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-2000:]
    linted(tmp_path, "--select", "I", "--fix", *changed)
    done = linted(tmp_path, *changed)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_recipes_that_people_ask_for_are_there() -> None:
    asked = {"A trace format", "A failure mode", "A fate", "A policy", "A collective algorithm", "A CLI verb", "A JSON field"}
    assert asked <= set(FOLLOWED)
