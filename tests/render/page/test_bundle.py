"""The shell of the web app, its static files, and one file with everything inside."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from brief_payloads import PAYLOADS
from page_answers import answer
from taut.render.page import bundle
from taut.result.view_types import Overview

pytest.importorskip("vl_convert")


class Read(HTMLParser):
    """The tags of a page with their attributes and texts."""

    CDATA_CONTENT_ELEMENTS = ("script", "style")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("", {}, []))

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2].append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, "".join(texts)) for name, attrs, texts in self.found if name == tag]


@pytest.fixture(scope="module")
def page() -> Read:
    packed = {"runs.json": b'{"name": "</script><script>alert(1)</script>"}', "frames": bytes(range(256))}
    return Read(bundle.file("a job", packed))


@pytest.mark.parametrize("name", bundle.STATIC)
def test_what_is_on_the_list_is_served(name: str) -> None:
    data, kind = bundle.static(name)
    assert data
    assert kind.split(";")[0] in {"text/javascript", "text/css", "image/svg+xml"}


@pytest.mark.parametrize(
    "name", ["", "bundle.py", "../bundle.py", "js/core.js", "page.html.j2", "/etc/passwd", "core.js\0", "CORE.JS"]
)
def test_what_is_not_on_the_list_is_not_served(name: str) -> None:
    with pytest.raises(KeyError):
        bundle.static(name)


def test_every_script_of_the_folder_is_loaded_somewhere() -> None:
    there = {path.name for path in Path(bundle.__file__).with_name("js").iterdir()}
    assert there == {*bundle.SCRIPTS, *bundle.FILE_SCRIPTS}


def test_the_shell_has_no_script_or_style_of_its_own() -> None:
    shell = Read(bundle.shell("taut"))
    assert [(attrs["src"], text.strip()) for attrs, text in shell.all("script")] == [
        *((f"/static/{name}", "") for name in bundle.SCRIPTS),
        ("/static/vega.js", ""),
    ]
    assert not shell.all("style")
    assert not [name for _, attrs, _ in shell.found for name in attrs if name.startswith("on") or name == "style"]


@pytest.mark.parametrize("title", [*PAYLOADS, "R&D <job>"])
def test_a_hostile_title_is_text(title: str) -> None:
    plain = Read(bundle.shell("taut"))
    hostile = Read(bundle.shell(title))
    assert [tag for tag, _, _ in hostile.found] == [tag for tag, _, _ in plain.found]


def test_the_policy_of_a_file_allows_its_own_scripts_and_no_others(page: Read) -> None:
    policy = next(attrs["content"] for attrs, _ in page.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy")
    parts = {words.split()[0]: words.split()[1:] for words in (policy or "").split("; ")}
    scripts = [text for attrs, text in page.all("script") if "type" not in attrs]
    assert parts["script-src"] == [bundle.digest(text) for text in scripts]
    assert parts["style-src"] == [bundle.digest(text) for _, text in page.all("style")]
    assert parts["default-src"] == ["'none'"]
    assert "connect-src" not in parts


def test_a_file_asks_for_nothing_from_elsewhere(page: Read) -> None:
    addresses = [attrs[name] or "" for _, attrs, _ in page.found for name in ("src", "href") if name in attrs]
    assert all(address.startswith(("data:", "#")) for address in addresses), addresses


def test_what_is_packed_into_a_file_comes_out_again(page: Read) -> None:
    blocks = {attrs["data-packed"]: (attrs["type"], text) for attrs, text in page.all("script") if "data-packed" in attrs}
    assert blocks["runs.json"][0] == "application/json"
    assert json.loads(blocks["runs.json"][1]) == {"name": "</script><script>alert(1)</script>"}
    assert b64decode(blocks["frames"][1]) == bytes(range(256))


@pytest.mark.parametrize("name", sorted({*bundle.SCRIPTS, *bundle.FILE_SCRIPTS}))
def test_scripts_make_no_markup_code_or_styles_from_texts(name: str) -> None:
    text = Path(bundle.__file__).with_name("js").joinpath(name).read_text("utf-8")
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setAttribute\(.style|javascript:"
    assert not re.findall(forbidden, text)


def whole_file(text: str) -> Read:
    """A file in which all names are ``text``."""
    names = ("runs", "overview", "bill", "decisions")
    packed = {f"{name}.json": msgspec.json.encode(answer(name, text)) for name in names}
    first = answer("overview", text)
    assert isinstance(first, Overview)
    return Read(bundle.file(text, packed, first))


@pytest.mark.parametrize("text", [text.replace("\ud800", "?") for text in PAYLOADS])
def test_hostile_names_are_text_in_a_whole_file(text: str) -> None:
    hostile, plain = whole_file(text), whole_file("node 3")
    assert [(tag, sorted(attrs)) for tag, attrs, _ in hostile.found] == [(tag, sorted(attrs)) for tag, attrs, _ in plain.found]


def test_whoever_runs_no_scripts_reads_verdict_findings_and_money() -> None:
    page = whole_file("node <3>")
    told = " ".join("".join(texts) for _, _, texts in page.found)
    for word in ("node <3>", "Findings", "Where the money went", "of all rank time"):
        assert word in told
