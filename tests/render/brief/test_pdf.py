"""A briefing as PDF: the same bytes twice, tagged, and every text as it is."""

from __future__ import annotations

import sys
from itertools import cycle

import pytest

from brief_documents import blocks, document
from brief_payloads import PAYLOADS
from taut.core.errors import TautError
from taut.render.brief.document import Document, Section
from taut.render.brief.pdf import render_pdf


@pytest.fixture(scope="module")
def file() -> bytes:
    return render_pdf(document())


def test_same_bytes_twice(file: bytes) -> None:
    assert render_pdf(document()) == file


def test_no_date_but_a_title_a_language_tags_and_bookmarks(file: bytes) -> None:
    assert b"CreationDate" not in file
    assert b"ModDate" not in file
    assert b"/StructTreeRoot" in file
    assert b"/Lang" in file
    assert b"/Outlines" in file
    assert b"/Title" in file


def test_pictures_have_their_words(file: bytes) -> None:
    assert file.count(b"/Alt") >= 10


def test_every_text_is_set_as_it_is() -> None:
    turn = cycle(PAYLOADS)
    sections = [Section(f"s{i}", payload, blocks(lambda _: next(turn)), [payload]) for i, payload in enumerate(PAYLOADS)]
    given = Document(PAYLOADS[0], PAYLOADS[1], sections, PAYLOADS[2])
    assert render_pdf(given).startswith(b"%PDF")


def test_accessible_by_the_standard(file: bytes) -> None:
    assert b"pdfuaid:part" in file


def test_letters_that_no_font_has_are_no_failure() -> None:
    given = Document("主机 \U0001f680", "", [Section("one", "ホスト", blocks(lambda _: "узел ξ 主机"))], "")
    assert render_pdf(given).startswith(b"%PDF")


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "typst", None)
    with pytest.raises(TautError, match=r"needs typst.*pip install 'taut\[brief\]'"):
        render_pdf(document())
