"""A briefing as Markdown: read by a foreign reader, it has the shape of the document and nothing of its texts' making."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from brief_documents import blocks, charts, document
from brief_payloads import PAYLOADS
from taut.render.brief.document import Document, Picture, Section
from taut.render.brief.markdown import escaped, render_markdown
from taut.render.text import safe

WORDS = {"text", "text_special", "code_inline"}


def tokens(text: str) -> list[Token]:
    found: list[Token] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        found += [token, *(token.children or [])]
    return found


def every_text(text: str) -> Document:
    pictures = [Picture(text, text, chart) for chart in charts(lambda _: text)]
    return Document(text, text, [Section("one", text, [*blocks(lambda _: text), *pictures], [text])], text)


def words(found: list[Token]) -> str:
    return "".join(token.content for token in found if token.type in WORDS)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_text_is_text_wherever_it_stands(payload: str) -> None:
    harmless, found = (tokens(render_markdown(every_text(text))) for text in ("x", payload))
    assert [token.type for token in found if token.type not in WORDS] == [t.type for t in harmless if t.type not in WORDS]
    assert not {token.type for token in found} & {"html_block", "html_inline", "link_open", "image"}
    assert safe(payload).strip() in words(found)


@pytest.mark.parametrize("payload", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "| =1"])
def test_no_cell_begins_as_a_formula(payload: str) -> None:
    assert escaped(safe(payload))[0] in "\\`"


@pytest.mark.parametrize("link", ["https://evil.example", "www.evil.example", "me@evil.example", "see HTTP://evil.example now"])
def test_what_readers_make_links_of_is_code(link: str) -> None:
    assert [token.type for token in tokens(escaped(link))].count("code_inline") == 1


def test_numbers_are_left_alone() -> None:
    assert escaped("0.25 s, 3.5 % (2–4), 1,024 ranks") == "0.25 s, 3.5 % (2–4), 1,024 ranks"


def test_same_bytes_twice() -> None:
    assert render_markdown(document()) == render_markdown(document())


def test_charts_are_tables_with_their_values() -> None:
    text = render_markdown(document())
    assert "| rank 137 waits | 31 % | ██████████████████████████████ |" in text
    assert "| computed | 1,024 | 62.0 % (50.0–70.0) |" in text
    assert "| all-reduce of gradients | 28 % waiting | forward (next step), all-reduce of gradients |" in text


def test_old_and_new_are_said() -> None:
    assert "| ~~utilisation 97 %~~ (no longer) | **effective 62 %** (now) | ✗ worse |" in render_markdown(document())
