"""What makes a threshold: a sentence, and a line for each mechanism."""

from __future__ import annotations

from rich.console import ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from taut.render.text import safe
from taut.result.types import Estimate, Threshold

KINDS = {
    "failures": "a recovery number",
    "jitter": "a synchronisation number",
    "unequal ranks": "a number of unequal ranks",
    "interconnect": "an interconnect number",
    "warm-up and heat": "a number of cold and hot machines",
}
"""What a threshold is called after the mechanism that makes it."""


def made_by(far: Threshold) -> str:
    """What makes the threshold, in a sentence that follows it; empty where that was not asked."""
    if not isinstance(far.without, dict) or not far.without:
        return ""
    if far.ranks is None:
        early = f" In one of ten draws of what is uncertain there is one by {far.lo:,} ranks." if far.lo else ""
        return f" There is no transition up to {far.tried:,} ranks." + early
    name = far.made_by
    if not isinstance(name, str):
        return " No mechanism makes it alone: with any of them off it lies about there."
    return f" It is {safe(KINDS.get(name, f'a number of {name}'))}: with {safe(name)} off {_place(far, name)}."


def what_makes_it(far: Threshold | None) -> list[ConsoleRenderable]:
    """The sentence, and where there is a threshold how far each mechanism moves it."""
    if far is None or not (text := made_by(far).strip()):
        return []
    parts: list[ConsoleRenderable] = [Text(text)]
    if far.ranks is None or not isinstance(far.without, dict):
        return parts
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for title in ("mechanism", "off: stops paying at", "1 % more moves it by"):
        table.add_column(title, justify="left" if title == "mechanism" else "right", no_wrap=True)
    moved = far.elasticity if isinstance(far.elasticity, dict) else {}
    for name in far.without:
        table.add_row(safe(name), _place(far, name), _percent(moved.get(name)))
    return [Group(*parts, table)]


def _place(far: Threshold, name: str) -> str:
    """Where it lies with a mechanism switched off."""
    ranks = far.without[name] if isinstance(far.without, dict) else None
    return f"none up to {far.tried:,}" if ranks is None else f"{ranks:,}"


def _percent(found: Estimate | None) -> str:
    """Percent with its interval; a dash where it is not known."""
    if found is None:
        return "–"
    ends = f" ({found.lo:.2f} to {found.hi:.2f})" if found.lo is not None and found.hi is not None else ""
    return f"{found.value:.2f} %{ends}".replace("-", "−")
