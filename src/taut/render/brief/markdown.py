"""A document as Markdown (CommonMark with tables): charts are tables, every text is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from taut.render.brief.chart_data import table_of
from taut.render.brief.cleaning import cleaned
from taut.render.brief.document import (
    Bars,
    Block,
    Bullets,
    Cell,
    Document,
    Empty,
    Facts,
    Grid,
    Picture,
    Section,
    Sides,
    Terms,
    Text,
)
from taut.render.text import UNKNOWN

MARKED = re.compile(r"[\\`*_{}\[\]|~!]")
"""What would be markup inside a line."""
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
LEADING = re.compile(r"^(?:[=+\-@#:]|\d+[.)](?=\s|$))")
"""What would be a list, a heading, a rule or, in a spreadsheet, a formula at the begin of a line or a cell."""
WORD, LINKED = re.compile(r"\S+"), re.compile(r"://|www\.|@|mailto:|xmpp:", re.IGNORECASE)
"""Words with these are made links of by some readers, whatever is escaped in them: they are shown as code."""
TONES = {"plain": "{}", "lead": "**{}**", "note": "*{}*", "warning": "**{}**"}
MARKS = {"plain": "{}", "old": "~~{}~~ (no longer)", "new": "**{}** (now)", "good": "✓ {}", "bad": "✗ {}", "strong": "**{}**"}
LONGEST = 30
"""Characters of the longest bar."""


def render_markdown(document: Document) -> str:
    """The whole file."""
    shown = cleaned(document)
    lines = [f"# {escaped(shown.title)}", escaped(shown.subtitle)]
    for section in shown.sections:
        lines += _section(section)
    return "\n\n".join(line for line in [*lines, "---", escaped(shown.footer)] if line) + "\n"


def escaped(text: str) -> str:
    """The text as Markdown that shows it and nothing else."""
    found, at = [], 0
    for word in WORD.finditer(text):
        if LINKED.search(word[0]):
            found += [_plain(text[at : word.start()]), code(word[0])]
            at = word.end()
    whole = "".join([*found, _plain(text[at:])]).strip()
    return LEADING.sub(_led, whole)


def _plain(text: str) -> str:
    return MARKED.sub(r"\\\g<0>", re.sub(r"[&<>]", lambda one: ENTITIES[one[0]], text))


def _led(found: re.Match[str]) -> str:
    """``\\=``, ``1\\.``: a digit cannot be escaped, what follows it can."""
    return f"{found[0][:-1]}\\{found[0][-1]}"


def code(text: str) -> str:
    """The text as code; a pipe would end a cell even there."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    room = " " if longest or text != text.strip() else ""
    return f"{fence}{room}{text}{room}{fence}".replace("|", "\\|")


def _section(section: Section) -> Iterator[str]:
    yield f"## {escaped(section.title)}"
    for block in section.blocks:
        yield from _block(block, 3)
    if section.commands:
        yield "The same figures again:\n\n" + "\n".join(f"- {code(command)}" for command in section.commands)


def _block(block: Block, level: int) -> Iterator[str]:
    match block:
        case Text():
            yield TONES[block.tone].format(escaped(block.text)) if block.text.strip() else ""
        case Facts():
            yield _listed(
                [f"{escaped(fact.label)}: **{escaped(fact.value)}**, {escaped(fact.says)}" for fact in block.facts], "*"
            )
        case Grid():
            yield from _grid(block)
        case Bullets():
            yield _listed([escaped(item) for item in block.items], "" if block.numbered else "-")
        case Terms():
            yield _listed([f"**{escaped(term)}**: {escaped(meaning)}" for term, meaning in block.terms], "> -")
        case Empty():
            yield f"> **{escaped(block.says)}** {escaped(block.needs)}" + (
                f"\n> {code(block.command)}" if block.command else ""
            )
        case Picture():
            yield from _picture(block)
        case Sides():
            yield from _sides(block, level)
        case _:
            assert_never(block)


def _sides(block: Sides, level: int) -> Iterator[str]:
    for title, inner in ((block.left_title, block.left), (block.right_title, block.right)):
        yield f"{'#' * level} {escaped(title)}"
        for one in inner:
            yield from _block(one, level + 1)


def _listed(items: Sequence[str], sign: str) -> str:
    """A list; lists with different signs stay apart. Without a sign it is numbered."""
    return "\n".join(f"{sign or f'{i + 1}.'} {item}" for i, item in enumerate(items))


def _grid(grid: Grid) -> Iterator[str]:
    yield f"**{escaped(grid.title)}**"
    heads = "|".join(f" {escaped(column.title) or UNKNOWN} " for column in grid.columns)
    rules = "|".join(" ---: " if column.numeric else " --- " for column in grid.columns)
    rows = ["|".join(f" {_cell(cell)} " for cell in row) for row in grid.rows]
    yield "\n".join(f"|{row}|" for row in (heads, rules, *rows))
    if grid.note:
        yield f"*{escaped(grid.note)}*"


def _cell(cell: Cell | str) -> str:
    text, mark = (cell, "plain") if isinstance(cell, str) else (cell.text, cell.mark)
    return MARKS[mark].format(escaped(text)) if text.strip() else ""


def _picture(picture: Picture) -> Iterator[str]:
    grid = table_of(picture.chart, picture.title)
    if isinstance(picture.chart, Bars):
        most = max([abs(bar.value) for bar in picture.chart.bars] or [0.0]) or 1.0
        rows = [
            [*row, "█" * round(LONGEST * abs(bar.value) / most)] for row, bar in zip(grid.rows, picture.chart.bars, strict=True)
        ]
        grid = Grid(grid.title, [*grid.columns, type(grid.columns[0])(" ")], rows, grid.note)
    title, *rest = _grid(grid)
    yield from (title, escaped(picture.alt), *rest)
