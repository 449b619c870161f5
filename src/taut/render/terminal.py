"""What all screens are drawn with: the abilities of a terminal, headings, tables, bars, and the text of a whole screen."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Literal

from msgspec import Struct
from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from taut.render.text import plain, safe
from taut.result.types import AttemptEntry, LedgerEntry

Side = Literal["left", "right"]
WIDEST = 132
"""Longer lines are hard to read, however wide the screen."""
LEAST_FATE = 0.001
"""A fate below this share of the rank time is named, without a line of its own."""
PARTIAL = 4
"""Notes on what is missing, at most."""

CLASS_STYLE = {
    "healthy": "bold green",
    "component": "bold red",
    "structural": "bold yellow",
    "control": "bold magenta",
    "unknown": "bold cyan",
}
Style = tuple[str, str, str]
FATE_STYLE: dict[str, Style] = {
    "productive": ("#009e73", "█", "#"),
    "slow compute": ("#e69f00", "▓", "="),
    "exposed transfer": ("#0072b2", "▒", "-"),
    "communication undivided": ("#56b4e9", "░", "~"),
    "exposed copy": ("#b66dff", "o", "o"),
    "fault wait": ("#d55e00", "x", "x"),
    "jitter wait": ("#f0e442", "z", "z"),
    "structural wait": ("#cc79a7", "/", "/"),
    "gap": ("grey62", ".", "."),
    "unexplained": ("bright_white", "?", "?"),
    "unobserved": ("grey37", "_", "_"),
    "idle": ("grey30", "·", ":"),
    "control overhead": ("#aa4499", "%", "%"),
    "discarded": ("#999933", "d", "d"),
}
"""Per fate its colour, its mark, and its mark in ASCII. The mark alone tells fates apart, and the colours are Okabe
and Ito's and Tol's, which people with any kind of colour vision can tell apart."""


class Screen(Struct, frozen=True):
    """What the output can show."""

    width: int = 80
    styled: bool = False
    color: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: IO[str]) -> Screen:
        """The abilities of a stream; NO_COLOR, FORCE_COLOR and a dumb terminal are respected."""
        width = min(shutil.get_terminal_size((80, 24)).columns, WIDEST)
        forced = os.environ.get("FORCE_COLOR", "") not in ("", "0")
        styled = forced or (stream.isatty() and os.environ.get("TERM") != "dumb")
        encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
        return cls(max(width, 40), styled, styled and not os.environ.get("NO_COLOR"), encoding in ("utf8", "cp65001"))


def screen_text(parts: Iterable[ConsoleRenderable], screen: Screen) -> str:
    """The text of a screen, as wide and as coloured as it can show."""
    console = Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=screen.styled,
        no_color=not screen.color,
        color_system=_color_system() if screen.color else None if not screen.styled else "standard",
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(Group(*parts))
    lines = "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"
    return lines if screen.unicode else plain(lines)


def spaced_text(parts: Iterable[ConsoleRenderable | None], screen: Screen) -> str:
    """The text of a screen: the parts that there are, with an empty line between them."""
    first, *others = (part for part in parts if part is not None)
    return screen_text([first, *(line for part in others for line in (Text(), part))], screen)


def _color_system() -> Literal["auto", "256"]:
    """What the terminal says it can; off one, and asked for colours all the same, what most can."""
    return "256" if os.environ.get("FORCE_COLOR") and os.environ.get("TERM", "dumb") == "dumb" else "auto"


def clipped(text: str, style: str = "") -> Text:
    """One line that is cut, not wrapped, where room is short."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def stacked_bar(
    entries: Sequence[LedgerEntry | AttemptEntry],
    total: int,
    screen: Screen,
    styles: Mapping[str, Style] = FATE_STYLE,
) -> Text:
    """One stacked bar; every fate that is there gets at least one cell."""
    room = min(screen.width - 2, 100)
    ends, running = [], 0
    for entry in entries:
        running += max(entry.rank_ns, total // room)
        ends.append(running)
    bar, at = Text(" ", no_wrap=True), 0
    for entry, end in zip(entries, ends, strict=True):
        upto = round(room * end / max(running, 1))
        bar.append(fate_mark(entry.fate, screen, styles) * (upto - at), style=styles.get(entry.fate, ("",))[0])
        at = upto
    return bar


def fate_mark(fate: str, screen: Screen, styles: Mapping[str, Style] = FATE_STYLE) -> str:
    """The character that stands for a fate."""
    _, shade, letter = styles.get(fate, ("", "▒", "+"))
    return str(shade if screen.unicode else letter)


def heading(text: str) -> Text:
    """The title of a part."""
    return Text(text, style="underline")


def new_table(*columns: str | tuple[str, Side], header: bool = True) -> Table:
    """A table without lines: two columns of words, then figures; the second column gives way where room is short."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=header, header_style="dim")
    for i, column in enumerate(columns):
        default: Side = "left" if i < 2 else "right"
        name, justify = column if isinstance(column, tuple) else (column, default)
        # Rich narrows columns that may wrap before it narrows others; their texts are cut, not wrapped (see clipped).
        table.add_column(name, justify=justify, no_wrap=i != 1)
    return table


def partial_lines(notes: Sequence[str]) -> list[ConsoleRenderable]:
    """What is missing from a run, as far as there is room."""
    lines: list[ConsoleRenderable] = [Text(f"partial: {safe(note)}", style="yellow") for note in notes[:PARTIAL]]
    if len(notes) > PARTIAL:
        lines.append(Text(f"partial: {len(notes) - PARTIAL} more, see run.json", style="yellow"))
    return lines


def unclosed_lines(closes: bool | None) -> list[ConsoleRenderable]:
    """A warning where a ledger does not sum to what was held."""
    return [] if closes else [Text(" the ledger does not close: please report this", style="bold red")]
