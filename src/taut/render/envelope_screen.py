"""The failure envelope as a picture: a grid for each intensity of synchronisation, rows heterogeneity, columns ranks.

A letter and a colour for each failure mode, two letters where modes overlap, and the per cent of the wall that they take;
from a tenth on, the cell is filled. Brackets hold the job itself, parentheses what its interval reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from rich.console import ConsoleRenderable, Group
from rich.text import Text

from taut.render.terminal import Screen, heading
from taut.render.text import safe
from taut.result.types import AnalysisResult, Envelope, EnvelopeCell, Estimate

MODES = {
    "structural instability": ("S", "#f0e442"),
    "straggler cascade": ("C", "#d55e00"),
    "work imbalance": ("W", "#cc79a7"),
    "exposed transfer": ("T", "#56b4e9"),
    "fabric contention": ("F", "#009e73"),
    "host stall": ("H", "#999999"),
    "input stall": ("I", "#88ccee"),
    "checkpoint stall": ("K", "#b66dff"),
    "silent degradation": ("D", "#e69f00"),
    "partial synchronisation loss": ("P", "#ddcc77"),
    "tail latency inflation": ("L", "#44aa99"),
    "energy feedback loop": ("E", "#cc6677"),
}
"""Failure mode → its letter and its colour (Okabe and Ito's, and Tol's)."""
OTHER = ("O", "#dddddd")
NOTHING = "·"
CELL, LABEL, BETWEEN = 7, 9, 2
"""Columns of a cell, of the labels of rows, and between two grids."""
FILLED = 0.1
"""Share of the wall from which a cell is filled with its colour."""


def envelope_part(result: AnalysisResult, screen: Screen) -> ConsoleRenderable | None:
    """The picture and its legend; nothing unless the envelope was asked for."""
    found = result.envelope
    if found is None or not found.map:
        return None
    ranks = sorted({cell.ranks for cell in found.map})
    spreads = sorted({cell.heterogeneity for cell in found.map})
    gates = sorted({cell.intensity for cell in found.map})
    at = {(cell.ranks, cell.heterogeneity, cell.intensity): cell for cell in found.map}
    own = (
        _near(found.point.ranks.value, ranks),
        _near(found.point.heterogeneity.value, spreads),
        _near(found.point.intensity.value, gates),
    )
    wide = CELL * len(ranks) + BETWEEN
    across = max(1, (screen.width - LABEL) // wide)
    lines: list[ConsoleRenderable] = [heading("Failure envelope: what dominates around this job, % of the wall it takes")]
    for first in range(0, len(gates), across):
        some = gates[first : first + across]
        titles = "".join(f"{_gates(one)}".center(wide - BETWEEN) + " " * BETWEEN for one in some)
        lines.append(Text(" " * LABEL + titles, style="bold", no_wrap=True))
        columns = "".join(f"{n:,}".center(CELL) for n in ranks) + " " * BETWEEN
        lines.append(Text(" ranks".ljust(LABEL) + columns * len(some), style="dim", no_wrap=True))
        for spread in spreads:
            line = Text(f" ±{_short(100 * spread)} %".ljust(LABEL), style="dim", no_wrap=True)
            for gate in some:
                for n in ranks:
                    here = (n, spread, gate)
                    line.append_text(_cell(at[here], "[]" if here == own else "()" if _reaches(found, here, own) else "  "))
                line.append(" " * BETWEEN)
            lines.append(line)
    return Group(*lines, *_legend(found))


def _cell(cell: EnvelopeCell, around: str) -> Text:
    """One cell: letters and per cent on the colours of its modes."""
    text = Text(no_wrap=True, end="")
    modes = cell.modes[:2]
    if not modes:
        return text.append(f"{around[0]}{NOTHING:^5}{around[1]}", style="not dim")
    took = sum(cell.losses[mode].value for mode in modes if mode in cell.losses)
    styles = [_colour(mode, took) for mode in modes]
    letters = "".join(MODES.get(mode, OTHER)[0] for mode in modes)
    whole = f"{letters:<2}{100 * took:>3.0f}"
    edge = "bold not dim"
    text.append(around[0], style=edge)
    text.append(whole[:1], style=f"{styles[0]} not dim")
    text.append(whole[1:], style=f"{styles[-1]} not dim")
    return text.append(around[1], style=edge)


def _colour(mode: str, share: float) -> str:
    """Letters on the colour of a mode; in it, where little is lost."""
    colour = MODES.get(mode, OTHER)[1]
    return f"black on {colour}" if share >= FILLED else f"bold {colour}"


def _near(value: float, axis: Sequence[float]) -> float:
    """The point of an axis that a value is nearest to."""
    return min(axis, key=lambda one: abs(one - value))


def _reaches(found: Envelope, here: tuple[float, float, float], own: tuple[float, float, float]) -> bool:
    """Whether the interval of the job's heterogeneity or intensity reaches a cell beside it."""
    if here[0] != own[0]:
        return False
    axes = [sorted({getattr(cell, key) for cell in found.map}) for key in ("heterogeneity", "intensity")]
    inside = [
        _inside(one, axis, interval)
        for one, axis, interval in zip(here[1:], axes, (found.point.heterogeneity, found.point.intensity), strict=True)
    ]
    return all(inside)


def _inside(value: float, axis: Sequence[float], interval: Estimate) -> bool:
    """Whether an interval reaches into the part of an axis that a point stands for: to half way, as a ratio."""
    at = axis.index(value)
    low = sqrt(axis[at - 1] * value) if at else 0.0
    high = sqrt(axis[at + 1] * value) if at + 1 < len(axis) else float("inf")
    lo, hi = (interval.value if end is None else end for end in (interval.lo, interval.hi))
    return lo < high and hi >= low


def _gates(count: float) -> str:
    many = _short(count)
    return f"{many} gate{'' if many == '1' else 's'} a step"


def _short(value: float) -> str:
    """A number of two digits, or all digits before the point."""
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _legend(found: Envelope) -> list[ConsoleRenderable]:
    used = dict.fromkeys(mode for cell in found.map for mode in cell.modes[:2])
    modes = Text(" ")
    for mode in used:
        modes.append(f" {MODES.get(mode, OTHER)[0]} ", style=_colour(mode, FILLED)).append(f" {safe(mode)}   ")
    if not all(cell.modes for cell in found.map):
        modes.append(f"{NOTHING} none takes 3 %", style="dim")
    both = any(len(cell.modes) > 1 for cell in found.map)
    ranks, spread, gates = found.point.ranks, found.point.heterogeneity, found.point.intensity
    often = _between(gates)
    many = "gate" if often == "1" else "gates"
    where = f"[ ] this job: {ranks.value:,} ranks, ±{_between(spread, 100)} %, {often} {many} a step"
    words = [where, *(["( ) its interval"] if _any_reached(found) else []), *(["two letters: both"] if both else [])]
    return [modes, *_behind(found), Text(f" {' · '.join([*words, '± how far ranks differ for good'])}", style="dim")]


def _behind(found: Envelope) -> list[ConsoleRenderable]:
    """Where one mode alone dominates everywhere, what comes after it: for the job itself, and in the far corner."""
    first = found.map[0].modes
    if len(first) != 1 or any(cell.modes != first for cell in found.map):
        return []
    own = min(
        found.map, key=lambda cell: (cell.ranks, abs(cell.heterogeneity - found.point.heterogeneity.value), cell.intensity)
    )
    far = max(found.map, key=lambda cell: (cell.ranks, cell.heterogeneity, cell.intensity))
    words = []
    for cell, where in (
        (own, "here"),
        (far, f"at {far.ranks:,} ranks, ±{_short(100 * far.heterogeneity)} %, {_gates(far.intensity)}"),
    ):
        others = [(share.value, mode) for mode, share in cell.losses.items() if mode not in first]
        if others:
            share, mode = max(others)
            words.append(f"{safe(mode)} {100 * share:.0f} % {where}")
    return [Text(f" behind it: {'; '.join(words)}", style="dim")] if words else []


def _between(one: Estimate, scale: float = 1) -> str:
    value, low, high = (_short(scale * end) if end is not None else "" for end in (one.value, one.lo, one.hi))
    return value if not low or not high or low == high else f"{value} ({low}–{high})"


def _any_reached(found: Envelope) -> bool:
    axes = [sorted({getattr(cell, key) for cell in found.map}) for key in ("ranks", "heterogeneity", "intensity")]
    points = (found.point.ranks, found.point.heterogeneity, found.point.intensity)
    own = tuple(_near(point.value, axis) for point, axis in zip(points, axes, strict=True))
    return any(
        (here := (cell.ranks, cell.heterogeneity, cell.intensity)) != own and _reaches(found, here, (own[0], own[1], own[2]))
        for cell in found.map
    )
