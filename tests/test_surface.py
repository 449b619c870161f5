"""The public surface is short, listed, pinned and documented."""

from __future__ import annotations

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import taut
from taut.core.tables import columns_of

UNITS = {
    "_ns": r"\bns\b|nanoseconds?",
    "_us": r"\bus\b|µs|microseconds?",
    "_ms": r"\bms\b|milliseconds?",
    "_s": r"\bs\b|seconds?",
    "_w": r"\bW\b|watts?",
    "_j": r"\bJ\b|joules?",
    "_bytes": r"bytes?",
    "_ppm": r"ppm|parts per million",
    "_share": r"0[–-]1|0 to 1|share",
}


@pytest.fixture(scope="module")
def generate(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", root / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_public_names_are_those_of_the_api_page(root: Path) -> None:
    pinned = re.findall(r"^\| `taut\.(\w+)` \|", (root / "docs" / "api.md").read_text(encoding="utf-8"), re.M)
    assert sorted(taut.__all__) == pinned, "the public surface changed: if meant, run `python docs/generate.py`"


def test_all_is_importable_listed_once_and_visible() -> None:
    assert len(set(taut.__all__)) == len(taut.__all__)
    assert [name for name in taut.__all__ if not hasattr(taut, name)] == []
    assert set(taut.__all__) <= set(dir(taut))


def test_verbs_stay_verbs_when_rooms_of_the_same_name_are_loaded() -> None:
    for _ in range(2):
        assert [name for name in taut.__all__ if name.islower() and not inspect.isfunction(getattr(taut, name))] == []
    assert next(iter(inspect.signature(taut.read).parameters)) == "paths"
    with pytest.raises(taut.InputRefused):
        taut.read([])


def test_every_public_name_has_a_docstring() -> None:
    bare = []
    for name in taut.__all__:
        thing = getattr(taut, name)
        if not (inspect.isclass(thing) or callable(thing) or inspect.ismodule(thing)):
            continue
        if not (thing.__doc__ or "").strip() or (thing.__doc__ or "").startswith(f"{name}("):
            bare.append(name)
        if inspect.isclass(thing):
            bare += [
                f"{name}.{member}"
                for member, value in vars(thing).items()
                if not member.startswith("_") and inspect.isroutine(value) and not inspect.getdoc(value)
            ]
    assert bare == [], f"no docstring: {bare}"


def test_every_column_says_what_it_means_and_in_which_unit(generate: ModuleType) -> None:
    rows = generate.rows()
    assert rows, "no row types found"
    wrong = []
    for row in rows:
        if not (row.__doc__ or "").strip() or (row.__doc__ or "").startswith(f"{row.__name__}("):
            wrong.append(f"{row.__name__} has no docstring")
        for name, _, doc in columns_of(row):
            unit = next((pattern for suffix, pattern in UNITS.items() if name.endswith(suffix)), "")
            if not doc.strip():
                wrong.append(f"{row.__name__}.{name} has no meaning")
            elif not re.search(unit, doc):
                wrong.append(f"{row.__name__}.{name} does not say its unit")
    assert wrong == []
