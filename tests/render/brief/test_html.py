"""A briefing as HTML: whole, closed to the world, and the same for every text."""

from __future__ import annotations

import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from brief_documents import blocks, document
from brief_payloads import PAYLOADS
from taut.core.errors import TautError
from taut.render.brief.document import Document, Section
from taut.render.brief.html import render_html
from taut.render.text import safe


class Outline(HTMLParser):
    """What a page is made of: its elements with the names of their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.words: list[str] = []
        self.others: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":  # where a long word may be broken
            return
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}",))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.others.append(data)

    def handle_pi(self, data: str) -> None:
        self.others.append(data)


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(document())


def without_charts(text: str) -> Document:
    sections = [Section("one", text, blocks(lambda _: text), [text])]
    return Document(text, text, sections, text)


def test_same_bytes_twice(page: str) -> None:
    assert render_html(document()) == page


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_text_is_text_wherever_it_stands(payload: str) -> None:
    harmless, found = (Outline(render_html(without_charts(text))) for text in ("nowhere-else", payload))
    assert found.elements == harmless.elements
    assert found.others == []
    assert "".join(found.words).count(safe(payload)) == "".join(harmless.words).count("nowhere-else")


def test_nothing_runs_and_nothing_is_fetched(page: str) -> None:
    found = Outline(page)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form", "img", "use", "image"} & {
        e[0] for e in found.elements
    }
    assert not [one for one in found.attributes if one[1].startswith("on") or one[1] == "style"]
    assert all(value.startswith("#") for _, name, value in found.attributes if name in ("href", "src", "xlink:href"))
    assert "url(" not in page


def test_the_policy_allows_this_style_alone(page: str) -> None:
    style = page.split("<style>")[1].split("</style>")[0]
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = next(
        value for tag, name, value in Outline(page).attributes if tag == "meta" and name == "content" and "src" in value
    )
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")


def test_headings_descend_one_by_one(page: str) -> None:
    levels = [int(e[0][1]) for e in Outline(page).elements if e[0] in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(then <= first + 1 for first, then in pairwise(levels))


def test_every_chart_has_words_and_a_table(page: str) -> None:
    found = Outline(page)
    drawings = [e for e in found.elements if e[0] == "svg"]
    assert len(drawings) == 10
    assert all({"role", "aria-label"} <= set(e) for e in drawings)
    assert [e[0] for e in found.elements].count("figcaption") == len(drawings)
    assert [e[0] for e in found.elements].count("details") == len(drawings)


def test_anchors_of_the_contents_exist(page: str) -> None:
    found = Outline(page).attributes
    anchors = {value for _, name, value in found if name == "id"}
    assert {value[1:] for _, name, value in found if name == "href"} <= anchors


def test_ink_follows_the_page(page: str) -> None:
    drawing = page.split("<svg ")[1]
    assert "var(--ink)" in drawing
    assert "#1a1d21" not in drawing.split("</svg>")[0]


def test_old_and_new_are_said(page: str) -> None:
    assert '<del><span class="said">no longer: </span>utilisation 97 %</del>' in page
    assert '<ins><span class="said">now: </span>effective 62 %</ins>' in page


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(TautError, match=r"needs jinja2.*pip install 'taut\[brief\]'"):
        render_html(document())
