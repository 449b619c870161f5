"""Whoever names a job, a host, a class, a controller or a price: their names are text in a whole briefing, in every form."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import count, cycle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import taut
from brief_payloads import PAYLOADS


class Seen(HTMLParser):
    """Elements, their attributes, and what they point to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.targets: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.targets += [value or "" for name, value in attrs if name in ("href", "src", "xlink:href")]


def traced(folder: Path, names: Iterator[str]) -> Path:
    """A run whose classes of ops have such names."""
    classes = [next(names) for _ in PAYLOADS]
    rows = [
        {"rank": rank, "step": step, "class": name, "start": (step * 60 + k) * 1e-2 + rank * 1e-6, "duration": 9e-3}
        for step in range(4) for k, name in enumerate(classes) for rank in range(4)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "ops.parquet")
    return taut.analyze(folder / "ops.parquet").save(folder / "run")


def actions(folder: Path, names: Iterator[str]) -> Path:
    """Controllers with such names that undo each other."""
    path = folder / "actions.jsonl"
    rows = []
    for k in range(26):
        first, second, target = next(names), next(names), next(names)
        for at, who, before, after in ((0, first, 2, 4), (20, second, 4, 2)):
            rows.append({
                "time": f"2026-01-01T00:{k:02d}:{at:02d}Z", "controller": who, "layer": "policy", "target": target,
                "knob": "replicas", "before": before, "after": after,
            })  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8", errors="replace")
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> taut.Brief:
    folder, names = tmp_path_factory.mktemp("named"), cycle([text.replace("\ud800", "?") for text in PAYLOADS])
    return taut.brief([traced(folder, names), actions(folder, names)])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> taut.Brief:
    folder, names = tmp_path_factory.mktemp("plain"), map("name {}".format, count())
    return taut.brief([traced(folder, names), actions(folder, names)])


def test_names_make_no_element_no_attribute_and_no_link(made: taut.Brief, plain: taut.Brief) -> None:
    hostile, usual = (Seen(one.form(".html").decode()) for one in (made, plain))
    assert hostile.elements <= usual.elements | {"wbr"}
    assert hostile.attributes <= usual.attributes
    assert all(target.startswith("#") for target in hostile.targets)


def test_names_are_in_markdown_and_pdf_without_links_and_controls(made: taut.Brief) -> None:
    text = made.form(".md").decode()
    assert "](http" not in text
    assert not set("\x1b\x00\x07\u202e\u2066") & set(text)
    assert made.form(".pdf").startswith(b"%PDF")
