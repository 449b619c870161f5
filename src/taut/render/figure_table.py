"""Tables of figures that fit a terminal: nothing is cut, and every part of a table says which row is which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Literal

from rich.console import ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from taut.render.text import duration, safe
from taut.result.types import Estimate

MANY = 1000
"""From here on whole numbers are written."""
BETWEEN = 2
"""Columns of the screen between those of a table."""
LEFT = {"regime", "dominates", "bound by"}
"""Columns of words."""
COLOURS = {"stable": "green", "coherent": "green", "marginal": "yellow", "unstable": "red"}
"""Words of a regime that are coloured where the screen has colours."""
LONG = {
    "accelerators": "accel-\nerators", "interconnect": "inter-\nconnect", "synchronisation": "synchro-\nnisation",
    "interruptions": "inter-\nruptions", "interruptions a day": "inter-\nruptions\na day",
    "accelerator hours": "accel-\nerator\nhours",
}  # fmt: skip
"""Titles that would be wider than what stands below them."""


def number(found: Estimate | float | None) -> str:
    """A number, or an index with its interval; a dash where it is not known."""
    if found is None:
        return "–"
    if not isinstance(found, Estimate):
        return digits(found)
    low, high = found.lo, found.hi
    if low is None or high is None or digits(low) == digits(high):
        return digits(found.value)
    return f"{digits(found.value)} ({digits(low)}{' to ' if low < 0 else '–'}{digits(high)})"


def digits(value: float) -> str:
    """Three digits, or a whole number from a thousand on."""
    return f"{value:,.0f}" if abs(value) >= MANY else f"{value:.3g}"


def price(value: float | None) -> str:
    """What a unit costs: two decimals, three digits below one, whole from a thousand on."""
    if value is None:
        return "–"
    return f"{value:,.2f}" if 1 <= abs(value) < MANY else digits(value)


def amount(found: Estimate | float | None) -> str:
    """A large amount as people say it: 12.3 million; with its interval, if it has one."""
    if found is None:
        return "–"
    value = found.value if isinstance(found, Estimate) else found
    times, letter = next(((by, name) for by, name in ((1e12, "T"), (1e9, "B"), (1e6, "M")) if abs(value) >= by), (1.0, ""))

    def shortened(one: float) -> str:
        return f"{one / times:.4g}{letter}" if letter else digits(one)

    if not isinstance(found, Estimate) or found.lo is None or found.hi is None or shortened(found.lo) == shortened(found.hi):
        return shortened(value)
    return f"{shortened(value)} ({shortened(found.lo)}–{shortened(found.hi)})"


def change(share: float | None) -> str:
    """A relative change: +3.4 %."""
    if share is None:
        return "–"
    return "±0.0 %" if abs(share) < 0.0005 else f"{100 * share:+.1f} %".replace("-", "−")


def aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Words on the left, figures on the right. Titles may take several lines, and so may a figure with its interval; no
    figure is cut, and what tells a row from the next is never given up."""
    table = Table(box=None, padding=(0, BETWEEN, 0, 0), pad_edge=False, header_style="dim")
    for i, name in enumerate(names):
        whole = [part for row in rows for part in ([row[i]] if i == 0 else row[i].split(" ("))]
        least = max(_longest_word(name), *map(len, whole))
        table.add_column(LONG.get(name, name), justify=_side(i, name), min_width=least, no_wrap=i == 0)
    for row in rows:
        table.add_row(*map(_styled, row))
    return table


def _side(i: int, name: str) -> Literal["left", "right"]:
    return "left" if i == 0 or name in LEFT else "right"


def _styled(cell: str) -> Text:
    return Text(cell, style=COLOURS.get(cell, ""))


def in_blocks(cells: Mapping[str, Sequence[str]], width: int, keys: Sequence[str] = ()) -> ConsoleRenderable:
    """Columns by their titles. Those that do not fit beside each other go into further tables, each with the ``keys`` that tell
    its rows apart (else the first columns that do)."""
    keys = keys or _keys(cells)
    tables = [_block(cells, part, width) for part in _blocks(cells, keys, width)]
    return Group(*(one for i, table in enumerate(tables) for one in ([Text()] if i else []) + [table]))


def cell(name: str, value: object) -> str:
    """What a key of a result holds, as a cell."""
    if isinstance(value, str):
        return safe(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(safe, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if (name.endswith("_ns") or "_ns_" in name) and isinstance(value, (int, float)):
        return duration(value)
    if isinstance(value, int):
        return f"{value:,}"
    return number(value if isinstance(value, (Estimate, float)) else None)


def _keys(cells: Mapping[str, Sequence[str]]) -> list[str]:
    """The first columns, as many as tell all rows apart; of those the ones in which rows differ."""
    keys: list[str] = []
    for name in cells:
        keys.append(name)
        if len(set(zip(*(cells[key] for key in keys), strict=True))) == len(cells[name]):
            break
    return [name for name in keys if len(set(cells[name])) > 1] or keys[:1]


def _longest_word(text: str) -> int:
    return max((len(word) for word in LONG.get(text, text).split()), default=0)


def _width(name: str, cells: Sequence[str]) -> int:
    """Columns that a column needs: its longest cell, and the longest word of its title."""
    return max(_longest_word(name), *(len(line) for cell in cells for line in cell.split("\n")))


def _blocks(cells: Mapping[str, Sequence[str]], keys: Sequence[str], width: int) -> Iterator[list[str]]:
    """Names of the columns of each table."""
    room = width - sum(_width(key, cells[key]) + BETWEEN for key in keys)
    part, used = list(keys), 0
    for name in (name for name in cells if name not in keys):
        needs = _width(name, cells[name]) + BETWEEN
        if used and used + needs - BETWEEN > room:
            yield part
            part, used = list(keys), 0
        part.append(name)
        used += needs
    yield part


def _block(cells: Mapping[str, Sequence[str]], names: Sequence[str], width: int) -> Table:
    table = Table(box=None, padding=(0, BETWEEN, 0, 0), pad_edge=False, header_style="dim")
    # Titles are broken here: a table that must narrow its columns would cut cells.
    for i, (name, title) in enumerate(zip(names, _titles(cells, names, width), strict=True)):
        justify = "left" if _words(cells[name]) else _side(i, name)
        table.add_column("\n".join(title), justify=justify, vertical="bottom", no_wrap=True)
    for row in zip(*(cells[name] for name in names), strict=True):
        table.add_row(*map(_styled, row))
    return table


def _titles(cells: Mapping[str, Sequence[str]], names: Sequence[str], width: int) -> list[list[str]]:
    """Titles in lines, as wide as what stands below them; what room is left over goes to those with most lines."""
    widths = [_width(name, cells[name]) for name in names]
    while True:
        titles = [
            LONG[name].split("\n") if name in LONG else wrap(name, wide) for name, wide in zip(names, widths, strict=True)
        ]
        room = width - sum(widths) - BETWEEN * (len(names) - 1)
        tall = max(range(len(names)), key=lambda i: len(titles[i]))
        if room < 1 or len(titles[tall]) <= TALL:
            return titles
        widths[tall] += 1


TALL = 2
"""Lines of a title that are few enough."""


def _words(cells: Sequence[str]) -> bool:
    """Whether a column holds words rather than figures."""
    return any(one[:1].isalpha() for one in cells) and not any(char.isdigit() for one in cells for char in one)
