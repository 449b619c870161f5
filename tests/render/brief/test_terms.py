"""Words of art are explained once, where they first stand."""

from __future__ import annotations

from collections.abc import Sequence

from taut.render.brief.document import Bar, Bars, Block, Document, Empty, Picture, Section, Sides, Terms, Text
from taut.render.brief.terms import MEANINGS, explained


def terms(*sections: Sequence[Block]) -> list[list[list[str]]]:
    """Of each section the words that each of its blocks explains."""
    given = Document("t", "s", [Section(f"s{i}", "t", blocks) for i, blocks in enumerate(sections)], "f")
    return [
        [[term for term, _ in block.terms] if isinstance(block, Terms) else [] for block in section.blocks]
        for section in explained(given).sections
    ]


def test_after_the_first_block_that_has_them_and_never_again() -> None:
    found = terms([], [Text("All wait at gates."), Text("A gate and a Straggler.")], [Text("stragglers, gates")])
    assert found == [[], [[], ["gate"], [], ["straggler"]], [[]]]


def test_page_one_has_them_at_its_end() -> None:
    assert terms([Text("gates"), Text("a straggler"), Text("plain")]) == [[[], [], [], ["gate", "straggler"]]]


def test_what_a_section_explains_again_is_left_out() -> None:
    found = terms([Text("gates")], [Terms([("gate", "again"), ("lane", "ours")])], [Terms([("Lane", "again")])])
    assert found == [[[], ["gate"]], [["lane"]], []]


def test_what_a_block_explains_itself_is_known() -> None:
    assert terms([], [Terms([("gate", "ours")]), Text("gates")]) == [[], [["gate"], []]]


def test_words_within_others_are_none() -> None:
    assert terms([Text("crankshaft, gateway, delegate, frank, pue")]) == [[[]]]


def test_capitals_are_looked_for_as_they_are() -> None:
    assert terms([Text("focus on costs")], [Text("a FOCUS bill, PUE 1.2")]) == [[[]], [[], ["PUE", "FOCUS"]]]


def test_words_in_charts_and_columns_count_but_not_names_of_shapes() -> None:
    chart = Picture("Waiting", "bars", Bars([Bar("jitter", 1, "waiting", "1 s")], "s"))
    assert terms([Sides("a", [chart], "b", [Empty("x", "y", "taut jitter")])]) == [[[], ["jitter"]]]


def test_every_meaning_is_a_sentence_and_every_word_is_once() -> None:
    assert len({term for term, _, _ in MEANINGS}) == len(MEANINGS)
    assert all(meaning.endswith(".") for _, _, meaning in MEANINGS)
