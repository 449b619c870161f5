"""What the documentation shows is what the code does."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
COMMANDS = [
    "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/taut demo",
    ".venv/bin/pip install '.[test]' && .venv/bin/pytest",
]
GENERATED = ["cli.md", "columns.md", "api.md", "result.md", "scenario-keys.md"]


def blocks(page: Path) -> list[tuple[str, str]]:
    """(info string, text) of every fenced block of a page."""
    return re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


def python_blocks(word: str) -> list[object]:
    """The blocks fenced as exactly ``word`` (``python`` is checked for syntax, ``python run`` is run)."""
    return [
        pytest.param(text, id=f"{page.name}-{number}")
        for page in PAGES
        for number, (info, text) in enumerate(blocks(page))
        if info.strip() == word
    ]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", GENERATED)
def test_generated_page_is_up_to_date(generate: ModuleType, page: str) -> None:
    assert sorted(generate.PAGES) == sorted(GENERATED)
    written = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert written == generate.PAGES[page](), f"docs/{page} is stale: run `python docs/generate.py`"


def test_every_key_of_a_scenario_says_what_it_means(generate: ModuleType) -> None:
    for root in generate.scenarios().values():
        for heading, struct in (("", root), *generate.tables_of(root)):
            assert [key for key, *_, about, _ in generate.keys_of(struct) if not about] == [], f"{heading} {struct}"


def test_readme_opens_with_the_commands_that_ci_runs() -> None:
    shown = [line for info, text in blocks(ROOT / "README.md") if info == "sh" for line in text.splitlines()]
    assert shown[:2] == COMMANDS
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert [command for command in COMMANDS if f'"{command}"' not in script] == []


def test_recording_page_quotes_the_snippet_the_cli_prints() -> None:
    snippet = (ROOT / "src" / "taut" / "render" / "recording.txt").read_text(encoding="utf-8")
    assert snippet == next(text for info, text in blocks(ROOT / "docs" / "recording.md") if info == "python")
    assert len(snippet.splitlines()) == 8


def test_the_shared_data_reason_is_the_same_everywhere() -> None:
    reason = "needs ../shared/data (not part of a user's clone)"
    for path in ("tests/conftest.py", ".ci/run"):
        assert f'"{reason}"' in (ROOT / path).read_text(encoding="utf-8")


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


@pytest.mark.parametrize("text", python_blocks("python"))
def test_python_block_is_python(text: str) -> None:
    compile(text, "<documentation>", "exec")


@pytest.mark.parametrize("text", python_blocks("python run"))
def test_python_block_runs(text: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", text], tmp_path)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    assert run([sys.executable, str(script)], tmp_path), "an example shows something"


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder; its output, or a failure that shows what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
